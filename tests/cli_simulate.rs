//! `forebay simulate` as an operator runs it: what is printed, exit codes, and the fleets that come along.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tempfile::TempDir;

const PAIR: &str =
    "[[worker]]\nname = \"fast\"\ncard = \"RTX4090\"\n[[worker]]\nname = \"slow\"\ncard = \"T4\"\n";

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `simulate` in this folder.
fn simulate(folder: &Path, arguments: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("simulate")
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .output()
        .unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A folder with a fleet of two and a trace of sixty requests, of which every second is like the one before.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pair.toml"), PAIR).unwrap();
    fs::write(folder.path().join("trace.jsonl"), trace()).unwrap();
    folder
}

fn trace() -> String {
    let line = |number: u32| {
        format!(
            "{{\"timestamp\": {}, \"input_length\": 2100, \"output_length\": 20, \"hash_ids\": [{}, {}]}}\n",
            number * 2_000,
            number / 2 * 2,
            number / 2 * 2 + 1,
        )
    };
    (0..60).map(line).collect()
}

fn policies(said: &Said) -> Vec<Value> {
    assert_eq!(said.code, Some(0), "{}", said.err);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    report["policies"].as_array().unwrap().clone()
}

#[test]
fn json_has_the_figures_of_every_policy() {
    let folder = folder();
    let arguments = ["--trace", "trace.jsonl", "--fleet", "pair.toml", "--json"];
    let said = simulate(folder.path(), &arguments);
    assert_eq!(said.err, "", "silence in a pipe");
    let policies = policies(&said);
    let names: Vec<_> = policies
        .iter()
        .map(|one| one["policy"].as_str().unwrap())
        .collect();
    for name in [
        "least_time",
        "weighted",
        "round_robin",
        "llm_d_like",
        "oracle",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for one in &policies {
        for key in [
            "e2e_mean_s",
            "e2e_p95_s",
            "ttft_p50_s",
            "ttft_p95_s",
            "ttft_p99_s",
            "goodput",
        ] {
            assert!(one[key].as_f64().unwrap() > 0.0, "{key} of {one}");
        }
        assert_eq!(one["errors"], 0);
        assert!(one["ttft_p50_s"].as_f64() <= one["e2e_p95_s"].as_f64());
    }
    let of = |name: &str| policies.iter().find(|one| one["policy"] == name).unwrap();
    assert!(of("oracle")["hit_ratio"].as_f64().unwrap() > 0.2);
    let mean = |name: &str| of(name)["e2e_mean_s"].as_f64().unwrap();
    assert!(mean("oracle") < mean("random"));
}

#[test]
fn one_seed_is_one_result_byte_for_byte_also_from_a_compressed_trace() {
    let folder = folder();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(trace().as_bytes()).unwrap();
    fs::write(
        folder.path().join("trace.jsonl.gz"),
        packed.finish().unwrap(),
    )
    .unwrap();
    let with = |trace: &str, seed: &str| {
        let arguments = [
            "--trace",
            trace,
            "--fleet",
            "pair.toml",
            "--seed",
            seed,
            "--json",
        ];
        simulate(folder.path(), &arguments).out
    };
    let first = with("trace.jsonl", "7");
    assert_eq!(first, with("trace.jsonl", "7"));
    assert_eq!(first, with("trace.jsonl.gz", "7"));
    assert_ne!(first, with("trace.jsonl", "8"));
}

#[test]
fn a_change_of_the_fleet_is_told_beside_what_it_was() {
    let folder = folder();
    let ask = |more: &[&str]| {
        let arguments = [&["--trace", "trace.jsonl", "--fleet", "pair.toml"], more].concat();
        simulate(folder.path(), &arguments)
    };
    let only = ask(&["--policy", "random", "--without", "slow"]);
    assert_eq!(only.code, Some(0), "{}", only.err);
    assert!(
        only.out
            .starts_with("trace: 60 requests in 2 minutes on 1 worker\n"),
        "{}",
        only.out
    );
    assert!(
        only.out.contains("With this change least_time takes "),
        "{}",
        only.out
    );
    assert_eq!(only.out.matches("\nrandom ").count(), 1);
    assert_eq!(only.out.matches("\nround_robin ").count(), 0);
    let more = ask(&["--add", "2x H100", "--json", "--policy", "random"]);
    let report: Value = serde_json::from_str(&more.out).unwrap();
    let after = report["policies"].as_array().unwrap();
    let after = after
        .iter()
        .find(|one| one["policy"] == "least_time")
        .unwrap();
    assert!(after["e2e_mean_s"].as_f64() < report["unchanged"]["e2e_mean_s"].as_f64());
}

#[test]
fn a_plot_is_a_picture() {
    let folder = folder();
    let arguments = [
        "--trace",
        "trace.jsonl",
        "--fleet",
        "pair.toml",
        "--plot",
        "out.svg",
    ];
    assert_eq!(simulate(folder.path(), &arguments).code, Some(0));
    let picture = fs::read_to_string(folder.path().join("out.svg")).unwrap();
    assert!(picture.starts_with("<svg xmlns=") && picture.trim_end().ends_with("</svg>"));
    assert!(picture.contains(">least_time</text>") && picture.contains("trace on pair"));
    let nowhere = [&arguments[..5], &["no/such/folder/out.svg"]].concat();
    assert_eq!(simulate(folder.path(), &nowhere).code, Some(1));
}

#[test]
fn the_fleets_that_come_along_can_be_simulated() {
    let fleets = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/fleets");
    let mut seen = 0;
    for entry in fs::read_dir(&fleets).unwrap() {
        let fleet = entry.unwrap().path();
        let load = match fleet.file_stem().unwrap().to_str().unwrap() {
            "classifier-pair" => "classifier",
            _ => "tools",
        };
        let fleet = fleet.to_str().unwrap();
        let policy = ["--policy", "least_time", "--requests", "60", "--json"];
        let said = simulate(
            &fleets,
            &[&["--load", load, "--fleet", fleet], &policy[..]].concat(),
        );
        assert_eq!(policies(&said).len(), 2, "{fleet}");
        seen += 1;
    }
    assert_eq!(seen, 4);
}

/// The example of the manual: a machine that holds one of two models.
#[test]
fn requests_for_two_models_by_turns_stay_together_on_a_machine_that_holds_one() {
    let folder = folder();
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fleets.md");
    let manual = fs::read_to_string(manual).unwrap();
    let example = manual.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    fs::write(folder.path().join("swapping.toml"), example).unwrap();
    let load = ["--load", "classifier", "--requests", "100", "--json"];
    let fleet = ["--fleet", "swapping.toml", "--policy", "p2c"];
    let said = simulate(folder.path(), &[load.as_slice(), &fleet].concat());
    let policies = policies(&said);
    let mean = |name: &str| {
        let one = policies.iter().find(|one| one["policy"] == name).unwrap();
        one["e2e_mean_s"].as_f64().unwrap()
    };
    assert!(mean("least_time") < mean("p2c") / 3.0, "{policies:?}");
}

#[test]
fn whatever_is_wrong_is_2_and_says_the_way_out() {
    let folder = folder();
    let bad = "rate = 0\n[[worker]]\nname = \"a\"\ncard = \"RTX4091\"\nslots = 1.5\n[[worker]]\nnmae = \"b\"\n\
               [[fault]]\nworker = \"a\"\nkind = \"slow\"\nfrom = 10\nlasts = \"1s\"\n";
    fs::write(folder.path().join("bad.toml"), bad).unwrap();
    fs::write(folder.path().join("broken.toml"), "[[worker]\n").unwrap();
    fs::write(folder.path().join("bad.jsonl"), "{\"input_length\": 1}\n").unwrap();
    fs::write(
        folder.path().join("long.csv"),
        "TIMESTAMP,a,b\n2026-01-01 00:00:00,9000000,1\n",
    )
    .unwrap();
    let refused = |arguments: &[&str]| {
        let said = simulate(folder.path(), arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.err);
        assert_eq!(said.out, "");
        said.err
    };
    let told = refused(&["--load", "tools", "--fleet", "bad.toml"]);
    for part in [
        "bad.toml:1:8: rate = 0: this number is out of range",
        "worker[0].card = \"RTX4091\": unknown word",
        "did you mean \"RTX4090\"?",
        "worker[0].slots = 1.5: this number is out of range",
        "worker[1].nmae: unknown key",
        "did you mean name?",
        "worker[1].card: this key is required",
        "fault[0].from = 10: a duration is wanted here, with its unit",
    ] {
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    refused(&["--load", "tools", "--fleet", "broken.toml"]);
    refused(&["--load", "tools", "--fleet", "none.toml"]);
    refused(&["--fleet", "pair.toml"]);
    let both = [
        "--fleet",
        "pair.toml",
        "--load",
        "tools",
        "--trace",
        "trace.jsonl",
    ];
    refused(&both);
    let trace = |file| refused(&["--trace", file, "--fleet", "pair.toml"]);
    assert!(trace("bad.jsonl").starts_with("bad.jsonl:1: "));
    assert!(trace("long.csv").contains("no request in this load that fits"));
    trace("none.jsonl");
    let with = |more: [&str; 2]| {
        refused(&[&["--load", "tools", "--fleet", "pair.toml"], &more[..]].concat())
    };
    assert!(with(["--policy", "least_tme"]).contains("Did you mean least_time?"));
    assert!(with(["--without", "fsat"]).contains("Did you mean fast?"));
    assert!(with(["--add", "GTX480"]).contains("There are H100, "));
    with(["--rate", "-1"]);
}
