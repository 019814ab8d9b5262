//! Who may be given a request at all, and who may be taken out.

use super::super::ask::Ask;
use super::super::considered::Exclusion;
use super::super::density::Density;
use super::super::eject::EjectCause;
use super::super::room::Need;
use super::super::standing::Standing;
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
    /// The best standing there is among those who were not tried, have the room and can load the adapter; only who has it
    /// is asked.
    best: Option<Standing>,
    /// When all of these are on hold, the end of the hold that ends first.
    first: Option<Seconds>,
    /// Whether somebody is left who knows the path.
    picky: bool,
}

impl Roster {
    /// Those who serve the model, among those the route allows.
    pub(super) fn serving<'a>(
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
        let best = self.rules.all_down.best(able());
        let first = match best {
            Some(Standing::Held) => able()
                .filter_map(|worker| worker.condition().held())
                .reduce(Seconds::min),
            _ => None,
        };
        let mut fit = Fit {
            roster: self,
            ask,
            row,
            tried,
            need,
            best,
            first,
            picky: false,
        };
        fit.picky = !self.unsupported.is_empty()
            && able().any(|worker| fit.out(worker).is_none() && !fit.is_unsupported(worker));
        fit
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

    /// Whether a worker may be taken out for this. Never the only one that serves a model: there is nobody else. For
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
                EjectCause::Refused => model.workers.len() > 1,
            }
        };
        if nameless {
            return allows(0);
        }
        named.all(|(_, row)| !serves(*row) || allows(*row))
    }
}

impl Fit<'_> {
    /// What speaks against giving a worker that serves the model the request now.
    pub(super) fn excludes(&self, worker: &Worker) -> Option<Exclusion> {
        self.out(worker).or_else(|| {
            if self.picky && self.is_unsupported(worker) {
                Some(Exclusion::Unsupported)
            } else {
                (!worker.has_room()).then_some(Exclusion::Full)
            }
        })
    }

    /// Whether the request may have this worker, now or when a place there is free.
    pub(super) fn may_wait(&self, worker: &Worker) -> bool {
        matches!(self.excludes(worker), None | Some(Exclusion::Full))
    }

    /// The room that the request needs.
    pub(super) fn need(&self) -> Need {
        self.need
    }

    /// What speaks against a worker by what is known of it, whatever it holds.
    fn out(&self, worker: &Worker) -> Option<Exclusion> {
        let condition = worker.condition();
        let standing = condition.standing();
        let fits = Some(standing) == self.best
            && match standing {
                Standing::Free | Standing::Vouched => true,
                Standing::Held => condition.held() == self.first,
                Standing::Ejected | Standing::Down => !condition.breaker().refuses(),
            };
        if self.tried.contains(&worker.id()) {
            return Some(Exclusion::Tried);
        }
        if self.need.exceeds(worker) {
            return Some(Exclusion::TooLong);
        }
        if worker.loras.refuses(self.row) {
            return Some(Exclusion::Unloadable);
        }
        (!fits).then_some(match standing {
            Standing::Free | Standing::Held => Exclusion::Held,
            Standing::Vouched | Standing::Ejected => Exclusion::Ejected,
            Standing::Down => Exclusion::Down,
        })
    }

    /// Whether this worker is known not to serve the request's path.
    fn is_unsupported(&self, worker: &Worker) -> bool {
        self.ask
            .path
            .is_some_and(|path| self.roster.unsupported.has(worker, path, self.row))
    }
}
