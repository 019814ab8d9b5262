//! What is said to a request that gets no place.

use std::sync::Arc;

use crate::decide::{Ask, NoChoice, Work};
use crate::fault::{Fault, Kind};
use crate::fleet::Fleet;
use crate::units::Seconds;

/// When to come back when nothing is measured of how fast the line moves, and for a model that may turn up.
pub(super) const COME_BACK: Seconds = Seconds(1.0);
/// The longest that anybody is told to stay away: by then all may be different.
const STAY_AWAY: Seconds = Seconds(60.0);

/// Why somebody stands in line.
pub(super) const TAKEN: &str =
    "all places on those who could serve it are taken, or reserved for higher classes";

/// The longest model name, in bytes, that a refusal repeats: a client chooses how long it is.
const LONGEST_NAME: usize = 256;

/// There is no room in line.
pub(super) fn full(fleet: &Fleet, class: u8) -> Fault {
    let message = format!("{TAKEN}, and the queue is full");
    come_back(fleet, class, Fault::new(Kind::QueueFull, message))
}

/// With when to come back, by how fast the line moved of late.
pub(super) fn come_back(fleet: &Fleet, class: u8, fault: Fault) -> Fault {
    let clears = fleet.line_clears_in(class);
    let wait = clears.map_or(COME_BACK, |wait| wait.max(COME_BACK).min(STAY_AWAY));
    fault.retry_after(wait)
}

/// A model that nobody is known to serve there: not to be had, unless a worker that may has not said yet what it serves.
#[must_use]
pub fn unless_silent(silent: Option<Arc<str>>, not_there: Fault) -> Fault {
    let Some(worker) = silent else {
        return not_there;
    };
    let message = format!(
        "{}; `{worker}` has not said yet what it serves",
        not_there.message
    );
    Fault::new(Kind::NoWorker, message).retry_after(COME_BACK)
}

/// Why nobody serves this request.
pub(super) fn refusal(fleet: &Fleet, ask: &Ask, why: NoChoice) -> Fault {
    let model = match &ask.model {
        None => "this route".to_owned(),
        Some(name) if name.as_str().len() > LONGEST_NAME => "a model of so long a name".to_owned(),
        Some(name) => format!("`{name}`"),
    };
    let only = ask.only.as_deref();
    match why {
        NoChoice::UnknownModel { nearest, .. } => {
            let message = format!("no worker serves {model}");
            let not_there = Fault::new(Kind::ModelNotFound, message).param("model");
            let not_there = not_there.suggest(nearest);
            unless_silent(fleet.yet_to_tell(only, ask.zones), not_there)
        }
        NoChoice::Residency => {
            let message =
                format!("no worker that serves {model} is in a zone where this request may go");
            let not_there = Fault::new(Kind::Residency, message);
            unless_silent(fleet.may_serve_too(only, ask.zones), not_there)
        }
        NoChoice::TooLong { most } => {
            let beside = match ask.max_tokens {
                Some(output) if ask.work == Work::Generate => {
                    format!(" beside an answer of up to {output}")
                }
                _ => String::new(),
            };
            let message = format!(
                "the prompt is too long for every worker that serves {model}: at most {most} tokens fit{beside}"
            );
            Fault::new(Kind::BadRequest, message)
        }
        NoChoice::Unloadable => {
            let message =
                format!("{model} is an adapter that no worker which serves it could load just now");
            Fault::new(Kind::NoWorker, message).retry_after(Seconds(10.0))
        }
        NoChoice::Down
        | NoChoice::Busy
        | NoChoice::Away
        | NoChoice::Late { .. }
        | NoChoice::Displaced => {
            let message = format!("no worker that serves {model} is up");
            Fault::new(Kind::NoWorker, message).retry_after(Seconds(2.0))
        }
    }
}
