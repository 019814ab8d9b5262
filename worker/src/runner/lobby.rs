//! Those who wait for something else before they may get in line: at each level no more than may wait there, and for no
//! longer.

use parking_lot::Mutex;

use crate::batch::{Limits, Urgency};
use crate::units::Seconds;

/// Who waits so, counted by level.
pub struct Lobby {
    limits: Limits,
    inside: Mutex<Vec<usize>>,
}

/// One who waits; counts until dropped.
pub struct Guest<'a> {
    lobby: &'a Lobby,
    level: usize,
}

impl Lobby {
    /// Empty, before a line of these limits.
    pub fn new(limits: Limits) -> Lobby {
        let inside = vec![0; limits.levels.len()];
        Lobby {
            limits,
            inside: Mutex::new(inside),
        }
    }

    /// Counts one more, unless as many wait as may.
    pub fn enter(&self, urgency: Urgency) -> Option<Guest<'_>> {
        let level = self.limits.level(urgency);
        let policy = self.limits.levels.get(level)?;
        let mut inside = self.inside.lock();
        let count = inside.get_mut(level)?;
        if *count >= policy.waiting {
            return None;
        }
        *count += 1;
        Some(Guest { lobby: self, level })
    }

    /// How long such a request may wait before it is refused; absent = for ever.
    pub fn patience(&self, urgency: Urgency) -> Option<Seconds> {
        self.limits.patience(urgency)
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.inside.lock().iter().sum()
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.lobby.inside.lock().get_mut(self.level) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Overdue, Policy};

    fn lobby(waiting: &[usize]) -> Lobby {
        let level = |&waiting: &usize| Policy {
            waiting,
            timeout: None,
            may_shorten: false,
            overdue: Overdue::Refuse,
        };
        Lobby::new(Limits {
            rows: 1,
            preferred: vec![],
            delay: Seconds(0.0),
            levels: waiting.iter().map(level).collect(),
            default_level: 0,
            ordered: false,
        })
    }

    #[test]
    fn as_many_of_a_level_wait_as_may_in_line() {
        let lobby = lobby(&[1, 2]);
        let [high, low] = [0, 1].map(|level| Urgency {
            level: Some(level),
            timeout: None,
        });
        let _first = lobby.enter(high).unwrap();
        let leaves = lobby.enter(low).unwrap();
        let _stays = lobby.enter(low).unwrap();
        assert!(lobby.enter(high).is_none() && lobby.enter(low).is_none());
        assert_eq!(lobby.count(), 3);
        drop(leaves);
        assert!(lobby.enter(high).is_none() && lobby.enter(low).is_some());
    }
}
