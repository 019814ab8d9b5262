//! The real binary, asked over real sockets, with tiny models that are generated here.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected should say so and stop"
)]

mod bench;
mod cache;
mod card;
mod devices;
mod embeddings;
mod ensembles;
mod grpc;
mod kserve;
mod leaving;
mod library;
#[cfg(target_arch = "x86_64")]
mod perf_analyzer;
mod process;
mod ranking;
mod repository;
mod sequences;
mod settings;
mod statistics;
mod support;
mod voice;
mod warm_up;
