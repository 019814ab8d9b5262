//! TLS greetings byte by byte (RFC 5246 §7.4.1.2), for what no library offers any more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// Extensions, by their numbers.
pub const HEARTBEAT: u16 = 15;
pub const EXTENDED_MASTER_SECRET: u16 = 23;
pub const RENEGOTIATION_INFO: u16 = 0xff01;

/// TLS 1.2, as it stands in greetings.
pub const TLS_1_2: u16 = 0x0303;

/// What a client says first.
pub struct Greeting {
    /// The newest version that it speaks.
    pub version: u16,
    /// Ciphers.
    pub suites: Vec<u16>,
    /// Compressions; zero is none.
    pub compressions: Vec<u8>,
}

/// What a server says to it.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// An alert that ends it, by its number.
    Refused(u8),
    /// The parameters.
    Agreed(Agreed),
}

/// The parameters that a server chose.
#[derive(Debug, PartialEq, Eq)]
pub struct Agreed {
    pub version: u16,
    pub random: Vec<u8>,
    pub suite: u16,
    pub compression: u8,
    /// Extensions, with what they say.
    pub extensions: Vec<(u16, Vec<u8>)>,
}

/// So many bytes behind their length, which has two.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length, bytes].concat()
}

impl Greeting {
    /// Of TLS 1.2, with these ciphers.
    pub fn offering(suites: &[u16]) -> Self {
        Greeting {
            version: TLS_1_2,
            suites: suites.to_vec(),
            compressions: vec![0],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let suites: Vec<u8> = self
            .suites
            .iter()
            .copied()
            .flat_map(u16::to_be_bytes)
            .collect();
        let extension =
            |number: u16, said: &[u8]| [&number.to_be_bytes()[..], &sized(said)].concat();
        let extensions = [
            // P-256 and X25519; points as they are; ECDSA with SHA-256, RSA with SHA-256 in both its forms.
            extension(10, &sized(&[0, 23, 0, 29])),
            extension(11, &[1, 0]),
            extension(13, &sized(&[4, 3, 8, 4, 4, 1])),
            extension(HEARTBEAT, &[1]),
            extension(EXTENDED_MASTER_SECRET, &[]),
            extension(RENEGOTIATION_INFO, &[0]),
        ];
        let hello = [
            &self.version.to_be_bytes()[..],
            &[7; 32],
            &[0],
            &sized(&suites),
            &[u8::try_from(self.compressions.len()).unwrap()],
            &self.compressions,
            &sized(&extensions.concat()),
        ]
        .concat();
        // A message with its length in three bytes, within a record.
        let message = [&[1, 0][..], &sized(&hello)].concat();
        [&[22, 3, 1][..], &sized(&message)].concat()
    }

    /// Says it, and hears the first of what comes back.
    pub fn send(&self, there: SocketAddr) -> Reply {
        let mut stream = TcpStream::connect(there).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&self.bytes()).unwrap();
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        stream.read_exact(&mut record).unwrap();
        match (head[0], &record[..]) {
            (21, &[2, alert]) => Reply::Refused(alert),
            (22, [2, ..]) => Reply::Agreed(Agreed::read(&record[4..])),
            other => panic!("{other:?} is no answer to a greeting"),
        }
    }
}

impl Agreed {
    fn read(mut hello: &[u8]) -> Self {
        let mut take = |length: usize| {
            let (taken, rest) = hello.split_at(length);
            hello = rest;
            taken.to_vec()
        };
        let version = number(&take(2));
        let random = take(32);
        let session = usize::from(take(1)[0]);
        take(session);
        let (suite, compression) = (number(&take(2)), take(1)[0]);
        let mut left = usize::from(number(&take(2)));
        let mut extensions = Vec::new();
        while left > 0 {
            let (kind, length) = (number(&take(2)), usize::from(number(&take(2))));
            extensions.push((kind, take(length)));
            left -= 4 + length;
        }
        Agreed {
            version,
            random,
            suite,
            compression,
            extensions,
        }
    }

    /// What an extension says, if it is there.
    pub fn says(&self, number: u16) -> Option<&[u8]> {
        let mut found = self.extensions.iter().filter(|(kind, _)| *kind == number);
        Some(&found.next()?.1)
    }
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}
