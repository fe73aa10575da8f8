//! Commands about the files of tables: taking files in, compactions and what rules them.

use crate::model::{
    CompactionCommand, CompactionSettings, DamagedReport, ErrorKind, GarbageGranularity,
    ImportReport, ImportRequest, RefreshRequest, ScrubRequest, SstableReport, TablesRequest,
    VerifyRequest,
};
use crate::nodetool as layout;

use super::client::HttpError;
use super::cluster::{bad, encoded};
use super::line::{Failure, Line, Outcome};
use super::node::{keyspaces_and_tables, node};
use crate::operation::Method;

/// `import`.
pub(super) fn import(line: &Line) -> Outcome {
    let [keyspace, table, directories @ ..] = line.arguments.as_slice() else {
        return Err(bad("import requires keyspace, table name and directories".to_owned()));
    };
    if directories.is_empty() {
        return Err(bad("import requires keyspace, table name and directories".to_owned()));
    }
    let quick = line.has("--quick");
    if quick {
        line.api.print(format_args!(
            "Doing a quick import - skipping sstable verification and row cache invalidation\n"
        ));
    }
    let request = ImportRequest {
        keyspace: keyspace.clone(),
        table: table.clone(),
        directories: directories.to_vec(),
        keep_level: line.has("--keep-level"),
        keep_repaired: line.has("--keep-repaired"),
        // Given both options, Cassandra's tool verifies.
        no_verify: quick || (line.has("--no-verify") && !line.has("--extended-verify")),
        no_tokens: quick || line.has("--no-tokens"),
        copy: line.has("--copy-data"),
    };
    let report: ImportReport =
        line.api.order(Method::Post, "/api/v1/import", &request).map_err(of_table)?;
    if report.failed.is_empty() {
        return Ok(String::new());
    }
    let mut text = "Some directories failed to import, check server logs for details:\n".to_owned();
    for directory in report.failed {
        text.push_str(&format!("{directory}\n"));
    }
    Err(Failure::Told(text))
}

/// `refresh`.
pub(super) fn refresh(line: &Line) -> Outcome {
    let deprecated = "nodetool refresh is deprecated, use nodetool import instead";
    line.api.print(format_args!("{deprecated}\n"));
    let [keyspace, table] = line.arguments.as_slice() else {
        return Err(bad("refresh requires ks and cf args".to_owned()));
    };
    let request = RefreshRequest { keyspace: keyspace.clone(), table: table.clone() };
    match line.api.command(Method::Post, "/api/v1/refresh", &request) {
        // Cassandra's tool does not look for the table; its node does.
        Err(HttpError::Refused(ErrorKind::UnknownTable, _)) => {
            Err(bad(match node(&line.api)?.keyspace(keyspace) {
                None => format!("Keyspace {keyspace} does not exist"),
                Some(_) => format!("Unknown keyspace/cf pair ({keyspace}.{table})"),
            }))
        }
        Err(error) => Err(of_table(error)),
        Ok(()) => Ok(String::new()),
    }
}

/// `getsstables`.
pub(super) fn sstables(line: &Line) -> Outcome {
    let [keyspace, table, key] = line.arguments.as_slice() else {
        return Err(bad("getsstables requires ks, cf and key args".to_owned()));
    };
    let path = format!(
        "/api/v1/sstables?keyspace={}&table={}&key={}&hex={}",
        encoded(keyspace),
        encoded(table),
        encoded(key),
        line.has("--hex-format")
    );
    let files: Vec<SstableReport> = match line.api.get(&path) {
        Ok(files) => files,
        Err(HttpError::Refused(ErrorKind::InvalidKey, words)) => return Err(of_key(words)),
        Err(HttpError::Refused(ErrorKind::UnknownTable, words)) => {
            return Err(missing_table(words));
        }
        Err(HttpError::Refused(kind, words)) if kind.is_argument() => return Err(bad(words)),
        Err(error) => return Err(error.into()),
    };
    Ok(layout::sstables(&files, layout::SstablesStyle { with_levels: line.has("--show-levels") }))
}

/// Reports an invalid key of the table's type, which Cassandra's node checks, in Java's words.
pub(super) fn of_key(words: String) -> Failure {
    let number = ["int", "long", "short", "byte"].into_iter().find_map(|kind| {
        let text = words.strip_prefix(&format!("Unable to make {kind} from '"))?;
        Some(format!("For input string: \"{}\"", text.strip_suffix('\'')?))
    });
    Failure::Node(number.unwrap_or(words))
}

/// Reports a missing table, which Cassandra's tool checks before it sends the command.
pub(super) fn missing_table(words: String) -> Failure {
    Failure::Told(format!("{words}\n"))
}

/// Reports a wrong argument without the usage, like a missing table.
fn of_table(error: HttpError) -> Failure {
    match error {
        HttpError::Refused(kind, words) if kind.is_argument() => missing_table(words),
        other => other.into(),
    }
}

fn tell(line: &Line, command: &CompactionCommand) -> Outcome {
    match line.api.command(Method::Post, "/api/v1/compactions", command) {
        Ok(()) => Ok(String::new()),
        Err(HttpError::Refused(kind, words)) if kind.is_argument() => Err(Failure::BadUse(words)),
        Err(error) => Err(error.into()),
    }
}

/// `stop`.
pub(super) fn stop(line: &Line) -> Outcome {
    let command = match line.value("--compaction-id") {
        Some(id) => CompactionCommand::Stop { kind: None, id: Some(id.to_owned()) },
        // Like Cassandra's tool, which stops nothing then.
        None => {
            let kind = line.arguments.first().map_or("UNKNOWN", String::as_str);
            CompactionCommand::Stop { kind: Some(kind.to_owned()), id: None }
        }
    };
    tell(line, &command)
}

/// `garbagecollect`.
pub(super) fn garbage_collect(line: &Line) -> Outcome {
    check_jobs(line)?;
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    let granularity = granularity(line.value("--granularity"))?;
    Ok(order(line, &CompactionCommand::GarbageCollect { keyspaces, tables, granularity })?)
}

/// The value of an option that Cassandra's tool leaves to the node.
fn granularity(value: Option<&str>) -> Result<GarbageGranularity, Failure> {
    match value {
        None | Some("ROW") => Ok(GarbageGranularity::Row),
        Some("CELL") => Ok(GarbageGranularity::Cell),
        Some("NONE") => Err(bad("granularity NONE removes nothing: say ROW or CELL".to_owned())),
        Some(other) => Err(Failure::Node(format!(
            "No enum constant org.apache.cassandra.schema.CompactionParams.TombstoneOption.{other}"
        ))),
    }
}

pub(super) fn check_jobs(line: &Line) -> Result<(), Failure> {
    let jobs = line.value("--jobs").unwrap_or("1");
    match jobs.parse::<u32>() {
        Ok(_) => Ok(()),
        Err(_) => Err(bad(format!("jobs: can not convert \"{jobs}\" to a int"))),
    }
}

/// `scrub`.
pub(super) fn scrub(line: &Line) -> Outcome {
    check_jobs(line)?;
    let snapshot = match line.has("--no-snapshot") {
        true => None,
        false => Some(format!("pre-scrub-{}", line.api.terminal.now_millis())),
    };
    let how = ScrubRequest {
        snapshot,
        skip_corrupted: line.has("--skip-corrupted"),
        no_validate: line.has("--no-validate"),
        reinsert_overflowed_ttl: line.has("--reinsert-overflowed-ttl"),
    };
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    tell(line, &CompactionCommand::Scrub { keyspaces, tables, how })
}

/// `relocatesstables`.
pub(super) fn relocate(line: &Line) -> Outcome {
    check_jobs(line)?;
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    Ok(order(line, &CompactionCommand::Relocate { keyspaces, tables })?)
}

/// `recompress_sstables`.
pub(super) fn recompress(line: &Line) -> Outcome {
    check_jobs(line)?;
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    Ok(order(line, &CompactionCommand::Recompress { keyspaces, tables })?)
}

/// `rebuild_index`.
pub(super) fn rebuild_index(line: &Line) -> Outcome {
    let [keyspace, table, indexes @ ..] = line.arguments.as_slice() else {
        return Err(bad("rebuild_index requires ks, cf and idx args".to_owned()));
    };
    if indexes.is_empty() {
        return Err(bad("rebuild_index requires ks, cf and idx args".to_owned()));
    }
    let (keyspace, table) = (keyspace.clone(), table.clone());
    let indexes = indexes.iter().map(|name| index_name(name).to_owned()).collect();
    match order(line, &CompactionCommand::RebuildIndexes { keyspace, table, indexes }) {
        Err(HttpError::Refused(ErrorKind::UnknownKeyspace, _)) => {
            Err(Failure::Node(format!("Unknown keyspace {}", line.first())))
        }
        Err(HttpError::Refused(kind, words)) if kind.is_argument() => Err(bad(words)),
        other => Ok(other?),
    }
}

/// An index by its name alone, or by that of its table in Cassandra: `table.index`.
fn index_name(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, index)| index)
}

/// `damagedsstables`.
pub(super) fn damaged(line: &Line) -> Outcome {
    let files: Vec<DamagedReport> = line.api.get("/api/v1/damaged")?;
    Ok(files.iter().map(damaged_line).collect())
}

fn damaged_line(file: &DamagedReport) -> String {
    let mut next = match file.salvaged {
        true => "a full repair of its ranges, or a scrub, lets it go".to_owned(),
        false => "what can be read of it is not in other files yet".to_owned(),
    };
    // A copied file has no copy failure: only the state of its repair can be set.
    for why in file.copy_failure.iter().chain(file.repair.iter()) {
        next = format!("{next}: {why}");
    }
    format!("{}.{} {}\n    {}\n    {next}\n", file.keyspace, file.table, file.path, file.reason)
}

/// `forcecompact`.
pub(super) fn force(line: &Line) -> Outcome {
    let [keyspace, table, keys @ ..] = line.arguments.as_slice() else {
        return Err(bad("forcecompact requires keyspace, table and keys args".to_owned()));
    };
    if keys.is_empty() {
        return Err(bad("forcecompact requires keyspace, table and keys args".to_owned()));
    }
    let (keyspace, table) = (keyspace.clone(), table.clone());
    match order(line, &CompactionCommand::Force { keyspace, table, keys: keys.to_vec() }) {
        Err(HttpError::Refused(kind, words)) if kind.is_argument() => Err(of_key(words)),
        other => Ok(other?),
    }
}

/// `verify`.
pub(super) fn verify(line: &Line) -> Outcome {
    let how = VerifyRequest {
        extended: line.has("--extended-verify"),
        check_version: line.has("--check-version"),
        failure_policy: line.has("--dfp"),
        check_tokens: line.has("--check-tokens"),
        quick: line.has("--quick"),
        repair_status: line.has("--rsc"),
    };
    if how.check_tokens && !how.extended {
        let text = "Token verification requires --extended-verify\n";
        return Err(Failure::Printed(text.to_owned()));
    }
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    Ok(order(line, &CompactionCommand::Verify { keyspaces, tables, how })?)
}

fn settings(line: &Line) -> Result<Vec<CompactionSettings>, Failure> {
    Ok(line.api.get("/api/v1/compactions/settings")?)
}

/// `getcompactionthreshold`.
pub(super) fn threshold(line: &Line) -> Outcome {
    let [keyspace, table] = line.arguments.as_slice() else {
        return Err(bad("getcompactionthreshold requires ks and cf args".to_owned()));
    };
    let all = settings(line)?;
    let Some(found) = all.iter().find(|s| s.keyspace == *keyspace && s.table == *table) else {
        let text = format!("ColumnFamilyStore for {keyspace}/{table} not found.\n");
        return Err(Failure::Told(text));
    };
    let (min, max) = (found.min_threshold, found.max_threshold);
    Ok(format!(
        "Current compaction thresholds for {keyspace}/{table}: \n min = {min},  max = {max}\n"
    ))
}

/// `setcompactionthreshold`.
pub(super) fn set_threshold(line: &Line) -> Outcome {
    let [keyspace, table, min, max] = line.arguments.as_slice() else {
        let text = "setcompactionthreshold requires ks, cf, min, and max threshold args.";
        return Err(bad(text.to_owned()));
    };
    let number = |text: &str| -> Result<i32, Failure> {
        text.parse().map_err(|_| bad(format!("For input string: \"{text}\"")))
    };
    let (min, max) = (number(min)?, number(max)?);
    let wrong = |text: &str| Err(bad(text.to_owned()));
    let (Ok(least), Ok(most)) = (u32::try_from(min), u32::try_from(max)) else {
        return wrong("Thresholds must be positive integers");
    };
    if min > max {
        return wrong("Min threshold cannot be greater than max.");
    }
    if min < 2 && max != 0 {
        return wrong("Min threshold must be at least 2");
    }
    let command = CompactionCommand::SetThresholds {
        keyspace: keyspace.clone(),
        table: table.clone(),
        min: least,
        max: most,
    };
    line.api.command(Method::Post, "/api/v1/compactions", &command).map_err(of_table)?;
    Ok(String::new())
}

/// `enableautocompaction`.
pub(super) fn enable_automatic(line: &Line) -> Outcome {
    set_automatic(line, true)
}

/// `disableautocompaction`.
pub(super) fn disable_automatic(line: &Line) -> Outcome {
    set_automatic(line, false)
}

fn set_automatic(line: &Line, enabled: bool) -> Outcome {
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    tell(line, &CompactionCommand::SetAutomatic { keyspaces, tables, enabled })
}

/// `statusautocompaction`.
pub(super) fn automatic(line: &Line) -> Outcome {
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    let mut all = settings(line)?;
    if let Some(keyspace) = keyspaces.first() {
        let is_there = |t: &String| all.iter().any(|s| s.keyspace == *keyspace && s.table == *t);
        if let Some(missing) = tables.iter().find(|t| !is_there(t)) {
            return Err(bad(format!("Unknown keyspace/cf pair ({keyspace}.{missing})")));
        }
        all.retain(|s| s.keyspace == *keyspace && (tables.is_empty() || tables.contains(&s.table)));
    }
    Ok(layout::auto_compaction(&all, layout::AutoCompactionStyle { by_table: line.has("--all") }))
}

/// `compact` in all its forms.
pub(super) fn compact(line: &Line) -> Outcome {
    let (start, end) = (line.value("--start-token"), line.value("--end-token"));
    let by_token = start.is_some() || end.is_some();
    let key = line.value("--partition");
    let (split, by_file) = (line.has("--split-output"), line.has("--user-defined"));
    let wrong = |text: &str| Err(Failure::Node(format!("Invalid option combination: {text}")));
    if split && (by_file || by_token || key.is_some()) {
        return wrong("Can not use split-output here");
    }
    if by_file && (by_token || key.is_some()) {
        return wrong("Can not provide tokens when using user-defined");
    }
    if by_file {
        let files = line.arguments.iter().flat_map(|a| a.split(',')).map(str::to_owned).collect();
        return Ok(order(line, &CompactionCommand::Files { files })?);
    }
    let range = match by_token {
        true => Some((token(start.unwrap_or(""))?, token(end.unwrap_or(""))?)),
        false => None,
    };
    let (keyspaces, tables) = keyspaces_and_tables(line)?;
    let command = match (range, key) {
        (Some((start, end)), _) => CompactionCommand::Range { keyspaces, tables, start, end },
        (None, Some(key)) => {
            CompactionCommand::Partition { keyspaces, tables, key: key.to_owned() }
        }
        (None, None) if split => CompactionCommand::Split { keyspaces, tables },
        (None, None) => {
            line.api.command(
                Method::Post,
                "/api/v1/compact",
                &TablesRequest { keyspaces, tables },
            )?;
            return Ok(String::new());
        }
    };
    Ok(order(line, &command)?)
}

fn order(line: &Line, command: &CompactionCommand) -> Result<String, HttpError> {
    line.api.command(Method::Post, "/api/v1/compactions", command)?;
    Ok(String::new())
}

pub(super) fn token(text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| {
        Failure::Node(format!(
            "Invalid token for Murmur3Partitioner. Got {text} but expected a long value (unsigned \
             8 bytes integer)."
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    fn refused(text: &str) -> String {
        match super::super::run(&parse(text).unwrap()) {
            Err(Failure::BadUse(text) | Failure::Node(text) | Failure::Printed(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_cassandras_words_before_the_node_is_asked() {
        for (text, expected) in [
            ("import ks t", "import requires keyspace, table name and directories"),
            ("rebuild_index ks t", "rebuild_index requires ks, cf and idx args"),
            ("forcecompact ks t", "forcecompact requires keyspace, table and keys args"),
            ("verify -t ks", "Token verification requires --extended-verify\n"),
            ("recompress_sstables -j x ks", "jobs: can not convert \"x\" to a int"),
            ("scrub -j x ks", "jobs: can not convert \"x\" to a int"),
            ("garbagecollect -j x ks", "jobs: can not convert \"x\" to a int"),
            ("getsstables a", "getsstables requires ks, cf and key args"),
            ("import ks", "import requires keyspace, table name and directories"),
            ("refresh ks", "refresh requires ks and cf args"),
            ("getcompactionthreshold ks", "getcompactionthreshold requires ks and cf args"),
            (
                "setcompactionthreshold ks t 4",
                "setcompactionthreshold requires ks, cf, min, and max threshold args.",
            ),
            ("setcompactionthreshold ks t x 4", "For input string: \"x\""),
            ("setcompactionthreshold ks t -1 4", "Thresholds must be positive integers"),
            ("setcompactionthreshold ks t 5 4", "Min threshold cannot be greater than max."),
            ("setcompactionthreshold ks t 1 4", "Min threshold must be at least 2"),
            (
                "compact -s --user-defined f",
                "Invalid option combination: Can not use split-output here",
            ),
            (
                "compact -s --partition 1 ks",
                "Invalid option combination: Can not use split-output here",
            ),
            (
                "compact --user-defined -st 1 f",
                "Invalid option combination: Can not provide tokens when using user-defined",
            ),
            (
                "compact -st 1 ks",
                "Invalid token for Murmur3Partitioner. Got  but expected a long value (unsigned 8 \
                 bytes integer).",
            ),
        ] {
            assert_eq!(refused(text), expected, "{text}");
        }
    }

    /// Recorded from a Cassandra 5.0.9, with the code each ends with.
    #[test]
    fn what_the_node_refuses_has_cassandras_words_and_codes() {
        let of = |failure: Failure| match (failure.exit_code(), failure) {
            (code, Failure::BadUse(text) | Failure::Node(text)) => (code, text),
            other => panic!("{other:?}"),
        };
        let int = "Unable to make int from 'abc'";
        assert_eq!(of(of_key(int.to_owned())), (2, "For input string: \"abc\"".to_owned()));
        let words =
            "No enum constant org.apache.cassandra.schema.CompactionParams.TombstoneOption.x";
        assert_eq!(of(granularity(Some("x")).unwrap_err()), (2, words.to_owned()));
        assert_eq!(granularity(Some("CELL")).unwrap(), GarbageGranularity::Cell);
    }
}
