//! Ensembles and built-in steps: what they answer, how they are told of, and what becomes of them when members change.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::statistics::{count, stats};
use crate::support::models::{
    TOKENIZER, configure, put_classifier, put_described, put_plus, put_scores, put_sums,
};
use crate::support::{Answer, Worker, run_client, until};

/// The files that docs/worker.md shows; a line above each, no part of it, names it.
fn documented() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/worker.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```").skip(1).step_by(2);
    let named = blocks.filter_map(|block| {
        let (_, text) = block.split_once('\n')?;
        let (name, _) = text.strip_prefix("# ")?.split_once('\n')?;
        let (_, file) = text.split_once('\n')?;
        name.contains('/')
            .then(|| (name.to_owned(), file.to_owned()))
    });
    named.collect()
}

/// Serves the documented example: `sentiment`, made of `tokens`, `scorer`, `softmax`, `best` and `names`.
fn example() -> tempfile::TempDir {
    let models = tempfile::tempdir().unwrap();
    let settings = "labels = [\"anger\", \"joy\", \"fear\", \"trust\"]";
    put_classifier(models.path(), "scorer", settings);
    let files = documented();
    assert_eq!(files.len(), 6, "{files:?}");
    for (name, text) in files {
        let path = models.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::write(models.path().join("tokens/tokenizer.json"), TOKENIZER).unwrap();
    models
}

fn infer(worker: &Worker, model: &str, inputs: Value) -> Answer {
    let body = json!({"inputs": inputs}).to_string();
    worker.post(&format!("/v2/models/{model}/infer"), &body)
}

fn text(name: &str, texts: &[&str]) -> Value {
    json!({"name": name, "shape": [texts.len(), 1], "datatype": "BYTES", "data": texts})
}

fn classify(worker: &Worker, texts: &[&str]) -> Answer {
    infer(worker, "sentiment", json!([text("TEXT", texts)]))
}

/// An output of an answer, as the next step's input of this name.
fn output(answer: &Answer, name: &str, renamed: &str) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let outputs = answer["outputs"].as_array().unwrap();
    let found = outputs.iter().find(|output| output["name"] == name);
    let mut found = found.unwrap().clone();
    found["name"] = json!(renamed);
    found
}

/// How a model stands in the index.
fn standing(worker: &Worker, model: &str) -> (bool, String) {
    let index = worker.post("/v2/repository/index", "").json();
    let mut entries = index.as_array().unwrap().iter();
    let entry = entries.find(|entry| entry["name"] == model).unwrap();
    let reason = entry["reason"].as_str().unwrap_or_default();
    (entry["state"] == "READY", reason.to_owned())
}

fn ready(worker: &Worker, model: &str) -> bool {
    worker.get(&format!("/v2/models/{model}/ready")).status == 200
}

fn order(worker: &Worker, model: &str, verb: &str, body: &str) -> Answer {
    worker.post(&format!("/v2/repository/models/{model}/{verb}"), body)
}

#[test]
fn the_documented_example_gives_what_its_steps_give_by_hand() {
    let models = example();
    let worker = Worker::start(models.path());
    let texts = ["hello", "world world", "cat"];
    let whole = classify(&worker, &texts);
    let tokens = infer(&worker, "tokens", json!([text("TEXT", &texts)]));
    let names = ["input_ids", "attention_mask", "token_type_ids"];
    let tensors = names.map(|name| output(&tokens, name, name));
    assert_eq!(
        tensors[0]["data"],
        json!([2, 4, 3, 0, 2, 5, 5, 3, 2, 6, 3, 0])
    );
    let scored = infer(&worker, "scorer", json!(tensors));
    let soft = infer(
        &worker,
        "softmax",
        json!([output(&scored, "logits", "INPUT")]),
    );
    let best = infer(&worker, "best", json!([output(&soft, "OUTPUT", "INPUT")]));
    let named = infer(&worker, "names", json!([output(&best, "INDEX", "INDEX")]));
    for (of_whole, by_hand) in [
        (output(&whole, "label", ""), output(&named, "LABEL", "")),
        (output(&whole, "score", ""), output(&best, "VALUE", "")),
    ] {
        assert_eq!(of_whole, by_hand);
        assert_eq!(of_whole["shape"], json!([3, 1]));
    }
    // The same model asked another way.
    let body = json!({"model": "scorer", "input": texts}).to_string();
    let classified = worker.post("/v1/classify", &body).json();
    let labels: Vec<&Value> = (0..3).map(|at| &classified["data"][at]["label"]).collect();
    assert_eq!(output(&whole, "label", "")["data"], json!(labels));
    assert!(
        labels.iter().any(|label| *label != labels[0]),
        "all texts look alike: {labels:?}"
    );
    let generated = worker.post("/v2/models/sentiment/generate", r#"{"TEXT": "hello"}"#);
    assert_eq!(&generated.json()["label"], labels[0], "{generated:?}");
}

#[test]
fn only_the_wanted_outputs_are_given_and_classes_have_their_members_labels() {
    let models = tempfile::tempdir().unwrap();
    put_scores(models.path());
    put_described(
        models.path(),
        "soft",
        &[("model.toml", "step = \"softmax\"")],
    );
    let text = r#"
        platform: "ensemble" max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: 3 }
        output [ { name: "raw" data_type: TYPE_FP32 dims: 3 }, { name: "soft" data_type: TYPE_FP32 dims: 3 } ]
        ensemble_scheduling {
          step { model_name: "soft" input_map { key: "INPUT" value: "raw" } output_map { key: "OUTPUT" value: "soft" } }
          step { model_name: "scores" input_map { key: "x" value: "x" } output_map { key: "scores" value: "raw" } }
        }"#;
    put_described(models.path(), "both", &[("config.pbtxt", text)]);
    let worker = Worker::start(models.path());
    let x = json!({"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [0.5, 2.5, 1.5]});
    let wanted = json!([{"name": "raw", "parameters": {"classification": 2}}]);
    let body = json!({"inputs": [x], "outputs": wanted}).to_string();
    let answer = worker.post("/v2/models/both/infer", &body);
    let classes = output(&answer, "raw", "");
    assert_eq!(classes["data"], json!(["2.500000:1:dog", "1.500000:2"]));
    assert_eq!(answer.json()["outputs"].as_array().unwrap().len(), 1);
    assert_eq!(
        count(&stats(&worker, "soft"), "success"),
        0,
        "an unwanted step ran"
    );
    let nine = json!({"name": "x", "shape": [3, 3], "datatype": "FP32", "data": [0, 1, 2, 3, 4, 5, 6, 7, 8]});
    assert_eq!(infer(&worker, "both", json!([nine])).status, 200);
    for (model, success, rows) in [("both", 2, 4), ("scores", 2, 4), ("soft", 1, 3)] {
        let stats = stats(&worker, model);
        assert_eq!(count(&stats, "success"), success, "{stats}");
        assert_eq!(
            (&stats["inference_count"], &stats["execution_count"]),
            (&json!(rows), &json!(success))
        );
    }
    let infer_of = |model: &str| {
        stats(&worker, model)["inference_stats"]["compute_infer"]["ns"]
            .as_u64()
            .unwrap()
    };
    // Each request's sum is rounded to a nanosecond.
    let of_members = infer_of("scores") + infer_of("soft");
    assert!(infer_of("both").abs_diff(of_members) <= 4);
    let wide = json!({"name": "x", "shape": [5, 3], "datatype": "FP32", "data": vec![0; 15]});
    let refused = infer(&worker, "both", json!([wide]));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("max_batch_size"), "{refused:?}");
}

#[test]
fn official_clients_read_and_ask_an_ensemble() {
    let models = example();
    let worker = Worker::start(models.path());
    run_client("triton_ensembles.py", &format!("http:{}", worker.address));
    run_client("triton_ensembles.py", &format!("grpc:{}", worker.grpc));
}

#[test]
fn an_ensemble_goes_with_its_member_and_comes_back_with_it() {
    let models = example();
    let worker = Worker::start(models.path());
    assert_eq!(order(&worker, "scorer", "unload", "").status, 200);
    let (up, reason) = standing(&worker, "sentiment");
    assert!(
        !up && reason.contains("step 2, `scorer`") && reason.contains("unloaded"),
        "{reason}"
    );
    let refused = classify(&worker, &["cat"]);
    assert_eq!(refused.status, 404, "{refused:?}");
    assert!(refused.body.contains("`scorer`"), "{refused:?}");
    assert_eq!(worker.get("/v2/health/ready").status, 200);
    assert_eq!(order(&worker, "scorer", "load", "").status, 200);
    assert_eq!(classify(&worker, &["cat"]).status, 200);

    // A member that is loaded anew leaves no gap, one that fails changes nothing, one that no longer fits ends it.
    let loading = worker.begin("POST", "/v2/repository/models/scorer/load", &[], b"");
    let answers: Vec<Answer> = (0..20).map(|_| classify(&worker, &["cat"])).collect();
    assert_eq!(loading.finish().status, 200);
    assert!(
        answers.iter().all(|answer| answer.status == 200),
        "{answers:?}"
    );
    let graph = models.path().join("scorer/1/model.onnx");
    let good = fs::read(&graph).unwrap();
    fs::write(&graph, "half a gra").unwrap();
    assert_eq!(order(&worker, "scorer", "load", "").status, 400);
    assert_eq!(classify(&worker, &["cat"]).status, 200);
    fs::write(&graph, good).unwrap();
    configure(models.path(), "scorer", "max_batch_size: 2");
    assert_eq!(order(&worker, "scorer", "load", "").status, 200);
    let (up, reason) = standing(&worker, "sentiment");
    assert!(!up && reason.contains("takes at most 2 rows"), "{reason}");
    fs::remove_file(models.path().join("scorer/config.pbtxt")).unwrap();
    assert_eq!(order(&worker, "scorer", "load", "").status, 200);
    assert_eq!(classify(&worker, &["cat"]).status, 200);

    // A mistake in its own file is told, and what was served is.
    let file = models.path().join("sentiment/config.pbtxt");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"best\"", "\"bset\"")).unwrap();
    let failed = order(&worker, "sentiment", "load", "");
    assert_eq!(failed.status, 400, "{failed:?}");
    assert!(
        failed.body.contains("config.pbtxt: line ") && failed.body.contains("bset"),
        "{failed:?}"
    );
    assert_eq!(classify(&worker, &["cat"]).status, 200);
}

#[test]
fn loading_an_ensemble_brings_its_members_and_unloading_may_take_them_along() {
    let models = example();
    let worker = Worker::start(models.path());
    let all = ["tokens", "scorer", "softmax", "best", "names", "sentiment"];
    let are_ready = || all.map(|model| ready(&worker, model));
    assert_eq!(order(&worker, "sentiment", "unload", "").status, 200);
    assert_eq!(are_ready(), [true, true, true, true, true, false]);
    // Its member's coming does not bring back what was unloaded.
    assert_eq!(order(&worker, "scorer", "load", "").status, 200);
    assert!(!ready(&worker, "sentiment"));
    assert_eq!(order(&worker, "sentiment", "load", "").status, 200);
    let dependents = r#"{"parameters": {"unload_dependents": true}}"#;
    assert_eq!(
        order(&worker, "sentiment", "unload", dependents).status,
        200
    );
    assert_eq!(are_ready(), [false; 6]);
    assert_eq!(order(&worker, "sentiment", "load", "").status, 200);
    assert_eq!(are_ready(), [true; 6]);
    assert_eq!(classify(&worker, &["cat"]).status, 200);
    let odd = r#"{"parameters": {"unload_dependents": "yes"}}"#;
    assert_eq!(order(&worker, "sentiment", "unload", odd).status, 400);
}

#[test]
fn a_folder_that_is_followed_takes_ensembles_away_and_brings_them_back() {
    let models = example();
    let arguments = ["--model-control", "poll", "--poll-seconds", "1"];
    let worker = Worker::start_with(models.path(), &arguments);
    assert_eq!(classify(&worker, &["cat"]).status, 200);
    let (here, away) = (models.path().join("names"), models.path().join(".names"));
    fs::rename(&here, &away).unwrap();
    until("the ensemble goes with its member", || {
        !ready(&worker, "sentiment")
    });
    fs::rename(&away, &here).unwrap();
    until("the ensemble comes back", || {
        classify(&worker, &["cat"]).status == 200
    });
}

#[test]
fn ensembles_may_be_made_of_ensembles_but_not_of_themselves() {
    let models = example();
    let wrap = |name: &str, inner: &str| {
        let text = format!(
            "max_batch_size: 2\ninput {{ name: \"TEXT\" }}\noutput {{ name: \"label\" }}\nensemble_scheduling {{ step {{\n\
             model_name: \"{inner}\" input_map {{ key: \"TEXT\" value: \"TEXT\" }}\n\
             output_map {{ key: \"label\" value: \"label\" }} }} }}"
        );
        put_described(models.path(), name, &[("config.pbtxt", &text)]);
    };
    // By name the first is looked at before what it is made of.
    wrap("a_wrapped", "sentiment");
    wrap("snake", "snake");
    wrap("head", "tail");
    wrap("tail", "head");
    wrap("lost", "nowhere");
    let worker = Worker::start(models.path());
    let answer = infer(&worker, "a_wrapped", json!([text("TEXT", &["cat"])]));
    let label = output(&answer, "label", "");
    assert_eq!(label, output(&classify(&worker, &["cat"]), "label", ""));
    for (name, words) in [
        (
            "snake",
            "config.pbtxt: line 5, column 13: step 1, `snake`: it is made of this ensemble itself",
        ),
        ("head", "step 1, `tail`: it is made of this ensemble itself"),
        ("tail", "step 1, `head`: it is made of this ensemble itself"),
        (
            "lost",
            "config.pbtxt: line 5, column 13: step 1, `nowhere`: no model `nowhere` is served here",
        ),
    ] {
        let (up, reason) = standing(&worker, name);
        assert!(!up && reason.contains(words), "{name}: {reason}");
    }
    assert_eq!(order(&worker, "best", "unload", "").status, 200);
    assert!(
        !ready(&worker, "a_wrapped"),
        "it outlived its member's member"
    );
    assert_eq!(order(&worker, "best", "load", "").status, 200);
    assert!(ready(&worker, "a_wrapped"));
}

#[test]
fn sequences_and_kept_answers_go_through_an_ensemble() {
    let models = tempfile::tempdir().unwrap();
    put_sums(models.path(), "direct {}");
    put_plus(models.path());
    let around = |model: &str, inputs: &[&str], made: &str, rest: &str| {
        let map = |name: &&str| format!("input_map {{ key: \"{name}\" value: \"{name}\" }} ");
        let input = |name: &&str| format!("input {{ name: \"{name}\" }} ");
        let inputs_of: String = inputs.iter().map(input).collect();
        let maps: String = inputs.iter().map(map).collect();
        let text = format!(
            "max_batch_size: 4 {inputs_of} output {{ name: \"{made}\" }} {rest} ensemble_scheduling {{ step {{ \
             model_name: \"{model}\" {maps} output_map {{ key: \"{made}\" value: \"{made}\" }} }} }}"
        );
        put_described(
            models.path(),
            &format!("around_{model}"),
            &[("config.pbtxt", &text)],
        );
    };
    around("sums", &["x"], "y", "");
    around(
        "plus",
        &["a", "b"],
        "sum",
        "response_cache { enable: true }",
    );
    let worker = Worker::start(models.path());
    let next = |x: f32, parameters: Value| {
        let x = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [x]});
        let body = json!({"inputs": [x], "parameters": parameters}).to_string();
        worker.post("/v2/models/around_sums/infer", &body)
    };
    let first = next(1.0, json!({"sequence_id": 7, "sequence_start": true}));
    assert_eq!(output(&first, "y", "")["data"], json!([1.0]));
    let last = next(2.0, json!({"sequence_id": 7, "sequence_end": true}));
    assert_eq!(output(&last, "y", "")["data"], json!([3.0]));
    let none = next(2.0, json!({}));
    assert_eq!(none.status, 400, "{none:?}");
    assert!(
        none.body.contains("in step 1, `sums`: ") && none.body.contains("sequence_id"),
        "{none:?}"
    );
    let tensor =
        |name: &str| json!({"name": name, "shape": [1, 2], "datatype": "FP32", "data": [1, 2]});
    for _ in 0..2 {
        let answer = infer(&worker, "around_plus", json!([tensor("a"), tensor("b")]));
        assert_eq!(output(&answer, "sum", "")["data"], json!([2.0, 4.0]));
    }
    let kept = stats(&worker, "around_plus");
    assert_eq!(
        (count(&kept, "cache_hit"), count(&kept, "cache_miss")),
        (1, 1),
        "{kept}"
    );
    assert_eq!(count(&stats(&worker, "plus"), "success"), 1);
}

#[test]
fn a_sequence_sees_each_request_of_an_ensemble_once_whatever_is_wanted() {
    let models = tempfile::tempdir().unwrap();
    put_sums(models.path(), "direct {}");
    put_described(
        models.path(),
        "soft",
        &[("model.toml", "step = \"softmax\"")],
    );
    let sums = |made: &str| {
        format!(
            "step {{ model_name: \"sums\" input_map {{ key: \"x\" value: \"x\" }} \
             output_map {{ key: \"y\" value: \"{made}\" }} }}"
        )
    };
    let soft = "step { model_name: \"soft\" input_map { key: \"INPUT\" value: \"x\" } \
                output_map { key: \"OUTPUT\" value: \"z\" } }";
    let put = |name: &str, second: &str| {
        let first = sums("y");
        let text = format!(
            "max_batch_size: 4 input {{ name: \"x\" }} output [ {{ name: \"y\" }}, {{ name: \"z\" }} ]\n\
             ensemble_scheduling {{ {first}\n {second} }}"
        );
        put_described(models.path(), name, &[("config.pbtxt", &text)]);
    };
    put("once", soft);
    put("twice", &sums("z"));
    let worker = Worker::start(models.path());
    let ask = |output: &str, parameters: Value| {
        let x = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [2.0]});
        let body = json!({"inputs": [x], "outputs": [{"name": output}], "parameters": parameters});
        worker.post("/v2/models/once/infer", &body.to_string())
    };
    let first = ask("z", json!({"sequence_id": 7, "sequence_start": true}));
    assert_eq!(output(&first, "z", "")["data"], json!([1.0]));
    assert_eq!(first.json()["outputs"].as_array().unwrap().len(), 1);
    let last = ask("y", json!({"sequence_id": 7, "sequence_end": true}));
    assert_eq!(output(&last, "y", "")["data"], json!([4.0]));
    let (up, reason) = standing(&worker, "twice");
    let words = "config.pbtxt: line 3, column 21: step 2, `sums`: `sums` keeps sequences, and step 1 runs it too";
    assert!(!up && reason.contains(words), "{reason}");
}

#[test]
fn built_in_steps_answer_as_models_and_need_no_library() {
    let models = tempfile::tempdir().unwrap();
    let step = |name: &str, settings: &str| {
        let text = format!(
            "backend: \"forebay\" parameters {{ key: \"step\" value {{ string_value: \"{name}\" }} }} {settings}"
        );
        let files = [
            ("config.pbtxt", text.as_str()),
            ("tokenizer.json", TOKENIZER),
        ];
        put_described(models.path(), name, &files);
    };
    let setting = |key: &str, value: &str| {
        format!("parameters {{ key: \"{key}\" value {{ string_value: \"{value}\" }} }}")
    };
    let padded = setting("max_tokens", "6") + &setting("padding", "max_length");
    step("tokenize", &padded);
    step("detokenize", "");
    step("threshold", &setting("threshold", "0.25"));
    step("normalize", "instance_group { count: 2 }");
    step("sigmoid", "max_batch_size: 1");
    step(
        "argmax",
        "\n parameters { key: \"axis\" value { string_value: \"1\" } }",
    );
    let mut serve =
        crate::support::command(&["serve", "--models", models.path().to_str().unwrap()]);
    serve.args(["--http", "127.0.0.1:0", "--threads", "1"]);
    // Where no library is to be found.
    let mut worker = Worker::spawn(serve.current_dir(models.path()));
    worker.wait_for_line("ready");

    let tokens = infer(
        &worker,
        "tokenize",
        json!([text("TEXT", &["hello world dog"])]),
    );
    assert_eq!(
        output(&tokens, "input_ids", "")["data"],
        json!([2, 4, 5, 7, 3, 0])
    );
    assert_eq!(
        output(&tokens, "attention_mask", "")["data"],
        json!([1, 1, 1, 1, 1, 0])
    );
    let ids = |ids: &[i64]| json!([{"name": "input_ids", "shape": [1, ids.len()], "datatype": "INT64", "data": ids}]);
    let texts = infer(&worker, "detokenize", ids(&[4, 5]));
    assert_eq!(output(&texts, "TEXT", "")["data"], json!(["hello world"]));
    for strange in [-1, 99] {
        let refused = infer(&worker, "detokenize", ids(&[strange]));
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.contains("is no token here"), "{refused:?}");
    }
    let scores = |rows: usize| {
        let data = [[0.25, -3.0], [4.0, 0.0]].concat();
        json!([{"name": "INPUT", "shape": [rows, 2], "datatype": "FP32", "data": data[..2 * rows]}])
    };
    let passed = infer(&worker, "threshold", scores(2));
    assert_eq!(
        output(&passed, "OUTPUT", "")["data"],
        json!([true, false, true, false])
    );
    let unit = infer(&worker, "normalize", scores(2));
    assert_eq!(output(&unit, "OUTPUT", "")["data"][2], json!(1.0));
    assert_eq!(infer(&worker, "sigmoid", scores(1)).status, 200);
    assert_eq!(infer(&worker, "sigmoid", scores(2)).status, 400);
    let config = worker.get("/v2/models/normalize/config").json();
    assert_eq!(
        (&config["backend"], &config["platform"]),
        (&json!("forebay"), &json!("forebay"))
    );
    let (up, reason) = standing(&worker, "argmax");
    assert!(
        !up && reason.contains("line 2, column 20: axis: the step argmax takes no settings"),
        "{reason}"
    );
}
