//! Which indexes of a table are built on a shard: kept in `helenus-indexed.<shard>`.

use std::collections::BTreeSet;

use sstable::{Attached, Component, IndexComponent};
use stdx::Uuid;

use crate::files::Files;
use crate::files::marks;
use crate::tables::table::TableState;

/// Most bytes of the list of a table.
const LIST_BYTES_MAX: usize = 1 << 20;

pub(crate) fn encode(built: &BTreeSet<Uuid>) -> Vec<u8> {
    let lines: String = built.iter().map(|id| format!("built {id}\n")).collect();
    marks::INDEXED.encode(lines.as_bytes())
}

/// `None`: these are not the lines of a list.
pub(crate) fn of_lines(body: &str) -> Option<BTreeSet<Uuid>> {
    let id = |line: &str| Uuid::try_parse(line.strip_prefix("built ")?).ok();
    body.lines().map(id).collect()
}

/// The name of a shard's list.
pub(crate) fn list_name(shard: u16) -> String {
    format!("helenus-indexed.{shard}")
}

/// Components of indexes that the files of a table have lost, or that are damaged.
pub(crate) fn defects(table: &TableState) -> Vec<String> {
    const THEN: &str = "its file is read without the index until it is rewritten in the background";
    let mut found = Vec::new();
    for file in &table.view().files {
        let meta = file.reader.meta();
        let lost = Attached::of(meta).lost();
        let lost = lost.filter(|name| IndexComponent::of_name(*name).is_some());
        found.extend(lost.map(|name| {
            let path = meta.file(Component::Attached(name));
            format!("{path} is missing; {THEN}")
        }));
        let damaged = file.reader.damaged_indexes();
        found.extend(damaged.into_iter().map(|error| format!("{error}; {THEN}")));
    }
    found
}

/// Reads the list of built indexes of a table being opened. Returns the error of the list.
pub(super) async fn open_indexed(files: &Files, table: &TableState, path: &str) -> Option<String> {
    let fs = files.env.rt.fs();
    let read = marks::read_lines(&fs, marks::INDEXED, path, LIST_BYTES_MAX).await;
    let read = read.and_then(|body| match body {
        None => Ok(BTreeSet::new()),
        Some(body) => of_lines(&body).ok_or_else(marks::unknown_lines),
    });
    match read {
        Ok(built) => {
            table.indexes.open(built);
            None
        }
        Err(why) => {
            let then = "an index counts as built when all files have it";
            Some(format!("{path} is ignored and will be rewritten, {then}: {why}"))
        }
    }
}

/// Writes the list, if it changed. A failure is retried at the next call.
pub(crate) async fn write_indexed(files: &Files, table: &TableState) {
    if table.dropped.get() || !table.has_directory.get() {
        return;
    }
    let Some(built) = table.indexes.take_changed() else { return };
    let name = list_name(files.env.shard().0);
    let written = match files.mark_path(table, &name).await {
        Ok(path) => files.env.rt.fs().write_atomic(&path, encode(&built)).await.is_ok(),
        Err(_) => false,
    };
    if !written {
        table.indexes.put_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_built_indexes_has_the_bytes_of_version_1() {
        let built = BTreeSet::from([Uuid::from_u128(2), Uuid::from_u128(0x10)]);
        let bytes = encode(&built);
        let text = "helenus-file indexed 1\n\
                    built 00000000-0000-0000-0000-000000000002\n\
                    built 00000000-0000-0000-0000-000000000010\n";
        assert!(bytes.starts_with(text.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
        let body = marks::body_of(marks::INDEXED, &bytes).unwrap();
        assert_eq!(of_lines(&body), Some(built));
        assert_eq!(of_lines("built 7\n"), None);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(marks::body_of(marks::INDEXED, &flipped).is_err(), "{at}");
        }
    }
}
