//! Telling the service manager how it goes: one datagram for each change, to the socket that it names.
//!
//! The protocol is a line `READY=1` and the like (sd_notify(3)), and needs no library. Nobody who listens is no reason
//! to fail: whoever starts a proxy by hand has no manager.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the socket.
pub(super) const VARIABLE: &str = "NOTIFY_SOCKET";

/// The way to the service manager, if there is one.
#[derive(Default)]
pub(super) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// To the socket of this name: a path, or an abstract one that begins with `@`.
    pub(super) fn to(name: Option<&str>) -> Self {
        let address = name.and_then(|name| match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(name).ok(),
        });
        Notifier(address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address))))
    }

    /// Clients are listened to, or a reload is over.
    pub(super) fn ready(&self) {
        self.say("READY=1");
    }

    /// The configuration is being read again.
    pub(super) fn reloading(&self) {
        self.say("RELOADING=1");
    }

    /// No more clients are listened to.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, word: &str) {
        if let Some((socket, address)) = &self.0
            && let Err(error) = socket.send_to_addr(word.as_bytes(), address)
        {
            tracing::debug!(%error, word, "the service manager can't be told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_a_datagram_and_nobody_need_listen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(path.to_str());
        notifier.ready();
        notifier.stopping();
        let heard = || {
            let mut room = [0; 64];
            let length = manager.recv(&mut room).unwrap();
            String::from_utf8(room[..length].to_vec()).unwrap()
        };
        assert_eq!([heard(), heard()], ["READY=1", "STOPPING=1"]);
        Notifier::to(None).ready();
        Notifier::to(Some("/nobody/there")).ready();
        let name = format!("forebay-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let abstract_one = UnixDatagram::bind_addr(&address).unwrap();
        Notifier::to(Some(&format!("@{name}"))).reloading();
        let mut room = [0; 64];
        let length = abstract_one.recv(&mut room).unwrap();
        assert_eq!(&room[..length], b"RELOADING=1");
    }
}
