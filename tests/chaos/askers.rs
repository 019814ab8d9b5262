//! Clients beside the timetable's: some that speak HTTP/2, and some that leave early.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay::clock::Clock;
use forebay::rng::Rng;

use crate::plan::Question;
use crate::support::client::{Client, request};
use crate::support::h2_client::H2Client;
use crate::support::load::Ended;

/// Ends who asks on and on when it is dropped, also when a test fails.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks over one HTTP/2 connection after the other, from this number on, until it is over.
///
/// A connection whose end is announced may refuse a question that crosses the announcement; that one is asked again, as
/// HTTP/2 has it (RFC 9113 §8.7). Whether it was really not read, the access log tells.
pub fn over_http2(
    at: SocketAddr,
    from: usize,
    clock: Clock,
    over: &AtomicBool,
) -> Vec<(Question, Ended)> {
    let mut rng = Rng::seeded(from as u64);
    let mut asked = Vec::new();
    let mut client = H2Client::connect(at);
    for number in from.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let question = Question::draw(number, &mut rng);
        let (id, sent) = (format!("h2-{number}"), clock.now());
        let headers = [("x-request-id", id.as_str())];
        let answer = client.try_call("POST", question.path, &headers, question.body.as_bytes());
        let mut ended = Ended::of(number, answer.as_ref().ok(), sent, clock.now());
        if answer.is_err() {
            ended.id = id;
            client = H2Client::connect(at);
        }
        asked.push((question, ended));
    }
    asked
}

/// Leaves before its answer, or within it, again and again; the ids of what it asked.
pub fn leaving_early(at: SocketAddr, seed: u64, over: &AtomicBool) -> Vec<String> {
    let mut rng = Rng::seeded(seed);
    let mut asked = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let id = format!("left-{}", asked.len());
        let question = Question::draw(usize::MAX, &mut rng);
        let mut client = Client::connect(at);
        let headers = [("x-request-id", id.as_str())];
        let body = question.body.as_bytes();
        client.send(&request("POST", question.path, &headers, body));
        if rng.below(4) > 0 {
            client.try_head();
        }
        asked.push(id);
    }
    asked
}
