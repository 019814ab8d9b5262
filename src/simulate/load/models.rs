//! The same requests for several models: each session asks for one of them.

use std::borrow::Cow;

use super::chance::mixed;
use crate::simulate::request::Request;

/// A load of which so many models are asked for. Prompts for different models have nothing in common, however they begin.
#[must_use]
pub fn by_model(load: &[Request], models: u32) -> Cow<'_, [Request]> {
    if models < 2 {
        return Cow::Borrowed(load);
    }
    let apart = |request: &Request| {
        let model = u64::from(request.model(models));
        let blocks = request.blocks.iter().map(|block| mixed(*block, model));
        Request {
            blocks: blocks.collect(),
            ..request.clone()
        }
    };
    load.iter().map(apart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::load::tools;

    #[test]
    fn sessions_take_turns_and_prompts_for_different_models_have_nothing_in_common() {
        let mut one = tools(1.0, 1, 1).remove(0);
        one.blocks = [7, 8].into();
        let load = [0, 1, 2].map(|session| Request {
            session,
            ..one.clone()
        });
        let dealt = by_model(&load, 2);
        let models: Vec<u32> = dealt.iter().map(|request| request.model(2)).collect();
        assert_eq!(models, [0, 1, 0]);
        assert_eq!(dealt[0].blocks, dealt[2].blocks);
        assert_ne!(dealt[0].blocks[0], dealt[1].blocks[0]);
        assert_eq!(by_model(&load, 1), load.as_slice());
    }
}
