//! A service manager, as far as it is told how a service goes (sd_notify(3)).

use std::io::IoSliceMut;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt,
};

use super::PATIENCE;

/// Hears what processes say, and knows who says it.
pub struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    /// Listens.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        setsockopt(&socket, sockopt::PassCred, &true).unwrap();
        Manager { socket, folder }
    }

    /// Where, as a service is told in `NOTIFY_SOCKET`.
    pub fn place(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// What is said next, and by which process.
    #[track_caller]
    pub fn hears(&self) -> (u32, String) {
        self.hear(MsgFlags::empty()).expect("nobody says anything")
    }

    /// Whether nobody has said more.
    pub fn heard_all(&self) -> bool {
        self.hear(MsgFlags::MSG_DONTWAIT).is_none()
    }

    fn hear(&self, how: MsgFlags) -> Option<(u32, String)> {
        let (mut room, mut beside) = ([0; 256], nix::cmsg_space!(UnixCredentials));
        let mut rooms = [IoSliceMut::new(&mut room)];
        let socket = self.socket.as_raw_fd();
        let heard = recvmsg::<()>(socket, &mut rooms, Some(&mut beside), how).ok()?;
        let by = heard.cmsgs().unwrap().find_map(|beside| match beside {
            ControlMessageOwned::ScmCredentials(who) => Some(who.pid()),
            _ => None,
        });
        let length = heard.bytes;
        let said = String::from_utf8(room[..length].to_vec()).unwrap();
        Some((u32::try_from(by.unwrap()).unwrap(), said))
    }
}
