//! Diagnostics: on stderr, at the configured level. The access log is not here; it goes to stdout.
//!
//! Whoever reads our stderr may stop reading, and a full pipe must hold up neither a request nor the end of the
//! process. So a thread of its own writes, and a line that finds [`WAITING`] others before it is dropped.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::admin::AUDIT;
use crate::config::Choice as _;
use crate::config::plan::LogLevel;

/// Lines that wait to be written.
const WAITING: usize = 1024;

/// The longest that a flush waits for a reader who has stopped reading.
const PATIENCE: Duration = Duration::from_millis(500);

/// The way to the writer, of which a process has one, as it has one subscriber.
static WRITER: OnceLock<SyncSender<Note>> = OnceLock::new();

/// What that subscriber lets pass.
static LEVELS: OnceLock<Levels> = OnceLock::new();

/// The rooms of this house, whose levels can be set apart.
const ROOMS: [&str; 19] = [
    "admin",
    "admission",
    "cli",
    "clock",
    "config",
    "decide",
    "facts",
    "fault",
    "fleet",
    "forward",
    "inspect",
    "kept",
    "line",
    "listener",
    "observe",
    "queue",
    "serve",
    "simulate",
    "upstream",
];

/// The level of all, and those of rooms that have one of their own.
struct Levels {
    set: Mutex<(LogLevel, BTreeMap<&'static str, LogLevel>)>,
    apply: Box<dyn Fn(EnvFilter) + Send + Sync>,
}

/// What the writer is told.
enum Note {
    /// Write this.
    Line(Vec<u8>),
    /// Say when everything before this is written.
    Flush(SyncSender<()>),
}

/// Starts writing diagnostics.
///
/// # Errors
/// When no thread can be had.
pub(super) fn start(level: LogLevel) -> io::Result<()> {
    let (notes, told) = sync_channel(WAITING);
    std::thread::Builder::new()
        .name("diagnostics".into())
        .spawn(move || write(&told))?;
    // A second start in one process (a test) keeps the first writer and the first subscriber.
    let _ = WRITER.set(notes);
    let subscriber = fmt::Subscriber::builder()
        .with_env_filter(filter(level, &BTreeMap::new()))
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_writer(|| Line)
        .with_filter_reloading();
    let handle = subscriber.reload_handle();
    let _ = LEVELS.set(Levels {
        set: Mutex::new((level, BTreeMap::new())),
        apply: Box::new(move |filter| {
            // It fails only when the subscriber is gone, and then there is nobody to tell.
            let _ = handle.reload(filter);
        }),
    });
    let _ = subscriber.try_init();
    Ok(())
}

/// Writes from this level on, in all rooms.
pub(super) fn set_level(level: LogLevel) {
    change(|all, rooms| {
        *all = level;
        rooms.clear();
    });
}

/// Writes from this level on in all rooms, or in one.
///
/// # Errors
/// The rooms that there are, when there is none of this name.
pub(super) fn set(level: LogLevel, room: Option<&str>) -> Result<(), &'static [&'static str]> {
    let Some(name) = room else {
        set_level(level);
        return Ok(());
    };
    let room = ROOMS.iter().find(|room| **room == name).ok_or(&ROOMS[..])?;
    change(|_, rooms| {
        rooms.insert(room, level);
    });
    Ok(())
}

fn change(change: impl FnOnce(&mut LogLevel, &mut BTreeMap<&'static str, LogLevel>)) {
    if let Some(levels) = LEVELS.get() {
        let mut set = levels.set.lock();
        let (all, rooms) = &mut *set;
        change(all, rooms);
        (levels.apply)(filter(*all, rooms));
    }
}

/// Dependencies may say what goes wrong, not what goes on. What was changed by hand is told at every level.
fn filter(level: LogLevel, rooms: &BTreeMap<&'static str, LogLevel>) -> EnvFilter {
    let others = if level == LogLevel::Error {
        "error"
    } else {
        "warn"
    };
    let mut text = format!("{others},{AUDIT}=warn,forebay={}", level.word());
    for (room, level) in rooms {
        text += &format!(",forebay::{room}={}", level.word());
    }
    EnvFilter::new(text)
}

/// Returns once everything said so far is written, or nobody reads it.
pub(super) fn flush() {
    let (done, written) = sync_channel(1);
    let asked = WRITER
        .get()
        .map(|writer| writer.try_send(Note::Flush(done)));
    if asked.is_some_and(|asked| asked.is_ok()) {
        // Late or lost: there is nobody to say it to.
        let _ = written.recv_timeout(PATIENCE);
    }
}

/// The writer's whole life.
fn write(told: &Receiver<Note>) {
    let mut stderr = io::stderr();
    for note in told {
        // What can't be written can't be told either.
        let _ = match note {
            Note::Line(line) => stderr.write_all(&line),
            Note::Flush(done) => {
                let _ = done.try_send(());
                Ok(())
            }
        };
    }
}

/// Takes one line; the formatter hands each over in one piece.
struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(writer) = WRITER.get() {
            // Full: dropped.
            let _ = writer.try_send(Note::Line(line.to_vec()));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
