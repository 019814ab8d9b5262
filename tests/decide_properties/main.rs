//! Properties of the pure core, over many seeds and in virtual time. A failing seed names itself.
//!
//! Every suite has a negative control: a test that breaks a rule on purpose and asks the suite's own checker to notice.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod ahead;
mod bursts;
mod calibration;
mod classes;
mod closed_loop;
mod counters;
mod deadlines;
mod distance;
mod evidence;
mod expenses;
mod limits;
mod line;
mod lora;
mod machine;
mod neighbours;
mod optional;
mod overload;
mod prefix_index;
mod price;
mod retries;
mod reuse;
mod room;
mod saturation;
mod shares;
mod swap;
mod tiers;
mod told_load;
mod weights;
mod zones;

use forebay::decide::{Ask, Claim, Work, WorkerSpec};
use forebay::facts::Prefix;
use forebay::units::{Length, ModelName};

/// A worker that serves these models, of which nothing is known.
fn spec(name: &str, models: &[&str], cap: u32) -> WorkerSpec {
    WorkerSpec {
        models: models.iter().map(|name| ModelName::new(name)).collect(),
        rise: 2,
        fall: 3,
        ..WorkerSpec::new(name, cap)
    }
}

/// A streamed request for a model.
fn ask(model: &str, work: Work, prompt: f64) -> Ask {
    Ask {
        model: Some(ModelName::new(model)),
        only: None,
        zones: None,
        from: None,
        path: None,
        work,
        prompt: Length::Tokens(prompt),
        fills: None,
        prefix: Prefix::default(),
        max_tokens: None,
        deadline: None,
        streamed: true,
        claim: Claim::default(),
    }
}
