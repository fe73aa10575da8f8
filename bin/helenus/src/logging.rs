//! The log: text or JSON, one event per line, on standard error. Its levels can be changed while
//! the node runs (`nodetool setlogginglevel`), and its last records can be read as a table.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use admin::LogControl;
use admin::model::LogLevelReport;
use conf::{LogFormat, LogLevel};
use node::{LogRecord, NodeLog};
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::log_records::LogRecords;

/// Name of all modules that have no level of their own.
const ROOT: &str = "ROOT";

/// Puts another filter in force.
type Reload = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The levels of the log, and its last records.
pub struct Levels {
    /// Directives at the start: the level of the setting, or `RUST_LOG`.
    first: String,
    /// Changed since, by module; `ROOT` is everything else.
    changed: Mutex<BTreeMap<String, String>>,
    reload: Reload,
    errors: Arc<AtomicU64>,
    records: LogRecords,
}

/// Standard error, and how many errors were written to it.
#[derive(Default)]
struct Counted(Arc<AtomicU64>);

impl<'a> MakeWriter<'a> for Counted {
    type Writer = Lossy<io::Stderr>;

    fn make_writer(&'a self) -> Lossy<io::Stderr> {
        Lossy(io::stderr())
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Lossy<io::Stderr> {
        if *event.level() == Level::ERROR {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Lossy(io::stderr())
    }
}

/// Drops what cannot be written. The subscriber would report the failure on standard error, which
/// panics when that fails too: a closed terminal, a pipe without a reader or a full disk under the
/// log must not end the node.
struct Lossy<W>(W);

impl<W: Write> Write for Lossy<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts logging. `RUST_LOG` may name other levels by module (`info,store=debug`).
///
/// # Errors
/// `RUST_LOG` is not understood; in words.
pub fn start(level: LogLevel, format: LogFormat) -> Result<Levels, String> {
    let level = level_filter(level);
    let first = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => text,
        _ => level.to_string(),
    };
    let filter = filter(&first, level).map_err(|error| format!("RUST_LOG=\"{first}\": {error}"))?;
    let counted = Counted::default();
    let (errors, records) = (counted.0.clone(), LogRecords::default());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(counted)
        .with_span_events(FmtSpan::NONE);
    let reload: Reload = match format {
        LogFormat::Text => {
            let builder = builder.with_ansi(std::io::stderr().is_terminal());
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().with(records.clone()).init();
            Box::new(move |filter| handle.reload(filter).map_err(|e| e.to_string()))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().with(records.clone()).init();
            Box::new(move |filter| handle.reload(filter).map_err(|e| e.to_string()))
        }
    };
    log_panics();
    Ok(Levels { first, changed: Mutex::default(), reload, errors, records })
}

fn filter(text: &str, level: LevelFilter) -> Result<EnvFilter, String> {
    let builder = EnvFilter::builder().with_default_directive(level.into());
    builder.parse(text).map_err(|error| error.to_string())
}

impl Levels {
    /// Applies the level of the configuration, which was read again, to modules without a level of
    /// their own.
    ///
    /// # Errors
    /// It cannot be put in force; in words.
    pub fn set_root(&self, level: LogLevel) -> Result<(), String> {
        let level = level_filter(level).to_string();
        self.set(&LogLevelReport { logger: ROOT.to_owned(), level })
    }
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

impl LogControl for Levels {
    fn levels(&self) -> Vec<LogLevelReport> {
        levels(&self.first, &self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    fn set(&self, wanted: &LogLevelReport) -> Result<(), String> {
        let mut held = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = held.clone();
        change(&mut changed, wanted)?;
        let filter = filter(&directives(&self.first, &changed), LevelFilter::INFO)?;
        (self.reload)(filter)?;
        *held = changed;
        match (wanted.logger.as_str(), wanted.level.as_str()) {
            ("", "") => tracing::info!("log levels reset to those of the configuration"),
            (logger, level) => tracing::info!(logger, level, "log levels changed"),
        }
        Ok(())
    }
}

impl NodeLog for Levels {
    fn records(&self) -> Vec<Arc<LogRecord>> {
        self.records.all()
    }

    fn clear(&self) {
        self.records.clear();
    }
}

fn change(changed: &mut BTreeMap<String, String>, wanted: &LogLevelReport) -> Result<(), String> {
    let logger = if wanted.logger.is_empty() { ROOT } else { &wanted.logger };
    if !logger.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
        return Err(format!(
            "\"{logger}\" is no part of this program: name a component (bootstrap, compaction, \
             repair, streaming, cql, ring), a module such as store, or ROOT"
        ));
    }
    if wanted.level.is_empty() {
        if wanted.logger.is_empty() {
            changed.clear();
        }
        changed.remove(logger);
        return Ok(());
    }
    let level = wanted.level.to_uppercase();
    // Java's name for everything.
    let level = if level == "ALL" { "TRACE".to_owned() } else { level };
    if !["ERROR", "WARN", "INFO", "DEBUG", "TRACE", "OFF"].contains(&level.as_str()) {
        return Err(format!(
            "there is no level \"{}\": ERROR, WARN, INFO, DEBUG, TRACE, OFF",
            wanted.level
        ));
    }
    changed.insert(logger.to_owned(), level);
    Ok(())
}

/// Returns the levels in force in the syntax of `RUST_LOG`; later directives override earlier ones.
fn directives(first: &str, changed: &BTreeMap<String, String>) -> String {
    let mut text = first.to_owned();
    if let Some(level) = changed.get(ROOT) {
        text.push_str(&format!(",{level}"));
    }
    for (module, level) in changed.iter().filter(|(module, _)| *module != ROOT) {
        text.push_str(&format!(",{module}={level}"));
    }
    text
}

fn levels(first: &str, changed: &BTreeMap<String, String>) -> Vec<LogLevelReport> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let text = directives(first, changed);
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let (module, level) = word.split_once('=').unwrap_or((ROOT, word));
        all.insert(module.to_owned(), level.to_uppercase());
    }
    let root = all.remove(ROOT).unwrap_or_else(|| "INFO".to_owned());
    let rest = all.into_iter().map(|(logger, level)| LogLevelReport { logger, level });
    std::iter::once(LogLevelReport { logger: ROOT.to_owned(), level: root }).chain(rest).collect()
}

/// A panic is an event of the log before it ends the process, so that JSON logs have it too. It
/// ends the process in every build: a node that lost one of its shards must not continue, and would
/// wait for it forever.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(logger: &str, level: &str) -> LogLevelReport {
        LogLevelReport { logger: logger.to_owned(), level: level.to_owned() }
    }

    #[test]
    fn levels_are_changed_and_go_back() {
        let mut changed = BTreeMap::new();
        change(&mut changed, &wanted("store", "debug")).unwrap();
        change(&mut changed, &wanted("ROOT", "WARN")).unwrap();
        assert_eq!(directives("info", &changed), "info,WARN,store=DEBUG");
        let shown = levels("INFO,cql_server=trace", &changed);
        let expected = [("ROOT", "WARN"), ("cql_server", "TRACE"), ("store", "DEBUG")];
        assert_eq!(shown, expected.map(|(logger, level)| wanted(logger, level)));
        change(&mut changed, &wanted("store", "")).unwrap();
        assert_eq!(directives("info", &changed), "info,WARN");
        change(&mut changed, &wanted("", "")).unwrap();
        assert!(changed.is_empty());
        for (logger, level) in [("org.apache.cassandra", "INFO"), ("a=b,c", "INFO"), ("store", "x")]
        {
            assert!(change(&mut changed, &wanted(logger, level)).is_err(), "{logger} {level}");
        }
        assert!(filter(&directives("info", &changed), LevelFilter::INFO).is_ok());
    }

    #[test]
    fn what_cannot_be_written_is_dropped() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let mut log = Lossy(Full);
        log.write_all(b"a line\n").unwrap();
        log.flush().unwrap();
    }

    #[test]
    fn errors_are_counted_and_nothing_else() {
        let counted = Counted::default();
        let errors = counted.0.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(counted).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!("an error");
            tracing::warn!("a warning");
            tracing::error!("another one");
        });
        assert_eq!(errors.load(Ordering::Relaxed), 2);
    }
}
