//! An engine that gives back what it was given: it needs no graph and no library, so the whole wire can be tried
//! without either.

use crate::engine::Engine;
use crate::fault::Fault;
use crate::tensor::{Axis, Datatype, Signature, Tensor, TensorSpec};

/// Answers `output` = `input`, both `FP32 [-1, -1]`.
pub struct Echo {
    signature: Signature,
}

impl Echo {
    /// A fresh echo.
    pub fn new() -> Echo {
        let spec = |name: &str| TensorSpec {
            name: name.into(),
            datatype: Datatype::Fp32,
            axes: vec![Axis::Free("batch".into()), Axis::Free("width".into())],
        };
        Echo {
            signature: Signature {
                inputs: vec![spec("input")],
                outputs: vec![spec("output")],
            },
        }
    }
}

impl Engine for Echo {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Result<Vec<Tensor>, Fault> {
        Ok(wanted
            .iter()
            .flat_map(|_| inputs.first().cloned())
            .collect())
    }
}
