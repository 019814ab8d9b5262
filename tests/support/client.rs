//! An HTTP/1.1 client that sends exactly the bytes it is given and shows exactly the bytes that come back.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::PATIENCE;

/// One connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The head as it stood on the wire, with its empty line.
    pub head: Vec<u8>,
    /// Header names (as sent) and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// Sizes of the chunks it came in, when it came in chunks.
    pub chunks: Vec<usize>,
    /// Whether the framing says that this is all of it.
    pub complete: bool,
}

impl Answer {
    /// All values of a header, in order; names match in any case.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(sent, _)| sent.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The one value of a header; `None` when it is missing or doubled.
    pub fn header(&self, name: &str) -> Option<&str> {
        match self.all(name)[..] {
            [value] => Some(value),
            _ => None,
        }
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|problem| {
            panic!("{problem}: {:?}", String::from_utf8_lossy(&self.body))
        })
    }

    /// Whether its connection may be used again.
    pub fn keeps_its_connection(&self) -> bool {
        self.complete && self.header("connection") != Some("close")
    }

    /// `x-forebay-reason`.
    pub fn reason(&self) -> Option<&str> {
        self.header("x-forebay-reason")
    }
}

/// The bytes of a request. `host` and `content-length` are added unless the headers have their own framing.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nhost: proxy\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let framed = headers.iter().any(|(name, _)| {
        name.eq_ignore_ascii_case("content-length")
            || name.eq_ignore_ascii_case("transfer-encoding")
    });
    if !framed && (method == "POST" || !body.is_empty()) {
        head += &format!("content-length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// A body in chunks of these pieces.
pub fn chunked(pieces: &[&[u8]]) -> Vec<u8> {
    let mut wire = Vec::new();
    for piece in pieces {
        wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        wire.extend_from_slice(piece);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}

impl Client {
    /// Connects.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Client::try_connect(address).unwrap()
    }

    /// Connects, if somebody listens.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        Client::over(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    /// Connects from one of this machine's addresses.
    #[track_caller]
    pub fn connect_from(here: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((here, 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Client::over(socket.into()).unwrap()
    }

    fn over(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream,
            buffer: Vec::new(),
        })
    }

    /// Connects, to wait so long for bytes.
    #[track_caller]
    pub fn patient(address: SocketAddr, patience: Duration) -> Self {
        let client = Client::connect(address);
        client.stream.set_read_timeout(Some(patience)).unwrap();
        client
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.stream.write_all(bytes).unwrap();
        self
    }

    /// Sends bytes to a peer that may have closed; says whether all were taken.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends a request and reads its answer.
    #[track_caller]
    pub fn call(&mut self, method: &str, target: &str, body: &str) -> Answer {
        self.call_with(method, target, &[], body.as_bytes())
    }

    /// Sends a request with headers and reads its answer.
    #[track_caller]
    pub fn call_with(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.send(&request(method, target, headers, body));
        if method == "HEAD" {
            self.head()
        } else {
            self.answer()
        }
    }

    /// Sends a request and reads its answer, as far as it comes; `None` when the peer closed before its head.
    pub fn try_call(&mut self, method: &str, target: &str, body: &str) -> Option<Answer> {
        self.try_send(&request(method, target, &[], body.as_bytes()));
        let mut answer = self.try_head()?;
        self.finish(&mut answer);
        Some(answer)
    }

    /// Says that nothing more will be sent, if the peer is still there.
    pub fn half_close(&mut self) {
        if let Err(problem) = self.stream.shutdown(Shutdown::Write) {
            assert_eq!(problem.kind(), std::io::ErrorKind::NotConnected);
        }
    }

    /// Reads a head; the body stays unread.
    #[track_caller]
    pub fn head(&mut self) -> Answer {
        self.try_head().expect("a whole head")
    }

    /// Reads a head, if the peer does not close before its end.
    pub fn try_head(&mut self) -> Option<Answer> {
        let end = self.read_until(b"\r\n\r\n")?;
        let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let text = String::from_utf8(head.clone()).unwrap();
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        let start = lines.next().unwrap();
        let status = start.split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim_start().to_owned()))
            .collect();
        Some(Answer {
            status,
            head,
            headers,
            body: Vec::new(),
            chunks: Vec::new(),
            complete: false,
        })
    }

    /// Reads an answer to its end, or as far as it comes. Interim answers are passed over.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        while answer.status == 100 {
            answer = self.head();
        }
        self.finish(&mut answer);
        answer
    }

    /// Reads what is left of an answer, as far as it comes.
    #[track_caller]
    pub fn finish(&mut self, answer: &mut Answer) {
        if answer.header("transfer-encoding").is_some() {
            while self.chunk(answer) {}
        } else if matches!(answer.status, 204 | 304) {
            answer.complete = true;
        } else if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            answer.body = self.take(length);
            answer.complete = answer.body.len() == length;
        } else {
            answer.body = self.rest();
            answer.complete = true;
        }
    }

    /// Reads one more chunk into the answer; false at its end, proper or not.
    #[track_caller]
    pub fn chunk(&mut self, answer: &mut Answer) -> bool {
        let Some(end) = self.read_until(b"\r\n") else {
            return false;
        };
        let digits = std::str::from_utf8(&self.buffer[..end]).unwrap();
        let length = usize::from_str_radix(digits, 16).unwrap();
        let whole = end + 2 + length + 2;
        while self.buffer.len() < whole && self.more() {}
        let here = self.buffer.len().min(whole);
        let chunk: Vec<u8> = self
            .buffer
            .drain(..here)
            .skip(end + 2)
            .take(length)
            .collect();
        if length == 0 {
            answer.complete = here == whole;
        } else {
            answer.chunks.push(chunk.len());
        }
        answer.body.extend_from_slice(&chunk);
        length > 0 && here == whole
    }

    /// So many bytes, or fewer when the peer closes before.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length && self.more() {}
        let taken = self.buffer.len().min(length);
        self.buffer.drain(..taken).collect()
    }

    /// Everything until the peer closes.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.buffer)
    }

    /// Whether the peer has closed, or closes in time, without another byte.
    pub fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.more() && self.buffer.is_empty()
    }

    /// Reads until a mark stands in the buffer; its place, or `None` when the peer closed before it.
    fn read_until(&mut self, mark: &[u8]) -> Option<usize> {
        let mut looked = 0;
        loop {
            let found = self.buffer[looked..]
                .windows(mark.len())
                .position(|window| window == mark);
            if let Some(place) = found {
                return Some(looked + place);
            }
            looked = self.buffer.len().saturating_sub(mark.len() - 1);
            if !self.more() {
                return None;
            }
        }
    }

    /// Reads what is there; false at the end. Waiting in vain fails the test.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                count > 0
            }
            Err(problem) => {
                let reset = problem.kind() == std::io::ErrorKind::ConnectionReset;
                assert!(reset, "waited in vain for bytes: {problem}");
                false
            }
        }
    }
}
