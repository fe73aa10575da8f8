//! Ranges of a movement that a node has received, so that the movement resumes after a restart.
//!
//! Owns: `metadata/received-<name>` of the work directory in the envelope of small files, rewritten after each
//! table: `key <key of the movement>`, then per range a line `<table> <start> <end> <source>[,<source>]*`. A
//! corrupt file is logged and ignored, as is one of another movement: the ranges are fetched again. The file is
//! removed when the movement is over.
//!
//! `streaming` hands a range over to be remembered only when its files are durable.
//!
//! INV-received-2: a received range is skipped only if it came from sources that are sources of the plan now.
//! Writes since then have reached this node directly: it was a pending replica all the time.

use std::cell::RefCell;
use std::fmt::Write;

use cluster::TokenRange;
use codec::SmallForm;
use rt::{Fs, Rt, SmallContent};
use stdx::{HostId, IoErrorKind, TableId, Token, Uuid};
use streaming::FetchRange;

const FORM: SmallForm = SmallForm { kind: "received", version: 2 };
/// Largest file that is read.
const BYTES_MAX: usize = 256 << 20;

/// Ranges received by one movement.
pub(crate) struct Received {
    fs: Fs,
    path: String,
    key: String,
    done: RefCell<Vec<FetchRange>>,
}

impl Received {
    /// Loads the ranges of the movement `key` that were received before this run. `name` names the
    /// file: one for each kind of movement that may run at the same time.
    pub(crate) async fn load(rt: &Rt, work_dir: &str, name: &str, key: String) -> Received {
        let fs = rt.fs();
        let path = path_of(work_dir, name);
        let found = match fs.read_small(FORM, &path, BYTES_MAX).await {
            Ok(SmallContent::Missing) => None,
            Ok(SmallContent::Body(body)) => decode(&body, &key),
            Ok(SmallContent::Legacy(_)) => {
                tracing::warn!(
                    path,
                    "ignoring the list of fetched ranges, which is damaged or of an earlier \
                    release: fetching all ranges again"
                );
                None
            }
            Err(error) => {
                tracing::warn!(%error, "fetching all ranges again");
                None
            }
        };
        let done = found.unwrap_or_default();
        if !done.is_empty() {
            tracing::info!(
                ranges = done.len(),
                movement = key.as_str(),
                "resuming where the last run stopped"
            );
        }
        Received { fs, path, key, done: RefCell::new(done) }
    }

    /// Returns the ranges of a plan that are still to be fetched.
    pub(crate) fn rest(&self, plan: Vec<FetchRange>) -> Vec<FetchRange> {
        let done = self.done.borrow();
        if done.is_empty() {
            return plan;
        }
        plan.into_iter().filter(|wanted| !is_covered(&done, wanted)).collect()
    }

    /// Remembers ranges. A disk that refuses costs no more than fetching them again.
    pub(crate) async fn keep(&self, ranges: Vec<FetchRange>) {
        self.done.borrow_mut().extend(ranges);
        let text = encode(&self.key, &self.done.borrow());
        if let Err(error) = self.fs.write_small(FORM, &self.path, &text).await {
            tracing::warn!(%error, "cannot persist the list of fetched ranges");
        }
    }

    /// The movement is over.
    pub(crate) async fn forget(&self) {
        self.done.borrow_mut().clear();
        forget(&self.fs, &self.path).await;
    }
}

/// Returns true if a range was received, from sources that are all sources of the plan now
/// (INV-received-2).
fn is_covered(done: &[FetchRange], wanted: &FetchRange) -> bool {
    done.iter().any(|d| {
        d.table == wanted.table
            && d.range == wanted.range
            && d.sources.iter().all(|s| wanted.sources.contains(s))
    })
}

/// The name of what is received because another member moves.
pub(crate) fn name_for(mover: HostId) -> String {
    format!("for-{mover}")
}

pub(crate) fn path_of(work_dir: &str, name: &str) -> String {
    format!("{}/metadata/received-{name}", work_dir.trim_end_matches('/'))
}

pub(crate) async fn forget(fs: &Fs, path: &str) {
    match fs.remove_file(path).await {
        Err(error) if error.kind != IoErrorKind::NotFound => {
            // It is of a movement that does not recur.
            tracing::warn!(%error, "cannot remove a list of fetched ranges");
        }
        _ => {}
    }
}

fn encode(key: &str, done: &[FetchRange]) -> Vec<u8> {
    let mut text = format!("key {key}\n");
    for FetchRange { table, range, sources } in done {
        let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
        let (start, end) = (range.start.0, range.end.0);
        let _ = writeln!(text, "{} {start} {end} {}", table.0, sources.join(","));
    }
    text.into_bytes()
}

fn decode(bytes: &[u8], key: &str) -> Option<Vec<FetchRange>> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()?.strip_prefix("key ")? != key {
        return None;
    }
    lines.map(range_of).collect()
}

fn range_of(line: &str) -> Option<FetchRange> {
    let mut words = line.split(' ');
    let table = TableId(Uuid::parse_str(words.next()?).ok()?);
    let (start, end) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let sources = words.next()?.split(',').filter(|text| !text.is_empty());
    let sources: Option<Vec<HostId>> =
        sources.map(|text| Uuid::parse_str(text).ok().map(HostId)).collect();
    let range = TokenRange { start: Token(start), end: Token(end) };
    Some(FetchRange { table, range, sources: sources? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u8) -> HostId {
        HostId(Uuid::from_bytes([n; 16]))
    }

    fn range(table: u128, start: i64, sources: &[u8]) -> FetchRange {
        FetchRange {
            table: TableId(Uuid::from_u128(table)),
            range: TokenRange { start: Token(start), end: Token(i64::MAX) },
            sources: sources.iter().map(|n| host(*n)).collect(),
        }
    }

    #[test]
    fn ranges_come_back_and_nothing_else_is_read() {
        let all = vec![range(7, i64::MIN, &[1]), range(8, -5, &[2, 3])];
        let bytes = encode("join", &all);
        assert_eq!(decode(&bytes, "join"), Some(all));
        assert_eq!(decode(&bytes, "leave"), None, "of another movement");
    }

    #[test]
    fn a_range_that_other_sources_gave_is_fetched_again() {
        let done = [range(7, 0, &[1, 2]), range(8, 0, &[])];
        // INV-received-2
        assert!(is_covered(&done, &range(7, 0, &[1, 2, 3])));
        assert!(!is_covered(&done, &range(7, 0, &[1, 3])), "2 will not do now");
        assert!(!is_covered(&done, &range(7, 1, &[1, 2])), "of another range");
        assert!(!is_covered(&done, &range(9, 0, &[1, 2])), "of another table");
        assert!(is_covered(&done, &range(8, 0, &[1])));
    }
}
