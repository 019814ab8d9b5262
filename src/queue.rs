//! A request's turn: a place at once, or a wait in line until one is free.
//!
//! The line itself, its order and its bound, is decided in `decide::queue`; this is its asynchronous shell. Waiting ends
//! with a place, with the news that nobody is left who could serve the request, or at the longest allowed wait. Who
//! leaves while waiting (the future is dropped) leaves the line.
//!
//! A prompt that is too long for everybody is refused at once: no wait would make it shorter.
//!
//! However a turn ends, whom its latest choice considered is written where the caller says: also who was refused, or
//! waited in vain, can then be told why.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::timeout;

use crate::clock::Clock;
use crate::decide::{Ask, NoChoice, Shortlist, Ticket, Work};
use crate::fault::{Fault, Kind};
use crate::fleet::{Fleet, Lease, Turn};
use crate::inspect::Limit;
use crate::units::{Seconds, WorkerId};

/// The longest a request waits in line.
const LONGEST_WAIT: Seconds = Seconds(30.0);

/// The longest that a request which failed already waits for a worker that is out for errors: its probes may pass within
/// that time, and its client has been patient.
const LONGEST_RETRY_WAIT: Seconds = Seconds(5.0);

/// When to come back after a full queue, or for a model that may turn up: nothing is measured of either yet, so this is
/// the least honest wait.
const COME_BACK: Seconds = Seconds(1.0);

/// The longest model name, in bytes, that a refusal repeats: a client chooses how long it is.
const LONGEST_NAME: usize = 256;

/// Books a place for a request's first attempt, waiting in line when everyone who could serve it is at their limit. Says
/// how long it waited.
///
/// # Errors
/// `queue_full`, `queue_timeout`, `model_not_found`, `no_worker`, and `bad_request` for a prompt that is too long.
pub async fn turn(
    fleet: &Arc<Fleet>,
    ask: &Ask,
    considered: &mut Shortlist,
    clock: Clock,
) -> Result<(Lease, Seconds), Fault> {
    let turn = fleet.reserve(ask, &[]);
    *considered = turn.considered;
    match turn.place {
        Err(NoChoice::Busy | NoChoice::Away) => {
            let began = clock.now();
            let waiting = in_line(fleet, ask, &[], considered, LONGEST_WAIT);
            let lease = Box::pin(waiting).await?;
            Ok((lease, clock.now() - began))
        }
        place => place
            .map(|lease| (lease, Seconds::ZERO))
            .map_err(|why| refusal(fleet, ask, why)),
    }
}

/// Books a place for a further attempt, on none of the workers that were tried.
///
/// # Errors
/// As [`turn`]; `no_worker` when all were tried.
pub async fn another_turn(
    fleet: &Arc<Fleet>,
    ask: &Ask,
    tried: &[WorkerId],
    considered: &mut Shortlist,
) -> Result<Lease, Fault> {
    let turn = fleet.reserve(ask, tried);
    *considered = turn.considered;
    let longest = match turn.place {
        Err(NoChoice::Busy) => LONGEST_WAIT,
        Err(NoChoice::Away) => LONGEST_RETRY_WAIT,
        place => return place.map_err(|why| refusal(fleet, ask, why)),
    };
    Box::pin(in_line(fleet, ask, tried, considered, longest)).await
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

async fn in_line(
    fleet: &Arc<Fleet>,
    ask: &Ask,
    tried: &[WorkerId],
    considered: &mut Shortlist,
    longest: Seconds,
) -> Result<Lease, Fault> {
    let full = || {
        let message = "all workers that could serve this are at max_inflight and the queue is full";
        Fault::new(Kind::QueueFull, message).retry_after(COME_BACK)
    };
    let (ticket, granted) = fleet
        .stand_in_line(ask.clone(), tried)
        .map_err(|_| full())?;
    let place = Place { fleet, ticket };
    let turn = match timeout(longest.to_duration(), granted).await {
        Ok(turn) => turn.unwrap_or_else(|_| Turn {
            place: Err(NoChoice::Down),
            considered: Shortlist::default(),
        }),
        Err(_) => {
            let message = format!("waited {longest} for a worker below its max_inflight");
            return Err(Fault::new(Kind::QueueTimeout, message).retry_after(COME_BACK));
        }
    };
    drop(place);
    *considered = turn.considered;
    turn.place.map_err(|why| refusal(fleet, ask, why))
}

/// A place in line, given up when dropped.
struct Place<'a> {
    fleet: &'a Arc<Fleet>,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.fleet.leave_line(self.ticket);
    }
}

/// A model that nobody is known to serve: not there, unless somebody among these has not said yet what it serves.
#[must_use]
pub fn unknown_model(fleet: &Fleet, only: Option<&[WorkerId]>, not_there: Fault) -> Fault {
    let Some(worker) = fleet.yet_to_tell(only) else {
        return not_there;
    };
    let message = format!(
        "{}; `{worker}` has not said yet what it serves",
        not_there.message
    );
    Fault::new(Kind::NoWorker, message).retry_after(COME_BACK)
}

fn refusal(fleet: &Fleet, ask: &Ask, why: NoChoice) -> Fault {
    let model = match &ask.model {
        None => "this route".to_owned(),
        Some(name) if name.as_str().len() > LONGEST_NAME => "a model of so long a name".to_owned(),
        Some(name) => format!("`{name}`"),
    };
    match why {
        NoChoice::UnknownModel { nearest } => {
            let hint = nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            let message = format!("no worker serves {model}{hint}");
            let not_there = Fault::new(Kind::ModelNotFound, message).param("model");
            unknown_model(fleet, ask.only.as_deref(), not_there)
        }
        NoChoice::TooLong { most } => {
            let beside = match ask.max_tokens {
                Some(output) if ask.work == Work::Generate => {
                    format!(" beside an answer of up to {output}")
                }
                _ => String::new(),
            };
            let message = format!(
                "the prompt is too long for every worker that serves {model}: at most {most} tokens fit{beside}"
            );
            Fault::new(Kind::BadRequest, message)
        }
        NoChoice::Unloadable => {
            let message =
                format!("{model} is an adapter that no worker which serves it could load just now");
            Fault::new(Kind::NoWorker, message).retry_after(Seconds(10.0))
        }
        NoChoice::Down | NoChoice::Busy | NoChoice::Away => {
            let message = format!("no worker that serves {model} is up");
            Fault::new(Kind::NoWorker, message).retry_after(Seconds(2.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;
    use crate::decide::MOST_WAITING;
    use crate::facts::Prefix;
    use crate::units::{Length, ModelName};

    /// One worker with one place.
    fn fleet() -> Arc<Fleet> {
        let text = r#"
            state = "unused"
            [[worker]]
            name = "only"
            url = "http://127.0.0.1:1"
            engine = "generic"
            models = ["m"]
            max_inflight = 1
        "#;
        let plan = config::parse(text, Path::new("test.toml"), &|_| None).unwrap();
        Fleet::new(&plan, Clock::start(), 1)
    }

    fn ask(model: &str) -> Ask {
        Ask {
            model: Some(ModelName::new(model)),
            only: None,
            path: None,
            work: Work::Embed,
            prompt: Length::Tokens(10.0),
            fills: None,
            prefix: Prefix::default(),
            max_tokens: None,
            deadline: None,
            streamed: false,
        }
    }

    async fn first_turn(fleet: &Arc<Fleet>, ask: &Ask) -> Result<(Lease, Seconds), Fault> {
        turn(fleet, ask, &mut Shortlist::default(), Clock::start()).await
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
            let mut considered = Shortlist::default();
            let fault = in_line(&fleet, &ask("m"), &[], &mut considered, Seconds(0.02))
                .await
                .unwrap_err();
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
            let waiting: Vec<_> = (0..MOST_WAITING)
                .map(|_| fleet.stand_in_line(ask("m"), &[]).unwrap())
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
        assert!(fault.message.contains("`m`"), "{}", fault.message);
    }
}
