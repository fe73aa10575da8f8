//! Events for tests, and the driver in a simulated world.

mod driver;

use crate::event::{Event, EventRecord, EventTimes, EventType, SharedEvent};
use crate::line::LineStyle;
use cql_wire::Consistency;

pub(crate) fn style() -> LineStyle {
    let host = "127.0.0.1:7000".parse().unwrap();
    LineStyle { host, pair: ":".to_owned(), field: "|".to_owned() }
}

/// The record of an event that happened once.
pub(crate) fn record(event: Event) -> EventRecord {
    let times = EventTimes { at_millis: 1_795_875_914_904, logged_millis: 1_795_875_915_121 };
    EventRecord { event: SharedEvent::once(event), times }
}

/// An event of this type on `ks.t` by `alice`.
pub(crate) fn event(event_type: EventType) -> Event {
    Event {
        event_type,
        statement: event_type,
        user: Some("alice".into()),
        source: "127.0.0.1:38174".parse().unwrap(),
        batch: None,
        keyspace: Some("ks".into()),
        scope: Some("t".into()),
        operation: "INSERT INTO t (a) VALUES (1)".into(),
        consistency: Some(Consistency::One),
        is_error: false,
    }
}
