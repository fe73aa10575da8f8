//! Reports of a shard about secondary indexes.

use std::collections::{BTreeMap, BTreeSet};

use schema::{IndexMetadata, IndexRules, Table, TargetPart};
use store::{IndexState, IndexStats, IndexedFile};
use types::CqlType;

use super::Served;
use crate::model::{IndexReport, IndexedSstableReport};

/// Bytes of a term that a report shows.
const TERM_BYTES_SHOWN: usize = 128;

/// Options of text; an index with one of them has an analyzer.
const TEXT_OPTIONS: [&str; 3] = ["case_sensitive", "normalize", "ascii"];

/// Indexes of a table on this shard, together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexTotals {
    /// By name: it is built.
    pub(super) built: BTreeMap<String, bool>,
    /// Bytes on disk.
    pub(super) bytes: u64,
}

impl Served {
    /// Returns a report of each index of the tables that are stored.
    pub(super) fn indexes(&self) -> Vec<IndexReport> {
        let schema = self.membership.snapshot().schema.clone();
        let mut reports = Vec::new();
        let stored = schema.keyspaces.values().filter(|keyspace| !keyspace.is_virtual);
        for table in stored.flat_map(|keyspace| keyspace.tables.values()) {
            if table.indexes.is_empty() {
                continue;
            }
            let stats = self.store.index_stats(table.id);
            for index in table.indexes.iter() {
                let stats = stats.iter().find(|stats| stats.index == index.id);
                reports.push(report(table, index, stats));
            }
        }
        reports
    }

    /// Returns the totals of a table's indexes.
    pub(super) fn index_totals(&self, table: &Table) -> IndexTotals {
        if table.indexes.is_empty() {
            return IndexTotals::default();
        }
        totals(table, &self.store.index_stats(table.id))
    }
}

fn totals(table: &Table, stats: &[IndexStats]) -> IndexTotals {
    let is_built = |index: &IndexMetadata| {
        let stats = stats.iter().find(|stats| stats.index == index.id);
        stats.is_some_and(|stats| stats.state == IndexState::Built)
    };
    let built = table.indexes.iter().map(|index| (index.name.to_string(), is_built(index)));
    let files = || stats.iter().flat_map(|stats| &stats.files);
    // One component of positions for each SSTable.
    let rows: BTreeSet<(&str, u64)> =
        files().map(|file| (file.path.as_str(), file.rows_bytes)).collect();
    let bytes: u64 = files().map(|file| file.bytes).sum();
    let rows_bytes: u64 = rows.iter().map(|(_, bytes)| bytes).sum();
    IndexTotals { built: built.collect(), bytes: bytes + rows_bytes }
}

/// `stats`: `None` while the store does not know the index yet.
fn report(table: &Table, index: &IndexMetadata, stats: Option<&IndexStats>) -> IndexReport {
    let ty = table.column(&index.target.column).map(|column| &column.ty);
    let term = ty.and_then(|ty| term_type(ty, index.target.part));
    let shows_text = term.is_some_and(is_text);
    let files = stats.map(|stats| stats.files.as_slice()).unwrap_or_default();
    let sstables = files.iter().map(|file| (file.path.clone(), sstable(file, shows_text)));
    let rules = match index.rules {
        IndexRules::Sai => "sai",
        IndexRules::Sasi => "sasi",
        IndexRules::Legacy => "legacy_local_table",
    };
    IndexReport {
        keyspace: table.keyspace.to_string(),
        table: table.name.to_string(),
        index: index.name.to_string(),
        column: index.target.column.to_string(),
        rules: rules.to_owned(),
        is_literal: term.is_none_or(is_literal),
        analyzer: analyzer(index),
        is_built: stats.is_some_and(|stats| stats.state == IndexState::Built),
        sstables_without: stats.map_or(0, |stats| stats.files_without),
        sstables: sstables.collect(),
    }
}

fn sstable(file: &IndexedFile, shows_text: bool) -> IndexedSstableReport {
    IndexedSstableReport {
        rows: file.rows,
        terms: file.terms,
        entries: file.entries,
        min_term: term_text(&file.bounds.0, shows_text),
        max_term: term_text(&file.bounds.1, shows_text),
        bytes: file.bytes,
        rows_bytes: file.rows_bytes,
        start_token: file.tokens.0.0,
        end_token: file.tokens.1.0,
    }
}

/// Type of what an entry of the index has; `None`: a pair of key and value.
fn term_type(ty: &CqlType, part: TargetPart) -> Option<&CqlType> {
    match (part, ty) {
        (TargetPart::Values, CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            Some(element)
        }
        (TargetPart::Values, CqlType::Map { value, .. }) => Some(value),
        (TargetPart::Keys, CqlType::Map { key, .. }) => Some(key),
        (TargetPart::Entries, _) => None,
        _ => Some(ty),
    }
}

fn is_text(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Ascii | CqlType::Text)
}

/// Source: Cassandra's `IndexTermType.isLiteral`.
fn is_literal(ty: &CqlType) -> bool {
    let is_composed = ty.is_collection() || matches!(ty, CqlType::Tuple(_) | CqlType::Udt(_));
    is_text(ty) || is_composed || *ty == CqlType::Boolean
}

/// Source: `toString` of Cassandra's analyzers, as 5.0.9 shows it.
fn analyzer(index: &IndexMetadata) -> String {
    if !TEXT_OPTIONS.iter().any(|option| index.options.contains_key(*option)) {
        return "NoOpAnalyzer".to_owned();
    }
    let is = |option: &str, default: &str| {
        let value = index.options.get(option).map_or(default, String::as_str);
        value.eq_ignore_ascii_case("true")
    };
    let (case, normalized, ascii) =
        (is("case_sensitive", "true"), is("normalize", "false"), is("ascii", "false"));
    format!("NonTokenizingAnalyzer{{caseSensitive={case}, normalized={normalized}, ascii={ascii}}}")
}

/// The first bytes of a term: text, or hexadecimal digits.
fn term_text(term: &[u8], shows_text: bool) -> String {
    let is_cut = term.len() > TERM_BYTES_SHOWN;
    let shown = term.get(..TERM_BYTES_SHOWN).unwrap_or(term);
    let mut text = match shows_text {
        true => String::from_utf8_lossy(shown).into_owned(),
        false => shown.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    };
    if is_cut {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schema::{Column, IndexKind, IndexTarget, TableKind, TableOptions};
    use stdx::{ColumnId, TableId, Token, Uuid};

    use super::*;

    fn index(id: u128, column: &str, options: &[(&str, &str)]) -> IndexMetadata {
        let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        IndexMetadata {
            id: Uuid::from_u128(id),
            name: format!("t_{column}").into(),
            kind: IndexKind::Custom,
            options,
            target: IndexTarget { column: column.into(), part: TargetPart::Simple },
            rules: IndexRules::Sai,
        }
    }

    fn table(indexes: Vec<IndexMetadata>) -> Table {
        let column = |id, name: &str, ty| Column {
            id: ColumnId(id),
            name: name.into(),
            ty,
            kind: schema::ColumnKind::Regular,
        };
        Table {
            id: TableId(Uuid::from_u128(1)),
            keyspace: "ks".into(),
            name: "t".into(),
            kind: TableKind::Regular,
            columns: vec![column(0, "a", CqlType::Text), column(1, "b", CqlType::Int)],
            partition_key_count: 0,
            clustering_count: 0,
            static_count: 0,
            options: TableOptions::default(),
            dropped: BTreeMap::new(),
            masks: BTreeMap::new(),
            indexes: indexes.into_iter().map(Arc::new).collect(),
            version: 1,
            next_column_id: 2,
        }
    }

    fn file(path: &str, min: &[u8]) -> IndexedFile {
        IndexedFile {
            path: path.to_owned(),
            rows: 7,
            terms: 2,
            entries: 5,
            bounds: (min.to_vec(), vec![0xff; 200]),
            bytes: 100,
            rows_bytes: 30,
            tokens: (Token(-5), Token(9)),
        }
    }

    fn stats(index: u128, state: IndexState, files: Vec<IndexedFile>) -> IndexStats {
        IndexStats { index: Uuid::from_u128(index), state, files_without: 1, files }
    }

    /// Recorded from a Cassandra 5.0.9.
    #[test]
    fn analyzers_and_literals_are_those_of_cassandra() {
        for (options, expected) in [
            (&[][..], "NoOpAnalyzer"),
            (&[("target", "a")][..], "NoOpAnalyzer"),
            (
                &[("case_sensitive", "true")][..],
                "NonTokenizingAnalyzer{caseSensitive=true, normalized=false, ascii=false}",
            ),
            (
                &[("normalize", "true"), ("ascii", "true")][..],
                "NonTokenizingAnalyzer{caseSensitive=true, normalized=true, ascii=true}",
            ),
            (
                &[("case_sensitive", "FALSE")][..],
                "NonTokenizingAnalyzer{caseSensitive=false, normalized=false, ascii=false}",
            ),
        ] {
            assert_eq!(analyzer(&index(1, "a", options)), expected);
        }
        let list = |frozen| CqlType::List { element: Arc::new(CqlType::Int), frozen };
        let map = CqlType::Map {
            key: Arc::new(CqlType::Text),
            value: Arc::new(CqlType::Int),
            frozen: false,
        };
        let literal = |ty: &CqlType, part| term_type(ty, part).is_none_or(is_literal);
        for (ty, part, expected) in [
            (&CqlType::Text, TargetPart::Simple, true),
            (&CqlType::Boolean, TargetPart::Simple, true),
            (&CqlType::Timestamp, TargetPart::Simple, false),
            (&CqlType::Uuid, TargetPart::Simple, false),
            (&CqlType::Inet, TargetPart::Simple, false),
            (&list(true), TargetPart::Full, true),
            (&list(false), TargetPart::Values, false),
            (&map, TargetPart::Keys, true),
            (&map, TargetPart::Values, false),
            (&map, TargetPart::Entries, true),
        ] {
            assert_eq!(literal(ty, part), expected, "{ty:?} {part:?}");
        }
    }

    #[test]
    fn a_report_has_the_files_of_its_index_and_totals_count_shared_components_once() {
        let table = table(vec![index(1, "a", &[]), index(2, "b", &[]), index(3, "c", &[])]);
        let all = [
            stats(1, IndexState::Built, vec![file("/d/1", b"abc"), file("/d/2", b"abc")]),
            stats(2, IndexState::Building { done: 1, total: 2 }, vec![file("/d/1", &[0x80, 1])]),
        ];
        let of = |number: usize| report(&table, &table.indexes[number], all.get(number));
        let text = of(0);
        assert!(text.is_built && text.sstables_without == 1 && text.is_literal);
        let shown = &text.sstables["/d/2"];
        assert_eq!((shown.min_term.as_str(), shown.entries, shown.end_token), ("abc", 5, 9));
        let number = of(1);
        assert!(!number.is_built && !number.is_literal);
        assert_eq!(number.sstables["/d/1"].min_term, "0x8001");
        let max = &number.sstables["/d/1"].max_term;
        assert_eq!(*max, format!("0x{}...", "ff".repeat(128)));
        assert!(!of(2).is_built && of(2).sstables.is_empty(), "the store does not know it yet");
        let built = [("t_a", true), ("t_b", false), ("t_c", false)];
        let built = built.map(|(name, is)| (name.to_owned(), is)).into();
        assert_eq!(totals(&table, &all), IndexTotals { built, bytes: 3 * 100 + 2 * 30 });
    }
}
