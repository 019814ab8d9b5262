//! Who could serve a request, and giving it to one of them: filter, price, pick and book in one step.
//!
//! One step, because two requests that look at the same idle worker at the same moment must not both be told that it
//! is idle. What a model name means is one row of a sorted table; its first row is for requests that name no model.

use std::collections::{BTreeMap, BTreeSet};

use super::ask::{Ask, Choice, NoChoice, Outcome, Rules, Work, WorkerSpec};
use super::booking::{Booking, Order};
use super::cost::{self, Size};
use super::eject::EjectCause;
use super::health::State;
use super::machine::Machine;
use super::pick::Candidate;
use super::standing::{AllDown, Standing};
use super::traffic::{RunningMean, Traffic};
use super::unsupported::Unsupported;
use super::worker::{Worker, believable};
use crate::rng::Rng;
use crate::units::{ModelName, Seconds, WorkerId};

/// A longer name is compared by its beginning only: a client chooses how long it is.
const COMPARED_CHARS: usize = 256;

/// The workers, what they serve, and whose turn it is.
#[derive(Debug)]
pub(super) struct Roster {
    workers: Vec<Worker>,
    machines: Vec<Machine>,
    /// Each worker's place among the machines.
    homes: Vec<usize>,
    models: Vec<Model>,
    rules: Rules,
    traffic: Traffic,
    unsupported: Unsupported,
    booked: u64,
    /// Scratch space, kept so that a choice allocates nothing.
    candidates: Vec<Candidate>,
}

/// A model that some worker serves.
#[derive(Debug)]
struct Model {
    /// `None` is the row for requests without a model: everybody serves it.
    name: Option<ModelName>,
    /// Who serves it, in order.
    workers: Vec<WorkerId>,
    /// The expected length of its answers.
    output: RunningMean,
    /// Who was picked last.
    last: Option<WorkerId>,
}

impl Roster {
    pub(super) fn new(specs: Vec<WorkerSpec>, rules: Rules) -> Self {
        let candidates = Vec::with_capacity(specs.len());
        let homes = homes(&specs);
        let workers: Vec<Worker> = (0..)
            .zip(specs)
            .map(|(id, spec)| Worker::new(WorkerId(id), spec))
            .collect();
        Roster {
            models: models(&workers),
            machines: vec![Machine::default(); workers.len()],
            homes,
            workers,
            rules,
            traffic: Traffic::new(),
            unsupported: Unsupported::default(),
            booked: 0,
            candidates,
        }
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

    pub(super) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Filters, prices, picks and books.
    pub(super) fn choose(
        &mut self,
        ask: &Ask,
        tried: &[WorkerId],
        now: Seconds,
        rng: &mut Rng,
    ) -> Result<Choice, NoChoice> {
        let row = self.row(ask).ok_or_else(|| self.unknown(ask))?;
        let size = self.size(ask, row);
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        candidates.extend(self.with_room(ask, row, tried).map(|worker| Candidate {
            worker: worker.id(),
            terms: cost::price(worker, self.machine(worker), size, now),
            samples: worker.speeds().prefill_samples(size.work),
            inflight: worker.inflight(),
        }));
        self.prefer_elsewhere(&mut candidates, tried);
        let found = candidates.len();
        let picked = self
            .rules
            .policy
            .pick(&mut candidates, self.models[row].last, rng);
        self.candidates = candidates;
        let Some(Candidate { worker, terms, .. }) = picked else {
            return Err(self.refusal(ask, row, tried));
        };
        let order = Order {
            number: self.booked,
            model: row,
            size,
            streamed: ask.streamed,
            wait: terms.wait,
        };
        Ok(Choice {
            worker,
            booking: self.book(worker, order, now),
            terms,
            candidates: found,
        })
    }

    /// Takes the booking back, and what the outcome teaches. Returns the state that the worker left if that ejected it.
    pub(super) fn finish(
        &mut self,
        booking: Booking,
        outcome: Outcome,
        now: Seconds,
    ) -> Option<State> {
        if let Outcome::Answered { output_tokens, .. } = outcome
            && booking.work() == Work::Generate
            && let Some(output) = believable(output_tokens)
        {
            self.models[booking.model()].output.add(output);
            self.traffic.answered(output);
        }
        let id = booking.worker();
        let (worker, machine) = self.at(id)?;
        let left = worker.condition().state();
        let cause = worker.finish(booking, outcome, machine, now)?;
        if !self.may_eject(id, cause) {
            return None;
        }
        self.worker_mut(id)?.eject(cause, now);
        Some(left)
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
        self.row(ask)
            .is_some_and(|row| self.with_room(ask, row, tried).next().is_some())
    }

    /// Whether all counters agree.
    pub(super) fn check(&self) -> Result<(), String> {
        self.workers.iter().try_for_each(Worker::check)?;
        for (home, machine) in self.machines.iter().enumerate() {
            let busy = self.workers.iter().zip(&self.homes);
            let busy = busy.filter(|(worker, at)| **at == home && worker.inflight() > 0);
            let (counted, kept) = (busy.count(), machine.busy());
            if u32::try_from(counted) != Ok(kept) {
                return Err(format!(
                    "machine {home}: {counted} workers are busy, {kept} counted"
                ));
            }
        }
        Ok(())
    }

    fn row(&self, ask: &Ask) -> Option<usize> {
        self.models
            .binary_search_by(|model| model.name.cmp(&ask.model))
            .ok()
    }

    fn size(&self, ask: &Ask, row: usize) -> Size {
        let expected = self.models[row].output.get();
        let output = ask
            .max_tokens
            .map_or(expected, |most| expected.min(f64::from(most)));
        let prompt = believable(Some(ask.prompt.0)).unwrap_or_default();
        Size::new(ask.work, prompt, output)
    }

    /// Those who serve the model, among those the route allows.
    fn serving<'a>(&'a self, ask: &'a Ask, row: usize) -> impl Iterator<Item = &'a Worker> {
        let serve_model = &self.models[row].workers;
        let allowed = ask.only.as_deref().unwrap_or(serve_model);
        allowed
            .iter()
            .filter(|id| serve_model.binary_search(id).is_ok())
            .filter_map(|id| self.workers.get(id.index()))
    }

    /// Those of them who were not tried.
    fn untried<'a>(
        &'a self,
        ask: &'a Ask,
        row: usize,
        tried: &'a [WorkerId],
    ) -> impl Iterator<Item = &'a Worker> {
        self.serving(ask, row)
            .filter(|worker| !tried.contains(&worker.id()))
    }

    /// Those of them who are of the best standing there is, and of these, if they are on hold, the one whose hold ends
    /// first.
    fn eligible<'a>(
        &'a self,
        ask: &'a Ask,
        row: usize,
        tried: &'a [WorkerId],
    ) -> impl Iterator<Item = &'a Worker> {
        let untried = || self.untried(ask, row, tried);
        let best = self.rules.all_down.best(untried());
        let first = match best {
            Some(Standing::Held) => untried()
                .filter_map(|worker| worker.condition().held())
                .reduce(Seconds::min),
            _ => None,
        };
        untried().filter(move |worker| {
            Some(worker.condition().standing()) == best
                && match best {
                    Some(Standing::Held) => worker.condition().held() == first,
                    Some(Standing::Free | Standing::Vouched) => true,
                    _ => !worker.condition().breaker().refuses(),
                }
        })
    }

    /// Whether this worker is known not to serve the request's path.
    fn is_unsupported(&self, worker: &Worker, ask: &Ask, row: usize) -> bool {
        ask.path
            .is_some_and(|path| self.unsupported.has(worker, path, row))
    }

    /// Those of them who have a slot free; who does not know the path only if nobody does.
    fn with_room<'a>(
        &'a self,
        ask: &'a Ask,
        row: usize,
        tried: &'a [WorkerId],
    ) -> impl Iterator<Item = &'a Worker> {
        let picky = !self.unsupported.is_empty()
            && self
                .eligible(ask, row, tried)
                .any(|worker| !self.is_unsupported(worker, ask, row));
        self.eligible(ask, row, tried).filter(move |worker| {
            worker.has_room() && !(picky && self.is_unsupported(worker, ask, row))
        })
    }

    /// What took one worker of a machine along may have taken its neighbours: a retry goes to another machine if it can.
    fn prefer_elsewhere(&self, candidates: &mut Vec<Candidate>, tried: &[WorkerId]) {
        let home = |id: &WorkerId| self.homes.get(id.index());
        let elsewhere = |candidate: &Candidate| {
            let here = home(&candidate.worker);
            tried.iter().all(|id| home(id) != here)
        };
        if candidates.iter().any(elsewhere) {
            candidates.retain(elsewhere);
        }
    }

    /// Whether a worker may be taken out for this. Never the only one that serves a model: there is nobody else. For
    /// errors, which only few of its requests may share, at most half of those who serve a model, up or not; one that
    /// takes no connections serves nobody by staying.
    fn may_eject(&self, id: WorkerId, cause: EjectCause) -> bool {
        let nameless = self.workers[id.index()].spec().models.is_empty();
        let mut rows = self
            .models
            .iter()
            .filter(|model| model.name.is_none() == nameless && model.workers.contains(&id));
        rows.all(|model| {
            let out = model.workers.iter().filter(|id| {
                let ejection = self.workers[id.index()].condition().breaker().ejection();
                ejection.is_some_and(|ejection| ejection.cause == EjectCause::Errors)
            });
            match cause {
                EjectCause::Errors => out.count() < model.workers.len() / 2,
                EjectCause::Refused => model.workers.len() > 1,
            }
        })
    }

    /// Ends ejections and holds that are over. Returns who left which state.
    pub(super) fn tick(&mut self, now: Seconds) -> impl Iterator<Item = (WorkerId, State)> {
        self.unsupported.expire(now);
        self.workers.iter_mut().filter_map(move |worker| {
            let left = worker.condition().state();
            worker.tick(now);
            (worker.condition().state() != left).then_some((worker.id(), left))
        })
    }

    fn book(&mut self, worker: WorkerId, order: Order, now: Seconds) -> Booking {
        self.booked += 1;
        self.traffic.placed(order.size);
        self.models[order.model].last = Some(worker);
        let machine = &mut self.machines[self.homes[worker.index()]];
        self.workers[worker.index()].book(order, machine, now)
    }

    /// Why there was no candidate.
    fn refusal(&self, ask: &Ask, row: usize, tried: &[WorkerId]) -> NoChoice {
        let returns = self.rules.all_down == AllDown::Queue
            && self
                .untried(ask, row, tried)
                .any(|worker| worker.condition().state() == State::Ejected);
        if self.eligible(ask, row, tried).next().is_some() {
            NoChoice::Busy
        } else if returns {
            NoChoice::Away
        } else if self.serving(ask, row).next().is_some() {
            NoChoice::Down
        } else {
            self.unknown(ask)
        }
    }

    /// Nobody allowed serves it, up or down.
    fn unknown(&self, ask: &Ask) -> NoChoice {
        let Some(wanted) = &ask.model else {
            return NoChoice::Down;
        };
        let start: String = wanted.as_str().chars().take(COMPARED_CHARS).collect();
        let likeness = |name: &ModelName| strsim::jaro_winkler(&start, name.as_str());
        let nearest = (0..self.models.len())
            .filter(|row| self.serving(ask, *row).next().is_some())
            .filter_map(|row| self.models[row].name.as_ref())
            .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
            .cloned();
        NoChoice::UnknownModel { nearest }
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

/// One row per name, sorted, after the row for no name.
fn models(workers: &[Worker]) -> Vec<Model> {
    let mut serving: BTreeMap<Option<ModelName>, Vec<WorkerId>> = BTreeMap::new();
    for worker in workers {
        let names: BTreeSet<_> = worker.spec().models.iter().cloned().map(Some).collect();
        for name in names.into_iter().chain([None]) {
            serving.entry(name).or_default().push(worker.id());
        }
    }
    let row = |(name, workers)| Model {
        name,
        workers,
        output: RunningMean::of_outputs(),
        last: None,
    };
    serving.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::eject::EjectRule;
    use super::super::pick::Policy;
    use super::*;
    use crate::units::Tokens;

    /// Worker 0 serves `small`, worker 1 `small` and `large`; two requests at a time each.
    fn roster() -> Roster {
        let spec = |name: &str, models: &[&str]| WorkerSpec {
            name: name.into(),
            models: models.iter().map(|name| ModelName::new(name)).collect(),
            cap: 2,
            speed: None,
            rise: 1,
            fall: 1,
            machine: None,
            eject: EjectRule::default(),
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
            path: None,
            work: Work::Generate,
            prompt: Tokens(100.0),
            max_tokens: None,
            streamed: true,
            deadline: None,
        }
    }

    fn choose(roster: &mut Roster, ask: &Ask, tried: &[WorkerId]) -> Result<Choice, NoChoice> {
        roster.choose(ask, tried, Seconds(1.0), &mut Rng::seeded(1))
    }

    fn nearest(roster: &mut Roster, ask: &Ask) -> Option<String> {
        match choose(roster, ask, &[]) {
            Err(NoChoice::UnknownModel { nearest }) => nearest.map(|name| name.to_string()),
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
    fn answer_lengths_are_learned_by_model_and_bounded_by_the_client() {
        let mut roster = roster();
        let decode = |roster: &mut Roster, ask: &Ask| {
            let choice = choose(roster, ask, &[WorkerId(0)]).unwrap();
            let outcome = Outcome::Answered {
                prompt_tokens: None,
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
        assert!(roster.models[large].output.get() < 20.0);
        assert_eq!(roster.models[small].output.get(), 200.0);
        let mut embedding = ask(Some("small"));
        embedding.work = Work::Embed;
        decode(&mut roster, &embedding);
        assert_eq!(roster.models[small].output.get(), 200.0);
    }
}
