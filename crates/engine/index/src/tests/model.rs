//! Random files and memtables with indexes, and the candidates that a search of them must give.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use data::command::{KeyRange, RingBound};
use data::{ClusteringBuf, Slice, Slices, TableShape};
use index_format::search::{Frontier, MatchedRows, Matches, SearchLimits};
use index_format::sources::Fed;
use index_format::{
    Block, BlockRef, IndexCursor, IndexSummary, IndexWriter, MemtableIndex, RowKey, RowPlace,
    RowsReader, RowsSummary, RowsWriter, Scope, Source, TermRange, Wanted,
};
use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use stdx::{ColumnId, TableId, Token, Uuid};
use testkit::Random;
use types::CqlType;

use crate::{Search, SearchNeed, SearchPredicate, SearchRange, SearchStep};

/// Token, partition, rank of the row in it; rank 0 is the static row. Later rows have smaller clusterings.
pub(super) type Key = (i64, u8, u8);

const TERM: &[u8] = b"x";

fn clustering_of(rank: u8) -> Vec<u8> {
    ClusteringBuf::from_components([&[200 - rank][..]]).0
}

fn rank_of(clustering: &[u8]) -> u8 {
    200 - clustering.last().unwrap()
}

fn row_key(key: &Key) -> Arc<RowKey> {
    let has_row = key.2 > 0;
    Arc::new(RowKey {
        token: Token(key.0),
        partition: [key.1].into(),
        clustering: if has_row { [key.2].into() } else { [].into() },
        values: if has_row { clustering_of(key.2).into() } else { [].into() },
    })
}

/// One blob as partition key, one as clustering, descending.
pub(super) fn shape() -> Rc<TableShape> {
    let column = |id, name: &str, kind| Column {
        id: ColumnId(id),
        name: name.into(),
        ty: CqlType::Blob,
        kind,
    };
    Rc::new(TableShape::for_table(&Table {
        id: TableId(Uuid::from_u128(1)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "pk", ColumnKind::PartitionKey(0)),
            column(1, "ck", ColumnKind::Clustering { position: 0, reversed: true }),
            column(2, "s", ColumnKind::Static),
            column(3, "v", ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 1,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Arc::default(),
        version: 1,
        next_column_id: 4,
    }))
}

fn block_of(bytes: &[u8], at: BlockRef) -> Block {
    let start = at.offset as usize;
    Block::open(at, bytes[start..start + at.length as usize].to_vec()).unwrap()
}

struct File {
    keys: Vec<Key>,
    rows: Vec<u8>,
    rows_summary: Arc<RowsSummary>,
    /// Index of each predicate; `None`: the file lacks it.
    indexes: Vec<Option<(Vec<u8>, IndexSummary)>>,
}

impl File {
    fn new(keys: BTreeSet<Key>) -> File {
        let keys: Vec<Key> = keys.into_iter().collect();
        let mut writer = RowsWriter::new();
        let mut last = None;
        for (at, key) in keys.iter().enumerate() {
            let partition = (key.0, key.1);
            if last.replace(partition) != Some(partition) {
                writer.partition(Token(key.0), at as u64 * 10).unwrap();
            }
            writer.row(at as u64 * 10 + 5).unwrap();
        }
        let summary = writer.finish().unwrap();
        let (rows, rows_summary) = (writer.take_output(), Arc::new(summary));
        File { keys, rows, rows_summary, indexes: Vec::new() }
    }

    fn add_index(&mut self, ids: impl Iterator<Item = u32>) {
        let mut writer = IndexWriter::new(Uuid::from_u128(7), self.keys.len() as u32);
        ids.for_each(|id| writer.push(TERM, id).unwrap());
        let summary = writer.finish().unwrap();
        self.indexes.push(Some((writer.take_output(), summary)));
    }
}

struct Memtable {
    keys: Vec<BTreeSet<Key>>,
    /// It lacks the index of these predicates.
    lacks: Vec<bool>,
}

pub(super) struct Model {
    files: Vec<File>,
    memtables: Vec<Memtable>,
    pub(super) scopes: Vec<Scope>,
    /// Candidates of each predicate.
    keys: Vec<BTreeSet<Key>>,
    shape: Rc<TableShape>,
}

/// Keys that a source without index gives.
fn shown(keys: &[Key], scope: Scope) -> Vec<Key> {
    keys.iter().filter(|key| scope == Scope::Partition || key.2 > 0).copied().collect()
}

impl Model {
    pub(super) fn random(random: &mut Random) -> Model {
        let (tokens, ranks) = (1 + random.below(30), [2, 3, 20][random.below(3)]);
        let count = 1 + random.below(3);
        let scopes: Vec<Scope> = (0..count)
            .map(|_| [Scope::Row, Scope::Row, Scope::Partition][random.below(3)])
            .collect();
        // Two partitions may have one token.
        let key = |random: &mut Random| {
            let token = random.below(tokens) as i64 * 1_000 - 5_000;
            (token, random.below(8) as u8 / 7, random.below(ranks) as u8)
        };
        let mut keys = vec![BTreeSet::new(); count];
        let mut files = Vec::new();
        for _ in 0..random.below(4) {
            let mut file = File::new((0..random.below(200)).map(|_| key(random)).collect());
            for (at, scope) in scopes.iter().enumerate() {
                if random.below(6) == 0 {
                    keys[at].extend(shown(&file.keys, *scope));
                    file.indexes.push(None);
                    continue;
                }
                let odds = [2, 5, 40][random.below(3)];
                let shown = |key: &Key| *scope == Scope::Partition || key.2 > 0;
                let ids = (0..file.keys.len() as u32)
                    .filter(|id| shown(&file.keys[*id as usize]) && random.below(odds) == 0);
                let ids: Vec<u32> = ids.collect();
                keys[at].extend(ids.iter().map(|id| file.keys[*id as usize]));
                file.add_index(ids.into_iter());
            }
            files.push(file);
        }
        let mut memtables = Vec::new();
        for _ in 0..random.below(3) {
            let lacks = (0..count).map(|_| random.below(5) == 0).collect();
            let mut memtable = Memtable { keys: Vec::new(), lacks };
            for (at, scope) in scopes.iter().enumerate() {
                let of_index = (0..random.below(50)).map(|_| {
                    let key = key(random);
                    (key.0, key.1, if *scope == Scope::Partition { 0 } else { key.2.max(1) })
                });
                let of_index: BTreeSet<Key> = of_index.collect();
                keys[at].extend(&of_index);
                memtable.keys.push(of_index);
            }
            memtables.push(memtable);
        }
        Model { files, memtables, scopes, keys, shape: shape() }
    }

    /// Unit of the keys that a search of these predicates gives.
    pub(super) fn unit(&self, predicates: &[usize]) -> Scope {
        let has_rows = predicates.iter().any(|at| self.scopes[*at] == Scope::Row);
        if has_rows { Scope::Row } else { Scope::Partition }
    }

    /// Rows of a predicate, of all sources: those of its index, or all.
    pub(super) fn pairs(&self, at: usize) -> u64 {
        let of_file = |file: &File| match &file.indexes[at] {
            Some((_, summary)) => summary.counts.ids,
            None => file.keys.len() as u64,
        };
        let of_memtable = |memtable: &Memtable| memtable.keys[at].len() as u64;
        let files: u64 = self.files.iter().map(of_file).sum();
        files + self.memtables.iter().map(of_memtable).sum::<u64>()
    }

    /// The candidates of these predicates in a range.
    pub(super) fn expected(&self, predicates: &[usize], range: &SearchRange) -> Vec<Key> {
        let unit = self.unit(predicates);
        let mut all: BTreeSet<Key> = BTreeSet::new();
        predicates.iter().for_each(|at| all.extend(&self.keys[*at]));
        let is_hit = |key: &Key| {
            predicates.iter().all(|at| match self.scopes[*at] {
                Scope::Row => self.keys[*at].contains(key),
                Scope::Partition => {
                    let partition = (key.0, key.1, 0)..=(key.0, key.1, u8::MAX);
                    self.keys[*at].range(partition).next().is_some()
                }
            })
        };
        let whole = |key: Key| if unit == Scope::Row { key } else { (key.0, key.1, 0) };
        let hits: BTreeSet<Key> = all.into_iter().filter(is_hit).map(whole).collect();
        hits.into_iter().filter(|key| self.is_inside(range, key)).collect()
    }

    fn is_inside(&self, range: &SearchRange, key: &Key) -> bool {
        let after = |bound: &RingBound| match bound {
            RingBound::Token { token, after } => key.0 > token.0 || (!after && key.0 == token.0),
            RingBound::Key { token, key: partition, after } => {
                let order = (key.0, key.1).cmp(&(token.0, partition[0]));
                order.is_gt() || (order.is_eq() && !after)
            }
        };
        let RingBound::Key { token, key: partition, .. } = &range.range.start else {
            return after(&range.range.start)
                && !after(&range.range.end)
                && is_in_slices(range, key);
        };
        let is_first = (key.0, key.1) == (token.0, partition[0]);
        let last = range.after_row.as_ref().filter(|_| is_first && key.2 > 0);
        after(&range.range.start)
            && !after(&range.range.end)
            && last.is_none_or(|last| key.2 > rank_of(last))
            && is_in_slices(range, key)
    }

    /// One search, with all that it asks for.
    pub(super) fn search(
        &self,
        predicates: &[usize],
        range: &SearchRange,
        limits: SearchLimits,
    ) -> Matches {
        let of_number = |at: &usize| {
            let mut sources = Vec::new();
            for (number, file) in (0..).zip(&self.files) {
                sources.push(match &file.indexes[*at] {
                    None => Source::unindexed(number, file.keys.len() as u64),
                    Some((_, summary)) => {
                        let cursor = IndexCursor::new(summary, vec![TermRange::equal(TERM)]);
                        Source::file(number, cursor, RowsReader::new(file.rows_summary.clone()))
                    }
                });
            }
            for (number, memtable) in (self.files.len() as u32..).zip(&self.memtables) {
                let keys = &memtable.keys[*at];
                sources.push(if memtable.lacks[*at] {
                    Source::unindexed(number, keys.len() as u64)
                } else {
                    let mut index = MemtableIndex::default();
                    keys.iter().rev().for_each(|key| {
                        index.insert(TERM, row_key(key));
                    });
                    Source::memtable(number, index.rows(vec![TermRange::all()]))
                });
            }
            SearchPredicate { number: *at, scope: self.scopes[*at], sources }
        };
        let of_predicates = predicates.iter().map(of_number).collect();
        let search = Search::new(of_predicates, range.clone(), self.shape.clone(), limits);
        let mut search = search.of_table(self.scopes.len(), 1_000);
        let mut given = BTreeMap::new();
        loop {
            match search.advance().unwrap() {
                SearchStep::End(matches) => return matches,
                SearchStep::Pause => {}
                SearchStep::Need(need) => {
                    let fed = self.answer(&need, &mut given);
                    search.feed(&need, fed);
                }
            }
        }
    }

    /// The input of a driver. `given`: how many keys sources without index have given.
    fn answer(&self, need: &SearchNeed, given: &mut BTreeMap<(usize, u32), usize>) -> Fed {
        let file = self.files.get(need.source as usize);
        let index = || file.unwrap().indexes[need.predicate].as_ref().unwrap();
        match need.wanted {
            Wanted::IndexBlock(at) => Fed::IndexBlock(block_of(&index().0, at)),
            Wanted::RowsBlock(at) => Fed::RowsBlock(block_of(&file.unwrap().rows, at)),
            Wanted::Key(RowPlace { row_offset, .. }) => {
                Fed::Key(row_key(&file.unwrap().keys[(row_offset as usize - 5) / 10]))
            }
            Wanted::NextKey { floor } => {
                let memtable = need.source as usize - self.files.len().min(need.source as usize);
                let keys: Vec<Key> = match file {
                    Some(file) => shown(&file.keys, self.scopes[need.predicate]),
                    None => self.memtables[memtable].keys[need.predicate].iter().copied().collect(),
                };
                let at = given.entry((need.predicate, need.source)).or_default();
                // A driver may leave the floor out.
                let floor = floor.filter(|floor| floor.0 / 1_000 % 2 == 0);
                while keys.get(*at).is_some_and(|key| floor.is_some_and(|f| key.0 < f.0)) {
                    *at += 1;
                }
                *at += 1;
                Fed::NextKey(keys.get(*at - 1).map(row_key))
            }
        }
    }
}

fn is_in_slices(range: &SearchRange, key: &Key) -> bool {
    let bound = |prefix: &[u8]| (!prefix.is_empty()).then(|| rank_of(prefix));
    key.2 == 0
        || range.slices.0.iter().any(|slice| {
            bound(&slice.start).is_none_or(|start| key.2 >= start + u8::from(slice.start_after))
                && bound(&slice.end).is_none_or(|end| key.2 < end + u8::from(slice.end_after))
        })
}

fn random_bound(random: &mut Random) -> RingBound {
    let token = Token(random.below(32) as i64 * 1_000 - 6_000 + random.below(3) as i64 / 2);
    let after = random.below(2) == 0;
    match random.below(2) {
        0 => RingBound::Token { token, after },
        _ => RingBound::Key { token, key: vec![random.below(2) as u8], after },
    }
}

pub(super) fn random_range(random: &mut Random) -> SearchRange {
    let mut range = KeyRange::all();
    if random.below(3) == 0 {
        range.start = random_bound(random);
    }
    if random.below(3) == 0 {
        range.end = random_bound(random);
    }
    let slices = match random.below(4) {
        0 => {
            let rank = |random: &mut Random| clustering_of(1 + random.below(20) as u8);
            let (start, end) = (rank(random), rank(random));
            let (start_after, end_after) = (random.below(2) == 0, random.below(2) == 0);
            Slices(vec![Slice { start, start_after, end, end_after }])
        }
        _ => Slices::all(),
    };
    SearchRange { range, after_row: None, slices: Arc::new(slices) }
}

/// The keys of an answer.
pub(super) fn keys_of(matches: &Matches) -> Vec<Key> {
    let of_partition = |partition: &index_format::search::MatchedPartition| {
        let (token, key) = (partition.token.0, partition.key[0]);
        match &partition.rows {
            MatchedRows::Whole => vec![(token, key, 0)],
            MatchedRows::Rows(rows) => rows.iter().map(|row| (token, key, rank_of(row))).collect(),
        }
    };
    matches.partitions.iter().flat_map(of_partition).collect()
}

/// The first key that may follow, for comparisons. `None`: nothing follows.
pub(super) fn position_of(frontier: &Frontier) -> Option<(i64, u8, u16)> {
    match frontier {
        Frontier::Done => None,
        Frontier::Before { token } => Some((token.0, 0, 0)),
        Frontier::After { token, key } => Some((token.0, key[0], u16::MAX)),
        Frontier::Inside { token, key, clustering } => {
            Some((token.0, key[0], u16::from(rank_of(clustering)) + 1))
        }
    }
}

/// The range that continues a search at its frontier.
pub(super) fn continued(range: &SearchRange, frontier: &Frontier) -> Option<SearchRange> {
    let (start, after_row) = match frontier.clone() {
        Frontier::Done => return None,
        Frontier::Before { token } => (RingBound::Token { token, after: false }, None),
        Frontier::After { token, key } => (RingBound::Key { token, key, after: true }, None),
        Frontier::Inside { token, key, clustering } => {
            (RingBound::Key { token, key, after: false }, Some(clustering))
        }
    };
    let range_of = KeyRange { start, end: range.range.end.clone() };
    Some(SearchRange { range: range_of, after_row, slices: range.slices.clone() })
}
