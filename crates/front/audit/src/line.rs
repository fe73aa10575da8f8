//! The line of an event, as Cassandra's `FileAuditLogger` and logback write it, and as ScyllaDB writes it to syslog.
//!
//! Source: the lines that Cassandra 5.0.9 writes; ScyllaDB's documentation of its audit log.

use crate::binlog::rolling::civil;
use crate::event::{Event, EventType};
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

/// Writes the lines of one batch of events. Events that follow each other have most texts in common (addresses,
/// milliseconds): each is made once for as long as it stays the same.
pub struct LineWriter<'s> {
    style: &'s LineStyle,
    shard: u16,
    /// `|host:/127.0.0.1:7000|source:`.
    host: String,
    /// Before the time of the usual events.
    thread: String,
    source: Option<SocketAddr>,
    /// `/127.0.0.1|port:38174|timestamp:`.
    source_text: String,
    at_millis: Option<i64>,
    /// `1795875914904|type:`.
    at_text: String,
    logged_millis: Option<i64>,
    logged_text: String,
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
            thread: thread("Native-Transport-Requests", shard),
            source: None,
            source_text: String::new(),
            at_millis: None,
            at_text: String::new(),
            logged_millis: None,
            logged_text: String::new(),
        }
    }

    /// Appends the fields of an event: `user:…|host:…|source:…|…`. Empty fields are left out.
    pub fn push_fields(&mut self, out: &mut String, event: &Event) {
        self.note_source(event.source);
        self.note_arrival(event.at_millis);
        let style = self.style;
        out.reserve(FIELDS_BYTES + event.operation.len());
        out.push_str("user");
        out.push_str(&style.pair);
        out.push_str(event.user.as_deref().unwrap_or("null"));
        out.push_str(&self.host);
        out.push_str(&self.source_text);
        out.push_str(&self.at_text);
        out.push_str(event.event_type.name());
        push_key(out, style, "category");
        out.push_str(event.event_type.category().name());
        if let Some(batch) = event.batch {
            push_key(out, style, "batch");
            let _ = write!(out, "{batch}");
        }
        for (name, value) in [("ks", &event.keyspace), ("scope", &event.scope)] {
            if let Some(value) = value.as_deref().filter(|value| !is_blank(value)) {
                push_key(out, style, name);
                out.push_str(value);
            }
        }
        if !is_blank(&event.operation) {
            push_key(out, style, "operation");
            out.push_str(&event.operation);
        }
    }

    /// Appends a line of `audit.log`, with the prefix of logback's pattern. Times are in UTC.
    pub fn push_line(&mut self, out: &mut String, event: &Event) {
        match event.event_type {
            EventType::LoginSuccess | EventType::LoginError => {
                out.push_str(&thread("Native-Transport-Auth-Requests", self.shard));
            }
            EventType::AdminAction | EventType::AdminRefused => {
                out.push_str(&thread("Admin-Requests", self.shard));
            }
            _ => out.push_str(&self.thread),
        }
        if self.logged_millis != Some(event.logged_millis) {
            self.logged_millis = Some(event.logged_millis);
            self.logged_text.clear();
            push_time(&mut self.logged_text, event.logged_millis);
        }
        out.push_str(&self.logged_text);
        out.push_str(" FileAuditLogger.java:51 - ");
        self.push_fields(out, event);
        out.push('\n');
    }

    fn note_source(&mut self, source: SocketAddr) {
        if self.source == Some(source) {
            return;
        }
        self.source = Some(source);
        self.source_text.clear();
        push_ip(&mut self.source_text, source.ip());
        if source.port() > 0 {
            push_key(&mut self.source_text, self.style, "port");
            let _ = write!(self.source_text, "{}", source.port());
        }
        push_key(&mut self.source_text, self.style, "timestamp");
    }

    fn note_arrival(&mut self, at_millis: i64) {
        if self.at_millis == Some(at_millis) {
            return;
        }
        self.at_millis = Some(at_millis);
        self.at_text.clear();
        let _ = write!(self.at_text, "{at_millis}");
        push_key(&mut self.at_text, self.style, "type");
    }
}

fn push_key(out: &mut String, style: &LineStyle, name: &str) {
    out.push_str(&style.field);
    out.push_str(name);
    out.push_str(&style.pair);
}

/// Level and thread before the time of a line.
fn thread(stage: &str, shard: u16) -> String {
    format!("INFO  [{stage}-{}] ", u32::from(shard) + 1)
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
pub fn syslog_message(event: &Event, style: &LineStyle) -> String {
    let (year, month, day) = civil(event.logged_millis.div_euclid(86_400_000));
    let _ = year;
    let of_day = event.logged_millis.rem_euclid(86_400_000) / 1000;
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
    use crate::tests::{event, style};

    fn push_line(out: &mut String, event: &Event, style: &LineStyle, shard: u16) {
        LineWriter::new(style, shard).push_line(out, event);
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
            Event { at_millis: 7, ..one.clone() },
            Event { at_millis: 7, logged_millis: 8, ..one.clone() },
            Event { source: other, ..one.clone() },
            Event { source: no_port, event_type: EventType::LoginSuccess, ..one.clone() },
            Event { event_type: EventType::AdminAction, ..one.clone() },
            Event { keyspace: Some(" ".into()), scope: Some("".into()), ..one.clone() },
            Event { keyspace: Some(" a".into()), operation: " \n".into(), ..one.clone() },
            Event { user: None, ..one },
        ];
        let (mut together, mut alone) = (String::new(), String::new());
        let style = style();
        let mut writer = LineWriter::new(&style, 3);
        for event in &events {
            writer.push_line(&mut together, event);
            push_line(&mut alone, event, &style, 3);
        }
        assert_eq!(together, alone);
        let lines: Vec<&str> = together.lines().collect();
        assert!(lines[7].ends_with("category:DML|operation:INSERT INTO t (a) VALUES (1)"));
        assert!(lines[8].ends_with("|ks: a|scope:t"), "{}", lines[8]);
        assert!(lines[5].contains("source:/10.0.0.9|timestamp:"), "{}", lines[5]);
    }

    #[test]
    fn a_line_is_cassandras_with_logbacks_prefix() {
        let mut line = String::new();
        push_line(&mut line, &event(EventType::Update), &style(), 0);
        assert_eq!(
            line,
            "INFO  [Native-Transport-Requests-1] 2026-11-28 14:25:15,121 FileAuditLogger.java:51 - \
             user:alice|host:/127.0.0.1:7000|source:/127.0.0.1|port:38174|timestamp:1795875914904|type:UPDATE|\
             category:DML|ks:ks|scope:t|operation:INSERT INTO t (a) VALUES (1)\n"
        );
        let mut line = String::new();
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
        push_line(&mut line, &bare, &style, 3);
        assert_eq!(
            line,
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
            syslog_message(&event, &style()),
            "<13>Nov 28 14:25:15 scylla-audit: node=\"127.0.0.1\", category=\"QUERY\", cl=\"ONE\", error=\"false\", \
             keyspace=\"ks\", query=\"a \\\"b\\\"\\nc\", client_ip=\"127.0.0.1\", table=\"t\", username=\"alice\""
        );
    }
}
