//! TLS of the plan as JSON: where the files are, and nothing of what they hold.

use super::{list, object, or_null, text};
use crate::config::plan::{ClientTls, Identity, ServerTls};

pub(super) fn show_tls(tls: &ServerTls) -> String {
    let ServerTls {
        identities,
        client_ca,
        config: _,
    } = tls;
    object(&[
        ("certificates", list(identities.iter().map(show_identity))),
        (
            "client_ca",
            or_null(client_ca.as_ref().map(|path| text(path.display()))),
        ),
    ])
}

fn show_identity(identity: &Identity) -> String {
    let Identity { cert, key } = identity;
    object(&[("cert", text(cert.display())), ("key", text(key.display()))])
}

pub(super) fn show_trust(tls: &ClientTls) -> String {
    let ClientTls {
        ca,
        identity,
        config: _,
    } = tls;
    object(&[
        ("ca", or_null(ca.as_ref().map(|path| text(path.display())))),
        ("client_cert", or_null(identity.as_ref().map(show_identity))),
    ])
}
