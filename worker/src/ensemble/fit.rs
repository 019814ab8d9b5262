//! Whether an ensemble fits its members, and what clients see of it then.

use super::{Graph, Step};
use crate::repository::{Declared, EnsemblePlan};
use crate::tensor::{Axis, Signature, TensorSpec};

/// The name of the batch axis of an ensemble's tensors.
const BATCH: &str = "batch";

/// What the check needs to know of a step's model.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// What it takes and gives.
    pub signature: &'a Signature,
    /// The most rows that it takes; absent or 0 = it does not say.
    pub most_rows: Option<usize>,
}

impl Graph {
    /// What clients see of it with these members, one for each step, or what does not fit.
    pub fn fit(&self, plan: &EnsemblePlan, members: &[Member<'_>]) -> Result<Signature, String> {
        let mut known: Vec<Option<Known>> = vec![None; self.tensors];
        for (at, (step, member)) in self.steps.iter().zip(members).enumerate() {
            step.check_names(plan, at, member)?;
            step.check_rows(plan, at, member)?;
            for (name, tensor) in &step.outputs {
                let spec = spec_of(&member.signature.outputs, name);
                known[*tensor] = spec.map(|spec| Known::of_step(plan, at, spec));
            }
        }
        for (input, &tensor) in plan.inputs.iter().zip(&self.inputs) {
            known[tensor] = Known::of_client(plan, input);
        }
        for (at, (step, member)) in self.steps.iter().zip(members).enumerate() {
            for (name, tensor) in &step.inputs {
                let Some(spec) = spec_of(&member.signature.inputs, name) else {
                    continue;
                };
                let taken = Known::of_step(plan, at, spec);
                let misfit = |why: String| plan.in_step(at, ("input_map", name), &why);
                match &known[*tensor] {
                    Some(made) => made.agrees(&taken).map_err(misfit)?,
                    None => known[*tensor] = Some(taken),
                }
            }
        }
        self.signature(plan, &known)
    }

    fn signature(&self, plan: &EnsemblePlan, known: &[Option<Known>]) -> Result<Signature, String> {
        let mut signature = Signature {
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        for (at, (input, &tensor)) in plan.inputs.iter().zip(&self.inputs).enumerate() {
            let spec = known[tensor].as_ref().map(|known| known.seen(plan, input));
            let unknown = || plan.in_input(at, "its type is not known");
            signature.inputs.push(spec.ok_or_else(unknown)?);
        }
        for (at, (output, &tensor)) in plan.outputs.iter().zip(&self.outputs).enumerate() {
            let unknown = || plan.in_output(at, "its type is not known");
            let made = known[tensor].as_ref().ok_or_else(unknown)?;
            if let Some(declared) = Known::of_client(plan, output) {
                let agreed = made.agrees(&declared);
                agreed.map_err(|why| plan.in_output(at, &why))?;
                signature.outputs.push(declared.seen(plan, output));
            } else {
                signature.outputs.push(made.seen(plan, output));
            }
        }
        Ok(signature)
    }
}

impl Step {
    /// Whether its model's tensors are named right and all that it takes is fed.
    fn check_names(
        &self,
        plan: &EnsemblePlan,
        at: usize,
        member: &Member<'_>,
    ) -> Result<(), String> {
        let sides = [
            ("input", "input_map", &self.inputs, &member.signature.inputs),
            (
                "output",
                "output_map",
                &self.outputs,
                &member.signature.outputs,
            ),
        ];
        for (side, field, mapped, specs) in sides {
            let strange = mapped
                .iter()
                .find(|(name, _)| spec_of(specs, name).is_none());
            if let Some((name, _)) = strange {
                let known: Vec<String> = specs
                    .iter()
                    .map(|spec| format!("`{}`", spec.name))
                    .collect();
                let known = known.join(", ");
                let problem = format!("it has no {side} `{name}`; it has {known}");
                return Err(plan.in_step(at, (field, name), &problem));
            }
        }
        let fed = |spec: &&TensorSpec| self.inputs.iter().any(|(name, _)| *name == spec.name);
        match member.signature.inputs.iter().find(|spec| !fed(spec)) {
            Some(TensorSpec { name, .. }) => {
                let problem = format!("its input `{name}` is missing in input_map");
                Err(plan.in_step(at, ("step", "input_map"), &problem))
            }
            None => Ok(()),
        }
    }

    /// Whether its model takes as many rows as the ensemble, where that has rows.
    fn check_rows(
        &self,
        plan: &EnsemblePlan,
        at: usize,
        member: &Member<'_>,
    ) -> Result<(), String> {
        let rows = plan.most_rows;
        if let Some(most) = member.most_rows.filter(|most| (1..rows).contains(most)) {
            let problem =
                format!("it takes at most {most} rows, the ensemble {rows} (max_batch_size)");
            return Err(plan.in_step(at, ("step", "model_name"), &problem));
        }
        let named = |(name, _): &(String, usize)| {
            let signature = member.signature;
            let input = spec_of(&signature.inputs, name);
            input.or_else(|| spec_of(&signature.outputs, name)).cloned()
        };
        let specs = self.inputs.iter().chain(&self.outputs).filter_map(named);
        let no_rows = |spec: &TensorSpec| !matches!(spec.axes.first(), Some(Axis::Free(_)));
        match specs.into_iter().find(|spec| rows > 0 && no_rows(spec)) {
            Some(spec) => {
                let (name, shape) = (&spec.name, spec.kserve_shape());
                let problem = format!(
                    "its `{name}` has shape {shape:?}; expected -1 first, or max_batch_size: 0"
                );
                Err(plan.in_step(at, ("step", name), &problem))
            }
            None => Ok(()),
        }
    }
}

fn spec_of<'a>(specs: &'a [TensorSpec], name: &str) -> Option<&'a TensorSpec> {
    specs.iter().find(|spec| spec.name == name)
}

/// What is known of a tensor, and from whom.
#[derive(Clone, Debug)]
struct Known {
    spec: TensorSpec,
    whose: String,
}

impl Known {
    fn of_step(plan: &EnsemblePlan, at: usize, spec: &TensorSpec) -> Known {
        let model = plan.steps.get(at).map_or("", |step| step.model.as_str());
        Known {
            spec: spec.clone(),
            whose: format!("`{}` of `{model}`", spec.name),
        }
    }

    /// What the file declares of a tensor that clients see; nothing where it leaves that to the members.
    fn of_client(plan: &EnsemblePlan, declared: &Declared) -> Option<Known> {
        let datatype = declared.datatype?;
        let size =
            |&size: &i64| usize::try_from(size).map_or(Axis::Free(String::new()), Axis::Fixed);
        let axes = batch(plan)
            .into_iter()
            .chain(declared.dims.iter().map(size));
        let name = declared.name.clone();
        Some(Known {
            whose: format!("`{name}` of the ensemble"),
            spec: TensorSpec {
                name,
                datatype,
                axes: axes.collect(),
            },
        })
    }

    /// Whether who makes a tensor and who takes it can mean the same.
    fn agrees(&self, other: &Known) -> Result<(), String> {
        let (ours, theirs) = (&self.spec, &other.spec);
        let axes = ours.axes.iter().zip(&theirs.axes);
        let differs =
            |(a, b): (&Axis, &Axis)| matches!((a, b), (Axis::Fixed(a), Axis::Fixed(b)) if a != b);
        let alike = ours.datatype == theirs.datatype && ours.axes.len() == theirs.axes.len();
        if alike && !axes.into_iter().any(differs) {
            return Ok(());
        }
        let told = |known: &Known| {
            let TensorSpec { datatype, .. } = known.spec;
            format!(
                "{} is {datatype} {:?}",
                known.whose,
                known.spec.kserve_shape()
            )
        };
        Err(format!("{}, {}", told(self), told(other)))
    }

    /// As clients see it: by the ensemble's name, and without the names of axes, which are each member's own.
    fn seen(&self, plan: &EnsemblePlan, declared: &Declared) -> TensorSpec {
        let plain = |axis: &Axis| match axis {
            Axis::Fixed(size) => Axis::Fixed(*size),
            Axis::Free(_) => Axis::Free(String::new()),
        };
        let batch = batch(plan);
        let rest = self.spec.axes.iter().skip(usize::from(batch.is_some()));
        TensorSpec {
            name: declared.name.clone(),
            datatype: self.spec.datatype,
            axes: batch.into_iter().chain(rest.map(plain)).collect(),
        }
    }
}

/// The first axis of every tensor that clients see, where they count rows.
fn batch(plan: &EnsemblePlan) -> Option<Axis> {
    (plan.most_rows > 0).then(|| Axis::Free(BATCH.to_owned()))
}
