//! Learning what a worker is and what it serves, by asking it.
//!
//! What is learned goes to the fleet, which tells who serves a name, and into the [`Catalogue`] that requests read. A
//! model that a worker stops listing is no longer sent there; its name stays known for a week, so that a client is told
//! to come back (503) and not that it is mistaken (404).

mod adapters;

use std::sync::Arc;

use bytes::Bytes as Body;
use http::header::HOST;
use http::{HeaderMap, Method};
use tokio::time::timeout;

use super::catalogue::{self, Catalogue, Offer};
use super::dialect::detect::{Detection, TELLTALES};
use super::dialect::{lora, report};
use super::{Core, Fleet, dialect, trial};
use crate::clock;
use crate::config::plan::{Engine, LoraPlan, Models, TestPlan, WorkerPlan};
use crate::decide::{LoraTold, State, Told};
use crate::units::{Bytes, Seconds, WorkerId};
use crate::upstream::{Loss, Question, Reply, Upstream};
use adapters::Listing;

/// A list of models is read this far.
const MOST_READ: Bytes = Bytes(1 << 20);

/// What is said of one that is longer, or broke off.
const UNREAD: &str = "more than 1MiB, or cut";

/// Asks one worker about itself, each time over a connection of its own and within the probe's timeout.
pub(super) struct Inquirer {
    upstream: Arc<Upstream>,
    headers: HeaderMap,
    limit: Seconds,
}

/// Why a question has no answer.
pub(super) enum Silence {
    /// Nothing came in time.
    TimedOut(Seconds),
    /// The connection failed.
    Lost(Loss),
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Silence::TimedOut(limit) => write!(f, "no answer within probe.timeout = {limit}"),
            Silence::Lost(loss) => loss.fmt(f),
        }
    }
}

impl Inquirer {
    pub(super) fn new(plan: &WorkerPlan, upstream: Arc<Upstream>) -> Self {
        Inquirer {
            upstream,
            headers: headers(plan),
            limit: plan.probe.timeout,
        }
    }

    /// One question.
    pub(super) async fn ask(&self, method: Method, path: &str) -> Result<Reply, Silence> {
        let question = Question {
            method,
            path,
            headers: &self.headers,
            body: Body::new(),
            most: MOST_READ,
        };
        self.in_time(self.limit, self.upstream.ask(&question, self.limit))
            .await
    }

    /// A bare connect: how long it took.
    pub(super) async fn knock(&self) -> Result<Seconds, Silence> {
        self.in_time(self.limit, self.upstream.knock(self.limit))
            .await
    }

    async fn in_time<T>(
        &self,
        limit: Seconds,
        asking: impl Future<Output = Result<T, Loss>>,
    ) -> Result<T, Silence> {
        match timeout(limit.to_duration(), asking).await {
            Err(_) => Err(Silence::TimedOut(limit)),
            Ok(Err(Loss::ConnectTimeout { limit, .. })) => Err(Silence::TimedOut(limit)),
            Ok(Err(loss)) => Err(Silence::Lost(loss)),
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    /// What it is, or why that is not known yet.
    ///
    /// # Errors
    /// When no question has an answer, as the last had none: a request would have none either.
    pub(super) async fn engine(&self) -> Result<Result<Engine, String>, Silence> {
        let mut detection = Detection::default();
        let mut speaks = false;
        let mut silent = Silence::TimedOut(self.limit);
        for path in TELLTALES {
            match self.ask(Method::GET, path).await {
                Ok(reply) => {
                    speaks = true;
                    let Some(body) = reply.body else {
                        detection.unheard(format!("{path}: {UNREAD}"));
                        continue;
                    };
                    if let Some(engine) = detection.heard(path, reply.status.as_u16(), &body) {
                        return Ok(Ok(engine));
                    }
                }
                // It accepts connections and speaks something else.
                Err(Silence::Lost(Loss::Malformed(_))) => speaks = true,
                Err(silence) => {
                    detection.unheard(format!("{path}: {silence}"));
                    silent = silence;
                }
            }
        }
        if speaks {
            Ok(detection.conclude())
        } else {
            Err(silent)
        }
    }

    /// What it serves: nothing when its engine can't be asked.
    ///
    /// # Errors
    /// Why it does not say.
    pub(super) async fn models(&self, engine: Engine) -> Result<Listing, String> {
        let Some((method, path)) = report::models_question(engine) else {
            return Ok(Listing::default());
        };
        let told = |why: String| format!("what it serves is not known: {path}: {why}");
        let reply = self.ask(method, path).await;
        let reply = reply.map_err(|silence| told(silence.to_string()))?;
        dialect::verdict(engine, reply.status).map_err(told)?;
        let body = reply.body.ok_or_else(|| told(UNREAD.to_owned()))?;
        Ok(Listing {
            models: report::models(engine, &body).map_err(told)?,
            adapters: lora::listed(engine, &body),
        })
    }

    /// What bounds its work and what it says of its adapters, as far as it does.
    ///
    /// # Errors
    /// When a question has no answer.
    pub(super) async fn bounds(&self, engine: Engine) -> Result<(Told, Option<LoraTold>), Silence> {
        let mut told = Told::default();
        let mut of_adapters = None;
        for path in report::bounds_questions(engine) {
            let reply = self.ask(Method::GET, path).await?;
            if let Some(body) = reply.body
                && reply.status.is_success()
            {
                told = told.and(report::bounds(engine, path, &body));
                of_adapters = of_adapters.or_else(|| lora::told(engine, path, &body));
            }
        }
        Ok((told, of_adapters))
    }
}

/// What every request of our own to a worker carries.
pub(super) fn headers(plan: &WorkerPlan) -> HeaderMap {
    let mut headers: HeaderMap = plan.headers.iter().cloned().collect();
    if let Ok(host) = plan.origin.authority.parse() {
        headers.insert(HOST, host);
    }
    if let Some((name, value)) = plan.key.as_ref().and_then(dialect::authorization) {
        headers.insert(name, value);
    }
    headers
}

/// What is known of a worker beside its load.
#[derive(Debug)]
pub(super) struct Profile {
    /// Its name.
    name: Arc<str>,
    /// What it serves, as typed.
    typed: Models,
    /// Its adapters, as typed.
    lora: LoraPlan,
    /// Whether the operator says how much it is given at a time.
    cap_is_typed: bool,
    /// What the configuration says of test requests.
    test: TestPlan,
    /// What it is.
    engine: Option<Engine>,
    /// Why that is not known yet.
    puzzle: Option<String>,
    /// What it lists.
    listing: Listing,
    /// Whether it has said so, or can't be asked.
    has_told: bool,
}

impl Profile {
    /// What the configuration says.
    pub(super) fn typed(plan: &WorkerPlan) -> Self {
        Profile {
            name: plan.name.clone(),
            typed: plan.models.clone(),
            lora: plan.lora.clone(),
            cap_is_typed: plan.max_inflight.is_some(),
            test: plan.test.clone(),
            engine: plan.engine,
            puzzle: None,
            listing: Listing::default(),
            has_told: false,
        }
    }

    /// Whether it will say by itself what it serves, and has not yet.
    fn owes_names(&self) -> bool {
        self.typed == Models::Reported && !self.has_told
    }

    /// Why it is not known what it is, in words; `None` when it is.
    pub(super) fn puzzle(&self) -> Option<String> {
        if self.engine.is_some() {
            return None;
        }
        let why = self.puzzle.as_deref().unwrap_or("not asked yet");
        Some(unknown_engine(why))
    }
}

/// In words.
pub(super) fn unknown_engine(why: &str) -> String {
    format!("its engine is not known yet: {why}")
}

impl Fleet {
    /// All models now.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.catalogue.load_full()
    }

    /// What a worker is, once that is known.
    #[must_use]
    pub fn engine(&self, worker: WorkerId) -> Option<Engine> {
        self.core.lock().profiles.get(worker.index())?.engine
    }

    /// What a worker is can't be told yet. Returns whether the cause is news.
    pub(super) fn puzzled(&self, worker: WorkerId, cause: &str) -> bool {
        let mut core = self.core.lock();
        let Some(profile) = core.profiles.get_mut(worker.index()) else {
            return false;
        };
        let is_news = profile.puzzle.as_deref() != Some(cause);
        profile.puzzle = Some(cause.to_owned());
        is_news
    }

    /// A worker turned out to be this. Returns whether that is news.
    pub(super) fn found(&self, worker: WorkerId, engine: Engine) -> bool {
        let mut core = self.core.lock();
        let Some(profile) = core.profiles.get_mut(worker.index()) else {
            return false;
        };
        let tests = trial::tests(&profile.test, Some(engine));
        let is_news = profile.engine.replace(engine) != Some(engine);
        core.state.test_with(worker, tests);
        is_news
    }

    /// A worker says what bounds its work. The operator's word on how much it is given counts for more.
    pub(super) fn told(self: &Arc<Self>, worker: WorkerId, told: Told) {
        self.change(|core, _now| {
            let profile = core.profiles.get(worker.index());
            let typed = profile.is_some_and(|profile| profile.cap_is_typed);
            let slots = told.slots.filter(|_| !typed);
            core.state.told(worker, Told { slots, ..told });
        });
    }

    /// A worker, among these only, that a name which nobody knows may belong to, because it has not said yet what it
    /// serves. Names that an earlier process left speak for one that is down.
    #[must_use]
    pub fn yet_to_tell(&self, only: Option<&[WorkerId]>) -> Option<Arc<str>> {
        let inherited = self.remembered.lock().inherited();
        let core = self.core.lock();
        let silent = (0..).zip(&core.profiles).find(|(id, profile)| {
            let allowed = only.is_none_or(|only| only.contains(&WorkerId(*id)));
            let spoken_for = || inherited && core.state.state(WorkerId(*id)) == Some(State::Down);
            allowed && profile.owes_names() && !spoken_for()
        });
        silent.map(|(_, profile)| profile.name.clone())
    }

    /// A worker lists these models and no others. Returns whether that is news.
    pub(super) fn listed(self: &Arc<Self>, worker: WorkerId, listing: Listing) -> bool {
        if let Some(loader) = self.loaders.get(worker.index()) {
            loader.listed(&listing.adapters);
        }
        self.change(|core, _now| {
            let Some(profile) = core.profiles.get_mut(worker.index()) else {
                return false;
            };
            profile.has_told = true;
            // What the operator left out is nobody's name.
            if catalogue::is_open(&profile.typed) {
                let mut remembered = self.remembered.lock();
                remembered.report(&listing.models, clock::wall());
            }
            let is_news = profile.listing != listing;
            if is_news {
                profile.listing = listing;
                self.draw(core);
            }
            is_news
        })
    }

    /// Forgets the names that nobody has listed for too long.
    pub(super) fn forget_stale(self: &Arc<Self>) {
        let stale = self.remembered.lock().forget(clock::wall());
        if stale.is_empty() {
            return;
        }
        self.change(|core, _now| {
            for profile in &mut core.profiles {
                profile.listing.models.retain(|name| !stale.contains(name));
            }
            self.draw(core);
            let catalogue = self.catalogue();
            for name in stale.iter().filter(|name| !catalogue.knows(name)) {
                core.state.forget(name);
            }
        });
    }

    /// Tells the state who serves what, and draws the picture anew.
    pub(super) fn draw(&self, core: &mut Core) {
        let Core {
            state, profiles, ..
        } = core;
        let serve = |(id, profile): (u32, &Profile)| {
            let offer = Offer {
                listed: &profile.listing.models,
                adapters: &profile.adapters(),
            };
            let aliases = catalogue::aliases(&profile.typed, offer);
            let clients: Vec<_> = aliases.iter().map(|alias| alias.client.clone()).collect();
            state.serves(WorkerId(id), &clients);
            state.adapts(WorkerId(id), &adapters::of(&aliases));
            aliases
        };
        let workers = (0..).zip(profiles.iter()).map(serve).collect();
        let typed = profiles.iter().flat_map(|profile| profile.typed.named());
        let adapters = profiles.iter().flat_map(|profile| &profile.lora.adapters);
        let typed = typed
            .map(|alias| alias.client.clone())
            .chain(adapters.map(|adapter| adapter.name.clone()));
        let remembered: Vec<_> = self.remembered.lock().names().cloned().collect();
        let catalogue = Catalogue::new(workers, typed, remembered.into_iter());
        catalogue.known().for_each(|name| state.know(name));
        self.catalogue.store(Arc::new(catalogue));
    }
}
