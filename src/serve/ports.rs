//! The addresses that the proxy listens on: whether they can be had is found out before anything else is begun.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

use super::{StartError, holder};
use crate::config::Plan;

/// The plan with addresses that can be had: those that are inherited, and others that are free. Port 0 has become a
/// free one, which everybody is told.
pub(super) fn settled(mut plan: Plan, inherited: &[SocketAddr]) -> Result<Plan, StartError> {
    for address in plan.listen.http.iter_mut().chain([&mut plan.listen.admin]) {
        if !inherited.contains(address) {
            *address = probe_bind(*address)?;
        }
    }
    Ok(plan)
}

/// Binds and lets go, so that an address that can't be had is an error and not a panic later. It does not listen:
/// whoever connected in that moment would be thrown out again.
fn probe_bind(address: SocketAddr) -> Result<SocketAddr, StartError> {
    let bound = Socket::new(Domain::for_address(address), Type::STREAM, None).and_then(|socket| {
        // As the listener will: a port that is only waiting for its last connections to fade is not in use.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.local_addr()
    });
    match bound {
        Ok(bound) => Ok(bound.as_socket().unwrap_or(address)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let port = address.port();
            let holder = holder::of(address).map(|holder| format!(" by {holder}"));
            Err(StartError(format!(
                "port {port} is in use{} ({address}); stop who has it or change [listen]",
                holder.unwrap_or_default()
            )))
        }
        Err(error) => Err(StartError(format!("can't listen on {address}: {error}"))),
    }
}
