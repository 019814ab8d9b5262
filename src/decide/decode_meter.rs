//! How long an output token takes on one worker, measured over all its streams together.
//!
//! One stream's gaps say little: engines emit in bursts, and several tokens come in one read. What counts is
//! stream-seconds over tokens: with s streams running for dt seconds and k tokens passed, a token took dt·s/k. The
//! integral of s over time replaces dt·s, so that streams may begin and end within a sample.
//!
//! A token's time is laid against all generating requests that the worker holds, those still in prefill included:
//! they slow the streams too, and it is the count that a price asks for. 2026-11-30: believed that running streams
//! alone should be counted. Seen that a burst of prompts on an idle worker then looked like a machine that is slow
//! with one stream and no slower with ten, which was given no second burst to learn better from.
//!
//! The first token of an answer ends its prefill; only those after it count here.

use crate::units::Seconds;

/// A sample spans at least this much time with a stream running.
const SPAN: f64 = 0.1;
/// or, when nothing streams any more, this much and two tokens: test requests have no more, and their streams are alone.
const SHORT_SPAN: f64 = 0.01;

/// Counts requests that generate, and their tokens until a sample is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecodeMeter {
    /// Generating requests held.
    sharing: u32,
    /// Those of them that stream tokens.
    streams: u32,
    updated: Seconds,
    /// The integral of `sharing` since the start.
    sharing_seconds: f64,
    sample: Sample,
}

/// A sample under way; time counts while at least one stream runs.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    active: f64,
    stream_seconds: f64,
    sharing_seconds: f64,
    tokens: f64,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// The mean of requests that shared the card.
    pub sharing: f64,
    /// Seconds per token of one stream.
    pub token: Seconds,
}

impl DecodeMeter {
    /// Generating requests held now.
    pub(super) fn sharing(&self) -> u32 {
        self.sharing
    }

    /// Those of them that stream tokens.
    pub(super) fn streams(&self) -> u32 {
        self.streams
    }

    /// A request arrives.
    pub(super) fn enter(&mut self, now: Seconds) {
        self.advance(now);
        self.sharing += 1;
    }

    /// Its first token comes, and more will be timed.
    pub(super) fn begin(&mut self, now: Seconds) {
        self.advance(now);
        self.streams += 1;
    }

    /// It leaves, before or after it has begun to stream.
    pub(super) fn leave(&mut self, streamed: bool, now: Seconds) {
        self.advance(now);
        self.sharing = self.sharing.saturating_sub(1);
        self.streams = self.streams.saturating_sub(u32::from(streamed));
    }

    /// Request-seconds since the start. Over a span of time, what this grew by is the mean of those who shared.
    pub(super) fn sharing_seconds(&mut self, now: Seconds) -> f64 {
        self.advance(now);
        self.sharing_seconds
    }

    /// Tokens passed. A sample is due once it spans enough time and, on average, every stream has had a token; or once
    /// the last stream has ended.
    pub(super) fn passed(&mut self, tokens: f64, now: Seconds) -> Option<Pace> {
        self.advance(now);
        let sample = &mut self.sample;
        if sample.active == 0.0 {
            return None;
        }
        sample.tokens += tokens;
        let is_over = self.streams == 0 && sample.active >= SHORT_SPAN && sample.tokens >= 2.0;
        let is_long = sample.active >= SPAN;
        if !(is_long || is_over) || sample.tokens < sample.stream_seconds / sample.active {
            return None;
        }
        let pace = Pace {
            sharing: sample.sharing_seconds / sample.active,
            token: Seconds(sample.stream_seconds / sample.tokens),
        };
        *sample = Sample::default();
        Some(pace)
    }

    fn advance(&mut self, now: Seconds) {
        let span = (now - self.updated).max(Seconds::ZERO).0;
        let (sharing, streams) = (f64::from(self.sharing), f64::from(self.streams));
        self.updated = self.updated.max(now);
        self.sharing_seconds += span * sharing;
        if self.streams > 0 {
            self.sample.active += span;
            self.sample.stream_seconds += span * streams;
            self.sample.sharing_seconds += span * sharing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A meter on which this many requests have begun to stream at this time.
    fn streaming(requests: u32, now: f64) -> DecodeMeter {
        let mut meter = DecodeMeter::default();
        for _ in 0..requests {
            meter.enter(Seconds(now));
            meter.begin(Seconds(now));
        }
        meter
    }

    #[test]
    fn a_token_takes_stream_seconds_over_tokens() {
        let mut meter = streaming(2, 5.0);
        meter.enter(Seconds(5.0));
        assert_eq!(meter.passed(4.0, Seconds(5.05)), None);
        let pace = meter.passed(6.0, Seconds(5.2)).unwrap();
        assert_eq!(pace.sharing, 3.0);
        assert!((pace.token.0 - 0.04).abs() < 1e-9);
    }

    #[test]
    fn idle_time_and_stray_tokens_count_for_nothing() {
        let mut meter = DecodeMeter::default();
        assert_eq!(meter.passed(50.0, Seconds(1.0)), None);
        let mut meter = streaming(1, 2.0);
        meter.leave(true, Seconds(2.1));
        meter.enter(Seconds(60.0));
        meter.begin(Seconds(60.0));
        let pace = meter.passed(20.0, Seconds(60.1)).unwrap();
        assert!((pace.token.0 - 0.01).abs() < 1e-9, "{pace:?}");
    }

    #[test]
    fn a_slow_stream_is_sampled_when_its_token_comes() {
        let mut meter = streaming(1, 0.0);
        assert_eq!(meter.passed(0.0, Seconds(0.5)), None);
        assert_eq!(meter.passed(1.0, Seconds(1.5)).unwrap().token, Seconds(1.5));
    }

    #[test]
    fn request_seconds_give_the_mean_of_those_who_shared() {
        let mut meter = streaming(3, 1.0);
        let before = meter.sharing_seconds(Seconds(1.0));
        meter.leave(true, Seconds(2.0));
        let grown = meter.sharing_seconds(Seconds(3.0)) - before;
        assert_eq!(grown / 2.0, 2.5);
    }
}
