//! Keys that are known and not here yet, and keys that other proxies use.
//!
//! To call `[queue]` unknown and suggest `[[route]]` would be silly: the key is right, the version is early. And
//! whoever comes from nginx deserves the line to write instead.

/// Keys that a later version will support, by the section they belong to (top level first).
const LATER: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "timezone",
            "model",
            "tariff",
            "jobs",
            "autoscale",
            "shadow",
            "telemetry",
        ],
    ),
    ("tenant", &["callback_hosts"]),
    ("machine", &["tariff", "hours", "wake"]),
    ("worker", &["kv_events"]),
];

/// Keys of nginx's `server` lines, with what to write here.
const FOREIGN: &[(&str, &str)] = &[
    (
        "max_fails",
        "write eject = { errors = 3 } here, or errors = 3 under [eject] for all workers",
    ),
    (
        "fail_timeout",
        "write eject = { window = \"30s\", first = \"30s\" } here, or these keys under [eject] for all workers: nginx has one time for both",
    ),
    (
        "weight",
        "write speed = 4.0: a typed prior, relative to the other workers; what is learned replaces it",
    ),
    ("max_conns", "write max_inflight = 64"),
];

/// Whether a later version will have this key in this section.
pub fn comes_later(section: &str, key: &str) -> bool {
    LATER
        .iter()
        .any(|(of, keys)| *of == section && keys.contains(&key))
}

/// What to write instead of another proxy's key.
pub fn instead_of_foreign(section: &str, key: &str) -> Option<&'static str> {
    let found = FOREIGN.iter().find(|(word, _)| *word == key);
    found.filter(|_| section == "worker").map(|(_, way)| *way)
}
