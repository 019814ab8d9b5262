//! A model run by ONNX Runtime.
//!
//! Spinning is off: workers are expected to share a machine, where a pool that spins takes from its neighbour what it
//! does not use. Memory patterns are off because shapes change with every batch. Inputs are lent to the library, not
//! copied; outputs are copied out once, as they outlive the session's buffers.
//!
//! A node that fails on the inputs it got is the request's fault, so that a proxy in front does not take a sequence
//! that is too long for an ill machine. The library reports an index out of a table's range as an invalid argument, but
//! sizes that don't go together as a plain failure, which is also how it reports that memory ran out; only the words
//! differ. The price: a graph that fails on everything answers 400.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use ort::ErrorCode;
use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::builder::SessionBuilder;
use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions, Session, SessionInputValue};
use ort::value::{DynValue, Outlet, TensorElementType, TensorRef, ValueType};

use crate::engine::Engine;
use crate::engine::halt::Halt;
use crate::engine::provider::{self, Means, Unloaded};
use crate::fault::{Fault, Kind};
use crate::tensor::{Axis, Datatype, Elements, Signature, Tensor, TensorSpec};

/// A session and what it takes and gives.
pub struct Onnx {
    session: Session,
    signature: Signature,
    halt: Halt,
}

/// The options of one run, by which another thread may end it.
struct Ending(RunOptions<HasSelectedOutputs>);

// SAFETY: ort keeps these options from being shared because outputs that were allocated beforehand would be written by
// two runs at once. None are here, and the other thread does nothing but set the flag that ends the run, which is what
// ONNX Runtime has it for ("can be called from another thread", OrtApi::RunOptionsSetTerminate).
#[expect(
    unsafe_code,
    reason = "ort has no handle of its own that ends a run with chosen outputs"
)]
unsafe impl Sync for Ending {}

impl Onnx {
    /// Loads a graph that will compute by these means.
    pub fn load(environment: &Environment, graph: &Path, means: &Means) -> Result<Onnx, Unloaded> {
        let session = open(environment, graph, means)?;
        let specs = |outlets: &[Outlet]| {
            let specs = outlets.iter().map(spec).collect::<Result<_, _>>();
            specs.map_err(Unloaded::Graph)
        };
        let signature = Signature {
            inputs: specs(session.inputs())?,
            outputs: specs(session.outputs())?,
        };
        Ok(Onnx {
            session,
            signature,
            halt: Halt::default(),
        })
    }
}

impl Engine for Onnx {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Result<Vec<Tensor>, Fault> {
        let Onnx {
            session,
            signature,
            halt,
        } = self;
        let mut values = Vec::with_capacity(inputs.len());
        for (spec, tensor) in signature.inputs.iter().zip(inputs) {
            let value = lend(tensor).map_err(fault)?;
            values.push((Cow::from(spec.name.as_str()), value));
        }
        let names: Vec<&str> = wanted
            .iter()
            .filter_map(|&index| Some(signature.outputs.get(index)?.name.as_str()))
            .collect();
        let selector = names
            .iter()
            .fold(OutputSelector::no_default(), |selector, name| {
                selector.with(*name)
            });
        let options = RunOptions::new().map_err(fault)?.with_outputs(selector);
        let options = Arc::new(Ending(options));
        let ending = Arc::clone(&options);
        // It fails only where there is no run to be ended.
        if !halt.begins(move || drop(ending.0.terminate())) {
            return Err(failed("the run was ended before it began"));
        }
        let ran = session.run_with_options(values, &options.0);
        halt.ended();
        let outputs = ran.map_err(|error| misfit(&error, &signature.inputs, inputs))?;
        names
            .iter()
            .map(|&name| match outputs.get(name) {
                Some(value) => take(name, value),
                None => Err(failed(format!("the engine gave no output `{name}`"))),
            })
            .collect()
    }

    fn halt(&self) -> Halt {
        self.halt.clone()
    }
}

fn open(environment: &Environment, graph: &Path, means: &Means) -> Result<Session, Unloaded> {
    let failed = |error: ort::Error| provider::failed(means.device, graph, error.message());
    let builder = begin(environment, means.threads).map_err(failed)?;
    let session = provider::register(builder, means)?.commit_from_file(graph);
    session.map_err(failed)
}

fn begin(environment: &Environment, threads: usize) -> ort::Result<SessionBuilder> {
    let builder = Session::builder(environment)?
        .with_intra_threads(threads)?
        .with_intra_op_spinning(false)?
        .with_memory_pattern(false)?
        .with_log_level(LogLevel::Fatal)?;
    Ok(builder)
}

fn spec(outlet: &Outlet) -> Result<TensorSpec, String> {
    let name = outlet.name();
    let ValueType::Tensor {
        ty,
        shape,
        dimension_symbols,
    } = outlet.dtype()
    else {
        return Err(format!(
            "`{name}` is a {}; only tensors are served",
            outlet.dtype()
        ));
    };
    let datatype = datatype(*ty).ok_or_else(|| {
        format!("`{name}` has elements of type {ty}, which the protocol has no name for")
    })?;
    let axes = shape
        .iter()
        .zip(dimension_symbols.iter())
        .map(|(&size, symbol)| match usize::try_from(size) {
            Ok(size) => Axis::Fixed(size),
            Err(_) => Axis::Free(symbol.clone()),
        })
        .collect();
    Ok(TensorSpec {
        name: name.to_owned(),
        datatype,
        axes,
    })
}

fn datatype(element: TensorElementType) -> Option<Datatype> {
    Some(match element {
        TensorElementType::Bool => Datatype::Bool,
        TensorElementType::Uint8 => Datatype::Uint8,
        TensorElementType::Uint16 => Datatype::Uint16,
        TensorElementType::Uint32 => Datatype::Uint32,
        TensorElementType::Uint64 => Datatype::Uint64,
        TensorElementType::Int8 => Datatype::Int8,
        TensorElementType::Int16 => Datatype::Int16,
        TensorElementType::Int32 => Datatype::Int32,
        TensorElementType::Int64 => Datatype::Int64,
        TensorElementType::Float16 => Datatype::Fp16,
        TensorElementType::Bfloat16 => Datatype::Bf16,
        TensorElementType::Float32 => Datatype::Fp32,
        TensorElementType::Float64 => Datatype::Fp64,
        TensorElementType::String => Datatype::Bytes,
        _ => return None,
    })
}

/// The tensor as the library sees it; its elements stay where they are, except strings, which it wants in a form of
/// its own.
fn lend(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    macro_rules! view {
        ($elements:expr) => {
            TensorRef::from_array_view((tensor.shape(), $elements.as_slice()))?.into()
        };
    }
    Ok(match tensor.elements() {
        Elements::Bool(elements) => view!(elements),
        Elements::Uint8(elements) => view!(elements),
        Elements::Uint16(elements) => view!(elements),
        Elements::Uint32(elements) => view!(elements),
        Elements::Uint64(elements) => view!(elements),
        Elements::Int8(elements) => view!(elements),
        Elements::Int16(elements) => view!(elements),
        Elements::Int32(elements) => view!(elements),
        Elements::Int64(elements) => view!(elements),
        Elements::Fp16(elements) => view!(elements),
        Elements::Fp32(elements) => view!(elements),
        Elements::Fp64(elements) => view!(elements),
        Elements::Bf16(elements) => view!(elements),
        Elements::Bytes(elements) => {
            let shaped = (tensor.shape(), elements.as_slice());
            ort::value::Tensor::from_string_array(shaped)?.into()
        }
    })
}

/// A copy of an output.
fn take(name: &str, value: &DynValue) -> Result<Tensor, Fault> {
    macro_rules! copy {
        ($variant:ident) => {{
            let (shape, elements) = value.try_extract_tensor().map_err(fault)?;
            (shape, Elements::$variant(elements.to_vec()))
        }};
    }
    let element = value.dtype().tensor_type().and_then(datatype);
    let (shape, elements) = match element {
        Some(Datatype::Bool) => copy!(Bool),
        Some(Datatype::Uint8) => copy!(Uint8),
        Some(Datatype::Uint16) => copy!(Uint16),
        Some(Datatype::Uint32) => copy!(Uint32),
        Some(Datatype::Uint64) => copy!(Uint64),
        Some(Datatype::Int8) => copy!(Int8),
        Some(Datatype::Int16) => copy!(Int16),
        Some(Datatype::Int32) => copy!(Int32),
        Some(Datatype::Int64) => copy!(Int64),
        Some(Datatype::Fp16) => copy!(Fp16),
        Some(Datatype::Fp32) => copy!(Fp32),
        Some(Datatype::Fp64) => copy!(Fp64),
        Some(Datatype::Bf16) => copy!(Bf16),
        Some(Datatype::Bytes) => {
            let (shape, strings) = value.try_extract_strings().map_err(fault)?;
            (shape, Elements::Bytes(strings))
        }
        None => {
            return Err(failed(format!(
                "output `{name}` has elements that the protocol has no name for"
            )));
        }
    };
    let sizes: Result<Vec<usize>, _> = shape.iter().map(|&size| usize::try_from(size)).collect();
    sizes
        .ok()
        .and_then(|shape| Tensor::new(shape, elements))
        .ok_or_else(|| failed(format!("output `{name}` has an impossible shape")))
}

/// Why a graph did not run: what the request brought, unless the machine was the cause.
fn misfit(error: &ort::Error, specs: &[TensorSpec], inputs: &[Tensor]) -> Fault {
    let message = error.message();
    let starved = ["allocate memory", "bad_alloc"]
        .iter()
        .any(|words| message.contains(words));
    match error.code() {
        ErrorCode::InvalidArgument | ErrorCode::GenericFailure | ErrorCode::RuntimeException
            if !starved =>
        {
            let came: Vec<String> = specs
                .iter()
                .zip(inputs)
                .map(|(spec, tensor)| format!("`{}` {:?}", spec.name, tensor.shape()))
                .collect();
            let came = came.join(", ");
            Fault::bad(format!("the model can't take {came}: {message}"))
        }
        _ => failed(message),
    }
}

fn fault(error: ort::Error) -> Fault {
    failed(error.message())
}

fn failed(message: impl Into<String>) -> Fault {
    Fault::new(Kind::EngineFailed, message)
}
