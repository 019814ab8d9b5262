//! `[limits]`: what a client may send.

use crate::config::plan::Limits;
use crate::config::typed::Section;

/// The limits; a body fits into the memory for all bodies.
pub fn limits(section: &Section<'_>) -> Option<Limits> {
    let body = section.size("body");
    let buffered = section.size("buffered");
    let header = section.size("header");
    let header_timeout = section.duration("header_timeout");
    let body_rate = section.size("body_rate");
    let idle = section.duration("idle");
    let connections_per_address = section.count("connections_per_address");
    let (body, buffered) = (body?, buffered?);
    if body > buffered {
        let typed = section.given("body").or_else(|| section.given("buffered"));
        let message =
            format!("a body of {body} would never fit into the {buffered} for all bodies");
        let way_out = format!("write: body = \"{buffered}\", or buffered = \"{body}\"");
        typed?.refuse_for(message, way_out);
    }
    Some(Limits {
        body,
        buffered,
        header: header?,
        header_timeout: header_timeout?,
        body_rate: body_rate?,
        idle: idle?,
        connections_per_address: connections_per_address?,
    })
}
