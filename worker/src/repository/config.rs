//! `config.pbtxt`: Triton's model configuration, read and checked.
//!
//! The text is read by a library against the table of `model_config.proto`, so that every spelling that Triton takes is
//! taken here. What a file asks for falls into three: heeded; ignored, which is logged by name ([`IGNORED`]); refused
//! where ignoring would change what answers mean ([`REFUSED`]), and then the model is not loaded. A field that Triton
//! does not know is a mistake. What is absent is read from the graph, which Triton calls auto-completion.
//!
//! Two departures from Triton: the queue is bounded also when `max_queue_size` is 0, since memory is; and a file that
//! leaves `max_batch_size` out gets batches wherever the graph allows them, where Triton would guess 4.

mod ensemble;
mod group;
mod place;
mod queue;
mod sequence;
mod typed;
mod warmup;

use miette::Diagnostic;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::Deserialize;
use serde_json::Value;

use typed::Typed;

pub use ensemble::EnsemblePlan;
use group::Accelerator;
pub use group::Instance;
pub use sequence::{Control, SequencePlan, Signal, State, Switch};
pub use warmup::{Filling, Warmup, With};

use super::step::Settings;
use crate::batch::Limits;
use crate::tensor::Datatype;

/// The most rows in a batch when nothing else is said.
const ROWS: usize = 32;

/// Fields that change nothing here.
const IGNORED: [&str; 6] = [
    "metric_tags",
    "model_metrics",
    "cc_model_filenames",
    "model_repository_agents",
    "model_operations",
    "runtime",
];

/// Fields without which the model would answer something else.
const REFUSED: [&str; 2] = ["batch_input", "batch_output"];

/// What a `config.pbtxt` says, or what holds without one.
#[derive(Debug)]
pub struct Config {
    /// What runs the model.
    pub runs: Runs,
    /// The most rows of a request and of a batch, a row being what one `dims` describes. `Some(0)` = no batching;
    /// absent = as the graph allows.
    pub max_batch_size: Option<usize>,
    /// Inputs that are declared; none = as in the graph.
    pub inputs: Vec<Declared>,
    /// Outputs that are declared; none = as in the graph.
    pub outputs: Vec<Declared>,
    /// Which versions are served.
    pub versions: VersionPolicy,
    /// Those that run at once; at least one.
    pub instances: Vec<Instance>,
    /// How those on cards use them.
    pub accelerator: Accelerator,
    /// Threads of one instance; absent = a fair share of the machine's.
    pub threads: Option<usize>,
    /// The name of the graph's file.
    pub file: String,
    /// How requests wait and gather.
    pub limits: Limits,
    /// How requests form sequences, if they do.
    pub sequence: Option<SequencePlan>,
    /// What is run before it is ready.
    pub warmups: Vec<Warmup>,
    /// Whether answers are kept.
    pub cached: bool,
    /// Everything, as KServe's `/config` shows it.
    pub document: Value,
    /// What was ignored, for the log.
    pub warnings: Vec<String>,
}

/// What runs a model, as its `config.pbtxt` says.
#[derive(Debug, PartialEq)]
pub enum Runs {
    /// A graph of its own, or what its `model.toml` says.
    Graph,
    /// What is built in, with these settings.
    Step(Settings),
    /// Other models.
    Ensemble(EnsemblePlan),
}

/// A tensor as `config.pbtxt` declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its type; absent = as in the graph.
    pub datatype: Option<Datatype>,
    /// Its axes after the batch; -1 = any size.
    pub dims: Vec<i64>,
    /// The axes that the graph sees instead.
    pub reshape: Option<Vec<i64>>,
    /// The file that names what its values stand for, one a line.
    pub labels: Option<String>,
}

/// Which versions are served.
#[derive(Clone, Debug, PartialEq)]
pub enum VersionPolicy {
    /// So many of the highest.
    Latest(usize),
    /// Every one.
    All,
    /// These.
    Specific(Vec<u64>),
}

impl VersionPolicy {
    /// Those of the versions that are served, in ascending order.
    pub fn choose(&self, mut there: Vec<u64>) -> Vec<u64> {
        there.sort_unstable();
        match self {
            VersionPolicy::Latest(count) => there.split_off(there.len().saturating_sub(*count)),
            VersionPolicy::All => there,
            VersionPolicy::Specific(wanted) => {
                there.retain(|version| wanted.contains(version));
                there
            }
        }
    }
}

/// Reads the text of a `config.pbtxt`; an empty text says nothing, so that everything is as in the graph.
pub fn read(text: &str, folder: &str) -> Result<Config, String> {
    let message = parse(text)?;
    let refused = REFUSED.iter().find(|name| message.has_field_by_name(name));
    if let Some(name) = refused {
        let problem = format!("{name} is not served by this version");
        return Err(place::of_field(text, &problem));
    }
    let ignored = IGNORED
        .iter()
        .filter(|name| message.has_field_by_name(name));
    let ignored: Vec<String> = ignored.map(|name| format!("{name} is ignored")).collect();
    let typed = Typed::deserialize(json(&message, true)?).map_err(|error| error.to_string())?;
    let config = typed.check(text, folder);
    let mut config = config.map_err(|problem| place::of_field(text, &problem))?;
    config.warnings.extend(ignored);
    config.document = json(&message, false)?;
    Ok(config)
}

/// A problem that was found later, with its line if the field or the tensor that it names stands in the text once.
pub fn placed(text: &str, problem: &str) -> String {
    place::of_field(text, problem)
}

/// A configuration, as `/config` shows it, in the bytes of protobuf's ModelConfig.
pub fn encode(document: &Value) -> Result<Vec<u8>, String> {
    let message = DynamicMessage::deserialize(descriptor()?, document);
    Ok(message.map_err(|error| error.to_string())?.encode_to_vec())
}

fn parse(text: &str) -> Result<DynamicMessage, String> {
    let (whole, colons) = with_colons(text);
    DynamicMessage::parse_text_format(descriptor()?, &whole).map_err(|error| {
        // Without a place it is the end that came too early.
        let place = error.labels().and_then(|mut labels| labels.next());
        let place = place.map_or(whole.len(), |label| label.offset());
        let added = colons.iter().filter(|colon| **colon < place).count();
        let problem = error.to_string();
        let meant = meant(&problem).unwrap_or_default();
        place::at(text, place - added, &format!("{problem}{meant}"))
    })
}

/// The nearest field of its message, where a field was found to be none.
fn meant(problem: &str) -> Option<String> {
    let mut quoted = problem.strip_prefix("field '")?.split('\'');
    let (field, message) = (quoted.next()?, quoted.nth(1)?);
    let table = descriptor().ok()?;
    let message = table.parent_pool().get_message_by_name(message)?;
    let edits = |known: &str| strsim::damerau_levenshtein(field, known);
    let known = message.fields().map(|known| known.name().to_owned());
    let near = known.min_by_key(|known| edits(known))?;
    // A slip of the finger, not another word: a third of its letters at most.
    (edits(&near) <= (field.len() / 3).max(1)).then(|| format!("; did you mean `{near}`"))
}

/// The fields of a configuration.
fn descriptor() -> Result<MessageDescriptor, String> {
    let table = include_bytes!(concat!(env!("OUT_DIR"), "/model_config.bin"));
    let table = DescriptorPool::decode(&table[..]).map_err(|error| error.to_string())?;
    let descriptor = table.get_message_by_name("inference.ModelConfig");
    descriptor.ok_or_else(|| "the table of fields lacks ModelConfig".into())
}

/// The message with Triton's own names; without what has its default value if `short`.
fn json(message: &DynamicMessage, short: bool) -> Result<Value, String> {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false)
        .skip_default_fields(short);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| error.to_string())
}

/// Puts the colon before a list of messages, as in `input [ { ... } ]`: protobuf's text form may leave it out, nearly
/// every file does, and the library (prost-reflect 0.16) insists on it. Says where in the result the added ones stand.
fn with_colons(text: &str) -> (String, Vec<usize>) {
    let mut whole = String::with_capacity(text.len() + 16);
    let mut added = Vec::new();
    let (mut quote, mut escaped, mut comment) = (None, false, false);
    // The last character that was neither space nor comment.
    let mut last = ' ';
    for character in text.chars() {
        if comment {
            comment = character != '\n';
        } else if let Some(end) = quote {
            if !escaped && character == end {
                quote = None;
                last = character;
            }
            escaped = !escaped && character == '\\';
        } else {
            match character {
                '#' => comment = true,
                '"' | '\'' => quote = Some(character),
                '[' if last.is_alphanumeric() || last == '_' => {
                    added.push(whole.len());
                    whole.push(':');
                }
                _ => {}
            }
            if !character.is_whitespace() && !comment {
                last = character;
            }
        }
        whole.push(character);
    }
    (whole, added)
}

fn at_least(field: &str, value: i64, least: i64) -> String {
    format!("{field}: {value}; expected at least {least}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Overdue;
    use crate::units::{Device, Seconds};

    const EVERYTHING: &str = r#"
        name: "m"
        platform: "onnxruntime_onnx"
        max_batch_size: 8
        input [ { name: "a" data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ -1 ] } } ]
        output { name: "sum", data_type: TYPE_STRING, dims: 2 }
        version_policy { specific { versions: [ 1, 3 ] } }
        instance_group [ { count: 2 kind: KIND_CPU }, { count: 1 } ]
        default_model_filename: "graph.onnx"
        dynamic_batching {
            preferred_batch_size: [ 4, 8 ]
            max_queue_delay_microseconds: 500
            priority_levels: 2
            default_priority_level: 2
            default_queue_policy { max_queue_size: 7 }
            priority_queue_policy {
                key: 1
                value { timeout_action: DELAY default_timeout_microseconds: 2000 allow_timeout_override: true }
            }
        }
        parameters { key: "intra_op_thread_count" value { string_value: "3" } }
        response_cache { enable: true }
        metric_tags { key: "a" value: "b" }
        model_warmup [ {
            name: "both"
            batch_size: 8
            count: 3
            inputs { key: "a" value { data_type: TYPE_FP32 dims: [ 2, 5 ] zero_data: true } }
            inputs { key: "b" value { data_type: TYPE_STRING dims: 1 input_data_file: "words" } }
        } ]
    "#;

    #[test]
    fn what_is_heeded_arrives_and_what_is_not_is_named() {
        let config = read(EVERYTHING, "m").unwrap();
        assert_eq!(config.max_batch_size, Some(8));
        assert_eq!((config.instances.len(), config.threads), (3, Some(3)));
        assert_eq!(config.versions, VersionPolicy::Specific(vec![1, 3]));
        assert_eq!(config.file, "graph.onnx");
        let input = &config.inputs[0];
        assert_eq!(input.dims, [2, -1]);
        assert_eq!(input.reshape, Some(vec![-1]));
        assert_eq!(config.outputs[0].datatype, Some(Datatype::Bytes));
        let limits = &config.limits;
        assert_eq!((limits.rows, limits.default_level), (8, 1));
        assert_eq!(limits.preferred, [4, 8]);
        assert_eq!(limits.delay, Seconds(0.0005));
        let [first, second] = &limits.levels[..] else {
            panic!("not two levels")
        };
        assert_eq!(first.timeout, Some(Seconds(0.002)));
        assert_eq!(first.overdue, Overdue::Postpone);
        assert!(first.may_shorten);
        assert_eq!((second.waiting, second.timeout), (7, None));
        assert!(config.cached);
        let [warmup] = &config.warmups[..] else {
            panic!("not one warm-up")
        };
        assert_eq!(
            (warmup.name.as_str(), warmup.rows, warmup.count),
            ("both", 8, 3)
        );
        let [a, b] = &warmup.inputs[..] else {
            panic!("not two inputs")
        };
        assert_eq!((a.dims.as_slice(), &a.with), (&[2, 5][..], &With::Zeros));
        assert_eq!(
            (b.name.as_str(), &b.with),
            ("b", &With::File("words".into()))
        );
        assert_eq!(config.warnings, ["metric_tags is ignored"]);
        assert_eq!(config.document["dynamic_batching"]["priority_levels"], 2);
    }

    #[test]
    fn a_file_that_says_nothing_leaves_everything_to_the_graph() {
        let config = read("", "m").unwrap();
        assert_eq!(config.max_batch_size, None);
        assert_eq!(config.instances, [Instance::default()]);
        assert_eq!(config.versions, VersionPolicy::Latest(1));
        assert_eq!(config.limits.rows, ROWS);
        assert!(config.warnings.is_empty());
    }

    #[test]
    fn cards_are_read() {
        let text = r#"
            instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU count: 2 gpus: [ 1, 2 ] }, { kind: KIND_MODEL } ]
            optimization {
                graph { level: 1 }
                execution_accelerators {
                    gpu_execution_accelerator {
                        name: "tensorrt"
                        parameters { key: "precision_mode" value: "FP16" }
                        parameters { key: "max_workspace_size_bytes" value: "1024" }
                        parameters { key: "trt_engine_cache_enable" value: "1" }
                    }
                    cpu_execution_accelerator { name: "openvino" }
                }
            }"#;
        let config = read(text, "m").unwrap();
        let places: Vec<(Option<Device>, u32)> = config
            .instances
            .iter()
            .map(|one| (one.device, one.card))
            .collect();
        let cuda = Some(Device::Cuda);
        let (cpu, worker) = ((Some(Device::Cpu), 0), (None, 0));
        assert_eq!(
            places,
            [cpu, (cuda, 1), (cuda, 1), (cuda, 2), (cuda, 2), worker]
        );
        assert!(config.accelerator.tensorrt);
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            config.accelerator.options,
            [
                option("trt_max_workspace_size", "1024"),
                option("trt_fp16_enable", "1"),
                option("trt_engine_cache_enable", "1")
            ]
        );
        assert_eq!(
            config.warnings,
            [
                "graph of optimization is ignored",
                "cpu_execution_accelerator is ignored"
            ]
        );
        let listed = read("instance_group { gpus: 3 }", "m").unwrap().instances;
        assert_eq!(
            listed,
            [Instance {
                device: cuda,
                card: 3
            }]
        );
    }

    #[test]
    fn sequences_are_read() {
        let text = r#"
            max_batch_size: 4
            input { name: "x" data_type: TYPE_FP32 dims: 1 }
            output { name: "y" data_type: TYPE_FP32 dims: 1 }
            instance_group { count: 2 }
            sequence_batching {
                max_sequence_idle_microseconds: 2500000
                oldest { max_candidate_sequences: 16 preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 100 }
                control_input [
                    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
                    { name: "END" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },
                    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ -1, 1 ] } ] },
                    { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 } ] }
                ]
                state [ {
                    input_name: "in" output_name: "out" data_type: TYPE_INT32 dims: [ -1, 3 ]
                    initial_state: { name: "begin" data_type: TYPE_INT32 dims: [ 2, 3 ] data_file: "six" }
                } ]
            }"#;
        let config = read(text, "m").unwrap();
        let plan = config.sequence.unwrap();
        assert_eq!((plan.idle, plan.most), (Seconds(2.5), 32));
        let signals: Vec<Signal> = plan.controls.iter().map(|one| one.signal).collect();
        let switch = |off, on| Switch { off, on };
        assert_eq!(
            signals,
            [
                Signal::Start(switch(0.0, 1.0)),
                Signal::End(switch(0.0, 1.0)),
                Signal::Ready(switch(-1.0, 1.0)),
                Signal::Correlation
            ]
        );
        let [state] = &plan.states[..] else {
            panic!("not one state")
        };
        assert_eq!(
            (state.dims.as_slice(), state.first.as_slice()),
            (&[-1, 3][..], &[2, 3][..])
        );
        assert_eq!(state.file.as_deref(), Some("six"));
        let limits = &config.limits;
        assert_eq!((limits.rows, limits.preferred.as_slice()), (4, &[2][..]));
        let names: Vec<&str> = config.inputs.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["x", "START", "END", "READY", "ID", "in"]);
        assert_eq!(config.outputs[1].name, "out");
        let direct = read("max_batch_size: 4 sequence_batching { direct {} }", "m").unwrap();
        let plan = direct.sequence.unwrap();
        assert_eq!(
            (plan.idle, plan.most, direct.limits.rows),
            (Seconds(1.0), 4, 4)
        );
    }

    #[test]
    fn a_typed_batch_size_without_dynamic_batching_runs_each_request_alone() {
        assert_eq!(read("max_batch_size: 8", "m").unwrap().limits.rows, 1);
        let together = read("max_batch_size: 8 dynamic_batching {}", "m").unwrap();
        assert_eq!(together.limits.rows, 8);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("name: \"other\"", "\"other\" is not the folder's"),
            ("backend: \"python\"", "expected \"onnxruntime\""),
            ("max_batch_sise: 4", "max_batch_sise"),
            ("max_batch_size: -1", "max_batch_size: -1"),
            ("max_batch_size: \"four\"", "expected an integer"),
            ("input { dims: 1 }", "has no name"),
            ("input { name: \"a\" dims: -2 }", "a size of -2"),
            ("input { name: \"a\" data_type: TYPE_FP31 }", "TYPE_FP31"),
            ("instance_group { count: 65 }", "more than 64 instances"),
            ("instance_group { count: -1 }", "count: -1"),
            ("instance_group { gpus: [ 0, -1 ] }", "gpus: -1"),
            (
                "optimization { execution_accelerators { gpu_execution_accelerator { name: \"trt\" } } }",
                "\"trt\"; expected \"cuda\" or",
            ),
            (
                "sequence_batching { control_input { name: \"START\" control { kind: CONTROL_SEQUENCE_START } } }",
                "control_input \"START\": expected one of int32_false_true",
            ),
            (
                "sequence_batching { control_input { name: \"ID\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } } }",
                "data_type: expected TYPE_UINT64",
            ),
            (
                "sequence_batching { state { input_name: \"s\" output_name: \"t\" data_type: TYPE_FP32 dims: -1 } }",
                "state \"s\": [-1] is no shape to begin with",
            ),
            (
                "sequence_batching {} response_cache { enable: true }",
                "depends on what came before",
            ),
            (
                "sequence_batching { iterative_sequence: true }",
                "iterative_sequence",
            ),
            ("model_transaction_policy { decoupled: true }", "decoupled"),
            (
                "max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }",
                "expected 1 to 4",
            ),
            (
                "dynamic_batching { priority_levels: 2 }",
                "default_priority_level: 0",
            ),
            (
                "dynamic_batching { priority_queue_policy { key: 3 value {} } }",
                "3 is no level",
            ),
            (
                "parameters { key: \"intra_op_thread_count\" value { string_value: \"x\" } }",
                "\"x\"",
            ),
            ("default_model_filename: \"../x\"", "no plain file name"),
            (
                "model_warmup { name: \"w\" inputs { key: \"a\" value { dims: 1 zero_data: true } } }",
                "`a` has no data_type",
            ),
            (
                "model_warmup { inputs { key: \"a\" value { data_type: TYPE_FP32 dims: -1 zero_data: true } } }",
                "a size of -1",
            ),
            (
                "model_warmup { inputs { key: \"a\" value { data_type: TYPE_FP32 input_data_file: \"../x\" } } }",
                "no plain file name",
            ),
            ("name: ", "expected"),
        ] {
            let said = read(text, "m").unwrap_err();
            assert!(said.contains(words), "{words:?} is missing in {said:?}");
        }
    }

    #[test]
    fn what_does_not_go_with_what_runs_the_model_is_named() {
        for (text, words) in [
            (
                "platform: \"ensemble\"",
                "goes with ensemble_scheduling, which is missing",
            ),
            (
                "ensemble_scheduling {} backend: \"onnxruntime\"",
                "an ensemble has none",
            ),
            (
                "ensemble_scheduling {} platform: \"onnxruntime_onnx\"",
                "expected \"ensemble\"",
            ),
            (
                "ensemble_scheduling {} instance_group { count: 2 }",
                "its members have instances",
            ),
            (
                "ensemble_scheduling {} model_warmup { name: \"w\" }",
                "warm its members up",
            ),
            (
                "backend: \"forebay\" sequence_batching {}",
                "no state to keep",
            ),
            ("batch_input {}", "batch_input is not served"),
        ] {
            let said = read(text, "m").unwrap_err();
            assert!(said.contains(words), "{words:?} is missing in {said:?}");
        }
    }

    #[test]
    fn mistakes_have_a_place() {
        for (text, place) in [
            (
                "name: \"m\"\nmax_batch_sise: 4",
                "line 2, column 1: field 'max_batch_sise' not found for message 'inference.ModelConfig'; did you mean \
                 `max_batch_size`, in",
            ),
            (
                "input [ { name: \"a\" }, { name: \"b\" dims [ 1 ] dimms: 1 } ]",
                "line 1, column 47: field 'dimms'",
            ),
            (
                "\n\n  max_batch_size: -1 # no\n",
                "line 3, column 3: max_batch_size: -1;",
            ),
            ("input { name: \"a\"\n", "line 2, column 1: expected"),
            (
                "instance_group {\n  kind: KIND_CPUS }",
                "line 2, column 9: value 'KIND_CPUS'",
            ),
            (
                "name: \"m\"\nbatch_input {}",
                "line 2, column 1: batch_input",
            ),
        ] {
            let said = read(text, "m").unwrap_err();
            assert!(said.starts_with(place), "{place:?} does not begin {said:?}");
        }
        let far = read("colour: 4", "m").unwrap_err();
        assert!(!far.contains("did you mean"), "{far}");
        let said = read("max_batch_sise: 4 # four", "m").unwrap_err();
        assert!(said.ends_with("in `max_batch_sise: 4 # four`"), "{said}");
    }

    #[test]
    fn only_lists_of_messages_get_a_colon() {
        let text = "input [ {} ] # a [ b\ndims: [ 1 ] name: 'a [' x: \"\\\" [\"";
        let expected = text.replacen("input [", "input :[", 1);
        assert_eq!(with_colons(text), (expected, vec![6]));
    }

    #[test]
    fn version_policies_choose() {
        let there = || vec![10, 2, 1];
        assert_eq!(VersionPolicy::Latest(1).choose(there()), [10]);
        assert_eq!(VersionPolicy::Latest(5).choose(there()), [1, 2, 10]);
        assert_eq!(VersionPolicy::All.choose(there()), [1, 2, 10]);
        assert_eq!(VersionPolicy::Specific(vec![2, 7]).choose(there()), [2]);
    }
}
