//! Filtered pages that other nodes send: what may be an answer is taken, everything else is refused.

use data::command::{KeyRange, Partitions, ReadCommand, ResumePosition, RingBound};
use data::replica_page::{FilteredPage, PageEnd, PageFlow, PageLimits, PageWriter, ReplicaPage};
use data::{DeletionTime, Item, Liveness, RowBuilder, RowFilter, RowRef, TableShape};
use dist_testing::table::{NOW, TABLE, clustering, key, schema};
use internode::FilteredAnswer;
use schema::TableOptions;
use stdx::{TimestampMicros, Token};

use super::nodes::all;
use crate::replicated::read::filtered::decode;
use replica::PageRows;

#[derive(Debug)]
struct Odd;

impl RowFilter for Odd {
    fn keeps_partition(&self, key: &[u8], _: Option<RowRef<'_>>) -> bool {
        key.last().is_some_and(|last| last % 4 != 0)
    }

    fn keeps_row(&self, clustering: &[u8], _: RowRef<'_>) -> bool {
        clustering.last().is_some_and(|last| last % 2 == 1)
    }
}

fn shape() -> TableShape {
    TableShape::for_table(schema(TableOptions::default(), 1, &[]).table_by_id(TABLE).unwrap())
}

fn row() -> Vec<u8> {
    let (mut out, at) = (Vec::new(), TimestampMicros(1));
    RowBuilder::new(&mut out, Liveness::new(at), DeletionTime::LIVE, at).finish();
    out
}

/// Keys by token.
fn keys() -> Vec<(Token, Vec<u8>)> {
    let mut keys: Vec<_> = (0..8).map(key).map(|key| (codec::token_of(&key), key)).collect();
    keys.sort();
    keys
}

/// Builds a filtered page with so many rows, of partitions with four rows each.
fn page(rows: u32) -> FilteredPage {
    let (shape, row, odd) = (shape(), row(), Odd);
    let limits = PageLimits { rows, ..PageLimits::default() };
    let mut writer = PageWriter::new(&shape, false, NOW, false, limits);
    writer.filter(&odd);
    'page: for (token, key) in keys() {
        let (token, deletion) = (token, DeletionTime::LIVE);
        writer.item(&Item::Partition { token, key: &key, deletion });
        for ck in 0..4 {
            let clustering = clustering(ck);
            let row = RowRef::trusted(&row);
            if writer.item(&Item::Row { clustering: &clustering, row }) == PageFlow::Full {
                break 'page;
            }
        }
        writer.item(&Item::PartitionEnd);
    }
    writer.finish_filtered(PageEnd::Exhausted).1.unwrap()
}

fn encoded(page: &FilteredPage) -> Vec<u8> {
    let FilteredPage { page, whole, last_key } = page;
    let mut out = Vec::new();
    let last_key = last_key.as_deref();
    FilteredAnswer { digest: 7, whole: *whole, last_key, page }.encode(&mut out);
    out
}

/// Why it is refused, as an answer to a command.
fn refused(page: &FilteredPage, command: &ReadCommand) -> Option<String> {
    let filtered = decode(&encoded(page)).unwrap();
    filtered.check(command, &shape()).err().map(|error| error.to_string())
}

fn of(start: RingBound, end: RingBound) -> ReadCommand {
    ReadCommand { partitions: Partitions::Range(KeyRange { start, end }), ..all() }
}

fn after(token: Token) -> RingBound {
    RingBound::Token { token, after: true }
}

#[test]
fn what_passes_is_what_it_was() {
    let page = page(u32::MAX);
    assert_eq!(refused(&page, &all()), None);
    let parsed = ReplicaPage::parse(&page.page, &shape(), false).unwrap();
    assert_eq!((parsed.live_rows(), parsed.partitions().count()), (12, 6));
    assert_eq!((page.whole.live_rows, page.whole.partitions), (32, 8));
    assert_eq!((page.whole.dropped_rows, page.whole.dropped_partitions), (12, 2));
    assert_eq!(page.last_key, keys().pop().map(|(_, key)| key));
}

#[test]
fn partitions_and_ends_that_were_not_asked_for_are_refused() {
    let keys = keys();
    let whole = page(u32::MAX);
    let wrong = Some("replica page is malformed: it holds rows that were not asked for".to_owned());
    let first = ReplicaPage::open(&whole.page).unwrap().partitions().next().unwrap().0;
    assert_eq!(refused(&whole, &of(after(first), after(Token::MAX))), wrong);
    assert_eq!(refused(&whole, &of(after(Token::MIN), after(keys[6].0))), wrong);
    let mut early = whole.clone();
    early.last_key = Some(keys[0].1.clone());
    let text = "replica page is malformed: its last partition was not scanned";
    assert_eq!(refused(&early, &all()), Some(text.to_owned()));
    early.last_key = None;
    assert_eq!(refused(&early, &all()), Some(text.to_owned()));
}

#[test]
fn a_page_that_ends_where_it_begins_is_refused() {
    // It ends at the second row of the second partition.
    let page = page(6);
    let (token, key) = keys()[1].clone();
    let behind = |ck: Option<i32>| {
        let start = RingBound::Key { token, key: key.clone(), after: false };
        let clustering = ck.map(clustering);
        let resume =
            clustering.is_some().then_some(ResumePosition { clustering, rows_in_partition: 1 });
        ReadCommand { resume, ..of(start, after(Token::MAX)) }
    };
    let empty = FilteredPage {
        page: {
            let mut only_end = page.page.clone();
            let items = u32::from_le_bytes(only_end[6..10].try_into().unwrap()) as usize;
            only_end.drain(10..10 + items);
            only_end[2..10].fill(0);
            only_end
        },
        ..page
    };
    assert_eq!(refused(&empty, &behind(None)), None);
    assert_eq!(refused(&empty, &behind(Some(0))), None);
    let text = Some("replica page is malformed: it ends where it begins".to_owned());
    assert_eq!(refused(&empty, &behind(Some(1))), text);
    assert_eq!(refused(&empty, &behind(Some(3))), text);
}

#[test]
fn damaged_answers_are_refused_or_can_be_shown() {
    let shape = shape();
    let sent = encoded(&page(14));
    let (mut refused, mut shown) = (0, 0);
    let mut look = |bytes: &[u8]| {
        let Some(filtered) = decode(bytes) else { return refused += 1 };
        let command = ReadCommand { wants_static: false, ..all() };
        if filtered.check(&command, &shape).is_err() {
            return refused += 1;
        }
        let page = ReplicaPage::open(&filtered.page.page).unwrap();
        let mut show = PageRows::new(&command, None);
        let _ = filtered.last_place(page.end());
        let mut sink = Rows::default();
        show.page(&shape, page, &mut sink).unwrap();
        shown += 1;
    };
    for bit in 0..sent.len() * 8 {
        let mut damaged = sent.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        look(&damaged);
    }
    for cut in 0..sent.len() {
        look(&sent[..cut]);
    }
    assert!(refused > 500 && shown > 100, "{refused} refused, {shown} shown");
}

/// Takes everything.
#[derive(Default)]
struct Rows(usize);

impl store::RowSink for Rows {
    fn partition(&mut self, _: Token, _: &[u8], _: Option<RowRef<'_>>) -> store::Flow {
        store::Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> store::Flow {
        self.0 += row.columns().count();
        store::Flow::Continue
    }

    fn partition_end(&mut self) -> store::Flow {
        store::Flow::Continue
    }
}
