//! Whether a worker is up, by its liveness probes.
//!
//! Before its first probe a worker is neither up nor down. It is served (a proxy that refused everything for its first
//! two seconds would be worse than one try that fails), and the first probe alone decides: there is no earlier state
//! that deserves the benefit of the doubt. After that it takes `fall` failures in a row to go down and `rise` passes
//! in a row to come back, so that one lost packet moves no traffic.

use crate::units::Seconds;

/// What a worker's probes and requests say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not probed yet.
    Starting,
    /// Alive.
    Up,
    /// Alive by its probes, but its requests failed; gets none for a while. See `eject.rs`.
    Ejected,
    /// Not alive; gets no requests.
    Down,
}

impl State {
    /// As the admin API and the metrics say it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Up => "up",
            State::Ejected => "ejected",
            State::Down => "down",
        }
    }
}

/// A worker's state and how it got there.
#[derive(Clone, Debug)]
pub(super) struct Health {
    state: State,
    reason: Option<String>,
    since: Seconds,
    rise: u32,
    fall: u32,
    /// Probes in a row that spoke against the state.
    against: u32,
}

impl Health {
    /// Not probed yet.
    pub(super) fn starting(rise: u32, fall: u32) -> Self {
        Health {
            state: State::Starting,
            reason: None,
            since: Seconds::ZERO,
            rise,
            fall,
            against: 0,
        }
    }

    /// The state now.
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Why it is down.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// When the state began.
    pub(super) fn since(&self) -> Seconds {
        self.since
    }

    /// A probe passed, or failed for a reason. Returns the state left when it changed.
    pub(super) fn probe(&mut self, verdict: Result<(), String>, now: Seconds) -> Option<State> {
        let (says, needed) = match verdict {
            Ok(()) => (State::Up, self.rise),
            Err(_) => (State::Down, self.fall),
        };
        if says == self.state {
            self.against = 0;
            // A worker may be down for another reason than it went down for.
            self.reason = verdict.err();
            return None;
        }
        self.against += 1;
        if self.state != State::Starting && self.against < needed {
            return None;
        }
        self.against = 0;
        self.since = now;
        self.reason = verdict.err();
        Some(std::mem::replace(&mut self.state, says))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Result<(), String> {
        Err("connection refused".into())
    }

    /// The states after each of these probes; `+` passes, `-` fails.
    fn states(probes: &str) -> String {
        let mut health = Health::starting(2, 3);
        probes
            .chars()
            .map(|probe| {
                let verdict = if probe == '+' { Ok(()) } else { refused() };
                health.probe(verdict, Seconds(1.0));
                &health.state().label()[..1]
            })
            .collect()
    }

    #[test]
    fn the_first_probe_decides_alone() {
        assert_eq!(states("+"), "u");
        assert_eq!(states("-"), "d");
    }

    #[test]
    fn it_takes_rise_and_fall_in_a_row() {
        assert_eq!(states("+--+---"), "uuuuuud");
        assert_eq!(states("-+-++"), "ddddu");
    }

    #[test]
    fn a_change_says_when_and_why() {
        let mut health = Health::starting(2, 3);
        assert_eq!(health.probe(refused(), Seconds(7.0)), Some(State::Starting));
        assert_eq!(health.since(), Seconds(7.0));
        assert_eq!(health.reason(), Some("connection refused"));
        assert_eq!(health.state(), State::Down);
        health.probe(Err("loading".into()), Seconds(7.5));
        assert_eq!(health.reason(), Some("loading"));
        assert_eq!(health.since(), Seconds(7.0));
        health.probe(Ok(()), Seconds(8.0));
        assert_eq!(health.probe(Ok(()), Seconds(9.0)), Some(State::Down));
        assert_eq!(health.reason(), None);
    }
}
