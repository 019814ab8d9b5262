//! Where the admin side of the running proxy listens, as it is left in the state folder for the verbs that ask it.
//!
//! A port may have been chosen by the system, and a listener on every address is reached on loopback, so the
//! configuration alone does not tell. An old file is harmless: what it names does not answer, or not to our token.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::token::reachable;

/// Its name in the state folder.
pub const ADMIN_FILE: &str = "admin.json";

/// What the file says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct AdminAddress {
    /// Where this machine finds it: `http://127.0.0.1:7071`.
    pub url: String,
}

impl AdminAddress {
    /// That of a listener.
    #[must_use]
    pub fn of(listener: SocketAddr) -> Self {
        AdminAddress {
            url: format!("http://{}", reachable(listener)),
        }
    }
}
