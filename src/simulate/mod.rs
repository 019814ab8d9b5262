//! A fleet and its clients in virtual time, routed by the very code that routes real ones.
//!
//! The proxy's choices are made in `decide`, which takes the time as an argument; here it is given times that nobody
//! waits for. An hour of a dozen machines is over in seconds, and the same seed gives the same hour: rules can be
//! compared on equal terms, and "what if I sell the T4?" has an answer before it is sold.
//!
//! - `load` is what clients ask for, `fleet` who serves them: `card`, `engine`, `cache` and `station` make a machine;
//! - `world` lets it happen, event by event (`agenda`), and asks `decide` through the `door`;
//! - `rivals` are rules that are not ours, `rule` names all of them, `score` says what came out.
//!
//! The machines are models with guessed speeds (`card.rs`). They tell which of two rules is better on unequal machines,
//! and not how fast yours will be.

mod agenda;
mod cache;
mod card;
mod door;
mod engine;
mod fleet;
mod fleet_file;
pub mod load;
mod plot;
mod report;
mod request;
mod rivals;
mod rule;
mod score;
mod slots;
mod station;
mod world;

pub use card::{BLOCK, CARDS, Card};
pub use engine::{Engine, Job, Step};
pub use fleet::{Fault, FaultKind, Fleet, Member};
pub use fleet_file::{added, parse as parse_fleet};
pub use plot::plot;
pub use report::{change, table};
pub use request::{End, Request};
pub use rule::RULES;
pub use score::Score;
pub use station::Station;

use door::Door;
use world::World;

/// Lets a load run through a fleet under the rule of this name: the end of each request, in their order. `None` when there
/// is no such rule.
#[must_use]
pub fn simulate(fleet: &Fleet, load: &[Request], rule: &str, seed: u64) -> Option<Vec<End>> {
    let chooser = rule::chooser(rule, fleet)?;
    let load = load::by_model(load, fleet.models);
    let ends = World::new(fleet, &load, chooser, seed).run().into_iter();
    Some(ends.map(|end| end.unwrap_or(End::Failed)).collect())
}

/// Those requests of a load that fit into the memory of at least one machine.
#[must_use]
pub fn fitting(fleet: &Fleet, load: Vec<Request>) -> Vec<Request> {
    let door = Door::of(fleet, &load);
    let mut load = load;
    load.retain(|request| door.fitting(request).is_some());
    load
}
