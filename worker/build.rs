//! Compiles the .proto files: `config.pbtxt`'s into the table that `repository/` reads such files by, gRPC's into Rust.

use std::error::Error;
use std::path::Path;

/// Where each lies.
const CONFIG: &str = "src/repository";
const GRPC: &str = "src/api/kserve_grpc";

#[expect(
    clippy::disallowed_methods,
    reason = "Cargo says by a variable where to write"
)]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={CONFIG}/model_config.proto");
    println!("cargo::rerun-if-changed={GRPC}/inference.proto");
    let mut compiler = protox::Compiler::new([CONFIG])?;
    compiler.open_file("model_config.proto")?;
    let table = Path::new(&std::env::var("OUT_DIR")?).join("model_config.bin");
    std::fs::write(table, compiler.encode_file_descriptor_set())?;
    let service = protox::compile(["inference.proto"], [GRPC])?;
    tonic_prost_build::configure()
        .build_client(false)
        .bytes(".")
        .btree_map(".")
        .compile_fds(service)?;
    Ok(())
}
