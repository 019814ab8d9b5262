//! Compiles the description of `config.pbtxt` into the table that `repository/` reads such files by.

use std::error::Error;
use std::path::Path;

#[expect(
    clippy::disallowed_methods,
    reason = "Cargo says by a variable where to write"
)]
fn main() -> Result<(), Box<dyn Error>> {
    const FOLDER: &str = "src/repository";
    println!("cargo::rerun-if-changed={FOLDER}/model_config.proto");
    let mut compiler = protox::Compiler::new([FOLDER])?;
    compiler.open_file("model_config.proto")?;
    let table = Path::new(&std::env::var("OUT_DIR")?).join("model_config.bin");
    std::fs::write(table, compiler.encode_file_descriptor_set())?;
    Ok(())
}
