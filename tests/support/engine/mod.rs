//! A scripted worker that behaves as the real engines are documented to, and fails in the ways they fail.
//!
//! HTTP/1.1 is spoken by hand (`http1.rs`), because the tests want the bytes as they stood on the wire and answers
//! that no library would let them send. h2c is spoken through hyper (`h2c.rs`); both share one set of answers
//! (`answer.rs`), one pace (`pace.rs`) and one record (`record.rs`). The same knobs give the same behaviour each time.

mod answer;
mod generation;
mod h2c;
mod http1;
mod identity;
pub mod knobs;
mod kserve;
mod load;
mod lora;
mod memory;
mod openai;
mod pace;
pub mod record;
mod shape;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use forebay::clock::Clock;
use forebay::simulate::{BLOCK, Member};
use forebay::units::Seconds;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use identity::is_asked;
use knobs::{Failure, Framing, Health, Knobs};
use pace::Pace;
use record::{Record, Seen, SeenConnection};

/// What a worker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    H2c,
}

/// What the handle and the worker's tasks share.
struct Shared {
    clock: Clock,
    knobs: Mutex<Knobs>,
    record: Mutex<Record>,
    pace: Arc<Pace>,
    answers: AtomicU64,
}

impl Shared {
    fn new(clock: Clock, knobs: Knobs, pace: Pace) -> Arc<Self> {
        Arc::new(Shared {
            clock,
            knobs: Mutex::new(knobs),
            record: Mutex::default(),
            pace: Arc::new(pace),
            answers: AtomicU64::new(0),
        })
    }

    /// A number for an answer's id.
    fn next_answer(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes a request; returns its number.
    fn note(&self, seen: Seen) -> usize {
        let mut record = self.record.lock();
        record.requests.push(seen);
        record.forgotten + record.requests.len() - 1
    }

    /// Changes what is noted of a request, unless it was forgotten.
    fn amend(&self, number: usize, change: impl FnOnce(&mut Seen, Seconds)) {
        let mut record = self.record.lock();
        let place = number.checked_sub(record.forgotten);
        if let Some(seen) = place.and_then(|place| record.requests.get_mut(place)) {
            change(seen, self.clock.now());
        }
    }

    /// Changes what is noted of a connection.
    fn amend_connection(&self, number: u64, change: impl FnOnce(&mut SeenConnection, Seconds)) {
        let place = usize::try_from(number).unwrap() - 1;
        change(&mut self.record.lock().connections[place], self.clock.now());
    }

    /// Notes a new connection; returns its number.
    fn open_connection(&self) -> u64 {
        let mut record = self.record.lock();
        record.connections.push(SeenConnection::default());
        record.connections.len() as u64
    }
}

/// What the handle tells the accepting task.
enum Order {
    Refuse,
    Accept,
    Kill,
}

/// A running worker. It ends when the handle is dropped.
pub struct Engine {
    address: SocketAddr,
    protocol: Protocol,
    shared: Arc<Shared>,
    orders: Option<UnboundedSender<(Order, std::sync::mpsc::Sender<()>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts a worker that speaks HTTP/1.1, at once and never failing.
    pub fn start() -> Self {
        Engine::with(Knobs::default())
    }

    /// Starts a worker that speaks HTTP/1.1, with these knobs.
    pub fn with(knobs: Knobs) -> Self {
        Engine::launch(Protocol::Http1, knobs)
    }

    /// Starts a worker that takes the time of this member of a fleet, as the simulator has it (`shape.rs`), with a cache
    /// of so many times its KV memory.
    pub fn shaped(member: &Member, cache: f64) -> Self {
        let clock = Clock::start();
        let kv_tokens = f64::from(member.card.blocks) * BLOCK;
        let knobs = Knobs {
            kv_blocks: (kv_tokens / 16.0) as u32,
            ..Knobs::default()
        };
        let shared = Shared::new(clock, knobs, Pace::of(member, cache, clock));
        Engine::launch_at((Ipv4Addr::LOCALHOST, 0).into(), Protocol::Http1, shared)
    }

    /// Starts a worker that speaks HTTP/2 by prior knowledge, with these knobs.
    pub fn h2c(knobs: Knobs) -> Self {
        Engine::launch(Protocol::H2c, knobs)
    }

    /// Starts a second HTTP/1.1 worker on the port of another, at another loopback address.
    pub fn beside(other: &Engine, address: Ipv4Addr) -> Self {
        let at = SocketAddr::from((address, other.address.port()));
        let shared = Shared::new(Clock::start(), Knobs::default(), Pace::default());
        Engine::launch_at(at, Protocol::Http1, shared)
    }

    fn launch(protocol: Protocol, knobs: Knobs) -> Self {
        let shared = Shared::new(Clock::start(), knobs, Pace::default());
        Engine::launch_at((Ipv4Addr::LOCALHOST, 0).into(), protocol, shared)
    }

    fn launch_at(address: SocketAddr, protocol: Protocol, shared: Arc<Shared>) -> Self {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (orders, received) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = accept_all(&for_thread, protocol, listener, received) => {}
                    () = for_thread.pace.live() => {}
                }
            });
        });
        Engine {
            address,
            protocol,
            shared,
            orders: Some(orders),
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as the proxy's configuration says it.
    pub fn url(&self) -> String {
        match self.protocol {
            Protocol::Http1 => format!("http://{}", self.address),
            Protocol::H2c => format!("h2c://{}", self.address),
        }
    }

    /// Turns its knobs.
    pub fn tune(&self, change: impl FnOnce(&mut Knobs)) {
        change(&mut self.shared.knobs.lock());
        self.shared.pace.wake();
    }

    /// Seconds on the clock of its record.
    pub fn now(&self) -> Seconds {
        self.shared.clock.now()
    }

    /// Clients' requests, in the order in which their heads were read; probes left out.
    pub fn requests(&self) -> Vec<Seen> {
        let record = self.shared.record.lock();
        record
            .requests
            .iter()
            .filter(|seen| !seen.is_probe())
            .cloned()
            .collect()
    }

    /// All it was asked, probes included.
    pub fn everything(&self) -> Vec<Seen> {
        self.shared.record.lock().requests.clone()
    }

    /// The only request it saw, probes left out.
    #[track_caller]
    pub fn only_request(&self) -> Seen {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "the worker saw {requests:#?}");
        requests.remove(0)
    }

    /// The orders to load (`true`) and unload adapters that it got, by their names.
    pub fn lora_orders(&self) -> Vec<(bool, String)> {
        let seen = self.everything().into_iter();
        let orders = seen.filter(|seen| lora::is_order(&seen.target));
        let order = |seen: Seen| {
            let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
            let loads = !seen.target.contains("unload");
            (loads, body["lora_name"].as_str().unwrap().to_owned())
        };
        orders.map(order).collect()
    }

    /// How many requests it saw, probes left out.
    pub fn count(&self) -> usize {
        let record = self.shared.record.lock();
        record
            .requests
            .iter()
            .filter(|seen| !seen.is_probe())
            .count()
    }

    /// How many probes and scrapes it saw.
    pub fn probes(&self) -> usize {
        let record = self.shared.record.lock();
        record
            .requests
            .iter()
            .filter(|seen| seen.is_probe())
            .count()
    }

    /// What it knows of one connection.
    pub fn connection(&self, number: u64) -> SeenConnection {
        let place = usize::try_from(number).unwrap() - 1;
        self.shared.record.lock().connections[place].clone()
    }

    /// Forgets the requests seen so far; connections keep their numbers.
    pub fn forget(&self) {
        let mut record = self.shared.record.lock();
        record.forgotten += record.requests.len();
        record.requests.clear();
    }

    /// Requests that run now, and those that wait for a slot.
    pub fn load(&self) -> (usize, usize) {
        self.shared.pace.load()
    }

    /// Closes the listener: connects are refused from here on, open connections live on.
    pub fn refuse(&self) {
        self.order(Order::Refuse);
    }

    /// Listens again, on the same port.
    pub fn accept(&self) {
        self.order(Order::Accept);
    }

    /// Ends like a killed process: every socket closed at once, connects refused.
    pub fn kill(&self) {
        self.order(Order::Kill);
    }

    fn order(&self, order: Order) {
        let (done, is_done) = std::sync::mpsc::channel();
        let orders = self.orders.as_ref().unwrap();
        orders.send((order, done)).ok().unwrap();
        is_done.recv().unwrap();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the worker's thread panicked"
            );
        }
    }
}

/// Accepts until the handle is gone; carries out orders.
async fn accept_all(
    shared: &Arc<Shared>,
    protocol: Protocol,
    listener: TcpListener,
    mut orders: UnboundedReceiver<(Order, std::sync::mpsc::Sender<()>)>,
) {
    let address = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accept_one(listener.as_ref()) => {
                let number = shared.open_connection();
                connections.spawn(serve(Arc::clone(shared), protocol, accepted, number));
            }
            Some(ended) = connections.join_next() => {
                assert!(ended.is_ok(), "a connection's task failed: {ended:?}");
            }
            order = orders.recv() => {
                let Some((order, done)) = order else { return };
                match order {
                    Order::Refuse => listener = None,
                    Order::Accept => listener = Some(TcpListener::bind(address).await.unwrap()),
                    Order::Kill => {
                        listener = None;
                        connections.shutdown().await;
                    }
                }
                done.send(()).unwrap();
            }
        }
    }
}

/// The next connection; never, while the listener is closed.
async fn accept_one(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let (stream, _) = listener.accept().await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Serves one connection and notes its end, also when the task is dropped.
async fn serve(shared: Arc<Shared>, protocol: Protocol, stream: TcpStream, number: u64) {
    struct Closing(Arc<Shared>, u64);
    impl Drop for Closing {
        fn drop(&mut self) {
            self.0
                .amend_connection(self.1, |connection, now| connection.closed = Some(now));
        }
    }
    let _closing = Closing(Arc::clone(&shared), number);
    match protocol {
        Protocol::Http1 => http1::serve(&shared, stream, number).await,
        Protocol::H2c => h2c::serve(&shared, stream, number).await,
    }
}
