//! KServe's gRPC service: its calls as one table, and the model that the first message of a call names.
//!
//! Sources: gRPC over HTTP/2 (a message is a flag, a length of four bytes and so many bytes), the encoding of protocol
//! buffers (a field is a tag and a value; of two with the same number the last counts), and the KServe v2 protocol:
//! in every request of a model the name is field 1 (`model_name`, or `name`).
//!
//! Guaranteed: the model read here is the model the worker reads. A message is walked by its top-level fields and
//! nothing is decoded; one that can't be walked to its end, or names two models, is refused. A compressed one is undone
//! before it comes here.

use std::ops::Range;

use crate::fault::{Fault, Kind};
use crate::units::ModelName;

/// The service's calls stand under this path.
pub(super) const SERVICE: &str = "/inference.GRPCInferenceService/";
/// Flag and length.
pub const PREFIX: usize = 5;

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The process lives.
    Live,
    /// Somebody can answer.
    Ready,
    /// What this server is.
    Server,
    /// All models of the fleet.
    Index,
    /// A model: goes to a worker that serves it.
    Model,
    /// A model, in a stream of messages both ways.
    Stream,
    /// The operator's affairs.
    Refused,
}

/// A call of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its path: the `route` of logs and metrics.
    pub path: &'static str,
    /// What it is about.
    pub about: About,
}

const fn call(path: &'static str, about: About) -> Call {
    Call { path, about }
}

const CALLS: [Call; 20] = [
    call("/inference.GRPCInferenceService/ServerLive", About::Live),
    call("/inference.GRPCInferenceService/ServerReady", About::Ready),
    call(
        "/inference.GRPCInferenceService/ServerMetadata",
        About::Server,
    ),
    call(
        "/inference.GRPCInferenceService/RepositoryIndex",
        About::Index,
    ),
    call("/inference.GRPCInferenceService/ModelReady", About::Model),
    call(
        "/inference.GRPCInferenceService/ModelMetadata",
        About::Model,
    ),
    call("/inference.GRPCInferenceService/ModelConfig", About::Model),
    call(
        "/inference.GRPCInferenceService/ModelStatistics",
        About::Model,
    ),
    call("/inference.GRPCInferenceService/ModelInfer", About::Model),
    call(
        "/inference.GRPCInferenceService/ModelStreamInfer",
        About::Stream,
    ),
    call(
        "/inference.GRPCInferenceService/RepositoryModelLoad",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/RepositoryModelUnload",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/CudaSharedMemoryStatus",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/TraceSetting",
        About::Refused,
    ),
    call(
        "/inference.GRPCInferenceService/LogSettings",
        About::Refused,
    ),
];

impl Call {
    /// The call of this path.
    #[must_use]
    pub fn of(path: &str) -> Option<&'static Call> {
        let rest = path.strip_prefix(SERVICE)?;
        CALLS
            .iter()
            .find(|call| &call.path[SERVICE.len()..] == rest)
    }
}

/// Whether a content type is gRPC's.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// How many bytes the first message takes with its prefix, once that is there.
///
/// # Errors
/// `bad_request` when its flag is none.
pub fn message_length(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    match *bytes {
        [0 | 1, a, b, c, d, ..] => Ok(Some(PREFIX + u32::from_be_bytes([a, b, c, d]) as usize)),
        [0 | 1, ..] | [] => Ok(None),
        _ => Err(bad("the message has no gRPC prefix")),
    }
}

/// Whether the message that begins here is compressed.
#[must_use]
pub fn is_compressed(bytes: &[u8]) -> bool {
    bytes.first() == Some(&1)
}

/// The first message, behind its prefix, once it is there whole.
///
/// # Errors
/// As [`message_length`] has them.
pub fn first_message(bytes: &[u8]) -> Result<Option<&[u8]>, Fault> {
    let length = message_length(bytes)?;
    Ok(length.and_then(|length| bytes.get(PREFIX..length)))
}

/// The model that a message names, and where that stands in it, with its length.
///
/// # Errors
/// `bad_request` when it can't be walked, or names two models, or one that is not UTF-8.
pub fn model_in_message(message: &[u8]) -> Result<Option<(String, Range<usize>)>, Fault> {
    let odd = || bad("the message can't be read");
    let mut found = None;
    let mut at = 0;
    while at < message.len() {
        let (number, wire) = tag(message, &mut at).ok_or_else(odd)?;
        let start = at;
        let value = skip(message, &mut at, wire).ok_or_else(odd)?;
        if number != 1 {
            continue;
        }
        if wire != 2 || found.is_some() {
            return Err(bad("the message names no model, or two").param("model"));
        }
        let name = std::str::from_utf8(&message[value]).map_err(|_| odd())?;
        found = Some((name.to_owned(), start..at));
    }
    Ok(found)
}

/// A text or message with its length, as it stands behind a tag.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
pub fn length_prefixed(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 5);
    let mut left = text.len();
    while left >= 0x80 {
        bytes.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes.extend_from_slice(text);
    bytes
}

/// A message with its prefix; nothing when it is longer than a prefix can say.
#[must_use]
pub fn framed(message: &[&[u8]]) -> Option<Vec<u8>> {
    let prefix = message_prefix(message.iter().map(|part| part.len()).sum())?;
    Some([&[&prefix[..]], message].concat().concat())
}

/// The prefix of a plain message of this length; nothing when that is more than it can say.
#[must_use]
pub fn message_prefix(length: usize) -> Option<[u8; PREFIX]> {
    let [a, b, c, d] = u32::try_from(length).ok()?.to_be_bytes();
    Some([0, a, b, c, d])
}

/// A message with a prefix of its own, in which the name that stands there is written anew; nothing when it grows too
/// long.
#[must_use]
pub fn renamed(message: &[u8], span: Range<usize>, name: &ModelName) -> Option<Vec<u8>> {
    let name = length_prefixed(name.as_str().as_bytes());
    framed(&[message.get(..span.start)?, &name, message.get(span.end..)?])
}

/// A field's number and wire type. A tag is 32 bits wide and fields count from 1: some readers cut what is wider down
/// to those bits, and so see another field.
fn tag(message: &[u8], at: &mut usize) -> Option<(u32, u32)> {
    let tag = u32::try_from(varint(message, at)?).ok()?;
    let (number, wire) = (tag >> 3, tag & 7);
    (number > 0).then_some((number, wire))
}

/// Steps over a value of this wire type; where its bytes stand.
fn skip(message: &[u8], at: &mut usize, wire: u32) -> Option<Range<usize>> {
    let length = match wire {
        0 => {
            let start = *at;
            varint(message, at)?;
            return Some(start..*at);
        }
        1 => 8,
        2 => usize::try_from(varint(message, at)?).ok()?,
        5 => 4,
        _ => return None,
    };
    let end = at.checked_add(length).filter(|end| *end <= message.len())?;
    let value = *at..end;
    *at = end;
    Some(value)
}

fn varint(message: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let byte = *message.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn bad(message: &str) -> Fault {
    Fault::new(Kind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_among_other_fields_and_may_be_written_anew() {
        let long = "x".repeat(300);
        for name in ["m", "", long.as_str()] {
            let message = [
                &[0x12, 1, b'1', 0x0a][..],
                &length_prefixed(name.as_bytes()),
                &[0x20, 0x96, 1, 0x2d, 1, 2, 3, 4],
            ]
            .concat();
            let (read, span) = model_in_message(&message).unwrap().unwrap();
            assert_eq!(
                (&read[..], &message[span]),
                (name, &length_prefixed(name.as_bytes())[..])
            );
        }
        assert_eq!(model_in_message(&[0x12, 1, b'1']), Ok(None));
        assert_eq!(model_in_message(&[]), Ok(None));
    }

    #[test]
    fn what_can_be_read_in_two_ways_or_none_is_refused() {
        for odd in [
            &[0x0a, 1, b'a', 0x0a, 1, b'b'][..],
            &[0x08, 1],
            &[0x0a, 5, b'a'],
            &[0x0a],
            &[0x0a, 1, 0xff],
            &[0x0b],
            &[0xff; 11],
            // Field 2^29 + 1, which is field 1 to who keeps 32 bits of it; and field 0.
            &[0x0a, 1, b'a', 0x8a, 0x80, 0x80, 0x80, 0x10, 1, b'b'],
            &[0x0a, 1, b'a', 0x02, 1, b'b'],
            &[
                0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
        ] {
            assert_eq!(
                model_in_message(odd).unwrap_err().kind,
                Kind::BadRequest,
                "{odd:?}"
            );
        }
    }

    #[test]
    fn a_prefix_tells_how_long_a_message_is() {
        assert_eq!(message_length(&[]), Ok(None));
        assert_eq!(message_length(&[0, 0, 0, 1]), Ok(None));
        assert_eq!(message_length(&[0, 0, 0, 1, 2]), Ok(Some(PREFIX + 258)));
        assert_eq!(message_length(&[1, 0, 0, 0, 0]), Ok(Some(PREFIX)));
        assert!(is_compressed(&[1]) && !is_compressed(&[0]) && !is_compressed(&[]));
        assert_eq!(message_length(b"GET").unwrap_err().kind, Kind::BadRequest);
        assert_eq!(
            framed(&[b"ab", b"c"]).unwrap(),
            [0, 0, 0, 0, 3, b'a', b'b', b'c']
        );
    }

    #[test]
    fn what_stands_behind_a_message_is_not_renamed_into_it() {
        let bytes = [0, 0, 0, 0, 3, 0x0a, 1, b'm', 0x0a, 1, b'x'];
        let message = first_message(&bytes).unwrap().unwrap();
        let real = ModelName::new("real");
        assert_eq!(renamed(message, 1..3, &real), framed(&[b"\x0a\x04real"]));
        assert_eq!(first_message(&bytes[..7]), Ok(None));
        assert_eq!(renamed(&message[..2], 1..3, &real), None);
    }

    #[test]
    fn calls_are_told_by_their_whole_path() {
        let about = |path: &str| Call::of(path).map(|call| call.about);
        assert_eq!(
            about("/inference.GRPCInferenceService/ModelInfer"),
            Some(About::Model)
        );
        assert_eq!(about("/inference.GRPCInferenceService/modelinfer"), None);
        assert_eq!(about("/inference.GRPCInferenceService/"), None);
        for memory in ["System", "Cuda"] {
            for deed in ["Status", "Register", "Unregister"] {
                let path = format!("{SERVICE}{memory}SharedMemory{deed}");
                assert_eq!(about(&path), Some(About::Refused), "{path}");
            }
        }
        assert!(is_grpc(b"application/grpc") && is_grpc(b"application/grpc+proto"));
        assert!(!is_grpc(b"application/grpc-web") && !is_grpc(b"application/json"));
    }
}
