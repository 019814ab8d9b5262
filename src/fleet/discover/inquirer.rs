//! Asking a worker, each time over a connection of its own and within the probe's timeout.

use std::sync::Arc;

use bytes::Bytes as Body;
use http::header::{CONTENT_TYPE, HOST, TE};
use http::{HeaderMap, HeaderValue, Method};
use tokio::time::timeout;

use super::adapters::Listing;
use crate::config::plan::{Engine, Origin, WorkerPlan};
use crate::decide::{LoraTold, Told};
use crate::facts::{PREFIX, first_message};
use crate::fleet::dialect::detect::{Detection, TELLTALES};
use crate::fleet::dialect::{self, lora, report};
use crate::units::{Bytes, Seconds};
use crate::upstream::{Loss, Question, Reply, Upstream};

/// A list of models is read this far.
const MOST_READ: Bytes = Bytes(1 << 20);

/// A call that costs nothing.
const SERVER_LIVE: &str = "/inference.GRPCInferenceService/ServerLive";

/// What is said of one that is longer, or broke off.
const UNREAD: &str = "more than 1MiB, or cut";

/// Asks one worker about itself, each time over a connection of its own and within the probe's timeout.
pub(in crate::fleet) struct Inquirer {
    upstream: Arc<Upstream>,
    headers: HeaderMap,
    limit: Seconds,
}

/// Why a question has no answer.
pub(in crate::fleet) enum Silence {
    /// Nothing came in time.
    TimedOut(Seconds),
    /// The connection failed.
    Lost(Loss),
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Silence::TimedOut(limit) => write!(f, "no answer within probe.timeout = {limit}"),
            Silence::Lost(loss) => loss.fmt(f),
        }
    }
}

impl Inquirer {
    pub(in crate::fleet) fn new(plan: &WorkerPlan, upstream: Arc<Upstream>) -> Self {
        Inquirer {
            headers: headers(plan, upstream.origin()),
            upstream,
            limit: plan.probe.timeout,
        }
    }

    /// The same with no more time than this for each question.
    pub(in crate::fleet) fn within(self, limit: Seconds) -> Self {
        let limit = self.limit.min(limit);
        Inquirer { limit, ..self }
    }

    /// One question.
    pub(in crate::fleet) async fn ask(&self, method: Method, path: &str) -> Result<Reply, Silence> {
        self.ask_at_length(method, path, MOST_READ).await
    }

    /// One question whose answer is read this far.
    pub(in crate::fleet) async fn ask_at_length(
        &self,
        method: Method,
        path: &str,
        most: Bytes,
    ) -> Result<Reply, Silence> {
        let question = Question {
            method,
            path,
            headers: &self.headers,
            body: Body::new(),
            most,
        };
        self.in_time(self.limit, self.upstream.ask(&question, self.limit))
            .await
    }

    /// An order, which is JSON and may take so long.
    pub(in crate::fleet) async fn order(
        &self,
        path: &str,
        body: String,
        limit: Seconds,
    ) -> Result<Reply, Silence> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let question = Question {
            method: Method::POST,
            path,
            headers: &headers,
            body: Body::from(body),
            most: MOST_READ,
        };
        self.in_time(limit, self.upstream.ask(&question, self.limit))
            .await
    }

    /// Whether KServe's gRPC service is here.
    pub(in crate::fleet) async fn speaks_grpc(&self) -> bool {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        let question = Question {
            method: Method::POST,
            path: SERVER_LIVE,
            headers: &headers,
            body: Body::from_static(&[0; PREFIX]),
            most: MOST_READ,
        };
        let asking = self.upstream.ask(&question, self.limit);
        let reply = self.in_time(self.limit, asking).await.ok();
        let message = reply.and_then(|reply| reply.body).unwrap_or_default();
        matches!(first_message(&message), Ok(Some(_)))
    }

    /// A bare connect: how long it took.
    pub(in crate::fleet) async fn knock(&self) -> Result<Seconds, Silence> {
        self.in_time(self.limit, self.upstream.knock(self.limit))
            .await
    }

    async fn in_time<T>(
        &self,
        limit: Seconds,
        asking: impl Future<Output = Result<T, Loss>>,
    ) -> Result<T, Silence> {
        match timeout(limit.to_duration(), asking).await {
            Err(_) => Err(Silence::TimedOut(limit)),
            Ok(Err(Loss::ConnectTimeout { limit, .. })) => Err(Silence::TimedOut(limit)),
            Ok(Err(loss)) => Err(Silence::Lost(loss)),
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    /// What it is, or why that is not known yet.
    ///
    /// # Errors
    /// When no question has an answer, as the last had none: a request would have none either.
    pub(in crate::fleet) async fn engine(&self) -> Result<Result<Engine, String>, Silence> {
        let mut detection = Detection::default();
        let mut speaks = false;
        let mut silent = Silence::TimedOut(self.limit);
        for path in TELLTALES {
            match self.ask(Method::GET, path).await {
                Ok(reply) => {
                    speaks = true;
                    let Some(body) = reply.body else {
                        detection.unheard(format!("{path}: {UNREAD}"));
                        continue;
                    };
                    if let Some(engine) = detection.heard(path, reply.status.as_u16(), &body) {
                        return Ok(Ok(engine));
                    }
                }
                // It accepts connections and speaks something else.
                Err(Silence::Lost(Loss::Malformed(_))) => speaks = true,
                Err(silence) => {
                    detection.unheard(format!("{path}: {silence}"));
                    silent = silence;
                }
            }
        }
        if speaks {
            Ok(detection.conclude())
        } else {
            Err(silent)
        }
    }

    /// What it serves: nothing when its engine can't be asked.
    ///
    /// # Errors
    /// Why it does not say.
    pub(in crate::fleet) async fn models(&self, engine: Engine) -> Result<Listing, String> {
        let Some((method, path)) = report::models_question(engine) else {
            return Ok(Listing::default());
        };
        let told = |why: String| format!("what it serves is not known: {path}: {why}");
        let reply = self.ask(method, path).await;
        let reply = reply.map_err(|silence| told(silence.to_string()))?;
        dialect::verdict(engine, reply.status).map_err(told)?;
        let body = reply.body.ok_or_else(|| told(UNREAD.to_owned()))?;
        Ok(Listing {
            models: report::models(engine, &body).map_err(told)?,
            adapters: lora::listed(engine, &body),
        })
    }

    /// What bounds its work and what it says of its adapters, as far as it does.
    ///
    /// # Errors
    /// When a question has no answer.
    pub(in crate::fleet) async fn bounds(
        &self,
        engine: Engine,
    ) -> Result<(Told, Option<LoraTold>), Silence> {
        let mut told = Told::default();
        let mut of_adapters = None;
        for path in report::bounds_questions(engine) {
            let reply = self.ask(Method::GET, path).await?;
            if let Some(body) = reply.body
                && reply.status.is_success()
            {
                told = told.and(report::bounds(engine, path, &body));
                of_adapters = of_adapters.or_else(|| lora::told(engine, path, &body));
            }
        }
        Ok((told, of_adapters))
    }
}

/// What every request of our own to a worker carries, at its own place or another.
pub(in crate::fleet) fn headers(plan: &WorkerPlan, at: &Origin) -> HeaderMap {
    let mut headers: HeaderMap = plan.headers.iter().cloned().collect();
    if let Ok(host) = at.authority.parse() {
        headers.insert(HOST, host);
    }
    if let Some((name, value)) = plan.key.as_ref().and_then(dialect::authorization) {
        headers.insert(name, value);
    }
    headers
}
