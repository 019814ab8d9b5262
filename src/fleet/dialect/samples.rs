//! A reader of Prometheus' text format that looks for single metrics.
//!
//! No general parser: of hundreds of kilobytes three numbers are wanted, and what stands between them may be broken. A
//! line that is no sample of the wanted metric is passed over, whatever it is. Histograms, types and timestamps mean
//! nothing here. Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>, "Text format details".

/// One sample: a line of its metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// What stands between its braces.
    labels: &'a str,
    /// Its value.
    pub value: f64,
}

/// All samples of this metric, in their order.
pub fn of<'a>(text: &'a str, metric: &'a str) -> impl Iterator<Item = Sample<'a>> {
    let lines = text.lines().map(str::trim_start);
    lines.filter_map(move |line| sample(line.strip_prefix(metric)?))
}

/// The sum over all samples of this metric; `None` when there are none.
#[must_use]
pub fn sum(text: &str, metric: &str) -> Option<f64> {
    of(text, metric)
        .map(|sample| sample.value)
        .reduce(|a, b| a + b)
}

/// The mean of all samples of this metric; `None` when there are none.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "lines of one answer")]
pub fn mean(text: &str, metric: &str) -> Option<f64> {
    let count = of(text, metric).count();
    sum(text, metric).map(|sum| sum / count as f64)
}

impl Sample<'_> {
    /// The number that a label holds, if it is there and is one.
    #[must_use]
    pub fn number(&self, label: &str) -> Option<f64> {
        let mut rest = self.labels;
        loop {
            let (name, quoted) = rest.split_once('=')?;
            let value = quoted.trim_start().strip_prefix('"')?;
            let end = string_end(value)?;
            if name.trim_matches([' ', '\t', ',']) == label {
                return value.get(..end)?.parse().ok();
            }
            rest = value.get(end + 1..)?;
        }
    }
}

/// What follows a metric's name, if the name ends there and a value follows.
fn sample(rest: &str) -> Option<Sample<'_>> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => inside.split_at(labels_end(inside)?),
        None if rest.starts_with([' ', '\t']) => ("", rest),
        None => return None,
    };
    let value = rest.trim_start_matches('}').split_whitespace().next()?;
    let value = value.parse().ok()?;
    Some(Sample { labels, value })
}

/// Where the brace stands that closes these labels; braces in quotes don't.
fn labels_end(labels: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += labels.get(at..)?.find(['"', '}'])?;
        if labels[at..].starts_with('}') {
            return Some(at);
        }
        at += 1 + string_end(labels.get(at + 1..)?)? + 1;
    }
}

/// Where the quote stands that ends this text; a backslash takes the next character along.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const TEXT: &str = r#"# HELP m Requests; m{a="1"} 7
# TYPE m gauge
m{engine="0",path="a \"b}\\",z="x=y"} 2.0
m{engine="1"} 3 1700000000000
  m 4
m_total 50
m{engine="2"
m{engine="3"} many
xm 60
n{a="}",size="16",} 1e3
n +Inf
"#;

    #[test]
    fn samples_are_told_from_everything_else() {
        let values: Vec<_> = of(TEXT, "m").map(|sample| sample.value).collect();
        assert_eq!(values, [2.0, 3.0, 4.0]);
        assert_eq!((sum(TEXT, "m"), mean(TEXT, "m")), (Some(9.0), Some(3.0)));
        assert_eq!(sum(TEXT, "m_total"), Some(50.0));
        assert_eq!((sum(TEXT, "absent"), mean(TEXT, "absent")), (None, None));
        assert_eq!(sum(TEXT, "n"), Some(f64::INFINITY));
    }

    #[test]
    fn labels_are_read_past_quotes_and_escapes() {
        let first = |metric| of(TEXT, metric).next().unwrap();
        assert_eq!(first("m").number("engine"), Some(0.0));
        for label in ["path", "z", "x", "b"] {
            assert_eq!(first("m").number(label), None, "{label}");
        }
        assert_eq!(first("n").number("size"), Some(16.0));
    }

    #[test]
    fn no_text_is_too_broken_to_be_read() {
        let pieces = [
            "m", "{", "}", "\"", "\\", "=", ",", " ", "\n", "1", "é", "a", "-", "NaN",
        ];
        let mut rng = Rng::seeded(3);
        for _ in 0..20_000 {
            let text: String = (0..rng.below(24))
                .map(|_| pieces[rng.below(pieces.len())])
                .collect();
            let read = || of(&text, "m");
            let numbers = read().filter_map(|sample| sample.number("a"));
            assert!(numbers.count() <= read().count(), "{text:?}");
            assert!(read().count() <= text.lines().count(), "{text:?}");
        }
    }
}
