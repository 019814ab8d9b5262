//! How a tenant's request is refused: the cause and the way out, in words for the person who holds the key.

use super::jwt::Flaw;
use crate::clock;
use crate::decide::{Limited, Overdrawn, Refused, Reserved};
use crate::fault::{Fault, Kind, Quota};
use crate::units::{ModelName, Seconds};

const HOW: &str = "send it as `Authorization: Bearer KEY`, `x-api-key: KEY` or `api-key: KEY`";
/// Models that a message lists.
const LISTED: usize = 8;

pub(super) fn no_key() -> Fault {
    let message = format!("a key is needed; {HOW}");
    Fault::new(Kind::Unauthorized, message)
}

pub(super) fn unknown_key() -> Fault {
    let message = format!("this key is not known; ask the operator for one and {HOW}");
    Fault::new(Kind::Unauthorized, message)
}

pub(super) fn expired_key(until: Seconds) -> Fault {
    let ended = clock::rfc3339(until);
    let message = format!("this key has expired at {ended}; ask the operator for a new one");
    Fault::new(Kind::Unauthorized, message)
}

/// What is wrong is told, and nothing of the token.
pub(super) fn bad_token(flaw: &Flaw) -> Fault {
    let message = format!("this token is not taken: {}", flaw.0);
    Fault::new(Kind::Unauthorized, message)
}

/// Whom it names is not repeated.
pub(super) fn no_such_tenant() -> Fault {
    let message = "this token is good, but names no tenant that is configured here";
    Fault::new(Kind::Forbidden, message)
}

pub(super) fn two_keys() -> Fault {
    let message = "two different keys came with this request; send one";
    Fault::new(Kind::BadRequest, message)
}

/// What it may not use is not repeated: whether such a model exists is not its affair.
pub(super) fn not_its_model<'a>(own: impl Iterator<Item = &'a ModelName>) -> Fault {
    let mut names: Vec<_> = own.take(LISTED + 1).map(ModelName::as_str).collect();
    if names.len() > LISTED {
        names[LISTED] = "…";
    }
    let message = format!(
        "this key may not use this model; it may use: {}",
        names.join(", ")
    );
    Fault::new(Kind::Forbidden, message).param("model")
}

/// A limit is in the way of a request that asks for so many tokens.
pub(super) fn limited(refused: Refused, tokens: Reserved) -> Fault {
    let Refused {
        by,
        most,
        left,
        whole_in,
        wait,
    } = refused;
    let asked = tokens.sum();
    let message = match (by, wait) {
        (Limited::Concurrent, _) => {
            format!("this tenant has as many requests open as it may: {most} (max_concurrent)")
        }
        (Limited::Requests, _) => {
            format!(
                "this tenant has sent as many requests as it may: {most} a minute (requests_per_minute)"
            )
        }
        (Limited::Tokens, Some(_)) => format!(
            "this request asks for about {asked} tokens, prompt and answer together, and {left} of the {most} a minute are left (tokens_per_minute)"
        ),
        (Limited::Tokens, None) => format!(
            "this request asks for about {asked} tokens, prompt and answer together, and a whole minute has {most} (tokens_per_minute): no wait helps, send a shorter prompt or a lower max_tokens"
        ),
    };
    let fault = Fault::new(Kind::RateLimited, message);
    let fault = match by {
        // Places are no rate: nobody knows when one is free.
        Limited::Concurrent => fault,
        Limited::Requests | Limited::Tokens => fault.quota(Quota {
            limit: most,
            remaining: left,
            reset: whole_in,
        }),
    };
    match wait {
        Some(wait) => fault.retry_after(wait),
        None => fault,
    }
}

/// A budget is in the way.
pub(super) fn overdrawn(overdrawn: &Overdrawn) -> Fault {
    let stand = &overdrawn.stand;
    let (rule, used, every) = (stand.rule, stand.used, stand.rule.every.word());
    let begins = clock::rfc3339(stand.period.end);
    let message = if overdrawn.is_used_up {
        format!(
            "this tenant's budget of {rule} is used up: {used} is spent, and the next {every} begins at {begins}"
        )
    } else {
        let reserved = stand.reserved;
        format!(
            "what is left of this tenant's budget of {rule} is put aside for its requests under way: {used} is spent and {reserved} put aside; the next {every} begins at {begins}"
        )
    };
    Fault::new(Kind::RateLimited, message).retry_after(overdrawn.wait)
}
