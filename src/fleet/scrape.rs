//! Asking an engine how much it has to do, and with which LoRA adapters where it says that in the same breath, beside
//! its requests and never for one.
//!
//! One task for each worker, one question at a time over a connection of its own, a short timeout, and an answer that
//! is read no further than 4 MiB: a worker that is slow to tell is not asked faster. How often depends on what it is
//! good for: each second while it holds requests of ours or did within ten seconds, for then prices are made of it;
//! every ten seconds while it is idle, to see others come; after failures ever less, to once a minute. A place that is
//! not there (404, 405, 501) is not asked again until the worker has come up anew, when it may be another version. A
//! worker that is not up is not asked, and one for which a question counts as use only while it is used
//! (`dialect/load.rs`).
//!
//! Nothing depends on an answer: one that fails to come, or says nothing, leaves what was told before to fade, and
//! never speaks against the worker.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Method;
use tokio::time::{MissedTickBehavior, interval};

use super::Fleet;
use super::dialect::load::{self, Answer};
use super::dialect::lora;
use super::discover::Inquirer;
use crate::clock::Clock;
use crate::config::plan::{Engine, Origin, WorkerPlan};
use crate::decide::{Heard, Ours, State};
use crate::units::{Bytes, ModelName, Seconds, WorkerId};
use crate::upstream::{Addresses, Upstream};

/// Time between two questions to a worker that is used,
const BUSY: Seconds = Seconds(1.0);
/// and to one that is not.
const IDLE: Seconds = Seconds(10.0);
/// A worker counts as used for so long.
const USED: Seconds = Seconds(10.0);
/// The longest time between two questions, after failures.
const LONGEST: Seconds = Seconds(60.0);
/// Time between two looks whether a question is due.
const LOOK: Seconds = Seconds(0.25);
/// The longest that an answer is waited for.
const PATIENCE: Seconds = Seconds(1.0);
/// An answer is read this far.
const MOST_READ: Bytes = Bytes(4 << 20);

/// Asks one worker for its load.
pub struct Scraper {
    fleet: Arc<Fleet>,
    clock: Clock,
    id: WorkerId,
    inquirer: Inquirer,
    /// The place that was typed for its metrics, and its path there.
    typed: Option<(Arc<Addresses>, String)>,
    rhythm: Rhythm,
    /// Places that are not there, since it came up.
    gone: Vec<String>,
}

/// When a question is due.
#[derive(Clone, Copy, Debug, Default)]
struct Rhythm {
    /// When it was last asked, and whether it was used then.
    asked: Option<(Seconds, bool)>,
    used: Option<Seconds>,
    failures: u32,
    /// Requests that the worker had been given at the last look.
    given: u64,
}

/// What became of a question.
enum Told {
    /// It said something.
    Yes,
    /// It has no such place.
    Nowhere,
    /// It said nothing, or nothing that can be read.
    No,
}

impl Scraper {
    /// Has asked nothing yet.
    #[must_use]
    pub fn new(
        fleet: Arc<Fleet>,
        clock: Clock,
        id: WorkerId,
        plan: &WorkerPlan,
        upstream: Arc<Upstream>,
    ) -> Self {
        let (upstream, typed) = match &plan.metrics {
            None => (upstream, None),
            Some(origin) => elsewhere(origin, plan.optional, clock),
        };
        Scraper {
            inquirer: Inquirer::new(plan, upstream).within(PATIENCE),
            typed,
            rhythm: Rhythm::default(),
            gone: Vec::new(),
            fleet,
            clock,
            id,
        }
    }

    /// Asks for as long as the process lives; a name of its own is looked up at these servers.
    pub async fn run(mut self, servers: Vec<SocketAddr>) {
        let addresses = self.typed.as_ref().map(|(addresses, _)| addresses.clone());
        let follow = async {
            if let Some(addresses) = addresses {
                addresses.follow(&servers).await;
            }
        };
        let mut ticks = interval(LOOK.to_duration());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ask = async {
            loop {
                ticks.tick().await;
                self.look().await;
            }
        };
        tokio::join!(follow, ask);
    }

    /// Asks if that is due.
    async fn look(&mut self) {
        let now = self.clock.now();
        let (state, engine, ours) = self.fleet.at_work(self.id);
        let used = self.rhythm.is_used(ours.is_busy(), ours.given(), now);
        let (Some(State::Up), Some(engine)) = (state, engine) else {
            self.gone.clear();
            self.rhythm.rest();
            return;
        };
        if !self.rhythm.is_due(used, now) || (load::is_use(engine) && !used) {
            return;
        }
        self.rhythm.asked = Some((now, used));
        let lasts = if used { BUSY } else { IDLE };
        let is_told = self.ask(engine, lasts).await;
        self.rhythm.failures = if is_told {
            0
        } else {
            self.rhythm.failures.saturating_add(1)
        };
    }

    /// Asks one place after the other until one tells. Whether one did.
    async fn ask(&mut self, engine: Engine, lasts: Seconds) -> bool {
        for path in self.places(engine) {
            match self.ask_at(engine, &path, lasts).await {
                Told::Yes => return true,
                Told::Nowhere => self.gone.push(path),
                Told::No => {}
            }
        }
        false
    }

    /// Where to ask.
    fn places(&self, engine: Engine) -> Vec<String> {
        let places: Vec<_> = match &self.typed {
            Some((_, path)) => vec![path.clone()],
            None => load::questions(engine)
                .iter()
                .map(|path| (*path).to_owned())
                .collect(),
        };
        places
            .into_iter()
            .filter(|path| !self.gone.contains(path))
            .collect()
    }

    async fn ask_at(&self, engine: Engine, path: &str, lasts: Seconds) -> Told {
        let asked = self.fleet.ours(self.id);
        let reply = self
            .inquirer
            .ask_at_length(Method::GET, path, MOST_READ)
            .await;
        let Ok(reply) = reply else { return Told::No };
        if matches!(reply.status.as_u16(), 404 | 405 | 501) {
            return Told::Nowhere;
        }
        let Some(body) = reply.body.filter(|_| reply.status.is_success()) else {
            return Told::No;
        };
        if let Some(told) = lora::told(engine, path, &body) {
            self.fleet.lora_told(self.id, &told);
        }
        match load::answer(path, &body) {
            None => Told::No,
            Some(Answer::Resident(models)) => {
                self.fleet.resident(self.id, models);
                Told::Yes
            }
            Some(Answer::Load(load)) => {
                self.fleet.hear_load(self.id, &Heard { load, asked, lasts });
                Told::Yes
            }
        }
    }
}

impl Rhythm {
    /// Whether the worker holds requests of ours, or did a short time ago.
    fn is_used(&mut self, is_busy: bool, given: u64, now: Seconds) -> bool {
        if is_busy || given != self.given {
            self.used = Some(now);
        }
        self.given = given;
        self.used.is_some_and(|used| now - used < USED)
    }

    /// One that is used no more is asked once more at once, for what it told then lasts no longer than it would have
    /// been.
    fn is_due(&self, used: bool, now: Seconds) -> bool {
        let Some((asked, was_used)) = self.asked else {
            return true;
        };
        let calm = if used || was_used { BUSY } else { IDLE };
        let every = match self.failures {
            0 => calm,
            failures => (BUSY * f64::from(1_u32 << failures.min(6))).max(calm),
        };
        now - asked >= every.min(LONGEST)
    }

    /// The worker is away: when it comes up it is asked at once.
    fn rest(&mut self) {
        (self.asked, self.failures) = (None, 0);
    }
}

impl Fleet {
    /// What must be known of a worker before it is asked: its state, what it is, and what it has of ours.
    fn at_work(&self, worker: WorkerId) -> (Option<State>, Option<Engine>, Ours) {
        let core = self.core.lock();
        let engine = core
            .profiles
            .get(worker.index())
            .and_then(|profile| profile.engine);
        (core.state.state(worker), engine, core.state.ours(worker))
    }

    /// What a worker has of ours now.
    fn ours(&self, worker: WorkerId) -> Ours {
        self.core.lock().state.ours(worker)
    }

    /// An engine says how much it has to do.
    fn hear_load(&self, worker: WorkerId, heard: &Heard) {
        let now = self.clock.now();
        self.core.lock().state.hear_load(worker, heard, now);
    }

    /// Only these models of a worker are in its memory.
    fn resident(self: &Arc<Self>, worker: WorkerId, models: Vec<ModelName>) {
        self.change(|core, _now| {
            core.state.hear_resident(worker, &models);
            if let Some(profile) = core.profiles.get_mut(worker.index()) {
                profile.resident = Some(models);
            }
        });
    }

    /// Which models of a worker are in its memory, where it says so.
    #[must_use]
    pub fn resident_models(&self, worker: WorkerId) -> Option<Vec<ModelName>> {
        let core = self.core.lock();
        core.profiles.get(worker.index())?.resident.clone()
    }
}

/// Connections to where metrics are, and the path there.
fn elsewhere(
    origin: &Origin,
    optional: bool,
    clock: Clock,
) -> (Arc<Upstream>, Option<(Arc<Addresses>, String)>) {
    let path = match origin.base.as_str() {
        "" => "/".to_owned(),
        base => base.to_owned(),
    };
    let root = Origin {
        base: String::new(),
        ..origin.clone()
    };
    let addresses = Arc::new(Addresses::of(&root, optional));
    let upstream = Upstream::new(root, addresses.clone(), clock);
    (Arc::new(upstream), Some((addresses, path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When, in the first so many seconds, a worker is asked that is used as `used` says.
    fn asked(seconds: u32, failures: u32, used: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut rhythm = Rhythm {
            failures,
            ..Rhythm::default()
        };
        let due = |second: &u32| {
            let now = Seconds(f64::from(*second));
            let due = rhythm.is_due(used(*second), now);
            if due {
                rhythm.asked = Some((now, used(*second)));
            }
            due
        };
        (0..seconds).filter(due).collect()
    }

    #[test]
    fn a_worker_is_asked_each_second_while_it_is_used_and_seldom_otherwise() {
        assert_eq!(asked(4, 0, |_| true), [0, 1, 2, 3]);
        assert_eq!(asked(25, 0, |_| false), [0, 10, 20]);
        assert_eq!(asked(16, 0, |second| second >= 13), [0, 10, 13, 14, 15]);
        assert_eq!(asked(22, 0, |second| second < 2), [0, 1, 2, 12]);
    }

    #[test]
    fn one_that_fails_to_answer_is_asked_ever_less() {
        assert_eq!(asked(6, 1, |_| true), [0, 2, 4]);
        assert_eq!(asked(25, 1, |_| false), [0, 10, 20]);
        assert_eq!(asked(33, 4, |_| true), [0, 16, 32]);
        for failures in [6, 7, 99, u32::MAX] {
            assert_eq!(asked(121, failures, |_| true), [0, 60, 120]);
        }
    }

    #[test]
    fn a_worker_counts_as_used_for_ten_seconds() {
        let mut rhythm = Rhythm::default();
        let mut used = |is_busy, given, at| rhythm.is_used(is_busy, given, Seconds(at));
        assert!(!used(false, 0, 1.0));
        assert!(used(false, 1, 2.0), "it came and went between two looks");
        assert!(used(false, 1, 11.9) && !used(false, 1, 12.0));
        assert!(used(true, 2, 13.0) && used(true, 2, 33.0) && used(false, 2, 42.9));
    }
}
