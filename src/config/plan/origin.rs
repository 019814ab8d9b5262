//! Where a worker is reached, and what is spoken there.

use std::sync::Arc;

use http::uri::{PathAndQuery, Scheme};

use super::ClientTls;

/// Where a worker is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Host name or address, an IPv6 address without its brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// A path that goes before every request's, without a slash at its end; usually empty.
    pub base: String,
    /// `host:port` as the `Host` header says it: brackets around IPv6, no default port.
    pub authority: String,
    /// Whom it is believed to be, where TLS is spoken.
    pub tls: Option<Arc<ClientTls>>,
}

impl Origin {
    /// The target of a request to this worker: a path (and query) under the base, in the form that its protocol wants.
    ///
    /// # Errors
    /// When the base makes it too long.
    pub fn uri(&self, target: PathAndQuery) -> Result<http::Uri, http::Error> {
        let target = if self.base.is_empty() {
            target
        } else {
            PathAndQuery::try_from(format!("{}{target}", self.base))?
        };
        let scheme = match self.protocol {
            Protocol::Http1 | Protocol::Https => return Ok(http::Uri::from(target)),
            Protocol::H2c => Scheme::HTTP,
            Protocol::H2 => Scheme::HTTPS,
        };
        http::Uri::builder()
            .scheme(scheme)
            .authority(self.authority.as_str())
            .path_and_query(target)
            .build()
    }
}

/// What a worker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 in the clear (`http://`).
    Http1,
    /// HTTP/1.1 within TLS (`https://`).
    Https,
    /// HTTP/2 in the clear by prior knowledge (`h2c://`).
    H2c,
    /// HTTP/2 within TLS: where `grpc_url` is `https://`.
    H2,
}

impl Protocol {
    /// Whether it is spoken within TLS.
    #[must_use]
    pub fn is_within_tls(self) -> bool {
        matches!(self, Protocol::Https | Protocol::H2)
    }

    /// Whether it carries many requests at once.
    #[must_use]
    pub fn is_http2(self) -> bool {
        matches!(self, Protocol::H2c | Protocol::H2)
    }
}
