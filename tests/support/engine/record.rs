//! What a worker saw, byte for byte, with times on the worker's own clock.

use forebay::units::Seconds;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The connection it came on; connections are numbered from 1 in the order they were accepted.
    pub connection: u64,
    /// The head as it stood on the wire with its empty line. On h2c: pseudo-headers and headers, one a line, in order.
    pub head: Vec<u8>,
    /// The method.
    pub method: String,
    /// The target as sent.
    pub target: String,
    /// Header names (as sent) and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body as it stood on the wire, chunk framing included.
    pub raw_body: Vec<u8>,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// When its head was read.
    pub at: Seconds,
    /// When each piece of its answer's body was written.
    pub written: Vec<Seconds>,
    /// When the last byte of its answer was written.
    pub finished: Option<Seconds>,
    /// When the client was seen to have left before that.
    pub gone: Option<Seconds>,
}

impl Seen {
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

    /// Whether this is a liveness probe or a scrape and not a client's request.
    pub fn is_probe(&self) -> bool {
        super::is_asked(&self.target)
    }
}

/// One connection.
#[derive(Clone, Debug, Default)]
pub struct SeenConnection {
    /// Every byte that arrived on it (HTTP/1.1 only).
    pub bytes: Vec<u8>,
    /// When the peer closed or reset it, or the worker did.
    pub closed: Option<Seconds>,
}

/// All that a worker saw since it was started.
#[derive(Debug, Default)]
pub struct Record {
    /// Requests in the order in which their heads were read, without those that were forgotten.
    pub requests: Vec<Seen>,
    /// How many were forgotten; a request keeps its number when others are.
    pub forgotten: usize,
    /// Connections in the order in which they were accepted; number `n` stands at `n - 1`.
    pub connections: Vec<SeenConnection>,
}
