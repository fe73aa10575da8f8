//! `metadata/truncated`: which truncations this node has carried out (`docs/formats/small-files.md`).
//!
//! The body: a line `cluster <uuid>`, a line `run <n>` (the run of the node that wrote it), a line
//! `through <epoch>` (the newest entry of the metadata log whose truncations were dealt with), then a line
//! `<table> <µs>` per table. Tables that the schema does not have keep
//! their line: an older metadata log may be restored, and with it the table.

use cluster::ClusterSnapshot;
use codec::SmallForm;
use rt::{Fs, SmallContent, damaged};
use std::collections::BTreeMap;
use std::fmt::Write;
use stdx::{Epoch, IoError, IoErrorKind, TableId, Uuid, WallMicros};

/// Kind and version of the file.
const FORM: SmallForm = SmallForm { kind: "truncated", version: 3 };
/// The form before, without the line `run`.
const FORM_WITHOUT_RUN: SmallForm = SmallForm { kind: "truncated", version: 2 };
/// Longest file that is read.
const FILE_BYTES_MAX: usize = 64 << 20;
/// Run number in the file before the number of this run is known; no run has it.
const RUN_UNKNOWN: u64 = 0;
/// Most tables that a line of the log names.
const NAMED_TABLES_MAX: usize = 100;
/// Most lines of tables that the schema does not have; the oldest truncations go first.
const UNKNOWN_TABLES_MAX: usize = 100_000;

/// Numbers of two runs of a node.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Number of the previous run, from `metadata/run`.
    pub last: Option<u64>,
    /// Number of the run that begins.
    pub this: u64,
}

/// When each table was truncated last.
pub(crate) type Known = BTreeMap<TableId, WallMicros>;

/// The content of the file, or what it is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    /// The cluster whose metadata log the node follows.
    cluster: Uuid,
    /// The run that wrote it; `None`: unknown.
    run: Option<u64>,
    through: Epoch,
    known: Known,
    /// The file has all of it.
    is_durable: bool,
}

impl Records {
    /// Everything in the metadata counts as carried out.
    fn all_of(snapshot: &ClusterSnapshot) -> Records {
        let mut records = Records {
            cluster: snapshot.cluster_id,
            run: None,
            through: Epoch(0),
            known: Known::new(),
            is_durable: false,
        };
        records.reflect(snapshot);
        for (table, truncation) in &snapshot.truncations {
            records.note(*table, truncation.truncated_at);
        }
        records
    }

    /// Adds every truncation of the metadata as carried out, beside those of the file.
    fn add_all_of(&mut self, snapshot: &ClusterSnapshot) {
        let all = Records::all_of(snapshot);
        (self.cluster, self.through, self.is_durable) = (all.cluster, all.through, false);
        all.known.into_iter().for_each(|(table, at)| self.note(table, at));
    }

    /// Returns true if a later run has written the file since. `last`: number of the last run; if
    /// it is unknown, a file with a run number counts as outdated.
    fn is_older_than(&self, last: Option<u64>) -> bool {
        self.run.is_some_and(|run| last.is_none_or(|last| run < last))
    }

    /// The truncation that a start may carry out (INV-truncation-2): that of the log's last entry.
    pub(crate) fn is_due_at_start(&self, snapshot: &ClusterSnapshot) -> Option<TableId> {
        let is_last = |epoch: Epoch| epoch == snapshot.epoch && epoch > self.through;
        let found = snapshot.truncations.iter().find(|(_, t)| is_last(t.epoch));
        found.map(|(table, _)| *table)
    }

    /// Truncations of the metadata other than that of `due` will not be carried out.
    pub(crate) fn skip_all_but(&mut self, snapshot: &ClusterSnapshot, due: Option<TableId>) {
        for (table, at) in self.due(snapshot) {
            if Some(table) == due {
                continue;
            }
            tracing::warn!(
                table = %table.0,
                "no record says that a truncation was carried out on this node; it is skipped, because \
                 newer rows may have been written since: if old rows are shown, run TRUNCATE again"
            );
            self.note(table, at);
        }
    }

    /// Truncations of existing tables that are newer than what was carried out.
    pub(crate) fn due(&self, snapshot: &ClusterSnapshot) -> Vec<(TableId, WallMicros)> {
        let there = |table: &TableId| snapshot.schema.table_by_id(*table).is_some();
        let all = snapshot.truncations.iter().map(|(table, t)| (*table, t.truncated_at));
        let is_newer = |(table, at): &(TableId, WallMicros)| {
            there(table) && self.known.get(table).is_none_or(|done| *done < *at)
        };
        all.filter(is_newer).collect()
    }

    /// A truncation is carried out.
    pub(crate) fn note(&mut self, table: TableId, at: WallMicros) {
        let newest = self.known.entry(table).or_insert(WallMicros(i64::MIN));
        if *newest < at {
            *newest = at;
            self.is_durable = false;
        }
    }

    /// The truncations of the snapshot were dealt with, but for those that failed and are retried.
    pub(crate) fn reflect(&mut self, snapshot: &ClusterSnapshot) {
        let newest = snapshot.truncations.values().map(|t| t.epoch).max();
        if let Some(newest) = newest
            && newest > self.through
            && self.due(snapshot).is_empty()
        {
            self.through = newest;
            self.is_durable = false;
        }
        let is_unknown = |table: &TableId| snapshot.schema.table_by_id(*table).is_none();
        let mut unknown: Vec<(WallMicros, TableId)> =
            self.known.iter().filter(|(t, _)| is_unknown(t)).map(|(t, at)| (*at, *t)).collect();
        if unknown.len() > UNKNOWN_TABLES_MAX {
            unknown.sort_unstable();
            for (_, table) in unknown.iter().take(unknown.len() - UNKNOWN_TABLES_MAX) {
                self.known.remove(table);
            }
        }
    }

    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.is_durable
    }

    pub(crate) fn set_durable(&mut self) {
        self.is_durable = true;
    }

    fn encode(&self) -> Vec<u8> {
        let (run, through) = (self.run.unwrap_or(RUN_UNKNOWN), self.through.0);
        let mut text = format!("cluster {}\nrun {run}\nthrough {through}\n", self.cluster);
        for (table, at) in &self.known {
            let _ = writeln!(text, "{} {}", table.0, at.0);
        }
        text.into_bytes()
    }

    fn decode(form: SmallForm, body: &[u8]) -> Option<Records> {
        let mut lines = std::str::from_utf8(body).ok()?.lines();
        let cluster = Uuid::parse_str(lines.next()?.strip_prefix("cluster ")?).ok()?;
        let is_present = form == FORM;
        let run = match is_present {
            true => Some(lines.next()?.strip_prefix("run ")?.parse().ok()?),
            false => None,
        };
        let through = Epoch(lines.next()?.strip_prefix("through ")?.parse().ok()?);
        let known = lines.map(line_of).collect::<Option<Known>>()?;
        Some(Records { cluster, run, through, known, is_durable: is_present })
    }
}

fn line_of(line: &str) -> Option<(TableId, WallMicros)> {
    let (table, at) = line.split_once(' ')?;
    Some((TableId(Uuid::parse_str(table).ok()?), WallMicros(at.parse().ok()?)))
}

/// Reads the file. Without one that can be believed for this metadata log, every truncation in the log counts
/// as carried out: a truncation that is skipped shows old rows and can be repeated, one that runs twice loses
/// new ones.
///
/// # Errors
/// `Damaged`; any other when it cannot be read.
pub(crate) async fn load(
    fs: &Fs,
    path: &str,
    snapshot: &ClusterSnapshot,
) -> Result<Records, IoError> {
    let (form, content) = read(fs, path).await?;
    let mut records = match content {
        SmallContent::Body(body) => match Records::decode(form, &body) {
            Some(records) => records,
            None => return Err(damaged(path, "its lines are not those of truncations")),
        },
        SmallContent::Missing => return Ok(Records::all_of(snapshot)),
        SmallContent::Legacy(bytes) if bytes.is_empty() => {
            tracing::warn!(
                path,
                "the file is empty: every truncation in the metadata log counts as carried out"
            );
            return Ok(Records::all_of(snapshot));
        }
        SmallContent::Legacy(bytes) => {
            let text = std::str::from_utf8(&bytes).ok().filter(|text| text.ends_with('\n'));
            let known = text.and_then(|text| text.lines().map(line_of).collect::<Option<Known>>());
            let known = known.ok_or_else(|| damaged(path, "it is not a list of truncations"))?;
            tracing::info!(path, "rewriting the file, which has the form of an earlier release");
            // The file had no checksum: its lines may only add truncations that count as carried
            // out.
            let mut records = Records::all_of(snapshot);
            known.into_iter().for_each(|(table, at)| records.note(table, at));
            return Ok(records);
        }
    };
    if records.cluster != snapshot.cluster_id {
        tracing::warn!(
            path,
            of = %records.cluster,
            "the file follows the metadata log of another cluster: every truncation in the log of this \
             one counts as carried out"
        );
        records.add_all_of(snapshot);
    }
    Ok(records)
}

/// Reads the file; returns its contents and their form.
async fn read(fs: &Fs, path: &str) -> Result<(SmallForm, SmallContent), IoError> {
    match fs.read_small(FORM, path, FILE_BYTES_MAX).await {
        Err(error) if error.kind == IoErrorKind::Damaged => {
            match fs.read_small(FORM_WITHOUT_RUN, path, FILE_BYTES_MAX).await {
                Ok(content @ SmallContent::Body(_)) => Ok((FORM_WITHOUT_RUN, content)),
                _ => Err(error),
            }
        }
        content => Ok((FORM, content?)),
    }
}

/// Makes the file that of the run that begins, durably.
/// A file of an earlier run than [`Runs::last`] is an older copy: every truncation in the log counts as carried out.
///
/// # Errors
/// `Damaged`; any other when it cannot be read or written.
pub(crate) async fn begin_run(
    fs: &Fs,
    path: &str,
    snapshot: &ClusterSnapshot,
    Runs { last, this }: Runs,
) -> Result<(), IoError> {
    let mut records = load(fs, path, snapshot).await?;
    if records.is_older_than(last) {
        tracing::warn!(
            path,
            of_run = records.run,
            last_run = last,
            skipped = %names_of(snapshot, &records.due(snapshot)),
            "the file is not that of the last run, as an older copy is not: every truncation in the metadata log \
             counts as carried out, because newer rows may have been written since; if a table named under \
             'skipped' shows old rows, run TRUNCATE again"
        );
        records.add_all_of(snapshot);
    }
    records.run = Some(this);
    store(fs, path, &records).await
}

/// Tables as the log shows them.
fn names_of(snapshot: &ClusterSnapshot, due: &[(TableId, WallMicros)]) -> String {
    let tables = due.iter().filter_map(|(table, _)| snapshot.schema.table_by_id(*table));
    let mut names: Vec<String> =
        tables.take(NAMED_TABLES_MAX).map(|t| format!("{}.{}", t.keyspace, t.name)).collect();
    if due.len() > NAMED_TABLES_MAX {
        names.push(format!("and {} more", due.len() - NAMED_TABLES_MAX));
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Replaces the file, durably.
///
/// # Errors
/// The file may be the old or the new one.
pub(crate) async fn store(fs: &Fs, path: &str, records: &Records) -> Result<(), IoError> {
    fs.write_small(FORM, path, &records.encode()).await
}

/// Fuzz entry: any bytes as the body of the file.
pub(crate) fn fuzz(data: &[u8]) {
    if let Some(records) = Records::decode(FORM, data) {
        assert_eq!(Records::decode(FORM, &records.encode()), Some(records));
    }
    if let Some(records) = Records::decode(FORM_WITHOUT_RUN, data) {
        let of_unknown_run =
            Records { run: Some(RUN_UNKNOWN), is_durable: true, ..records.clone() };
        assert_eq!(Records::decode(FORM, &records.encode()), Some(of_unknown_run));
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
pub(crate) mod tests;
