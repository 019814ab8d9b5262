//! What a request is, read from its head and body without building a tree.
//!
//! The parsers here peek: they walk a JSON object once, take what routing needs, and remember where the model's name
//! stands so that a rename can change those bytes and no others. Nothing here keeps or prints prompt text.

mod built_in;
mod grpc;
mod kserve;
mod letters;
mod members;
mod multipart;
pub mod nesting;
mod openai;
mod percent;
mod prefix;
mod shape;
mod usage;

use std::ops::Range;

pub use built_in::{BuiltIn, Inference};
pub use grpc::{
    About, Call, PREFIX, first_message, framed, is_compressed, is_grpc, length_prefixed,
    message_length, message_prefix, model_in_message, renamed,
};
pub use kserve::{timeout_of as kserve_timeout, work_of as kserve_work};
pub use letters::fills;
pub use multipart::{Form, boundary, form};
pub use openai::{Peek, Piece, peek};
pub use percent::{model_in_query, name_in_path, percent_decoded, percent_encoded};
pub use prefix::{MOST_BLOCKS, Prefix, Salt, prefix};
pub use shape::{INFER, path_of};
pub use usage::{Usage, UsageScan};

use crate::units::{Length, ModelName, Seconds};

/// Which family of clients a path belongs to: decides the shape of our errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's API, and everything that has no shape of its own.
    OpenAi,
    /// Anthropic's Messages API.
    Anthropic,
    /// KServe's Open Inference Protocol, version 2.
    KServe,
    /// The same over gRPC, and all gRPC.
    Grpc,
}

/// Where a model's name stands, and how names are written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spot {
    /// A JSON string in the body, quotes included.
    Json(Range<usize>),
    /// Text in the body, as it is.
    Text(Range<usize>),
    /// A value in the query.
    Query(Range<usize>),
    /// A field of the gRPC message that is the body, counted from behind the message's prefix.
    Message(Range<usize>),
}

/// What the line knows of a request once its body was read.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFacts {
    /// The client-facing model, when the request names one or only one is served.
    pub model: Option<ModelName>,
    /// Where the model's name stands, for whoever has to write another.
    pub model_at: Option<Spot>,
    /// Whether the answer comes as a stream of events.
    pub streamed: bool,
    /// Whether output tokens are generated one by one.
    pub generates: bool,
    /// The client's own bound on output tokens.
    pub max_tokens: Option<u32>,
    /// How long its prompt is.
    pub prompt: Length,
    /// What of it must fit into a context at once; text in letters. Absent where that can't be told, and where it fits
    /// everybody.
    pub fills: Option<Length>,
    /// How long its client waits, where the body says so.
    pub timeout: Option<Seconds>,
    /// Whether it asks for a WebSocket.
    pub upgrades: bool,
    /// How its prompt begins; nothing when no answer is generated from it.
    pub prefix: Prefix,
}
