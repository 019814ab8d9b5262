//! `${NAME}` inside strings: replaced by the environment's value; `$${` stands for a literal `${`.
//!
//! There is no default syntax (`${NAME:-x}`) on purpose: a variable that is missing is a mistake to hear about, not to
//! paper over.

/// Why a text can't be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The variable is not set.
    Unset(String),
    /// What stands between the braces is no variable's name.
    Name,
    /// The closing brace is missing.
    Unclosed,
}

impl Flaw {
    /// The flaw in words; names the variable, never a value.
    pub fn words(&self) -> String {
        match self {
            Flaw::Unset(name) => format!("the environment variable {name} is not set"),
            Flaw::Name => "what stands in ${…} is not the name of a variable".to_owned(),
            Flaw::Unclosed => "the closing brace of ${…} is missing".to_owned(),
        }
    }

    /// The way out of it.
    pub fn way_out(&self) -> String {
        match self {
            Flaw::Unset(name) => format!("set {name}, or write $${{{name}}} for the literal text"),
            Flaw::Name => {
                "letters, digits and _ make a name; write $${ for a literal ${".to_owned()
            }
            Flaw::Unclosed => "write ${NAME}, or $${ for a literal ${".to_owned(),
        }
    }
}

/// The text with every variable replaced. What a variable holds is not expanded again.
pub fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Flaw> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from_dollar) = rest.split_at(at);
        let inside = &from_dollar[2..];
        if let Some(literal) = before.strip_suffix('$') {
            out.push_str(literal);
            out.push_str("${");
            rest = inside;
            continue;
        }
        out.push_str(before);
        let close = inside.find('}').ok_or(Flaw::Unclosed)?;
        let name = &inside[..close];
        if !is_name(name) {
            return Err(Flaw::Name);
        }
        out.push_str(&env(name).ok_or_else(|| Flaw::Unset(name.to_owned()))?);
        rest = &inside[close + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether this may be the name of a variable.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, Flaw> {
        expand(text, &|name| {
            (name == "HOST").then(|| "10.0.0.1".to_owned())
        })
    }

    #[test]
    fn variables_are_replaced_and_escapes_kept() {
        assert_eq!(
            expanded("http://${HOST}:8000").unwrap(),
            "http://10.0.0.1:8000"
        );
        assert_eq!(
            expanded("a $ b $${HOST} ${HOST}").unwrap(),
            "a $ b ${HOST} 10.0.0.1"
        );
        assert_eq!(expanded("plain").unwrap(), "plain");
    }

    #[test]
    fn what_cannot_be_replaced_is_named() {
        assert_eq!(expanded("${PORT}"), Err(Flaw::Unset("PORT".to_owned())));
        assert_eq!(expanded("${HOST:-x}"), Err(Flaw::Name));
        assert_eq!(expanded("${"), Err(Flaw::Unclosed));
    }
}
