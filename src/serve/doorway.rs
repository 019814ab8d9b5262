//! Where Pingora hands over an accepted connection.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::apps::ServerApp;
use pingora_core::protocols::Stream;
use pingora_core::server::ShutdownWatch;

use crate::listener::{self, Gate, Plane};

/// One plane's door.
pub(super) struct Doorway {
    plane: Plane,
    gate: Arc<Gate>,
}

impl Doorway {
    pub(super) fn new(plane: Plane, gate: Arc<Gate>) -> Self {
        Doorway { plane, gate }
    }
}

#[async_trait]
impl ServerApp for Doorway {
    async fn process_new(self: &Arc<Self>, stream: Stream, _: &ShutdownWatch) -> Option<Stream> {
        let peer = peer(&stream);
        listener::serve(stream, peer, self.plane.clone(), self.gate.clone()).await;
        None
    }

    /// Called once the listeners are closed. Both planes close together; the clients' is the one that counts.
    async fn cleanup(&self) {
        if matches!(self.plane, Plane::Client(_)) {
            self.gate.close();
        }
    }
}

fn peer(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    digest.peer_addr()?.as_inet().map(std::net::SocketAddr::ip)
}
