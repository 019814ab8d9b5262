//! `GET /api/openapi.json`: the admin side for programs that write or test clients.
//!
//! Paths, methods, queries and refusals come from the table that requests are matched against (`routes.rs`); what
//! bodies look like stands in `schemas.json`, where nothing may be missing: no object there takes keys that it does not
//! name, and a test holds real answers against it. OpenAPI 3.1 (<https://spec.openapis.org/oas/v3.1.0>).

use sonic_rs::{Object, Value, json};

use super::answer::{EVENTS, HTML, JSON, METRICS, TEXT};
use super::changes::Verb;
use super::door::CSRF_HEADER;
use super::routes::{ROUTES, Route, Shape, View, Wish, WishKind};

/// The schemas of all bodies, by name.
const SCHEMAS: &str = include_str!("schemas.json");

/// What a path that wants the token may always answer.
const GUARDED: [u16; 2] = [401, 403];

/// The document.
pub(super) fn document() -> sonic_rs::Result<String> {
    let schemas: Value = sonic_rs::from_str(SCHEMAS)?;
    let mut paths = Object::new();
    for route in &ROUTES {
        paths.insert(route.path, item(route.path));
    }
    let bearer = json!({"type": "http", "scheme": "bearer"});
    let about = "Everything but /health, /ready and /metrics wants the admin token. A browser that was taken in by \
                 /?token=… shows a cookie instead, and a header with each POST.";
    sonic_rs::to_string(&json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Forebay, admin side",
            "version": (env!("CARGO_PKG_VERSION")),
            "description": about,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": (Value::from(paths)),
        "components": {"schemas": schemas, "securitySchemes": {"token": bearer}},
    }))
}

/// What may be done at a path.
fn item(path: &str) -> Value {
    let mut item = Object::new();
    for route in ROUTES.iter().filter(|route| route.path == path) {
        let method = if route.view.takes_post() {
            "post"
        } else {
            "get"
        };
        item.insert(method, operation(route));
    }
    Value::from(item)
}

fn operation(route: &Route) -> Value {
    let mut operation = Object::new();
    operation.insert("operationId", route.name);
    operation.insert("summary", route.purpose);
    if !route.view.is_open() {
        operation.insert("security", json!([{"token": []}]));
    }
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation.insert("parameters", Value::from(parameters));
    }
    if let Some(schema) = route.view.body() {
        let needed = matches!(
            route.view,
            View::Change(Verb::Speed) | View::Add | View::Log
        );
        let content = json!({(JSON): {"schema": (reference(schema))}});
        operation.insert(
            "requestBody",
            json!({"required": needed, "content": content}),
        );
    }
    operation.insert("responses", responses(route));
    Value::from(operation)
}

fn responses(route: &Route) -> Value {
    let mut responses = Object::new();
    let (kind, schema) = match route.shows {
        Shape::Events(name) => {
            // `schema` is the stream's, which is text; OpenAPI 3.1 has no word for that of its `data`.
            let about = format!("Events whose data is JSON of #/components/schemas/{name}.");
            (EVENTS, json!({"type": "string", "description": about}))
        }
        Shape::Text => (TEXT, json!({"type": "string"})),
        Shape::Metrics => (METRICS, json!({"type": "string"})),
        Shape::Page => (HTML, json!({"type": "string"})),
        Shape::Json(name) => (JSON, reference(name)),
    };
    responses.insert(
        "200",
        json!({"description": "Good.", "content": {kind: {"schema": schema}}}),
    );
    let guarded = GUARDED.iter().filter(|_| !route.view.is_open());
    for status in guarded.chain(route.refusals) {
        responses.insert(&status.to_string(), refusal(route, *status));
    }
    Value::from(responses)
}

fn refusal(route: &Route, status: u16) -> Value {
    let kind = match (status, route.shows) {
        (401, Shape::Page) => HTML,
        (303, _) | (_, Shape::Text) => TEXT,
        _ => JSON,
    };
    let schema = match (kind, status) {
        (JSON, 422) => reference("Reloaded"),
        (JSON, _) => reference("Error"),
        _ => json!({"type": "string"}),
    };
    json!({"description": (in_words(status)), "content": {kind: {"schema": schema}}})
}

fn in_words(status: u16) -> &'static str {
    match status {
        303 => "The token was right: take the cookie and come again without it.",
        400 => "The query or the body is not what this takes.",
        401 => "The token is missing or wrong.",
        403 => "The Host is foreign, or a browser's change lacks its header.",
        404 => "There is nothing of this name.",
        408 => "The body did not come within 10 s.",
        413 => "The body is too long.",
        422 => "The configuration is wrong; the one before stays in force.",
        _ => "Not now; the body says why.",
    }
}

fn parameters(route: &Route) -> Vec<Value> {
    let name = route
        .path
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let in_path = name.map(|(name, _)| {
        json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
    });
    let header = route.view.takes_post().then(|| {
        let purpose = "Any value; needed of browsers, which show a cookie instead of the token.";
        json!({"name": CSRF_HEADER, "in": "header", "description": purpose, "schema": {"type": "string"}})
    });
    in_path
        .into_iter()
        .chain(header)
        .chain(route.wishes.iter().map(query))
        .collect()
}

fn query(wish: &Wish) -> Value {
    let schema = match wish.kind {
        WishKind::Flag => json!({"type": "string", "enum": [""]}),
        WishKind::Text => json!({"type": "string"}),
        WishKind::Time => reference("Time"),
        WishKind::Path => json!({"type": "string", "pattern": "^/[a-z0-9/]*$"}),
        WishKind::Count => json!({"type": "integer", "minimum": 1, "maximum": 1000}),
    };
    let may_be_empty = wish.kind == WishKind::Flag;
    json!({
        "name": (wish.key), "in": "query", "description": (wish.purpose),
        "allowEmptyValue": may_be_empty, "schema": schema,
    })
}

fn reference(schema: &str) -> Value {
    json!({"$ref": (format!("#/components/schemas/{schema}"))})
}
