//! The log: text or JSON, one event per line, on standard error.

use std::io::IsTerminal;

use conf::{LogFormat, LogLevel};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Starts logging. `RUST_LOG` may name other levels by module (`info,store=debug`).
///
/// # Errors
/// `RUST_LOG` is not understood; in words.
pub fn start(level: LogLevel, format: LogFormat) -> Result<(), String> {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).try_from_env().or_else(
        |error| match std::env::var("RUST_LOG") {
            Ok(text) if !text.is_empty() => Err(format!("RUST_LOG=\"{text}\": {error}")),
            _ => Ok(EnvFilter::default().add_directive(level.into())),
        },
    )?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE);
    match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    log_panics();
    Ok(())
}

/// A panic is an event of the log before it ends the process, so that JSON logs have it too. It ends
/// the process in every build: a node that lost one of its shards must not go on, and would wait
/// for it for ever.
fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let backtrace = std::backtrace::Backtrace::force_capture();
        let message = info.payload_as_str().unwrap_or("unknown");
        tracing::error!(thread = name, place, message, %backtrace, "panic");
        std::process::abort();
    }));
}
