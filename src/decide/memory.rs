//! The KV memory of one worker: when it is short, a request waits although a slot is free.
//!
//! An engine keeps the keys and values of every token of a request until its answer is complete. When they don't fit, a
//! new request is not begun, or a running one is thrown out and computed anew (vLLM calls it preemption): slots and
//! queues say nothing of it. Where the engine tells how many tokens it can hold, what is held there is reckoned as what
//! the requests will have grown to, prompt and expected answer together. Where it doesn't, nothing is: a guessed
//! capacity would keep work from machines that have room.
//!
//! ```text
//! excess = held + needed − capacity
//! wait   ≥ (excess / mean tokens per held request)·(½·decode + own)/max(1, streams)
//! ```
//!
//! The first factor is how many requests must end first, at most all. Each is taken to be like the one that is priced,
//! and half way through its answer; those that stream end beside each other. Prefixes that requests share are counted
//! once for each, so a worker with many of them looks fuller than it is; its wait is bounded by the time of what it
//! holds, and it is dearer, never forbidden.
//!
//! What others hold there, by the engine's own word (`told_load.rs`), is held as well, by as many requests as run there
//! and are not ours; where that is not told, by requests like the one that is priced.
//!
//! Sums are of whole tokens, which floating-point numbers add without error: what comes in goes out again, and a worker
//! that holds nothing holds exactly nothing.

use super::ask::Work;
use super::cost::Size;
use super::told_load::Foreign;
use super::worker::Worker;
use crate::units::Seconds;

/// What the generating requests on a worker need when their answers are complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    tokens: f64,
    /// Those of them that they can't have in common.
    fresh: f64,
    requests: u32,
}

impl Memory {
    /// A generating request arrives.
    pub(super) fn enter(&mut self, size: Size) {
        self.tokens += needed(size);
        self.fresh += fresh(size);
        self.requests += 1;
    }

    /// It leaves.
    pub(super) fn leave(&mut self, size: Size) {
        self.tokens = (self.tokens - needed(size)).max(0.0);
        self.fresh = (self.fresh - fresh(size)).max(0.0);
        self.requests = self.requests.saturating_sub(1);
    }

    /// Whether it agrees with itself and with the count of generating requests held.
    pub(super) fn check(self, generating: u32) -> Result<(), String> {
        let Memory {
            tokens, requests, ..
        } = self;
        if requests == generating && (requests > 0) == (tokens > 0.0) {
            return Ok(());
        }
        Err(format!(
            "{tokens} tokens of {requests} requests in memory, {generating} generating"
        ))
    }

    /// Tokens that they need.
    pub(super) fn tokens(self) -> f64 {
        self.tokens
    }
}

/// How long a request of this size, prefill and decode time waits for memory on a worker, beside what others do there.
pub(super) fn wait(
    worker: &Worker,
    size: Size,
    own: Seconds,
    decode: Seconds,
    foreign: Foreign,
) -> Seconds {
    let (Some(capacity), Work::Generate) = (worker.told.kv_tokens, size.work) else {
        return Seconds::ZERO;
    };
    let held = worker.memory.tokens + foreign.tokens;
    let excess = held + needed(size) - capacity;
    let others = if foreign.running > 0.0 {
        foreign.running
    } else {
        foreign.tokens / needed(size)
    };
    let holders = f64::from(worker.memory.requests) + others;
    let streams = (f64::from(worker.decoding()) + foreign.running).max(1.0);
    (decode * 0.5 + own) * (must_end(excess, held, holders) / streams)
}

/// Whether those that a worker holds fill its memory for sure: what they were believed to have in its cache may be the
/// same for all of them.
pub(super) fn is_full(worker: &Worker) -> bool {
    let capacity = worker.told.kv_tokens;
    capacity.is_some_and(|capacity| worker.memory.fresh >= capacity)
}

/// How many of those who hold so many tokens must end until the excess is free.
fn must_end(excess: f64, held: f64, holders: f64) -> f64 {
    if holders > 0.0 && held > 0.0 && excess > 0.0 {
        excess.min(held) / (held / holders)
    } else {
        0.0
    }
}

/// The tokens in memory when its answer is complete.
fn needed(size: Size) -> f64 {
    (size.prompt + size.output).round()
}

/// Those of them that were not in its cache.
fn fresh(size: Size) -> f64 {
    needed(size) - size.cached.round()
}

#[cfg(test)]
mod tests {
    use super::super::ask::{Ask, Choice, Claim, Outcome, Told, WorkerSpec};
    use super::super::fleet::FleetState;
    use super::super::pick::Policy;
    use super::*;
    use crate::facts::Prefix;
    use crate::rng::Rng;
    use crate::units::{Length, WorkerId};

    const SIDES: [WorkerId; 2] = [WorkerId(0), WorkerId(1)];

    /// Two equal workers, of which the first tells this capacity.
    fn fleet(kv_tokens: Option<f64>) -> FleetState {
        let spec = |name: &str| WorkerSpec::new(name, 8);
        let mut fleet = FleetState::new(vec![spec("a"), spec("b")], Policy::LeastTime);
        let told = Told {
            kv_tokens,
            ..Told::default()
        };
        fleet.told(SIDES[0], told);
        fleet
    }

    /// Sends a request of 600 tokens, whose answer is expected to have 200, to one of these workers.
    fn send(fleet: &mut FleetState, work: Work, among: &[WorkerId]) -> Choice {
        let ask = Ask {
            model: None,
            only: Some(among.into()),
            zones: None,
            from: None,
            path: None,
            work,
            prompt: Length::Tokens(600.0),
            fills: None,
            prefix: Prefix::default(),
            max_tokens: None,
            deadline: None,
            streamed: true,
            claim: Claim::default(),
        };
        let choice = fleet.choose(&ask, &[], Seconds(1.0), &mut Rng::seeded(1));
        fleet.check_invariants().unwrap();
        choice.unwrap()
    }

    /// The wait of a second request on the first worker.
    fn second(kv_tokens: Option<f64>, works: [Work; 2]) -> f64 {
        let mut fleet = fleet(kv_tokens);
        let [first, second] = works.map(|work| send(&mut fleet, work, &SIDES[..1]));
        for choice in [first.booking, second.booking] {
            fleet.finish(choice, Outcome::Gone, Seconds(1.0));
        }
        fleet.check_invariants().unwrap();
        second.terms.wait.0
    }

    #[test]
    fn a_request_waits_for_those_who_hold_what_it_needs() {
        const CHATS: [Work; 2] = [Work::Generate; 2];
        let ahead = 0.110_75;
        // Half a decode of 199 tokens at two, and its own prefill.
        let one_ends = 0.5 * 199.0 * 0.021 + ahead;
        let near = |wait: f64, expected: f64| (wait - expected).abs() < 1e-9;
        assert!(near(second(None, CHATS), ahead));
        assert!(near(second(Some(1_600.0), CHATS), ahead), "all fit");
        assert!(near(second(Some(1_200.0), CHATS), 0.5 * one_ends));
        assert!(near(second(Some(100.0), CHATS), one_ends), "all at most");
        assert!(near(second(Some(f64::NAN), CHATS), ahead));
        let others = [[Work::Generate, Work::Embed], [Work::Embed, Work::Generate]];
        for works in others {
            let unknown = second(None, works);
            assert!(near(second(Some(900.0), works), unknown), "{works:?}");
        }
    }

    #[test]
    fn those_who_stream_end_beside_each_other() {
        let mut fleet = fleet(Some(2_400.0));
        let mut held = [(); 3].map(|()| send(&mut fleet, Work::Generate, &SIDES[..1]));
        for choice in &mut held[..2] {
            fleet.first_byte(&mut choice.booking, Seconds(1.0));
        }
        let terms = send(&mut fleet, Work::Generate, &SIDES[..1]).terms;
        let expected = (terms.decode * 0.5 + terms.own) / 2.0;
        assert!((terms.wait - expected).0.abs() < 1e-9, "{terms:?}");
    }

    #[test]
    fn who_is_short_of_memory_is_not_preferred_and_who_does_not_tell_is() {
        // The second worker has more to do, but only the first can be full.
        let chosen = |kv_tokens| {
            let mut fleet = fleet(kv_tokens);
            let _held = [0, 1, 1].map(|side| {
                let side = &SIDES[side..=side];
                send(&mut fleet, Work::Generate, side)
            });
            send(&mut fleet, Work::Generate, &SIDES).worker
        };
        assert_eq!(chosen(None), SIDES[0]);
        assert_eq!(chosen(Some(1_600.0)), SIDES[0]);
        assert_eq!(chosen(Some(1_000.0)), SIDES[1]);
    }

    #[test]
    fn a_new_life_begins_with_an_empty_memory() {
        let mut fleet = fleet(Some(1_000.0));
        let old = send(&mut fleet, Work::Generate, &SIDES[..1]);
        fleet.probe(SIDES[0], Err("no answer".into()), Seconds(1.0));
        fleet.probe(SIDES[0], Ok(()), Seconds(1.0));
        let new = send(&mut fleet, Work::Generate, &SIDES[..1]);
        assert_eq!(new.terms.wait, Seconds::ZERO);
        for booking in [old.booking, new.booking] {
            fleet.finish(booking, Outcome::Gone, Seconds(1.0));
            fleet.check_invariants().unwrap();
        }
    }

    #[test]
    fn counts_that_disagree_are_noticed() {
        let mut memory = Memory::default();
        assert_eq!(memory.check(0), Ok(()));
        memory.enter(Size::new(Work::Generate, 600.4, 99.3));
        assert_eq!((memory.check(1), memory.tokens), (Ok(()), 700.0));
        memory.check(2).unwrap_err();
        memory.tokens = 0.0;
        memory.check(1).unwrap_err();
    }
}
