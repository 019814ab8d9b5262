//! How much work a KServe v2 inference request is: the elements of its largest input.
//!
//! Source: Open Inference Protocol, "Inference Request JSON Object". With the binary tensor extension the JSON part is
//! the first `Inference-Header-Content-Length` bytes of the body.

use sonic_rs::JsonValueTrait;

use super::nesting;
use crate::units::Length;

/// Elements of the largest input tensor; one when nothing can be read (the worker will say what is wrong).
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub fn work_of(body: &[u8], header_length: Option<usize>) -> Length {
    let json = header_length
        .and_then(|length| body.get(..length))
        .unwrap_or(body);
    if nesting::is_too_deep(json) {
        return Length::Tokens(1.0);
    }
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
