//! `url`: where a worker is, and what is spoken there.

use http::Uri;

use std::sync::Arc;

use crate::config::plan::{ClientTls, Origin, Protocol};
use crate::config::typed::Value;
use crate::config::words::Choice;

/// The origin that a URL names. Query, fragment and user are refused: nothing would be done with them. The URL is not
/// repeated where it may hold a password or key.
pub fn origin(value: Value<'_>) -> Option<Origin> {
    let text = value.text()?;
    let value = if text.contains(['@', '?', '#']) {
        value.concealed()
    } else {
        value
    };
    match parse(&text) {
        Ok(origin) => return Some(origin),
        Err(Flaw::Version(shorter)) => value.refuse_for(
            "requests bring their own /v1: together that is /v1/v1",
            format!("write: url = \"{shorter}\""),
        ),
        Err(Flaw::User) => value.refuse_for(
            "a URL with a user or password is not used",
            "write the URL without them, and the worker's key as key = { env = \"NAME\" }",
        ),
        Err(Flaw::Query) => value.refuse_for(
            "a query or fragment has no meaning here: each request brings its own",
            "end the URL before ? or #",
        ),
        Err(Flaw::Scheme) => {
            value.refuse("this is not a URL that starts with http://, https:// or h2c://");
        }
        Err(Flaw::Port) => value.refuse("this port is not a number from 1 to 65535"),
        Err(Flaw::Malformed) => value.refuse("this is not a URL"),
    }
    None
}

/// The origin of a URL that stands in no file; of TLS whom the system trusts.
pub fn named(url: &str) -> Option<Origin> {
    let mut origin = parse(url).ok()?;
    if origin.protocol == Protocol::Https {
        origin.tls = Some(Arc::new(ClientTls::read(None, None).ok()?));
    }
    Some(origin)
}

/// Where a worker speaks gRPC: another port of the same host, HTTP/2 in the clear or within TLS.
pub fn grpc(value: Value<'_>, worker: Option<&Origin>) -> Option<Origin> {
    let parsed = parse(&value.text()?).ok();
    if worker
        .zip(parsed)
        .is_some_and(|(worker, found)| worker.host != found.host)
    {
        value.refuse("gRPC is looked for on the host of url, and this is another");
        return None;
    }
    let found = origin(value)?;
    let protocol = if found.protocol.is_within_tls() {
        Protocol::H2
    } else {
        Protocol::H2c
    };
    Some(Origin { protocol, ..found })
}

/// Where a worker's metrics are: a URL of its own, whose path is the whole target.
pub fn metrics(value: Value<'_>) -> Option<Origin> {
    if value.text()?.starts_with("h2c://") {
        value.refuse("metrics are read by HTTP/1.1");
        return None;
    }
    origin(value)
}

#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    /// It ends in `/v1`; the URL without that.
    Version(String),
    User,
    Query,
    Scheme,
    Port,
    Malformed,
}

fn parse(text: &str) -> Result<Origin, Flaw> {
    let (scheme, _) = text.split_once("://").ok_or(Flaw::Scheme)?;
    let protocol = Protocol::named(scheme).ok_or(Flaw::Scheme)?;
    if text.contains('@') {
        return Err(Flaw::User);
    }
    if text.contains(['?', '#']) {
        return Err(Flaw::Query);
    }
    let uri: Uri = text.parse().map_err(|_| Flaw::Malformed)?;
    let host = uri
        .host()
        .filter(|host| !host.is_empty())
        .ok_or(Flaw::Malformed)?;
    if let Some(shorter) = text.trim_end_matches('/').strip_suffix("/v1") {
        return Err(Flaw::Version(shorter.to_owned()));
    }
    let usual = match protocol {
        Protocol::Http1 | Protocol::H2c => 80,
        Protocol::Https | Protocol::H2 => 443,
    };
    let port = port(&uri, host)?.unwrap_or(usual);
    let authority = if port == usual {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    };
    Ok(Origin {
        protocol,
        host: host.trim_matches(['[', ']']).to_owned(),
        port,
        base: uri.path().trim_end_matches('/').to_owned(),
        authority,
        tls: None,
    })
}

/// The port behind the host. `Uri` takes a port that is no number, and gives none back.
fn port(uri: &Uri, host: &str) -> Result<Option<u16>, Flaw> {
    let typed = uri
        .authority()
        .and_then(|authority| authority.as_str().strip_prefix(host))
        .unwrap_or_default();
    match typed.strip_prefix(':') {
        None => Ok(None),
        Some(digits) => {
            let port = digits.parse().map_err(|_| Flaw::Port)?;
            if port == 0 {
                Err(Flaw::Port)
            } else {
                Ok(Some(port))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_origins() {
        let show = |text| {
            let origin = parse(text).unwrap();
            let protocol = origin.protocol.word();
            format!(
                "{protocol} {} {} {:?} {}",
                origin.host, origin.port, origin.base, origin.authority
            )
        };
        assert_eq!(show("http://gpu.lan"), "http gpu.lan 80 \"\" gpu.lan");
        assert_eq!(
            show("http://10.0.0.1:8000/"),
            "http 10.0.0.1 8000 \"\" 10.0.0.1:8000"
        );
        assert_eq!(show("h2c://[::1]:80/a/b/"), "h2c ::1 80 \"/a/b\" [::1]");
        assert_eq!(show("https://gpu.lan"), "https gpu.lan 443 \"\" gpu.lan");
        assert_eq!(show("https://a:80/b"), "https a 80 \"/b\" a:80");
        assert_eq!(show("http://[::1]:8000"), "http ::1 8000 \"\" [::1]:8000");
    }

    #[test]
    fn what_is_no_origin_is_named() {
        let flaw = |text| parse(text).unwrap_err();
        let shorter = || Flaw::Version("http://gpu.lan:8000/a".to_owned());
        assert_eq!(flaw("http://gpu.lan:8000/a/v1/"), shorter());
        assert_eq!(flaw("http://gpu.lan:8000/a/v1"), shorter());
        assert_eq!(flaw("gpu.lan:8000"), Flaw::Scheme);
        assert_eq!(flaw("ftp://gpu.lan"), Flaw::Scheme);
        assert_eq!(flaw("http://me:pw@gpu.lan"), Flaw::User);
        assert_eq!(flaw("http://gpu.lan/?a=b"), Flaw::Query);
        assert_eq!(flaw("http://gpu.lan/#a"), Flaw::Query);
        for text in [
            "http://gpu.lan:0",
            "http://gpu.lan:99999",
            "http://gpu.lan:",
        ] {
            assert_eq!(flaw(text), Flaw::Port, "{text}");
        }
        for text in ["http://", "http:///a", "http://a b"] {
            assert_eq!(flaw(text), Flaw::Malformed, "{text}");
        }
    }
}
