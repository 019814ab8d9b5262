//! Who waits for which model on workers that swap, and for whom another has to leave: see `residents.rs` for the rules.
//!
//! It is found out anew whenever places are granted, from one request of each lane, and kept until then. So what may be
//! swapped depends on the worker and the model alone, and what holds for one of a lane holds for all of it.

use super::super::considered::Exclusion;
use super::super::queue::Waiter;
use super::Roster;
use crate::units::{Seconds, WorkerId};

/// A model that was waited for too long.
struct Due {
    since: Seconds,
    row: usize,
    /// Who could serve it, now or some time,
    open: Vec<WorkerId>,
    /// and those of them who could if another model left; none while one of the others needs no more than a place.
    full: Vec<WorkerId>,
}

impl Roster {
    /// Whether somebody swaps, so that it matters who waits.
    pub(in crate::decide) fn swaps(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.any(|worker| worker.residents.is_bounded())
    }

    /// These wait, each for its lane, of which it came first.
    pub(in crate::decide) fn heed_waiting(&mut self, waiting: &[&Waiter], now: Seconds) {
        let mut wanted: Vec<Vec<usize>> = vec![Vec::new(); self.workers.len()];
        for waiter in waiting {
            for (row, id, _) in self.open_to(waiter) {
                wanted[id.index()].push(row);
            }
        }
        for (worker, rows) in self.workers.iter_mut().zip(&wanted) {
            worker.residents.want(rows);
        }
        let late = |waiter: &&Waiter| now - waiter.since >= self.rules.line.swap_after;
        let late = waiting.iter().copied().filter(late);
        let due = late.filter_map(|waiter| self.due(waiter)).collect();
        self.make_way(due, now);
    }

    /// What this request waits for on whom: the row of its model, and what speaks against each.
    fn open_to(&self, waiter: &Waiter) -> Vec<(usize, WorkerId, Option<Exclusion>)> {
        let Some(row) = self.row(&waiter.ask) else {
            return Vec::new();
        };
        let fit = self.fit(&waiter.ask, row, &waiter.tried);
        let speaks = self
            .serving(&waiter.ask, row)
            .map(|worker| (row, worker.id(), fit.excludes(worker)));
        let helps = |exclusion: Option<Exclusion>| exclusion.is_none_or(Exclusion::passes);
        speaks.filter(|(.., against)| helps(*against)).collect()
    }

    /// What this request waits for too long.
    fn due(&self, waiter: &Waiter) -> Option<Due> {
        let open = self.open_to(waiter);
        let (row, ..) = *open.first()?;
        let needs_a_swap = open
            .iter()
            .all(|(.., against)| matches!(against, Some(Exclusion::Occupied | Exclusion::Leaving)));
        let full = open
            .iter()
            .filter(|(.., against)| needs_a_swap && *against == Some(Exclusion::Occupied));
        Some(Due {
            since: waiter.since,
            row,
            full: full.map(|(_, id, _)| *id).collect(),
            open: open.iter().map(|(_, id, _)| *id).collect(),
        })
    }

    /// On one worker for each of these models another has to leave; who had to for a model that nobody waits for any more
    /// need not.
    fn make_way(&mut self, mut due: Vec<Due>, now: Seconds) {
        for worker in &mut self.workers {
            let id = worker.id();
            let awaited = |one: &Due| worker.residents.awaits(one.row) && one.open.contains(&id);
            if !due.iter().any(awaited) {
                worker.residents.calm();
            }
        }
        due.sort_by(|one, other| one.since.0.total_cmp(&other.since.0));
        for Due {
            row, open, full, ..
        } in due
        {
            let residents = |id: WorkerId| &self.workers[id.index()].residents;
            if open.iter().any(|id| residents(*id).awaits(row)) {
                continue;
            }
            let swap_after = self.rules.line.swap_after;
            let burden = |id: WorkerId| Some((residents(id).burden(swap_after, now)?, id));
            if let Some((_, id)) = full.into_iter().filter_map(burden).min() {
                self.workers[id.index()].residents.make_way(row);
            }
        }
    }
}
