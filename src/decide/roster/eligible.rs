//! Who may be given a request at all, and who may be taken out.

use super::super::ask::Ask;
use super::super::considered::Exclusion;
use super::super::density::Density;
use super::super::eject::EjectCause;
use super::super::health::State;
use super::super::room::{self, Need};
use super::super::standing::{AllDown, Rank, Standing};
use super::super::worker::Worker;
use super::Roster;
use crate::units::{Length, Seconds, WorkerId};

/// What one request asks of a worker, as far as it depends on the others.
pub(super) struct Fit<'a> {
    roster: &'a Roster,
    ask: &'a Ask,
    row: usize,
    tried: &'a [WorkerId],
    /// The room that it needs.
    need: Need,
    /// The best rank there is among those who were not tried, have the room and can load the adapter; only who has it is
    /// asked.
    best: Option<Rank>,
    /// When all of these are on hold, the end of the hold that ends first.
    first: Option<Seconds>,
    /// Whether more would only wait inside each of them.
    saturated: bool,
    /// Whether all places that are left there are kept for higher classes.
    kept: bool,
}

impl Roster {
    /// Those who serve the model, among those the route and the zones allow.
    pub(super) fn serving<'a>(
        &'a self,
        ask: &'a Ask,
        row: usize,
    ) -> impl Iterator<Item = &'a Worker> {
        self.routed(ask, row)
            .filter(|worker| worker.spec().place.is_within(ask.zones))
    }

    /// Those who serve the model, among those the route allows, wherever they are.
    pub(super) fn routed<'a>(
        &'a self,
        ask: &'a Ask,
        row: usize,
    ) -> impl Iterator<Item = &'a Worker> {
        let serve_model = &self.models[row].workers;
        let allowed = ask.only.as_deref().unwrap_or(serve_model);
        allowed
            .iter()
            .filter(|id| serve_model.binary_search(id).is_ok())
            .filter_map(|id| self.workers.get(id.index()))
    }

    /// What this request asks of a worker.
    pub(super) fn fit<'a>(&'a self, ask: &'a Ask, row: usize, tried: &'a [WorkerId]) -> Fit<'a> {
        let need = Need::of(ask, self.models[row].density);
        let able = || {
            self.serving(ask, row)
                .filter(|worker| !tried.contains(&worker.id()) && !need.exceeds(worker))
                .filter(|worker| !worker.loras.refuses(row))
        };
        let admitted = able().filter(|worker| self.rules.all_down.admits(worker));
        let best = admitted.map(|worker| self.rank(worker, ask, row)).min();
        let asked = || able().filter(|worker| Some(self.rank(worker, ask, row)) == best);
        // Who would have to unload a model that is in use is no place to go.
        let open = || asked().filter(|worker| worker.residents.bars(row).is_none());
        let first = match best {
            Some(best) if best.standing == Standing::Held => asked()
                .filter_map(|worker| worker.condition().held())
                .reduce(Seconds::min),
            _ => None,
        };
        Fit {
            roster: self,
            ask,
            row,
            tried,
            need,
            best,
            first,
            saturated: open().all(|worker| !worker.has_room() || worker.is_saturated()),
            kept: self.is_kept(ask, open()),
        }
    }

    /// Whether anybody could be given a request, of one kind or another; or nobody at all is up, which is another matter.
    pub(in crate::decide) fn takes_any(&self) -> bool {
        let is_asked = |worker: &Worker| {
            let state = worker.condition().state();
            let is_tried = self.rules.all_down == AllDown::TryAll && !worker.condition().has_left();
            state == State::Up || is_tried
        };
        let asked = || self.workers.iter().filter(|worker| is_asked(worker));
        let has_place = |worker: &Worker| worker.has_room() && !worker.is_saturated();
        asked().next().is_none() || asked().any(has_place)
    }

    /// How soon this worker is asked.
    fn rank(&self, worker: &Worker, ask: &Ask, row: usize) -> Rank {
        let is_strange = |path| self.unsupported.has(worker, path, row);
        Rank {
            standing: worker.condition().standing(),
            strange: !self.unsupported.is_empty() && ask.path.is_some_and(is_strange),
            tier: worker.spec().tier,
        }
    }

    /// Those who could be given this request now.
    pub(in crate::decide) fn candidates(&self, ask: &Ask, tried: &[WorkerId]) -> Vec<WorkerId> {
        let Some(row) = self.row(ask) else {
            return Vec::new();
        };
        let fit = self.fit(ask, row, tried);
        self.serving(ask, row)
            .filter(|worker| fit.excludes(worker).is_none())
            .map(Worker::id)
            .collect()
    }

    /// A request as it stands in line: its prompt measured now, as the model's density goes on changing.
    pub(in crate::decide) fn measured(&self, mut ask: Ask) -> Ask {
        let density = self.row(&ask).map(|row| self.models[row].density);
        let need = Need::of(&ask, density.unwrap_or_default());
        ask.fills = ask.fills.map(|_| Length::Tokens(need.prompt));
        ask
    }

    /// The workers that a request which was measured is too long for.
    pub(in crate::decide) fn barred(&self, ask: &Ask) -> Vec<WorkerId> {
        let need = Need::of(ask, Density::default());
        let barred = self.workers.iter().filter(|worker| need.exceeds(worker));
        barred.map(Worker::id).collect()
    }

    /// Tokens of a prompt and its answer that fit every worker.
    pub(in crate::decide) fn least_room(&self) -> f64 {
        let present = |worker: &&Worker| !worker.condition().has_left();
        let present = self.workers.iter().filter(present);
        let rooms = present.map(|worker| room::longest(worker, 0.0));
        rooms.fold(f64::INFINITY, f64::min)
    }

    /// An error that a worker answered was its own fault. Returns the state that the worker left if that ejected it.
    pub(in crate::decide) fn blame(&mut self, id: WorkerId, now: Seconds) -> Option<State> {
        let (worker, machine) = self.at(id)?;
        let left = worker.condition().state();
        let cause = worker.blame(machine, now)?;
        self.eject(id, cause, now).then_some(left)
    }

    /// Takes a worker out if that is allowed; whether it is.
    pub(super) fn eject(&mut self, id: WorkerId, cause: EjectCause, now: Seconds) -> bool {
        let allowed = self.may_eject(id, cause);
        if let Some(worker) = self.worker_mut(id).filter(|_| allowed) {
            worker.eject(cause, now);
            self.reuse.lost(id);
        }
        allowed
    }

    /// Whether a worker may be taken out for this. Never the only one that serves a model: there is nobody else, unless it
    /// takes no connections and requests may wait for it to come back. For
    /// errors, which only few of its requests may share, at most half of those who serve a model, up or not; one that
    /// takes no connections serves nobody by staying.
    pub(super) fn may_eject(&self, id: WorkerId, cause: EjectCause) -> bool {
        let mut named = self.rows.iter().filter(|(name, _)| name.is_some());
        let serves = |row: usize| self.models[row].workers.contains(&id);
        let nameless = !named.clone().any(|(_, row)| serves(*row));
        let allows = |row: usize| {
            let model = &self.models[row];
            let out = model.workers.iter().filter(|id| {
                let ejection = self.workers[id.index()].condition().breaker().ejection();
                ejection.is_some_and(|ejection| ejection.cause != EjectCause::Refused)
            });
            match cause {
                EjectCause::Errors | EjectCause::Lost => out.count() < model.workers.len() / 2,
                EjectCause::Refused => model.workers.len() > 1 || self.rules.line.holds,
            }
        };
        if nameless {
            return allows(0);
        }
        named.all(|(_, row)| !serves(*row) || allows(*row))
    }
}

impl Fit<'_> {
    /// What speaks against giving a worker the request now. Zones come first: nothing outweighs them.
    pub(super) fn excludes(&self, worker: &Worker) -> Option<Exclusion> {
        if !worker.spec().place.is_within(self.ask.zones) {
            return Some(Exclusion::Zone);
        }
        if self.tried.contains(&worker.id()) {
            return Some(Exclusion::Tried);
        }
        if self.need.exceeds(worker) {
            return Some(Exclusion::TooLong);
        }
        if worker.loras.refuses(self.row) {
            return Some(Exclusion::Unloadable);
        }
        let rank = self.roster.rank(worker, self.ask, self.row);
        match self.best {
            Some(best) if best.standing == rank.standing && self.is_willing(worker) => {
                if rank.strange && !best.strange {
                    Some(Exclusion::Unsupported)
                } else if rank.tier != best.tier {
                    Some(Exclusion::Tier)
                } else {
                    self.lacks_place(worker)
                }
            }
            _ => Some(match rank.standing {
                Standing::Free | Standing::Held => Exclusion::Held,
                Standing::Vouched | Standing::Ejected => Exclusion::Ejected,
                Standing::Draining => Exclusion::Draining,
                Standing::Down => Exclusion::Down,
            }),
        }
    }

    /// What keeps it from a worker that it could go to.
    fn lacks_place(&self, worker: &Worker) -> Option<Exclusion> {
        let barred = worker.residents.bars(self.row);
        if barred.is_some() {
            barred
        } else if !worker.has_room() {
            Some(Exclusion::Full)
        } else if self.saturated {
            Some(Exclusion::Saturated)
        } else {
            self.kept.then_some(Exclusion::Reserved)
        }
    }

    /// Whether the request may have this worker, now or when a place there is free.
    pub(super) fn may_wait(&self, worker: &Worker) -> bool {
        self.excludes(worker).is_none_or(Exclusion::passes)
    }

    /// The room that the request needs.
    pub(super) fn need(&self) -> Need {
        self.need
    }

    /// Whether a worker of the best standing may be asked now.
    fn is_willing(&self, worker: &Worker) -> bool {
        let condition = worker.condition();
        match condition.standing() {
            Standing::Free | Standing::Vouched => true,
            Standing::Held => condition.held() == self.first,
            Standing::Draining => false,
            Standing::Ejected | Standing::Down => !condition.breaker().refuses(),
        }
    }
}
