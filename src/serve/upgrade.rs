//! Another process takes over: a new version, or keys that a running process can't follow, without a refused
//! connection.
//!
//! The successor (`forebay serve --upgrade`) waits at `STATE/upgrade.sock`. When the running process gets SIGQUIT it
//! connects there, and both talk in lines:
//!
//! ```text
//! running    has ADDRESS…     where it listens, once it has written down what it has learned
//! successor  ready            all is built; it waits for the sockets at STATE/upgrade/sockets
//! running                     sends the listening sockets there, and goes on accepting
//! successor  serving          it has accepted a connection itself
//! ```
//!
//! Only then does the running process stop accepting, so at every moment somebody does, and whatever goes wrong before
//! that leaves it as it was: the successor gives up, and the log of the running one says why. No successor waits
//! without end for nothing: it gives up with exit status 1 when the process that it waits for has ended, and when the
//! sockets don't come. One waits at a time: it holds `STATE/upgrade.pid` locked, with its number in it, and another is
//! refused. A listening socket that two processes have is one queue, so no connection is lost between them. Connections
//! that are open are asked to close with their next answer; what streams may go on for as long as `drain` says.
//!
//! The sockets travel by Pingora's own means, which open their socket to everybody: hence the folder of its own, which
//! only its owner may enter. Pingora's own order of things is not used: it shuts down whether the successor lives or
//! not.
//!
//! What clients spend of budgets while they drain is added to the successor's accounts at the end
//! (`admission/accounts.rs`).

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service;
use tokio::net::UnixListener;
use tokio::time::interval;

use super::signals::Signals;
use super::{PID_FILE, StartError, diagnostics};
use crate::line::App;

/// Where a successor waits.
const MEETING: &str = "upgrade.sock";
/// Who waits there, in this file.
const WAITING: &str = "upgrade.pid";
/// Where the sockets travel.
const FOLDER: &str = "upgrade";
const SOCKETS: &str = "sockets";
/// The longest that one of the two waits for the other's next line.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest that a successor waits for the sockets: less than Pingora, which ends the process after 6 s without a
/// word.
const SENDING: Duration = Duration::from_secs(5);
/// Time between two looks whether the running process still lives.
const PULSE: Duration = Duration::from_millis(500);
/// Time between two looks whether the successor waits for the sockets.
const LOOK: Duration = Duration::from_millis(5);
/// The longest line that anybody says.
const LONGEST: u64 = 4 << 10;

/// The process that takes over, which has met the one that runs.
pub(super) struct Successor {
    line: Line,
    folder: PathBuf,
    /// Held until it serves.
    _only: File,
    /// Where the running process listens.
    pub inherited: Vec<SocketAddr>,
}

/// Two processes in talk.
struct Line(BufReader<UnixStream>);

/// The listening sockets of this process, once there are any.
#[derive(Clone, Default)]
pub(super) struct Sockets(Arc<OnceLock<ListenFds>>);

impl Line {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Line(BufReader::new(stream)))
    }

    fn say(&mut self, words: &str) -> io::Result<()> {
        self.0.get_mut().write_all(format!("{words}\n").as_bytes())
    }

    fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        io::Read::take(&mut self.0, LONGEST).read_line(&mut line)?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn expect(&mut self, words: &str) -> io::Result<()> {
        match self.hear()? {
            heard if heard == words => Ok(()),
            _ => Err(io::Error::other("it says something else than expected")),
        }
    }
}

impl Successor {
    /// Waits until the running process is told to hand over; `None` when this one is told to stop first.
    pub(super) fn meet(state: &Path, signals: &mut Signals) -> Result<Option<Self>, StartError> {
        let place = state.join(MEETING);
        let failed =
            |error: io::Error| StartError(format!("no hand-over at {}: {error}", place.display()));
        super::make_folder(state)?;
        let only = only_one(state)?;
        is_running(state)?;
        let met = signals.unless_stopped(async {
            remove(&place).map_err(failed)?;
            let listener = UnixListener::bind(&place).map_err(failed)?;
            fs::set_permissions(&place, Permissions::from_mode(0o600)).map_err(failed)?;
            tracing::warn!(
                "waiting for the running proxy to get SIGQUIT: kill -QUIT $(cat {}/forebay.pid)",
                state.display()
            );
            tokio::select! {
                met = listener.accept() => met.map_err(failed)?.0.into_std().map_err(failed),
                lost = orphaned(state) => Err(lost),
            }
        });
        let gone = remove(&place);
        let Some(stream) = met else { return Ok(None) };
        gone.map_err(failed)?;
        let mut line = Line::new(stream?).map_err(failed)?;
        let has = line.hear().map_err(failed)?;
        let inherited = has.strip_prefix("has ").unwrap_or_default();
        let inherited = inherited
            .split(' ')
            .filter_map(|address| address.parse().ok());
        Ok(Some(Successor {
            inherited: inherited.collect(),
            folder: closed_folder(&state.join(FOLDER)).map_err(failed)?,
            line,
            _only: only,
        }))
    }

    /// Where the sockets will come.
    pub(super) fn sockets(&self) -> PathBuf {
        self.folder.join(SOCKETS)
    }

    /// Asks for the sockets, and receives them by Pingora's means. When they don't come, the process ends with a word.
    pub(super) fn receive(&mut self, receive: impl FnOnce()) -> Result<(), StartError> {
        let lost = |error| StartError(format!("the running proxy does not hand over: {error}"));
        self.line.say("ready").map_err(lost)?;
        let (came, coming) = channel::<()>();
        std::thread::spawn(move || {
            if coming.recv_timeout(SENDING) == Err(RecvTimeoutError::Timeout) {
                let patience = SENDING.as_secs();
                tracing::error!(
                    "the running proxy has sent no sockets in {patience} s: it has ended or hangs; if it has ended, start without --upgrade"
                );
                diagnostics::flush();
                std::process::exit(1);
            }
        });
        receive();
        drop(came);
        Ok(())
    }

    /// Tells the one before that it is needed no more.
    pub(super) fn serves(mut self) {
        if let Err(error) = self.line.say("serving") {
            tracing::warn!("the proxy before can't be told to stop accepting: {error}");
        }
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

impl Sockets {
    /// Hands the listening sockets to a waiting successor; comes back when that serves. Until then, and if anything
    /// goes wrong, all stays as it is.
    pub(super) async fn hand_over(&self, app: &Arc<App>) -> Result<(), String> {
        let (sockets, app) = (self.clone(), app.clone());
        // Files and sockets block; nobody else waits for them on this thread.
        let handing = tokio::task::spawn_blocking(move || sockets.hand(&app));
        handing.await.map_err(|error| error.to_string())?
    }

    fn hand(&self, app: &App) -> Result<(), String> {
        let plan = app.plan.load_full();
        let place = plan.state.join(MEETING);
        let stream = UnixStream::connect(&place).map_err(|_| {
            let place = place.display();
            format!("no successor waits at {place}; start one first: forebay serve --upgrade")
        })?;
        let lost = |error: io::Error| format!("the successor is gone: {error}");
        let line = Line::new(stream).map_err(lost)?;
        let handed = self.hand_to(line, app);
        if handed.is_err() {
            app.admission.reopen();
            // The successor may have left word that it is the one that runs.
            let told = super::keep_pid(&plan.state).and_then(|()| super::keep_address(&plan));
            told.map_err(|error| error.to_string())?;
        }
        handed
    }

    fn hand_to(&self, mut line: Line, app: &App) -> Result<(), String> {
        let plan = app.plan.load_full();
        let lost = |error: io::Error| format!("the successor is gone: {error}");
        let fds = self.0.get().ok_or("nothing listens yet")?;
        app.fleet.save_speeds(&plan.state);
        app.admission.close(&plan.state);
        let listeners = plan.listen.http.iter().chain([&plan.listen.admin]);
        let listeners: Vec<_> = listeners.map(SocketAddr::to_string).collect();
        line.say(&format!("has {}", listeners.join(" ")))
            .map_err(lost)?;
        line.expect("ready").map_err(lost)?;
        let way = plan.state.join(FOLDER).join(SOCKETS);
        wait_for(&way)?;
        let sent = fds.lock().send_to_sock(&*way.display().to_string());
        sent.map_err(|error| format!("the sockets can't be sent: {error}"))?;
        line.expect("serving").map_err(lost)
    }
}

/// Keeps hold of what Pingora listens with.
pub(super) struct Keeper(pub Sockets);

#[async_trait]
impl Service for Keeper {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        mut stopping: ShutdownWatch,
        _: usize,
    ) {
        if let Some(fds) = fds {
            // Started once.
            let _ = self.0.0.set(fds);
        }
        let _ = stopping.changed().await;
    }

    fn name(&self) -> &'static str {
        "keeper of sockets"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}

/// Makes this process the only one that waits, for as long as it holds what is returned.
fn only_one(state: &Path) -> Result<File, StartError> {
    let path = state.join(WAITING);
    let failed = |error: io::Error| StartError(format!("{} can't be had: {error}", path.display()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.mode(0o600).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(failed(error)),
        Err(TryLockError::WouldBlock) => {
            let first = io::read_to_string(file).map_err(failed)?;
            return Err(StartError(format!(
                "another successor waits already (pid {}); let it take over, or end it first",
                first.trim()
            )));
        }
    }
    let own = format!("{}\n", std::process::id());
    { file.set_len(0) }
        .and_then(|()| file.write_all(own.as_bytes()))
        .map_err(failed)?;
    Ok(file)
}

/// Why nobody hands over any more, once that is so.
async fn orphaned(state: &Path) -> StartError {
    let mut looks = interval(PULSE);
    loop {
        looks.tick().await;
        if let Err(why) = is_running(state) {
            return why;
        }
    }
}

/// Whether the process lives that the state folder names; one that has ended and is not yet forgotten does not.
fn is_running(state: &Path) -> Result<(), StartError> {
    let file = state.join(PID_FILE);
    let named = fs::read_to_string(&file).ok();
    let pid = named.and_then(|text| text.trim().parse::<u32>().ok());
    let is_gone = |pid| {
        let program = fs::read_link(format!("/proc/{pid}/exe"));
        program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    if pid.is_none_or(is_gone) {
        return Err(StartError(format!(
            "no proxy runs that could hand over: {} names none that lives; start without --upgrade",
            file.display()
        )));
    }
    Ok(())
}

/// An empty folder that only its owner may enter.
fn closed_folder(path: &Path) -> io::Result<PathBuf> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => DirBuilder::new().mode(0o700).create(path)?,
    }
    Ok(path.to_path_buf())
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Waits until a file is there.
fn wait_for(file: &Path) -> Result<(), String> {
    for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
        if file.exists() {
            return Ok(());
        }
        std::thread::park_timeout(LOOK);
    }
    Err("the successor does not wait for the sockets".to_owned())
}
