//! A name server over UDP that says what a test tells it to.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// What it says when it is asked for IPv4 addresses; to all else it has no answer.
#[derive(Clone, Debug)]
pub enum Says {
    /// These, each valid for a second.
    Addresses(Vec<Ipv4Addr>),
    /// That there are none.
    Empty,
    /// That the name does not exist.
    NoSuchName,
    /// That it can't tell.
    ServFail,
    /// Nothing.
    Silence,
}

/// A running name server. Its thread ends with the process.
pub struct NameServer {
    /// Where it is asked.
    pub address: SocketAddr,
    says: Arc<Mutex<Says>>,
    asked: Arc<AtomicUsize>,
}

impl NameServer {
    /// One that says this for every name.
    pub fn start(says: Says) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = NameServer {
            address: socket.local_addr().unwrap(),
            says: Arc::new(Mutex::new(says)),
            asked: Arc::default(),
        };
        let (says, asked) = (server.says.clone(), server.asked.clone());
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut query) {
                asked.fetch_add(1, Ordering::Relaxed);
                if let Some(answer) = answer(&query[..length], &says.lock()) {
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        server
    }

    /// What it says from now on. Returns once it was asked since, so that it has been heard.
    pub fn say(&self, says: Says) {
        *self.says.lock() = says;
        let before = self.asked.load(Ordering::Relaxed);
        super::expect_soon("the name server is asked", || {
            self.asked.load(Ordering::Relaxed) > before + 2
        });
    }
}

/// A message of RFC 1035 §4 in answer to one with a single question.
fn answer(query: &[u8], says: &Says) -> Option<Vec<u8>> {
    let question_end = 12 + query[12..].iter().position(|byte| *byte == 0)? + 5;
    let asks_ipv4 = query[question_end - 4..question_end - 2] == [0, 1];
    let none = Vec::new();
    let (addresses, code) = match says {
        Says::Silence => return None,
        Says::Addresses(addresses) if asks_ipv4 => (addresses, 0),
        Says::Addresses(_) | Says::Empty => (&none, 0),
        Says::ServFail => (&none, 2),
        Says::NoSuchName => (&none, 3),
    };
    let mut message = query[..question_end].to_vec();
    message[2..12].copy_from_slice(&[0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
    message[7] = u8::try_from(addresses.len()).unwrap();
    for address in addresses {
        // The name by reference, type A, class IN, TTL of a second, four bytes.
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        message.extend(address.octets());
    }
    Some(message)
}
