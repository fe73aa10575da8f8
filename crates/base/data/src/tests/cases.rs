//! Merges in text files (`testdata/merge/`): sources in, the merged stream out, in one notation.
//!
//! ```text
//! merge                                    # MergeMode::All
//! read now=60 [reversed]                   # MergeMode::Live
//! compact now=60 gc=50 [below=9]           # MergeMode::Purge
//! source
//! p 1 del@5                                # partition with a deletion
//! static t=x@3
//! row 1,2 live@4 a=x@3 m.del@3 m[1]=y@4    # clustering, liveness, cells
//! delete [1,2 .. 1,4) @7                   # range deletion; `[1 .. 1]` is all of a prefix
//! ```
//!
//! A deletion `@5` is made at second 5 unless it says `,at=8`. A cell or liveness that expires says
//! `,ttl=10,exp=70`. `null` is a tombstone. Words of the command: `desc` (the first clustering column descends),
//! `dropped=50` (column b was dropped then; `stored`: as memtables and files keep it), `rows=1` (the rest of a
//! partition is skipped after so many rows), `counters` (a counts: `#<writer>:<clock>:<count>`, joined by `+`).
//!
//! Each case also holds the laws of merging (INV-data-3): the sources are merged in every order, in two steps, and
//! once more on top of their own result. (Counters that are deleted are not merged in two steps.)

use stdx::Token;
use testkit::cases::Case;

use super::cursors::{Event, ListCursor, events_of};
use super::*;
use crate::clustering::components;
use crate::tombstones::RangeTombstoneList;
use crate::{
    Advance, BoundRef, ColumnRef, Cursor, GcBefore, Item, MergeCursor, MergeMode, RangeTombstoneRef,
};

const STATIC: ColumnId = ColumnId(3);
const COLUMN_A: ColumnId = ColumnId(4);
const COLUMN_B: ColumnId = ColumnId(5);
const MAP: ColumnId = ColumnId(6);

/// pk int, c1 int, c2 int, t text static, a text, b text, m map<int, text>.
fn case_table(case: &Case) -> TableShape {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    let of_a = if case.has("counters") { CqlType::Counter } else { CqlType::Text };
    let descends = case.has("desc");
    let mut table = Table {
        columns: vec![
            column(0, "pk", CqlType::Int, ColumnKind::PartitionKey(0)),
            column(
                1,
                "c1",
                CqlType::Int,
                ColumnKind::Clustering { position: 0, reversed: descends },
            ),
            column(2, "c2", CqlType::Int, ColumnKind::Clustering { position: 1, reversed: false }),
            column(STATIC.0, "t", CqlType::Text, ColumnKind::Static),
            column(COLUMN_A.0, "a", of_a, ColumnKind::Regular),
            column(COLUMN_B.0, "b", CqlType::Text, ColumnKind::Regular),
            column(
                MAP.0,
                "m",
                CqlType::map(CqlType::Int, CqlType::Text, false),
                ColumnKind::Regular,
            ),
        ],
        clustering_count: 2,
        static_count: 1,
        next_column_id: 7,
        ..table()
    };
    if case.has("counters") {
        table.columns.retain(|c| c.id != COLUMN_B && c.id != MAP && c.id != STATIC);
        table.static_count = 0;
    }
    if let Some(at) = case.parsed("dropped") {
        let index = table.columns.iter().position(|c| c.id == COLUMN_B).unwrap();
        let column = table.columns.remove(index);
        let dropped = DroppedColumn { column, dropped_at: TimestampMicros(at) };
        table.dropped.insert("b".into(), dropped);
    }
    let shape = TableShape::for_table(&table);
    if case.has("stored") { shape.stored().clone() } else { shape }
}

/// `@5,ttl=10,exp=70` and the like.
#[derive(Clone, Copy)]
struct Times {
    timestamp: TimestampMicros,
    at: DeletionSeconds,
    expires: Option<(TtlSeconds, DeletionSeconds)>,
}

impl Times {
    fn parse(text: &str) -> Times {
        let mut fields = text.split(',');
        let timestamp: i64 = fields.next().unwrap().parse().expect(text);
        let (mut at, mut ttl, mut expiry) = (timestamp, None, None);
        for field in fields {
            let (name, value) = field.split_once('=').expect(text);
            match name {
                "at" => at = value.parse().expect(text),
                "ttl" => ttl = Some(TtlSeconds(value.parse().expect(text))),
                "exp" => expiry = Some(DeletionSeconds(value.parse().expect(text))),
                _ => panic!("{text}"),
            }
        }
        let (timestamp, at) = (TimestampMicros(timestamp), DeletionSeconds(at));
        Times { timestamp, at, expires: ttl.zip(expiry) }
    }

    fn deletion(self) -> DeletionTime {
        DeletionTime { timestamp: self.timestamp, local: self.at }
    }

    fn liveness(self) -> Liveness {
        let alive = Liveness::new(self.timestamp);
        let (ttl, expires_at) = self.expires.unwrap_or((alive.ttl, alive.expires_at));
        Liveness { ttl, expires_at, ..alive }
    }

    fn cell(self, value: &str) -> (Self, Option<Vec<u8>>) {
        let value = match value.strip_prefix('#') {
            _ if value == "null" => None,
            Some(count) => Some(context_of(count)),
            None => Some(value.as_bytes().to_vec()),
        };
        (self, value)
    }
}

fn context_of(text: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for shard in text.split('+') {
        let mut numbers = shard.split(':').map(|n| n.parse::<i64>().expect(text));
        let mut next = || numbers.next().expect(text);
        let id = crate::counter::CounterId([next() as u8; 16]);
        let one = crate::counter::global(id, next(), next()).to_vec();
        let mut sum = Vec::new();
        if all.is_empty() {
            sum = one;
        } else {
            crate::counter::merge(&all, &one, &mut sum);
        }
        all = sum;
    }
    all
}

fn context_text(value: &[u8]) -> String {
    let shards = crate::counter::shards(value).expect("a context");
    let one = |s: crate::counter::Shard| format!("{}:{}:{}", s.id.0[0], s.clock, s.count);
    format!("#{}", shards.map(one).collect::<Vec<_>>().join("+"))
}

fn cell_ref(cell: &(Times, Option<Vec<u8>>)) -> CellRef<'_> {
    let (times, value) = cell;
    match (value, times.expires) {
        (None, _) => CellRef::tombstone(times.timestamp, times.at),
        (Some(value), None) => CellRef::live(times.timestamp, value),
        (Some(value), Some((ttl, at))) => CellRef::expiring(times.timestamp, ttl, at, value),
    }
}

/// `a=x@3 m.del@2 m[1]=y@3 live@4 del@1`.
fn row_of(words: &[&str]) -> Vec<u8> {
    let (mut liveness, mut deletion) = (Liveness::NONE, DeletionTime::LIVE);
    let mut simple = BTreeMap::new();
    let (mut map_deletion, mut map) = (DeletionTime::LIVE, BTreeMap::new());
    for word in words {
        let (what, times) = word.rsplit_once('@').expect(word);
        let times = Times::parse(times);
        match what {
            "live" => liveness = times.liveness(),
            "del" => deletion = times.deletion(),
            "m.del" => map_deletion = times.deletion(),
            _ => {
                let (name, value) = what.split_once('=').expect(word);
                let cell = times.cell(value);
                let path = name.strip_prefix("m[").and_then(|n| n.strip_suffix(']'));
                if let Some(path) = path {
                    map.insert(path.parse::<i32>().expect(word), cell);
                    continue;
                }
                let id = match name {
                    "t" => STATIC,
                    "a" => COLUMN_A,
                    "b" => COLUMN_B,
                    _ => panic!("{word}"),
                };
                simple.insert(id, cell);
            }
        }
    }
    let mut out = Vec::new();
    let mut row = RowBuilder::new(&mut out, liveness, deletion, TimestampMicros(3));
    for (id, cell) in &simple {
        row.cell(*id, &cell_ref(cell));
    }
    if !map_deletion.is_live() || !map.is_empty() {
        row.begin_complex(MAP, map_deletion);
        for (path, cell) in &map {
            row.complex_cell(&path.to_be_bytes(), &cell_ref(cell));
        }
        row.end_complex();
    }
    row.finish();
    out
}

fn clustering_of(text: &str) -> Vec<u8> {
    let numbers: Vec<[u8; 4]> = text
        .split(',')
        .filter(|n| !n.is_empty())
        .map(|n| n.parse::<i32>().expect(text).to_be_bytes())
        .collect();
    ClusteringBuf::from_components(numbers.iter().map(<[u8; 4]>::as_slice)).0
}

/// One partition of a source as it is read.
#[derive(Default)]
struct Read {
    head: Option<(i32, DeletionTime)>,
    of_static: Option<Vec<u8>>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    ranges: RangeTombstoneList,
}

impl Read {
    fn finish(self, shape: &TableShape, reversed: bool, events: &mut Vec<Event>) {
        let Some((pk, deletion)) = self.head else { return };
        let key = pk.to_be_bytes().to_vec();
        events.push(Event::Partition(Token(i64::from(pk)), key, deletion));
        events.extend(self.of_static.map(Event::Static));
        let cmp = shape.clustering();
        let mut markers: Vec<(crate::BoundBuf, Option<DeletionTime>, Option<DeletionTime>)> =
            Vec::new();
        for range in self.ranges.iter() {
            match markers.last_mut().filter(|last| last.0 == range.start) {
                Some(last) => last.2 = Some(range.deletion),
                None => markers.push((range.start.clone(), None, Some(range.deletion))),
            }
            markers.push((range.end.clone(), Some(range.deletion), None));
        }
        let mut inside: Vec<Event> = Vec::new();
        let mut markers = markers.into_iter().peekable();
        let of = |(bound, close, open): (crate::BoundBuf, _, _)| {
            let bound = bound.as_bound();
            let (close, open) = if reversed { (open, close) } else { (close, open) };
            Event::Marker(bound.prefix.to_vec(), bound.after, close, open)
        };
        for (clustering, row) in self.rows {
            while let Some(marker) =
                markers.next_if(|m| cmp.compare_to_bound(&clustering, m.0.as_bound()).is_gt())
            {
                inside.push(of(marker));
            }
            inside.push(Event::Row(clustering, row));
        }
        inside.extend(markers.map(of));
        if reversed {
            inside.reverse();
        }
        events.extend(inside);
        events.push(Event::End);
    }
}

fn sources_of(case: &Case, shape: &TableShape) -> Vec<Vec<Event>> {
    let reversed = case.has("reversed");
    let mut sources = Vec::new();
    let (mut events, mut part) = (Vec::new(), Read::default());
    for line in case.input.lines() {
        let line = line.split("  #").next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["source"] => {
                std::mem::take(&mut part).finish(shape, reversed, &mut events);
                sources.push(std::mem::take(&mut events));
            }
            ["p", pk, rest @ ..] => {
                std::mem::take(&mut part).finish(shape, reversed, &mut events);
                let deletion = rest.first().map_or(DeletionTime::LIVE, |word| {
                    Times::parse(word.strip_prefix("del@").expect(line)).deletion()
                });
                part.head = Some((pk.parse().expect(line), deletion));
            }
            ["static", rest @ ..] => part.of_static = Some(row_of(rest)),
            ["row", clustering, rest @ ..] => {
                part.rows.push((clustering_of(clustering), row_of(rest)));
            }
            ["delete", start, "..", end, at] => {
                let (from, to) = (clustering_of(&start[1..]), clustering_of(&end[..end.len() - 1]));
                let deletion = Times::parse(at.strip_prefix('@').expect(line)).deletion();
                let start = BoundRef { prefix: &from, after: start.starts_with('(') };
                let end = BoundRef { prefix: &to, after: end.ends_with(']') };
                part.ranges.add(shape.clustering(), RangeTombstoneRef { start, end, deletion });
            }
            _ => panic!("{}: {line}", case.place),
        }
    }
    part.finish(shape, reversed, &mut events);
    sources.push(events);
    // The part before the first `source` is empty.
    assert!(sources.remove(0).is_empty(), "{}: it begins with `source`", case.place);
    sources
}

fn mode_of(case: &Case) -> MergeMode {
    let now = || DeletionSeconds(case.parsed("now").expect("now="));
    match case.command.as_str() {
        "merge" => MergeMode::All,
        "read" => MergeMode::Live { now: now() },
        "compact" => {
            let below = TimestampMicros(case.parsed("below").unwrap_or(i64::MAX));
            MergeMode::Purge {
                now: now(),
                gc_before: GcBefore::At(DeletionSeconds(case.parsed("gc").expect("gc="))),
                timestamp_below: Box::new(move |_, _| below),
            }
        }
        other => panic!("{}: {other}", case.place),
    }
}

fn times_text(timestamp: TimestampMicros, at: DeletionSeconds) -> String {
    match timestamp.0 == at.0 {
        true => format!("@{}", timestamp.0),
        false => format!("@{},at={}", timestamp.0, at.0),
    }
}

fn deletion_text(deletion: &DeletionTime) -> String {
    times_text(deletion.timestamp, deletion.local)
}

fn expiry_text(timestamp: TimestampMicros, ttl: TtlSeconds, at: DeletionSeconds) -> String {
    match ttl == TtlSeconds::NONE {
        true => format!("@{}", timestamp.0),
        false => format!("@{},ttl={},exp={}", timestamp.0, ttl.0, at.0),
    }
}

fn cell_text(cell: &CellRef<'_>, is_counter: bool) -> String {
    if cell.is_tombstone() {
        return format!("null{}", times_text(cell.timestamp, cell.local));
    }
    let times = expiry_text(cell.timestamp, cell.ttl, cell.local);
    match is_counter {
        true => format!("{}{times}", context_text(cell.value)),
        false => format!("{}{times}", String::from_utf8_lossy(cell.value)),
    }
}

fn row_text(row: RowRef<'_>, mode: &str, shape: &TableShape) -> String {
    let mut text = String::new();
    let (liveness, deletion, columns) = row.parts();
    if !liveness.is_empty() {
        let times = expiry_text(liveness.timestamp, liveness.ttl, liveness.expires_at);
        text.push_str(&format!(" live{times}"));
    }
    if !deletion.is_live() {
        text.push_str(&format!(" del{}", deletion_text(&deletion)));
    }
    for (id, column) in columns {
        let name = match id {
            STATIC => "t",
            COLUMN_A => "a",
            COLUMN_B => "b",
            MAP => "m",
            other => panic!("{other:?}"),
        };
        match column {
            ColumnRef::Simple(cell) => {
                text.push_str(&format!(" {name}={}", cell_text(&cell, shape.has_counters())));
            }
            ColumnRef::Complex(complex) => {
                // Readers use cells only: a row that comes out unmodified may show it (see
                // `Merged::Source`).
                if !complex.deletion.is_live() && mode != "read" {
                    text.push_str(&format!(" {name}.del{}", deletion_text(&complex.deletion)));
                }
                for (path, cell) in complex.cells() {
                    let path = i32::from_be_bytes(path.try_into().unwrap());
                    text.push_str(&format!(" {name}[{path}]={}", cell_text(&cell, false)));
                }
            }
        }
    }
    text
}

fn prefix_text(prefix: &[u8]) -> String {
    if prefix.is_empty() {
        return "*".to_owned();
    }
    let number = |c: Option<&[u8]>| i32::from_be_bytes(c.unwrap().try_into().unwrap()).to_string();
    components(prefix).map(number).collect::<Vec<_>>().join(",")
}

/// Runs a merge; its items, and as text. Checks that markers alternate (INV-merge-1).
fn merged(case: &Case, shape: &TableShape, sources: &[&Vec<Event>]) -> (Vec<Event>, String) {
    let cursors = sources.iter().map(|s| ListCursor::new((*s).clone()));
    let mut merge = MergeCursor::new(shape, mode_of(case), case.has("reversed"), cursors);
    let (mut events, mut text) = (Vec::new(), String::new());
    let (mut open, mut rows) = (None, 0);
    let rows_max = case.parsed("rows").unwrap_or(u32::MAX);
    loop {
        match merge.advance().unwrap() {
            Advance::End => break,
            Advance::NeedBlock(_) => continue,
            Advance::Item => {}
        }
        let item = merge.item();
        events_of(item, &mut events);
        match item {
            Item::Partition { key, deletion, .. } => {
                text.push_str(&format!("p {}", i32::from_be_bytes(key.try_into().unwrap())));
                if !deletion.is_live() {
                    text.push_str(&format!(" del{}", deletion_text(&deletion)));
                }
                (open, rows) = (None, 0);
            }
            Item::Static(row) => {
                text.push_str(&format!("static{}", row_text(row, &case.command, shape)));
            }
            Item::Row { clustering, row } => {
                let row = row_text(row, &case.command, shape);
                text.push_str(&format!("row {}{row}", prefix_text(clustering)));
                rows += 1;
            }
            Item::Marker(marker) => {
                // INV-merge-1
                assert_eq!(marker.close, open, "{}: it closes another one", case.place);
                assert!(marker.open != marker.close, "{}: it changes nothing", case.place);
                open = marker.open;
                let side = if marker.position.after { "after" } else { "before" };
                text.push_str(&format!("{side} {}", prefix_text(marker.position.prefix)));
                for (word, deletion) in [("close", marker.close), ("open", marker.open)] {
                    if let Some(deletion) = deletion {
                        text.push_str(&format!(" {word}{}", deletion_text(&deletion)));
                    }
                }
            }
            Item::PartitionEnd => {
                assert_eq!(open, None, "{}: INV-merge-1: it stays open", case.place);
                continue;
            }
        }
        text.push('\n');
        if rows >= rows_max {
            merge.skip_partition();
        }
    }
    if merge.tombstones() > 0 && case.command == "read" {
        text.push_str(&format!("tombstones {}\n", merge.tombstones()));
    }
    (events, text)
}

fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for n in 0..count {
        all = all
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut next = order.clone();
                    next.insert(at, n);
                    next
                })
            })
            .collect();
    }
    all
}

fn run_case(case: &Case) -> String {
    let shape = case_table(case);
    let sources = sources_of(case, &shape);
    let all: Vec<&Vec<Event>> = sources.iter().collect();
    let (events, text) = merged(case, &shape, &all);
    for order in orders(sources.len()) {
        let ordered: Vec<&Vec<Event>> = order.iter().map(|n| &sources[*n]).collect();
        assert_eq!(merged(case, &shape, &ordered).1, text, "{}: order {order:?}", case.place);
        if case.command == "merge" && ordered.len() > 2 && !shape.has_counters() {
            let (first, rest) = ordered.split_at(2);
            let part = merged(case, &shape, first).0;
            let again: Vec<&Vec<Event>> = rest.iter().copied().chain([&part]).collect();
            let again = merged(case, &shape, &again).1;
            assert_eq!(again, text, "{}: in two steps {order:?}", case.place);
        }
    }
    if case.command == "merge" {
        let mut again = all.clone();
        again.push(&events);
        assert_eq!(merged(case, &shape, &again).1, text, "{}: its own result", case.place);
    }
    text
}

#[test]
fn sources_merge_as_the_files_of_cases_say() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/merge");
    testkit::cases::check(directory, || run_case);
}
