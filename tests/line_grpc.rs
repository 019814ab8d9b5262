//! gRPC through the line (promise P31): calls and streams of KServe's service, their statuses, deadlines and errors.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use forebay::facts::length_prefixed;
use http::HeaderMap;
use serde_json::Value;

use support::client::Answer;
use support::engine::Engine;
use support::engine::knobs::{Failure, Knobs};
use support::expect_soon;
use support::grpc::{GrpcWorker, SERVICE, Talk, framed, naming};
use support::h2_client::H2Client;
use support::h2_frames::{H2Frames, field};
use support::proxy::{Proxy, Setup};
use support::tls::{Authority, front_for};

const GENERIC: &str = "engine = \"generic\"\nmodels = [\"m\", \"n\"]";

fn before(worker: &GrpcWorker) -> Setup {
    Proxy::setup().worker_at("w", &worker.url(), GENERIC)
}

/// A call with this message; its answer, and its trailers or the head that stands for them.
fn call(
    proxy: &Proxy,
    method: &str,
    fields: &[(&str, &str)],
    message: &[u8],
) -> (Answer, HeaderMap) {
    let mut all = vec![("content-type", "application/grpc"), ("te", "trailers")];
    all.extend(fields);
    let target = format!("{SERVICE}{method}");
    let mut client = H2Client::connect(proxy.address());
    let (answer, mut trailers) = client.call_for_trailers("POST", &target, &all, &framed(message));
    assert_eq!(answer.status, 200);
    for name in ["grpc-status", "grpc-message"] {
        if let Some(value) = answer.header(name) {
            assert!(trailers.insert(name, value.parse().unwrap()).is_none());
        }
    }
    (answer, trailers)
}

/// The status of a call, and why the proxy gave it that.
fn status(
    proxy: &Proxy,
    method: &str,
    fields: &[(&str, &str)],
    message: &[u8],
) -> (u16, Option<String>) {
    let (answer, trailers) = call(proxy, method, fields, message);
    let status = trailers["grpc-status"].to_str().unwrap().parse().unwrap();
    (status, answer.reason().map(str::to_owned))
}

#[test]
fn p31_a_call_passes_with_its_message_fields_and_trailers() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker).start();
    let fields = [
        ("grpc-timeout", "5S"),
        ("x-meta", "data"),
        ("x-meta-bin", "AAE="),
    ];
    let (answer, trailers) = call(&proxy, "ModelInfer", &fields, &naming("m"));
    assert_eq!(answer.body, framed(&naming("m")));
    assert_eq!(answer.header("x-initial"), Some("1"));
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["x-of-the-worker"], "1");
    let heard = &worker.heard()[0];
    assert_eq!(heard.path, format!("{SERVICE}ModelInfer"));
    for (name, value) in [
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", "5S"),
        ("x-meta", "data"),
        ("x-meta-bin", "AAE="),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(heard.fields[name], value);
    }
    let line = &proxy.log_of(1)[0];
    assert_eq!(
        (&line["route"], &line["model"]),
        (&format!("{SERVICE}ModelInfer").into(), &"m".into())
    );
}

#[test]
fn a_stream_that_outlasts_drain_is_told_that_the_proxy_stops() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker)
        .top("drain = \"300ms\"")
        .section("[[route]]\npath = \"/other.Service/*\"")
        .start();
    let mut talk = Talk::open(proxy.address(), "/other.Service/ModelStreamInfer");
    talk.say(&framed(b"whatever"));
    proxy.signal("TERM");
    let unavailable = "14";
    assert_eq!(talk.ended_with(), unavailable);
    let status = proxy.wait_exit(std::time::Duration::from_secs(5));
    assert!(status.success(), "{}", proxy.stderr());
    let line = &proxy.log_of(1)[0];
    assert_eq!(line["reason"], "overloaded", "{line}");
}

#[test]
fn p31_a_rename_changes_the_name_in_the_message_and_nothing_else() {
    let worker = GrpcWorker::start();
    let long = "n".repeat(100);
    let lines = format!("engine = \"generic\"\nmodels = {{ m = \"{long}\" }}");
    let proxy = Proxy::setup().worker_at("w", &worker.url(), &lines).start();
    for method in ["ModelInfer", "ModelReady", "ModelStreamInfer"] {
        let (_, trailers) = call(&proxy, method, &[], &naming("m"));
        assert_eq!(trailers["grpc-status"], "0", "{method}");
        let heard = worker.heard();
        assert_eq!(heard.last().unwrap().messages, [naming(&long)], "{method}");
    }
}

#[test]
fn p31_what_the_proxy_refuses_has_grpcs_shape() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker).start();
    let two = [naming("m"), naming("n")].concat();
    for (what, method, fields, message, expected) in [
        (
            "an unknown model",
            "ModelInfer",
            &[][..],
            naming("x"),
            (5, "model_not_found"),
        ),
        ("no model", "ModelInfer", &[], vec![], (3, "bad_request")),
        ("two models", "ModelInfer", &[], two, (3, "bad_request")),
        (
            "rubbish",
            "ModelInfer",
            &[],
            vec![0xff; 20],
            (3, "bad_request"),
        ),
        (
            "an unknown call",
            "Elsewhere",
            &[],
            naming("m"),
            (12, "no_route"),
        ),
        (
            "the operator's",
            "RepositoryModelLoad",
            &[],
            naming("m"),
            (7, "forbidden"),
        ),
        (
            "an odd deadline",
            "ModelInfer",
            &[("grpc-timeout", "soon")],
            naming("m"),
            (3, "bad_request"),
        ),
    ] {
        let (status, reason) = status(&proxy, method, fields, &message);
        assert_eq!(
            (status, reason.as_deref()),
            (expected.0, Some(expected.1)),
            "{what}"
        );
    }
    let mut client = H2Client::connect(proxy.address());
    let target = format!("{SERVICE}ModelInfer");
    let packed = [&[1][..], &framed(&naming("m"))[1..]].concat();
    let kind = [("content-type", "application/grpc")];
    let (answer, _) = client.call_for_trailers("POST", &target, &kind, &packed);
    assert_eq!(answer.header("grpc-status"), Some("12"));
    let plain = client.call("POST", &target, &[], &framed(&naming("m")));
    assert_eq!(
        (plain.header("grpc-status"), plain.reason()),
        (Some("12"), Some("unsupported_encoding"))
    );
    let behind = [framed(&naming("m")), framed(&naming("n"))].concat();
    let (answer, _) = client.call_for_trailers("POST", &target, &kind, &behind);
    assert_eq!(answer.header("grpc-status"), Some("3"));
    assert!(worker.heard().is_empty());
    let http1 = proxy
        .connect()
        .call_with("POST", &target, &kind, &framed(&naming("m")));
    assert_eq!(
        (http1.status, http1.header("grpc-status")),
        (200, Some("3"))
    );
}

#[test]
fn p31_the_proxy_speaks_for_itself_and_its_fleet() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker).start();
    let said = |method| call(&proxy, method, &[], b"").0.body;
    assert_eq!(said("ServerLive"), framed(&[8, 1]));
    assert_eq!(said("ServerReady"), framed(&[8, 1]));
    assert!(String::from_utf8_lossy(&said("ServerMetadata")).contains("forebay"));
    let index = said("RepositoryIndex");
    assert!(
        String::from_utf8_lossy(&index).contains("READY"),
        "{index:?}"
    );
    assert!(worker.heard().is_empty());
}

#[test]
fn p01_a_call_that_a_worker_fails_is_answered_by_another() {
    let workers = [GrpcWorker::start(), GrpcWorker::start()];
    let proxy = Proxy::setup()
        .worker_at("a", &workers[0].url(), GENERIC)
        .worker_at("b", &workers[1].url(), GENERIC)
        .start();
    for failing in [14, 13, 2, 8] {
        for worker in &workers {
            worker.fail(failing, 1);
            for _ in 0..2 {
                assert_eq!(
                    status(&proxy, "ModelInfer", &[], &naming("m")),
                    (0, None),
                    "{failing}"
                );
            }
            worker.fail(0, 0);
        }
    }
    // Its own refusals are the client's to read.
    for worker in &workers {
        worker.fail(3, 1);
    }
    let (answer, trailers) = call(&proxy, "ModelInfer", &[], &naming("m"));
    assert_eq!(trailers["grpc-status"], "3");
    assert_eq!(answer.reason(), None);
    assert_eq!(trailers["grpc-message"], "asked%20to%20fail");
}

#[test]
fn a_call_that_two_workers_fail_is_held_against_neither_and_one_that_another_answers_is() {
    let workers = [GrpcWorker::start(), GrpcWorker::start()];
    let proxy = Proxy::setup()
        .section("[routing]\npolicy = \"round_robin\"")
        .worker_at("a", &workers[0].url(), GENERIC)
        .worker_at("b", &workers[1].url(), GENERIC)
        .start();
    let call = || status(&proxy, "ModelInfer", &[], &naming("m")).0;
    let failures = || ["a", "b"].map(|name| proxy.worker(name)["failures"].as_u64().unwrap());
    for worker in &workers {
        worker.fail(13, 100);
    }
    for _ in 0..6 {
        assert_eq!(call(), 13);
    }
    assert_eq!(
        workers.each_ref().map(|worker| worker.heard().len()),
        [6, 6]
    );
    assert_eq!(failures(), [0, 0]);
    assert!(proxy.all_are_up());
    workers[1].fail(0, 0);
    for _ in 0..8 {
        assert_eq!(call(), 0);
    }
    let [a, b] = failures();
    assert!(a >= 3 && b == 0, "{a} {b}");
    assert_eq!(proxy.worker("a")["state"], "ejected");
    proxy.change("/api/workers/b/drain", "");
    proxy.change("/api/workers/a/resume", "");
    assert_eq!(call(), 13, "nobody else can be asked");
    assert_eq!(failures()[0], a + 1);
}

#[test]
fn who_fails_a_call_is_blamed_when_another_can_do_it_and_not_when_others_are_busy_or_refuse() {
    let workers = [(); 3].map(|()| GrpcWorker::start());
    let names = ["a", "b", "c"];
    let setup = Proxy::setup().section("[routing]\npolicy = \"round_robin\"");
    let seated = names.iter().zip(&workers);
    let setup = seated.fold(setup, |setup, (name, worker)| {
        setup.worker_at(name, &worker.url(), GENERIC)
    });
    let proxy = setup.start();
    let failures = || names.map(|name| proxy.worker(name)["failures"].as_u64().unwrap());
    let call = || status(&proxy, "ModelInfer", &[], &naming("m")).0;
    let each_fails = |with: [u16; 3]| {
        for (worker, status) in workers.iter().zip(with) {
            worker.fail(status, 100);
        }
    };
    each_fails([13, 3, 3]);
    for _ in 0..6 {
        assert_eq!(call(), 3);
    }
    assert_eq!(
        failures(),
        [0, 0, 0],
        "the others say that the message is bad"
    );
    each_fails([13, 8, 8]);
    let alone = (0..3).filter(|_| call() == 13).count();
    assert_eq!(failures(), [alone as u64, 0, 0], "the others are busy");
    proxy.change("/api/workers/a/resume", "");
    each_fails([13, 13, 0]);
    expect_soon("they are not taken for busy any more", || call() == 0);
    for _ in 0..6 {
        assert_eq!(call(), 0);
    }
    let [a, b, c] = failures();
    assert!(a > alone as u64 && b > 0 && c == 0, "{a} {b} {c}");
}

#[test]
fn p31_a_stream_that_breaks_ends_with_a_status_and_no_message_is_sent_twice() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker).start();
    worker.cut(1);
    let (answer, trailers) = call(&proxy, "ModelStreamInfer", &[], &naming("m"));
    assert!(!answer.body.is_empty());
    assert_eq!(trailers["grpc-status"], "14");
    assert_eq!(worker.heard().len(), 1);
    expect_soon("its place is free", || {
        proxy.metric("forebay_inflight", &[]) == 0.0
    });
}

/// The status of a stream of these bytes.
fn stream(proxy: &Proxy, bytes: &[u8]) -> u16 {
    let mut client = H2Client::connect(proxy.address());
    let kind = [("content-type", "application/grpc"), ("te", "trailers")];
    let target = format!("{SERVICE}ModelStreamInfer");
    let (answer, trailers) = client.call_for_trailers("POST", &target, &kind, bytes);
    let behind = trailers.get("grpc-status");
    let status = behind.map(|value| value.to_str().unwrap());
    let status = status.or(answer.header("grpc-status")).expect("a status");
    status.parse().unwrap()
}

#[test]
fn p31_what_is_wrong_with_a_stream_is_told_its_client_and_held_against_no_worker() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker).section("[limits]\nbody = \"1KiB\"").start();
    let first = framed(&naming("m"));
    let packed = compressed(b"not compressed");
    for (what, second, status, reason) in [
        ("another model", framed(&naming("n")), 3, "bad_request"),
        ("cut", first[..8].to_vec(), 3, "bad_request"),
        ("compressed in no way", packed, 12, "unsupported_encoding"),
        ("too long", framed(&[0x1a; 2000]), 8, "body_too_large"),
    ] {
        let logged = proxy.log().len();
        let told = stream(&proxy, &[&first[..], &second].concat());
        assert_eq!(told, status, "{what}");
        let line = &proxy.log_of(logged + 1)[logged];
        assert_eq!(line["reason"], reason, "{what}");
    }
    assert_eq!(proxy.worker("w")["state"], "up");
    assert_eq!(stream(&proxy, &first), 0);
    expect_soon("its place is free", || {
        proxy.metric("forebay_inflight", &[]) == 0.0
    });
    let lost = [("worker", "w"), ("outcome", "reset")];
    assert_eq!(proxy.metric("forebay_attempts_total", &lost), 0.0);
}

#[test]
fn p31_a_stream_stays_with_the_model_that_it_began_with() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker).start();
    let mut client = H2Client::connect(proxy.address());
    let kind = [("content-type", "application/grpc"), ("te", "trailers")];
    let target = format!("{SERVICE}ModelStreamInfer");
    let same = framed(&naming("m")).repeat(3);
    let (answer, trailers) = client.call_for_trailers("POST", &target, &kind, &same);
    assert_eq!(
        (answer.status, trailers["grpc-status"].as_bytes()),
        (200, &b"0"[..])
    );
    assert_eq!(worker.heard()[0].messages.len(), 3);
    let mixed = [framed(&naming("m")), framed(&naming("n"))].concat();
    assert_eq!(stream(&proxy, &mixed), 3);
    expect_soon("it ended", || proxy.metric("forebay_inflight", &[]) == 0.0);
    let heard: Vec<u8> = worker
        .heard()
        .into_iter()
        .skip(1)
        .flat_map(|heard| heard.messages)
        .flatten()
        .collect();
    assert!(!heard.windows(3).any(|bytes| bytes == [0x0a, 1, b'n']));
}

#[test]
fn p31_calls_go_to_the_port_that_speaks_grpc_and_other_requests_to_the_other() {
    let (http, grpc, none) = (
        Engine::start(),
        GrpcWorker::start(),
        Engine::with(Knobs::default()),
    );
    let lines = format!("grpc_url = \"{}\"", grpc.url());
    let proxy = Proxy::setup()
        .worker_with("both", &http, &lines)
        .worker("none", &none)
        .start();
    for _ in 0..5 {
        assert_eq!(status(&proxy, "ModelInfer", &[], &naming("m")), (0, None));
    }
    assert_eq!((grpc.heard().len(), http.count(), none.count()), (5, 0, 0));
    assert_eq!(proxy.worker("none")["state"], "up");
}

#[test]
fn p31_calls_go_out_within_tls_where_the_worker_agrees_to_http2() {
    let (http, grpc, authority) = (Engine::start(), GrpcWorker::start(), Authority::new());
    let (files, own) = (authority.issue("127.0.0.1"), authority.issue("forebay"));
    for (alpn, expected) in [(&[&b"h2"[..]][..], 0), (&[b"http/1.1"], 14), (&[], 14)] {
        let front = front_for(&files, Some(&authority.ca()), grpc.address(), alpn);
        let lines = format!(
            "grpc_url = \"https://{front}\"\nca = \"{}\"\nclient_cert = {{ {} }}",
            authority.ca().display(),
            own.table()
        );
        let proxy = Proxy::setup().worker_with("w", &http, &lines).start();
        let (told, _) = status(&proxy, "ModelInfer", &[], &naming("m"));
        assert_eq!(told, expected, "{alpn:?}");
    }
    assert_eq!(grpc.heard().len(), 1);
}

/// A compressed message behind its prefix.
fn compressed(packed: &[u8]) -> Vec<u8> {
    [&[1][..], &framed(packed)[1..]].concat()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

fn deflate(text: &[u8]) -> Vec<u8> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

#[test]
fn p34_a_compressed_message_is_read_undone_and_passed_on_as_it_came() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker).start();
    let mut client = H2Client::connect(proxy.address());
    for (coding, packed) in [
        ("gzip", gzip(&naming("m"))),
        ("deflate", deflate(&naming("m"))),
    ] {
        let fields = [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-encoding", coding),
        ];
        for (method, count) in [("ModelInfer", 1), ("ModelStreamInfer", 3)] {
            let target = format!("{SERVICE}{method}");
            let body = compressed(&packed).repeat(count);
            let (_, trailers) = client.call_for_trailers("POST", &target, &fields, &body);
            assert_eq!(trailers["grpc-status"], "0", "{coding} {method}");
            let heard = worker.heard();
            let heard = heard.last().unwrap();
            assert_eq!(
                heard.messages,
                vec![packed.clone(); count],
                "{coding} {method}"
            );
            assert_eq!(heard.fields["grpc-encoding"], coding);
        }
    }
}

#[test]
fn p34_a_compressed_message_that_is_renamed_goes_out_plain() {
    let worker = GrpcWorker::start();
    let lines = "engine = \"generic\"\nmodels = { m = \"real\" }";
    let proxy = Proxy::setup().worker_at("w", &worker.url(), lines).start();
    let fields = [("grpc-encoding", "gzip")];
    for method in ["ModelInfer", "ModelStreamInfer"] {
        let mut client = H2Client::connect(proxy.address());
        let kind = [("content-type", "application/grpc"), ("te", "trailers")];
        let fields = [&kind[..], &fields].concat();
        let target = format!("{SERVICE}{method}");
        let body = compressed(&gzip(&naming("m")));
        let (_, trailers) = client.call_for_trailers("POST", &target, &fields, &body);
        assert_eq!(trailers["grpc-status"], "0", "{method}");
        assert_eq!(worker.heard().last().unwrap().messages, [naming("real")]);
    }
}

#[test]
fn p34_a_compressed_message_that_says_too_much_or_another_model_goes_nowhere() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker)
        .section("[limits]\nbody = \"64KiB\"")
        .start();
    let bomb = gzip(
        &[
            naming("m"),
            vec![0x1a, 0xff, 0xff, 0x7f],
            vec![0; 0x1f_ffff],
        ]
        .concat(),
    );
    assert!(bomb.len() < 4_096);
    let first = framed(&naming("m"));
    let behind = [&gzip(&naming("m"))[..], b"x"].concat();
    let of = |coding, method, body: &[u8]| {
        let mut client = H2Client::connect(proxy.address());
        let fields = [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-encoding", coding),
        ];
        let target = format!("{SERVICE}{method}");
        let (answer, trailers) = client.call_for_trailers("POST", &target, &fields, body);
        let behind = trailers
            .get("grpc-status")
            .map(|value| value.to_str().unwrap());
        let status = behind.or(answer.header("grpc-status")).unwrap();
        status.parse::<u16>().unwrap()
    };
    for (coding, packed, expected) in [
        ("gzip", &bomb, 8),
        ("gzip", &gzip(&naming("x")), 5),
        ("gzip", &behind, 3),
        ("gzip", &naming("m"), 3),
        ("snappy", &gzip(&naming("m")), 12),
        ("identity", &gzip(&naming("m")), 12),
    ] {
        assert_eq!(
            of(coding, "ModelInfer", &compressed(packed)),
            expected,
            "{coding}"
        );
        let streamed = [&first[..], &compressed(packed)].concat();
        let expected = if expected == 5 { 3 } else { expected };
        assert_eq!(
            of(coding, "ModelStreamInfer", &streamed),
            expected,
            "{coding}"
        );
    }
    for heard in worker.heard() {
        assert!(heard.messages.iter().all(|message| *message == naming("m")));
    }
    assert_eq!(proxy.worker("w")["state"], "up");
}

#[test]
fn p31_a_stream_on_a_route_passes_as_it_comes() {
    let worker = GrpcWorker::start();
    let route = "[[route]]\npath = \"/other.Service/*\"";
    let proxy = before(&worker).section(route).start();
    let mut talk = Talk::open(proxy.address(), "/other.Service/ModelStreamInfer");
    for said in [&b"whatever"[..], b"it says", &[0; 70_000]] {
        // Its answer comes while the stream goes on.
        assert_eq!(
            talk.say(&framed(said)),
            framed(&[&[0x12][..], &length_prefixed(said)].concat())
        );
    }
    assert_eq!(talk.end(), "0");
    assert_eq!(worker.heard()[0].messages.len(), 3);
    let line = &proxy.log_of(1)[0];
    assert_eq!(
        (&line["route"], &line["reason"]),
        (&"/other.Service/*".into(), &"ok".into())
    );
    assert_eq!(line["bytes_in"], 3 * 5 + 8 + 7 + 70_000);
}

/// The states of two workers after six streams were cut by a timer, each after `bytes`, by a client that says no more.
fn states_after_silence(urls: [String; 2], path: &str, bytes: &[u8], ends: bool) -> Vec<Value> {
    let [one, other] = urls;
    let proxy = Proxy::setup()
        .worker_at("a", &one, GENERIC)
        .worker_at("b", &other, GENERIC)
        .section("[timeouts]\nfirst_byte = \"100ms\"\nbetween_bytes = \"100ms\"")
        .section("[routing]\npolicy = \"round_robin\"")
        .section("[[route]]\npath = \"/other.Service/*\"")
        .start();
    let fields = [
        field(b"content-type", b"application/grpc"),
        field(b"te", b"trailers"),
    ];
    let silent: Vec<H2Frames> = (0..6)
        .map(|_| {
            let mut frames = H2Frames::connect(proxy.address());
            frames.begin(path, &fields).data(bytes, ends);
            frames
        })
        .collect();
    for line in proxy.log_of(6) {
        let reason = line["reason"].as_str().unwrap();
        assert!(
            ["first_byte_timeout", "stalled"].contains(&reason),
            "{line}"
        );
    }
    drop(silent);
    ["a", "b"]
        .map(|name| proxy.worker(name)["state"].clone())
        .into()
}

#[test]
fn a_stream_whose_client_says_no_more_is_held_against_no_worker() {
    let route = "/other.Service/Talk";
    let infer = format!("{SERVICE}ModelStreamInfer");
    let message = framed(&naming("m"));
    // Their heads come at once.
    let workers = [GrpcWorker::start(), GrpcWorker::start()];
    let urls = || [workers[0].url(), workers[1].url()];
    for path in [route, &infer] {
        assert_eq!(
            states_after_silence(urls(), path, &message, false),
            ["up", "up"]
        );
    }
    // Nothing comes from these.
    let hung = [(); 2].map(|()| Engine::h2c(Knobs::default()));
    for engine in &hung {
        engine.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    }
    let urls = || [hung[0].url(), hung[1].url()];
    assert_eq!(
        states_after_silence(urls(), route, &message, false),
        ["up", "up"]
    );
    // These have all that they will get, and are late.
    for (path, ends) in [(route, true), (&infer[..], false)] {
        let states = states_after_silence(urls(), path, &message, ends);
        assert!(states.contains(&"ejected".into()), "{path}: {states:?}");
    }
}

#[test]
fn p31_a_deadline_of_grpc_ends_a_call() {
    let worker = Engine::h2c(Knobs::default());
    worker.tune(|knobs| knobs.fail(Failure::Hang, u64::MAX));
    let proxy = Proxy::before(&worker);
    let told = status(
        &proxy,
        "ModelInfer",
        &[("grpc-timeout", "200m")],
        &naming("m"),
    );
    assert_eq!(told, (4, Some("deadline".to_owned())));
}

#[test]
fn what_is_in_memory_of_a_stream_counts_toward_the_limit_on_all_bodies() {
    let worker = GrpcWorker::start();
    let proxy = before(&worker)
        .section("[limits]\nbody = \"64KiB\"\nbuffered = \"64KiB\"")
        .start();
    let buffered = || proxy.metric("forebay_buffered_bytes", &[]);
    // A message, and two thirds of another.
    let first = framed(&naming("m"));
    let second = framed(&[0x1a; 60 << 10]);
    let begin = || {
        let mut frames = H2Frames::connect(proxy.address());
        let fields = [
            field(b"content-type", b"application/grpc"),
            field(b"te", b"trailers"),
        ];
        frames.begin(&format!("{SERVICE}ModelStreamInfer"), &fields);
        frames.data(&first, false);
        for piece in second[..40 << 10].chunks(10 << 10) {
            frames.data(piece, false);
        }
        frames
    };
    let held = begin();
    expect_soon("it is counted", || buffered() == f64::from(40 << 10));
    assert_eq!(worker.heard()[0].messages, [naming("m")]);
    let _refused = begin();
    let line = &proxy.log_of(1)[0];
    assert_eq!(line["reason"], "overloaded");
    assert_eq!(proxy.worker("w")["state"], "up");
    // So does what a compressed message says.
    let packed = compressed(&gzip(&[0x1a; 60 << 10]));
    assert!(packed.len() < 1 << 10);
    let fields = [
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-encoding", "gzip"),
    ];
    let target = format!("{SERVICE}ModelStreamInfer");
    let bytes = [&first[..], &packed].concat();
    H2Client::connect(proxy.address()).call_for_trailers("POST", &target, &fields, &bytes);
    assert_eq!(proxy.log_of(2)[1]["reason"], "overloaded");
    drop(held);
    expect_soon("it is given back", || buffered() == 0.0);
}
