//! What an answer says of its own cost, found in passing.
//!
//! The relay shows each chunk to a [`UsageScan`] as it goes by. Streams: an SSE `data:` event counts as one token until
//! usage says otherwise; a `usage` object in any event is read. Other answers: engines write `usage` near the end of
//! the object, so the last few hundred bytes are kept and searched once the answer is complete. Nothing is held back
//! and nothing is kept but those bytes. Names: OpenAI's `prompt_tokens`, `completion_tokens`,
//! `prompt_tokens_details.cached_tokens`; Anthropic's and the Responses API's `input_tokens`, `output_tokens`.
//! Anthropic's `input_tokens` leave out what was read from the cache or written to it (its "Prompt caching", "Tracking
//! cache performance"); here a prompt is all of it.

use std::sync::LazyLock;

use memchr::memmem;

/// Bytes kept from the end of an answer: a usage object with all its details is shorter.
const TAIL: usize = 1024;

/// Where keys begin and end.
const QUOTE: u8 = b'"';

/// The keys of a usage object, for each count the name that is believed first.
const COUNTS: [&[u8]; 7] = [
    b"prompt_tokens",
    b"input_tokens",
    b"cached_tokens",
    b"cache_read_input_tokens",
    b"cache_creation_input_tokens",
    b"completion_tokens",
    b"output_tokens",
];

/// The key under which all engines report.
const USAGE: &[u8] = b"\"usage\"";

/// Finds that key; made once, because making it costs more than a search.
static FIND_USAGE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(USAGE));

/// Token counts as the worker reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Of these, read from the worker's prefix cache.
    pub cached: Option<u64>,
    /// Tokens generated.
    pub output: Option<u64>,
}

/// Watches an answer go by.
#[derive(Debug)]
pub struct UsageScan {
    streamed: bool,
    tail: Vec<u8>,
    found: Usage,
}

impl UsageScan {
    /// A scan of one answer; `streamed` when it is a stream of SSE events.
    #[must_use]
    pub fn new(streamed: bool) -> Self {
        UsageScan {
            streamed,
            tail: Vec::new(),
            found: Usage::default(),
        }
    }

    /// Shows a chunk; returns how many `data:` events began in it (always zero for answers that are not streamed).
    pub fn chunk(&mut self, chunk: &[u8]) -> u32 {
        if !self.streamed {
            self.keep(chunk);
            return 0;
        }
        if FIND_USAGE.find(chunk).is_some() {
            self.merge(chunk);
        }
        events_in(chunk)
    }

    /// What was reported, once the answer is complete.
    #[must_use]
    pub fn finish(mut self) -> Usage {
        let tail = std::mem::take(&mut self.tail);
        self.merge(&tail);
        self.found
    }

    fn keep(&mut self, chunk: &[u8]) {
        let fresh = &chunk[chunk.len().saturating_sub(TAIL)..];
        let surplus = (self.tail.len() + fresh.len()).saturating_sub(TAIL);
        self.tail.drain(..surplus.min(self.tail.len()));
        self.tail.extend_from_slice(fresh);
    }

    /// Reads the last usage object in a piece of an answer; later reports complete earlier ones.
    fn merge(&mut self, text: &[u8]) {
        let Some(at) = last_usage(text) else {
            return;
        };
        let Some(object) =
            after_colon(&text[at + USAGE.len()..]).filter(|after| after.starts_with(b"{"))
        else {
            return;
        };
        let [
            prompt,
            input,
            cached,
            cache_read,
            cache_made,
            completion,
            output,
        ] = counts(object);
        let apart = [cache_read, cache_made].into_iter().flatten();
        let input = input.map(|input| apart.fold(input, u64::saturating_add));
        self.found = Usage {
            prompt: prompt.or(input).or(self.found.prompt),
            cached: cached.or(cache_read).or(self.found.cached),
            output: completion.or(output).or(self.found.output),
        };
    }
}

/// `data:` lines that begin in a chunk, without the end marker. Engines send whole events, so a chunk begins a line.
fn events_in(chunk: &[u8]) -> u32 {
    let begins = std::iter::once(0).chain(memchr::memchr_iter(b'\n', chunk).map(|at| at + 1));
    let event = |at: &usize| {
        chunk[*at..].starts_with(b"data:") && !chunk[*at..].starts_with(b"data: [DONE]")
    };
    u32::try_from(begins.filter(event).count()).unwrap_or(u32::MAX)
}

/// Where the last usage key stands. It is near the end, so quotes are walked backwards instead of searching it all.
fn last_usage(text: &[u8]) -> Option<usize> {
    memchr::memrchr_iter(QUOTE, text).find(|at| text[*at..].starts_with(USAGE))
}

/// What a usage object says under each of the [`COUNTS`], read in one walk. Its quotes cut it into keys and what
/// follows them: inside a JSON string they would be escaped, so nothing that a model writes can be taken for a key.
fn counts(object: &[u8]) -> [Option<u64>; COUNTS.len()] {
    let mut found = [None; COUNTS.len()];
    let (mut key, mut begin): (&[u8], usize) = (b"", 0);
    for end in memchr::memchr_iter(QUOTE, object).chain([object.len()]) {
        let piece = &object[begin..end];
        if let Some(at) = COUNTS.iter().position(|count| *count == key) {
            found[at] = found[at].or_else(|| number(piece));
        }
        (key, begin) = (piece, end + 1);
    }
    found
}

/// The number behind a key.
fn number(after_key: &[u8]) -> Option<u64> {
    let value = after_colon(after_key)?;
    let digits = value
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(value.len());
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}

/// What follows a key: its value, after the colon.
fn after_colon(text: &[u8]) -> Option<&[u8]> {
    text.trim_ascii_start()
        .strip_prefix(b":")
        .map(<[u8]>::trim_ascii_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_its_usage_however_it_is_cut() {
        let answer = br#"{"choices":[{"text":"a \"usage\" of {"}],"usage":{"prompt_tokens":11,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}"#;
        for size in [1, 7, 64, 4096] {
            let mut scan = UsageScan::new(false);
            answer
                .chunks(size)
                .for_each(|chunk| assert_eq!(scan.chunk(chunk), 0));
            assert_eq!(
                scan.finish(),
                Usage {
                    prompt: Some(11),
                    cached: Some(8),
                    output: Some(3)
                }
            );
        }
    }

    #[test]
    fn a_long_answer_keeps_only_its_tail() {
        let mut scan = UsageScan::new(false);
        scan.chunk(&[b'x'; 100_000]);
        scan.chunk(br#""usage":{"prompt_tokens":5,"total_tokens":5}}"#);
        assert!(scan.tail.len() <= TAIL);
        assert_eq!(
            scan.finish(),
            Usage {
                prompt: Some(5),
                ..Usage::default()
            }
        );
    }

    #[test]
    fn events_are_counted_and_the_end_marker_is_not_one() {
        let mut scan = UsageScan::new(true);
        let counted = [
            scan.chunk(b"data: {\"choices\":[]}\n\n"),
            scan.chunk(b"data: {}\n\ndata: {}\n\n"),
            scan.chunk(b"data: {\"usage\":null}\n\n"),
            scan.chunk(b"data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"),
        ];
        assert_eq!(counted, [1, 2, 1, 1]);
        assert_eq!(
            scan.finish(),
            Usage {
                prompt: Some(9),
                cached: None,
                output: Some(4)
            }
        );
    }

    #[test]
    fn of_two_names_for_a_count_the_first_in_the_list_is_believed() {
        let mut scan = UsageScan::new(false);
        scan.chunk(br#"{"usage":{"input_tokens":1,"prompt_tokens":2,"output_tokens":3,"completion_tokens":null}}"#);
        let usage = scan.finish();
        assert_eq!((usage.prompt, usage.output), (Some(2), Some(3)));
    }

    #[test]
    fn anthropic_reports_in_two_events() {
        let mut scan = UsageScan::new(true);
        scan.chunk(b"event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":10,\"cache_creation_input_tokens\":7}}}\n\n");
        scan.chunk(b"event: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n");
        assert_eq!(
            scan.finish(),
            Usage {
                prompt: Some(42),
                cached: Some(10),
                output: Some(15)
            }
        );
    }
}
