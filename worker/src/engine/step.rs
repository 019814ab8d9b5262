//! The built-in steps as engines, so that one is loaded, asked, queued and counted like any model, alone or in an
//! ensemble.
//!
//! Every tensor begins with the batch, and where a row has one value, its axis is 1, as Triton's `dims` want it. A step
//! runs each request by itself: a graph is worth being batched for, but joining what a step takes only copies it, and
//! texts that share a batch would be filled up to the longest of them all.
//!
//! A tokeniser's ids of different lengths keep requests from sharing a batch of the model behind it; `padding:
//! "max_length"` and `pad_to_multiple_of` make them alike, at the price of computing the padding.

use crate::engine::Engine;
use crate::fault::Fault;
use crate::repository::Step;
use crate::tensor::{Axis, Datatype, Elements, Signature, Tensor, TensorSpec};
use crate::text::{Feed, Reader, Row, activate, pool, to_unit_length};
use crate::units::{Activation, Padding, Pooling};

/// What a tokeniser gives, in order.
const FEEDS: [(&str, Feed); 3] = [
    ("input_ids", Feed::Ids),
    ("attention_mask", Feed::Mask),
    ("token_type_ids", Feed::Types),
];

/// A step and what it takes and gives.
pub struct BuiltIn {
    signature: Signature,
    work: Work,
}

/// A step with what it needs at hand.
enum Work {
    Tokenize(Box<Reader>, Padding),
    Detokenize(Box<Reader>, bool),
    Pool(Pooling),
    Normalize,
    Activate(Activation),
    Argmax,
    Label(Vec<String>),
    Threshold(f32),
}

impl BuiltIn {
    /// A step that is ready to run.
    pub fn open(step: &Step) -> Result<BuiltIn, String> {
        let reader = |path, max_tokens| {
            let reader = Reader::open(path, max_tokens);
            let told = |problem| format!("tokenizer: {}: {problem}", path.display());
            reader.map(Box::new).map_err(told)
        };
        let work = match step {
            Step::Tokenize {
                tokenizer,
                max_tokens,
                padding,
            } => Work::Tokenize(reader(tokenizer, *max_tokens)?, *padding),
            Step::Detokenize {
                tokenizer,
                skip_special_tokens,
            } => Work::Detokenize(reader(tokenizer, None)?, *skip_special_tokens),
            Step::Pool(pooling) => Work::Pool(*pooling),
            Step::Normalize => Work::Normalize,
            Step::Activate(activation) => Work::Activate(*activation),
            Step::Argmax => Work::Argmax,
            Step::Label(labels) => Work::Label(labels.clone()),
            Step::Threshold(least) => Work::Threshold(*least),
        };
        let signature = work.signature();
        Ok(BuiltIn { signature, work })
    }
}

impl Engine for BuiltIn {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Result<Vec<Tensor>, Fault> {
        let outputs = self.work.run(inputs).map_err(Fault::bad)?;
        let wanted = wanted.iter().filter_map(|&place| outputs.get(place));
        Ok(wanted.cloned().collect())
    }
}

impl Work {
    fn signature(&self) -> Signature {
        use Datatype::{Bool, Bytes, Fp32, Int64};
        let mask = || spec("attention_mask", Int64, WIDE);
        let states = || spec("last_hidden_state", Fp32, &["batch", "", ""]);
        let (inputs, outputs) = match self {
            Work::Tokenize(..) => (
                vec![spec("TEXT", Bytes, NARROW)],
                FEEDS.map(|(name, _)| spec(name, Int64, WIDE)).to_vec(),
            ),
            Work::Detokenize(..) => (
                vec![spec("input_ids", Int64, WIDE)],
                vec![spec("TEXT", Bytes, NARROW)],
            ),
            Work::Pool(Pooling::Mean) => (
                vec![states(), mask()],
                vec![spec("sentence_embedding", Fp32, WIDE)],
            ),
            Work::Pool(_) => (vec![states()], vec![spec("sentence_embedding", Fp32, WIDE)]),
            Work::Normalize | Work::Activate(_) => (
                vec![spec("INPUT", Fp32, WIDE)],
                vec![spec("OUTPUT", Fp32, WIDE)],
            ),
            Work::Argmax => (
                vec![spec("INPUT", Fp32, WIDE)],
                vec![spec("INDEX", Int64, NARROW), spec("VALUE", Fp32, NARROW)],
            ),
            Work::Label(_) => (
                vec![spec("INDEX", Int64, WIDE)],
                vec![spec("LABEL", Bytes, WIDE)],
            ),
            Work::Threshold(_) => (
                vec![spec("INPUT", Fp32, WIDE)],
                vec![spec("OUTPUT", Bool, WIDE)],
            ),
        };
        Signature { inputs, outputs }
    }

    /// All outputs, or what is wrong with the inputs.
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        let Some(first) = inputs.first() else {
            return Err("no input came".into());
        };
        match self {
            Work::Tokenize(reader, padding) => tokenize(reader, *padding, strings(first)?),
            Work::Detokenize(reader, skip_special_tokens) => {
                let write = |ids: &[i64]| reader.write(ids, *skip_special_tokens);
                let texts: Result<_, String> = rows(first, whole(first)?).map(write).collect();
                one(vec![first.rows(), 1], Elements::Bytes(texts?))
            }
            Work::Pool(pooling) => pooled(first, inputs.get(1), *pooling),
            Work::Normalize => each_row(first, to_unit_length),
            Work::Activate(activation) => each_row(first, |row| activate(row, *activation)),
            Work::Argmax => argmax(first),
            Work::Label(labels) => {
                let label = |place: &i64| {
                    let label = usize::try_from(*place).ok().and_then(|at| labels.get(at));
                    let count = labels.len();
                    let none = || format!("INDEX holds {place}; there are {count} labels, from 0");
                    label.cloned().ok_or_else(none)
                };
                let named: Result<_, String> = whole(first)?.iter().map(label).collect();
                one(first.shape().to_vec(), Elements::Bytes(named?))
            }
            Work::Threshold(least) => {
                let passed = floats(first)?.iter().map(|score| score >= least);
                one(first.shape().to_vec(), Elements::Bool(passed.collect()))
            }
        }
    }
}

/// A value for each row.
const NARROW: &[&str] = &["batch", "1"];

/// A list for each row.
const WIDE: &[&str] = &["batch", ""];

/// A tensor whose axes are a number, or a name where any size goes.
fn spec(name: &str, datatype: Datatype, axes: &[&str]) -> TensorSpec {
    let axis = |axis: &&str| {
        let fixed = axis.parse().map(Axis::Fixed);
        fixed.unwrap_or_else(|_| Axis::Free((*axis).to_owned()))
    };
    TensorSpec {
        name: name.to_owned(),
        datatype,
        axes: axes.iter().map(axis).collect(),
    }
}

fn tokenize(reader: &Reader, padding: Padding, texts: &[String]) -> Result<Vec<Tensor>, String> {
    let rows: Result<Vec<Row>, String> = texts.iter().map(|text| reader.read(text)).collect();
    let rows = rows?;
    let (width, pad) = (reader.width(&rows, padding), reader.pad());
    let tensor = |(_, feed): (&str, Feed)| feed.tensor(&rows, width, pad);
    let tensors: Option<Vec<Tensor>> = FEEDS.into_iter().map(tensor).collect();
    tensors.ok_or_else(|| "the tokens don't fit a tensor".to_owned())
}

/// A vector for each text, from the states of those of its tokens that the mask counts.
fn pooled(states: &Tensor, mask: Option<&Tensor>, pooling: Pooling) -> Result<Vec<Tensor>, String> {
    let &[texts, tokens, width] = states.shape() else {
        return Err("last_hidden_state has not three axes".into());
    };
    let counted = match mask {
        Some(mask) if mask.shape() != [texts, tokens] => {
            let (mask, states) = (mask.shape(), states.shape());
            return Err(format!(
                "attention_mask has shape {mask:?}, last_hidden_state {states:?}"
            ));
        }
        Some(mask) => whole(mask)?.to_vec(),
        None => vec![1; texts * tokens],
    };
    let of_texts = rows(states, floats(states)?).zip(counted.chunks(tokens.max(1)));
    let vectors = of_texts.flat_map(|(states, mask)| {
        let counted = states.chunks(width.max(1)).zip(mask);
        let counted = counted.filter(|(_, mask)| **mask != 0);
        pool(counted.map(|(state, _)| state), width, pooling)
    });
    one(vec![texts, width], Elements::Fp32(vectors.collect()))
}

/// The place of each row's highest score, the first of equals, and the score; what is no number is never the highest.
fn argmax(scores: &Tensor) -> Result<Vec<Tensor>, String> {
    let (mut places, mut values) = (Vec::new(), Vec::new());
    for row in rows(scores, floats(scores)?) {
        let higher = |best: (usize, f32), (place, &score): (usize, &f32)| match score > best.1 {
            true => (place, score),
            false => best,
        };
        let numbers = row.iter().enumerate().filter(|(_, score)| !score.is_nan());
        let best = numbers.fold(None, |best, one| {
            Some(best.map_or((one.0, *one.1), |best| higher(best, one)))
        });
        let (place, value) = best.ok_or("INPUT has a row without a number")?;
        places.push(i64::try_from(place).unwrap_or(i64::MAX));
        values.push(value);
    }
    let shape = vec![scores.rows(), 1];
    let mut outputs = one(shape.clone(), Elements::Int64(places))?;
    outputs.append(&mut one(shape, Elements::Fp32(values))?);
    Ok(outputs)
}

/// Each row changed in place.
fn each_row(tensor: &Tensor, change: impl Fn(&mut [f32])) -> Result<Vec<Tensor>, String> {
    let mut values = floats(tensor)?.to_vec();
    values.chunks_mut(row_length(tensor)).for_each(change);
    one(tensor.shape().to_vec(), Elements::Fp32(values))
}

/// The elements of each row.
fn rows<'a, T>(tensor: &Tensor, elements: &'a [T]) -> impl Iterator<Item = &'a [T]> {
    elements.chunks(row_length(tensor))
}

fn row_length(tensor: &Tensor) -> usize {
    (tensor.elements().len() / tensor.rows().max(1)).max(1)
}

fn one(shape: Vec<usize>, elements: Elements) -> Result<Vec<Tensor>, String> {
    let tensor = Tensor::new(shape, elements);
    let misfit = || "the elements don't fit their shape".to_owned();
    tensor.map(|tensor| vec![tensor]).ok_or_else(misfit)
}

fn floats(tensor: &Tensor) -> Result<&[f32], String> {
    match tensor.elements() {
        Elements::Fp32(values) => Ok(values),
        other => Err(format!("expected FP32, not {}", other.datatype())),
    }
}

fn whole(tensor: &Tensor) -> Result<&[i64], String> {
    match tensor.elements() {
        Elements::Int64(values) => Ok(values),
        other => Err(format!("expected INT64, not {}", other.datatype())),
    }
}

fn strings(tensor: &Tensor) -> Result<&[String], String> {
    match tensor.elements() {
        Elements::Bytes(texts) => Ok(texts),
        other => Err(format!("expected BYTES, not {}", other.datatype())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats_of(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::new(shape.to_vec(), Elements::Fp32(values.to_vec())).unwrap()
    }

    fn whole_of(shape: &[usize], values: &[i64]) -> Tensor {
        Tensor::new(shape.to_vec(), Elements::Int64(values.to_vec())).unwrap()
    }

    fn run(step: &Step, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        let mut step = BuiltIn::open(step).unwrap();
        let wanted: Vec<usize> = (0..step.signature().outputs.len()).collect();
        step.run(inputs, &wanted).map_err(|fault| fault.message)
    }

    #[test]
    fn scores_become_places_labels_and_verdicts() {
        let scores = floats_of(&[2, 3], &[0.1, 0.7, 0.2, 5.0, f32::NAN, 5.0]);
        let highest = run(&Step::Argmax, std::slice::from_ref(&scores)).unwrap();
        assert_eq!(highest[0], whole_of(&[2, 1], &[1, 0]));
        assert_eq!(highest[1], floats_of(&[2, 1], &[0.7, 5.0]));
        let label = Step::Label(vec!["cat".into(), "dog".into()]);
        let labels = run(&label, &highest[..1]).unwrap();
        let expected = Elements::Bytes(vec!["dog".into(), "cat".into()]);
        assert_eq!(labels, [Tensor::new(vec![2, 1], expected).unwrap()]);
        let passed = run(&Step::Threshold(0.7), &[scores]).unwrap();
        let expected = Elements::Bool(vec![false, true, false, true, false, true]);
        assert_eq!(passed[0].elements(), &expected);
        for place in [-1, 2] {
            let said = run(&label, &[whole_of(&[1, 1], &[place])]).unwrap_err();
            assert!(said.contains("2 labels"), "{said}");
        }
        let nothing = run(&Step::Argmax, &[floats_of(&[1, 1], &[f32::NAN])]);
        assert!(nothing.unwrap_err().contains("without a number"));
    }

    #[test]
    fn rows_are_changed_each_for_itself() {
        let rows = floats_of(&[2, 2], &[3.0, 4.0, 0.0, 0.0]);
        let unit = run(&Step::Normalize, std::slice::from_ref(&rows)).unwrap();
        assert_eq!(unit, [floats_of(&[2, 2], &[0.6, 0.8, 0.0, 0.0])]);
        let soft = run(&Step::Activate(Activation::Softmax), &[rows]).unwrap();
        let Elements::Fp32(values) = soft[0].elements() else {
            panic!("not floats")
        };
        assert_eq!(values[2..], [0.5, 0.5]);
        assert!((values[0] + values[1] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn the_mask_says_which_tokens_are_pooled() {
        let states = floats_of(&[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 5.0, 6.0]);
        let mask = whole_of(&[2, 2], &[1, 1, 0, 1]);
        let mean = run(&Step::Pool(Pooling::Mean), &[states.clone(), mask]).unwrap();
        assert_eq!(mean, [floats_of(&[2, 2], &[2.0, 3.0, 5.0, 6.0])]);
        let first = run(&Step::Pool(Pooling::Cls), std::slice::from_ref(&states)).unwrap();
        assert_eq!(first, [floats_of(&[2, 2], &[1.0, 2.0, 9.0, 9.0])]);
        let narrow = whole_of(&[2, 1], &[1, 1]);
        let said = run(&Step::Pool(Pooling::Mean), &[states, narrow]).unwrap_err();
        assert!(said.contains("attention_mask has shape [2, 1]"), "{said}");
    }
}
