//! The simulator's own machine, in real time: who waits, reads and says how much is decided by [`Station`], the very
//! code that `forebay simulate` runs, which is told what time it is.
//!
//! The station jumps from event to event. What is due by now is done at the times at which it was due, so a timer that
//! fires late makes an answer late and no machine slower. Tokens between two events are told every [`LOOK`], as many as
//! have come by then.
//!
//! A prompt's blocks are named by chained hashes of its text, so a real text is cached as a trace's names are.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use forebay::clock::Clock;
use forebay::decide::Work;
use forebay::simulate::{BLOCK, Job, Member, Request, Station, Step};
use forebay::units::Seconds;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::pace::{BYTES_PER_TOKEN, tokens};

/// Time between two looks at how many tokens have come.
const LOOK: Seconds = Seconds(0.005);

/// A station that lives now.
pub struct Shape {
    clock: Clock,
    floor: Mutex<Floor>,
    changed: Notify,
}

struct Floor {
    station: Station,
    attempts: usize,
    guests: BTreeMap<usize, Guest>,
}

/// A request that is not done.
struct Guest {
    request: Request,
    /// What each answer in the batch had gained when this one joined it.
    joined: Option<f64>,
    told: watch::Sender<Told>,
}

/// What has come of an answer.
#[derive(Clone, Copy, Default)]
struct Told {
    read: bool,
    cached: usize,
    tokens: usize,
}

impl Shape {
    /// This member of a fleet, with nothing to do and a cache of so many times its KV memory.
    pub fn of(member: &Member, cache: f64, clock: Clock) -> Self {
        Shape {
            clock,
            floor: Mutex::new(Floor {
                station: Station::idle(member, cache),
                attempts: 0,
                guests: BTreeMap::new(),
            }),
            changed: Notify::new(),
        }
    }

    /// Requests that run, and those that wait.
    pub fn load(&self) -> (usize, usize) {
        let floor = self.floor.lock();
        let waiting = floor.station.engine.waiting();
        (floor.guests.len() - waiting, waiting)
    }

    /// Lets what is due happen, for as long as the worker lives.
    pub async fn live(&self) {
        loop {
            let due = self.floor.lock().go_on(self.clock.now());
            let sleep = async {
                match due {
                    Some(due) => tokio::time::sleep(self.until(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep => {}
            }
        }
    }

    fn until(&self, due: Seconds) -> Duration {
        (due - self.clock.now()).max(Seconds::ZERO).to_duration()
    }

    /// Comes back when the prompt was read.
    pub async fn read(self: &Arc<Self>, work: Work, prompt: &str, output: usize) -> Turn {
        let (sender, told) = watch::channel(Told::default());
        let request = Request {
            at: self.clock.now(),
            work,
            prompt: tokens(prompt) as f64,
            output: output as f64,
            blocks: blocks(prompt).into(),
            session: 0,
            adapter: None,
        };
        let attempt = self.floor.lock().welcome(request, sender);
        self.changed.notify_one();
        let mut turn = Turn {
            shape: Arc::clone(self),
            attempt,
            told,
            taken: 1,
        };
        turn.wait(|told| told.read).await;
        turn
    }
}

impl Floor {
    fn welcome(&mut self, request: Request, told: watch::Sender<Told>) -> usize {
        let (attempt, now) = (self.attempts, request.at);
        self.attempts += 1;
        self.catch_up(now);
        let job = self.station.job(attempt, &request);
        let guest = Guest {
            request,
            joined: None,
            told,
        };
        self.guests.insert(attempt, guest);
        self.station.engine.push(job, now);
        self.catch_up(now);
        attempt
    }

    /// The client has left, or has all.
    fn leave(&mut self, attempt: usize, now: Seconds) {
        self.catch_up(now);
        if self.guests.remove(&attempt).is_some() {
            self.station.engine.cancel(attempt, now);
            self.catch_up(now);
        }
    }

    /// Does what is due and tells what tokens have come; when to look again.
    fn go_on(&mut self, now: Seconds) -> Option<Seconds> {
        self.catch_up(now);
        let gained = self.station.engine.gained(now);
        let next = self.station.engine.next()?;
        let mut decoding = false;
        for guest in self.guests.values() {
            let Some(joined) = guest.joined else { continue };
            decoding = true;
            let tokens = 1 + (gained - joined) as usize;
            guest.told.send_if_modified(|told| {
                let more = tokens > told.tokens;
                told.tokens = told.tokens.max(tokens);
                more
            });
        }
        Some(if decoding { next.min(now + LOOK) } else { next })
    }

    /// Does all that is due by now, each at its time.
    fn catch_up(&mut self, now: Seconds) {
        loop {
            let guests = &self.guests;
            let blocks = |attempt| &*guests[&attempt].request.blocks;
            while self.station.begin_next(blocks).is_some() {}
            let engine = &mut self.station.engine;
            let Some(at) = engine.next().filter(|at| *at <= now) else {
                return;
            };
            match engine.step() {
                Some(Step::FirstToken(job)) => {
                    let gained = engine.gained(at);
                    self.begun(job, gained);
                }
                Some(Step::Done(job)) => self.done(job),
                None => {}
            }
        }
    }

    fn begun(&mut self, job: Job, gained: f64) {
        let guest = self.guests.get_mut(&job.attempt).unwrap();
        guest.joined = Some(gained);
        guest.told.send_replace(Told {
            read: true,
            cached: job.cached as usize,
            tokens: 1,
        });
    }

    fn done(&mut self, job: Job) {
        let guest = self.guests.remove(&job.attempt).unwrap();
        guest
            .told
            .send_modify(|told| told.tokens = job.output as usize);
    }
}

/// A request whose prompt was read. Its place is given back when it is dropped.
pub struct Turn {
    shape: Arc<Shape>,
    attempt: usize,
    told: watch::Receiver<Told>,
    taken: usize,
}

impl Turn {
    /// Tokens of its prompt that were in the cache.
    pub fn cached(&self) -> usize {
        self.told.borrow().cached
    }

    /// Waits for tokens after the first; how many there are since the last time.
    pub async fn more(&mut self) -> usize {
        let taken = self.taken;
        self.taken = self.wait(|told| told.tokens > taken).await.tokens;
        self.taken - taken
    }

    async fn wait(&mut self, wanted: impl FnMut(&Told) -> bool) -> Told {
        *self.told.wait_for(wanted).await.unwrap()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = self.shape.clock.now();
        self.shape.floor.lock().leave(self.attempt, now);
        self.shape.changed.notify_one();
    }
}

/// The names of a prompt's whole blocks: of each a hash of all up to its end.
fn blocks(prompt: &str) -> Vec<u64> {
    let mut chain = DefaultHasher::new();
    let whole = prompt
        .as_bytes()
        .chunks_exact(BYTES_PER_TOKEN * BLOCK as usize);
    whole
        .map(|block| {
            block.hash(&mut chain);
            chain.finish()
        })
        .collect()
}
