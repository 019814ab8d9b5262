//! A request's body: read whole before a worker is chosen, or, of a stream, as far as it takes to choose one. An upload
//! on a route needs no reading to be routed: when there is no room for all of it, the rest flows on while it is sent.

use bytes::Bytes;
use http_body::Body;

use super::Visit;
use crate::admission::{Coding, Held, Paced};
use crate::config::Plan;
use crate::facts::{self, RequestFacts};
use crate::fault::{Fault, Kind};
use crate::forward::sending::{Rule, Sending};
use crate::inspect::Way;
use crate::observe::Exchange;
use crate::queue;

/// The rest of a body that is a stream, on its way to a worker.
pub(super) fn stream<B>(
    body: &mut Option<Paced<B>>,
    visit: &Visit<'_>,
    way: &Way<'_>,
    facts: &RequestFacts,
    (held, plan): (&mut Held, &Plan),
) -> Result<Option<Sending>, Fault>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    let Visit { app, head, .. } = visit;
    let streams = way.streams(head);
    let Some(rest) = body.take_if(|_| streams || !held.is_whole()) else {
        return Ok(None);
    };
    let most = plan.limits.body;
    if !streams {
        return Ok(Some(Sending::upload(held.take(), rest, most)));
    }
    let rule = facts.model.clone().map(|model| Rule {
        model,
        coding: Coding::of_messages(&head.headers),
        most,
    });
    let first = (held.bytes(), app.intake.counted());
    Sending::stream(first, rest.into_inner(), rule).map(Some)
}

/// The body, whole, and what it says; of a stream the beginning.
pub(super) async fn take_in<B>(
    visit: &Visit<'_>,
    body: &mut Option<Paced<B>>,
    (way, class): (&Way<'_>, u8),
    exchange: &mut Exchange,
) -> Result<Held, Fault>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let Visit { app, head, .. } = visit;
    // It is there until a stream takes it along.
    let Some(body) = body else {
        return Err(Fault::new(Kind::BadRequest, "the body was read before"));
    };
    let coding = if way.is_read() {
        Coding::of(&head.headers)?
    } else {
        None
    };
    queue::admit(&app.fleet, body.size_hint().lower(), class)?;
    let began = app.clock.now();
    let mut held = if way.streams(head) {
        let enough = |bytes: &[u8]| Ok(!way.is_read() || facts::first_message(bytes)?.is_some());
        app.intake.begin(body, enough).await?
    } else if way.is_read() {
        app.intake.read(body).await?
    } else {
        app.intake.read_what_fits(body).await?
    };
    exchange.body_read(app.clock.now() - began);
    exchange.bytes_in(held.bytes().len() as u64 + body.size_hint().lower());
    app.intake.undo(&mut held, coding).await?;
    if way.is_grpc() {
        let coding = Coding::of_messages(&head.headers);
        app.intake.undo_message(&mut held, coding).await?;
    }
    Ok(held)
}
