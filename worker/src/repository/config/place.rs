//! Where in a `config.pbtxt` a mistake stands: its line and column, and the line itself.
//!
//! What the parser stumbles over it says the place of. A value that makes no sense is found later, when its place is
//! lost; its field is looked for by name, and a place is told only if the name stands there once, since a wrong one
//! would be worse than none. Of fields that repeat, such as the steps of an ensemble, the message is found by counting.

use std::ops::Range;

/// A problem with the place that it begins at.
pub fn at(text: &str, offset: usize, problem: &str) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before[start..].chars().count() + 1;
    match text[start..].lines().next().map(str::trim) {
        None | Some("") => format!("line {line}, column {column}: {problem}"),
        Some(quoted) => format!("line {line}, column {column}: {problem}, in `{quoted}`"),
    }
}

/// A problem that begins with the name of a field, or names a tensor in quotes, with its place if there is only one.
pub fn of_field(text: &str, problem: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let field = problem.split(|c| !is_name(c)).next();
    let tensor = problem.split(['`', '"']).nth(1);
    let known = tokens(text);
    let place = [field, tensor].into_iter().flatten().find_map(|name| {
        let mut places = known.iter().filter(|(_, token)| *token == name);
        let (offset, _) = places.next()?;
        places.next().is_none().then_some(*offset)
    });
    match place {
        Some(offset) => at(text, offset, problem),
        None => problem.to_owned(),
    }
}

/// One of the messages of a field that repeats.
pub struct Message<'a> {
    /// The field.
    pub field: &'a str,
    /// Which of them, counted from 0.
    pub index: usize,
    /// A field in it that is looked at first.
    pub inner: &'a str,
}

/// A problem with its place in a message: at the first of this word in the inner field, or at all in it, else where the
/// message begins.
pub fn in_message(text: &str, message: Message<'_>, word: &str, problem: &str) -> String {
    let Some(whole) = messages(text, message.field).into_iter().nth(message.index) else {
        return of_field(text, problem);
    };
    let inner = messages(text, message.inner).into_iter();
    let inner = inner.filter(|inner| whole.contains(&inner.start) && *inner != whole);
    let tokens = tokens(text);
    let first_in = |range: Range<usize>| {
        let mut inside = tokens.iter().filter(|(offset, _)| range.contains(offset));
        inside
            .find(|(_, token)| *token == word)
            .map(|(offset, _)| *offset)
    };
    let place = inner.chain([whole.clone()]).find_map(first_in);
    at(text, place.unwrap_or(whole.start), problem)
}

/// Where the messages of a field stand, in braces, one after the other or in a list.
fn messages(text: &str, field: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut name, mut open) = ("", Vec::new());
    for (offset, piece) in pieces(text) {
        match piece {
            Piece::Name(word) => name = word,
            Piece::Mark('[') => open.push((name, offset, '[')),
            Piece::Mark('{') => {
                let listed = open.last().filter(|(.., mark)| *mark == '[');
                open.push((listed.map_or(name, |(list, ..)| *list), offset, '{'));
            }
            Piece::Mark('}' | ']') => match open.pop() {
                Some((name, start, '{')) if name == field => found.push(start..offset),
                _ => {}
            },
            Piece::Text(_) | Piece::Mark(_) => {}
        }
    }
    found
}

/// What a text is made of.
enum Piece<'a> {
    Name(&'a str),
    /// Without its quotes.
    Text(&'a str),
    Mark(char),
}

/// The names and the strings of a text, without quotes, each with where it begins; comments have none.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let word = |(offset, piece)| match piece {
        Piece::Name(word) | Piece::Text(word) => Some((offset, word)),
        Piece::Mark(_) => None,
    };
    pieces(text).into_iter().filter_map(word).collect()
}

fn pieces(text: &str) -> Vec<(usize, Piece<'_>)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let offset = text.len() - rest.len();
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => {
                let inside = &rest[1..];
                let end = string_end(inside, first);
                found.push((offset, Piece::Text(&inside[..end])));
                (end + 2).min(rest.len())
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                let end = rest.find(ends).unwrap_or(rest.len());
                found.push((offset, Piece::Name(&rest[..end])));
                end
            }
            c => {
                found.push((offset, Piece::Mark(c)));
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    found
}

/// How long a string is that ends with this quote.
fn string_end(inside: &str, quote: char) -> usize {
    let mut escaped = false;
    for (offset, character) in inside.char_indices() {
        if character == quote && !escaped {
            return offset;
        }
        escaped = character == '\\' && !escaped;
    }
    inside.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "name: \"m\" # max_batch_size\n  max_batch_size: -1\ninput { name: \"ä\\\"\" dims: -2 }\n";

    #[test]
    fn a_place_is_a_line_a_column_and_the_line() {
        let offset = TEXT.find("-1").unwrap();
        let said = at(TEXT, offset, "no");
        assert_eq!(said, "line 2, column 19: no, in `max_batch_size: -1`");
        assert_eq!(at(TEXT, TEXT.len(), "no"), "line 4, column 1: no");
        assert_eq!(at(TEXT, usize::MAX, "no"), "line 4, column 1: no");
    }

    #[test]
    fn columns_count_characters() {
        let offset = TEXT.find("dims").unwrap();
        assert!(at(TEXT, offset, "no").starts_with("line 3, column 21:"));
    }

    #[test]
    fn a_field_is_found_outside_of_comments_and_only_if_it_is_the_only_one() {
        let said = of_field(TEXT, "max_batch_size: -1; expected at least 0");
        assert!(
            said.starts_with("line 2, column 3: max_batch_size: -1;"),
            "{said}"
        );
        let twice = "name: \"x\"; expected another";
        assert_eq!(of_field(TEXT, twice), twice);
        let said = of_field(TEXT, "`m`: no");
        assert!(said.starts_with("line 1, column 7: `m`: no"), "{said}");
        assert_eq!(of_field("\"half", "`m`: no"), "`m`: no");
    }

    #[test]
    fn messages_of_a_field_are_counted_wherever_they_stand() {
        let text = "input [ { name: \"x\" }, # input {\n{ name: \"y\" dims: [ 1 ] } ]\n\
                    s { step { a: \"x\" m { key: \"k\" } }\nstep { a: \"x\" m { key: \"x\" } } }";
        let message = |field, index, inner| Message {
            field,
            index,
            inner,
        };
        for (message, word, place) in [
            (message("input", 0, "input"), "x", "line 1, column 17"),
            (message("input", 1, "input"), "y", "line 2, column 9"),
            (message("input", 1, "input"), "none", "line 2, column 1"),
            (message("step", 0, "m"), "k", "line 3, column 28"),
            (message("step", 0, "m"), "x", "line 3, column 15"),
            (message("step", 1, "m"), "x", "line 4, column 24"),
        ] {
            let said = in_message(text, message, word, "no");
            assert!(said.starts_with(place), "{place:?} does not begin {said:?}");
        }
        assert_eq!(in_message(text, message("step", 2, "m"), "x", "no"), "no");
    }
}
