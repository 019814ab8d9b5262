//! Whether a head asks for a WebSocket, and soundly (RFC 6455 §4.2.1).
//!
//! An `Upgrade` to anything else, or one that `Connection` does not name, is no request for one: the field ends here
//! like every hop-by-hop field, and the request is answered as if it had not been there (RFC 9110 §7.8).

use http::header::{
    CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING,
    UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Version};

use super::bad;
use crate::fault::Fault;

/// The version that RFC 6455 describes.
const VERSION: &[u8] = b"13";
/// Sixteen bytes in base64.
const KEY_LENGTH: usize = 24;

/// Whether a WebSocket is asked for.
///
/// # Errors
/// `bad_request` when it is, in a way that RFC 6455 does not have.
pub(super) fn is_asked(head: &Parts) -> Result<bool, Fault> {
    let headers = &head.headers;
    let asked = head.version == Version::HTTP_11
        && names(headers, &UPGRADE, "websocket")
        && names(headers, &CONNECTION, "upgrade");
    if !asked {
        return Ok(false);
    }
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || headers
            .get(CONTENT_LENGTH)
            .is_some_and(|length| length != "0");
    let key = only(headers, &SEC_WEBSOCKET_KEY).unwrap_or_default();
    let flaw = if head.method != Method::GET {
        "a WebSocket is asked for by GET"
    } else if has_body {
        "a request for a WebSocket has no body"
    } else if only(headers, &SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        "Sec-WebSocket-Version is not 13"
    } else if key.len() != KEY_LENGTH || !key.ends_with(b"==") {
        "Sec-WebSocket-Key is not 16 bytes in base64"
    } else {
        return Ok(true);
    };
    Err(bad(flaw))
}

/// Whether a field lists this token.
fn names(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let lines = headers.get_all(name).iter();
    let mut tokens = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    tokens.any(|listed| listed.trim().eq_ignore_ascii_case(token))
}

/// The value of a field that stands there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.as_bytes();
    values.next().is_none().then_some(value)
}
