//! Which class a request is of: its tenant's, or a lower one that it asks for itself.

use http::{HeaderMap, HeaderName};

use crate::config::plan::QueuePlan;
use crate::fault::{Fault, Kind};

/// A client's word on how much its request matters: the name of a class.
const PRIORITY_HEADER: HeaderName = HeaderName::from_static("x-forebay-priority");

/// The class, 0 being the highest. `own` is what it is of without a word; a higher one that it asks for is not given.
///
/// # Errors
/// `bad_request` when the word names no class, or is given twice.
pub fn class(headers: &HeaderMap, queue: &QueuePlan, own: u8) -> Result<u8, Fault> {
    let values: Vec<_> = headers.get_all(PRIORITY_HEADER).iter().take(2).collect();
    let value = match values[..] {
        [] => return Ok(own),
        [value] => value.to_str().unwrap_or_default().trim(),
        _ => return Err(bad(queue, "it is given twice")),
    };
    let place = queue.classes.iter().position(|class| &*class.name == value);
    let asked = place.and_then(|place| u8::try_from(place).ok());
    let asked = asked.ok_or_else(|| bad(queue, "there is no such class"))?;
    Ok(asked.max(own))
}

fn bad(queue: &QueuePlan, why: &str) -> Fault {
    let known: Vec<&str> = queue.classes.iter().map(|class| &*class.name).collect();
    let message = format!(
        "{PRIORITY_HEADER}: {why}; write one of: {}",
        known.join(", ")
    );
    Fault::new(Kind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::HeaderValue;

    use super::*;
    use crate::config;

    #[test]
    fn a_word_lowers_a_class_and_never_raises_it() {
        let text = "state = \"unused\"\n[[worker]]\nname = \"w\"\nurl = \"http://127.0.0.1:1\"\nengine = \"vllm\"";
        let plan = config::parse(text, Path::new("test.toml"), &|_| None).unwrap();
        let of = |words: &[&'static str], own| {
            let mut headers = HeaderMap::new();
            for word in words {
                headers.append(PRIORITY_HEADER, HeaderValue::from_static(word));
            }
            class(&headers, &plan.queue, own).map_err(|fault| fault.message)
        };
        assert_eq!(of(&[], 1), Ok(1));
        assert_eq!(of(&["paid"], 0), Ok(0));
        assert_eq!(of(&[" batch "], 0), Ok(2));
        assert_eq!(of(&["paid"], 1), Ok(1));
        for words in [&["gold"][..], &[""], &["paid", "paid"]] {
            let message = of(words, 0).unwrap_err();
            assert!(message.contains("paid, free, batch"), "{message}");
        }
    }
}
