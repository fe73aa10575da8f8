use bytes::Bytes;
use stdx::Token;
use testkit::Random;

use super::component::read;
use crate::summary::{ComponentKind, FOOTER_BYTES};
use crate::*;

pub(super) fn open(bytes: &Bytes) -> Result<RowsSummary, IndexError> {
    let kind = ComponentKind::Rows;
    summary::read_header(kind, bytes)?;
    let tail = bytes.len().saturating_sub(FOOTER_BYTES);
    let footer = Footer::read(kind, &bytes[tail..], bytes.len() as u64)?;
    RowsSummary::read(read(bytes, footer.summary)?)
}

pub(super) fn build(places: &[RowPlace], empty: &[(Token, u64)]) -> Bytes {
    let mut writer = RowsWriter::new();
    let mut out = Vec::new();
    let mut last = None;
    let mut empty = empty.iter().peekable();
    for (id, place) in places.iter().enumerate() {
        if last.replace(place.partition) != Some(place.partition) {
            while let Some((token, offset)) = empty.next_if(|(_, at)| *at < place.partition_offset)
            {
                writer.partition(*token, *offset).unwrap();
            }
            writer.partition(place.token, place.partition_offset).unwrap();
        }
        assert_eq!(writer.row(place.row_offset).unwrap(), id as u32);
        if writer.buffered_bytes() > 5_000 {
            out.extend(writer.take_output());
        }
    }
    let summary = writer.finish().unwrap();
    out.extend(writer.take_output());
    let bytes = Bytes::from(out);
    assert_eq!(open(&bytes).unwrap(), summary);
    bytes
}

pub(super) fn ask<T>(
    bytes: &Bytes,
    reader: &mut RowsReader,
    lookup: impl Fn(&mut RowsReader) -> Result<Lookup<T>, IndexError>,
) -> Result<T, IndexError> {
    loop {
        match lookup(reader)? {
            Lookup::Found(found) => return Ok(found),
            Lookup::NeedBlock(at) => reader.feed(read(bytes, at)?),
        }
    }
}

/// Random partitions; those without rows come back in the second part.
pub(super) fn random_rows(
    rows: usize,
    wide: usize,
    seed: u64,
) -> (Vec<RowPlace>, Vec<(Token, u64)>) {
    let mut random = Random::new(seed);
    let (mut places, mut empty) = (Vec::new(), Vec::new());
    let (mut token, mut at, mut partition) = (i64::MIN, 0u64, 0);
    while places.len() < rows {
        let step = [0, 1, random.next_u64() as i64 & (i64::MAX >> 20)][random.below(3)];
        token = token.saturating_add(step);
        let partition_offset = at;
        at += 1 + random.below(30) as u64;
        if random.below(10) == 0 {
            empty.push((Token(token), partition_offset));
            continue;
        }
        for _ in 0..=random.below(wide) {
            let token = Token(token);
            places.push(RowPlace { token, partition, partition_offset, row_offset: at });
            at += 1 + random.below(300) as u64;
        }
        partition += 1;
    }
    (places, empty)
}

#[test]
fn every_row_comes_back_with_its_partition() {
    for (rows, wide, seed) in
        [(0, 1, 1), (1, 1, 2), (5_000, 1, 3), (5_000, 7, 4), (9_000, 4_000, 5)]
    {
        let (places, empty) = random_rows(rows, wide, seed);
        let bytes = build(&places, &empty);
        let summary = open(&bytes).unwrap();
        assert_eq!(summary.rows as usize, places.len());
        let mut reader = RowsReader::new(summary.clone().into());
        for (id, place) in places.iter().enumerate() {
            let found = ask(&bytes, &mut reader, |r| r.place(id as u32)).unwrap();
            assert_eq!(found, *place, "seed {seed}, row {id}");
        }
        let mut random = Random::new(seed);
        for _ in 0..300 {
            let at = random.below(places.len().max(1));
            let near = places.get(at).map_or(0, |place| place.token.0);
            let token = Token(near.wrapping_add(random.below(3) as i64 - 1));
            let expected = places.partition_point(|place| place.token < token);
            let found = ask(&bytes, &mut reader, |r| r.first_of_token(token)).unwrap();
            assert_eq!(found as usize, expected, "seed {seed}, {token:?}");
            if !places.is_empty() {
                assert_eq!(ask(&bytes, &mut reader, |r| r.place(at as u32)).unwrap(), places[at]);
            }
        }
    }
}

#[test]
fn a_directory_of_several_pages_comes_back() {
    // Partitions and tokens that begin in one page and end in the next one.
    let (mut places, _) = random_rows(600_000, 2, 8);
    let (first, page) = (places[262_000], 256 * 1024);
    for place in &mut places[262_000..page + 3_000] {
        place.token = first.token;
    }
    let bytes = build(&places, &[]);
    let summary = open(&bytes).unwrap();
    let mut reader = RowsReader::new(summary.clone().into());
    let mut random = Random::new(8);
    let found = ask(&bytes, &mut reader, |r| r.first_of_token(places[page].token)).unwrap();
    assert_eq!(found as usize, places.partition_point(|place| place.token < first.token));
    for _ in 0..2_000 {
        let at = random.below(places.len());
        assert_eq!(ask(&bytes, &mut reader, |r| r.place(at as u32)).unwrap(), places[at]);
        let token = Token(random.next_u64() as i64);
        let expected = places.partition_point(|place| place.token < token);
        assert_eq!(
            ask(&bytes, &mut reader, |r| r.first_of_token(token)).unwrap() as usize,
            expected
        );
    }
}

#[test]
fn a_writer_of_rows_refuses_what_is_out_of_order() {
    let input = |what| IndexError::Input { what };
    let mut writer = RowsWriter::new();
    assert_eq!(writer.row(1), Err(input("row without a partition")));
    writer.partition(Token(5), 10).unwrap();
    assert_eq!(writer.row(9), Err(input("row before its partition")));
    assert_eq!(writer.row(10), Ok(0));
    assert_eq!(writer.partition(Token(4), 11), Err(input("partitions do not ascend")));
    assert_eq!(writer.partition(Token(5), 10), Err(input("partitions do not ascend")));
    assert_eq!(writer.partition(Token(5), 11), Ok(()));
}
