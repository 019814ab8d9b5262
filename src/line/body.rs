//! A request's body: read whole before a worker is chosen, or, of a stream, as far as it takes to choose one.

use bytes::Bytes;
use http::request::Parts;

use super::Visit;
use crate::admission::{Coding, Held};
use crate::config::Plan;
use crate::facts::{self, RequestFacts};
use crate::fault::{Fault, Kind};
use crate::forward::messages::{Messages, Rule};
use crate::inspect::Way;
use crate::observe::Exchange;
use crate::queue;

/// The rest of a body that is a stream, on its way to a worker.
pub(super) fn stream<B>(
    body: &mut Option<B>,
    way: &Way<'_>,
    facts: &RequestFacts,
    (head, held, plan): (&Parts, &Held, &Plan),
) -> Option<Messages>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    if !way.streams(head) {
        return None;
    }
    let rule = facts.model.clone().map(|model| Rule {
        model,
        coding: Coding::of_messages(&head.headers),
        most: plan.limits.body,
    });
    Some(Messages::new(held.bytes(), body.take()?, rule))
}

/// The body, whole, and what it says; of a stream the beginning.
pub(super) async fn take_in<B>(
    visit: &Visit<'_>,
    body: &mut Option<B>,
    (way, class): (&Way<'_>, u8),
    exchange: &mut Exchange,
) -> Result<Held, Fault>
where
    B: http_body::Body<Data = Bytes> + Unpin,
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
    } else {
        app.intake.read(body).await?
    };
    exchange.body_read(app.clock.now() - began);
    exchange.bytes_in(held.bytes().len() as u64);
    app.intake.undo(&mut held, coding).await?;
    if way.is_grpc() {
        let coding = Coding::of_messages(&head.headers);
        app.intake.undo_message(&mut held, coding).await?;
    }
    Ok(held)
}
