//! Every example loads: the files in `config/`, the snippets of the reference, the blocks of the contract. And what is
//! written down as a default is what holds.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by failing"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use forebay::config::reference::{self, ROWS, Row, Unset};
use forebay::config::{self, Plan, dump};
use toml::de::{DeTable, DeValue};

#[path = "support/mmdb.rs"]
mod mmdb;

const WORKER: [(&str, &str); 4] = [
    ("name", "name = \"vllm-4090\""),
    ("url", "url = \"http://127.0.0.1:8000\""),
    ("engine", "engine = \"vllm\""),
    ("models", "models = [\"m\"]"),
];

const TENANT: [(&str, &str); 2] = [
    ("name", "name = \"app\""),
    (
        "key_hash",
        "key_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"",
    ),
];

/// The lines that a `[jwt]` needs, by key.
const JWT: [(&str, &str); 3] = [
    ("jwks", "jwks = { file = \"jwks.json\" }"),
    ("issuer", "issuer = \"https://id.example.com\""),
    ("audience", "audience = \"forebay\""),
];

/// RFC 8037, appendix A.2.
const JWKS: &str =
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

fn env(name: &str) -> Option<String> {
    let folder = matches!(name, "STATE_DIRECTORY" | "XDG_STATE_HOME");
    (!folder).then(|| "value-of-the-environment".to_owned())
}

fn parse(text: &str) -> Plan {
    config::parse(text, Path::new("forebay.toml"), &env)
        .unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

/// A plan as it is shown.
fn shown(text: &str) -> serde_json::Value {
    serde_json::from_str(&dump::json(&parse(text))).unwrap()
}

/// A worker's table without one of its keys.
fn worker_without(key: &str) -> String {
    let lines = WORKER.iter().filter(|(name, _)| *name != key);
    let lines: Vec<_> = lines.map(|(_, line)| *line).collect();
    format!("[[worker]]\n{}\n", lines.join("\n"))
}

/// A worker on the machine that examples name.
fn worker_on_desk() -> String {
    format!("{}machine = \"desk\"\n", worker_without(""))
}

/// What examples refer to, each with a table that has it.
const REFERRED: [(&str, &str); 7] = [
    ("worker.machine", "[[machine]]\nname = \"desk\"\n"),
    ("listen.region", "[[region]]\nname = \"home\"\n"),
    (
        "listen.geoip",
        "[[region]]\nname = \"home\"\ncountries = [\"DE\"]\n",
    ),
    ("region.countries", "[listen]\ngeoip = \"country.mmdb\"\n"),
    ("machine.region", "[[region]]\nname = \"home\"\n"),
    (
        "route.zones",
        "[[region]]\nname = \"home\"\nzone = \"eu\"\n",
    ),
    (
        "tenant.zones",
        "[[region]]\nname = \"home\"\nzone = \"eu\"\n",
    ),
];

/// A whole file around lines that belong to one row's section.
fn file_around(row: &Row, lines: &str) -> String {
    let outer = row.section().split('.').next().unwrap();
    let referred = REFERRED.iter().find(|(key, _)| *key == row.key);
    let before = referred.map_or("", |(_, table)| table);
    let file = match outer {
        _ if lines.starts_with("[[worker]]") => lines.to_owned(),
        _ if lines.starts_with("[[machine]]") => format!("{lines}\n{}", worker_on_desk()),
        _ if lines.starts_with('[') => format!("{lines}\n{}", worker_without("")),
        "" => format!("{lines}\n{}", worker_without("")),
        "routing" if row.name() == "cost" => format!(
            "[routing]\n{lines}\n[[machine]]\nname = \"desk\"\nprice_per_hour = \"1 EUR\"\n{}",
            worker_on_desk()
        ),
        "worker" if row.key == "worker.ca" || row.key.starts_with("worker.client_cert") => format!(
            "{}url = \"https://gpu.lan\"\n{lines}\n",
            worker_without("url")
        ),
        "worker" => format!("{}{lines}\n", worker_without(row.name())),
        "machine" if row.name() != "name" => {
            format!(
                "[[machine]]\nname = \"desk\"\n{lines}\n{}",
                worker_on_desk()
            )
        }
        "machine" => format!("[[machine]]\n{lines}\n{}", worker_on_desk()),
        "region" if row.name() != "name" => format!(
            "[[region]]\nname = \"home\"\n{lines}\n{}",
            worker_without("")
        ),
        "route" if row.name() == "tags" => format!(
            "{}tags = [\"vision\"]\n[[route]]\npath = \"/a\"\n{lines}\n",
            worker_without("")
        ),
        "tenant" if row.name() == "budget" => format!(
            "[[tenant]]\n{}\n{}\n{lines}\n[[machine]]\nname = \"desk\"\nprice_per_hour = \"1 EUR\"\n{}",
            TENANT[0].1,
            TENANT[1].1,
            worker_on_desk()
        ),
        "tenant" => {
            let others = TENANT.iter().filter(|(key, _)| *key != row.name());
            let others: Vec<_> = others.map(|(_, line)| *line).collect();
            let others = others.join("\n");
            format!("[[tenant]]\n{others}\n{lines}\n{}", worker_without(""))
        }
        "jwt" => {
            let others = JWT.iter().filter(|(key, _)| *key != row.name());
            let others: Vec<_> = others.map(|(_, line)| *line).collect();
            let others = others.join("\n");
            format!("[jwt]\n{others}\n{lines}\n{}", worker_without(""))
        }
        "route" if row.name() != "path" => {
            format!("{}[[route]]\npath = \"/a\"\n{lines}\n", worker_without(""))
        }
        section => {
            let header = reference::row(section).unwrap().kind.header(section);
            format!("{header}\n{lines}\n{}", worker_without(""))
        }
    };
    format!("{before}{file}")
}

#[test]
fn every_file_in_config_loads() {
    let mut seen = 0;
    for entry in fs::read_dir("config").unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            continue; // fleets are no configurations; cli_simulate.rs reads them
        }
        config::load(&path, &env).unwrap_or_else(|problems| panic!("{problems}"));
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn every_example_of_the_reference_loads() {
    let secrets = tempfile::tempdir().unwrap();
    fs::write(secrets.path().join("admin.token"), "from-a-file\n").unwrap();
    fs::write(secrets.path().join("country.mmdb"), mmdb::countries(&[])).unwrap();
    fs::write(secrets.path().join("app.keys"), "# nobody yet\n").unwrap();
    fs::write(secrets.path().join("jwks.json"), JWKS).unwrap();
    let made = rcgen::generate_simple_self_signed(["gpu.lan".to_owned()]).unwrap();
    for name in ["proxy", "forebay", "team", "lab-ca"] {
        let write = |ending: &str, text| {
            fs::write(secrets.path().join(format!("{name}.{ending}")), text).unwrap();
        };
        write("pem", made.cert.pem());
        write("key", made.signing_key.serialize_pem());
    }
    fs::create_dir(secrets.path().join("workers.d")).unwrap();
    for row in ROWS {
        let text = file_around(row, row.example);
        let loaded = config::parse(&text, &secrets.path().join("forebay.toml"), &env);
        loaded.unwrap_or_else(|problems| panic!("{}\n{text}\n{problems}", row.key));
    }
}

/// Writing a default down changes nothing.
#[test]
fn defaults_are_what_the_reference_says() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("jwks.json"), JWKS).unwrap();
    let parse = |text: &str| {
        let loaded = config::parse(text, &folder.path().join("forebay.toml"), &env);
        loaded.unwrap_or_else(|problems| panic!("{text}\n{problems}"))
    };
    for row in ROWS {
        let Unset::Is(default) = row.unset else {
            continue;
        };
        let line = match row.section() {
            "routing.retries" => format!("retries = {{ {} = {default} }}", row.name()),
            "worker.lora" => format!("lora = {{ {} = {default} }}", row.name()),
            _ => format!("{} = {default}", row.name()),
        };
        let without = dump::json(&parse(&file_around(row, "")));
        assert_eq!(
            dump::json(&parse(&file_around(row, &line))),
            without,
            "{}",
            row.key
        );
    }
}

/// The defaults that users rely on, as the contract lists them.
#[test]
fn defaults_are_what_the_contract_says() {
    let contract = r#"
        drain = "60s"
        [listen]
        http  = ["127.0.0.1:7070"]
        admin = "127.0.0.1:7071"
        open = false
        trusted_proxies = []
        [limits]
        body = "32MiB"
        buffered = "1GiB"
        header = "64KiB"
        header_timeout = "10s"
        body_rate = "1KiB"
        idle = "60s"
        connections_per_address = 0
        [timeouts]
        connect = "3s"
        first_byte = "300s"
        answer = "30m"
        between_bytes = "5m"
        total = "off"
        ping = "off"
        [routing]
        policy = "least_time"
        horizon = "60s"
        all_down = "queue"
        sample_above = 500
        retries = { extra = 2, on = ["refused", "reset", "5xx", "busy", "timeout"] }
        [probe]
        interval = "2s"
        timeout = "2s"
        rise = 2
        fall = 3
        [eject]
        errors = 3
        window = "30s"
        first = "5s"
        max = "60s"
        [log]
        level = "info"
        access = "stdout"
        replay = false
        [queue]
        classes = ["paid", "free", "batch"]
        entries = 10000
        bytes = "512MiB"
        wait = "30s"
        wait_no_worker = "3m"
        age_up = "60s"
        heartbeat = "off"
        swap_after = "10s"
    "#;
    let worker = worker_without("");
    let typed = format!(
        "{contract}\n{worker}test = \"auto\"\ntier = 0\noptional = false\nlora = {{ load = false }}\n"
    );
    assert_eq!(
        dump::json(&parse(&typed)),
        dump::json(&parse(&worker_without("")))
    );
    let rows: BTreeSet<_> = ROWS
        .iter()
        .filter(|row| matches!(row.unset, Unset::Is(_)))
        .map(|row| row.key)
        .collect();
    let mut listed = keys_of(&typed);
    listed.insert("route.repeat".to_owned()); // "unsafe", which shows only on a route
    listed.insert("tenant.private_prefix".to_owned()); // false, which shows only on a tenant
    listed.insert("jwt.claim".to_owned()); // "sub", which shows only where tokens are taken
    for key in rows {
        assert!(
            listed.contains(key),
            "{key} has a default that no test holds"
        );
    }
}

#[test]
fn the_contracts_worker_and_route_load() {
    let plan = parse(
        r#"
        [[worker]]
        name = "vllm-4090"
        url = "http://192.168.1.10:8000"
        engine = "vllm"
        key = { env = "VLLM_KEY" }
        models = { good = "Qwen/Qwen2.5-7B-Instruct-AWQ" }
        speed = 4.0
        max_inflight = 16
        lora = { slots = 4, load = true, adapters = { sql = "/srv/lora/sql" } }

        [[route]]
        path = "/raw/*"
        workers = ["vllm-4090"]
        repeat = "unsafe"
        "#,
    );
    let worker = &plan.workers[0];
    assert_eq!(worker.origin.authority, "192.168.1.10:8000");
    assert_eq!(worker.models.named()[0].client.as_str(), "good");
    assert_eq!(
        worker.models.named()[0].worker.as_ref().unwrap().as_str(),
        "Qwen/Qwen2.5-7B-Instruct-AWQ"
    );
    assert_eq!(
        worker.key.as_ref().unwrap().expose(),
        "value-of-the-environment"
    );
    assert_eq!((worker.speed, worker.max_inflight), (Some(4.0), Some(16)));
    assert_eq!((worker.lora.slots, worker.lora.load), (Some(4), true));
    assert_eq!(worker.lora.adapters[0].path, "/srv/lora/sql");
    assert_eq!(worker.probe.path.as_deref(), Some("/health"));
    assert!(plan.routes[0].pattern.matches("/raw/x"));
}

/// Each key that is laid over another has its effect, and only its own.
#[test]
fn nearer_keys_go_before_farther_ones() {
    let probe = [
        ("path", "\"/own\""),
        ("interval", "\"7s\""),
        ("timeout", "\"7s\""),
        ("rise", "7"),
        ("fall", "7"),
    ];
    let eject = [
        ("errors", "7"),
        ("window", "\"7s\""),
        ("first", "\"7s\""),
        ("max", "\"7s\""),
    ];
    let timeouts = [
        ("connect", "\"7s\""),
        ("first_byte", "\"7s\""),
        ("answer", "\"7s\""),
        ("between_bytes", "\"7s\""),
        ("total", "\"7s\""),
        ("ping", "\"7s\""),
    ];
    let places = [
        ("worker", "probe", &probe[..]),
        ("worker", "eject", &eject),
        ("worker", "timeouts", &timeouts),
        ("route", "timeouts", &timeouts),
    ];
    for (section, table, keys) in places {
        let plain = shown(&format!("{}[[route]]\npath = \"/x\"\n", worker_without("")));
        for (key, value) in keys {
            let own = format!("{table} = {{ {key} = {value} }}\n");
            let text = match section {
                "worker" => format!("{}{own}[[route]]\npath = \"/x\"\n", worker_without("")),
                _ => format!("{}[[route]]\npath = \"/x\"\n{own}", worker_without("")),
            };
            let mut expected = plain.clone();
            expected[section][0][table][key] = serde_json::from_str(value).unwrap();
            assert_eq!(shown(&text), expected, "{text}");
        }
    }
}

/// What holds for the fleet reaches every worker and route.
#[test]
fn farther_keys_hold_where_nearer_ones_are_silent() {
    let fleet =
        "[timeouts]\ntotal = \"7s\"\n[probe]\npath = \"/fleet\"\nfall = 7\n[eject]\nerrors = 7\n";
    let plan = parse(&format!(
        "{fleet}{}[[route]]\npath = \"/x\"\n",
        worker_without("")
    ));
    let probe = &plan.workers[0].probe;
    assert_eq!((probe.path.as_deref(), probe.fall), (Some("/fleet"), 7));
    assert_eq!(plan.workers[0].eject.errors, 7);
    assert_eq!(plan.routes[0].timeouts.total.unwrap().to_string(), "7s");
    assert_eq!(plan.routes[0].workers.len(), 1);
}

#[test]
fn every_engine_has_its_liveness_path() {
    let paths = [
        ("forebay", Some("/health")),
        ("vllm", Some("/health")),
        ("sglang", Some("/health")),
        ("llamacpp", Some("/health")),
        ("tgi", Some("/health")),
        ("tei", Some("/health")),
        ("triton", Some("/v2/health/ready")),
        ("ollama", Some("/api/version")),
        ("openai", Some("/v1/models")),
        ("generic", None),
    ];
    for (engine, path) in paths {
        let plan = parse(&format!(
            "{}engine = \"{engine}\"\n",
            worker_without("engine")
        ));
        assert_eq!(plan.workers[0].probe.path.as_deref(), path, "{engine}");
    }
}

#[test]
fn the_state_folder_is_found_by_rule() {
    let state = |known: &[(&str, &str)]| {
        let env = |name: &str| {
            let found = known.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let plan = config::parse(&worker_without(""), Path::new("/etc/forebay.toml"), &env);
        plan.map(|plan| plan.state.display().to_string())
    };
    let home = ("HOME", "/home/me");
    let xdg = ("XDG_STATE_HOME", "/x");
    assert_eq!(state(&[home]).unwrap(), "/home/me/.local/state/forebay");
    assert_eq!(state(&[home, xdg]).unwrap(), "/x/forebay");
    assert_eq!(
        state(&[home, ("XDG_STATE_HOME", "x")]).unwrap(),
        "/home/me/.local/state/forebay"
    );
    assert_eq!(
        state(&[xdg, ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")]).unwrap(),
        "/var/lib/a"
    );
    assert_eq!(state(&[]).unwrap_err().iter().next().unwrap().key, "state");
}

/// `full.toml` shows every key that there is; those that need a file that nobody has yet stand there as comments.
#[test]
fn full_toml_is_full() {
    let text = fs::read_to_string("config/full.toml").unwrap();
    let shown = keys_of(
        &text
            .replace("\n# workers_dir", "\nworkers_dir")
            .replace("\n# geoip", "\ngeoip")
            .replace("\n# tls", "\ntls")
            .replace("\n# ca ", "\nca ")
            .replace("\n# client_cert", "\nclient_cert")
            .replace("\n# countries", "\ncountries")
            .replace("\n# key_file", "\nkey_file")
            .replace("\n# [jwt]", "\n[jwt]")
            .replace("\n# jwks", "\njwks")
            .replace("\n# issuer", "\nissuer")
            .replace("\n# audience", "\naudience")
            .replace("\n# claim", "\nclaim"),
    );
    for row in ROWS {
        assert!(
            shown.contains(row.key),
            "config/full.toml lacks {}",
            row.key
        );
    }
}

/// The keys of a file, as the reference writes them.
fn keys_of(text: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    collect(DeTable::parse(text).unwrap().get_ref(), "", &mut keys);
    keys
}

fn collect(table: &DeTable<'_>, section: &str, keys: &mut BTreeSet<String>) {
    for (name, value) in table.iter() {
        let key = reference::join(section, name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, &key, keys),
            DeValue::Array(items) => {
                let tables = items.iter().filter_map(|item| item.get_ref().as_table());
                tables.for_each(|inner| collect(inner, &key, keys));
            }
            _ => {}
        }
        keys.insert(key);
    }
}
