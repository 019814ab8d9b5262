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
//! that leaves it as it was: the successor gives up, and the log of the running one says why. A listening socket that
//! two processes have is one queue, so no connection is lost between them. Connections that are open are asked to close
//! with their next answer; what streams may go on for as long as `drain` says.
//!
//! The sockets travel by Pingora's own means, which open their socket to everybody: hence the folder of its own, which
//! only its owner may enter. Pingora's own order of things is not used: it shuts down whether the successor lives or
//! not.
//!
//! What clients spend of budgets while they drain is not told to the successor, which has read the accounts by then.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service;
use tokio::net::UnixListener;

use super::StartError;
use super::signals::Signals;
use crate::line::App;

/// Where a successor waits.
const MEETING: &str = "upgrade.sock";
/// Where the sockets travel.
const FOLDER: &str = "upgrade";
const SOCKETS: &str = "sockets";
/// The longest that one of the two waits for the other's next line.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks whether the successor waits for the sockets.
const LOOK: Duration = Duration::from_millis(5);
/// The longest line that anybody says.
const LONGEST: u64 = 4 << 10;

/// The process that takes over, which has met the one that runs.
pub(super) struct Successor {
    line: Line,
    folder: PathBuf,
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
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state)
            .map_err(failed)?;
        let met = signals.unless_stopped(async {
            remove(&place)?;
            let listener = UnixListener::bind(&place)?;
            fs::set_permissions(&place, Permissions::from_mode(0o600))?;
            tracing::warn!(
                "waiting for the running proxy to get SIGQUIT: kill -QUIT $(cat {}/forebay.pid)",
                state.display()
            );
            let (stream, _) = listener.accept().await?;
            stream.into_std()
        });
        let gone = remove(&place);
        let Some(stream) = met else { return Ok(None) };
        gone.map_err(failed)?;
        let mut line = stream.and_then(Line::new).map_err(failed)?;
        let has = line.hear().map_err(failed)?;
        let inherited = has.strip_prefix("has ").unwrap_or_default();
        let inherited = inherited
            .split(' ')
            .filter_map(|address| address.parse().ok());
        Ok(Some(Successor {
            inherited: inherited.collect(),
            folder: closed_folder(&state.join(FOLDER)).map_err(failed)?,
            line,
        }))
    }

    /// Where the sockets will come.
    pub(super) fn sockets(&self) -> PathBuf {
        self.folder.join(SOCKETS)
    }

    /// Asks for the sockets; whoever called then waits for them there.
    pub(super) fn is_ready(&mut self) -> Result<(), StartError> {
        let lost = |error| StartError(format!("the running proxy does not hand over: {error}"));
        self.line.say("ready").map_err(lost)
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
        app.admission.save(&plan.state);
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
