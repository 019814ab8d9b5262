//! An engine seen through what `config.pbtxt` declares of it: axes that are narrower than the graph's, outputs left
//! out, and tensors that clients see in another shape than the graph.
//!
//! Everything is checked once, when the model is loaded: each declared tensor exists, is of the graph's type, and has
//! as many axes as the graph, one of which is the batch where there is one. A reshape keeps the batch axis; its -1s
//! take the sizes of the -1s in `dims`, in order, as Triton defines it.

use crate::engine::Engine;
use crate::engine::halt::Halt;
use crate::fault::{Fault, Kind, there_are};
use crate::repository::{Config, Declared};
use crate::tensor::{Axis, Signature, Tensor, TensorSpec};

/// The name of the batch axis of a model whose batch size was typed.
const BATCH: &str = "batch";

/// An engine and how clients see it.
pub struct View {
    inner: Box<dyn Engine>,
    signature: Signature,
    inputs: Vec<Option<Reshape>>,
    /// For each output that clients see, its place in the graph and how it is turned.
    outputs: Vec<(usize, Option<Reshape>)>,
}

/// From one shape to another; -1 takes the size of the other side's -1.
struct Reshape {
    from: Vec<i64>,
    to: Vec<i64>,
}

impl Reshape {
    fn turn(&self, tensor: Tensor) -> Option<Tensor> {
        let sizes = tensor.shape().iter().zip(&self.from);
        let mut free = sizes.filter(|(_, from)| **from < 0).map(|(size, _)| *size);
        let shape: Option<Vec<usize>> = self
            .to
            .iter()
            .map(|&to| usize::try_from(to).ok().or_else(|| free.next()))
            .collect();
        drop(free);
        tensor.with_shape(shape?)
    }
}

impl View {
    /// Looks at an engine through a configuration, or says why they don't fit.
    pub fn fit(inner: Box<dyn Engine>, config: &Config) -> Result<View, String> {
        let batched = config.max_batch_size.is_some_and(|size| size > 0);
        check_names(inner.signature(), config)?;
        let mut view = View {
            signature: Signature {
                inputs: vec![],
                outputs: vec![],
            },
            inputs: vec![],
            outputs: vec![],
            inner,
        };
        let graph = view.inner.signature();
        for spec in &graph.inputs {
            let declared = find(&config.inputs, &spec.name);
            let (seen, reshape) = see(spec, declared, batched)?;
            view.signature.inputs.push(seen);
            view.inputs.push(reshape);
        }
        for (place, spec) in graph.outputs.iter().enumerate() {
            let declared = find(&config.outputs, &spec.name);
            if declared.is_none() && !config.outputs.is_empty() {
                continue;
            }
            let (seen, reshape) = see(spec, declared, batched)?;
            view.signature.outputs.push(seen);
            view.outputs.push((
                place,
                reshape.map(|Reshape { from, to }| Reshape { from: to, to: from }),
            ));
        }
        Ok(view)
    }
}

impl Engine for View {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Result<Vec<Tensor>, Fault> {
        let turned: Vec<Tensor>;
        let inputs = if self.inputs.iter().any(Option::is_some) {
            let turn = |(tensor, reshape): (&Tensor, &Option<Reshape>)| match reshape {
                Some(reshape) => reshape.turn(tensor.clone()).ok_or_else(|| {
                    Fault::bad(format!(
                        "{:?} can't be reshaped to {:?}",
                        tensor.shape(),
                        reshape.to
                    ))
                }),
                None => Ok(tensor.clone()),
            };
            turned = inputs
                .iter()
                .zip(&self.inputs)
                .map(turn)
                .collect::<Result<_, _>>()?;
            &turned[..]
        } else {
            inputs
        };
        let seen: Vec<&(usize, Option<Reshape>)> = wanted
            .iter()
            .filter_map(|&index| self.outputs.get(index))
            .collect();
        let places: Vec<usize> = seen.iter().map(|(place, _)| *place).collect();
        let outputs = self.inner.run(inputs, &places)?;
        let turn = |(tensor, (_, reshape)): (Tensor, &&(usize, Option<Reshape>))| match reshape {
            Some(reshape) => reshape.turn(tensor).ok_or_else(|| {
                let problem = format!("an output can't be reshaped to {:?}", reshape.to);
                Fault::new(Kind::EngineFailed, problem)
            }),
            None => Ok(tensor),
        };
        outputs.into_iter().zip(&seen).map(turn).collect()
    }

    fn halt(&self) -> Halt {
        self.inner.halt()
    }
}

/// Whether what is declared is there, and all that the graph takes is declared.
fn check_names(graph: &Signature, config: &Config) -> Result<(), String> {
    for (whose, declared, specs) in [
        ("input", &config.inputs, &graph.inputs),
        ("output", &config.outputs, &graph.outputs),
    ] {
        let unknown = |tensor: &&Declared| !specs.iter().any(|spec| spec.name == tensor.name);
        if let Some(tensor) = declared.iter().find(unknown) {
            let known: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
            let (name, there) = (&tensor.name, there_are(&known));
            return Err(format!(
                "config.pbtxt: the graph has no {whose} `{name}`; {there}"
            ));
        }
    }
    // After what is not there, which is often the same input under another name.
    let missing = graph
        .inputs
        .iter()
        .find(|spec| find(&config.inputs, &spec.name).is_none());
    match missing.filter(|_| !config.inputs.is_empty()) {
        None => Ok(()),
        Some(TensorSpec { name, .. }) => Err(format!(
            "config.pbtxt leaves out the graph's input `{name}`"
        )),
    }
}

fn find<'a>(declared: &'a [Declared], name: &str) -> Option<&'a Declared> {
    declared.iter().find(|tensor| tensor.name == name)
}

/// A tensor of the graph as clients see it.
fn see(
    spec: &TensorSpec,
    declared: Option<&Declared>,
    batched: bool,
) -> Result<(TensorSpec, Option<Reshape>), String> {
    let name = &spec.name;
    let batch = batch_axis(spec, batched)?;
    let Some(declared) = declared else {
        let mut seen = spec.clone();
        if let (Some(batch), Some(first)) = (batch, seen.axes.first_mut()) {
            *first = batch;
        }
        return Ok((seen, None));
    };
    if declared
        .datatype
        .is_some_and(|datatype| datatype != spec.datatype)
    {
        return Err(format!(
            "config.pbtxt: `{name}` is {} in the graph",
            spec.datatype
        ));
    }
    let graph = &spec.axes[usize::from(batched)..];
    let inner = declared.reshape.as_ref().unwrap_or(&declared.dims);
    let narrowed = narrow(inner, graph).ok_or_else(|| {
        let shape = spec.kserve_shape();
        format!("config.pbtxt: `{name}` has {inner:?}, which does not fit the graph's {shape:?}")
    })?;
    let rest = match &declared.reshape {
        None => narrowed,
        Some(shape) => turned(name, &declared.dims, shape)?,
    };
    let reshape = declared.reshape.as_ref().map(|shape| {
        let whole = |sizes: &[i64]| {
            batch
                .iter()
                .map(|_| -1)
                .chain(sizes.iter().copied())
                .collect()
        };
        Reshape {
            from: whole(&declared.dims),
            to: whole(shape),
        }
    });
    let seen = TensorSpec {
        name: name.clone(),
        datatype: spec.datatype,
        axes: batch.into_iter().chain(rest).collect(),
    };
    Ok((seen, reshape))
}

/// The batch axis that clients see, where there is to be one.
fn batch_axis(spec: &TensorSpec, batched: bool) -> Result<Option<Axis>, String> {
    match spec.axes.first() {
        _ if !batched => Ok(None),
        Some(Axis::Free(_)) => Ok(Some(Axis::Free(BATCH.into()))),
        _ => {
            let (name, shape) = (&spec.name, spec.kserve_shape());
            Err(format!(
                "max_batch_size: `{name}` has shape {shape:?} in the graph; expected -1 first, or max_batch_size: 0"
            ))
        }
    }
}

/// The axes that both allow; `None` where they exclude each other.
fn narrow(dims: &[i64], graph: &[Axis]) -> Option<Vec<Axis>> {
    let one = |(&size, axis): (&i64, &Axis)| match (usize::try_from(size), axis) {
        (Err(_), axis) => Some(axis.clone()),
        (Ok(size), Axis::Free(_)) => Some(Axis::Fixed(size)),
        (Ok(size), Axis::Fixed(fixed)) => (size == *fixed).then_some(Axis::Fixed(size)),
    };
    let same = dims.len() == graph.len();
    let axes: Option<Vec<Axis>> = dims.iter().zip(graph).map(one).collect();
    axes.filter(|_| same)
}

/// The axes that clients see of a tensor that is reshaped; both sides hold as many elements.
fn turned(name: &str, dims: &[i64], shape: &[i64]) -> Result<Vec<Axis>, String> {
    let free = |sizes: &[i64]| sizes.iter().filter(|size| **size < 0).count();
    let fixed = |sizes: &[i64]| -> i128 {
        let sizes = sizes.iter().filter(|size| **size > 0);
        sizes.fold(1, |product: i128, &size| {
            product.saturating_mul(size.into())
        })
    };
    if free(dims) != free(shape) || fixed(dims) != fixed(shape) {
        return Err(format!(
            "config.pbtxt: `{name}` has dims {dims:?} and reshape {shape:?}, which differ in elements"
        ));
    }
    let axis = |&size: &i64| usize::try_from(size).map_or(Axis::Free(String::new()), Axis::Fixed);
    Ok(dims.iter().map(axis).collect())
}
