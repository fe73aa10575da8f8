//! The last records of the log, for `system_views.system_logs`.
//!
//! Every record that is written to standard error is stored here too, in a ring: the oldest is
//! dropped when there are too many or they take too much memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use node::LogRecord;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::Context;

/// Most records: Cassandra's default.
const RECORDS_MAX: usize = 50_000;
/// Bytes of their messages: at a hundred or two each, all of them fit.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of one message; longer ones are cut here, not on standard error.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The ring. Clones are the same.
#[derive(Clone)]
pub struct LogRecords(Arc<Mutex<Ring>>);

struct Ring {
    records: VecDeque<Arc<LogRecord>>,
    /// Bytes of the messages.
    bytes: usize,
    records_max: usize,
    bytes_max: usize,
}

impl Default for LogRecords {
    fn default() -> LogRecords {
        LogRecords::bounded(RECORDS_MAX, BYTES_MAX)
    }
}

impl LogRecords {
    fn bounded(records_max: usize, bytes_max: usize) -> LogRecords {
        let ring = Ring { records: VecDeque::new(), bytes: 0, records_max, bytes_max };
        LogRecords(Arc::new(Mutex::new(ring)))
    }

    /// A panic elsewhere leaves the ring as good as it was.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Oldest first.
    pub fn all(&self) -> Vec<Arc<LogRecord>> {
        self.ring().records.iter().cloned().collect()
    }

    /// Forgets all.
    pub fn clear(&self) {
        let mut ring = self.ring();
        ring.records.clear();
        ring.bytes = 0;
    }
}

impl Ring {
    fn push(&mut self, record: LogRecord) {
        self.bytes += record.message.len();
        self.records.push_back(Arc::new(record));
        while self.records.len() > self.records_max || self.bytes > self.bytes_max {
            let Some(oldest) = self.records.pop_front() else { return };
            self.bytes -= oldest.message.len();
        }
    }
}

impl<S: Subscriber> Layer<S> for LogRecords {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = String::new();
        // Writing to memory does not fail.
        let _ = DefaultFields::new().format_fields(Writer::new(&mut message), event);
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        let metadata = event.metadata();
        let (level, logger) = (metadata.level().as_str(), metadata.target());
        let mut ring = self.ring();
        // Read inside, so that records stand in the order of their times.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_millis = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        ring.push(LogRecord { at_millis, level, logger, message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::layer::SubscriberExt;

    fn shown(records: &LogRecords) -> Vec<String> {
        let show = |r: &Arc<LogRecord>| format!("{} {} {}", r.level, r.logger, r.message);
        records.all().iter().map(show).collect()
    }

    #[test]
    fn what_the_filter_lets_pass_is_kept_with_its_fields() {
        let records = LogRecords::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("warn,here=info"))
            .with_writer(std::io::sink)
            .finish()
            .with(records.clone());
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "store::flush", table = "ks.t", bytes = 7, "flushed");
            tracing::info!(target: "here", "heard");
            tracing::info!(target: "there", "not heard");
            tracing::debug!(target: "here", "nor this");
        });
        assert_eq!(
            shown(&records),
            ["WARN store::flush flushed table=\"ks.t\" bytes=7", "INFO here heard"]
        );
        assert!(records.all().iter().all(|r| u128::try_from(r.at_millis).unwrap() >= before));
        records.clear();
        assert!(records.all().is_empty());
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_are_too_long() {
        let push = |records: &LogRecords, message: &str| {
            let message = message.to_owned();
            records.ring().push(LogRecord { at_millis: 0, level: "INFO", logger: "m", message });
        };
        let records = LogRecords::bounded(3, 10);
        for message in ["a", "b", "c", "d"] {
            push(&records, message);
        }
        assert_eq!(shown(&records), ["INFO m b", "INFO m c", "INFO m d"]);
        push(&records, "12345678");
        assert_eq!(shown(&records), ["INFO m c", "INFO m d", "INFO m 12345678"]);
        push(&records, "x");
        assert_eq!(shown(&records), ["INFO m d", "INFO m 12345678", "INFO m x"]);
        push(&records, "12345678901");
        assert!(shown(&records).is_empty());
        push(&records, "y");
        assert_eq!(shown(&records), ["INFO m y"]);
    }
}
