//! One worker's connections, and sending a request over one of them.
//!
//! HTTP/1.1 connections are kept in a stack: the one used last is the one most surely alive. A connection may still die
//! in the moment it is reused (uvicorn closes after five silent seconds); then the request is sent again on a fresh
//! connection to the same worker: always when nothing was written, else only when the caller says that it may be
//! repeated (RFC 9110 §9.2.2), once. That is no attempt of its own (contract §4), but the worker may have read the
//! request before it closed, so the caller is told ([`Resend`]) and counts what may have run twice.
//!
//! Each thread keeps its own: runtimes here have one thread each and their tasks stay there, so a connection that is
//! used where it was opened wakes nobody across threads. (Measured with 64 clients on one core: CPU per request 15 %
//! below that of a runtime whose threads steal tasks from each other.)
//!
//! 2026-11-30: believed that a connection without a task, moved by the request that waits for its answer, would save
//! turns of the scheduler. It did, three of six a request, and yet took as many instructions, and 11 to 24 % more time
//! in three series of rounds beside this one. Why is a guess: with tasks, requests that come together are sent on
//! together.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;

use http::StatusCode;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use parking_lot::Mutex;

use super::answer::{Keep, UpstreamBody};
use super::connect::{Connector, Http1, Sender, died, lost};
use super::names::Addresses;
use super::probe::{Question, Reply, ask, knock};
use super::{Loss, Outgoing, UpstreamRequest};
use crate::clock::Clock;
use crate::config::plan::Origin;
use crate::units::Seconds;

/// Kept connections per worker and thread.
const KEEP: usize = 512;

/// A connection that was unused for longer is not used again.
const KEEP_FOR: Seconds = Seconds(50.0);

type Http2 = hyper::client::conn::http2::SendRequest<Outgoing>;

/// Makes the request that is to be sent.
pub type Draft<'a> = &'a (dyn Fn() -> UpstreamRequest + Sync);

/// Whether a request may be sent once more when a kept connection dies under it, and whether it was.
#[derive(Debug)]
pub struct Resend {
    allowed: bool,
    done: bool,
}

impl Resend {
    /// Not done yet.
    #[must_use]
    pub fn allowed(allowed: bool) -> Self {
        Resend {
            allowed,
            done: false,
        }
    }

    /// Whether the worker was sent the request twice.
    #[must_use]
    pub fn done(&self) -> bool {
        self.done
    }
}

/// An answer that has begun.
pub struct Sent {
    /// Its head, and a body that returns the connection.
    pub response: http::Response<UpstreamBody>,
    /// How long opening a connection took, when one was opened.
    pub connected_in: Option<Seconds>,
}

/// The connections to one worker.
pub struct Upstream {
    connector: Connector,
    kept: Mutex<HashMap<ThreadId, Kept>>,
    /// The connections to its gRPC port, where that is another.
    grpc: Option<Arc<Upstream>>,
}

/// The connections of one thread.
#[derive(Default)]
struct Kept {
    idle: Vec<Idle>,
    shared: Option<Http2>,
    /// That of the addresses to which they lead.
    version: u64,
}

struct Idle {
    connection: Http1,
    since: Seconds,
}

impl Upstream {
    /// A pool without connections.
    #[must_use]
    pub fn new(origin: Origin, addresses: Arc<Addresses>, clock: Clock) -> Self {
        Upstream {
            connector: Connector {
                origin,
                addresses,
                clock,
            },
            kept: Mutex::new(HashMap::new()),
            grpc: None,
        }
    }

    /// The same, of a worker whose gRPC port is there, on the same host.
    #[must_use]
    pub fn with_grpc(mut self, origin: Option<Origin>) -> Self {
        let addresses = self.addresses().clone();
        let clock = self.connector.clock;
        self.grpc = origin.map(|origin| Arc::new(Upstream::new(origin, addresses, clock)));
        self
    }

    /// The connections that carry gRPC: those to its gRPC port, or these, where HTTP/2 is spoken.
    #[must_use]
    pub fn grpc(self: &Arc<Self>) -> Option<&Arc<Self>> {
        let own = Some(self).filter(|own| own.origin().protocol.is_http2());
        self.grpc.as_ref().or(own)
    }

    /// Where the worker is.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.connector.origin
    }

    /// The worker's addresses.
    #[must_use]
    pub fn addresses(&self) -> &Arc<Addresses> {
        &self.connector.addresses
    }

    /// Asks the worker about itself, over a connection of its own. The caller bounds the whole.
    ///
    /// # Errors
    /// The [`Loss`] that says why there was no answer.
    pub async fn ask(&self, question: &Question<'_>, connect: Seconds) -> Result<Reply, Loss> {
        ask(&self.connector, question, connect).await
    }

    /// Opens a connection and closes it; how long opening took: one round trip.
    ///
    /// # Errors
    /// The [`Loss`] that says why there was none.
    pub async fn knock(&self, connect: Seconds) -> Result<Seconds, Loss> {
        knock(&self.connector, connect).await
    }

    /// Sends a request and waits for the head of its answer; what is sent is made anew each time. The caller bounds the
    /// waiting; dropping this future closes the connection.
    ///
    /// # Errors
    /// A [`Loss`]; [`Loss::unsent`] tells whether the worker may have seen the request.
    pub async fn send(
        self: &Arc<Self>,
        draft: Draft<'_>,
        connect: Seconds,
        resend: &mut Resend,
    ) -> Result<Sent, Loss> {
        if self.origin().protocol.is_http2() {
            // Boxed, because it may open a connection and most workers speak HTTP/1.1.
            Box::pin(self.send_http2(draft, connect, resend)).await
        } else {
            self.send_http1(draft, connect, resend).await
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        draft: Draft<'_>,
        connect: Seconds,
        resend: &mut Resend,
    ) -> Result<Sent, Loss> {
        let mut read = None;
        while let Some(mut kept) = self.take_idle() {
            let mut failed = match kept.sender.try_send_request(draft()).await {
                Ok(response) => return Ok(self.answer(response, Keep::Http1(kept), None)),
                Err(failed) => failed,
            };
            let unsent = failed.take_message().is_some() || kept.tag.spoilt();
            if !unsent && !resend.allowed {
                return Err(lost(failed.error()));
            }
            if !unsent {
                // It may have been read, and what came back may be stray bytes: once more, and on a fresh connection,
                // where neither is a race.
                read = Some(lost(failed.error()));
                break;
            }
        }
        let began = self.connector.clock.now();
        // Boxed, because most requests find a connection.
        let opened = Box::pin(self.connector.open(connect)).await;
        // Refused now does not unsay that the worker may have read it before.
        let Sender::Http1(mut fresh) = opened.map_err(|loss| read.clone().unwrap_or(loss))? else {
            return Err(Loss::Refused(
                "the worker is not configured for HTTP/1.1".to_owned(),
            ));
        };
        resend.done = read.is_some();
        let took = self.connector.clock.now() - began;
        let response = fresh
            .sender
            .send_request(draft())
            .await
            .map_err(|error| lost(&error))?;
        Ok(self.answer(response, Keep::Http1(fresh), Some(took)))
    }

    async fn send_http2(
        self: &Arc<Self>,
        draft: Draft<'_>,
        connect: Seconds,
        resend: &mut Resend,
    ) -> Result<Sent, Loss> {
        let shared = self.with_kept(|kept| kept.shared.clone());
        let mut read = None;
        if let Some(mut shared) = shared.filter(|sender| !sender.is_closed()) {
            let mut failed = match shared.try_send_request(draft()).await {
                Ok(response) => return Ok(self.answer(response, Keep::Nothing, None)),
                Err(failed) => failed,
            };
            let unsent = failed.take_message().is_some();
            if !unsent {
                read = Some(lost(failed.error()));
            }
            if let Some(loss) = &read
                && !(resend.allowed && died(failed.error()))
            {
                return Err(loss.clone());
            }
        }
        let began = self.connector.clock.now();
        let opened = self.connector.open(connect).await;
        let Sender::Http2(mut fresh) = opened.map_err(|loss| read.clone().unwrap_or(loss))? else {
            return Err(Loss::Refused(
                "the worker is not configured for HTTP/2".to_owned(),
            ));
        };
        resend.done = read.is_some();
        let took = self.connector.clock.now() - began;
        self.with_kept(|kept| kept.shared = Some(fresh.clone()));
        match fresh.try_send_request(draft()).await {
            Ok(response) => Ok(self.answer(response, Keep::Nothing, Some(took))),
            Err(mut failed) => Err(match failed.take_message() {
                Some(_) => read.unwrap_or_else(|| Loss::Refused(failed.error().to_string())),
                None => lost(failed.error()),
            }),
        }
    }

    fn answer(
        self: &Arc<Self>,
        response: http::Response<hyper::body::Incoming>,
        keep: Keep,
        connected_in: Option<Seconds>,
    ) -> Sent {
        // One of two framings was believed; what the worker meant by the other nobody knows.
        let head = response.headers();
        let doubtful = head.contains_key(TRANSFER_ENCODING) && head.contains_key(CONTENT_LENGTH);
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let keep = if doubtful || switched {
            Keep::Nothing
        } else {
            keep
        };
        let response = response.map(|body| UpstreamBody::new(body, keep, self.clone()));
        Sent {
            response,
            connected_in,
        }
    }

    /// The connections that this thread keeps; none that lead to addresses that the worker's name had before.
    fn with_kept<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        let version = self.addresses().version();
        let mut threads = self.kept.lock();
        let kept = threads.entry(std::thread::current().id()).or_default();
        if kept.version != version {
            *kept = Kept {
                version,
                ..Kept::default()
            };
        }
        look(kept)
    }

    /// The connection used last that is ready; those that closed or grew stale meanwhile are dropped on the way.
    fn take_idle(&self) -> Option<Http1> {
        let now = self.connector.clock.now();
        self.with_kept(|kept| {
            let idle = &mut kept.idle;
            for at in (0..idle.len()).rev() {
                let sender = &idle[at].connection.sender;
                if sender.is_closed() || now - idle[at].since > KEEP_FOR {
                    idle.remove(at);
                } else if sender.is_ready() {
                    return Some(idle.remove(at).connection);
                }
            }
            None
        })
    }

    /// Takes a connection back whose answer was read to the end. hyper may need a moment before it is ready again, so
    /// readiness is asked when it is taken, not here.
    pub(super) fn put_back(&self, connection: Http1) {
        if connection.sender.is_closed() {
            return;
        }
        connection.tag.idle();
        let now = self.connector.clock.now();
        self.with_kept(|kept| {
            let stale = kept
                .idle
                .iter()
                .take_while(|one| now - one.since > KEEP_FOR)
                .count();
            let surplus = (kept.idle.len() + 1).saturating_sub(KEEP);
            kept.idle.drain(..stale.max(surplus));
            kept.idle.push(Idle {
                connection,
                since: now,
            });
        });
    }
}
