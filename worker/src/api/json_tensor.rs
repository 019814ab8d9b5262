//! The elements of a tensor in JSON: nested or flat, any depth, as the Open Inference Protocol allows.
//!
//! They are read straight into one flat vector, without a tree in between: a tree of `serde_json::Value` takes some
//! thirty bytes per number. The element type stands in another field, which may come later, so numbers are kept in the
//! widest form that loses nothing and are narrowed by [`Cells::into_elements`], which refuses what does not fit.

use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::Serializer;

use crate::tensor::{Datatype, Elements};

/// Elements before their type is known.
#[derive(Debug, Default, PartialEq)]
pub enum Cells {
    /// None at all.
    #[default]
    Empty,
    /// `true` and `false`.
    Bools(Vec<bool>),
    /// Whole numbers; `i128` holds both `i64` and `u64`.
    Wholes(Vec<i128>),
    /// Numbers of which at least one has a fraction or an exponent.
    Floats(Vec<f64>),
    /// Strings.
    Strings(Vec<String>),
}

impl Cells {
    /// The elements as this type, or what is wrong with them.
    pub fn into_elements(self, datatype: Datatype) -> Result<Elements, String> {
        let problem = self.mismatch(datatype);
        match (datatype, self) {
            (Datatype::Fp16 | Datatype::Bf16, _) => Err(format!(
                "{datatype} can't be carried in JSON (Open Inference Protocol); send it as binary data"
            )),
            (_, Cells::Empty) => Ok(empty(datatype)),
            (Datatype::Bool, Cells::Bools(cells)) => Ok(Elements::Bool(cells)),
            (Datatype::Bytes, Cells::Strings(cells)) => Ok(Elements::Bytes(cells)),
            (Datatype::Fp32, Cells::Wholes(cells)) => Ok(Elements::Fp32(all(cells, |n| n as f32))),
            (Datatype::Fp64, Cells::Wholes(cells)) => Ok(Elements::Fp64(all(cells, |n| n as f64))),
            (Datatype::Fp64, Cells::Floats(cells)) => Ok(Elements::Fp64(cells)),
            (Datatype::Fp32, Cells::Floats(cells)) => singles(cells),
            (_, Cells::Wholes(cells)) => wholes(datatype, cells).ok_or(problem),
            _ => Err(problem),
        }
    }

    fn mismatch(&self, datatype: Datatype) -> String {
        let what = match self {
            Cells::Empty => "nothing",
            Cells::Bools(_) => "booleans",
            Cells::Wholes(_) => "whole numbers of this range",
            Cells::Floats(_) => "numbers with a fraction",
            Cells::Strings(_) => "strings",
        };
        format!("{what} are no {datatype}")
    }

    fn push_whole<E: Error>(&mut self, value: i128) -> Result<(), E> {
        match self {
            Cells::Empty => *self = Cells::Wholes(vec![value]),
            Cells::Wholes(cells) => cells.push(value),
            Cells::Floats(cells) => cells.push(value as f64),
            Cells::Bools(_) | Cells::Strings(_) => return Err(mixed()),
        }
        Ok(())
    }

    fn push_float<E: Error>(&mut self, value: f64) -> Result<(), E> {
        match self {
            Cells::Empty => *self = Cells::Floats(vec![value]),
            Cells::Floats(cells) => cells.push(value),
            Cells::Wholes(cells) => {
                let mut floats: Vec<f64> = cells.iter().map(|&whole| whole as f64).collect();
                floats.push(value);
                *self = Cells::Floats(floats);
            }
            Cells::Bools(_) | Cells::Strings(_) => return Err(mixed()),
        }
        Ok(())
    }

    fn push_bool<E: Error>(&mut self, value: bool) -> Result<(), E> {
        match self {
            Cells::Empty => *self = Cells::Bools(vec![value]),
            Cells::Bools(cells) => cells.push(value),
            _ => return Err(mixed()),
        }
        Ok(())
    }

    fn push_string<E: Error>(&mut self, value: String) -> Result<(), E> {
        match self {
            Cells::Empty => *self = Cells::Strings(vec![value]),
            Cells::Strings(cells) => cells.push(value),
            _ => return Err(mixed()),
        }
        Ok(())
    }
}

fn mixed<E: Error>() -> E {
    E::custom("`data` mixes kinds of elements")
}

fn all<A, B>(cells: Vec<A>, convert: impl Fn(A) -> B) -> Vec<B> {
    cells.into_iter().map(convert).collect()
}

fn singles(cells: Vec<f64>) -> Result<Elements, String> {
    let singles = all(cells, |cell| cell as f32);
    if singles.iter().any(|single| !single.is_finite()) {
        return Err("a number is beyond the range of FP32".into());
    }
    Ok(Elements::Fp32(singles))
}

fn wholes(datatype: Datatype, cells: Vec<i128>) -> Option<Elements> {
    fn narrow<T: TryFrom<i128>>(cells: Vec<i128>) -> Option<Vec<T>> {
        cells
            .into_iter()
            .map(|cell| T::try_from(cell).ok())
            .collect()
    }
    Some(match datatype {
        Datatype::Uint8 => Elements::Uint8(narrow(cells)?),
        Datatype::Uint16 => Elements::Uint16(narrow(cells)?),
        Datatype::Uint32 => Elements::Uint32(narrow(cells)?),
        Datatype::Uint64 => Elements::Uint64(narrow(cells)?),
        Datatype::Int8 => Elements::Int8(narrow(cells)?),
        Datatype::Int16 => Elements::Int16(narrow(cells)?),
        Datatype::Int32 => Elements::Int32(narrow(cells)?),
        Datatype::Int64 => Elements::Int64(narrow(cells)?),
        _ => return None,
    })
}

fn empty(datatype: Datatype) -> Elements {
    match datatype {
        Datatype::Bool => Elements::Bool(vec![]),
        Datatype::Bytes => Elements::Bytes(vec![]),
        Datatype::Fp32 => Elements::Fp32(vec![]),
        Datatype::Fp64 => Elements::Fp64(vec![]),
        whole => wholes(whole, vec![]).unwrap_or(Elements::Int64(vec![])),
    }
}

impl<'de> Deserialize<'de> for Cells {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cells, D::Error> {
        let mut cells = Cells::Empty;
        deserializer.deserialize_any(Reader(&mut cells))?;
        Ok(cells)
    }
}

/// Reads one value, of whatever depth, to the end of the cells. serde_json bounds the depth.
struct Reader<'a>(&'a mut Cells);

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of numbers, booleans or strings, nested or flat")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while sequence.next_element_seed(Reader(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.0.push_whole(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.0.push_whole(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.0.push_float(value)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.push_bool(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.push_string(value.to_owned())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<(), E> {
        self.0.push_string(value)
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Elements as a flat JSON array. NaN and Infinity are null, as JSON has no word for them; Triton writes them bare,
/// which no strict reader takes.
#[derive(Debug)]
pub struct Flat<'a>(pub &'a Elements);

impl Serialize for Flat<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Elements::Bool(elements) => elements.serialize(serializer),
            Elements::Uint8(elements) => elements.serialize(serializer),
            Elements::Uint16(elements) => elements.serialize(serializer),
            Elements::Uint32(elements) => elements.serialize(serializer),
            Elements::Uint64(elements) => elements.serialize(serializer),
            Elements::Int8(elements) => elements.serialize(serializer),
            Elements::Int16(elements) => elements.serialize(serializer),
            Elements::Int32(elements) => elements.serialize(serializer),
            Elements::Int64(elements) => elements.serialize(serializer),
            Elements::Fp32(elements) => elements.serialize(serializer),
            Elements::Fp64(elements) => elements.serialize(serializer),
            Elements::Bytes(elements) => elements.serialize(serializer),
            Elements::Fp16(_) | Elements::Bf16(_) => Err(serde::ser::Error::custom(
                "16-bit floats have no form in JSON",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, datatype: Datatype) -> Result<Elements, String> {
        let cells: Cells = serde_json::from_str(text).map_err(|error| error.to_string())?;
        cells.into_elements(datatype)
    }

    #[test]
    fn nested_and_flat_are_the_same() {
        let flat = read("[1, 2, 3, 4]", Datatype::Int64).unwrap();
        assert_eq!(read("[[1, 2], [3, 4]]", Datatype::Int64).unwrap(), flat);
        assert_eq!(flat, Elements::Int64(vec![1, 2, 3, 4]));
    }

    #[test]
    fn numbers_keep_their_value_or_are_refused() {
        let big = read("[18446744073709551615]", Datatype::Uint64).unwrap();
        assert_eq!(big, Elements::Uint64(vec![u64::MAX]));
        let mixed = read("[1, 2.5]", Datatype::Fp32).unwrap();
        assert_eq!(mixed, Elements::Fp32(vec![1.0, 2.5]));
        for (text, datatype) in [
            ("[256]", Datatype::Uint8),
            ("[-1]", Datatype::Uint64),
            ("[1.5]", Datatype::Int32),
            ("[1e39]", Datatype::Fp32),
            ("[1]", Datatype::Bool),
            ("[\"x\"]", Datatype::Fp32),
            ("[true, 1]", Datatype::Bool),
            ("[null]", Datatype::Fp32),
            ("[{}]", Datatype::Fp32),
            ("[1.0]", Datatype::Fp16),
        ] {
            assert!(read(text, datatype).is_err(), "{text} as {datatype}");
        }
    }

    #[test]
    fn a_nest_too_deep_is_refused_not_followed() {
        let deep = "[".repeat(100_000);
        assert!(read(&deep, Datatype::Fp32).is_err());
    }

    #[test]
    fn nothing_is_an_empty_tensor_of_any_type() {
        assert_eq!(read("[]", Datatype::Int8).unwrap(), Elements::Int8(vec![]));
        assert_eq!(
            read("[[], []]", Datatype::Bool).unwrap(),
            Elements::Bool(vec![])
        );
    }

    #[test]
    fn elements_are_written_flat_and_exact() {
        let written = |elements: &Elements| serde_json::to_string(&Flat(elements)).unwrap();
        assert_eq!(written(&Elements::Fp32(vec![0.1, 1.0])), "[0.1,1.0]");
        let odd = vec![f64::NAN, f64::NEG_INFINITY, 1.5];
        assert_eq!(written(&Elements::Fp64(odd)), "[null,null,1.5]");
        assert_eq!(
            written(&Elements::Uint64(vec![u64::MAX])),
            "[18446744073709551615]"
        );
        assert_eq!(
            written(&Elements::Bytes(vec!["a\"b".into()])),
            r#"["a\"b"]"#
        );
    }
}
