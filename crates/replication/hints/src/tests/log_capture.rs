//! Captures the log while a closure runs.
#![allow(
    clippy::disallowed_types,
    reason = "a subscriber of tracing has to be shared between threads"
)]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One event: its level, its message and its fields as `name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) level: Level,
    pub(super) message: String,
    pub(super) fields: Vec<String>,
}

#[derive(Default)]
struct Texts {
    message: String,
    fields: Vec<String>,
}

impl Visit for Texts {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.fields.push(format!("{}={value:?}", field.name()));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push(format!("{}={value}", field.name()));
    }
}

struct Capture(Arc<Mutex<Vec<Logged>>>);

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut texts = Texts::default();
        event.record(&mut texts);
        let Texts { message, fields } = texts;
        let logged = Logged { level: *event.metadata().level(), message, fields };
        self.0.lock().unwrap().push(logged);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Warnings and errors of this thread while `work` runs, in order.
pub(super) fn logged<T>(work: impl FnOnce() -> T) -> (T, Vec<Logged>) {
    let all = Arc::new(Mutex::new(Vec::new()));
    let done = tracing::subscriber::with_default(Capture(all.clone()), work);
    let logged = all.lock().unwrap().clone();
    (done, logged)
}
