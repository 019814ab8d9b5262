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

#[cfg(test)]
mod tests {
    use super::super::Held;
    use super::*;
    use crate::simulate::engine::Job;
    use crate::simulate::fleet_file;
    use crate::simulate::load::tools;

    const PAIR: &str = "[[worker]]\nname = \"fast\"\ncard = \"RTX4090\"\n[[worker]]\nname = \"slow\"\ncard = \"T4\"\n";

    /// Whom it picks for a prompt of 9,000 tokens and an answer of 2 while the fast one has so much before it.
    fn picked(prepare: impl Fn(&mut [Station], &Request)) -> u32 {
        let fleet = fleet_file::parse(PAIR, std::path::Path::new("fleet.toml")).unwrap();
        let idle = fleet
            .members
            .iter()
            .map(|member| Station::idle(member, 1.0));
        let mut stations: Vec<Station> = idle.collect();
        let mut request = tools(1.0, 1, 1).remove(0);
        (request.prompt, request.output) = (9_000.0, 2.0);
        request.blocks = (0..17).collect();
        prepare(&mut stations, &request);
        let arrival = Arrival {
            request: &request,
            candidates: &[WorkerId(1), WorkerId(0)],
            now: Seconds(1.0),
        };
        let sight = Sight {
            stations: &stations,
            held: &[Held::default(); 2],
        };
        Oracle.pick(&arrival, &sight, &mut Rng::seeded(1)).0
    }

    /// So many prompts like ours: 1.2 s each on the fast card, 6.9 s on the slow one.
    fn waiting(station: &mut Station, request: &Request, count: usize) {
        let job = station.job(0, request);
        (0..count).for_each(|attempt| station.engine.push(Job { attempt, ..job }, Seconds(1.0)));
    }

    #[test]
    fn it_knows_speeds_queues_and_what_is_on_its_way() {
        assert_eq!(picked(|_, _| {}), 0);
        assert_eq!(
            picked(|stations, ours| waiting(&mut stations[0], ours, 4)),
            0
        );
        assert_eq!(
            picked(|stations, ours| waiting(&mut stations[0], ours, 6)),
            1
        );
        let coming = |stations: &mut [Station], ours: &Request| {
            let job = stations[0].job(0, ours);
            stations[0].coming = vec![job; 6];
        };
        assert_eq!(picked(coming), 1);
    }

    #[test]
    fn it_knows_caches() {
        // All but a few of the prompt's 9,000 tokens are on the slow card, which has them read in 0.3 s.
        let cached = |own: bool| {
            picked(|stations, ours| {
                waiting(&mut stations[0], ours, 2);
                let other = [u64::MAX];
                let known = if own { &*ours.blocks } else { &other };
                stations[1].cache.keep(known);
            })
        };
        assert_eq!([cached(true), cached(false)], [1, 0]);
    }

    #[test]
    fn it_knows_who_is_slow_hangs_or_is_dead() {
        let health =
            |health| picked(|stations, _| stations[0].engine.set_health(health, Seconds(1.0)));
        assert_eq!([0.5, 0.05, 0.0].map(health), [0, 1, 1]);
        assert_eq!(
            picked(|stations, _| stations[0].condition = Condition::Dead),
            1
        );
    }
}
