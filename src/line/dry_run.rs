//! `forebay why --dry-run`: what would become of a request, by the steps of the line up to the choice. Nothing is
//! counted, booked or sent.
//!
//! It is the operator who asks, so no key is wanted and no tenant's limits, models or zones hold; the request is of the
//! highest class and comes from where the proxy is.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderValue, Request};

use super::{App, ask, within};
use crate::decide::{Ask, Claim};
use crate::facts::BuiltIn;
use crate::fault::{Fault, Kind};
use crate::inspect::{self, Client, Offered, Way};
use crate::queue::{Foreseen, Guest, Patience, Spot};

impl App {
    /// What would become of a POST of this body to this path now.
    #[must_use]
    pub fn dry_run(&self, path: &str, body: &Bytes) -> Foreseen {
        self.foresee(path, body).unwrap_or_else(Foreseen::refused)
    }

    fn foresee(&self, path: &str, body: &Bytes) -> Result<Foreseen, Fault> {
        let plan = self.plan.load_full();
        let head = head(path)?;
        let way = inspect::way(&head, &plan)?;
        if let Way::BuiltIn(own) = &way
            && !matches!(own, BuiltIn::Inference(_) | BuiltIn::KServeModel { .. })
        {
            let message = "the proxy answers this path itself";
            return Err(Fault::new(Kind::BadRequest, message));
        }
        let catalogue = self.fleet.catalogue();
        let offered = Offered {
            models: catalogue.served(),
            theirs: None,
            room: catalogue.room(),
            apart: None,
        };
        let facts = inspect::facts(&way, &head, body, offered)?;
        let claim = Claim {
            bytes: body.len() as u64,
            ..Claim::default()
        };
        let from = Client::new(None, false, false).region(&head.headers, &plan);
        let ask = Ask {
            zones: within(&way, None),
            ..ask(&facts, &way, from, None, claim)
        };
        let guest = Guest {
            fleet: &self.fleet,
            ask: &ask,
            patience: Patience::of(&plan.queue, claim.class),
            deadline: None,
            spot: &Spot::new(&HeaderValue::from_static("dry-run")),
            clock: self.clock,
        };
        Ok(guest.foresee())
    }
}

fn head(path: &str) -> Result<Parts, Fault> {
    let request = Request::post(path)
        .header(HOST, "dry-run")
        .header(CONTENT_TYPE, "application/json")
        .body(());
    let request = request.map_err(|_| Fault::new(Kind::BadRequest, "this is no path"))?;
    Ok(request.into_parts().0)
}
