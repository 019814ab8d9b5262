//! The keys of a fleet file: where each may stand, its range, and an example.

/// One key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// The table it stands in; empty at the top.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The range of a number; in seconds, that of a duration.
    pub range: (f64, f64),
    /// Whether it is counted, not measured.
    pub whole: bool,
    /// What is allowed, in words.
    pub allowed: &'static str,
    /// A line to write.
    pub example: &'static str,
}

const HOUR: f64 = 3_600.0;

/// Every key.
pub(super) const KEYS: [Key; 34] = [
    number(
        "",
        "rate",
        (1e-3, 1e5),
        "requests a second, from 0.001 to 100000",
        "rate = 2.0",
    ),
    count(
        "",
        "requests",
        1e7,
        "a whole number from 1 to 10000000",
        "requests = 12000",
    ),
    count(
        "",
        "models",
        100.0,
        "a whole number from 1 to 100",
        "models = 2",
    ),
    number(
        "",
        "cache",
        (0.0, 1e3),
        "a number from 0 to 1000",
        "cache = 8",
    ),
    span(
        "",
        "first_byte",
        (0.001, 24.0 * HOUR),
        "first_byte = \"300s\"",
    ),
    words("", "region", "a table for each", "[[region]]"),
    words("", "worker", "a table for each", "[[worker]]"),
    words("", "fault", "a table for each", "[[fault]]"),
    words("region", "name", "a string", "name = \"home\""),
    span("region", "rtt", (0.0, 60.0), "rtt = { ohio = \"110ms\" }"),
    words("worker", "name", "a string", "name = \"h100\""),
    words("worker", "card", "the name of a card", "card = \"RTX4090\""),
    count(
        "worker",
        "count",
        1e4,
        "a whole number from 1 to 10000",
        "count = 2",
    ),
    words(
        "worker",
        "region",
        "the name of a [[region]]",
        "region = \"home\"",
    ),
    count(
        "worker",
        "max_inflight",
        1e6,
        "a whole number from 1 to 1000000",
        "max_inflight = 64",
    ),
    number(
        "worker",
        "prefill",
        (1.0, 1e9),
        "tokens a second, from 1 to 1000000000",
        "prefill = 9000",
    ),
    span("worker", "fixed", (0.0, 60.0), "fixed = \"5ms\""),
    span("worker", "step", (1e-6, 60.0), "step = \"14ms\""),
    span(
        "worker",
        "step_per_stream",
        (0.0, 60.0),
        "step_per_stream = \"0.25ms\"",
    ),
    count(
        "worker",
        "slots",
        1e5,
        "a whole number from 1 to 100000",
        "slots = 48",
    ),
    count(
        "worker",
        "blocks",
        1e7,
        "blocks of 512 tokens, from 1 to 10000000",
        "blocks = 220",
    ),
    count(
        "worker",
        "lora_slots",
        1_024.0,
        "a whole number from 1 to 1024",
        "lora_slots = 8",
    ),
    span("worker", "lora_load", (0.0, HOUR), "lora_load = \"400ms\""),
    count(
        "worker",
        "resident",
        1_024.0,
        "a whole number from 1 to 1024",
        "resident = 1",
    ),
    span("worker", "swap", (0.0, HOUR), "swap = \"10s\""),
    Key {
        whole: true,
        ..number(
            "worker",
            "tier",
            (0.0, 9.0),
            "a whole number from 0 to 9",
            "tier = 1",
        )
    },
    number(
        "worker",
        "price",
        (0.0, 1e3),
        "seconds that a second of it is worth, from 0 to 1000",
        "price = 0.05",
    ),
    words(
        "fault",
        "worker",
        "the name of a worker",
        "worker = \"h100\"",
    ),
    words(
        "fault",
        "kind",
        "\"slow\", \"dead\", \"hung\", \"flapping\"",
        "kind = \"slow\"",
    ),
    number(
        "fault",
        "factor",
        (1.0, 1e6),
        "how many times as long everything takes, from 1",
        "factor = 5",
    ),
    span("fault", "from", (0.0, 1e4 * HOUR), "from = \"10m\""),
    span("fault", "lasts", (0.0, 24.0 * HOUR), "lasts = \"60s\""),
    span("fault", "down", (0.001, 24.0 * HOUR), "down = \"3s\""),
    span("fault", "every", (1.0, 24.0 * HOUR), "every = \"10s\""),
];

const fn words(
    table: &'static str,
    name: &'static str,
    allowed: &'static str,
    example: &'static str,
) -> Key {
    Key {
        table,
        name,
        range: (f64::NEG_INFINITY, f64::INFINITY),
        whole: false,
        allowed,
        example,
    }
}

const fn number(
    table: &'static str,
    name: &'static str,
    range: (f64, f64),
    allowed: &'static str,
    example: &'static str,
) -> Key {
    Key {
        range,
        ..words(table, name, allowed, example)
    }
}

const fn count(
    table: &'static str,
    name: &'static str,
    most: f64,
    allowed: &'static str,
    example: &'static str,
) -> Key {
    Key {
        whole: true,
        ..number(table, name, (1.0, most), allowed, example)
    }
}

const fn span(
    table: &'static str,
    name: &'static str,
    range: (f64, f64),
    example: &'static str,
) -> Key {
    let allowed = "a number with its unit ms, s, m, h or d, as in \"1.5s\"";
    number(table, name, range, allowed, example)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../../docs/fleets.md");

    /// The part of the manual that tells of a table.
    fn told(table: &str) -> &'static str {
        let heading = match table {
            "" => "## At the top".to_owned(),
            table => format!("## `[[{table}]]`"),
        };
        let (_, rest) = MANUAL.split_once(&heading).expect(&heading);
        rest.split("\n## ").next().unwrap()
    }

    #[test]
    fn the_manual_tells_every_key_where_it_stands_and_no_other() {
        for key in &KEYS {
            let row = format!("`{}`", key.name);
            let tells =
                |line: &str| line.starts_with("| ") && line[..30.min(line.len())].contains(&row);
            assert!(
                told(key.table).lines().any(tells),
                "{}.{}",
                key.table,
                key.name
            );
        }
        for table in ["", "region", "worker", "fault"] {
            let rows = told(table).lines().filter(|line| line.starts_with("| `"));
            let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(", "));
            for name in names.map(|name| name.trim().trim_matches('`')) {
                let is_key = KEYS
                    .iter()
                    .any(|key| (key.table, key.name) == (table, name));
                assert!(is_key, "{table}.{name} is no key");
            }
        }
    }
}
