//! Unit cases of each part.

use std::cmp::Ordering;

use data::{
    CellRef, ClusteringBuf, ColumnRef, DeletionTime, Liveness, MutationBuilder, MutationRef,
    RowBuilder, RowRef,
};
use schema::{ColumnKind, CompactForm, TableKind};
use stdx::{DeletionSeconds, TableId, TimestampMicros, TtlSeconds, Uuid, WallMicros};
use testkit::{Mutations, Random};
use types::{Comparator, CqlType};

use super::world::{clustering, key};
use super::{V, index, table};
use crate::ghost::CLOCK_SKEW_MAX_MICROS;
use crate::{
    BaseRow, CanonicalForm, Entry, EntryPage, FoundRow, GhostPolicy, GlobalIndex, GlobalScan,
    PageDefect, ScanBounds, ScanStep, Unsupported, Verdict, delete_entry, entries_of, is_deletable,
    judge,
};

const SECOND: i64 = 1_000_000;
const NOW: WallMicros = WallMicros(1_000 * SECOND);

fn row_of(cell: Option<CellRef<'_>>, deletion: DeletionTime) -> Vec<u8> {
    let mut row = Vec::new();
    let mut builder =
        RowBuilder::new(&mut row, Liveness::NONE, deletion, TimestampMicros(900 * SECOND));
    if let Some(cell) = cell {
        builder.cell(V, &cell);
    }
    builder.finish();
    row
}

fn mutation(rows: &[(i32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = MutationBuilder::new(&mut bytes, table().id, 1, &key(7));
    let rows: Vec<(Vec<u8>, &Vec<u8>)> =
        rows.iter().map(|(ck, row)| (clustering(*ck), row)).collect();
    builder.rows(rows.iter().map(|(name, row)| (name.as_slice(), RowRef::trusted(row))));
    builder.finish();
    bytes
}

fn live(seconds: i64, value: &str) -> CellRef<'_> {
    CellRef::live(TimestampMicros(seconds * SECOND), value.as_bytes())
}

fn expiring(seconds: i64, ttl: i32, value: &str) -> CellRef<'_> {
    let expires_at = DeletionSeconds(seconds + i64::from(ttl));
    let at = TimestampMicros(seconds * SECOND);
    CellRef::expiring(at, TtlSeconds(ttl), expires_at, value.as_bytes())
}

fn deletion(seconds: i64, made: i64) -> DeletionTime {
    DeletionTime { timestamp: TimestampMicros(seconds * SECOND), local: DeletionSeconds(made) }
}

/// Value, rows, lasting timestamp and expiry of each entry of a mutation.
fn shown(bytes: &[u8]) -> Vec<String> {
    let index = index();
    let base = MutationRef::open(bytes).unwrap();
    let mut all = Vec::new();
    for entry in entries_of(&index, &base, NOW).unwrap() {
        let mutation = MutationRef::parse(&entry.bytes, 3).unwrap();
        assert_eq!(mutation.table, index.entry_table().id);
        assert_eq!(entry.token, codec::token_of(mutation.key));
        let value = String::from_utf8(mutation.key.to_vec()).unwrap();
        for (name, row) in mutation.rows() {
            let named = index.keys().row_of(name).unwrap();
            assert_eq!((named.token, &named.key), (codec::token_of(&key(7)), &key(7)));
            let ck = (0..9).find(|ck| clustering(*ck) == named.clustering).unwrap();
            let slot = match row.column(index.expires_column()) {
                Some(ColumnRef::Simple(cell)) => {
                    assert!(row.liveness().is_empty());
                    let millis = i64::from_be_bytes(cell.value.try_into().unwrap());
                    assert_eq!(
                        (cell.timestamp.0, millis),
                        (cell.local.0 * SECOND, cell.local.0 * 1000)
                    );
                    format!("expires {} ttl {}", cell.local.0, cell.ttl.0)
                }
                _ => format!("lasting {}", row.liveness().timestamp.0 / SECOND),
            };
            all.push(format!("{value} {ck}: {slot}"));
        }
    }
    all
}

#[test]
fn each_write_of_a_value_has_an_entry() {
    let none = DeletionTime::LIVE;
    let bytes = mutation(&[
        (0, row_of(Some(live(1_005, "b")), none)),
        (1, row_of(Some(live(1_005, "a")), none)),
        (2, row_of(Some(live(5, "b")), none)),
        (3, row_of(Some(expiring(990, 30, "a")), none)),
        (4, row_of(Some(CellRef::tombstone(TimestampMicros(9), DeletionSeconds(9))), none)),
        (5, row_of(None, deletion(3, 3))),
    ]);
    // The write of row 2 is older than the clock, which is 1,000 s.
    let expected =
        ["a 1: lasting 1005", "a 3: expires 1020 ttl 30", "b 0: lasting 1005", "b 2: lasting 1000"];
    assert_eq!(shown(&bytes), expected);
}

#[test]
fn a_value_is_a_partition_key_at_most() {
    let index = index();
    for (bytes, is_accepted) in [(65_535, true), (65_536, false)] {
        let value = "x".repeat(bytes);
        let base = mutation(&[(0, row_of(Some(live(1, &value)), DeletionTime::LIVE))]);
        let entries = entries_of(&index, &MutationRef::open(&base).unwrap(), NOW);
        assert_eq!(entries.is_ok(), is_accepted, "{bytes}");
    }
}

fn composite(parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::new();
    for part in parts {
        key.extend_from_slice(&(part.len() as u16).to_be_bytes());
        key.extend_from_slice(part);
        key.push(0);
    }
    key
}

/// Primary key ((pk, ck), v), with w indexed.
fn composite_index() -> GlobalIndex {
    let mut table = table();
    table.partition_key_count = 2;
    table.columns[1].kind = ColumnKind::PartitionKey(1);
    table.columns[2].kind = ColumnKind::Clustering { position: 0, reversed: true };
    GlobalIndex::new(&table, "w", "i", TableId(Uuid::from_u128(2))).unwrap()
}

#[test]
fn an_entry_names_its_row() {
    let index = composite_index();
    let keys = index.keys();
    let row = ClusteringBuf::from_components([&b"text"[..]]).0;
    for parts in [[&b"1234"[..], &b"5678"[..]], [&b""[..], &b""[..]]] {
        let key = composite(&parts);
        let entry = keys.entry_of(codec::token_of(&key), &key, &row).unwrap();
        let named = keys.row_of(&entry).unwrap();
        assert_eq!((named.key, named.clustering), (key.clone(), row.clone()));
        // Another token, a missing component, one too many.
        assert_eq!(keys.row_of(&keys.entry_of(stdx::Token(5), &key, &row).unwrap()), None);
        assert_eq!(keys.row_of(&keys.entry_of(codec::token_of(&key), &key, &[]).unwrap()), None);
        let two = [row.clone(), row.clone()].concat();
        assert_eq!(keys.row_of(&keys.entry_of(codec::token_of(&key), &key, &two).unwrap()), None);
        // Keys that are not of the table.
        for wrong in [&key[..key.len() - 1], &[&key[..], &[0]].concat(), &key[..1]] {
            assert_eq!(keys.entry_of(stdx::Token(5), wrong, &row), None);
        }
    }
    // A descending clustering column descends in the entries.
    let key = composite(&[b"1", b"2"]);
    let entry = |row: &[u8]| {
        let row = ClusteringBuf::from_components([row]).0;
        keys.entry_of(codec::token_of(&key), &key, &row).unwrap()
    };
    assert_eq!(keys.compare(&entry(b"b"), &entry(b"a")), Ordering::Less);
}

#[test]
fn no_bytes_make_a_reader_of_entries_panic() {
    let index = composite_index();
    let key = composite(&[b"1234", b"5678"]);
    let row = ClusteringBuf::from_components([&b"text"[..]]).0;
    let seed = index.keys().entry_of(codec::token_of(&key), &key, &row).unwrap();
    let mut accepted = 0;
    Mutations::of([seed]).run(|bytes| {
        if let Some(named) = index.keys().row_of(bytes) {
            accepted += 1;
            let again = index.keys().entry_of(named.token, &named.key, &named.clustering);
            assert_eq!(again.as_deref(), Some(bytes));
        }
    });
    assert!(accepted > 0);
}

#[test]
fn canonical_values_are_equal_exactly_if_cql_says_so() {
    let types = [
        CqlType::Ascii,
        CqlType::Bigint,
        CqlType::Blob,
        CqlType::Boolean,
        CqlType::Date,
        CqlType::Double,
        CqlType::Float,
        CqlType::Inet,
        CqlType::Int,
        CqlType::Smallint,
        CqlType::Text,
        CqlType::Time,
        CqlType::Timestamp,
        CqlType::Timeuuid,
        CqlType::Tinyint,
        CqlType::Uuid,
        CqlType::Varint,
    ];
    let mut random = Random::new(1);
    for ty in types {
        let form = CanonicalForm::of_type(&ty).unwrap();
        let order = Comparator::for_type(&ty);
        let length = ty.fixed_len();
        let mut equal = 0;
        for _ in 0..20_000 {
            let mut value = |near: Option<&[u8]>| -> Vec<u8> {
                let length = length.unwrap_or_else(|| random.below(5));
                let mut value: Vec<u8> = match near {
                    Some(near) => near.to_vec(),
                    None => {
                        (0..length).map(|_| *random.pick(&[0, 1, 0x7f, 0x80, 0xff, 0xf0])).collect()
                    }
                };
                if near.is_some() && !value.is_empty() {
                    let at = random.below(value.len());
                    value[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]);
                    if ty.fixed_len().is_none() && random.below(2) == 0 {
                        value.insert(0, *random.pick(&[0, 0xff]));
                    }
                }
                value
            };
            let a = value(None);
            let b = value(Some(&a));
            if ty.validate(&a).is_err() || ty.validate(&b).is_err() {
                continue;
            }
            let is_equal = order.compare(&a, &b) == Ordering::Equal;
            equal += usize::from(is_equal && a != b);
            assert_eq!(form.apply(&a) == form.apply(&b), is_equal, "{ty} {a:?} {b:?}");
        }
        // Types of several forms meet them.
        let has_forms = form != CanonicalForm::Unchanged;
        assert_eq!(equal > 0, has_forms, "{ty}: {equal}");
    }
}

#[test]
fn columns_without_entries_are_refused() {
    let id = TableId(Uuid::from_u128(2));
    let refused = |change: &dyn Fn(&mut schema::Table), column: &str| {
        let mut table = table();
        change(&mut table);
        GlobalIndex::new(&table, column, "i", id).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(&|_| (), "x"), Unsupported::NoColumn("x".into()));
    assert_eq!(refused(&|_| (), "pk"), Unsupported::KeyColumn("pk".into()));
    assert_eq!(refused(&|_| (), "ck"), Unsupported::KeyColumn("ck".into()));
    let makes_static = |t: &mut schema::Table| t.columns[2].kind = ColumnKind::Static;
    assert_eq!(refused(&makes_static, "v"), Unsupported::StaticColumn("v".into()));
    for ty in [CqlType::Decimal, CqlType::Duration, CqlType::set(CqlType::Int, false)] {
        let name = ty.to_string();
        let change = |t: &mut schema::Table| t.columns[2].ty = ty.clone();
        let expected = Unsupported::ColumnType { column: "v".into(), ty: name };
        assert_eq!(refused(&change, "v"), expected);
    }
    let counters = |t: &mut schema::Table| t.columns[3].ty = CqlType::Counter;
    assert_eq!(refused(&counters, "v"), Unsupported::TableKind("counter tables"));
    let is_virtual = |t: &mut schema::Table| t.kind = TableKind::Virtual;
    assert_eq!(refused(&is_virtual, "v"), Unsupported::TableKind("virtual tables"));
    let compact = |t: &mut schema::Table| t.kind = TableKind::Compact(CompactForm::Dense);
    let expected = Unsupported::TableKind("tables made WITH COMPACT STORAGE");
    assert_eq!(refused(&compact, "v"), expected);
}

#[test]
fn the_entry_table_follows_its_base() {
    let mut base = table();
    base.columns[3].name = "idx_token".into();
    base.options.default_time_to_live = 9;
    base.options.gc_grace_seconds = 77;
    base.options.cdc = true;
    base.options.comment = "base".to_owned();
    base.options.compaction =
        [("class".to_owned(), "TimeWindowCompactionStrategy".to_owned())].into();
    base.columns[1].kind = ColumnKind::Clustering { position: 0, reversed: true };
    let mask = schema::ColumnMask { function: "mask_null".into(), users: None, args: Vec::new() };
    base.masks.insert(V, mask.clone());
    let index = GlobalIndex::new(&base, "v", "i", TableId(Uuid::from_u128(2))).unwrap();
    let entries = index.entry_table();
    let names: Vec<&str> = entries.columns.iter().map(|c| &*c.name).collect();
    assert_eq!(names, ["v", "idx_token_1", "pk", "ck", "idx_expires"]);
    assert_eq!(&*entries.name, "i_index");
    assert_eq!(entries.clustering_count, 3);
    assert_eq!(
        entries.clustering()[2].kind,
        ColumnKind::Clustering { position: 2, reversed: true }
    );
    assert_eq!(entries.regulars()[0].id, index.expires_column());
    assert_eq!(entries.masks.values().collect::<Vec<_>>(), [&mask]);
    assert_eq!(entries.mask_of(&entries.columns[0]), Some(&mask));
    let options = &entries.options;
    assert_eq!((options.default_time_to_live, options.gc_grace_seconds), (0, 77));
    assert!(!options.cdc && options.comment.is_empty());
    assert_eq!(options.compaction, schema::TableOptions::default().compaction);
}

fn entry(ck: i32, lasting: Option<i64>) -> Entry {
    let index = index();
    let token = codec::token_of(&key(7));
    let clustering = index.keys().entry_of(token, &key(7), &clustering(ck)).unwrap();
    let row = index.keys().row_of(&clustering).unwrap();
    Entry { clustering, row, lasting: lasting.map(|at| TimestampMicros(at * SECOND)) }
}

#[test]
fn only_what_stays_and_shadows_proves_a_ghost() {
    let index = index();
    let none = DeletionTime::LIVE;
    let at = TimestampMicros(500 * SECOND);
    let tombstone = |seconds: i64, made: i64| {
        CellRef::tombstone(TimestampMicros(seconds * SECOND), DeletionSeconds(made))
    };
    let ghost = Verdict::ProvenGhost(at);
    let cases: Vec<(&str, DeletionTime, Vec<u8>, Verdict)> = vec![
        ("value", none, row_of(Some(live(400, "a")), none), Verdict::Matches),
        ("newer value", none, row_of(Some(live(600, "a")), none), Verdict::Matches),
        ("deleted value", deletion(500, 500), row_of(Some(live(400, "a")), none), ghost),
        ("live TTL", none, row_of(Some(expiring(990, 30, "a")), none), Verdict::Matches),
        ("expired TTL", none, row_of(Some(expiring(900, 30, "a")), none), ghost),
        ("expired before", none, row_of(Some(expiring(400, 30, "a")), none), Verdict::Unproven),
        ("expired, equal time", none, row_of(Some(expiring(500, 30, "a")), none), ghost),
        ("newer", none, row_of(Some(live(501, "b")), none), ghost),
        ("equal", none, row_of(Some(live(500, "b")), none), Verdict::Unproven),
        ("older", none, row_of(Some(live(499, "b")), none), Verdict::Unproven),
        ("nothing", none, row_of(None, none), Verdict::Unproven),
        ("null", none, row_of(Some(tombstone(500, 500)), none), ghost),
        ("older null", none, row_of(Some(tombstone(499, 500)), none), Verdict::Unproven),
        ("null of the future", none, row_of(Some(tombstone(501, 439)), none), Verdict::Unproven),
        ("null within the skew", none, row_of(Some(tombstone(501, 440)), none), ghost),
        ("row", none, row_of(None, deletion(500, 500)), ghost),
        ("older row", none, row_of(None, deletion(499, 500)), Verdict::Unproven),
        ("range", deletion(500, 500), row_of(None, none), ghost),
        ("range of the future", deletion(500, 439), row_of(None, none), Verdict::Unproven),
    ];
    for (name, covering, row, expected) in cases {
        let base = BaseRow { covering, row: Some(RowRef::trusted(&row)) };
        let now = NOW.seconds();
        assert_eq!(judge(&index, b"a", &entry(0, Some(500)), &base, now), expected, "{name}");
        // An entry that expires is never deleted.
        let expected = if expected == ghost { Verdict::Unproven } else { expected };
        assert_eq!(judge(&index, b"a", &entry(0, None), &base, now), expected, "{name}");
    }
    let absent = judge(&index, b"a", &entry(0, Some(500)), &BaseRow::ABSENT, NOW.seconds());
    assert_eq!(absent, Verdict::Unproven);
}

#[test]
fn young_entries_are_not_deleted() {
    let border = NOW.0 - CLOCK_SKEW_MAX_MICROS;
    for (at, policy, expected) in [
        (border - 1, GhostPolicy::Delete, true),
        (border, GhostPolicy::Delete, false),
        (border - 1, GhostPolicy::Keep, false),
    ] {
        assert_eq!(is_deletable(TimestampMicros(at), policy, NOW), expected, "{at} {policy:?}");
    }
    let at = TimestampMicros(border - 1);
    let bytes = delete_entry(&index(), b"a", &entry(3, None), at, NOW);
    let mutation = MutationRef::parse(&bytes, 3).unwrap();
    let rows: Vec<_> = mutation.rows().collect();
    assert_eq!((mutation.key, rows.len()), (&b"a"[..], 1));
    assert_eq!(rows[0].0, entry(3, None).clustering);
    assert_eq!(rows[0].1.deletion(), DeletionTime { timestamp: at, local: NOW.seconds() });
    assert!(mutation.deletion.is_live());
}

/// A page as read from rows with these lasting slots.
fn read(after: Option<i32>, rows: &[i32], end: Option<i32>) -> Result<EntryPage, PageDefect> {
    let name = |ck: i32| entry(ck, None).clustering;
    let mut row = Vec::new();
    let liveness = Liveness::new(TimestampMicros(9));
    RowBuilder::new(&mut row, liveness, DeletionTime::LIVE, liveness.timestamp).finish();
    let names: Vec<Vec<u8>> = rows.iter().map(|ck| name(*ck)).collect();
    let rows = names.iter().map(|name| (name.as_slice(), RowRef::trusted(&row)));
    EntryPage::read(&index(), after.map(name).as_deref(), rows, end.map(name), NOW.seconds())
}

#[test]
fn pages_that_no_read_gives_are_refused() {
    assert_eq!(read(Some(1), &[2, 3], Some(3)).unwrap().entries.len(), 2);
    assert!(read(Some(1), &[], Some(2)).is_ok() && read(None, &[], None).is_ok());
    for (after, rows, end) in [
        (Some(2), &[2][..], None),
        (None, &[3, 2], None),
        (None, &[2, 2], None),
        (None, &[2, 3], Some(2)),
        (Some(2), &[], Some(2)),
        (Some(2), &[], Some(1)),
    ] {
        assert!(read(after, rows, end).is_err(), "{after:?} {rows:?} {end:?}");
    }
    let foreign = ClusteringBuf::from_components([&b"12345678"[..], b"1234", b"1234"]).0;
    let row = row_of(None, DeletionTime::LIVE);
    let rows = [(foreign.as_slice(), RowRef::trusted(&row))];
    assert!(EntryPage::read(&index(), None, rows, None, NOW.seconds()).is_err());
    assert!(EntryPage::read(&index(), None, [], Some(foreign), NOW.seconds()).is_err());
}

#[test]
fn a_scan_has_bounds_and_checks_its_answers() {
    let index = index();
    let bounds = ScanBounds { page: 2, examined: 3 };
    let new = || GlobalScan::new(b"a", None, bounds, GhostPolicy::Delete);
    let limit_of = |scan: &GlobalScan| match scan.step(&index) {
        ScanStep::Entries { limit, .. } => limit,
        other => panic!("{other:?}"),
    };
    let check =
        |scan: &mut GlobalScan, rows: &[FoundRow<'_>]| scan.rows(&index, rows, NOW.seconds(), NOW);
    let mut scan = new();
    assert!(check(&mut scan, &[]).is_err());
    assert_eq!(limit_of(&scan), 2);
    assert!(new().entries(read(None, &[1, 2, 3], None).unwrap()).is_err());
    scan.entries(read(None, &[1, 2], Some(2)).unwrap()).unwrap();
    let ScanStep::Rows(rows) = scan.step(&index) else { panic!("no rows") };
    assert_eq!((rows.len(), rows[0].keys(), &rows[0].key), (1, 2, &key(7)));
    // Rows in another order, and a row that was not asked for.
    let (one, two, nine) = (clustering(1), clustering(2), clustering(9));
    let owner = key(7);
    let found = |clustering| FoundRow { key: &owner, clustering, base: BaseRow::ABSENT };
    assert!(check(&mut scan.clone(), &[found(&two), found(&one)]).is_err());
    assert!(check(&mut scan.clone(), &[found(&nine)]).is_err());
    let checked = check(&mut scan, &[found(&two)]).unwrap();
    assert_eq!((checked.matches.len(), checked.ghosts, checked.deletions.len()), (0, 2, 0));
    // One entry is left of three.
    assert_eq!(limit_of(&scan), 1);
    scan.entries(read(Some(2), &[3], Some(3)).unwrap()).unwrap();
    check(&mut scan, &[]).unwrap();
    assert_eq!(scan.step(&index), ScanStep::Bound(entry(3, None).clustering));
    // Pages of dead entries come to the bound too.
    let mut scan = new();
    for end in 1..=3 {
        limit_of(&scan);
        scan.entries(read(Some(end - 1), &[], Some(end)).unwrap()).unwrap();
    }
    assert!(matches!(scan.step(&index), ScanStep::Bound(_)));
    let mut scan = new();
    scan.entries(read(None, &[], None).unwrap()).unwrap();
    assert_eq!(scan.step(&index), ScanStep::Done);
}
