//! Another plan while requests are under way.
//!
//! A worker is the same as before while its name, its address and its engine are: then it keeps its connections, its
//! requests and all that was learned of it. Another machine behind an old name begins anew. A worker that is in the
//! plan no more keeps its number and what it holds, gets nothing new and is watched no longer; once it holds nothing it
//! is shown no more. A name that comes back finds what it had left.
//!
//! All of it happens in one step under the lock. Who waits is judged anew in that same step: for some there is somebody
//! now, for others nobody any more.

use std::sync::Arc;

use tokio::sync::watch;

use super::discover::Profile;
use super::station::Station;
use super::{Core, Fleet, rules};
use crate::config::Plan;
use crate::config::plan::WorkerPlan;
use crate::decide::Seat;
use crate::units::WorkerId;

/// All workers of this process, by their ids.
pub type Stations = Vec<Arc<Station>>;

impl Fleet {
    /// All workers that there have been in this process, by their ids.
    #[must_use]
    pub fn stations(&self) -> Arc<Stations> {
        self.stations.load_full()
    }

    /// One of them.
    #[must_use]
    pub fn station(&self, worker: WorkerId) -> Option<Arc<Station>> {
        self.stations.load().get(worker.index()).cloned()
    }

    /// Tells when a plan is in force whose stations may be others.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Takes another plan over, whose workers are numbered as [`Plan::seat`] does it.
    pub fn reseat(self: &Arc<Self>, plan: &Plan) {
        let before = self.catalogue();
        self.change(|core, now| {
            let stations = self.restation(core, plan);
            let seat = |(old, new): (Option<&Arc<Station>>, &Arc<Station>)| {
                if new.leaves {
                    return Seat::Leaves;
                }
                let profile = core.profiles.get(new.plan.id.index());
                let engine = profile.and_then(|profile| profile.engine);
                let spec = Box::new(rules::spec(plan, &new.plan, engine));
                match old {
                    Some(old) if Arc::ptr_eq(&old.upstream, &new.upstream) => Seat::Stays(spec),
                    _ => Seat::Begins(spec),
                }
            };
            let old = self.stations.load();
            let paired = stations
                .iter()
                .enumerate()
                .map(|(id, new)| (old.get(id), new));
            let seats = paired.map(seat).collect();
            core.state.reseat(seats, rules::rules(plan), now);
            self.stations.store(Arc::new(stations));
            self.draw(core);
            let catalogue = self.catalogue();
            for name in before.known().filter(|name| !catalogue.knows(name)) {
                core.state.forget(name);
            }
        });
    }

    /// Tells those who look after stations that there are others. To be called once all of a plan is in force.
    pub fn announce(&self) {
        self.changed.send_replace(());
    }

    /// The stations of another plan, and profiles to match.
    fn restation(&self, core: &mut Core, plan: &Plan) -> Stations {
        let old = self.stations.load();
        let known = (0..).map(WorkerId).zip(old.iter().zip(&mut core.profiles));
        let mut stations: Stations = known
            .map(|(id, (old, profile))| {
                let worker = plan.workers.iter().find(|worker| worker.id == id);
                match worker {
                    Some(worker) if is_same(old, profile, worker) => {
                        profile.replan(worker);
                        unless_same(old, old.replanned(plan, worker))
                    }
                    Some(worker) => {
                        *profile = Profile::typed(worker);
                        Arc::new(Station::new(plan, worker, self.clock))
                    }
                    None => {
                        profile.leave();
                        unless_same(old, old.leaving())
                    }
                }
            })
            .collect();
        let is_new = |worker: &&WorkerPlan| worker.id.index() >= old.len();
        let mut fresh: Vec<_> = plan.workers.iter().filter(is_new).collect();
        fresh.sort_by_key(|worker| worker.id);
        for worker in fresh {
            core.profiles.push(Profile::typed(worker));
            stations.push(Arc::new(Station::new(plan, worker, self.clock)));
        }
        stations
    }

    /// Whether a worker is in the plan no more and holds nothing either.
    #[must_use]
    pub fn is_gone(&self, worker: WorkerId) -> bool {
        self.core.lock().state.is_gone(worker)
    }
}

/// Whether a worker of another plan is the one of this station.
fn is_same(station: &Station, profile: &Profile, worker: &WorkerPlan) -> bool {
    let engines = worker.engine.zip(profile.engine);
    let is_there = station.plan.origin == worker.origin && station.plan.grpc == worker.grpc;
    is_there && engines.is_none_or(|(typed, known)| typed == known)
}

/// The station as it was where another plan means the same by it.
fn unless_same(old: &Arc<Station>, new: Station) -> Arc<Station> {
    if old.is_as(&new) {
        Arc::clone(old)
    } else {
        Arc::new(new)
    }
}
