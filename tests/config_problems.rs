//! What is wrong is said: all of it, at its line, without a secret, and never by a panic.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by failing"
)]

use std::fs;
use std::path::Path;

use forebay::config::plan::TestPlan;
use forebay::config::reference::{self, Kind, ROWS};
use forebay::config::{self, Problem, Problems, dump};
use forebay::rng::Rng;

#[path = "support/mmdb.rs"]
mod mmdb;

const WORKER: &str =
    "[[worker]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\nengine = \"vllm\"\nmodels = [\"m\"]\n";
const CANARY: &str = "canary-7f3a91";

/// One mistake each (after a `+`: behind a good worker, else before it), a part of the message, a part of the way out.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("drain = -5", "bare number", "drain = \"30s\""),
    ("[limits]\nbody = 1.5", "bare number", "body = \"64MiB\""),
    (
        "[timeouts]\nconnect = \"off\"",
        "can't be switched off",
        "connect = \"1s\"",
    ),
    (
        "[listen]\nhttp = [\"127.0.0.1:7071\"]",
        "address of its own",
        "admin = ",
    ),
    (
        "http = [\"127.0.0.1:7070\"]",
        "unknown key",
        "http belongs in [listen]",
    ),
    (
        "[limits]\nidle = \"5 s\"",
        "this unit is not known",
        "idle = \"2m\"",
    ),
    (
        "[limits]\nidle = \"5\"",
        "a bare number has no unit",
        "idle = \"5s\"",
    ),
    ("[limits]\nidle = \"0s\"", "out of range", "idle = \"2m\""),
    (
        "[limits]\nidle = \"9000d\"",
        "out of range",
        "idle = \"2m\"",
    ),
    (
        "[limits]\nbody = \"2GiB\"",
        "would never fit",
        "buffered = \"2GiB\"",
    ),
    (
        "[timeouts]\ntotal = false",
        "switched off by a word",
        "total = \"off\"",
    ),
    (
        "[listen]\nhttp = \"127.0.0.1:1\"",
        "a list is wanted",
        "http = [",
    ),
    (
        "[listen]\nhttp = [\"localhost:1\"]",
        "not an IP address",
        "127.0.0.1",
    ),
    (
        "[listen]\nhttp = [\":1\"]",
        "IP address is missing",
        "0.0.0.0",
    ),
    ("[listen]\nhttp = []", "no address", "http = ["),
    (
        "[listen]\nhttp = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
        "takes this address",
        "once",
    ),
    (
        "[listen]\nadmin = \"127.0.0.1:7070\"",
        "address of its own",
        "admin = ",
    ),
    (
        "[listen]\nhttp = [\"10.0.0.1:1\"]",
        "could use every worker",
        "open = true",
    ),
    (
        "[listen]\nopen = \"yes\"",
        "true or false is wanted",
        "open = true",
    ),
    (
        "[listen]\ntrusted_proxies = [\"10.0.0.1/8\"]",
        "behind its prefix",
        "\"10.0.0.0/8\"",
    ),
    (
        "[listen]\ntrusted_proxies = [\"proxy\"]",
        "neither an IP address nor a network",
        "trusted_proxies = [",
    ),
    (
        "[listen]\ntrusted_proxies = [\"::1\", \"::1\"]",
        "listed twice",
        "once",
    ),
    (
        "[listen]\nregion = \"home\"",
        "no region of this name",
        "[[region]]",
    ),
    (
        "[listen]\nregion = \"hom\"\n[[region]]\nname = \"home\"",
        "no region of this name",
        "\"home\"",
    ),
    (
        "[listen]\ngeoip = \"/does/not/exist\"\n[[region]]\nname = \"a\"\ncountries = [\"DE\"]",
        "can't be used",
        ".mmdb",
    ),
    (
        "[[region]]\nname = \"a\"\n[[region]]\nname = \"a\"",
        "has this name",
        "of its own",
    ),
    (
        "[[region]]\nname = \"a\"\nzone = \"e u\"",
        "not a name for a zone",
        "zone = ",
    ),
    (
        "[[region]]\nname = \"ohio\"\nrtt = { ohoi = \"1ms\" }",
        "no region of this name",
        "\"ohio\"",
    ),
    (
        "[[region]]\nname = \"a\"\nrtt = { a = \"61s\" }",
        "out of range",
        "rtt = {",
    ),
    (
        "[[region]]\nname = \"a\"\nrtt = { a = 2 }",
        "no unit",
        "rtt = {",
    ),
    (
        "[[region]]\nname = \"a\"\nrtt = { b = \"1ms\" }\n[[region]]\nname = \"b\"\nrtt = { a = \"2ms\" }",
        "region a says 1ms",
        "once",
    ),
    (
        "[[region]]\nname = \"a\"\nnetworks = [\"10.0.0.0/8\"]\n[[region]]\nname = \"b\"\nnetworks = [\"10.0.0.0/8\"]",
        "region a has a network",
        "one of the two",
    ),
    (
        "[[region]]\nname = \"a\"\ncountries = [\"DE\"]",
        "nothing tells in which country",
        "geoip = ",
    ),
    (
        "[[region]]\nname = \"a\"\ncountries = [\"Germany\"]",
        "two capital letters",
        "\"DE\"",
    ),
    (
        "[shadow]",
        "not supported by this version yet",
        "leave it out",
    ),
    ("+ca = \"x.pem\"", "not spoken to by TLS", "https://"),
    (
        "[[limits]]\nidle = \"1s\"",
        "only one of this table",
        "[limits]",
    ),
    (
        "[routing]\npolicy = \"randm\"",
        "unknown word",
        "\"random\"",
    ),
    (
        "[routing]\nretries = { on = [\"refusd\"] }",
        "unknown word",
        "\"refused\"",
    ),
    (
        "[routing]\nretries = { on = [\"busy\", \"busy\"] }",
        "listed twice",
        "once",
    ),
    ("[routing]\nhorizon = \"0s\"", "out of range", "horizon = "),
    (
        "[routing]\nall_down = \"queu\"",
        "unknown word",
        "\"queue\"",
    ),
    (
        "[routing]\nsample_above = 2",
        "out of range",
        "sample_above = ",
    ),
    (
        "[routing]\ncost = \"0.5s\"",
        "not a duration for an amount of money",
        "per cent",
    ),
    (
        "[routing]\ncost = \"1s per cent\"",
        "no machine has a price",
        "price_per_hour",
    ),
    (
        "[routing]\ncost = \"1s per USD\"\n[[machine]]\nname = \"desk\"\nprice_per_hour = \"1 EUR\"\n[[worker]]\nname = \"b\"\nurl = \"http://x\"\nmachine = \"desk\"",
        "are in EUR",
        "one currency",
    ),
    ("[eject]\nerrors = 0", "out of range", "errors = 5"),
    (
        "[eject]\nfirst = \"2m\"",
        "none may last longer than 1m",
        "max = \"2m\"",
    ),
    (
        "+eject = { max = \"1s\" }",
        "none may last longer than 1s",
        "first = \"1s\"",
    ),
    ("+max_fails = 3", "nginx's key", "eject = { errors = 3 }"),
    ("+fail_timeout = \"30s\"", "nginx's key", "[eject]"),
    (
        "+machine = \"desk\"",
        "no machine of this name",
        "[[machine]]",
    ),
    (
        "+machine = \"desk\"\n[[machine]]\nname = \"desks\"\n[[worker]]\nname = \"b\"\nurl = \"http://x\"\nengine = \"vllm\"\nmodels = [\"a\"]\nmachine = \"desks\"",
        "no machine of this name",
        "\"desks\"",
    ),
    (
        "[[machine]]\nname = \"desk\"",
        "no worker runs on this machine",
        "machine = \"desk\"",
    ),
    (
        "+machine = \"desk\"\n[[machine]]\nname = \"desk\"\nwatts = 50\nidle_watts = 60",
        "more than the 50 W",
        "idle_watts = 50",
    ),
    (
        "+machine = \"desk\"\n[[machine]]\nname = \"desk\"\nprice_per_hour = \"2.40\"",
        "not an amount with its currency",
        "2.40 EUR",
    ),
    (
        "+machine = \"desk\"\n[[machine]]\nname = \"desk\"\nwake = {}",
        "not supported by this version yet",
        "leave it out",
    ),
    (
        "+machine = \"desk\"\n[[machine]]\nname = \"desk\"\nregion = \"home\"",
        "no region of this name",
        "[[region]]",
    ),
    ("+tier = 10", "out of range", "tier = 1"),
    ("+tags = [\"a\", \"a\"]", "listed twice", "once"),
    ("+tags = [\"a b\"]", "not a name for a tag", "tags = ["),
    (
        "+optional = 1",
        "true or false is wanted",
        "optional = true",
    ),
    ("+test = \"of\"", "unknown word", "\"off\""),
    (
        "+test = { path = \"x\" }",
        "names one file",
        "file = \"body.json\"",
    ),
    (
        "+test = { file = \"/does/not/exist\" }",
        "can't be read",
        "create it",
    ),
    (
        "+grpc_url = \"h2c://elsewhere:8001\"",
        "this is another",
        "grpc_url = ",
    ),
    (
        "+metrics_url = \"h2c://x/metrics\"",
        "read by HTTP/1.1",
        "metrics_url = ",
    ),
    ("[probe]\npath = \"health\"", "not a path", "path = \"/"),
    ("[probe]\nrise = 0", "out of range", "rise = 1"),
    (
        "[probe]\nrise = 1.5",
        "a whole number is wanted",
        "rise = 1",
    ),
    (
        "[log]\naccess = \"stdot\"",
        "neither a known word nor a path",
        "\"stdout\"",
    ),
    (
        "[queue]\nclasses = []",
        "there is no class here",
        "classes = [",
    ),
    ("[queue]\nclasses = [\"a\", \"a\"]", "listed twice", "once"),
    (
        "[queue]\nwait = { pad = \"1s\" }",
        "there is no class of this name",
        "did you mean \"paid\"?",
    ),
    (
        "[queue]\nreserve = { paid = 1.5 }",
        "a share is from 0 to below 1",
        "reserve",
    ),
    (
        "[queue]\nreserve = { paid = 0.5, free = 0.5 }",
        "nothing would be left",
        "less than 1",
    ),
    ("[log]\nreplay = 1", "true or false", "replay"),
    (
        "[admin]\ntoken = { env = \"NOPE\" }",
        "NOPE is not set",
        "set NOPE",
    ),
    (
        "[admin]\ntoken = { env = \"A\", file = \"b\" }",
        "one source",
        "token = {",
    ),
    (
        "[admin]\ntoken = { file = \"/does/not/exist\" }",
        "can't be read",
        "create it",
    ),
    ("state = \"${NOPE}/x\"", "NOPE is not set", "$${NOPE}"),
    ("state = \"${NOPE\"", "closing brace", "${NAME}"),
    ("state = \"\"", "empty", "state = "),
    ("+weight = 3", "nginx's key", "speed = 4.0"),
    ("+speed = 0", "out of range", "speed = 4.0"),
    ("+speed = nan", "out of range", "speed = 4.0"),
    ("+max_inflight = -1", "out of range", "max_inflight = 16"),
    (
        "+max_prompt_tokens = 0",
        "out of range",
        "max_prompt_tokens = 8192",
    ),
    ("+resident = 0", "out of range", "resident = 1"),
    ("+lora = { slots = 0 }", "out of range", "lora = { slots"),
    (
        "+lora = { load = true }",
        "no adapter here to load",
        "adapters = {",
    ),
    (
        "+lora = { adapters = { sql = \"\" } }",
        "this path is empty",
        "adapters = {",
    ),
    (
        "+lora = { adapters = { \"*\" = \"/sql\" } }",
        "the name of this adapter",
        "adapters = {",
    ),
    (
        "[[worker]]\nname = \"b\"\nurl = \"http://127.0.0.1:2\"\nmodels = { sql = \"other\" }\nlora = { adapters = { sql = \"/sql\" } }",
        "gives this name to another model",
        "otherwise",
    ),
    (
        "[[worker]]\nname = \"b\"\nurl = \"http://127.0.0.1:2\"\nengine = \"ollama\"\nlora = { load = true, adapters = { sql = \"/sql\" } }",
        "can't be told to load",
        "vllm and sglang",
    ),
    (
        "+headers = { \"Host\" = \"x\" }",
        "belongs to the connection",
        "leave it out",
    ),
    (
        "+headers = { \"X-Request-Id\" = \"x\" }",
        "sets this header itself",
        "leave it out",
    ),
    (
        "+headers = { \"A b\" = \"x\" }",
        "not the name of a header",
        "headers = {",
    ),
    (
        "+headers = { \"X-A\" = \"a\\nb\" }",
        "can't carry",
        "headers = {",
    ),
    (
        "+headers = { \"X-A\" = \"1\", \"x-a\" = \"2\" }",
        "listed twice",
        "once",
    ),
    (
        "+key = { env = \"CANARY\" }\nheaders = { Authorization = \"x\" }",
        "key is sent",
        "either",
    ),
    (
        "+[[worker]]\nname = \"b\"\nurl = \"http://x:0\"\nengine = \"vllm\"\nmodels = [\"a\"]",
        "this port",
        "url = ",
    ),
    (
        "+[[worker]]\nname = \"b\"\nurl = \"http://x\"\nengine = \"vllm\"\nmodels = [\"a\", \"a\"]",
        "listed twice",
        "once",
    ),
    (
        "+[[route]]\npath = \"/a*\"",
        "only at the end",
        "path = \"/raw/*\"",
    ),
    (
        "+[[route]]\npath = \"/a/*/b\"",
        "only at the end",
        "path = \"/raw/*\"",
    ),
    (
        "+[[route]]\npath = \"/a?b\"",
        "no path has",
        "path = \"/raw/*\"",
    ),
    (
        "+[[route]]\npath = \"/a\"\nworkers = []",
        "nobody could answer",
        "leave the key out",
    ),
    (
        "+[[route]]\npath = \"/a\"\nworkers = [\"a\", \"a\"]",
        "listed twice",
        "once",
    ),
    (
        "+tags = [\"vision\"]\n[[route]]\npath = \"/a\"\ntags = [\"visoin\"]",
        "no [[worker]] carries this tag",
        "\"vision\"",
    ),
    (
        "+[[route]]\npath = \"/a\"\ntags = [\"vision\"]",
        "no [[worker]] carries this tag",
        "tags = [\"vision\"] into",
    ),
    (
        "+tags = [\"x\"]\n[[worker]]\nname = \"b\"\nurl = \"http://x\"\ntags = [\"y\"]\n[[route]]\npath = \"/a\"\ntags = [\"x\", \"y\"]",
        "carries all of these",
        "ask for fewer",
    ),
    (
        "+[[route]]\npath = \"/a\"\ntags = []",
        "no tag in this list",
        "leave the key out",
    ),
    (
        "+[[route]]\npath = \"/a\"\nzones = []",
        "no zone",
        "leave the key out",
    ),
    (
        "+[[route]]\npath = \"/a\"\nzones = [\"eu\"]",
        "lies in a zone of this name",
        "zone = \"eu\"",
    ),
    (
        "+[[region]]\nname = \"home\"\nzone = \"eu\"\n[[route]]\npath = \"/a\"\nzones = [\"ue\"]",
        "lies in a zone of this name",
        "\"eu\"",
    ),
    (
        "+[[route]]\npath = \"/a/*\"\n[[route]]\npath = \"/a/b\"",
        "takes all of this before",
        "narrower",
    ),
    (
        "+[[route]]\npath = \"/a\"\nrepeat = \"always\"",
        "unknown word",
        "repeat = \"safe\"",
    ),
    ("+[[route]]\nworkers = [\"a\"]", "required", "path = "),
    ("+[[tenant]]\nname = \"app\"", "required", "key_hash = "),
    (
        "+[[tenant]]\nname = \"-\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"",
        "requests without a tenant",
        "name = \"app\"",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = []",
        "no key here",
        "key_hash = ",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"fb_key\"",
        "not the hash of a key",
        "sha256:",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = { hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\", until = \"soon\" }",
        "a list is wanted",
        "key_hash = ",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = [{ hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\", until = \"soon\" }]",
        "neither a date nor a time",
        "2027-01-01",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = [{ until = \"2027-01-01\" }]",
        "hash is missing",
        "key_hash = ",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = [{ hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\", untill = \"2027-01-01\" }]",
        "nothing else",
        "key_hash = ",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = [\"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\", \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"]",
        "\"app\" has this hash already",
        "forebay key new",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\n[[tenant]]\nname = \"b\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"",
        "\"b\" and \"app\" at line 6 have the same hash",
        "forebay key new",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nmodels = []",
        "no model here",
        "models = [",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nmodels = [\"a\", \"a\"]",
        "listed twice",
        "once",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nmax_concurrent = 0",
        "out of range",
        "max_concurrent = ",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\ncallback_hosts = []",
        "not supported by this version yet",
        "leave it out",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nbudget = \"3 EUR/day\"",
        "no machine has a price",
        "2h/day",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nbudget = \"3h/week\"",
        "for a day or a month",
        "EUR/day",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nbudget = [\"3h/day\", \"4h/day\"]",
        "counts the same for each day",
        "keep the smaller one",
    ),
    (
        "[jwt]\njwks = { url = \"https://id/jwks\" }\nissuer = \"a\"\naudience = \"b\"",
        "nothing is fetched",
        "file = ",
    ),
    (
        "[jwt]\njwks = { file = \"none.json\" }\nissuer = \"a\"\naudience = \"b\"",
        "can't be used: No such file",
        "jwks_uri",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_file = \"none.keys\"",
        "can't be used: No such file",
        "a line is",
    ),
    ("+[[tenant]]\nname = \"app\"", "is required", "key_hash = "),
    (
        "currency = \"euro\"",
        "not a currency",
        "currency = \"EUR\"",
    ),
    (
        "currency = \"USD\"\n[[machine]]\nname = \"desk\"\nprice_per_hour = \"1 EUR\"\n[[worker]]\nname = \"b\"\nurl = \"http://x\"\nmachine = \"desk\"",
        "are in USD",
        "one currency",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nclass = \"pad\"",
        "there is no class of this name",
        "did you mean \"paid\"?",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nzones = [\"eu\"]",
        "lies in a zone of this name",
        "zone = \"eu\"",
    ),
    (
        "+[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"\nbudgets = 3",
        "unknown key",
        "",
    ),
];

fn env(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/me".to_owned()),
        "CANARY" => Some(CANARY.to_owned()),
        "SPACED" => Some(format!("{CANARY} with a space")),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn problems(text: &str) -> Problems {
    match config::parse(text, Path::new("forebay.toml"), &env) {
        Ok(_) => panic!("nothing was wrong with:\n{text}"),
        Err(problems) => problems,
    }
}

/// The only problem of a text put before or after a good worker.
fn only(text: &str) -> Problem {
    let whole = match text.strip_prefix('+') {
        Some(behind) => format!("{WORKER}{behind}"),
        None => format!("{text}\n{WORKER}"),
    };
    let found = problems(&whole);
    assert_eq!(found.iter().count(), 1, "{whole}\n{found}");
    found.iter().next().unwrap().clone()
}

#[test]
fn a_database_and_countries_belong_together_and_a_country_to_one_region() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("c.mmdb"), mmdb::countries(&[])).unwrap();
    let told = |regions: &str| {
        let text = format!("[listen]\ngeoip = \"c.mmdb\"\n{regions}\n{WORKER}");
        let read = config::parse(&text, &folder.path().join("forebay.toml"), &env);
        read.map_or_else(|problems| problems.to_string(), |_| "good".to_owned())
    };
    let region = |name: &str, countries: &str| {
        format!("[[region]]\nname = \"{name}\"\ncountries = [{countries}]\n")
    };
    assert!(told("").contains("no region has countries"));
    let one = region("a", "\"DE\"");
    assert_eq!(told(&one), "good");
    let twice = one + &region("b", "\"AT\", \"DE\"");
    assert!(told(&twice).contains("region a has a country of this list"));
}

#[test]
fn all_mistakes_are_reported_at_their_lines() {
    let text = r#"drain = 60
sate = "/var/lib/forebay"

[queue]
entries = 0

[listen]
http = ["0.0.0.0:7070", "127.0.0.1"]

[limits]
body = "32 MiB"
header = "1KiB"

[timeouts]
connect = "off"

[routing]
policy = "least-time"
retries = { extra = 99 }

[[worker]]
name = "a"
url = "ftp://10.0.0.1"
engine = "vlm"
models = []
max_fails = 3

[[worker]]
name = "a"
url = "http://127.0.0.1:1?x"
engine = "vllm"

[[route]]
path = "raw/*"
workers = ["b"]
"#;
    let found = problems(text);
    let places: Vec<_> = found
        .iter()
        .map(|problem| (problem.line, problem.key.as_str()))
        .collect();
    let expected = [
        (1, "drain"),
        (2, "sate"),
        (5, "queue.entries"),
        (8, "listen.http[0]"),
        (8, "listen.http[1]"),
        (11, "limits.body"),
        (12, "limits.header"),
        (15, "timeouts.connect"),
        (18, "routing.policy"),
        (19, "routing.retries.extra"),
        (23, "worker[0].url"),
        (24, "worker[0].engine"),
        (25, "worker[0].models"),
        (26, "worker[0].max_fails"),
        (29, "worker[1].name"),
        (30, "worker[1].url"),
        (34, "route[0].path"),
        (35, "route[0].workers[0]"),
    ];
    assert_eq!(places, expected, "{found}");
}

/// What stands in the place of a hash may be the key itself.
#[test]
fn a_key_in_the_place_of_its_hash_is_not_repeated() {
    for typed in [
        format!("\"{CANARY}\""),
        format!("[\"{CANARY}\"]"),
        format!("[{{ hash = \"{CANARY}\" }}]"),
        format!("[{{ key = \"{CANARY}\" }}]"),
        format!("{{ key = \"{CANARY}\" }}"),
    ] {
        let text = format!("{WORKER}[[tenant]]\nname = \"app\"\nkey_hash = {typed}\n");
        let found = problems(&text).to_string();
        assert!(!found.contains(CANARY), "{found}");
    }
}

#[test]
fn clients_with_keys_may_come_over_a_network() {
    let tenant = format!(
        "[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:{}\"\n",
        "0".repeat(64)
    );
    let text = format!("[listen]\nhttp = [\"10.0.0.1:1\"]\n{WORKER}");
    assert_eq!(problems(&text).iter().count(), 1);
    let plan = config::parse(&format!("{text}{tenant}"), Path::new("forebay.toml"), &env);
    assert_eq!(plan.unwrap().tenants.len(), 1);
}

#[test]
fn a_problem_reads_well() {
    assert_eq!(
        only("drain = 60").to_string(),
        "forebay.toml:1:9: drain = 60: a bare number has no unit\n    \
         allowed: a number with its unit ms, s, m, h or d, as in \"1.5s\", from 0s to 24h\n    \
         way out: write: drain = \"60s\""
    );
    assert_eq!(
        only("+max_infligth = 3").to_string(),
        "forebay.toml:6:1: worker[0].max_infligth: unknown key\n    \
         allowed: name, url, machine, engine, models, lora, resident, max_inflight, max_prompt_tokens, speed, key, ca, client_cert, headers, probe, eject, test, grpc_url, metrics_url, tier, tags, optional, timeouts\n    \
         way out: did you mean max_inflight?"
    );
}

#[test]
fn each_mistake_is_understood() {
    for (text, message, way_out) in MISTAKES {
        let problem = only(text);
        assert!(problem.message.contains(message), "{text}\n{problem}");
        let instead = problem.instead.clone().unwrap_or_default();
        assert!(instead.contains(way_out), "{text}\n{problem}");
    }
}

/// What the operator would have measured with is read at once, beside the configuration.
#[test]
fn a_test_request_is_one_json_object() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{WORKER}test = {{ file = \"body.json\" }}");
    let parse = |body: &str| {
        fs::write(folder.path().join("body.json"), body).unwrap();
        config::parse(&text, &folder.path().join("forebay.toml"), &env)
    };
    let plan = parse("{\"input\": \"a\"}").unwrap();
    let TestPlan::File { body, .. } = &plan.workers[0].test else {
        panic!("{:?}", plan.workers[0].test);
    };
    assert_eq!(&**body, "{\"input\": \"a\"}");
    for wrong in ["", "[]", "{\"a\": 1} x", "{\"a\": }"] {
        let found = parse(wrong).unwrap_err().to_string();
        assert!(found.contains("one JSON object"), "{wrong}\n{found}");
    }
}

/// A price is exact, and shown as it is typed.
#[test]
fn a_machine_reaches_its_workers_with_its_price() {
    let machine =
        "machine = \"desk\"\n[[machine]]\nname = \"desk\"\nprice_per_hour = \"2.4 EUR\"\n";
    let text = format!("{WORKER}{machine}");
    let plan = config::parse(&text, Path::new("forebay.toml"), &env).unwrap();
    assert_eq!(plan.workers[0].machine, Some(plan.machines[0].name.clone()));
    let price = plan.machines[0].price_per_hour.unwrap();
    assert_eq!(
        (price.nanos, price.to_string().as_str()),
        (2_400_000_000, "2.40 EUR")
    );
}

/// An empty list tries nothing again that a worker has seen.
#[test]
fn nothing_may_be_tried_again() {
    let text = format!("[routing]\nretries = {{ on = [] }}\n{WORKER}");
    let plan = config::parse(&text, Path::new("forebay.toml"), &env).unwrap();
    assert!(plan.routing.retries.on.is_empty());
}

#[test]
fn a_file_without_a_worker_is_told_to_have_one() {
    let found = problems("");
    assert_eq!(found.iter().next().unwrap().key, "worker");
    let found = problems("[worker]\nname = \"a\"");
    assert!(found.to_string().contains("write: [[worker]]"), "{found}");
}

/// A broken line costs itself; the others are still read. A broken header makes the rest meaningless.
#[test]
fn broken_syntax_does_not_hide_other_mistakes() {
    let found = problems(&format!("drain =\nsate = 1\n{WORKER}speed = 0\n"));
    let lines: Vec<_> = found.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [1, 2, 8], "{found}");
    let found = problems("[limits\nbody = 1\n");
    assert!(found.iter().all(|problem| problem.line == 1), "{found}");
    let twice = problems(&format!("drain = \"1s\"\ndrain = \"2s\"\n{WORKER}"));
    let first = twice.iter().next().unwrap();
    assert_eq!(
        (first.line, first.instead.as_deref()),
        (2, Some("keep one of the two"))
    );
}

/// Every row is a key that the reader reads: a value that fits nowhere is refused at it.
#[test]
fn every_key_of_the_reference_is_read() {
    let is_list = |section| reference::row(section).is_some_and(|row| row.kind == Kind::Sections);
    for row in ROWS {
        let wrong = "1979-05-27";
        let text = match (row.section(), row.kind) {
            ("", _) => format!("{} = {wrong}", row.name()),
            (section, _) if is_list(section) => {
                format!("[[{}]]\n{} = {wrong}", row.section(), row.name())
            }
            (section @ ("worker.lora" | "worker.client_cert"), _) => {
                let table = section.trim_start_matches("worker.");
                format!("[[worker]]\n{table} = {{ {} = {wrong} }}", row.name())
            }
            (section, _) => format!("[{section}]\n{} = {wrong}", row.name()),
        };
        let found = problems(&text);
        let shown = match row.section() {
            section if is_list(section) => format!("{section}[0].{}", row.name()),
            "worker.lora" | "worker.client_cert" => row.key.replacen("worker", "worker[0]", 1),
            _ => row.key.to_owned(),
        };
        let at_key =
            |problem: &&Problem| problem.key == shown && problem.message.contains("wanted here");
        let secret =
            row.kind == Kind::Secret && found.to_string().contains("a secret is not written");
        let list = row.kind == Kind::Sections && found.to_string().contains("list of tables");
        let read = found.iter().find(at_key).is_some() || secret || list;
        assert!(read, "{} is not read:\n{found}", row.key);
    }
}

/// Every key that is laid over another section is read there too, and keeps no default of its own.
#[test]
fn every_override_is_read() {
    for over in ROWS {
        let Kind::Over(section) = over.kind else {
            continue;
        };
        for row in reference::within(section) {
            let text = format!(
                "[[{}]]\n{} = {{ {} = [] }}",
                over.section(),
                over.name(),
                row.name()
            );
            let key = format!("{}[0].{}.{}", over.section(), over.name(), row.name());
            assert!(
                problems(&text).iter().any(|problem| problem.key == key),
                "{key}"
            );
        }
    }
}

#[test]
fn secrets_are_never_shown() {
    let refused = [
        format!("[admin]\ntoken = \"{CANARY}\"\n{WORKER}"),
        format!("[admin]\ntoken = {{ env = \"{CANARY}\" }}\n{WORKER}"),
        format!("[admin]\ntoken = {{ value = \"{CANARY}\" }}\n{WORKER}"),
        format!("[admin]\ntoken = [\"{CANARY}\"]\n{WORKER}"),
        format!("token = \"{CANARY}\"\n{WORKER}"),
        format!("{WORKER}key = {{ env = \"SPACED\" }}"),
        format!("{WORKER}key = {{ env = \"EMPTY\" }}"),
        format!("{WORKER}key = \"{CANARY}\""),
        format!("{WORKER}api_key = \"{CANARY}\""),
        format!("{WORKER}headers = {{ Host = \"{CANARY}\" }}"),
        format!("{WORKER}headers = {{ X-A = \"{CANARY}\\n\" }}"),
        format!("{WORKER}headers = \"{CANARY}\""),
        format!("{WORKER}probe = {{ path = \"${{CANARY}}\" }}"),
        format!("{WORKER}speed = \"${{CANARY}}\""),
        format!("drain = \"${{CANARY}}\"\n{WORKER}"),
        format!("{WORKER}[[worker]]\nurl = \"http://me:{CANARY}@host\""),
        format!("{WORKER}[[worker]]\nurl = \"http://host/?key={CANARY}\""),
        format!("{WORKER}[[worker]]\nurl = \"http://${{CANARY}}:port\""),
        format!("{WORKER}[[worker]]\nengine = \"${{CANARY}}\""),
    ];
    for text in refused {
        let found = problems(&text);
        assert!(
            !format!("{found} {found:?}").contains(CANARY),
            "{text}\n{found}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), format!("{CANARY}\r\n")).unwrap();
    let text = format!(
        "[admin]\ntoken = {{ env = \"CANARY\" }}\n{WORKER}key = {{ file = \"key\" }}\nheaders = {{ X-A = \"${{CANARY}}\" }}"
    );
    let plan = config::parse(&text, &folder.path().join("forebay.toml"), &env).unwrap();
    assert_eq!(plan.workers[0].key.as_ref().unwrap().expose(), CANARY);
    assert_eq!(plan.workers[0].headers[0].1, CANARY);
    assert_eq!(plan.admin_token.as_ref().unwrap().expose(), CANARY);
    let shown = dump::json(&plan);
    assert!(
        !format!("{plan:?}{shown}").contains(CANARY),
        "{plan:?}\n{shown}"
    );
    let dumped: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(dumped["worker"][0]["key"], "***");
    assert_eq!(dumped["worker"][0]["headers"]["x-a"], "***");
    assert_eq!(dumped["admin"]["token"], "***");
}

#[test]
fn a_key_cannot_steer_the_terminal() {
    let found = problems("\"\\u001b[31m\" = 1");
    assert!(!found.to_string().contains('\u{1b}'), "{found}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem() {
    let found = config::load(Path::new("/does/not/exist.toml"), &env).unwrap_err();
    assert!(
        found
            .to_string()
            .starts_with("/does/not/exist.toml: can't be read"),
        "{found}"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin1.toml");
    fs::write(&path, b"# a\nstate = \"caf\xe9\"\n").unwrap();
    let found = config::load(&path, &env).unwrap_err();
    assert!(found.to_string().contains("line 2 is not UTF-8"), "{found}");
}

/// Input never panics: 2,000 seeded mutations of the fullest file there is.
#[test]
fn mutations_never_panic() {
    let full = fs::read_to_string("config/full.toml").unwrap();
    let letters: Vec<char> = full.chars().collect();
    let odd = [
        '"', '[', ']', '{', '}', '=', '$', '*', '\n', '\0', 'é', '\u{2028}', '0', '-', '.',
    ];
    let mut refused = 0;
    for seed in 0..2_000 {
        let mut rng = Rng::seeded(seed);
        let mut text = letters.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(text.len());
            match rng.below(4) {
                0 => text[at] = odd[rng.below(odd.len())],
                1 => text.insert(at, odd[rng.below(odd.len())]),
                2 => drop(text.drain(at..(at + rng.below(40)).min(text.len()))),
                _ => text.truncate(at.max(1)),
            }
        }
        let text: String = text.into_iter().collect();
        if let Err(found) =
            config::parse(&text, Path::new("forebay.toml"), &|_| Some("x".to_owned()))
        {
            refused += 1;
            assert!(!found.to_string().is_empty());
            for problem in &found {
                assert!(
                    problem.line <= text.split('\n').count(),
                    "seed {seed}: {problem}"
                );
            }
        }
    }
    assert!(
        refused > 500,
        "only {refused} of 2,000 mutations were noticed"
    );
}
