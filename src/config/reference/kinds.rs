//! The kinds of value that the table's rows share or that have rules of their own.

use super::Kind;
use crate::config::plan::{Engine, LogLevel, Repeat};
use crate::config::words::{Choice, words};
use crate::decide::{AllDown, Policy};
use crate::units::Seconds;

pub(super) const DAY: f64 = 86_400.0;
pub(super) const MILLISECOND: Seconds = Seconds(0.001);
pub(super) const KIB: u64 = 1 << 10;
pub(super) const GIB: u64 = 1 << 30;

pub(super) const POLICIES: &[&str] = &words::<{ <Policy as Choice>::WORDS.len() }, Policy>();
pub(super) const ALL_DOWN: &[&str] = &words::<{ <AllDown as Choice>::WORDS.len() }, AllDown>();
pub(super) const ENGINES: &[&str] = &words::<{ <Engine as Choice>::WORDS.len() }, Engine>();
pub(super) const REPEATS: &[&str] = &words::<{ <Repeat as Choice>::WORDS.len() }, Repeat>();
pub(super) const LEVELS: &[&str] = &words::<{ <LogLevel as Choice>::WORDS.len() }, LogLevel>();

pub(super) const PATH: Kind = Kind::Free {
    syntax: "PATH",
    allowed: "a path; a relative one starts at the folder of the configuration file",
};
pub(super) const PROBE_PATH: Kind = Kind::Free {
    syntax: "PATH",
    allowed: "a path on the worker, with its leading /, without spaces or #",
};
pub(super) const ROUTE_PATH: Kind = Kind::Free {
    syntax: "PATTERN",
    allowed: "a path with its leading /, or everything under one: /raw/*",
};
pub(super) const NAME: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "letters, digits, '.', '_' and '-', at most 64 of them, unlike every other worker's",
};
pub(super) const URL: Kind = Kind::Free {
    syntax: "URL",
    allowed: "http://HOST[:PORT][/BASE], https:// or h2c://; the port is 80 when left out, with https:// 443",
};
pub(super) const MODELS: Kind = Kind::Free {
    syntax: "[NAME, …] | { CLIENT_NAME = WORKER_NAME, … }",
    allowed: "a list of names, or a table: left what clients say, right what the worker gets, or \"*\" for the only one that it serves",
};
pub(super) const ADAPTERS: Kind = Kind::Free {
    syntax: "{ NAME = PATH, … }",
    allowed: "a table: left the name of an adapter, right where its engine finds it, as a path on the worker's machine",
};
pub(super) const WORKERS: Kind = Kind::Free {
    syntax: "[NAME, …]",
    allowed: "names of [[worker]] tables, at least one, none twice",
};
pub(super) const RETRY_ON: Kind = Kind::Free {
    syntax: "[WORD, …]",
    allowed: "a list of \"refused\", \"reset\", \"5xx\", \"busy\" and \"timeout\", none twice; it may be empty",
};
pub(super) const CLASSES: Kind = Kind::Free {
    syntax: "[NAME, …]",
    allowed: "names of letters, digits, '.', '_' and '-', from 1 to 16 of them, none twice",
};
pub(super) const WAITS: Kind = Kind::Free {
    syntax: "DURATION | { CLASS = DURATION, … }",
    allowed: "a time for all classes, or a table of times by class",
};
pub(super) const MARKS: Kind = Kind::Free {
    syntax: "DURATION | \"off\" | { CLASS = DURATION | \"off\", … }",
    allowed: "a time or \"off\" for all classes, or a table of them by class",
};
pub(super) const SHARES: Kind = Kind::Free {
    syntax: "{ CLASS = NUMBER, … }",
    allowed: "a table of shares by class, each from 0 to below 1, and all together below 1",
};
pub(super) const MACHINE_NAME: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "letters, digits, '.', '_' and '-', at most 64 of them, unlike every other machine's",
};
pub(super) const MACHINE: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "the name of a [[machine]] table",
};
pub(super) const REGION_NAME: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "letters, digits, '.', '_' and '-', at most 64 of them, unlike every other region's",
};
pub(super) const REGION: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "the name of a [[region]] table",
};
pub(super) const ZONE: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "letters, digits, '.', '_' and '-', at most 64 of them; 64 zones in all",
};
pub(super) const ZONES: Kind = Kind::Free {
    syntax: "[NAME, …]",
    allowed: "zones that [[region]] tables lie in, at least one, none twice",
};
pub(super) const RTT: Kind = Kind::Free {
    syntax: "{ REGION = DURATION, … }",
    allowed: "names of [[region]] tables, each with a duration from 0s to 60s",
};
pub(super) const NETWORKS: Kind = Kind::Free {
    syntax: "[NETWORK, …]",
    allowed: "a list of networks and IP addresses, as in [\"10.1.0.0/16\", \"fd00::1\"], none twice",
};
pub(super) const COUNTRIES: Kind = Kind::Free {
    syntax: "[COUNTRY, …]",
    allowed: "a list of codes of two capital letters (ISO 3166), as in [\"DE\", \"AT\"], none twice",
};
pub(super) const TAGS: Kind = Kind::Free {
    syntax: "[NAME, …]",
    allowed: "a list of names of your own: letters, digits, '.', '_' and '-', at most 64 of them, none twice",
};
pub(super) const COST: Kind = Kind::Free {
    syntax: "DURATION per cent | DURATION per CURRENCY",
    allowed: "a duration above zero for a cent or for one of a currency, as in \"0.5s per cent\" or \"50s per EUR\"",
};
pub(super) const CURRENCY: Kind = Kind::Free {
    syntax: "CURRENCY",
    allowed: "three capital letters (ISO 4217), as in \"EUR\"",
};
pub(super) const BUDGET: Kind = Kind::Free {
    syntax: "BUDGET | [BUDGET, …]",
    allowed: "an amount of money, or a duration for busy time, above zero, for a day or a month: \"3 EUR/day\", \"50 EUR/month\", \"2h/day\"; or a list of such that count different things",
};
pub(super) const MONEY: Kind = Kind::Free {
    syntax: "MONEY",
    allowed: "an amount and three capital letters for its currency, as in \"2.40 EUR\"",
};
pub(super) const WATTS: Kind = Kind::Number {
    least: 0.0,
    most: 1_000_000.0,
};
pub(super) const TEST: Kind = Kind::Free {
    syntax: "\"auto\" | \"off\" | { file = PATH }",
    allowed: "\"auto\", \"off\", or { file = \"PATH\" } with one JSON object in that file",
};
pub(super) const GRPC_URL: Kind = Kind::Free {
    syntax: "URL",
    allowed: "h2c://HOST:PORT or https://HOST:PORT, with the host of url",
};
pub(super) const METRICS_URL: Kind = Kind::Free {
    syntax: "URL",
    allowed: "http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH",
};
pub(super) const HEADERS: Kind = Kind::Free {
    syntax: "{ NAME = VALUE, … }",
    allowed: "header names and values as strings; not those that belong to the connection or that the proxy sets",
};
pub(super) const ADDRESS: Kind = Kind::Free {
    syntax: "ADDRESS",
    allowed: "an IP address and a port, as in \"127.0.0.1:7071\" or \"[::1]:7071\"; port 0 takes a free one",
};
pub(super) const ADDRESSES: Kind = Kind::Free {
    syntax: "[ADDRESS, …]",
    allowed: "a list of IP addresses with ports, as in [\"127.0.0.1:7070\", \"[::1]:7070\"], at least one",
};
pub(super) const ACCESS: Kind = Kind::Free {
    syntax: "\"stdout\" | \"off\" | PATH",
    allowed: "\"stdout\", \"off\", or a path, which has a '/' or a '.' in it; a relative one starts at the folder of the configuration file",
};
pub(super) const TIMER: Kind = Kind::Timer {
    least: MILLISECOND,
    most: Seconds(7.0 * DAY),
};
pub(super) const RUN: Kind = Kind::Count {
    least: 1,
    most: 1_000,
};
