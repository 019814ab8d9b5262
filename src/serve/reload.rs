//! Reading the configuration again, and taking over what it says, while requests are under way.
//!
//! Who asks is the file itself, SIGHUP or the admin side; all come to one desk, where those that come shortly after
//! each other are one. The file is read off the data path. One mistake in it, and nothing changes: the plan before
//! stays in force, and log, metric and admin side say so. Otherwise all changes together, for new requests; each
//! request that is under way keeps the plan that it began with.
//!
//! Some keys can't change in a running process: where it listens, where it keeps its state. They are named, the rest is
//! taken over, and they wait for a restart or for `forebay serve --upgrade`. One thing is refused, because to go on
//! with it would break a promise: zones are numbered by their order in the file, and requests under way hold those
//! numbers, so a name must not get another's, nor that of a zone which an earlier plan had (`zones.rs`).

mod added;
mod desk;
mod lost;
mod outcome;
mod rest;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::diagnostics;
use super::notify::Notifier;
use super::signals::Desks;
use super::zones::KnownZones;
use crate::admin::{Reload, ReloadResult, Reloaded};
use crate::config::diff::{self, Change};
use crate::config::{self, Plan, Problems, dump};
use crate::kept;
use crate::line::App;
use crate::listener::Gate;
use crate::stamp::Stamp;
use added::AddedWorkers;
pub(super) use added::staff;
use desk::Order;
pub(super) use desk::{Desk, Orders};
use outcome::{log, refused, told};
use rest::Rest;

/// Time between two looks at the files. One that has not changed between two is written no more.
const LOOK: Duration = Duration::from_millis(500);
/// The plan in force, in the state folder, for people to look at. It is never read.
const PLAN_FILE: &str = "plan.json";
/// The admin side, as who asks.
const ADMIN: &str = "admin";
/// The most names of workers that a process knows, those of the past among them.
const MOST_NAMES: usize = 4_096;

/// What to do when zones would change places.
const ZONES_WAY_OUT: &str = "\n    way out: keep the order of zones and write new ones behind them, or restart, or run forebay serve --upgrade";

/// Looks a variable of the environment up.
pub type Environment = fn(&str) -> Option<String>;

/// Reads the configuration and takes it over.
pub(super) struct Reloader {
    app: Arc<App>,
    gate: Arc<Gate>,
    file: PathBuf,
    env: Environment,
    notifier: Arc<Notifier>,
    /// The plan as the file said it at the start.
    first: Plan,
    /// The same of the one in force.
    typed: Mutex<Plan>,
    zones: Mutex<KnownZones>,
    /// Workers beside those of the file.
    added: AddedWorkers,
    last: Mutex<Option<Reloaded>>,
}

/// A plan that could be taken over.
struct Judged {
    fresh: Plan,
    /// What differs in it.
    changes: Vec<Change>,
    /// The models that clients lose.
    lost: Vec<String>,
    /// What of that needs a restart.
    pending: Vec<&'static str>,
}

impl Reloader {
    /// For this proxy, whose plan was read there; `typed` is it as the file said it. Returns where reloads are ordered
    /// as well, and the orders, to be [run](Self::run).
    pub(super) fn open(
        desks: &Desks,
        (file, env): (PathBuf, Environment),
        typed: Plan,
    ) -> (Arc<Self>, Desk, Orders) {
        let reloader = Reloader {
            zones: Mutex::new(KnownZones::of(&typed)),
            app: desks.app.clone(),
            gate: desks.gate.clone(),
            file,
            env,
            notifier: desks.notifier.clone(),
            first: typed.clone(),
            typed: Mutex::new(typed),
            added: AddedWorkers::default(),
            last: Mutex::default(),
        };
        reloader.keep_plan();
        let (desk, orders) = Desk::open();
        (Arc::new(reloader), desk, orders)
    }

    /// What came of the last reload.
    pub(super) fn last(&self) -> Option<Reloaded> {
        self.last.lock().clone()
    }

    /// Another serves now: says whom it does not know.
    pub(super) fn part(&self) {
        for worker in self.added.names() {
            tracing::warn!(
                worker,
                "was added by hand and is not with the successor; add it there again"
            );
        }
    }

    /// Follows the files and reads orders, for as long as the process lives.
    pub(super) async fn run(self: Arc<Self>, mut orders: Orders) {
        let mut rest = Rest::of(&self.typed.lock().files);
        // What was written between the first reading and now is news. Looked for at the first look and not before, so
        // that it is not beside the first probes, which measure.
        let mut is_unsure = true;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.tick().await;
        loop {
            let first = tokio::select! {
                order = orders.next() => order,
                _ = looks.tick() => if self.added.expire(self.app.clock.now()) {
                    Some(Order::by("time"))
                } else {
                    let (reloader, is_first) = (self.clone(), std::mem::take(&mut is_unsure));
                    let looked = off_path(move || {
                        let is_news = rest.look() || is_first && reloader.is_behind();
                        (rest, is_news)
                    });
                    let Some((looked, is_news)) = looked.await else { return };
                    rest = looked;
                    is_news.then_some(Order::by("file"))
                }
            };
            let Some(first) = first else { continue };
            for turn in desk::turns(orders.gather(first).await) {
                let reloader = self.clone();
                let Some(looked) = off_path(move || reloader.carry_out(turn)).await else {
                    return;
                };
                rest = looked.unwrap_or(rest);
            }
        }
    }

    /// Whether the file says something else than what is in force.
    fn is_behind(&self) -> bool {
        self.dry_run("start").result != ReloadResult::Unchanged
    }

    /// What would come of a reload.
    pub(super) fn dry_run(&self, by: &'static str) -> Reloaded {
        let typed = self.typed.lock();
        let (_, judged) = self.judged(&typed);
        match judged {
            Ok(judged) => told(by, judged),
            Err(problems) => refused(by, problems),
        }
    }

    /// Carries out orders that are one reload, and tells who waits for it. Returns what it read, if it had to.
    fn carry_out(&self, orders: Vec<Order>) -> Option<Rest> {
        let mut typed = self.typed.lock();
        let by = orders.first()?.by;
        let mut by_hand = orders.iter().filter_map(|order| order.staffing.clone());
        let now = self.app.clock.now();
        let (rest, reloaded) = match by_hand.try_for_each(|order| self.added.note(order, now)) {
            Ok(()) => {
                let (rest, reloaded) = self.reload(by, &mut typed);
                (Some(rest), reloaded)
            }
            Err(why) => (None, refused(by, vec![why])),
        };
        for told in orders.into_iter().filter_map(|order| order.told) {
            // Who has gone away meanwhile is not told.
            let _ = told.send(reloaded.clone());
        }
        rest
    }

    /// Reads the file and takes it over, without a newcomer with whom it would be refused. Returns what it read as
    /// well, as it was before that, and what whoever ordered it is told.
    fn reload(&self, by: &'static str, typed: &mut Plan) -> (Rest, Reloaded) {
        self.notifier.reloading();
        let (mut rest, mut reloaded) = self.attempt(by, typed);
        let mut turned_away = None;
        if reloaded.result == ReloadResult::Refused && self.added.turn_away() {
            for problem in &reloaded.problems {
                tracing::warn!(by, "a worker is not added: {problem}");
            }
            turned_away = Some(reloaded);
            // What else is new must not be lost with it.
            (rest, reloaded) = self.attempt(by, typed);
        }
        self.added.settle(reloaded.result != ReloadResult::Refused);
        if reloaded.result == ReloadResult::Ok {
            self.keep_plan();
        }
        log(&reloaded);
        let metrics = &self.app.observe.metrics;
        metrics.reloaded(reloaded.result.label());
        *self.last.lock() = Some(reloaded.clone());
        self.notifier.ready();
        (rest, turned_away.unwrap_or(reloaded))
    }

    /// Takes over what the file says now, if that can be.
    fn attempt(&self, by: &'static str, typed: &mut Plan) -> (Rest, Reloaded) {
        let (rest, judged) = self.judged(typed);
        let reloaded = match judged {
            Err(problems) => refused(by, problems),
            Ok(judged) if judged.changes.is_empty() => told(by, judged),
            Ok(judged) => match self.adopt(&judged.fresh) {
                Ok(()) => {
                    typed.clone_from(&judged.fresh);
                    told(by, judged)
                }
                Err(problem) => refused(by, vec![problem]),
            },
        };
        (rest, reloaded)
    }

    /// What the file says now; or what is wrong with it.
    fn judged(&self, typed: &Plan) -> (Rest, Result<Judged, Vec<String>>) {
        // Whoever opens a pipe may wait for ever.
        if let Err(error) = Stamp::of(&self.file) {
            let file = self.file.display();
            return (
                Rest::of(&typed.files),
                Err(vec![format!("{file}: {error}")]),
            );
        }
        let (rest, loaded) = self.read(typed);
        let words = |problems: Problems| problems.iter().map(ToString::to_string).collect();
        let judged = loaded.map_err(words).and_then(|fresh| {
            if let Some(clash) = self.zones.lock().clash(&fresh) {
                let file = self.file.display();
                return Err(vec![format!("{file}: region.zone: {clash}{ZONES_WAY_OUT}")]);
            }
            Ok(Judged {
                changes: diff::changes(typed, &fresh),
                lost: lost::models(&fresh, &self.app.plan.load(), &self.app.fleet.catalogue()),
                pending: pending(&self.first, &fresh),
                fresh,
            })
        });
        (rest, judged)
    }

    /// Reads the file, and before that looks at all that it is made of, so that what is written meanwhile is news. What
    /// that is is known only after it was read; so where there is something new, it is read once more.
    fn read(&self, typed: &Plan) -> (Rest, Result<Plan, Problems>) {
        let made_of = |loaded: &Result<Plan, Problems>| match loaded {
            Ok(plan) => plan.files.clone(),
            Err(problems) => {
                let wrong = problems.iter().map(|problem| problem.file.clone());
                typed.files.iter().cloned().chain(wrong).collect()
            }
        };
        let load = || config::load_beside(&self.file, &self.env, &self.added.texts());
        let rest = Rest::of(&typed.files);
        let loaded = load();
        let files: Vec<_> = made_of(&loaded);
        if rest.covers(&files) {
            return (rest, loaded);
        }
        (Rest::of(&files), load())
    }

    /// Takes a plan over, but for what needs a restart.
    fn adopt(&self, fresh: &Plan) -> Result<(), String> {
        let app = &self.app;
        let running = app.plan.load_full();
        let mut plan = as_possible(fresh, &running);
        let stations = app.fleet.stations();
        let known: Vec<_> = stations.iter().map(|one| one.plan.name.clone()).collect();
        let names = plan.seat(&known);
        if names.len() > MOST_NAMES {
            return Err(format!(
                "worker: this process has known {} names of workers, and can't know more than {MOST_NAMES}\n    way out: restart, or run forebay serve --upgrade",
                known.len()
            ));
        }
        let replanned = app.admission.replan(&plan);
        replanned.map_err(|error| format!("tenant: its metrics can't be made: {error}"))?;
        app.observe.replan(&plan.log, &names);
        if plan.log.level != running.log.level {
            diagnostics::set_level(plan.log.level);
        }
        for remark in &plan.remarks {
            tracing::warn!("{remark}");
        }
        self.zones.lock().add(&plan);
        app.intake.replan(&plan.limits);
        self.gate.replan(&plan.limits);
        // Workers first: a route of the new plan may lead to a new one.
        app.fleet.reseat(&plan);
        app.plan.store(Arc::new(plan));
        app.fleet.announce();
        Ok(())
    }

    /// Leaves the plan in force where people can look at it.
    fn keep_plan(&self) {
        let plan = self.app.plan.load();
        let text: sonic_rs::Value = sonic_rs::from_str(&dump::json(&plan)).unwrap_or_default();
        if let Err(error) = kept::write(&plan.state, PLAN_FILE, &text) {
            tracing::warn!("{PLAN_FILE} can't be written: {error}");
        }
    }
}

/// Does what may wait for a disk; nobody else waits for it. `None` when the process ends.
async fn off_path<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(what).await.ok()
}

/// What a plan says, as far as a running process can follow.
fn as_possible(fresh: &Plan, running: &Plan) -> Plan {
    let mut plan = fresh.clone();
    plan.state.clone_from(&running.state);
    plan.currency = running.currency.or(fresh.currency);
    plan.listen.http.clone_from(&running.listen.http);
    plan.listen.admin = running.listen.admin;
    plan.admin_token.clone_from(&running.admin_token);
    plan.log.access.clone_from(&running.log.access);
    plan
}

/// The keys in which a plan differs that a running process can't follow.
fn pending(first: &Plan, fresh: &Plan) -> Vec<&'static str> {
    let other_currency = first.currency.is_some() && first.currency != fresh.currency;
    let differ = [
        ("state", first.state != fresh.state),
        ("currency", other_currency),
        ("listen.http", first.listen.http != fresh.listen.http),
        ("listen.admin", first.listen.admin != fresh.listen.admin),
        ("admin.token", first.admin_token != fresh.admin_token),
        ("log.access", first.log.access != fresh.log.access),
    ];
    let differ = differ.into_iter().filter(|(_, differs)| *differs);
    differ.map(|(key, _)| key).collect()
}

/// The admin side's way here.
pub(super) fn sight(reloader: Arc<Reloader>, desk: Desk) -> Box<Reload> {
    Box::new(move |is_dry| {
        let (reloader, desk) = (reloader.clone(), desk.clone());
        Box::pin(async move {
            let reloaded = if is_dry {
                off_path(move || reloader.dry_run(ADMIN)).await
            } else {
                desk.answer(ADMIN, None).await
            };
            reloaded.unwrap_or_else(|| refused(ADMIN, vec!["the proxy is stopping".to_owned()]))
        })
    })
}
