//! What the simulated clients ask for: drawn from distributions, or read from traces of what real ones asked.

mod adapters;
mod chance;
mod classifier;
mod models;
mod rate;
mod stamp;
mod tools;
mod trace;

pub use adapters::adapters;
pub(super) use chance::mixed;
pub use classifier::classifier;
pub use models::by_model;
pub use rate::at_rate;
pub use tools::tools;
pub use trace::{Flaw, parse};
