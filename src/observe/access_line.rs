//! One line of the access log, as JSON.
//!
//! Written by hand because it is on the path of every request: a dozen keys into one buffer, without a tree and
//! without formatting floating point. Every string is escaped by RFC 8259 §7, so a path with quotes, control
//! characters or anything else stays one valid line. A key that is absent is unknown; nothing is ever `null`.

use crate::units::Seconds;

/// What a line tells. The keys are the contract's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AccessLine<'a> {
    /// When the head had been read whole, RFC 3339 in UTC.
    pub(super) time: &'a str,
    pub(super) id: &'a str,
    pub(super) kind: Option<&'a str>,
    pub(super) tenant: &'a str,
    pub(super) route: Option<&'a str>,
    pub(super) method: &'a str,
    /// Without its query.
    pub(super) path: &'a str,
    pub(super) model: Option<&'a str>,
    pub(super) worker: Option<&'a str>,
    pub(super) attempts: u32,
    pub(super) status: u16,
    pub(super) reason: &'a str,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) cached_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) queue: Option<Seconds>,
    pub(super) route_time: Option<Seconds>,
    pub(super) first_byte: Option<Seconds>,
    pub(super) total: Seconds,
}

impl AccessLine<'_> {
    /// The line with its line feed.
    pub(super) fn render(&self) -> Vec<u8> {
        let mut json = Object(Vec::with_capacity(512));
        json.text("time", Some(self.time));
        json.text("id", Some(self.id));
        json.text("kind", self.kind);
        json.text("tenant", Some(self.tenant));
        json.text("route", self.route);
        json.text("method", Some(self.method));
        json.text("path", Some(self.path));
        json.text("model", self.model);
        json.text("worker", self.worker);
        json.count("attempts", Some(u64::from(self.attempts)));
        json.count("status", Some(u64::from(self.status)));
        json.text("reason", Some(self.reason));
        json.count("bytes_in", Some(self.bytes_in));
        json.count("bytes_out", Some(self.bytes_out));
        json.count("prompt_tokens", self.prompt_tokens);
        json.count("cached_tokens", self.cached_tokens);
        json.count("output_tokens", self.output_tokens);
        json.seconds("queue_s", self.queue);
        json.seconds("route_s", self.route_time);
        json.seconds("first_byte_s", self.first_byte);
        json.seconds("total_s", Some(self.total));
        json.0.extend_from_slice(b"}\n");
        json.0
    }
}

/// An object that is being written.
struct Object(Vec<u8>);

impl Object {
    /// Keys are ours and need no escaping.
    fn key(&mut self, key: &str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.push(b'"');
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.key(key);
            push_string(&mut self.0, value);
        }
    }

    fn count(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.key(key);
            push_number(&mut self.0, value);
        }
    }

    fn seconds(&mut self, key: &str, value: Option<Seconds>) {
        if let Some(value) = value {
            self.key(key);
            push_thousandths(&mut self.0, micros(value), 6);
        }
    }
}

/// Whole microseconds of a span; what is negative is none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and spans are below the 584,000 years that fit"
)]
fn micros(span: Seconds) -> u64 {
    (span.0 * 1e6).round() as u64
}

/// A span in milliseconds with three decimals, as `Server-Timing` wants it.
pub(super) fn push_millis(out: &mut Vec<u8>, span: Seconds) {
    push_thousandths(out, micros(span), 3);
}

/// A whole number of 10⁻ⁿ, written with `decimals` = n.
fn push_thousandths(out: &mut Vec<u8>, value: u64, decimals: u32) {
    let unit = 10u64.pow(decimals);
    push_number(out, value / unit);
    out.push(b'.');
    let mut rest = value % unit;
    let mut place = unit / 10;
    while place > 0 {
        out.push(digit(rest / place));
        rest %= place;
        place /= 10;
    }
}

fn push_number(out: &mut Vec<u8>, value: u64) {
    if value >= 10 {
        push_number(out, value / 10);
    }
    out.push(digit(value));
}

/// The last digit.
fn digit(value: u64) -> u8 {
    b'0' + (value % 10) as u8
}

/// A JSON string: runs that need no escape are copied whole.
fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| needs_escape(byte)) {
        out.extend_from_slice(&rest[..at]);
        push_escape(out, rest[at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\' || byte == 0x7f
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &AccessLine<'_>) -> serde_json::Value {
        let bytes = line.render();
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 1);
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_full_line_has_the_contracts_keys_in_order() {
        let line = AccessLine {
            time: "2026-11-30T02:43:19.500Z",
            id: "abc",
            kind: Some("chat"),
            tenant: "-",
            route: Some("/v1/chat/completions"),
            method: "POST",
            path: "/v1/chat/completions",
            model: Some("good"),
            worker: Some("worker-a"),
            attempts: 1,
            status: 200,
            reason: "ok",
            bytes_in: 1024,
            bytes_out: 2048,
            prompt_tokens: Some(12),
            cached_tokens: Some(0),
            output_tokens: Some(34),
            queue: Some(Seconds(0.0)),
            route_time: Some(Seconds(0.000_012)),
            first_byte: Some(Seconds(0.25)),
            total: Seconds(1.000_000_4),
        };
        let expected = concat!(
            r#"{"time":"2026-11-30T02:43:19.500Z","id":"abc","kind":"chat","tenant":"-","#,
            r#""route":"/v1/chat/completions","method":"POST","path":"/v1/chat/completions","#,
            r#""model":"good","worker":"worker-a","attempts":1,"status":200,"reason":"ok","#,
            r#""bytes_in":1024,"bytes_out":2048,"prompt_tokens":12,"cached_tokens":0,"#,
            r#""output_tokens":34,"queue_s":0.000000,"route_s":0.000012,"#,
            r#""first_byte_s":0.250000,"total_s":1.000000}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(line.render()).unwrap(), expected);
    }

    #[test]
    fn what_is_unknown_is_absent() {
        let line = parsed(&AccessLine::default());
        let keys: Vec<_> = line.as_object().unwrap().keys().collect();
        for unknown in [
            "kind",
            "route",
            "model",
            "worker",
            "prompt_tokens",
            "queue_s",
        ] {
            assert!(!keys.iter().any(|key| *key == unknown), "{unknown}");
        }
        assert_eq!(line["attempts"], 0);
    }

    #[test]
    fn every_character_comes_back_as_it_went_in() {
        let awkward: String = (0..=0x7f)
            .map(char::from)
            .chain("é€😀\u{2028}\u{fffd}%ff%00".chars())
            .collect();
        let line = AccessLine {
            path: &awkward,
            ..AccessLine::default()
        };
        assert_eq!(parsed(&line)["path"], awkward.as_str());
    }

    #[test]
    fn spans_are_written_exactly() {
        let written = |span| {
            let mut out = Vec::new();
            push_millis(&mut out, Seconds(span));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(0.0), "0.000");
        assert_eq!(written(0.000_012_4), "0.012");
        assert_eq!(written(12.345_678), "12345.678");
        assert_eq!(written(-1.0), "0.000");
    }
}
