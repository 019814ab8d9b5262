//! One line of the access log, as JSON.
//!
//! Written by hand because it is on the path of every request: a dozen keys into one buffer, without a tree and
//! without formatting floating point. Every string is escaped by RFC 8259 §7, so a path with quotes, control
//! characters or anything else stays one valid line. A key that is absent is unknown; nothing is ever `null`.

use crate::units::Seconds;

/// More than most lines take.
const ROOM: usize = 512;
/// The 20 digits of the largest `u64`, and a point.
const LONGEST_DECIMAL: usize = 21;

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
    /// Hashes of the prompt's blocks; empty where they are not to be told.
    pub(super) prefix: &'a [u64],
}

impl AccessLine<'_> {
    /// The line with its line feed.
    pub(super) fn render(&self) -> Vec<u8> {
        let mut line = Line(Vec::with_capacity(ROOM));
        line.plain(b"{\"time\":", self.time);
        line.plain(b",\"id\":", self.id);
        if let Some(kind) = self.kind {
            line.plain(b",\"kind\":", kind);
        }
        line.text(b",\"tenant\":", Some(self.tenant));
        line.text(b",\"route\":", self.route);
        line.plain(b",\"method\":", self.method);
        line.text(b",\"path\":", Some(self.path));
        line.text(b",\"model\":", self.model);
        line.text(b",\"worker\":", self.worker);
        line.count(b",\"attempts\":", Some(u64::from(self.attempts)));
        line.count(b",\"status\":", Some(u64::from(self.status)));
        line.plain(b",\"reason\":", self.reason);
        line.count(b",\"bytes_in\":", Some(self.bytes_in));
        line.count(b",\"bytes_out\":", Some(self.bytes_out));
        line.count(b",\"prompt_tokens\":", self.prompt_tokens);
        line.count(b",\"cached_tokens\":", self.cached_tokens);
        line.count(b",\"output_tokens\":", self.output_tokens);
        line.seconds(b",\"queue_s\":", self.queue);
        line.seconds(b",\"route_s\":", self.route_time);
        line.seconds(b",\"first_byte_s\":", self.first_byte);
        line.seconds(b",\"total_s\":", Some(self.total));
        line.hashes(b",\"prefix\":", self.prefix);
        line.0.extend_from_slice(b"}\n");
        line.0
    }
}

/// A line that is being written. Keys come with their punctuation and their length, so that each is one inlined copy.
struct Line(Vec<u8>);

impl Line {
    /// A string of ours or checked before, without a character that needs an escape.
    fn plain<const N: usize>(&mut self, key: &[u8; N], value: &str) {
        self.0.extend_from_slice(key);
        self.0.push(b'"');
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'"');
    }

    fn text<const N: usize>(&mut self, key: &[u8; N], value: Option<&str>) {
        match value {
            None => (),
            Some(value) if has_escapes(value) => {
                self.0.extend_from_slice(key);
                push_escaped(&mut self.0, value);
            }
            Some(value) => self.plain(key, value),
        }
    }

    fn count<const N: usize>(&mut self, key: &[u8; N], value: Option<u64>) {
        if let Some(value) = value {
            self.0.extend_from_slice(key);
            push_decimal::<0>(&mut self.0, value);
        }
    }

    /// Nothing when there are none.
    fn hashes<const N: usize>(&mut self, key: &[u8; N], hashes: &[u64]) {
        if hashes.is_empty() {
            return;
        }
        let shown: Vec<_> = hashes
            .iter()
            .map(|hash| format!("\"{hash:016x}\""))
            .collect();
        self.0.extend_from_slice(key);
        self.0
            .extend_from_slice(format!("[{}]", shown.join(",")).as_bytes());
    }

    fn seconds<const N: usize>(&mut self, key: &[u8; N], value: Option<Seconds>) {
        if let Some(value) = value {
            self.0.extend_from_slice(key);
            push_decimal::<6>(&mut self.0, micros(value));
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
    (span.0 * 1e6 + 0.5) as u64
}

/// A span in milliseconds with three decimals, as `Server-Timing` wants it.
pub(super) fn push_millis(out: &mut Vec<u8>, span: Seconds) {
    push_decimal::<3>(out, micros(span));
}

/// `value` · 10⁻ᵈ with its `d` decimals, made from the last digit to the first.
fn push_decimal<const DECIMALS: usize>(out: &mut Vec<u8>, mut value: u64) {
    let mut text = [0; LONGEST_DECIMAL];
    let mut start = text.len();
    let mut put = |byte| {
        start -= 1;
        text[start] = byte;
    };
    for _ in 0..DECIMALS {
        put(take_digit(&mut value));
    }
    if DECIMALS > 0 {
        put(b'.');
    }
    put(take_digit(&mut value));
    while value > 0 {
        put(take_digit(&mut value));
    }
    out.extend_from_slice(&text[start..]);
}

/// Takes the last digit off a number.
fn take_digit(number: &mut u64) -> u8 {
    let digit = (*number % 10) as u8;
    *number /= 10;
    b'0' + digit
}

/// A JSON string with escapes: runs that need none are copied whole.
fn push_escaped(out: &mut Vec<u8>, text: &str) {
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

/// Looks at every byte, which the compiler does for many at once as long as nothing ends the loop early.
fn has_escapes(text: &str) -> bool {
    text.bytes()
        .fold(false, |found, byte| found | needs_escape(byte))
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
            prefix: &[1, u64::MAX],
        };
        let expected = concat!(
            r#"{"time":"2026-11-30T02:43:19.500Z","id":"abc","kind":"chat","tenant":"-","#,
            r#""route":"/v1/chat/completions","method":"POST","path":"/v1/chat/completions","#,
            r#""model":"good","worker":"worker-a","attempts":1,"status":200,"reason":"ok","#,
            r#""bytes_in":1024,"bytes_out":2048,"prompt_tokens":12,"cached_tokens":0,"#,
            r#""output_tokens":34,"queue_s":0.000000,"route_s":0.000012,"#,
            r#""first_byte_s":0.250000,"total_s":1.000000,"#,
            r#""prefix":["0000000000000001","ffffffffffffffff"]}"#,
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
            "prefix",
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
        assert_eq!(written(0.0009), "0.900");
        assert_eq!(written(1.0), "1000.000");
        assert_eq!(written(12.345_678), "12345.678");
        assert_eq!(written(f64::INFINITY), "18446744073709551.615");
        assert_eq!(written(-1.0), "0.000");
    }
}
