//! Seeded fuzzing of all that reads what strangers write: a second each, the same inputs every time.
//!
//! A hunt mutates good inputs and looks for one that breaks a property. Each property is also held against a reader that
//! is wrong in a way that readers have been wrong, and there the hunt has to find something: else it could find nothing
//! anywhere. Reads that panic fail by themselves.
use std::ops::Range;
use std::path::Path;

use forebay::config;
use forebay::facts;
use forebay::forward::headers;
use forebay::inspect;
use forebay::rng::Rng;
use forebay::units::Length;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use serde_json::Value;

/// How many inputs are tried of a cheap reader.
const ROUNDS: usize = 20_000;

/// What is put between and in place of bytes: what parsers stumble over.
const TOKENS: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\r\n",
    b"\n",
    b"\0",
    b"\xff",
    b"--b",
    b"--",
    b"=",
    b";",
    b"&",
    b"%6d",
    b"\"model\"",
    b"\"model\":\"x\"",
    b"model",
    b"MODEL",
    b"\\u006d",
    b"1e999",
    b"-1",
    b"data:",
    b"\"usage\":{",
    b"\x0a\x01y",
    b"name=",
    b"host",
    b"[[",
    b"]]",
];

/// One of these inputs, or two of them joined, with some bytes lost, doubled, changed or put between.
fn mutant(corpus: &[&[u8]], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = corpus[rng.below(corpus.len())].to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() + 1);
        match rng.below(6) {
            0 => drop(bytes.splice(at..at, TOKENS[rng.below(TOKENS.len())].iter().copied())),
            1 => bytes.truncate(at),
            2 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 => {
                let end = (at + rng.below(16)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = corpus[rng.below(corpus.len())];
                let from = rng.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

/// An input for which a property does not hold, if one is found.
fn hunt(corpus: &[&[u8]], rounds: usize, holds: impl Fn(&[u8]) -> bool) -> Option<String> {
    let mut rng = Rng::seeded(8);
    (0..rounds)
        .map(|_| mutant(corpus, &mut rng))
        .find(|bytes| !holds(bytes))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[track_caller]
fn nothing_breaks(corpus: &[&[u8]], rounds: usize, holds: impl Fn(&[u8]) -> bool) {
    assert_eq!(hunt(corpus, rounds, holds), None);
}

#[track_caller]
fn something_breaks(corpus: &[&[u8]], holds: impl Fn(&[u8]) -> bool) {
    assert!(
        hunt(corpus, ROUNDS, holds).is_some(),
        "a wrong reader was not found out"
    );
}

const BODIES: &[&[u8]] = &[
    br#"{"model":"m","messages":[{"role":"user","content":"a \"model\":\"z\" b"}],"stream":true}"#,
    br#"{"a":[1,2,{"model":"z"}],"mod\u0065l":"m\u0031","max_tokens":7}"#,
    br#"{"prompt":[1,2,3],"model":"","user":null}"#,
];

/// Whether a model that is read is the one that another parser reads, which lets the last of two count.
fn agrees(body: &[u8], read: impl Fn(&[u8]) -> Option<String>) -> bool {
    let Some(model) = read(body) else { return true };
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => value["model"] == model.as_str(),
        // What the worker can't read, it refuses.
        Err(_) => true,
    }
}

#[test]
fn the_model_of_a_body_is_what_a_worker_reads() {
    nothing_breaks(BODIES, ROUNDS, |body| {
        agrees(body, |body| facts::peek(body).ok()?.model)
    });
    something_breaks(BODIES, |body| {
        agrees(body, |body| {
            let text = std::str::from_utf8(body).ok()?;
            let (_, after) = text.split_once("\"model\":\"")?;
            Some(after.split('"').next()?.to_owned())
        })
    });
}

#[test]
fn a_bodys_spans_are_what_they_are_said_to_be() {
    nothing_breaks(BODIES, ROUNDS, |body| {
        let Ok(peek) = facts::peek(body) else {
            return true;
        };
        let Some(span) = peek.model_span else {
            return peek.model.is_none();
        };
        serde_json::from_slice::<String>(&body[span]).ok() == peek.model
    });
}

const FORMS: &[&[u8]] = &[
    b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nRIFF\r\n--b--\r\n",
    b"--b\r\ncontent-disposition: form-data; name=stream\r\n\r\ntrue\r\n--b\r\ncontent-disposition:form-data;name=model\r\ncontent-type: text/plain\r\n\r\nm\r\n--b--",
];

/// Whether the only part that could be named `model` is the one that was read.
fn stands_alone(body: &[u8], read: impl Fn(&[u8]) -> Option<(String, Range<usize>)>) -> bool {
    let Some((name, span)) = read(body) else {
        return true;
    };
    let framed =
        body[..span.start].ends_with(b"\r\n\r\n") && body[span.end..].starts_with(b"\r\n--b");
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    // A file may be called so.
    let text = text.replace("filename=", "file=");
    let parts = text.split("\r\n--b").filter(|part| {
        let head = part.split("\r\n\r\n").next().unwrap_or_default();
        head.lines().any(|line| {
            let mut words = line.split(';').map(str::trim);
            line.starts_with("content-disposition:")
                && words.any(|word| word == "name=\"model\"" || word == "name=model")
        })
    });
    framed && body[span] == *name.as_bytes() && parts.count() == 1
}

#[test]
fn the_model_of_a_form_is_its_only_one() {
    nothing_breaks(FORMS, ROUNDS, |body| {
        stands_alone(body, |body| facts::form(body, "b").ok()?.model)
    });
    something_breaks(FORMS, |body| {
        stands_alone(body, |body| {
            let text = std::str::from_utf8(body).ok()?;
            let start = text.find("name=\"model\"\r\n\r\n")? + 16;
            let end = start + text[start..].find("\r\n")?;
            Some((text[start..end].to_owned(), start..end))
        })
    });
}

const ANSWERS: &[&[u8]] = &[
    br#"{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":34,"prompt_tokens_details":{"cached_tokens":5}}}"#,
    b"data: {\"a\":1}\n\ndata: {\"usage\":{\"input_tokens\":7,\"output_tokens\":8}}\n\ndata: [DONE]\n\n",
];

/// Whether what is read of an answer does not depend on how it was cut.
fn is_seamless(answer: &[u8], read: impl Fn(&[&[u8]]) -> facts::Usage) -> bool {
    let (first, second) = answer.split_at(answer.len() / 2);
    read(&[answer]) == read(&[first, second])
}

fn scanned(pieces: &[&[u8]]) -> facts::Usage {
    let mut scan = facts::UsageScan::new(false);
    for piece in pieces {
        scan.chunk(piece);
    }
    scan.finish()
}

#[test]
fn the_usage_of_an_answer_does_not_depend_on_its_cuts() {
    nothing_breaks(ANSWERS, ROUNDS, |answer| is_seamless(answer, scanned));
    something_breaks(ANSWERS, |answer| {
        is_seamless(answer, |pieces| scanned(&pieces[pieces.len() - 1..]))
    });
    // Of a stream each chunk is read for itself, and no chunk may break the reader.
    nothing_breaks(ANSWERS, ROUNDS, |answer| {
        let mut scan = facts::UsageScan::new(true);
        let events = scan.chunk(answer);
        let usage = scan.finish();
        usage.output.is_none_or(|output| output < u64::MAX) && events as usize <= answer.len()
    });
}

const TENSORS: &[&[u8]] = &[
    br#"{"id":"1","inputs":[{"name":"a","shape":[2,3],"datatype":"FP32","data":[1,2,3,4,5,6]}],"parameters":{"timeout":7}}"#,
    br#"{"inputs":[{"shape":[100000,100000]},{"shape":[4]}]}"#,
];

fn is_bounded(body: &[u8], work: impl Fn(&[u8]) -> f64) -> bool {
    let work = work(body);
    work.is_finite() && work >= 0.0 && work <= (body.len() as f64).max(1.0)
}

#[test]
fn the_work_of_tensors_is_no_more_than_their_bytes() {
    let read = |body: &[u8]| match facts::kserve_work(body, Some(body.len() / 2 + 1)) {
        Length::Tokens(work) | Length::Bytes(work) => work,
    };
    nothing_breaks(TENSORS, ROUNDS, |body| is_bounded(body, read));
    nothing_breaks(TENSORS, ROUNDS, |body| {
        facts::kserve_timeout(body, None)
            .is_none_or(|timeout| timeout.0.is_finite() && timeout.0 > 0.0)
    });
    something_breaks(TENSORS, |body| {
        is_bounded(body, |body| {
            let shape = |value: &Value| value["inputs"][0]["shape"].as_array().cloned();
            let shape = serde_json::from_slice(body)
                .ok()
                .and_then(|value| shape(&value));
            shape
                .unwrap_or_default()
                .iter()
                .filter_map(Value::as_f64)
                .product()
        })
    });
}

const MESSAGES: &[&[u8]] = &[
    b"\x0a\x01m\x1a\x02id",
    b"\x12\x011\x0a\x05model\x20\x96\x01\x2d\x01\x02\x03\x04",
    b"",
];

/// Whether the name that is read stands where it is said to, with its length before it.
fn stands_there(message: &[u8], read: impl Fn(&[u8]) -> Option<(String, Range<usize>)>) -> bool {
    let Some((name, span)) = read(message) else {
        return true;
    };
    // A length may be written longer than it need be.
    let prefixed = facts::length_prefixed(name.as_bytes());
    let tag = span.start.checked_sub(1).and_then(|at| message.get(at));
    let written = message.get(span).unwrap_or_default();
    tag.is_some_and(|tag| [0x0a, 0].contains(tag))
        && (written == prefixed
            || written.ends_with(name.as_bytes()) && written.len() > prefixed.len())
}

#[test]
fn the_model_of_a_message_stands_where_it_is_said_to() {
    nothing_breaks(MESSAGES, ROUNDS, |message| {
        stands_there(message, |message| facts::model_in_message(message).ok()?)
    });
    something_breaks(MESSAGES, |message| {
        stands_there(message, |message| {
            let length = usize::from(*message.get(1)?);
            let name = message.get(2..2 + length)?;
            Some((String::from_utf8_lossy(name).into_owned(), 1..2 + length))
        })
    });
}

const CONFIGS: &[&[u8]] = &[
    b"state = \"s\"\n[limits]\nbody = \"1MiB\"\n[[worker]]\nname = \"w\"\nurl = \"http://127.0.0.1:1\"\nmodels = { a = \"b\" }\n",
    b"state = \"s\"\ndrain = \"60s\"\n[routing]\npolicy = \"weighted\"\n[[worker]]\nname = \"w\"\nurl = \"h2c://[::1]:1/x\"\n[[route]]\npath = \"/raw/*\"\nworkers = [\"w\"]\n",
];

fn plan(text: &str) -> Result<config::Plan, config::Problems> {
    config::parse(text, Path::new("fuzz.toml"), &|_| None)
}

#[test]
fn a_configuration_is_used_or_refused_with_reasons() {
    let gives_reasons = |bytes: &[u8]| {
        let refused = plan(&String::from_utf8_lossy(bytes)).err();
        refused.is_none_or(|problems| !problems.to_string().trim().is_empty())
    };
    for good in CONFIGS {
        assert!(plan(std::str::from_utf8(good).unwrap()).is_ok());
    }
    nothing_breaks(CONFIGS, 3_000, gives_reasons);
    // The hunt does come upon texts that are refused.
    something_breaks(CONFIGS, |bytes| {
        plan(&String::from_utf8_lossy(bytes)).is_ok()
    });
}

const HEADS: &[&[u8]] = &[
    b"POST /v1/chat/completions\nhost: a\ncontent-type: application/json\n",
    b"GET http://a:80/v2/models/m/ready?x=y\nhost: a:80\nx-request-id: 1\n",
    b"GET /v1/realtime?model=m\nhost: a\nconnection: upgrade\nupgrade: websocket\nsec-websocket-version: 13\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\n",
];

/// A head of lines, as far as the types take it.
fn head(bytes: &[u8]) -> Option<http::request::Parts> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let mut line = lines.next()?.splitn(2, |byte| *byte == b' ');
    let mut request = Request::builder().method(line.next()?).uri(line.next()?);
    for field in lines.filter(|field| !field.is_empty()) {
        let mut field = field.splitn(2, |byte| *byte == b':');
        request = request.header(field.next()?, field.next()?.trim_ascii());
    }
    Some(request.body(()).ok()?.into_parts().0)
}

/// Whether a head that is taken names one host, and no other in its target.
fn names_one_host(bytes: &[u8], takes: impl Fn(&http::request::Parts) -> bool) -> bool {
    let Some(head) = head(bytes).filter(|head| takes(head)) else {
        return true;
    };
    let hosts: Vec<_> = head.headers.get_all("host").iter().collect();
    let authority = head
        .uri
        .authority()
        .map(|authority| authority.as_str().to_ascii_lowercase());
    let [host] = hosts[..] else { return false };
    let host = host.to_str().map(str::to_ascii_lowercase);
    host.is_ok_and(|host| authority.is_none_or(|authority| authority == host))
}

#[test]
fn a_head_that_is_taken_names_one_host() {
    let plan = plan(std::str::from_utf8(CONFIGS[0]).unwrap()).unwrap();
    nothing_breaks(HEADS, ROUNDS, |bytes| {
        names_one_host(bytes, |head| inspect::way(head, &plan).is_ok())
    });
    something_breaks(HEADS, |bytes| {
        names_one_host(bytes, |head| head.headers.contains_key("host"))
    });
}

const FIELDS: &[&[u8]] = &[
    b"connection: close, X-A\nx-a: 1\nx-b: 2\nx-b: 3\nconnection: x-c,\xff\nx-c: 4\nte: trailers\nkeep-alive: 5\n",
    b"host: a\ncontent-length: 3\nauthorization: k\nx-forwarded-for: 1\nforwarded: for=1\ncookie: a=b\nconnection: content-length, cookie\n",
    b"content-type: a/b\ntransfer-encoding: chunked\nupgrade: h2c\nproxy-authenticate: b\nx-forebay-reason: c\nconnection: content-type\n",
];

/// The fields of these lines, as far as the types take them.
fn fields(bytes: &[u8]) -> HeaderMap {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
            let name = HeaderName::from_bytes(name.trim_ascii()).ok()?;
            let value = HeaderValue::from_bytes(value[1..].trim_ascii()).ok()?;
            Some((name, value))
        })
        .collect()
}

/// Whether those fields pass that are for whoever is at the other end, values and their order per name as they were, and
/// no others: none of this hop (RFC 9110 §7.6.1), also by `Connection`'s word, and none of `ours`.
fn only_end_to_end(bytes: &[u8], ours: &[&str], passes: impl Fn(&HeaderMap) -> HeaderMap) -> bool {
    const HOP: [&str; 6] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    let before = fields(bytes);
    let after = passes(&before);
    let listed: Vec<u8> = before
        .get_all("connection")
        .iter()
        .fold(Vec::new(), |all, line| {
            [&all[..], b",", line.as_bytes()].concat()
        });
    let ends = |name: &str| {
        let mut listed = listed.split(|byte| *byte == b',');
        HOP.contains(&name)
            || ours
                .iter()
                .any(|own| name == *own || own.ends_with('-') && name.starts_with(own))
            || listed.any(|word| word.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    let same = |name: &HeaderName| {
        let kept = before.get_all(name).iter().filter(|_| !ends(name.as_str()));
        kept.eq(after.get_all(name).iter())
    };
    before.keys().all(same) && after.keys().all(|name| before.contains_key(name))
}

/// What is the proxy's to say to a worker, where tenants have the keys.
const OURS: [&str; 8] = [
    "host",
    "content-length",
    "expect",
    "proxy-authorization",
    "forwarded",
    "x-forwarded-",
    "authorization",
    "api-key",
];

#[test]
fn the_fields_of_a_request_that_pass_are_those_for_its_worker() {
    nothing_breaks(FIELDS, ROUNDS, |bytes| {
        only_end_to_end(bytes, &OURS, |fields| headers::passing(fields, true))
    });
    // Reads one line of two.
    something_breaks(FIELDS, |bytes| {
        only_end_to_end(bytes, &OURS, |fields| {
            let mut alone = fields.clone();
            if let Some(first) = alone.remove("connection") {
                alone.insert("connection", first);
            }
            headers::passing(&alone, true)
        })
    });
    // Gives up a list for one odd byte in it.
    something_breaks(FIELDS, |bytes| {
        only_end_to_end(bytes, &OURS, |fields| {
            let is_odd = |value: &HeaderValue| value.to_str().is_err();
            let mut readable = fields.clone();
            if fields.get_all("connection").iter().any(is_odd) {
                readable.remove("connection");
            }
            headers::passing(&readable, true)
        })
    });
}

#[test]
fn the_fields_of_an_answer_that_pass_are_those_for_its_client() {
    // Whatever `Connection` says, a length is the length: it passes unless a coding makes it void.
    let told = |fields: &HeaderMap| {
        let mut fields = fields.clone();
        headers::presentable(&mut fields);
        fields
    };
    let without_length = |fields: &HeaderMap| {
        let mut fields = told(fields);
        fields.remove("content-length");
        fields
    };
    let ours = ["proxy-authenticate", "x-forebay-reason", "content-length"];
    nothing_breaks(FIELDS, ROUNDS, |bytes| {
        only_end_to_end(bytes, &ours, without_length)
    });
    nothing_breaks(FIELDS, ROUNDS, |bytes| {
        let before = fields(bytes);
        let has = |name| before.contains_key(name);
        let wanted = has("content-length") && !has("transfer-encoding");
        told(&before).contains_key("content-length") == wanted
    });
    something_breaks(FIELDS, |bytes| {
        only_end_to_end(bytes, &ours, HeaderMap::clone)
    });
}

#[test]
fn names_in_paths_and_queries_never_break_the_reader() {
    let queries: &[&[u8]] = &[b"a=b&model=m%2Fx+y&c", b"mod%65l=%ff", b"model"];
    nothing_breaks(queries, ROUNDS, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let name = facts::name_in_path(&text).into_owned();
        name.len() <= text.len()
            && match facts::model_in_query(&text) {
                Ok(Some((_, span))) => text.get(span).is_some(),
                _ => true,
            }
    });
    nothing_breaks(FORMS, ROUNDS, |bytes| {
        facts::boundary(&String::from_utf8_lossy(bytes)).is_ok_and(|found| found.is_none())
            || facts::boundary(&String::from_utf8_lossy(bytes)).is_err()
    });
}
