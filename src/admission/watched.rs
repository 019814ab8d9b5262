//! Files that are taken over when they change.
//!
//! They are looked at once a second (`stamp.rs`). A file that can't be read, or is wrong, changes nothing: what it held
//! before stays in force, and that is said, once in the log and on the admin side for as long as it lasts. To write one
//! in place is to have half of it read now and then; `mv` puts it there whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::Admission;
use crate::stamp::Stamp;

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// A file, and what it last held that was good. A disk may block: nothing is locked while the file is read, so nobody
/// waits for it but who looks.
pub(super) struct Watched<T> {
    path: PathBuf,
    read: fn(&Path) -> io::Result<T>,
    state: Mutex<State<T>>,
}

/// What was last seen of it.
struct State<T> {
    held: T,
    seen: Option<Stamp>,
    trouble: Option<String>,
}

impl<T: Clone + PartialEq> Watched<T> {
    /// A file that held this a moment ago.
    pub(super) fn new(path: &Path, held: T, read: fn(&Path) -> io::Result<T>) -> Self {
        let state = State {
            held,
            seen: None,
            trouble: None,
        };
        Watched {
            path: path.to_path_buf(),
            read,
            state: Mutex::new(state),
        }
    }

    /// What is in force.
    pub(super) fn held(&self) -> T {
        self.state.lock().held.clone()
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with it now, if anything is.
    pub(super) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.clone()
    }

    /// Looks at it; returns whether something else is in force now.
    pub(super) fn look(&self) -> bool {
        let stamp = Stamp::of(&self.path);
        let seen = stamp.as_ref().ok().copied();
        if seen.is_some() && self.state.lock().seen == seen {
            return false;
        }
        let found = stamp.and_then(|_| (self.read)(&self.path));
        let mut state = self.state.lock();
        // What kept it from being read may be over by the next look, and the file the same.
        state.seen = seen.filter(|_| found.is_ok());
        match found {
            Ok(read) => {
                state.trouble = None;
                let is_news = read != state.held;
                if is_news {
                    tracing::info!(path = %self.path.display(), "taken over, as it has changed");
                }
                state.held = read;
                is_news
            }
            Err(error) => {
                state.complain(&self.path, error.to_string());
                false
            }
        }
    }
}

impl<T> State<T> {
    /// Says what is wrong with it, unless that was the last that was said.
    fn complain(&mut self, path: &Path, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            let path = path.display();
            tracing::warn!(%path, trouble, "what this file held before stays in force");
            self.trouble = Some(trouble);
        }
    }
}

/// Follows the files of tenants, for as long as the process lives.
pub async fn follow_files(admission: Arc<Admission>) {
    let mut looks = interval(PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let admission = Arc::clone(&admission);
        // A disk may block; who waits for it here is nobody else.
        let looked = tokio::task::spawn_blocking(move || admission.look_at_files());
        drop(looked.await);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_good_stays_until_something_better_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let number = |path: &Path| fs::read_to_string(path)?.parse().map_err(io::Error::other);
        let watched = Watched::<u32>::new(&path, 1, number);
        let replace = |text: &str| {
            let fresh = folder.path().join("fresh");
            fs::write(&fresh, text).unwrap();
            fs::rename(&fresh, &path).unwrap();
        };
        let seen = |told: &str| {
            let is_news = watched.look();
            let trouble = watched.trouble().unwrap_or_default();
            assert!(trouble.contains(told) && trouble.is_empty() == told.is_empty());
            (is_news, watched.held())
        };
        assert_eq!(seen("No such file"), (false, 1));
        replace("2");
        assert_eq!(seen(""), (true, 2));
        assert_eq!(seen(""), (false, 2));
        replace("x");
        assert_eq!(seen("invalid digit"), (false, 2));
        replace("2");
        assert_eq!(seen(""), (false, 2));
        replace("3");
        assert_eq!(seen(""), (true, 3));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(seen("no regular file"), (false, 3));
    }
}
