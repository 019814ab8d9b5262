//! Forms (multipart/form-data), as sound and pictures are sent: `model` is read from them, and a rename changes that
//! part and no other byte.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use support::client::{Answer, chunked};
use support::engine::Engine;
use support::engine::knobs::Canned;
use support::prompt::CHAT;
use support::proxy::Proxy;
use support::refusal::openai_error;

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";

/// A form with a file of every byte, and `@` for the rest of its parts.
fn form(parts: &str) -> Vec<u8> {
    let every: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let file = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
    [parts.as_bytes(), file.as_bytes(), &every, b"\r\n--b--\r\n"].concat()
}

fn part(name: &str, value: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
}

fn send(proxy: &Proxy, path: &str, body: &[u8]) -> Answer {
    let kind = [("content-type", "multipart/form-data; boundary=b")];
    proxy.connect().call_with("POST", path, &kind, body)
}

/// A proxy whose clients say `good` and `other`, before a worker that answers everything.
fn renaming(worker: &Engine) -> Proxy {
    worker.tune(|knobs| {
        knobs.models = vec!["real/Name".to_owned(), "other".to_owned()];
        knobs.canned = Some(Canned::ok("{\"text\":\"heard\"}"));
    });
    let models = r#"models = { good = "real/Name", other = "other" }"#;
    Proxy::setup().worker_with("w", worker, models).start()
}

#[test]
fn a_form_goes_where_its_model_is_and_a_rename_changes_that_part_only() {
    let worker = Engine::start();
    let proxy = renaming(&worker);
    for path in [
        TRANSCRIPTIONS,
        "/v1/audio/translations",
        "/v1/images/edits",
        "/v1/images/variations",
    ] {
        for (said, heard) in [("good", "real/Name"), ("other", "other")] {
            worker.forget();
            let around =
                |model: &str| form(&[part("prompt", "good"), part("model", model)].concat());
            assert_eq!(
                send(&proxy, path, &around(said)).status,
                200,
                "{path} {said}"
            );
            let seen = worker.only_request();
            assert!(seen.body == around(heard), "{path} {said}");
            assert_eq!(
                seen.header("content-type"),
                Some("multipart/form-data; boundary=b")
            );
            let length = around(heard).len().to_string();
            assert_eq!(seen.header("content-length"), Some(length.as_str()));
        }
    }
    assert_eq!(proxy.log_of(8)[0]["model"], "good");
}

#[test]
fn a_form_in_chunks_is_the_same_form() {
    let worker = Engine::start();
    let proxy = renaming(&worker);
    let body = form(&part("model", "good"));
    let (first, second) = body.split_at(100);
    let fields = [
        ("content-type", "multipart/form-data; boundary=b"),
        ("transfer-encoding", "chunked"),
    ];
    let wire = chunked(&[first, second]);
    let answer = proxy
        .connect()
        .call_with("POST", TRANSCRIPTIONS, &fields, &wire);
    assert_eq!(answer.status, 200);
    assert!(worker.only_request().body == form(&part("model", "real/Name")));
}

#[test]
fn a_form_that_cannot_be_read_safely_is_400_and_reaches_no_worker() {
    let worker = Engine::start();
    let proxy = renaming(&worker);
    let good = part("model", "good");
    for (what, body) in [
        (
            "two models",
            form(&[good.as_str(), &part("model", "other")].concat()),
        ),
        (
            "a model that is a file",
            form(&good.replace("\r\n\r\n", "; filename=\"x\"\r\n\r\n")),
        ),
        ("no model", form("")),
        ("no end", form(&good)[..200].to_vec()),
        ("JSON", br#"{"model":"good"}"#.to_vec()),
        ("nothing", Vec::new()),
    ] {
        let answer = send(&proxy, TRANSCRIPTIONS, &body);
        assert_eq!(
            (answer.status, answer.reason()),
            (400, Some("bad_request")),
            "{what}"
        );
    }
    openai_error(&send(&proxy, CHAT, &form(&good)), 400, "bad_request");
    let unknown = send(&proxy, TRANSCRIPTIONS, &form(&part("model", "gopd")));
    openai_error(&unknown, 404, "model_not_found");
    let odd = [("content-type", "multipart/form-data")];
    let answer = proxy
        .connect()
        .call_with("POST", TRANSCRIPTIONS, &odd, &form(&good));
    openai_error(&answer, 400, "bad_request");
    assert_eq!(worker.count(), 0);
}

#[test]
fn speech_still_takes_json() {
    let worker = Engine::start();
    let proxy = renaming(&worker);
    let body = r#"{"model":"good","input":"x"}"#;
    assert_eq!(proxy.call("POST", "/v1/audio/speech", body).status, 200);
    assert_eq!(
        worker.only_request().body,
        br#"{"model":"real/Name","input":"x"}"#
    );
}
