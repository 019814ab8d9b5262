//! `GET /api/openapi.json` over real sockets: what it promises is what is answered.
//!
//! Every path is asked as the document says, and each answer is held against the schema of its status: no key that the
//! document does not name, none missing that it requires, nothing of another type.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use serde_json::{Value, json};
use support::client::{Answer, Client, request};
use support::engine::Engine;
use support::engine::knobs::Failure;
use support::expect_soon;
use support::listener::Listener;
use support::prompt::{CHAT, chat};
use support::proxy::{Proxy, TOKEN};
use support::queue::narrow;
use support::tenant::tenant;

/// It does not end by itself.
const EVENTS: &str = "/api/events";
const KEY: &str = "fb_key-of-the-tests";

/// What is wrong with a value by its schema.
fn flaws(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(reference.trim_start_matches('#')).unwrap();
        return flaws(document, schema, value, at);
    }
    if let Some(any) = schema["oneOf"].as_array() {
        let all = any.iter().map(|schema| flaws(document, schema, value, at));
        let fits = all.clone().filter(Vec::is_empty).count();
        return if fits == 1 {
            Vec::new()
        } else {
            all.flatten().collect()
        };
    }
    if let Some(words) = schema["enum"].as_array() {
        let known = words.contains(value);
        return if known {
            Vec::new()
        } else {
            vec![format!("{at}: {value} is not one of {words:?}")]
        };
    }
    if !schema["const"].is_null() {
        let same = schema["const"] == *value;
        return if same {
            Vec::new()
        } else {
            vec![format!("{at}: {value}")]
        };
    }
    match schema["type"].as_str().unwrap() {
        "object" => object_flaws(document, schema, value, at),
        "array" => {
            let Some(items) = value.as_array() else {
                return vec![format!("{at} is no array")];
            };
            let each = items.iter().enumerate();
            each.flat_map(|(place, item)| {
                flaws(document, &schema["items"], item, &format!("{at}[{place}]"))
            })
            .collect()
        }
        kind => {
            let fits = match kind {
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "null" => value.is_null(),
                "integer" => value.is_u64(),
                "number" => value.is_number(),
                other => panic!("{other} is no type of this document"),
            };
            if fits {
                Vec::new()
            } else {
                vec![format!("{at}: {value} is no {kind}")]
            }
        }
    }
}

fn object_flaws(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let Some(fields) = value.as_object() else {
        return vec![format!("{at} is no object")];
    };
    let mut found = Vec::new();
    for key in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(key.as_str().unwrap()) {
            found.push(format!("{at}.{key} is missing"));
        }
    }
    for (key, field) in fields {
        let at = format!("{at}.{key}");
        match (&schema["properties"][key], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => found.push(format!("{at} is not in the document")),
            (Value::Null, Value::Null) => {}
            (Value::Null, others) => found.extend(flaws(document, others, field, &at)),
            (known, _) => found.extend(flaws(document, known, field, &at)),
        }
    }
    found
}

/// Holds an answer against what the document says of this path and method.
#[track_caller]
fn hold(document: &Value, path: &str, method: &str, answer: &Answer) {
    let responses = &document["paths"][path][method]["responses"];
    let response = &responses[answer.status.to_string()];
    assert!(
        response.is_object(),
        "{method} {path}: {} is not in the document",
        answer.status
    );
    let kind = answer.header("content-type").unwrap();
    let content = &response["content"][kind];
    assert!(
        content.is_object(),
        "{method} {path}: {kind} is not in the document"
    );
    if kind == "application/json" {
        let found = flaws(document, &content["schema"], &answer.json(), path);
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// Holds what is told to one who listens against what the document says of events.
#[track_caller]
fn hold_events(document: &Value, proxy: &Proxy) {
    let mut listener = Listener::to(proxy);
    hold(document, EVENTS, "get", &listener.answer);
    let picture = listener.next().unwrap();
    assert_eq!(picture["requests"][0]["id"], "done", "{picture}");
    let schema = json!({"$ref": "#/components/schemas/Picture"});
    let found = flaws(document, &schema, &picture, EVENTS);
    assert!(found.is_empty(), "{found:#?}");
}

/// A chat under this id, with the tenant's key, on a connection that stays open.
fn send(proxy: &Proxy, id: &str) -> Client {
    let headers = [("x-request-id", id), ("x-api-key", KEY)];
    let mut client = proxy.connect();
    client.send(&request("POST", CHAT, &headers, chat("x").as_bytes()));
    client
}

/// A proxy of which much can be told: a tenant, one request that has ended, one that runs and one that waits.
fn busy(engine: &Engine) -> (Proxy, [Client; 2]) {
    let tenant = tenant("app", KEY, "tokens_per_minute = 60000");
    let setup = narrow(engine, "wait_no_worker = \"1m\"");
    let proxy = setup.section(&tenant).start();
    assert_eq!(send(&proxy, "done").answer().status, 200);
    engine.tune(|knobs| knobs.fail(Failure::Hang, 1));
    let runs = send(&proxy, "runs");
    expect_soon("it runs", || proxy.worker("w")["inflight"] == 1);
    let waits = send(&proxy, "waits");
    let ids = ["/api/requests/done", "/api/requests/waits"];
    expect_soon("one has ended and one waits", || {
        ids.iter().all(|path| proxy.ask_admin(path).status == 200)
    });
    (proxy, [runs, waits])
}

#[test]
fn every_path_answers_as_the_document_says() {
    let engine = Engine::start();
    let (proxy, _held) = busy(&engine);
    let document = proxy.api("/api/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 12, "{paths:?}");
    for (path, item) in paths {
        let named = path.replace("{name}", "w");
        for id in ["done", "waits", "nobody"] {
            let target = named.replace("{id}", id);
            if path == EVENTS {
                hold_events(&document, &proxy);
            } else if item["get"].is_object() {
                hold(&document, path, "get", &proxy.ask_admin(&target));
            } else {
                let body = if path == "/api/dry-run" {
                    chat("x")
                } else {
                    String::new()
                };
                hold(&document, path, "post", &proxy.change(&target, &body));
            }
            let method = if item["get"].is_object() {
                "get"
            } else {
                "post"
            };
            if item[method]["security"].is_array() {
                let locked = |headers: &[(&str, &str)]| {
                    proxy.admin_call(&method.to_uppercase(), &target, headers, "")
                };
                let (nobody, foreign) = (locked(&[]), locked(&[("host", "evil.example")]));
                assert_eq!((nobody.status, foreign.status), (401, 403), "{path}");
                hold(&document, path, method, &nobody);
                hold(&document, path, method, &foreign);
            }
        }
    }
    for wish in ["slow", "failed=", "tenant=app", "since=1h&limit=1000"] {
        let found = proxy.ask_admin(&format!("/api/requests?{wish}"));
        assert_eq!(found.status, 200, "{wish}");
        hold(&document, "/api/requests", "get", &found);
    }
}

#[test]
fn changes_and_refusals_are_as_the_document_says() {
    let engine = Engine::start();
    let (proxy, _held) = busy(&engine);
    let document = proxy.api("/api/openapi.json");
    let long = format!("{{\"within\": \"{}\"}}", "x".repeat(5_000));
    for (path, body, status) in [
        ("/api/workers/{name}/drain", r#"{"within": "10m"}"#, 200),
        ("/api/workers/{name}/resume", "{}", 200),
        ("/api/workers/{name}/eject", r#"{"within": "1m"}"#, 200),
        ("/api/workers/{name}/speed", r#"{"speed": 4.0}"#, 200),
        ("/api/workers/{name}/speed", "", 400),
        ("/api/workers/{name}/add", r#"{"url": "x://y"}"#, 422),
        ("/api/workers/{name}/remove", "", 422),
        ("/api/workers/{name}/drain", &long, 413),
        ("/api/dry-run", r#"{"model":"m","messages":[]}"#, 200),
        ("/api/dry-run", r#"{"model":"n","messages":[]}"#, 200),
        ("/api/dry-run", "{", 200),
    ] {
        let answer = proxy.change(&path.replace("{name}", "w"), body);
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
        hold(&document, path, "post", &answer);
    }
    let drain = "/api/workers/{name}/drain";
    let unknown = proxy.change("/api/workers/v/drain", "");
    assert_eq!(unknown.status, 404);
    hold(&document, drain, "post", &unknown);
    let odd = proxy.change("/api/dry-run?paht=/v1", "{}");
    assert_eq!(odd.status, 400);
    hold(&document, "/api/dry-run", "post", &odd);
    let none = proxy.ask_admin("/api/requests?limit=0");
    assert_eq!(none.status, 400);
    hold(&document, "/api/requests", "get", &none);
    let welcome = proxy.admin_call("GET", &format!("/?token={TOKEN}"), &[], "");
    assert_eq!(welcome.status, 303);
    hold(&document, "/", "get", &welcome);
}

#[test]
fn the_guard_sees_what_it_guards_against() {
    let document = json!({"components": {"schemas": {"N": {"type": "integer"}}}});
    let schema = json!({"type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {"a": {"$ref": "#/components/schemas/N"}, "b": {"type": "array", "items": {"enum": ["x"]}}}});
    let wrong = |value: Value| !flaws(&document, &schema, &value, "").is_empty();
    assert!(!wrong(json!({"a": 1, "b": ["x"]})));
    for value in [
        json!({}),
        json!({"a": 1.5}),
        json!({"a": 1, "c": 1}),
        json!({"a": 1, "b": ["y"]}),
        json!([]),
    ] {
        assert!(wrong(value.clone()), "{value}");
    }
}
