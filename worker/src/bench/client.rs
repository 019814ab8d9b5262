//! A client that keeps so many requests in flight: each connection sends its next request when it has its answer.
//!
//! Every connection counts whole exchanges only, from after its first, which finds nothing in line, to the one that was
//! under way when the time was up; its rate is their number by the time they took. To count what is answered within a
//! fixed time instead would be off by a whole batch at either end, which is most of what a slow model answers in it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::units::Seconds;

/// The most of a refusal that is repeated.
const REFUSAL: usize = 300;

/// A request as it is sent: the head's lines without its end, and the body.
pub struct Request {
    /// Where to.
    pub path: String,
    /// Headers of its own, each line with its end.
    pub headers: String,
    /// What.
    pub body: Vec<u8>,
}

/// What was seen of a load.
pub struct Seen {
    /// Answers a second.
    pub rate: f64,
    /// How long each took.
    pub latencies: Vec<Seconds>,
}

/// A thread's worth of client.
pub struct Client {
    address: SocketAddr,
    runtime: Runtime,
    clock: Clock,
}

impl Client {
    /// A client of the worker at this address.
    pub fn new(address: SocketAddr, clock: Clock) -> std::io::Result<Client> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        Ok(Client {
            address,
            runtime: runtime.enable_io().build()?,
            clock,
        })
    }

    /// Keeps so many of this request in flight for at least so long.
    pub fn drive(
        &self,
        request: &Request,
        concurrency: usize,
        window: Seconds,
    ) -> Result<Seen, String> {
        let bytes: Arc<[u8]> = self.bytes(request).into();
        let (address, clock) = (self.address, self.clock);
        self.runtime.block_on(async {
            let mut connections = JoinSet::new();
            for _ in 0..concurrency {
                connections.spawn(connection(address, Arc::clone(&bytes), window, clock));
            }
            let mut seen = Seen {
                rate: 0.0,
                latencies: Vec::new(),
            };
            while let Some(ended) = connections.join_next().await {
                let latencies = ended.map_err(|error| error.to_string())??;
                let took: f64 = latencies.iter().map(|latency| latency.0).sum();
                seen.rate += latencies.len() as f64 / took;
                seen.latencies.extend(latencies);
            }
            Ok(seen)
        })
    }

    fn bytes(&self, request: &Request) -> Vec<u8> {
        let Request {
            path,
            headers,
            body,
        } = request;
        let (address, length) = (self.address, body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {length}\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }
}

/// The latencies of one connection; at least one.
async fn connection(
    address: SocketAddr,
    request: Arc<[u8]>,
    window: Seconds,
    clock: Clock,
) -> Result<Vec<Seconds>, String> {
    let stream = TcpStream::connect(address).await.map_err(broken)?;
    stream.set_nodelay(true).map_err(broken)?;
    let mut line = Line {
        stream,
        buffer: Vec::new(),
    };
    line.exchange(&request).await?;
    let begin = clock.now();
    let (mut latencies, mut before) = (Vec::new(), begin);
    while latencies.is_empty() || before - begin < window {
        line.exchange(&request).await?;
        let now = clock.now();
        latencies.push(now - before);
        before = now;
    }
    Ok(latencies)
}

/// A connection that is kept.
struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    /// Sends the request and reads the whole answer, which has to be a 200.
    async fn exchange(&mut self, request: &[u8]) -> Result<(), String> {
        self.stream.write_all(request).await.map_err(broken)?;
        self.buffer.clear();
        loop {
            if let Some(answer) = Answer::read(&self.buffer)? {
                return answer.check();
            }
            let read = self.stream.read_buf(&mut self.buffer).await;
            if read.map_err(broken)? == 0 {
                return Err("the worker closed the connection inside an answer".into());
            }
        }
    }
}

fn broken(error: std::io::Error) -> String {
    format!("the connection to the worker: {error}")
}

/// A whole answer of the worker's, which tells its length.
struct Answer<'a> {
    head: &'a str,
    body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// The answer, once it is there to its end. One whose end nothing tells would be waited for without end.
    fn read(bytes: &'a [u8]) -> Result<Option<Answer<'a>>, String> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let (head, body) = bytes.split_at(end + 4);
        let head = std::str::from_utf8(head).unwrap_or_default();
        let mut headers = head.lines().filter_map(|line| line.split_once(": "));
        let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length: Option<usize> = length.and_then(|(_, length)| length.parse().ok());
        let Some(length) = length else {
            return Err("the worker's answer does not tell its length".into());
        };
        Ok((body.len() >= length).then_some(Answer { head, body }))
    }

    fn check(&self) -> Result<(), String> {
        match self.head.get(9..12) {
            Some("200") => Ok(()),
            status => {
                let said = String::from_utf8_lossy(self.body);
                let said: String = said.chars().take(REFUSAL).collect();
                let status = status.unwrap_or("nothing");
                Err(format!("the worker answered {status}: {said}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_it_is_whole() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for cut in 0..whole.len() {
            let read = Answer::read(&whole[..cut]).unwrap();
            assert!(read.is_none(), "cut at {cut}");
        }
        let answer = Answer::read(whole).unwrap().unwrap();
        assert_eq!(answer.check(), Ok(()));
    }

    #[test]
    fn an_answer_without_a_length_is_not_waited_for() {
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let said = Answer::read(chunked)
            .map(|read| read.is_some())
            .unwrap_err();
        assert!(said.contains("does not tell its length"), "{said}");
    }

    #[test]
    fn a_refusal_is_repeated() {
        let bytes = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\nwhy!";
        let answer = Answer::read(bytes).unwrap().unwrap();
        let said = answer.check().unwrap_err();
        assert_eq!(said, "the worker answered 400: why!");
    }
}
