//! What of the worker's own log is written, and changing that while it runs.
//!
//! The settings are Triton's ("Logging Extension"): three switches, and a level of verbosity of which 1 adds what each
//! batch does and 2 everything. Verbosity is about this worker's own words; libraries are not made talkative by it.
//! There is one format, on stderr: asking for another, or for a file, is refused and not pretended.

use std::fmt;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tracing::{Level, Metadata};

/// Whose words verbosity is about.
const OWN: &str = "forebay_worker";

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// What happens in the life of a worker.
    pub info: bool,
    /// What may be a mistake.
    pub warning: bool,
    /// What failed.
    pub error: bool,
    /// How much more.
    pub verbose: u32,
}

impl Levels {
    /// Everything up to this level.
    pub fn up_to(most: Level) -> Levels {
        Levels {
            info: most >= Level::INFO,
            warning: most >= Level::WARN,
            error: most >= Level::ERROR,
            verbose: u32::from(most >= Level::DEBUG) + u32::from(most >= Level::TRACE),
        }
    }

    /// Whether such an event is written.
    pub fn writes(self, event: &Metadata<'_>) -> bool {
        let least = match *event.level() {
            Level::ERROR => return self.error,
            Level::WARN => return self.warning,
            Level::INFO => return self.info,
            Level::DEBUG => 1,
            Level::TRACE => 2,
        };
        self.verbose >= least && event.target().starts_with(OWN)
    }

    /// These levels with a change made to them, or what is wrong with it.
    fn changed(mut self, wanted: &Map<String, Value>) -> Result<Levels, String> {
        for (name, value) in wanted {
            let switch = || {
                let problem = || format!("`{name}` is neither true nor false");
                value.as_bool().ok_or_else(problem)
            };
            match name.as_str() {
                "log_info" => self.info = switch()?,
                "log_warning" => self.warning = switch()?,
                "log_error" => self.error = switch()?,
                "log_verbose_level" => {
                    let level = value.as_u64().and_then(|level| u32::try_from(level).ok());
                    self.verbose =
                        level.ok_or("`log_verbose_level` is not a whole number of at least 0")?;
                }
                "log_file" if value == "" => {}
                "log_file" => return Err("the log goes to stderr and to no file".into()),
                "log_format" if value == "default" => {}
                "log_format" => return Err("the log has one format, \"default\"".into()),
                _ => return Err(format!("there is no setting `{name}`")),
            }
        }
        Ok(self)
    }
}

/// The log's settings and how they are put into force.
pub struct Log {
    levels: Mutex<Levels>,
    apply: Box<dyn Fn(Levels) + Send + Sync>,
}

impl Log {
    /// A log that writes this much at present, and how that is changed.
    pub fn new(levels: Levels, apply: impl Fn(Levels) + Send + Sync + 'static) -> Log {
        Log {
            levels: Mutex::new(levels),
            apply: Box::new(apply),
        }
    }

    /// The settings, as Triton shows them.
    pub fn settings(&self) -> Value {
        let levels = *self.levels.lock();
        json!({
            "log_file": "",
            "log_info": levels.info,
            "log_warning": levels.warning,
            "log_error": levels.error,
            "log_verbose_level": levels.verbose,
            "log_format": "default",
        })
    }

    /// Changes the settings that are named; all or, if one of them is wrong, none.
    pub fn change(&self, wanted: &Map<String, Value>) -> Result<(), String> {
        let mut levels = self.levels.lock();
        *levels = levels.changed(wanted)?;
        (self.apply)(*levels);
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("levels", &self.levels).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn log() -> (Log, Arc<Mutex<Option<Levels>>>) {
        let applied = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&applied);
        let log = Log::new(Levels::up_to(Level::INFO), move |levels| {
            *theirs.lock() = Some(levels);
        });
        (log, applied)
    }

    fn change(log: &Log, wanted: Value) -> Result<(), String> {
        log.change(wanted.as_object().unwrap())
    }

    #[test]
    fn what_is_named_changes_and_nothing_else() {
        let (log, applied) = log();
        change(
            &log,
            json!({"log_verbose_level": 1, "log_warning": false, "log_file": ""}),
        )
        .unwrap();
        let now = Levels {
            warning: false,
            verbose: 1,
            ..Levels::up_to(Level::INFO)
        };
        assert_eq!(*applied.lock(), Some(now));
        assert_eq!(log.settings()["log_verbose_level"], 1);
        assert_eq!(log.settings()["log_info"], true);
    }

    #[test]
    fn what_can_not_be_done_is_said_and_changes_nothing() {
        let (log, applied) = log();
        for (name, value, words) in [
            ("log_info", json!("x"), "neither true nor false"),
            ("log_verbose_level", json!(-1), "whole number"),
            ("log_file", json!("/tmp/x"), "no file"),
            ("log_format", json!("ISO8601"), "one format"),
            ("log_inof", json!(true), "no setting `log_inof`"),
        ] {
            let said = change(&log, json!({"log_error": false, name: value})).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(*applied.lock(), None);
        assert_eq!(log.settings()["log_error"], true);
    }
}
