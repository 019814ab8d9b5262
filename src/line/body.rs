//! A request's body: read whole before a worker is chosen, or, of a stream, as far as it takes to choose one.

use bytes::Bytes;
use http_body::Body;

use super::{App, Visit};
use crate::admission::{Coding, Held, Paced};
use crate::config::Plan;
use crate::facts::{self, RequestFacts};
use crate::fault::{Fault, Kind};
use crate::forward::messages::Messages;
use crate::inspect::Way;
use crate::observe::Exchange;
use crate::queue;

/// The rest of a body that is a stream, on its way to a worker.
pub(super) fn stream<B>(
    body: &mut Option<Paced<B>>,
    app: &App,
    way: &Way<'_>,
    facts: &RequestFacts,
    (held, plan): (&Held, &Plan),
) -> Result<Option<Messages>, Fault>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    if !way.streams() {
        return Ok(None);
    }
    let Some((rest, model)) = body.take().zip(facts.model.as_ref()) else {
        return Ok(None);
    };
    let first = (held.bytes(), app.intake.counted());
    Messages::new(first, rest.into_inner(), plan.limits.body, model).map(Some)
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
    let mut held = if way.streams() {
        app.intake.begin(body, facts::holds_message).await?
    } else {
        app.intake.read(body).await?
    };
    exchange.body_read(app.clock.now() - began);
    exchange.bytes_in(held.bytes().len() as u64);
    app.intake.undo(&mut held, coding).await?;
    Ok(held)
}
