//! `headers`: what every request to a worker gets on top.

use std::collections::BTreeSet;

use http::{HeaderName, HeaderValue};

use crate::config::typed::Value;

/// Headers that belong to one connection (RFC 9110 §7.6.1), or that say where a message goes and where it ends.
const OF_THE_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that the proxy sets on every request.
const OF_THE_PROXY: [&str; 5] = [
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
    "traceparent",
];

/// The headers, each name once. Values are marked sensitive: an operator may keep a gateway's key in one.
pub fn headers(value: Value<'_>, has_key: bool) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let mut known = BTreeSet::new();
    let mut headers = Vec::new();
    for (typed, value) in value.concealed().entries()? {
        let Some((name, content)) = header(&typed, &value, has_key) else {
            continue;
        };
        if !known.insert(name.as_str().to_owned()) {
            let message = "this header is listed twice; names don't differ by case";
            value.refuse_for(message, "write it once");
        }
        headers.push((name, content));
    }
    Some(headers)
}

fn header(typed: &str, value: &Value<'_>, has_key: bool) -> Option<(HeaderName, HeaderValue)> {
    let text = value.text()?;
    let Ok(name) = HeaderName::from_bytes(typed.as_bytes()) else {
        value.refuse("this is not the name of a header");
        return None;
    };
    if OF_THE_CONNECTION.contains(&name.as_str()) {
        value.refuse_for("this header belongs to the connection", "leave it out");
        return None;
    }
    if OF_THE_PROXY.contains(&name.as_str()) {
        value.refuse_for("the proxy sets this header itself", "leave it out");
        return None;
    }
    if has_key && name == http::header::AUTHORIZATION {
        value.refuse_for(
            "this worker's key is sent as this header",
            "leave out either of them",
        );
        return None;
    }
    let Ok(mut content) = HeaderValue::from_str(&text) else {
        value.refuse("this value holds characters that a header can't carry");
        return None;
    };
    content.set_sensitive(true);
    Some((name, content))
}
