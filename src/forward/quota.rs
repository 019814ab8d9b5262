//! How a tenant's limit stands, on its answers: `RateLimit-Limit`, `-Remaining` and `-Reset`.
//!
//! Three dialects are about. OpenAI's `x-ratelimit-remaining-tokens` and its five sisters, and Anthropic's own six,
//! belong to those services: a worker may be one of them, and its fields pass unchanged, so ours must be others. Later
//! drafts of the IETF (from -07) put all into structured `RateLimit` and `RateLimit-Policy`, whose shape has changed
//! with each. The three plain fields of draft-ietf-httpapi-ratelimit-headers-06 are what gateways (Envoy, Kong, APISIX)
//! send and what clients that look at any such field read. All of them treat these as advice; `Retry-After` is what
//! they wait by.
//!
//! On a refusal they tell of the limit that was in the way, on an answer of the one of which the least is left. An
//! answer that has such fields of its own worker keeps them.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::fault::Quota;
use crate::units::Seconds;

const FIELDS: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

/// Says how a limit stands, unless that is said already.
pub(super) fn show(fields: &mut HeaderMap, quota: Quota) {
    if FIELDS.iter().any(|name| fields.contains_key(name)) {
        return;
    }
    let numbers = [
        u64::from(quota.limit),
        u64::from(quota.remaining),
        whole_seconds(quota.reset),
    ];
    for (name, number) in FIELDS.iter().zip(numbers) {
        fields.insert(name, HeaderValue::from(number));
    }
}

/// Rounded up: coming back early is refused again.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a wait of seconds"
)]
pub(super) fn whole_seconds(wait: Seconds) -> u64 {
    wait.0.ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_to_whole_seconds() {
        assert_eq!(
            [0.0, 0.2, 1.0, 1.1].map(|wait| whole_seconds(Seconds(wait))),
            [1, 1, 1, 2]
        );
    }
}
