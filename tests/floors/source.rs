//! Reads Rust source as far as the guards need it: no macros expanded, no types resolved, and no dependency.
//!
//! Comments and literals are blanked first, so that prose can't break a rule. Then the text is cut into words and
//! signs, test code is left out, and every path (`a::b::{c, d}` gives `a::b::c` and `a::b::d`) is taken down, whether
//! it stands in a `use` or in an expression. `super::…` that climbs out of a room is turned into `crate::…`.

use std::collections::VecDeque;

/// A path as written, groups spread out.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// The names between the `::`; `*` for a glob.
    pub names: Vec<String>,
    /// Where it begins, counted from 1.
    pub line: usize,
}

/// A function and how many lines of code stand in its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Where it begins, counted from 1.
    pub line: usize,
    /// Lines of its body that are neither empty nor only a comment.
    pub length: usize,
}

/// What the guards know of one file.
pub struct Source {
    /// Every path outside test code.
    pub paths: Vec<Path>,
    /// Every function outside test code.
    pub functions: Vec<Function>,
    /// All lines, those of test code left out.
    pub lines: usize,
}

#[derive(Clone, Debug)]
struct Token {
    text: String,
    line: usize,
}

/// Words that can stand right before a path that begins with `::`.
const KEYWORDS: &[&str] = &[
    "use", "return", "in", "mut", "dyn", "impl", "else", "match", "if", "while", "break", "let",
    "ref", "const", "where", "as", "move", "async", "unsafe",
];

impl Token {
    fn is_name(&self) -> bool {
        let keyword = KEYWORDS.contains(&self.text.as_str());
        !keyword
            && self
                .text
                .starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

impl Source {
    /// Reads `text`, a file that stands `depth` modules below the crate's root (`line.rs` and `fleet/mod.rs`: 1).
    pub fn read(text: &str, depth: usize) -> Self {
        let code = blank(text);
        let (tokens, test_lines) = without_tests(&cut(&code));
        Source {
            paths: paths(&tokens, depth),
            functions: functions(&tokens, &code),
            lines: text.lines().count() - test_lines,
        }
    }
}

/// Replaces comments and the inside of literals with spaces; line ends stay.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(
                chars[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    code
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none begins there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let after_name = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match rest {
        ['/', '/', ..] => at + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => at + block_comment_length(rest),
        ['r', '"' | '#', ..] if !after_name => at + raw_string_length(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !after_name => at + raw_string_length(rest, 2),
        ['"', ..] => at + quoted_length(rest, '"'),
        ['\'', '\\', ..] => at + quoted_length(rest, '\''),
        ['\'', _, '\'', ..] => at + 3,
        _ => at,
    }
}

fn block_comment_length(rest: &[char]) -> usize {
    let (mut open, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (open, at) = (open + 1, at + 2),
            ['*', '/', ..] => (open, at) = (open - 1, at + 2),
            _ => at += 1,
        }
        if open == 0 {
            break;
        }
    }
    at
}

/// The length of `r#"…"#` after a prefix of `prefix` letters; 0 when it is a raw name such as `r#type`.
fn raw_string_length(rest: &[char], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    if rest.get(prefix + hashes) != Some(&'"') {
        return 0;
    }
    let mut at = prefix + hashes + 1;
    while at < rest.len() {
        let closes =
            rest[at] == '"' && rest[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
        if closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    at
}

fn quoted_length(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    rest.len().min(at + 1)
}

fn cut(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut chars: VecDeque<char> = line.chars().collect();
        while let Some(first) = chars.pop_front() {
            let mut text = String::from(first);
            if first.is_alphanumeric() || first == '_' {
                while let Some(c) = chars.pop_front_if(|c| c.is_alphanumeric() || *c == '_') {
                    text.push(c);
                }
            } else if first == ':' && chars.front() == Some(&':') {
                text.extend(chars.pop_front());
            }
            if !first.is_whitespace() {
                tokens.push(Token {
                    text,
                    line: number + 1,
                });
            }
        }
    }
    tokens
}

/// Leaves out every item marked `#[cfg(test)]`, and says how many lines that were.
fn without_tests(tokens: &[Token]) -> (Vec<Token>, usize) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut lines, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        let marked = MARK
            .iter()
            .enumerate()
            .all(|(i, sign)| tokens.get(at + i).is_some_and(|t| t.text == *sign));
        if marked {
            let end = item_end(tokens, at + MARK.len());
            lines += tokens[end - 1].line + 1 - tokens[at].line;
            at = end;
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    (kept, lines)
}

/// One past the item that begins at `at`: its closing brace, or its semicolon.
fn item_end(tokens: &[Token], at: usize) -> usize {
    let mut open = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "{" | "(" | "[" => open += 1,
            "}" | ")" | "]" => open = open.saturating_sub(1),
            _ => {}
        }
        if open == 0 && matches!(token.text.as_str(), "}" | ";") {
            return i + 1;
        }
    }
    tokens.len()
}

fn paths(tokens: &[Token], depth: usize) -> Vec<Path> {
    let mut found = Vec::new();
    let mut modules: Vec<bool> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "{" => modules.push(opens_module(tokens, at)),
            "}" => drop(modules.pop()),
            _ => {}
        }
        let continues = at > 0 && continues_path(&tokens[..at]);
        if tokens[at].is_name() && !continues {
            let here = depth + modules.iter().filter(|inline| **inline).count();
            let (spread, end) = spread(tokens, at);
            found.extend(spread.into_iter().map(|names| Path {
                names: climb(names, here),
                line: tokens[at].line,
            }));
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

/// Whether the name after `before` belongs to a path, a field or a method that has begun already.
fn continues_path(before: &[Token]) -> bool {
    match before {
        [.., last] if last.text == "." => true,
        [.., owner, last] if last.text == "::" => owner.text == ">" || owner.is_name(),
        _ => false,
    }
}

fn opens_module(tokens: &[Token], brace: usize) -> bool {
    brace >= 2 && tokens[brace - 1].is_name() && tokens[brace - 2].text == "mod"
}

/// The paths that begin at `at`, groups spread out, and one past their last token.
fn spread(tokens: &[Token], mut at: usize) -> (Vec<Vec<String>>, usize) {
    let mut names = vec![tokens[at].text.clone()];
    at += 1;
    while tokens.get(at).is_some_and(|t| t.text == "::") {
        match tokens.get(at + 1) {
            Some(next) if next.is_name() || next.text == "*" => names.push(next.text.clone()),
            Some(next) if next.text == "{" => {
                let (tails, end) = group(tokens, at + 2);
                let joined = tails.into_iter().map(|tail| [names.clone(), tail].concat());
                return (joined.collect(), end);
            }
            _ => break,
        }
        at += 2;
    }
    if names == ["crate"] && tokens.get(at).is_some_and(|t| t.text == "as") {
        names.push("*".to_owned()); // a new name for the root hides every room behind it
    }
    (vec![names], at)
}

/// The members of a `{…}` group that begins at `at`, and one past its closing brace.
fn group(tokens: &[Token], mut at: usize) -> (Vec<Vec<String>>, usize) {
    let mut members = Vec::new();
    while at < tokens.len() && tokens[at].text != "}" {
        if tokens[at].text == "as" {
            at += 2;
        } else if tokens[at].is_name() {
            let (spread, end) = spread(tokens, at);
            members.extend(spread);
            at = end;
        } else {
            if tokens[at].text == "*" {
                members.push(vec!["*".to_owned()]);
            }
            at += 1;
        }
    }
    (members, at + 1)
}

/// Turns a `super::…` that reaches the crate's root, `depth` modules up, into `crate::…`.
fn climb(names: Vec<String>, depth: usize) -> Vec<String> {
    let climbs = names.iter().take_while(|name| *name == "super").count();
    if climbs == 0 || climbs < depth {
        return names;
    }
    let below = names.into_iter().skip(climbs);
    std::iter::once("crate".to_owned()).chain(below).collect()
}

fn functions(tokens: &[Token], code: &str) -> Vec<Function> {
    let lines: Vec<&str> = code.lines().collect();
    let begins =
        |at: usize| tokens[at].text == "fn" && tokens.get(at + 1).is_some_and(Token::is_name);
    (0..tokens.len())
        .filter(|at| begins(*at))
        .map(|at| {
            let last = tokens[item_end(tokens, at) - 1].line;
            let first = body_line(tokens, at);
            let inner = lines.get(first..last.saturating_sub(1)).unwrap_or_default();
            Function {
                name: tokens[at + 1].text.clone(),
                line: tokens[at].line,
                length: inner.iter().filter(|line| !line.trim().is_empty()).count(),
            }
        })
        .collect()
}

/// The line of the brace that opens the body of the function at `at`; its last line when it has none.
fn body_line(tokens: &[Token], at: usize) -> usize {
    let end = item_end(tokens, at);
    let brace = tokens[at..end].iter().find(|token| token.text == "{");
    brace.unwrap_or(&tokens[end - 1]).line
}
