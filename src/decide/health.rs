//! Whether a worker is up, by its liveness probes.
//!
//! Before its first probe a worker is neither up nor down. It is served (a proxy that refused everything for its first
//! two seconds would be worse than one try that fails), and the first probe alone decides: there is no earlier state
//! that deserves the benefit of the doubt. After that it takes `fall` failures in a row to go down and `rise` passes
//! in a row to come back, so that one lost packet moves no traffic.
//!
//! One that lives and still loads its model is neither: it can't serve, so it is given nothing, and nothing is wrong with
//! it, so nothing is held against it. That it loads is no news of a worker that gets no requests anyway, and is believed
//! at once; of one that is up it is believed as slowly as a failure.

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
    /// Alive, and its operator lets it have no new requests.
    Draining,
    /// Alive and loading its model; gets no requests.
    Loading,
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
            State::Draining => "draining",
            State::Loading => "loading",
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

    /// So many probes in a row decide from here on.
    pub(super) fn replan(&mut self, rise: u32, fall: u32) {
        (self.rise, self.fall) = (rise, fall);
    }

    /// The state now.
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Why it is down, or loading.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// When the state began.
    pub(super) fn since(&self) -> Seconds {
        self.since
    }

    /// A probe passed, or failed for a reason. Returns the state left when it changed.
    pub(super) fn probe(&mut self, verdict: Result<(), String>, now: Seconds) -> Option<State> {
        let says = if verdict.is_ok() {
            State::Up
        } else {
            State::Down
        };
        self.say(says, verdict.err(), now)
    }

    /// A probe found it loading, for a reason. Returns the state left when it changed.
    pub(super) fn load(&mut self, reason: String, now: Seconds) -> Option<State> {
        self.say(State::Loading, Some(reason), now)
    }

    fn say(&mut self, says: State, reason: Option<String>, now: Seconds) -> Option<State> {
        if says == self.state {
            self.against = 0;
            // A worker may be down for another reason than it went down for.
            self.reason = reason;
            return None;
        }
        self.against += 1;
        if self.against < self.needed(says) {
            return None;
        }
        self.against = 0;
        self.since = now;
        self.reason = reason;
        Some(std::mem::replace(&mut self.state, says))
    }

    /// Probes in a row that it takes to leave the state for this one.
    fn needed(&self, says: State) -> u32 {
        match (self.state, says) {
            (State::Starting, _) => 1,
            (_, State::Up) => self.rise,
            (State::Up, _) => self.fall,
            // It gets no requests before or after.
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Result<(), String> {
        Err("connection refused".into())
    }

    /// The states after each of these probes; `+` passes, `-` fails, `~` finds it loading.
    fn states(probes: &str) -> String {
        let mut health = Health::starting(2, 3);
        probes
            .chars()
            .map(|probe| {
                match probe {
                    '~' => health.load("loading".into(), Seconds(1.0)),
                    '+' => health.probe(Ok(()), Seconds(1.0)),
                    _ => health.probe(refused(), Seconds(1.0)),
                };
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
    fn one_that_loads_is_believed_at_once_unless_it_was_up() {
        assert_eq!(states("~+~+++"), "lllluu");
        assert_eq!(states("-~-~"), "dldl");
        assert_eq!(states("+~-~"), "uuul");
        assert_eq!(states("+~~+~"), "uuuuu");
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
