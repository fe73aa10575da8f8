//! The line of an event, as Cassandra's `FileAuditLogger` and logback write it, and as ScyllaDB writes it to syslog.
//!
//! Source: the lines that Cassandra 5.0.9 writes; ScyllaDB's documentation of its audit log.

use crate::binlog::rolling::civil;
use crate::event::{Event, EventRecord, EventText, EventType};
use crate::filter::scylla_category;
use std::borrow::Cow;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// Room for the fields of an event beside its operation: names, times and addresses have some 150 bytes.
const FIELDS_BYTES: usize = 256;

/// Separators of a line, and the address of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineStyle {
    /// Address of this node for other nodes.
    pub host: SocketAddr,
    /// Between key and value.
    pub pair: String,
    /// Between fields.
    pub field: String,
}

/// Appends an address as Java prints it: IPv6 without abbreviation.
fn push_ip(out: &mut String, ip: IpAddr) {
    out.push('/');
    let _ = match ip.to_canonical() {
        IpAddr::V4(ip) => write!(out, "{ip}"),
        IpAddr::V6(ip) => {
            let [a, b, c, d, e, f, g, h] = ip.segments();
            write!(out, "{a:x}:{b:x}:{c:x}:{d:x}:{e:x}:{f:x}:{g:x}:{h:x}")
        }
    };
}

fn push_socket(out: &mut String, address: SocketAddr) {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            let _ = write!(out, "/{ip}:{}", address.port());
        }
        ip @ IpAddr::V6(_) => {
            let mut text = String::new();
            push_ip(&mut text, ip);
            let _ = write!(out, "/[{}]:{}", text.trim_start_matches('/'), address.port());
        }
    }
}

/// Escapes what would begin another line or field in a text that was not checked: control characters and `|`.
pub fn escape(text: &str) -> Cow<'_, str> {
    let is_special = |c: char| c.is_control() || c == '|';
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_special(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Writes the lines of one batch of events. Texts that events which follow each other have in common (addresses,
/// milliseconds) are made once for as long as they stay the same.
pub struct LineWriter<'s> {
    style: &'s LineStyle,
    shard: u16,
    /// `|host:/127.0.0.1:7000|source:`.
    host: String,
    at_millis: Option<i64>,
    /// `1795875914904`.
    at_text: String,
    /// Thread of the last line and its time.
    logged: Option<(Stage, i64)>,
    /// `INFO  [Native-Transport-Requests-1] 2026-11-28 14:25:15,121 FileAuditLogger.java:51 - `.
    logged_text: String,
}

/// Kind of threads that Cassandra writes a line from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Requests,
    Logins,
    Admin,
}

impl Stage {
    fn of(event_type: EventType) -> Stage {
        match event_type {
            EventType::LoginSuccess | EventType::LoginError => Stage::Logins,
            EventType::AdminAction | EventType::AdminRefused => Stage::Admin,
            _ => Stage::Requests,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Stage::Requests => "Native-Transport-Requests",
            Stage::Logins => "Native-Transport-Auth-Requests",
            Stage::Admin => "Admin-Requests",
        }
    }
}

impl<'s> LineWriter<'s> {
    /// Writes the events of a shard.
    pub fn new(style: &'s LineStyle, shard: u16) -> LineWriter<'s> {
        let mut host = String::new();
        push_key(&mut host, style, "host");
        push_socket(&mut host, style.host);
        push_key(&mut host, style, "source");
        LineWriter {
            style,
            shard,
            host,
            at_millis: None,
            at_text: String::new(),
            logged: None,
            logged_text: String::new(),
        }
    }

    /// Appends the fields of an event: `user:…|host:…|source:…|…`. Empty fields are left out.
    pub fn push_fields(&mut self, out: &mut Vec<u8>, record: &EventRecord) {
        self.push_text(out, record);
        // The end of the line.
        out.pop();
    }

    /// Appends a line of `audit.log`, with the prefix of logback's pattern. Times are in UTC.
    pub fn push_line(&mut self, out: &mut Vec<u8>, record: &EventRecord) {
        self.note_logged(Stage::of(record.event.event_type), record.times.logged_millis);
        out.extend_from_slice(self.logged_text.as_bytes());
        self.push_text(out, record);
    }

    /// Appends the fields and the end of the line.
    fn push_text(&mut self, out: &mut Vec<u8>, record: &EventRecord) {
        self.note_arrival(record.times.at_millis);
        let once;
        let text = match record.event.text(|event| self.encoded(event)) {
            Some(text) => text,
            None => {
                once = self.encoded(&record.event);
                &once
            }
        };
        out.extend_from_slice(text.before.as_bytes());
        out.extend_from_slice(self.at_text.as_bytes());
        out.extend_from_slice(text.after.as_bytes());
    }

    /// Returns the text of an event around its time.
    fn encoded(&self, event: &Event) -> EventText {
        let style = self.style;
        let mut before = String::with_capacity(FIELDS_BYTES);
        before.push_str("user");
        before.push_str(&style.pair);
        before.push_str(event.user.as_deref().unwrap_or("null"));
        before.push_str(&self.host);
        push_ip(&mut before, event.source.ip());
        if event.source.port() > 0 {
            push_key(&mut before, style, "port");
            let _ = write!(before, "{}", event.source.port());
        }
        push_key(&mut before, style, "timestamp");
        let mut after = String::with_capacity(FIELDS_BYTES + event.operation.len());
        push_key(&mut after, style, "type");
        after.push_str(event.event_type.name());
        push_key(&mut after, style, "category");
        after.push_str(event.event_type.category().name());
        if let Some(batch) = event.batch {
            push_key(&mut after, style, "batch");
            let _ = write!(after, "{batch}");
        }
        for (name, value) in [("ks", &event.keyspace), ("scope", &event.scope)] {
            if let Some(value) = value.as_deref().filter(|value| !is_blank(value)) {
                push_key(&mut after, style, name);
                after.push_str(value);
            }
        }
        if !is_blank(&event.operation) {
            push_key(&mut after, style, "operation");
            after.push_str(&event.operation);
        }
        after.push('\n');
        EventText { before: before.into(), after: after.into() }
    }

    fn note_logged(&mut self, stage: Stage, logged_millis: i64) {
        if self.logged == Some((stage, logged_millis)) {
            return;
        }
        self.logged = Some((stage, logged_millis));
        self.logged_text.clear();
        let (name, thread) = (stage.name(), u32::from(self.shard) + 1);
        let _ = write!(self.logged_text, "INFO  [{name}-{thread}] ");
        push_time(&mut self.logged_text, logged_millis);
        self.logged_text.push_str(" FileAuditLogger.java:51 - ");
    }

    fn note_arrival(&mut self, at_millis: i64) {
        if self.at_millis == Some(at_millis) {
            return;
        }
        self.at_millis = Some(at_millis);
        self.at_text.clear();
        let _ = write!(self.at_text, "{at_millis}");
    }
}

fn push_key(out: &mut String, style: &LineStyle, name: &str) {
    out.push_str(&style.field);
    out.push_str(name);
    out.push_str(&style.pair);
}

/// Returns true if a text has no character that can be seen.
fn is_blank(text: &str) -> bool {
    // The usual text begins with a letter.
    text.bytes().next().is_none_or(|first| !first.is_ascii_graphic()) && text.trim().is_empty()
}

fn push_time(out: &mut String, millis: i64) {
    let (year, month, day) = civil(millis.div_euclid(86_400_000));
    let of_day = millis.rem_euclid(86_400_000);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, rest) = (of_day / 1000 % 60, of_day % 1000);
    let _ =
        write!(out, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02},{rest:03}");
}

/// Returns the message for a syslog socket: facility `user`, level `notice`, tag `scylla-audit`.
pub fn syslog_message(record: &EventRecord, style: &LineStyle) -> String {
    let EventRecord { event, times } = record;
    let (_, month, day) = civil(times.logged_millis.div_euclid(86_400_000));
    let of_day = times.logged_millis.rem_euclid(86_400_000) / 1000;
    let name = usize::try_from(month - 1).ok().and_then(|index| MONTHS.get(index)).unwrap_or(&"");
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut out = format!("<13>{name} {day:>2} {hour:02}:{minute:02}:{second:02} scylla-audit: ");
    let user = event.user.as_deref().unwrap_or_default();
    let fields: [(&str, &str); 9] = [
        ("node", &style.host.ip().to_canonical().to_string()),
        ("category", scylla_category(event).unwrap_or_default()),
        ("cl", event.consistency.map_or("", |level| level.name())),
        ("error", if event.is_error { "true" } else { "false" }),
        ("keyspace", event.keyspace.as_deref().unwrap_or_default()),
        ("query", &event.operation),
        ("client_ip", &event.source.ip().to_canonical().to_string()),
        ("table", event.scope.as_deref().unwrap_or_default()),
        ("username", user),
    ];
    for (index, (key, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{key}=\"{value}\"");
    }
    out
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchecked_name_begins_no_line_and_no_field() {
        assert_eq!(escape("jos\u{e9} 1"), "jos\u{e9} 1");
        assert_eq!(escape("a\nb|user:c\r"), "a\\u{a}b\\u{7c}user:c\\u{d}");
    }
    use crate::event::{EventTimes, SharedEvent};
    use crate::tests::{event, record, style};

    fn line(record: &EventRecord, style: &LineStyle, shard: u16) -> String {
        let mut out = Vec::new();
        LineWriter::new(style, shard).push_line(&mut out, record);
        String::from_utf8(out).unwrap()
    }

    /// Texts kept from one event must not show in the next one.
    #[test]
    fn a_batch_has_the_lines_of_its_events_alone() {
        let one = event(EventType::Update);
        let other = "[2001:db8::1]:5".parse().unwrap();
        let no_port = "10.0.0.9:0".parse().unwrap();
        let events = [
            one.clone(),
            one.clone(),
            Event { source: other, ..one.clone() },
            Event { source: no_port, event_type: EventType::LoginSuccess, ..one.clone() },
            Event { event_type: EventType::AdminAction, ..one.clone() },
            Event { keyspace: Some(" ".into()), scope: Some("".into()), ..one.clone() },
            Event { keyspace: Some(" a".into()), operation: " \n".into(), ..one.clone() },
            Event { user: None, ..one.clone() },
        ];
        let mut records: Vec<EventRecord> = events.into_iter().map(record).collect();
        // One event three times, as those of a prepared statement are.
        let again = SharedEvent::repeated(one);
        for (at_millis, logged_millis) in [(7, 7), (7, 8), (9, 9)] {
            let times = EventTimes { at_millis, logged_millis };
            records.push(EventRecord { event: again.clone(), times });
        }
        let style = style();
        let (mut together, mut alone) = (Vec::new(), String::new());
        let mut writer = LineWriter::new(&style, 3);
        for record in &records {
            writer.push_line(&mut together, record);
            let once = SharedEvent::once((**record.event).clone());
            alone += &line(&EventRecord { event: once, ..record.clone() }, &style, 3);
        }
        let together = String::from_utf8(together).unwrap();
        assert_eq!(together, alone);
        let lines: Vec<&str> = together.lines().collect();
        assert!(lines[5].ends_with("category:DML|operation:INSERT INTO t (a) VALUES (1)"));
        assert!(lines[6].ends_with("|ks: a|scope:t"), "{}", lines[6]);
        assert!(lines[3].contains("source:/10.0.0.9|timestamp:"), "{}", lines[3]);
        assert!(lines[9].contains("1970-01-01 00:00:00,008 "), "{}", lines[9]);
        assert!(lines[9].contains("|timestamp:7|type:UPDATE|"), "{}", lines[9]);
        let mut fields = Vec::new();
        writer.push_fields(&mut fields, &records[9]);
        assert!(lines[9].ends_with(std::str::from_utf8(&fields).unwrap()));
    }

    #[test]
    fn a_line_is_cassandras_with_logbacks_prefix() {
        assert_eq!(
            line(&record(event(EventType::Update)), &style(), 0),
            "INFO  [Native-Transport-Requests-1] 2026-11-28 14:25:15,121 FileAuditLogger.java:51 - \
             user:alice|host:/127.0.0.1:7000|source:/127.0.0.1|port:38174|timestamp:1795875914904|type:UPDATE|\
             category:DML|ks:ks|scope:t|operation:INSERT INTO t (a) VALUES (1)\n"
        );
        let bare = Event {
            user: None,
            keyspace: None,
            scope: None,
            operation: "LOGIN FAILURE".into(),
            source: "[2001:db8::1]:5".parse().unwrap(),
            ..event(EventType::LoginError)
        };
        let style = LineStyle {
            pair: "=".to_owned(),
            field: ";".to_owned(),
            host: "[::1]:7".parse().unwrap(),
        };
        assert_eq!(
            line(&record(bare), &style, 3),
            "INFO  [Native-Transport-Auth-Requests-4] 2026-11-28 14:25:15,121 FileAuditLogger.java:51 - \
             user=null;host=/[0:0:0:0:0:0:0:1]:7;source=/2001:db8:0:0:0:0:0:1;port=5;timestamp=1795875914904;\
             type=LOGIN_ERROR;category=AUTH;operation=LOGIN FAILURE\n"
        );
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (20_785, (2026, 11, 28)),
        ] {
            assert_eq!(civil(days), date);
        }
    }

    #[test]
    fn a_syslog_message_quotes_its_values() {
        let event = Event { operation: "a \"b\"\nc".into(), ..event(EventType::Select) };
        assert_eq!(
            syslog_message(&record(event), &style()),
            "<13>Nov 28 14:25:15 scylla-audit: node=\"127.0.0.1\", category=\"QUERY\", cl=\"ONE\", error=\"false\", \
             keyspace=\"ks\", query=\"a \\\"b\\\"\\nc\", client_ip=\"127.0.0.1\", table=\"t\", username=\"alice\""
        );
    }
}
