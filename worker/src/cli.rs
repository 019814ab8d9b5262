//! The command line, and the only reader of the environment.

mod bench;

use std::ffi::OsString;
use std::io::{IsTerminal, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::{self, Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::engine::library::Search;
use crate::log::{Levels, Log};
use crate::serve::{self, Control, Settings};
use crate::units::{Device, Seconds};

/// Forebay's ONNX worker: KServe v2 inference and OpenAI embeddings on one machine.
#[derive(Parser)]
#[command(name = "forebay-worker", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Load every model of a folder and answer requests until told to stop.
    #[command(
        after_help = "Example:\n  forebay-worker serve --models ./models --http 127.0.0.1:7081 --threads 2"
    )]
    Serve(ServeArgs),
    /// Measure how fast the models of a folder are on this machine, and what of that reaches a client
    #[command(
        after_help = "Example:\n  forebay-worker bench --models ./models minilm --concurrency-range 1,8,32"
    )]
    Bench(bench::BenchArgs),
    /// Print what a shell needs to complete this command line.
    #[command(
        after_help = "Example:\n  forebay-worker completions bash > /etc/bash_completion.d/forebay-worker"
    )]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// What every verb that loads models takes.
#[derive(Args)]
struct ModelArgs {
    /// Folder of models: NAME/1/model.onnx, with or without NAME/config.pbtxt and NAME/model.toml
    #[arg(long, value_name = "DIR")]
    models: PathBuf,
    /// Threads that one request computes on [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// ONNX Runtime's shared library [default: FOREBAY_ONNXRUNTIME, then beside the binary, then target/onnxruntime/,
    /// then the system's loader]
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
    /// What computes the models that don't say it themselves: cpu, cuda or tensorrt. A model whose device can't be had
    /// is not served
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = device)]
    device: Device,
    /// Serve such a model from the CPU instead, and say so in /health, the metrics and the model's metadata
    #[arg(long, value_name = "cpu", value_parser = ["cpu"])]
    fallback: Option<String>,
}

#[derive(Args)]
struct ServeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Address to answer HTTP on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7081")]
    http: SocketAddr,
    /// Address to answer gRPC on [default: 127.0.0.1, one port above --http's: 7082]
    #[arg(long, value_name = "ADDR")]
    grpc: Option<SocketAddr>,
    /// Address to tell metrics on, at /metrics [default: 127.0.0.1, two ports above --http's: 7083]
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Who changes the models while it serves: nobody, the folder (added, changed and removed models are followed), or
    /// clients by /v2/repository/models/NAME/load and /unload; all are loaded at the start
    #[arg(long, value_name = "WHO", default_value = "explicit", value_parser = control)]
    model_control: Control,
    /// Seconds between two looks at the folder under --model-control poll; a model is loaded when nothing of it
    /// changed from one look to the next
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=86400))]
    poll_seconds: u32,
    /// Memory for answers that are kept, of all models whose config.pbtxt says `response_cache { enable: true }`;
    /// 0 = keep none
    #[arg(long, value_name = "N", default_value = "67108864")]
    cache_bytes: usize,
}

fn control(name: &str) -> Result<Control, &'static str> {
    match name {
        "none" => Ok(Control::None),
        "poll" => Ok(Control::Poll),
        "explicit" => Ok(Control::Explicit),
        _ => Err("expected \"none\", \"poll\" or \"explicit\""),
    }
}

fn device(name: &str) -> Result<Device, &'static str> {
    Device::from_name(name).ok_or("expected \"cpu\", \"cuda\" or \"tensorrt\"")
}

/// Runs the command line to its end.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to do if the terminal is gone.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let words = variable("FOREBAY_LOG").and_then(|words| words.into_string().ok());
    let usual = match cli.verb {
        Verb::Serve(_) => "info",
        Verb::Bench(_) | Verb::Completions { .. } => "warn",
    };
    let log = begin_log(words.as_deref().unwrap_or(usual));
    std::panic::set_hook(Box::new(|panic| {
        // Where, not what: the message of a panic may quote the text that caused it.
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place = place.as_deref().unwrap_or("unknown"), "a panic");
    }));
    let ended = match cli.verb {
        Verb::Serve(args) => serve::run(settings(args), log),
        Verb::Bench(args) => args.run(log),
        Verb::Completions { shell } => {
            complete(shell);
            Ok(())
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            complain(&stop.message);
            ExitCode::from(stop.exit)
        }
    }
}

/// Prints the script. A reader that went away is no reason to fail.
fn complete(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "forebay-worker", &mut script);
    let _ = std::io::stdout().lock().write_all(&script);
}

/// What decides which events are written.
type Filter = Box<dyn layer::Filter<Registry> + Send + Sync>;

/// Begins to log to stderr, as these words in the form of `RUST_LOG` ask for.
fn begin_log(words: &str) -> Log {
    let filter = EnvFilter::new(words);
    let most = filter.max_level_hint().and_then(LevelFilter::into_level);
    let silent = Levels {
        error: false,
        ..Levels::up_to(Level::ERROR)
    };
    let (filter, handle) = reload::Layer::new(Box::new(filter) as Filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_filter(filter);
    tracing_subscriber::registry().with(lines).init();
    Log::new(most.map_or(silent, Levels::up_to), move |levels| {
        let filter: Filter = Box::new(filter_fn(move |event| levels.writes(event)));
        // It fails only when nothing is logged any more.
        let _ = handle.reload(filter);
    })
}

fn settings(args: ServeArgs) -> Settings {
    Settings {
        http: args.http,
        grpc: args.grpc.unwrap_or_else(|| beside(args.http, 1)),
        metrics: args.metrics.unwrap_or_else(|| beside(args.http, 2)),
        control: args.model_control,
        poll: Seconds(args.poll_seconds.into()),
        cache: args.cache_bytes,
        ..args.model.settings()
    }
}

impl ModelArgs {
    /// Settings of a worker that answers on free ports, changes no model and keeps no answer.
    fn settings(self) -> Settings {
        let named = variable("FOREBAY_ONNXRUNTIME").map(PathBuf::from);
        let binary = std::env::current_exe().ok();
        let home = binary.and_then(|binary| Some(binary.parent()?.to_path_buf()));
        let fetched = std::path::absolute("target/onnxruntime").ok();
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Settings {
            models: self.models,
            http: free,
            grpc: free,
            metrics: free,
            threads: self.threads.map_or_else(cores, usize::from),
            device: self.device,
            fallback: self.fallback.is_some(),
            control: Control::None,
            poll: Seconds(0.0),
            cache: 0,
            library: Search {
                named: self.onnxruntime.or(named),
                folders: home.into_iter().chain(fetched).collect(),
            },
        }
    }
}

/// The default for a further port, so that two workers of one machine get along when only `--http` is given: so many
/// above it, on loopback. Any free one where `--http` is any free one.
fn beside(http: SocketAddr, above: u16) -> SocketAddr {
    let port = match http.port() {
        0 => 0,
        port => port.checked_add(above).unwrap_or(0),
    };
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A variable that is set and not empty.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line is where the environment is read"
)]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[expect(
    clippy::print_stderr,
    reason = "the command line speaks to the person who typed it"
)]
fn complain(message: &str) {
    eprintln!("forebay-worker: {message}");
}
