//! What a request costs on a worker, in seconds: the expected time until its answer is complete.
//!
//! One unit for everything, so that a queue on a fast machine and an idle slow one can be compared at all; request
//! counts and utilisation can't be. For worker i and a request of x prompt tokens:
//!
//! ```text
//! C    = net + wait + own + decode
//! own  = a + b·x                              the prefill line of this kind of work
//! wait = max(0, Σ over Q of (a + b·x) − age)  Q: sent, no first byte yet; age: since the head of Q began
//! tau  = c + d·min(decoding + |Q| + 1, cap)   seconds per output token when this request joins
//! decode = (E[out] − 1)·tau                   nothing for work without output tokens
//! net  = smoothed time of a round trip
//! ```
//!
//! Simulated over public traces, this backlog in tokens priced by learned speeds is nearly all of what a clairvoyant
//! router gains over counting requests. Prices cost constant time per worker: the sums over Q are kept, not recomputed.

use super::ask::Work;
use super::worker::Worker;
use crate::units::Seconds;

/// The least prompt that is reckoned with: below it the fixed part rules, and a fit through zero sizes says nothing.
const LEAST_PROMPT: f64 = 16.0;

/// A request as the price sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// What kind of work it is.
    pub work: Work,
    /// Prompt tokens, x.
    pub prompt: f64,
    /// Expected output tokens, E[out].
    pub output: f64,
}

impl Size {
    /// A request of this kind; prompts shorter than the least count as the least.
    pub(super) fn new(work: Work, prompt: f64, output: f64) -> Self {
        Size {
            work,
            prompt: prompt.max(LEAST_PROMPT),
            output,
        }
    }
}

/// The parts of a price. Each is zero or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// To the worker and back.
    pub net: Seconds,
    /// Until those sent before have their first byte.
    pub wait: Seconds,
    /// From then to its own first byte.
    pub own: Seconds,
    /// From its first to its last token.
    pub decode: Seconds,
}

impl Terms {
    /// The expected seconds until the answer is complete.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.net + self.wait + self.own + self.decode
    }
}

/// What this request would cost on this worker if it were sent now.
pub(super) fn price(worker: &Worker, size: Size, now: Seconds) -> Terms {
    let decode = match size.work {
        Work::Embed => Seconds::ZERO,
        Work::Generate => worker.pace_with_one_more() * (size.output - 1.0).max(0.0),
    };
    Terms {
        net: worker.net(),
        wait: worker.wait(now),
        own: worker.speeds().prefill(size.work).at(size.prompt),
        decode,
    }
}
