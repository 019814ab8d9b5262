//! The table itself, in the order in which a file is written.
//!
//! This file is long because it is one table: a key that is looked for in two places is not found in either.

use super::{Kind, Row, Unset};
use crate::config::plan::{AllDown, Engine, LogLevel, Repeat};
use crate::config::words::{Choice, words};
use crate::decide::Policy;
use crate::units::{Bytes, Seconds};

const DAY: f64 = 86_400.0;
const MILLISECOND: Seconds = Seconds(0.001);
const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

const POLICIES: &[&str] = &words::<{ <Policy as Choice>::WORDS.len() }, Policy>();
const ALL_DOWN: &[&str] = &words::<{ <AllDown as Choice>::WORDS.len() }, AllDown>();
const ENGINES: &[&str] = &words::<{ <Engine as Choice>::WORDS.len() }, Engine>();
const REPEATS: &[&str] = &words::<{ <Repeat as Choice>::WORDS.len() }, Repeat>();
const LEVELS: &[&str] = &words::<{ <LogLevel as Choice>::WORDS.len() }, LogLevel>();

const PATH: Kind = Kind::Free {
    syntax: "PATH",
    allowed: "a path; a relative one starts at the folder of the configuration file",
};
const PROBE_PATH: Kind = Kind::Free {
    syntax: "PATH",
    allowed: "a path on the worker, with its leading /, without spaces or #",
};
const ROUTE_PATH: Kind = Kind::Free {
    syntax: "PATTERN",
    allowed: "a path with its leading /, or everything under one: /raw/*",
};
const NAME: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "letters, digits, '.', '_' and '-', at most 64 of them, unlike every other worker's",
};
const URL: Kind = Kind::Free {
    syntax: "URL",
    allowed: "http://HOST[:PORT][/BASE] or h2c://HOST[:PORT][/BASE]; the port is 80 when left out",
};
const MODELS: Kind = Kind::Free {
    syntax: "[NAME, …] | { CLIENT_NAME = WORKER_NAME, … }",
    allowed: "a list of names, or a table: left what clients say, right what the worker gets, or \"*\" for the only one that it serves",
};
const WORKERS: Kind = Kind::Free {
    syntax: "[NAME, …]",
    allowed: "names of [[worker]] tables, at least one, none twice",
};
const RETRY_ON: Kind = Kind::Free {
    syntax: "[WORD, …]",
    allowed: "a list of \"refused\", \"reset\", \"5xx\", \"busy\" and \"timeout\", none twice; it may be empty",
};
const MACHINE_NAME: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "letters, digits, '.', '_' and '-', at most 64 of them, unlike every other machine's",
};
const MACHINE: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "the name of a [[machine]] table",
};
const MONEY: Kind = Kind::Free {
    syntax: "MONEY",
    allowed: "an amount and three capital letters for its currency, as in \"2.40 EUR\"",
};
const WATTS: Kind = Kind::Number {
    least: 0.0,
    most: 1_000_000.0,
};
const TEST: Kind = Kind::Free {
    syntax: "\"auto\" | \"off\" | { file = PATH }",
    allowed: "\"auto\", \"off\", or { file = \"PATH\" } with one JSON object in that file",
};
const METRICS_URL: Kind = Kind::Free {
    syntax: "URL",
    allowed: "http://HOST[:PORT]/PATH",
};
const HEADERS: Kind = Kind::Free {
    syntax: "{ NAME = VALUE, … }",
    allowed: "header names and values as strings; not those that belong to the connection or that the proxy sets",
};
const ADDRESS: Kind = Kind::Free {
    syntax: "ADDRESS",
    allowed: "an IP address and a port, as in \"127.0.0.1:7071\" or \"[::1]:7071\"; port 0 takes a free one",
};
const ADDRESSES: Kind = Kind::Free {
    syntax: "[ADDRESS, …]",
    allowed: "a list of IP addresses with ports, as in [\"127.0.0.1:7070\", \"[::1]:7070\"], at least one",
};
const ACCESS: Kind = Kind::Free {
    syntax: "\"stdout\" | \"off\" | PATH",
    allowed: "\"stdout\", \"off\", or a path, which has a '/' or a '.' in it; a relative one starts at the folder of the configuration file",
};
const TIMER: Kind = Kind::Timer {
    least: MILLISECOND,
    most: Seconds(7.0 * DAY),
};
const RUN: Kind = Kind::Count {
    least: 1,
    most: 1_000,
};

/// Every key, in the order in which a file is written.
pub const ROWS: &[Row] = &[
    Row {
        key: "state",
        kind: PATH,
        unset: Unset::Means(
            "$STATE_DIRECTORY, else $XDG_STATE_HOME/forebay, else ~/.local/state/forebay",
        ),
        purpose: "The folder where the process keeps what outlives it: its pid and the admin token.",
        example: "state = \"/var/lib/forebay\"",
        see: &["admin.token"],
    },
    Row {
        key: "drain",
        kind: Kind::Duration {
            least: Seconds::ZERO,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"60s\""),
        purpose: "The longest that a stopping process waits for open requests; it ends as soon as none is open.",
        example: "drain = \"30s\"",
        see: &["timeouts.answer"],
    },
    Row {
        key: "listen",
        kind: Kind::Section,
        unset: Unset::Means("loopback only"),
        purpose: "Where the proxy listens, for clients and for its operator.",
        example: "[listen]\nhttp = [\"127.0.0.1:7070\"]\nadmin = \"127.0.0.1:7071\"",
        see: &["admin"],
    },
    Row {
        key: "listen.http",
        kind: ADDRESSES,
        unset: Unset::Is("[\"127.0.0.1:7070\"]"),
        purpose: "Addresses for clients: HTTP/1.1, and HTTP/2 by prior knowledge (h2c).",
        example: "http = [\"127.0.0.1:7070\", \"[::1]:7070\"]",
        see: &["listen.open", "listen.admin"],
    },
    Row {
        key: "listen.admin",
        kind: ADDRESS,
        unset: Unset::Is("\"127.0.0.1:7071\""),
        purpose: "The operator's address: admin API, status page and metrics, never on a client address. Off loopback, the token travels in the clear: prefer an SSH tunnel.",
        example: "admin = \"127.0.0.1:9071\"",
        see: &["admin.token", "listen.http"],
    },
    Row {
        key: "listen.open",
        kind: Kind::Flag,
        unset: Unset::Is("false"),
        purpose: "Says that whoever reaches a client address may use every worker; without it, a client address off loopback is refused, since no client has to show a key.",
        example: "http = [\"192.168.1.2:7070\"]\nopen = true",
        see: &["listen.http"],
    },
    Row {
        key: "admin",
        kind: Kind::Section,
        unset: Unset::Means("a token of the proxy's own making"),
        purpose: "Who may look in and steer.",
        example: "[admin]\ntoken = { file = \"admin.token\" }",
        see: &["listen.admin"],
    },
    Row {
        key: "admin.token",
        kind: Kind::Secret,
        unset: Unset::Means("one is made and kept in the state folder, readable by its owner only"),
        purpose: "The bearer token of the admin API. The environment variable FOREBAY_ADMIN_TOKEN, when not empty, goes before it.",
        example: "token = { env = \"ADMIN_TOKEN\" }",
        see: &["listen.admin", "state"],
    },
    Row {
        key: "limits",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "Bounds on what a client sends.",
        example: "[limits]\nbody = \"64MiB\"\nidle = \"2m\"",
        see: &["timeouts"],
    },
    Row {
        key: "limits.body",
        kind: Kind::Size {
            least: Bytes(1),
            most: Bytes(16 * GIB),
        },
        unset: Unset::Is("\"32MiB\""),
        purpose: "The largest request body; a larger one is answered 413. At most limits.buffered.",
        example: "body = \"64MiB\"",
        see: &["limits.buffered"],
    },
    Row {
        key: "limits.buffered",
        kind: Kind::Size {
            least: Bytes(1),
            most: Bytes(1024 * GIB),
        },
        unset: Unset::Is("\"1GiB\""),
        purpose: "All request bodies in memory together; a request beyond that is answered 503.",
        example: "buffered = \"4GiB\"",
        see: &["limits.body"],
    },
    Row {
        key: "limits.header",
        kind: Kind::Size {
            least: Bytes(8 * KIB),
            most: Bytes(1024 * KIB),
        },
        unset: Unset::Is("\"64KiB\""),
        purpose: "The largest request head, all header lines together; a larger one is answered 431.",
        example: "header = \"32KiB\"",
        see: &["limits.header_timeout"],
    },
    Row {
        key: "limits.header_timeout",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(600.0),
        },
        unset: Unset::Is("\"10s\""),
        purpose: "The longest that a whole request head may take to arrive.",
        example: "header_timeout = \"5s\"",
        see: &["limits.header", "limits.idle"],
    },
    Row {
        key: "limits.idle",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"60s\""),
        purpose: "How long a client's connection is kept open between two requests.",
        example: "idle = \"2m\"",
        see: &["limits.header_timeout"],
    },
    Row {
        key: "timeouts",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "How long a worker may take. A route's timeouts go before these, a worker's before a route's.",
        example: "[timeouts]\nconnect = \"1s\"\nfirst_byte = \"2m\"",
        see: &["route.timeouts", "worker.timeouts"],
    },
    Row {
        key: "timeouts.connect",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(600.0),
        },
        unset: Unset::Is("\"3s\""),
        purpose: "Opening a connection to a worker.",
        example: "connect = \"1s\"",
        see: &["probe.timeout"],
    },
    Row {
        key: "timeouts.first_byte",
        kind: TIMER,
        unset: Unset::Is("\"300s\""),
        purpose: "From sending the request to the first byte of a streamed answer.",
        example: "first_byte = \"2m\"",
        see: &["timeouts.answer", "timeouts.between_bytes"],
    },
    Row {
        key: "timeouts.answer",
        kind: TIMER,
        unset: Unset::Is("\"30m\""),
        purpose: "From sending the request to the end of an answer that is not streamed.",
        example: "answer = \"1h\"",
        see: &["timeouts.first_byte", "timeouts.total"],
    },
    Row {
        key: "timeouts.between_bytes",
        kind: TIMER,
        unset: Unset::Is("\"5m\""),
        purpose: "Silence inside an answer; the only timer that breaks a stream which has begun, but for total.",
        example: "between_bytes = \"30s\"",
        see: &["timeouts.total"],
    },
    Row {
        key: "timeouts.total",
        kind: TIMER,
        unset: Unset::Is("\"off\""),
        purpose: "The whole exchange, from the request's head to the answer's last byte.",
        example: "total = \"1h\"",
        see: &["timeouts.answer", "timeouts.between_bytes"],
    },
    Row {
        key: "dns",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "How the names of workers become addresses. They are looked up in the background, all their addresses are used, and a name that can't be resolved any more keeps those it had.",
        example: "[dns]\nservers = [\"192.168.1.1:53\"]",
        see: &["worker.url"],
    },
    Row {
        key: "dns.servers",
        kind: ADDRESSES,
        unset: Unset::Means(
            "those of /etc/resolv.conf, and the system's other ways to know a name",
        ),
        purpose: "The name servers that are asked, in place of the system's.",
        example: "servers = [\"192.168.1.1:53\"]",
        see: &["worker.url"],
    },
    Row {
        key: "routing",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "How a worker is chosen, and how often a request is tried.",
        example: "[routing]\npolicy = \"least_time\"\nretries = { extra = 1 }",
        see: &["worker.speed"],
    },
    Row {
        key: "routing.policy",
        kind: Kind::OneOf(POLICIES),
        unset: Unset::Is("\"least_time\""),
        purpose: "The rule of choice: least expected completion time in seconds as learned from the traffic, one after the other, fewest requests in flight, or any.",
        example: "policy = \"least_inflight\"",
        see: &["worker.speed", "worker.max_inflight"],
    },
    Row {
        key: "routing.horizon",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(7.0 * DAY),
        },
        unset: Unset::Is("\"60s\""),
        purpose: "The time over which a worker's weight counts the requests that it is expected to finish before it fails: the longer, the more an unreliable worker loses.",
        example: "horizon = \"5m\"",
        see: &["routing.policy"],
    },
    Row {
        key: "routing.all_down",
        kind: Kind::OneOf(ALL_DOWN),
        unset: Unset::Is("\"queue\""),
        purpose: "What happens when nobody who could answer is healthy: queue waits for one that is expected back, fail refuses at once, try_all sends all the same.",
        example: "all_down = \"try_all\"",
        see: &["eject", "probe"],
    },
    Row {
        key: "routing.sample_above",
        kind: Kind::Count {
            least: 3,
            most: 65_536,
        },
        unset: Unset::Is("500"),
        purpose: "With more candidates than this, three are drawn at random and the best of them is taken.",
        example: "sample_above = 1000",
        see: &["routing.policy"],
    },
    Row {
        key: "routing.retries",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "Trying again on another worker, before the first byte has gone to the client.",
        example: "retries = { extra = 1 }",
        see: &["routing.retries.extra", "route.repeat"],
    },
    Row {
        key: "routing.retries.extra",
        kind: Kind::Count { least: 0, most: 16 },
        unset: Unset::Is("2"),
        purpose: "Sends after the first. Refused connections and requests that were never sent don't count.",
        example: "retries = { extra = 0 }",
        see: &["routing.retries", "route.repeat"],
    },
    Row {
        key: "routing.retries.on",
        kind: RETRY_ON,
        unset: Unset::Is("[\"refused\", \"reset\", \"5xx\", \"busy\", \"timeout\"]"),
        purpose: "What is tried again on another worker: a refused connection, one that broke, a 5xx answer, a worker without room (429 or 503), a timer that fired. An empty list leaves requests that were never sent.",
        example: "retries = { on = [\"refused\", \"busy\"] }",
        see: &["routing.retries", "route.repeat"],
    },
    Row {
        key: "probe",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "How it is found out whether a worker lives, for all workers.",
        example: "[probe]\ninterval = \"1s\"\nfall = 5",
        see: &["worker.probe"],
    },
    Row {
        key: "probe.path",
        kind: PROBE_PATH,
        unset: Unset::Means(
            "the engine's own: /health; ollama /api/version, triton /v2/health/ready, openai /v1/models; generic: opening a connection is enough",
        ),
        purpose: "What is asked with GET; an answer of 2xx is a pass.",
        example: "path = \"/healthz\"",
        see: &["worker.engine"],
    },
    Row {
        key: "probe.interval",
        kind: Kind::Duration {
            least: Seconds(0.01),
            most: Seconds(3_600.0),
        },
        unset: Unset::Is("\"2s\""),
        purpose: "The time between two probes of a worker.",
        example: "interval = \"10s\"",
        see: &["probe.timeout"],
    },
    Row {
        key: "probe.timeout",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(600.0),
        },
        unset: Unset::Is("\"2s\""),
        purpose: "The longest that a probe may take; longer is a failure.",
        example: "timeout = \"500ms\"",
        see: &["probe.interval"],
    },
    Row {
        key: "probe.rise",
        kind: RUN,
        unset: Unset::Is("2"),
        purpose: "Passes in a row that bring a worker back.",
        example: "rise = 1",
        see: &["probe.fall"],
    },
    Row {
        key: "probe.fall",
        kind: RUN,
        unset: Unset::Is("3"),
        purpose: "Failures in a row that take a worker out.",
        example: "fall = 5",
        see: &["probe.rise"],
    },
    Row {
        key: "eject",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "When failing requests take a worker out, whatever its probes say, for all workers. At most half of those that could answer are out for it at a time.",
        example: "[eject]\nerrors = 5\nmax = \"5m\"",
        see: &["worker.eject", "probe"],
    },
    Row {
        key: "eject.errors",
        kind: RUN,
        unset: Unset::Is("3"),
        purpose: "Errors in a row that take a worker out: a refused or broken connection, a 5xx answer, a timer that fired.",
        example: "errors = 5",
        see: &["eject.window"],
    },
    Row {
        key: "eject.window",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"30s\""),
        purpose: "The time within which these errors come.",
        example: "window = \"1m\"",
        see: &["eject.errors"],
    },
    Row {
        key: "eject.first",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"5s\""),
        purpose: "How long a worker is out the first time; each time after that it is twice as long.",
        example: "first = \"10s\"",
        see: &["eject.max"],
    },
    Row {
        key: "eject.max",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"60s\""),
        purpose: "The longest that a worker is out at a time; not below first.",
        example: "max = \"5m\"",
        see: &["eject.first"],
    },
    Row {
        key: "machine",
        kind: Kind::Sections,
        unset: Unset::Means("each worker is its own machine"),
        purpose: "A box that workers run on; one table for each. Workers of one machine slow each other and fail together.",
        example: "[[machine]]\nname = \"desk\"\nwatts = 380\nidle_watts = 60",
        see: &["worker.machine"],
    },
    Row {
        key: "machine.name",
        kind: MACHINE_NAME,
        unset: Unset::Required,
        purpose: "The machine's name, for its workers to refer to.",
        example: "name = \"desk\"",
        see: &["worker.machine"],
    },
    Row {
        key: "machine.watts",
        kind: WATTS,
        unset: Unset::Means("not known"),
        purpose: "What it draws at work.",
        example: "watts = 380",
        see: &["machine.idle_watts"],
    },
    Row {
        key: "machine.idle_watts",
        kind: WATTS,
        unset: Unset::Means("not known"),
        purpose: "What it draws when it is idle; not above watts.",
        example: "idle_watts = 60",
        see: &["machine.watts"],
    },
    Row {
        key: "machine.price_per_hour",
        kind: MONEY,
        unset: Unset::Means("not known"),
        purpose: "What an hour of it costs, rented or written off.",
        example: "price_per_hour = \"2.40 EUR\"",
        see: &["machine.watts"],
    },
    Row {
        key: "worker",
        kind: Kind::Sections,
        unset: Unset::Required,
        purpose: "An engine that answers requests; one table for each, at least one.",
        example: "[[worker]]\nname = \"vllm-4090\"\nurl = \"http://192.168.1.10:8000\"\nengine = \"vllm\"\nmodels = [\"Qwen/Qwen2.5-7B-Instruct-AWQ\"]",
        see: &["route"],
    },
    Row {
        key: "worker.name",
        kind: NAME,
        unset: Unset::Required,
        purpose: "The worker's name in logs, metrics, headers and routes.",
        example: "name = \"vllm-4090\"",
        see: &["route.workers"],
    },
    Row {
        key: "worker.url",
        kind: URL,
        unset: Unset::Required,
        purpose: "Where the worker is. h2c is HTTP/2 in the clear. A base path goes before the path of every request, so leave /v1 out: the client's path has it.",
        example: "url = \"http://192.168.1.10:8000\"",
        see: &["worker.key", "worker.headers"],
    },
    Row {
        key: "worker.machine",
        kind: MACHINE,
        unset: Unset::Means("a machine of its own"),
        purpose: "The machine that it runs on, by its name.",
        example: "machine = \"desk\"",
        see: &["machine"],
    },
    Row {
        key: "worker.engine",
        kind: Kind::OneOf(ENGINES),
        unset: Unset::Required,
        purpose: "What the worker runs; decides how its liveness is asked and how its key is sent. It is not detected by this version.",
        example: "engine = \"vllm\"",
        see: &["probe.path", "worker.key"],
    },
    Row {
        key: "worker.models",
        kind: MODELS,
        unset: Unset::Required,
        purpose: "The models it serves. A list keeps names, a table renames. They are not detected by this version.",
        example: "models = { good = \"Qwen/Qwen2.5-7B-Instruct-AWQ\" }",
        see: &["worker.engine"],
    },
    Row {
        key: "worker.max_inflight",
        kind: Kind::Count {
            least: 1,
            most: 65_536,
        },
        unset: Unset::Means("the slots that the engine reports, else 64"),
        purpose: "The most requests that the worker is given at a time; what comes beyond goes to another or waits.",
        example: "max_inflight = 16",
        see: &["routing.policy"],
    },
    Row {
        key: "worker.speed",
        kind: Kind::Number {
            least: 0.001,
            most: 1_000.0,
        },
        unset: Unset::Means("all alike, until the traffic tells"),
        purpose: "A first guess of the worker's speed relative to the others; what is learned from the traffic replaces it.",
        example: "speed = 4.0",
        see: &["routing.policy"],
    },
    Row {
        key: "worker.key",
        kind: Kind::Secret,
        unset: Unset::Means("none; the client's own Authorization is passed on"),
        purpose: "The worker's API key, sent as the engine expects, with probes too, in place of the client's.",
        example: "key = { env = \"VLLM_KEY\" }",
        see: &["worker.headers"],
    },
    Row {
        key: "worker.headers",
        kind: HEADERS,
        unset: Unset::Means("none"),
        purpose: "Headers that every request to this worker gets, in place of the client's of that name. Their values are not shown anywhere.",
        example: "headers = { \"X-Team\" = \"search\", \"X-Gateway-Key\" = \"${GATEWAY_KEY}\" }",
        see: &["worker.key"],
    },
    Row {
        key: "worker.probe",
        kind: Kind::Over("probe"),
        unset: Unset::Means("as [probe] says"),
        purpose: "Single keys of [probe], for this worker.",
        example: "probe = { path = \"/live\", fall = 5 }",
        see: &["probe"],
    },
    Row {
        key: "worker.eject",
        kind: Kind::Over("eject"),
        unset: Unset::Means("as [eject] says"),
        purpose: "Single keys of [eject], for this worker.",
        example: "eject = { errors = 5, max = \"5m\" }",
        see: &["eject"],
    },
    Row {
        key: "worker.test",
        kind: TEST,
        unset: Unset::Is("\"auto\""),
        purpose: "Requests that measure the worker while clients are silent: made up for its engine, none, or a body of your own. auto makes none for ollama, openai and generic, nor when no client has called for 5 minutes.",
        example: "test = \"off\"",
        see: &["worker.speed"],
    },
    Row {
        key: "worker.metrics_url",
        kind: METRICS_URL,
        unset: Unset::Means("/metrics under the worker's url, for engines that have it"),
        purpose: "Where the engine's metrics are read.",
        example: "metrics_url = \"http://192.168.1.10:8002/metrics\"",
        see: &["worker.url"],
    },
    Row {
        key: "worker.timeouts",
        kind: Kind::Over("timeouts"),
        unset: Unset::Means("as the route or [timeouts] says"),
        purpose: "Single keys of [timeouts], for this worker; they go before a route's.",
        example: "timeouts = { first_byte = \"10m\", total = \"off\" }",
        see: &["timeouts", "route.timeouts"],
    },
    Row {
        key: "route",
        kind: Kind::Sections,
        unset: Unset::Means("the built-in paths only"),
        purpose: "A path of your own, passed to workers with every method and every byte unchanged. Routes are tried before the built-in paths, in the order of the file; the first match wins.",
        example: "[[route]]\npath = \"/raw/*\"",
        see: &["worker"],
    },
    Row {
        key: "route.path",
        kind: ROUTE_PATH,
        unset: Unset::Required,
        purpose: "The paths that this route takes: one, or all under one. /raw/* takes /raw/ and everything below it, not /raw itself.",
        example: "path = \"/raw/*\"",
        see: &["route.workers"],
    },
    Row {
        key: "route.workers",
        kind: WORKERS,
        unset: Unset::Means("all workers"),
        purpose: "Who may answer on this route.",
        example: "workers = [\"vllm-4090\"]",
        see: &["worker.name"],
    },
    Row {
        key: "route.repeat",
        kind: Kind::OneOf(REPEATS),
        unset: Unset::Is("\"unsafe\""),
        purpose: "Whether a request may be sent twice: safe, like inference, until the first byte has gone to the client; unsafe, only when no worker has seen it. GET and HEAD are always safe.",
        example: "repeat = \"safe\"",
        see: &["routing.retries"],
    },
    Row {
        key: "route.timeouts",
        kind: Kind::Over("timeouts"),
        unset: Unset::Means("as [timeouts] says"),
        purpose: "Single keys of [timeouts], for this route.",
        example: "timeouts = { answer = \"2h\" }",
        see: &["timeouts", "worker.timeouts"],
    },
    Row {
        key: "log",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "What is written down. Never prompts, answers, keys, cookies or query strings.",
        example: "[log]\nlevel = \"warn\"\naccess = \"off\"",
        see: &["log.access"],
    },
    Row {
        key: "log.level",
        kind: Kind::OneOf(LEVELS),
        unset: Unset::Is("\"info\""),
        purpose: "The least severe messages that are written to standard error.",
        example: "level = \"warn\"",
        see: &["log.access"],
    },
    Row {
        key: "log.access",
        kind: ACCESS,
        unset: Unset::Is("\"stdout\""),
        purpose: "Where one line of JSON for each request goes: standard output, nowhere, or the end of a file.",
        example: "access = \"/var/log/forebay/access.log\"",
        see: &["log.level"],
    },
];
