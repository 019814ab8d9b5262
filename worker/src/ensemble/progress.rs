//! A request on its way through an ensemble: which tensors are there, who still needs them, and which steps may run.

use super::Graph;
use crate::tensor::Tensor;

impl Graph {
    /// Begins a request: its inputs, and the places of the outputs that are wanted.
    pub fn begin(&self, inputs: Vec<Tensor>, wanted: &[usize]) -> Progress<'_> {
        let wanted: Vec<usize> = wanted.iter().map(|&place| self.outputs[place]).collect();
        let mut uses = vec![0; self.tensors];
        wanted.iter().for_each(|&tensor| uses[tensor] += 1);
        let mut idle = vec![true; self.steps.len()];
        // A step that turns out to be needed may make others needed, never the other way round: there are no circles.
        loop {
            let wanted = |at: usize| self.always.contains(&at) || self.steps[at].gives(&uses);
            let needed = |&at: &usize| idle[at] && wanted(at);
            let Some(at) = (0..self.steps.len()).find(needed) else {
                break;
            };
            idle[at] = false;
            self.steps[at]
                .inputs
                .iter()
                .for_each(|(_, tensor)| uses[*tensor] += 1);
        }
        let mut held: Vec<Option<Tensor>> = vec![None; self.tensors];
        for (&tensor, input) in self.inputs.iter().zip(inputs) {
            held[tensor] = Some(input);
        }
        let waiting = (0..self.steps.len()).filter(|&at| !idle[at]).collect();
        Progress {
            graph: self,
            held,
            uses,
            waiting,
            wanted,
        }
    }
}

/// A request on its way through the steps.
pub struct Progress<'a> {
    graph: &'a Graph,
    /// The tensors that are there and still needed.
    held: Vec<Option<Tensor>>,
    /// How often each is still needed.
    uses: Vec<usize>,
    /// The steps that have not begun.
    waiting: Vec<usize>,
    wanted: Vec<usize>,
}

/// A step that can run now.
pub struct Call<'a> {
    /// Which one.
    pub step: usize,
    /// What it gets, by its model's names.
    pub inputs: Vec<(&'a str, Tensor)>,
    /// What of it is needed, by its model's names; nothing where it runs for its own sake.
    pub outputs: Vec<&'a str>,
}

impl<'a> Progress<'a> {
    /// The steps whose inputs are there, each once.
    pub fn ready(&mut self) -> Vec<Call<'a>> {
        let graph = self.graph;
        let can = |at: &usize| {
            let inputs = graph.steps[*at].inputs.iter();
            inputs
                .into_iter()
                .all(|(_, tensor)| self.held[*tensor].is_some())
        };
        let (ready, waiting) = self.waiting.iter().partition(|at| can(at));
        self.waiting = waiting;
        let ready: Vec<usize> = ready;
        ready.into_iter().map(|at| self.call(at)).collect()
    }

    fn call(&mut self, at: usize) -> Call<'a> {
        let step = &self.graph.steps[at];
        let needed = step
            .outputs
            .iter()
            .filter(|(_, tensor)| self.uses[*tensor] > 0);
        let outputs = needed.map(|(name, _)| name.as_str()).collect();
        let inputs = step.inputs.iter();
        let inputs = inputs.filter_map(|(name, tensor)| Some((name.as_str(), self.take(*tensor)?)));
        Call {
            step: at,
            inputs: inputs.collect(),
            outputs,
        }
    }

    /// Takes note of what a step gave of what was needed, by its model's names.
    pub fn done(&mut self, step: usize, outputs: impl Iterator<Item = (String, Tensor)>) {
        for (name, tensor) in outputs {
            let own = self.graph.steps[step].outputs.iter();
            let places = own
                .filter(|(own, _)| *own == name)
                .map(|(_, tensor)| *tensor);
            for place in places {
                self.held[place] = (self.uses[place] > 0).then(|| tensor.clone());
            }
        }
    }

    /// The wanted outputs, in order; `None` if one of them never came.
    pub fn finish(mut self) -> Option<Vec<Tensor>> {
        let wanted = std::mem::take(&mut self.wanted);
        wanted.into_iter().map(|tensor| self.take(tensor)).collect()
    }

    /// A tensor for one of those who need it; the last gets the one that is there.
    fn take(&mut self, tensor: usize) -> Option<Tensor> {
        self.uses[tensor] = self.uses[tensor].saturating_sub(1);
        match self.uses[tensor] {
            0 => self.held[tensor].take(),
            _ => self.held[tensor].clone(),
        }
    }
}
