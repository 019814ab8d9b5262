//! A thread per model instance, each owning an engine; all of a model's take from one line what `batch.rs` tells them to.
//!
//! Guarantees: what waits is bounded and the next one is told Busy with the time to come back; a request whose client
//! has gone is dropped before it runs; requests joined into a batch get their own rows back, and when a batch fails
//! each is run alone, so that one bad row spoils no neighbour's answer; an answer with other rows than its request is
//! a failure, never handed out; a panic in an engine is one failed request.
//!
//! A request whose time in line is over is answered at that moment, by a timer of its own. (Triton 2.51 notices when
//! an instance next comes free: 0.8 s late was seen for a timeout of 0.1 s.)

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::batch::{Batcher, Item, Limits, Next, Urgency};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::fault::{Fault, Kind};
use crate::observe::{Spans, Tally};
use crate::tensor::Tensor;
use crate::units::Seconds;

/// What a run gives: the wanted outputs, in order.
type Outcome = Result<Vec<Tensor>, Fault>;

/// What a request gets: its outputs, the rows that were computed for it, and where its time went.
#[derive(Debug, PartialEq)]
pub struct Ran {
    /// The wanted outputs, in order.
    pub outputs: Vec<Tensor>,
    /// Its rows.
    pub rows: usize,
    /// Its time; of a run that it shared, all of it.
    pub spans: Spans,
}

struct Job {
    inputs: Vec<Tensor>,
    wanted: Vec<usize>,
    since: Seconds,
    reply: oneshot::Sender<Result<Ran, Fault>>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    clock: Clock,
    tally: Arc<Tally>,
}

struct State {
    batcher: Batcher<Job>,
    stopping: bool,
}

/// A model's instances, which take requests. Dropping it lets what waits finish, then ends the threads.
pub struct Runner {
    shared: Arc<Shared>,
    batches: bool,
    threads: Vec<JoinHandle<()>>,
}

impl Runner {
    /// Starts a thread around each engine; they are instances of one model.
    pub fn start(
        engines: Vec<Box<dyn Engine>>,
        limits: Limits,
        clock: Clock,
        tally: Arc<Tally>,
    ) -> std::io::Result<Runner> {
        let batches = engines.iter().all(|engine| engine.signature().batches());
        let rows = if batches { limits.rows } else { 1 };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                batcher: Batcher::new(Limits { rows, ..limits }),
                stopping: false,
            }),
            wake: Condvar::new(),
            clock,
            tally,
        });
        let mut runner = Runner {
            shared,
            batches,
            threads: Vec::with_capacity(engines.len()),
        };
        for engine in engines {
            let theirs = Arc::clone(&runner.shared);
            let thread = std::thread::Builder::new().name("model".into());
            let thread = thread.spawn(move || work(&theirs, engine, batches))?;
            runner.threads.push(thread);
        }
        Ok(runner)
    }

    /// Runs these inputs, now or in turn. Dropping the future takes the request back unless it already runs.
    pub async fn run(
        &self,
        inputs: Vec<Tensor>,
        wanted: Vec<usize>,
        urgency: Urgency,
    ) -> Result<Ran, Fault> {
        let (reply, mut answer) = oneshot::channel();
        let now = self.shared.clock.now();
        let job = Job {
            inputs,
            wanted,
            since: now,
            reply,
        };
        let patience = self.submit(self.item(job, urgency), now)?;
        self.shared.wake.notify_one();
        let ended = |_| {
            let message = "the model's thread has ended";
            Err(Fault::new(Kind::EngineFailed, message))
        };
        if let Some(patience) = patience {
            tokio::select! {
                outcome = &mut answer => return outcome.unwrap_or_else(ended),
                () = tokio::time::sleep(patience.to_duration()) => {
                    let now = self.shared.clock.now();
                    self.shared.expire(&mut self.shared.state.lock(), now);
                }
            }
        }
        answer.await.unwrap_or_else(ended)
    }

    /// Puts an item into the queue and says for how long it may wait. Requests whose clients have left count only as
    /// long as nobody needs their place.
    fn submit(&self, item: Item<Job>, now: Seconds) -> Result<Option<Seconds>, Fault> {
        let batcher = &mut self.shared.state.lock().batcher;
        let mut offered = batcher.offer(item, now);
        if let Err(item) = offered {
            batcher.retain(|job| !job.reply.is_closed());
            offered = batcher.offer(item, now);
        }
        match offered {
            Ok(until) => Ok(until.map(|until| until - now)),
            Err(_) => {
                let full = "as many requests wait for this model as may";
                Err(Fault::new(Kind::Busy, full).retry_after(comeback(batcher)))
            }
        }
    }

    /// How many wait for their run and are still wanted.
    pub fn pending(&self) -> usize {
        let state = self.shared.state.lock();
        state.batcher.count(|job| !job.reply.is_closed())
    }

    fn item(&self, job: Job, urgency: Urgency) -> Item<Job> {
        let shapes = job.inputs.iter().flat_map(|tensor| {
            let width = tensor.shape().iter().skip(1).copied();
            std::iter::once(tensor.shape().len()).chain(width)
        });
        let rows = match job.inputs.first() {
            Some(first) if self.batches => first.rows(),
            _ => 1,
        };
        Item {
            shape: shapes.chain(job.wanted.iter().copied()).collect(),
            rows,
            work: job
                .inputs
                .iter()
                .map(|tensor| tensor.elements().len())
                .sum(),
            urgency,
            load: job,
        }
    }
}

impl Shared {
    /// Refuses whoever has waited for too long.
    fn expire(&self, state: &mut State, now: Seconds) {
        let overdue = state.batcher.expire(now);
        if overdue.is_empty() {
            return;
        }
        let message = "the request waited in line for as long as this model lets it";
        let wait = comeback(&state.batcher);
        let fault = Fault::new(Kind::QueueTimeout, message).retry_after(wait);
        for job in overdue {
            answer_to(job, Err(fault.clone()));
        }
    }
}

/// When it makes sense to ask again.
fn comeback(batcher: &Batcher<Job>) -> Seconds {
    Seconds(batcher.backlog().0.clamp(1.0, 60.0))
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // An error here is a panic that was already answered; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

/// The thread: waits for a batch, runs it, until told to stop and nothing waits.
fn work(shared: &Shared, mut engine: Box<dyn Engine>, batches: bool) {
    while let Some(batch) = next_batch(shared) {
        let batch: Vec<Item<Job>> = batch
            .into_iter()
            .filter(|item| !item.load.reply.is_closed())
            .collect();
        if batch.is_empty() {
            continue;
        }
        let rows: usize = batch.iter().map(|item| item.rows).sum();
        let work = batch.iter().map(|item| item.work).sum();
        let items = batch.len();
        tracing::debug!(items, rows, "a batch begins");
        let start = shared.clock.now();
        run_batch(shared, engine.as_mut(), batch, batches);
        let took = shared.clock.now() - start;
        shared.state.lock().batcher.ran(rows, work, items, took);
    }
}

fn next_batch(shared: &Shared) -> Option<Vec<Item<Job>>> {
    let mut state = shared.state.lock();
    loop {
        let now = shared.clock.now();
        shared.expire(&mut state, now);
        match state.batcher.next(now) {
            Next::Run(batch) => return Some(batch),
            Next::WaitUntil(then) => {
                shared.wake.wait_for(&mut state, (then - now).to_duration());
            }
            Next::Idle if state.stopping => return None,
            Next::Idle => shared.wake.wait(&mut state),
        }
    }
}

fn run_batch(shared: &Shared, engine: &mut dyn Engine, batch: Vec<Item<Job>>, batches: bool) {
    let start = shared.clock.now();
    if batch.len() > 1
        && let Some((answers, spans)) = run_joined(shared, engine, &batch)
    {
        for (item, outputs) in batch.into_iter().zip(answers) {
            let spans = since(&item.load, start, spans);
            let rows = item.rows;
            answer_to(
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
        let (start, rows) = (shared.clock.now(), item.rows);
        let outcome = guarded(engine, &item.load.inputs, &item.load.wanted);
        let outcome = match outcome {
            Ok(outputs) if batches => same_rows(outputs, rows),
            outcome => outcome,
        };
        let infer = shared.clock.now() - start;
        let spans = Spans {
            infer,
            ..Spans::default()
        };
        if outcome.is_ok() {
            shared.tally.executed(rows, spans);
        }
        let spans = since(&item.load, start, spans);
        answer_to(
            item.load,
            outcome.map(|outputs| Ran {
                outputs,
                rows,
                spans,
            }),
        );
    }
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

/// A client that left meanwhile does not hear it, which is as well.
fn answer_to(job: Job, outcome: Result<Ran, Fault>) {
    let _ = job.reply.send(outcome);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::batch::{Overdue, Policy};
    use crate::engine::echo::Echo;
    use crate::tensor::{Elements, Signature};

    /// An echo that reports the rows of each run, waits for a nod before it, and fails on a negative first element.
    struct Scripted {
        echo: Echo,
        began: Sender<usize>,
        nod: Receiver<()>,
    }

    impl Engine for Scripted {
        fn signature(&self) -> &Signature {
            self.echo.signature()
        }

        fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Outcome {
            self.began.send(inputs[0].rows()).unwrap();
            self.nod.recv().unwrap();
            let Elements::Fp32(values) = inputs[0].elements() else {
                panic!("not floats")
            };
            assert!(values.iter().all(|value| *value < 1e6), "a crash");
            match values.iter().find(|value| **value < 0.0) {
                Some(_) => Err(Fault::bad("negative")),
                None => self.echo.run(inputs, wanted),
            }
        }
    }

    fn scripted(waiting: usize) -> (Runner, Receiver<usize>, Sender<()>) {
        let (began, runs) = channel();
        let (nod, nods) = channel();
        let engine = Scripted {
            echo: Echo::new(),
            began,
            nod: nods,
        };
        let engines: Vec<Box<dyn Engine>> = vec![Box::new(engine)];
        let runner = start(engines, limits(waiting, None));
        (runner, runs, nod)
    }

    fn start(engines: Vec<Box<dyn Engine>>, limits: Limits) -> Runner {
        let clock = Clock::start();
        Runner::start(engines, limits, clock, Arc::new(Tally::new(clock))).unwrap()
    }

    fn limits(waiting: usize, timeout: Option<Seconds>) -> Limits {
        Limits {
            rows: 32,
            preferred: vec![],
            delay: Seconds(0.0),
            levels: vec![Policy {
                waiting,
                timeout,
                may_shorten: false,
                overdue: Overdue::Refuse,
            }],
            default_level: 0,
        }
    }

    fn row(value: f32) -> Vec<Tensor> {
        vec![Tensor::new(vec![1, 1], Elements::Fp32(vec![value])).unwrap()]
    }

    /// Runs to the outputs.
    async fn run(runner: &Runner, inputs: Vec<Tensor>) -> Outcome {
        let ran = runner.run(inputs, vec![0], Urgency::default()).await;
        ran.map(|ran| ran.outputs)
    }

    /// Begins a run whose future is kept, polled once so that it has been submitted.
    fn begin<'a>(
        runner: &'a Runner,
        value: f32,
    ) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + 'a>> {
        let mut future: std::pin::Pin<Box<dyn Future<Output = Outcome> + 'a>> =
            Box::pin(run(runner, row(value)));
        let waker = std::task::Waker::noop();
        let polled = future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(waker));
        match polled {
            std::task::Poll::Pending => future,
            std::task::Poll::Ready(outcome) => Box::pin(std::future::ready(outcome)),
        }
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn those_who_wait_share_a_batch_and_get_their_own_rows() {
        let (runner, runs, nod) = scripted(10);
        let first = begin(&runner, 1.0);
        assert_eq!(runs.recv().unwrap(), 1);
        let others = [begin(&runner, 2.0), begin(&runner, 3.0)];
        nod.send(()).unwrap();
        assert_eq!(runs.recv().unwrap(), 2);
        nod.send(()).unwrap();
        assert_eq!(wait(first).unwrap(), row(1.0));
        let [second, third] = others.map(|future| wait(future).unwrap());
        assert_eq!((second, third), (row(2.0), row(3.0)));
    }

    #[test]
    fn a_shared_run_is_counted_once_and_its_time_for_each() {
        let (runner, runs, nod) = scripted(10);
        let first = begin(&runner, 1.0);
        assert_eq!(runs.recv().unwrap(), 1);
        let shared = [2.0, 3.0].map(|value| {
            let mut future = Box::pin(runner.run(row(value), vec![0], Urgency::default()));
            let waker = std::task::Waker::noop();
            let polled = future
                .as_mut()
                .poll(&mut std::task::Context::from_waker(waker));
            assert!(polled.is_pending());
            future
        });
        assert_eq!(runner.pending(), 2);
        nod.send(()).unwrap();
        nod.send(()).unwrap();
        assert!(wait(first).is_ok());
        let [second, third] = shared.map(|future| wait(future).unwrap());
        assert_eq!((second.rows, third.rows), (1, 1));
        assert_eq!(second.spans.infer, third.spans.infer);
        assert!(second.spans.queue.0 > 0.0 && second.spans.infer.0 > 0.0);
        let numbers = runner.shared.tally.numbers();
        let sizes: Vec<usize> = numbers.batches.keys().copied().collect();
        assert_eq!((numbers.executions, sizes), (2, vec![1, 2]));
        assert_eq!(runner.pending(), 0);
    }

    #[test]
    fn a_bad_row_spoils_no_neighbour() {
        let (runner, runs, nod) = scripted(10);
        let first = begin(&runner, 1.0);
        assert_eq!(runs.recv().unwrap(), 1);
        let (good, bad, crash) = (
            begin(&runner, 2.0),
            begin(&runner, -1.0),
            begin(&runner, 2e6),
        );
        for _ in 0..5 {
            nod.send(()).unwrap();
        }
        assert!(wait(first).is_ok());
        assert_eq!(wait(good).unwrap(), row(2.0));
        assert_eq!(wait(bad).unwrap_err().kind, Kind::BadRequest);
        assert_eq!(wait(crash).unwrap_err().kind, Kind::EngineFailed);
        assert_eq!(runs.try_iter().collect::<Vec<_>>(), [3, 1, 1, 1]);
    }

    #[test]
    fn a_full_queue_answers_busy_and_says_when_to_come_back() {
        let (runner, runs, nod) = scripted(1);
        let running = begin(&runner, 1.0);
        assert_eq!(runs.recv().unwrap(), 1);
        let waiting = begin(&runner, 2.0);
        let refused = wait(begin(&runner, 3.0)).unwrap_err();
        assert_eq!(refused.kind, Kind::Busy);
        assert!(refused.retry_after.is_some_and(|wait| wait.0 >= 1.0));
        nod.send(()).unwrap();
        nod.send(()).unwrap();
        assert!(wait(running).is_ok() && wait(waiting).is_ok());
    }

    #[test]
    fn a_client_that_left_makes_room_in_a_full_queue() {
        let (runner, runs, nod) = scripted(1);
        let running = begin(&runner, 1.0);
        assert_eq!(runs.recv().unwrap(), 1);
        drop(begin(&runner, 2.0));
        let next = begin(&runner, 3.0);
        nod.send(()).unwrap();
        nod.send(()).unwrap();
        assert!(wait(running).is_ok());
        assert_eq!(wait(next).unwrap(), row(3.0));
    }

    #[test]
    fn a_client_that_left_is_not_run() {
        let (runner, runs, nod) = scripted(10);
        let first = begin(&runner, 1.0);
        assert_eq!(runs.recv().unwrap(), 1);
        drop(begin(&runner, 2.0));
        let third = begin(&runner, 3.0);
        nod.send(()).unwrap();
        nod.send(()).unwrap();
        assert!(wait(first).is_ok() && wait(third).is_ok());
        assert_eq!(runs.try_iter().collect::<Vec<_>>(), [1]);
    }

    /// An engine that says when it begins and ends when it is told to; how many run at once is seen by who has begun.
    fn instances(
        count: usize,
        timeout: Option<Seconds>,
    ) -> (Runner, Receiver<usize>, Vec<Sender<()>>) {
        let (began, runs) = channel();
        let (mut engines, mut nods): (Vec<Box<dyn Engine>>, _) = (vec![], vec![]);
        for _ in 0..count {
            let (sender, nod) = channel();
            nods.push(sender);
            engines.push(Box::new(Scripted {
                echo: Echo::new(),
                began: began.clone(),
                nod,
            }));
        }
        let runner = start(engines, limits(9, timeout));
        (runner, runs, nods)
    }

    #[test]
    fn instances_run_at_once() {
        let (runner, runs, nods) = instances(2, None);
        let first = begin(&runner, 1.0);
        assert_eq!(runs.recv().unwrap(), 1);
        let second = begin(&runner, 2.0);
        // The first has not been told to end, so only another instance can have begun.
        let patience = std::time::Duration::from_secs(10);
        assert_eq!(runs.recv_timeout(patience), Ok(1));
        for nod in &nods {
            nod.send(()).unwrap();
        }
        assert_eq!(wait(first).unwrap(), row(1.0));
        assert_eq!(wait(second).unwrap(), row(2.0));
    }

    #[test]
    fn who_waited_too_long_is_answered_though_the_engine_is_busy() {
        let (runner, runs, nods) = instances(1, Some(Seconds(0.05)));
        let clock = Clock::start();
        let refused = wait(async {
            let running = run(&runner, row(1.0));
            let late = async {
                while runs.try_recv().is_err() {
                    tokio::task::yield_now().await;
                }
                let start = clock.now();
                let outcome = run(&runner, row(2.0)).await;
                let took = clock.now() - start;
                nods[0].send(()).unwrap();
                (outcome.unwrap_err(), took)
            };
            let (ran, refused) = tokio::join!(running, late);
            assert_eq!(ran.unwrap(), row(1.0), "what runs is finished");
            refused
        });
        let (fault, took) = refused;
        assert_eq!(fault.kind, Kind::QueueTimeout);
        assert!(fault.retry_after.is_some());
        assert!((0.05..0.5).contains(&took.0), "took {took:?}");
    }
}
