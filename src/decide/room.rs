//! Whether a prompt can fit a worker at all, so that it goes to one that can take it, or is refused at once.
//!
//! An engine refuses a prompt that is longer than its model's context, and one that its memory can never hold; sent
//! there, the request is lost although a machine beside it may have had the room. What bounds a prompt:
//!
//! | bound | counts | who says so |
//! |---|---|---|
//! | `max_prompt_tokens` | the prompt | the operator |
//! | longest prompt | the prompt | llama.cpp, TEI, TGI: an answer is cut where the context ends, or has none |
//! | memory | the prompt | vLLM, SGLang: the keys and values of one prompt lie in it together |
//! | context | the prompt and the client's bound on output tokens | vLLM, SGLang, TGI: both together are checked |
//!
//! A bound that nobody tells is none. Token ids are counted; how many tokens a text makes is estimated, and an estimate
//! that errs upwards refuses what would have been answered. So a text is too long only when even a careful estimate says
//! so (`density.rs`), and what lies between goes to a worker, whose own answer is exact. What can't be told at all bars
//! nobody: several prompts in one request, pictures, tensors, and requests and engines that cut what is too long.
//!
//! Guaranteed: who stands in line is measured once, when it joins, so that the workers that it fits change only when a
//! worker's bounds do.

use super::ask::{Ask, Work};
use super::density::Density;
use super::worker::Worker;

/// The room that a request needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// Tokens of its prompt, at least.
    pub prompt: f64,
    /// The most output tokens the client wants, where it says so.
    output: f64,
}

impl Need {
    /// That of a request for a model of this density.
    pub(super) fn of(ask: &Ask, density: Density) -> Self {
        let bound = ask.max_tokens.filter(|_| ask.work == Work::Generate);
        Need {
            prompt: ask.fills.map_or(0.0, |fills| density.at_least(fills)),
            output: bound.map_or(0.0, f64::from),
        }
    }

    /// Whether it is too long for a worker.
    pub(super) fn exceeds(self, worker: &Worker) -> bool {
        self.prompt > longest(worker, self.output)
    }

    /// Tokens of the longest prompt that one of these takes with as long an answer.
    pub(super) fn most<'a>(self, workers: impl Iterator<Item = &'a Worker>) -> u64 {
        let bounds = workers.map(|worker| longest(worker, self.output));
        whole(bounds.fold(0.0, f64::max))
    }
}

/// Tokens of the longest prompt that a worker takes, where anything bounds it.
pub(super) fn known(worker: &Worker) -> Option<u64> {
    Some(whole(longest(worker, 0.0))).filter(|most| *most < u64::MAX)
}

/// Tokens of the longest prompt that a worker takes when its answer may have so many.
pub(super) fn longest(worker: &Worker, output: f64) -> f64 {
    let (told, typed) = (worker.told, worker.spec().longest_prompt);
    let of_engine = [
        told.longest_prompt,
        told.kv_tokens,
        told.context.map(|context| context - output),
    ];
    let of_engine = of_engine.into_iter().flatten().filter(|_| !told.cuts);
    // What is no number is dropped by `min`.
    let bounds = of_engine.chain(typed.map(f64::from));
    bounds.fold(f64::INFINITY, f64::min).max(0.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bound is no less than zero; one beyond all numbers saturates"
)]
fn whole(bound: f64) -> u64 {
    bound as u64
}

#[cfg(test)]
mod tests {
    use super::super::ask::{Claim, Told, WorkerSpec};
    use super::*;
    use crate::facts::Prefix;
    use crate::units::{Length, WorkerId};

    fn worker(typed: Option<u32>, told: Told) -> Worker {
        let spec = WorkerSpec {
            longest_prompt: typed,
            ..WorkerSpec::new("w", 1)
        };
        let mut worker = Worker::new(WorkerId(0), spec);
        worker.told = told;
        worker
    }

    fn need(work: Work, fills: Option<Length>, max_tokens: Option<u32>) -> Need {
        let ask = Ask {
            model: None,
            only: None,
            zones: None,
            from: None,
            path: None,
            work,
            prompt: Length::Tokens(1e6),
            fills,
            prefix: Prefix::default(),
            max_tokens,
            deadline: None,
            streamed: true,
            claim: Claim::default(),
        };
        Need::of(&ask, Density::default())
    }

    #[test]
    fn the_least_bound_holds_and_only_the_context_counts_the_answer() {
        let told = Told {
            context: Some(1_000.0),
            longest_prompt: Some(900.0),
            kv_tokens: Some(800.0),
            ..Told::default()
        };
        let all = worker(Some(700), told);
        assert_eq!(longest(&all, 0.0), 700.0);
        assert_eq!(longest(&all, 400.0), 600.0);
        assert_eq!(longest(&all, 4_000.0), 0.0);
        assert_eq!(longest(&worker(None, told), 100.0), 800.0);
        assert_eq!(longest(&worker(None, Told::default()), 1e9), f64::INFINITY);
        let cutting = Told { cuts: true, ..told };
        assert_eq!(longest(&worker(Some(2_000), cutting), 0.0), 2_000.0);
        let odd = Told {
            context: Some(f64::NAN),
            ..Told::default()
        };
        assert_eq!(longest(&worker(Some(7), odd), 0.0), 7.0);
        assert_eq!(known(&all), Some(700));
        assert_eq!(known(&worker(None, Told::default())), None);
    }

    #[test]
    fn token_ids_are_counted_and_a_text_must_be_well_over_the_bound() {
        let worker = worker(Some(1_000), Told::default());
        let generate = |fills| need(Work::Generate, fills, None).exceeds(&worker);
        assert!(!generate(Some(Length::Tokens(1_000.0))));
        assert!(generate(Some(Length::Tokens(1_001.0))));
        assert!(!generate(Some(Length::Bytes(6_000.0))));
        assert!(generate(Some(Length::Bytes(6_010.0))));
        assert!(!generate(None));
    }

    #[test]
    fn an_answer_takes_room_only_where_one_is_generated() {
        let told = Told {
            context: Some(1_000.0),
            ..Told::default()
        };
        let worker = worker(None, told);
        let fills = Some(Length::Tokens(600.0));
        let exceeds = |work, bound| need(work, fills, bound).exceeds(&worker);
        assert!(exceeds(Work::Generate, Some(401)));
        assert!(!exceeds(Work::Generate, Some(400)));
        assert!(!exceeds(Work::Generate, None));
        assert!(!exceeds(Work::Embed, Some(401)));
    }

    #[test]
    fn the_longest_that_would_fit_is_the_greatest_of_the_bounds() {
        let told = |context| Told {
            context: Some(context),
            ..Told::default()
        };
        let workers = [1_000.5, 3_000.0].map(|context| worker(None, told(context)));
        let most = |bound| need(Work::Generate, None, bound).most(workers.iter());
        assert_eq!((most(None), most(Some(2_500))), (3_000, 500));
        assert_eq!(most(Some(9_000)), 0);
    }
}
