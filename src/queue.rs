//! A request's turn: a place at once, or a wait in line until one is free.
//!
//! The line itself, its order and its bounds, is decided in `decide::queue`; this is its asynchronous shell. Waiting ends
//! with a place, with the news that nobody is left who could serve the request, or at the longest allowed wait. That is
//! `wait` of the request's class while somebody who could serve it is up, `wait_no_worker` while nobody is, and the longer
//! of both while all are out for errors; what it waits for is asked again whenever a wait is over. Who leaves while
//! waiting (the future is dropped) leaves the line.
//!
//! Who could only wait and for whom there is no room in line is refused before its body is read, so that shedding load is
//! cheap. A prompt that is too long for everybody is refused at once: no wait would make it shorter. So is what can't be
//! answered before its client leaves, with how long it would take; and who waits is let go as soon as that has become
//! certain.
//!
//! However a turn ends, whom its latest choice considered is written where the caller says: also who was refused, or
//! waited in vain, can then be told why.

mod foresee;
mod refusal;
mod spot;

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::timeout;

pub use foresee::{Fate, Foreseen};
pub use refusal::unless_silent;
use refusal::{TAKEN, come_back, full, refusal};
pub use spot::Spot;

use crate::clock::Clock;
use crate::config::plan::QueuePlan;
use crate::decide::{Ask, Claim, NoChoice, Outlook, Shortlist, Ticket};
use crate::fault::{Fault, Kind};
use crate::fleet::{Fleet, Joined, Lease, Turn};
use crate::inspect::Limit;
use crate::units::{Seconds, WorkerId};

/// The longest that a request which failed already waits for a worker that is out for errors: its probes may pass within
/// that time, and its client has been patient.
const LONGEST_RETRY_WAIT: Seconds = Seconds(5.0);

/// The least time after which somebody who waits is asked again whether it can be in time.
const LOOK_AGAIN: Seconds = Seconds(0.1);

/// How long a request may stand in line.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// While somebody who could serve it is up,
    place: Seconds,
    /// and while nobody is.
    worker: Seconds,
}

impl Patience {
    /// That of a class.
    #[must_use]
    pub fn of(plan: &QueuePlan, class: u8) -> Self {
        let class = plan.classes.get(usize::from(class));
        Patience {
            place: class.map_or(Seconds::ZERO, |class| class.wait),
            worker: plan.wait_no_worker,
        }
    }

    /// How long it is from here to the next limit, whichever it is: what a request lacks may have changed by then.
    fn next_after(self, waited: Seconds) -> Seconds {
        let limits = [self.place, self.worker].map(|limit| limit - waited);
        let ahead = limits.into_iter().filter(|left| *left > Seconds::ZERO);
        ahead.reduce(Seconds::min).unwrap_or_default()
    }

    /// How long it waits for this; `None` when that is nothing to wait for.
    fn with(self, lack: &NoChoice) -> Option<Seconds> {
        match lack {
            NoChoice::Busy => Some(self.place),
            NoChoice::Away => Some(self.place.max(self.worker)),
            NoChoice::Down | NoChoice::UnknownModel { awaited: true, .. } => Some(self.worker),
            _ => None,
        }
    }
}

/// A request that wants a place.
#[derive(Clone, Copy)]
pub struct Guest<'a> {
    /// Whose places.
    pub fleet: &'a Arc<Fleet>,
    /// What it asks for.
    pub ask: &'a Ask,
    /// How long it may stand in line.
    pub patience: Patience,
    /// How long its client waits, and by what word: what its `ask` reckons with.
    pub deadline: Option<Limit>,
    /// Where it stands in line, to be told.
    pub spot: &'a Spot,
    /// Time.
    pub clock: Clock,
}

impl Guest<'_> {
    /// Books a place for the first attempt, waiting in line when everyone who could serve it is at their limit or down.
    /// Says how long it waited.
    ///
    /// # Errors
    /// `queue_full`, `queue_timeout`, `model_not_found`, `residency`, `no_worker`, `bad_request` for a prompt that is too
    /// long, and `deadline` for what can't be in time.
    pub async fn turn(self, considered: &mut Shortlist) -> Result<(Lease, Seconds), Fault> {
        let turn = self.fleet.reserve(self.ask, &[]);
        *considered = turn.considered;
        match turn.place {
            Ok(lease) => Ok((lease, Seconds::ZERO)),
            Err(lack) if self.fleet.may_wait(self.ask, &lack) => {
                let began = self.clock.now();
                let lease = Box::pin(self.in_line(&[], lack, considered)).await?;
                Ok((lease, self.clock.now() - began))
            }
            Err(lack) => Err(self.refusal(lack)),
        }
    }

    /// Books a place for a further attempt, on none of the workers that were tried.
    ///
    /// # Errors
    /// As [`turn`](Self::turn); `no_worker` when all were tried.
    pub async fn another_turn(
        mut self,
        tried: &[WorkerId],
        considered: &mut Shortlist,
    ) -> Result<Lease, Fault> {
        let turn = self.fleet.reserve(self.ask, tried);
        *considered = turn.considered;
        self.patience.worker = Seconds::ZERO;
        let lack = match turn.place {
            Err(lack @ NoChoice::Busy) => lack,
            Err(lack @ NoChoice::Away) => {
                self.patience.place = LONGEST_RETRY_WAIT;
                lack
            }
            place => return place.map_err(|why| self.refusal(why)),
        };
        Box::pin(self.in_line(tried, lack, considered)).await
    }

    async fn in_line(
        &self,
        tried: &[WorkerId],
        lack: NoChoice,
        considered: &mut Shortlist,
    ) -> Result<Lease, Fault> {
        let id = self.spot.id().to_str().unwrap_or_default();
        let joined = self.fleet.stand_in_line(self.ask.clone(), tried, id);
        let joined = joined.map_err(|_| self.full(&lack))?;
        self.spot.joined(joined.ticket, joined.position);
        let place = Place {
            fleet: self.fleet,
            ticket: joined.ticket,
            spot: self.spot,
        };
        let turn = self.granted(tried, lack, joined).await?;
        drop(place);
        *considered = turn.considered;
        turn.place.map_err(|why| self.refusal(why))
    }

    /// Waits as long as there is patience for what the request lacks, now and after each wait, and as long as it can still
    /// be in time.
    async fn granted(
        &self,
        tried: &[WorkerId],
        mut lack: NoChoice,
        mut joined: Joined,
    ) -> Result<Turn, Fault> {
        let began = self.clock.now();
        loop {
            let waited = self.clock.now() - began;
            if self
                .patience
                .with(&lack)
                .is_none_or(|longest| longest <= waited)
            {
                self.spot.gives_up_at(self.fleet.position(joined.ticket));
                return Err(self.in_vain(lack, waited));
            }
            let hope = self.hope(joined.ticket)?;
            let pause = self.patience.next_after(waited).min(hope);
            match timeout(pause.to_duration(), &mut joined.turn).await {
                Ok(Ok(turn)) => return Ok(turn),
                Ok(Err(_)) => return Err(self.refusal(NoChoice::Down)),
                Err(_) => lack = self.fleet.lacks(self.ask, tried),
            }
        }
    }

    /// How long it may well be in time from here on.
    fn hope(&self, ticket: Ticket) -> Result<Seconds, Fault> {
        let Some(leaves) = self.ask.deadline else {
            return Ok(Seconds(f64::INFINITY));
        };
        let left = leaves - self.clock.now();
        match self.fleet.outlook(ticket) {
            Some(Outlook { takes, least }) if least > left => Err(self.too_late(takes)),
            outlook => {
                let least = outlook.map_or(Seconds::ZERO, |outlook| outlook.least);
                Ok((left - least).max(LOOK_AGAIN))
            }
        }
    }

    /// Nobody can answer before its client leaves.
    fn too_late(&self, takes: Seconds) -> Fault {
        let now = self.clock.now();
        let left = self
            .ask
            .deadline
            .map_or(Seconds::ZERO, |leaves| leaves - now);
        let (takes, left) = (rounded(takes), rounded(left.max(Seconds::ZERO)));
        let of = self.deadline.map_or_else(String::new, |limit| {
            format!(" of {} = {}", limit.name, limit.span)
        });
        let message = format!("the fastest would take about {takes}, {left} are left{of}");
        Fault::new(Kind::Deadline, message)
    }

    /// There is no room in line. Who finds nobody up is told that, and not that it is crowded.
    fn full(&self, lack: &NoChoice) -> Fault {
        match lack {
            NoChoice::Busy => full(self.fleet, self.ask.claim.class),
            lack => self.refusal(lack.clone()),
        }
    }

    fn displaced(&self) -> Fault {
        let message = format!("{TAKEN}, and the queue is full of requests of higher classes");
        come_back(
            self.fleet,
            self.ask.claim.class,
            Fault::new(Kind::QueueFull, message),
        )
    }

    fn in_vain(&self, lack: NoChoice, waited: Seconds) -> Fault {
        match lack {
            NoChoice::Busy => {
                let message = format!("waited {waited} for a place on a worker: {TAKEN}");
                let fault = Fault::new(Kind::QueueTimeout, message);
                come_back(self.fleet, self.ask.claim.class, fault)
            }
            lack => self.refusal(lack),
        }
    }

    fn refusal(&self, why: NoChoice) -> Fault {
        match why {
            NoChoice::Late { takes } => self.too_late(takes),
            NoChoice::Displaced => self.displaced(),
            why => refusal(self.fleet, self.ask, why),
        }
    }
}

/// Refuses a request before its body is read, when there would be no room in line for it and whatever it asks for it would
/// have to wait.
///
/// # Errors
/// `queue_full`.
pub fn admit(fleet: &Fleet, bytes: u64, class: u8) -> Result<(), Fault> {
    let claim = Claim {
        class,
        bytes,
        ..Claim::default()
    };
    if fleet.sheds(claim) {
        return Err(full(fleet, class));
    }
    Ok(())
}

/// A wait that ends at the latest when a request's time is over.
///
/// # Errors
/// Those of the wait, and `deadline`.
pub async fn within<T>(
    limit: Option<Limit>,
    started: Seconds,
    clock: Clock,
    waiting: Pin<&mut impl Future<Output = Result<T, Fault>>>,
) -> Result<T, Fault> {
    let Some(Limit { span, name }) = limit else {
        return waiting.await;
    };
    let left = started + span - clock.now();
    let over = |_| {
        let passed = clock.now() - started;
        let message = format!("still in line after {name} = {span} ({passed} passed)");
        Err(Fault::new(Kind::Deadline, message))
    };
    timeout(left.to_duration(), waiting)
        .await
        .unwrap_or_else(over)
}

/// A time as it is told: nobody knows it to the millisecond.
fn rounded(span: Seconds) -> Seconds {
    let grain = if span.0 < 1.0 { 100.0 } else { 10.0 };
    Seconds((span.0 * grain).round() / grain)
}

/// A place in line, given up when dropped.
struct Place<'a> {
    fleet: &'a Arc<Fleet>,
    ticket: Ticket,
    spot: &'a Spot,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.spot.left();
        self.fleet.leave_line(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::HeaderValue;

    use super::refusal::COME_BACK;
    use super::*;
    use crate::config;
    use crate::decide::{Work, Zones};
    use crate::facts::Prefix;
    use crate::units::{Length, ModelName};

    fn fleet_of(text: &str) -> Arc<Fleet> {
        let plan = config::parse(text, Path::new("test.toml"), &|_| None).unwrap();
        Fleet::new(&plan, Clock::start(), 1)
    }

    /// One worker with one place.
    fn fleet() -> Arc<Fleet> {
        let text = r#"
            state = "unused"
            [queue]
            entries = 50
            wait_no_worker = "20ms"
            [[worker]]
            name = "only"
            url = "http://127.0.0.1:1"
            engine = "generic"
            models = ["m"]
            max_inflight = 1
        "#;
        fleet_of(text)
    }

    fn ask(model: &str) -> Ask {
        Ask {
            model: Some(ModelName::new(model)),
            only: None,
            zones: None,
            from: None,
            path: None,
            work: Work::Embed,
            prompt: Length::Tokens(10.0),
            fills: None,
            prefix: Prefix::default(),
            max_tokens: None,
            deadline: None,
            streamed: false,
            claim: Claim::default(),
        }
    }

    const PATIENCE: Patience = Patience {
        place: Seconds(0.02),
        worker: Seconds(0.05),
    };

    async fn first_turn(fleet: &Arc<Fleet>, ask: &Ask) -> Result<(Lease, Seconds), Fault> {
        let guest = Guest {
            fleet,
            ask,
            patience: PATIENCE,
            deadline: None,
            spot: &Spot::new(&HeaderValue::from_static("some")),
            clock: Clock::start(),
        };
        guest.turn(&mut Shortlist::default()).await
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_wait_that_is_too_long_ends_in_a_refusal_and_leaves_the_line() {
        let fleet = fleet();
        block(async {
            let (held, waited) = first_turn(&fleet, &ask("m")).await.unwrap();
            assert_eq!(waited, Seconds::ZERO);
            let fault = first_turn(&fleet, &ask("m")).await.unwrap_err();
            assert_eq!(
                (fault.kind, fault.retry_after),
                (Kind::QueueTimeout, Some(COME_BACK))
            );
            assert_eq!(fleet.waiting(), 0);
            drop(held);
            assert!(first_turn(&fleet, &ask("m")).await.is_ok());
        });
    }

    #[test]
    fn a_full_line_refuses_at_once() {
        let fleet = fleet();
        block(async {
            let held = first_turn(&fleet, &ask("m")).await.unwrap();
            let waiting: Vec<_> = (0..50)
                .map(|_| fleet.stand_in_line(ask("m"), &[], "other").unwrap())
                .collect();
            let fault = first_turn(&fleet, &ask("m")).await.unwrap_err();
            assert_eq!(
                (fault.kind, fault.retry_after),
                (Kind::QueueFull, Some(COME_BACK))
            );
            drop((held, waiting));
        });
    }

    #[test]
    fn a_place_that_is_freed_goes_to_who_waits() {
        let fleet = fleet();
        block(async {
            let (held, _) = first_turn(&fleet, &ask("m")).await.unwrap();
            let ask = ask("m");
            let mut waiting = std::pin::pin!(first_turn(&fleet, &ask));
            let mut held = Some(held);
            let lease = std::future::poll_fn(|cx| {
                let polled = waiting.as_mut().poll(cx);
                held.take();
                polled
            });
            assert!(lease.await.is_ok());
        });
    }

    #[test]
    fn a_model_that_nobody_serves_is_told_with_its_nearest() {
        let fleet = fleet();
        let fault = block(first_turn(&fleet, &ask("n"))).unwrap_err();
        assert_eq!(fault.kind, Kind::ModelNotFound);
        let told = fault.suggesting(|_| true).message;
        assert!(told.contains("`m`"), "{told}");
    }

    #[test]
    fn a_model_outside_of_the_zones_is_refused_unless_somebody_inside_may_have_it() {
        let told = |inside: &str| {
            let fleet = fleet_of(&format!(
                r#"
                state = "unused"
                [[region]]
                name = "home"
                zone = "eu"
                [[machine]]
                name = "desk"
                region = "home"
                [[worker]]
                name = "inside"
                url = "http://127.0.0.1:1"
                engine = "vllm"
                machine = "desk"
                {inside}
                [[worker]]
                name = "outside"
                url = "http://127.0.0.1:2"
                engine = "vllm"
                models = ["m"]
                "#
            ));
            let ask = Ask {
                zones: Some(Zones::one(0)),
                ..ask("m")
            };
            block(first_turn(&fleet, &ask)).map(|_| ()).unwrap_err()
        };
        assert_eq!(told("models = [\"n\"]").kind, Kind::Residency);
        let silent = told("");
        assert_eq!(silent.kind, Kind::NoWorker);
        assert!(silent.message.contains("`inside`"), "{}", silent.message);
    }
}
