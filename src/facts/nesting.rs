//! How deep a piece of JSON is nested, told before it is parsed.
//!
//! sonic-rs skips values by recursion and has no limit of its own: a few hundred kilobytes of `[` overflow the stack,
//! and that ends the process with everything in it. So whatever a client or a worker wrote is measured first. The
//! measure need not be exact where the JSON is broken (the parser refuses that, having gone no deeper than was counted
//! here); it must never be too low. Brackets inside strings don't count, so a string that never ends hides nothing: the
//! parser stops there too.

use memchr::{memchr2, memchr2_iter};

/// The deepest that is parsed. sonic-rs takes some 20 KiB of stack per level where it is built without optimisation,
/// and a thread has 2 MiB.
pub const DEEPEST: usize = 64;

/// Whether a piece of JSON is nested deeper than [`DEEPEST`].
#[must_use]
pub fn is_too_deep(json: &[u8]) -> bool {
    // Most bodies have fewer brackets than that in all, and counting them is one fast pass.
    if memchr2_iter(b'[', b'{', json).nth(DEEPEST).is_none() {
        return false;
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(json, at),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return true;
        }
    }
    false
}

/// Where a string that began before `at` has ended.
pub(super) fn string_end(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        // What is escaped is skipped, a quote in particular.
        at += 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!("{open}{close}")
    }

    #[test]
    fn what_counts_is_depth_and_not_the_number_of_brackets() {
        assert!(!is_too_deep(nested(DEEPEST).as_bytes()));
        assert!(is_too_deep(nested(DEEPEST + 1).as_bytes()));
        assert!(is_too_deep("{\"a\":".repeat(DEEPEST + 1).as_bytes()));
        let wide = format!("[{}1]", "[{}],".repeat(10 * DEEPEST));
        assert!(!is_too_deep(wide.as_bytes()));
        assert!(!is_too_deep(b""));
    }

    #[test]
    fn brackets_in_strings_do_not_count_and_hide_none() {
        let inside = format!(r#"{{"a":"\"{}\\"}}"#, nested(DEEPEST + 1));
        assert!(!is_too_deep(inside.as_bytes()));
        for before in [r#""a""#, r#""\"""#, r#""\\""#, r#""\\\"]]]""#] {
            let after = format!("[{before},{}", nested(DEEPEST));
            assert!(is_too_deep(after.as_bytes()), "{before}");
        }
        let endless = format!(r#"["a\"{}"#, nested(DEEPEST + 1));
        assert!(!is_too_deep(endless.as_bytes()));
        assert!(!is_too_deep(
            format!(r#"{}"\"#, "[".repeat(DEEPEST)).as_bytes()
        ));
    }
}
