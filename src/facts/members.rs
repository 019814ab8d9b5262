//! The members of a JSON object, one after the other and without building anything: names, and where values stand.
//!
//! Strict (RFC 8259) down to the last level: what a lenient reader might take for a comment or a quote of its own kind
//! could hide a member from us that it sees. What follows the object is for the caller to judge.
//!
//! 2026-11-30: this was sonic-rs' iterator, which was a third of what a long prompt cost. Built for every x86-64, that
//! reads strings a few bytes at a time, and it skips values by recursion, so that their depth had to be found out
//! first. Here strings are left to `memchr`, which asks the processor what it can do, and a level is a bit: the deepest
//! that is allowed are just those of a word. To peek into a chat of 64 KB now takes 44,000 instructions instead of
//! 105,000.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use super::nesting::DEEPEST;

const _: () = assert!(DEEPEST == u64::BITS as usize, "a level is a bit");

/// A member of the object.
#[derive(Debug)]
pub(super) struct Member<'a> {
    /// Its name, unescaped.
    pub name: Cow<'a, str>,
    /// Where its value stands.
    pub value: Range<usize>,
}

/// Why the walk ended before the object did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is nested deeper than [`DEEPEST`].
    TooDeep,
    /// From this byte on it is no JSON object.
    Broken(usize),
}

/// Walks along the members.
pub(super) struct Members<'a> {
    json: &'a str,
    at: usize,
    ended: bool,
}

/// The objects and arrays that are open inside a member: a one for an object, a zero for an array, above them a one.
struct Levels(u64);

/// The members of an object that stands at the beginning of a text.
pub(super) fn members(json: &str) -> Members<'_> {
    Members {
        json,
        at: 0,
        ended: false,
    }
}

/// What a JSON string says; `None` when the value is none, or says no text.
pub(super) fn text(value: &str) -> Option<Cow<'_, str>> {
    let inside = value.strip_prefix('"')?.strip_suffix('"')?;
    if inside.as_bytes().contains(&b'\\') {
        sonic_rs::from_str(value).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inside))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<Member<'a>, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let member = self.member();
        self.ended = !matches!(member, Ok(Some(_)));
        member.transpose()
    }
}

impl<'a> Members<'a> {
    /// What follows what was passed: behind the last member, what follows the object.
    pub(super) fn rest(&self) -> &'a str {
        &self.json[self.at..]
    }

    fn member(&mut self) -> Result<Option<Member<'a>>, Unreadable> {
        let is_first = self.at == 0;
        if is_first {
            self.must(b'{')?;
        }
        if self.may(b'}') {
            return Ok(None);
        }
        if !is_first {
            self.must(b',')?;
        }
        let name = self.name()?;
        let name = text(&self.json[name]).ok_or(Unreadable::Broken(self.at))?;
        self.space();
        let begin = self.at;
        self.value()?;
        let value = begin..self.at;
        Ok(Some(Member { name, value }))
    }

    /// Passes a value with all that is in it.
    fn value(&mut self) -> Result<(), Unreadable> {
        let mut levels = Levels(1);
        loop {
            self.space();
            match self.json.as_bytes().get(self.at) {
                Some(b'"') => self.string()?,
                Some(b'{') => {
                    self.at += 1;
                    levels.open(true)?;
                    if !self.may(b'}') {
                        self.name()?;
                        continue;
                    }
                    levels.close();
                }
                Some(b'[') => {
                    self.at += 1;
                    levels.open(false)?;
                    if !self.may(b']') {
                        continue;
                    }
                    levels.close();
                }
                _ => self.word()?,
            }
            if self.ends(&mut levels)? {
                return Ok(());
            }
        }
    }

    /// Whether a value that has ended ends all that was open; else passes what stands before the next.
    fn ends(&mut self, levels: &mut Levels) -> Result<bool, Unreadable> {
        while !levels.are_closed() {
            let in_object = levels.in_object();
            if self.may(b',') {
                if in_object {
                    self.name()?;
                }
                return Ok(false);
            }
            self.must(if in_object { b'}' } else { b']' })?;
            levels.close();
        }
        Ok(true)
    }

    /// Passes a member's name and its colon.
    fn name(&mut self) -> Result<Range<usize>, Unreadable> {
        self.space();
        let begin = self.at;
        self.string()?;
        let end = self.at;
        self.must(b':')?;
        Ok(begin..end)
    }

    fn string(&mut self) -> Result<(), Unreadable> {
        let json = self.json.as_bytes();
        let broken = Unreadable::Broken(self.at);
        if json.get(self.at) != Some(&b'"') {
            return Err(broken);
        }
        let mut at = self.at + 1;
        loop {
            let run = &json[at..];
            let length = memchr2(b'"', b'\\', run).ok_or(broken)?;
            if has_controls(&run[..length]) {
                return Err(broken);
            }
            at += length + 1;
            if run[length] == b'"' {
                self.at = at;
                return Ok(());
            }
            at += escape(&json[at..]).ok_or(broken)?;
        }
    }

    /// Passes a number or one of the three words that there are.
    fn word(&mut self) -> Result<(), Unreadable> {
        let rest = &self.json.as_bytes()[self.at..];
        let belongs = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let end = rest.iter().position(|byte| !belongs(byte));
        let word = &rest[..end.unwrap_or(rest.len())];
        let is_number = after_number(word).is_some_and(<[u8]>::is_empty);
        if !is_number && !matches!(word, b"true" | b"false" | b"null") {
            return Err(Unreadable::Broken(self.at));
        }
        self.at += word.len();
        Ok(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.json.as_bytes().get(self.at) {
            self.at += 1;
        }
    }

    /// Passes this sign if it is next.
    fn may(&mut self, sign: u8) -> bool {
        self.space();
        let is_next = self.json.as_bytes().get(self.at) == Some(&sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn must(&mut self, sign: u8) -> Result<(), Unreadable> {
        if self.may(sign) {
            Ok(())
        } else {
            Err(Unreadable::Broken(self.at))
        }
    }
}

impl Levels {
    fn open(&mut self, object: bool) -> Result<(), Unreadable> {
        if self.0.leading_zeros() == 0 {
            return Err(Unreadable::TooDeep);
        }
        self.0 = self.0 << 1 | u64::from(object);
        Ok(())
    }

    fn close(&mut self) {
        self.0 >>= 1;
    }

    fn in_object(&self) -> bool {
        self.0 & 1 == 1
    }

    fn are_closed(&self) -> bool {
        self.0 == 1
    }
}

/// Looks for the least of all bytes, which the compiler does with many at once.
fn has_controls(text: &[u8]) -> bool {
    text.iter().copied().fold(u8::MAX, u8::min) < b' '
}

/// How long the escape is that stands here, behind its backslash.
fn escape(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(1),
        b'u' if text.get(1..5)?.iter().all(u8::is_ascii_hexdigit) => Some(5),
        _ => None,
    }
}

/// What follows a number.
fn after_number(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let mut rest = match text.strip_prefix(b"0") {
        Some(rest) => rest,
        None => after_digits(text)?,
    };
    if let Some(fraction) = rest.strip_prefix(b".") {
        rest = after_digits(fraction)?;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let [b'+' | b'-', digits @ ..] = exponent else {
            return after_digits(exponent);
        };
        rest = after_digits(digits)?;
    }
    Some(rest)
}

/// What follows one digit or more.
fn after_digits(text: &[u8]) -> Option<&[u8]> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then(|| &text[digits..])
}

#[cfg(test)]
mod tests {
    use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

    use super::*;
    use crate::rng::Rng;

    const CHAT: &str = r#" { "model" : "m\u0031", "a\"b":[ [], {} ,[1,-0.5e+7,0,1E2],{"x":{"y":null},"z":"\\\"\/\b"}],
        "stream":true,"text":"дом \ud83d\ude00 €","empty":"", "n":-0, "off":false}  "#;

    fn read(json: &str) -> Result<Vec<(String, &str)>, Unreadable> {
        let told = |member: Member<'_>| (member.name.into_owned(), &json[member.value]);
        members(json).map(|member| member.map(told)).collect()
    }

    /// The names that another parser finds, in the order of the text.
    struct Names(Vec<String>);

    impl<'de> Deserialize<'de> for Names {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_map(Names(Vec::new()))
        }
    }

    impl<'de> Visitor<'de> for Names {
        type Value = Names;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Names, A::Error> {
            while let Some((name, IgnoredAny)) = map.next_entry()? {
                self.0.push(name);
            }
            Ok(self)
        }
    }

    fn names_by_another(json: &str) -> Option<Vec<String>> {
        let mut values = serde_json::Deserializer::from_str(json).into_iter::<Names>();
        Some(values.next()?.ok()?.0)
    }

    #[test]
    fn members_are_those_that_another_parser_finds() {
        let whole: serde_json::Value = serde_json::from_str(CHAT).unwrap();
        let found = read(CHAT).unwrap();
        assert_eq!(found.len(), whole.as_object().unwrap().len());
        for (name, value) in found {
            let value: serde_json::Value = serde_json::from_str(value).unwrap();
            assert_eq!(value, whole[name]);
        }
        assert_eq!(read("{}").unwrap(), []);
        assert_eq!(read(r#"{"a":1} {"#).unwrap().len(), 1, "what follows");
    }

    #[test]
    fn what_another_parser_refuses_is_refused_and_nothing_else() {
        let mut rng = Rng::seeded(1);
        let signs: Vec<char> = "{}[]:,\"\\ 01.-eEu\n\u{1}tx".chars().collect();
        let mut readable = 0;
        for _ in 0..20_000 {
            let mut letters: Vec<char> = CHAT.chars().collect();
            for _ in 0..=rng.below(2) {
                let (at, sign) = (rng.below(letters.len()), signs[rng.below(signs.len())]);
                match rng.below(3) {
                    0 => letters[at] = sign,
                    1 => letters.insert(at, sign),
                    _ => drop(letters.remove(at)),
                }
            }
            let json: String = letters.into_iter().collect();
            let found = read(&json).ok();
            readable += usize::from(found.is_some());
            for (_, value) in found.iter().flatten() {
                assert!(serde_json::from_str::<IgnoredAny>(value).is_ok(), "{json}");
            }
            let names = found.map(|all| all.into_iter().map(|(name, _)| name).collect());
            assert_eq!(names, names_by_another(&json), "{json}");
        }
        assert!((1_000..19_000).contains(&readable), "{readable}");
    }

    #[test]
    fn the_deepest_is_read_and_no_deeper() {
        let signs = |level: usize| match level % 2 {
            0 => ("[", "]"),
            _ => ("{\"a\":", "}"),
        };
        let nested = |levels: usize| {
            let open: String = (0..levels).map(|level| signs(level).0).collect();
            let close: String = (0..levels).rev().map(|level| signs(level).1).collect();
            format!("{{\"a\":{open}1{close}}}")
        };
        assert_eq!(read(&nested(DEEPEST - 1)).unwrap().len(), 1);
        assert_eq!(read(&nested(DEEPEST)), Err(Unreadable::TooDeep));
        let wide = format!("{{\"a\":[{}1]}}", "[{}],".repeat(10 * DEEPEST));
        assert_eq!(read(&wide).unwrap().len(), 1);
    }

    #[test]
    fn where_it_breaks_is_told() {
        assert_eq!(read(""), Err(Unreadable::Broken(0)));
        assert_eq!(read("[1]"), Err(Unreadable::Broken(0)));
        assert_eq!(read(r#"{"a":1,}"#), Err(Unreadable::Broken(7)));
        assert_eq!(read(r#"{"a" 1}"#), Err(Unreadable::Broken(5)));
        assert_eq!(read("{\"a\":\"\n\"}"), Err(Unreadable::Broken(5)));
        assert_eq!(read(r#"{"a":tru}"#), Err(Unreadable::Broken(5)));
    }
}
