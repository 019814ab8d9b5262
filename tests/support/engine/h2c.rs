//! HTTP/2 by prior knowledge, through hyper: the same answers and failures as far as the protocol has them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::answer::{self, Answer};
use super::{Failure, Framing, Seen, Shared, is_asked};

/// What ends a stream without its end.
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Serves one connection to its end.
pub async fn serve(shared: &Arc<Shared>, stream: TcpStream, number: u64) {
    let service = service_fn(|request| answer_one(Arc::clone(shared), request, number));
    // An error here is the peer's way of leaving; the record has it as the connection's end.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer_one(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    connection: u64,
) -> Result<Response<Pieces>, Broken> {
    let failure = if is_asked(request.uri().path()) {
        None
    } else {
        shared.knobs.lock().next_failure()
    };
    if failure == Some(Failure::ResetBeforeHead) {
        return Err("reset before the head was read".into());
    }
    let (mut seen, body) = see(&shared, request, connection);
    let number = shared.note(seen.clone());
    let leaving = Leaving {
        shared: Arc::clone(&shared),
        number,
    };
    seen.body = body.collect().await?.to_bytes().to_vec();
    shared.amend(number, |noted, _| noted.body.clone_from(&seen.body));
    if failure == Some(Failure::ResetAfterRequest) {
        return Err("reset after the request was read".into());
    }
    let answer = answer::to(&shared, &seen, failure).await;
    Ok(respond(answer, leaving))
}

/// The request as the record keeps it.
fn see(shared: &Shared, request: Request<Incoming>, connection: u64) -> (Seen, Incoming) {
    let (parts, body) = request.into_parts();
    let target = parts
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    let authority = parts.uri.authority().map_or("", |name| name.as_str());
    let mut headers = vec![("host".to_owned(), authority.to_owned())];
    headers.extend(parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    }));
    let mut head = format!(
        ":method: {}\n:authority: {authority}\n:path: {target}\n",
        parts.method
    );
    for (name, value) in &headers[1..] {
        head += &format!("{name}: {value}\n");
    }
    let seen = Seen {
        connection,
        head: head.into_bytes(),
        method: parts.method.to_string(),
        target: target.to_owned(),
        headers,
        raw_body: Vec::new(),
        body: Vec::new(),
        at: shared.clock.now(),
        written: Vec::new(),
        finished: None,
        gone: None,
    };
    (seen, body)
}

/// The head at once; the body by a task of its own, which ends with the stream.
fn respond(answer: Answer, leaving: Leaving) -> Response<Pieces> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    if let (Framing::Length, answer::Body::Whole(pieces)) = (answer.framing, &answer.body) {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        response = response.header("content-length", length);
    }
    let (sender, pieces) = mpsc::channel(1);
    #[expect(
        clippy::disallowed_methods,
        reason = "ends when the body is written or its reader, the stream, is gone"
    )]
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = sender.closed() => {}
            () = write_body(answer, &leaving, &sender) => leaving.finished(),
        }
    });
    response.body(Pieces(pieces)).unwrap()
}

async fn write_body(
    mut answer: Answer,
    leaving: &Leaving,
    sender: &mpsc::Sender<Result<Bytes, Broken>>,
) {
    let mut written = 0;
    loop {
        match answer.failure {
            Some(Failure::CutAfter(pieces)) if pieces == written => {
                let _ = sender.send(Err("cut".into())).await;
                return;
            }
            Some(Failure::StallAfter(pieces)) if pieces == written => std::future::pending().await,
            _ => {}
        }
        let Some(piece) = answer.body.next().await else {
            return;
        };
        if written > 0 {
            let delay = leaving.shared.knobs.lock().chunk_delay;
            tokio::time::sleep(delay).await;
        }
        leaving
            .shared
            .amend(leaving.number, |seen, now| seen.written.push(now));
        if sender.send(Ok(piece)).await.is_err() {
            return;
        }
        written += 1;
    }
}

/// Notes on drop that the client left, unless the answer was finished.
struct Leaving {
    shared: Arc<Shared>,
    number: usize,
}

impl Leaving {
    fn finished(&self) {
        self.shared
            .amend(self.number, |seen, now| seen.finished = Some(now));
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.shared.amend(self.number, |seen, now| {
            if seen.finished.is_none() {
                seen.gone = Some(now);
            }
        });
    }
}

/// A body out of a channel.
struct Pieces(mpsc::Receiver<Result<Bytes, Broken>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
