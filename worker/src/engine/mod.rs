//! What runs a model: [`onnx`] through ONNX Runtime, on what [`provider`] gets it, [`step`] what is built in, [`echo`]
//! for trying the wire without either; [`declared`] shows each as `config.pbtxt` declares it.
//!
//! An engine is owned by one thread (`runner.rs`), so it takes `&mut self` and needs no lock: ONNX Runtime's own `Run`
//! is not safe to call from several threads, whatever its documentation says (ort's source has the story).

pub mod declared;
pub mod echo;
pub mod elf;
pub mod halt;
pub mod library;
pub mod onnx;
pub mod provider;
pub mod step;
pub mod wheels;

use crate::fault::Fault;
use crate::tensor::{Signature, Tensor};
use crate::units::Device;
use halt::Halt;

/// Where an engine ended up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// What computes.
    pub device: Device,
    /// Which card, where it is one.
    pub card: u32,
    /// Why it is not the device that was asked for; absent where it is.
    pub refused: Option<String>,
}

/// A loaded model.
pub trait Engine: Send {
    /// What it takes and gives.
    fn signature(&self) -> &Signature;

    /// Runs once. `inputs` are in the signature's order; `wanted` are indices into its outputs, answered in that order.
    fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Result<Vec<Tensor>, Fault>;

    /// What ends its runs; by default nothing does.
    fn halt(&self) -> Halt {
        Halt::default()
    }
}
