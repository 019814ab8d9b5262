//! Paths that a worker does not know, so that they are not asked for there again.
//!
//! An engine serves some of the built-in paths, and only its answers tell which: 404, 405 or 501. Each such answer marks
//! the worker for that path and model. A mark is a preference, not a filter: a 404 may as well be the request's own
//! fault, so when all who could answer are marked all of them are asked as before. It ends when the worker restarts
//! (its generation) or after a minute, as an engine may have been taught
//! meanwhile, or have had a model unloaded for a moment.

use super::worker::Worker;
use crate::units::{Seconds, WorkerId};

/// How long a mark lasts.
const LASTS: Seconds = Seconds(60.0);
/// The most marks; the oldest gives way.
const MOST: usize = 256;

/// All marks that were made, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Unsupported {
    marks: Vec<Mark>,
}

#[derive(Debug)]
struct Mark {
    worker: WorkerId,
    generation: u32,
    path: &'static str,
    model: usize,
    until: Seconds,
}

impl Unsupported {
    /// Whether nobody is marked for anything, which is the rule.
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// This worker does not know this path for the model of this row.
    pub(super) fn mark(&mut self, worker: &Worker, path: &'static str, model: usize, now: Seconds) {
        self.marks
            .retain(|mark| !mark.is_about(worker.id(), path, model));
        if self.marks.len() >= MOST {
            self.marks.remove(0);
        }
        self.marks.push(Mark {
            worker: worker.id(),
            generation: worker.generation(),
            path,
            model,
            until: now + LASTS,
        });
    }

    /// Whether this worker is marked for this path and model.
    pub(super) fn has(&self, worker: &Worker, path: &'static str, model: usize) -> bool {
        self.marks.iter().any(|mark| {
            mark.is_about(worker.id(), path, model) && mark.generation == worker.generation()
        })
    }

    /// Drops what is over. To be called where places are freed, as an end may let somebody be served who waits.
    pub(super) fn expire(&mut self, now: Seconds) {
        self.marks.retain(|mark| now < mark.until);
    }
}

impl Mark {
    fn is_about(&self, worker: WorkerId, path: &str, model: usize) -> bool {
        (self.worker, self.path, self.model) == (worker, path, model)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::WorkerSpec;
    use super::super::machine::Machine;
    use super::*;

    fn worker() -> Worker {
        let spec = WorkerSpec::new("w", 1);
        Worker::new(WorkerId(0), spec)
    }

    #[test]
    fn a_mark_is_about_one_path_and_model_and_ends_in_time() {
        let (mut marks, worker) = (Unsupported::default(), worker());
        marks.mark(&worker, "/a", 1, Seconds(0.0));
        marks.mark(&worker, "/a", 1, Seconds(10.0));
        assert!(marks.has(&worker, "/a", 1));
        assert!(!marks.has(&worker, "/b", 1) && !marks.has(&worker, "/a", 2));
        marks.expire(Seconds(69.0));
        assert!(marks.has(&worker, "/a", 1));
        marks.expire(Seconds(70.0));
        assert!(marks.is_empty());
    }

    #[test]
    fn a_worker_that_was_down_is_asked_afresh() {
        let (mut marks, mut worker) = (Unsupported::default(), worker());
        marks.mark(&worker, "/a", 1, Seconds::ZERO);
        let mut machine = Machine::default();
        worker.probe(Err("gone".into()), &mut machine, Seconds(1.0));
        worker.probe(Ok(()), &mut machine, Seconds(2.0));
        assert!(!marks.has(&worker, "/a", 1));
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let (mut marks, worker) = (Unsupported::default(), worker());
        for model in 0..=MOST {
            marks.mark(&worker, "/a", model, Seconds::ZERO);
        }
        assert_eq!(marks.marks.len(), MOST);
        assert!(!marks.has(&worker, "/a", 0) && marks.has(&worker, "/a", MOST));
    }
}
