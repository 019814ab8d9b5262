//! Who could serve a request, and giving it to one of them: filter, price, pick and book in one step.
//!
//! One step, because two requests that look at the same idle worker at the same moment must not both be told that it
//! is idle. What a model name means is one row of a table; its first row is for requests that name no model.
//!
//! Rows come and go with what workers report. A booking remembers its row by its place, so places never move: a name
//! that is forgotten leaves its row to the next new one. What a request of the forgotten name then still teaches goes to
//! its successor: one answer's length, a week after the name was last seen.

mod ahead;
mod considering;
mod eligible;
mod forecast;
mod holds;
mod in_time;
mod models;
mod refusals;
mod reserve;
mod seating;
mod swapping;
mod testing;

use std::collections::BTreeMap;

use super::ask::{Ask, Choice, NoChoice, Outcome, Rules, Work, WorkerSpec};
use super::booking::{Booking, Order};
use super::considered::{Considered, Shortlist};
use super::cost::Size;
use super::health::State;
use super::machine::Machine;
use super::pick::{Candidate, Policy};
use super::reuse::{Belief, Reuse};
use super::told_load::Heard;
use super::traffic::{self, Traffic, believable};
use super::unsupported::Unsupported;
use super::worker::Worker;
use crate::rng::Rng;
use crate::units::{ModelName, Seconds, WorkerId};
pub use holds::Hold;
pub use in_time::Outlook;
use models::Model;

/// The workers, what they serve, and whose turn it is.
#[derive(Debug)]
pub(super) struct Roster {
    workers: Vec<Worker>,
    machines: Vec<Machine>,
    /// Each worker's place among the machines.
    homes: Vec<usize>,
    /// Machines that there have been.
    tenancies: usize,
    models: Vec<Model>,
    /// The row of each known name; that of no name is the first.
    rows: BTreeMap<Option<ModelName>, usize>,
    /// Rows whose names were forgotten.
    spare: Vec<usize>,
    rules: Rules,
    traffic: Traffic,
    unsupported: Unsupported,
    /// Prompt tokens of the last choice, if they could be looked up.
    looked_up: f64,
    pub(super) reuse: Reuse,
    booked: u64,
    /// The last choice, kept so that the next allocates nothing.
    considered: Vec<Considered>,
    /// Scratch space, kept likewise.
    candidates: Vec<Candidate>,
}

impl Roster {
    pub(super) fn new(specs: Vec<WorkerSpec>, rules: Rules) -> Self {
        let count = specs.len();
        let homes = homes(&specs);
        let workers: Vec<Worker> = (0..)
            .zip(specs)
            .map(|(id, spec)| Worker::new(WorkerId(id), spec))
            .collect();
        let everybody = workers.iter().map(Worker::id).collect();
        let mut roster = Roster {
            models: vec![Model::served_by(everybody)],
            rows: BTreeMap::from([(None, 0)]),
            spare: Vec::new(),
            machines: (0..count).map(Machine::numbered).collect(),
            homes,
            tenancies: count,
            workers,
            rules,
            traffic: Traffic::new(),
            unsupported: Unsupported::default(),
            looked_up: 0.0,
            reuse: Reuse::new(count),
            booked: 0,
            considered: Vec::with_capacity(count),
            candidates: Vec::with_capacity(count),
        };
        for place in 0..roster.workers.len() {
            let (id, models) = {
                let worker = &roster.workers[place];
                (worker.id(), worker.spec().models.clone())
            };
            roster.serves(id, &models);
        }
        roster
    }

    pub(super) fn workers(&self) -> &[Worker] {
        &self.workers
    }

    pub(super) fn worker_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(id.index())
    }

    /// The machine that a worker is on.
    pub(super) fn machine(&self, worker: &Worker) -> &Machine {
        &self.machines[self.homes[worker.id().index()]]
    }

    /// A worker and its machine.
    pub(super) fn at(&mut self, id: WorkerId) -> Option<(&mut Worker, &mut Machine)> {
        let worker = self.workers.get_mut(id.index())?;
        let machine = self.machines.get_mut(*self.homes.get(id.index())?)?;
        Some((worker, machine))
    }

    /// Requests a second that a worker serves, of the mix that the fleet sees.
    pub(super) fn rate(&self, worker: &Worker) -> f64 {
        self.traffic.rate(worker.speeds(), worker.cap())
    }

    /// The same if all are of this kind.
    pub(super) fn rate_of(&self, work: Work, worker: &Worker) -> f64 {
        self.traffic.rate_of(work, worker.speeds(), worker.cap())
    }

    /// Requests that a worker is expected to finish within the horizon before it fails.
    pub(super) fn weight(&self, worker: &Worker, now: Seconds) -> f64 {
        let hazard = self.machine(worker).hazard(now);
        traffic::weight(self.rate(worker), hazard, self.rules.horizon)
    }

    /// An engine says how much it has to do.
    pub(super) fn hear_load(&mut self, id: WorkerId, heard: &Heard, now: Seconds) {
        if let Some(worker) = self.workers.get_mut(id.index()) {
            worker.hear_load(heard, self.traffic.prompts(), now);
        }
    }

    /// Whom the last choice considered.
    pub(super) fn considered(&self) -> &[Considered] {
        &self.considered
    }

    /// What is kept of the last choice.
    pub(super) fn shortlist(&self) -> Shortlist {
        Shortlist::of(&self.considered, self.looked_up)
    }

    /// Filters, prices, picks and books.
    pub(super) fn choose(
        &mut self,
        ask: &Ask,
        tried: &[WorkerId],
        now: Seconds,
        rng: &mut Rng,
    ) -> Result<Choice, NoChoice> {
        if let Some(row) = self.row(ask) {
            self.note_asked(row, ask, now);
        }
        let (row, size) = self.weigh(ask, tried, now, rng)?;
        self.owe(row);
        let found = self.candidates.len();
        let picked = self.pick(row, rng);
        let Candidate {
            worker,
            terms,
            cached,
            ..
        } = picked.ok_or_else(|| self.refusal(ask, row, tried))?;
        let order = Order {
            number: self.booked,
            model: row,
            size: self.workers[worker.index()].sized(size.cached(cached), row),
            class: ask.claim.class,
            max_tokens: ask.max_tokens,
            streamed: ask.streamed,
            wait: terms.wait,
            is_test: false,
        };
        let mut booking = self.book(worker, order, now);
        booking.belief = self.believe(worker, ask);
        Ok(Choice {
            worker,
            booking,
            terms,
            candidates: found,
        })
    }

    /// Whom a request would be given to: the steps of [`choose`](Self::choose) up to the pick. Nothing is booked, and
    /// nobody remembers that it was asked.
    pub(super) fn foresee(
        &mut self,
        ask: &Ask,
        now: Seconds,
        rng: &mut Rng,
    ) -> Result<WorkerId, NoChoice> {
        let (row, _) = self.weigh(ask, &[], now, rng)?;
        let picked = self.pick(row, rng).map(|picked| picked.worker);
        picked.ok_or_else(|| self.refusal(ask, row, &[]))
    }

    /// Filters and prices, and lists those who could have it: the row of the model and the size of the request.
    fn weigh(
        &mut self,
        ask: &Ask,
        tried: &[WorkerId],
        now: Seconds,
        rng: &mut Rng,
    ) -> Result<(usize, Size), NoChoice> {
        self.considered.clear();
        self.looked_up = 0.0;
        let row = self.row(ask).ok_or_else(|| self.unknown(ask))?;
        let size = self.size(ask, row);
        self.filter(ask, row, tried);
        self.sample(rng);
        self.look_up(ask, row, size);
        self.price(row, size, now);
        self.heed(ask, row, size, now)?;
        self.list(row, size, now);
        Ok((row, size))
    }

    /// Takes one of those listed.
    fn pick(&mut self, row: usize, rng: &mut Rng) -> Option<Candidate> {
        let last = self.models[row].last;
        let picked = self.rules.policy.pick(&mut self.candidates, last, rng)?;
        self.mark_picked(picked.worker);
        Some(picked)
    }

    /// The prompt goes to this worker, which will keep it.
    fn believe(&mut self, worker: WorkerId, ask: &Ask) -> Belief {
        let told = self.workers[worker.index()].told;
        let kept_tokens = told.kept_tokens.or(told.kv_tokens);
        self.reuse.sent(worker, &ask.prefix, kept_tokens)
    }

    /// Takes the booking back, and what the outcome teaches. Returns the state that the worker left if that ejected it.
    pub(super) fn finish(
        &mut self,
        booking: Booking,
        outcome: Outcome,
        now: Seconds,
    ) -> Option<State> {
        if let Outcome::Answered {
            prompt_tokens: Some(prompt),
            ..
        } = outcome
        {
            let density = &mut self.models[booking.model()].density;
            density.learn(booking.size.seen, prompt);
        }
        if let Outcome::Answered { output_tokens, .. } = outcome
            && booking.work() == Work::Generate
            && !booking.is_test
            && let Some(output) = believable(output_tokens)
        {
            let outputs = &mut self.models[booking.model()].outputs;
            outputs.add(booking.max_tokens, output);
            self.traffic.answered(output);
        }
        if matches!(outcome, Outcome::Failed | Outcome::Lost | Outcome::Refused) && !booking.is_test
        {
            self.traffic.lost(now - booking.sent);
        }
        let id = booking.worker();
        let worker = self.workers.get(id.index())?;
        let left = worker.condition().state();
        if worker.generation() == booking.generation {
            self.reuse.ended(&booking, outcome);
        }
        let (worker, machine) = self.at(id)?;
        let cause = worker.finish(booking, outcome, machine, now)?;
        self.eject(id, cause, now).then_some(left)
    }

    /// This worker answered that it does not know the path of this request.
    pub(super) fn unsupported(&mut self, worker: WorkerId, ask: &Ask, now: Seconds) {
        if let (Some(path), Some(row)) = (ask.path, self.row(ask))
            && let Some(worker) = self.workers.get(worker.index())
        {
            self.unsupported.mark(worker, path, row, now);
        }
    }

    /// Whether somebody could take this request now.
    pub(super) fn fits(&self, ask: &Ask, tried: &[WorkerId]) -> bool {
        self.row(ask).is_some_and(|row| {
            let fit = self.fit(ask, row, tried);
            self.serving(ask, row)
                .any(|worker| fit.excludes(worker).is_none())
        })
    }

    /// Ends what is over: ejections, holds and marks. Returns who left which state.
    pub(super) fn tick(&mut self, now: Seconds) -> impl Iterator<Item = (WorkerId, State)> {
        self.unsupported.expire(now);
        self.workers.iter_mut().filter_map(move |worker| {
            let left = worker.condition().state();
            worker.tick(now);
            (worker.condition().state() != left).then_some((worker.id(), left))
        })
    }

    /// Whether all counters agree.
    pub(super) fn check(&self) -> Result<(), String> {
        self.workers.iter().try_for_each(Worker::check)?;
        self.models.iter().try_for_each(Model::check)?;
        self.reuse.check()?;
        for (home, machine) in self.machines.iter().enumerate() {
            let here = self.workers.iter().zip(&self.homes);
            let here = here.filter(|(_, at)| **at == home);
            let held = here.map(|(worker, _)| worker.inflight());
            let counted = held.fold((0, 0), |(busy, sum), held| {
                (busy + u32::from(held > 0), sum + held)
            });
            let kept = (machine.busy(), machine.held());
            if counted != kept {
                return Err(format!(
                    "machine {home}: workers busy and requests held are {counted:?}, kept as {kept:?}"
                ));
            }
        }
        Ok(())
    }

    fn row(&self, ask: &Ask) -> Option<usize> {
        self.rows.get(&ask.model).copied()
    }

    fn size(&self, ask: &Ask, row: usize) -> Size {
        let output = self.models[row].outputs.expected(ask.max_tokens);
        let prompt = believable(Some(self.models[row].density.tokens(ask.prompt)));
        Size {
            seen: ask.prompt,
            from: ask.from,
            ..Size::new(ask.work, prompt.unwrap_or_default(), output)
        }
    }

    /// Finds out who has how much of the prompt.
    fn look_up(&mut self, ask: &Ask, row: usize, size: Size) {
        let block = self.models[row].density.tokens(ask.prefix.each);
        self.reuse.look(&ask.prefix, block);
        let has_blocks = !ask.prefix.blocks.is_empty();
        self.looked_up = if has_blocks { size.prompt } else { 0.0 };
    }

    fn book(&mut self, worker: WorkerId, order: Order, now: Seconds) -> Booking {
        self.booked += 1;
        self.traffic.placed(order.size);
        let model = &mut self.models[order.model];
        model.last = Some(worker);
        if let Policy::Weighted = self.rules.policy
            && let Ok(place) = model.workers.binary_search(&worker)
        {
            model.owed[place] = (model.owed[place] - 1.0).max(-1.0);
        }
        let machine = &mut self.machines[self.homes[worker.index()]];
        self.workers[worker.index()].book(order, machine, now)
    }
}

/// Which machine each worker is on: the first with the same name decides, and who names none has one of its own.
fn homes(specs: &[WorkerSpec]) -> Vec<usize> {
    let home = |(own, spec): (usize, &WorkerSpec)| {
        let first = specs
            .iter()
            .position(|other| other.machine.is_some() && other.machine == spec.machine);
        first.unwrap_or(own)
    };
    specs.iter().enumerate().map(home).collect()
}

#[cfg(test)]
mod tests {
    use super::super::ask::Claim;
    use super::super::considered::{Exclusion, Fate};
    use super::super::pick::SAMPLE;
    use super::models::MOST_MODELS;
    use super::*;
    use crate::facts::Prefix;
    use crate::units::Length;

    /// Worker 0 serves `small`, worker 1 `small` and `large`; two requests at a time each.
    fn roster() -> Roster {
        let spec = |name: &str, models: &[&str]| WorkerSpec {
            models: models.iter().map(|name| ModelName::new(name)).collect(),
            ..WorkerSpec::new(name, 2)
        };
        let specs = vec![
            spec("a", &["small"]),
            spec("b", &["small", "large", "large"]),
        ];
        Roster::new(specs, Policy::LeastTime.into())
    }

    fn ask(model: Option<&str>) -> Ask {
        Ask {
            model: model.map(ModelName::new),
            only: None,
            zones: None,
            from: None,
            path: None,
            work: Work::Generate,
            prompt: Length::Tokens(100.0),
            fills: None,
            prefix: Prefix::default(),
            max_tokens: None,
            deadline: None,
            streamed: true,
            claim: Claim::default(),
        }
    }

    fn choose(roster: &mut Roster, ask: &Ask, tried: &[WorkerId]) -> Result<Choice, NoChoice> {
        roster.choose(ask, tried, Seconds(1.0), &mut Rng::seeded(1))
    }

    fn nearest(roster: &mut Roster, ask: &Ask) -> Option<String> {
        match choose(roster, ask, &[]) {
            Err(NoChoice::UnknownModel { nearest, .. }) => nearest.map(|name| name.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_those_who_serve_the_model_and_are_allowed_are_chosen() {
        for _ in 0..4 {
            let large = choose(&mut roster(), &ask(Some("large")), &[]).unwrap();
            assert_eq!((large.worker, large.candidates), (WorkerId(1), 1));
        }
        let any = choose(&mut roster(), &ask(None), &[]).unwrap();
        assert_eq!(any.candidates, 2);
        let mut routed = ask(Some("small"));
        routed.only = Some([WorkerId(0), WorkerId(7)].into());
        let choice = choose(&mut roster(), &routed, &[]).unwrap();
        assert_eq!((choice.worker, choice.candidates), (WorkerId(0), 1));
        assert_eq!(
            choose(&mut roster(), &ask(None), &[WorkerId(1)])
                .unwrap()
                .worker,
            WorkerId(0)
        );
    }

    #[test]
    fn what_is_foreseen_is_what_is_then_chosen_and_changes_nothing() {
        for policy in [
            Policy::LeastTime,
            Policy::Weighted,
            Policy::RoundRobin,
            Policy::Random,
        ] {
            let spec = |name: &str| WorkerSpec {
                models: vec![ModelName::new("m")],
                ..WorkerSpec::new(name, 16)
            };
            let mut roster = Roster::new(["a", "b", "c"].map(spec).into(), policy.into());
            let mut rng = Rng::seeded(7);
            let asked = ask(Some("m"));
            for _ in 0..30 {
                let before = format!("{:?}{:?}", roster.models, roster.workers);
                let foreseen = [(); 3].map(|()| {
                    let mut rng = rng.clone();
                    roster.foresee(&asked, Seconds(1.0), &mut rng).unwrap()
                });
                assert_eq!(before, format!("{:?}{:?}", roster.models, roster.workers));
                let choice = roster.choose(&asked, &[], Seconds(1.0), &mut rng).unwrap();
                assert_eq!(foreseen, [choice.worker; 3], "{policy:?}");
            }
        }
        let mut roster = roster();
        let nobody = roster.foresee(&ask(Some("larg")), Seconds(1.0), &mut Rng::seeded(1));
        assert!(matches!(nobody, Err(NoChoice::UnknownModel { .. })));
    }

    #[test]
    fn who_does_not_know_the_path_is_asked_only_if_nobody_does() {
        let mut roster = roster();
        let on = |path| Ask {
            path: Some(path),
            ..ask(Some("small"))
        };
        roster.unsupported(WorkerId(0), &on("/v1/rerank"), Seconds(1.0));
        let held = [(); 2].map(|()| choose(&mut roster, &on("/v1/rerank"), &[]).unwrap());
        assert!(held.iter().all(|choice| choice.worker == WorkerId(1)));
        assert_eq!(
            choose(&mut roster, &on("/v1/rerank"), &[]).unwrap_err(),
            NoChoice::Busy
        );
        let other = choose(&mut roster, &on("/v1/chat/completions"), &[]).unwrap();
        assert_eq!(other.worker, WorkerId(0));
        let retried = choose(&mut roster, &on("/v1/rerank"), &[WorkerId(1)]).unwrap();
        assert_eq!(retried.worker, WorkerId(0));
        for choice in held.into_iter().chain([other, retried]) {
            roster.finish(choice.booking, Outcome::Rejected, Seconds(1.0));
        }
        roster.unsupported(WorkerId(1), &on("/v1/rerank"), Seconds(1.0));
        let both = (0..2).map(|_| choose(&mut roster, &on("/v1/rerank"), &[]).unwrap());
        let both: Vec<_> = both.map(|choice| choice.worker).collect();
        assert!(both.contains(&WorkerId(0)) && both.contains(&WorkerId(1)));
    }

    #[test]
    fn an_unknown_model_is_told_from_a_dead_and_from_a_busy_one() {
        let mut roster = roster();
        let large = ask(Some("large"));
        let held = [(); 2].map(|()| choose(&mut roster, &large, &[]).unwrap());
        assert_eq!(
            choose(&mut roster, &large, &[]).unwrap_err(),
            NoChoice::Busy
        );
        assert_eq!(
            choose(&mut roster, &large, &[WorkerId(1)]).unwrap_err(),
            NoChoice::Down
        );
        for choice in held {
            roster.finish(choice.booking, Outcome::Gone, Seconds(1.0));
        }
        assert!(roster.fits(&large, &[]));
        let dead = roster.worker_mut(WorkerId(1)).unwrap();
        dead.probe(
            Err("no answer".into()),
            &mut Machine::default(),
            Seconds(1.0),
        );
        assert_eq!(
            choose(&mut roster, &large, &[]).unwrap_err(),
            NoChoice::Down
        );
        assert_eq!(
            nearest(&mut roster, &ask(Some("larg"))),
            Some("large".into())
        );
    }

    /// What became of each worker in the last choice.
    fn verdicts(roster: &Roster) -> Vec<(u32, &'static str)> {
        let told = |considered: &Considered| (considered.worker.0, considered.fate.label());
        roster.considered().iter().map(told).collect()
    }

    #[test]
    fn a_choice_keeps_whom_it_considered_and_why_the_others_were_left_out() {
        let mut roster = roster();
        let small = ask(Some("small"));
        let held = [(); 2].map(|()| choose(&mut roster, &small, &[WorkerId(1)]).unwrap());
        assert_eq!(verdicts(&roster), [(0, "picked"), (1, "tried")]);
        let priced = roster.considered()[0];
        assert_eq!(priced.terms, held[1].terms);
        choose(&mut roster, &small, &[]).unwrap();
        assert_eq!(verdicts(&roster), [(0, "full"), (1, "picked")]);
        assert!(roster.considered()[0].terms.wait > Seconds::ZERO);
        let dead = roster.worker_mut(WorkerId(1)).unwrap();
        dead.probe(
            Err("no answer".into()),
            &mut Machine::default(),
            Seconds(1.0),
        );
        choose(&mut roster, &small, &[]).unwrap_err();
        assert_eq!(verdicts(&roster), [(0, "full"), (1, "down")]);
        roster.finish(
            held.into_iter().next().unwrap().booking,
            Outcome::Gone,
            Seconds(1.0),
        );
        choose(&mut roster, &ask(None), &[]).unwrap();
        assert_eq!(verdicts(&roster), [(0, "picked"), (1, "down")]);
        choose(&mut roster, &ask(Some("nobody's")), &[]).unwrap_err();
        assert_eq!(verdicts(&roster), []);
    }

    #[test]
    fn the_nearest_name_is_one_that_the_route_would_serve() {
        let mut roster = roster();
        let mut routed = ask(Some("large"));
        routed.only = Some([WorkerId(0)].into());
        assert_eq!(nearest(&mut roster, &routed), Some("small".into()));
        let endless = "large".repeat(1 << 20);
        assert_eq!(
            nearest(&mut roster, &ask(Some(&endless))),
            Some("large".into())
        );
        let mut empty = Roster::new(Vec::new(), Policy::LeastTime.into());
        assert_eq!(nearest(&mut empty, &ask(Some("large"))), None);
        assert_eq!(
            choose(&mut empty, &ask(None), &[]).unwrap_err(),
            NoChoice::Down
        );
    }

    /// Equal workers for one model, except for the speeds typed.
    fn fleet(speeds: &[f64], policy: Policy) -> Roster {
        let spec = |speed: &f64| WorkerSpec {
            speed: Some(*speed),
            ..WorkerSpec::new("w", 1_000)
        };
        Roster::new(speeds.iter().map(spec).collect(), policy.into())
    }

    /// The share of the first worker in so many requests, of which some are held at a time.
    fn share_of_first(roster: &mut Roster, requests: u32, held: usize) -> f64 {
        let mut bookings = std::collections::VecDeque::new();
        let mut first = 0;
        for _ in 0..requests {
            let choice = choose(roster, &ask(None), &[]).unwrap();
            first += u32::from(choice.worker == WorkerId(0));
            bookings.push_back(choice.booking);
            if bookings.len() > held {
                let oldest = bookings.pop_front().unwrap();
                roster.finish(oldest, Outcome::Gone, Seconds(1.0));
            }
        }
        f64::from(first) / f64::from(requests)
    }

    #[test]
    fn typed_weights_are_honoured_one_at_a_time_and_many_at_once() {
        for held in [0, 30] {
            let mut roster = fleet(&[5.0, 1.0], Policy::Weighted);
            let share = share_of_first(&mut roster, 600, held);
            assert!((share / (5.0 / 6.0) - 1.0).abs() < 0.03, "{held}: {share}");
            assert!(((1.0 - share) * 6.0 - 1.0).abs() < 0.03, "{held}: {share}");
            // Negative control: a policy that is blind to weights gives the first half of them.
            roster.rules.policy = Policy::RoundRobin;
            assert!(share_of_first(&mut roster, 600, held) < 0.51);
        }
    }

    #[test]
    fn a_worker_that_comes_back_gets_its_share_and_no_burst() {
        let mut roster = fleet(&[1.0, 1.0], Policy::Weighted);
        let back = WorkerId(0);
        let gone = |roster: &mut Roster| {
            let choice = choose(roster, &ask(None), &[back]).unwrap();
            roster.finish(choice.booking, Outcome::Gone, Seconds(1.0));
        };
        (0..1_000).for_each(|_| gone(&mut roster));
        let share = share_of_first(&mut roster, 10, 0);
        assert!((0.4..=0.6).contains(&share), "{share}");
    }

    #[test]
    fn a_large_fleet_is_sampled_evenly_and_a_small_one_is_not() {
        let mut roster = fleet(&[1.0; 12], Policy::LeastTime);
        roster.rules.sample_above = 11;
        let mut rng = Rng::seeded(1);
        let mut drawn = [0_u32; 12];
        for _ in 0..1_200 {
            let choice = roster
                .choose(&ask(None), &[], Seconds(1.0), &mut rng)
                .unwrap();
            assert_eq!(choice.candidates, SAMPLE);
            for considered in roster.considered() {
                let priced = considered.terms.total() > Seconds::ZERO;
                let left_out = considered.fate == Fate::Excluded(Exclusion::NotSampled);
                assert_eq!(priced, !left_out);
                drawn[considered.worker.index()] += u32::from(priced);
            }
            roster.finish(choice.booking, Outcome::Gone, Seconds(1.0));
        }
        assert!(
            drawn.iter().all(|times| (240..360).contains(times)),
            "{drawn:?}"
        );
        roster.rules.sample_above = 12;
        assert_eq!(choose(&mut roster, &ask(None), &[]).unwrap().candidates, 12);
        roster.rules = Rules {
            sample_above: 0,
            ..Policy::Random.into()
        };
        assert_eq!(choose(&mut roster, &ask(None), &[]).unwrap().candidates, 12);
    }

    #[test]
    fn who_would_be_too_late_is_left_out_unless_all_would() {
        let mut roster = fleet(&[1.0, 10.0, 2.0], Policy::RoundRobin);
        let mut hurried = ask(None);
        let mut candidates = |deadline| {
            hurried.deadline = Some(Seconds(1.0 + deadline));
            let choice = choose(&mut roster, &hurried, &[]).unwrap();
            roster.finish(choice.booking, Outcome::Gone, Seconds(1.0));
            let late = Fate::Excluded(Exclusion::Deadline);
            let left_out = roster.considered().iter().filter(|one| one.fate == late);
            (choice.candidates, left_out.count())
        };
        // 200 tokens take 4.1, 0.41 and 2.05 seconds.
        let found = [9.0, 3.0, 1.0, 0.1, f64::NAN].map(&mut candidates);
        assert_eq!(found, [(3, 0), (2, 1), (1, 2), (3, 0), (3, 0)]);
    }

    #[test]
    fn what_a_worker_serves_may_change_while_it_runs() {
        let mut roster = roster();
        let (small, tiny) = (ask(Some("small")), ask(Some("tiny")));
        let held = choose(&mut roster, &small, &[WorkerId(1)]).unwrap();
        roster.serves(WorkerId(0), &[ModelName::new("tiny")]);
        roster.finish(held.booking, Outcome::Gone, Seconds(1.0));
        let worker = |roster: &mut Roster, ask| choose(roster, ask, &[]).unwrap().worker;
        assert_eq!(worker(&mut roster, &tiny), WorkerId(0));
        assert_eq!(worker(&mut roster, &small), WorkerId(1));
        let down = Err(NoChoice::Down);
        roster.serves(WorkerId(0), &[]);
        let refused =
            |roster: &mut Roster, ask| choose(roster, ask, &[]).map(|choice| choice.worker);
        assert_eq!(
            refused(&mut roster, &tiny),
            down,
            "known, though nobody has it"
        );
        roster.forget(&ModelName::new("small"));
        assert_eq!(worker(&mut roster, &small), WorkerId(1), "still served");
        roster.forget(&ModelName::new("tiny"));
        assert!(matches!(
            refused(&mut roster, &tiny),
            Err(NoChoice::UnknownModel { .. })
        ));
        roster.know(&ModelName::new("other"));
        assert_eq!(refused(&mut roster, &ask(Some("other"))), down);
        assert_eq!(roster.models.len(), 4, "the forgotten row is used again");
        roster.serves(WorkerId(9), &[ModelName::new("nobody's")]);
        assert_eq!(roster.models.len(), 4);
    }

    #[test]
    fn names_without_end_are_not_kept() {
        let mut roster = roster();
        let names: Vec<_> = (0..2 * MOST_MODELS)
            .map(|number| ModelName::new(&number.to_string()))
            .collect();
        roster.serves(WorkerId(0), &names);
        assert!(roster.rows.len() <= MOST_MODELS + 1);
    }

    #[test]
    fn round_robin_goes_round_for_each_model() {
        let mut roster = roster();
        roster.rules.policy = Policy::RoundRobin;
        let mut turn = |model| {
            let choice = choose(&mut roster, &ask(model), &[]).unwrap();
            roster.finish(choice.booking, Outcome::Gone, Seconds(1.0));
            choice.worker.0
        };
        let turns = [Some("small"), None, Some("small"), None, Some("small")].map(&mut turn);
        assert_eq!(turns, [0, 0, 1, 1, 0]);
    }

    #[test]
    fn bytes_a_token_are_learned_by_model() {
        let mut roster = roster();
        let text = |model| Ask {
            prompt: Length::Bytes(5_000.0),
            prefix: Prefix::default(),
            ..ask(Some(model))
        };
        let tokens = |roster: &Roster, ask: &Ask| {
            let row = roster.row(ask).unwrap();
            roster.size(ask, row).prompt
        };
        for _ in 0..20 {
            let choice = choose(&mut roster, &text("large"), &[]).unwrap();
            let outcome = Outcome::Answered {
                prompt_tokens: Some(2_000.0),
                cached_tokens: None,
                output_tokens: None,
            };
            roster.finish(choice.booking, outcome, Seconds(1.0));
        }
        let learned = tokens(&roster, &text("large"));
        assert!((learned / 2_000.0 - 1.0).abs() < 0.04, "{learned}");
        assert_eq!(tokens(&roster, &text("small")), 1_250.0);
        assert_eq!(tokens(&roster, &ask(Some("large"))), 100.0, "counted");
        let mut endless = text("large");
        endless.prompt = Length::Bytes(f64::INFINITY);
        assert_eq!(tokens(&roster, &endless), 16.0);
    }

    #[test]
    fn what_is_owed_is_bounded_and_counted_by_worker() {
        let mut roster = fleet(&[1.0, 2.0], Policy::Weighted);
        assert_eq!(roster.check(), Ok(()));
        for owed in [vec![1.5, 0.0], vec![0.0, f64::NAN], vec![0.0]] {
            roster.models[0].owed = owed;
            roster.check().unwrap_err();
        }
        // Both have had more than their share: one more is not held against them without end.
        roster.models[0].owed = vec![-1.0, -1.0];
        let held = choose(&mut roster, &ask(None), &[]).unwrap();
        assert_eq!(roster.check(), Ok(()));
        roster.finish(held.booking, Outcome::Gone, Seconds(1.0));
    }

    #[test]
    fn answer_lengths_are_learned_by_model_and_bounded_by_the_client() {
        let mut roster = roster();
        let decode = |roster: &mut Roster, ask: &Ask| {
            let choice = choose(roster, ask, &[WorkerId(0)]).unwrap();
            let outcome = Outcome::Answered {
                prompt_tokens: None,
                cached_tokens: None,
                output_tokens: Some(11.0),
            };
            roster.finish(choice.booking, outcome, Seconds(1.0));
            choice.terms.decode.0
        };
        let mut short = ask(Some("large"));
        short.max_tokens = Some(51);
        let (long, bounded) = (
            decode(&mut roster, &ask(Some("large"))),
            decode(&mut roster, &short),
        );
        assert!(bounded < long / 2.0, "{bounded} {long}");
        for _ in 0..200 {
            decode(&mut roster, &ask(Some("large")));
        }
        let large = roster.row(&ask(Some("large"))).unwrap();
        let small = roster.row(&ask(Some("small"))).unwrap();
        assert!(roster.models[large].outputs.expected(None) < 20.0);
        assert_eq!(roster.models[small].outputs.expected(None), 200.0);
        let mut embedding = ask(Some("small"));
        embedding.work = Work::Embed;
        decode(&mut roster, &embedding);
        assert_eq!(roster.models[small].outputs.expected(None), 200.0);
    }
}
