//! Elements as bytes, the form in which KServe's binary tensor extension and gRPC's raw contents carry them.
//!
//! Numbers are little-endian, BOOL is one byte, and each of BYTES has its length before it, as four little-endian bytes
//! (Triton, "Binary Tensor Data Extension"). Every NaN and Infinity arrives as it left. Conversion is by value, element
//! by element, which the compiler turns into a copy on machines that are little-endian themselves; no memory is
//! reinterpreted.
//!
//! BYTES here are UTF-8, since ONNX's strings are: other bytes are refused, with the place.

use half::{bf16, f16};

use super::{Datatype, Elements};

/// How many bytes the length of one of BYTES takes.
const LENGTH: usize = 4;

impl Elements {
    /// The elements that these bytes stand for, or what is wrong with them.
    pub fn from_raw(datatype: Datatype, bytes: &[u8]) -> Result<Elements, String> {
        macro_rules! numbers {
            ($variant:ident, $number:ty) => {{
                const SIZE: usize = size_of::<$number>();
                let (chunks, rest) = bytes.as_chunks::<SIZE>();
                if !rest.is_empty() {
                    let count = bytes.len();
                    return Err(format!(
                        "{count} bytes are no whole number of {datatype}, which take {SIZE} each"
                    ));
                }
                Elements::$variant(
                    chunks
                        .iter()
                        .map(|chunk| <$number>::from_le_bytes(*chunk))
                        .collect(),
                )
            }};
        }
        Ok(match datatype {
            Datatype::Bool => Elements::Bool(bytes.iter().map(|byte| *byte != 0).collect()),
            Datatype::Uint8 => Elements::Uint8(bytes.to_vec()),
            Datatype::Uint16 => numbers!(Uint16, u16),
            Datatype::Uint32 => numbers!(Uint32, u32),
            Datatype::Uint64 => numbers!(Uint64, u64),
            Datatype::Int8 => numbers!(Int8, i8),
            Datatype::Int16 => numbers!(Int16, i16),
            Datatype::Int32 => numbers!(Int32, i32),
            Datatype::Int64 => numbers!(Int64, i64),
            Datatype::Fp16 => numbers!(Fp16, f16),
            Datatype::Fp32 => numbers!(Fp32, f32),
            Datatype::Fp64 => numbers!(Fp64, f64),
            Datatype::Bf16 => numbers!(Bf16, bf16),
            Datatype::Bytes => Elements::Bytes(strings(bytes)?),
        })
    }

    /// Appends the elements to `out`.
    pub fn push_raw(&self, out: &mut Vec<u8>) {
        macro_rules! numbers {
            ($values:expr) => {
                out.extend($values.iter().flat_map(|value| value.to_le_bytes()))
            };
        }
        match self {
            Elements::Bool(values) => out.extend(values.iter().map(|value| u8::from(*value))),
            Elements::Uint8(values) => out.extend_from_slice(values),
            Elements::Uint16(values) => numbers!(values),
            Elements::Uint32(values) => numbers!(values),
            Elements::Uint64(values) => numbers!(values),
            Elements::Int8(values) => numbers!(values),
            Elements::Int16(values) => numbers!(values),
            Elements::Int32(values) => numbers!(values),
            Elements::Int64(values) => numbers!(values),
            Elements::Fp16(values) => numbers!(values),
            Elements::Fp32(values) => numbers!(values),
            Elements::Fp64(values) => numbers!(values),
            Elements::Bf16(values) => numbers!(values),
            Elements::Bytes(values) => {
                for value in values {
                    // A string of 4 GiB can't come in, and no graph makes one out of what can.
                    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
                    out.extend_from_slice(&length.to_le_bytes());
                    out.extend_from_slice(value.as_bytes());
                }
            }
        }
    }
}

fn strings(mut bytes: &[u8]) -> Result<Vec<String>, String> {
    let mut strings = Vec::new();
    while !bytes.is_empty() {
        let index = strings.len();
        let cut = || {
            format!(
                "element {index} is cut short: each is its length in {LENGTH} bytes, then so many bytes"
            )
        };
        let length = bytes.split_off(..LENGTH).ok_or_else(cut)?;
        let length = length
            .try_into()
            .map(u32::from_le_bytes)
            .map_err(|_| cut())?;
        let length = usize::try_from(length).map_err(|_| cut())?;
        let string = bytes.split_off(..length).ok_or_else(cut)?;
        let string = std::str::from_utf8(string);
        strings.push(
            string
                .map_err(|_| format!("element {index} is no UTF-8, which strings are here"))?
                .to_owned(),
        );
    }
    Ok(strings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_comes_back_bit_for_bit() {
        let samples = [
            Elements::Bool(vec![true, false]),
            Elements::Uint8(vec![0, 255]),
            Elements::Uint16(vec![1, u16::MAX]),
            Elements::Uint32(vec![1, u32::MAX]),
            Elements::Uint64(vec![1, u64::MAX]),
            Elements::Int8(vec![-128, 127]),
            Elements::Int16(vec![i16::MIN, 2]),
            Elements::Int32(vec![i32::MIN, 3]),
            Elements::Int64(vec![i64::MIN, 4]),
            Elements::Fp16(vec![f16::from_f32(-1.5), f16::INFINITY]),
            Elements::Fp32(vec![-0.0, f32::MIN_POSITIVE]),
            Elements::Fp64(vec![0.1, f64::NEG_INFINITY]),
            Elements::Bf16(vec![bf16::from_f32(3.0), bf16::MAX]),
            Elements::Bytes(vec![String::new(), "größer".into()]),
        ];
        for elements in samples {
            let mut bytes = Vec::new();
            elements.push_raw(&mut bytes);
            assert_eq!(
                Elements::from_raw(elements.datatype(), &bytes),
                Ok(elements)
            );
        }
    }

    #[test]
    fn a_nan_keeps_its_payload_and_a_number_is_little_endian() {
        let odd = 0x7fc0_1234_u32.to_le_bytes();
        let elements = Elements::from_raw(Datatype::Fp32, &odd).unwrap();
        let mut bytes = Vec::new();
        elements.push_raw(&mut bytes);
        assert_eq!(bytes, odd);
        assert_eq!(elements.not_finite(), 1);
        assert_eq!(
            Elements::from_raw(Datatype::Int32, &[1, 2, 0, 0]),
            Ok(Elements::Int32(vec![0x201]))
        );
    }

    #[test]
    fn bytes_that_are_no_elements_are_refused() {
        for (datatype, bytes, words) in [
            (
                Datatype::Fp32,
                &[0u8; 7][..],
                "7 bytes are no whole number of FP32",
            ),
            (Datatype::Bytes, &[1, 0, 0], "element 0 is cut short"),
            (
                Datatype::Bytes,
                &[1, 0, 0, 0, b'a', 255, 255, 255, 255, b'b'],
                "element 1 is cut short",
            ),
            (
                Datatype::Bytes,
                &[1, 0, 0, 0, 0xff],
                "element 0 is no UTF-8",
            ),
        ] {
            let said = Elements::from_raw(datatype, bytes).unwrap_err();
            assert!(said.contains(words), "{words:?} is missing in {said:?}");
        }
    }
}
