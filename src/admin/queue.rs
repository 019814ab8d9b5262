//! `GET /api/queue`: who waits, for how long, and what for.
//!
//! | key | what |
//! |---|---|
//! | `overloaded` | whether more come than are served in some class, so that its newest go first |
//! | `entries`, `bytes` | how many wait, and the bytes of their bodies |
//! | `per_second` | how many who wait get a place in a second, by the last half minute in which somebody waited |
//! | `classes` | every class, the highest first: `class`, `depth`, `oldest_s`, `overloaded` |
//! | `waiting` | the first hundred, by class and arrival |
//!
//! and of each of these `id`, `class`, `tenant`, `model`, `waited_s`, its `position` as `x-forebay-queue-position`
//! tells it, and in `waits_for` the reason in a sentence. What is not known is missing. `GET /api/requests/ID` answers
//! the same of one that still waits, with `state` = `waiting`.
//!
//! **Position.** 1 is the next. It counts who gets a place before the request if no more come: those of higher classes
//! who ask for the same model on the same route and within the same zones, of each other tenant of its own class as
//! many as go before it of its own tenant, since tenants take turns, and those. Who asks for another model is not
//! counted, though he may take a place on the same worker; who comes later may go before it, being of a higher class,
//! or in an overloaded line.

use std::sync::Arc;

use serde::Serialize;

use crate::decide::{Exclusion, Hold};
use crate::units::ModelName;

/// The most workers that a sentence names.
const NAMED: usize = 8;

/// The line at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueueView {
    /// Whether the newest go first in some class.
    pub overloaded: bool,
    /// How many wait.
    pub entries: usize,
    /// The bytes of their bodies.
    pub bytes: u64,
    /// How many of them get a place in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// Every class, the highest first.
    pub classes: Vec<ClassRow>,
    /// The first of them.
    pub waiting: Vec<WaitingRow>,
}

/// Those of one class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassRow {
    /// Its name.
    pub class: Arc<str>,
    /// How many wait.
    pub depth: usize,
    /// How long the eldest has waited.
    pub oldest_s: f64,
    /// Whether the newest go first.
    pub overloaded: bool,
}

/// One who waits.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingRow {
    /// The request's id.
    pub id: Box<str>,
    /// Always `waiting`.
    pub state: &'static str,
    /// Its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Arc<str>>,
    /// Whose it is; `-` where nobody is known.
    pub tenant: Arc<str>,
    /// What it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// For how long it has waited.
    pub waited_s: f64,
    /// Its place in line.
    pub position: usize,
    /// Why it has no place on a worker yet.
    pub waits_for: String,
}

/// Why a request for a model has no place yet, in a sentence.
#[must_use]
pub fn waits_for(model: Option<&ModelName>, holds: &[Hold]) -> String {
    let what = model.map_or_else(|| "its route".to_owned(), |model| format!("`{model}`"));
    let clauses: Vec<_> = holds.iter().take(NAMED).map(clause).collect();
    let told = clauses.join(", ");
    let more = match holds.len() - clauses.len() {
        0 => String::new(),
        left => format!(", and {left} more"),
    };
    match holds {
        [] => format!("no worker serves {what} now"),
        [_] => format!("the only worker that serves {what}: {told}"),
        holds if holds.iter().all(is_taken) => {
            let count = holds.len();
            format!("all {count} workers that serve {what} are at their limit: {told}{more}")
        }
        holds => format!(
            "the {} workers that serve {what}: {told}{more}",
            holds.len()
        ),
    }
}

fn is_taken(hold: &Hold) -> bool {
    matches!(hold.why, Some(Exclusion::Full | Exclusion::Reserved))
}

fn clause(hold: &Hold) -> String {
    let Hold {
        worker,
        held,
        limit,
        why,
    } = hold;
    let places = format!("{held} of {limit} places taken");
    match why {
        Some(Exclusion::Full) => format!("{worker} has {places}"),
        Some(Exclusion::Reserved) => {
            format!("{worker} has {places} and the others reserved for higher classes")
        }
        Some(Exclusion::Down) => format!("{worker} is down"),
        Some(Exclusion::Ejected) => format!("{worker} is out for its errors"),
        Some(Exclusion::Draining) => format!("{worker} is drained by hand"),
        Some(Exclusion::Held) => format!("{worker} asked to be left alone"),
        Some(Exclusion::Tried) => format!("{worker} was tried"),
        Some(Exclusion::TooLong) => format!("{worker} has no room for so long a prompt"),
        Some(Exclusion::Unloadable) => format!("{worker} could not load the adapter"),
        Some(other) => format!("{worker} is left out ({})", other.label()),
        None => format!("{worker} has a place just now"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(worker: &str, held: u32, limit: u32, why: Option<Exclusion>) -> Hold {
        Hold {
            worker: worker.into(),
            held,
            limit,
            why,
        }
    }

    #[test]
    fn a_wait_is_told_in_a_sentence() {
        let model = ModelName::new("m");
        let told = |holds: &[Hold]| waits_for(Some(&model), holds);
        assert_eq!(told(&[]), "no worker serves `m` now");
        let full = hold("a", 16, 16, Some(Exclusion::Full));
        assert_eq!(
            told(std::slice::from_ref(&full)),
            "the only worker that serves `m`: a has 16 of 16 places taken"
        );
        let kept = hold("b", 1, 2, Some(Exclusion::Reserved));
        assert_eq!(
            told(&[full.clone(), kept]),
            "all 2 workers that serve `m` are at their limit: a has 16 of 16 places taken, \
             b has 1 of 2 places taken and the others reserved for higher classes"
        );
        let down = hold("c", 0, 2, Some(Exclusion::Down));
        assert_eq!(
            told(&[full.clone(), down]),
            "the 2 workers that serve `m`: a has 16 of 16 places taken, c is down"
        );
        let many = vec![full; 20];
        assert!(told(&many).ends_with(", and 12 more"));
        assert!(waits_for(None, &[]).contains("its route"));
    }
}
