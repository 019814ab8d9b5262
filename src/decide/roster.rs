//! Who could serve a request, and giving it to one of them: filter, price, pick and book in one step.
//!
//! One step, because two requests that look at the same idle worker at the same moment must not both be told that it
//! is idle. What a model name means is one row of a sorted table; its first row is for requests that name no model.

use std::collections::{BTreeMap, BTreeSet};

use super::ask::{Ask, Choice, NoChoice, Outcome, Work, WorkerSpec};
use super::cost::{self, Size, Terms};
use super::pick::{Candidate, Policy};
use super::traffic::{RunningMean, Traffic};
use super::worker::{Booking, Order, Worker, believable};
use crate::rng::Rng;
use crate::units::{ModelName, Seconds, WorkerId};

/// A longer name is compared by its beginning only: a client chooses how long it is.
const COMPARED_CHARS: usize = 256;

/// The workers, what they serve, and whose turn it is.
#[derive(Debug)]
pub(super) struct Roster {
    workers: Vec<Worker>,
    models: Vec<Model>,
    policy: Policy,
    traffic: Traffic,
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
    pub(super) fn new(specs: Vec<WorkerSpec>, policy: Policy) -> Self {
        let candidates = Vec::with_capacity(specs.len());
        let workers: Vec<Worker> = (0..)
            .zip(specs)
            .map(|(id, spec)| Worker::new(WorkerId(id), spec))
            .collect();
        Roster {
            models: models(&workers),
            workers,
            policy,
            traffic: Traffic::new(),
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
            inflight: worker.inflight(),
        }));
        let found = candidates.len();
        let picked = self
            .policy
            .pick(&mut candidates, self.models[row].last, rng);
        self.candidates = candidates;
        let Some(Candidate { worker, terms, .. }) = picked else {
            return Err(self.refusal(ask, row, tried));
        };
        Ok(Choice {
            worker,
            booking: self.book(worker, ask, (row, size, terms), now),
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

    fn book(
        &mut self,
        worker: WorkerId,
        ask: &Ask,
        (row, size, terms): (usize, Size, Terms),
        now: Seconds,
    ) -> Booking {
        self.booked += 1;
        self.traffic.placed(size);
        self.models[row].last = Some(worker);
        let order = Order {
            number: self.booked,
            model: row,
            size,
            wait: terms.wait,
        };
        self.workers[worker.index()].book(ask, order, now)
    }

    /// Why there was no candidate.
    fn refusal(&self, ask: &Ask, row: usize, tried: &[WorkerId]) -> NoChoice {
        if self.alive(ask, row, tried).next().is_some() {
            NoChoice::Busy
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
