//! A thread per model instance, each owning an engine; all of a model's take from one line what `batch.rs` tells them
//! to.
//!
//! Guarantees: what waits is bounded and the next one is told Busy with the time to come back; a request whose client
//! has gone is dropped before it runs; requests joined into a batch get their own rows back, and when a batch fails
//! each is run alone, so that one bad row spoils no neighbour's answer; an answer with other rows than its request is
//! a failure, never handed out; a panic in an engine is one failed request.
//!
//! A request whose time in line is over is answered at that moment, by a timer of its own. (Triton 2.51 notices when
//! an instance next comes free: 0.8 s late was seen for a timeout of 0.1 s.) A run whose last client leaves is ended:
//! its engine goes on to those who still wait. (Triton runs it to its end, triton-inference-server/server#6920.)

mod instance;
mod lobby;

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

pub use lobby::{Guest, Lobby};

use crate::batch::{Batcher, Item, Limits, Order, Urgency};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::halt::Halt;
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
    /// Dead once its client has left or has its answer.
    client: Weak<()>,
}

/// A request and what becomes of it.
type Answer = (Job, Result<Ran, Fault>);

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    clock: Clock,
    tally: Arc<Tally>,
}

struct State {
    batcher: Batcher<Job>,
    /// Present where answers leave in order.
    order: Option<Order<Answer>>,
    /// What each instance runs, or ran last.
    runs: Vec<Run>,
    stopping: bool,
}

/// A batch that an instance runs.
struct Run {
    clients: Vec<Weak<()>>,
    halt: Halt,
}

/// A model's instances, which take requests. Dropping it lets what waits finish, then ends the threads.
pub struct Runner {
    shared: Arc<Shared>,
    batches: bool,
    lobby: Lobby,
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
        let order = limits.ordered.then(Order::new);
        let idle = engines.iter().map(|engine| Run {
            clients: vec![],
            halt: engine.halt(),
        });
        let runs = idle.collect();
        let lobby = Lobby::new(limits.clone());
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                batcher: Batcher::new(Limits { rows, ..limits }),
                order,
                runs,
                stopping: false,
            }),
            wake: Condvar::new(),
            clock,
            tally,
        });
        let mut runner = Runner {
            shared,
            batches,
            lobby,
            threads: Vec::with_capacity(engines.len()),
        };
        for (number, engine) in engines.into_iter().enumerate() {
            let theirs = Arc::clone(&runner.shared);
            let thread = std::thread::Builder::new().name("model".into());
            let thread = thread.spawn(move || instance::work(&theirs, number, engine, batches))?;
            runner.threads.push(thread);
        }
        Ok(runner)
    }

    /// Runs these inputs, now or in turn. Dropping the future takes the request back; a run that it was the last in is
    /// ended.
    pub async fn run(
        &self,
        inputs: Vec<Tensor>,
        wanted: Vec<usize>,
        urgency: Urgency,
    ) -> Result<Ran, Fault> {
        let (reply, mut answer) = oneshot::channel();
        let now = self.shared.clock.now();
        let mut presence = Presence::new(&self.shared);
        let job = Job {
            inputs,
            wanted,
            since: now,
            reply,
            client: presence.seen(),
        };
        let patience = self.submit(self.item(job, urgency), now)?;
        self.shared.wake.notify_one();
        let ended = |_| {
            let message = "the model's thread has ended";
            Err(Fault::new(Kind::EngineFailed, message))
        };
        if let Some(patience) = patience {
            tokio::select! {
                outcome = &mut answer => {
                    presence.end();
                    return outcome.unwrap_or_else(ended);
                }
                () = tokio::time::sleep(patience.to_duration()) => {
                    let now = self.shared.clock.now();
                    self.shared.expire(&mut self.shared.state.lock(), now);
                }
            }
        }
        let outcome = answer.await;
        presence.end();
        outcome.unwrap_or_else(ended)
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
            Err(_) => Err(full(comeback(batcher))),
        }
    }

    /// Counts a request that waits for something else before it may get in line, as many of which may as in line.
    pub fn stand_by(&self, urgency: Urgency) -> Result<Guest<'_>, Fault> {
        let guest = self.lobby.enter(urgency);
        guest.ok_or_else(|| full(self.comeback()))
    }

    /// Those who stand by.
    pub fn lobby(&self) -> &Lobby {
        &self.lobby
    }

    /// How many wait for their run, or to get in line for it, and are still wanted.
    pub fn pending(&self) -> usize {
        let batcher = &self.shared.state.lock().batcher;
        batcher.count(|job| !job.reply.is_closed()) + self.lobby.count()
    }

    /// How long such a request may wait before it is refused; absent = for ever.
    pub fn patience(&self, urgency: Urgency) -> Option<Seconds> {
        self.lobby.patience(urgency)
    }

    /// What a request is told that has waited for as long as it may.
    pub fn overdue(&self) -> Fault {
        waited_out(self.comeback())
    }

    /// When it makes sense to ask again.
    pub fn comeback(&self) -> Seconds {
        comeback(&self.shared.state.lock().batcher)
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
    /// Hands in the answers of a batch and lets those go whose turn it is. The lock is held until they have gone, so
    /// that no later batch overtakes them.
    fn release(&self, ticket: u64, answers: Vec<Answer>) {
        let mut state = self.state.lock();
        let order = state.order.as_mut();
        for (job, outcome) in order.map_or_else(Vec::new, |order| order.done(ticket, answers)) {
            answer_to(job, outcome);
        }
    }

    /// Ends the runs that nobody waits for any more. The lock keeps an instance from going on to its next run
    /// meanwhile, so that the lever that is pulled is that of the run which was looked at.
    fn abandon(&self) {
        for run in &self.state.lock().runs {
            let gone = |client: &Weak<()>| client.strong_count() == 0;
            if run.clients.iter().all(gone) {
                run.halt.pull();
            }
        }
    }

    /// Refuses whoever has waited for too long.
    fn expire(&self, state: &mut State, now: Seconds) {
        let overdue = state.batcher.expire(now);
        if overdue.is_empty() {
            return;
        }
        let fault = waited_out(comeback(&state.batcher));
        for job in overdue {
            answer_to(job, Err(fault.clone()));
        }
    }
}

/// A client that waits for its answer. Dropped before it has one, it left.
struct Presence<'a> {
    shared: &'a Shared,
    token: Option<Arc<()>>,
}

impl<'a> Presence<'a> {
    fn new(shared: &'a Shared) -> Self {
        let token = Some(Arc::new(()));
        Presence { shared, token }
    }

    /// What others know it by.
    fn seen(&self) -> Weak<()> {
        self.token.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// It has its answer.
    fn end(&mut self) {
        self.token = None;
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if self.token.take().is_some() {
            self.shared.abandon();
        }
    }
}

/// What a request is told that finds as many waiting as may.
pub fn full(comeback: Seconds) -> Fault {
    let message = "as many requests wait for this model as may";
    Fault::new(Kind::Busy, message).retry_after(comeback)
}

/// What a request is told that has waited for as long as it may.
pub fn waited_out(comeback: Seconds) -> Fault {
    let message = "the request waited in line for as long as this model lets it";
    Fault::new(Kind::QueueTimeout, message).retry_after(comeback)
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
            ordered: false,
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
        begin_with(runner, row(value))
    }

    /// The same with these inputs.
    fn begin_with<'a>(
        runner: &'a Runner,
        inputs: Vec<Tensor>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + 'a>> {
        let mut future: std::pin::Pin<Box<dyn Future<Output = Outcome> + 'a>> =
            Box::pin(run(runner, inputs));
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

    /// An echo that reports the rows of each run and then runs until it is ended; a run of one row ends at once.
    struct Endless {
        echo: Echo,
        began: Sender<usize>,
        halt: Halt,
    }

    impl Engine for Endless {
        fn signature(&self) -> &Signature {
            self.echo.signature()
        }

        fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Outcome {
            let rows = inputs[0].rows();
            self.began.send(rows).unwrap();
            let (end, ended) = channel();
            if rows == 1 {
                return self.echo.run(inputs, wanted);
            }
            if self.halt.begins(move || end.send(()).unwrap()) {
                ended.recv().unwrap();
            }
            Err(Fault::bad("ended"))
        }

        fn halt(&self) -> Halt {
            self.halt.clone()
        }
    }

    #[test]
    fn a_run_ends_when_the_last_of_its_clients_leaves_and_not_before() {
        let (began, runs) = channel();
        let engine = Endless {
            echo: Echo::new(),
            began,
            halt: Halt::default(),
        };
        let runner = start(vec![Box::new(engine)], limits(10, None));
        let two = || Tensor::new(vec![2, 1], Elements::Fp32(vec![1.0; 2])).unwrap();
        let alone = begin_with(&runner, vec![two()]);
        assert_eq!(runs.recv().unwrap(), 2);
        let [first, second] = [1.0, 2.0].map(|value| begin(&runner, value));
        drop(alone);
        assert_eq!(runs.recv().unwrap(), 2, "the next two share a run");
        drop(first);
        assert!(!runner.shared.state.lock().runs[0].halt.pulled());
        drop(second);
        assert_eq!(wait(run(&runner, row(3.0))).unwrap(), row(3.0));
        let rows: Vec<usize> = runs.try_iter().collect();
        assert_eq!(rows, [1], "nothing was run again for those who left");
        assert_eq!(runner.shared.tally.numbers().executions, 1);
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
    fn instances(count: usize, limits: Limits) -> (Runner, Receiver<usize>, Vec<Sender<()>>) {
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
        let runner = start(engines, limits);
        (runner, runs, nods)
    }

    #[test]
    fn instances_run_at_once() {
        let (runner, runs, nods) = instances(2, limits(9, None));
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

    /// An echo that says what it was given, then waits at the gate of that number.
    struct Gated {
        echo: Echo,
        began: Sender<usize>,
        gates: Arc<[Mutex<()>; 4]>,
    }

    impl Engine for Gated {
        fn signature(&self) -> &Signature {
            self.echo.signature()
        }

        fn run(&mut self, inputs: &[Tensor], wanted: &[usize]) -> Outcome {
            let Elements::Fp32(values) = inputs[0].elements() else {
                panic!("not floats")
            };
            let gate = values[0] as usize;
            self.began.send(gate).unwrap();
            drop(self.gates[gate].lock());
            self.echo.run(inputs, wanted)
        }
    }

    #[test]
    fn answers_leave_in_order_where_that_is_asked_for() {
        let (began, runs) = channel();
        let gates = Arc::new([(); 4].map(Mutex::new));
        let engine = |_| -> Box<dyn Engine> {
            Box::new(Gated {
                echo: Echo::new(),
                began: began.clone(),
                gates: Arc::clone(&gates),
            })
        };
        let ordered = Limits {
            ordered: true,
            ..limits(9, None)
        };
        let runner = start([0, 1].map(engine).into(), ordered);
        // Locked after the runner is there, so that a failing test opens them before it waits for its threads.
        let [_, first_gate, second_gate, third_gate] = gates.each_ref().map(Mutex::lock);
        let first = begin(&runner, 1.0);
        assert_eq!(runs.recv(), Ok(1));
        let mut second = begin(&runner, 2.0);
        assert_eq!(runs.recv(), Ok(2));
        let third = begin(&runner, 3.0);
        drop(second_gate);
        // Whoever ran the second request has done with it when it begins the third.
        assert_eq!(runs.recv(), Ok(3));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(
            second.as_mut().poll(&mut context).is_pending(),
            "it overtook the first"
        );
        drop((first_gate, third_gate));
        for (future, value) in [(first, 1.0), (second, 2.0), (third, 3.0)] {
            assert_eq!(wait(future).unwrap(), row(value));
        }
    }

    #[test]
    fn who_waited_too_long_is_answered_when_it_is_due_though_the_engine_is_busy() {
        const TIMEOUT: Seconds = Seconds(0.05);
        let (runner, runs, nods) = instances(1, limits(9, Some(TIMEOUT)));
        let clock = Clock::start();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let inside = runtime.enter();
        let running = begin(&runner, 1.0);
        drop(inside);
        assert_eq!(runs.recv().unwrap(), 1);
        // The engine is held until the end. A machine that has more to do may notice late, but not each time.
        let late = |_| {
            let start = clock.now();
            let fault = runtime.block_on(run(&runner, row(2.0))).unwrap_err();
            assert_eq!(fault.kind, Kind::QueueTimeout);
            assert!(fault.retry_after.is_some());
            (clock.now() - start) - TIMEOUT
        };
        let in_time = |late: &Seconds| {
            assert!(late.0 >= 0.0, "early by {late:?}");
            late.0 < 0.01
        };
        assert!((0..100).map(late).any(|late| in_time(&late)));
        nods[0].send(()).unwrap();
        assert_eq!(
            runtime.block_on(running).unwrap(),
            row(1.0),
            "what runs is finished"
        );
    }
}
