//! Whether a request fits the model, before the engine sees it.
//!
//! One place for all front doors: names, element types, ranks, fixed sizes, and axes of one name being of one size.
//! Everything refused here names the tensor, what came and what was expected.
//!
//! An axis of size 0 is refused unless the graph itself fixes it at 0. Most graphs fail on it somewhere inside, which
//! looks like an ill worker from outside, and an answer to nothing helps nobody. The price: a decoder that wants an
//! empty cache with its first token can't be given one.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::tensor::{Axis, Datatype, Elements, Signature, Tensor, TensorSpec, volume};

/// A tensor and the name that the client gave it.
#[derive(Debug, PartialEq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its shape and elements.
    pub tensor: Tensor,
}

/// How an output is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// As bytes, not as JSON.
    pub binary: bool,
    /// The so many highest of its values, with what they stand for, instead of all.
    pub classes: Option<usize>,
}

/// An output that a client asked for by name.
#[derive(Debug, PartialEq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// How it is wanted.
    pub form: Form,
}

/// A tensor from what a client sent, if its shape and its number of elements agree.
pub fn tensor(name: &str, shape: &[i64], elements: Elements) -> Result<Tensor, Fault> {
    let misfit =
        |expected: String| Fault::bad(format!("input `{name}` has shape {shape:?}; {expected}"));
    let sizes: Result<Vec<usize>, _> = shape.iter().map(|&size| usize::try_from(size)).collect();
    let sizes = sizes.map_err(|_| misfit("expected sizes of at least 1".into()))?;
    let count = elements.len();
    let Some(volume) = volume(&sizes) else {
        let beyond = format!("expected as many elements as came, which is {count}");
        return Err(misfit(beyond));
    };
    let unequal = || misfit(format!("expected {volume} elements, not {count}"));
    Tensor::new(sizes, elements).ok_or_else(unequal)
}

/// The inputs in the model's own order. `may_be_empty` tells of which axes, where any size goes, none is a size.
pub fn inputs(
    signature: &Signature,
    mut given: Vec<Named>,
    may_be_empty: impl Fn(usize) -> bool,
) -> Result<Vec<Tensor>, Fault> {
    let mut sizes = BTreeMap::new();
    let mut ordered = Vec::with_capacity(signature.inputs.len());
    for spec in &signature.inputs {
        let place = given.iter().position(|input| input.name == spec.name);
        let Some(place) = place else {
            let (name, expected) = (&spec.name, names(&signature.inputs));
            let strange =
                |input: &&Named| !signature.inputs.iter().any(|one| one.name == input.name);
            let stranger = given.iter().find(strange);
            let instead = stranger.map_or_else(String::new, |input| {
                format!(", and `{}` is none of its inputs", input.name)
            });
            return Err(Fault::bad(format!(
                "input `{name}` is missing{instead}; the model takes {expected}"
            )));
        };
        let tensor = given.swap_remove(place).tensor;
        check(spec, &tensor, &may_be_empty, &mut sizes)?;
        ordered.push(tensor);
    }
    match given.first() {
        Some(extra) => {
            let (name, expected) = (&extra.name, names(&signature.inputs));
            let problem =
                format!("input `{name}` is unknown or given twice; the model takes {expected}");
            Err(Fault::bad(problem))
        }
        None => Ok(ordered),
    }
}

/// Indices of the outputs that the client asked for, each in the form it is wanted in; all when it named none.
pub fn outputs(
    signature: &Signature,
    asked: Vec<Wanted>,
    otherwise: Form,
) -> Result<Vec<(usize, Form)>, Fault> {
    let all = &signature.outputs;
    let mut wanted: Vec<(usize, Form)> = Vec::with_capacity(all.len());
    for Wanted { name, form } in &asked {
        let place = all.iter().position(|spec| spec.name == *name);
        match place {
            Some(place) if !wanted.iter().any(|(taken, _)| *taken == place) => {
                wanted.push((place, *form));
            }
            _ => {
                let known = names(all);
                let problem = format!(
                    "output `{name}` is unknown or asked for twice; the model gives {known}"
                );
                return Err(Fault::bad(problem));
            }
        }
    }
    if asked.is_empty() {
        wanted = (0..all.len()).map(|place| (place, otherwise)).collect();
    }
    match wanted
        .iter()
        .find_map(|&(place, form)| misfit(&all[place], form))
    {
        Some(problem) => Err(Fault::bad(problem)),
        None => Ok(wanted),
    }
}

/// Why an output can't be given in this form.
fn misfit(spec: &TensorSpec, form: Form) -> Option<String> {
    let TensorSpec { name, datatype, .. } = spec;
    match (datatype, form.classes) {
        (Datatype::Bool | Datatype::Bytes | Datatype::Fp16 | Datatype::Bf16, Some(_)) => {
            Some(format!(
                "output `{name}` is {datatype}, which has no classes; leave `classification` out"
            ))
        }
        (Datatype::Fp16 | Datatype::Bf16, None) if !form.binary => Some(format!(
            "output `{name}` is {datatype}, which JSON can't carry; ask for it as binary data, or for other outputs"
        )),
        _ => None,
    }
}

/// Whether a request has no more rows than the model takes at once.
pub fn rows(most: Option<usize>, inputs: &[Tensor]) -> Result<(), Fault> {
    let Some(most) = most.filter(|most| *most > 0) else {
        return Ok(());
    };
    match inputs.first().map_or(1, Tensor::rows) {
        rows if rows > most => Err(Fault::bad(format!(
            "the request has {rows} rows; the model takes at most {most} (max_batch_size)"
        ))),
        _ => Ok(()),
    }
}

fn check<'a>(
    spec: &'a TensorSpec,
    tensor: &Tensor,
    may_be_empty: &impl Fn(usize) -> bool,
    sizes: &mut BTreeMap<&'a str, usize>,
) -> Result<(), Fault> {
    let name = &spec.name;
    let (came, expected) = (tensor.elements().datatype(), spec.datatype);
    if came != expected {
        let problem = format!("input `{name}` is {came}; the model takes {expected}");
        return Err(Fault::bad(problem));
    }
    if let Elements::Bytes(strings) = tensor.elements()
        && strings.iter().any(|string| string.contains('\0'))
    {
        let problem =
            format!("input `{name}` holds a zero byte, which ends a string for the engine");
        return Err(Fault::bad(problem));
    }
    let shape = tensor.shape();
    let misfit = |more: &str| {
        let expected = spec.kserve_shape();
        Fault::bad(format!(
            "input `{name}` has shape {shape:?}; the model takes {expected:?}{more}"
        ))
    };
    if shape.len() != spec.axes.len() {
        return Err(misfit(""));
    }
    for (place, (axis, &size)) in spec.axes.iter().zip(shape).enumerate() {
        match axis {
            Axis::Fixed(fixed) if *fixed != size => return Err(misfit("")),
            Axis::Free(_) if size == 0 && !may_be_empty(place) => {
                return Err(misfit(&format!(", and at least 1 on axis {place}")));
            }
            Axis::Free(symbol) if !symbol.is_empty() => {
                let agreed = *sizes.entry(symbol).or_insert(size);
                if agreed != size {
                    let more = format!(", and {agreed} was given for `{symbol}` before");
                    return Err(misfit(&more));
                }
            }
            Axis::Fixed(_) | Axis::Free(_) => {}
        }
    }
    Ok(())
}

fn names(specs: &[TensorSpec]) -> String {
    let quoted: Vec<String> = specs
        .iter()
        .map(|spec| format!("`{}`", spec.name))
        .collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, datatype: Datatype, axes: Vec<Axis>) -> TensorSpec {
        TensorSpec {
            name: name.into(),
            datatype,
            axes,
        }
    }

    fn signature() -> Signature {
        let batch = || Axis::Free("batch".into());
        Signature {
            inputs: vec![
                spec("a", Datatype::Fp32, vec![batch(), Axis::Fixed(2)]),
                spec("b", Datatype::Bytes, vec![batch()]),
            ],
            outputs: vec![
                spec("y", Datatype::Fp32, vec![batch()]),
                spec("half", Datatype::Fp16, vec![batch()]),
            ],
        }
    }

    fn a(shape: &[usize]) -> Named {
        let elements = Elements::Fp32(vec![0.0; shape.iter().product()]);
        Named {
            name: "a".into(),
            tensor: Tensor::new(shape.to_vec(), elements).unwrap(),
        }
    }

    fn b(words: &[&str]) -> Named {
        let elements = Elements::Bytes(words.iter().map(|word| (*word).to_owned()).collect());
        Named {
            name: "b".into(),
            tensor: Tensor::new(vec![words.len()], elements).unwrap(),
        }
    }

    fn refusal(given: Vec<Named>) -> String {
        inputs(&signature(), given, |_| false).unwrap_err().message
    }

    #[test]
    fn inputs_come_out_in_the_models_order() {
        let ordered = inputs(&signature(), vec![b(&["x"]), a(&[1, 2])], |_| false).unwrap();
        assert_eq!(ordered[0].shape(), [1, 2]);
        assert_eq!(ordered[1].shape(), [1]);
    }

    #[test]
    fn misfits_are_named() {
        assert!(refusal(vec![a(&[1, 2])]).contains("`b` is missing"));
        assert!(refusal(vec![a(&[1, 2]), b(&["x"]), b(&["x"])]).contains("given twice"));
        assert!(refusal(vec![a(&[1, 3]), b(&["x"])]).contains("takes [-1, 2]"));
        assert!(refusal(vec![a(&[2]), b(&["x"])]).contains("has shape [2]"));
        assert!(refusal(vec![a(&[1, 2]), b(&["x", "y"])]).contains("1 was given for `batch`"));
        assert!(refusal(vec![a(&[1, 2]), b(&["x\0y"])]).contains("zero byte"));
        let renamed = Named {
            name: "b".into(),
            ..a(&[1, 2])
        };
        assert!(refusal(vec![a(&[1, 2]), renamed]).contains("is FP32; the model takes BYTES"));
        let strange = Named {
            name: "c".into(),
            ..a(&[1, 2])
        };
        let said = refusal(vec![a(&[1, 2]), strange]);
        assert_eq!(
            said,
            "input `b` is missing, and `c` is none of its inputs; the model takes `a`, `b`"
        );
    }

    #[test]
    fn outputs_are_given_in_a_form_that_can_carry_them() {
        let (json, raw) = (
            Form::default(),
            Form {
                binary: true,
                classes: None,
            },
        );
        let best = Form {
            binary: true,
            classes: Some(2),
        };
        let asked = |names: &[&str], form: Form| {
            let wanted = names.iter().map(|name| Wanted {
                name: (*name).to_owned(),
                form,
            });
            outputs(&signature(), wanted.collect(), form)
        };
        assert_eq!(asked(&["y"], json).unwrap(), [(0, json)]);
        assert_eq!(asked(&["half", "y"], raw).unwrap(), [(1, raw), (0, raw)]);
        assert_eq!(asked(&[], raw).unwrap().len(), 2);
        for (names, form) in [
            (&["none"][..], raw),
            (&["y", "y"], raw),
            (&["half"], json),
            (&[], json),
            (&["half"], best),
        ] {
            assert!(asked(names, form).is_err(), "{names:?} {form:?}");
        }
    }
}
