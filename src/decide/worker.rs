//! One worker as the fleet knows it: what it was given, what it has shown, whether it is alive.
//!
//! Every request holds a [`Booking`], a token that can't be copied and is consumed when the request ends: it is counted
//! once, however it ends. It belongs to a *generation* of its worker. A worker that goes down starts a new generation
//! with all load counters at zero; bookings of an older one still tell of success or failure but move no counter and
//! teach no line, so a restarted worker neither goes negative nor keeps the ghosts of the dead one's requests.

mod classes;
mod foreign;
mod learning;
mod life;
mod measured;
mod saturated;

use classes::Classes;

use super::ask::{Names, Outcome, Told, Work, WorkerSpec};
use super::backlog::{Backlog, Pending};
use super::booking::{Booking, FirstByte, Order, Record};
use super::calibration::Calibration;
use super::condition::Condition;
use super::cost::Size;
use super::decode_meter::DecodeMeter;
use super::eject::EjectCause;
use super::lora::Loras;
use super::machine::{Machine, Mark, Span};
use super::memory::Memory;
use super::residents::Residents;
use super::reuse::Belief;
use super::saturation::Saturation;
use super::speed::Speeds;
use super::told_load::ToldLoad;
use super::traffic::believable;
use super::way::Way;
use crate::units::{Seconds, WorkerId};

/// A worker's spec, load, learned speed and history.
#[derive(Debug)]
pub(super) struct Worker {
    id: WorkerId,
    spec: WorkerSpec,
    /// What its engine says.
    pub(super) told: Told,
    /// Whether it has said what it serves.
    pub(super) names: Names,
    /// What is in its memory.
    pub(super) memory: Memory,
    /// What its engine says of its load.
    load: ToldLoad,
    /// What it had shown of its speed when its engine last told its load.
    settled: Option<(Speeds, Seconds)>,
    /// Its adapters.
    pub(super) loras: Loras,
    /// The models in its memory.
    pub(super) residents: Residents,
    condition: Condition,
    speeds: Speeds,
    way: Way,
    generation: u32,
    inflight: u32,
    /// When it last got a request or ended one.
    used: Seconds,
    /// Of which class they are.
    classes: Classes,
    backlog: Backlog,
    meter: DecodeMeter,
    /// How fast its operator said that it is, while it ran.
    set_speed: Option<f64>,
    /// What it has shown of how much it takes,
    saturation: Saturation,
    /// and the most that it is given by that, as far as that is known.
    shown: Option<u32>,
    /// The company on its machine when the decode sample under way began.
    sampled: Mark,
    calibration: Calibration,
    record: Record,
}

impl Worker {
    /// A worker that has shown nothing yet.
    pub(super) fn new(id: WorkerId, spec: WorkerSpec) -> Self {
        Worker {
            id,
            condition: Condition::new(&spec),
            speeds: Speeds::believing(spec.speed.unwrap_or(1.0)),
            set_speed: None,
            way: Way::default(),
            generation: 0,
            inflight: 0,
            used: Seconds::ZERO,
            classes: Classes::default(),
            backlog: Backlog::default(),
            meter: DecodeMeter::default(),
            saturation: Saturation::default(),
            shown: None,
            sampled: Mark::default(),
            calibration: Calibration::default(),
            record: Record::default(),
            told: Told::default(),
            names: Names::default(),
            memory: Memory::default(),
            load: ToldLoad::default(),
            settled: None,
            loras: Loras::new(spec.lora_slots),
            residents: Residents::new(spec.resident),
            spec,
        }
    }

    pub(super) fn id(&self) -> WorkerId {
        self.id
    }

    /// Which life it is in.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn spec(&self) -> &WorkerSpec {
        &self.spec
    }

    /// Whether it may be given requests, and why not.
    pub(super) fn condition(&self) -> &Condition {
        &self.condition
    }

    pub(super) fn speeds(&self) -> &Speeds {
        &self.speeds
    }

    pub(super) fn record(&self) -> Record {
        self.record
    }

    /// Requests it holds.
    pub(super) fn inflight(&self) -> u32 {
        self.inflight
    }

    /// When it last got a request or ended one.
    pub(super) fn used(&self) -> Seconds {
        self.used
    }

    /// Requests that wait for their first byte.
    pub(super) fn queued(&self) -> u32 {
        self.backlog.len()
    }

    /// Streams that run.
    pub(super) fn decoding(&self) -> u32 {
        self.meter.streams()
    }

    /// The way to it and back; nothing until it was measured.
    pub(super) fn net(&self) -> Seconds {
        self.way.round_trip()
    }

    /// The requests that wait for their first byte.
    pub(super) fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// A request of the model in this row, with what its adapter and its model cost here.
    pub(super) fn sized(&self, size: Size, row: usize) -> Size {
        size.paying(self.loras.toll(row), self.residents.swap(row))
    }

    /// A connection was opened, which took this long.
    pub(super) fn connected(&mut self, took: Seconds) {
        self.way.connected(took);
    }

    /// A probe was answered so long after it was sent.
    pub(super) fn replied(&mut self, took: Seconds) {
        self.way.replied(took);
    }

    /// Gives it a request.
    pub(super) fn book(&mut self, order: Order, machine: &mut Machine, now: Seconds) -> Booking {
        machine.take(self.inflight, now);
        let booking = Booking {
            worker: self.id,
            generation: self.generation,
            number: order.number,
            model: order.model,
            size: order.size,
            belief: Belief::default(),
            lora: self.loras.lend(order.model, order.size.toll),
            stay: self.residents.lend(order.model),
            class: order.class,
            max_tokens: order.max_tokens,
            streamed: order.streamed,
            is_test: order.is_test,
            sent: now,
            wait: order.wait,
            held: self.inflight + 1,
            alone: self.backlog.len() == 0,
            sharing_seconds: self.meter.sharing_seconds(now),
            company: machine.mark(now),
            first_byte: None,
        };
        self.backlog.push(Pending {
            number: order.number,
            work: order.size.work,
            reading: order.size.reading(),
            timed: order.timed(),
            load: order.size.load(),
            own: order.timed().map(|_| self.own(order.size)),
            sent: now,
        });
        if order.size.work == Work::Generate {
            self.meter.enter(now);
            self.memory.enter(order.size);
        }
        self.inflight += 1;
        self.used = now;
        self.classes.enter(order.class);
        if order.is_test {
            self.calibration.begin(now);
            self.record.tests += 1;
        } else {
            self.record.picks += 1;
        }
        booking
    }

    /// The answer's first byte came: the request leaves the backlog. Unless the answer was generated in one piece, its
    /// prefill ended only now, and the worker has turned to the next. Nothing happens a second time, or to a booking of
    /// an older generation: neither is in the backlog.
    pub(super) fn first_byte(
        &mut self,
        booking: &mut Booking,
        machine: &mut Machine,
        now: Seconds,
    ) {
        if self.backlog.remove(booking.number).is_none() {
            return;
        }
        self.condition.begun();
        let company = machine.company(booking.company, now);
        let alone = machine.alone_share(company);
        self.came(booking, alone, now);
        let arrived = booking.sent + self.net();
        let turned = self.backlog.turned();
        let span = now - booking.sent;
        let sharing_seconds = self.meter.sharing_seconds(now) - booking.sharing_seconds;
        let prefill = (now - arrived.max(turned)).max(Seconds::ZERO);
        if turned <= arrived && self.load.was_heard_before(booking.sent) {
            self.disprove_waiting(prefill, booking.size, now);
        }
        let prefill = self.without_foreign(prefill, booking.size, now);
        let line = self.speeds.prefill(Work::Generate);
        let first_byte = FirstByte {
            took: (now - arrived).max(Seconds::ZERO),
            prefill,
            behind: turned > arrived,
            // The request itself shared; when no time has passed, the quotient is no number and `max` drops it.
            sharing: (sharing_seconds / span.0).max(1.0) + self.foreign(now).running,
            company: machine.company(booking.company, now),
            taught: booking.decodes() && booking.tells_of_speed(line, prefill),
        };
        booking.first_byte = Some(first_byte);
        self.learn_loads(booking, first_byte, machine, now);
        if first_byte.taught {
            self.learn_prefill(Work::Generate, booking.size.reading(), first_byte, machine);
        }
        if booking.decodes() {
            self.meter.begin(now);
        }
        if booking.decodes() || booking.work() != Work::Generate {
            self.backlog.turn(now);
        }
        self.reckon();
    }

    /// Output tokens passed, after the first of their answers.
    pub(super) fn tokens(&mut self, count: f64, machine: &mut Machine, now: Seconds) {
        let Some(count) = believable(Some(count)) else {
            return;
        };
        let pace = self.meter.passed(count, now);
        let began = self.sampled;
        if pace.is_some() || self.meter.streams() == 0 {
            self.sampled = machine.mark(now);
        }
        if let Some(pace) = pace {
            let company = machine.company(began, now);
            let sharing = pace.sharing + self.foreign(now).running;
            let token = machine.alone(Span {
                took: pace.token,
                expected: self.speeds.decode().at(sharing),
                samples: self.speeds.decode_samples(),
                company,
            });
            self.speeds.learn_decode(sharing, token);
        }
    }

    /// The request ended: its place is free. Returns what the worker should be ejected for, if it should.
    pub(super) fn finish(
        &mut self,
        mut booking: Booking,
        outcome: Outcome,
        machine: &mut Machine,
        now: Seconds,
    ) -> Option<EjectCause> {
        match outcome {
            Outcome::Rejected if booking.is_test => self.calibration.refused(booking.model, now),
            _ if booking.is_test => {}
            outcome => self.record.ended(outcome),
        }
        if !self.is_current(&booking) {
            return None;
        }
        if let Outcome::Answered {
            prompt_tokens,
            cached_tokens,
            output_tokens,
        } = outcome
        {
            self.first_byte(&mut booking, machine, now);
            let (prompt, cached) = (believable(prompt_tokens), believable(cached_tokens));
            let reading = booking.size.reported(prompt, cached).reading();
            self.learn_swap(&booking, reading, believable(output_tokens), machine);
            if booking.may_teach(cached.is_some()) {
                self.learn(&booking, reading, believable(output_tokens), machine);
            }
        }
        self.release(&booking, outcome, now);
        if let Outcome::Busy { .. } = outcome {
            self.saturation.refused(self.inflight);
        }
        self.reckon();
        machine.give_back(self.inflight, now);
        let weighed = self.condition.weigh(booking.sent, outcome, now);
        if weighed.outage_begins {
            machine.outage(now);
        }
        weighed.eject_for
    }

    /// The busy time of its machine that has fallen to a request so far.
    pub(super) fn share_of(
        &self,
        booking: &Booking,
        machine: &mut Machine,
        now: Seconds,
    ) -> Seconds {
        if !self.is_current(booking) {
            return Seconds::ZERO;
        }
        machine.share_since(booking.company, now)
    }

    /// Takes it out; what it holds goes on.
    pub(super) fn eject(&mut self, cause: EjectCause, now: Seconds) {
        self.condition.eject(cause, now);
    }

    /// Ends what is over of its condition.
    pub(super) fn tick(&mut self, now: Seconds) {
        self.condition.tick(now);
        self.loras.expire(now);
    }

    fn is_current(&self, booking: &Booking) -> bool {
        booking.generation == self.generation
    }

    fn release(&mut self, booking: &Booking, outcome: Outcome, now: Seconds) {
        self.inflight = self.inflight.saturating_sub(1);
        self.used = now;
        self.classes.leave(booking.class);
        if let Some(borrowed) = &booking.lora {
            self.loras.give_back(borrowed);
        }
        if let Some(stay) = &booking.stay {
            self.residents.give_back(stay);
        }
        let was_head = self.backlog.is_head(booking.number);
        let had_no_byte = self.backlog.remove(booking.number).is_some();
        if was_head && !matches!(outcome, Outcome::Unsent | Outcome::Refused) {
            self.backlog.turn(now);
        }
        if booking.work() == Work::Generate {
            self.meter.leave(!had_no_byte && booking.decodes(), now);
            self.memory.leave(booking.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::line_fit::Sample;
    use super::*;

    fn worker() -> Worker {
        let spec = WorkerSpec::new("w", 8);
        Worker::new(WorkerId(0), spec)
    }

    fn order(number: u64, work: Work, streamed: bool) -> Order {
        Order {
            number,
            model: 0,
            class: 0,
            size: Size::new(work, 1_000.0, 0.0),
            max_tokens: None,
            streamed,
            wait: Seconds::ZERO,
            is_test: false,
        }
    }

    fn sample(took: f64, behind: bool) -> Sample {
        Sample {
            size: Size::new(Work::Generate, 1_000.0, 0.0).reading(),
            took: Seconds(took),
            behind,
        }
    }

    fn answered(prompt: f64, output: f64) -> Outcome {
        Outcome::Answered {
            prompt_tokens: Some(prompt),
            cached_tokens: None,
            output_tokens: Some(output),
        }
    }

    /// The prefill line of embeddings after one of them, sent at 1 s, ended in this way at 2 s.
    fn embed_line(outcome: Outcome, begun: bool) -> (f64, u64) {
        let mut worker = worker();
        worker.connected(Seconds(0.1));
        let mut booking = worker.book(
            order(1, Work::Embed, false),
            &mut Machine::default(),
            Seconds(1.0),
        );
        if begun {
            worker.first_byte(&mut booking, &mut Machine::default(), Seconds(1.6));
        }
        worker.finish(booking, outcome, &mut Machine::default(), Seconds(2.0));
        assert_eq!((worker.inflight(), worker.queued()), (0, 0));
        let line = worker.speeds().prefill(Work::Embed);
        let samples = worker.speeds().prefill_samples(Work::Embed);
        (line.at(1_000.0).0, samples)
    }

    #[test]
    fn an_answer_teaches_the_time_to_its_first_byte_less_the_way() {
        let mut expected = Speeds::believing(1.0);
        expected.learn_prefill(Work::Embed, sample(0.5, false));
        let (found, samples) = embed_line(answered(1_000.0, 0.0), true);
        assert_eq!(samples, 1);
        assert!((found - expected.prefill(Work::Embed).at(1_000.0).0).abs() < 1e-9);
    }

    #[test]
    fn reported_tokens_replace_the_estimate_if_they_can_be_true() {
        let plain = embed_line(answered(1_000.0, 0.0), true);
        assert_ne!(embed_line(answered(4_000.0, 0.0), true), plain);
        for nonsense in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(embed_line(answered(nonsense, nonsense), true), plain);
        }
    }

    #[test]
    fn an_end_that_is_no_answer_teaches_nothing() {
        for outcome in [
            Outcome::Failed,
            Outcome::Refused,
            Outcome::Unsent,
            Outcome::Gone,
            Outcome::Busy { retry_after: None },
            Outcome::Rejected,
        ] {
            assert_eq!(embed_line(outcome, false).1, 0);
            assert_eq!(embed_line(outcome, true).1, 0);
        }
    }

    #[test]
    fn requests_in_turn_each_teach_their_own_time() {
        let mut worker = worker();
        let book = |worker: &mut Worker, number| {
            worker.book(
                order(number, Work::Generate, true),
                &mut Machine::default(),
                Seconds(1.0),
            )
        };
        let mut bookings: Vec<_> = (0..3).map(|number| book(&mut worker, number)).collect();
        let mut alone = Speeds::believing(1.0);
        for (booking, at) in bookings.iter_mut().zip([1.2, 1.4, 1.6]) {
            worker.first_byte(booking, &mut Machine::default(), Seconds(at));
            alone.learn_prefill(Work::Generate, sample(0.2, at > 1.2));
        }
        let (found, wanted) = (
            worker.speeds().prefill(Work::Generate).at(1_000.0),
            alone.prefill(Work::Generate).at(1_000.0),
        );
        assert!((found.0 - wanted.0).abs() < 1e-9);
        assert_eq!((worker.queued(), worker.decoding()), (0, 3));
        for booking in bookings {
            worker.finish(
                booking,
                Outcome::Gone,
                &mut Machine::default(),
                Seconds(2.0),
            );
        }
        assert_eq!((worker.inflight(), worker.decoding()), (0, 0));
        assert_eq!(worker.check(), Ok(()));
    }

    #[test]
    fn the_next_in_turn_begins_when_the_head_is_cancelled_but_not_when_it_was_never_sent() {
        for (outcome, prefill) in [(Outcome::Gone, 0.2), (Outcome::Unsent, 1.0)] {
            let mut worker = worker();
            let head = worker.book(
                order(1, Work::Generate, true),
                &mut Machine::default(),
                Seconds(1.0),
            );
            let mut next = worker.book(
                order(2, Work::Generate, true),
                &mut Machine::default(),
                Seconds(1.0),
            );
            worker.finish(head, outcome, &mut Machine::default(), Seconds(1.8));
            worker.first_byte(&mut next, &mut Machine::default(), Seconds(2.0));
            let seen = next.first_byte.unwrap().prefill;
            assert!((seen.0 - prefill).abs() < 1e-9, "{outcome:?}: {seen}");
            worker.finish(next, Outcome::Gone, &mut Machine::default(), Seconds(3.0));
        }
    }

    #[test]
    fn a_whole_answer_turned_to_the_next_when_its_tokens_began_and_a_later_request_that_leaves_did_not()
     {
        let mut worker = worker();
        let book = |worker: &mut Worker, number, streamed| {
            worker.book(
                order(number, Work::Generate, streamed),
                &mut Machine::default(),
                Seconds(1.0),
            )
        };
        let (whole, mut next, last) = (
            book(&mut worker, 1, false),
            book(&mut worker, 2, true),
            book(&mut worker, 3, true),
        );
        worker.finish(last, Outcome::Gone, &mut Machine::default(), Seconds(1.8));
        worker.finish(
            whole,
            answered(1_000.0, 21.0),
            &mut Machine::default(),
            Seconds(1.9),
        );
        let sharing = (3.0 * 0.8 + 2.0 * 0.1) / 0.9;
        let began = Seconds(1.9) - worker.speeds().decoding(21.0, sharing);
        worker.first_byte(&mut next, &mut Machine::default(), Seconds(2.0));
        let seen = next.first_byte.unwrap().prefill;
        assert!((seen - (Seconds(2.0) - began)).0.abs() < 1e-9, "{seen}");
        assert!(seen < Seconds(0.9), "{seen}");
        worker.finish(next, Outcome::Gone, &mut Machine::default(), Seconds(3.0));
        assert_eq!(worker.check(), Ok(()));
    }

    #[test]
    fn tokens_that_pass_teach_the_decode_line() {
        let mut worker = worker();
        let mut booking = worker.book(
            order(1, Work::Generate, true),
            &mut Machine::default(),
            Seconds(1.0),
        );
        worker.first_byte(&mut booking, &mut Machine::default(), Seconds(1.2));
        for count in [f64::NAN, -5.0, 2.0] {
            worker.tokens(count, &mut Machine::default(), Seconds(1.4));
        }
        let mut expected = Speeds::believing(1.0);
        expected.learn_decode(1.0, Seconds(0.1));
        let (found, wanted) = (worker.speeds().decode(), expected.decode());
        assert_eq!(worker.speeds().decode_samples(), 1);
        assert!((found.at(1.0).0 - wanted.at(1.0).0).abs() < 1e-9);
        worker.finish(
            booking,
            Outcome::Gone,
            &mut Machine::default(),
            Seconds(2.0),
        );
    }

    #[test]
    fn counters_that_disagree_are_noticed() {
        let mut worker = worker();
        worker.inflight = 9;
        assert!(worker.check().is_err());
        worker.inflight = 1;
        worker.meter.enter(Seconds::ZERO);
        worker.meter.enter(Seconds::ZERO);
        assert!(worker.check().is_err());
    }
}
