//! A stand-in inference engine that costs next to nothing, so that a proxy's own cost shows.
//!
//! One thread serves all the ports given as arguments. Every POST gets a chat completion of about 1 KB at once, or,
//! when its body says `"stream":true`, `max_tokens` SSE events with a pause between them that `PUT /pause/MS` sets.
//! Every GET is good news: health, models, and what routers ask of an engine before they use it.
#![expect(clippy::print_stdout, reason = "it says when it is ready")]

mod wire;

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

const DESCRIPTION: &str = r#"{"object":"list","data":[{"id":"m","object":"model","created":1790000000,"owned_by":"bench","max_model_len":32768}],"status":"ok","version":"0.11.0","model_path":"m","served_model_name":"m","tokenizer_path":"m","is_generation":true,"tp_size":1,"dp_size":1,"max_total_num_tokens":1000000}"#;
const EVENT: &str = "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" water\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
const STREAM_END: &str = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

/// What all connections share.
struct Engine {
    completion: String,
    pause: Cell<Duration>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, serve())
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let text = "Water finds its way. ".repeat(38);
    let completion = format!(
        r#"{{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1790000000,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":200,"completion_tokens":160,"total_tokens":360}}}}"#
    );
    let engine = Rc::new(Engine {
        completion: sized(&completion),
        pause: Cell::new(Duration::ZERO),
    });
    for port in std::env::args().skip(1) {
        let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
        spawn_local(accept(listener, Rc::clone(&engine)));
    }
    println!("ready");
    std::future::pending().await
}

/// A whole answer of known length.
fn sized(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn accept(listener: TcpListener, engine: Rc<Engine>) {
    while let Ok((stream, _)) = listener.accept().await {
        spawn_local(answer_all(stream, Rc::clone(&engine)));
    }
}

async fn answer_all(mut stream: TcpStream, engine: Rc<Engine>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(8192);
    while let Some((head, whole)) = request(&mut stream, &mut buffer).await? {
        let (text, body) = (&buffer[..head], &buffer[head..whole]);
        if text.starts_with(b"POST") && memmem::find(body, b"\"stream\":true").is_some() {
            events(&mut stream, body, engine.pause.get()).await?;
        } else if text.starts_with(b"POST") {
            stream.write_all(engine.completion.as_bytes()).await?;
        } else {
            if let Some(pause) = pause(text) {
                engine.pause.set(pause);
            }
            stream.write_all(sized(DESCRIPTION).as_bytes()).await?;
        }
        buffer.drain(..whole);
    }
    Ok(())
}

/// Reads one request to its end: the length of its head, and of head and body. `None` once the peer is done.
async fn request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(usize, usize)>> {
    loop {
        if let Some(head) = wire::head_length(buffer) {
            let length =
                wire::header(&buffer[..head], "content-length").map_or(Ok(0), str::parse::<usize>);
            let whole = head + length.map_err(|_| wire::broken("content-length"))?;
            if wire::header(&buffer[..head], "transfer-encoding").is_some() {
                return Err(wire::broken(
                    "this engine reads bodies of known length only",
                ));
            }
            if buffer.len() >= whole {
                return Ok(Some((head, whole)));
            }
            buffer.reserve(whole - buffer.len());
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// `PUT /pause/20` → 20 ms.
fn pause(head: &[u8]) -> Option<Duration> {
    let digits = head
        .strip_prefix(b"PUT /pause/")?
        .split(|byte| *byte == b' ')
        .next()?;
    std::str::from_utf8(digits)
        .ok()?
        .parse()
        .ok()
        .map(Duration::from_millis)
}

async fn events(stream: &mut TcpStream, body: &[u8], pause: Duration) -> io::Result<()> {
    let chunk = format!("{:x}\r\n{EVENT}\r\n", EVENT.len());
    stream
        .write_all(format!("{STREAM_HEAD}{chunk}").as_bytes())
        .await?;
    let mut beat = tokio::time::interval(pause.max(Duration::from_millis(1)));
    beat.tick().await;
    for _ in 1..max_tokens(body) {
        beat.tick().await;
        stream.write_all(chunk.as_bytes()).await?;
    }
    stream.write_all(STREAM_END.as_bytes()).await
}

fn max_tokens(body: &[u8]) -> usize {
    const KEY: &[u8] = b"\"max_tokens\":";
    let Some(at) = memmem::find(body, KEY) else {
        return 16;
    };
    let digits = body[at + KEY.len()..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}
