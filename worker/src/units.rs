//! The quantities the worker reckons with, each a type of its own.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

/// A span of time, or a point in time counted from the start of the process, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

impl Seconds {
    /// This span as the standard library's type; negative spans become zero.
    pub fn to_duration(self) -> Duration {
        Duration::try_from_secs_f64(self.0).unwrap_or(Duration::ZERO)
    }

    /// This span in whole nanoseconds; negative spans become zero.
    pub fn to_nanos(self) -> u64 {
        (self.0 * 1e9).round() as u64
    }

    /// This span in whole milliseconds; negative spans become zero.
    pub fn to_millis(self) -> u64 {
        (self.0 * 1e3) as u64
    }
}

impl Add for Seconds {
    type Output = Seconds;
    fn add(self, other: Seconds) -> Seconds {
        Seconds(self.0 + other.0)
    }
}

impl Sub for Seconds {
    type Output = Seconds;
    fn sub(self, other: Seconds) -> Seconds {
        Seconds(self.0 - other.0)
    }
}

/// The name of a model: the name of its folder. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelName(Arc<str>);

impl ModelName {
    /// A name as a folder carries it.
    pub fn new(name: &str) -> Self {
        ModelName(Arc::from(name))
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Lets a table keyed by model be asked with a borrowed `&str`.
impl std::borrow::Borrow<str> for ModelName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// What becomes of a classifier's outputs, so that they can be read as probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// One of the classes holds: the scores add up to 1.
    Softmax,
    /// Each class holds or not, whatever the others do.
    Sigmoid,
    /// The scores as the graph gives them.
    None,
}

/// How a model's hidden states, one vector per token, become one vector per text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over the tokens that are not padding.
    #[default]
    Mean,
    /// The vector of the first token.
    Cls,
    /// The graph pools by itself: its output already is one vector per text.
    None,
}

/// How short rows of token ids are filled up, so that all rows of a tensor are of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// To the length of the longest, rounded up to a multiple of this.
    Longest(usize),
    /// To as many tokens as a text may have.
    Most,
}

/// What computes a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// The machine's own cores.
    #[default]
    Cpu,
    /// A card, through CUDA.
    Cuda,
    /// A card, through TensorRT, which leaves to CUDA what it can't do.
    TensorRt,
}

impl Device {
    /// Every device.
    pub const ALL: [Device; 3] = [Device::Cpu, Device::Cuda, Device::TensorRt];

    /// What it is called on the command line, in `model.toml` and wherever it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Cuda => "cuda",
            Device::TensorRt => "tensorrt",
        }
    }

    /// The device of this name.
    pub fn from_name(name: &str) -> Option<Device> {
        Device::ALL.into_iter().find(|device| device.name() == name)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
