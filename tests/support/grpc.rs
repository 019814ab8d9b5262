//! A worker that speaks KServe's gRPC service (h2c), as far as passing calls on needs one: it says again what it hears.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use forebay::facts::{first_message, length_prefixed};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// Where a call stands.
pub const SERVICE: &str = "/inference.GRPCInferenceService/";

/// What it was asked.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The path.
    pub path: String,
    /// The fields of its head.
    pub fields: HeaderMap,
    /// Its messages so far, without their prefixes.
    pub messages: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Shared {
    heard: Vec<Heard>,
    /// What the next calls end with at once, and how many.
    fails: (u16, u32),
    /// Breaks streams behind so many messages.
    cuts: Option<usize>,
}

/// A running worker. It lives as long as the test.
pub struct GrpcWorker {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

/// A message behind its prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// A request of a model: its name, and something behind it.
pub fn naming(model: &str) -> Vec<u8> {
    let length = u8::try_from(model.len()).unwrap();
    [&[0x0a, length][..], model.as_bytes(), &[0x1a, 2], b"id"].concat()
}

impl GrpcWorker {
    /// Listens.
    pub fn start() -> Self {
        GrpcWorker::at(0).unwrap()
    }

    /// Listens on this port, if nobody else does.
    pub fn at(port: u16) -> Option<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        listener.set_nonblocking(true).unwrap();
        let worker = GrpcWorker {
            address: listener.local_addr().unwrap(),
            shared: Arc::default(),
        };
        let shared = worker.shared.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        std::thread::spawn(move || runtime.block_on(accept(listener, shared)));
        Some(worker)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as the configuration says it.
    pub fn url(&self) -> String {
        format!("h2c://{}", self.address)
    }

    /// Fails the next calls with this status.
    pub fn fail(&self, status: u16, times: u32) {
        self.shared.lock().fails = (status, times);
    }

    /// Breaks streams behind so many messages.
    pub fn cut(&self, after: usize) {
        self.shared.lock().cuts = Some(after);
    }

    /// What it was asked.
    pub fn heard(&self) -> Vec<Heard> {
        self.shared.lock().heard.clone()
    }
}

/// A stream of a client's that goes on while its answer comes.
pub struct Talk {
    runtime: Runtime,
    says: Option<mpsc::Sender<Result<Frame<Bytes>, &'static str>>>,
    hears: Incoming,
}

impl Talk {
    /// Begins one on a connection of its own; comes back with the head of its answer.
    pub fn open(proxy: SocketAddr, path: &str) -> Self {
        let builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = { builder }.worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let (says, pieces) = mpsc::channel(1);
        let request = Request::post(format!("http://{proxy}{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Pieces(pieces))
            .unwrap();
        let hears = runtime.block_on(async {
            let stream = TcpStream::connect(proxy).await.unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .unwrap();
            #[expect(clippy::disallowed_methods, reason = "ends with the runtime")]
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap().into_body()
        });
        Talk {
            runtime,
            says: Some(says),
            hears,
        }
    }

    /// Says this; the message that comes back, with its prefix.
    pub fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        let piece = Frame::data(Bytes::copy_from_slice(bytes));
        let says = self.says.clone().unwrap();
        self.runtime.block_on(async {
            says.send(Ok(piece)).await.unwrap();
            let mut heard = Vec::new();
            while first_message(&heard).unwrap().is_none() {
                let frame = self.hears.frame().await.unwrap().unwrap();
                heard.extend_from_slice(&frame.into_data().unwrap());
            }
            heard
        })
    }

    /// Ends its side; the status of the other's end.
    pub fn end(&mut self) -> String {
        self.says = None;
        self.ended_with()
    }

    /// The status of the other's end, which comes though this side goes on.
    pub fn ended_with(&mut self) -> String {
        self.runtime.block_on(async {
            loop {
                let frame = self.hears.frame().await.expect("trailers").unwrap();
                if let Ok(trailers) = frame.into_trailers() {
                    return trailers["grpc-status"].to_str().unwrap().to_owned();
                }
            }
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "tasks end with their connections, and those with the test"
)]
async fn accept(listener: std::net::TcpListener, shared: Arc<Mutex<Shared>>) {
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        let service = service_fn(move |request| answer(request, shared.clone()));
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

#[expect(clippy::disallowed_methods, reason = "ends with its call")]
async fn answer(
    request: Request<Incoming>,
    shared: Arc<Mutex<Shared>>,
) -> Result<Response<Pieces>, std::convert::Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let (number, fails) = {
        let mut shared = shared.lock();
        shared.heard.push(Heard {
            path: path.clone(),
            fields: head.headers,
            messages: Vec::new(),
        });
        let (status, left) = shared.fails;
        shared.fails.1 = left.saturating_sub(1);
        (shared.heard.len() - 1, (left > 0).then_some(status))
    };
    let (sender, pieces) = mpsc::channel(1);
    let mut response = Response::new(Pieces(pieces));
    let fields = response.headers_mut();
    fields.insert("content-type", HeaderValue::from_static("application/grpc"));
    if let Some(status) = fails {
        fields.insert("grpc-status", HeaderValue::from(status));
        fields.insert(
            "grpc-message",
            HeaderValue::from_static("asked%20to%20fail"),
        );
        return Ok(response);
    }
    fields.insert("x-initial", HeaderValue::from_static("1"));
    tokio::spawn(echo(path, body, sender, shared, number));
    Ok(response)
}

/// Says every message again, and at the end that all was well.
async fn echo(
    path: String,
    mut body: Incoming,
    sender: mpsc::Sender<Result<Frame<Bytes>, &'static str>>,
    shared: Arc<Mutex<Shared>>,
    number: usize,
) {
    let streams = path.ends_with("ModelStreamInfer");
    let mut held = BytesMut::new();
    let mut count = 0;
    while let Some(Ok(frame)) = body.frame().await {
        held.extend_from_slice(&frame.into_data().unwrap_or_default());
        while held.len() >= 5 {
            let length = u32::from_be_bytes([held[1], held[2], held[3], held[4]]) as usize;
            if held.len() < 5 + length {
                break;
            }
            let message = held.split_to(5 + length)[5..].to_vec();
            let cuts = {
                let mut shared = shared.lock();
                shared.heard[number].messages.push(message.clone());
                shared.cuts
            };
            let said = match path.rsplit('/').next().unwrap_or_default() {
                "ModelReady" => vec![8, 1],
                // infer_response of ModelStreamInferResponse.
                _ if streams => [&[0x12][..], &length_prefixed(&message)].concat(),
                _ => message,
            };
            if sender
                .send(Ok(Frame::data(framed(&said).into())))
                .await
                .is_err()
            {
                return;
            }
            count += 1;
            if cuts == Some(count) {
                let _ = sender.send(Err("cut")).await;
                return;
            }
        }
    }
    let trailers = [("grpc-status", "0"), ("x-of-the-worker", "1")];
    let trailers = trailers
        .into_iter()
        .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
    let _ = sender.send(Ok(Frame::trailers(trailers.collect()))).await;
}

/// A body out of a channel.
struct Pieces(mpsc::Receiver<Result<Frame<Bytes>, &'static str>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.0.poll_recv(cx)
    }
}
