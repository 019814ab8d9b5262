//! Where in a `config.pbtxt` a mistake stands: its line and column, and the line itself.
//!
//! What the parser stumbles over it says the place of. A value that makes no sense is found later, when its place is
//! lost; its field is looked for by name, and a place is told only if the name stands there once, since a wrong one
//! would be worse than none.

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

/// The names and the strings of a text, without quotes, each with where it begins; comments have none.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let offset = text.len() - rest.len();
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => {
                let inside = &rest[1..];
                let end = string_end(inside, first);
                found.push((offset, &inside[..end]));
                (end + 2).min(rest.len())
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                let end = rest.find(ends).unwrap_or(rest.len());
                found.push((offset, &rest[..end]));
                end
            }
            c => c.len_utf8(),
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
}
