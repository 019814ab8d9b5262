//! A trace at another rate, without stretching time: bursts stay as sharp as they were.
//!
//! More of it is whole copies, each beginning elsewhere in the trace and with prompts of its own; less of it is a share
//! of its sessions, chosen by a hash, so that what one client asks in turn stays together. Traces have no sessions:
//! they are told by the blocks that prompts begin with. A block that hardly tells anything, because every fourth
//! request begins with it (a common system prompt), makes no session.
//!
//! Times that are the same are spread evenly until the next: Mooncake's are written in steps of three seconds.

use std::collections::BTreeMap;

use super::chance::mixed;
use crate::simulate::request::Request;
use crate::units::Seconds;

/// A block that this share of requests begins with belongs to nobody.
const COMMON: usize = 4;
/// Equal times are spread over this at most.
const STEP: Seconds = Seconds(3.0);

/// This trace at so many requests a second, at most so many of them; as it is when no rate is wanted.
#[must_use]
pub fn at_rate(mut trace: Vec<Request>, rate: Option<f64>, seed: u64, most: usize) -> Vec<Request> {
    spread(&mut trace);
    mark_sessions(&mut trace);
    let span = trace.last().map_or(0.0, |last| last.at.0);
    let Some(rate) = rate.filter(|_| span > 0.0) else {
        return trace;
    };
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    let wanted = (rate * span).min(most as f64) / trace.len() as f64;
    let copies = wanted.ceil().max(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of copies"
    )]
    let mut load: Vec<Request> = (0..copies as u64)
        .flat_map(|number| copy(&trace, number, (copies, span)))
        .filter(|request| share(request.session, seed) < wanted / copies)
        .collect();
    load.sort_by(|one, other| one.at.0.total_cmp(&other.at.0));
    load
}

/// The trace with names of its own, from where the clients of this copy begin; the first is the trace itself.
fn copy(trace: &[Request], number: u64, (copies, span): (f64, f64)) -> Vec<Request> {
    if number == 0 {
        return trace.to_vec();
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of copies")]
    let later = span * number as f64 / copies;
    let copied = trace.iter().map(|request| Request {
        at: Seconds((request.at.0 + later) % span),
        blocks: request
            .blocks
            .iter()
            .map(|block| mixed(number, *block))
            .collect(),
        session: mixed(number, request.session),
        ..request.clone()
    });
    copied.collect()
}

/// A number in 0…1 that belongs to a session.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
fn share(session: u64, seed: u64) -> f64 {
    (mixed(seed, session) >> 11) as f64 / (1u64 << 53) as f64
}

fn spread(trace: &mut [Request]) {
    let mut begin = 0;
    while begin < trace.len() {
        let at = trace[begin].at;
        let same = trace[begin..].iter().take_while(|one| one.at == at).count();
        let next = trace.get(begin + same).map_or(STEP, |next| next.at - at);
        #[expect(clippy::cast_precision_loss, reason = "some dozens")]
        for (place, request) in trace[begin..begin + same].iter_mut().enumerate() {
            request.at = at + next.min(STEP) * (place as f64 / same as f64);
        }
        begin += same;
    }
}

/// A request belongs to the session that knows the longest part of its beginning, or begins one.
fn mark_sessions(trace: &mut [Request]) {
    let mut uses: BTreeMap<u64, usize> = BTreeMap::new();
    for block in trace.iter().flat_map(|request| &*request.blocks) {
        *uses.entry(*block).or_default() += 1;
    }
    let common = (trace.len() / COMMON).max(1);
    let mut owners: BTreeMap<u64, u64> = BTreeMap::new();
    for (number, request) in (0..).zip(trace) {
        let own = || request.blocks.iter().filter(|block| uses[*block] <= common);
        let known = own().rev().find_map(|block| owners.get(block));
        request.session = known.copied().unwrap_or(mixed(0x5e55, number));
        for block in own() {
            owners.entry(*block).or_insert(request.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Work;

    /// Ten requests in steps of three seconds, two of each session, that share one block with all.
    fn trace() -> Vec<Request> {
        let request = |number: u32| Request {
            at: Seconds(f64::from(number / 5) * 3.0),
            work: Work::Generate,
            prompt: 1_024.0,
            output: 1.0,
            blocks: [0, 1 + u64::from(number % 5), 100 + u64::from(number)].into(),
            session: 0,
            adapter: None,
        };
        (0..10).map(request).collect()
    }

    #[test]
    fn equal_times_are_spread_and_sessions_are_told_by_their_blocks() {
        let mut load = at_rate(trace(), None, 1, 10_000);
        let times: Vec<f64> = load.iter().map(|one| (one.at.0 * 10.0).round()).collect();
        assert_eq!(
            times,
            [0.0, 6.0, 12.0, 18.0, 24.0, 30.0, 36.0, 42.0, 48.0, 54.0]
        );
        assert!((0..5).all(|number| load[number].session == load[number + 5].session));
        load.truncate(5);
        load.dedup_by_key(|one| one.session);
        assert_eq!(load.len(), 5);
    }

    #[test]
    fn less_is_whole_sessions_and_more_is_copies_with_prompts_of_their_own() {
        let long: Vec<Request> = (0..2_000_u32)
            .map(|number| Request {
                at: Seconds(f64::from(number)),
                blocks: [u64::from(number) / 2].into(),
                ..trace().remove(0)
            })
            .collect();
        let less = at_rate(long.clone(), Some(0.25), 1, 10_000);
        assert!((400..600).contains(&less.len()), "{}", less.len());
        let alone =
            |one: &&Request| less.iter().filter(|two| two.session == one.session).count() != 2;
        assert_eq!(less.iter().filter(alone).count(), 0);
        assert_ne!(
            less,
            at_rate(long.clone(), Some(0.25), 2, 10_000),
            "another seed, another share"
        );
        let more = at_rate(long, Some(2.5), 1, 10_000);
        assert!((4_700..5_300).contains(&more.len()), "{}", more.len());
        let first = more.iter().filter(|one| *one.blocks == [0]).count();
        assert!(first <= 2, "{first}");
        assert!(more.iter().all(|one| one.at.0 < 2_000.0));
    }

    #[test]
    fn odd_traces_do_no_harm() {
        assert!(at_rate(Vec::new(), Some(2.0), 1, 10_000).is_empty());
        assert_eq!(
            at_rate(trace()[..1].to_vec(), Some(2.0), 1, 10_000).len(),
            1
        );
    }
}
