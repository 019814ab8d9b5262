//! `listen.tls` and a worker's `ca` and `client_cert`: the files are read here, so that a wrong one is told before it is needed.

use std::sync::Arc;

use crate::config::plan::{CertFile, ClientTls, Identity, Origin, ServerTls};
use crate::config::typed::{Section, Value};

/// What clients are shown: one table, or a list of them for several names.
pub fn server(value: &Value<'_>) -> Option<Arc<ServerTls>> {
    let tables = if value.is_table() {
        vec![value.section()?]
    } else {
        let items = value.items()?;
        items.iter().map(Value::section).collect::<Option<_>>()?
    };
    if tables.is_empty() {
        value.refuse("there is no certificate in this list");
    }
    let identities: Option<Vec<_>> = tables.iter().map(identity).collect();
    let mut vouching = tables.iter().filter_map(|table| table.given("client_ca"));
    let client_ca = vouching.next();
    if let Some(second) = vouching.next() {
        second.refuse_for(
            "client_ca stands here twice: clients are asked before a name is known",
            "write it in one of these tables, with all authorities in one file",
        );
        return None;
    }
    let client_ca = client_ca.map_or(Some(None), |value| certificates(&value).map(Some))?;
    match ServerTls::read(identities?, client_ca) {
        Ok(read) => Some(Arc::new(read)),
        Err(error) => {
            unusable(value, &error);
            None
        }
    }
}

/// How a worker is known wherever it is spoken to by TLS.
pub fn trust(section: &Section<'_>, origins: [Option<&mut Origin>; 3]) -> Option<()> {
    let [ca, own] = ["ca", "client_cert"].map(|key| section.given(key));
    let known: Vec<_> = origins.into_iter().flatten().collect();
    let within_tls = |origin: &&mut Origin| origin.protocol.is_within_tls();
    if !known.is_empty() && !known.iter().any(within_tls) {
        for value in ca.iter().chain(&own) {
            let way_out = "write: url = \"https://…\", or leave this out";
            value.refuse_for("this worker is not spoken to by TLS", way_out);
        }
        return Some(());
    }
    let vouching = ca.as_ref().map(certificates);
    let shown = own.as_ref().map(|own| identity(&own.section()?));
    if matches!(vouching, Some(None)) || matches!(shown, Some(None)) {
        return None;
    }
    let mut origins = known.into_iter().filter(within_tls).peekable();
    if origins.peek().is_none() {
        return Some(());
    }
    let (vouching, shown) = (vouching.flatten(), shown.flatten());
    match ClientTls::read(vouching, shown) {
        Ok(read) => {
            let read = Arc::new(read);
            origins.for_each(|origin| origin.tls = Some(read.clone()));
            Some(())
        }
        Err(error) => {
            if let Some(value) = ca.iter().chain(&own).next() {
                unusable(value, &error);
            }
            None
        }
    }
}

fn identity(table: &Section<'_>) -> Option<Identity> {
    let cert = table.value("cert").and_then(|value| certificates(&value));
    let key = table.value("key").and_then(|value| {
        let path = value.path()?;
        value.reads(&path);
        Some(path)
    });
    Some(Identity {
        cert: cert?,
        key: key?,
    })
}

fn certificates(value: &Value<'_>) -> Option<CertFile> {
    let path = value.path()?;
    value.reads(&path);
    let read = CertFile::read(path);
    read.inspect_err(|error| unusable(value, error)).ok()
}

fn unusable(value: &Value<'_>, error: &str) {
    value.refuse_for(
        format!("a file named here can't be used: {error}"),
        "name PEM files: a chain of certificates, the key of the first, and authorities",
    );
}
