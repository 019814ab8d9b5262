//! The timers of one attempt: which run, and which fires first.
//!
//! What is waited for of a worker counts from when the client had sent its part: a worker that waits for the rest of an
//! upload is not late.

use crate::config::plan::Timeouts;
use crate::fault::Kind;
use crate::inspect::Limit;
use crate::units::Seconds;

/// When an attempt is given up. Each timer is a point in time and the span that leads to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    answer: Option<(Seconds, Seconds)>,
    total: Option<(Seconds, Limit)>,
    first_byte: Option<(Seconds, Seconds)>,
    silence: Option<Seconds>,
    /// When the client was last seen to owe a part of its request.
    owed: Option<Seconds>,
    /// How long an end of a tunnel is silent before it is asked whether it lives.
    pub(super) ping: Option<Seconds>,
}

/// A timer: when it fires, as which fault, its name, and its span.
pub(super) type Timer = (Seconds, Kind, &'static str, Seconds);

impl Deadlines {
    /// The timers of a request that is sent now; the exchange began at `started`, and its client waits for so long.
    pub(super) fn new(
        timeouts: &Timeouts,
        streamed: bool,
        now: Seconds,
        started: Seconds,
        deadline: Option<Limit>,
    ) -> Self {
        let after = |from: Seconds, span: Option<Seconds>| span.map(|span| (from + span, span));
        Deadlines {
            answer: after(now, timeouts.answer.filter(|_| !streamed)),
            total: Limit::of(timeouts.total, deadline).map(|limit| (started + limit.span, limit)),
            first_byte: after(now, timeouts.first_byte.filter(|_| streamed)),
            silence: timeouts.between_bytes,
            owed: None,
            ping: timeouts.ping,
        }
    }

    /// The answer turned out to be a stream: it may take as long as it likes.
    pub(super) fn streams(&mut self) {
        self.answer = None;
    }

    /// The client owed a part of its request at this time.
    pub(super) fn owed(&mut self, now: Seconds) {
        self.owed = Some(now);
    }

    /// The timer that fires first; `heard` is when bytes last came, if any did, else `begun` is when the head came.
    pub(super) fn next(&self, heard: Option<Seconds>, begun: Option<Seconds>) -> Option<Timer> {
        let first_byte = self.first_byte.filter(|_| heard.is_none());
        // Silence is measured inside an answer; before a stream's first byte its own timer runs.
        let inside = heard.or(begun.filter(|_| first_byte.is_none()));
        let silence = inside.and_then(|since| self.silence.map(|span| (since + span, span)));
        let owed = |(at, span): (Seconds, Seconds)| match self.owed {
            Some(owed) => (at.max(owed + span), span),
            None => (at, span),
        };
        let total = self.total.map(|(at, limit)| (at, limit.span));
        let total_name = self.total.map_or("", |(_, limit)| limit.name);
        let timers = [
            (
                first_byte.map(owed),
                Kind::FirstByteTimeout,
                "timeouts.first_byte",
            ),
            (
                self.answer.map(owed),
                Kind::AnswerTimeout,
                "timeouts.answer",
            ),
            (silence.map(owed), Kind::Stalled, "timeouts.between_bytes"),
            (total, Kind::Deadline, total_name),
        ];
        let running = timers
            .into_iter()
            .filter_map(|(timer, kind, name)| timer.map(|(at, span)| (at, kind, name, span)));
        running.min_by(|one, other| one.0.0.total_cmp(&other.0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeouts() -> Timeouts {
        Timeouts {
            connect: Seconds(3.0),
            first_byte: Some(Seconds(300.0)),
            answer: Some(Seconds(1800.0)),
            between_bytes: Some(Seconds(60.0)),
            total: None,
            ping: None,
        }
    }

    fn fires(deadlines: &Deadlines, heard: Option<f64>, begun: Option<f64>) -> Option<(f64, Kind)> {
        deadlines
            .next(heard.map(Seconds), begun.map(Seconds))
            .map(|(at, kind, ..)| (at.0, kind))
    }

    #[test]
    fn a_stream_waits_for_its_first_byte_then_for_each_next() {
        let stream = Deadlines::new(&timeouts(), true, Seconds(10.0), Seconds(5.0), None);
        assert_eq!(
            fires(&stream, None, None),
            Some((310.0, Kind::FirstByteTimeout))
        );
        assert_eq!(
            fires(&stream, None, Some(20.0)),
            Some((310.0, Kind::FirstByteTimeout))
        );
        assert_eq!(
            fires(&stream, Some(20.0), Some(20.0)),
            Some((80.0, Kind::Stalled))
        );
    }

    #[test]
    fn an_answer_is_bounded_as_a_whole() {
        let mut answer = Deadlines::new(&timeouts(), false, Seconds(10.0), Seconds(5.0), None);
        assert_eq!(
            fires(&answer, None, None),
            Some((1810.0, Kind::AnswerTimeout))
        );
        assert_eq!(
            fires(&answer, Some(1800.0), None),
            Some((1810.0, Kind::AnswerTimeout))
        );
        assert_eq!(
            fires(&answer, None, Some(20.0)),
            Some((80.0, Kind::Stalled))
        );
        answer.streams();
        assert_eq!(
            fires(&answer, Some(1800.0), None),
            Some((1860.0, Kind::Stalled))
        );
    }

    #[test]
    fn a_worker_has_its_time_after_what_the_client_owes() {
        let limit = Timeouts {
            total: Some(Seconds(5000.0)),
            ..timeouts()
        };
        let mut upload = Deadlines::new(&limit, false, Seconds(10.0), Seconds(5.0), None);
        upload.owed(Seconds(1000.0));
        assert_eq!(
            fires(&upload, None, None),
            Some((2800.0, Kind::AnswerTimeout))
        );
        assert_eq!(
            fires(&upload, Some(20.0), None),
            Some((1060.0, Kind::Stalled))
        );
        upload.owed(Seconds(4000.0));
        assert_eq!(fires(&upload, None, None), Some((5005.0, Kind::Deadline)));
    }

    #[test]
    fn total_counts_from_the_requests_head_and_off_is_off() {
        let total = Timeouts {
            total: Some(Seconds(30.0)),
            ..timeouts()
        };
        let deadlines = Deadlines::new(&total, true, Seconds(10.0), Seconds(5.0), None);
        assert_eq!(fires(&deadlines, None, None), Some((35.0, Kind::Deadline)));
        let patient = |seconds| {
            let deadline = Limit {
                span: Seconds(seconds),
                name: "x-forebay-deadline",
            };
            Deadlines::new(&total, true, Seconds(10.0), Seconds(5.0), Some(deadline))
        };
        let (at, kind, name, span) = patient(2.0).next(None, None).unwrap();
        assert_eq!((at.0, kind, span.0), (7.0, Kind::Deadline, 2.0));
        assert_eq!(name, "x-forebay-deadline");
        assert_eq!(patient(60.0).next(None, None).unwrap().2, "timeouts.total");
        let off = Timeouts {
            first_byte: None,
            between_bytes: None,
            ..timeouts()
        };
        assert_eq!(
            fires(
                &Deadlines::new(&off, true, Seconds(10.0), Seconds(5.0), None),
                Some(1.0),
                None
            ),
            None
        );
    }
}
