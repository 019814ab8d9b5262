//! `GET /api/events`: all that the status page shows, told anew each second, as server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! Each event is a whole picture and no difference to the one before: who missed some, or comes back after a restart,
//! needs no memory of ours, and what is shown can't drift away from what is. Its `data` is JSON:
//!
//! | key | what |
//! |---|---|
//! | `fleet` | as `/api/workers` tells it |
//! | `unready` | why nothing could be answered now, if that is so |
//! | `classes` | every class of the line, as `/api/queue` tells it |
//! | `tenants` | as `/api/tenants` tells it |
//! | `requests` | the last [`LATEST`] that ended, the newest first, as `/api/requests` lists them |
//! | `reload` | what came of reading the configuration again the last time, if that was ever done |
//!
//! Each of `requests` has also its `culprit`, as `/api/requests/ID` tells it, and in `price` what was expected of the
//! worker that had it.
//!
//! **What it costs.** Nothing while nobody listens. The first who is due draws a picture, and whoever is due within the
//! next second gets the same bytes, so however many listen, the fleet is looked at once a second. At most [`LISTENERS`]
//! listen at a time, since each holds a connection; a browser's page that nobody looks at hangs up (`page/page.js`).
//!
//! A stream ends when the process is to end, and would otherwise keep it: within a second of being told.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::{Body, Frame};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::answer::Answer;
use super::requests::Recent;
use super::{ClassRow, Reloaded, Sights, tenants, workers};
use crate::clock;
use crate::units::Seconds;

/// How often a listener is told.
const EVERY: Duration = Duration::from_secs(1);
/// How long a picture is good for. A timer may be early by a millisecond, and must not be given the one it had.
const FRESH: Seconds = Seconds(0.99);
/// How many may listen at a time.
pub(super) const LISTENERS: usize = 16;
/// How many requests are shown.
const LATEST: usize = 15;

/// Where pictures hang, for all who listen.
#[derive(Debug)]
pub(super) struct Board {
    latest: Mutex<Option<(Seconds, Bytes)>>,
    places: Arc<Semaphore>,
}

/// The body of one listener: a picture a second.
pub struct Events {
    sights: Arc<Sights>,
    board: Arc<Board>,
    /// Begins to run when it is first asked.
    ticks: Option<Interval>,
    /// Given back when nobody listens any more; none for one who only asked whether there is one.
    _place: Option<OwnedSemaphorePermit>,
}

/// What an event says.
#[derive(Serialize)]
struct Picture<'a> {
    fleet: workers::Picture<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unready: Option<&'a str>,
    classes: &'a [ClassRow],
    tenants: tenants::Shown<'a>,
    requests: Vec<Recent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reload: Option<Reloaded>,
}

impl Board {
    pub(super) fn new() -> Self {
        Board {
            latest: Mutex::default(),
            places: Arc::new(Semaphore::new(LISTENERS)),
        }
    }

    /// One more listener, or why there can't be one; `HEAD` asks for that and takes no place.
    pub(super) fn listen(self: &Arc<Self>, sights: &Arc<Sights>, method: &Method) -> Answer {
        let place = match method {
            &Method::HEAD => (self.places.available_permits() > 0).then_some(None),
            _ => self.places.clone().try_acquire_owned().ok().map(Some),
        };
        let Some(place) = place else {
            return Answer::refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "too_many_listeners",
                &format!("{LISTENERS} listen already; close a status page, or ask /api/workers"),
            );
        };
        Answer::events(Events {
            sights: sights.clone(),
            board: self.clone(),
            ticks: None,
            _place: place,
        })
    }

    /// The picture that hangs there, if it is fresh, else a new one.
    fn picture(&self, sights: &Sights) -> Bytes {
        let now = sights.clock.now();
        let mut latest = self.latest.lock();
        match &*latest {
            Some((drawn, picture)) if now - *drawn < FRESH => picture.clone(),
            _ => {
                let picture = event(sights);
                *latest = Some((now, picture.clone()));
                picture
            }
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.ticks.get_or_insert_with(ticks).poll_tick(cx));
        if (self.sights.stopping)() {
            return Poll::Ready(None);
        }
        let picture = self.board.picture(&self.sights);
        Poll::Ready(Some(Ok(Frame::data(picture))))
    }
}

/// The first at once; who was late is not told twice.
fn ticks() -> Interval {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Draws a picture. JSON has no line breaks of its own, so one line of `data` holds it.
fn event(sights: &Sights) -> Bytes {
    let observe = &sights.observe;
    let (fleet, accounts) = ((sights.fleet)(), (sights.tenants)());
    let latest = observe.decisions.latest(LATEST);
    let picture = Picture {
        fleet: workers::Picture::of(&fleet, clock::wall()),
        unready: fleet.ready.as_ref().err().map(String::as_str),
        classes: &fleet.queued,
        tenants: tenants::Shown::of(&accounts),
        requests: latest.iter().map(|one| Recent::of(one, observe)).collect(),
        reload: (sights.reloaded)(),
    };
    match sonic_rs::to_string(&picture) {
        Ok(json) => Bytes::from(format!("data: {json}\n\n")),
        Err(error) => {
            tracing::error!(%error, "the fleet can't be written as JSON");
            Bytes::from_static(b": this can't be shown; the log says why\n\n")
        }
    }
}
