//! The clairvoyant: the earliest completion, by true speeds, caches, queues, health and answer lengths.
//!
//! For each candidate it runs a copy of the engine, with all that is there and on its way and the new request behind it,
//! until that is done; nothing else is guessed. It is greedy: it does not count the delay that a request lays on others,
//! so rules that do can beat it. It is a reference and not a bound. A dead worker it does not pick; a hung one seems to
//! take for ever.

use super::{Arrival, Rival, Sight};
use crate::rng::Rng;
use crate::simulate::engine::{Engine, Step};
use crate::simulate::fleet::Condition;
use crate::simulate::request::Request;
use crate::simulate::station::Station;
use crate::units::{Seconds, WorkerId};

/// The attempt that is looked ahead for: no real one has this number.
const OURS: usize = usize::MAX;

/// Knows everything but the future.
#[derive(Debug)]
pub struct Oracle;

impl Rival for Oracle {
    fn pick(&mut self, arrival: &Arrival<'_>, sight: &Sight<'_>, _rng: &mut Rng) -> WorkerId {
        let mut best = f64::INFINITY;
        let mut picked = None;
        for worker in arrival.candidates {
            let station = sight.station(*worker);
            if at_best(station, arrival.request) >= best {
                continue;
            }
            let done = completion(station, arrival.request, arrival.now);
            if done < best {
                (best, picked) = (done, Some(*worker));
            }
        }
        picked.unwrap_or_else(|| arrival.cheapest(|worker| f64::from(sight.held(worker).requests)))
    }
}

/// How long the request takes here at the very least, which spares looking ahead.
fn at_best(station: &Station, request: &Request) -> f64 {
    let card = station.engine.card();
    let cached = station.cached(request);
    let fresh = (request.prompt - cached).max(1.0);
    let read = card.reads(request.work, fresh, cached);
    let decode = card.token(1.0) * (request.output - 1.0).max(0.0);
    (station.round_trip + read + decode).0
}

/// How long it takes if nothing else comes; for ever when the worker is gone.
fn completion(station: &Station, request: &Request, now: Seconds) -> f64 {
    if station.condition == Condition::Dead {
        return f64::INFINITY;
    }
    let mut engine = station.engine.clone();
    for job in &station.coming {
        engine.push(*job, now);
    }
    engine.push(station.job(OURS, request), now);
    ends(engine).map_or(f64::INFINITY, |end| (end - now + station.round_trip).0)
}

/// When our request is done.
fn ends(mut engine: Engine) -> Option<Seconds> {
    loop {
        while engine.next_to_begin().is_some() {
            engine.begin();
        }
        let at = engine.next()?;
        if let Some(Step::Done(job)) = engine.step()
            && job.attempt == OURS
        {
            return Some(at);
        }
    }
}
