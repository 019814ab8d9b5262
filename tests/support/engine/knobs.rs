//! What can be turned on a scripted worker, while it runs.

use std::time::Duration;

use bytes::Bytes;

pub use super::lora::Loras;
pub use super::memory::Memory;

/// How a worker behaves. Durations are real time; a fresh set answers at once and never fails.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Which engine it says that it is, on the paths by which engines are told apart.
    pub dialect: Dialect,
    /// The key that its list of models wants; a wrong one is answered 401.
    pub key: Option<String>,
    /// The models it serves; a request for another is answered 404 as vLLM does.
    pub models: Vec<String>,
    /// Its LoRA adapters.
    pub lora: Loras,
    /// Which of its models are in memory.
    pub memory: Memory,
    /// Prefill: seconds per prompt token that is not cached. One prefill at a time, first come first served.
    pub prefill: f64,
    /// The same of tensors, where those go through another model.
    pub tensors: Option<f64>,
    /// Decode: seconds per output token when alone …
    pub decode: f64,
    /// … and what each stream beside it adds to that.
    pub decode_per_stream: f64,
    /// Requests that run at once; more wait in order of arrival.
    pub slots: usize,
    /// Tokens of a prompt and its answer together, as it says; it does not mind more.
    pub context: u64,
    /// Whether prompt blocks seen before cost nothing, and are reported as `cached_tokens`.
    pub prefix_cache: bool,
    /// Its KV memory in blocks of 16 tokens, as it says.
    pub kv_blocks: u32,
    /// Requests of others, which it says that it runs …
    pub foreign_running: usize,
    /// … and keeps waiting; they slow nothing.
    pub foreign_waiting: usize,
    /// Whether it has metrics, as far as engines of its kind do.
    pub has_metrics: bool,
    /// Whether its answers tell its load where they are asked to.
    pub tells_load: bool,
    /// Output tokens when the request names neither a limit nor a least number (`min_tokens`).
    pub output_tokens: usize,
    /// Silence before the first byte of any answer.
    pub first_byte_delay: Duration,
    /// Silence before each piece of a body after the first.
    pub chunk_delay: Duration,
    /// Whether the head of a streamed answer goes out before the prefill, as vLLM's does.
    pub head_first: bool,
    /// How bodies that are not streamed are framed on HTTP/1.1.
    pub framing: Framing,
    /// What the liveness paths say.
    pub health: Health,
    /// Liveness says 503 for so long after the start.
    pub ready_after: Duration,
    /// Answers everything but liveness with these bytes.
    pub canned: Option<Canned>,
    /// Goes wrong in this way …
    pub failure: Option<Failure>,
    /// … so many times more. Liveness paths are spared.
    pub failures: u64,
    /// Closes a kept-alive connection, without a word, after so many answers.
    pub answers_per_connection: Option<u64>,
    /// Resets a connection that had an answer at the first byte of its next request: the keep-alive race, every time.
    pub reset_on_reuse: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            dialect: Dialect::Vllm,
            key: None,
            models: vec!["m".to_owned()],
            lora: Loras::default(),
            memory: Memory::default(),
            prefill: 0.0,
            tensors: None,
            decode: 0.0,
            decode_per_stream: 0.0,
            slots: 256,
            context: 32_768,
            prefix_cache: false,
            kv_blocks: 1_280,
            foreign_running: 0,
            foreign_waiting: 0,
            has_metrics: true,
            tells_load: false,
            output_tokens: 4,
            first_byte_delay: Duration::ZERO,
            chunk_delay: Duration::ZERO,
            head_first: true,
            framing: Framing::Length,
            health: Health::Good,
            ready_after: Duration::ZERO,
            canned: None,
            failure: None,
            failures: 0,
            answers_per_connection: None,
            reset_on_reuse: false,
        }
    }
}

impl Knobs {
    /// Fails the next `times` requests in this way.
    pub fn fail(&mut self, failure: Failure, times: u64) {
        self.failure = Some(failure);
        self.failures = times;
    }

    /// Takes the failure that the next request meets, if any is left.
    pub(super) fn next_failure(&mut self) -> Option<Failure> {
        self.failures = self.failures.checked_sub(1)?;
        self.failure.clone()
    }
}

/// The engines that it can pass for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    Llamacpp,
    /// Ollama.
    Ollama,
    /// Text Generation Inference.
    Tgi,
    /// Text Embeddings Inference.
    Tei,
    /// Triton Inference Server.
    Triton,
    /// Our own worker.
    Forebay,
    /// A hosted service.
    Openai,
    /// Something that answers 404 to every question.
    Generic,
}

/// How the end of an HTTP/1.1 body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By `Content-Length`.
    Length,
    /// By chunks, one per piece.
    Chunked,
    /// By closing the connection.
    Close,
}

/// What the liveness paths say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// 200.
    Good,
    /// This status.
    Status(u16),
    /// Nothing, ever.
    Silent,
}

/// An answer given byte for byte.
#[derive(Clone, Debug)]
pub struct Canned {
    /// Its status.
    pub status: u16,
    /// Its headers, framing aside, in order.
    pub headers: Vec<(String, String)>,
    /// Its body in pieces, each written on its own.
    pub pieces: Vec<Bytes>,
    /// How its end is told on HTTP/1.1.
    pub framing: Framing,
}

impl Canned {
    /// 200 with this body in one piece, framed by length.
    pub fn ok(body: &str) -> Self {
        Canned {
            status: 200,
            headers: Vec::new(),
            pieces: vec![Bytes::copy_from_slice(body.as_bytes())],
            framing: Framing::Length,
        }
    }

    /// With another status.
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// With one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With the body in these pieces instead.
    pub fn pieces(mut self, pieces: &[&str]) -> Self {
        self.pieces = pieces
            .iter()
            .map(|piece| Bytes::copy_from_slice(piece.as_bytes()))
            .collect();
        self
    }

    /// With another framing.
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }
}

/// The ways in which workers fail. A worker that refuses connections is [`super::Engine::refuse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Resets the connection at the first byte of a request.
    ResetBeforeHead,
    /// Reads the whole request, then resets the connection.
    ResetAfterRequest,
    /// Reads the whole request, then says nothing.
    Hang,
    /// Answers with this status and vLLM's error object.
    Status(u16),
    /// 429 with this `Retry-After`, in seconds.
    Busy(u32),
    /// Writes so many pieces of the body, then closes without its end.
    CutAfter(usize),
    /// Writes so many pieces of the body, then falls silent.
    StallAfter(usize),
    /// Answers with these bytes, whatever they are, and closes (HTTP/1.1 only).
    Rubbish(Bytes),
    /// The same, and keeps the connection (HTTP/1.1 only).
    Stays(Bytes),
    /// Answers with this status as soon as the head is read, while the body may still be coming (HTTP/1.1 only).
    /// With `close` the answer says so and nothing more is read; without, the body is still read and thrown away.
    Early {
        /// The status.
        status: u16,
        /// Whether the connection ends with the answer.
        close: bool,
    },
    /// A good answer, with these bytes right behind it on the same connection (HTTP/1.1 only).
    Stray(Bytes),
}
