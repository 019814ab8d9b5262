//! What a worker is told of who is in front of us: `X-Forwarded-For`, `-Proto` and `-Host`.
//!
//! A client's own words are replaced, since anybody can invent them. Of a proxy that the operator trusts they are kept,
//! all `X-Forwarded-*` of them, and its address is added to the list, so that the worker sees the whole way.
//! `Forwarded` (RFC 7239) is dropped in either case: a list with a hop missing misleads.

use bytes::{BufMut, BytesMut};
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Errand;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether a field tells who is in front of us.
pub(super) fn tells(name: &HeaderName) -> bool {
    name == "forwarded" || name.as_str().starts_with("x-forwarded-")
}

/// Tells the worker.
pub(super) fn tell(headers: &mut HeaderMap, errand: &Errand<'_>) {
    let told = &errand.head.headers;
    let trusted = errand.client.is_trusted(errand.plan);
    if trusted {
        let theirs = told
            .iter()
            .filter(|(name, _)| tells(name) && *name != "forwarded");
        headers.extend(theirs.map(|(name, value)| (name.clone(), value.clone())));
    }
    let authority = || {
        let authority = errand.head.uri.authority();
        authority.and_then(|authority| authority.as_str().parse().ok())
    };
    if !headers.contains_key(X_FORWARDED_HOST)
        && let Some(host) = told.get(HOST).cloned().or_else(authority)
    {
        headers.insert(X_FORWARDED_HOST, host);
    }
    if let Some(address) = &errand.client.address {
        let whole = trusted.then(|| behind(told, address)).flatten();
        headers.insert(X_FORWARDED_FOR, whole.unwrap_or_else(|| address.clone()));
    }
    if !headers.contains_key(X_FORWARDED_PROTO) {
        let scheme = if errand.client.tls { "https" } else { "http" };
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
}

/// All that a proxy tells of the way, and the proxy itself, on one line.
fn behind(told: &HeaderMap, proxy: &HeaderValue) -> Option<HeaderValue> {
    let mut way = BytesMut::new();
    for line in told.get_all(X_FORWARDED_FOR) {
        way.put_slice(line.as_bytes());
        way.put_slice(b", ");
    }
    way.put_slice(proxy.as_bytes());
    HeaderValue::from_maybe_shared(way.freeze()).ok()
}
