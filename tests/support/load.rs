//! A load: clients that send one request after the other, each when its last was answered, or at a rate, whoever still waits.

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

/// What became of one request.
#[derive(Clone, Debug)]
pub struct Ended {
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
}

impl Load<'_> {
    /// Sends it all, while something else happens; what became of each request, in the order in which they ended.
    pub fn send(self, proxy: &Proxy, meanwhile: impl FnOnce(&Running)) -> Vec<Ended> {
        let running = Running {
            clock: Clock::start(),
            taken: AtomicUsize::new(0),
            ended: Mutex::default(),
        };
        std::thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| self.run(proxy, &running));
            }
            meanwhile(&running);
        });
        running.ended.into_inner()
    }

    /// One client's part.
    fn run(&self, proxy: &Proxy, running: &Running) {
        let mut client = proxy.connect();
        loop {
            let number = running.taken.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests {
                return;
            }
            if let Some(rate) = self.rate {
                park_until(&running.clock, Seconds(number as f64 / rate));
            }
            let sent = running.now();
            let answer = client.call("POST", self.path, self.body);
            let took = running.now() - sent;
            running.ended.lock().push(Ended {
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
