//! The graph of an ensemble: how its steps are joined by the names of their tensors, checked before anything runs, and
//! what may run next. Pure: the members' signatures go in, a graph comes out; tensors go in, calls come out.
//!
//! The checks come in two halves. [`Graph::wire`] needs the file alone: every tensor is made once, by a client or by a
//! step, and every step can have its turn, so there are no circles. [`Graph::fit`] needs the members: their inputs are
//! all fed, their names exist, and whoever makes a tensor agrees with whoever takes it in type and axes, -1 agreeing
//! with any size (what it turns out to be is checked when it comes). A tensor that nobody takes is allowed. Triton
//! checks the second half alone, so that a circle or a tensor that nobody makes is found by the first client, as a
//! deadlock.
//!
//! A step runs as soon as its inputs are there, and only if something of what it makes is wanted, by the client or by
//! a step that runs; one whose model keeps sequences runs always, since a sequence has to see each of its requests.
//! Source: Triton, "Ensemble Models" and `ModelEnsembling`.

mod fit;
mod progress;

use std::collections::BTreeMap;

pub use fit::Member;

use crate::repository::{Declared, EnsemblePlan};

/// Steps that are joined. A tensor is its number.
#[derive(Debug, PartialEq)]
pub struct Graph {
    steps: Vec<Step>,
    /// The tensors that clients give and get, in the file's order.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    tensors: usize,
    /// The steps that run whatever is wanted.
    always: Vec<usize>,
}

/// A step: its model's names of tensors, and which those are.
#[derive(Debug, Default, PartialEq)]
struct Step {
    inputs: Vec<(String, usize)>,
    outputs: Vec<(String, usize)>,
}

/// Who makes a tensor.
#[derive(Clone, Copy, PartialEq)]
enum Maker {
    Client,
    Step(usize),
}

/// The tensors by name, each with its number and its maker.
type Made<'a> = BTreeMap<&'a str, (usize, Maker)>;

impl Graph {
    /// Joins the steps, or says what is wrong with them.
    pub fn wire(plan: &EnsemblePlan) -> Result<Graph, String> {
        whole(plan)?;
        let made = made(plan)?;
        let mut graph = Graph {
            steps: Vec::with_capacity(plan.steps.len()),
            inputs: Vec::new(),
            outputs: Vec::new(),
            tensors: made.len(),
            always: Vec::new(),
        };
        for at in 0..plan.steps.len() {
            graph.steps.push(Step::wire(plan, at, &made)?);
        }
        for (at, input) in plan.inputs.iter().enumerate() {
            let tensor = made
                .get(input.name.as_str())
                .map_or(0, |(tensor, _)| *tensor);
            if !graph.steps.iter().any(|step| step.takes(tensor)) {
                return Err(plan.in_input(at, "no step takes it"));
            }
            graph.inputs.push(tensor);
        }
        for (at, output) in plan.outputs.iter().enumerate() {
            match made.get(output.name.as_str()) {
                Some((tensor, Maker::Step(_))) => graph.outputs.push(*tensor),
                _ => return Err(plan.in_output(at, "no step makes it")),
            }
        }
        graph.no_circle(plan, &made)?;
        Ok(graph)
    }

    /// The same, with these steps run whatever is wanted.
    pub fn always(self, always: Vec<usize>) -> Graph {
        Graph { always, ..self }
    }

    /// Whether every step has its turn.
    fn no_circle(&self, plan: &EnsemblePlan, made: &Made<'_>) -> Result<(), String> {
        let mut there = vec![false; self.tensors];
        self.inputs.iter().for_each(|&tensor| there[tensor] = true);
        let mut waiting: Vec<usize> = (0..self.steps.len()).collect();
        loop {
            let can = |&at: &usize| {
                self.steps[at]
                    .inputs
                    .iter()
                    .all(|(_, tensor)| there[*tensor])
            };
            let (ready, rest): (Vec<usize>, Vec<usize>) = waiting.iter().partition(|at| can(at));
            for (_, tensor) in ready.iter().flat_map(|&at| &self.steps[at].outputs) {
                there[*tensor] = true;
            }
            match (ready.is_empty(), rest.first()) {
                (_, None) => return Ok(()),
                (true, Some(&first)) => return Err(self.circle(plan, made, &there, first)),
                (false, Some(_)) => waiting = rest,
            }
        }
    }

    /// Names a circle: from a step that has no turn, back to who makes what it lacks, until a step comes twice.
    fn circle(&self, plan: &EnsemblePlan, made: &Made<'_>, there: &[bool], from: usize) -> String {
        let lacks = |at: usize| {
            let inputs = plan.steps.get(at).map(|step| step.inputs.iter());
            inputs.into_iter().flatten().find_map(|(_, name)| {
                let (tensor, maker) = made.get(name.as_str())?;
                (!there[*tensor]).then_some((name.as_str(), *maker))
            })
        };
        let (mut at, mut seen) = (from, Vec::new());
        while let Some((_, Maker::Step(maker))) = lacks(at).filter(|_| !seen.contains(&at)) {
            seen.push(at);
            at = maker;
        }
        let name = lacks(at).map_or("", |(name, _)| name);
        let problem = format!("`{name}` is made of what this step makes itself: a circle");
        plan.in_step(at, ("input_map", name), &problem)
    }
}

impl Step {
    /// Joins one step.
    fn wire(plan: &EnsemblePlan, at: usize, made: &Made<'_>) -> Result<Step, String> {
        let find = |(own, name): &(String, String)| match made.get(name.as_str()) {
            Some((tensor, _)) => Ok((own.clone(), *tensor)),
            None => {
                let problem = format!("nobody makes `{name}`");
                Err(plan.in_step(at, ("input_map", name), &problem))
            }
        };
        let step = &plan.steps[at];
        Ok(Step {
            inputs: step.inputs.iter().map(find).collect::<Result<_, _>>()?,
            outputs: step.outputs.iter().map(find).collect::<Result<_, _>>()?,
        })
    }

    fn takes(&self, tensor: usize) -> bool {
        self.inputs.iter().any(|(_, taken)| *taken == tensor)
    }

    /// Whether something that it makes is used.
    fn gives(&self, uses: &[usize]) -> bool {
        self.outputs.iter().any(|(_, tensor)| uses[*tensor] > 0)
    }
}

/// Whether the file has everything that an ensemble needs, step by step.
fn whole(plan: &EnsemblePlan) -> Result<(), String> {
    if plan.steps.is_empty() {
        return Err(plan.in_whole("ensemble_scheduling: it has no step"));
    }
    for (side, tensors) in [("input", &plan.inputs), ("output", &plan.outputs)] {
        if tensors.is_empty() {
            return Err(format!(
                "{side}: an ensemble says what it takes and gives; expected `{side} {{ name data_type dims }}`"
            ));
        }
        for (at, tensor) in tensors.iter().enumerate() {
            let problem = match tensor.reshape {
                Some(_) => "reshape: an ensemble hands tensors on as they are",
                None if tensor.datatype.is_none() && !tensor.dims.is_empty() => {
                    "data_type is missing; expected it beside dims, or neither"
                }
                None => continue,
            };
            return Err(match side {
                "input" => plan.in_input(at, problem),
                _ => plan.in_output(at, problem),
            });
        }
    }
    for (at, step) in plan.steps.iter().enumerate() {
        let missing = [
            ("model_name", step.model.is_empty()),
            ("input_map", step.inputs.is_empty()),
            ("output_map", step.outputs.is_empty()),
        ];
        if let Some((field, _)) = missing.iter().find(|(_, missing)| *missing) {
            return Err(plan.in_step(at, ("step", field), &format!("{field} is missing")));
        }
    }
    Ok(())
}

/// Notes who makes a tensor; says who does already.
fn add<'a>(made: &mut Made<'a>, name: &'a str, maker: Maker) -> Option<Maker> {
    let number = made.len();
    made.insert(name, (number, maker)).map(|(_, before)| before)
}

/// All tensors, each made once.
fn made(plan: &EnsemblePlan) -> Result<Made<'_>, String> {
    let mut made = Made::new();
    let who = |maker| match maker {
        Maker::Client => "is an input of the ensemble".to_owned(),
        Maker::Step(step) => format!("is made by step {} already", step + 1),
    };
    for (at, input) in plan.inputs.iter().enumerate() {
        if add(&mut made, &input.name, Maker::Client).is_some() {
            return Err(plan.in_input(at, "it is there twice"));
        }
    }
    for (at, step) in plan.steps.iter().enumerate() {
        for (_, name) in &step.outputs {
            if let Some(before) = add(&mut made, name, Maker::Step(at)) {
                let problem = format!("`{name}` {}", who(before));
                return Err(plan.in_step(at, ("output_map", name), &problem));
            }
        }
    }
    let twice = |(at, output): &(usize, &Declared)| {
        let before = plan.outputs.iter().take(*at);
        before.into_iter().any(|other| other.name == output.name)
    };
    match plan.outputs.iter().enumerate().find(twice) {
        Some((at, _)) => Err(plan.in_output(at, "it is there twice")),
        None => Ok(made),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::{self, Engine};
    use crate::tensor::{Axis, Datatype, Elements, Signature, Tensor, TensorSpec};
    use crate::units::ModelName;

    /// Texts to ids, ids to labels.
    const TWO: &str = r#"max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: 1 } ]
output [ { name: "label" data_type: TYPE_STRING dims: 1 } ]
ensemble_scheduling {
  step [
    { model_name: "tokens"
      input_map { key: "text" value: "TEXT" }
      output_map { key: "ids" value: "ids" } },
    { model_name: "names"
      input_map { key: "ids" value: "ids" }
      output_map { key: "name" value: "label" } }
  ]
}"#;

    /// Changes to [`TWO`] that make it wrong, each with the place and the words that it is told by.
    const MISTAKES: [(&str, &str, &str, &str); 15] = [
        (
            "value: \"TEXT\"",
            "value: \"TXET\"",
            "line 7, column 38",
            "step 1, `tokens`: nobody makes `TXET`",
        ),
        (
            "value: \"label\"",
            "value: \"ids\"",
            "line 11, column 39",
            "`ids` is made by step 1 already",
        ),
        (
            "value: \"label\"",
            "value: \"TEXT\"",
            "line 11",
            "`TEXT` is an input of the ensemble",
        ),
        (
            "name: \"label\"",
            "name: \"lable\"",
            "line 3, column 18",
            "output `lable`: no step makes it",
        ),
        (
            "name: \"label\"",
            "name: \"TEXT\"",
            "line 3",
            "output `TEXT`: no step makes it",
        ),
        (
            "dims: 1 } ]\noutput",
            "dims: 1 }, { name: \"more\" } ]\noutput",
            "line 2",
            "input `more`: no step takes it",
        ),
        (
            "dims: 1 } ]\noutput",
            "dims: 1 }, { name: \"TEXT\" } ]\noutput",
            "line 2",
            "it is there twice",
        ),
        (
            "dims: 1 } ]\nens",
            "dims: 1 }, { name: \"label\" } ]\nens",
            "line 3",
            "it is there twice",
        ),
        (
            "value: \"TEXT\" }",
            "value: \"TEXT\" } input_map { key: \"more\" value: \"label\" }",
            "line 7",
            "step 1, `tokens`: `label` is made of what this step makes itself",
        ),
        (
            "model_name: \"names\"",
            "",
            "line 9",
            "step 2, ``: model_name is missing",
        ),
        (
            "input_map { key: \"ids\" value: \"ids\" }",
            "",
            "line 9",
            "`names`: input_map is missing",
        ),
        (
            "output_map { key: \"name\" value: \"label\" }",
            "",
            "line 9",
            "`names`: output_map is missing",
        ),
        (
            "dims: 1 } ]\noutput",
            "dims: 1 reshape { shape: 1 } } ]\noutput",
            "line 2",
            "reshape",
        ),
        (
            "data_type: TYPE_STRING dims: 1 } ]\nens",
            "dims: 1 } ]\nens",
            "line 3",
            "data_type is missing",
        ),
        (
            "output [ { name: \"label\" data_type: TYPE_STRING dims: 1 } ]",
            "",
            "output: an ensemble says",
            "takes and gives",
        ),
    ];

    fn plan(text: &str) -> EnsemblePlan {
        let models = tempfile::tempdir().unwrap();
        std::fs::create_dir(models.path().join("m")).unwrap();
        std::fs::write(models.path().join("m/config.pbtxt"), text).unwrap();
        let plan = repository::plan(models.path(), &ModelName::new("m")).unwrap();
        match plan.engine {
            Engine::Ensemble(plan) => plan,
            other => panic!("no ensemble: {other:?}"),
        }
    }

    fn spec(name: &str, datatype: Datatype, rest: Axis) -> TensorSpec {
        let axes = vec![Axis::Free("n".into()), rest];
        TensorSpec {
            name: name.into(),
            datatype,
            axes,
        }
    }

    /// The members of [`TWO`], with the most rows that they take.
    type Members = [(Signature, Option<usize>); 2];

    fn members() -> Members {
        let any = || Axis::Free(String::new());
        let tokens = Signature {
            inputs: vec![spec("text", Datatype::Bytes, Axis::Fixed(1))],
            outputs: vec![spec("ids", Datatype::Int64, any())],
        };
        let names = Signature {
            inputs: vec![spec("ids", Datatype::Int64, any())],
            outputs: vec![spec("name", Datatype::Bytes, Axis::Fixed(1))],
        };
        [(tokens, None), (names, Some(8))]
    }

    fn fit(text: &str, members: &Members) -> Result<Signature, String> {
        let plan = plan(text);
        let facts = members.each_ref().map(|(signature, most_rows)| Member {
            signature,
            most_rows: *most_rows,
        });
        Graph::wire(&plan)?.fit(&plan, &facts)
    }

    #[test]
    fn clients_see_what_the_file_declares_or_else_what_the_members_say() {
        let seen = fit(TWO, &members()).unwrap();
        assert!(seen.batches());
        assert_eq!(seen.inputs[0].name, "TEXT");
        assert_eq!(seen.inputs[0].kserve_shape(), [-1, 1]);
        assert_eq!(seen.outputs[0].datatype, Datatype::Bytes);
        let bare = TWO.replace(" data_type: TYPE_STRING dims: 1", "");
        assert_eq!(fit(&bare, &members()), Ok(seen));
        let whole = TWO
            .replace("max_batch_size: 8", "max_batch_size: 0")
            .replace("dims: 1", "dims: [ -1, 1 ]");
        let seen = fit(&whole, &members()).unwrap();
        assert_eq!(seen.inputs[0].kserve_shape(), [-1, 1]);
        assert!(!seen.batches());
    }

    #[test]
    fn every_mistake_in_the_file_is_named_with_its_line() {
        for (from, to, place, words) in MISTAKES {
            assert_eq!(TWO.matches(from).count(), 1, "{from:?} is not one place");
            let said = Graph::wire(&plan(&TWO.replace(from, to))).unwrap_err();
            assert!(
                said.starts_with(place) && said.contains(words),
                "{place}, {words}: {said}"
            );
        }
        let empty = TWO.split("  step").next().unwrap().to_owned() + "}";
        let said = Graph::wire(&plan(&empty)).unwrap_err();
        assert!(
            said.starts_with("line 4, column 1: ensemble_scheduling: it has no step"),
            "{said}"
        );
    }

    #[test]
    fn every_misfit_of_a_member_is_named_with_its_line() {
        for (from, to, place, words) in [
            (
                "key: \"text\"",
                "key: \"texts\"",
                "line 7, column 24",
                "`tokens`: it has no input `texts`; it has `text`",
            ),
            (
                "key: \"name\"",
                "key: \"names\"",
                "line 11",
                "`names`: it has no output `names`; it has `name`",
            ),
            (
                "dims: 1 } ]\noutput",
                "dims: 2 } ]\noutput",
                "line 7",
                "`TEXT` of the ensemble is BYTES [-1, 2], `text` of `tokens` is BYTES [-1, 1]",
            ),
            (
                "TYPE_STRING dims: 1 } ]\noutput",
                "TYPE_INT8 dims: 1 } ]\noutput",
                "line 7",
                "`TEXT` of the ensemble is INT8",
            ),
            (
                "dims: 1 } ]\nens",
                "dims: [ 1, 1 ] } ]\nens",
                "line 3",
                "`label` of the ensemble is BYTES [-1, 1, 1]",
            ),
            (
                "max_batch_size: 8",
                "max_batch_size: 9",
                "line 9",
                "takes at most 8 rows, the ensemble 9",
            ),
        ] {
            assert_eq!(TWO.matches(from).count(), 1, "{from:?} is not one place");
            let said = fit(&TWO.replace(from, to), &members()).unwrap_err();
            assert!(
                said.starts_with(place) && said.contains(words),
                "{place}, {words}: {said}"
            );
        }
        let with = |change: &dyn Fn(&mut Members)| {
            let mut members = members();
            change(&mut members);
            fit(TWO, &members).unwrap_err()
        };
        let more = spec("mask", Datatype::Int64, Axis::Fixed(1));
        let said = with(&|members| members[1].0.inputs.push(more.clone()));
        assert!(
            said.starts_with("line 10") && said.contains("`mask` is missing in input_map"),
            "{said}"
        );
        let said = with(&|members| members[0].0.outputs[0].datatype = Datatype::Fp32);
        assert!(
            said.starts_with("line 10")
                && said.contains("`ids` of `tokens` is FP32 [-1, -1], `ids` of `names` is INT64"),
            "{said}"
        );
        let said = with(&|members| drop(members[0].0.outputs[0].axes.pop()));
        assert!(said.contains("`ids` of `tokens` is INT64 [-1], "), "{said}");
        let said = with(&|members| members[0].0.outputs[0].axes[0] = Axis::Fixed(1));
        assert!(
            said.contains("its `ids` has shape [1, -1]; expected -1 first"),
            "{said}"
        );
    }

    /// `a` feeds `b` and `c`, which `d` joins; `e` stands apart.
    fn diamond() -> Graph {
        let step = |model: &str, inputs: &str, outputs: &str| {
            let map = |field: &str, names: &str| {
                let one = |name| format!("{field} {{ key: \"{name}\" value: \"{name}\" }} ");
                names.split(' ').map(one).collect::<String>()
            };
            let (inputs, outputs) = (map("input_map", inputs), map("output_map", outputs));
            format!("step {{ model_name: \"{model}\" {inputs} {outputs} }} ")
        };
        let steps = [
            step("d", "left right", "sum"),
            step("b", "first", "left"),
            step("c", "first x", "right unused"),
            step("a", "x", "first"),
            step("e", "x", "apart"),
        ];
        let text = format!(
            "input {{ name: \"x\" }} output [ {{ name: \"sum\" }}, {{ name: \"apart\" }}, {{ name: \"first\" }} ] \
             ensemble_scheduling {{ {} }}",
            steps.concat()
        );
        Graph::wire(&plan(&text)).unwrap()
    }

    fn number(value: i64) -> Tensor {
        Tensor::new(vec![1], Elements::Int64(vec![value])).unwrap()
    }

    #[test]
    fn steps_run_as_soon_as_they_can_and_only_if_they_are_needed() {
        let graph = diamond();
        let mut progress = graph.begin(vec![number(1)], &[0, 2]);
        let mut run = |expected: &[usize], outputs: &[&[(&str, i64)]]| {
            let calls = progress.ready();
            let steps: Vec<usize> = calls.iter().map(|call| call.step).collect();
            assert_eq!(steps, expected);
            assert!(progress.ready().is_empty(), "a step was given twice");
            for (call, outputs) in calls.iter().zip(outputs) {
                let names: Vec<&str> = outputs.iter().map(|(name, _)| *name).collect();
                assert_eq!(call.outputs, names);
                let named = |(name, value): &(&str, i64)| ((*name).to_owned(), number(*value));
                progress.done(call.step, outputs.iter().map(named));
            }
            calls
                .into_iter()
                .flat_map(|call| call.inputs)
                .collect::<Vec<_>>()
        };
        assert_eq!(run(&[3], &[&[("first", 2)]]), [("x", number(1))]);
        run(&[1, 2], &[&[("left", 3)], &[("right", 4)]]);
        let joined = run(&[0], &[&[("sum", 7)]]);
        assert_eq!(joined, [("left", number(3)), ("right", number(4))]);
        assert_eq!(progress.finish(), Some(vec![number(7), number(2)]));
    }

    #[test]
    fn a_step_that_runs_always_has_what_it_needs_made() {
        // Nobody wants the sum of step 1, `d`, which needs all but the last.
        let graph = diamond().always(vec![0]);
        let mut progress = graph.begin(vec![number(1)], &[1]);
        let mut begun = Vec::new();
        loop {
            let calls = progress.ready();
            if calls.is_empty() {
                break;
            }
            for call in calls {
                begun.push(call.step);
                let names: Vec<String> = match call.step {
                    0 => vec![],
                    step => {
                        let made = graph.steps[step].outputs.iter();
                        made.map(|(name, _)| name.clone()).collect()
                    }
                };
                let outputs = names.into_iter().map(|name| (name, number(2)));
                progress.done(call.step, outputs);
            }
        }
        assert_eq!(begun, [3, 4, 1, 2, 0]);
        assert_eq!(progress.finish(), Some(vec![number(2)]));
    }

    #[test]
    fn a_step_that_gave_nothing_leaves_the_request_without_its_output() {
        let graph = diamond();
        let mut progress = graph.begin(vec![number(1)], &[1]);
        let calls = progress.ready();
        assert_eq!(calls.len(), 1);
        progress.done(calls[0].step, std::iter::empty());
        assert!(progress.ready().is_empty());
        assert_eq!(progress.finish(), None);
    }
}
