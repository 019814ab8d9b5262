//! Where a request's time went.

use http::HeaderValue;

use super::access_line::push_millis;
use crate::units::Seconds;

/// Spans and moments of one request, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub queue: Option<Seconds>,
    pub route: Option<Seconds>,
    /// Time spent waiting for the client's body and for connections to workers.
    pub body: Seconds,
    pub connect: Seconds,
    pub sent: Option<Seconds>,
    pub first_byte: Option<Seconds>,
    pub last_token: Option<Seconds>,
}

impl Times {
    /// The `Server-Timing` of an answer whose head goes out now: milliseconds in the queue, choosing, and since the
    /// request was sent to the worker.
    pub(super) fn server_timing(&self, now: Seconds) -> HeaderValue {
        let upstream = self.sent.map_or(Seconds::ZERO, |sent| now - sent);
        let parts: [(&[u8], Seconds); 3] = [
            (b"queue;dur=", self.queue.unwrap_or_default()),
            (b", route;dur=", self.route.unwrap_or_default()),
            (b", upstream;dur=", upstream),
        ];
        let mut text = Vec::with_capacity(64);
        for (name, span) in parts {
            text.extend_from_slice(name);
            push_millis(&mut text, span);
        }
        HeaderValue::from_maybe_shared(bytes::Bytes::from(text))
            .unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}
