//! A load: clients that send one request after the other, each when its last was answered, or at a rate or at given times,
//! whoever still waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::clock::Clock;
use forebay::units::Seconds;
use parking_lot::Mutex;

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
    /// The status of its answer.
    pub status: u16,
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

    fn start() -> Self {
        Running {
            clock: Clock::start(),
            taken: AtomicUsize::new(0),
            ended: Mutex::default(),
        }
    }

    /// One client's part: takes the next number, for as long as there is a request to it: when it is due, its path and body.
    fn serve<'b>(
        &self,
        proxy: &Proxy,
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
                .get_or_insert_with(|| proxy.connect())
                .call("POST", path, body);
            let took = self.now() - sent;
            if answer.header("connection") == Some("close") {
                client = None;
            }
            self.ended.lock().push(Ended {
                number,
                status: answer.status,
                complete: answer.complete,
                said: String::from_utf8_lossy(&answer.body).into_owned(),
                worker: answer
                    .header("x-forebay-worker")
                    .unwrap_or_default()
                    .to_owned(),
                sent,
                took,
            });
        }
    }
}

impl Load<'_> {
    /// Sends it all, while something else happens; what became of each request, in the order in which they ended.
    pub fn send(self, proxy: &Proxy, meanwhile: impl FnOnce(&Running)) -> Vec<Ended> {
        let running = Running::start();
        std::thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| running.serve(proxy, |number| self.request(number)));
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
    /// Sends it all; what became of each request, in the order in which they ended.
    pub fn send(self, proxy: &Proxy) -> Vec<Ended> {
        let running = Running::start();
        let call = |number| {
            let call: &Call = self.calls.get(number)?;
            Some((Some(call.at), call.path, call.body.as_str()))
        };
        std::thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| running.serve(proxy, call));
            }
        });
        running.ended.into_inner()
    }
}

/// Waits for a time: that of a load's next request.
fn park_until(clock: &Clock, due: Seconds) {
    loop {
        let left = (due - clock.now()).0;
        if left <= 0.0 {
            return;
        }
        std::thread::park_timeout(Duration::from_secs_f64(left));
    }
}
