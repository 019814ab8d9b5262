//! TLS of the plan as JSON: where the files are, and nothing of what they hold.

use super::{list, object, or_null, text};
use crate::config::plan::{CertFile, ClientTls, Identity, ServerTls};

pub(super) fn show_tls(tls: &ServerTls) -> String {
    let ServerTls {
        identities,
        client_ca,
        config: _,
    } = tls;
    object(&[
        ("certificates", list(identities.iter().map(show_identity))),
        ("client_ca", or_null(client_ca.as_ref().map(show_file))),
    ])
}

fn show_identity(identity: &Identity) -> String {
    let Identity { cert, key } = identity;
    object(&[("cert", show_file(cert)), ("key", text(key.display()))])
}

pub(super) fn show_trust(tls: &ClientTls) -> String {
    let ClientTls {
        ca,
        identity,
        config: _,
    } = tls;
    object(&[
        ("ca", or_null(ca.as_ref().map(show_file))),
        ("client_cert", or_null(identity.as_ref().map(show_identity))),
    ])
}

fn show_file(file: &CertFile) -> String {
    let CertFile { path, sha256 } = file;
    object(&[("file", text(path.display())), ("sha256", text(sha256))])
}
