//! Clients that talk: over WebSockets, and by calls and streams of gRPC.
//!
//! Nothing befalls their workers but what a talk asks for, so each knows how it has to end: only a swap may end it before,
//! and says so (1001 of RFC 6455). What it hears is what it said, and its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay::clock::Clock;
use forebay::facts::length_prefixed;
use forebay::rng::Rng;
use forebay::units::Seconds;

use crate::support::PATIENCE;
use crate::support::client::Client;
use crate::support::grpc::{SERVICE, framed};
use crate::support::h2_client::H2Client;
use crate::support::load::park_until;
use crate::support::websocket::{CLOSE, Frame, Socket, TEXT};

/// Talks that a talker begins in a second, if those before are over.
const RATE: f64 = 10.0;
/// The model of the worker that speaks gRPC.
pub const MODEL: &str = "g";

/// A talk that is over.
#[derive(Clone, Debug)]
pub struct Talked {
    /// Its id in the log.
    pub id: String,
    /// How it ended.
    pub end: End,
    /// When it began …
    pub began: Seconds,
    /// … and when it was over.
    pub over: Seconds,
}

/// How a talk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Well,
    /// A proxy that stops took leave.
    Stopped,
    /// Its connection's end was announced, so that it may not have been read.
    Unread,
    /// As it should not.
    Badly(String),
}

/// How a client means to end its talk.
#[derive(Clone, Copy)]
enum Leave {
    /// It closes.
    Close,
    /// The worker closes.
    Bye,
    /// The worker dies.
    Die,
    /// It is gone without a word.
    Vanish,
}

/// Talks over one WebSocket after the other until it is over, with so long a silence between what is said.
pub fn over_websockets(
    at: SocketAddr,
    seed: u64,
    gap: Seconds,
    clock: Clock,
    over: &AtomicBool,
) -> Vec<Talked> {
    let mut rng = Rng::seeded(seed);
    let kind = format!("ws-{gap}");
    talks(&kind, clock, over, |id, began| {
        let leave = match rng.below(8) {
            0 => Leave::Die,
            1 => Leave::Vanish,
            2..4 => Leave::Bye,
            _ => Leave::Close,
        };
        let turns = (0..rng.below(8)).map(|turn| began + gap * turn as f64);
        let client = Client::patient(at, 4 * PATIENCE);
        let Some(mut socket) = Socket::ask(client, &format!("/talk/{id}"), id) else {
            return End::Badly("it was refused".to_owned());
        };
        for due in turns.take_while(|_| !over.load(Ordering::Relaxed)) {
            park_until(&clock, due);
            let text = format!("{id} at {due}").into_bytes();
            socket.try_send(TEXT, &text);
            match socket.next() {
                Some((TEXT, heard)) if heard == text => {}
                other => return closed(other, None),
            }
        }
        let (code, frame) = match leave {
            Leave::Vanish => return End::Well,
            Leave::Close => (1000, (CLOSE, 1000_u16.to_be_bytes().to_vec())),
            Leave::Bye => (1000, (TEXT, b"bye".to_vec())),
            Leave::Die => (1011, (TEXT, b"die".to_vec())),
        };
        socket.try_send(frame.0, &frame.1);
        closed(socket.next(), Some(code))
    })
}

/// How a talk ended in which this came, where a close with this code should.
fn closed(came: Option<Frame>, code: Option<u16>) -> End {
    match came {
        Some((CLOSE, said)) if said.starts_with(&1001_u16.to_be_bytes()) => End::Stopped,
        Some((CLOSE, said)) if code.is_some_and(|code| said.starts_with(&code.to_be_bytes())) => {
            End::Well
        }
        Some((opcode, said)) => {
            let said = String::from_utf8_lossy(&said).into_owned();
            End::Badly(format!("{opcode} {said:?} came, not {code:?}"))
        }
        None => End::Badly(format!("it was cut, not ended by {code:?}")),
    }
}

/// Calls over one HTTP/2 connection after the other until it is over: single ones, and streams of some messages.
pub fn over_grpc(at: SocketAddr, seed: u64, clock: Clock, over: &AtomicBool) -> Vec<Talked> {
    let mut rng = Rng::seeded(seed);
    let mut client = H2Client::connect(at);
    talks("grpc", clock, over, |id, _| {
        let streams = rng.below(2) == 0;
        let messages = if streams { rng.below(6) + 1 } else { 1 };
        let messages = (0..messages).map(|turn| naming(&format!("{id} {turn}")));
        let messages: Vec<_> = messages.collect();
        let method = if streams {
            "ModelStreamInfer"
        } else {
            "ModelInfer"
        };
        let target = format!("{SERVICE}{method}");
        let headers = [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("x-request-id", id),
        ];
        let said: Vec<u8> = messages
            .iter()
            .flat_map(|message| framed(message))
            .collect();
        if rng.below(8) == 0 {
            // Leaves within its answer.
            let reading = client.open("POST", &target, &headers, &said);
            return reading.map_or(End::Unread, |_| End::Well);
        }
        let again = messages.iter().flat_map(|message| match streams {
            true => framed(&[&[0x12][..], &length_prefixed(message)].concat()),
            false => framed(message),
        });
        let called = client.try_call_for_trailers("POST", &target, &headers, &said);
        let Ok((answer, trailers)) = called else {
            client = H2Client::connect(at);
            return End::Unread;
        };
        let status = trailers.get("grpc-status").map(|status| status.as_bytes());
        match answer.body == again.collect::<Vec<_>>() && status == Some(b"0") {
            true => End::Well,
            false => End::Badly(format!(
                "{:?} {:?} {trailers:?}",
                answer.headers, answer.body
            )),
        }
    })
}

/// A request of the model, with this as its id.
fn naming(id: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    let model = [&[0x0a, length(MODEL)], MODEL.as_bytes()].concat();
    [&model[..], &[0x1a, length(id)], id.as_bytes()].concat()
}

/// One talk after the other, by its id and when it began.
fn talks(
    kind: &str,
    clock: Clock,
    over: &AtomicBool,
    mut talk: impl FnMut(&str, Seconds) -> End,
) -> Vec<Talked> {
    let mut talked = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let number = talked.len();
        park_until(&clock, Seconds(number as f64 / RATE));
        let (id, began) = (format!("{kind}-{number}"), clock.now());
        let end = talk(&id, began);
        talked.push(Talked {
            id,
            end,
            began,
            over: clock.now(),
        });
    }
    talked
}
