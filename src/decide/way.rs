//! How long the way to a worker and back takes.
//!
//! Two things measure it, and the longer counts. Opening a connection takes one round trip, to whoever accepts it: that is
//! not the worker behind an SSH tunnel, a relay or a load balancer. The answer to a liveness probe has come all the way,
//! and took the worker a moment too; of the last [`KEPT`] the quickest shows the way best, for a busy worker is slow to
//! answer now and then, and a far one always. Below [`LEAST`] it may all be the worker's moment, and says nothing.
//!
//! 2026-11-30: believed that opening connections tells it all. Seen with a relay that keeps every byte for 0.2 s: the way
//! counted for nothing, the prefill line took the 0.4 s up, and "why was that slow" blamed the card.

use std::collections::VecDeque;

use crate::units::Seconds;

/// The share of a new connection's time in the smoothed one (RFC 6298).
const GAIN: f64 = 0.125;
/// What an engine may take to answer a probe: Python's do under load.
const LEAST: Seconds = Seconds(0.02);
/// So many answers to probes are remembered.
const KEPT: usize = 8;

/// What was seen of the way to one worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    /// Opening a connection, smoothed; nothing until one was opened.
    connect: Option<Seconds>,
    /// What the last answers to probes took.
    replies: VecDeque<Seconds>,
}

impl Way {
    /// There and back; nothing until something was measured.
    pub(super) fn round_trip(&self) -> Seconds {
        let quickest = self.replies.iter().copied().reduce(Seconds::min);
        let quickest = quickest.filter(|took| *took >= LEAST);
        self.connect
            .unwrap_or_default()
            .max(quickest.unwrap_or_default())
    }

    /// Opening a connection, as it is kept for the next process.
    pub(super) fn connect(&self) -> Option<Seconds> {
        self.connect
    }

    /// What an earlier process measured.
    pub(super) fn recalled(connect: Option<Seconds>) -> Self {
        Way {
            connect,
            replies: VecDeque::new(),
        }
    }

    /// A connection was opened, which took this long.
    pub(super) fn connected(&mut self, took: Seconds) {
        let took = took.max(Seconds::ZERO);
        self.connect = Some(match self.connect {
            None => took,
            Some(smoothed) => smoothed + (took - smoothed) * GAIN,
        });
    }

    /// A probe was answered so long after it was sent.
    pub(super) fn replied(&mut self, took: Seconds) {
        if self.replies.len() == KEPT {
            self.replies.pop_front();
        }
        self.replies.push_back(took.max(Seconds::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_smoothed() {
        let mut way = Way::default();
        assert_eq!(way.round_trip(), Seconds::ZERO);
        way.connected(Seconds(0.08));
        assert_eq!(way.round_trip(), Seconds(0.08));
        way.connected(Seconds(0.16));
        assert!((way.round_trip().0 - 0.09).abs() < 1e-9);
    }

    #[test]
    fn the_quickest_of_the_last_answers_counts_where_a_connection_ends_on_the_way() {
        let mut way = Way::default();
        way.connected(Seconds(0.001));
        for took in [0.4, 0.9, 0.5] {
            way.replied(Seconds(took));
        }
        assert_eq!(way.round_trip(), Seconds(0.4));
        for _ in 0..KEPT {
            way.replied(Seconds(0.03));
        }
        assert_eq!(way.round_trip(), Seconds(0.03), "what is old is forgotten");
        way.replied(Seconds(0.019));
        assert_eq!(way.round_trip(), Seconds(0.001), "the worker's own moment");
        way.connected(Seconds(8.0));
        assert!(way.round_trip() > Seconds(0.9), "the longer of both counts");
    }
}
