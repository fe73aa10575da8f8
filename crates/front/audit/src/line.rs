//! The line of an event, as Cassandra's `FileAuditLogger` and logback write it, and as Scylla writes it to syslog.
//!
//! Source: the lines that Cassandra 5.0.9 writes; Scylla's documentation of its audit log.

use crate::binlog::rolling::civil;
use crate::event::{Event, EventType};
use crate::filter::scylla_category;
use std::borrow::Cow;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

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

/// Appends the fields of an event: `user:…|host:…|source:…|…`. Empty fields are left out.
pub fn push_fields(out: &mut String, event: &Event, style: &LineStyle) {
    let pair = style.pair.as_str();
    let key = |out: &mut String, name: &str| {
        out.push_str(&style.field);
        out.push_str(name);
        out.push_str(pair);
    };
    out.push_str("user");
    out.push_str(pair);
    out.push_str(event.user.as_deref().unwrap_or("null"));
    key(out, "host");
    push_socket(out, style.host);
    key(out, "source");
    push_ip(out, event.source.ip());
    if event.source.port() > 0 {
        key(out, "port");
        let _ = write!(out, "{}", event.source.port());
    }
    key(out, "timestamp");
    let _ = write!(out, "{}", event.at_millis);
    key(out, "type");
    out.push_str(event.event_type.name());
    key(out, "category");
    out.push_str(event.event_type.category().name());
    if let Some(batch) = event.batch {
        key(out, "batch");
        let _ = write!(out, "{batch}");
    }
    for (name, value) in [("ks", &event.keyspace), ("scope", &event.scope)] {
        if let Some(value) = value.as_deref().filter(|value| !value.trim().is_empty()) {
            key(out, name);
            out.push_str(value);
        }
    }
    if !event.operation.trim().is_empty() {
        key(out, "operation");
        out.push_str(&event.operation);
    }
}

/// Appends a line of `audit.log`, with the prefix of logback's pattern. Times are in UTC.
pub fn push_line(out: &mut String, event: &Event, style: &LineStyle, shard: u16) {
    let stage = match event.event_type {
        EventType::LoginSuccess | EventType::LoginError => "Native-Transport-Auth-Requests",
        EventType::AdminAction | EventType::AdminRefused => "Admin-Requests",
        _ => "Native-Transport-Requests",
    };
    let thread = u32::from(shard) + 1;
    let _ = write!(out, "INFO  [{stage}-{thread}] ");
    push_time(out, event.logged_millis);
    out.push_str(" FileAuditLogger.java:51 - ");
    push_fields(out, event, style);
    out.push('\n');
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
