//! Why a request finds nobody, and whether it may wait for somebody.

use super::super::ask::{Ask, Names, NoChoice};
use super::super::health::State;
use super::super::standing::AllDown;
use super::super::worker::Worker;
use super::Roster;
use crate::units::{ModelName, WorkerId};

/// A longer name is compared by its beginning only: a client chooses how long it is.
const COMPARED_CHARS: usize = 256;

impl Roster {
    /// What a request lacks that has no candidate.
    pub(in crate::decide) fn lacks(&self, ask: &Ask, tried: &[WorkerId]) -> NoChoice {
        match self.row(ask) {
            Some(row) => self.refusal(ask, row, tried),
            None => self.unknown(ask),
        }
    }

    /// Whether somebody may come up whom this request can wait for. For who comes and goes nobody waits.
    pub(in crate::decide) fn is_awaited(&self, ask: &Ask) -> bool {
        self.row(ask).is_some_and(|row| {
            let nobody_lists_it = self.models[row].workers.is_empty();
            nobody_lists_it || self.serving(ask, row).any(|worker| !worker.spec().optional)
        })
    }

    /// Why there was no candidate.
    pub(super) fn refusal(&self, ask: &Ask, row: usize, tried: &[WorkerId]) -> NoChoice {
        let fit = self.fit(ask, row, tried);
        let need = fit.need();
        let returns = |worker: &Worker| {
            worker.condition().state() == State::Ejected
                && !worker.spec().optional
                && !tried.contains(&worker.id())
                && !need.exceeds(worker)
                && !worker.loras.refuses(row)
        };
        let serving = || self.serving(ask, row);
        if serving().any(|worker| fit.may_wait(worker)) {
            NoChoice::Busy
        } else if self.rules.all_down == AllDown::Queue && serving().any(returns) {
            NoChoice::Away
        } else if serving().next().is_some() && serving().all(|worker| need.exceeds(worker)) {
            let most = need.most(serving());
            NoChoice::TooLong { most }
        } else if serving().any(|worker| worker.loras.refuses(row)) {
            NoChoice::Unloadable
        } else if self.models[row].workers.is_empty() || serving().next().is_some() {
            // A known name is not unknown because nobody lists it just now.
            NoChoice::Down
        } else if self.routed(ask, row).next().is_some() {
            NoChoice::Residency
        } else {
            self.unknown(ask)
        }
    }

    /// Nobody allowed serves it, up or down.
    pub(super) fn unknown(&self, ask: &Ask) -> NoChoice {
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
        NoChoice::UnknownModel {
            nearest,
            awaited: self.may_turn_up(ask),
        }
    }

    /// Whether a model that nobody is known to serve may be one of a worker that has not said yet what it serves.
    fn may_turn_up(&self, ask: &Ask) -> bool {
        let is_away = |worker: &Worker| {
            let state = worker.condition().state();
            matches!(state, State::Down | State::Loading)
        };
        let owes = |worker: &Worker| match worker.names {
            Names::Told => false,
            Names::Owed => !worker.spec().optional,
            Names::Remembered => !worker.spec().optional && !is_away(worker),
        };
        self.workers.iter().any(|worker| {
            let listed = ask
                .only
                .as_ref()
                .is_none_or(|only| only.contains(&worker.id()));
            let allowed = listed && worker.spec().place.is_within(ask.zones);
            allowed && owes(worker)
        })
    }
}
