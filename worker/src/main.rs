//! Forebay's own worker: serves ONNX models over KServe v2 and OpenAI's embeddings, one process per machine.
//!
//! The rooms stand on floors; a room uses only rooms on lower floors (`tests/floors.rs` holds the order). To follow a
//! request, read `line.rs`.
#![deny(unsafe_code)]

mod api;
mod batch;
mod bench;
mod cache;
mod cli;
mod clock;
mod engine;
mod ensemble;
mod fault;
mod line;
mod log;
mod observe;
mod repository;
mod runner;
mod serve;
mod tensor;
mod text;
mod units;

/// Fewer microseconds per request than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
