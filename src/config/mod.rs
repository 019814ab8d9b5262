//! Configuration in three stages: as typed, checked, as used.

pub mod plan;

pub use plan::Plan;
