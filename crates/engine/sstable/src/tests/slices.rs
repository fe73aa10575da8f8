use std::sync::Arc;

use data::clustering::push_component;
use data::command::{KeyRange, RingBound};
use data::{Cursor, Item, Slice, Slices};
use stdx::{ShardId, ShardMap, TableId, Token, Uuid};

use super::{TABLES, collect, next, open_golden, run, text_of};
use crate::SstableReader;
use crate::cursor::{CursorBuffers, TokenFilter};

fn int(value: i32) -> Vec<u8> {
    let mut out = Vec::new();
    push_component(&mut out, Some(&value.to_be_bytes()));
    out
}

fn slice(start: i32, start_after: bool, end: i32, end_after: bool) -> Slice {
    Slice { start: int(start), start_after, end: int(end), end_after }
}

/// Returns the rows of a read by clustering, and the deletion that covers each.
async fn rows(reader: &SstableReader, key: i32, slices: Slices, reversed: bool) -> Vec<(i32, i64)> {
    let key = key.to_be_bytes();
    let hash = codec::hash_key(&key);
    assert!(reader.may_contain(&hash));
    let buffers = CursorBuffers::default();
    let mut cursor =
        reader.partition_cursor(3, hash.token, &key, Arc::new(slices), reversed, buffers);
    let mut out = Vec::new();
    let mut open = None;
    while next(reader, &mut cursor).await {
        match cursor.item() {
            Item::Row { clustering, .. } => {
                let value = data::clustering::components(clustering).next().unwrap().unwrap();
                let value = i32::from_be_bytes(value.try_into().unwrap());
                out.push((value, open.map_or(0, |d: data::DeletionTime| d.timestamp.0)));
            }
            Item::Marker(marker) => {
                assert_eq!(marker.close, open, "what closes was open");
                open = marker.open;
                out.push((i32::MIN, open.map_or(0, |d| d.timestamp.0)));
            }
            _ => {}
        }
    }
    assert_eq!(open, None, "nothing stays open");
    out
}

/// Rows of the whole partition inside a slice, as a reader without index finds them.
fn within(all: &[(i32, i64)], s: &Slice) -> Vec<(i32, i64)> {
    let value = |bytes: &[u8]| {
        data::clustering::components(bytes)
            .next()
            .map(|v| i32::from_be_bytes(v.unwrap().try_into().unwrap()))
    };
    let (start, end) = (value(&s.start), value(&s.end));
    all.iter()
        .filter(|(v, _)| *v != i32::MIN)
        .filter(|(v, _)| start.is_none_or(|b| if s.start_after { *v > b } else { *v >= b }))
        .filter(|(v, _)| end.is_none_or(|b| if s.end_after { *v <= b } else { *v < b }))
        .copied()
        .collect()
}

fn without_markers(rows: Vec<(i32, i64)>) -> Vec<(i32, i64)> {
    rows.into_iter().filter(|(v, _)| *v != i32::MIN).collect()
}

#[test]
fn slices_of_an_indexed_partition_show_what_a_full_read_shows_there_both_ways() {
    run(|rt| async move {
        let reader = open_golden(&rt.fs(), "wide").await;
        for key in [0, 1, 2] {
            let all = without_markers(rows(&reader, key, Slices::all(), false).await);
            assert!(all.len() > 2 && all.is_sorted());
            let mut backwards = without_markers(rows(&reader, key, Slices::all(), true).await);
            backwards.reverse();
            assert_eq!(backwards, all, "key {key} reversed");
            let lists: Vec<Vec<Slice>> = vec![
                vec![slice(0, false, 0, true)],
                vec![slice(1500, false, 1500, true)],
                vec![slice(2999, false, 2999, true)],
                vec![slice(3000, false, 4000, true)],
                vec![slice(-5, false, 3, false)],
                vec![slice(499, true, 501, true)],
                vec![slice(600, true, 2400, false)],
                vec![
                    slice(2, false, 2, true),
                    slice(1000, false, 1010, false),
                    slice(2990, true, 9999, true),
                ],
                vec![
                    slice(450, false, 460, true),
                    slice(700, false, 700, true),
                    slice(701, false, 702, true),
                ],
                vec![Slice {
                    start: Vec::new(),
                    start_after: false,
                    end: int(100),
                    end_after: false,
                }],
                vec![Slice {
                    start: int(2900),
                    start_after: true,
                    end: Vec::new(),
                    end_after: true,
                }],
                vec![],
            ];
            for list in lists {
                let expected: Vec<_> = list.iter().flat_map(|s| within(&all, s)).collect();
                let slices = Slices(list.clone());
                let found = without_markers(rows(&reader, key, slices.clone(), false).await);
                assert_eq!(found, expected, "key {key} {list:?}");
                let mut found = without_markers(rows(&reader, key, slices, true).await);
                found.reverse();
                assert_eq!(found, expected, "key {key} reversed {list:?}");
            }
        }
    });
}

#[test]
fn a_point_read_in_a_wide_partition_touches_few_blocks() {
    run(|rt| async move {
        let reader = open_golden(&rt.fs(), "wide").await;
        let key = 0i32.to_be_bytes();
        let hash = codec::hash_key(&key);
        let slices = Arc::new(Slices(vec![slice(2700, false, 2700, true)]));
        let buffers = CursorBuffers::default();
        let mut cursor = reader.partition_cursor(0, hash.token, &key, slices, false, buffers);
        let mut blocks = Vec::new();
        let mut rows = 0;
        loop {
            match cursor.advance().unwrap() {
                data::Advance::End => break,
                data::Advance::Item => {
                    rows += usize::from(matches!(cursor.item(), Item::Row { .. }))
                }
                data::Advance::NeedBlock(request) => {
                    blocks.push(request.block);
                    cursor.feed(request.block, reader.load_block(request.block).await.unwrap());
                }
            }
        }
        assert_eq!(rows, 1);
        // It reads fewer blocks than the twenty and more: one page of the index, the header's
        // chunk, the blocks of one stretch of 64 KiB.
        assert!(blocks.len() <= 8 && reader.meta().data_blocks() > 20, "{blocks:?}");
    });
}

#[test]
fn a_key_that_is_not_there_gives_nothing() {
    run(|rt| async move {
        for (table, _) in TABLES {
            let reader = open_golden(&rt.fs(), table).await;
            for i in 0..50u32 {
                let key = (i * 7919 + 100_000).to_be_bytes();
                let token = codec::token_of(&key);
                let all = Arc::new(Slices::all());
                let mut cursor =
                    reader.partition_cursor(0, token, &key, all, false, CursorBuffers::default());
                assert!(collect(&reader, &mut cursor).await.is_empty(), "{table}");
            }
        }
    });
}

#[test]
fn ranges_filters_and_skipping_show_the_partitions_they_should() {
    run(|rt| async move {
        let reader = open_golden(&rt.fs(), "snappy").await;
        let all = Arc::new(Slices::all());
        let keys = |range: KeyRange, filter: Option<TokenFilter>, skip: bool| {
            let (reader, all) = (reader.clone(), all.clone());
            async move {
                let mut cursor = reader.range_cursor(0, range, all, filter);
                let mut out = Vec::new();
                while next(&reader, &mut cursor).await {
                    if let Item::Partition { key, token, .. } = cursor.item() {
                        out.push((token, key.to_vec()));
                        if skip {
                            cursor.skip_partition();
                        }
                    }
                }
                out
            }
        };
        let everything = keys(KeyRange::all(), None, false).await;
        assert!(everything.len() == 300 && everything.is_sorted());
        assert_eq!(keys(KeyRange::all(), None, true).await, everything);
        for (from, to) in [(0, 0), (0, 299), (17, 200), (250, 251)] {
            let ((first, first_key), (last, _)) =
                (everything[from].clone(), everything[to].clone());
            let token = |token, after| RingBound::Token { token, after };
            let range = KeyRange { start: token(first, false), end: token(last, true) };
            assert_eq!(keys(range, None, false).await, everything[from..=to]);
            let range = KeyRange { start: token(first, true), end: token(last, false) };
            let inner = everything.get(from + 1..to).unwrap_or(&[]);
            assert_eq!(keys(range, None, true).await, inner);
            let start = RingBound::Key { token: first, key: first_key, after: true };
            let range = KeyRange { start, end: token(Token::MAX, true) };
            assert_eq!(keys(range, None, false).await, everything[from + 1..]);
        }
        let (map, table) = (ShardMap::ByTokenHash { shards: 3 }, TableId(Uuid::nil()));
        let mut found = 0;
        for shard in 0..3 {
            let filter = TokenFilter { map, table, shard: ShardId(shard) };
            let part = keys(KeyRange::all(), Some(filter), false).await;
            assert!(part.iter().all(|(t, _)| map.shard_of(table, *t) == ShardId(shard)));
            found += part.len();
        }
        assert_eq!(found, 300);
    });
}

#[test]
fn every_partition_read_alone_is_what_the_scan_shows() {
    run(|rt| async move {
        for (table, _) in TABLES {
            let reader = open_golden(&rt.fs(), table).await;
            let all = Arc::new(Slices::all());
            let mut scan = reader.range_cursor(0, KeyRange::all(), all.clone(), None);
            let mut buffers = CursorBuffers::default();
            let mut more = next(&reader, &mut scan).await;
            while more {
                let Item::Partition { key, token, .. } = scan.item() else { panic!("a partition") };
                let key = key.to_vec();
                assert!(reader.may_contain(&codec::hash_key(&key)));
                let mut one = reader.partition_cursor(0, token, &key, all.clone(), false, buffers);
                let found = collect(&reader, &mut one).await;
                buffers = one.into_buffers();
                let mut expected = vec![text_of(scan.item())];
                loop {
                    more = next(&reader, &mut scan).await;
                    if !more || matches!(scan.item(), Item::Partition { .. }) {
                        break;
                    }
                    expected.push(text_of(scan.item()));
                }
                assert!(found == expected, "{table} {key:?}");
            }
        }
    });
}
