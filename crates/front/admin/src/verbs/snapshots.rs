//! `snapshot`, `listsnapshots`, `clearsnapshot`. Source: Cassandra `tools.nodetool` (`Snapshot`, `ListSnapshots`,
//! `ClearSnapshot`).

use crate::model::{ClearRequest, SnapshotReport, SnapshotRequest};
use crate::nodetool as layout;

use super::client::HttpError;
use super::line::{Failure, Line, Outcome};
use crate::operation::Method;

/// `listsnapshots`.
pub(super) fn list(line: &Line) -> Outcome {
    let snapshots: Vec<SnapshotReport> = line.api.get("/api/v1/snapshots")?;
    let options = layout::ListSnapshotsOptions {
        no_ttl: line.has("--no-ttl"),
        ephemeral: line.has("--ephemeral"),
    };
    Ok(layout::list_snapshots(&snapshots, options))
}

/// `snapshot`.
pub(super) fn take(line: &Line) -> Outcome {
    let tag = match line.value("--tag") {
        Some(tag) => tag.to_owned(),
        None => line.api.terminal.now_millis().to_string(),
    };
    if tag.contains('/') {
        return Err(Failure::Node("Snapshot name cannot contain /".to_owned()));
    }
    let skip_flush = line.has("--skip-flush");
    let named = named_tables(line)?;
    let of = match line.value("--kc.list") {
        Some(list) => list.to_owned(),
        None => all_or(&line.arguments),
    };
    let ttl_seconds = line.value("--ttl").map(ttl).transpose()?;
    let of_ttl = line.value("--ttl").map(|ttl| format!(", ttl={ttl}")).unwrap_or_default();
    // Printed before the attempt, as Cassandra does: scripts read it also after a failure.
    line.api.print(format_args!(
        "Requested creating snapshot(s) for [{of}] with snapshot name [{tag}] and options \
         {{skipFlush={skip_flush}{of_ttl}}}\n"
    ));
    if line.value("--table").is_some() && line.arguments.len() != 1 {
        let text = "When specifying the table for a snapshot, you must specify one and only one \
                    keyspace";
        return Err(Failure::Node(text.to_owned()));
    }
    let tables = line.value("--table").map(str::to_owned).into_iter().collect();
    let whole = vec![(line.arguments.clone(), tables)];
    for (keyspaces, tables) in named.unwrap_or(whole) {
        let tag = tag.clone();
        let body = SnapshotRequest { tag, keyspaces, tables, skip_flush, ttl_seconds };
        match line.api.command(Method::Post, "/api/v1/snapshots", &body) {
            Ok(()) => {}
            Err(HttpError::Refused(kind, words)) if kind.is_argument() => {
                return Err(Failure::BadUse(words));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(format!("Snapshot directory: {tag}\n"))
}

/// Whole seconds of a duration with its unit, in Cassandra's words when it is none.
fn ttl(text: &str) -> Result<u32, Failure> {
    let units = "[NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS]";
    let seconds = seconds(text).and_then(|seconds| u32::try_from(seconds).ok());
    seconds.filter(|n| *n < i32::MAX as u32).ok_or_else(|| not_a_duration(text, units))
}

/// A number and `s`, `m`, `h` or `d`.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text.get(digits.len()..)? {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn not_a_duration(text: &str, units: &str) -> Failure {
    Failure::BadUse(format!(
        "Invalid duration: {text} Accepted units:{units} where case matters and only non-negative \
         values."
    ))
}

/// Keyspaces with the tables to take of each.
type Named = Vec<(Vec<String>, Vec<String>)>;

/// The list of `-kt`, by keyspace.
fn named_tables(line: &Line) -> Result<Option<Named>, Failure> {
    let Some(list) = line.value("--kc.list") else { return Ok(None) };
    if !line.arguments.is_empty() || line.value("--table").is_some() {
        let text = "When specifying the Keyspace table list (using -kt,--kt-list,-kc,--kc.list), \
                    you must not also specify keyspaces to snapshot";
        return Err(Failure::Node(text.to_owned()));
    }
    let mut by_keyspace: std::collections::BTreeMap<&str, Vec<String>> = Default::default();
    let mut whole = Vec::new();
    for name in list.split(',').map(str::trim) {
        match name.split_once('.') {
            Some((keyspace, table)) => {
                by_keyspace.entry(keyspace).or_default().push(table.to_owned());
            }
            None => whole.push(name),
        }
    }
    // Without a dot it is a keyspace with all its tables, as for Cassandra's tool.
    by_keyspace.extend(whole.into_iter().map(|name| (name, Vec::new())));
    let named =
        by_keyspace.into_iter().map(|(keyspace, tables)| (vec![keyspace.to_owned()], tables));
    Ok(Some(named.collect()))
}

fn all_or(keyspaces: &[String]) -> String {
    if keyspaces.is_empty() { "all keyspaces".to_owned() } else { keyspaces.join(", ") }
}

/// `clearsnapshot`.
pub(super) fn clear(line: &Line) -> Outcome {
    let (tag, all) = (line.value("-t").filter(|tag| !tag.is_empty()), line.has("--all"));
    let (age, time) = (line.value("--older-than"), line.value("--older-than-timestamp"));
    let wrong = |text: &str| Err(Failure::BadUse(text.to_owned()));
    let mut with = match tag {
        None if !all => return wrong("Specify snapshot name or --all"),
        Some(_) if all => return wrong("Specify only one of snapshot name or --all"),
        None => "[all snapshots]".to_owned(),
        Some(tag) => format!("snapshot name [{tag}]"),
    };
    match (tag, age, time) {
        (_, Some(_), Some(_)) => {
            return wrong("Specify only one of --older-than or --older-than-timestamp");
        }
        (Some(_), Some(_), _) => {
            return wrong(
                "Specifying snapshot name together with --older-than flag is not allowed",
            );
        }
        (Some(_), _, Some(_)) => {
            return wrong(
                "Specifying snapshot name together with --older-than-timestamp flag is not allowed",
            );
        }
        _ => {}
    }
    let mut body = ClearRequest {
        tag: tag.map(str::to_owned),
        keyspaces: line.arguments.clone(),
        ..ClearRequest::default()
    };
    if let Some(time) = time {
        body.older_than_millis = Some(instant(time).ok_or_else(|| {
            Failure::BadUse(
                "Parameter --older-than-timestamp has to be a valid instant in ISO format."
                    .to_owned(),
            )
        })?);
        with.push_str(&format!(" older than timestamp {time}"));
    }
    if let Some(age) = age {
        let units = "[SECONDS, MINUTES, HOURS, DAYS]";
        let seconds = seconds(age).ok_or_else(|| not_a_duration(age, units))?;
        body.older_than_seconds = Some(seconds);
        with.push_str(&format!(" older than {seconds} seconds."));
    }
    let of = all_or(&line.arguments);
    line.api.print(format_args!("Requested clearing snapshot(s) for [{of}] with {with}\n"));
    line.api.command(Method::Delete, "/api/v1/snapshots", &body)?;
    Ok(String::new())
}

/// Milliseconds since 1970 of a date with a time and a zone; `None`: it is none.
fn instant(text: &str) -> Option<i64> {
    let (_, time) = text.split_once('T')?;
    let has_zone = time.ends_with('Z') || time.contains(['+', '-']);
    types::temporal::parse_timestamp(text, None).ok().filter(|_| has_zone)
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    #[test]
    fn lists_of_tables_name_keyspaces_too() {
        let named = |list: &str| {
            let line = parse(&format!("snapshot -t s -kt {list}")).unwrap();
            named_tables(&line).unwrap().unwrap()
        };
        let of = |keyspace: &str, tables: &[&str]| {
            let tables = tables.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
            (vec![keyspace.to_owned()], tables)
        };
        assert_eq!(named("a.t,b.u,a.v"), [of("a", &["t", "v"]), of("b", &["u"])]);
        for list in ["a,a.t", "a.t,a"] {
            assert_eq!(named(list), [of("a", &[])], "{list}");
        }
        for (text, expected) in [
            ("snapshot -t a/b ks", "Snapshot name cannot contain /"),
            ("snapshot -t s -kt ks.t ks", "you must not also specify keyspaces to snapshot"),
            ("snapshot -t s -cf t", "you must specify one and only one keyspace"),
            ("snapshot -t s -cf t a b", "you must specify one and only one keyspace"),
        ] {
            match take(&parse(text).unwrap()) {
                Err(Failure::Node(words)) => assert!(words.contains(expected), "{text}: {words}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_snapshots_ttl_has_a_unit() {
        let of = |text| ttl(text).ok();
        assert_eq!(
            (of("60s"), of("5m"), of("2h"), of("1d")),
            (Some(60), Some(300), Some(7200), Some(86_400))
        );
        for bad in
            ["", "5", "s", "-5s", "5S", "5ms", "1.5h", "24856d", "99999999999s", "5s5", "5\u{e9}"]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(of("24855d"), Some(24_855 * 86_400));
    }

    #[test]
    fn snapshots_are_cleared_by_name_or_all_not_both() {
        let clear = |text: &str| match clear(&parse(text).unwrap()) {
            Err(Failure::BadUse(message)) => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(clear("clearsnapshot"), "Specify snapshot name or --all");
        assert_eq!(clear("clearsnapshot -t a --all"), "Specify only one of snapshot name or --all");
        for (text, expected) in [
            (
                "--all --older-than 1d --older-than-timestamp x",
                "Specify only one of --older-than or",
            ),
            (
                "-t a --older-than 1d",
                "snapshot name together with --older-than flag is not allowed",
            ),
            ("-t a --older-than-timestamp x", "with --older-than-timestamp flag is not allowed"),
            ("--all --older-than 1", "Invalid duration: 1 Accepted units:[SECONDS, MINUTES, "),
            ("--all --older-than-timestamp 2022-12-03", "has to be a valid instant in ISO format."),
        ] {
            let told = clear(&format!("clearsnapshot {text}"));
            assert!(told.contains(expected), "{text}: {told}");
        }
        assert_eq!(instant("2022-12-03T10:15:30Z"), Some(1_670_062_530_000));
        assert_eq!(instant("2022-12-03T10:15:30.5+01:00"), Some(1_670_058_930_500));
        for bad in ["", "now", "1670062530000", "2022-12-03T10:15:30", "2022-12-03T99:15:30Z"] {
            assert_eq!(instant(bad), None, "{bad}");
        }
    }
}
