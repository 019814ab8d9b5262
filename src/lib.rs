//! Forebay: one stable HTTP endpoint in front of a handful of unequal GPU machines.
//!
//! The rooms of this library stand on floors; a room may use only rooms on lower floors (`tests/floors.rs` holds the
//! order). To follow a request, read `line.rs` from top to bottom.
#![forbid(unsafe_code)]

pub mod admin;
pub mod admission;
pub mod alarm;
pub mod cli;
pub mod clock;
pub mod config;
pub mod decide;
pub mod facts;
pub mod fault;
pub mod fleet;
pub mod forward;
pub mod inspect;
pub mod kept;
pub mod line;
pub mod listener;
pub mod observe;
pub mod queue;
pub mod rng;
pub mod serve;
pub mod simulate;
pub mod stamp;
pub mod units;
pub mod upstream;
