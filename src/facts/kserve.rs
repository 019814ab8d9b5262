//! What a KServe v2 inference request says of itself: how much work it is, by the elements of its largest input, and
//! how long its client waits.
//!
//! Sources: Open Inference Protocol, "Inference Request JSON Object"; Triton, "Schedule Policy Extension", whose
//! `timeout` is in microseconds and unset when it is 0. With the binary tensor extension the JSON part is the first
//! `Inference-Header-Content-Length` bytes of the body.

use sonic_rs::JsonValueTrait;

use super::nesting;
use crate::units::{Length, Seconds};

/// Elements of the largest input tensor; one when nothing can be read (the worker will say what is wrong).
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub fn work_of(body: &[u8], header_length: Option<usize>) -> Length {
    let Some(json) = json_part(body, header_length) else {
        return Length::Tokens(1.0);
    };
    let Ok(inputs) = sonic_rs::get(json, &["inputs"]) else {
        return Length::Tokens(1.0);
    };
    let Some(inputs) = inputs.into_array_iter() else {
        return Length::Tokens(1.0);
    };
    let largest = inputs
        .filter_map(Result::ok)
        .filter_map(|input| elements(&input))
        .max();
    // An element takes a byte at least, so a shape that claims more than the body holds is wrong.
    Length::Tokens(largest.unwrap_or(1).min(body.len() as u64) as f64)
}

/// How long the client waits, if it says so.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds that anybody waits"
)]
pub fn timeout_of(body: &[u8], header_length: Option<usize>) -> Option<Seconds> {
    let json = json_part(body, header_length)?;
    let timeout = sonic_rs::get(json, &["parameters", "timeout"]).ok()?;
    let micros = timeout.as_u64().filter(|micros| *micros > 0)?;
    Some(Seconds(micros as f64 / 1e6))
}

/// What may be parsed of a body.
fn json_part(body: &[u8], header_length: Option<usize>) -> Option<&[u8]> {
    let json = header_length.and_then(|length| body.get(..length));
    Some(json.unwrap_or(body)).filter(|json| !nesting::is_too_deep(json))
}

fn elements(input: &sonic_rs::LazyValue<'_>) -> Option<u64> {
    let shape = input.get("shape")?.into_array_iter()?;
    shape
        .map(|size| size.ok()?.as_u64())
        .try_fold(1u64, |product, size| product.checked_mul(size?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_input_counts() {
        let body = br#"{"id":"1","inputs":[{"name":"a","shape":[2,3],"data":[]},{"name":"b","shape":[4,16]}]}"#;
        assert_eq!(work_of(body, None), Length::Tokens(64.0));
    }

    #[test]
    fn only_the_json_part_of_a_binary_body_is_read() {
        let json = br#"{"inputs":[{"shape":[8]}]}"#;
        let body = [&json[..], b"\xff\xfe\x00"].concat();
        assert_eq!(work_of(&body, Some(json.len())), Length::Tokens(8.0));
    }

    #[test]
    fn a_timeout_is_in_microseconds_and_zero_is_none() {
        let said = |timeout: &str| {
            let body =
                format!(r#"{{"inputs":[],"parameters":{{"priority":1,"timeout":{timeout}}}}}"#);
            timeout_of(body.as_bytes(), None)
        };
        assert_eq!(said("1500000"), Some(Seconds(1.5)));
        for none in ["0", "-1", "\"2s\"", "{}", "null"] {
            assert_eq!(said(none), None, "{none}");
        }
        assert_eq!(timeout_of(b"{", None), None);
    }

    #[test]
    fn a_shape_claims_no_more_than_the_body_holds() {
        let body = br#"{"inputs":[{"shape":[1000000000,1000000000],"data":[1]}]}"#;
        assert_eq!(work_of(body, None), Length::Tokens(body.len() as f64));
    }

    #[test]
    fn the_deepest_that_is_parsed_fits_the_stack() {
        let levels = nesting::DEEPEST - 1;
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        for levels in [&open[..], &open[1..]] {
            let body = format!(r#"{{"inputs":{levels}{close}}}"#);
            assert_eq!(work_of(body.as_bytes(), None), Length::Tokens(1.0));
        }
    }

    #[test]
    fn rubbish_is_one_unit_of_work() {
        for body in [
            &b""[..],
            b"{",
            b"{\"inputs\":3}",
            b"{\"inputs\":[{\"shape\":[-1]}]}",
        ] {
            assert_eq!(work_of(body, Some(99)), Length::Tokens(1.0));
        }
    }
}
