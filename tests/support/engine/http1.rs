//! HTTP/1.1 by hand: reads requests byte for byte, writes answers piece by piece, and breaks either where asked to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay::units::Seconds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::answer::{self, Answer};
use super::{Failure, Framing, Seen, Shared, is_asked};

/// How a connection ends.
enum End {
    /// With a FIN, after what was written.
    Close,
    /// With a RST.
    Reset,
}

/// What comes after an exchange.
enum Next {
    /// The next request.
    Request,
    /// Nothing.
    End(End),
}

/// Serves one connection to its end.
pub async fn serve(shared: &Arc<Shared>, stream: TcpStream, number: u64) {
    let (read, mut write) = stream.into_split();
    let mut inbound = Inbound {
        read,
        buffer: Vec::new(),
        number,
        shared: Arc::clone(shared),
    };
    let end = converse(shared, &mut inbound, &mut write).await;
    if let (Ok(End::Reset), Ok(stream)) = (end, inbound.read.reunite(write)) {
        stream.set_zero_linger().unwrap();
    }
}

/// One request after the other.
async fn converse(
    shared: &Arc<Shared>,
    inbound: &mut Inbound,
    write: &mut OwnedWriteHalf,
) -> io::Result<End> {
    let mut answers = 0;
    loop {
        let Some(target) = inbound.target().await? else {
            return Ok(End::Close);
        };
        let spared = is_asked(&target);
        let (reset_on_reuse, failure) = {
            let mut knobs = shared.knobs.lock();
            let reset_on_reuse = knobs.reset_on_reuse && answers > 0 && !spared;
            let spared = spared || reset_on_reuse;
            (
                reset_on_reuse,
                if spared { None } else { knobs.next_failure() },
            )
        };
        if reset_on_reuse || failure == Some(Failure::ResetBeforeHead) {
            return Ok(End::Reset);
        }
        match exchange(shared, inbound, write, failure).await? {
            Next::Request => answers += 1,
            Next::End(end) => return Ok(end),
        }
        if shared.knobs.lock().answers_per_connection == Some(answers) {
            return Ok(End::Close);
        }
    }
}

/// One request and its answer.
async fn exchange(
    shared: &Arc<Shared>,
    inbound: &mut Inbound,
    write: &mut OwnedWriteHalf,
    failure: Option<Failure>,
) -> io::Result<Next> {
    let Some(head) = inbound.head().await? else {
        return Ok(Next::End(End::Close));
    };
    let mut seen = parse(&head, inbound.number, shared.clock.now());
    let place = shared.note(seen.clone());
    if let Some(Failure::Early { status, close }) = failure {
        write.write_all(&early(status, close)).await?;
        if close {
            shared.amend(place, |seen, now| seen.finished = Some(now));
            return inbound.linger(write).await;
        }
    }
    if seen.header("expect") == Some("100-continue") {
        write.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let whole = inbound.body(&mut seen).await;
    shared.amend(place, |noted, now| {
        noted.body.clone_from(&seen.body);
        noted.raw_body.clone_from(&seen.raw_body);
        noted.gone = whole.is_err().then_some(now);
    });
    whole?;
    if let Some(Failure::Early { .. }) = failure {
        shared.amend(place, |seen, now| seen.finished = Some(now));
        return Ok(Next::Request);
    }
    tokio::select! {
        biased;
        next = respond(shared, place, &seen, write, failure) => {
            shared.amend(place, |seen, now| seen.finished = Some(now));
            next
        }
        () = inbound.gone() => {
            shared.amend(place, |seen, now| seen.gone = Some(now));
            Ok(Next::End(End::Close))
        }
    }
}

/// Writes the answer, as far as it is meant to come.
async fn respond(
    shared: &Arc<Shared>,
    place: usize,
    seen: &Seen,
    write: &mut OwnedWriteHalf,
    failure: Option<Failure>,
) -> io::Result<Next> {
    match failure {
        Some(Failure::ResetAfterRequest) => return Ok(Next::End(End::Reset)),
        Some(Failure::Rubbish(bytes)) => {
            write.write_all(&bytes).await?;
            return Ok(Next::End(End::Close));
        }
        Some(Failure::Stays(bytes)) => {
            write.write_all(&bytes).await?;
            return Ok(Next::Request);
        }
        _ => {}
    }
    let mut answer = answer::to(shared, seen, failure).await;
    write.write_all(head_of(&answer).as_bytes()).await?;
    let bodiless = seen.method == "HEAD" || matches!(answer.status, 204 | 304);
    if !bodiless && !write_body(shared, place, &mut answer, write).await? {
        return Ok(Next::End(End::Close));
    }
    if let Some(Failure::Stray(bytes)) = &answer.failure {
        write.write_all(bytes).await?;
    }
    let closes = seen
        .header("connection")
        .is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(if closes || answer.framing == Framing::Close {
        Next::End(End::Close)
    } else {
        Next::Request
    })
}

/// Writes the body piece by piece; false when it was cut.
async fn write_body(
    shared: &Shared,
    place: usize,
    answer: &mut Answer,
    write: &mut OwnedWriteHalf,
) -> io::Result<bool> {
    let mut written = 0;
    loop {
        match answer.failure {
            Some(Failure::CutAfter(pieces)) if pieces == written => return Ok(false),
            Some(Failure::StallAfter(pieces)) if pieces == written => std::future::pending().await,
            _ => {}
        }
        let Some(piece) = answer.body.next().await else {
            break;
        };
        if written > 0 {
            let delay = shared.knobs.lock().chunk_delay;
            tokio::time::sleep(delay).await;
        }
        shared.amend(place, |seen, now| seen.written.push(now));
        write.write_all(&framed(&piece, answer.framing)).await?;
        written += 1;
    }
    if answer.framing == Framing::Chunked {
        write.write_all(b"0\r\n\r\n").await?;
    }
    Ok(true)
}

/// A piece as it stands on the wire.
fn framed(piece: &Bytes, framing: Framing) -> Vec<u8> {
    match framing {
        Framing::Chunked => [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat(),
        Framing::Length | Framing::Close => piece.to_vec(),
    }
}

fn head_of(answer: &Answer) -> String {
    let mut head = format!("HTTP/1.1 {} {}\r\n", answer.status, reason(answer.status));
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    match (answer.framing, &answer.body) {
        _ if answer.status == 204 => {}
        (Framing::Length, answer::Body::Whole(pieces)) => {
            let length: usize = pieces.iter().map(Bytes::len).sum();
            head += &format!("content-length: {length}\r\n");
        }
        (Framing::Close, _) => head += "connection: close\r\n",
        _ => head += "transfer-encoding: chunked\r\n",
    }
    head + "\r\n"
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Unknown")
}

fn early(status: u16, close: bool) -> Vec<u8> {
    let body = "early";
    let connection = if close { "connection: close\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {}\r\ncontent-length: {}\r\n{connection}\r\n{body}",
        reason(status),
        body.len()
    )
    .into_bytes()
}

/// A request head as the record keeps it.
fn parse(head: &[u8], connection: u64, at: Seconds) -> Seen {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
    let mut start = lines.next().unwrap_or_default().split(' ');
    let mut word = || start.next().unwrap_or_default().to_owned();
    let (method, target) = (word(), word());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    Seen {
        connection,
        head: head.to_vec(),
        method,
        target,
        headers,
        raw_body: Vec::new(),
        body: Vec::new(),
        at,
        written: Vec::new(),
        finished: None,
        gone: None,
    }
}

/// The reading half of a connection. Every byte goes into the record.
struct Inbound {
    read: OwnedReadHalf,
    buffer: Vec<u8>,
    number: u64,
    shared: Arc<Shared>,
}

impl Inbound {
    /// Reads what is there; an error at the end.
    async fn more(&mut self) -> io::Result<()> {
        let before = self.buffer.len();
        if self.read.read_buf(&mut self.buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let fresh = &self.buffer[before..];
        self.shared.amend_connection(self.number, |connection, _| {
            connection.bytes.extend_from_slice(fresh);
        });
        Ok(())
    }

    /// The target of the next request, as soon as its first line is there; `None` when the peer closed before it.
    async fn target(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = position(&self.buffer, b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]);
                return Ok(line.split(' ').nth(1).map(str::to_owned));
            }
            if self.more().await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Takes the next head with its empty line; `None` when the peer closed before its end.
    async fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = position(&self.buffer, b"\r\n\r\n") {
                return Ok(Some(self.buffer.drain(..end + 4).collect()));
            }
            if self.more().await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Takes the body that the head promises, framing and all.
    async fn body(&mut self, seen: &mut Seen) -> io::Result<()> {
        if seen.header("transfer-encoding").is_some() {
            return self.chunks(seen).await;
        }
        let length = seen
            .header("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        seen.body = self.take(length).await?;
        seen.raw_body.clone_from(&seen.body);
        Ok(())
    }

    async fn chunks(&mut self, seen: &mut Seen) -> io::Result<()> {
        loop {
            let line = self.line().await?;
            let digits = String::from_utf8_lossy(&line);
            let digits = digits.trim_end().split(';').next().unwrap_or_default();
            let length = usize::from_str_radix(digits, 16)
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            let chunk = self.take(length).await?;
            seen.raw_body.extend_from_slice(&line);
            seen.raw_body.extend_from_slice(&chunk);
            seen.body.extend_from_slice(&chunk);
            let last = length == 0;
            let mut end = self.line().await?;
            while last && end != b"\r\n" {
                seen.raw_body.extend_from_slice(&end);
                end = self.line().await?;
            }
            seen.raw_body.extend_from_slice(&end);
            if last {
                return Ok(());
            }
        }
    }

    async fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = position(&self.buffer, b"\r\n") {
                return Ok(self.buffer.drain(..end + 2).collect());
            }
            self.more().await?;
        }
    }

    async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Comes back when the peer has closed or reset the connection.
    async fn gone(&mut self) {
        while self.more().await.is_ok() {}
    }

    /// Closes after an early answer the way servers do: tells the end, then reads on for a while so that the answer
    /// is not lost to a reset.
    async fn linger(&mut self, write: &mut OwnedWriteHalf) -> io::Result<Next> {
        write.shutdown().await?;
        let patience = Duration::from_secs(1);
        let _ = tokio::time::timeout(patience, self.gone()).await;
        Ok(Next::End(End::Close))
    }
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
