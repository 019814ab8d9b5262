//! An HTTP/2 client by prior knowledge, through hyper, for blocking tests.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::client::Answer;

/// One connection, driven in the background until it is dropped.
pub struct H2Client {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

/// A response whose body is still to be read.
pub struct Reading {
    response: Response<Incoming>,
}

impl H2Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .unwrap();
            #[expect(
                clippy::disallowed_methods,
                reason = "ends with the runtime, which the client owns"
            )]
            tokio::spawn(connection);
            sender
        });
        H2Client {
            runtime,
            sender,
            authority: address.to_string(),
        }
    }

    fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.authority));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::copy_from_slice(body));
        request.body(body).unwrap()
    }

    /// Sends all requests at once, each on a stream of its own; their answers in the same order.
    pub fn call_together(&self, method: &str, target: &str, bodies: &[String]) -> Vec<Answer> {
        let mut running = JoinSet::new();
        for (place, body) in bodies.iter().enumerate() {
            let request = self.request(method, target, &[], body.as_bytes());
            let mut sender = self.sender.clone();
            let answering = async move {
                let response = sender.send_request(request).await.unwrap();
                let mut reading = Reading { response };
                let mut answer = reading.head();
                let body = reading.response.body_mut().collect().await.unwrap();
                answer.body = body.to_bytes().to_vec();
                answer.complete = true;
                (place, answer)
            };
            running.spawn_on(answering, self.runtime.handle());
        }
        let mut answers = self.runtime.block_on(running.join_all());
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Sends a request; comes back when its head is answered.
    pub fn open(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Reading, hyper::Error> {
        let request = self.request(method, target, headers, body);
        let response = self.runtime.block_on(self.sender.send_request(request))?;
        Ok(Reading { response })
    }

    /// Reads one more piece of a body: `None` at its proper end.
    pub fn piece(&self, reading: &mut Reading) -> Option<Result<Bytes, hyper::Error>> {
        let frame = self.runtime.block_on(reading.response.body_mut().frame())?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    /// Sends a request and reads its answer, as far as it comes.
    #[track_caller]
    pub fn call(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.try_call(method, target, headers, body).unwrap()
    }

    /// Sends a request and reads its answer to the end, trailers too.
    #[track_caller]
    pub fn call_for_trailers(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (Answer, HeaderMap) {
        let called = self.try_call_for_trailers(method, target, headers, body);
        called.unwrap()
    }

    /// The same, for a request whose stream may be reset.
    pub fn try_call_for_trailers(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(Answer, HeaderMap), hyper::Error> {
        let mut reading = self.open(method, target, headers, body)?;
        let mut answer = reading.head();
        let collected = self.runtime.block_on(reading.response.body_mut().collect());
        let collected = collected?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        answer.body = collected.to_bytes().to_vec();
        answer.complete = true;
        Ok((answer, trailers))
    }

    /// Sends a request whose stream may be reset before its answer has a head.
    pub fn try_call(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, hyper::Error> {
        let mut reading = self.open(method, target, headers, body)?;
        let mut answer = reading.head();
        answer.complete = true;
        while let Some(piece) = self.piece(&mut reading) {
            let Ok(bytes) = piece else {
                answer.complete = false;
                break;
            };
            answer.chunks.push(bytes.len());
            answer.body.extend_from_slice(&bytes);
        }
        Ok(answer)
    }
}

impl Reading {
    /// The answer so far: its head.
    pub fn head(&self) -> Answer {
        let headers = self.response.headers().iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        });
        Answer {
            status: self.response.status().as_u16(),
            head: Vec::new(),
            headers: headers.collect(),
            body: Vec::new(),
            chunks: Vec::new(),
            complete: false,
        }
    }
}
