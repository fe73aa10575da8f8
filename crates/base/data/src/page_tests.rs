//! Replica pages: the documented bytes, one encoding per content, what the parser refuses.

use stdx::{DeletionSeconds, TimestampMicros, Token};

use crate::page_cursor::{PageChain, PageCursor, PageStops};
use crate::page_fuzz::walk_page;
use crate::replica_page::{
    HEADER_BYTES, PageEnd, PageError, PageFlow, PageLimits, PageWriter, ReplicaPage, TAG_CUT,
};
use crate::tests::{A, ck, deletion, shape};
use crate::{
    Advance, BoundRef, CellRef, Cursor, DeletionTime, Item, Liveness, Marker, RowBuilder, RowRef,
};

const NOW: DeletionSeconds = DeletionSeconds(1000);

/// A row with one cell, packed relative to `base`.
fn row(timestamp: i64, base: i64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut row =
        RowBuilder::new(&mut out, Liveness::NONE, DeletionTime::LIVE, TimestampMicros(base));
    row.cell(A, &CellRef::live(TimestampMicros(timestamp), value));
    row.finish();
    out
}

fn inserted(timestamp: i64) -> Vec<u8> {
    let mut out = Vec::new();
    let liveness = Liveness::new(TimestampMicros(timestamp));
    RowBuilder::new(&mut out, liveness, DeletionTime::LIVE, TimestampMicros(0)).finish();
    out
}

fn partition(key: &[u8]) -> Item<'_> {
    Item::Partition { token: codec::token_of(key), key, deletion: DeletionTime::LIVE }
}

fn marker(prefix: &[u8], close: Option<i64>, open: Option<i64>) -> Item<'_> {
    let position = BoundRef { prefix, after: false };
    Item::Marker(Marker { position, close: close.map(deletion), open: open.map(deletion) })
}

fn write(items: &[Item<'_>], limits: PageLimits) -> (Vec<u8>, PageFlow) {
    let shape = shape();
    let mut writer = PageWriter::new(&shape, false, NOW, false, limits);
    let mut flow = PageFlow::Continue;
    for item in items {
        flow = writer.item(item);
        if flow == PageFlow::Full {
            break;
        }
    }
    (writer.finish(), flow)
}

fn whole(items: &[Item<'_>]) -> Vec<u8> {
    write(items, PageLimits::default()).0
}

/// A page with everything: partition deletion, static row, range, rows, a cut.
fn sample() -> Vec<u8> {
    let (one, two, five) = (ck(1), ck(2), ck(5));
    let (r, s) = (row(9, 9, b"hi"), inserted(8));
    let key = b"key".as_slice();
    let items = [
        Item::Partition { token: codec::token_of(key), key, deletion: deletion(4) },
        Item::Static(RowRef::trusted(&s)),
        Item::Row { clustering: &one, row: RowRef::trusted(&r) },
        marker(&two, None, Some(6)),
        Item::Row { clustering: &five, row: RowRef::trusted(&s) },
    ];
    let (page, flow) = write(&items, PageLimits { rows: 2, ..PageLimits::default() });
    assert_eq!(flow, PageFlow::Full);
    page
}

/// The bytes of docs/formats/replica-page.md: a change here is a new version of the encoding.
#[test]
fn the_encoding_is_the_documented_one() {
    let hex: String = sample().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden_replica_page_v1.hex").trim());
}

#[test]
fn a_page_is_read_as_it_was_written() {
    let (bytes, shape) = (sample(), shape());
    let page = ReplicaPage::parse(&bytes, &shape, false).unwrap();
    let five = ck(5);
    assert_eq!(page.live_rows(), 2);
    let key = b"key".as_slice();
    let token = codec::token_of(key);
    assert_eq!(page.end(), PageEnd::Inside { token, key, clustering: &five });
    let (chain, stops) = (PageChain::new(page), PageStops::NONE);
    let mut cursor = PageCursor::new(&shape, false, &chain, &stops);
    let mut seen = Vec::new();
    while cursor.advance().unwrap() == Advance::Item {
        seen.push(match cursor.item() {
            Item::Partition { deletion: d, .. } => format!("partition {}", d.timestamp.0),
            Item::Static(_) => "static".to_owned(),
            Item::Row { .. } => "row".to_owned(),
            Item::Marker(m) => {
                let t = |d: Option<DeletionTime>| d.map_or(0, |d| d.timestamp.0);
                format!("marker {} {}", t(m.close), t(m.open))
            }
            Item::PartitionEnd => "end".to_owned(),
        });
    }
    // The range that was open at the cut is closed there.
    let expected = ["partition 4", "static", "row", "marker 0 6", "row", "marker 6 0", "end"];
    assert_eq!(seen, expected);
}

/// INV-page-1.
#[test]
fn equal_content_has_one_encoding() {
    let (one, two, three) = (ck(1), ck(2), ck(3));
    let (a, b) = (row(9, 9, b"x"), row(9, 77, b"x"));
    assert_ne!(a, b);
    let items = |row| {
        [
            partition(b"k"),
            Item::Row { clustering: &one, row: RowRef::trusted(row) },
            Item::PartitionEnd,
        ]
    };
    assert_eq!(whole(&items(&a)), whole(&items(&b)));
    let together = [
        partition(b"k"),
        marker(&one, None, Some(5)),
        marker(&two, Some(5), Some(6)),
        marker(&three, Some(6), None),
        Item::PartitionEnd,
    ];
    let apart = [
        partition(b"k"),
        marker(&one, None, Some(5)),
        marker(&two, Some(5), None),
        marker(&two, None, Some(6)),
        marker(&three, Some(6), None),
        Item::PartitionEnd,
    ];
    assert_eq!(whole(&together), whole(&apart));
    let split = [
        partition(b"k"),
        marker(&one, None, Some(5)),
        marker(&two, Some(5), None),
        marker(&two, None, Some(5)),
        marker(&three, Some(5), None),
        Item::PartitionEnd,
    ];
    let joined = [
        partition(b"k"),
        marker(&one, None, Some(5)),
        marker(&three, Some(5), None),
        Item::PartitionEnd,
    ];
    assert_eq!(whole(&split), whole(&joined));
    assert_ne!(whole(&together), whole(&joined));
    // A partition without content is not shown.
    assert_eq!(whole(&[partition(b"k"), Item::PartitionEnd]), whole(&[]));
}

#[test]
fn limits_cut_behind_the_row_that_meets_them() {
    let clusterings: Vec<_> = (0..6).map(ck).collect();
    let live = row(9, 9, b"x");
    let mut dead = Vec::new();
    RowBuilder::new(&mut dead, Liveness::NONE, deletion(9), TimestampMicros(9)).finish();
    let mut items = vec![partition(b"k")];
    for (n, clustering) in clusterings.iter().enumerate() {
        let row = RowRef::trusted(if n % 2 == 0 { &dead } else { &live });
        items.push(Item::Row { clustering, row });
    }
    items.push(Item::PartitionEnd);
    let shape = shape();
    let check = |limits: PageLimits, expect: (PageFlow, u32, Option<usize>)| {
        let (bytes, flow) = write(&items, limits);
        let page = ReplicaPage::parse(&bytes, &shape, false).unwrap();
        let cut = match page.end() {
            PageEnd::Inside { clustering, .. } => {
                Some(clusterings.iter().position(|c| c == clustering).unwrap())
            }
            _ => None,
        };
        assert_eq!((flow, page.live_rows(), cut), expect);
    };
    // Only live rows count.
    check(PageLimits { rows: 2, ..PageLimits::default() }, (PageFlow::Full, 2, Some(3)));
    check(PageLimits { rows: 4, ..PageLimits::default() }, (PageFlow::Continue, 3, None));
    // The first row crosses.
    check(PageLimits { bytes: 12, ..PageLimits::default() }, (PageFlow::Full, 0, Some(0)));
}

#[test]
fn a_partition_is_cut_at_its_own_limit_and_the_page_goes_on() {
    let clusterings: Vec<_> = (0..3).map(ck).collect();
    let live = row(9, 9, b"x");
    let shape = shape();
    let limits = PageLimits { rows_per_partition: 2, ..PageLimits::default() };
    let mut writer = PageWriter::new(&shape, false, NOW, false, limits);
    let mut keys = [b"a".as_slice(), b"b"];
    keys.sort_by_key(|k| codec::token_of(k));
    for key in keys {
        writer.item(&partition(key));
        for (clustering, flow) in
            clusterings.iter().zip([PageFlow::Continue, PageFlow::SkipPartition])
        {
            let row = RowRef::trusted(&live);
            assert_eq!(writer.item(&Item::Row { clustering, row }), flow);
        }
    }
    let bytes = writer.finish();
    let page = ReplicaPage::parse(&bytes, &shape, false).unwrap();
    assert!(page.is_exhausted() && page.has_cut_partitions());
    let mut stops = Vec::new();
    PageChain::new(page).cut_partitions(&mut stops);
    let found: Vec<_> = stops.iter().map(|s| (s.key, s.clustering)).collect();
    assert_eq!(found, keys.map(|k| (k, clusterings[1].as_slice())));
}

#[test]
fn a_partition_that_goes_on_counts_the_rows_before() {
    let clusterings: Vec<_> = (0..3).map(ck).collect();
    let live = row(9, 9, b"x");
    let shape = shape();
    let limits = PageLimits { rows_per_partition: 2, ..PageLimits::default() };
    let check = |before: u32, expect: PageFlow| {
        let mut writer = PageWriter::new(&shape, false, NOW, false, limits);
        writer.go_on_behind(before);
        let mut keys = [b"a".as_slice(), b"b"];
        keys.sort_by_key(|k| codec::token_of(k));
        let row = RowRef::trusted(&live);
        writer.item(&partition(keys[0]));
        let first = Item::Row { clustering: &clusterings[0], row };
        assert_eq!(writer.item(&first), expect);
        if expect == PageFlow::Continue {
            writer.item(&Item::PartitionEnd);
        }
        // The next partition counts from zero.
        writer.item(&partition(keys[1]));
        assert_eq!(writer.item(&first), PageFlow::Continue);
        assert_eq!(writer.live_rows(), 2);
    };
    check(0, PageFlow::Continue);
    check(1, PageFlow::SkipPartition);

    let statics = |before: u32| {
        let mut writer = PageWriter::new(&shape, false, NOW, true, PageLimits::default());
        writer.go_on_behind(before);
        for item in [partition(b"a"), Item::Static(RowRef::trusted(&live)), Item::PartitionEnd] {
            writer.item(&item);
        }
        writer.live_rows()
    };
    assert_eq!((statics(0), statics(1)), (1, 0));
}

#[test]
fn tombstones_are_counted_as_cassandra_counts_them() {
    let one = ck(1);
    let mut dead_cells = Vec::new();
    let mut builder =
        RowBuilder::new(&mut dead_cells, Liveness::NONE, deletion(3), TimestampMicros(9));
    builder.cell(A, &CellRef::tombstone(TimestampMicros(9), NOW));
    builder.finish();
    let mut only_deletion = Vec::new();
    RowBuilder::new(&mut only_deletion, Liveness::NONE, deletion(9), TimestampMicros(9)).finish();
    let mut deleted_and_written = Vec::new();
    let liveness = Liveness::new(TimestampMicros(10));
    RowBuilder::new(&mut deleted_and_written, liveness, deletion(9), TimestampMicros(9)).finish();
    let check = |item: &Item<'_>, expect: u32| {
        let shape = shape();
        let mut writer = PageWriter::new(&shape, false, NOW, false, PageLimits::default());
        writer.item(&partition(b"k"));
        writer.item(item);
        assert_eq!(writer.tombstones(), expect);
    };
    let of = |row| Item::Row { clustering: &one, row: RowRef::trusted(row) };
    let (same, other) = (row(9, 9, b"x"), row(9, 8, b"x"));
    check(&of(&same), 0);
    check(&of(&other), 0);
    check(&of(&dead_cells), 1);
    check(&of(&only_deletion), 1);
    check(&of(&deleted_and_written), 0);
    check(&marker(&one, None, Some(3)), 1);
}

/// Corrupts a page at one offset and checks that the parser names the fault.
#[test]
fn the_parser_refuses_what_no_writer_makes() {
    let shape = shape();
    let good = sample();
    assert!(ReplicaPage::parse(&good, &shape, false).is_ok());
    for cut in 0..good.len() {
        assert!(ReplicaPage::parse(&good[..cut], &shape, false).is_err(), "cut at {cut}");
    }
    let refused = |bytes: &[u8]| ReplicaPage::parse(bytes, &shape, false).unwrap_err();
    let mut version = good.clone();
    version[0] = 2;
    assert_eq!(refused(&version), PageError::Version(2));
    // A reversed read would have its rows the other way round.
    assert!(ReplicaPage::parse(&good, &shape, true).is_err());

    let (one, two) = (ck(1), ck(2));
    let x = row(9, 9, b"x");
    let r = |clustering| Item::Row { clustering, row: RowRef::trusted(&x) };
    let broken = |items: &[Item<'_>]| match refused(&whole(items)) {
        PageError::Malformed(what) => what,
        PageError::Version(v) => panic!("version {v}"),
    };
    let rows = [partition(b"k"), r(&two), r(&one), Item::PartitionEnd];
    assert_eq!(broken(&rows), "rows or markers are out of order");
    let twice = [partition(b"k"), r(&one), r(&one), Item::PartitionEnd];
    assert_eq!(broken(&twice), "rows or markers are out of order");
    let open = [partition(b"k"), marker(&one, None, Some(3)), Item::PartitionEnd];
    assert_eq!(broken(&open), "a partition leaves a range open");
    let same = [partition(b"k"), r(&one), Item::PartitionEnd, partition(b"k"), r(&two)];
    assert_eq!(broken(&same), "partitions are out of order");
    let both = [one.clone(), two.clone()].concat();
    let long = [partition(b"k"), r(&both), Item::PartitionEnd];
    assert_eq!(broken(&long), "a clustering has the wrong number of components");
    let mut not_a_row = good.clone();
    // Behind the length of the first row: flags that do not exist.
    let at = good.windows(3).position(|w| w == [14, 0, 9]).unwrap();
    not_a_row[at + 1] = 0xff;
    assert_eq!(refused(&not_a_row), PageError::Malformed("a row is not a packed row"));

    let live = |n: u32| {
        let mut bytes = good.clone();
        bytes[2..6].copy_from_slice(&n.to_le_bytes());
        bytes
    };
    // Two rows and a static one.
    assert!(ReplicaPage::parse(&live(3), &shape, false).is_ok());
    let counts = PageError::Malformed("it counts more live rows than it has");
    assert_eq!(refused(&live(4)), counts);

    let mut marked = good.clone();
    marked[1] |= 0x80;
    let wrong_mark = PageError::Malformed("its mark of cut partitions is wrong");
    assert_eq!(refused(&marked), wrong_mark);
    let mut unmarked = whole(&[]);
    unmarked[6] = 1;
    unmarked.insert(HEADER_BYTES, TAG_CUT);
    let outside = PageError::Malformed("an item lies outside of a partition");
    assert_eq!(refused(&unmarked), outside);
}

#[test]
fn ends_are_ordered_as_rows_are() {
    let shape = shape();
    let (one, two) = (ck(1), ck(2));
    let at = |token, clustering| PageEnd::Inside { token: Token(token), key: b"k", clustering };
    let after = |token| PageEnd::After { token: Token(token), key: b"k".as_slice() };
    let ascending = [at(1, &one), at(1, &two), after(1), at(2, &one), PageEnd::Exhausted];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(a.compare(b, &shape, false), i.cmp(&j));
        }
    }
    assert!(at(1, &one).compare(&at(1, &two), &shape, true).is_gt());
}

#[test]
fn a_page_that_begins_before_the_last_end_is_no_continuation() {
    let shape = shape();
    let first = sample();
    let page = ReplicaPage::parse(&first, &shape, false).unwrap();
    let x = row(9, 9, b"x");
    let check = |clustering: i32, accepted: bool| {
        let clustering = ck(clustering);
        let row = RowRef::trusted(&x);
        let bytes = whole(&[
            partition(b"key"),
            Item::Row { clustering: &clustering, row },
            Item::PartitionEnd,
        ]);
        let next = ReplicaPage::parse(&bytes, &shape, false).unwrap();
        let mut chain = PageChain::new(page);
        assert_eq!(chain.push(next, &shape, false).is_ok(), accepted);
    };
    check(6, true);
    check(5, false);
    check(4, false);
}

#[test]
fn the_fuzz_target_takes_anything() {
    let mut corpus = vec![Vec::new(), vec![0], vec![1]];
    for page in [sample(), whole(&[])] {
        corpus.push([&[0][..], &page].concat());
    }
    testkit::Mutations::of(corpus).rounds(20_000).run(walk_page);
}
