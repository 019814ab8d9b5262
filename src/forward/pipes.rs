//! Both directions of a tunnel, and what its ends are told by the proxy: a frame of ours may stand only between two
//! others, so each is told when the way to it is free.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use super::frames::{self, Code};
use super::pipe::Pipe;
use super::signs::Side;
use crate::units::Seconds;

/// How long an end has to answer a close, or to take one.
pub(super) const FAREWELL: Seconds = Seconds(2.0);

type Way = Pipe<ReadHalf<TokioIo<Upgraded>>, WriteHalf<TokioIo<Upgraded>>>;

/// Both directions.
pub(super) struct Pipes {
    /// From the client to the worker.
    pub(super) up: Way,
    /// From the worker to the client.
    pub(super) down: Way,
}

impl Pipes {
    /// Between these ends.
    pub(super) fn new(client: Upgraded, worker: Upgraded) -> Self {
        let (from_client, to_client) = split(TokioIo::new(client));
        let (from_worker, to_worker) = split(TokioIo::new(worker));
        Pipes {
            up: Pipe::new(from_client, to_worker),
            down: Pipe::new(from_worker, to_client),
        }
    }

    /// Whether an end has closed, or was told to.
    pub(super) fn closes(&self) -> bool {
        self.up.frames.closed() || self.down.frames.closed()
    }

    /// Whether each end was told that the other has closed, or that this one goes away.
    pub(super) fn closed(&self) -> bool {
        self.up.frames.closed() && self.down.frames.closed()
    }

    /// Asks an end whether it lives; false when it can't be asked now.
    pub(super) fn ping(&mut self, side: Side) -> bool {
        let (way, mask) = match side {
            Side::Client => (&mut self.down, None),
            Side::Worker => (&mut self.up, Some(rand::random())),
        };
        let may = way.may_speak();
        if may {
            way.put(&frames::ping(mask));
        }
        may
    }

    /// Each end that can be told now that this one goes away is told next.
    pub(super) fn part(&mut self, why: &str) {
        self.part_from_client(Code::GoingAway, why);
        if self.up.may_speak() {
            let mask = Some(rand::random());
            self.up.put(&frames::close(Code::GoingAway, why, mask));
        }
    }

    fn part_from_client(&mut self, code: Code, why: &str) {
        if self.down.may_speak() {
            self.down.put(&frames::close(code, why, None));
        }
    }

    /// Both ends are told that this one goes away. Who does not take it in time gets no other.
    pub(super) async fn farewell(&mut self, why: &str) {
        self.part(why);
        let both = async { tokio::join!(self.down.flush(), self.up.flush()) };
        let _in_time = timeout(FAREWELL.to_duration(), both).await;
    }

    /// The client is told why its worker's end is gone.
    pub(super) async fn tell_client(&mut self, code: Code, why: &str) {
        self.part_from_client(code, why);
        let _in_time = timeout(FAREWELL.to_duration(), self.down.flush()).await;
    }

    /// Says to both that nothing more comes.
    pub(super) async fn shut(&mut self) {
        let both = async { tokio::join!(self.up.shut(), self.down.shut()) };
        let _in_time = timeout(FAREWELL.to_duration(), both).await;
    }
}
