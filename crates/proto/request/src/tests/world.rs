//! Replicas as lists of mutations, read the way a store reads.

use std::collections::BTreeMap;

use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::{FilteredPage, PageEnd, PageFlow, PageLimits, PageWriter, ReplicaPage};
use data::{
    Advance, BoundRef, CellRef, ClusteringBuf, ColumnRef, Cursor, CursorError, DeletionTime, Item,
    Liveness, Marker, MergeCursor, MergeMode, MutationBuilder, MutationRef, RangeTombstoneList,
    RangeTombstoneRef, RowBuilder, RowFilter, RowRef, TableShape,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use stdx::{ColumnId, DeletionSeconds, TableId, TimestampMicros, Token, TtlSeconds, Uuid};
use types::CqlType;

/// The clock of the reads: some of the expiring cells are expired.
pub(crate) const NOW: DeletionSeconds = DeletionSeconds(14);

const STATIC: ColumnId = ColumnId(2);
const A: ColumnId = ColumnId(3);
const B: ColumnId = ColumnId(4);
const SET: ColumnId = ColumnId(5);

/// pk int, ck int, st text static, a text, b text, s set<int>.
pub(crate) fn shape() -> TableShape {
    let column = |id: ColumnId, name: &str, ty, kind| Column { id, name: name.into(), ty, kind };
    let clustering = ColumnKind::Clustering { position: 0, reversed: false };
    TableShape::for_table(&Table {
        id: TableId(Uuid::from_u128(1)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(ColumnId(0), "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(ColumnId(1), "ck", CqlType::Int, clustering),
            column(STATIC, "st", CqlType::Text, ColumnKind::Static),
            column(A, "a", CqlType::Text, ColumnKind::Regular),
            column(B, "b", CqlType::Text, ColumnKind::Regular),
            column(SET, "s", CqlType::set(CqlType::Int, false), ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 1,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 6,
    })
}

fn deletion(timestamp: i64) -> DeletionTime {
    DeletionTime { timestamp: TimestampMicros(timestamp), local: DeletionSeconds(timestamp / 2) }
}

pub(crate) fn ck(n: i32) -> Vec<u8> {
    ClusteringBuf::from_components([n.to_be_bytes().as_slice()]).0
}

/// (timestamp, kind: 0 live, 1 tombstone, 2 expiring, value).
type CellSpec = (i64, u8, u8);

#[derive(Clone, Debug)]
pub(crate) struct RowSpec {
    liveness: Option<i64>,
    deletion: Option<i64>,
    a: Option<CellSpec>,
    b: Option<CellSpec>,
    set_deletion: Option<i64>,
    set: BTreeMap<i32, CellSpec>,
    base: i64,
}

impl RowSpec {
    /// The row that INSERT of the key alone writes.
    pub(crate) fn inserted(timestamp: i64) -> RowSpec {
        RowSpec {
            liveness: Some(timestamp),
            deletion: None,
            a: None,
            b: None,
            set_deletion: None,
            set: BTreeMap::new(),
            base: timestamp,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Partition(i64),
    Static(CellSpec),
    Row(i32, RowSpec),
    Range { from: i32, from_after: bool, to: i32, to_after: bool, timestamp: i64 },
}

fn with_cell<T>(spec: CellSpec, then: impl FnOnce(&CellRef<'_>) -> T) -> T {
    let (timestamp, kind, value) = spec;
    let value = [value];
    let at = TimestampMicros(timestamp);
    then(&match kind {
        0 => CellRef::live(at, &value),
        1 => CellRef::tombstone(at, DeletionSeconds(timestamp / 2)),
        _ => CellRef::expiring(at, TtlSeconds(10), DeletionSeconds(timestamp / 2 + 10), &value),
    })
}

fn pack(spec: &RowSpec) -> Vec<u8> {
    let mut out = Vec::new();
    let liveness = spec.liveness.map_or(Liveness::NONE, |t| Liveness::new(TimestampMicros(t)));
    let deleted = spec.deletion.map_or(DeletionTime::LIVE, deletion);
    let mut row = RowBuilder::new(&mut out, liveness, deleted, TimestampMicros(spec.base));
    for (id, cell) in [(A, spec.a), (B, spec.b)] {
        if let Some(cell) = cell {
            with_cell(cell, |c| row.cell(id, c));
        }
    }
    if spec.set_deletion.is_some() || !spec.set.is_empty() {
        row.begin_complex(SET, spec.set_deletion.map_or(DeletionTime::LIVE, deletion));
        for (path, cell) in &spec.set {
            with_cell(*cell, |c| row.complex_cell(&path.to_be_bytes(), c));
        }
        row.end_complex();
    }
    row.finish();
    out
}

/// An encoded mutation of one write to partition `pk`.
pub(crate) fn encode(pk: i32, write: &Write) -> Vec<u8> {
    let (mut out, shape) = (Vec::new(), shape());
    let mut mutation =
        MutationBuilder::new(&mut out, shape.table(), shape.version(), &pk.to_be_bytes());
    match write {
        Write::Partition(timestamp) => mutation.deletion(deletion(*timestamp)),
        Write::Static(cell) => {
            let mut row = Vec::new();
            let (none, base) = (Liveness::NONE, TimestampMicros(0));
            let mut builder = RowBuilder::new(&mut row, none, DeletionTime::LIVE, base);
            with_cell(*cell, |c| builder.cell(STATIC, c));
            builder.finish();
            mutation.static_row(RowRef::trusted(&row));
        }
        Write::Row(n, spec) => {
            let (clustering, row) = (ck(*n), pack(spec));
            mutation.rows([(clustering.as_slice(), RowRef::trusted(&row))].into_iter());
        }
        Write::Range { from, from_after, to, to_after, timestamp } => {
            let (from, to) = (ck(*from), ck(*to));
            let range = RangeTombstoneRef {
                start: BoundRef { prefix: &from, after: *from_after },
                end: BoundRef { prefix: &to, after: *to_after },
                deletion: deletion(*timestamp),
            };
            mutation.range_tombstones([range].into_iter());
        }
    }
    mutation.finish();
    out
}

fn cell() -> impl Strategy<Value = CellSpec> {
    (1..12_i64, 0..3_u8, 0..3_u8)
}

fn row() -> impl Strategy<Value = RowSpec> {
    (
        option::of(1..12_i64),
        option::weighted(0.2, 1..12_i64),
        option::of(cell()),
        option::weighted(0.3, cell()),
        option::weighted(0.2, 1..12_i64),
        btree_map(0..3_i32, cell(), 0..3),
        0..20_i64,
    )
        .prop_map(|(liveness, deletion, a, b, set_deletion, set, base)| {
            // A row without anything is no write.
            let empty = liveness.is_none()
                && deletion.is_none()
                && a.is_none()
                && b.is_none()
                && set_deletion.is_none()
                && set.is_empty();
            let liveness = if empty { Some(1) } else { liveness };
            RowSpec { liveness, deletion, a, b, set_deletion, set, base }
        })
}

pub(crate) fn write() -> impl Strategy<Value = (i32, Write)> {
    let range = (0..8_i32, any::<bool>(), 0..8_i32, any::<bool>(), 1..12_i64);
    let kind = prop_oneof![
        1 => (1..8_i64).prop_map(Write::Partition),
        2 => cell().prop_map(Write::Static),
        12 => (0..8_i32, row()).prop_map(|(n, r)| Write::Row(n, r)),
        4 => range.prop_map(|(from, from_after, to, to_after, timestamp)| {
            Write::Range { from, from_after, to, to_after, timestamp }
        }),
    ];
    (0..3_i32, kind)
}

/// Writes, each with the replicas that have it (a bit per replica, at least one).
pub(crate) fn spread(replicas: u32) -> impl Strategy<Value = Vec<(Vec<u8>, u32)>> {
    vec((write(), 1..1_u32 << replicas), 0..14).prop_map(|writes| {
        writes.into_iter().map(|((pk, write), at)| (encode(pk, &write), at)).collect()
    })
}

#[derive(Clone)]
enum Event<'a> {
    Partition(Token, &'a [u8], DeletionTime),
    Static(RowRef<'a>),
    Row(&'a [u8], RowRef<'a>),
    Marker(Vec<u8>, bool, Option<DeletionTime>, Option<DeletionTime>),
    End,
}

/// One mutation as a cursor.
struct MutationCursor<'a> {
    events: Vec<Event<'a>>,
    at: usize,
}

impl<'a> MutationCursor<'a> {
    fn new(bytes: &'a [u8], shape: &TableShape, reversed: bool) -> MutationCursor<'a> {
        let mutation = MutationRef::parse(bytes, shape.clustering().len()).expect("a mutation");
        let key = mutation.key;
        let mut events = vec![Event::Partition(codec::token_of(key), key, mutation.deletion)];
        events.extend(mutation.static_row.map(Event::Static));
        let mut list = RangeTombstoneList::new();
        for range in mutation.range_tombstones() {
            list.add(shape.clustering(), range);
        }
        let mut inner: Vec<Event<'a>> = mutation.rows().map(|(c, r)| Event::Row(c, r)).collect();
        for range in list.iter() {
            let (start, end) = (range.start.as_bound(), range.end.as_bound());
            let (open, close) = if reversed { (end, start) } else { (start, end) };
            let d = Some(range.deletion);
            inner.push(Event::Marker(open.prefix.to_vec(), open.after, None, d));
            inner.push(Event::Marker(close.prefix.to_vec(), close.after, d, None));
        }
        let cmp = shape.clustering();
        let bound = |p: &'_ Vec<u8>, after: &bool| (p.clone(), *after);
        inner.sort_by(|a, b| {
            let order = match (a, b) {
                (Event::Row(a, _), Event::Row(b, _)) => cmp.compare(a, b),
                (Event::Row(a, _), Event::Marker(p, after, ..)) => {
                    cmp.compare_to_bound(a, BoundRef { prefix: p, after: *after })
                }
                (Event::Marker(p, after, ..), Event::Row(b, _)) => {
                    cmp.compare_to_bound(b, BoundRef { prefix: p, after: *after }).reverse()
                }
                (Event::Marker(p, x, ..), Event::Marker(q, y, ..)) => {
                    let ((p, x), (q, y)) = (bound(p, x), bound(q, y));
                    let (a, b) =
                        (BoundRef { prefix: &p, after: x }, BoundRef { prefix: &q, after: y });
                    cmp.compare_bounds(a, b)
                }
                _ => std::cmp::Ordering::Equal,
            };
            let order = if reversed { order.reverse() } else { order };
            // Ranges that touch: one closes before the other opens.
            let opens = |e: &Event<'_>| matches!(e, Event::Marker(_, _, _, Some(_)));
            order.then(opens(a).cmp(&opens(b)))
        });
        events.extend(inner);
        events.push(Event::End);
        MutationCursor { events, at: 0 }
    }
}

impl Cursor for MutationCursor<'_> {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        self.at += 1;
        Ok(if self.at > self.events.len() { Advance::End } else { Advance::Item })
    }

    fn item(&self) -> Item<'_> {
        match &self.events[self.at - 1] {
            Event::Partition(token, key, deletion) => {
                Item::Partition { token: *token, key, deletion: *deletion }
            }
            Event::Static(row) => Item::Static(*row),
            Event::Row(clustering, row) => Item::Row { clustering, row: *row },
            Event::Marker(prefix, after, close, open) => {
                let position = BoundRef { prefix, after: *after };
                Item::Marker(Marker { position, close: *close, open: *open })
            }
            Event::End => Item::PartitionEnd,
        }
    }

    fn skip_partition(&mut self) {
        self.at = self.events.len();
    }
}

/// Position where a read continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Start,
    After(Vec<u8>),
    Inside(Vec<u8>, Vec<u8>),
}

impl From {
    pub(crate) fn end_of(page: &[u8]) -> Option<From> {
        match ReplicaPage::open(page).expect("a page").end() {
            PageEnd::Exhausted => None,
            PageEnd::After { key, .. } => Some(From::After(key.to_vec())),
            PageEnd::Inside { key, clustering, .. } => {
                Some(From::Inside(key.to_vec(), clustering.to_vec()))
            }
        }
    }
}

/// One replica: everything that was written to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    pub(crate) mutations: Vec<Vec<u8>>,
}

impl Replica {
    /// The page that a store gives for a read from `from`.
    pub(crate) fn read(&self, reversed: bool, from: &From, limits: PageLimits) -> Vec<u8> {
        self.read_filtered(reversed, from, limits, None).0
    }

    /// The same, with what passes a filter.
    pub(crate) fn read_filtered(
        &self,
        reversed: bool,
        from: &From,
        limits: PageLimits,
        filter: Option<&dyn RowFilter>,
    ) -> (Vec<u8>, Option<FilteredPage>) {
        let shape = shape();
        let lanes = self.mutations.iter().map(|m| MutationCursor::new(m, &shape, reversed));
        let mut merge = MergeCursor::new(&shape, MergeMode::All, reversed, lanes);
        let mut writer = PageWriter::new(&shape, reversed, NOW, true, limits);
        if let Some(filter) = filter {
            writer.filter(filter);
        }
        let (from_key, from_row) = match from {
            From::Start => (None, None),
            From::After(key) => (Some(key), None),
            From::Inside(key, row) => (Some(key), Some(row)),
        };
        let from_place = from_key.map(|k| (codec::token_of(k), k.as_slice()));
        // In the partition where the read continues: the range open at its start, until shown.
        let mut resuming = false;
        let mut open = DeletionTime::LIVE;
        while let Advance::Item = merge.advance().expect("no block") {
            let item = merge.item();
            if let Item::Partition { token, key, .. } = item {
                let place = Some((token, key));
                if place < from_place || (place == from_place && from_row.is_none()) {
                    merge.skip_partition();
                    continue;
                }
                resuming = place == from_place;
                writer.set_floor(from_row.filter(|_| resuming).map(Vec::as_slice));
                open = DeletionTime::LIVE;
            }
            if resuming && let Some(row) = from_row {
                let bound = BoundRef { prefix: row, after: !reversed };
                let cmp = shape.clustering();
                let order = match &item {
                    Item::Row { clustering, .. } => cmp.compare_to_bound(clustering, bound),
                    Item::Marker(m) => cmp.compare_bounds(m.position, bound),
                    Item::PartitionEnd => std::cmp::Ordering::Greater,
                    _ => std::cmp::Ordering::Less,
                };
                let is_end = matches!(item, Item::PartitionEnd);
                let order = if reversed && !is_end { order.reverse() } else { order };
                let inner = matches!(item, Item::Row { .. } | Item::Marker(_) | Item::PartitionEnd);
                if inner && order.is_lt() {
                    if let Item::Marker(m) = item {
                        open = m.open.unwrap_or(DeletionTime::LIVE);
                    }
                    continue;
                }
                if inner {
                    resuming = false;
                    if !open.is_live() {
                        let opening = Marker { position: bound, close: None, open: Some(open) };
                        writer.item(&Item::Marker(opening));
                    }
                }
            }
            match writer.item(&merge.item()) {
                PageFlow::Continue => {}
                PageFlow::SkipPartition => merge.skip_partition(),
                PageFlow::Full => break,
            }
        }
        writer.finish_filtered(PageEnd::Exhausted)
    }

    pub(crate) fn whole(&self, reversed: bool) -> Vec<u8> {
        let limits = PageLimits { bytes: usize::MAX, ..PageLimits::default() };
        self.read(reversed, &From::Start, limits)
    }
}

/// A chain over pages that must all be accepted.
pub(crate) fn chain<'p>(pages: &'p [Vec<u8>], shape: &TableShape, reversed: bool) -> PageChain<'p> {
    let mut chain = PageChain::default();
    for page in pages {
        let page = ReplicaPage::parse(page, shape, reversed).expect("a page of a replica");
        chain.push(page, shape, reversed).expect("pages that go on from each other");
    }
    chain
}

fn describe_row(row: RowRef<'_>) -> String {
    let mut text = format!("{:?} {:?}", row.liveness(), row.deletion());
    for (id, column) in row.columns() {
        match column {
            ColumnRef::Simple(cell) => text.push_str(&format!(" {id:?}={cell:?}")),
            ColumnRef::Complex(complex) => {
                text.push_str(&format!(" {id:?}: {:?}", complex.deletion));
                for (path, cell) in complex.cells() {
                    text.push_str(&format!(" [{path:?}]={cell:?}"));
                }
            }
        }
    }
    text
}

/// The contents of a page as text, independent of its encoding.
pub(crate) fn describe(page: &[u8], reversed: bool) -> Vec<String> {
    let shape = shape();
    let page = ReplicaPage::parse(page, &shape, reversed).expect("a page");
    let (chain, stops) = (PageChain::new(page), PageStops::NONE);
    let mut cursor = PageCursor::new(&shape, reversed, &chain, &stops);
    let mut lines = vec![format!("{:?}", page.end())];
    while let Advance::Item = cursor.advance().expect("no error") {
        lines.push(match cursor.item() {
            Item::Static(row) => format!("static {}", describe_row(row)),
            Item::Row { clustering, row } => format!("{clustering:?} {}", describe_row(row)),
            other => format!("{other:?}"),
        });
    }
    lines
}

/// A reader's view of a page: (key, live static row, live rows with their clusterings).
pub(crate) type Seen = Vec<(Vec<u8>, String, Vec<(Vec<u8>, String)>)>;

/// Live rows of a page; partitions with nothing live are left out.
pub(crate) fn seen(page: &[u8], reversed: bool) -> Seen {
    let shape = shape();
    let page = ReplicaPage::parse(page, &shape, reversed).expect("a page");
    let (chain, stops) = (PageChain::new(page), PageStops::NONE);
    let source = PageCursor::new(&shape, reversed, &chain, &stops);
    let mode = MergeMode::Live { now: NOW };
    let mut cursor = MergeCursor::new(&shape, mode, reversed, [source]);
    let mut seen: Seen = Vec::new();
    let live = |row: RowRef<'_>| {
        // Deletions of collections may still be shown; readers ignore them.
        let mut text = format!("{:?}", row.liveness());
        for (id, column) in row.columns() {
            match column {
                ColumnRef::Simple(cell) => text.push_str(&format!(" {id:?}={cell:?}")),
                ColumnRef::Complex(complex) => {
                    for (path, cell) in complex.cells() {
                        text.push_str(&format!(" {id:?}[{path:?}]={cell:?}"));
                    }
                }
            }
        }
        text
    };
    while let Advance::Item = cursor.advance().expect("no error") {
        match cursor.item() {
            Item::Partition { key, .. } => seen.push((key.to_vec(), String::new(), Vec::new())),
            Item::Static(row) => seen.last_mut().expect("a partition").1 = live(row),
            Item::Row { clustering, row } => {
                let rows = &mut seen.last_mut().expect("a partition").2;
                rows.push((clustering.to_vec(), live(row)));
            }
            Item::Marker(_) | Item::PartitionEnd => {}
        }
    }
    seen.retain(|(_, s, rows)| !s.is_empty() || !rows.is_empty());
    seen
}
