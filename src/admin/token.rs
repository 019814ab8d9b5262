//! The admin token: where it comes from, and how a person learns of it.
//!
//! The operator may choose one, in the environment or in the configuration. Otherwise one is made, 256 random bits, and
//! kept in the state folder so that it outlives restarts; only the process's own user may read it. A token that was
//! made is shown once, as part of an address to click, and only where a person looks: on a terminal. In a log it would
//! outlive its purpose, so there the file is named instead. A token that the operator chose is never shown at all.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::config::plan::Secret;
use crate::facts::percent_encoded;

/// The variable whose non-empty value is the token.
pub const VARIABLE: &str = "FOREBAY_ADMIN_TOKEN";
/// The file's name in the state folder.
const FILE: &str = "admin-token";

/// A token and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSource {
    /// The token; not empty.
    pub token: Secret,
    /// Where it came from.
    pub origin: Origin,
}

/// Where a token came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// [`VARIABLE`].
    Environment,
    /// `[admin] token`.
    Configuration,
    /// Made by us and kept here.
    File(PathBuf),
}

/// Says where to look, never what is there.
impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Environment => f.write_str(VARIABLE),
            Origin::Configuration => f.write_str("[admin] token of the configuration"),
            Origin::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl TokenSource {
    /// The line that tells a person how to open the status page.
    #[must_use]
    pub fn announcement(&self, admin: SocketAddr, is_terminal: bool) -> String {
        let address = reachable(admin);
        match &self.origin {
            Origin::File(_) if is_terminal => {
                let token = percent_encoded(self.token.expose());
                format!("status page: http://{address}/?token={token}")
            }
            origin => format!("status page: http://{address}/ (token: {origin})"),
        }
    }
}

/// Finds the token: the environment's, else the configuration's, else the state folder's, made if there is none.
///
/// An empty value counts as none. A file that others could read is made private again, with a warning.
pub fn resolve(
    variable: Option<String>,
    configured: Option<&Secret>,
    state: &Path,
) -> io::Result<TokenSource> {
    let chosen = variable
        .map(|value| (Secret::new(&value), Origin::Environment))
        .into_iter()
        .chain(configured.map(|secret| (secret.clone(), Origin::Configuration)))
        .find(|(token, _)| !token.expose().is_empty());
    if let Some((token, origin)) = chosen {
        return Ok(TokenSource { token, origin });
    }
    let path = state.join(FILE);
    let token = kept_or_made(state, &path).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("admin token {}: {error}", path.display()),
        )
    })?;
    Ok(TokenSource {
        token,
        origin: Origin::File(path),
    })
}

/// The same for whoever asks a running proxy: nothing is made or mended. `None` when there is none.
#[must_use]
pub fn known(
    variable: Option<String>,
    configured: Option<&Secret>,
    state: &Path,
) -> Option<Secret> {
    let kept = || fs::read_to_string(state.join(FILE)).ok();
    let chosen = variable.map(|value| Secret::new(&value)).into_iter();
    chosen
        .chain(configured.cloned())
        .find(|token| !token.expose().is_empty())
        .or_else(|| Some(Secret::new(kept()?.trim())))
}

fn kept_or_made(state: &Path, path: &Path) -> io::Result<Secret> {
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => {
            make_private(path)?;
            Ok(Secret::new(text.trim()))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => make(state, path),
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{mode:o}"),
            "the admin token could be read by others; its file is private again, delete it to get a new token"
        );
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Writes a new token beside its place and moves it there, so that no half-written token is ever read.
fn make(state: &Path, path: &Path) -> io::Result<Secret> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)?;
    let token = random_text();
    let draft = path.with_extension("new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    Ok(Secret::new(&token))
}

/// 256 random bits in hexadecimal.
pub(super) fn random_text() -> String {
    let [high, low]: [u128; 2] = rand::random();
    format!("{high:032x}{low:032x}")
}

/// Where a browser on this machine finds a listener: one on every address is also on loopback.
pub(super) fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn made(state: &Path) -> TokenSource {
        resolve(None, None, state).unwrap()
    }

    #[test]
    fn the_environment_goes_before_the_configuration_and_both_before_the_file() {
        let state = tempfile::tempdir().unwrap();
        let configured = Secret::new("from-plan");
        let found = |variable: Option<&str>, configured| {
            let source = resolve(variable.map(str::to_owned), configured, state.path()).unwrap();
            (source.token.expose().to_owned(), source.origin)
        };
        let both = found(Some("from-env"), Some(&configured));
        assert_eq!(both, ("from-env".to_owned(), Origin::Environment));
        let empty = found(Some(""), Some(&configured));
        assert_eq!(empty, ("from-plan".to_owned(), Origin::Configuration));
        assert!(!state.path().join(FILE).exists(), "nothing is made unasked");
        let neither = found(Some(""), Some(&Secret::new("")));
        assert_eq!(neither.1, Origin::File(state.path().join(FILE)));
    }

    #[test]
    fn a_made_token_is_long_random_private_and_kept() {
        let parent = tempfile::tempdir().unwrap();
        let state = parent.path().join("deep/state");
        let first = made(&state);
        assert_eq!(first.token.expose().len(), 64);
        assert_eq!(mode(&state), 0o700);
        assert_eq!(mode(&state.join(FILE)), 0o600);
        assert_eq!(made(&state), first, "kept over restarts");
        assert_ne!(made(&parent.path().join("other")).token, first.token);
        let left: Vec<_> = fs::read_dir(&state).unwrap().collect();
        assert_eq!(left.len(), 1, "no draft is left behind");
    }

    #[test]
    fn a_file_that_others_can_read_is_made_private_again() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(FILE);
        fs::write(&path, "kept-token\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(made(state.path()).token.expose(), "kept-token");
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn an_empty_file_and_a_draft_of_a_crash_are_replaced() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(FILE), "\n").unwrap();
        fs::write(state.path().join("admin-token.new"), "half").unwrap();
        assert_eq!(made(state.path()).token.expose().len(), 64);
    }

    #[test]
    fn a_state_folder_that_cannot_be_made_is_said_with_its_path() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("file");
        fs::write(&file, "").unwrap();
        let error = resolve(None, None, &file.join("state")).unwrap_err();
        assert!(error.to_string().contains("file/state/admin-token"));
    }

    #[test]
    fn a_made_token_is_shown_on_a_terminal_only_and_a_chosen_one_never() {
        let state = tempfile::tempdir().unwrap();
        let made = made(state.path());
        let token = made.token.expose();
        let at: SocketAddr = "127.0.0.1:7071".parse().unwrap();
        assert_eq!(
            made.announcement(at, true),
            format!("status page: http://127.0.0.1:7071/?token={token}")
        );
        let piped = made.announcement(at, false);
        assert!(!piped.contains(token) && piped.contains("admin-token"));
        for is_terminal in [true, false] {
            let chosen = resolve(Some("canary-token".into()), None, state.path()).unwrap();
            let line = chosen.announcement(at, is_terminal);
            assert!(!line.contains("canary-token") && line.contains(VARIABLE));
        }
        assert!(!format!("{made:?}").contains(token));
    }

    #[test]
    fn an_address_can_be_opened_as_printed() {
        let state = tempfile::tempdir().unwrap();
        let everywhere = |at: &str| made(state.path()).announcement(at.parse().unwrap(), false);
        assert!(everywhere("0.0.0.0:7071").contains("http://127.0.0.1:7071/"));
        assert!(everywhere("[::]:7071").contains("http://[::1]:7071/"));
    }
}
