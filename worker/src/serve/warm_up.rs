//! What a model runs before it is ready: the warm-ups of its `config.pbtxt` and the batches of its `model.toml`.
//!
//! Each instance runs them all, since each has a session of its own. One that fails makes the load fail: a model that
//! can't answer what its owner wrote down would fail its first client otherwise. They are not counted as requests;
//! Triton 2.51 does count them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use half::{bf16, f16};

use crate::engine::Engine;
use crate::line::Embedder;
use crate::repository::{Filling, ModelPlan, SequencePlan, State, Warmup, With};
use crate::tensor::{Axis, Datatype, Elements, Signature, Tensor, TensorSpec, volume};

/// The sizes of inputs that take any, by their names, without the rows.
pub type Sizes = BTreeMap<String, Vec<usize>>;

/// Runs a model's warm-ups on one of its instances.
pub fn warm_up(
    engine: &mut dyn Engine,
    plan: &ModelPlan,
    embedder: Option<&Embedder>,
) -> Result<(), String> {
    for warmup in &plan.config.warmups {
        let name = &warmup.name;
        let told = |problem| format!("model_warmup \"{name}\": {problem}");
        let inputs = described(engine.signature(), plan, warmup).map_err(told)?;
        for _ in 0..warmup.count {
            run(engine, &inputs).map_err(told)?;
        }
    }
    for &rows in &plan.warmup {
        let warmed = match embedder {
            Some(embedder) => embedder.warm(engine, rows),
            None => {
                batch_of_zeros(engine.signature(), rows).and_then(|inputs| run(engine, &inputs))
            }
        };
        warmed.map_err(|problem| format!("warmup: {rows} rows: {problem}"))?;
    }
    Ok(())
}

fn run(engine: &mut dyn Engine, inputs: &[Tensor]) -> Result<(), String> {
    let wanted: Vec<usize> = (0..engine.signature().outputs.len()).collect();
    let outcome = engine.run(inputs, &wanted);
    outcome.map(drop).map_err(|fault| fault.message)
}

/// The inputs that a warm-up describes, in the model's order.
fn described(
    signature: &Signature,
    plan: &ModelPlan,
    warmup: &Warmup,
) -> Result<Vec<Tensor>, String> {
    let given = &warmup.inputs;
    let unknown = |filling: &&Filling| {
        !signature
            .inputs
            .iter()
            .any(|spec| spec.name == filling.name)
    };
    if let Some(Filling { name, .. }) = given.iter().find(unknown) {
        return Err(format!("the model has no input `{name}`"));
    }
    let has_rows = plan.config.max_batch_size != Some(0) && signature.batches();
    let rows = has_rows.then_some(warmup.rows);
    let folder = plan.folder.join("warmup");
    let one = |spec: &TensorSpec| {
        let filling = given.iter().find(|filling| filling.name == spec.name);
        let filling = filling.ok_or_else(|| format!("input `{}` is missing", spec.name))?;
        if filling.datatype != spec.datatype {
            return Err(format!("`{}` is {} in the graph", spec.name, spec.datatype));
        }
        fill(filling, rows, &folder)
    };
    signature.inputs.iter().map(one).collect()
}

/// What a model's sequences begin with, each state of one row where the model has rows.
pub fn first_states(plan: &SequencePlan, rows: bool, folder: &Path) -> Result<Vec<Tensor>, String> {
    let folder = folder.join("initial_state");
    let fill_one = |state: &State| {
        let filling = Filling {
            name: state.input.clone(),
            datatype: state.datatype,
            dims: state.first.clone(),
            with: state.file.clone().map_or(With::Zeros, With::File),
        };
        let filled = fill(&filling, rows.then_some(1), &folder);
        filled.map_err(|problem| format!("initial_state: {problem}"))
    };
    plan.states.iter().map(fill_one).collect()
}

/// One input: so many equal rows, of a model that has rows.
fn fill(filling: &Filling, rows: Option<usize>, folder: &Path) -> Result<Tensor, String> {
    let Filling {
        name,
        datatype,
        dims,
        with,
    } = filling;
    let shape: Vec<usize> = rows
        .map(|_| 1)
        .into_iter()
        .chain(dims.iter().copied())
        .collect();
    let misfit = || format!("`{name}`: the data is not of shape {shape:?}");
    let count = volume(&shape).ok_or_else(misfit)?;
    let elements = match with {
        With::Zeros => elements(*datatype, &vec![0.0; count]),
        With::Random => elements(*datatype, &noise(count)),
        With::File(file) => {
            let path = folder.join(file);
            let row = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            Elements::from_raw(*datatype, &row).map_err(|problem| format!("`{name}`: {problem}"))?
        }
    };
    let one = Tensor::new(shape.clone(), elements).ok_or_else(misfit)?;
    match rows {
        Some(rows) => Tensor::join(vec![one; rows]).ok_or_else(misfit),
        None => Ok(one),
    }
}

/// A batch of zeros, of a model of which all other sizes are fixed.
fn batch_of_zeros(signature: &Signature, rows: usize) -> Result<Vec<Tensor>, String> {
    let way_out = "describe a warm-up in the model's config.pbtxt";
    if !signature.batches() {
        return Err(format!("the model has no rows; {way_out}"));
    }
    let filled = zeros(signature, Some(rows), &Sizes::new());
    filled.map_err(|problem| format!("{problem}; {way_out}"))
}

/// Zeros for every input, in so many rows where the model has rows. `sizes` gives the further axes of inputs that take
/// any size there.
pub fn zeros(
    signature: &Signature,
    rows: Option<usize>,
    sizes: &Sizes,
) -> Result<Vec<Tensor>, String> {
    let one = |spec: &TensorSpec| {
        let own = spec.axes.iter().skip(usize::from(rows.is_some()));
        let shape: Vec<usize> = match sizes.get(&spec.name) {
            Some(given) => fit(spec, own.collect(), given)?,
            None => own
                .map(|axis| fixed(spec, axis))
                .collect::<Result<_, _>>()?,
        };
        let shape: Vec<usize> = rows.into_iter().chain(shape).collect();
        let count = volume(&shape).ok_or("it is too large")?;
        let elements = elements(spec.datatype, &vec![0.0; count]);
        Tensor::new(shape, elements).ok_or_else(|| "it is too large".into())
    };
    signature.inputs.iter().map(one).collect()
}

fn fixed(spec: &TensorSpec, axis: &Axis) -> Result<usize, String> {
    match axis {
        Axis::Fixed(size) => Ok(*size),
        Axis::Free(_) => Err(format!("`{}` takes any size", spec.name)),
    }
}

/// These sizes, if the axes may have them.
fn fit(spec: &TensorSpec, axes: Vec<&Axis>, sizes: &[usize]) -> Result<Vec<usize>, String> {
    let may = |(axis, size): (&&Axis, &usize)| !matches!(axis, Axis::Fixed(only) if only != size);
    if axes.len() == sizes.len() && axes.iter().zip(sizes).all(may) {
        return Ok(sizes.to_vec());
    }
    let (name, shape) = (&spec.name, spec.kserve_shape());
    Err(format!(
        "`{name}` is of shape {shape:?}, into which {sizes:?} does not fit"
    ))
}

/// So many numbers from 0 to 1, the same each time (splitmix64).
fn noise(count: usize) -> Vec<f64> {
    let mut state = 0u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    };
    (0..count).map(|_| next()).collect()
}

/// Elements of such values; whole numbers are rounded, strings are empty.
fn elements(datatype: Datatype, values: &[f64]) -> Elements {
    macro_rules! whole {
        ($variant:ident) => {
            Elements::$variant(values.iter().map(|value| value.round() as _).collect())
        };
    }
    match datatype {
        Datatype::Bool => Elements::Bool(values.iter().map(|value| *value >= 0.5).collect()),
        Datatype::Uint8 => whole!(Uint8),
        Datatype::Uint16 => whole!(Uint16),
        Datatype::Uint32 => whole!(Uint32),
        Datatype::Uint64 => whole!(Uint64),
        Datatype::Int8 => whole!(Int8),
        Datatype::Int16 => whole!(Int16),
        Datatype::Int32 => whole!(Int32),
        Datatype::Int64 => whole!(Int64),
        Datatype::Fp16 => Elements::Fp16(values.iter().copied().map(f16::from_f64).collect()),
        Datatype::Fp32 => Elements::Fp32(values.iter().map(|value| *value as f32).collect()),
        Datatype::Fp64 => Elements::Fp64(values.to_vec()),
        Datatype::Bf16 => Elements::Bf16(values.iter().copied().map(bf16::from_f64).collect()),
        Datatype::Bytes => Elements::Bytes(vec![String::new(); values.len()]),
    }
}
