//! Where access-log lines go: a bounded buffer in front of one thread that writes.
//!
//! A request must never wait for a disk or for whoever reads our standard output, so it only appends to a buffer under
//! a lock that is held for one copy. A thread of the operating system, not a task, takes the whole buffer and writes
//! it, because a blocked write would hold a runtime thread. It is woken when the buffer stops being empty and then
//! gathers for [`GATHER`], so that a busy proxy writes 50 times a second and an idle one sleeps.
//!
//! Guaranteed: a line is written whole and once, in the order of appending, at most 50 ms later unless the target
//! blocks; memory stays below [`CAPACITY`] per buffer; a line that finds the buffer full, or that can't be written, is
//! counted as dropped and delays nobody.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use prometheus::IntCounter;

use crate::config::plan::AccessTarget;

/// The most that waits to be written.
const CAPACITY: usize = 8 << 20;
/// From here on the writer does not gather any longer.
const PLENTY: usize = 1 << 20;
/// How long the writer gathers lines after the first.
const GATHER: Duration = Duration::from_millis(20);
/// The longest a flush waits for a target that blocks.
const PATIENCE: Duration = Duration::from_secs(2);

/// The near end of the log.
#[derive(Debug)]
pub(super) struct AccessLog {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something is to be done now: a first line, plenty of lines, a flush or the end.
    work: Condvar,
    /// A batch has been written.
    written: Condvar,
    dropped: IntCounter,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// Lines in `lines`.
    count: u64,
    /// The writer holds a batch that it has not finished.
    writing: bool,
    hurry: bool,
    closed: bool,
}

impl AccessLog {
    /// Opens the target and starts its writer.
    pub(super) fn open(target: &AccessTarget, dropped: IntCounter) -> io::Result<Self> {
        let sink: Box<dyn Write + Send> = match target {
            AccessTarget::Off => return Ok(AccessLog { shared: None }),
            AccessTarget::Stdout => Box::new(io::stdout()),
            AccessTarget::File(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                Box::new(file.map_err(|error| {
                    io::Error::new(
                        error.kind(),
                        format!("access log {}: {error}", path.display()),
                    )
                })?)
            }
        };
        Self::to(sink, dropped)
    }

    /// Writes to anything.
    fn to(sink: Box<dyn Write + Send>, dropped: IntCounter) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            written: Condvar::new(),
            dropped,
        });
        let far_end = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || far_end.write_to(sink))?;
        Ok(AccessLog {
            shared: Some(shared),
        })
    }

    /// False when nobody wants lines, so that none need be made.
    pub(super) fn is_on(&self) -> bool {
        self.shared.is_some()
    }

    /// Leaves a line, which ends with a line feed, to the writer.
    pub(super) fn append(&self, line: &[u8]) {
        let Some(shared) = &self.shared else { return };
        let mut state = shared.state.lock();
        if state.lines.len() + line.len() > CAPACITY {
            drop(state);
            shared.dropped.inc();
            return;
        }
        let before = state.lines.len();
        state.lines.extend_from_slice(line);
        state.count += 1;
        let wake = before == 0 || (before < PLENTY && state.lines.len() >= PLENTY);
        drop(state);
        if wake {
            shared.work.notify_one();
        }
    }

    /// Returns once all that was appended is written, or after two seconds if the target blocks.
    pub(super) fn flush(&self) {
        let Some(shared) = &self.shared else { return };
        shared.hurry(&mut shared.state.lock());
    }
}

impl Drop for AccessLog {
    /// Writes what is left. A blocked writer is left to itself: joining it could take for ever.
    fn drop(&mut self) {
        let Some(shared) = &self.shared else { return };
        let mut state = shared.state.lock();
        state.closed = true;
        shared.hurry(&mut state);
    }
}

impl Shared {
    /// Has everything written now and waits for it.
    fn hurry(&self, state: &mut MutexGuard<'_, State>) {
        state.hurry = true;
        self.work.notify_one();
        self.written.wait_while_for(
            state,
            |state| state.writing || !state.lines.is_empty(),
            PATIENCE,
        );
    }

    /// The writer's whole life.
    fn write_to(&self, mut sink: Box<dyn Write + Send>) {
        let mut batch = Vec::new();
        while let Some(count) = self.next_batch(&mut batch) {
            let outcome = sink.write_all(&batch).and_then(|()| sink.flush());
            if let Err(error) = outcome {
                self.dropped.inc_by(count);
                tracing::warn!(%error, lines = count, "the access log can't be written");
            }
            self.state.lock().writing = false;
            self.written.notify_all();
        }
    }

    /// Waits for lines and takes them all; `None` once closed and empty.
    fn next_batch(&self, batch: &mut Vec<u8>) -> Option<u64> {
        batch.clear();
        let mut state = self.state.lock();
        self.work
            .wait_while(&mut state, |state| state.lines.is_empty() && !state.closed);
        self.work.wait_while_for(
            &mut state,
            |state| state.lines.len() < PLENTY && !state.hurry && !state.closed,
            GATHER,
        );
        state.hurry = false;
        if state.lines.is_empty() {
            return None;
        }
        std::mem::swap(&mut state.lines, batch);
        state.writing = true;
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A target that writes only when it is let, and tells what it wrote.
    struct Gate {
        let_through: mpsc::Receiver<()>,
        seen: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.let_through.recv().map_err(io::Error::other)?;
            self.seen.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated() -> (
        AccessLog,
        mpsc::Sender<()>,
        mpsc::Receiver<Vec<u8>>,
        IntCounter,
    ) {
        let (open, let_through) = mpsc::channel();
        let (seen, written) = mpsc::channel();
        let dropped = IntCounter::new("dropped", "dropped").unwrap();
        let sink = Box::new(Gate { let_through, seen });
        let log = AccessLog::to(sink, dropped.clone()).unwrap();
        (log, open, written, dropped)
    }

    const DEADLINE: Duration = Duration::from_secs(10);

    #[test]
    fn lines_reach_a_file_in_order_and_are_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let target = AccessTarget::File(path.clone());
        for round in 0..2 {
            let dropped = IntCounter::new("dropped", "dropped").unwrap();
            let log = AccessLog::open(&target, dropped).unwrap();
            for line in 0..1_000 {
                log.append(format!("{round} {line}\n").as_bytes());
            }
            log.flush();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with(&format!("{round} 999\n")));
        }
        let expected: String = (0..2)
            .flat_map(|round| (0..1_000).map(move |line| format!("{round} {line}\n")))
            .collect();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_line_is_written_without_being_asked_for() {
        let (log, open, written, _) = gated();
        open.send(()).unwrap();
        log.append(b"one\n");
        assert_eq!(written.recv_timeout(DEADLINE).unwrap(), b"one\n");
    }

    #[test]
    fn dropping_the_log_writes_what_is_left() {
        let (log, open, written, _) = gated();
        open.send(()).unwrap();
        log.append(b"last\n");
        drop(log);
        assert_eq!(written.try_recv().unwrap(), b"last\n");
    }

    #[test]
    fn a_blocked_target_costs_lines_and_nothing_else() {
        let (log, open, written, dropped) = gated();
        log.append(b"first\n");
        let shared = log.shared.as_ref().unwrap();
        let mut state = shared.state.lock();
        shared.hurry_without_waiting(&mut state);
        drop(state);
        let line = vec![b'x'; 1 << 20];
        for _ in 0..8 {
            log.append(&line);
        }
        assert_eq!(dropped.get(), 0);
        log.append(b"one too many\n");
        assert_eq!(dropped.get(), 1);
        open.send(()).unwrap();
        open.send(()).unwrap();
        assert_eq!(written.recv_timeout(DEADLINE).unwrap(), b"first\n");
        assert_eq!(written.recv_timeout(DEADLINE).unwrap().len(), CAPACITY);
    }

    impl Shared {
        /// Waits until the writer has taken the first batch.
        fn hurry_without_waiting(&self, state: &mut MutexGuard<'_, State>) {
            state.hurry = true;
            self.work.notify_one();
            while !state.writing {
                MutexGuard::unlocked(state, std::thread::yield_now);
            }
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let (log, open, _, dropped) = gated();
        drop(open);
        log.append(b"one\n");
        log.append(b"two\n");
        log.flush();
        assert_eq!(dropped.get(), 2);
    }
}
