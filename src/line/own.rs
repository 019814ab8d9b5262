//! Paths that the proxy answers itself: its health, its fleet's, and which models there are.

mod grpc;

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use super::App;
use crate::admission::Pass;
use crate::decide::{State, WorkerView};
use crate::facts::{BuiltIn, name_in_path};
use crate::fault::{Fault, Kind};
use crate::fleet::Catalogue;
use crate::inspect::Way;
use crate::queue;
use crate::units::ModelName;

/// An answer of the proxy's own.
pub(super) struct Own {
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    pub(super) body: Bytes,
    /// What follows the body, where gRPC is spoken.
    pub(super) trailers: HeaderMap,
}

/// The answer, where the path is the proxy's own; `None` where a worker answers.
///
/// # Errors
/// `no_worker` on readiness paths and while workers have not said what they serve, `model_not_found`, and `forbidden`
/// for what only an operator may do.
pub(super) fn answer(app: &App, way: &Way<'_>, pass: &Pass) -> Result<Option<Own>, Fault> {
    let Way::BuiltIn(built_in) = way else {
        return Ok(None);
    };
    Ok(Some(match built_in {
        BuiltIn::Grpc(call) => return grpc::answer(app, call, pass),
        BuiltIn::Inference(_) | BuiltIn::KServeModel { .. } | BuiltIn::Realtime => {
            return Ok(None);
        }
        BuiltIn::Health => json(&Alive { status: "ok" }),
        BuiltIn::KServeLive => empty(),
        BuiltIn::Ready => app.ready().map(|()| json(&Alive { status: "ready" }))?,
        BuiltIn::KServeReady => app.ready().map(|()| empty())?,
        BuiltIn::Models => json(&ModelList {
            object: "list",
            data: theirs(app, &app.fleet.catalogue(), pass)
                .map(model)
                .collect(),
        }),
        BuiltIn::Model(name) => json(&model(&served(app, pass, &name_in_path(name))?)),
        BuiltIn::KServeServer => json(&Server {
            name: "forebay",
            version: env!("CARGO_PKG_VERSION"),
            extensions: &["model_repository"],
        }),
        BuiltIn::KServeIndex => {
            let catalogue = app.fleet.catalogue();
            let models = theirs(app, &catalogue, pass);
            json(&index(models, &catalogue, &app.fleet.snapshot()))
        }
        BuiltIn::KServeRefused => {
            return Err(operators());
        }
    }))
}

fn operators() -> Fault {
    let message = "this part of KServe is the operator's; ask the worker itself";
    Fault::new(Kind::Forbidden, message)
}

fn served(app: &App, pass: &Pass, name: &str) -> Result<ModelName, Fault> {
    let catalogue = app.fleet.catalogue();
    let found = theirs(app, &catalogue, pass).find(|served| served.as_str() == name);
    let found = found.cloned();
    found.ok_or_else(|| {
        let not_there = "no worker serves a model of this name";
        let not_there = Fault::new(Kind::ModelNotFound, not_there);
        queue::unless_silent(app.fleet.yet_to_tell(None, None), not_there)
    })
}

/// The models that a request may be shown: its tenant's, as far as a worker that it may go to serves them.
fn theirs<'a>(
    app: &App,
    catalogue: &'a Catalogue,
    pass: &Pass,
) -> impl Iterator<Item = &'a ModelName> {
    let within = pass.zones().map(|zones| app.fleet.models_within(zones));
    let served = catalogue.served().iter();
    served.filter(move |model| {
        let is_near = within.as_ref().is_none_or(|names| names.contains(*model));
        is_near && pass.may_use(model)
    })
}

/// These models, and whether somebody who serves them is up.
fn index<'a>(
    models: impl Iterator<Item = &'a ModelName>,
    catalogue: &Catalogue,
    workers: &[WorkerView],
) -> Vec<Indexed<'a>> {
    let up = workers.iter().filter(|worker| worker.state == State::Up);
    let ready: BTreeSet<_> = up
        .flat_map(|worker| catalogue.of(worker.id))
        .map(|alias| &alias.client)
        .collect();
    let entry = |model: &'a ModelName| {
        let (state, reason) = if ready.contains(model) {
            ("READY", "")
        } else {
            ("UNAVAILABLE", "no worker that serves it is up")
        };
        Indexed {
            name: model.as_str(),
            state,
            reason,
        }
    };
    models.map(entry).collect()
}

#[derive(Serialize)]
struct Alive {
    status: &'static str,
}

#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

/// OpenAI's model object. The day a model was made is not known here; the field is required, so it is zero.
#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

fn model(name: &ModelName) -> Model<'_> {
    Model {
        id: name.as_str(),
        object: "model",
        created: 0,
        owned_by: "forebay",
    }
}

/// KServe's server metadata.
#[derive(Serialize)]
struct Server {
    name: &'static str,
    version: &'static str,
    extensions: &'static [&'static str],
}

/// An entry of Triton's repository index. Versions are the workers' own and may differ, so none is named.
#[derive(Serialize)]
struct Indexed<'a> {
    name: &'a str,
    state: &'static str,
    reason: &'static str,
}

fn json(value: &impl Serialize) -> Own {
    let fields = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))]
        .into_iter()
        .collect();
    let body = Bytes::from(sonic_rs::to_string(value).unwrap_or_default());
    Own {
        status: StatusCode::OK,
        fields,
        body,
        trailers: HeaderMap::new(),
    }
}

fn empty() -> Own {
    Own {
        status: StatusCode::OK,
        fields: HeaderMap::new(),
        body: Bytes::new(),
        trailers: HeaderMap::new(),
    }
}
