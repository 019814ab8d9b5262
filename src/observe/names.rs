//! Every metric, one row each: the only place where a metric gets a name.
//!
//! `metrics.rs` builds what is served from these rows, and `# HELP` prints their sentences, so documentation and
//! service cannot drift apart: a metric without a row is not built, and a row that nothing builds is an error at start.
//! Names follow Prometheus' rules (base units, `_total` on counters; <https://prometheus.io/docs/practices/naming/>).
//!
//! Label values come from the configuration or from fixed lists in the code, never from request text, so that no
//! client can make the number of series grow. A model that no worker serves is [`OTHER`]; what does not apply is
//! [`NONE`]. Series of a worker that is in the configuration no more are there no more.

use std::sync::Arc;

/// The label of something that a client named and the configuration does not know.
pub const OTHER: &str = "other";

/// The label where there is nothing to name: no tenants are configured, the path has no model.
pub const NONE: &str = "-";

/// The states of a worker, in the order of a worker's life.
pub const WORKER_STATES: [&str; 7] = [
    "starting", "loading", "up", "draining", "ejected", "down", "asleep",
];

/// What a request was matched to, as logs and metrics name it: never the request's own path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteName {
    /// A built-in path.
    BuiltIn(&'static str),
    /// A configured pattern, as typed.
    Pattern(Arc<str>),
}

impl RouteName {
    /// As a label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            RouteName::BuiltIn(path) => path,
            RouteName::Pattern(pattern) => pattern,
        }
    }
}

impl From<&'static str> for RouteName {
    fn from(path: &'static str) -> Self {
        RouteName::BuiltIn(path)
    }
}

impl From<&Arc<str>> for RouteName {
    fn from(pattern: &Arc<str>) -> Self {
        RouteName::Pattern(Arc::clone(pattern))
    }
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations into buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Its full name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The names of its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// What it tells, in one sentence.
    pub help: &'static str,
}

/// From a classifier's milliseconds to a long generation.
const DURATION: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0, 1800.0,
];

/// Around the pace of reading: 20 ms to 100 ms a token is where people notice.
const TOKEN_GAP: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// A proxy's own work is tens of microseconds; whole milliseconds are a finding.
const OVERHEAD: &[f64] = &[
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0,
];

/// All of them.
pub const TABLE: &[Row] = &[
    Row {
        name: "forebay_requests_total",
        kind: Kind::Counter,
        labels: &["route", "model", "tenant", "code", "reason"],
        help: "Requests whose head was read whole, counted once when they end, however they end.",
    },
    Row {
        name: "forebay_request_duration_seconds",
        kind: Kind::Histogram(DURATION),
        labels: &["route"],
        help: "From the request's head to the end of the exchange.",
    },
    Row {
        name: "forebay_time_to_first_byte_seconds",
        kind: Kind::Histogram(DURATION),
        labels: &["route"],
        help: "From the request's head to the first byte of a worker's answer.",
    },
    Row {
        name: "forebay_time_to_first_token_seconds",
        kind: Kind::Histogram(DURATION),
        labels: &["model"],
        help: "From the request's head to the first token of a streamed answer.",
    },
    Row {
        name: "forebay_inter_token_seconds",
        kind: Kind::Histogram(TOKEN_GAP),
        labels: &["model"],
        help: "Mean time per token between two reads of a streamed answer; one observation per read.",
    },
    Row {
        name: "forebay_overhead_seconds",
        kind: Kind::Histogram(OVERHEAD),
        labels: &[],
        help: "The proxy's own time from the request's head to the first send to a worker: without queueing, without waiting for the client's body, without connecting.",
    },
    Row {
        name: "forebay_queue_wait_seconds",
        kind: Kind::Histogram(DURATION),
        labels: &[],
        help: "Time that requests waited because every fitting worker was at its limit or down; zero for those that did not.",
    },
    Row {
        name: "forebay_queue_depth",
        kind: Kind::Gauge,
        labels: &["class"],
        help: "Requests that wait now because every fitting worker is at its limit or down.",
    },
    Row {
        name: "forebay_queue_overloaded",
        kind: Kind::Gauge,
        labels: &["class"],
        help: "1 while the eldest of a class has waited for queue.newest_first, so that the newest go first, else 0.",
    },
    Row {
        name: "forebay_inflight",
        kind: Kind::Gauge,
        labels: &["worker"],
        help: "Requests that a worker holds now.",
    },
    Row {
        name: "forebay_worker_state",
        kind: Kind::Gauge,
        labels: &["worker", "state"],
        help: "1 for the state that a worker is in, 0 for the others.",
    },
    Row {
        name: "forebay_worker_weight",
        kind: Kind::Gauge,
        labels: &["worker"],
        help: "Requests that a worker is expected to finish within the horizon before it fails.",
    },
    Row {
        name: "forebay_worker_speed",
        kind: Kind::Gauge,
        labels: &["worker", "phase"],
        help: "Learned speed in tokens per second: prefill is reading prompts, decode is writing one stream alone. Absent until learned.",
    },
    Row {
        name: "forebay_worker_told_requests",
        kind: Kind::Gauge,
        labels: &["worker", "kind"],
        help: "Requests that an engine says it is running or keeps waiting, whoever sent them. Absent where it does not say, or not of late.",
    },
    Row {
        name: "forebay_worker_told_kv_use_ratio",
        kind: Kind::Gauge,
        labels: &["worker"],
        help: "The share of its KV memory that an engine says is in use, 0 to 1. Absent where it does not say, or not of late.",
    },
    Row {
        name: "forebay_worker_fail_timeout_seconds",
        kind: Kind::Gauge,
        labels: &["worker"],
        help: "The busy time that a worker is expected to infer before it fails, learned from its outages and those of its machine.",
    },
    Row {
        name: "forebay_ejections_total",
        kind: Kind::Counter,
        labels: &["worker", "cause"],
        help: "Times that a worker was taken out for what its requests said, by the gravest of it: errors, lost connections, refused connections.",
    },
    Row {
        name: "forebay_attempts_total",
        kind: Kind::Counter,
        labels: &["worker", "outcome"],
        help: "Sends to a worker, by how they ended: ok, busy, unsupported, 5xx, refused, connect_timeout, reset, malformed, lora (the adapter could not be loaded), the reason of a timer or of a stream that was refused half-way, client_gone.",
    },
    Row {
        name: "forebay_retries_total",
        kind: Kind::Counter,
        labels: &["cause"],
        help: "Requests sent to another worker, by what had gone wrong: refused, reset, 5xx, busy, unsupported, lora, timeout.",
    },
    Row {
        name: "forebay_tests_total",
        kind: Kind::Counter,
        labels: &["worker", "outcome"],
        help: "Test requests that measured a worker, by how they ended: ok, rejected, busy, 5xx, timeout, refused, connect_timeout, reset, malformed; they are in no other counter.",
    },
    Row {
        name: "forebay_tokens_total",
        kind: Kind::Counter,
        labels: &["model", "tenant", "kind"],
        help: "Tokens as workers report them: prompt (all read), cached (of those, found in the worker's cache), output (written).",
    },
    Row {
        name: "forebay_cost_total",
        kind: Kind::Counter,
        labels: &["currency", "model", "tenant"],
        help: "What requests cost, in units of the currency: the busy time of machines that fell to them, at price_per_hour. Attempts that failed are not in it.",
    },
    Row {
        name: "forebay_tenant_budget_used_ratio",
        kind: Kind::Gauge,
        labels: &["tenant", "budget"],
        help: "The share of a tenant's budget that is used in the day or month of now, from 0; above 1 when requests cost more than was forecast.",
    },
    Row {
        name: "forebay_prefix_tokens_total",
        kind: Kind::Counter,
        labels: &["kind"],
        help: "Tokens of prompts whose beginning was looked up: prompt (all of them), best (the most that a worker was believed to have cached), matched (what the chosen worker was believed to have), reported (what it reports to have reused).",
    },
    Row {
        name: "forebay_config_reloads_total",
        kind: Kind::Counter,
        labels: &["result"],
        help: "Times that the configuration was read again, by what came of it: ok (taken over), unchanged, refused (the plan before stays).",
    },
    Row {
        name: "forebay_connections_refused_total",
        kind: Kind::Counter,
        labels: &["cause"],
        help: "Connections ended before a request's head was read whole, by why: bad_request, headers_too_large, header_timeout, tls, connections (no place within four fifths of the open-file limit), connections_per_address.",
    },
    Row {
        name: "forebay_access_log_dropped_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Access-log lines lost because the log's reader was too slow or writing failed.",
    },
    Row {
        name: "forebay_buffered_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Request bodies held in memory now (bounded by limits.buffered).",
    },
    Row {
        name: "forebay_open_connections",
        kind: Kind::Gauge,
        labels: &[],
        help: "Client connections open now.",
    },
    Row {
        name: "forebay_build_info",
        kind: Kind::Gauge,
        labels: &["version"],
        help: "Always 1; the label names the running version.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules() {
        let plain = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        for row in TABLE {
            assert!(
                row.name.starts_with("forebay_") && plain(row.name),
                "{}",
                row.name
            );
            assert_eq!(
                row.name.ends_with("_total"),
                row.kind == Kind::Counter,
                "{}: `_total` is for counters and every counter has it",
                row.name
            );
            let scaled = ["_ms", "_millis", "_micro", "_kib", "_mb", "_percent"];
            assert!(
                !scaled.iter().any(|unit| row.name.contains(unit)),
                "{}: base units only",
                row.name
            );
            assert!(row.labels.iter().all(|label| plain(label)), "{}", row.name);
            assert!(row.help.ends_with('.'), "{}: help is a sentence", row.name);
        }
    }

    #[test]
    fn every_histogram_measures_seconds_in_rising_buckets() {
        for row in TABLE {
            if let Kind::Histogram(buckets) = row.kind {
                assert!(row.name.ends_with("_seconds"), "{}", row.name);
                assert!(buckets.is_sorted_by(|low, high| low < high), "{}", row.name);
            }
        }
    }

    #[test]
    fn no_name_is_used_twice() {
        let mut names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }
}
