//! What a worker's lines learn from a request: from its first byte, and from its whole answer.

use super::Worker;
use crate::decide::ask::Work;
use crate::decide::booking::{Booking, FirstByte};
use crate::decide::line_fit::Sample;
use crate::decide::machine::{Machine, Span};
use crate::decide::speed::Whole;
use crate::units::Seconds;

impl Worker {
    /// A request's adapter is on the card and its model in memory; if either was brought there for it, what its first byte
    /// took beyond its prefill is the load. Of an answer that was generated in one piece nobody knows yet how much of its
    /// time that was.
    pub(super) fn learn_loads(
        &mut self,
        booking: &Booking,
        first_byte: FirstByte,
        machine: &Machine,
        now: Seconds,
    ) {
        let own = self
            .speeds
            .prefill(booking.work())
            .at(booking.size.reading());
        let late = first_byte.prefill - own / machine.alone_share(first_byte.company);
        let is_timed = booking.decodes() || booking.work() != Work::Generate;
        let late = is_timed.then_some(late);
        if let Some(borrowed) = &booking.lora {
            self.loras.begun(borrowed, late);
        }
        if let Some(stay) = &booking.stay {
            self.residents.begun(stay, late, now);
        }
    }

    /// An answer came in one piece and tells how long it is: what it took beyond what was expected of it is the swap, if
    /// there was one. A swap takes so much longer that an error in the rest is none of it.
    pub(super) fn learn_swap(
        &mut self,
        booking: &Booking,
        reading: f64,
        output: Option<f64>,
        machine: &Machine,
    ) {
        let in_one_piece = !booking.streamed && booking.work() == Work::Generate;
        let (Some(stay), Some(first_byte), Some(output)) =
            (&booking.stay, booking.first_byte, output)
        else {
            return;
        };
        if in_one_piece {
            let alone = machine.alone_share(first_byte.company);
            let whole = whole(booking, first_byte, (reading, output), alone);
            let late = whole.took - self.speeds.expected(&whole) / alone;
            self.residents.took(stay, late);
        }
    }

    /// A prompt was read that was this much work.
    pub(super) fn learn_prefill(
        &mut self,
        work: Work,
        reading: f64,
        first_byte: FirstByte,
        machine: &mut Machine,
    ) {
        let sample = first_byte.sample(reading);
        let took = machine.alone(Span {
            took: sample.took,
            expected: self.speeds.prefill(work).at(reading),
            samples: self.speeds.prefill_samples(work),
            company: first_byte.company,
        });
        self.speeds.learn_prefill(work, Sample { took, ..sample });
    }

    /// What a whole answer shows that its first byte did not.
    pub(super) fn learn(
        &mut self,
        booking: &Booking,
        reading: f64,
        output: Option<f64>,
        machine: &mut Machine,
    ) {
        let Some(first_byte) = booking.first_byte else {
            return;
        };
        match (booking.size.work, output) {
            (work @ (Work::Embed | Work::Infer), _) => {
                self.learn_prefill(work, reading, first_byte, machine);
            }
            (Work::Generate, Some(output)) if !booking.streamed => {
                let alone = machine.alone_share(first_byte.company);
                let whole = whole(booking, first_byte, (reading, output), alone);
                let took = machine.alone(Span {
                    took: whole.took,
                    expected: self.speeds.expected(&whole),
                    samples: self.speeds.prefill_samples(Work::Generate),
                    company: first_byte.company,
                });
                self.saturation.served(booking.held);
                self.speeds.learn_whole(Whole { took, ..whole });
                let decoding = self.speeds.decoding(output, first_byte.sharing) / alone;
                let came = booking.sent + self.net() + first_byte.took;
                self.backlog.turn(came - decoding);
            }
            (Work::Generate, _) if booking.streamed && !first_byte.taught => {
                self.learn_prefill(Work::Generate, reading, first_byte, machine);
            }
            (Work::Generate, _) => {}
        }
    }
}

/// An answer in one piece, by the work of its prompt and its tokens.
fn whole(
    booking: &Booking,
    first_byte: FirstByte,
    (prompt, output): (f64, f64),
    alone: f64,
) -> Whole {
    Whole {
        took: first_byte.took,
        wait: booking.wait * alone,
        prompt,
        output,
        sharing: first_byte.sharing,
    }
}
