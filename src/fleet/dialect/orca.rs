//! A load that comes with an answer: the ORCA report in a response's head.
//!
//! A request says `endpoint-load-metrics-format: text`, and the answer's head says `endpoint-load-metrics: TEXT
//! named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=2` or `JSON {"named_metrics": {…}}`. vLLM
//! does so on chats and completions, by these names; Triton on the two generate paths, by `kv_cache_utilization`, where
//! its backend has such a cache. Triton compares the format by its exact letters, so it is asked for in small ones.
//! vLLM's newer front end leaves the leading word out; the form is told by what follows. `BIN` is not asked for and not
//! read.
//!
//! Sources: the ORCA design (`xds/data/orca/v3/orca_load_report.proto`); vLLM `orca_metrics.py`; Triton `orca_http.cc`
//! and `http_server.cc`.

use std::collections::BTreeMap;

use http::HeaderName;
use serde::Deserialize;

use super::read;
use crate::config::plan::Engine;
use crate::decide::Load;

/// Asks for a report; the value is a format.
pub const FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");
/// Carries it.
pub const REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics");
/// The format that is asked for.
pub const TEXT: &str = "text";

/// A longer report is not read.
const LONGEST: usize = 4_096;

/// Whether an answer on this path may carry a report, whoever gives it.
#[must_use]
pub fn may_tell(path: &str) -> bool {
    tells(Engine::Vllm, path) || tells(Engine::Triton, path)
}

/// Whether this engine's answers on this path may.
#[must_use]
pub fn tells(engine: Engine, path: &str) -> bool {
    match engine {
        Engine::Vllm => matches!(path, "/v1/chat/completions" | "/v1/completions"),
        Engine::Triton => path.ends_with("/generate") || path.ends_with("/generate_stream"),
        _ => false,
    }
}

#[derive(Default, Deserialize)]
struct Report {
    #[serde(default)]
    named_metrics: BTreeMap<String, f64>,
}

/// What a report says; nothing when it can't be read.
#[must_use]
pub fn report(engine: Engine, value: &[u8]) -> Option<Load> {
    // Triton counts requests, where vLLM counts texts.
    let by_text = engine != Engine::Triton;
    let value = value.trim_ascii();
    if value.len() > LONGEST {
        return None;
    }
    let word = |word: &str| strip_word(value, word);
    let (json, text) = (word("JSON"), word("TEXT"));
    let load = match (json, text) {
        (Some(json), _) => by_name(by_text, |name| {
            read::<Report>(json)?.named_metrics.get(name).copied()
        }),
        (_, Some(text)) => by_name(by_text, |name| in_text(text, name)),
        _ if value.starts_with(b"{") => by_name(by_text, |name| {
            read::<Report>(value)?.named_metrics.get(name).copied()
        }),
        _ => by_name(by_text, |name| in_text(value, name)),
    };
    Some(load).filter(Load::is_told)
}

/// What follows this word, in whatever letters, and a space.
fn strip_word<'a>(value: &'a [u8], word: &str) -> Option<&'a [u8]> {
    let (first, rest) = value.split_at_checked(word.len())?;
    let is_word = first.eq_ignore_ascii_case(word.as_bytes()) && rest.starts_with(b" ");
    is_word.then(|| rest.trim_ascii_start())
}

fn by_name(by_text: bool, metric: impl Fn(&str) -> Option<f64>) -> Load {
    Load {
        running: None,
        waiting: metric("num_requests_waiting"),
        kv_use: metric("kv_cache_usage_perc").or_else(|| metric("kv_cache_utilization")),
        by_text,
    }
}

/// The value of a named metric in a list of pairs.
fn in_text(text: &[u8], name: &str) -> Option<f64> {
    let text = str::from_utf8(text).ok()?;
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let mut named = pairs.filter_map(|(key, value)| {
        let key = key.trim().strip_prefix("named_metrics.")?;
        (key == name).then_some(value.trim())
    });
    named.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(value: &str) -> Option<(Option<f64>, Option<f64>)> {
        report(Engine::Vllm, value.as_bytes()).map(|load| (load.waiting, load.kv_use))
    }

    #[test]
    fn both_forms_are_read_as_engines_write_them() {
        let both = Some((Some(2.0), Some(0.4)));
        for value in [
            "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=2.0",
            "text named_metrics.num_requests_waiting=2 ,named_metrics.kv_cache_usage_perc=0.4",
            "named_metrics.kv_cache_usage_perc=0.4,named_metrics.num_requests_waiting=2",
            r#"JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 2.0}}"#,
            r#"{"named_metrics":{"kv_cache_usage_perc":0.4,"num_requests_waiting":2}}"#,
        ] {
            assert_eq!(told(value), both, "{value}");
        }
        let triton =
            "TEXT named_metrics.kv_cache_utilization=0.25, named_metrics.max_token_capacity=4096";
        assert_eq!(told(triton), Some((None, Some(0.25))));
        let json =
            r#"JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":4096}}"#;
        assert_eq!(told(json), Some((None, Some(0.25))));
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        let long = format!(
            "TEXT named_metrics.num_requests_waiting=2{}",
            " ".repeat(5_000) + "x"
        );
        let deep = format!("JSON {}", "[".repeat(3_000));
        for value in [
            "",
            "TEXT",
            "TEXT ",
            "JSON {",
            "JSON []",
            "BIN CZqZmZmZmbk/",
            "TEXT cpu_utilization=0.3",
            "TEXT named_metrics.num_requests_waiting=many",
            &long,
            &deep,
        ] {
            assert_eq!(told(value), None, "{value}");
        }
        assert_eq!(
            report(
                Engine::Vllm,
                b"TEXT named_metrics.num_requests_waiting=\xff"
            ),
            None
        );
    }

    #[test]
    fn only_paths_that_carry_a_report_are_asked_for_one() {
        assert!(tells(Engine::Vllm, "/v1/chat/completions"));
        assert!(!tells(Engine::Vllm, "/v1/embeddings"));
        assert!(tells(
            Engine::Triton,
            "/v2/models/m/versions/1/generate_stream"
        ));
        assert!(!tells(Engine::Triton, "/v2/models/m/infer"));
        assert!(!tells(Engine::Sglang, "/v1/chat/completions"));
        assert!(may_tell("/v1/completions") && !may_tell("/v1/messages"));
    }
}
