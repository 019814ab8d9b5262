//! What a form says at its top level: `model` and `stream` among the parts of a multipart/form-data body, as audio and
//! pictures are sent.
//!
//! Sources: RFC 7578 (form-data), RFC 2046 §5.1.1 (delimiters), RFC 9110 §5.6.6 (parameters).
//!
//! Guaranteed: the model read here is the model the worker reads. Where readers of forms are known to differ, the form
//! is refused: two parts of that name, one that differs from it only in case (as in JSON), a name in an extended
//! notation (`name*`) or with escapes, a `model` that is a file or is coded for transport, text in front of the first
//! delimiter or behind the last, an end that is missing, a line break without its CR in a part's head. Parts of other
//! names pass unread, and no part is copied.

use std::ops::Range;

use memchr::memmem;

use crate::fault::{Fault, Kind};

/// The longest boundary (RFC 2046 §5.1.1).
const LONGEST_BOUNDARY: usize = 70;
/// The longest head of a part that is read.
const LONGEST_HEAD: usize = 8 << 10;
/// The longest name of a model.
const LONGEST_MODEL: usize = 1 << 10;

/// What a form says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// The model's name, and where it stands.
    pub model: Option<(String, Range<usize>)>,
    /// `stream`.
    pub stream: bool,
}

/// The boundary that a `Content-Type` names, if that is a form's; nothing when it is of another kind.
///
/// # Errors
/// `bad_request` when it is a multipart of another kind, or has no boundary, an odd one, or two.
pub fn boundary(content_type: &str) -> Result<Option<String>, Fault> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    let kind = kind.trim().to_ascii_lowercase();
    if !kind.starts_with("multipart/") {
        return Ok(None);
    }
    if kind != "multipart/form-data" {
        return Err(bad("a multipart body has to be multipart/form-data"));
    }
    let parameters = parameters_of(parameters).ok_or_else(|| bad("Content-Type can't be read"))?;
    let mut boundaries = parameters
        .into_iter()
        .filter(|parameter| parameter.name == "boundary");
    match (boundaries.next(), boundaries.next()) {
        (Some(only), None) if is_boundary(&only.value) => Ok(Some(only.value)),
        _ => Err(bad("multipart/form-data without one sound boundary")),
    }
}

fn is_boundary(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    (1..=LONGEST_BOUNDARY).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.ends_with(' ')
}

/// Reads what routing needs.
///
/// # Errors
/// `bad_request` when the form can't be read, or could be read in two ways.
pub fn form(body: &[u8], boundary: &str) -> Result<Form, Fault> {
    let delimiter = format!("\r\n--{boundary}");
    let find = memmem::Finder::new(&delimiter);
    let mut form = Form::default();
    let mut at = first_delimiter(body, &delimiter)?;
    loop {
        let rest = &body[at..];
        if let Some(behind) = rest.strip_prefix(b"--") {
            // Readers that look for delimiters further on would find other parts there.
            return match behind.trim_ascii() {
                b"" => Ok(form),
                _ => Err(bad("something stands behind the form's end")),
            };
        }
        let head = behind_line(rest);
        let head = head.ok_or_else(|| bad("a delimiter of the form does not end its line"))?;
        let start = body.len() - head.len();
        let end = find.find(head).map(|length| start + length);
        let end = end.ok_or_else(|| bad("the form's last delimiter is missing"))?;
        read_part(&mut form, body, start..end)?;
        at = end + delimiter.len();
    }
}

/// Where the first delimiter has ended: nothing but a line break may stand before it.
fn first_delimiter(body: &[u8], delimiter: &str) -> Result<usize, Fault> {
    let delimiter = delimiter.as_bytes();
    let bare = &delimiter[2..];
    if body.starts_with(delimiter) {
        Ok(delimiter.len())
    } else if body.starts_with(bare) {
        Ok(bare.len())
    } else {
        Err(bad("the form does not begin with its delimiter"))
    }
}

/// What follows the line of a delimiter.
fn behind_line(rest: &[u8]) -> Option<&[u8]> {
    let blank = rest.iter().take_while(|byte| b" \t".contains(byte)).count();
    rest[blank..].strip_prefix(b"\r\n")
}

/// Takes what is ours from a part: its head, an empty line, its value.
fn read_part(form: &mut Form, body: &[u8], part: Range<usize>) -> Result<(), Fault> {
    let bytes = &body[part.clone()];
    // A part without fields begins with the empty line.
    let (head, value) = if bytes.starts_with(b"\r\n") {
        (&bytes[..0], part.start + 2)
    } else {
        let reach = &bytes[..bytes.len().min(LONGEST_HEAD)];
        let length = memmem::find(reach, b"\r\n\r\n");
        let length = length.ok_or_else(|| bad("a part of the form has no end of its head"))?;
        (&bytes[..length], part.start + length + 4)
    };
    let head = PartHead::read(head)?;
    let value = value..part.end;
    match head.name.as_deref() {
        Some("model") if form.model.is_none() => {
            form.model = Some((head.model(&body[value.clone()])?, value));
            Ok(())
        }
        Some(name) if name.eq_ignore_ascii_case("model") => {
            let message = "the form has two `model` parts, or one in other letters; send one, in small letters, so that \
                           it has one reading";
            Err(bad(message).param("model"))
        }
        Some("stream") => {
            form.stream = matches!(&body[value], b"true" | b"True" | b"TRUE" | b"1");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What the head of a part says.
#[derive(Default)]
struct PartHead {
    name: Option<String>,
    /// Its value is a file, or is coded: no plain text.
    is_plain: bool,
}

impl PartHead {
    fn read(head: &[u8]) -> Result<Self, Fault> {
        let odd = || bad("the head of a part of the form can't be read");
        let text = std::str::from_utf8(head).map_err(|_| odd())?;
        let mut read = PartHead {
            name: None,
            is_plain: true,
        };
        for line in text.split("\r\n").filter(|line| !line.is_empty()) {
            if line.starts_with([' ', '\t']) || line.contains(['\r', '\n', '\0']) {
                return Err(odd());
            }
            let (field, value) = line.split_once(':').ok_or_else(odd)?;
            match field.trim().to_ascii_lowercase().as_str() {
                "content-disposition" if read.name.is_some() => return Err(odd()),
                "content-disposition" => read.disposition(value).ok_or_else(odd)?,
                "content-transfer-encoding" => {
                    let coding = value.trim().to_ascii_lowercase();
                    read.is_plain &= matches!(coding.as_str(), "7bit" | "8bit" | "binary");
                }
                _ => {}
            }
        }
        Ok(read)
    }

    fn disposition(&mut self, value: &str) -> Option<()> {
        let (kind, parameters) = value.split_once(';').unwrap_or((value, ""));
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            return None;
        }
        for parameter in parameters_of(parameters)? {
            match parameter.name.as_str() {
                // Some readers undo escapes in a name, and others don't.
                "name" if self.name.is_some() || parameter.is_escaped => return None,
                "name" => self.name = Some(parameter.value),
                "name*" => return None,
                "filename" | "filename*" => self.is_plain = false,
                _ => {}
            }
        }
        Some(())
    }

    /// The value of a part that names the model.
    fn model(&self, value: &[u8]) -> Result<String, Fault> {
        let odd =
            || bad("the `model` part of the form is not plain text of one line").param("model");
        let text = std::str::from_utf8(value).map_err(|_| odd())?;
        let is_name =
            self.is_plain && value.len() <= LONGEST_MODEL && !text.chars().any(char::is_control);
        if is_name {
            Ok(text.to_owned())
        } else {
            Err(odd())
        }
    }
}

/// `name=value` behind a field's first word.
struct Parameter {
    name: String,
    value: String,
    /// The value has escapes, which are undone here.
    is_escaped: bool,
}

/// `; name=value; name="quoted value"`: names in small letters, values without quotes and escapes. Nothing when it is
/// written otherwise.
fn parameters_of(mut text: &str) -> Option<Vec<Parameter>> {
    let mut read = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ';']);
        if text.is_empty() {
            return Some(read);
        }
        let (name, rest) = text.split_once('=')?;
        let name = name.to_ascii_lowercase();
        if name.is_empty() || name.contains([' ', '\t', ';', '"']) {
            return None;
        }
        let (value, is_escaped, rest) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = rest.find(';').unwrap_or(rest.len());
                let value = rest[..end].trim_end_matches([' ', '\t']);
                if value.contains(['"', ' ', '\t']) {
                    return None;
                }
                (value.to_owned(), false, &rest[end..])
            }
        };
        read.push(Parameter {
            name,
            value,
            is_escaped,
        });
        text = rest.trim_start_matches([' ', '\t']);
        if !text.is_empty() && !text.starts_with(';') {
            return None;
        }
    }
}

/// A quoted string after its first quote, whether it has escapes, and what follows it.
fn unquoted(text: &str) -> Option<(String, bool, &str)> {
    let mut value = String::new();
    let mut is_escaped = false;
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, is_escaped, &text[at + 1..])),
            '\\' => {
                is_escaped = true;
                value.push(letters.next()?.1);
            }
            letter => value.push(letter),
        }
    }
    None
}

fn bad(message: &str) -> Fault {
    Fault::new(Kind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A form of these heads and values.
    fn body(parts: &[(&str, &str)]) -> Vec<u8> {
        let part = |(head, value): &(&str, &str)| format!("--b\r\n{head}\r\n\r\n{value}\r\n");
        let parts: String = parts.iter().map(part).collect();
        format!("{parts}--b--\r\n").into_bytes()
    }

    fn named(name: &str) -> String {
        format!("Content-Disposition: form-data; name=\"{name}\"")
    }

    #[test]
    fn the_model_is_read_wherever_it_stands_and_however_its_head_is_written() {
        let file = "content-disposition: form-data; name=file; filename=\"a;b\\\".wav\"\r\ncontent-type: audio/wav";
        for model in [
            named("model"),
            "CONTENT-DISPOSITION:form-data;name=model".to_owned(),
            "content-type: text/plain\r\ncontent-disposition: form-data; name=\"model\"".to_owned(),
        ] {
            for parts in [
                [(file, "RIFF\r\n--c\r\n"), (model.as_str(), "whisper-1")],
                [(model.as_str(), "whisper-1"), (file, "\r\n\r\n--\0")],
            ] {
                let body = body(&parts);
                let form = form(&body, "b").unwrap();
                let (name, span) = form.model.unwrap();
                assert_eq!((&name[..], &body[span]), ("whisper-1", &b"whisper-1"[..]));
            }
        }
    }

    #[test]
    fn streams_are_asked_for_in_words() {
        let said = |value| {
            form(&body(&[(&named("stream"), value)]), "b")
                .unwrap()
                .stream
        };
        assert!(said("true") && said("True") && said("1"));
        assert!(!said("false") && !said("") && !said("yes"));
    }

    #[test]
    fn a_form_without_model_is_readable_and_an_empty_one_is() {
        assert_eq!(
            form(&body(&[("x-a: b", "c")]), "b").unwrap(),
            Form::default()
        );
        assert_eq!(form(b"--b--", "b").unwrap(), Form::default());
        assert_eq!(
            form(b"\r\n--b \t\r\n\r\nx\r\n--b--", "b").unwrap(),
            Form::default()
        );
    }

    #[test]
    fn two_readings_are_refused() {
        let model = named("model");
        let forms = [
            body(&[(&model, "a"), (&model, "b")]),
            body(&[(&model, "a"), (&named("mo\\del"), "b")]),
            body(&[(&model, "a"), (&named("Model"), "b")]),
            body(&[(&named("MODEL"), "a")]),
            body(&[(
                "content-disposition: form-data; name=\"model\"; filename=\"x\"",
                "a",
            )]),
            body(&[("content-disposition: form-data; name*=utf-8''model", "a")]),
            body(&[("content-disposition: form-data; name=x; name=model", "a")]),
            body(&[("content-disposition: form-data; name=\"model", "a")]),
            body(&[(
                &format!("{model}\r\ncontent-transfer-encoding: base64"),
                "YQ==",
            )]),
            body(&[(&format!("{model}\r\n{}", named("x")), "a")]),
            body(&[(&format!("x-a: b\nc\r\n{model}"), "a")]),
            body(&[(&model, "a\r\nb")]),
            body(&[(&model, &"a".repeat(LONGEST_MODEL + 1))]),
            b"preamble\r\n--b\r\n\r\nx\r\n--b--".to_vec(),
            body(&[("content-disposition: form-data9 name=\"model\"", "a")]),
            b"--b--\r\nepilogue".to_vec(),
            b"--b\r\n\r\nx\r\n--b".to_vec(),
            b"--b\r\n\r\nx".to_vec(),
            b"--bc\r\n\r\nx\r\n--b--".to_vec(),
            b"--b\nx\r\n--b--".to_vec(),
            b"--b\r\ncontent-disposition: form-data; name=\"model\"\r\na\r\n--b--".to_vec(),
            b"".to_vec(),
        ];
        for body in forms {
            let text = String::from_utf8_lossy(&body).into_owned();
            assert_eq!(
                form(&body, "b").unwrap_err().kind,
                Kind::BadRequest,
                "{text}"
            );
        }
    }

    #[test]
    fn a_boundary_stands_in_the_content_type() {
        let of = |text| boundary(text).map_err(|fault| fault.kind);
        let sound = Ok(Some("a b".to_owned()));
        assert_eq!(
            of("Multipart/Form-Data; charset=utf-8; boundary=\"a b\""),
            sound
        );
        assert_eq!(
            of("multipart/form-data;boundary=x"),
            Ok(Some("x".to_owned()))
        );
        for other in ["application/json", "", "text/plain; boundary=x"] {
            assert_eq!(of(other), Ok(None), "{other}");
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        for odd in [
            "multipart/mixed; boundary=x",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data; boundary=\"a",
            "multipart/form-data; boundary=\"a \"",
            "multipart/form-data; boundary=a\u{e9}",
            &long,
        ] {
            assert_eq!(of(odd), Err(Kind::BadRequest), "{odd}");
        }
    }
}
