//! `[limits]` as it is used.

use super::{object, text};
use crate::config::plan::Limits;

pub(super) fn show_limits(limits: &Limits) -> String {
    let Limits {
        body,
        buffered,
        header,
        header_timeout,
        body_rate,
        idle,
        connections_per_address,
    } = limits;
    object(&[
        ("body", text(body)),
        ("buffered", text(buffered)),
        ("header", text(header)),
        ("header_timeout", text(header_timeout)),
        ("body_rate", text(body_rate)),
        ("idle", text(idle)),
        (
            "connections_per_address",
            connections_per_address.to_string(),
        ),
    ])
}
