//! One choice, step by step: who serves the model and what speaks against each, whom to compare, at what price.
//!
//! The list of those considered is written by these steps and read by nobody else until the choice is made; then it is
//! what "why this worker" is answered from (`considered.rs`).

use super::super::ask::Ask;
use super::super::considered::{Considered, Exclusion, Fate};
use super::super::cost::{self, Size, Terms};
use super::super::pick::{Candidate, Policy, SAMPLE};
use super::Roster;
use crate::rng::Rng;
use crate::units::{Seconds, WorkerId};

impl Roster {
    /// Lists everybody on the route who serves the model, with what speaks against giving it the request.
    pub(super) fn filter(&mut self, ask: &Ask, row: usize, tried: &[WorkerId]) {
        let mut considered = std::mem::take(&mut self.considered);
        let fit = self.fit(ask, row, tried);
        considered.extend(self.routed(ask, row).map(|worker| Considered {
            worker: worker.id(),
            fate: fit.excludes(worker).map_or(Fate::Candidate, Fate::Excluded),
            terms: Terms::default(),
            cached: 0.0,
        }));
        self.considered = considered;
        self.prefer_elsewhere(tried);
    }

    /// What took one worker of a machine along may have taken its neighbours: a retry goes to another machine if it can.
    fn prefer_elsewhere(&mut self, tried: &[WorkerId]) {
        let Roster {
            considered, homes, ..
        } = self;
        let home = |id: WorkerId| homes.get(id.index());
        let near = |one: &Considered| tried.iter().any(|id| home(*id) == home(one.worker));
        if tried.is_empty() || candidates(considered).all(near) {
            return;
        }
        for one in considered {
            if one.fate == Fate::Candidate && near(one) {
                one.fate = Fate::Excluded(Exclusion::SameMachine);
            }
        }
    }

    /// In a large fleet, keeps as candidates a few drawn at random: in one pass, each as likely as the others (D. Knuth,
    /// "The Art of Computer Programming", volume 2, algorithm 3.4.2S).
    pub(super) fn sample(&mut self, rng: &mut Rng) {
        let mut left = candidates(&self.considered).count();
        if self.rules.policy != Policy::LeastTime || left <= self.rules.sample_above.max(SAMPLE) {
            return;
        }
        let mut wanted = SAMPLE;
        for considered in &mut self.considered {
            if considered.fate == Fate::Candidate {
                if rng.below(left) < wanted {
                    wanted -= 1;
                } else {
                    considered.fate = Fate::Excluded(Exclusion::NotSampled);
                }
                left -= 1;
            }
        }
    }

    /// Prices everybody but those who were not sampled.
    pub(super) fn price(&mut self, row: usize, size: Size, now: Seconds) {
        let loss = self.traffic.loss();
        let mut considered = std::mem::take(&mut self.considered);
        for one in &mut considered {
            if one.fate != Fate::Excluded(Exclusion::NotSampled) {
                let worker = &self.workers[one.worker.index()];
                let cached = self.reuse.cached(one.worker);
                let size = worker.sized(size.cached(cached), row);
                one.terms = cost::price(worker, self.machine(worker), size, loss, now);
                one.cached = size.cached;
            }
        }
        self.considered = considered;
    }

    /// Lists the candidates for the policy.
    pub(super) fn list(&mut self, row: usize, size: Size, now: Seconds) {
        let mut listed = std::mem::take(&mut self.candidates);
        listed.clear();
        listed.extend(candidates(&self.considered).map(|considered| {
            let worker = &self.workers[considered.worker.index()];
            let line = worker.speeds().prefill(size.work);
            let saved = size.reading() - size.cached(considered.cached).reading();
            let alone = considered.terms.own + considered.terms.decode;
            Candidate {
                worker: considered.worker,
                terms: considered.terms,
                cached: considered.cached,
                whole: alone.0 + line.slope * saved,
                samples: worker.speeds().prefill_samples(size.work),
                inflight: worker.inflight(),
                owed: 0.0,
            }
        }));
        if self.rules.policy == Policy::Weighted {
            self.credit(&mut listed, row, now);
        }
        self.candidates = listed;
    }

    /// Reckons what every candidate is owed with its share of one request more. Whoever is absent gets nothing, and comes
    /// back with what it was owed when it left, which is bounded: no burst makes up for an outage.
    fn credit(&self, listed: &mut [Candidate], row: usize, now: Seconds) {
        let weight = |id: WorkerId| self.weight(&self.workers[id.index()], now);
        let all: f64 = listed
            .iter()
            .map(|candidate| weight(candidate.worker))
            .sum();
        let model = &self.models[row];
        for candidate in listed {
            let share = weight(candidate.worker) / all;
            let place = model.workers.binary_search(&candidate.worker);
            let owed = place.map_or(0.0, |place| model.owed[place]);
            candidate.owed = (owed + share).clamp(-1.0, 1.0);
        }
    }

    /// Remembers what the candidates are owed, now that one of them is to be given the request.
    pub(super) fn owe(&mut self, row: usize) {
        if self.rules.policy != Policy::Weighted {
            return;
        }
        let model = &mut self.models[row];
        for candidate in &self.candidates {
            if let Ok(place) = model.workers.binary_search(&candidate.worker) {
                model.owed[place] = candidate.owed;
            }
        }
    }

    pub(super) fn mark_picked(&mut self, picked: WorkerId) {
        let mut considered = self.considered.iter_mut();
        if let Some(considered) = considered.find(|considered| considered.worker == picked) {
            considered.fate = Fate::Picked;
        }
    }
}

/// Those of a list who may be given the request.
fn candidates(considered: &[Considered]) -> impl Iterator<Item = &Considered> {
    considered
        .iter()
        .filter(|considered| considered.fate == Fate::Candidate)
}
