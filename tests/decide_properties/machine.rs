//! A machine in virtual time that works as inference engines do: prompts before tokens, tokens for all streams at once.

use std::collections::VecDeque;

/// How fast a machine is, and how it works.
#[derive(Clone, Copy, Debug)]
pub struct Make {
    /// Seconds of a prefill: fixed, and per prompt token.
    pub prefill: (f64, f64),
    /// Seconds of a decode step: fixed, and per stream.
    pub decode: (f64, f64),
    /// Prompts in one prefill.
    pub batch: usize,
    /// What the first prefill takes on top: kernels are loaded, memory is touched.
    pub cold: f64,
    /// Prefills at the same time, each of them that much slower.
    pub hands: usize,
    /// Whether tokens are made beside prompts, rather than after them.
    pub beside: bool,
}

impl Make {
    /// One prompt after the other, and as compute-bound as a processor is.
    pub const PLAIN: Make = Make {
        prefill: (0.004, 0.000_1),
        decode: (0.001, 0.004),
        batch: 1,
        hands: 1,
        beside: false,
        cold: 0.0,
    };

    /// The same make, that many times as fast.
    pub fn faster(self, speed: f64) -> Make {
        let scale = |(fixed, each): (f64, f64)| (fixed / speed, each / speed);
        Make {
            prefill: scale(self.prefill),
            decode: scale(self.decode),
            ..self
        }
    }
}

/// A request at a machine.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Whose it is.
    pub client: usize,
    /// Prompt tokens.
    pub prompt: f64,
    /// Output tokens still to come; none for an embedding.
    pub output: u32,
}

/// What a client sees of a machine.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// The prompt is done: the first token, or the whole embedding.
    First(Job),
    /// One more token.
    Token(Job),
}

/// A machine at work.
#[derive(Debug)]
pub struct Machine {
    make: Make,
    queue: VecDeque<Job>,
    streams: Vec<Job>,
    steps: Vec<Step>,
    /// Streams of others, which never end.
    others: usize,
}

/// Work under way: prompts, or with none a token for every stream.
#[derive(Debug)]
struct Step {
    ends: f64,
    prompts: Vec<Job>,
}

impl Machine {
    /// An idle one.
    pub fn new(make: Make) -> Self {
        Machine {
            make,
            queue: VecDeque::new(),
            streams: Vec::new(),
            steps: Vec::new(),
            others: 0,
        }
    }

    /// So many streams of others share it from here on.
    pub fn shared_with(&mut self, others: usize) {
        self.others = others;
    }

    /// Requests that run, those of others too, and that wait.
    pub fn load(&self) -> (usize, usize) {
        let prompts: usize = self.steps.iter().map(|step| step.prompts.len()).sum();
        (self.streams.len() + prompts + self.others, self.queue.len())
    }

    /// What it begins from here on goes at another speed.
    pub fn becomes(&mut self, make: Make) {
        self.make = make;
    }

    /// A request arrives.
    pub fn take(&mut self, job: Job, now: f64) {
        self.queue.push_back(job);
        self.begin(now);
    }

    /// When something is next seen of it.
    pub fn next(&self) -> f64 {
        self.steps
            .iter()
            .map(|step| step.ends)
            .fold(f64::INFINITY, f64::min)
    }

    /// What is seen at the time that [`Machine::next`] said.
    pub fn step(&mut self) -> Vec<Seen> {
        let now = self.next();
        let due = self.steps.iter().position(|step| step.ends == now);
        let step = self.steps.remove(due.expect("a step under way"));
        let seen = if step.is_decode() {
            for job in &mut self.streams {
                job.output -= 1;
            }
            self.streams.iter().copied().map(Seen::Token).collect()
        } else {
            let firsts = step.prompts.into_iter().map(|job| Job {
                output: job.output.saturating_sub(1),
                ..job
            });
            let firsts: Vec<Job> = firsts.collect();
            self.streams.extend(&firsts);
            firsts.into_iter().map(Seen::First).collect()
        };
        self.streams.retain(|job| job.output > 0);
        self.begin(now);
        seen
    }

    /// Steps that a prompt has to wait for.
    fn busy(&self) -> usize {
        let counts = |step: &&Step| !(self.make.beside && step.is_decode());
        self.steps.iter().filter(counts).count()
    }

    /// Whether tokens have to wait.
    fn may_not_decode(&self) -> bool {
        let counts = |step: &Step| !self.make.beside || step.is_decode();
        self.steps.iter().any(counts)
    }

    #[expect(clippy::cast_precision_loss, reason = "a handful of hands and streams")]
    fn begin(&mut self, now: f64) {
        while !self.queue.is_empty() && self.busy() < self.make.hands {
            let batch = self.make.batch.min(self.queue.len());
            let prompts: Vec<Job> = self.queue.drain(..batch).collect();
            let tokens: f64 = prompts.iter().map(|job| job.prompt).sum();
            let (fixed, each) = self.make.prefill;
            let cold = std::mem::take(&mut self.make.cold);
            let took = cold + (fixed + each * tokens) * self.make.hands as f64;
            self.steps.push(Step {
                ends: now + took,
                prompts,
            });
        }
        if !self.streams.is_empty() && !self.may_not_decode() {
            let (fixed, each) = self.make.decode;
            self.steps.push(Step {
                ends: now + fixed + each * (self.streams.len() + self.others) as f64,
                prompts: Vec::new(),
            });
        }
    }
}

impl Step {
    fn is_decode(&self) -> bool {
        self.prompts.is_empty()
    }
}
