//! How long an output token takes on one worker, measured over all its streams together.
//!
//! One stream's gaps say little: engines emit in bursts, and several tokens come in one read. What counts is
//! stream-seconds over tokens: with s streams running for dt seconds and k tokens passed, a token took dt·s/k. The
//! integral of s over time replaces dt·s, so that streams may begin and end within a sample.
//!
//! The first token of an answer ends its prefill; only those after it count here.

use crate::units::Seconds;

/// A sample spans at least this much time with a stream running.
const SPAN: f64 = 0.1;

/// Counts streams and their tokens until a sample is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecodeMeter {
    streams: u32,
    updated: Seconds,
    active: f64,
    stream_seconds: f64,
    tokens: f64,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// The mean of streams that ran.
    pub streams: f64,
    /// Seconds per token of one stream.
    pub token: Seconds,
}

impl DecodeMeter {
    /// Streams that run now.
    pub(super) fn streams(&self) -> u32 {
        self.streams
    }

    /// A stream has its first token.
    pub(super) fn begin(&mut self, now: Seconds) {
        self.advance(now);
        self.streams += 1;
    }

    /// A stream ended.
    pub(super) fn end(&mut self, now: Seconds) {
        self.advance(now);
        self.streams = self.streams.saturating_sub(1);
    }

    /// Tokens passed. A sample is due once it spans enough time and, on average, every stream has had a token.
    pub(super) fn passed(&mut self, tokens: f64, now: Seconds) -> Option<Pace> {
        self.advance(now);
        if self.active == 0.0 {
            return None;
        }
        self.tokens += tokens;
        let streams = self.stream_seconds / self.active;
        if self.active < SPAN || self.tokens < streams {
            return None;
        }
        let token = Seconds(self.stream_seconds / self.tokens);
        (self.active, self.stream_seconds, self.tokens) = (0.0, 0.0, 0.0);
        Some(Pace { streams, token })
    }

    fn advance(&mut self, now: Seconds) {
        let span = (now - self.updated).max(Seconds::ZERO).0;
        self.updated = self.updated.max(now);
        if self.streams > 0 {
            self.active += span;
            self.stream_seconds += span * f64::from(self.streams);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_takes_stream_seconds_over_tokens() {
        let mut meter = DecodeMeter::default();
        meter.begin(Seconds(5.0));
        meter.begin(Seconds(5.0));
        assert_eq!(meter.passed(4.0, Seconds(5.05)), None);
        let pace = meter.passed(6.0, Seconds(5.2)).unwrap();
        assert_eq!(pace.streams, 2.0);
        assert!((pace.token.0 - 0.04).abs() < 1e-9);
    }

    #[test]
    fn idle_time_and_stray_tokens_count_for_nothing() {
        let mut meter = DecodeMeter::default();
        assert_eq!(meter.passed(50.0, Seconds(1.0)), None);
        meter.begin(Seconds(2.0));
        meter.end(Seconds(2.1));
        meter.begin(Seconds(60.0));
        let pace = meter.passed(20.0, Seconds(60.1)).unwrap();
        assert!((pace.token.0 - 0.01).abs() < 1e-9, "{pace:?}");
    }

    #[test]
    fn a_slow_stream_is_sampled_when_its_token_comes() {
        let mut meter = DecodeMeter::default();
        meter.begin(Seconds(0.0));
        assert_eq!(meter.passed(0.0, Seconds(0.5)), None);
        assert_eq!(meter.passed(1.0, Seconds(1.5)).unwrap().token, Seconds(1.5));
    }
}
