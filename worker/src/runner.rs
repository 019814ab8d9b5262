//! A thread per model instance, which owns the engine and runs what `batch.rs` tells it to.
//!
//! Guarantees: what waits is bounded and the next one is told Busy with the time to come back; a request whose client
//! has gone is dropped before it runs; requests joined into a batch get their own rows back, and when a batch fails
//! each is run alone, so that one bad row spoils no neighbour's answer; a panic in an engine is one failed request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::batch::{Batcher, Item, Limits, Next};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::fault::{Fault, Kind};
use crate::tensor::Tensor;
use crate::units::Seconds;

/// What a run gives: the wanted outputs, in order.
type Outcome = Result<Vec<Tensor>, Fault>;

struct Job {
    inputs: Vec<Tensor>,
    wanted: Vec<usize>,
    reply: oneshot::Sender<Outcome>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    clock: Clock,
}

struct State {
    batcher: Batcher<Job>,
    stopping: bool,
}

/// A model instance that takes requests. Dropping it lets what waits finish, then ends the thread.
pub struct Runner {
    shared: Arc<Shared>,
    batches: bool,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    /// Starts a thread around an engine.
    pub fn start(engine: Box<dyn Engine>, limits: Limits, clock: Clock) -> std::io::Result<Runner> {
        let batches = engine.signature().batches();
        let rows = if batches { limits.rows } else { 1 };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                batcher: Batcher::new(Limits { rows, ..limits }),
                stopping: false,
            }),
            wake: Condvar::new(),
            clock,
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("model".into())
            .spawn(move || work(&theirs, engine))?;
        Ok(Runner {
            shared,
            batches,
            thread: Some(thread),
        })
    }

    /// Runs these inputs, now or in turn. Dropping the future takes the request back unless it already runs.
    pub async fn run(&self, inputs: Vec<Tensor>, wanted: Vec<usize>) -> Outcome {
        let (reply, answer) = oneshot::channel();
        let item = self.item(Job {
            inputs,
            wanted,
            reply,
        });
        self.submit(item)?;
        self.shared.wake.notify_one();
        let gone = || Fault::new(Kind::EngineFailed, "the model's thread has ended");
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Puts an item into the queue. Requests whose clients have left count only as long as nobody needs their place.
    fn submit(&self, item: Item<Job>) -> Result<(), Fault> {
        let now = self.shared.clock.now();
        let batcher = &mut self.shared.state.lock().batcher;
        let Err(item) = batcher.offer(item, now) else {
            return Ok(());
        };
        batcher.retain(|job| !job.reply.is_closed());
        batcher.offer(item, now).map_err(|_| {
            let wait = Seconds(batcher.backlog().0.clamp(1.0, 60.0));
            let full = "as many requests wait for this model as may";
            Fault::new(Kind::Busy, full).retry_after(wait)
        })
    }

    fn item(&self, job: Job) -> Item<Job> {
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
            load: job,
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // An error here is a panic that was already answered; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

/// The thread: waits for a batch, runs it, until told to stop and nothing waits.
fn work(shared: &Shared, mut engine: Box<dyn Engine>) {
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
        run_batch(engine.as_mut(), batch);
        let took = shared.clock.now() - start;
        shared.state.lock().batcher.ran(rows, work, items, took);
    }
}

fn next_batch(shared: &Shared) -> Option<Vec<Item<Job>>> {
    let mut state = shared.state.lock();
    loop {
        let now = shared.clock.now();
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

fn run_batch(engine: &mut dyn Engine, batch: Vec<Item<Job>>) {
    if batch.len() > 1
        && let Some(answers) = run_joined(engine, &batch)
    {
        for (item, answer) in batch.into_iter().zip(answers) {
            answer_to(item.load, Ok(answer));
        }
        return;
    }
    for item in batch {
        let outcome = guarded(engine, &item.load.inputs, &item.load.wanted);
        answer_to(item.load, outcome);
    }
}

/// Runs all at once and gives each its rows; `None` if that can't be done, for whatever reason.
fn run_joined(engine: &mut dyn Engine, batch: &[Item<Job>]) -> Option<Vec<Vec<Tensor>>> {
    let first = &batch.first()?.load;
    let inputs: Option<Vec<Tensor>> = (0..first.inputs.len())
        .map(|input| {
            let parts = batch.iter().map(|item| item.load.inputs[input].clone());
            Tensor::join(parts.collect())
        })
        .collect();
    let outputs = guarded(engine, &inputs?, &first.wanted).ok()?;
    let rows: Vec<usize> = batch.iter().map(|item| item.rows).collect();
    let mut answers = vec![Vec::with_capacity(outputs.len()); batch.len()];
    for output in outputs {
        for (answer, part) in answers.iter_mut().zip(output.split(&rows)?) {
            answer.push(part);
        }
    }
    Some(answers)
}

fn guarded(engine: &mut dyn Engine, inputs: &[Tensor], wanted: &[usize]) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| engine.run(inputs, wanted))).unwrap_or_else(|_| {
        let message = "the engine panicked on this request";
        Err(Fault::new(Kind::EngineFailed, message))
    })
}

/// A client that left meanwhile does not hear it, which is as well.
fn answer_to(job: Job, outcome: Outcome) {
    let _ = job.reply.send(outcome);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
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
        let limits = Limits {
            waiting,
            rows: 32,
            delay: Seconds::ZERO,
        };
        let runner = Runner::start(Box::new(engine), limits, Clock::start()).unwrap();
        (runner, runs, nod)
    }

    fn row(value: f32) -> Vec<Tensor> {
        vec![Tensor::new(vec![1, 1], Elements::Fp32(vec![value])).unwrap()]
    }

    /// Begins a run whose future is kept, polled once so that it has been submitted.
    fn begin<'a>(
        runner: &'a Runner,
        value: f32,
    ) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + 'a>> {
        let mut future: std::pin::Pin<Box<dyn Future<Output = Outcome> + 'a>> =
            Box::pin(runner.run(row(value), vec![0]));
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
        runtime.build().unwrap().block_on(future)
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
}
