//! What a request costs on a worker, in seconds: the expected time until its answer is complete.
//!
//! One unit for everything, so that a queue on a fast machine and an idle slow one can be compared at all; request
//! counts and utilisation can't be. For worker i and a request:
//!
//! ```text
//! C    = net + lora + swap + wait + own + decode + external + failure + price
//! u    = prompt − what it is believed to have in its cache (h), at least 16  see `reuse.rs`
//! x    = u·(1 + (h + u/2)/40,000)             work without output tokens: x = u
//! own  = a + b·x                              the prefill line of this kind of work
//! wait = max(0, Σ over Q of (a + b·x) − age)  Q: sent, no first byte yet; age: since the head of Q began;
//!        at least until its memory has room   see `memory.rs`, and its card a slot for the adapter, see `lora.rs`
//! lora = learned time of a load                if its adapter is not on the card
//! swap = learned time of a swap                if its model is not in memory, see `residents.rs`
//! tau  = c + d·min(n + 1, cap)                seconds per output token when this request joins n that generate
//! decode = (E[out] − 1)·tau                   nothing for work without output tokens
//! net  = the round trip between the client's region and the worker's as written down, else the measured one, smoothed
//! external = ½·((d·E[out] + ½·own)·streams + load)
//!        delay laid on the streams that run there, n of ours and those of others; load: that of an adapter or a model
//!        which its own pushes out
//! failure  = (1 − exp(−λ·D))·(D + loss)       D: the terms before; loss: what a failed request lost of late
//! price    = p·(own + decode)/(1 + held)      p: what a second of the machine is worth in seconds; held: requests there
//! ```
//!
//! What others do on a worker past this proxy, where its engine tells it, counts as ours does: streams in n, prompts in Q,
//! tokens in its memory (`told_load.rs`).
//!
//! The lines are those of a worker alone: beside busy neighbours on its machine, own, decode and the sum in wait take
//! 1 + κ·m times as long (`machine.rs`), and on a worker that keeps its head waiting, as many times longer as its silence
//! shows (`backlog.rs`).
//!
//! A prompt token costs more the longer the context before it, because attention looks back at all of it: by the
//! operations of a dense transformer twice as much after parameters ÷ (2 · layers · width) tokens, which is 31,000 for
//! Llama 3.1 8B, 38,000 for Qwen2.5 7B and 54,000 for Llama 3 70B. 2026-11-30: believed that a line through tokens is
//! enough. Seen in simulation that a prompt of 27,000 tokens then looks cheap on a slow machine, and that the 95th
//! percentile of the first token was 1.4 times the oracle's; with any figure from 10,000 to 50,000 it is 1.08 to
//! 1.15, and where context costs nothing at all, this one does no harm. So it is a constant and not learned.
//!
//! What is cached is worth the seconds it saves on that worker, never a share: a whole hit on a slow machine may save more
//! than it, or less than the queue in front of it. Those in the queue are counted by what was new of them, too.
//!
//! The external term is not this request's time but that of others: every token of theirs takes d longer while it
//! generates, and its prefill holds them up. Counted fully it would pile everything on whoever is idle; one half is what
//! did best in simulation. The failure term is the worth of a machine that lasts: the chance that an outage falls into
//! the time the request is there, times the time that is then lost.
//!
//! The price is money, turned into seconds by the operator's own rate (`routing.cost`): without one it is zero. A machine
//! costs the same whoever uses it, so those who share it share its price.
//!
//! Simulated over public traces, this backlog in tokens priced by learned speeds is nearly all of what a clairvoyant
//! router gains over counting requests. Prices cost constant time per worker: the sums over Q are kept, not recomputed.

use super::ask::Work;
use super::lora::Toll;
use super::machine::Machine;
use super::memory;
use super::place::RegionId;
use super::residents::Swap;
use super::worker::Worker;
use crate::units::{Length, Seconds};

/// The least prompt that is reckoned with: below it the fixed part rules, and a fit through zero sizes says nothing.
pub(super) const LEAST_PROMPT: f64 = 16.0;

/// The context after which reading a prompt token costs twice as much, in tokens.
const CONTEXT: f64 = 40_000.0;

/// The part of the delay laid on others that is counted.
const EXTERNALITY: f64 = 0.5;
/// The part of a prefill for which running streams stand still: engines mix prompts and tokens in one batch.
const HELD_UP: f64 = 0.5;

/// A request as the price sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// What kind of work it is.
    pub work: Work,
    /// Prompt tokens.
    pub prompt: f64,
    /// Those of them that the worker is believed to have in its cache.
    pub cached: f64,
    /// What it waits for there because of its adapter.
    pub toll: Toll,
    /// And because of its model.
    pub swap: Swap,
    /// Expected output tokens, `E[out]`.
    pub output: f64,
    /// What `prompt` was reckoned from.
    pub seen: Length,
    /// Where it comes from, where that is known.
    pub from: Option<RegionId>,
}

impl Size {
    /// A request of this kind; prompts shorter than the least count as the least.
    pub(super) fn new(work: Work, prompt: f64, output: f64) -> Self {
        Size {
            work,
            prompt: prompt.max(LEAST_PROMPT),
            cached: 0.0,
            toll: Toll::default(),
            swap: Swap::NONE,
            output,
            seen: Length::Tokens(prompt),
            from: None,
        }
    }

    /// The same on a worker that has so many of its tokens.
    pub(super) fn cached(self, tokens: f64) -> Self {
        let cached = tokens.clamp(0.0, self.prompt);
        Size { cached, ..self }
    }

    /// The same on a worker where its adapter and its model cost this.
    pub(super) fn paying(self, toll: Toll, swap: Swap) -> Self {
        Size { toll, swap, ..self }
    }

    /// Until its adapter and its model are there.
    pub(super) fn load(self) -> Seconds {
        self.toll.load + self.swap.takes
    }

    /// Whether its time tells nothing of the card's speed.
    pub(super) fn clouds(self) -> bool {
        self.toll.clouds || self.swap.clouds
    }

    /// The work of reading what is new of its prompt, x: in tokens with no context before them.
    pub(super) fn reading(self) -> f64 {
        let fresh = (self.prompt - self.cached).max(LEAST_PROMPT);
        match self.work {
            Work::Generate => fresh * (1.0 + (self.cached + fresh / 2.0) / CONTEXT),
            Work::Embed | Work::Infer => fresh,
        }
    }

    /// What it was, by what its worker reports of it where it does.
    pub(super) fn reported(self, prompt: Option<f64>, cached: Option<f64>) -> Self {
        let prompt = prompt.unwrap_or(self.prompt);
        let cached = cached.unwrap_or(prompt * (self.cached / self.prompt));
        Size { prompt, ..self }.cached(cached)
    }
}

/// The parts of a price. Each is zero or more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// To the worker and back.
    pub net: Seconds,
    /// Until its adapter is on the card.
    pub lora: Seconds,
    /// Until its model is in memory.
    pub swap: Seconds,
    /// Until those sent before have their first byte.
    pub wait: Seconds,
    /// From then to its own first byte.
    pub own: Seconds,
    /// From its first to its last token.
    pub decode: Seconds,
    /// The delay it lays on those already running there, as far as it counts.
    pub external: Seconds,
    /// What is expected to be lost because the worker fails meanwhile.
    pub failure: Seconds,
    /// What its share of the machine costs, as far as money counts.
    pub price: Seconds,
}

impl Terms {
    /// How many there are.
    pub const PARTS: usize = 9;

    /// All of them, with their names.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, Seconds); Self::PARTS] {
        [
            ("net", self.net),
            ("lora", self.lora),
            ("swap", self.swap),
            ("wait", self.wait),
            ("own", self.own),
            ("decode", self.decode),
            ("external", self.external),
            ("failure", self.failure),
            ("price", self.price),
        ]
    }

    /// The price: all terms together.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.answer() + self.external + self.failure + self.price
    }

    /// The expected seconds for which it keeps its worker at work: what is charged to its tenant.
    pub(super) fn busy(&self) -> Seconds {
        self.own + self.decode
    }

    /// The expected seconds until its adapter and its model are there.
    pub(super) fn load(&self) -> Seconds {
        self.lora + self.swap
    }

    /// The expected seconds until the answer is complete, if nothing fails: what counts toward a client's deadline.
    #[must_use]
    pub fn answer(&self) -> Seconds {
        self.net + self.load() + self.wait + self.own + self.decode
    }
}

/// What this request would cost on this worker of this machine if it were sent now.
/// `loss` is what a failed request has lost of late.
pub(super) fn price(
    worker: &Worker,
    machine: &Machine,
    size: Size,
    loss: Seconds,
    now: Seconds,
) -> Terms {
    let slowdown = machine.slowdown_beside(worker.inflight() > 0);
    let slowdown = slowdown * worker.backlog().overdue(worker.speeds(), slowdown, now);
    let foreign = worker.foreign(now);
    let (decode, tokens) = match size.work {
        Work::Embed | Work::Infer => (Seconds::ZERO, 0.0),
        Work::Generate => (
            worker.pace_with_one_more(foreign) * slowdown * (size.output - 1.0).max(0.0),
            size.output,
        ),
    };
    let own = worker.speeds().prefill(size.work).at(size.reading()) * slowdown;
    let slowed = Seconds(worker.speeds().decode().slope * tokens) + own * HELD_UP;
    let told = worker.spec().place.round_trip(size.from);
    let ahead = worker.backlog().ahead(worker.speeds(), slowdown, now)
        + worker.foreign_ahead(foreign, size.work) * slowdown;
    let for_memory = memory::wait(worker, size, own, decode, foreign);
    let for_slot = worker.slot_wait(foreign, own, decode);
    let for_adapter = (decode * 0.5 + own) * size.toll.turns;
    let streams = f64::from(worker.decoding()) + foreign.running;
    let mut terms = Terms {
        net: told.unwrap_or_else(|| worker.net()),
        lora: size.toll.load,
        swap: size.swap.takes,
        wait: for_memory.max(for_slot).max(for_adapter).max(ahead),
        own,
        decode,
        external: (slowed * streams + size.toll.evicts + size.swap.evicts) * EXTERNALITY,
        failure: Seconds::ZERO,
        price: Seconds::ZERO,
    };
    let there = terms.total();
    terms.failure = (there + loss) * -(-machine.hazard(now) * there.0).exp_m1();
    terms.price = (own + decode) * worker.spec().price / f64::from(machine.held() + 1);
    terms
}

#[cfg(test)]
mod tests {
    use super::super::ask::WorkerSpec;
    use super::super::booking::Order;
    use super::*;
    use crate::units::WorkerId;

    const NO_TOLL: Toll = Toll {
        load: Seconds::ZERO,
        turns: 0.0,
        evicts: Seconds::ZERO,
        clouds: false,
    };
    const CHAT: Size = Size {
        work: Work::Generate,
        prompt: 600.0,
        cached: 0.0,
        toll: NO_TOLL,
        swap: Swap::NONE,
        output: 101.0,
        seen: Length::Tokens(600.0),
        from: None,
    };
    const EMBEDDING: Size = Size {
        work: Work::Embed,
        prompt: 2_000.0,
        cached: 0.0,
        toll: NO_TOLL,
        swap: Swap::NONE,
        output: 101.0,
        seen: Length::Tokens(2_000.0),
        from: None,
    };

    /// A worker 20 ms away that was sent these at 1 s.
    fn loaded(cap: u32, held: &[Size]) -> Worker {
        let spec = WorkerSpec::new("w", cap);
        let mut worker = Worker::new(WorkerId(0), spec);
        worker.connected(Seconds(0.02));
        for (number, size) in (0..).zip(held) {
            let order = Order {
                number,
                model: 0,
                class: 0,
                size: *size,
                max_tokens: None,
                streamed: true,
                wait: Seconds::ZERO,
                is_test: false,
            };
            let _held = worker.book(order, &mut Machine::default(), Seconds(1.0));
        }
        worker
    }

    /// The terms in tenths of milliseconds: net, wait, own, decode.
    fn terms(worker: &Worker, size: Size, now: f64) -> [f64; 4] {
        let terms = price(
            worker,
            &Machine::default(),
            size,
            Seconds(1.0),
            Seconds(now),
        );
        [terms.net, terms.wait, terms.own, terms.decode].map(|term| (term.0 * 1e4).round())
    }

    #[test]
    fn an_idle_worker_costs_the_way_the_prompt_and_the_answer() {
        let idle = loaded(8, &[]);
        assert_eq!(terms(&idle, CHAT, 1.0), [200.0, 0.0, 1_107.0, 20_500.0]);
        assert_eq!(terms(&idle, EMBEDDING, 1.0), [200.0, 0.0, 105.0, 0.0]);
        let priced = price(&idle, &Machine::default(), CHAT, Seconds(1.0), Seconds(1.0));
        assert!((priced.answer().0 - 2.180_75).abs() < 1e-9);
        let failure = (1.0 - (-2.180_75_f64 / 600.0).exp()) * (2.180_75 + 1.0);
        assert!((priced.failure.0 - failure).abs() < 1e-9);
        assert!((priced.total() - priced.answer() - priced.failure).0.abs() < 1e-9);
    }

    #[test]
    fn running_streams_are_delayed_by_tokens_and_by_the_prefill() {
        let external = |begun: u64, size: Size| {
            let (mut worker, mut machine) = (loaded(8, &[]), Machine::default());
            for number in 0..2 {
                let order = Order {
                    number,
                    model: 0,
                    class: 0,
                    size: CHAT,
                    max_tokens: None,
                    streamed: true,
                    wait: Seconds::ZERO,
                    is_test: false,
                };
                let mut held = worker.book(order, &mut machine, Seconds(1.0));
                if number < begun {
                    // The decode line stays the prior's: tokens alone teach it.
                    worker.first_byte(&mut held, &mut machine, Seconds(1.0));
                }
            }
            let own = worker.speeds().prefill(size.work).at(size.reading()).0;
            let terms = price(
                &worker,
                &Machine::default(),
                size,
                Seconds(1.0),
                Seconds(1.0),
            );
            (terms.external.0, own)
        };
        assert_eq!(external(0, CHAT).0, 0.0);
        let (delay, own) = external(2, CHAT);
        assert!((delay - 0.5 * 2.0 * (0.000_5 * 101.0 + 0.5 * own)).abs() < 1e-9);
        let (delay, own) = external(1, EMBEDDING);
        assert!((delay - 0.5 * 0.5 * own).abs() < 1e-9);
    }

    #[test]
    fn a_worker_that_fails_often_and_failures_that_cost_much_are_dearer() {
        let worker = loaded(8, &[]);
        let mut machine = Machine::default();
        let failure = |machine: &Machine, loss| {
            price(&worker, machine, CHAT, Seconds(loss), Seconds(1.0)).failure
        };
        let calm = failure(&machine, 1.0);
        assert!(failure(&machine, 30.0) > calm * 8.0);
        machine.outage(Seconds(1.0));
        assert!(failure(&machine, 1.0) > calm * 1.9);
    }

    #[test]
    fn requests_before_it_cost_their_prompts_less_what_is_done_of_them() {
        let busy = loaded(8, &[CHAT, EMBEDDING]);
        assert_eq!(terms(&busy, EMBEDDING, 1.0)[1], 1_212.0);
        assert_eq!(terms(&busy, EMBEDDING, 1.1)[1], 212.0);
        assert_eq!(terms(&busy, EMBEDDING, 9.0)[1], 0.0);
    }

    #[test]
    fn a_token_costs_more_the_more_share_the_card_up_to_the_cap() {
        let decode = |cap, held: &[Size]| terms(&loaded(cap, held), CHAT, 1.0)[3];
        assert_eq!(decode(8, &[CHAT, CHAT, EMBEDDING]), 21_500.0);
        assert_eq!(decode(2, &[CHAT, CHAT]), 21_000.0);
        let mut told = loaded(8, &[CHAT, CHAT]);
        told.told.slots = Some(2);
        assert_eq!(terms(&told, CHAT, 1.0)[3], 21_000.0, "slots told");
    }

    #[test]
    fn reading_costs_more_the_longer_the_context() {
        let size = Size::new(Work::Generate, 20_000.0, 0.0);
        assert_eq!(size.reading(), 20_000.0 * 1.25);
        assert_eq!(size.cached(10_000.0).reading(), 10_000.0 * 1.375);
        let reported = size.reported(Some(8_000.0), Some(4_000.0));
        assert_eq!(reported.reading(), 4_000.0 * 1.15);
        let embedding = Size::new(Work::Embed, 20_000.0, 0.0);
        assert_eq!(embedding.cached(10_000.0).reading(), 10_000.0);
    }

    #[test]
    fn a_prompt_counts_as_sixteen_tokens_at_least() {
        assert_eq!(Size::new(Work::Embed, 3.0, 0.0).prompt, 16.0);
        assert_eq!(Size::new(Work::Embed, f64::NAN, 0.0).prompt, 16.0);
    }
}
