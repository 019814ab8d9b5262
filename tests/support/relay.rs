//! A relay: a long way that keeps every byte for a while, each way, or one that loses bytes. A connection to it opens at
//! once, as through an SSH tunnel, for it is the relay's near end that accepts.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use forebay::clock::Clock;
use forebay::units::Seconds;

/// A running relay. It ends when the handle is dropped.
pub struct Relay {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Leads there, and takes so long each way.
    pub fn to(there: SocketAddr, way: Duration) -> Self {
        Relay::start(there, Way { way, loses: b"" })
    }

    /// Leads there, and loses these bytes on the way back wherever they come in one read.
    pub fn losing(there: SocketAddr, loses: &'static [u8]) -> Self {
        let way = Duration::ZERO;
        Relay::start(there, Way { way, loses })
    }

    fn start(there: SocketAddr, way: Way) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let thread = std::thread::spawn(move || {
            let lead = lead(listener, there, way);
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = lead => {}
                }
            });
        });
        Relay {
            address,
            end: Some(end),
            thread: Some(thread),
        }
    }

    /// Where it accepts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, as the proxy's configuration says it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What becomes of bytes on their way.
#[derive(Clone, Copy)]
struct Way {
    way: Duration,
    loses: &'static [u8],
}

impl Way {
    /// What is left of these.
    fn leaves(self, bytes: &[u8]) -> Vec<u8> {
        let lost = memchr::memmem::find_iter(bytes, self.loses);
        let starts = lost.filter(|_| !self.loses.is_empty());
        let mut left = bytes.to_vec();
        for start in starts.collect::<Vec<_>>().into_iter().rev() {
            left.drain(start..start + self.loses.len());
        }
        left
    }
}

async fn lead(listener: std::net::TcpListener, there: SocketAddr, way: Way) {
    let listener = TcpListener::from_std(listener).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let (near, _) = listener.accept().await.unwrap();
        let Ok(far) = TcpStream::connect(there).await else {
            continue;
        };
        let (near_in, near_out) = near.into_split();
        let (far_in, far_out) = far.into_split();
        tasks.spawn(carry(near_in, far_out, Way { loses: b"", ..way }));
        tasks.spawn(carry(far_in, near_out, way));
    }
}

/// Carries bytes one way, each so long after it came.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way) {
    let clock = Clock::start();
    let (sender, mut waiting) = mpsc::unbounded_channel::<(Seconds, Vec<u8>)>();
    let read = async move {
        let mut bytes = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let due = clock.now() + Seconds::from(way.way);
            let _ = sender.send((due, way.leaves(&bytes[..count])));
        }
    };
    let write = async move {
        while let Some((due, bytes)) = waiting.recv().await {
            sleep((due - clock.now()).to_duration()).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}
