//! Every rule that can be compared, by its name.

use super::fleet::Fleet;
use super::rivals::{DynamoLike, LlmDLike, Oracle, P2c, PeakEwma, PrefixHash, Rival, SglangLike};
use super::world::Chooser;
use crate::config::Choice as _;
use crate::decide::Policy;

/// Our own policies, by the words of the configuration, then rules of others, then the reference.
pub const RULES: [&str; 12] = [
    "least_time",
    "weighted",
    "round_robin",
    "least_inflight",
    "random",
    "p2c",
    "peak_ewma",
    "prefix_hash_bounded",
    "sglang_like",
    "llm_d_like",
    "dynamo_like",
    "oracle",
];

/// Who chooses under this name; `None` when nobody has it.
pub(super) fn chooser(name: &str, fleet: &Fleet) -> Option<Chooser> {
    if let Some(policy) = Policy::named(name) {
        return Some(Chooser::Policy(policy));
    }
    let rival: Box<dyn Rival> = match name {
        "p2c" => Box::new(P2c),
        "peak_ewma" => Box::new(PeakEwma::of(fleet)),
        "prefix_hash_bounded" => Box::new(PrefixHash::of(fleet)),
        "sglang_like" => Box::new(SglangLike::of(fleet)),
        "llm_d_like" => Box::new(LlmDLike::of(fleet)),
        "dynamo_like" => Box::new(DynamoLike),
        "oracle" => Box::new(Oracle),
        _ => return None,
    };
    Some(Chooser::Rival(rival))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::fleet_file;

    #[test]
    fn every_name_stands_for_a_rule() {
        let text = "[[worker]]\nname = \"a\"\ncard = \"T4\"\n";
        let fleet = fleet_file::parse(text, std::path::Path::new("fleet.toml")).unwrap();
        assert!(RULES.iter().all(|name| chooser(name, &fleet).is_some()));
        assert!(chooser("fastest", &fleet).is_none());
    }
}
