//! Booking test requests: which worker, which model, and a place like any other.

use super::super::ask::Choice;
use super::super::booking::Order;
use super::super::calibration::{Asked, TEST_OUTPUT, Test, Tests, Trial};
use super::super::cost::Terms;
use super::super::room;
use super::super::speed::SavedSpeeds;
use super::Roster;
use crate::decide::Ask;
use crate::units::{Seconds, WorkerId};

impl Roster {
    /// A client asked for a model, if it named one.
    pub(super) fn note_asked(&mut self, row: usize, ask: &Ask, now: Seconds) {
        if let Some(model) = &ask.model {
            self.models[row].asked = Some(Asked {
                model: model.clone(),
                at: now,
                work: ask.work,
                path: ask.path,
            });
        }
    }

    /// Books a test on every worker that is due for one.
    pub(in crate::decide) fn begin_tests(&mut self, now: Seconds) -> Vec<Test> {
        (0..self.workers.len())
            .filter_map(|index| self.begin_test(index, now))
            .collect()
    }

    fn begin_test(&mut self, index: usize, now: Seconds) -> Option<Test> {
        if !self.workers[index].test_is_due(now) {
            return None;
        }
        let (row, trial) = self.next_trial(index, now)?;
        let model = self.models[row].asked.as_ref()?.model.clone();
        let order = Order {
            number: self.booked,
            model: row,
            size: trial.size,
            class: u8::MAX,
            max_tokens: Some(TEST_OUTPUT),
            streamed: trial.streamed,
            wait: Seconds::ZERO,
            is_test: true,
        };
        self.booked += 1;
        let machine = &mut self.machines[self.homes[index]];
        let worker = &mut self.workers[index];
        let choice = Choice {
            worker: worker.id(),
            booking: worker.book(order, machine, now),
            terms: Terms::default(),
            candidates: 1,
        };
        Some(Test {
            model,
            work: trial.size.work,
            prompt: trial.size.prompt,
            choice,
        })
    }

    /// The model whose turn it is on a worker, and what is asked of it.
    fn next_trial(&self, index: usize, now: Seconds) -> Option<(usize, Trial)> {
        let worker = &self.workers[index];
        let (id, tests, calibration) = (worker.id(), worker.spec().tests, worker.calibration());
        let trial = |row: usize, long| {
            let model = &self.models[row];
            let fits = calibration.allows(row, now) && model.workers.binary_search(&id).is_ok();
            // A test must not push a client's adapter off the card, or its model out of memory.
            let is_there = !worker.loras.toll(row).clouds && !worker.residents.swap(row).clouds;
            let asked = model.asked.as_ref().filter(|_| fits && is_there)?;
            let trial = tests.like(asked, long, now)?;
            let has_room = trial.size.prompt <= room::longest(worker, trial.size.output);
            (has_room || tests != Tests::MadeUp).then_some((row, trial))
        };
        let fit = |row: &usize| trial(*row, false).is_some();
        let rows = 0..self.models.len();
        let (turn, long) = calibration.turn(rows.clone().filter(fit).count());
        let row = rows.clone().filter(fit).nth(turn)?;
        trial(row, long).or_else(|| trial(row, false))
    }

    /// What a worker has shown of its speed.
    pub(in crate::decide) fn saved(&self, id: WorkerId) -> Option<SavedSpeeds> {
        self.workers.get(id.index()).map(|worker| worker.saved())
    }

    /// Takes in what a worker had shown to an earlier process; false when that can't be.
    pub(in crate::decide) fn recall(&mut self, id: WorkerId, saved: &SavedSpeeds) -> bool {
        let worker = self.workers.get_mut(id.index());
        worker.is_some_and(|worker| worker.recall(saved))
    }
}
