//! The plan of the house, held once and kept by force.
//!
//! A room is a file `src/NAME.rs` or a folder `src/NAME/`. It may use only rooms on lower floors, so that a change can
//! be followed upwards and a room can be read without those above it. Rooms on the same floor are neighbours and don't
//! know each other, except where [`SIDEWAYS`] says so. The pure rooms know nothing of sockets, files, time or threads:
//! that is what lets the simulator run the very code that routes. Two crates are kept to few rooms, because every
//! further place that names them is a place to change when they do.
//!
//! The guards read the text and don't compile it; what they can't see through is refused, such as `use crate::*`. The
//! tests at the end show each guard the thing it guards against.

#[path = "floors/source.rs"]
mod source;

use std::path::{Path, PathBuf};
use std::{fs, io};

use source::Source;

/// Every room and its floor, from the roof down.
const FLOORS: &[(u8, &[&str])] = &[
    (12, &["main"]),
    (11, &["cli"]),
    (10, &["serve"]),
    (9, &["listener"]),
    (8, &["line", "admin"]),
    (7, &["forward"]),
    (6, &["queue", "route"]),
    (5, &["fleet", "admission", "inspect", "simulate"]),
    (4, &["upstream", "config", "observe"]),
    (3, &["decide", "alarm", "kept", "stamp"]),
    (2, &["facts", "fault", "clock"]),
    (1, &["units", "rng"]),
];

/// Neighbours that may know each other: who, whom, and why.
const SIDEWAYS: &[(&str, &str, &str)] = &[
    ("observe", "config", "its labels are the names in the plan"),
    (
        "upstream",
        "config",
        "a pool is made from a worker's row of the plan",
    ),
    ("facts", "fault", "what can't be read safely is a fault"),
];

/// Rooms without a world outside, and what they may not name.
const PURE: &[&str] = &["decide", "simulate", "facts", "fault", "units", "rng"];
const WORLD: &[&str] = &[
    "tokio",
    "std::net",
    "std::fs",
    "std::env",
    "std::thread",
    "std::process",
    "std::io",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Crates and types that only some rooms may name.
const KEPT: &[(&str, &[&str], &str)] = &[
    (
        "pingora_core",
        &["serve"],
        "it keeps the process and nothing else",
    ),
    (
        "hyper",
        &["listener", "upstream", "forward", "admin"],
        "everything else speaks `http` types",
    ),
    (
        "hyper_util",
        &["listener", "upstream", "forward", "admin"],
        "everything else speaks `http` types",
    ),
];

/// Types whose order of iteration is random, which would make a choice depend on it.
const UNORDERED: &[&str] = &["HashMap", "HashSet"];

const FILE_LINES: usize = 400;
const LONG_FILE_LINES: usize = 600;
const LONG_FILE_REASON: &str = "//! This file is long because";
const FUNCTION_LINES: usize = 80;

#[test]
fn every_room_stays_on_its_floor_and_within_its_budget() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = rust_files(&root).unwrap();
    assert!(
        files.len() > 5,
        "only {} files were found in {}",
        files.len(),
        root.display()
    );
    let complaints: Vec<String> = files
        .iter()
        .flat_map(|file| {
            complaints(
                file.strip_prefix(&root).unwrap(),
                &fs::read_to_string(file).unwrap(),
            )
        })
        .collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn rust_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// All that is wrong with one file, `path` counted from `src/`.
fn complaints(path: &Path, text: &str) -> Vec<String> {
    let (room, depth) = place(path);
    if room == "lib" || is_test_file(path) {
        return Vec::new();
    }
    let at = path.display();
    let Some(floor) = floor(&room) else {
        return vec![format!(
            "src/{at}: the room `{room}` is missing from FLOORS in tests/floors.rs"
        )];
    };
    let source = Source::read(text, depth);
    let mut found = budget(&source, text);
    for path in &source.paths {
        let names = room_path(&room, &path.names);
        let complaint = names
            .and_then(|names| import(&room, floor, &names))
            .or_else(|| outside(&room, &path.names));
        found.extend(complaint.map(|complaint| format!("{}: {complaint}", path.line)));
    }
    found
        .into_iter()
        .map(|complaint| format!("src/{at}:{complaint}"))
        .collect()
}

/// The room that a file belongs to, and how many modules below the root it stands.
fn place(path: &Path) -> (String, usize) {
    let names: Vec<String> = path
        .with_extension("")
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let depth = names.iter().filter(|name| *name != "mod").count();
    (names[0].clone(), depth)
}

/// Whether a file holds nothing but tests: its `mod` line stands behind `#[cfg(test)]` elsewhere.
fn is_test_file(path: &Path) -> bool {
    path.iter()
        .any(|part| part == "tests" || part == "tests.rs")
}

fn floor(room: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(_, rooms)| rooms.contains(&room))
        .map(|(floor, _)| *floor)
}

/// What follows the crate's root in a path that begins there; `main` sees the library by its name.
fn room_path(room: &str, names: &[String]) -> Option<Vec<String>> {
    let root = if room == "main" { "forebay" } else { "crate" };
    (names[0] == root).then(|| names[1..].to_vec())
}

fn import(room: &str, floor_here: u8, names: &[String]) -> Option<String> {
    let Some(other) = names.first() else {
        return None; // `pub(crate)`
    };
    if other == room {
        return None;
    }
    match floor(other) {
        None => Some(format!(
            "`crate::{other}` is no room of FLOORS; name the room"
        )),
        Some(there) if there > floor_here => Some(format!(
            "`{room}` (floor {floor_here}) may not use `{other}` above it (floor {there})"
        )),
        Some(there)
            if there == floor_here
                && !SIDEWAYS
                    .iter()
                    .any(|(from, to, _)| *from == room && *to == other) =>
        {
            Some(format!(
                "`{room}` may not use its neighbour `{other}` (floor {there})"
            ))
        }
        Some(_) => None,
    }
}

/// What is wrong with naming this path, which leads out of the house, in this room.
fn outside(room: &str, names: &[String]) -> Option<String> {
    let path = match names.join("::").strip_prefix("core::") {
        Some(tail) => format!("std::{tail}"),
        None => names.join("::"),
    };
    let begins = |with: &str| path == with || path.starts_with(&format!("{with}::"));
    if PURE.contains(&room) && WORLD.iter().any(|world| begins(world)) {
        return Some(format!("`{room}` is pure and may not name `{path}`"));
    }
    if PURE.contains(&room) && names[0] == "std" && names.len() == 1 {
        return Some("`std` itself may not be imported or renamed in a pure room".to_owned());
    }
    if room == "decide" && names.iter().any(|name| UNORDERED.contains(&name.as_str())) {
        return Some(format!(
            "`{path}` has no order, so that a choice could depend on chance; take a BTreeMap"
        ));
    }
    let kept = KEPT
        .iter()
        .find(|(name, rooms, _)| begins(name) && !rooms.contains(&room));
    kept.map(|(name, rooms, why)| format!("`{name}` belongs to {} alone: {why}", rooms.join(", ")))
}

fn budget(source: &Source, text: &str) -> Vec<String> {
    let explained = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .any(|line| line.starts_with(LONG_FILE_REASON));
    let limit = if explained {
        LONG_FILE_LINES
    } else {
        FILE_LINES
    };
    let long_file = (source.lines > limit).then(|| {
        format!(
            "1: {} lines without tests, {limit} are allowed",
            source.lines
        )
    });
    let long_functions = source
        .functions
        .iter()
        .filter(|function| function.length > FUNCTION_LINES)
        .map(|function| {
            format!(
                "{}: `{}` has {} lines, {FUNCTION_LINES} are allowed",
                function.line, function.name, function.length
            )
        });
    long_file.into_iter().chain(long_functions).collect()
}

/// The guards, shown what they guard against: each snippet must be refused, and its harmless twin must pass.
mod controls {
    use super::*;

    fn seen(path: &str, text: &str) -> String {
        complaints(Path::new(path), text).join("\n")
    }

    #[track_caller]
    fn refuses(path: &str, text: &str, because: &str) {
        let seen = seen(path, text);
        assert!(
            seen.contains(because),
            "{path} with {text:?} gave {seen:?}, not {because:?}"
        );
    }

    #[track_caller]
    fn passes(path: &str, text: &str) {
        assert_eq!(seen(path, text), "", "{path} with {text:?}");
    }

    #[test]
    fn an_import_from_above_is_refused_in_every_spelling() {
        refuses(
            "decide/fleet.rs",
            "use crate::line::App;",
            "src/decide/fleet.rs:1: `decide` (floor 3)",
        );
        refuses(
            "decide/fleet.rs",
            "\n\nuse crate::{units, line};",
            "fleet.rs:3: `decide` (floor 3) may not use `line`",
        );
        refuses(
            "decide/fleet.rs",
            "use crate::{units::{self, Bytes}, fleet::{Lease}};",
            "may not use `fleet`",
        );
        refuses(
            "decide/fleet.rs",
            "fn f() -> crate::queue::Turn { todo() }",
            "may not use `queue`",
        );
        refuses(
            "decide/fleet.rs",
            "fn f() { g::<crate::queue::Turn>() }",
            "may not use `queue`",
        );
        refuses(
            "decide/fleet.rs",
            "use super::super::line::App;",
            "may not use `line`",
        );
        refuses(
            "decide/mod.rs",
            "use super::line::App;",
            "may not use `line`",
        );
        refuses(
            "clock.rs",
            "mod inner { use super::super::line::App; }",
            "may not use `line`",
        );
        refuses(
            "decide/fleet.rs",
            "macro_rules! m { () => { $crate::line::f() } }",
            "may not use `line`",
        );
    }

    #[test]
    fn an_import_from_below_passes() {
        passes(
            "line.rs",
            "use crate::{decide, units::{Bytes, Seconds as Time}, config::plan::*};",
        );
        passes("line.rs", "pub(crate) fn f(x: crate::units::Bytes) {}");
        passes(
            "decide/fleet.rs",
            "use super::pick::Policy; use crate::decide::pick;",
        );
        passes("clock.rs", "mod inner { use super::Clock; }");
        passes("main.rs", "fn main() { forebay::cli::run() }");
    }

    #[test]
    fn neighbours_are_strangers_unless_the_table_says_so() {
        refuses(
            "admin/mod.rs",
            "use crate::line::App;",
            "may not use its neighbour `line`",
        );
        refuses(
            "config/mod.rs",
            "use crate::observe::Metrics;",
            "may not use its neighbour `observe`",
        );
        passes("observe/metrics.rs", "use crate::config::plan::Plan;");
    }

    #[test]
    fn a_room_that_is_not_in_the_table_is_refused() {
        refuses("helpers.rs", "", "the room `helpers` is missing");
        refuses(
            "line.rs",
            "use crate::helpers::join;",
            "`crate::helpers` is no room",
        );
        refuses("line.rs", "use crate::*;", "name the room");
        refuses("line.rs", "use crate as house;", "name the room");
    }

    #[test]
    fn pure_rooms_know_no_world() {
        for world in WORLD {
            refuses(
                "decide/fleet.rs",
                &format!("use {world}::Thing;"),
                "is pure",
            );
            refuses(
                "facts/openai.rs",
                &format!("fn f() {{ {world}::thing() }}"),
                "is pure",
            );
            passes("serve.rs", &format!("use {world}::Thing;"));
        }
        refuses(
            "decide/fleet.rs",
            "use std::{fmt, time::{Duration, Instant}};",
            "`std::time::Instant`",
        );
        refuses("decide/fleet.rs", "use ::std::fs::File;", "is pure");
        refuses("decide/fleet.rs", "use core::net::IpAddr;", "is pure");
        refuses("decide/fleet.rs", "use std as s;", "`std` itself");
        passes(
            "decide/fleet.rs",
            "use std::{fmt, time::Duration}; fn f(std_net: u8) {}",
        );
    }

    #[test]
    fn chance_has_no_place_in_a_choice() {
        refuses(
            "decide/fleet.rs",
            "use std::collections::{BTreeMap, HashMap};",
            "has no order",
        );
        refuses("decide/fleet.rs", "fn f(x: HashSet<u8>) {}", "has no order");
        passes("fleet/mod.rs", "use std::collections::HashMap;");
    }

    #[test]
    fn pingora_and_hyper_stay_where_they_belong() {
        refuses(
            "listener/mod.rs",
            "use pingora_core::server::Server;",
            "belongs to serve alone",
        );
        passes("serve.rs", "use pingora_core::server::Server;");
        refuses(
            "line.rs",
            "use hyper::body::Incoming;",
            "belongs to listener, upstream, forward, admin alone",
        );
        refuses(
            "line.rs",
            "use hyper_util::rt::TokioIo;",
            "`hyper_util` belongs to",
        );
        passes("forward/relay.rs", "use hyper::body::Incoming;");
    }

    #[test]
    fn prose_literals_and_tests_may_say_anything() {
        passes(
            "decide/fleet.rs",
            "//! See crate::line and tokio::spawn.\n/* crate::line /* tokio::x */ std::fs::x */",
        );
        passes(
            "decide/fleet.rs",
            r####"const A: &str = "crate::line \" tokio::x"; const B: &str = r#"" std::fs::x "#;"####,
        );
        passes(
            "decide/fleet.rs",
            "const A: char = '\"'; fn f<'a>(x: &'a str) {} const B: char = '\\'';",
        );
        passes(
            "decide/fleet.rs",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::line::App;\n}\n",
        );
        passes("decide/tests.rs", "use crate::line::App;");
        refuses(
            "decide/fleet.rs",
            "const A: char = '\"'; use crate::line::App; const B: char = '\"';",
            "`line`",
        );
        refuses(
            "decide/fleet.rs",
            "#[cfg(test)]\nmod tests { fn f() {} }\nuse crate::line::App;",
            "fleet.rs:3:",
        );
    }

    #[test]
    fn a_long_file_needs_a_reason_and_has_a_limit() {
        let lines = |count: usize| "const A: u8 = 1;\n".repeat(count);
        passes("line.rs", &lines(400));
        refuses(
            "line.rs",
            &lines(401),
            "401 lines without tests, 400 are allowed",
        );
        passes(
            "line.rs",
            &format!("{LONG_FILE_REASON} it is one table.\n{}", lines(599)),
        );
        refuses(
            "line.rs",
            &format!("{LONG_FILE_REASON} it is one table.\n{}", lines(600)),
            "600 are allowed",
        );
        refuses(
            "line.rs",
            &format!("{}{LONG_FILE_REASON} it is late.\n", lines(400)),
            "400 are allowed",
        );
        passes(
            "line.rs",
            &format!(
                "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
                lines(390),
                lines(300)
            ),
        );
    }

    #[test]
    fn a_long_function_is_refused_by_its_name() {
        let function = |count: usize| {
            format!(
                "fn long(\n    x: u8,\n) {{\n{}}}\n",
                "    let a = [b; 2]; // c\n\n".repeat(count)
            )
        };
        passes("line.rs", &function(80));
        refuses(
            "line.rs",
            &function(81),
            "src/line.rs:1: `long` has 81 lines, 80 are allowed",
        );
        refuses(
            "line.rs",
            &format!("impl A {{\n{}}}", function(81)),
            "`long` has 81 lines",
        );
        passes(
            "line.rs",
            &format!("trait A {{ fn a(&self) -> [u8; 4]; }}\n{}", function(80)),
        );
    }
}
