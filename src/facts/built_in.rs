//! The paths that Forebay knows without configuration (contract §4), as one table from path to meaning.

use super::grpc::Call;
use super::{About, Dialect};

/// An inference path of the OpenAI or Anthropic API: a POST whose body names a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inference {
    /// The path itself: the `route` of logs and metrics.
    pub path: &'static str,
    /// What a log line calls it.
    pub kind: &'static str,
    /// Whether output tokens are generated one by one.
    pub generates: bool,
    /// The shape of errors.
    pub dialect: Dialect,
}

/// What a built-in path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltIn<'a> {
    /// Inference on a body that names its model.
    Inference(&'static Inference),
    /// `/v1/models`: all models of the fleet.
    Models,
    /// `/v1/models/NAME`: one of them, by the name as it stands in the path.
    Model(&'a str),
    /// `/v1/realtime`: a WebSocket, whose query names the model.
    Realtime,
    /// `/health`: the process lives.
    Health,
    /// `/ready`: somebody can answer.
    Ready,
    /// `/v2/health/live`.
    KServeLive,
    /// `/v2/health/ready`.
    KServeReady,
    /// `/v2`: what this server is.
    KServeServer,
    /// `/v2/repository/index`: all models of the fleet.
    KServeIndex,
    /// `/v2/models/NAME…`: goes to a worker that serves NAME.
    KServeModel {
        /// The model's name as it stands in the path: [`super::name_in_path`] reads it.
        model: &'a str,
        /// What follows the name, with its leading slash, or nothing.
        rest: &'a str,
    },
    /// A call of KServe's gRPC service.
    Grpc(&'static Call),
    /// A part of KServe that is not for clients: load, unload, trace, log, shared memory.
    KServeRefused,
}

const fn inference(path: &'static str, kind: &'static str, generates: bool) -> Inference {
    Inference {
        path,
        kind,
        generates,
        dialect: Dialect::OpenAi,
    }
}

/// Every inference path.
const INFERENCE: [Inference; 13] = [
    inference("/v1/chat/completions", "chat", true),
    inference("/v1/completions", "completion", true),
    inference("/v1/embeddings", "embedding", false),
    inference("/v1/rerank", "rerank", false),
    inference("/v1/classify", "classify", false),
    inference("/v1/responses", "response", true),
    Inference {
        path: "/v1/messages",
        kind: "message",
        generates: true,
        dialect: Dialect::Anthropic,
    },
    inference("/v1/audio/speech", "audio", false),
    inference("/v1/audio/transcriptions", "audio", false),
    inference("/v1/audio/translations", "audio", false),
    inference("/v1/images/generations", "image", false),
    inference("/v1/images/edits", "image", false),
    inference("/v1/images/variations", "image", false),
];

impl Inference {
    /// Whether its body may be a form and not only JSON.
    #[must_use]
    pub fn takes_forms(&self) -> bool {
        matches!(self.kind, "audio" | "image")
    }
}

impl<'a> BuiltIn<'a> {
    /// What a path stands for; `None` when it is not ours.
    #[must_use]
    pub fn of(path: &'a str) -> Option<Self> {
        if let Some(found) = INFERENCE.iter().find(|inference| inference.path == path) {
            return Some(BuiltIn::Inference(found));
        }
        match path {
            "/v1/models" => Some(BuiltIn::Models),
            "/v1/realtime" => Some(BuiltIn::Realtime),
            "/health" => Some(BuiltIn::Health),
            "/ready" => Some(BuiltIn::Ready),
            _ => match path.strip_prefix("/v1/models/") {
                Some(name) if !name.is_empty() => Some(BuiltIn::Model(name)),
                _ => BuiltIn::of_kserve(path).or_else(|| Call::of(path).map(BuiltIn::Grpc)),
            },
        }
    }

    fn of_kserve(path: &'a str) -> Option<Self> {
        let rest = path.strip_prefix("/v2")?;
        match rest {
            "" | "/" => Some(BuiltIn::KServeServer),
            "/health/live" => Some(BuiltIn::KServeLive),
            "/health/ready" => Some(BuiltIn::KServeReady),
            "/repository/index" => Some(BuiltIn::KServeIndex),
            _ => BuiltIn::of_kserve_model(rest),
        }
    }

    fn of_kserve_model(rest: &'a str) -> Option<Self> {
        let Some(tail) = rest.strip_prefix("/models/") else {
            let operator = [
                "/repository/",
                "/logging",
                "/trace",
                "/systemsharedmemory",
                "/cudasharedmemory",
            ];
            return operator
                .iter()
                .any(|prefix| rest.starts_with(prefix))
                .then_some(BuiltIn::KServeRefused);
        };
        let (model, after) = tail.split_at(tail.find('/').unwrap_or(tail.len()));
        match (model, after) {
            ("", _) | ("stats", "") => None,
            _ if climbs(after) => None,
            _ if after.ends_with("/trace/setting") => Some(BuiltIn::KServeRefused),
            _ => Some(BuiltIn::KServeModel { model, rest: after }),
        }
    }

    /// The methods that this path takes, as `Allow` lists them (RFC 9110 §10.2.1); `None` where any is heard.
    #[must_use]
    pub const fn methods(&self) -> Option<&'static str> {
        match self {
            BuiltIn::Inference(_) | BuiltIn::Grpc(_) => Some("POST"),
            BuiltIn::KServeIndex => Some("GET, POST"),
            BuiltIn::KServeModel { .. } => Some("GET, HEAD, POST"),
            BuiltIn::KServeRefused => None,
            BuiltIn::Realtime => Some("GET"),
            _ => Some("GET, HEAD"),
        }
    }

    /// Whether it is a stream of messages both ways.
    #[must_use]
    pub fn streams(&self) -> bool {
        matches!(self, BuiltIn::Grpc(call) if call.about == About::Stream)
    }

    /// The shape of errors on this path.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        match self {
            BuiltIn::Inference(inference) => inference.dialect,
            BuiltIn::Models
            | BuiltIn::Model(_)
            | BuiltIn::Realtime
            | BuiltIn::Health
            | BuiltIn::Ready => Dialect::OpenAi,
            BuiltIn::Grpc(_) => Dialect::Grpc,
            _ => Dialect::KServe,
        }
    }

    /// Whether it takes tensors by KServe's protocol.
    #[must_use]
    pub fn takes_tensors(&self) -> bool {
        matches!(self, BuiltIn::KServeModel { .. } | BuiltIn::Grpc(_))
    }

    /// The `route` of logs and metrics: one of a fixed set, never text of the request.
    #[must_use]
    pub fn route(&self) -> &'static str {
        match self {
            BuiltIn::Inference(inference) => inference.path,
            BuiltIn::Models => "/v1/models",
            BuiltIn::Model(_) => "/v1/models/*",
            BuiltIn::Realtime => "/v1/realtime",
            BuiltIn::Health => "/health",
            BuiltIn::Ready => "/ready",
            BuiltIn::KServeLive => "/v2/health/live",
            BuiltIn::KServeReady => "/v2/health/ready",
            BuiltIn::KServeServer => "/v2",
            BuiltIn::KServeIndex => "/v2/repository/index",
            BuiltIn::KServeModel { .. } => "/v2/models/*",
            BuiltIn::KServeRefused => "/v2/*",
            BuiltIn::Grpc(call) => call.path,
        }
    }
}

/// Whether a path has a segment that leads back up: a worker that resolves it would see another path than the one that
/// was allowed.
fn climbs(path: &str) -> bool {
    path.split('/').any(|segment| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == ".." || plain == "."
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_every_inference_path() {
        let manual = include_str!("../../docs/http.md");
        for Inference { path, .. } in &INFERENCE {
            assert!(manual.contains(&format!("`{path}`")), "{path} is missing");
        }
    }

    #[test]
    fn kserve_paths_split_into_model_and_rest() {
        let of = |path| BuiltIn::of(path);
        assert_eq!(
            of("/v2/models/m/infer"),
            Some(BuiltIn::KServeModel {
                model: "m",
                rest: "/infer"
            })
        );
        assert_eq!(
            of("/v2/models/m/versions/1/infer"),
            Some(BuiltIn::KServeModel {
                model: "m",
                rest: "/versions/1/infer"
            })
        );
        assert_eq!(
            of("/v2/models/m"),
            Some(BuiltIn::KServeModel {
                model: "m",
                rest: ""
            })
        );
        assert_eq!(of("/v2/models/"), None);
        assert_eq!(
            of("/v2/repository/models/m/load"),
            Some(BuiltIn::KServeRefused)
        );
        assert_eq!(
            of("/v2/models/m/trace/setting"),
            Some(BuiltIn::KServeRefused)
        );
        assert_eq!(
            of("/v2/models/m/versions/1/trace/setting"),
            Some(BuiltIn::KServeRefused)
        );
        assert_eq!(
            of("/v2/systemsharedmemory/status"),
            Some(BuiltIn::KServeRefused)
        );
        for dots in ["..", ".", "%2e%2E", ".%2e"] {
            let path = format!("/v2/models/m/{dots}/../repository/models/m/unload");
            assert_eq!(BuiltIn::of(&path), None, "{dots}");
        }
        assert_eq!(of("/v2/repository/index"), Some(BuiltIn::KServeIndex));
    }

    #[test]
    fn paths_that_only_look_alike_are_not_ours() {
        for path in [
            "/",
            "/v1",
            "/v1/chat",
            "/v1/chat/completions/",
            "/v1/models/",
            "/v20",
            "/healthz",
            "/v2/other",
            "/v2/models/m/../../repository/models/m/load",
            "/v2/models/m/%2E%2e/x",
            "/v2/models/m/./infer",
        ] {
            assert_eq!(BuiltIn::of(path), None, "{path}");
        }
    }

    #[test]
    fn only_the_messages_path_speaks_anthropic() {
        for inference in &INFERENCE {
            assert_eq!(
                inference.dialect == Dialect::Anthropic,
                inference.path == "/v1/messages"
            );
        }
    }
}
