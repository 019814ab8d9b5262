//! Workers that an operator adds while the proxy runs.
//!
//! Each is a table like those of the file, and is read beside it as one of `workers_dir` is: so all that holds for a
//! worker of the file holds for it, what is wrong with it is told as there, and whoever comes or goes does so in a
//! reload. It outlives reloads and no restart: what is to stay stands in the file.
//!
//! Guaranteed: a newcomer with which the configuration would be refused is turned away, and that very reload goes on
//! without it, so it holds up neither what else is new nor a reload that follows. One is noted by the reload that it is
//! part of.

use std::path::PathBuf;

use parking_lot::Mutex;

use super::desk::Desk;
use super::{ADMIN, refused};
use crate::admin::{Staff, Staffing};
use crate::config::quoted;
use crate::units::Seconds;

/// What stands in the place of a file's name where one of them is wrong.
const PLACE: &str = "added by hand";
/// When one whose time is over leaves at last, if the configuration is refused just then.
const AGAIN: Seconds = Seconds(60.0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is not in the plan yet.
    Comes,
    Stays,
    /// It is in the plan, and will not be in the next.
    Leaves,
}

#[derive(Debug)]
struct Added {
    name: String,
    url: String,
    until: Option<Seconds>,
    stage: Stage,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct AddedWorkers(Mutex<Vec<Added>>);

impl AddedWorkers {
    /// As files with a worker in each.
    pub(super) fn texts(&self) -> Vec<(PathBuf, String)> {
        let added = self.0.lock();
        let here = added.iter().filter(|one| one.stage != Stage::Leaves);
        let text =
            |one: &Added| format!("name = {}\nurl = {}\n", quoted(&one.name), quoted(&one.url));
        here.map(|one| (PathBuf::from(PLACE), text(one))).collect()
    }

    /// What they are called.
    pub(super) fn names(&self) -> Vec<String> {
        let added = self.0.lock();
        added.iter().map(|one| one.name.clone()).collect()
    }

    /// This reload has one more or one less; what speaks against that.
    pub(super) fn note(&self, order: Staffing, now: Seconds) -> Result<(), String> {
        let mut added = self.0.lock();
        match order {
            Staffing::Add { name, url, within } => added.push(Added {
                name,
                url,
                until: within.map(|span| now + span),
                stage: Stage::Comes,
            }),
            Staffing::Remove { name } => {
                let found = added.iter_mut().find(|one| one.name == name);
                let found = found.ok_or_else(|| {
                    format!(
                        "worker {name}: nobody of this name was added by hand\n    way out: take one of the configuration out of its file, or drain it"
                    )
                })?;
                found.stage = Stage::Leaves;
            }
        }
        Ok(())
    }

    /// Lets those leave whose time is over; whether there are any.
    pub(super) fn expire(&self, now: Seconds) -> bool {
        let mut any = false;
        for one in self.0.lock().iter_mut() {
            if one.stage == Stage::Stays && one.until.is_some_and(|until| now >= until) {
                one.stage = Stage::Leaves;
                one.until = Some(now + AGAIN);
                any = true;
            }
        }
        any
    }

    /// Forgets who came with this reload; whether anybody did.
    pub(super) fn turn_away(&self) -> bool {
        let mut added = self.0.lock();
        let all = added.len();
        added.retain(|one| one.stage != Stage::Comes);
        added.len() < all
    }

    /// A reload was taken over, or refused. Who came with one that was refused has been turned away.
    pub(super) fn settle(&self, is_good: bool) {
        let mut added = self.0.lock();
        added.retain(|one| !is_good || one.stage != Stage::Leaves);
        for one in added.iter_mut() {
            one.stage = Stage::Stays;
        }
    }
}

/// The admin side's way here.
pub(in crate::serve) fn staff(desk: Desk) -> Box<Staff> {
    Box::new(move |order| {
        let desk = desk.clone();
        Box::pin(async move {
            let reloaded = desk.answer(ADMIN, Some(order)).await;
            reloaded.unwrap_or_else(|| refused(ADMIN, vec!["the proxy is stopping".to_owned()]))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(name: &str, within: Option<f64>) -> Staffing {
        Staffing::Add {
            name: name.to_owned(),
            url: "http://desk".to_owned(),
            within: within.map(Seconds),
        }
    }

    fn names(added: &AddedWorkers) -> Vec<String> {
        let texts = added.texts().into_iter().map(|(_, text)| text);
        texts
            .map(|text| text.split('"').nth(1).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn who_is_refused_is_forgotten_and_who_may_not_leave_stays() {
        let added = AddedWorkers::default();
        added.note(add("a", None), Seconds(1.0)).unwrap();
        added.settle(true);
        added.note(add("b", None), Seconds(1.0)).unwrap();
        assert_eq!(names(&added), ["a", "b"]);
        assert!(added.turn_away() && !added.turn_away());
        assert_eq!(names(&added), ["a"]);
        let remove = |name: &str| {
            let name = name.to_owned();
            added.note(Staffing::Remove { name }, Seconds(1.0))
        };
        assert!(remove("b").unwrap_err().contains("way out"));
        remove("a").unwrap();
        assert_eq!(names(&added), [""; 0]);
        added.settle(false);
        assert_eq!(names(&added), ["a"]);
        remove("a").unwrap();
        added.settle(true);
        assert_eq!(names(&added), [""; 0]);
        assert!(remove("a").is_err());
    }

    #[test]
    fn a_time_that_is_over_is_over_once_a_minute() {
        let added = AddedWorkers::default();
        added.note(add("a", Some(8.0)), Seconds(1.0)).unwrap();
        added.settle(true);
        assert!(!added.expire(Seconds(8.9)));
        assert!(added.expire(Seconds(9.0)));
        assert_eq!(names(&added), [""; 0]);
        added.settle(false);
        assert_eq!(names(&added), ["a"]);
        assert!(!added.expire(Seconds(10.0)) && added.expire(Seconds(69.0)));
    }
}
