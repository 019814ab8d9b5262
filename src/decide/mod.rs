//! The pure core: every choice Forebay makes, without sockets, clocks or tasks.
//!
//! Time and randomness come in as arguments, decisions go out as values, so that the proxy and the simulator run the
//! very same code; the lock around it is the only difference. [`FleetState`] is the door; behind it:
//!
//! - `cost` says what a request costs on a worker, in seconds, and `pick` takes the cheapest;
//! - `speed` learns each worker's seconds from its traffic, by lines (`line_fit`) through what it showed at first bytes
//!   (`backlog`) and while tokens passed (`decode_meter`); `traffic` learns what requests look like;
//! - `health` knows who is alive, `hazard` how long one is expected to stay so, `worker` counts what each was given, `roster` picks and books in one step;
//! - `queue` holds those for whom no slot is free.
//!
//! Guaranteed: the same events with the same seed give the same choices, bit for bit (no hash order decides anything);
//! no input panics; every booking is counted once, however its request ends.

mod ask;
mod backlog;
mod cost;
mod decode_meter;
mod fleet;
mod hazard;
mod health;
mod line_fit;
mod pick;
mod queue;
mod roster;
mod speed;
mod traffic;
mod view;
mod worker;

pub use ask::{Ask, Choice, NoChoice, Outcome, Rules, Told, Work, WorkerSpec};
pub use cost::Terms;
pub use fleet::{FleetState, Grant, StateChange};
pub use health::State;
pub use line_fit::Line;
pub use pick::Policy;
pub use queue::{LineFull, MOST_WAITING, Ticket};
pub use view::{Learned, WorkerView};
pub use worker::Booking;
