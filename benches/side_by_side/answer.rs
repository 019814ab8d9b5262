//! Reads one answer piece by piece and counts the SSE events in it.

use std::io;

use crate::wire;

/// An answer on its way in.
#[derive(Default)]
pub struct Answer {
    buffer: Vec<u8>,
    status: u16,
    closes: bool,
    events: u64,
    after_newline: bool,
    state: State,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Body(usize),
    ChunkSize,
    Chunk(usize),
    ChunkEnd,
    LastChunk,
    Complete,
}

impl Answer {
    /// Where what was read goes; [`Answer::advance`] takes it from there.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Whether all of it has been read.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Its status; 0 before the head was read.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the other side will close the connection after it.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Whether an event was seen before.
    pub fn has_events(&self) -> bool {
        self.events > 0
    }

    /// Remembers that these events were seen.
    pub fn saw(&mut self, events: u64) {
        self.events += events;
    }

    /// Goes as far as the buffer reaches; gives the events that ended in it.
    pub fn advance(&mut self) -> io::Result<u64> {
        let (mut at, mut events) = (0, 0);
        while let Some((used, next)) = self.step(at)? {
            if matches!(self.state, State::Body(_) | State::Chunk(_)) {
                events += self.events_in(at, at + used);
            }
            (at, self.state) = (at + used, next);
        }
        self.buffer.drain(..at);
        Ok(events)
    }

    /// How many bytes the current state takes from `at` on and what comes next; `None` when it needs more of them.
    fn step(&mut self, at: usize) -> io::Result<Option<(usize, State)>> {
        let rest = &self.buffer[at..];
        Ok(match self.state {
            State::Head => match wire::head_length(rest) {
                None => None,
                Some(length) => Some((length, self.head(at, length)?)),
            },
            State::Body(0) => Some((0, State::Complete)),
            State::Body(left) => take(rest, left).map(|used| (used, State::Body(left - used))),
            State::Chunk(0) => Some((0, State::ChunkEnd)),
            State::Chunk(left) => take(rest, left).map(|used| (used, State::Chunk(left - used))),
            State::ChunkEnd => (rest.len() >= 2).then_some((2, State::ChunkSize)),
            State::LastChunk => (rest.len() >= 2).then_some((2, State::Complete)),
            State::ChunkSize => match memchr::memchr(b'\n', rest) {
                None => None,
                Some(end) => Some((end + 1, chunk(&rest[..end])?)),
            },
            State::Complete => None,
        })
    }

    fn head(&mut self, at: usize, length: usize) -> io::Result<State> {
        let head = &self.buffer[at..at + length];
        let status = head
            .get(9..12)
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        self.status = status.ok_or_else(|| wire::broken("status line"))?;
        self.closes = wire::header(head, "connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if wire::header(head, "transfer-encoding").is_some() {
            return Ok(State::ChunkSize);
        }
        let length = wire::header(head, "content-length").and_then(|digits| digits.parse().ok());
        length
            .map(State::Body)
            .ok_or_else(|| wire::broken("an answer without a length"))
    }

    /// Empty lines between `from` and `to`; each ends an event.
    fn events_in(&mut self, from: usize, to: usize) -> u64 {
        let mut events = 0;
        for byte in &self.buffer[from..to] {
            events += u64::from(*byte == b'\n' && self.after_newline);
            self.after_newline = *byte == b'\n';
        }
        events
    }
}

/// As much of `left` as there is, but not nothing.
fn take(rest: &[u8], left: usize) -> Option<usize> {
    (!rest.is_empty()).then_some(left.min(rest.len()))
}

fn chunk(line: &[u8]) -> io::Result<State> {
    let digits = std::str::from_utf8(line).unwrap_or_default().trim();
    match usize::from_str_radix(digits, 16) {
        Ok(0) => Ok(State::LastChunk),
        Ok(size) => Ok(State::Chunk(size)),
        Err(_) => Err(wire::broken("chunk size")),
    }
}
