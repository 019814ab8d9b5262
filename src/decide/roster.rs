//! Who could serve a request, and giving it to one of them: filter, price, pick and book in one step.
//!
//! One step, because two requests that look at the same idle worker at the same moment must not both be told that it
//! is idle. What a model name means is one row of a table; its first row is for requests that name no model.
//!
//! Rows come and go with what workers report. A booking remembers its row by its place, so places never move: a name
//! that is forgotten leaves its row to the next new one. What a request of the forgotten name then still teaches goes to
//! its successor: one answer's length, a week after the name was last seen.

use std::collections::{BTreeMap, BTreeSet};

use super::ask::{Ask, Choice, NoChoice, Outcome, Rules, Work, WorkerSpec};
use super::cost::{self, Size};
use super::pick::Candidate;
use super::traffic::{RunningMean, Traffic};
use super::worker::{Booking, Order, Worker, believable};
use crate::rng::Rng;
use crate::units::{ModelName, Seconds, WorkerId};

/// A longer name is compared by its beginning only: a client chooses how long it is.
const COMPARED_CHARS: usize = 256;

/// The most names that are kept, whatever workers report.
const MOST_MODELS: usize = 10_000;

/// The workers, what they serve, and whose turn it is.
#[derive(Debug)]
pub(super) struct Roster {
    workers: Vec<Worker>,
    models: Vec<Model>,
    /// The row of each known name; that of no name is the first.
    rows: BTreeMap<Option<ModelName>, usize>,
    /// Rows whose names were forgotten.
    spare: Vec<usize>,
    rules: Rules,
    traffic: Traffic,
    booked: u64,
    /// Scratch space, kept so that a choice allocates nothing.
    candidates: Vec<Candidate>,
}

/// A known model.
#[derive(Debug)]
struct Model {
    /// Who serves it, in order; all workers in the row for requests without a model.
    workers: Vec<WorkerId>,
    /// The expected length of its answers.
    output: RunningMean,
    /// Who was picked last.
    last: Option<WorkerId>,
}

impl Roster {
    pub(super) fn new(specs: Vec<WorkerSpec>, rules: Rules) -> Self {
        let candidates = Vec::with_capacity(specs.len());
        let workers: Vec<Worker> = (0..)
            .zip(specs)
            .map(|(id, spec)| Worker::new(WorkerId(id), spec))
            .collect();
        let everybody = workers.iter().map(Worker::id).collect();
        let mut roster = Roster {
            models: vec![Model::served_by(everybody)],
            rows: BTreeMap::from([(None, 0)]),
            spare: Vec::new(),
            workers,
            rules,
            traffic: Traffic::new(),
            booked: 0,
            candidates,
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

    /// A worker serves these models now and no others.
    pub(super) fn serves(&mut self, worker: WorkerId, models: &[ModelName]) {
        if self.workers.get(worker.index()).is_none() {
            return;
        }
        let served: BTreeSet<_> = models.iter().collect();
        for (name, row) in &self.rows {
            let Some(name) = name else { continue };
            if !served.contains(name) {
                self.models[*row].workers.retain(|one| *one != worker);
            }
        }
        for name in served {
            if let Some(row) = self.know(name)
                && let workers = &mut self.models[row].workers
                && let Err(place) = workers.binary_search(&worker)
            {
                workers.insert(place, worker);
            }
        }
    }

    /// The row of a name, known from now on; `None` when there are too many.
    pub(super) fn know(&mut self, name: &ModelName) -> Option<usize> {
        if let Some(row) = self.rows.get(&Some(name.clone())) {
            return Some(*row);
        }
        if self.rows.len() > MOST_MODELS {
            return None;
        }
        let fresh = Model::served_by(Vec::new());
        let row = match self.spare.pop() {
            Some(row) => {
                self.models[row] = fresh;
                row
            }
            None => {
                self.models.push(fresh);
                self.models.len() - 1
            }
        };
        self.rows.insert(Some(name.clone()), row);
        Some(row)
    }

    /// A name that nobody serves is unknown again.
    pub(super) fn forget(&mut self, name: &ModelName) {
        let key = Some(name.clone());
        if let Some(row) = self.rows.get(&key).copied()
            && self.models[row].workers.is_empty()
        {
            self.rows.remove(&key);
            self.spare.push(row);
        }
    }

    pub(super) fn workers(&self) -> &[Worker] {
        &self.workers
    }

    pub(super) fn worker_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(id.index())
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
            terms: cost::price(worker, size, now),
            samples: worker.speeds().prefill_samples(size.work),
            inflight: worker.inflight(),
        }));
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

    /// Takes the booking back, and what the outcome teaches.
    pub(super) fn finish(&mut self, booking: Booking, outcome: Outcome, now: Seconds) {
        if let Outcome::Answered { output_tokens, .. } = outcome
            && booking.work() == Work::Generate
            && let Some(output) = believable(output_tokens)
        {
            self.models[booking.model()].output.add(output);
            self.traffic.answered(output);
        }
        if let Some(worker) = self.worker_mut(booking.worker()) {
            worker.finish(booking, outcome, now);
        }
    }

    /// Whether somebody could take this request now.
    pub(super) fn fits(&self, ask: &Ask, tried: &[WorkerId]) -> bool {
        self.row(ask)
            .is_some_and(|row| self.with_room(ask, row, tried).next().is_some())
    }

    fn row(&self, ask: &Ask) -> Option<usize> {
        self.rows.get(&ask.model).copied()
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

    /// Those of them who are alive and were not tried.
    fn alive<'a>(
        &'a self,
        ask: &'a Ask,
        row: usize,
        tried: &'a [WorkerId],
    ) -> impl Iterator<Item = &'a Worker> {
        self.serving(ask, row)
            .filter(|worker| worker.health().serves() && !tried.contains(&worker.id()))
    }

    /// Those of them who have a slot free.
    fn with_room<'a>(
        &'a self,
        ask: &'a Ask,
        row: usize,
        tried: &'a [WorkerId],
    ) -> impl Iterator<Item = &'a Worker> {
        self.alive(ask, row, tried)
            .filter(|worker| worker.has_room())
    }

    fn book(&mut self, worker: WorkerId, order: Order, now: Seconds) -> Booking {
        self.booked += 1;
        self.traffic.placed(order.size);
        self.models[order.model].last = Some(worker);
        self.workers[worker.index()].book(order, now)
    }

    /// Why there was no candidate.
    fn refusal(&self, ask: &Ask, row: usize, tried: &[WorkerId]) -> NoChoice {
        if self.alive(ask, row, tried).next().is_some() {
            NoChoice::Busy
        } else if self.models[row].workers.is_empty() || self.serving(ask, row).next().is_some() {
            // A known name is not unknown because nobody lists it just now.
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
        let nearest = self
            .rows
            .iter()
            .filter(|(_, row)| self.serving(ask, **row).next().is_some())
            .filter_map(|(name, _)| name.as_ref())
            .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
            .cloned();
        NoChoice::UnknownModel { nearest }
    }
}

impl Model {
    fn served_by(workers: Vec<WorkerId>) -> Self {
        Model {
            workers,
            output: RunningMean::of_outputs(),
            last: None,
        }
    }
}

#[cfg(test)]
mod tests {
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
            work: Work::Generate,
            prompt: Tokens(100.0),
            max_tokens: None,
            streamed: true,
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
        dead.probe(Err("no answer".into()), Seconds(1.0));
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
