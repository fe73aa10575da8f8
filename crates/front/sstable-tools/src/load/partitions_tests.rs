use data::clustering::push_component;
use data::row::RowBuilder;
use data::{Liveness, MutationRef};
use stdx::{ColumnId, DeletionSeconds, TimestampMicros, Token};

use super::*;
use crate::schema_file;

const PLACE: ItemPlace<'_> = ItemPlace { file: "nb-1-big-Data.db", position: 7 };

fn table(columns: &str) -> Arc<Table> {
    let text = format!("CREATE TABLE ks.t (k int, c int, {columns}, PRIMARY KEY (k, c));");
    let schema = schema_file::of_text(&text).unwrap();
    schema_file::table(&schema, None).unwrap()
}

fn deletion(timestamp: i64) -> DeletionTime {
    DeletionTime { timestamp: TimestampMicros(timestamp), local: DeletionSeconds(9) }
}

fn clustering(c: i32) -> Vec<u8> {
    let mut out = Vec::new();
    push_component(&mut out, Some(&c.to_be_bytes()));
    out
}

fn row(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let liveness = Liveness { timestamp: TimestampMicros(5), ..Liveness::NONE };
    let mut builder = RowBuilder::new(&mut out, liveness, DeletionTime::LIVE, TimestampMicros(5));
    builder.cell_at_base(ColumnId(2), value);
    builder.finish();
    out
}

fn marker(
    c: i32,
    after: bool,
    close: Option<i64>,
    open: Option<i64>,
) -> (Vec<u8>, bool, Option<DeletionTime>, Option<DeletionTime>) {
    (clustering(c), after, close.map(deletion), open.map(deletion))
}

fn frames(mut batch: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some((length, rest)) = batch.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        found.push(frame.to_vec());
        batch = rest;
    }
    found
}

#[test]
fn a_partition_is_cut_and_every_range_deletion_is_whole_in_one_of_its_mutations() {
    let table = table("v blob");
    let mut mutations = Mutations::new(&table);
    let key = 1_i32.to_be_bytes();
    let mut take = |item: Item<'_>| mutations.item(item, PLACE).unwrap();
    take(Item::Partition { token: Token(0), key: &key, deletion: deletion(1) });
    let big = vec![7; MUTATION_BYTES / 2];
    let value = row(&big);
    let markers = [
        (0, marker(0, false, None, Some(3))),
        // One ends where the next begins, behind two cuts.
        (5, marker(5, false, Some(3), Some(4))),
        (8, marker(8, true, Some(4), None)),
    ];
    for c in 0..10_i32 {
        if let Some((_, (prefix, after, close, open))) = markers.iter().find(|(at, _)| *at == c) {
            let position = BoundRef { prefix, after: *after };
            take(Item::Marker(Marker { position, close: *close, open: *open }));
        }
        let at = clustering(c);
        take(Item::Row { clustering: &at, row: RowRef::trusted(&value) });
    }
    take(Item::PartitionEnd);
    let batch = mutations.take_rest().unwrap();
    assert!(mutations.take_rest().is_none());
    let frames = frames(&batch);
    let (mut rows, mut ranges, mut deletions) = (0, Vec::new(), 0);
    for frame in &frames {
        assert!(frame.len() < 2 * MUTATION_BYTES);
        let mutation = MutationRef::parse(frame, 1).unwrap();
        assert_eq!((mutation.table, mutation.key), (table.id, &key[..]));
        deletions += usize::from(!mutation.deletion.is_live());
        rows += mutation.rows().count();
        ranges.extend(mutation.range_tombstones().map(|range| {
            let bounds = [range.start, range.end].map(|b| (b.prefix.to_vec(), b.after));
            (bounds, range.deletion.timestamp.0)
        }));
    }
    assert!(frames.len() > 3);
    assert_eq!((rows, deletions), (10, 1));
    let at = |c, after| (clustering(c), after);
    assert_eq!(ranges, [([at(0, false), at(5, false)], 3), ([at(5, false), at(8, true)], 4)]);
}

#[test]
fn requests_are_bounded_by_bytes_and_by_mutations() {
    let table = table("v blob");
    let mut mutations = Mutations::new(&table);
    let (mut requests, mut seen) = (0, 0);
    for k in 0..5000_i32 {
        let key = k.to_be_bytes();
        for item in [
            Item::Partition { token: Token(0), key: &key, deletion: deletion(1) },
            Item::PartitionEnd,
        ] {
            mutations.item(item, PLACE).unwrap();
            if let Some(batch) = mutations.take_full() {
                requests += 1;
                assert_eq!(frames(&batch).len(), LOAD_MUTATIONS_MAX);
                seen += LOAD_MUTATIONS_MAX;
            }
        }
    }
    seen += frames(&mutations.take_rest().unwrap()).len();
    assert_eq!((requests, seen), (2, 5000));
}

#[test]
fn increments_that_would_count_twice_are_refused_with_their_place() {
    let table = table("n counter");
    let mut context = vec![0, 1, 0, 0];
    context.extend_from_slice(&[7; 32]);
    let mut mutations = Mutations::new(&table);
    let item = Item::Partition { token: Token(0), key: b"abcd", deletion: DeletionTime::LIVE };
    mutations.item(item, PLACE).unwrap();
    let at = clustering(1);
    for (global, is_taken) in [(true, true), (false, false)] {
        context[2] = if global { 0x80 } else { 0 };
        let value = row(&context);
        let item = Item::Row { clustering: &at, row: RowRef::trusted(&value) };
        let result = mutations.item(item, PLACE);
        assert_eq!(result.is_ok(), is_taken, "{result:?}");
        if let Err(text) = result {
            assert!(text.starts_with("nb-1-big-Data.db: partition 0x61626364, near byte 7: "));
        }
    }
}
