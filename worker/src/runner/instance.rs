//! The thread of one instance: takes batches from the model's line and runs them on its own engine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Job, Outcome, Ran, Shared, answer_to};
use crate::batch::{Item, Next, Order};
use crate::engine::Engine;
use crate::fault::{Fault, Kind};
use crate::observe::Spans;
use crate::tensor::Tensor;
use crate::units::Seconds;

/// The thread of the instance of this number: waits for a batch, runs it, until told to stop and nothing waits.
pub fn work(shared: &Shared, number: usize, mut engine: Box<dyn Engine>, batches: bool) {
    let halt = engine.halt();
    while let Some((batch, ticket)) = next_batch(shared, number) {
        let wanted = |item: &Item<Job>| !item.load.reply.is_closed();
        let batch: Vec<Item<Job>> = batch.into_iter().filter(wanted).collect();
        let mut held = Vec::new();
        let mut give = |job, outcome| match ticket {
            Some(_) => held.push((job, outcome)),
            None => answer_to(job, outcome),
        };
        if !batch.is_empty() {
            let ran = run(shared, engine.as_mut(), batch, batches, &mut give);
            // How long it took until it was ended says nothing of how fast the engine is.
            if !halt.pulled() {
                let Took {
                    rows,
                    work,
                    items,
                    span,
                } = ran;
                shared.state.lock().batcher.ran(rows, work, items, span);
            }
        }
        if let Some(ticket) = ticket {
            shared.release(ticket, held);
        }
    }
}

/// What a batch was and how long it took.
struct Took {
    rows: usize,
    work: usize,
    items: usize,
    span: Seconds,
}

/// Runs a batch.
fn run(
    shared: &Shared,
    engine: &mut dyn Engine,
    batch: Vec<Item<Job>>,
    batches: bool,
    give: &mut dyn FnMut(Job, Result<Ran, Fault>),
) -> Took {
    let rows: usize = batch.iter().map(|item| item.rows).sum();
    let work = batch.iter().map(|item| item.work).sum();
    let items = batch.len();
    tracing::debug!(items, rows, "a batch begins");
    let start = shared.clock.now();
    run_batch(shared, engine, batch, batches, give);
    Took {
        rows,
        work,
        items,
        span: shared.clock.now() - start,
    }
}

/// What to run next, with its ticket where answers leave in order; `None` = nothing, ever.
fn next_batch(shared: &Shared, number: usize) -> Option<(Vec<Item<Job>>, Option<u64>)> {
    let mut state = shared.state.lock();
    loop {
        let now = shared.clock.now();
        shared.expire(&mut state, now);
        match state.batcher.next(now) {
            Next::Run(batch) => {
                let run = &mut state.runs[number];
                run.halt.rearm();
                run.clients = batch.iter().map(|item| item.load.client.clone()).collect();
                return Some((batch, state.order.as_mut().map(Order::take)));
            }
            Next::WaitUntil(then) => {
                shared.wake.wait_for(&mut state, (then - now).to_duration());
            }
            Next::Idle if state.stopping => return None,
            Next::Idle => shared.wake.wait(&mut state),
        }
    }
}

fn run_batch(
    shared: &Shared,
    engine: &mut dyn Engine,
    batch: Vec<Item<Job>>,
    batches: bool,
    give: &mut dyn FnMut(Job, Result<Ran, Fault>),
) {
    let start = shared.clock.now();
    if batch.len() > 1
        && let Some((answers, spans)) = run_joined(shared, engine, &batch)
    {
        for (item, outputs) in batch.into_iter().zip(answers) {
            let spans = since(&item.load, start, spans);
            let rows = item.rows;
            give(
                item.load,
                Ok(Ran {
                    outputs,
                    rows,
                    spans,
                }),
            );
        }
        return;
    }
    for item in batch {
        // Whoever has left since needs no run of its own.
        if item.load.client.strong_count() > 0 {
            let outcome = run_alone(shared, engine, &item, batches);
            give(item.load, outcome);
        }
    }
}

/// Runs one by itself.
fn run_alone(
    shared: &Shared,
    engine: &mut dyn Engine,
    item: &Item<Job>,
    batches: bool,
) -> Result<Ran, Fault> {
    let (start, rows) = (shared.clock.now(), item.rows);
    let mut outputs = guarded(engine, &item.load.inputs, &item.load.wanted)?;
    if batches {
        outputs = same_rows(outputs, rows)?;
    }
    let infer = shared.clock.now() - start;
    let spans = Spans {
        infer,
        ..Spans::default()
    };
    shared.tally.executed(rows, spans);
    let spans = since(&item.load, start, spans);
    Ok(Ran {
        outputs,
        rows,
        spans,
    })
}

/// The spans of a run that began at this time, for a request that had waited for it.
fn since(job: &Job, start: Seconds, run: Spans) -> Spans {
    let queue = start - job.since;
    Spans { queue, ..run }
}

/// Runs all at once and gives each its rows; `None` if that can't be done, for whatever reason.
fn run_joined(
    shared: &Shared,
    engine: &mut dyn Engine,
    batch: &[Item<Job>],
) -> Option<(Vec<Vec<Tensor>>, Spans)> {
    let first = &batch.first()?.load;
    let start = shared.clock.now();
    let inputs: Option<Vec<Tensor>> = (0..first.inputs.len())
        .map(|input| {
            let parts = batch.iter().map(|item| item.load.inputs[input].clone());
            Tensor::join(parts.collect())
        })
        .collect();
    let inputs = inputs?;
    let gathered = shared.clock.now();
    let outputs = guarded(engine, &inputs, &first.wanted).ok()?;
    let ran = shared.clock.now();
    let rows: Vec<usize> = batch.iter().map(|item| item.rows).collect();
    let mut answers = vec![Vec::with_capacity(outputs.len()); batch.len()];
    for output in outputs {
        for (answer, part) in answers.iter_mut().zip(output.split(&rows)?) {
            answer.push(part);
        }
    }
    let spans = Spans {
        queue: Seconds(0.0),
        input: gathered - start,
        infer: ran - gathered,
        output: shared.clock.now() - ran,
    };
    shared.tally.executed(rows.iter().sum(), spans);
    Some((answers, spans))
}

/// The outputs, if each has as many rows as the request.
fn same_rows(outputs: Vec<Tensor>, rows: usize) -> Outcome {
    match outputs.iter().find(|output| output.rows() != rows) {
        Some(output) => {
            let given = output.rows();
            let problem = format!("the model gave {given} rows for a request of {rows}");
            Err(Fault::new(Kind::EngineFailed, problem))
        }
        None => Ok(outputs),
    }
}

fn guarded(engine: &mut dyn Engine, inputs: &[Tensor], wanted: &[usize]) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| engine.run(inputs, wanted))).unwrap_or_else(|_| {
        let message = "the engine panicked on this request";
        Err(Fault::new(Kind::EngineFailed, message))
    })
}
