//! The path of a request: read `walk` from top to bottom.
//!
//! Everything else in the house is a step of it. The exchange counts and logs the request once, however it ends; after
//! the line has returned, the body it returned owns the exchange and the place on the worker.

mod body;
mod dry_run;
mod own;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderName, Request, Response, StatusCode};
use http_body::Body;

use crate::admission::{Admission, Intake, Paced};
use crate::clock::Clock;
use crate::config::Plan;
use crate::decide::{Ask, Claim, RegionId, Reserved, Shortlist, State, Work, Zones};
use crate::facts::{self, BuiltIn, Dialect, RequestFacts};
use crate::fault::{Fault, Kind};
use crate::fleet::{Fleet, Lease};
use crate::forward::heartbeat::Heart;
use crate::forward::relay::{self, Relay};
use crate::forward::{Begun, Errand, Forward, refusal};
use crate::inspect::{self, Client, Limit, Offered, Way};
use crate::observe::{Exchange, Observe};
use crate::queue::{self, Guest, Patience, Spot};
use crate::units::Seconds;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What the request path works with. Filled by `serve`; no lower room names it.
pub struct App {
    /// Time.
    pub clock: Clock,
    /// The configuration, swapped whole.
    pub plan: Arc<ArcSwap<Plan>>,
    /// Metrics and the access log.
    pub observe: Arc<Observe>,
    /// Who may come in.
    pub admission: Arc<Admission>,
    /// Reads request bodies.
    pub intake: Intake,
    /// The workers as they are now.
    pub fleet: Arc<Fleet>,
    /// Sends requests to them.
    pub forward: Forward,
    /// True once the process was told to stop: not ready, and no new request is begun.
    pub stopping: AtomicBool,
}

enum Answer {
    /// Ours: about the proxy and its fleet.
    Own(Box<own::Own>),
    /// A worker's.
    Begun(Box<Begun>),
}

/// A request that is counted from now on, and not answered yet.
pub struct Opened<B> {
    app: Arc<App>,
    client: Client,
    head: Parts,
    /// There until a stream takes it along.
    body: Option<Paced<B>>,
    exchange: Box<Exchange>,
}

/// Takes note of a request. Apart from answering it, because a connection whose client leaves right behind its request
/// never asks for the answer, and that request counts too. Boxed: it goes through many futures, which would each keep
/// room for it and copy it.
pub fn open<B>(app: Arc<App>, client: Client, request: Request<B>) -> Box<Opened<B>> {
    let (head, body) = request.into_parts();
    let id = head.headers.get(X_REQUEST_ID);
    let exchange = app.observe.open(&head.method, &head.uri, id);
    let body = Some(app.intake.paced(body));
    Box::new(Opened {
        app,
        client,
        head,
        body,
        exchange,
    })
}

impl<B> Opened<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display + Send,
{
    /// Answers it. Never fails: a fault becomes the answer that tells it.
    pub async fn answer(self: Box<Self>) -> Response<Relay> {
        let spot = Spot::new(self.exchange.id());
        let Some(interval) = self.app.plan.load().queue.heartbeat else {
            return self.respond(&spot).await;
        };
        let spot = Arc::new(spot);
        let heart = Heart {
            interval,
            clock: self.app.clock,
            fleet: self.app.fleet.clone(),
            spot: spot.clone(),
        };
        let rest = Box::pin(async move { self.respond(&spot).await });
        heart.answer(rest).await
    }

    async fn respond(mut self: Box<Self>, spot: &Spot) -> Response<Relay> {
        let visit = Visit {
            app: &self.app,
            client: &self.client,
            head: &self.head,
            spot,
        };
        // Boxed, so that a connection does not keep room for a request's whole path while its answer streams.
        let answer = Box::pin(walk(&visit, &mut self.body, &mut self.exchange)).await;
        if spot.has_begun() {
            self.exchange.begun(StatusCode::OK);
            self.exchange.add_bytes_out(spot.told_bytes());
        }
        if answer.is_err() {
            self.discard().await;
        }
        let Opened {
            app,
            client,
            head,
            exchange,
            ..
        } = *self;
        match answer {
            Ok(Answer::Begun(begun)) => relay::response(begun, exchange, app.clock, client.http2),
            Ok(Answer::Own(own)) => {
                relay::own(own.status, own.fields, (own.body, own.trailers), exchange)
            }
            Err(fault) => refusal::response(dialect(&head), &fault, exchange),
        }
    }

    /// Reads what the client of a refused request still sends, unless it waits to be asked for it.
    async fn discard(&mut self) {
        if let Some(body) = &mut self.body
            && !body.is_end_stream()
            && !self.head.headers.contains_key(EXPECT)
        {
            self.app.intake.discard(body).await;
        }
    }
}

/// A request on its way: all of it but its body, and but what is counted of it.
struct Visit<'a> {
    app: &'a App,
    client: &'a Client,
    head: &'a Parts,
    spot: &'a Spot,
}

async fn walk<B>(
    visit: &Visit<'_>,
    body: &mut Option<Paced<B>>,
    exchange: &mut Exchange,
) -> Result<Answer, Fault>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    let Visit {
        app,
        client,
        head,
        spot,
    } = *visit;
    let plan = app.plan.load_full();
    let way = inspect::way(head, &plan)?; // 400 404 405
    exchange.set_route(way.route());
    let pass = app
        .admission
        .enter(&head.headers, way.is_public(), exchange)?; // 400 401 429
    if let Some(own) = own::answer(app, &way, &pass)? {
        return Ok(Answer::Own(Box::new(own))); // 200, and 403 404 503 of our own
    }

    let deadline = inspect::deadline(&head.headers)?; // 400
    let class = inspect::class(&head.headers, &plan.queue, pass.class())?; // 400
    let mut held = body::take_in(visit, body, (&way, class), exchange).await?; // 400 408 413 415 429 503

    let catalogue = app.fleet.catalogue();
    let offered = Offered {
        models: catalogue.served(),
        theirs: pass.models(),
        room: catalogue.room(),
        apart: pass.apart(),
    };
    let facts = inspect::facts(&way, head, held.text(), offered)?; // 400
    if facts.streamed {
        spot.wants_events();
    }
    exchange.set_kind(way.kind());
    exchange.begins_with(&facts.prefix);
    if let Some(model) = &facts.model {
        exchange.set_model(model, catalogue.knows(model));
    }
    pass.ask(facts.model.as_ref(), tokens(&facts, &way))?; // 403 429
    exchange.set_quota(pass.quota());

    let deadline = Limit::of_client(deadline, facts.timeout);
    let leaves = deadline.map(|limit| exchange.started() + limit.span);
    let claim = Claim {
        class,
        tenant: pass.number(),
        bytes: held.bytes().len() as u64,
    };
    let from = client.region(&head.headers, &plan);
    let ask = Ask {
        zones: within(&way, pass.zones()),
        ..ask(&facts, &way, from, leaves, claim)
    };
    pass.afford(|| app.fleet.forecast(&ask))?; // 429
    let guest = Guest {
        fleet: &app.fleet,
        ask: &ask,
        patience: Patience::of(&plan.queue, class),
        deadline,
        spot,
        clock: app.clock,
    };
    let limit = Limit::of(way.timeouts(&plan).total, deadline);
    let lease = turn(guest, limit, exchange).await; // 403 404 429 503 504
    let lease = lease.map_err(|fault| fault.suggesting(|model| pass.may_use(model)))?;

    let stream = body::stream(body, visit, &way, &facts, (&mut held, &plan))?; // 503
    let errand = Errand {
        head,
        body: held.bytes(),
        text: held.text(),
        stream: stream.as_ref(),
        facts: &facts,
        way: &way,
        ask: &ask,
        deadline,
        spot,
        plan: &plan,
        client,
        is_grpc: is_grpc(head),
    };
    let begun = app.forward.answer(lease, &errand, exchange).await?; // 502 503 504; sends again inside
    Ok(Answer::Begun(begun))
}

/// A place on a worker, after a wait in line if need be.
async fn turn(
    guest: Guest<'_>,
    limit: Option<Limit>,
    exchange: &mut Exchange,
) -> Result<Lease, Fault> {
    let Guest { clock, spot, .. } = guest;
    let began = clock.now();
    let mut considered = Shortlist::default();
    let turn = {
        let turn = pin!(guest.turn(&mut considered));
        queue::within(limit, exchange.started(), clock, turn).await
    };
    let now = clock.now();
    exchange.considered(considered, now);
    exchange.stood_at(spot.position());
    let waited = match &turn {
        Ok((_, waited)) => *waited,
        Err(_) => now - began,
    };
    exchange.queued(waited);
    let (lease, _) = turn?;
    exchange.routed(now - began - waited);
    Ok(lease)
}

/// What a request may come to in tokens. Only of a text is that known beforehand.
fn tokens(facts: &RequestFacts, way: &Way<'_>) -> Reserved {
    match way {
        Way::BuiltIn(BuiltIn::Inference(_)) => {
            Reserved::for_request(facts.prompt, facts.generates, facts.max_tokens)
        }
        Way::BuiltIn(_) | Way::Route(_) => Reserved::default(),
    }
}

/// Where a request may go: where both its route and its tenant may.
fn within(way: &Way<'_>, theirs: Option<Zones>) -> Option<Zones> {
    let routed = match way {
        Way::Route(route) => route.zones.as_ref().map(|zones| zones.set),
        Way::BuiltIn(_) => None,
    };
    match (routed, theirs) {
        (Some(routed), Some(theirs)) => Some(routed.common(theirs)),
        (routed, theirs) => routed.or(theirs),
    }
}

fn ask(
    facts: &RequestFacts,
    way: &Way<'_>,
    from: Option<RegionId>,
    deadline: Option<Seconds>,
    claim: Claim,
) -> Ask {
    let (only, path) = match way {
        Way::Route(route) => (Some(route.workers.clone()), None),
        Way::BuiltIn(built_in) => (None, Some(built_in.route())),
    };
    Ask {
        model: facts.model.clone(),
        only,
        zones: None,
        from,
        path,
        work: match way {
            _ if facts.generates => Work::Generate,
            Way::BuiltIn(built_in) if built_in.takes_tensors() => Work::Infer,
            Way::BuiltIn(_) | Way::Route(_) => Work::Embed,
        },
        prompt: facts.prompt,
        fills: facts.fills,
        prefix: facts.prefix.clone(),
        max_tokens: facts.max_tokens,
        streamed: facts.streamed,
        deadline,
        claim,
    }
}

/// The shape of errors on a path, also on one that could not be matched.
fn dialect(head: &Parts) -> Dialect {
    let path = head.uri.path();
    if is_grpc(head) {
        return Dialect::Grpc;
    }
    match BuiltIn::of(path) {
        Some(built_in) => built_in.dialect(),
        None if path == "/v2" || path.starts_with("/v2/") => Dialect::KServe,
        None => Dialect::OpenAi,
    }
}

fn is_grpc(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| facts::is_grpc(kind.as_bytes()))
}

impl App {
    /// Whether somebody can answer: a worker that is up, and has a model or a route.
    ///
    /// # Errors
    /// `no_worker` with the cause.
    pub fn ready(&self) -> Result<(), Fault> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(Fault::new(Kind::NoWorker, "the proxy is stopping"));
        }
        let (plan, catalogue) = (self.plan.load(), self.fleet.catalogue());
        let mut causes = Vec::new();
        let stations = self.fleet.stations();
        let seen = self.fleet.snapshot().into_iter().zip(&*stations);
        for (worker, station) in seen.filter(|(_, station)| !station.leaves) {
            let routed = || plan.routes.iter().any(|r| r.workers.contains(&worker.id));
            let cause = match worker.state {
                State::Up if !catalogue.of(worker.id).is_empty() || routed() => return Ok(()),
                State::Up => "it serves no model and no route",
                state => worker.reason.as_deref().unwrap_or(state.label()),
            };
            if !station.plan.optional {
                causes.push(format!("{}: {cause}", worker.name));
            }
        }
        if causes.is_empty() {
            causes.push("all workers are optional".to_owned());
        }
        let message = format!("nobody can answer ({})", causes.join("; "));
        Err(Fault::new(Kind::NoWorker, message))
    }
}
