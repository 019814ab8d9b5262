//! What is asked, and what is done to whom and when: drawn from a seed before anything runs.

use forebay::rng::Rng;
use forebay::units::Seconds;

use crate::harm::Harm;
use crate::support::prompt::{CHAT, chat, stream};

/// Workers, the last of which speaks HTTP/2.
pub const WORKERS: [&str; 4] = ["a", "b", "c", "d"];
/// The longest pause between two deeds.
const PAUSE: f64 = 0.5;
/// So many workers are harmed at once at most: one of three tries always finds a whole one.
const HARMED: usize = 2;
/// Swaps of the binary: one in so many seconds, and all in the first half, so that one process is seen for the second.
const SWAP_EVERY: f64 = 60.0;

/// A request, whose answer says its number again and again.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where it is sent.
    pub path: &'static str,
    /// Its body.
    pub body: String,
    /// How often its word stands in its answer.
    pub repeats: usize,
    /// How its answer ends.
    pub tail: &'static str,
}

impl Question {
    /// The word of the question of this number.
    pub fn word(number: usize) -> String {
        format!("asker-{number}.")
    }

    /// Most are chats, half of them streamed.
    pub fn draw(number: usize, rng: &mut Rng) -> Self {
        let word = Question::word(number);
        let tokens = 2 + rng.below(rng.clone().below(60) + 1);
        match rng.below(10) {
            0..4 => Question {
                path: CHAT,
                body: chat(&word),
                repeats: 4,
                tail: "}",
            },
            4..8 => Question {
                path: CHAT,
                body: stream(&word, tokens),
                repeats: tokens,
                tail: "data: [DONE]\n\n",
            },
            8 => Question {
                path: "/v1/messages",
                body: stream(&word, tokens),
                repeats: tokens,
                tail: "data: {\"type\":\"message_stop\"}\n\n",
            },
            _ => Question {
                path: "/raw/echo",
                body: word,
                repeats: 1,
                tail: "",
            },
        }
    }

    /// Whether it is answered event by event.
    pub fn is_streamed(&self) -> bool {
        self.tail.ends_with("\n\n")
    }

    /// Whether it may be sent again after a worker may have read it.
    pub fn may_repeat(&self) -> bool {
        self.path != "/raw/echo"
    }
}

/// Something that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A worker is harmed.
    Harm(usize, Harm),
    /// A worker is whole again.
    Heal(usize),
    /// Another configuration, by its number, comes into force.
    Reload(usize),
    /// A configuration comes that can't be taken.
    Refuse,
    /// Another process takes over.
    Swap,
}

/// Deeds in their order, and when each is due.
pub fn deeds(rng: &mut Rng, span: f64) -> Vec<(Seconds, Deed)> {
    let swaps = (span / SWAP_EVERY).ceil();
    let mut due: Vec<_> = (1..=swaps as usize)
        .map(|turn| (Seconds(span / 2.0 * turn as f64 / swaps), Deed::Swap))
        .collect();
    let mut harmed: Vec<usize> = Vec::new();
    let mut now = 0.0;
    while now < span {
        now += PAUSE * rng.unit();
        let deed = match rng.below(10) {
            0 => Deed::Reload(rng.below(crate::storm::PLANS)),
            1 if rng.below(3) == 0 => Deed::Refuse,
            _ if harmed.len() == HARMED => Deed::Heal(harmed.remove(0)),
            _ => {
                let whole = (0..WORKERS.len()).filter(|worker| !harmed.contains(worker));
                let whole: Vec<usize> = whole.collect();
                let worker = whole[rng.below(whole.len())];
                harmed.push(worker);
                Deed::Harm(worker, Harm::draw(rng, worker == WORKERS.len() - 1))
            }
        };
        due.push((Seconds(now), deed));
    }
    due.sort_by(|one, other| one.0.0.total_cmp(&other.0.0));
    due
}
