//! Finds and opens ONNX Runtime's shared library.
//!
//! The path is always resolved here and handed to `ort::init_from`: left to itself, ort panics at the first use of a
//! library that is missing. A library named by the operator (`--onnxruntime`, then `FOREBAY_ONNXRUNTIME`) is the only
//! candidate, so that a typing mistake is said instead of hidden by another copy. Otherwise: beside the binary,
//! `target/onnxruntime/`, then whatever the system's loader knows.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use ort::LoadDynamicError;
use ort::environment::Environment;
use ort::logging::LogLevel;

use crate::engine::elf;

const NAME: &str = "libonnxruntime.so";

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// `--onnxruntime`, else `FOREBAY_ONNXRUNTIME`.
    pub named: Option<PathBuf>,
    /// Folders to look into, in order.
    pub folders: Vec<PathBuf>,
}

/// Why no library could be used: one line for each that was tried.
#[derive(Debug)]
pub struct NoLibrary {
    tried: Vec<String>,
}

impl fmt::Display for NoLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minor = ort::MINOR_VERSION;
        write!(
            f,
            "no usable ONNX Runtime library; wanted: version 1.{minor} or later; tried:"
        )?;
        for line in &self.tried {
            write!(f, "\n  {line}")?;
        }
        let way_out = "`./run deps` fetches one, or name one with --onnxruntime FILE";
        write!(f, "\n  way out: {way_out}")
    }
}

/// Opens the first usable library. One per process.
pub fn open(search: &Search) -> Result<(Environment, PathBuf), NoLibrary> {
    let mut tried = Vec::new();
    for path in candidates(search) {
        match load(&path) {
            Ok(environment) => return Ok((environment, path)),
            Err(problem) => tried.push(format!("{}: {problem}", path.display())),
        }
    }
    Err(NoLibrary { tried })
}

fn candidates(search: &Search) -> Vec<PathBuf> {
    if let Some(named) = &search.named {
        return vec![std::path::absolute(named).unwrap_or_else(|_| named.clone())];
    }
    let mut found: Vec<PathBuf> = search
        .folders
        .iter()
        .flat_map(|folder| libraries_in(folder))
        .collect();
    found.extend([PathBuf::from(NAME), PathBuf::from(format!("{NAME}.1"))]);
    found
}

/// `libonnxruntime.so`, with or without a version after it, longest name last.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return vec![];
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.and_then(|name| name.strip_prefix(NAME))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
        .collect();
    found.sort();
    found
}

fn load(path: &Path) -> Result<Environment, String> {
    // A bare name is for the system's loader to find, so there is no file to check yet.
    if path.is_absolute() {
        elf::check_whole(path)?;
    }
    let builder = ort::init_from(path).map_err(describe)?;
    let environment = builder
        .with_name("forebay-worker")
        .with_telemetry(false)
        .build()
        .map_err(|error| error.to_string())?;
    // Its own log lines quote element values of failing requests; failures reach us as results anyway.
    environment.set_log_level(LogLevel::Fatal);
    Ok(environment)
}

fn describe(error: LoadDynamicError) -> String {
    match error {
        LoadDynamicError::Dlopen { error, .. } => error.to_string(),
        LoadDynamicError::MissingApi { .. } => {
            "is some other library: it has no OrtGetApiBase".to_owned()
        }
        LoadDynamicError::InvalidVersionString => "gives no readable version".to_owned(),
        LoadDynamicError::BadVersion { version_str, .. } => {
            let minor = ort::MINOR_VERSION;
            format!("is version {version_str}; wanted: 1.{minor} or later")
        }
    }
}
