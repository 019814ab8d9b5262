//! A new user's first hour: `init` asks engines, `check --live` confirms what it wrote, `serve` answers with it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::time::Duration;

use serde_json::Value;
use support::command::{self, Said};
use support::engine::Engine;
use support::engine::knobs::{Dialect, Health, Knobs, Loras};
use support::grpc::{GrpcWorker, Heard};
use support::prompt::CHAT;
use support::proxy::Proxy;
use tempfile::TempDir;

const REPOSITORY: &str = "Qwen/Qwen2.5-7B-Instruct-AWQ";
const FILE: &str = "qwen2.5-7b-instruct-q4_k_m.gguf";
const TAG: &str = "qwen2.5:7b";
const SHARED: &str = "qwen2.5-7b-instruct";

fn forebay(folder: &TempDir, arguments: &[&str]) -> Said {
    let home = [("HOME", folder.path().to_str().unwrap())];
    command::forebay(folder.path(), &home, arguments)
}

fn engine(dialect: Dialect, models: &[&str]) -> Engine {
    Engine::with(Knobs {
        dialect,
        models: models.iter().map(|name| (*name).to_owned()).collect(),
        ..Knobs::default()
    })
}

/// One model under three names, and a classifier on a fourth machine.
fn four() -> [Engine; 4] {
    [
        engine(Dialect::Vllm, &[REPOSITORY]),
        engine(Dialect::Llamacpp, &[FILE]),
        engine(Dialect::Ollama, &[TAG, "nomic-embed-text:latest"]),
        engine(Dialect::Triton, &["fraud"]),
    ]
}

/// What `init` prints for these engines.
#[track_caller]
fn init(folder: &TempDir, engines: &[Engine]) -> String {
    let urls: Vec<_> = engines.iter().map(Engine::url).collect();
    let arguments: Vec<_> = ["init"]
        .into_iter()
        .chain(urls.iter().map(String::as_str))
        .collect();
    let said = forebay(folder, &arguments);
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(0), ""),
        "{}",
        said.out
    );
    said.out
}

/// What `check --live` says of this configuration: its code, and each worker by name.
fn live(folder: &TempDir, toml: &str) -> (Option<i32>, Value) {
    fs::write(folder.path().join("forebay.toml"), toml).unwrap();
    let said = forebay(folder, &["check", "--live", "--json"]);
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
    (said.code, json["workers"].clone())
}

/// A table for this engine.
fn worker(name: &str, engine: &Engine, lines: &str) -> String {
    format!(
        "[[worker]]\nname = \"{name}\"\nurl = \"{}\"\n{lines}\n",
        engine.url()
    )
}

#[test]
fn from_four_urls_to_the_first_answer_without_editing() {
    let (folder, engines) = (tempfile::tempdir().unwrap(), four());
    let text = init(&folder, &engines);
    for part in [
        "engine = \"vllm\"",
        "engine = \"llamacpp\"",
        "engine = \"ollama\"",
        "engine = \"triton\"",
        "# vllm 0.11.0, ",
        "context 32768 tokens",
        "256 slots",
        "# Models: fraud.",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    for own in [REPOSITORY, FILE, TAG] {
        assert!(
            text.contains(&format!("\"{SHARED}\" = \"{own}\"")),
            "{text}"
        );
        assert!(text.contains(&format!("\"{own}\" = \"{own}\"")), "{text}");
    }
    fs::write(folder.path().join("forebay.toml"), &text).unwrap();
    let checked = forebay(&folder, &["check"]);
    assert_eq!(
        (checked.code, checked.err.as_str()),
        (Some(0), ""),
        "{text}"
    );
    let (code, workers) = live(&folder, &text);
    assert_eq!(code, Some(0), "{workers}");

    let proxy = Proxy::setup().written(&text).start();
    let chat = |model: &str| {
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
        proxy.call("POST", CHAT, &body)
    };
    for (model, worker) in [(REPOSITORY, "vllm"), (FILE, "llamacpp"), (TAG, "ollama")] {
        let answer = chat(model);
        assert_eq!(
            (answer.status, answer.header("x-forebay-worker")),
            (200, Some(worker))
        );
    }
    assert_eq!(chat(SHARED).status, 200);
    let tensors =
        r#"{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}"#;
    let answer = proxy.call("POST", "/v2/models/fraud/infer", tensors);
    assert_eq!(
        (answer.status, answer.header("x-forebay-worker")),
        (200, Some("triton"))
    );
}

#[test]
fn one_that_does_not_answer_is_named_and_kept_as_a_comment() {
    let folder = tempfile::tempdir().unwrap();
    let (there, gone) = (Engine::start(), Engine::start());
    gone.refuse();
    let said = forebay(&folder, &["init", &there.url(), &gone.url()]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.err
            .starts_with(&format!("{} does not answer: no connection", gone.url())),
        "{}",
        said.err
    );
    assert!(
        said.out.contains(&format!("# url = \"{}\"", gone.url())),
        "{}",
        said.out
    );
    fs::write(folder.path().join("forebay.toml"), &said.out).unwrap();
    assert_eq!(forebay(&folder, &["check"]).code, Some(0), "{}", said.out);
    let nobody = forebay(&folder, &["init", &gone.url()]);
    assert_eq!((nobody.code, nobody.out.as_str()), (Some(1), ""));
}

#[test]
fn one_that_still_loads_is_written_down_and_asked_again_while_it_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let loads = engine(Dialect::Llamacpp, &["m"]);
    loads.tune(|knobs| knobs.ready_after = Duration::from_secs(3_600));
    let text = init(&folder, std::slice::from_ref(&loads));
    assert!(text.contains("engine = \"llamacpp\"\n"), "{text}");
    assert!(text.contains("# Trouble: /health: answered 503"), "{text}");
    let (code, workers) = live(&folder, &text);
    assert_eq!(code, Some(1), "{workers}");
    loads.tune(|knobs| knobs.ready_after = Duration::ZERO);
    assert_eq!(live(&folder, &text).0, Some(0));
}

#[test]
fn what_is_no_url_is_2_and_its_secrets_are_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    for (url, part) in [
        ("http://127.0.0.1:8000/v1", "/v1/v1"),
        ("ftp://desk", "http://"),
        ("http://me:canary@desk", "password"),
        ("http://desk:99999", "port"),
        ("${HOME}", "not a URL"),
    ] {
        let said = forebay(&folder, &["init", url]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{url}");
        assert!(
            said.err.contains(part) && !said.err.contains("canary"),
            "{}",
            said.err
        );
    }
    assert_eq!(forebay(&folder, &["init"]).code, Some(2));
}

#[test]
fn what_engines_say_can_not_break_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let odd = [
        "a\"b",
        "back\\slash",
        "${HOME}",
        "naïve-Qwen3-8B",
        "x = [",
        "#",
    ];
    let engines = [
        engine(Dialect::Vllm, &odd),
        engine(Dialect::Ollama, &["naïve-qwen3:8b"]),
    ];
    let text = init(&folder, &engines);
    let (code, workers) = live(&folder, &text);
    assert_eq!(code, Some(0), "{workers}\n{text}");
    assert_eq!(workers[0]["models"].as_array().unwrap().len(), odd.len());
}

#[test]
fn a_url_without_a_scheme_is_taken_and_two_of_one_kind_get_names_of_their_own() {
    let (folder, engines) = (
        tempfile::tempdir().unwrap(),
        [Engine::start(), Engine::start()],
    );
    let bare = engines
        .each_ref()
        .map(|engine| engine.address().to_string());
    let said = forebay(
        &folder,
        &["init", &bare[0], &bare[1], &format!("http://{}/", bare[0])],
    );
    assert_eq!(said.code, Some(0), "{}", said.err);
    let second = format!("name = \"vllm-{}\"", engines[1].address().port());
    assert!(
        said.out.contains("name = \"vllm\"\n") && said.out.contains(&second),
        "{}",
        said.out
    );
    assert_eq!(said.out.matches("[[worker]]").count(), 2);
    assert!(
        !said.out.contains("[worker.models]"),
        "one name needs no other: {}",
        said.out
    );
}

/// An engine with gRPC one port above.
fn with_grpc(dialect: Dialect, models: &[&str]) -> (Engine, GrpcWorker) {
    loop {
        let engine = engine(dialect, models);
        if let Some(grpc) = GrpcWorker::at(engine.address().port() + 1) {
            return (engine, grpc);
        }
    }
}

#[test]
fn grpc_one_port_above_is_found_and_our_own_workers_are_called_by_their_models() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, ours_grpc) = with_grpc(Dialect::Forebay, &["nlp/tiny-bert"]);
    let (triton, triton_grpc) = with_grpc(Dialect::Triton, &["fraud"]);
    let bare = engine(Dialect::Forebay, &["a", "b"]);
    let urls = [&ours, &triton, &bare].map(Engine::url);
    let said = forebay(&folder, &["init", &urls[0], &urls[1], &urls[2]]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for line in [
        "name = \"tiny-bert\"",
        "name = \"triton\"",
        "name = \"onnx\"",
        &format!("grpc_url = \"{}\"", ours_grpc.url()),
        &format!("grpc_url = \"{}\"", triton_grpc.url()),
    ] {
        assert!(
            said.out.lines().any(|found| found == line),
            "{line} is missing in\n{}",
            said.out
        );
    }
    assert_eq!(said.out.matches("grpc_url").count(), 2, "{}", said.out);
    let typed = [
        worker("without", &ours, "headers = { x-secret = \"s\" }"),
        worker("with", &bare, &format!("grpc_url = \"{}\"", triton.url())),
    ];
    let (code, workers) = live(&folder, &typed.concat());
    assert_eq!(code, Some(0), "{workers}");
    let notes = |place: usize| workers[place]["notes"].to_string();
    assert!(notes(0).contains("it speaks gRPC at"), "{workers}");
    let heard = ours_grpc.heard();
    let is_told = |heard: &Heard| heard.fields.contains_key("x-secret");
    assert!(!heard.is_empty() && !heard.iter().any(is_told), "{heard:?}");
    assert!(
        notes(1).contains("no gRPC of KServe answers there"),
        "{workers}"
    );
}

#[test]
fn a_worker_that_is_as_configured_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let lora = Engine::with(Knobs {
        lora: Loras {
            slots: 2,
            ..Loras::default()
        }
        .has("sql"),
        ..Knobs::default()
    });
    let toml = worker("a", &lora, "engine = \"vllm\"\nmodels = [\"m\", \"sql\"]");
    let (code, workers) = live(&folder, &toml);
    let row = &workers[0];
    assert_eq!((code, &row["state"]), (Some(0), &"good".into()), "{row}");
    let told = (&row["engine"], &row["version"], &row["context"]);
    assert_eq!(told, (&"vllm".into(), &"0.11.0".into(), &32768.0.into()));
    assert_eq!(
        (&row["models"][0], &row["loras"][0]),
        (&"m".into(), &"sql".into())
    );
    let table = forebay(&folder, &["check", "--live"]);
    assert_eq!(table.code, Some(0));
    assert!(
        table
            .out
            .contains("\na                  good   vllm      0.11.0 "),
        "{}",
        table.out
    );
    let wide = table.out.lines().find(|line| line.chars().count() > 80);
    assert!(
        wide.is_none() && !table.out.contains('\u{1b}'),
        "{}",
        table.out
    );
}

#[test]
fn what_is_not_as_configured_is_said_with_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let sick = Engine::with(Knobs {
        health: Health::Status(500),
        ..Knobs::default()
    });
    let gone = Engine::start();
    gone.refuse();
    let locked = Engine::with(Knobs {
        key: Some("right".into()),
        ..Knobs::default()
    });
    let (vllm, llamacpp) = (Engine::start(), engine(Dialect::Llamacpp, &["m"]));
    llamacpp.tune(|knobs| knobs.slots = 2);
    let mute = Engine::with(Knobs {
        health: Health::Silent,
        ..Knobs::default()
    });
    let toml = [
        worker("mute", &mute, "probe = { timeout = \"100ms\" }"),
        worker("sick", &sick, "engine = \"vllm\""),
        worker("gone", &gone, ""),
        worker("away", &gone, "optional = true"),
        worker("locked", &locked, ""),
        worker("other", &vllm, "engine = \"sglang\"\nmodels = [\"m\"]"),
        worker("without", &vllm, "models = { chat = \"qwen\" }"),
        worker("narrow", &llamacpp, "max_inflight = 9"),
    ];
    let (code, workers) = live(&folder, &toml.concat());
    assert_eq!(code, Some(1));
    let of = |name: &str| {
        let rows = workers.as_array().unwrap().iter();
        { rows }.find(|row| row["name"] == name).unwrap()
    };
    for (name, state, part) in [
        ("sick", "wrong", "taken for down: /health: answered 500"),
        ("mute", "silent", "it takes connections and says nothing"),
        ("gone", "silent", "it does not answer: no connection"),
        ("away", "away", "it does not answer: no connection"),
        ("locked", "wrong", "the key is missing or wrong"),
        ("other", "wrong", "by its answers it is vllm"),
        ("without", "wrong", "does not list the model qwen"),
        ("narrow", "good", "it says 2 slots"),
    ] {
        let row = of(name);
        assert_eq!(row["state"], state, "{row}");
        assert!(row.to_string().contains(part), "{row}");
    }
    let silent = [
        worker("good", &vllm, ""),
        worker("away", &gone, "optional = true"),
    ];
    assert_eq!(
        live(&folder, &silent.concat()).0,
        Some(0),
        "who may be away does not fail"
    );
    fs::write(
        folder.path().join("forebay.toml"),
        "[[worker]]\nname = \"a\"\n",
    )
    .unwrap();
    assert_eq!(forebay(&folder, &["check", "--live"]).code, Some(2));
}

#[test]
fn a_key_that_fits_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let locked = Engine::with(Knobs {
        key: Some("right".into()),
        ..Knobs::default()
    });
    fs::write(folder.path().join("key"), "right\n").unwrap();
    let (code, workers) = live(&folder, &worker("a", &locked, "key = { file = \"key\" }"));
    assert_eq!(code, Some(0), "{workers}");
    let said = forebay(&folder, &["init", &locked.url()]);
    assert!(
        said.out.contains("# key = { env = \"KEY\" }"),
        "{}",
        said.out
    );
}
