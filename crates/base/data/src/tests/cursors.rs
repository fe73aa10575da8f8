//! The merge of cursors against a naive model.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use stdx::Token;

use super::*;
use crate::tombstones::RangeTombstoneList;
use crate::{
    Advance, BoundRef, Cursor, CursorError, Digest, Item, Marker, MergeCursor, MergeMode,
    RangeTombstoneRef,
};

/// One partition of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    deletion: Option<i64>,
    rows: BTreeMap<i32, (i64, bool)>,
    ranges: Vec<(i32, i32, i64)>,
}

impl Part {
    /// Returns true if a deletion of it hides a cell of that row and time.
    pub(super) fn hides(&self, n: i32, timestamp: i64) -> bool {
        self.deletion.is_some_and(|d| timestamp <= d)
            || self.ranges.iter().any(|(from, to, d)| *from <= n && n < *to && timestamp <= *d)
    }
}

pub(super) type Source = BTreeMap<i32, Part>;

#[derive(Clone)]
pub(super) enum Event {
    Partition(Token, Vec<u8>, DeletionTime),
    Static(Vec<u8>),
    Row(Vec<u8>, Vec<u8>),
    Marker(Vec<u8>, bool, Option<DeletionTime>, Option<DeletionTime>),
    End,
}

/// A cursor over a list; every second call asks for a block first.
pub(super) struct ListCursor {
    events: Vec<Event>,
    at: usize,
    asked: bool,
}

impl ListCursor {
    pub(super) fn new(events: Vec<Event>) -> ListCursor {
        ListCursor { events, at: 0, asked: false }
    }
}

/// Keeps an item for a [`ListCursor`].
pub(super) fn events_of(item: Item<'_>, events: &mut Vec<Event>) {
    events.push(match item {
        Item::Partition { token, key, deletion } => Event::Partition(token, key.to_vec(), deletion),
        Item::Row { clustering, row } => Event::Row(clustering.to_vec(), row.bytes().to_vec()),
        Item::Marker(m) => {
            Event::Marker(m.position.prefix.to_vec(), m.position.after, m.close, m.open)
        }
        Item::PartitionEnd => Event::End,
        Item::Static(row) => Event::Static(row.bytes().to_vec()),
    });
}

impl Cursor for ListCursor {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        if !self.asked {
            self.asked = true;
            return Ok(Advance::NeedBlock(crate::BlockRequest { source: 99, block: 7 }));
        }
        self.asked = false;
        self.at += 1;
        Ok(if self.at > self.events.len() { Advance::End } else { Advance::Item })
    }

    fn item(&self) -> Item<'_> {
        match &self.events[self.at - 1] {
            Event::Partition(token, key, deletion) => {
                Item::Partition { token: *token, key, deletion: *deletion }
            }
            Event::Static(row) => Item::Static(RowRef::trusted(row)),
            Event::Row(clustering, row) => Item::Row { clustering, row: RowRef::trusted(row) },
            Event::Marker(prefix, after, close, open) => Item::Marker(Marker {
                position: BoundRef { prefix, after: *after },
                close: *close,
                open: *open,
            }),
            Event::End => Item::PartitionEnd,
        }
    }

    fn skip_partition(&mut self) {
        while self.at > 0
            && self.at <= self.events.len()
            && !matches!(self.events[self.at - 1], Event::End)
        {
            self.at += 1;
        }
    }
}

fn packed(timestamp: i64, tombstone: bool) -> Vec<u8> {
    let value = timestamp.to_be_bytes().to_vec();
    let kind = u8::from(tombstone);
    OwnedRow { a: Some(OwnedCell { timestamp, kind, value }), ..OwnedRow::default() }.pack()
}

fn list_of(ranges: &[(i32, i32, i64)]) -> RangeTombstoneList {
    let mut list = RangeTombstoneList::new();
    for (from, to, timestamp) in ranges {
        let (from, to) = (ck(*from), ck(*to));
        list.add(
            shape().clustering(),
            RangeTombstoneRef {
                start: BoundRef { prefix: &from, after: false },
                end: BoundRef { prefix: &to, after: false },
                deletion: deletion(*timestamp),
            },
        );
    }
    list
}

/// Events of a source in read order. Positions are doubled: a row at 2n + 1, its lower bound at 2n.
pub(super) fn cursor(source: &Source, reversed: bool) -> ListCursor {
    let mut events = Vec::new();
    for (pk, part) in source {
        let partition_deletion = part.deletion.map_or(DeletionTime::LIVE, deletion);
        events.push(Event::Partition(
            Token(i64::from(*pk)),
            pk.to_be_bytes().to_vec(),
            partition_deletion,
        ));
        let mut placed: Vec<(i32, Event)> = Vec::new();
        for (n, (timestamp, tombstone)) in &part.rows {
            placed.push((2 * n + 1, Event::Row(ck(*n), packed(*timestamp, *tombstone))));
        }
        let mut edges: BTreeMap<i32, (Option<DeletionTime>, Option<DeletionTime>)> =
            BTreeMap::new();
        for range in list_of(&part.ranges).iter() {
            let number = |prefix: &[u8]| {
                let bytes = crate::clustering::components(prefix).next().unwrap().unwrap();
                i32::from_be_bytes(bytes.try_into().unwrap())
            };
            let start = number(range.start.as_bound().prefix);
            let end = number(range.end.as_bound().prefix);
            let (opens, closes) = if reversed { (end, start) } else { (start, end) };
            edges.entry(opens).or_default().1 = Some(range.deletion);
            edges.entry(closes).or_default().0 = Some(range.deletion);
        }
        for (n, (close, open)) in edges {
            placed.push((2 * n, Event::Marker(ck(n), false, close, open)));
        }
        placed.sort_by_key(|(position, _)| if reversed { -position } else { *position });
        events.extend(placed.into_iter().map(|(_, e)| e));
        events.push(Event::End);
    }
    ListCursor::new(events)
}

fn part() -> impl Strategy<Value = Part> {
    (
        option::of(1..12_i64),
        btree_map(0..6_i32, (1..12_i64, any::<bool>()), 0..5),
        vec((0..6_i32, 0..8_i32, 1..12_i64), 0..3),
    )
        .prop_map(|(deletion, rows, ranges)| Part { deletion, rows, ranges })
}

pub(super) fn sources() -> impl Strategy<Value = Vec<Source>> {
    vec(btree_map(0..3_i32, part(), 0..3), 1..4)
}

/// (pk, ck) to the visible cell: (timestamp, tombstone).
fn naive(sources: &[Source]) -> BTreeMap<(i32, i32), (i64, bool)> {
    let mut found: BTreeMap<(i32, i32), (i64, bool)> = BTreeMap::new();
    for source in sources {
        for (pk, part) in source {
            for (n, (timestamp, tombstone)) in &part.rows {
                let slot = found.entry((*pk, *n)).or_insert((*timestamp, *tombstone));
                *slot = (*slot).max((*timestamp, *tombstone));
            }
        }
    }
    found.retain(|(pk, n), (timestamp, _)| {
        !sources.iter().filter_map(|s| s.get(pk)).any(|part| {
            part.deletion.is_some_and(|d| *timestamp <= d)
                || part.ranges.iter().any(|(from, to, d)| from <= n && n < to && *timestamp <= *d)
        })
    });
    found
}

pub(super) struct Seen {
    pub(super) rows: Vec<((i32, i32), (i64, bool))>,
    /// The deletion that covers each row number of each partition, according to the stream.
    pub(super) covered: BTreeMap<(i32, i32), DeletionTime>,
    pub(super) digest: u64,
}

fn run(sources: &[Source], mode: MergeMode, reversed: bool) -> Seen {
    run_cursors(sources.iter().map(|s| cursor(s, reversed)).collect(), mode, reversed)
}

/// Runs a merge and checks its shape: order, alternation of markers.
pub(super) fn run_cursors(cursors: Vec<ListCursor>, mode: MergeMode, reversed: bool) -> Seen {
    let (shape, count) = (shape(), cursors.len());
    let mut merge = MergeCursor::new(&shape, mode, reversed, cursors);
    let mut seen = Seen { rows: Vec::new(), covered: BTreeMap::new(), digest: 0 };
    let mut digest = Digest::new();
    let (mut pk, mut open, mut partition) = (None, DeletionTime::LIVE, DeletionTime::LIVE);
    // The doubled position reached.
    let mut at = -1;
    let step = |seen: &mut Seen, pk: i32, from: i32, to: i32, open: DeletionTime| {
        for n in 0..8 {
            let position = if reversed { 99 - (2 * n + 1) } else { 2 * n + 1 };
            if from < position && position < to {
                seen.covered.insert((pk, n), open);
            }
        }
    };
    loop {
        match merge.advance().unwrap() {
            Advance::End => break,
            Advance::NeedBlock(request) => {
                assert!((request.source as usize) < count && request.block == 7);
                continue;
            }
            Advance::Item => {}
        }
        let item = merge.item();
        digest.item(&item);
        match item {
            Item::Partition { key, deletion, .. } => {
                let next = i32::from_be_bytes(key.try_into().unwrap());
                assert!(pk.is_none_or(|p| p < next));
                (pk, open, partition, at) = (Some(next), DeletionTime::LIVE, deletion, -1);
            }
            Item::Row { clustering, row } => {
                let n = clustering_number(clustering);
                let position = if reversed { 99 - (2 * n + 1) } else { 2 * n + 1 };
                assert!(position > at, "INV-data-2: rows ascend");
                step(&mut seen, pk.unwrap(), at, position + 1, open.max(partition));
                at = position;
                let crate::ColumnRef::Simple(cell) = row.column(A).unwrap() else { panic!() };
                seen.rows.push(((pk.unwrap(), n), (cell.timestamp.0, cell.is_tombstone())));
            }
            Item::Marker(marker) => {
                let n = clustering_number(marker.position.prefix);
                let position = if reversed { 99 - 2 * n } else { 2 * n };
                assert!(position > at, "one marker per position");
                assert_eq!(marker.close, (!open.is_live()).then_some(open), "INV-merge-1");
                step(&mut seen, pk.unwrap(), at, position, open.max(partition));
                at = position;
                open = marker.open.unwrap_or(DeletionTime::LIVE);
                assert!(marker.close != marker.open);
            }
            Item::PartitionEnd => {
                assert!(open.is_live(), "everything is closed");
                step(&mut seen, pk.unwrap(), at, 1000, partition);
            }
            Item::Static(_) => panic!("no static rows here"),
        }
    }
    seen.digest = digest.value();
    seen
}

/// Prints the output of a merge. With `takes` live rows are taken from the sources where that is
/// allowed, and their count is the second value.
fn shown(
    sources: &[Source],
    (shape, mode): (&TableShape, MergeMode),
    takes: bool,
) -> (Vec<String>, usize) {
    let cursors = sources.iter().map(|s| cursor(s, false));
    let mut merge = MergeCursor::new(shape, mode, false, cursors);
    let (mut shown, mut count) = (Vec::new(), 0);
    let text = |event: &Event| match event {
        Event::Partition(_, key, deletion) => format!("partition {key:?} {deletion:?}"),
        Event::Static(row) => format!("static {}", describe(row)),
        Event::Row(clustering, row) => format!("row {clustering:?} {}", describe(row)),
        Event::Marker(prefix, after, close, open) => {
            format!("marker {prefix:?} {after} {close:?} {open:?}")
        }
        Event::End => "end".to_owned(),
    };
    loop {
        if let Some(source) = merge.untouched().filter(|_| takes) {
            let lane = merge.source_mut(source as u32).unwrap();
            let mut ended = false;
            while let Some(event) = lane.events.get(lane.at).filter(|_| !ended) {
                match event {
                    Event::Row(_, row) if RowRef::trusted(row).is_plain() => count += 1,
                    Event::End => ended = true,
                    _ => break,
                }
                shown.push(text(event));
                lane.at += 1;
                lane.asked = false;
            }
            merge.took_rows(ended);
        }
        match merge.advance().unwrap() {
            Advance::End => return (shown, count),
            Advance::NeedBlock(_) => continue,
            Advance::Item => {
                let mut events = Vec::new();
                events_of(merge.item(), &mut events);
                shown.extend(events.iter().map(text));
            }
        }
    }
}

pub(super) fn clustering_number(clustering: &[u8]) -> i32 {
    let bytes = crate::clustering::components(clustering).next().unwrap().unwrap();
    i32::from_be_bytes(bytes.try_into().unwrap())
}

fn ordered(
    model: BTreeMap<(i32, i32), (i64, bool)>,
    reversed: bool,
) -> Vec<((i32, i32), (i64, bool))> {
    let mut rows: Vec<_> = model.into_iter().collect();
    if reversed {
        rows.sort_by_key(|((pk, n), _)| (*pk, -n));
    }
    rows
}

proptest! {
    #[test]
    fn a_merge_shows_what_the_model_shows(sources in sources(), reversed in any::<bool>()) {
        let seen = run(&sources, MergeMode::All, reversed);
        prop_assert_eq!(seen.rows, ordered(naive(&sources), reversed));
    }

    #[test]
    fn a_live_merge_shows_live_rows_only(sources in sources(), reversed in any::<bool>()) {
        let now = DeletionSeconds(1000);
        let seen = run(&sources, MergeMode::Live { now }, reversed);
        let mut model = naive(&sources);
        model.retain(|_, (_, tombstone)| !*tombstone);
        prop_assert_eq!(seen.rows, ordered(model, reversed));
    }

    /// Markers and partition deletions together say for every place the newest deletion over it.
    #[test]
    fn merged_markers_cover_what_the_sources_cover(sources in sources(), reversed in any::<bool>()) {
        let seen = run(&sources, MergeMode::All, reversed);
        for ((pk, n), found) in seen.covered {
            let parts = sources.iter().filter_map(|s| s.get(&pk));
            let newest = parts.flat_map(|p| {
                let ranges = p.ranges.iter().filter(|(f, t, _)| *f <= n && n < *t).map(|r| r.2);
                ranges.chain(p.deletion).collect::<Vec<_>>()
            }).max();
            prop_assert_eq!(found, newest.map_or(DeletionTime::LIVE, deletion), "{} {}", pk, n);
        }
    }

    /// Which source holds what does not matter.
    #[test]
    fn the_order_of_sources_does_not_change_the_digest(sources in sources()) {
        let mut turned = sources.clone();
        turned.reverse();
        let a = run(&sources, MergeMode::All, false).digest;
        prop_assert_eq!(a, run(&turned, MergeMode::All, false).digest);
    }

    /// With nothing else around, purging keeps what readers see.
    #[test]
    fn a_purging_merge_keeps_live_rows(sources in sources(), gc in 0..8_i64, below in 0..14_i64) {
        let mode = || MergeMode::Purge {
            now: DeletionSeconds(1000),
            gc_before: crate::GcBefore::At(DeletionSeconds(gc)),
            timestamp_below: Box::new(move |_, _| TimestampMicros(below)),
        };
        let live = |seen: Seen| {
            seen.rows.into_iter().filter(|(_, (_, tombstone))| !tombstone).collect::<Vec<_>>()
        };
        let mut model = naive(&sources);
        model.retain(|_, (_, tombstone)| !*tombstone);
        prop_assert_eq!(live(run(&sources, mode(), false)), ordered(model, false));
    }

    /// A reader that takes rows from their only source finds those that the merge would return.
    #[test]
    fn rows_taken_from_their_only_source_are_those_of_the_merge(sources in sources(), gc in 0..8_i64, below in 0..14_i64, purges in any::<bool>()) {
        let mode = || match purges {
            true => MergeMode::Purge {
                now: DeletionSeconds(1000),
                gc_before: crate::GcBefore::At(DeletionSeconds(gc)),
                timestamp_below: Box::new(move |_, _| TimestampMicros(below)),
            },
            false => MergeMode::All,
        };
        let (shown, none) = shown(&sources, (&shape(), mode()), false);
        let (taken, count) = self::shown(&sources, (&shape(), mode()), true);
        prop_assert_eq!(shown, taken);
        prop_assert_eq!(none, 0);
        // All rows, when nothing is deleted and each partition has one source.
        let mut keys: Vec<&i32> = sources.iter().flat_map(|s| s.keys()).collect();
        keys.sort_unstable();
        let parts = || sources.iter().flat_map(|s| s.values());
        let is_plain = |p: &Part| {
            p.deletion.is_none() && list_of(&p.ranges).is_empty()
                && p.rows.values().all(|(_, tombstone)| !tombstone)
        };
        if keys.is_sorted_by(|a, b| a < b) && parts().all(is_plain) {
            prop_assert_eq!(count, parts().map(|p| p.rows.len()).sum::<usize>());
        }
        // Rows that must be filtered, or are shown to readers, are not taken.
        let live = MergeMode::Live { now: DeletionSeconds(1000) };
        prop_assert_eq!(self::shown(&sources, (&shape(), live), true).1, 0);
        prop_assert_eq!(self::shown(&sources, (&shape_without_b(), MergeMode::All), true).1, 0);
    }

    #[test]
    fn a_skipped_partition_is_followed_by_the_next_one(sources in sources(), skip in 0..3_usize, items in 0..4_usize) {
        let shape = shape();
        let cursors = sources.iter().map(|s| cursor(s, false));
        let mut merge = MergeCursor::new(&shape, MergeMode::All, false, cursors);
        let mut keys = Vec::new();
        let mut inside = 0;
        loop {
            match merge.advance().unwrap() {
                Advance::End => break,
                Advance::NeedBlock(_) => continue,
                Advance::Item => {}
            }
            if let Item::Partition { key, .. } = merge.item() {
                keys.push(i32::from_be_bytes(key.try_into().unwrap()));
                inside = 0;
            } else {
                inside += 1;
            }
            if keys.len() == skip + 1 && inside >= items {
                merge.skip_partition();
            }
        }
        let mut expected: Vec<i32> = sources.iter().flat_map(|s| s.keys().copied()).collect();
        expected.sort_unstable();
        expected.dedup();
        prop_assert_eq!(keys, expected);
    }
}
