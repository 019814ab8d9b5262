//! The pure core: every choice Forebay makes, without sockets, clocks or tasks.
//!
//! Time and randomness come in as arguments, decisions go out as values, so that the proxy and the simulator run the
//! very same code; the lock around it is the only difference.

mod pick;

pub use pick::Policy;
