//! What KServe's gRPC service says of the proxy and its fleet. The messages are small and flat, so they are written
//! field by field: a tag (number and wire type) and a value each.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{App, Own, index, operators, theirs};
use crate::admission::Pass;
use crate::facts::{About, Call, framed, length_prefixed};
use crate::fault::Fault;

/// Tags of the fields 1 to 4 where they are texts or messages.
const FIRST: u8 = 0x0a;
const SECOND: u8 = 0x12;
const THIRD: u8 = 0x1a;
const FOURTH: u8 = 0x22;

/// Field 1, a boolean that is true. One that is false is left out.
const YES: [u8; 2] = [0x08, 1];

/// The answer, where it is the proxy's own; `None` where a worker answers.
///
/// # Errors
/// `forbidden` for what only an operator may do.
pub(super) fn answer(app: &App, call: &Call, pass: &Pass) -> Result<Option<Own>, Fault> {
    let message = match call.about {
        About::Model | About::Stream => return Ok(None),
        About::Refused => return Err(operators()),
        About::Live => YES.to_vec(),
        About::Ready => app.ready().map_or_else(|_| Vec::new(), |()| YES.to_vec()),
        About::Server => [
            text(FIRST, "forebay"),
            text(SECOND, env!("CARGO_PKG_VERSION")),
            text(THIRD, "model_repository"),
        ]
        .concat(),
        About::Index => {
            let catalogue = app.fleet.catalogue();
            let models = theirs(app, &catalogue, pass);
            let entries = index(models, &catalogue, &app.fleet.snapshot());
            let entry = |entry: super::Indexed<'_>| {
                let fields = [
                    text(FIRST, entry.name),
                    text(THIRD, entry.state),
                    text(FOURTH, entry.reason),
                ];
                message(FIRST, &fields.concat())
            };
            entries.into_iter().flat_map(entry).collect()
        }
    };
    let fields = [(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))];
    let good = HeaderName::from_static("grpc-status");
    Ok(Some(Own {
        status: StatusCode::OK,
        fields: fields.into_iter().collect(),
        body: Bytes::from(framed(&[&message]).unwrap_or_default()),
        trailers: HeaderMap::from_iter([(good, HeaderValue::from_static("0"))]),
    }))
}

/// A field that is a text. An empty one is left out.
fn text(tag: u8, text: &str) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    [&[tag][..], &length_prefixed(text.as_bytes())].concat()
}

/// A field that is a message.
fn message(tag: u8, fields: &[u8]) -> Vec<u8> {
    [&[tag][..], &length_prefixed(fields)].concat()
}
