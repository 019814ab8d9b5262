//! `[timeouts]`, and the tables that lay single timeouts over it.

use crate::config::plan::{TimeoutOverrides, Timeouts};
use crate::config::typed::Section;

/// The timeouts that hold everywhere.
pub fn timeouts(section: &Section<'_>) -> Option<Timeouts> {
    let connect = section.duration("connect");
    let first_byte = section.timer("first_byte");
    let answer = section.timer("answer");
    let between_bytes = section.timer("between_bytes");
    let total = section.timer("total");
    let ping = section.timer("ping");
    Some(Timeouts {
        connect: connect?,
        first_byte: first_byte?,
        answer: answer?,
        between_bytes: between_bytes?,
        total: total?,
        ping: ping?,
    })
}

/// What a route or worker says of its own.
pub fn overrides(section: &Section<'_>) -> TimeoutOverrides {
    let timer = |key| section.given(key).and_then(|value| value.timer());
    TimeoutOverrides {
        connect: section.given("connect").and_then(|value| value.duration()),
        first_byte: timer("first_byte"),
        answer: timer("answer"),
        between_bytes: timer("between_bytes"),
        total: timer("total"),
        ping: timer("ping"),
    }
}
