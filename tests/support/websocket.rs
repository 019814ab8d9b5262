//! WebSockets by hand (RFC 6455): a worker that speaks them, and a client that sees every byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;

use super::client::Client;

/// What the key of every client here is, and of no two ends in earnest.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// What a server hashes behind a key (RFC 6455 §1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Opcodes.
pub const TEXT: u8 = 1;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// A frame: its opcode and payload.
pub type Frame = (u8, Vec<u8>);

/// A worker that says every frame again. It runs until the test ends.
///
/// Five texts mean something else to it: `bye` closes as RFC 6455 has it, `die` closes without a word, `hush` is the last
/// that it answers in any way, `half` is answered by the head of a frame whose payload never comes, `refuse` is what its
/// path ends in when it answers 403.
pub struct EchoWorker {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    ended: Arc<Mutex<usize>>,
}

impl EchoWorker {
    /// Listens.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let worker = EchoWorker {
            address: listener.local_addr().unwrap(),
            heads: Arc::default(),
            ended: Arc::default(),
        };
        let (heads, ended) = (worker.heads.clone(), worker.ended.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (heads, ended) = (heads.clone(), ended.clone());
                std::thread::spawn(move || {
                    // Whoever leaves has left; the test sees it by the count.
                    let _ = serve(stream, &heads);
                    *ended.lock() += 1;
                });
            }
        });
        worker
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as the configuration says it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads that it was sent.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    /// How many connections have ended.
    pub fn ended(&self) -> usize {
        *self.ended.lock()
    }
}

fn serve(stream: TcpStream, heads: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut write = stream.try_clone()?;
    let mut read = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if read.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    heads.lock().push(head.clone());
    let refuses = head
        .lines()
        .next()
        .is_some_and(|line| line.contains("refuse"));
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("sec-websocket-key: "));
    let (Some(key), false) = (key, refuses) else {
        return write.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
    };
    let hash = ring::digest::digest(
        &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{GUID}").as_bytes(),
    );
    let accept = STANDARD.encode(hash.as_ref());
    write.write_all(
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\nx-of-the-worker: 1\r\n\r\n"
        )
        .as_bytes(),
    )?;
    loop {
        match read_frame(&mut read)? {
            (CLOSE, payload) => return write.write_all(&frame(CLOSE, &payload, false)),
            (PING, payload) => write.write_all(&frame(PONG, &payload, false))?,
            (_, payload) if payload == b"bye" => {
                write.write_all(&frame(CLOSE, &1000_u16.to_be_bytes(), false))?;
                // The client's own close, or its end.
                return read_frame(&mut read).map(drop);
            }
            (_, payload) if payload == b"die" => return Ok(()),
            (_, payload) if payload == b"hush" => loop {
                read_frame(&mut read)?;
            },
            (_, payload) if payload == b"half" => write.write_all(&[0x80 | TEXT, 4])?,
            (opcode, payload) => write.write_all(&frame(opcode, &payload, false))?,
        }
    }
}

/// A frame as it stands on the wire, masked as clients have to.
pub fn frame(opcode: u8, payload: &[u8], masked: bool) -> Vec<u8> {
    let bit = if masked { 0x80 } else { 0 };
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        short @ 0..126 => bytes.push(bit | short as u8),
        long => {
            bytes.push(bit | 127);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    let mask = [0x11, 0x22, 0x33, 0x44];
    if masked {
        bytes.extend(mask);
        bytes.extend(
            payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
    } else {
        bytes.extend(payload);
    }
    bytes
}

fn read_frame(read: &mut impl Read) -> std::io::Result<Frame> {
    let mut head = [0; 2];
    read.read_exact(&mut head)?;
    let length = match head[1] & 0x7f {
        126 => {
            let mut length = [0; 2];
            read.read_exact(&mut length)?;
            u64::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            read.read_exact(&mut length)?;
            u64::from_be_bytes(length)
        }
        short => u64::from(short),
    };
    let mut mask = [0; 4];
    if head[1] & 0x80 != 0 {
        read.read_exact(&mut mask)?;
    }
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    read.read_exact(&mut payload)?;
    let unmasked = payload
        .iter()
        .zip(mask.iter().cycle())
        .map(|(byte, mask)| byte ^ mask);
    Ok((head[0] & 0x0f, unmasked.collect()))
}

/// The head of a request for a WebSocket.
pub fn asking(target: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nhost: proxy\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n\r\n"
    )
}

/// A client whose WebSocket is open.
pub struct Socket {
    client: Client,
}

impl Socket {
    /// Asks, and expects to be given one.
    #[track_caller]
    pub fn open(mut client: Client, target: &str) -> Self {
        let head = client.send(asking(target).as_bytes()).head();
        assert_eq!(head.status, 101, "{}", String::from_utf8_lossy(&head.head));
        assert_eq!(
            head.header("sec-websocket-accept"),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        assert_eq!(head.header("upgrade"), Some("websocket"));
        assert_eq!(head.header("connection"), Some("upgrade"));
        Socket { client }
    }

    /// Asks under this id; none when it is given no WebSocket.
    pub fn ask(mut client: Client, target: &str, id: &str) -> Option<Self> {
        let named = format!("x-request-id: {id}\r\n\r\n");
        let head = asking(target).replace("\r\n\r\n", &format!("\r\n{named}"));
        client.try_send(head.as_bytes());
        let head = client.try_head()?;
        (head.status == 101).then_some(Socket { client })
    }

    /// Sends a frame.
    #[track_caller]
    pub fn send(&mut self, opcode: u8, payload: &[u8]) -> &mut Self {
        self.client.send(&frame(opcode, payload, true));
        self
    }

    /// Sends bytes that are no whole frame.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.client.send(bytes);
    }

    /// The next so many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.client.take(count)
    }

    /// Sends a frame to a proxy that may have closed; says whether it was taken.
    pub fn try_send(&mut self, opcode: u8, payload: &[u8]) -> bool {
        self.client.try_send(&frame(opcode, payload, true))
    }

    /// The next frame; nothing once the proxy has closed.
    pub fn next(&mut self) -> Option<Frame> {
        read_frame(&mut &mut self.client).ok()
    }

    /// Sends a text and expects to hear it again.
    #[track_caller]
    pub fn echo(&mut self, text: &str) {
        self.send(TEXT, text.as_bytes());
        assert_eq!(self.next(), Some((TEXT, text.as_bytes().to_vec())));
    }

    /// The code of the close that comes next.
    #[track_caller]
    pub fn closed_with(&mut self) -> u16 {
        let (opcode, payload) = self.next().expect("a close frame");
        assert_eq!(opcode, CLOSE, "{payload:?}");
        u16::from_be_bytes([payload[0], payload[1]])
    }
}

impl Read for &mut Client {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let bytes = Client::take(self, buf.len());
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}
