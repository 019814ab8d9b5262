//! Traces of what real clients asked, in the three forms that are about: what each line means.
//!
//! - Mooncake (github.com/kvcache-ai/Mooncake): JSON lines with `timestamp` in milliseconds, `input_length`,
//!   `output_length` and `hash_ids`, one for each block of 512 tokens;
//! - Azure (github.com/Azure/AzurePublicDataset, 2023): CSV with `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`;
//! - Forebay's own access log: JSON lines with `time`, `path`, `prompt_tokens`, `output_tokens`, and `prefix` where
//!   `log.replay` is on. Lines that are tests, that were not answered well or whose tokens are not known are passed over.
//!
//! The first line tells which it is. Of prompts nothing is kept but their length and the hashes of their blocks.

use std::sync::Arc;

use serde::Deserialize;

use super::chance::mixed;
use super::stamp;
use crate::decide::Work;
use crate::facts::{BuiltIn, nesting};
use crate::simulate::card::BLOCK;
use crate::simulate::request::Request;
use crate::units::Seconds;

/// Why a trace can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// The longest trace: every worker is probed every other second of it.
const LONGEST: Seconds = Seconds(31.0 * 86_400.0);

#[derive(Deserialize)]
struct Mooncake {
    timestamp: f64,
    input_length: f64,
    output_length: f64,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

/// A line of the access log.
#[derive(Deserialize)]
struct Logged {
    time: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    path: String,
    status: Option<u16>,
    prompt_tokens: Option<f64>,
    output_tokens: Option<f64>,
    #[serde(default)]
    prefix: Vec<String>,
}

/// What wrote a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Mooncake,
    Azure,
    Forebay,
}

impl Form {
    /// That of a trace which begins so.
    fn of(first: &str) -> Option<Self> {
        let signs = [
            (Form::Azure, first.starts_with("TIMESTAMP")),
            (Form::Mooncake, first.contains("\"input_length\"")),
            (Form::Forebay, first.contains("\"time\"")),
        ];
        signs.into_iter().find(|(_, is)| *is).map(|(form, _)| form)
    }

    /// The request of a line, if it tells one.
    fn read(self, row: &str) -> Result<Option<Request>, String> {
        match self {
            Form::Mooncake => mooncake(row),
            Form::Azure => azure(row),
            Form::Forebay => logged(row),
        }
    }
}

/// The requests of a trace, in the order of their times, which begin at zero. Their sessions are not known yet.
///
/// # Errors
/// The first line that can't be read.
pub fn parse(text: &str) -> Result<Vec<Request>, Flaw> {
    let text = text.trim_start_matches('\u{feff}');
    let first = text.lines().find(|line| !line.trim().is_empty());
    let Some(form) = Form::of(first.unwrap_or_default()) else {
        return Err(Flaw {
            line: 1,
            what: "this is no trace: JSON lines with input_length (Mooncake) or time (Forebay's log), or CSV that \
                   begins with TIMESTAMP (Azure) are"
                .to_owned(),
        });
    };
    let mut requests = Vec::new();
    for (line, row) in text.lines().enumerate() {
        let row = row.trim();
        if row.is_empty() || row.starts_with("TIMESTAMP") {
            continue;
        }
        let request = form.read(row).map_err(|what| Flaw {
            line: line + 1,
            what,
        })?;
        requests.extend(request.filter(|one| one.prompt >= 1.0));
    }
    if form == Form::Forebay {
        coarsen(&mut requests);
    }
    requests.sort_by(|one, other| one.at.0.total_cmp(&other.at.0));
    let began = requests.first().map_or(Seconds::ZERO, |first| first.at);
    for request in &mut requests {
        request.at = request.at - began;
    }
    if requests.last().is_some_and(|last| last.at.0 > LONGEST.0) {
        return Err(Flaw {
            line: text.lines().count(),
            what: format!(
                "from its first request to its last the trace takes longer than {LONGEST}"
            ),
        });
    }
    Ok(requests)
}

fn mooncake(row: &str) -> Result<Option<Request>, String> {
    let row: Mooncake = json(row)?;
    Ok(Some(Request {
        at: Seconds(row.timestamp / 1e3),
        work: Work::Generate,
        prompt: tokens(row.input_length)?,
        output: tokens(row.output_length)?.max(1.0),
        blocks: row.hash_ids.into(),
        session: 0,
        adapter: None,
    }))
}

fn azure(row: &str) -> Result<Option<Request>, String> {
    let mut fields = row.split(',');
    let mut field = |name: &str| fields.next().ok_or_else(|| format!("{name} is missing"));
    let at = stamp::seconds(field("TIMESTAMP")?)?;
    let mut count = |name: &str| -> Result<f64, String> {
        let text = field(name)?;
        let number = text.parse().map_err(|_| format!("{name} is no number"))?;
        tokens(number)
    };
    Ok(Some(Request {
        at,
        work: Work::Generate,
        prompt: count("ContextTokens")?,
        output: count("GeneratedTokens")?.max(1.0),
        blocks: Arc::default(),
        session: 0,
        adapter: None,
    }))
}

fn logged(row: &str) -> Result<Option<Request>, String> {
    let row: Logged = json(row)?;
    let at = stamp::seconds(&row.time)?;
    let generates = match BuiltIn::of(&row.path) {
        Some(BuiltIn::Inference(inference)) => inference.generates,
        _ => row.output_tokens.is_some(),
    };
    let good = row.status.is_none_or(|status| status < 400) && row.kind != "test";
    let output = if generates {
        row.output_tokens
    } else {
        Some(0.0)
    };
    let (Some(prompt), Some(output), true) = (row.prompt_tokens, output, good) else {
        return Ok(None);
    };
    let prompt = tokens(prompt)?;
    Ok(Some(Request {
        at,
        work: if generates {
            Work::Generate
        } else {
            Work::Embed
        },
        prompt,
        output: tokens(output)?,
        blocks: row.prefix.iter().map(|hash| named(hash)).collect(),
        session: 0,
        adapter: None,
    }))
}

/// A block's name as a number.
fn named(hash: &str) -> u64 {
    hash.bytes()
        .fold(0, |sum, byte| mixed(sum, u64::from(byte)))
}

/// Blocks of about 512 tokens out of those of another size. Each hash covers all before it, so every other one names
/// blocks of twice the size; every how many is one number for the whole trace, so that equal beginnings stay equal.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some thousands of blocks"
)]
fn coarsen(requests: &mut [Request]) {
    let long = || requests.iter().filter(|one| !one.blocks.is_empty());
    let tokens: f64 = long().map(|one| one.prompt).sum();
    let blocks: usize = long().map(|one| one.blocks.len()).sum();
    let each = tokens / blocks.max(1) as f64;
    let every = (BLOCK / each.max(1.0)).round().max(1.0) as usize;
    for one in requests {
        let fine = one.blocks.iter().copied();
        one.blocks = fine.skip(every - 1).step_by(every).collect();
    }
}

fn json<'a, T: Deserialize<'a>>(row: &'a str) -> Result<T, String> {
    if nesting::is_too_deep(row.as_bytes()) {
        return Err(format!("it is nested more than {} deep", nesting::DEEPEST));
    }
    sonic_rs::from_str(row).map_err(|error| {
        let said = error.to_string();
        said.lines().next().unwrap_or("this is no JSON").to_owned()
    })
}

/// A number of tokens, if it can be one.
fn tokens(count: f64) -> Result<f64, String> {
    if (0.0..=1e7).contains(&count) {
        Ok(count)
    } else {
        Err(format!("{count} is no number of tokens"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mooncake_lines_are_read() {
        let text = "{\"timestamp\": 3000, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [7, 8]}\n\
                    {\"timestamp\": 1000, \"input_length\": 10, \"output_length\": 0, \"hash_ids\": [7]}\n";
        let load = parse(text).unwrap();
        assert_eq!([load[0].at, load[1].at], [Seconds::ZERO, Seconds(2.0)]);
        assert_eq!(
            (load[1].prompt, load[1].output, &*load[1].blocks),
            (700.0, 5.0, &[7, 8][..])
        );
        assert_eq!(load[0].output, 1.0);
    }

    #[test]
    fn azure_rows_are_read() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n\
                    2023-11-16 18:16:50.6805900,396,109\r\n";
        let load = parse(text).unwrap();
        assert!((load[1].at.0 - 64.0).abs() < 1e-6);
        assert_eq!((load[1].prompt, load[1].output), (396.0, 109.0));
    }

    #[test]
    fn our_own_log_is_read() {
        let line =
            |time: &str, rest: &str| format!("{{\"time\":\"2026-11-30T02:43:{time}Z\",{rest}}}\n");
        let chat = "\"kind\":\"chat\",\"path\":\"/v1/chat/completions\",\"status\":200,\"prompt_tokens\":1024,\
                    \"output_tokens\":9,\"prefix\":[\"a1\",\"b2\",\"c3\",\"d4\"]";
        let text = [
            line("19.500", chat),
            line("20.000", &chat.replace("200", "503")),
            line("20.000", &chat.replace("\"chat\"", "\"test\"")),
            line("20.000", "\"path\":\"/v1/chat/completions\",\"status\":200"),
            line(
                "21.000",
                "\"path\":\"/v1/embeddings\",\"status\":200,\"prompt_tokens\":30",
            ),
        ];
        let load = parse(&text.concat()).unwrap();
        assert_eq!(load.len(), 2);
        assert_eq!(
            (load[0].work, load[0].output, load[0].blocks.len()),
            (Work::Generate, 9.0, 2)
        );
        assert_eq!((load[1].work, load[1].at), (Work::Embed, Seconds(1.5)));
    }

    #[test]
    fn beginnings_that_are_equal_in_a_log_stay_equal() {
        let line = |tokens: u32, hashes: &[&str]| {
            format!(
                "{{\"time\":\"2026-11-30T02:43:19Z\",\"path\":\"/v1/completions\",\"prompt_tokens\":{tokens},\
                 \"output_tokens\":9,\"prefix\":{hashes:?}}}\n"
            )
        };
        let text = line(1_100, &["a", "b", "c", "d"]) + &line(1_500, &["a", "b", "c", "d"]);
        let load = parse(&(text + &line(90, &[]))).unwrap();
        let blocks = |number: usize| &*load[number].blocks;
        assert_eq!((blocks(0), blocks(2).len()), (blocks(1), 0));
        assert_eq!(blocks(0), [named("b"), named("d")]);
    }

    #[test]
    fn a_byte_order_mark_and_empty_lines_are_no_matter_and_nesting_is_bounded() {
        let line = "{\"timestamp\": 3000, \"input_length\": 700, \"output_length\": 5}";
        assert_eq!(parse(&format!("\u{feff}\n\n{line}\n")).unwrap().len(), 1);
        let deep = line.replace("5}", &format!("5, \"x\": {}", "[".repeat(200_000)));
        let flaw = parse(&format!("{line}\n{deep}\n")).unwrap_err();
        assert_eq!((flaw.line, flaw.what.contains("nested")), (2, true));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        let flaw = |text: &str| parse(text).unwrap_err();
        assert_eq!(flaw("hello").line, 1);
        assert_eq!(flaw("TIMESTAMP,a,b\n2023-11-16 18:15:46,1,x").line, 2);
        assert_eq!(
            flaw("TIMESTAMP,a,b\nyesterday,1,2").what,
            "yesterday is no time"
        );
        assert!(
            flaw("{\"input_length\": -1, \"timestamp\": 0, \"output_length\": 2}")
                .what
                .contains("-1")
        );
        assert_eq!(flaw("{\"input_length\": 1}").line, 1);
    }
}
