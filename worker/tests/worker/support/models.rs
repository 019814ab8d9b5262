//! The models that the tests serve: small enough to write down, large enough to be wrong.

use std::fs;
use std::path::Path;

use super::onnx::{Graph, Type};

/// The vectors of the tiny embedding model, one per token. `[PAD]` is huge, so that pooling over padding shows.
pub const TABLE: [[f32; 4]; 8] = [
    [1e6, 1e6, 1e6, 1e6],    // [PAD]
    [0.0, 0.0, 0.0, 1.0],    // [UNK]
    [0.5, 0.0, 0.0, 0.0],    // [CLS]
    [0.0, 0.5, 0.0, 0.0],    // [SEP]
    [1.0, 2.0, 3.0, 4.0],    // hello
    [-1.0, 2.0, -3.0, 4.0],  // world
    [3.0, 0.0, 1.0, -2.0],   // cat
    [3.5, 0.25, 1.0, -1.75], // dog
];

/// A tokeniser of eight words, which takes four tokens at most.
pub const TOKENIZER: &str = r##"{
  "version": "1.0",
  "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
  "padding": {"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": null,
              "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
  "added_tokens": [],
  "normalizer": {"type": "Lowercase"},
  "pre_tokenizer": {"type": "Whitespace"},
  "post_processor": {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                       "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}
  },
  "decoder": null,
  "model": {"type": "WordLevel", "unk_token": "[UNK]",
            "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "hello": 4, "world": 5, "cat": 6, "dog": 7}}
}"##;

/// Puts a model into a folder of models, in Triton's layout.
pub fn put(models: &Path, name: &str, graph: Graph) {
    let version = models.join(name).join("1");
    fs::create_dir_all(&version).unwrap();
    fs::write(version.join("model.onnx"), graph.model()).unwrap();
}

/// Puts a model without a graph into a folder of models, described by these files.
pub fn put_described(models: &Path, name: &str, files: &[(&str, &str)]) {
    let folder = models.join(name);
    fs::create_dir_all(&folder).unwrap();
    for (file, text) in files {
        fs::write(folder.join(file), text).unwrap();
    }
}

/// Gives a model its `config.pbtxt`.
pub fn configure(models: &Path, name: &str, text: &str) {
    fs::write(models.join(name).join("config.pbtxt"), text).unwrap();
}

/// `sum` = a + b and `difference` = a - b, both of 2 columns.
pub fn put_plus(models: &Path) {
    let axes = ["batch", "2"];
    let graph = Graph::default()
        .node("Add", &["a", "b"], &["sum"])
        .node("Sub", &["a", "b"], &["difference"])
        .input("a", Type::Float, &axes)
        .input("b", Type::Float, &axes)
        .output("sum", Type::Float, &axes)
        .output("difference", Type::Float, &axes);
    put(models, "plus", graph);
}

/// `y` = the logarithm of `x`.
pub fn put_log(models: &Path) {
    let graph = Graph::default()
        .node("Log", &["x"], &["y"])
        .input("x", Type::Float, &["batch"])
        .output("y", Type::Float, &["batch"]);
    put(models, "log", graph);
}

/// Every element type, each given back as it came.
pub fn put_types(models: &Path) {
    let types = [
        ("BOOL", Type::Bool),
        ("UINT8", Type::Uint8),
        ("UINT16", Type::Uint16),
        ("UINT32", Type::Uint32),
        ("UINT64", Type::Uint64),
        ("INT8", Type::Int8),
        ("INT16", Type::Int16),
        ("INT32", Type::Int32),
        ("INT64", Type::Int64),
        ("FP16", Type::Float16),
        ("FP32", Type::Float),
        ("FP64", Type::Double),
        ("BF16", Type::Bfloat16),
        ("BYTES", Type::String),
    ];
    for (name, kind) in types {
        let graph = Graph::default()
            .node("Identity", &["x"], &["y"])
            .input("x", kind, &["n"])
            .output("y", kind, &["n"]);
        put(models, name, graph);
    }
    let half = Graph::default()
        .node_with("Cast", &["x"], &["half"], &[("to", Type::Float16 as u64)])
        .node("Identity", &["x"], &["y"])
        .input("x", Type::Float, &["n"])
        .output("half", Type::Float16, &["n"])
        .output("y", Type::Float, &["n"]);
    put(models, "half", half);
}

/// Gives `x` back as scores of three classes, of which the first two are named.
pub fn put_scores(models: &Path) {
    let graph = Graph::default()
        .node("Identity", &["x"], &["scores"])
        .input("x", Type::Float, &["batch", "3"])
        .output("scores", Type::Float, &["batch", "3"]);
    put(models, "scores", graph);
    let folder = models.join("scores");
    let config = r#"output { name: "scores" data_type: TYPE_FP32 dims: 3 label_filename: "labels.txt" } max_batch_size: 4"#;
    fs::write(folder.join("config.pbtxt"), config).unwrap();
    fs::write(folder.join("labels.txt"), "cat\ndog\n").unwrap();
}

/// Multiplies n-by-n matrices: as slow as `n` says. The answer is a scalar, 0.
pub fn put_slow(models: &Path) {
    let graph = Graph::default()
        .node_with("Concat", &["n", "n"], &["shape"], &[("axis", 0)])
        .node("ConstantOfShape", &["shape"], &["m0"])
        .node("MatMul", &["m0", "m0"], &["m1"])
        .node("MatMul", &["m1", "m0"], &["m2"])
        .node("MatMul", &["m2", "m0"], &["m3"])
        .node_with("ReduceMean", &["m3"], &["mean"], &[("keepdims", 0)])
        .input("n", Type::Int64, &["1"])
        .output("mean", Type::Float, &[]);
    put(models, "slow", graph);
}

/// Multiplies n-by-n matrices a thousand times over: for `n` = 2000 minutes, in steps of less than a second.
pub fn put_endless(models: &Path) {
    let mut graph = Graph::default()
        .node_with("Concat", &["n", "n"], &["shape"], &[("axis", 0)])
        .node("ConstantOfShape", &["shape"], &["m0"]);
    for step in 0..1000 {
        let (before, after) = (format!("m{step}"), format!("m{}", step + 1));
        graph = graph.node("MatMul", &[&before, "m0"], &[&after]);
    }
    let graph = graph
        .node_with("ReduceMean", &["m1000"], &["mean"], &[("keepdims", 0)])
        .input("n", Type::Int64, &["1"])
        .output("mean", Type::Float, &[]);
    put(models, "endless", graph);
}

/// `y` = `x` plus one of three positions each: fails on a longer `x`, though its axis takes any size.
pub fn put_positions(models: &Path) {
    let graph = Graph::default()
        .floats("positions", &[3], &[0.0, 0.5, 1.0])
        .node("Add", &["x", "positions"], &["y"])
        .input("x", Type::Float, &["batch", "sequence"])
        .output("y", Type::Float, &["batch", "sequence"]);
    put(models, "positions", graph);
}

/// Multiplies matrices before it can answer anything: what does not depend on the input is computed while loading,
/// which takes minutes here.
pub fn put_slow_to_load(models: &Path) {
    let mut graph =
        Graph::default()
            .whole("n", &[2], &[4000, 4000])
            .node("ConstantOfShape", &["n"], &["m0"]);
    for step in 0..60 {
        let (before, after) = (format!("m{step}"), format!("m{}", step + 1));
        graph = graph.node("MatMul", &[&before, "m0"], &[&after]);
    }
    let graph = graph
        .node_with("ReduceMean", &["m60"], &["mean"], &[("keepdims", 0)])
        .node("Add", &["x", "mean"], &["y"])
        .input("x", Type::Float, &["n"])
        .output("y", Type::Float, &["n"]);
    put(models, "late", graph);
}

/// Adds up the `x` of a sequence: `y` is the sum so far, `flags` is 1 for the first request plus 2 for the last, and
/// `whose` the sequence's number. The rest of a `config.pbtxt` is `settings`.
pub fn put_sums(models: &Path, settings: &str) {
    let axes = ["batch", "1"];
    let graph = Graph::default()
        .node("Add", &["x", "before"], &["y"])
        .node("Identity", &["y"], &["after"])
        .node("Add", &["START", "END"], &["once"])
        .node("Add", &["once", "END"], &["flags"])
        .node("Identity", &["ID"], &["whose"])
        .input("x", Type::Float, &axes)
        .input("before", Type::Float, &axes)
        .input("START", Type::Float, &axes)
        .input("END", Type::Float, &axes)
        .input("ID", Type::Int64, &axes)
        .output("y", Type::Float, &axes)
        .output("after", Type::Float, &axes)
        .output("flags", Type::Float, &axes)
        .output("whose", Type::Int64, &axes);
    put(models, "sums", graph);
    let text = format!(
        r#"input {{ name: "x" data_type: TYPE_FP32 dims: 1 }}
           output [ {{ name: "y" data_type: TYPE_FP32 dims: 1 }}, {{ name: "flags" data_type: TYPE_FP32 dims: 1 }},
                    {{ name: "whose" data_type: TYPE_INT64 dims: 1 }} ]
           sequence_batching {{
             control_input [
               {{ name: "START" control [ {{ kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }} ] }},
               {{ name: "END" control [ {{ kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] }} ] }},
               {{ name: "ID" control [ {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 }} ] }}
             ]
             state [ {{ input_name: "before" output_name: "after" data_type: TYPE_FP32 dims: 1 }} ]
             {settings}
           }}"#
    );
    configure(models, "sums", &format!("max_batch_size: 4 {text}"));
}

/// A request for the slow model.
pub fn slow_request(n: usize) -> String {
    format!(r#"{{"inputs":[{{"name":"n","shape":[1],"datatype":"INT64","data":[{n}]}}]}}"#)
}

/// A BERT-shaped embedding model: looks tokens up in [`TABLE`]. `settings` are lines of its `model.toml`.
pub fn put_embedding(models: &Path, name: &str, settings: &str) {
    let axes = ["batch", "sequence"];
    let graph = Graph::default()
        .floats("table", &[8, 4], TABLE.as_flattened())
        .node("Gather", &["table", "input_ids"], &["last_hidden_state"])
        .input("input_ids", Type::Int64, &axes)
        .input("attention_mask", Type::Int64, &axes)
        .input("token_type_ids", Type::Int64, &axes)
        .output(
            "last_hidden_state",
            Type::Float,
            &["batch", "sequence", "4"],
        );
    put(models, name, graph);
    describe(models, name, &format!("kind = \"embedding\"\n{settings}"));
}

/// A BERT-shaped classifier: the scores of four classes are the sums of the tokens' rows of [`TABLE`].
pub fn put_classifier(models: &Path, name: &str, settings: &str) {
    let graph = Graph::default()
        .floats("table", &[8, 4], TABLE.as_flattened())
        .node("Identity", &["attention_mask"], &["counted"]);
    put_scorer(models, name, graph, "4");
    describe(models, name, &format!("kind = \"classifier\"\n{settings}"));
}

/// A cross-encoder: its score is the sum over the tokens of the second text, of which `dog` is worth most.
pub fn put_ranker(models: &Path, name: &str) {
    let worth = [1e6, 0.0, 0.0, 0.0, 1.0, -1.0, 3.0, 3.5];
    let graph = Graph::default().floats("table", &[8, 1], &worth).node(
        "Identity",
        &["token_type_ids"],
        &["counted"],
    );
    put_scorer(models, name, graph, "1");
    describe(models, name, "kind = \"classifier\"\n");
}

/// Sums the rows of `table` of those tokens for which `counted` is 1.
fn put_scorer(models: &Path, name: &str, graph: Graph, classes: &str) {
    let axes = ["batch", "sequence"];
    let graph = graph
        .whole("one", &[1], &[1])
        .whole("two", &[1], &[2])
        .node("Gather", &["table", "input_ids"], &["rows"])
        .node_with(
            "Cast",
            &["counted"],
            &["weights"],
            &[("to", Type::Float as u64)],
        )
        .node("Unsqueeze", &["weights", "two"], &["column"])
        .node("Mul", &["rows", "column"], &["weighted"])
        .node_with(
            "ReduceSum",
            &["weighted", "one"],
            &["logits"],
            &[("keepdims", 0)],
        )
        .input("input_ids", Type::Int64, &axes)
        .input("attention_mask", Type::Int64, &axes)
        .input("token_type_ids", Type::Int64, &axes)
        .output("logits", Type::Float, &["batch", classes]);
    put(models, name, graph);
}

/// Writes how a model reads texts.
fn describe(models: &Path, name: &str, toml: &str) {
    let folder = models.join(name);
    fs::write(folder.join("model.toml"), toml).unwrap();
    fs::write(folder.join("tokenizer.json"), TOKENIZER).unwrap();
}
