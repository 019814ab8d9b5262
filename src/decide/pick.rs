//! Which candidate is taken, by policy.

/// How a worker is chosen among those that could serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The least expected completion time in seconds.
    LeastTime,
    /// One after the other.
    RoundRobin,
    /// The fewest requests in flight.
    LeastInflight,
    /// Any, evenly.
    Random,
}
