//! Names that workers reported, kept in the state folder.
//!
//! After a restart the proxy must tell a model whose workers are down (503, come back later) from one that never was
//! (404), and it can't ask a worker that is down. A name is forgotten when nobody reported it for a week; wall time
//! decides that and nothing else, so a clock that jumps can at worst forget a name that the next report brings back.
//!
//! A file that can't be read counts as empty: names are a convenience, and no reason not to start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kept;
use crate::units::{ModelName, Seconds};

const FILE: &str = "models.json";

/// A name is forgotten when it was not reported for so long.
const KEEP: Seconds = Seconds(7.0 * 86_400.0);

/// When names were seen is written at least this often, and at once when there are others.
const WRITE_EVERY: Seconds = Seconds(3_600.0);

/// The most names that are kept.
const MOST: usize = 10_000;

/// Names and when they were last reported.
#[derive(Debug)]
pub(super) struct Remembered {
    state: PathBuf,
    seen: BTreeMap<ModelName, Seconds>,
    written: Seconds,
    inherited: bool,
}

#[derive(Serialize, Deserialize)]
struct File {
    /// Seconds since 1970 by name.
    models: BTreeMap<String, f64>,
}

impl Remembered {
    /// What the state folder has.
    pub(super) fn read(state: &Path, wall: Seconds) -> Self {
        let models = match kept::read::<File>(state, FILE) {
            Ok(file) => file.map(|file| file.models).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "{FILE} is ignored: known model names can't be read");
                BTreeMap::new()
            }
        };
        let seen = models.iter().filter_map(|(name, seen)| {
            let name = ModelName::sound(name)?;
            (wall - Seconds(*seen) < KEEP).then_some((name, Seconds(*seen)))
        });
        let seen: BTreeMap<_, _> = seen.collect();
        Remembered {
            state: state.to_path_buf(),
            inherited: !seen.is_empty(),
            seen,
            written: wall,
        }
    }

    /// Whether an earlier process left names.
    pub(super) fn inherited(&self) -> bool {
        self.inherited
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ModelName> {
        self.seen.keys()
    }

    /// A worker reports these names. Writes the file when that is due.
    pub(super) fn report(&mut self, models: &[ModelName], wall: Seconds) {
        let before = self.seen.len();
        for model in models {
            if self.seen.len() < MOST || self.seen.contains_key(model) {
                self.seen.insert(model.clone(), wall);
            }
        }
        if self.seen.len() != before || wall - self.written >= WRITE_EVERY {
            self.write(wall);
        }
    }

    /// Names that nobody reported for too long; they are gone from here on.
    pub(super) fn forget(&mut self, wall: Seconds) -> Vec<ModelName> {
        let (stale, fresh) = std::mem::take(&mut self.seen)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, seen)| wall - *seen >= KEEP);
        self.seen = fresh;
        if !stale.is_empty() {
            self.write(wall);
        }
        stale.into_keys().collect()
    }

    fn write(&mut self, wall: Seconds) {
        self.written = wall;
        let models = self.seen.iter();
        let models = models.map(|(name, seen)| (name.to_string(), seen.0.round()));
        let file = File {
            models: models.collect(),
        };
        if let Err(error) = kept::write(&self.state, FILE, &file) {
            tracing::warn!(%error, "{FILE} can't be written: model names are forgotten with this process");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const DAY: f64 = 86_400.0;

    fn shown(remembered: &Remembered) -> Vec<String> {
        remembered.names().map(ModelName::to_string).collect()
    }

    fn report(remembered: &mut Remembered, name: &str, day: f64) {
        remembered.report(&[ModelName::new(name)], Seconds(day * DAY));
    }

    #[test]
    fn names_outlive_the_process_and_are_private() {
        let state = tempfile::tempdir().unwrap();
        let mut remembered = Remembered::read(state.path(), Seconds(0.0));
        report(&mut remembered, "a", 1.0);
        report(&mut remembered, "b", 2.0);
        let mode = fs::metadata(state.path().join(FILE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert_eq!(
            shown(&Remembered::read(state.path(), Seconds(3.0 * DAY))),
            ["a", "b"]
        );
        assert_eq!(
            shown(&Remembered::read(state.path(), Seconds(8.5 * DAY))),
            ["b"]
        );
    }

    #[test]
    fn a_name_that_nobody_reports_for_a_week_is_forgotten() {
        let state = tempfile::tempdir().unwrap();
        let mut remembered = Remembered::read(state.path(), Seconds(0.0));
        report(&mut remembered, "a", 1.0);
        report(&mut remembered, "b", 1.0);
        report(&mut remembered, "b", 5.0);
        assert_eq!(remembered.forget(Seconds(7.9 * DAY)).len(), 0);
        assert_eq!(remembered.forget(Seconds(8.0 * DAY)), [ModelName::new("a")]);
        assert_eq!(shown(&remembered), ["b"]);
        assert_eq!(
            shown(&Remembered::read(state.path(), Seconds(8.0 * DAY))),
            ["b"]
        );
    }

    #[test]
    fn a_file_that_is_none_counts_as_empty() {
        let state = tempfile::tempdir().unwrap();
        for text in [
            "",
            "{",
            "[]",
            r#"{"models":{"a":"b"}}"#,
            r#"{"models":{"*":1}}"#,
            &r#"{"x":"#.repeat(200_000),
        ] {
            fs::write(state.path().join(FILE), text).unwrap();
            let remembered = Remembered::read(state.path(), Seconds(1.0));
            assert_eq!(remembered.names().count(), 0, "{text}");
        }
    }

    #[test]
    fn names_without_end_are_not_kept() {
        let state = tempfile::tempdir().unwrap();
        let mut remembered = Remembered::read(state.path(), Seconds(0.0));
        let names: Vec<_> = (0..2 * MOST)
            .map(|number| ModelName::new(&number.to_string()))
            .collect();
        remembered.report(&names, Seconds(1.0));
        assert_eq!(remembered.names().count(), MOST);
    }
}
