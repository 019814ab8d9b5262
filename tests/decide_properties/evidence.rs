//! Protections: what errors, busy workers and recoveries do to who is chosen, for one, two and three workers.
//!
//! A table says what each protection does at each size, and random histories of 256 seeds are checked after every choice.

use forebay::decide::{
    AllDown, Ask, Booking, Choice, FleetState, NoChoice, Outcome, Policy, Rules, State, Work,
    WorkerView,
};
use forebay::rng::Rng;
use forebay::units::{Seconds, WorkerId};

use crate::{ask, spec};

const SEEDS: u64 = 256;
const ANSWERED: Outcome = Outcome::Answered {
    prompt_tokens: None,
    cached_tokens: None,
    output_tokens: None,
};

/// Workers under test, and the time.
struct Trial {
    fleet: FleetState,
    rng: Rng,
    now: Seconds,
}

impl Trial {
    fn of(workers: u32, all_down: AllDown) -> Self {
        let specs = (0..workers).map(|id| spec(&format!("worker-{id}"), &["m"], 4));
        let rules = Rules {
            all_down,
            ..Policy::LeastInflight.into()
        };
        Trial {
            fleet: FleetState::new(specs.collect(), rules),
            rng: Rng::seeded(7),
            now: Seconds(1.0),
        }
    }

    fn choose(&mut self, ask: &Ask, tried: &[WorkerId]) -> Result<Choice, NoChoice> {
        self.fleet.choose(ask, tried, self.now, &mut self.rng)
    }

    /// Who gets a request now; its place is given back at once.
    fn pick(&mut self) -> Result<u32, NoChoice> {
        let choice = self.choose(&chat(), &[])?;
        self.fleet.finish(choice.booking, Outcome::Gone, self.now);
        Ok(choice.worker.0)
    }

    /// A request on this worker ends in this way, if the worker is given one.
    fn end(&mut self, worker: u32, outcome: Outcome) {
        let routed = Ask {
            only: Some([WorkerId(worker)].into()),
            ..chat()
        };
        if let Ok(choice) = self.choose(&routed, &[]) {
            self.fleet.finish(choice.booking, outcome, self.now);
        }
    }

    /// Three requests on each worker end in this way.
    fn all_end(&mut self, workers: u32, outcome: Outcome) {
        for worker in 0..workers {
            (0..3).for_each(|_| self.end(worker, outcome));
        }
    }

    fn ejected(&self) -> usize {
        let views = self.fleet.snapshot(self.now);
        views
            .iter()
            .filter(|view| view.state == State::Ejected)
            .count()
    }

    fn wait(&mut self, seconds: f64) {
        self.now += Seconds(seconds);
        self.fleet.tick(self.now);
    }
}

fn chat() -> Ask {
    ask("m", Work::Generate, 100.0)
}

#[test]
fn at_most_half_are_out_for_errors_and_never_the_only_one() {
    for (workers, out) in [(1, 0), (2, 1), (3, 1)] {
        let mut trial = Trial::of(workers, AllDown::Queue);
        trial.all_end(workers, Outcome::Failed);
        assert_eq!(trial.ejected(), out, "of {workers}");
        assert!(trial.pick().is_ok(), "of {workers}");
        trial.wait(5.0);
        assert_eq!(trial.ejected(), 0, "of {workers}");
    }
}

#[test]
fn whoever_refuses_connections_is_out_unless_there_is_nobody_else() {
    for all_down in [AllDown::Queue, AllDown::Fail, AllDown::TryAll] {
        for (workers, out) in [(1, 0), (2, 2), (3, 3)] {
            let mut trial = Trial::of(workers, all_down);
            trial.all_end(workers, Outcome::Refused);
            assert_eq!(trial.ejected(), out, "of {workers}");
            let picked = trial.pick().map(|_| ());
            let expected = match all_down {
                _ if workers == 1 => Ok(()),
                AllDown::Queue => Err(NoChoice::Away),
                AllDown::Fail | AllDown::TryAll => Err(NoChoice::Down),
            };
            assert_eq!(picked, expected, "{all_down:?}, of {workers}");
        }
    }
}

#[test]
fn the_ejected_are_tried_before_the_dead_and_only_if_the_operator_says_so() {
    for (all_down, expected) in [
        (AllDown::Queue, Err(NoChoice::Away)),
        (AllDown::Fail, Err(NoChoice::Down)),
        (AllDown::TryAll, Ok(0)),
    ] {
        let mut trial = Trial::of(2, all_down);
        trial.all_end(1, Outcome::Failed);
        let dead = Err("no answer".to_owned());
        trial.fleet.probe(WorkerId(1), dead, trial.now);
        assert_eq!(trial.pick(), expected, "{all_down:?}");
    }
    let mut dead = Trial::of(1, AllDown::TryAll);
    let verdict = Err("no answer".to_owned());
    dead.fleet.probe(WorkerId(0), verdict, dead.now);
    assert_eq!(dead.pick(), Ok(0));
}

#[test]
fn a_busy_worker_is_left_alone_while_another_lives() {
    let busy = |seconds| Outcome::Busy {
        retry_after: Some(Seconds(seconds)),
    };
    for workers in [1, 2, 3] {
        let mut trial = Trial::of(workers, AllDown::Queue);
        trial.end(0, busy(5.0));
        trial.end(0, busy(1.0));
        trial.wait(4.9);
        for _ in 0..20 {
            assert_eq!(trial.pick().unwrap() == 0, workers == 1, "of {workers}");
        }
        // Others at their cap are waited for.
        let held: Vec<Booking> = (0..(workers - 1) * 4)
            .map(|_| trial.choose(&chat(), &[]).unwrap().booking)
            .collect();
        let last = trial.pick();
        assert_eq!(last.is_err(), workers > 1, "of {workers}: {last:?}");
        for booking in held {
            trial.fleet.finish(booking, Outcome::Gone, trial.now);
        }
        // When all are on hold, the first to be free again is asked.
        (1..workers).for_each(|worker| trial.end(worker, busy(9.0)));
        assert_eq!(trial.pick(), Ok(0), "of {workers}");
        trial.wait(0.1);
        assert_eq!(trial.pick(), Ok(0), "of {workers}");
        let view = &trial.fleet.snapshot(trial.now)[0];
        assert_eq!((view.held, view.decode.samples), (None, 0));
    }
}

#[test]
fn the_hold_of_one_that_is_out_bars_nobody_else() {
    let mut trial = Trial::of(2, AllDown::Queue);
    let busy = |seconds| Outcome::Busy {
        retry_after: Some(Seconds(seconds)),
    };
    let routed = Ask {
        only: Some([WorkerId(0)].into()),
        ..chat()
    };
    let held: Vec<Booking> = (0..4)
        .map(|_| trial.choose(&routed, &[]).unwrap().booking)
        .collect();
    let ends = [Outcome::Failed, Outcome::Failed, Outcome::Failed, busy(2.0)];
    for (booking, outcome) in held.into_iter().zip(ends) {
        trial.fleet.finish(booking, outcome, trial.now);
    }
    trial.end(1, busy(9.0));
    assert_eq!(trial.ejected(), 1);
    assert_eq!(trial.pick(), Ok(1), "its hold yields, as nobody else is up");
}

#[test]
fn a_worker_that_comes_back_gets_one_request_then_two() {
    for workers in [1, 2, 3] {
        let mut trial = Trial::of(workers, AllDown::Queue);
        let back = WorkerId(0);
        let dead = Err("no answer".to_owned());
        trial.fleet.probe(back, dead, trial.now);
        (0..2).for_each(|_| drop(trial.fleet.probe(back, Ok(()), trial.now)));
        let routed = Ask {
            only: Some([back].into()),
            ..chat()
        };
        let mut first = trial.choose(&routed, &[]).unwrap().booking;
        assert_eq!(trial.choose(&routed, &[]).unwrap_err(), NoChoice::Busy);
        trial.fleet.first_byte(&mut first, trial.now);
        let second = trial.choose(&routed, &[]).unwrap().booking;
        assert_eq!(trial.choose(&routed, &[]).unwrap_err(), NoChoice::Busy);
        for booking in [first, second] {
            trial.fleet.finish(booking, ANSWERED, trial.now);
        }
        assert_eq!(trial.fleet.snapshot(trial.now)[0].allowed, None);
    }
}

#[test]
fn a_retry_goes_to_another_machine_if_there_is_one() {
    let on = |name: &str, machine: &str| forebay::decide::WorkerSpec {
        machine: Some(machine.into()),
        ..spec(name, &["m"], 4)
    };
    let specs = vec![on("a", "desk"), on("b", "desk"), on("c", "rack")];
    let mut fleet = FleetState::new(specs, Policy::Random);
    let mut rng = Rng::seeded(1);
    let mut retried = |tried: &[WorkerId]| {
        let choice = fleet.choose(&chat(), tried, Seconds(1.0), &mut rng);
        let Choice {
            worker, booking, ..
        } = choice.unwrap();
        fleet.finish(booking, Outcome::Gone, Seconds(1.0));
        worker.0
    };
    for _ in 0..20 {
        assert_eq!(retried(&[WorkerId(0)]), 2);
        assert_eq!(retried(&[WorkerId(0), WorkerId(2)]), 1);
    }
}

#[test]
fn an_outage_raises_the_risk_of_the_neighbours_too() {
    let on = |name: &str, machine: Option<&str>| forebay::decide::WorkerSpec {
        machine: machine.map(Into::into),
        ..spec(name, &["m"], 4)
    };
    let specs = vec![on("a", Some("desk")), on("b", Some("desk")), on("c", None)];
    let mut trial = Trial {
        fleet: FleetState::new(specs, Policy::LeastTime),
        rng: Rng::seeded(1),
        now: Seconds(1.0),
    };
    trial.end(0, Outcome::Failed);
    let views = trial.fleet.snapshot(trial.now);
    let timeouts = [0, 1, 2].map(|worker: usize| views[worker].fail_timeout.0.round());
    assert_eq!(timeouts, [300.0, 300.0, 600.0]);
}

/// The fail timeouts after a random history of one worker, and two hours later. A share of the requests whose client left
/// fails instead, by a draw that changes nothing else.
fn fail_timeouts(seed: u64, failing: f64) -> [f64; 2] {
    let mut trial = Trial::of(1, AllDown::Queue);
    let mut rng = Rng::seeded(seed);
    for _ in 0..100 {
        trial.wait(rng.unit());
        let (kind, draw) = (rng.below(4), rng.unit());
        let outcome = match kind {
            0 | 1 => ANSWERED,
            2 => Outcome::Failed,
            _ if draw < failing => Outcome::Failed,
            _ => Outcome::Gone,
        };
        trial.end(0, outcome);
    }
    let timeout = |now| trial.fleet.snapshot(now)[0].fail_timeout.0;
    [trial.now, trial.now + Seconds(7_200.0)].map(timeout)
}

/// Whether the worker that fails more is trusted no more, and both are forgiven in time.
fn fewer_failures_are_worth_more(few: [f64; 2], many: [f64; 2]) -> Result<(), String> {
    // An outage that begins a few seconds earlier has faded by so much more.
    if many[0] > few[0] * 1.03 {
        return Err(format!("trusted for {many:?} instead of {few:?}"));
    }
    if [few[1], many[1]]
        .iter()
        .any(|later| (later - 600.0).abs() > 10.0)
    {
        return Err(format!("not forgiven: {few:?}, {many:?}"));
    }
    Ok(())
}

#[test]
fn more_failures_never_earn_trust_and_silence_forgives_them() {
    for seed in 0..SEEDS {
        let few = fail_timeouts(seed, 0.0);
        let many = fail_timeouts(seed, 0.5);
        fewer_failures_are_worth_more(few, many)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Negative control: trust that grows with failures, or that never comes back, is noticed.
#[test]
fn trust_that_failures_earn_is_caught() {
    for seed in 0..SEEDS {
        let (few, many) = (fail_timeouts(seed, 0.0), fail_timeouts(seed, 1.0));
        assert!(many[0] < few[0] / 1.03, "seed {seed}: {few:?} {many:?}");
        fewer_failures_are_worth_more(many, few).unwrap_err();
        fewer_failures_are_worth_more(few, [many[0], many[0]]).unwrap_err();
    }
}

/// Whether a worker might be chosen, by what people see of the fleet.
fn may_be_chosen(views: &[WorkerView], worker: WorkerId, tried: &[WorkerId]) -> Result<(), String> {
    let view = &views[worker.index()];
    let alive = |view: &WorkerView| matches!(view.state, State::Up | State::Starting);
    let free = |other: &WorkerView| alive(other) && other.held.is_none();
    let limit = view.allowed.or(view.cap.most()).unwrap();
    let passed_over = views
        .iter()
        .any(|other| free(other) && !tried.contains(&other.id));
    // One that is out may be tried, if its probes pass, when nobody else is left.
    let left = |other: &WorkerView| alive(other) && !tried.contains(&other.id);
    let last_resort = view.state == State::Ejected && !views.iter().any(left);
    if !alive(view) && !last_resort {
        return Err(format!("{} is {}", view.name, view.state.label()));
    }
    if view.inflight >= limit {
        return Err(format!("{} holds {} of {limit}", view.name, view.inflight));
    }
    if tried.contains(&worker) || (view.held.is_some() && passed_over) {
        return Err(format!("{} is on hold or was tried", view.name));
    }
    Ok(())
}

/// A random history of three workers, every choice of which is checked. Returns how many were made.
fn history(seed: u64) -> Result<usize, String> {
    let mut trial = Trial::of(3, AllDown::Queue);
    let mut rng = Rng::seeded(seed);
    let mut held: Vec<Booking> = Vec::new();
    let mut choices = 0;
    for _ in 0..600 {
        trial.wait(rng.unit() * 0.5);
        let worker = WorkerId(u32::try_from(rng.below(3)).unwrap());
        match rng.below(8) {
            0..=3 => {
                let views = trial.fleet.snapshot(trial.now);
                let tried = &[worker][..rng.below(2)];
                if let Ok(choice) = trial.choose(&chat(), tried) {
                    may_be_chosen(&views, choice.worker, tried)?;
                    held.push(choice.booking);
                    choices += 1;
                }
            }
            4..=6 if !held.is_empty() => {
                let booking = held.swap_remove(rng.below(held.len()));
                let outcomes = [
                    ANSWERED,
                    Outcome::Failed,
                    Outcome::Failed,
                    Outcome::Refused,
                    Outcome::Busy { retry_after: None },
                    Outcome::Gone,
                ];
                let outcome = outcomes[rng.below(outcomes.len())];
                trial.fleet.finish(booking, outcome, trial.now);
            }
            _ => {
                let verdict = match rng.below(3) {
                    0 => Err("no answer".to_owned()),
                    _ => Ok(()),
                };
                trial.fleet.probe(worker, verdict, trial.now);
            }
        }
        trial.fleet.check_invariants()?;
    }
    Ok(choices)
}

#[test]
fn nobody_is_chosen_who_may_not_be() {
    for seed in 0..SEEDS {
        let choices = history(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(choices > 50, "seed {seed}: {choices} choices prove nothing");
    }
}

/// Negative control: the checker notices each kind of worker that may not be chosen.
#[test]
fn a_worker_that_may_not_be_chosen_is_caught() {
    let mut trial = Trial::of(3, AllDown::Queue);
    trial.all_end(1, Outcome::Failed);
    trial.end(1, Outcome::Busy { retry_after: None });
    let views = trial.fleet.snapshot(trial.now);
    may_be_chosen(&views, WorkerId(0), &[]).unwrap_err();
    may_be_chosen(&views, WorkerId(1), &[]).unwrap_err();
    may_be_chosen(&views, WorkerId(1), &[WorkerId(2)]).unwrap();
    may_be_chosen(&views, WorkerId(2), &[WorkerId(2)]).unwrap_err();
    may_be_chosen(&views, WorkerId(2), &[]).unwrap();
    let mut full = views.clone();
    full[2].inflight = 4;
    may_be_chosen(&full, WorkerId(2), &[]).unwrap_err();
}
