//! What befalls workers, and which failures of requests that accounts for.
//!
//! A worker that is killed, slowed down or started again accounts for no failed request that may be repeated (promise P1),
//! except that a stream breaks which had begun (P2). What else goes wrong with a worker may exhaust the tries that a
//! request has, or the budget of repeats, and then the client is told.

use bytes::Bytes;
use forebay::rng::Rng;

use crate::plan::Question;
use crate::support::engine::Engine;
use crate::support::engine::knobs::Failure;
use crate::support::load::Ended;

/// Seconds a token, and what a slow worker takes.
pub const PACE: f64 = 0.005;
const SLOW: f64 = 0.05;

/// Answers that are none. None of them has an end in which a client could believe.
const RUBBISH: [&[u8]; 6] = [
    b"rubbish-of-a-worker\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx-rubbish: ",
    b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nrubbish-of-a-worker",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 19\r\n\r\nrubbish-of-a-worker",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nrubbish-of-a-worker\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n13\r\nrubbish-of-a-worker\r\n",
];

/// What befalls a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// Its process dies, and is started again.
    Kill,
    /// It takes ten times as long.
    Slow,
    /// It reads requests and says nothing.
    Hang,
    /// It falls silent within answers.
    Stall,
    /// It closes within answers.
    Cut,
    /// It resets connections.
    Reset,
    /// It answers 500.
    Fail,
    /// It says that it is full.
    Busy,
    /// It answers what is no HTTP.
    Rubbish(usize),
}

impl Harm {
    /// One that befalls workers which speak HTTP/2, or HTTP/1.1. A third are deaths.
    pub fn draw(rng: &mut Rng, http2: bool) -> Self {
        let kinds = if http2 { 11 } else { 14 };
        match rng.below(kinds) {
            0..4 => Harm::Kill,
            4 => Harm::Slow,
            5 => Harm::Hang,
            6 => Harm::Stall,
            7 => Harm::Cut,
            8 => Harm::Reset,
            9 => Harm::Fail,
            10 => Harm::Busy,
            _ => Harm::Rubbish(rng.below(RUBBISH.len())),
        }
    }

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Harm::Kill => "killed",
            Harm::Slow => "slow",
            Harm::Hang => "hung",
            Harm::Stall => "stalled",
            Harm::Cut => "cut",
            Harm::Reset => "reset",
            Harm::Fail => "500",
            Harm::Busy => "busy",
            Harm::Rubbish(_) => "rubbish",
        }
    }

    /// It befalls a worker.
    pub fn inflict(self, engine: &Engine) {
        let fails = |failure| engine.tune(|knobs| knobs.fail(failure, u64::MAX));
        match self {
            Harm::Kill => engine.kill(),
            Harm::Slow => engine.tune(|knobs| knobs.decode = SLOW),
            Harm::Hang => fails(Failure::Hang),
            Harm::Stall => fails(Failure::StallAfter(1)),
            Harm::Cut => fails(Failure::CutAfter(1)),
            Harm::Reset => fails(Failure::ResetAfterRequest),
            Harm::Fail => fails(Failure::Status(500)),
            Harm::Busy => fails(Failure::Busy(1)),
            Harm::Rubbish(kind) => fails(Failure::Rubbish(Bytes::from_static(RUBBISH[kind]))),
        }
    }

    /// The worker is whole again.
    pub fn mend(self, engine: &Engine) {
        match self {
            Harm::Kill => engine.accept(),
            Harm::Slow => engine.tune(|knobs| knobs.decode = PACE),
            _ => engine.tune(|knobs| knobs.failures = 0),
        }
    }

    /// Whether it accounts for what became of a request on such a worker.
    pub fn accounts_for(self, ended: &Ended, question: &Question) -> bool {
        let broke = ended.status == 200 && !ended.complete;
        let because = |reasons: &[&str]| reasons.contains(&ended.reason.as_str());
        let read = !question.may_repeat() && because(&["worker_failed"]);
        let late = because(&["first_byte_timeout", "answer_timeout", "stalled"]);
        match self {
            Harm::Slow => false,
            Harm::Kill => broke && question.is_streamed() || read,
            Harm::Hang => late,
            Harm::Stall => broke || late,
            Harm::Cut | Harm::Reset | Harm::Rubbish(_) => broke || because(&["worker_failed"]),
            Harm::Fail => ended.status == 500 && ended.reason.is_empty(),
            Harm::Busy => ended.status == 429 && ended.reason.is_empty(),
        }
    }
}
