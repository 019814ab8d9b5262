//! The beginning of a prompt, as hashes: what two requests must share so that one can reuse what an engine computed for
//! the other.
//!
//! Engines cache a prompt from its start, token by token, so only a common *prefix* saves anything. Its canonical text
//! is the JSON of the tools, then of the system text, then of the messages (or the prompt), whatever their order in the
//! body, because chat templates put them in that order. White space, commas that only separate and `cache_control` (a
//! mark that clients move on with every turn) are left out; pictures and sounds, by URL or as data, stand as hashes of
//! their own. All other members stay: a template may render any of them.
//!
//! The text is hashed in blocks of 1 KiB, each hash being that of everything from the start to the block's end: equal
//! hashes of block k mean equal text up to there (one XXH3 state, asked at every border; 64 bits, so that among ten
//! million blocks a false match has odds of one in 400,000). What follows the last border has no hash, and neither has
//! a prompt below one block. The state begins with the model's name, which a LoRA has of its own, and the tenant where
//! tenants are to share nothing.
//!
//! Guaranteed: the body is walked once and not copied, strings at the speed of memory; no input panics. Strings are
//! hashed as they are written: one text with other escapes is a miss, never a false match.

use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::nesting::string_end;
use super::openai::Peek;
use crate::units::Length;

/// Bytes of canonical text in a block.
const BLOCK: usize = 1_024;
/// The most blocks that are hashed of one prompt: a megabyte of text.
pub const MOST_BLOCKS: usize = 1_024;
/// A URL or data from this length on is hashed on its own.
pub(super) const LONG: usize = 256;
/// No byte of JSON: announces what is not JSON.
const MARK: u8 = 0;
/// No byte of UTF-8: ends a name.
const END: u8 = 0xff;

/// The hashes of a prompt's blocks, from its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefix {
    /// One for each whole block; equal ones mean equal prompts up to the block's end.
    pub blocks: Arc<[u64]>,
    /// The length of a block, measured as the prompt is.
    pub each: Length,
}

impl Default for Prefix {
    fn default() -> Self {
        Prefix {
            blocks: Arc::default(),
            each: Length::Tokens(0.0),
        }
    }
}

/// What must be equal, besides the text, for one request to reuse another's work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Salt<'a> {
    /// The model or LoRA, by the name that clients say.
    pub model: &'a str,
    /// The tenant, where it shares nothing with others.
    pub tenant: Option<&'a str>,
}

/// Where a piece of the prompt stands in the canonical text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Tools,
    System,
    Said,
}

/// The order of the canonical text.
const PARTS: [Part; 3] = [Part::Tools, Part::System, Part::Said];

impl Part {
    /// That of a member of the body.
    pub(super) fn of(key: &str) -> Self {
        match key {
            "tools" => Part::Tools,
            "system" | "instructions" => Part::System,
            _ => Part::Said,
        }
    }
}

/// Hashes the prompt of a body that was peeked into.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
pub fn prefix(body: &[u8], peek: &Peek, salt: Salt<'_>) -> Prefix {
    let written: usize = peek.prompt.iter().map(|piece| piece.span.len()).sum();
    if written < BLOCK {
        return Prefix::default();
    }
    let mut chain = Chain::new(salt, written / BLOCK);
    for part in PARTS {
        let pieces = peek.prompt.iter().filter(|piece| piece.part == part);
        for json in pieces.filter_map(|piece| body.get(piece.span.clone())) {
            chain.feed(&[MARK, part as u8]);
            Walk::over(json, &mut chain);
        }
    }
    let share = BLOCK as f64 / chain.length as f64;
    Prefix {
        blocks: chain.blocks.into(),
        each: match peek.prompt_length() {
            Length::Bytes(bytes) => Length::Bytes(bytes * share),
            Length::Tokens(tokens) => Length::Tokens(tokens * share),
        },
    }
}

/// Canonical text on its way into blocks.
struct Chain {
    state: Xxh3,
    /// Bytes of the block under way.
    filled: usize,
    /// Bytes in all.
    length: usize,
    blocks: Vec<u64>,
}

impl Chain {
    fn new(salt: Salt<'_>, blocks: usize) -> Self {
        let mut state = Xxh3::new();
        state.update(salt.model.as_bytes());
        state.update(&[END]);
        state.update(salt.tenant.unwrap_or_default().as_bytes());
        state.update(&[END]);
        Chain {
            state,
            filled: 0,
            length: 0,
            blocks: Vec::with_capacity(blocks.min(MOST_BLOCKS)),
        }
    }

    fn feed(&mut self, mut text: &[u8]) {
        self.length += text.len();
        while !text.is_empty() && self.blocks.len() < MOST_BLOCKS {
            let (now, later) = text.split_at(text.len().min(BLOCK - self.filled));
            self.state.update(now);
            self.filled += now.len();
            if self.filled == BLOCK {
                self.blocks.push(self.state.digest());
                self.filled = 0;
            }
            text = later;
        }
    }
}

/// One JSON value on its way into a chain.
struct Walk<'a> {
    json: &'a [u8],
    chain: &'a mut Chain,
    at: usize,
    /// What is before this was fed, or is left out.
    settled: usize,
}

impl<'a> Walk<'a> {
    fn over(json: &'a [u8], chain: &'a mut Chain) {
        let mut walk = Walk {
            json,
            chain,
            at: 0,
            settled: 0,
        };
        while let Some(byte) = json.get(walk.at) {
            match byte {
                b'"' => walk.string(),
                b',' if walk.separates() => walk.leave_out(1),
                b' ' | b'\n' | b'\r' | b'\t' => walk.leave_out(1),
                _ => walk.at += 1,
            }
        }
        walk.settle(json.len());
    }

    /// Feeds what stands before this place.
    fn settle(&mut self, until: usize) {
        if let Some(text) = self.json.get(self.settled..until) {
            self.chain.feed(text);
        }
        self.settled = until;
    }

    fn leave_out(&mut self, bytes: usize) {
        self.settle(self.at);
        self.at = (self.at + bytes).min(self.json.len());
        self.settled = self.at;
    }

    /// Whether the comma here stands before something that says itself where it begins.
    fn separates(&self) -> bool {
        let next = after_space(self.json, self.at + 1);
        matches!(self.json.get(next), Some(b'"' | b'{' | b'['))
    }

    /// A key or a text.
    fn string(&mut self) {
        let begin = self.at;
        self.at = string_end(self.json, begin + 1).min(self.json.len());
        let value = || {
            let colon = after_space(self.json, self.at);
            let is_key = self.json.get(colon) == Some(&b':');
            is_key.then(|| after_space(self.json, colon + 1))
        };
        match &self.json[begin..self.at] {
            br#""cache_control""# => {
                if let Some(value) = value() {
                    self.at = begin;
                    self.leave_out(value_end(self.json, value) - begin);
                }
            }
            [b'"', key @ .., b'"'] if is_data_key(key) => {
                if let Some(value) = value() {
                    self.hash_alone(value);
                }
            }
            _ => {}
        }
    }

    /// Puts a long string's hash in its place.
    fn hash_alone(&mut self, begin: usize) {
        if self.json.get(begin) != Some(&b'"') {
            return;
        }
        let end = string_end(self.json, begin + 1).min(self.json.len());
        if let Some(text) = self.json.get(begin..end)
            && text.len() >= LONG
        {
            self.at = begin;
            self.leave_out(text.len());
            self.chain.feed(&[MARK]);
            self.chain.feed(&xxh3_64(text).to_le_bytes());
        }
    }
}

/// Whether the value of such a member may be a picture, a sound or a file.
pub(super) fn is_data_key(key: &[u8]) -> bool {
    matches!(key, b"url" | b"image_url" | b"data" | b"file_data")
}

fn after_space(json: &[u8], at: usize) -> usize {
    let rest = json.get(at..).unwrap_or_default();
    at + rest.len() - rest.trim_ascii_start().len()
}

/// Where the value ends that begins here.
fn value_end(json: &[u8], begin: usize) -> usize {
    let mut at = begin;
    let mut depth = 0_usize;
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(json, at).min(json.len()),
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => depth -= 1,
            b',' | b'}' | b']' if depth == 0 => return at - 1,
            _ => continue,
        }
        if depth == 0 {
            return at;
        }
    }
    json.len()
}
#[cfg(test)]
mod tests {
    use super::super::openai::peek;
    use super::*;
    use crate::rng::Rng;

    const SALT: Salt<'_> = Salt {
        model: "m",
        tenant: None,
    };

    fn of(body: &str) -> Vec<u64> {
        salted(body, SALT).blocks.to_vec()
    }

    fn salted(body: &str, salt: Salt<'_>) -> Prefix {
        prefix(body.as_bytes(), &peek(body.as_bytes()).unwrap(), salt)
    }

    /// How many blocks two prompts have in common from their start.
    fn shared(one: &str, other: &str) -> usize {
        let (one, other) = (of(one), of(other));
        one.iter().zip(&other).take_while(|(a, b)| a == b).count()
    }

    /// Text without a repetition that a block could hide, so long.
    fn text(seed: u64, bytes: usize) -> String {
        let mut rng = Rng::seeded(seed);
        let word = |_| char::from(b'a' + u8::try_from(rng.below(26)).unwrap());
        (0..bytes).map(word).collect()
    }

    fn message(role: &str, content: &str) -> String {
        format!(r#"{{"role":"{role}","content":"{content}"}}"#)
    }

    fn chat(messages: &[String]) -> String {
        format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","))
    }

    #[test]
    fn a_longer_conversation_begins_with_the_blocks_of_the_shorter() {
        let mut messages = vec![message("system", &text(1, 3_000))];
        let mut before = of(&chat(&messages));
        assert_eq!(before.len(), 2);
        for turn in 2..20 {
            messages.push(message("user", &text(turn, 700)));
            let now = of(&chat(&messages));
            assert!(now.starts_with(&before) && now.len() <= before.len() + 1);
            before = now;
        }
    }

    #[test]
    fn a_difference_changes_its_block_and_all_after_it() {
        let said = text(1, 10_000);
        let same = chat(&[message("user", &said)]);
        for (at, blocks) in [(100, 0), (5_000, 4), (9_990, 9)] {
            let mut changed = said.clone();
            changed.replace_range(at..=at, "#");
            let changed = chat(&[message("user", &changed)]);
            let (same, changed) = (of(&same), of(&changed));
            let equal: Vec<bool> = same.iter().zip(&changed).map(|(a, b)| a == b).collect();
            let wanted: Vec<bool> = (0..9).map(|block| block < blocks).collect();
            assert_eq!(equal, wanted, "{at}");
        }
        let role = chat(&[message("system", &said)]);
        assert_eq!(shared(&same, &role), 0);
    }

    #[test]
    fn spacing_the_order_of_the_body_and_cache_marks_do_not_count() {
        let (tools, system, said) = (text(1, 1_500), text(2, 1_500), text(3, 3_000));
        let plain = format!(
            r#"{{"tools":[{{"n":1,"d":"{tools}"}}],"system":[{{"type":"text","text":"{system}"}}],"messages":[{{"role":"user","content":"{said}"}}]}}"#
        );
        let other = format!(
            "{{\"messages\" : [ {{\"role\": \"user\", \"cache_control\": {{\"type\": \"ephemeral\"}},\n\"content\": \"{said}\", \
             \"cache_control\":null}} ], \"system\": [{{\"type\":\"text\",\"text\":\"{system}\",\"cache_control\":{{\"a\":[1]}}}}],\
             \"tools\":[{{\"n\": 1, \"cache_control\": {{}}, \"d\":\"{tools}\"}}]}}"
        );
        assert_eq!(of(&plain).len(), 5);
        assert_eq!(of(&plain), of(&other));
        let said_so = plain.replace("\"user\"", "\"cache_control\"");
        assert!(shared(&plain, &said_so) < 5, "as a text it counts");
    }

    #[test]
    fn other_escapes_are_a_miss() {
        let said = text(1, 3_000);
        let escaped = said.replacen('a', "\\u0061", 1);
        let [plain, escaped] = [said, escaped].map(|said| chat(&[message("user", &said)]));
        assert!(shared(&plain, &escaped) < 2);
    }

    #[test]
    fn numbers_keep_their_borders() {
        let ids = |separator: &str| {
            let ids: Vec<String> = (100..1_000).map(|id| id.to_string()).collect();
            format!(r#"{{"prompt":[{}]}}"#, ids.join(separator))
        };
        assert_eq!(of(&ids(",")), of(&ids(" , ")));
        assert_eq!(shared(&ids(","), &ids("")), 0);
        let Length::Tokens(each) = salted(&ids(","), SALT).each else {
            panic!("tokens");
        };
        assert!((each - 900.0 * 1_024.0 / 3_603.0).abs() < 1.0, "{each}");
    }

    #[test]
    fn a_picture_is_a_hash_wherever_it_is() {
        let body = |picture: &str| {
            let part = format!(r#"{{"type":"image_url","image_url":{{"url":"{picture}"}}}}"#);
            let (before, after) = (text(1, 1_200), text(2, 2_000));
            format!(
                r#"{{"messages":[{{"role":"user","content":[{{"text":"{before}"}},{part},{{"text":"{after}"}}]}}]}}"#
            )
        };
        let [one, other] = [3, 4].map(|seed| body(&text(seed, 50_000)));
        assert_eq!((of(&one).len(), shared(&one, &other)), (3, 1));
        assert_eq!(of(&one), of(&one.clone()));
        let Length::Bytes(each) = salted(&one, SALT).each else {
            panic!("bytes");
        };
        assert!(each > 10_000.0, "a block is a third of it: {each}");
        assert_eq!(of(&body(&text(3, 100))).len(), 3, "a short one stays");
    }

    #[test]
    fn models_and_tenants_share_nothing() {
        let body = chat(&[message("user", &text(1, 2_000))]);
        let salts = [
            ("m", None),
            ("n", None),
            ("m", Some("a")),
            ("m", Some("b")),
            ("ma", None),
        ];
        let firsts: std::collections::BTreeSet<_> = salts
            .map(|(model, tenant)| salted(&body, Salt { model, tenant }).blocks[0])
            .into();
        assert_eq!(firsts.len(), salts.len());
    }

    #[test]
    fn short_prompts_have_none_and_long_ones_a_bounded_number() {
        assert_eq!(salted("{}", SALT), Prefix::default());
        assert!(of(&chat(&[message("user", &text(1, 900))])).is_empty());
        let long = chat(&[message("user", &"x".repeat(3 * MOST_BLOCKS * BLOCK))]);
        assert_eq!(of(&long).len(), MOST_BLOCKS);
        let Length::Bytes(each) = salted(&long, SALT).each else {
            panic!("bytes");
        };
        assert!((each - 1_024.0).abs() < 1.0);
    }

    #[test]
    fn what_is_broken_is_walked_to_its_end() {
        let body = format!(
            r#"{{"system":[{{"cache_control":{{"a":"\"}}"}},"url":"{}"}}],"messages":[1,2,{{"data":[]}}]}}"#,
            text(1, 1_500)
        );
        let whole = peek(body.as_bytes()).unwrap();
        for seed in 0..256 {
            let mut rng = Rng::seeded(seed);
            let mut broken = body.clone().into_bytes();
            for _ in 0..=rng.below(4) {
                let at = rng.below(broken.len());
                broken[at] = b"\"\\{}[],: a"[rng.below(10)];
            }
            broken.truncate(rng.below(broken.len()) + 1);
            assert!(prefix(&broken, &whole, SALT).blocks.len() < 3);
        }
    }
}
