//! Signs of life of a tunnel's two ends, and when to ask for one.
//!
//! Silence alone does not tell a quiet end from a dead one: a machine that lost its power closes nothing. Where
//! `timeouts.ping` is on, an end that said nothing for so long is sent a ping, which a living one answers (RFC 6455
//! §5.5.2). Nobody is given up for silence that was not asked about: as long as no ping is without an answer, what
//! counts is the silence of both ends together, and from then on that of the end which does not answer.

use crate::units::Seconds;

/// An end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Worker,
}

/// What is known of one end.
#[derive(Clone, Copy, Debug)]
struct Sign {
    heard: Seconds,
    /// From when it counts after how long it is asked: when it was heard, or could have been asked, last.
    since: Seconds,
    /// Whether it was sent a ping since it was heard.
    asked: bool,
}

impl Sign {
    fn heard(now: Seconds) -> Self {
        Sign {
            heard: now,
            since: now,
            asked: false,
        }
    }
}

/// What is known of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs {
    client: Sign,
    worker: Sign,
}

impl Signs {
    /// Both were heard just now.
    pub(super) fn new(now: Seconds) -> Self {
        Signs {
            client: Sign::heard(now),
            worker: Sign::heard(now),
        }
    }

    fn of(&mut self, side: Side) -> &mut Sign {
        match side {
            Side::Client => &mut self.client,
            Side::Worker => &mut self.worker,
        }
    }

    /// Bytes came from this end.
    pub(super) fn heard(&mut self, side: Side, now: Seconds) {
        *self.of(side) = Sign::heard(now);
    }

    /// It was time to ask this end; `asked` says whether it was, which it can't be inside a frame.
    pub(super) fn tried(&mut self, side: Side, asked: bool, now: Seconds) {
        let sign = self.of(side);
        sign.since = now;
        sign.asked |= asked;
    }

    /// When either end was heard last.
    pub(super) fn last(&self) -> Seconds {
        self.client.heard.max(self.worker.heard)
    }

    /// Since when the silence lasts for which the tunnel may be given up.
    pub(super) fn silent_since(&self) -> Seconds {
        let asked = [self.client, self.worker].into_iter();
        let asked = asked.filter(|sign| sign.asked);
        asked.fold(self.last(), |since, sign| since.min(sign.heard))
    }

    /// Whom to ask next, and when, if each end is asked after so long.
    pub(super) fn next(&self, every: Seconds) -> (Seconds, Side) {
        let (client, worker) = (self.client.since + every, self.worker.since + every);
        if client <= worker {
            (client, Side::Client)
        } else {
            (worker, Side::Worker)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Seconds = Seconds(10.0);

    #[test]
    fn each_end_is_asked_once_it_has_been_silent_for_so_long_and_again_after_as_long() {
        let mut signs = Signs::new(Seconds(0.0));
        signs.heard(Side::Client, Seconds(4.0));
        assert_eq!(signs.next(EVERY), (Seconds(10.0), Side::Worker));
        signs.tried(Side::Worker, true, Seconds(10.0));
        assert_eq!(signs.next(EVERY), (Seconds(14.0), Side::Client));
        signs.tried(Side::Client, false, Seconds(14.0));
        assert_eq!(signs.next(EVERY), (Seconds(20.0), Side::Worker));
        signs.heard(Side::Worker, Seconds(15.0));
        assert_eq!(signs.next(EVERY), (Seconds(24.0), Side::Client));
    }

    #[test]
    fn an_end_that_was_not_asked_may_be_silent_while_the_other_speaks() {
        let mut signs = Signs::new(Seconds(0.0));
        signs.heard(Side::Client, Seconds(100.0));
        signs.tried(Side::Worker, false, Seconds(100.0));
        assert_eq!(signs.silent_since(), Seconds(100.0));
        signs.tried(Side::Worker, true, Seconds(100.0));
        assert_eq!(signs.silent_since(), Seconds(0.0));
        signs.heard(Side::Client, Seconds(101.0));
        assert_eq!(signs.silent_since(), Seconds(0.0));
        signs.heard(Side::Worker, Seconds(102.0));
        assert_eq!(
            (signs.silent_since(), signs.last()),
            (Seconds(102.0), Seconds(102.0))
        );
    }
}
