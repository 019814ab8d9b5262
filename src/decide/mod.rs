//! The pure core: every choice Forebay makes, without sockets, clocks or tasks.
//!
//! Time and randomness come in as arguments, decisions go out as values, so that the proxy and the simulator run the
//! very same code; the lock around it is the only difference. [`FleetState`] is the door; behind it:
//!
//! - `cost` says what a request costs on a worker, in seconds, and `memory` how long it waits for room in the engine's;
//!   `pick` takes the cheapest and `considered` keeps why;
//! - `reuse` says what a request is believed to find in a worker's cache, by what `prefix_index` keeps of what was sent
//!   there;
//! - `speed` learns each worker's seconds from its traffic, by lines (`line_fit`) through what it showed at first bytes
//!   (`backlog`) and while tokens passed (`decode_meter`); `traffic` learns what requests look like, `density`
//!   how many tokens their text makes;
//! - `lora` says which adapters are on a worker's card, and what a request of another waits for; `residents` the same of the
//!   models in its memory, where not all of them fit;
//! - `condition` knows whether a worker may be given requests: `health` by its probes, `eject` by its requests, with a
//!   `slow_start` when it comes back; `standing` says who may be considered, `unsupported` who does not know which path;
//!   `outage` says when an outage begins and `hazard` how long a machine is expected to go without one;
//! - `told_load` knows what others do on a worker, by what its engine tells;
//! - `saturation` says when more would only wait inside a worker;
//! - `room` says for whom a prompt is too long; `place` where it may go and how far that is;
//! - `worker` counts what each was given (`booking`), `machine` what those who share a box do to each other, and
//!   `roster` picks and books in one step;
//! - `seat` says what another plan makes of each worker while requests are under way;
//! - `calibration` says who is due for a test request, because nobody has used it for a while;
//! - `limit` says how much a tenant may use;
//! - `queue` holds those for whom no slot is free; `retry` says who is sent again.
//!
//! Guaranteed: the same events with the same seed give the same choices, bit for bit (no hash order decides anything);
//! no input panics; every booking is counted once, however its request ends.

mod ask;
mod backlog;
mod booking;
mod budget;
mod by_hand;
mod calibration;
mod condition;
mod considered;
mod cost;
mod decode_meter;
mod density;
mod eject;
mod fleet;
mod hazard;
mod health;
mod limit;
mod line_fit;
mod load_time;
mod lora;
mod machine;
mod memory;
mod outage;
mod pick;
mod place;
mod prefix_index;
mod queue;
mod residents;
mod retry;
mod reuse;
mod room;
mod roster;
mod saturation;
mod seat;
mod slow_start;
mod speed;
mod standing;
mod told_load;
mod traffic;
mod unsupported;
mod view;
mod way;
mod worker;

pub use ask::{
    Ask, ByWork, Choice, Claim, MOST_CLASSES, Names, NoChoice, Outcome, Rules, Told, Work,
    WorkerSpec,
};
pub use booking::Booking;
pub use budget::{Amount, Budget, BudgetRule, Every, Expense, Overdrawn, Purse, Stand};
pub use by_hand::{ByHand, Override, Why};
pub use calibration::{TEST_OUTPUT, Test, Tests};
pub use considered::{Considered, Entry, Exclusion, Fate, Shortlist};
pub use cost::Terms;
pub use density::most_at_least;
pub use eject::{EjectCause, EjectRule, Ejections};
pub use fleet::{FleetState, Grant, StateChange};
pub use health::State;
pub use limit::{Allowance, Limited, Quotas, Refused, Reserved};
pub use line_fit::{Line, LineSums};
pub use lora::{AdapterName, LoraNews, LoraTold, LoraView};
pub use pick::Policy;
pub use place::{Place, RegionId, Zones};
pub use prefix_index::{Matches, PrefixIndex};
pub use queue::{ClassView, LineFull, LineRules, LineView, Ticket, WaiterView};
pub use residents::{EngineName, ResidentsView};
pub use retry::{Ending, Permit, RetryBudget, RetryRules, Tally, Verdict};
pub use roster::{Hold, Outlook};
pub use seat::Seat;
pub use speed::SavedSpeeds;
pub use standing::AllDown;
pub use told_load::{Heard, Load, Ours, Said};
pub use view::{Bound, Learned, WorkerView};
