//! What a client may send: by whose key, how often, how much, and at what cost.
//!
//! Whoever comes in has a key, where tenants are configured (`tenants`). A body is read whole before a worker is
//! chosen, so that routing can price it and any attempt can repeat it. Two bounds keep that safe: `limits.body` for one
//! request and `limits.buffered` for all of them together; a body counts against the latter as it arrives, not as it
//! claims to be long. And it has to arrive at some pace (`paced`).

mod accounts;
mod body;
mod coding;
mod jwt;
mod keys;
mod paced;
mod pass;
mod refusal;
mod tenants;
mod undo;
mod watched;

pub use accounts::{Account, Accounts, FileState, keep_accounts};
#[cfg(test)]
pub(crate) use body::intake;
pub use body::{Counted, Held, Intake};
pub use coding::{Coding, Unpacking};
pub use keys::may_hold_key;
pub use paced::Paced;
pub use pass::Pass;
pub use tenants::Admission;
pub use watched::follow_files;
