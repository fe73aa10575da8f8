//! Pages of scans that other nodes send: valid pages are accepted, everything else is recognised
//! and refused.

use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::{DeletionTime, Liveness, RowBuilder, RowFilter, RowRef};
use stdx::{TimestampMicros, Token};
use store::{ReadStats, RowSink};

use super::table::VALUE;
use crate::PageLimit;
use replica::{
    Expected, PackedPage, PageWriter, decode_scan_page as decode, encode_scan_page as encode,
};

#[derive(Debug)]
struct All;

impl RowFilter for All {
    fn keeps_partition(&self, _: &[u8], _: Option<RowRef<'_>>) -> bool {
        true
    }

    fn keeps_row(&self, _: &[u8], _: RowRef<'_>) -> bool {
        true
    }
}

fn row(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let base = TimestampMicros(5);
    let mut row = RowBuilder::new(&mut out, Liveness::NONE, DeletionTime::LIVE, base);
    row.cell_at_base(VALUE, value);
    row.finish();
    out
}

/// Partitions by token.
fn keys(count: u8) -> Vec<(Token, Vec<u8>)> {
    let mut keys: Vec<_> = (0..count).map(|k| (codec::token_of(&[k]), vec![k])).collect();
    keys.sort();
    keys
}

fn page(keys: &[(Token, Vec<u8>)], rows: usize) -> PackedPage {
    let limit = PageLimit { rows, bytes: usize::MAX, left_out: usize::MAX, tombstones: u32::MAX };
    let all = Partitions::Range(KeyRange::all());
    let command = ReadCommand::whole(super::table::TABLE, all, stdx::DeletionSeconds(1));
    let command = ReadCommand { wants_static: true, ..command };
    let mut writer = PageWriter::new(limit).filtered(Some(&All), &command);
    for (token, key) in keys {
        let (row, fixed) = (row(key), row(b"static"));
        writer.partition(*token, key, Some(RowRef::trusted(&fixed)));
        if writer.row(b"", RowRef::trusted(&row)) == store::Flow::Stop {
            break;
        }
        writer.partition_end();
    }
    let stats = ReadStats { rows: 7, partitions: 3, tombstones: 2, ..ReadStats::default() };
    writer.finish(stats)
}

fn encoded(page: &PackedPage) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(page, None, &mut bytes);
    bytes
}

fn taken(bytes: &[u8], ranges: &[KeyRange]) -> Result<PackedPage, String> {
    decode(bytes, &Expected { ranges, resumed: None, clustering: 0, fold: None })
}

fn range(after: i64, upto: i64) -> KeyRange {
    let bound = |n| RingBound::Token { token: Token(n), after: true };
    KeyRange { start: bound(after), end: bound(upto) }
}

#[test]
fn a_page_comes_as_it_was_sent() {
    for rows in [3, usize::MAX] {
        let sent = page(&keys(9), rows);
        let came = taken(&encoded(&sent), &[KeyRange::all()]).unwrap();
        assert_eq!((came.more, &came.end, came.rows), (sent.more, &sent.end, sent.rows));
        assert_eq!((&came.bytes, came.stats), (&sent.bytes, sent.stats));
        assert_eq!(came.more, rows == 3);
    }
}

#[test]
fn partitions_that_nobody_asked_for_or_out_of_order_are_refused() {
    let keys = keys(6);
    let all = page(&keys, usize::MAX);
    let at = |n: usize| keys[n].0.0;
    let fits = |ranges: &[KeyRange]| taken(&encoded(&all), ranges).map(drop);
    assert_eq!(fits(&[range(i64::MIN, at(2)), range(at(2), i64::MAX)]), Ok(()));
    let wrong = Err("a partition lies elsewhere".to_owned());
    assert_eq!(fits(&[range(i64::MIN, at(2)), range(at(3), i64::MAX)]), wrong, "a gap");
    assert_eq!(fits(&[range(at(0), i64::MAX)]), wrong, "before the first");
    assert_eq!(fits(&[range(i64::MIN, at(4))]), wrong, "behind the last");
    let turned: Vec<_> = keys.iter().rev().cloned().collect();
    assert!(taken(&encoded(&page(&turned, usize::MAX)), &[KeyRange::all()]).is_err());
    let mut double = keys.clone();
    double.insert(1, keys[0].clone());
    assert!(taken(&encoded(&page(&double, usize::MAX)), &[KeyRange::all()]).is_err());
    let mut other = keys.clone();
    other[2].0 = Token(other[2].0.0 + 1);
    assert!(taken(&encoded(&page(&other, usize::MAX)), &[KeyRange::all()]).is_err(), "its token");
    let mut early = page(&keys, 4);
    early.end = page(&keys, 2).end;
    let error = taken(&encoded(&early), &[KeyRange::all()]).unwrap_err();
    assert_eq!(error, "its end lies before its last partition");
}

#[test]
fn a_page_that_ends_where_it_began_is_refused() {
    let keys = keys(6);
    let (token, key) = keys[2].clone();
    let start = |after| KeyRange {
        start: RingBound::Key { token, key: key.clone(), after },
        end: RingBound::Token { token: Token::MAX, after: true },
    };
    let ends_at = |n: usize| PackedPage { bytes: Vec::new(), ..page(&keys[n..], 1) };
    let fits = |n: usize, after| taken(&encoded(&ends_at(n)), &[start(after)]).is_ok();
    assert!(fits(3, true) && !fits(2, true));
    // Inside of the partition all of it may be left, but not the row behind which it began.
    let inside = |clustering: Option<&[u8]>, resumed: &[u8]| {
        let mut page = ends_at(2);
        page.end.as_mut().unwrap().clustering = clustering.map(<[u8]>::to_vec);
        let ranges = &[start(false)];
        let expected = Expected { ranges, resumed: Some(resumed), clustering: 0, fold: None };
        decode(&encoded(&page), &expected).is_ok()
    };
    assert!(inside(None, b"") && !inside(Some(b""), b""));
}

#[test]
fn damaged_pages_are_refused_or_are_pages() {
    let sent = encoded(&page(&keys(5), 4));
    let mut refused = 0;
    for bit in 0..sent.len() * 8 {
        let mut damaged = sent.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let Ok(page) = taken(&damaged, &[KeyRange::all()]) else {
            refused += 1;
            continue;
        };
        // An accepted page can be iterated to its end.
        let mut at = 0;
        while let Some((item, next)) = page.item(at) {
            if let replica::PageItem::Row { row, .. } = item {
                row.columns().for_each(drop);
            }
            at = next;
        }
        assert_eq!(at, page.len());
    }
    assert!(refused > sent.len() * 4, "{refused} of {}", sent.len() * 8);
    for cut in 0..sent.len() {
        let _ = taken(&sent[..cut], &[KeyRange::all()]);
    }
}
