//! A load: clients that send one request after the other, each when its last was answered, or at a rate or at given times,
//! whoever still waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::clock::Clock;
use forebay::units::Seconds;
use parking_lot::Mutex;

use super::PATIENCE;
use super::client::{Answer, Client};
use super::proxy::Proxy;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Connections, each with one request at a time.
    pub clients: usize,
    /// Requests, all clients together.
    pub requests: usize,
    /// Requests a second; without it each client sends its next when it has its last. It is kept as long as a client is
    /// free.
    pub rate: Option<f64>,
    /// Where they are sent.
    pub path: &'a str,
    /// Their body.
    pub body: &'a str,
}

/// One request of a timetable.
#[derive(Clone, Debug)]
pub struct Call {
    /// When it is sent.
    pub at: Seconds,
    /// Where.
    pub path: &'static str,
    /// Its body.
    pub body: String,
}

/// Requests at times of their own, in their order. They are kept as long as a client is free.
#[derive(Clone, Copy, Debug)]
pub struct Timetable<'a> {
    /// The clock that tells the times.
    pub clock: Clock,
    /// Connections, each with one request at a time.
    pub clients: usize,
    /// The requests.
    pub calls: &'a [Call],
}

/// What became of one request.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its place in the order in which they are sent, from zero.
    pub number: usize,
    /// Its id, as its answer says.
    pub id: String,
    /// The status of its answer; zero when none came.
    pub status: u16,
    /// Why it is no other, as the proxy says; empty where it says nothing.
    pub reason: String,
    /// Whether all of the answer came.
    pub complete: bool,
    /// What the answer says of itself: its body.
    pub said: String,
    /// The worker that answered it; empty when none did.
    pub worker: String,
    /// When it was sent, on the load's clock.
    pub sent: Seconds,
    /// How long it took.
    pub took: Seconds,
}

impl Ended {
    /// What became of a request whose answer, if one came, is this.
    pub fn of(number: usize, answer: Option<&Answer>, sent: Seconds, now: Seconds) -> Self {
        let says = |name| answer.and_then(|answer| answer.header(name));
        let header = |name| says(name).unwrap_or_default().to_owned();
        let body = answer.map_or(&[][..], |answer| &answer.body);
        Ended {
            number,
            id: header("x-request-id"),
            status: answer.map_or(0, |answer| answer.status),
            reason: header("x-forebay-reason"),
            complete: answer.is_some_and(|answer| answer.complete),
            said: String::from_utf8_lossy(body).into_owned(),
            worker: header("x-forebay-worker"),
            sent,
            took: now - sent,
        }
    }

    /// Whether its client got what it asked for.
    pub fn is_good(&self) -> bool {
        self.status == 200 && self.complete
    }
}

/// A load that runs.
pub struct Running {
    clock: Clock,
    taken: AtomicUsize,
    ended: Mutex<Vec<Ended>>,
}

impl Running {
    /// Seconds since it began.
    pub fn now(&self) -> Seconds {
        self.clock.now()
    }

    /// How many requests have ended.
    pub fn count(&self) -> usize {
        self.ended.lock().len()
    }

    fn start(clock: Clock) -> Self {
        Running {
            clock,
            taken: AtomicUsize::new(0),
            ended: Mutex::default(),
        }
    }

    /// One client's part: takes the next number, for as long as there is a request to it: when it is due, its path and body.
    fn serve<'b>(
        &self,
        at: SocketAddr,
        request: impl Fn(usize) -> Option<(Option<Seconds>, &'b str, &'b str)>,
    ) {
        // Connected when it is needed: the proxy closes connections that ask nothing.
        let mut client = None;
        loop {
            let number = self.taken.fetch_add(1, Ordering::Relaxed);
            let Some((due, path, body)) = request(number) else {
                return;
            };
            if let Some(due) = due {
                park_until(&self.clock, due);
            }
            let sent = self.now();
            let answer = client
                .get_or_insert_with(|| Client::patient(at, 4 * PATIENCE))
                .try_call("POST", path, body);
            let ended = Ended::of(number, answer.as_ref(), sent, self.now());
            if answer.is_none_or(|answer| !answer.keeps_its_connection()) {
                client = None;
            }
            self.ended.lock().push(ended);
        }
    }
}

impl Load<'_> {
    /// Sends it all, while something else happens; what became of each request, in the order in which they ended.
    pub fn send(self, proxy: &Proxy, meanwhile: impl FnOnce(&Running)) -> Vec<Ended> {
        let running = Running::start(Clock::start());
        std::thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| running.serve(proxy.address(), |number| self.request(number)));
            }
            meanwhile(&running);
        });
        running.ended.into_inner()
    }

    /// The request of this number.
    fn request(&self, number: usize) -> Option<(Option<Seconds>, &str, &str)> {
        let due = self.rate.map(|rate| Seconds(number as f64 / rate));
        (number < self.requests).then_some((due, self.path, self.body))
    }
}

impl Timetable<'_> {
    /// Sends it all there, while something else happens; what became of each request, in the order in which they ended.
    pub fn send(self, at: SocketAddr, meanwhile: impl FnOnce(&Running)) -> Vec<Ended> {
        let running = Running::start(self.clock);
        let call = |number| {
            let call: &Call = self.calls.get(number)?;
            Some((Some(call.at), call.path, call.body.as_str()))
        };
        std::thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| running.serve(at, call));
            }
            meanwhile(&running);
        });
        running.ended.into_inner()
    }
}

/// Waits for a time, such as that of a load's next request.
pub fn park_until(clock: &Clock, due: Seconds) {
    loop {
        let left = (due - clock.now()).0;
        if left <= 0.0 {
            return;
        }
        std::thread::park_timeout(Duration::from_secs_f64(left));
    }
}
