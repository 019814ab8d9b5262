//! Diagnostics: on stderr, at the configured level. The access log is not here; it goes to stdout.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::plan::LogLevel;

/// Starts writing diagnostics. Dependencies may say what goes wrong, not what goes on.
pub(super) fn start(level: LogLevel) {
    let own = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let others = if level == LogLevel::Error {
        "error"
    } else {
        "warn"
    };
    let filter = EnvFilter::new(format!("{others},forebay={own}"));
    let subscriber = fmt::Subscriber::builder()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_writer(std::io::stderr);
    // A second start in one process (a test) keeps the first subscriber.
    let _ = subscriber.try_init();
}
