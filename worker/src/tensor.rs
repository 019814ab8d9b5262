//! Tensors and what a model says about the tensors it takes and gives.
//!
//! A [`Tensor`] owns its elements by type, so that nothing is reinterpreted: its length always equals the product of
//! its shape ([`Tensor::new`] refuses anything else). Rows are slices of the first axis; joining requests into a batch
//! and handing the rows back are [`Tensor::join`] and [`Tensor::split`].

mod raw;

use std::fmt;

use half::{bf16, f16};

/// KServe's element types (Open Inference Protocol v2, "Tensor Data Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datatype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Fp32,
    Fp64,
    Bf16,
    Bytes,
}

impl Datatype {
    const NAMES: [(Datatype, &'static str); 14] = [
        (Datatype::Bool, "BOOL"),
        (Datatype::Uint8, "UINT8"),
        (Datatype::Uint16, "UINT16"),
        (Datatype::Uint32, "UINT32"),
        (Datatype::Uint64, "UINT64"),
        (Datatype::Int8, "INT8"),
        (Datatype::Int16, "INT16"),
        (Datatype::Int32, "INT32"),
        (Datatype::Int64, "INT64"),
        (Datatype::Fp16, "FP16"),
        (Datatype::Fp32, "FP32"),
        (Datatype::Fp64, "FP64"),
        (Datatype::Bf16, "BF16"),
        (Datatype::Bytes, "BYTES"),
    ];

    /// The type of this name, if the protocol knows one.
    pub fn from_name(name: &str) -> Option<Datatype> {
        let row = Self::NAMES.iter().find(|(_, known)| *known == name)?;
        Some(row.0)
    }

    /// The protocol's name.
    pub fn name(self) -> &'static str {
        let row = Self::NAMES.iter().find(|(known, _)| *known == self);
        row.map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The elements of a tensor, in row-major order. JSON can't carry the 16-bit floats; everything else can.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    Bool(Vec<bool>),
    Uint8(Vec<u8>),
    Uint16(Vec<u16>),
    Uint32(Vec<u32>),
    Uint64(Vec<u64>),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Fp16(Vec<f16>),
    Fp32(Vec<f32>),
    Fp64(Vec<f64>),
    Bf16(Vec<bf16>),
    Bytes(Vec<String>),
}

/// Runs `$body` with `$vector` bound to the typed vector inside, whichever it is.
macro_rules! each_type {
    ($elements:expr, $vector:ident => $body:expr) => {
        match $elements {
            Elements::Bool($vector) => $body,
            Elements::Uint8($vector) => $body,
            Elements::Uint16($vector) => $body,
            Elements::Uint32($vector) => $body,
            Elements::Uint64($vector) => $body,
            Elements::Int8($vector) => $body,
            Elements::Int16($vector) => $body,
            Elements::Int32($vector) => $body,
            Elements::Int64($vector) => $body,
            Elements::Fp16($vector) => $body,
            Elements::Fp32($vector) => $body,
            Elements::Fp64($vector) => $body,
            Elements::Bf16($vector) => $body,
            Elements::Bytes($vector) => $body,
        }
    };
}

/// Like [`each_type`], wrapping the result into the same variant again.
macro_rules! map_type {
    ($elements:expr, $vector:ident => $body:expr) => {
        match $elements {
            Elements::Bool($vector) => Elements::Bool($body),
            Elements::Uint8($vector) => Elements::Uint8($body),
            Elements::Uint16($vector) => Elements::Uint16($body),
            Elements::Uint32($vector) => Elements::Uint32($body),
            Elements::Uint64($vector) => Elements::Uint64($body),
            Elements::Int8($vector) => Elements::Int8($body),
            Elements::Int16($vector) => Elements::Int16($body),
            Elements::Int32($vector) => Elements::Int32($body),
            Elements::Int64($vector) => Elements::Int64($body),
            Elements::Fp16($vector) => Elements::Fp16($body),
            Elements::Fp32($vector) => Elements::Fp32($body),
            Elements::Fp64($vector) => Elements::Fp64($body),
            Elements::Bf16($vector) => Elements::Bf16($body),
            Elements::Bytes($vector) => Elements::Bytes($body),
        }
    };
}

/// Moves the contents of `from` to the end of `into` where both are of the given variants, else gives `false`.
macro_rules! append_same {
    ($into:expr, $from:expr, $($variant:ident),+) => {
        match ($into, $from) {
            $((Elements::$variant(into), Elements::$variant(mut from)) => {
                into.append(&mut from);
                true
            })+
            _ => false,
        }
    };
}

impl Elements {
    /// How many there are.
    pub fn len(&self) -> usize {
        each_type!(self, vector => vector.len())
    }

    /// The memory they take, in bytes.
    pub fn bytes(&self) -> usize {
        let own = each_type!(self, vector => size_of_val(vector.as_slice()));
        match self {
            Elements::Bytes(strings) => own + strings.iter().map(String::len).sum::<usize>(),
            _ => own,
        }
    }

    /// Their type.
    pub fn datatype(&self) -> Datatype {
        match self {
            Elements::Bool(_) => Datatype::Bool,
            Elements::Uint8(_) => Datatype::Uint8,
            Elements::Uint16(_) => Datatype::Uint16,
            Elements::Uint32(_) => Datatype::Uint32,
            Elements::Uint64(_) => Datatype::Uint64,
            Elements::Int8(_) => Datatype::Int8,
            Elements::Int16(_) => Datatype::Int16,
            Elements::Int32(_) => Datatype::Int32,
            Elements::Int64(_) => Datatype::Int64,
            Elements::Fp16(_) => Datatype::Fp16,
            Elements::Fp32(_) => Datatype::Fp32,
            Elements::Fp64(_) => Datatype::Fp64,
            Elements::Bf16(_) => Datatype::Bf16,
            Elements::Bytes(_) => Datatype::Bytes,
        }
    }

    /// How many of them are NaN or Infinity.
    pub fn not_finite(&self) -> usize {
        fn count<T: Copy>(values: &[T], finite: impl Fn(T) -> bool) -> usize {
            values.iter().filter(|value| !finite(**value)).count()
        }
        match self {
            Elements::Fp16(values) => count(values, f16::is_finite),
            Elements::Fp32(values) => count(values, f32::is_finite),
            Elements::Fp64(values) => count(values, f64::is_finite),
            Elements::Bf16(values) => count(values, bf16::is_finite),
            _ => 0,
        }
    }

    /// Takes the first `count` off; `count` is at most the length.
    fn take_front(&mut self, count: usize) -> Elements {
        map_type!(self, vector => {
            let rest = vector.split_off(count.min(vector.len()));
            std::mem::replace(vector, rest)
        })
    }

    fn append(&mut self, other: Elements) -> bool {
        append_same!(
            self, other, Bool, Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64, Fp16,
            Fp32, Fp64, Bf16, Bytes
        )
    }
}

/// A tensor: a shape and exactly as many elements as it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    elements: Elements,
}

impl Tensor {
    /// A tensor, if the number of elements is the product of the shape.
    pub fn new(shape: Vec<usize>, elements: Elements) -> Option<Tensor> {
        (volume(&shape) == Some(elements.len())).then_some(Tensor { shape, elements })
    }

    /// The size of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// The same elements in another shape, if it holds as many.
    pub fn with_shape(self, shape: Vec<usize>) -> Option<Tensor> {
        Tensor::new(shape, self.elements)
    }

    /// The size of the first axis; 1 for a scalar.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Joins tensors along the first axis, in order. `None` if there is none, or they differ in type or further axes.
    pub fn join(parts: Vec<Tensor>) -> Option<Tensor> {
        let mut parts = parts.into_iter();
        let mut joined = parts.next()?;
        for part in parts {
            if joined.shape.is_empty() || joined.shape.get(1..) != part.shape.get(1..) {
                return None;
            }
            joined.shape[0] += part.rows();
            if !joined.elements.append(part.elements) {
                return None;
            }
        }
        Some(joined)
    }

    /// Cuts into tensors of so many rows each. `None` if the counts don't add up to the rows that are there.
    pub fn split(mut self, rows: &[usize]) -> Option<Vec<Tensor>> {
        if self.shape.is_empty() || rows.iter().sum::<usize>() != self.rows() {
            return None;
        }
        let width = volume(&self.shape[1..])?;
        let cut = |&count: &usize| {
            let mut shape = self.shape.clone();
            shape[0] = count;
            let elements = self.elements.take_front(count * width);
            Tensor { shape, elements }
        };
        Some(rows.iter().map(cut).collect())
    }
}

/// The product of a shape, unless it overflows.
pub fn volume(shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(1usize, |product, &axis| product.checked_mul(axis))
}

/// What a model says about the size of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Always this size.
    Fixed(usize),
    /// Any size; axes of one name, other than the empty one, are of one size within a request.
    Free(String),
}

/// One input or output that a model declares.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Its name in the graph.
    pub name: String,
    /// The type of its elements.
    pub datatype: Datatype,
    /// Its axes.
    pub axes: Vec<Axis>,
}

impl TensorSpec {
    /// The shape as KServe writes it: -1 where any size goes.
    pub fn kserve_shape(&self) -> Vec<i64> {
        let size = |axis: &Axis| match axis {
            Axis::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
            Axis::Free(_) => -1,
        };
        self.axes.iter().map(size).collect()
    }

    /// The name of the first axis, if it is free and named.
    fn batch_axis(&self) -> Option<&str> {
        match self.axes.first() {
            Some(Axis::Free(name)) if !name.is_empty() => Some(name),
            _ => None,
        }
    }
}

/// All inputs and outputs of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// What it takes.
    pub inputs: Vec<TensorSpec>,
    /// What it gives.
    pub outputs: Vec<TensorSpec>,
}

impl Signature {
    /// Whether requests may be joined along the first axis: every input and output begins with a free axis of one and
    /// the same name. An unnamed first axis proves nothing: a recurrent model's state begins with its layers, not with
    /// the batch, and joining there would give one caller another's rows.
    pub fn batches(&self) -> bool {
        let mut axes = self
            .inputs
            .iter()
            .chain(&self.outputs)
            .map(TensorSpec::batch_axis);
        match axes.next() {
            Some(Some(first)) => axes.all(|axis| axis == Some(first)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::new(shape.to_vec(), Elements::Fp32(values.to_vec())).unwrap()
    }

    fn spec(axes: &[Axis]) -> TensorSpec {
        TensorSpec {
            name: "x".into(),
            datatype: Datatype::Fp32,
            axes: axes.to_vec(),
        }
    }

    #[test]
    fn a_shape_that_lies_about_its_elements_is_refused() {
        assert!(Tensor::new(vec![2, 2], Elements::Bool(vec![true; 3])).is_none());
        assert!(Tensor::new(vec![usize::MAX, 2], Elements::Bool(vec![])).is_none());
        assert!(Tensor::new(vec![], Elements::Bool(vec![true])).is_some());
        assert!(Tensor::new(vec![2, 0], Elements::Bool(vec![])).is_some());
    }

    #[test]
    fn rows_come_back_as_they_were_joined() {
        let parts = vec![
            floats(&[1, 2], &[1.0, 2.0]),
            floats(&[2, 2], &[3.0, 4.0, 5.0, 6.0]),
        ];
        let joined = Tensor::join(parts.clone()).unwrap();
        assert_eq!(joined.shape(), [3, 2]);
        assert_eq!(joined.split(&[1, 2]).unwrap(), parts);
    }

    #[test]
    fn what_does_not_fit_is_not_joined_and_not_split() {
        let narrow = floats(&[1, 1], &[1.0]);
        let wide = floats(&[1, 2], &[1.0, 2.0]);
        let whole = Tensor::new(vec![1, 1], Elements::Int64(vec![1])).unwrap();
        assert!(Tensor::join(vec![narrow.clone(), wide.clone()]).is_none());
        assert!(Tensor::join(vec![narrow, whole]).is_none());
        assert!(wide.split(&[1, 1]).is_none());
    }

    #[test]
    fn only_one_named_free_first_axis_makes_a_batch() {
        let batch = || Axis::Free("batch".into());
        let signature = |first: Axis, second: Axis| Signature {
            inputs: vec![spec(&[first, Axis::Fixed(3)])],
            outputs: vec![spec(&[second])],
        };
        assert!(signature(batch(), batch()).batches());
        assert!(!signature(batch(), Axis::Fixed(1)).batches());
        assert!(!signature(batch(), Axis::Free("layers".into())).batches());
        assert!(!signature(Axis::Free(String::new()), Axis::Free(String::new())).batches());
    }
}
