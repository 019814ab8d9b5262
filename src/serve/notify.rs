//! Telling the service manager how it goes: one datagram for each change, to the socket that it names.
//!
//! The protocol is a line `READY=1` and the like (sd_notify(3)), and needs no library. Nobody who listens is no reason to
//! fail: whoever starts a proxy by hand has no manager.
//!
//! A successor is not the process that the manager watches: it says in the datagram of its `READY=1` that it is now
//! (`MAINPID=`). The one before says nothing more: the service goes on, and its `STOPPING=1` would end it.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::clock;

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

    /// Clients are listened to by this process, which took over from the one that the manager watches.
    pub(super) fn took_over(&self) {
        self.say(&format!("MAINPID={}\nREADY=1", std::process::id()));
    }

    /// The configuration is being read again. The time tells the manager that this came after its order
    /// (`Type=notify-reload`).
    pub(super) fn reloading(&self) {
        let micros = clock::since_boot().as_micros();
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
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
        assert!(room[..length].starts_with(b"RELOADING=1\nMONOTONIC_USEC="));
    }
}
