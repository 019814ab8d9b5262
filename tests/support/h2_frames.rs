//! An HTTP/2 client that writes frames by hand, and so what no library would write.
//!
//! Fields are literals without indexing and without Huffman codes (RFC 7541 §6.2.2), so that every byte stands on the
//! wire as it stands in the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// A field as it stands in a block.
pub fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    let length = |text: &[u8]| u8::try_from(text.len()).ok().filter(|n| *n < 127).unwrap();
    [&[0, length(name)], name, &[length(value)], value].concat()
}

/// One connection. Streams count up by themselves.
pub struct H2Frames {
    stream: TcpStream,
    number: u32,
    /// A head was begun by a flood and does not end.
    endless: bool,
}

impl H2Frames {
    /// Connects, and says the preface and empty settings.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut frames = H2Frames {
            stream,
            number: u32::MAX,
            endless: false,
        };
        frames.stream.write_all(PREFACE).unwrap();
        frames.write(SETTINGS, 0, 0, b"");
        frames
    }

    /// A whole POST on a new stream.
    pub fn post(&mut self, path: &str, fields: &[Vec<u8>], body: &[u8]) -> &mut Self {
        self.begin(path, fields);
        self.data(body, true)
    }

    /// The head of a POST on a new stream.
    pub fn begin(&mut self, path: &str, fields: &[Vec<u8>]) -> &mut Self {
        let pseudo = [
            field(b":method", b"POST"),
            field(b":scheme", b"http"),
            field(b":authority", b"proxy"),
            field(b":path", path.as_bytes()),
        ];
        let block = [pseudo.concat(), fields.concat()].concat();
        self.number = self.number.wrapping_add(2);
        self.write(HEADERS, END_HEADERS, self.number, &block);
        self
    }

    /// A piece of the stream's body.
    pub fn data(&mut self, bytes: &[u8], ends: bool) -> &mut Self {
        self.write(DATA, if ends { END_STREAM } else { 0 }, self.number, bytes);
        self
    }

    /// Gives the stream up.
    pub fn reset(&mut self) -> bool {
        self.write(RST_STREAM, 0, self.number, &8_u32.to_be_bytes())
    }

    /// One more piece of a head that does not end.
    pub fn continuation(&mut self) -> bool {
        let piece = field(b"x-more", b"and more").repeat(100);
        if self.endless {
            return self.write(CONTINUATION, 0, self.number, &piece);
        }
        self.endless = true;
        self.number = self.number.wrapping_add(2);
        self.write(HEADERS, 0, self.number, &field(b":method", b"POST"))
    }

    /// A ping that wants an answer.
    pub fn ping(&mut self) -> bool {
        self.write(PING, 0, 0, b"forebay!")
    }

    /// Settings that want to be acknowledged.
    pub fn settings(&mut self) -> bool {
        self.write(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])
    }

    /// Takes no byte of an answer from here on.
    pub fn read_nothing(&mut self) -> bool {
        self.write(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
    }

    /// A piece of the stream's body without a byte.
    pub fn nothing(&mut self) -> bool {
        self.write(DATA, 0, self.number, b"")
    }

    /// A stream that is said to matter, or not.
    pub fn priority(&mut self) -> bool {
        self.number = self.number.wrapping_add(2);
        self.write(PRIORITY, 0, self.number, &[0, 0, 0, 0, 7])
    }

    /// As much room for answers as there can be, again and again.
    pub fn window(&mut self) -> bool {
        self.write(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())
    }

    /// A small head that says a long field thousands of times (RFC 7541 §7.3).
    pub fn bomb(&mut self) -> bool {
        // A value of 4,000 bytes, kept as entry 62 of the table, and then that entry.
        let long = [&[0x40, 3][..], b"x-b", &[0x7f, 0xa1, 0x1e], &[b'x'; 4_000]].concat();
        self.number = self.number.wrapping_add(2);
        let block = [field(b":method", b"POST"), long, vec![0xbe; 12_000]].concat();
        self.write(HEADERS, END_HEADERS | END_STREAM, self.number, &block)
    }

    /// How the last stream ended: the status of its answer, or nothing when it or the connection was reset.
    pub fn outcome(&mut self) -> Option<u16> {
        loop {
            let (kind, flags, stream, payload) = self.read()?;
            match kind {
                SETTINGS if flags & ACK == 0 => drop(self.write(SETTINGS, ACK, 0, b"")),
                GOAWAY => return None,
                RST_STREAM if stream == self.number => return None,
                HEADERS if stream == self.number => return Some(status(&payload)),
                _ => {}
            }
        }
    }

    fn read(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }

    /// Writes a frame; says whether the peer still took it.
    fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.stream.write_all(&[&head, payload].concat()).is_ok()
    }
}

/// The status that a block of fields begins with: indexed (RFC 7541 appendix A, 8 to 14), or a literal under that name.
fn status(block: &[u8]) -> u16 {
    match block {
        [indexed @ 0x88..=0x8e, ..] => {
            [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)]
        }
        [_, 3, digits @ ..] => std::str::from_utf8(&digits[..3]).unwrap().parse().unwrap(),
        [_, 0x82, digits @ ..] => huffman_digits(&digits[..2]),
        _ => panic!("an answer that begins with {block:02x?}"),
    }
}

/// Three digits in Huffman's code of appendix B: five bits for 0 to 2, six for the others.
fn huffman_digits(bytes: &[u8]) -> u16 {
    let bits = u16::from_be_bytes([bytes[0], bytes[1]]);
    let mut left = 16;
    let mut number = 0;
    for _ in 0..3 {
        let five = (bits >> (left - 5)) & 0x1f;
        let digit = if five <= 2 {
            left -= 5;
            five
        } else {
            left -= 6;
            ((bits >> left) & 0x3f) - 0x19 + 3
        };
        number = number * 10 + digit;
    }
    number
}
