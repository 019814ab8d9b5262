//! What a client may send: by whose key, how often, and how much.
//!
//! Whoever comes in has a key, where tenants are configured (`tenants`). A body is read whole before a worker is chosen,
//! so that routing can price it and any attempt can repeat it. Two bounds keep that safe: `limits.body` for one request
//! and `limits.buffered` for all of them together; a body counts against the latter as it arrives, not as it claims to
//! be long.

mod body;
mod refusal;
mod tenants;

pub use body::{Held, Intake};
pub use tenants::{Admission, Pass, may_hold_key};
