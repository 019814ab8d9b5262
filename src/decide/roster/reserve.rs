//! Places that lower classes leave free for higher ones.
//!
//! A queue lets the higher class go first when a place is freed; a reserve sees to it that one is free when it comes. So
//! lower classes together may hold all places but the share: what they hold counts, whether the higher class uses its share
//! or not. All places on those who could serve the request are counted together: of one worker's few places a share would
//! round to all or to none of them. Of two places or more lower classes may hold at least one, so that nobody is locked
//! out. Where nobody says how many places a worker has, they are those that it has shown (`saturation.rs`), and until then
//! it has more than anybody could keep.

use super::super::ask::Ask;
use super::super::worker::Worker;
use super::Roster;

impl Roster {
    /// Whether the request's class and those below hold all that the classes above leave them on these workers.
    pub(super) fn is_kept<'a>(&self, ask: &Ask, workers: impl Iterator<Item = &'a Worker>) -> bool {
        let class = usize::from(ask.claim.class);
        let share = self.rules.reserved.get(class).copied().unwrap_or(0.0);
        if share <= 0.0 {
            return false;
        }
        let count = |(places, held): (u32, u32), worker: &Worker| {
            let own = worker.held_from(ask.claim.class);
            (places.saturating_add(worker.places()), held + own)
        };
        let (places, held) = workers.fold((0, 0), count);
        held >= places - kept(places, share)
    }
}

/// How many of so many places are kept.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of places"
)]
fn kept(places: u32, share: f64) -> u32 {
    let wanted = (f64::from(places) * share).ceil() as u32;
    wanted.min(places.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_leaves_one_place() {
        let counts = [1, 2, 3, 10, 11, 64].map(|places| kept(places, 0.1));
        assert_eq!(counts, [0, 1, 1, 1, 2, 7]);
        assert_eq!(kept(2, 0.9), 1);
        assert_eq!(kept(0, 0.9), 0);
    }
}
