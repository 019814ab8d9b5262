//! What another plan makes of a worker while requests are under way.

use super::ask::WorkerSpec;

/// What becomes of the worker in this place. A place is kept for a name as long as the process lives, so that a number
/// which a request has written down never comes to mean somebody else.
#[derive(Clone, Debug)]
pub enum Seat {
    /// It stays, and keeps all that it has shown.
    Stays(Box<WorkerSpec>),
    /// It is new, or another machine behind the old name.
    Begins(Box<WorkerSpec>),
    /// It is in the plan no more: it gets nothing new, and what it holds ends by itself.
    Leaves,
}
