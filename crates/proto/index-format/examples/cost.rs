//! Cost of index components: bytes per entry, and instructions when run below `perf stat -e instructions:u`.
//!
//! `cost SECTION ROWS [DATASET]`. Sections: `data` (makes the pairs; to be subtracted from the others), `build`, `rows`,
//! `memtable`, `equal` (a look-up of each row's term after the build), `wide` (nine tenths of the terms, after the build).
//! Data sets: `unique` numbers, `text` (words of 10,000), `low` (20 values).

#![expect(clippy::disallowed_macros, reason = "a measurement prints")]
#![expect(clippy::disallowed_methods, reason = "a measurement has nothing to stop in order")]

use std::ops::Bound;

use bytes::Bytes;
use index_format::runs::RunBuilder;
use index_format::{
    Block, BlockRef, IndexCursor, IndexError, IndexSummary, IndexWriter, MemtableIndex, RowsWriter,
    Step, TermRange,
};
use stdx::{FixedMap, Token};
use testkit::Random;

/// Blocks that were verified, as a cache holds them.
struct Cache {
    bytes: Bytes,
    blocks: FixedMap<u64, Block>,
}

impl Cache {
    fn block(&mut self, at: BlockRef) -> Result<Block, IndexError> {
        if let Some(block) = self.blocks.get(&at.offset) {
            return Ok(block.clone());
        }
        let start = usize::try_from(at.offset).unwrap_or(0);
        let block = Block::open(at, self.bytes.slice(start..start + at.length as usize))?;
        self.blocks.insert(at.offset, block.clone());
        Ok(block)
    }

    fn count(&mut self, summary: &IndexSummary, range: TermRange) -> Result<u64, IndexError> {
        let mut cursor = IndexCursor::new(summary, vec![range]);
        let mut rows = 0;
        loop {
            match cursor.advance()? {
                Step::Row(_) => rows += 1,
                Step::NeedBlock(at) => cursor.feed(self.block(at)?),
                Step::End => return Ok(rows),
            }
        }
    }
}

fn pairs(rows: u32, set: &str) -> Vec<(Vec<u8>, u32)> {
    let mut random = Random::new(1);
    let mut term = |row: u32| match set {
        "unique" => (u64::from(row) * 2_654_435_761 % (1 << 32)).to_be_bytes()[4..].to_vec(),
        "text" => format!("word-{:05}", random.below(10_000)).into_bytes(),
        _ => vec![b'a' + random.byte() % 20],
    };
    (0..rows).map(|row| (term(row), row)).collect()
}

fn build(pairs: &[(Vec<u8>, u32)], rows: u32) -> Result<(Bytes, IndexSummary), IndexError> {
    let mut builder = RunBuilder::new(1 << 30);
    for (term, row) in pairs {
        builder.push(term, *row)?;
    }
    let mut writer = IndexWriter::new(uuid::Uuid::nil(), rows);
    builder.write_to(&mut writer)?;
    let summary = writer.finish()?;
    Ok((writer.take_output().into(), summary))
}

fn rows_component(rows: u32) -> Result<usize, IndexError> {
    let mut writer = RowsWriter::new();
    let step = u64::MAX / u64::from(rows);
    for row in 0..u64::from(rows) {
        let token = Token((row * step).cast_signed().wrapping_add(i64::MIN));
        writer.partition(token, row * 120)?;
        writer.row(row * 120 + 25 + row % 4)?;
    }
    writer.finish()?;
    Ok(writer.take_output().len())
}

fn run(section: &str, rows: u32, set: &str) -> Result<String, IndexError> {
    let pairs = pairs(rows, set);
    let each = |bytes: usize| format!("{:.2} bytes an entry", bytes as f64 / f64::from(rows));
    let memtable = || {
        let mut index = MemtableIndex::default();
        pairs.iter().for_each(|(term, row)| {
            index.insert(term, *row);
        });
        index.bytes()
    };
    Ok(match section {
        "data" => each(pairs.iter().map(|(term, _)| term.len() + 4).sum()),
        "build" => each(build(&pairs, rows)?.0.len()),
        "rows" => each(rows_component(rows)?),
        "memtable" => each(memtable()),
        _ => {
            let (bytes, summary) = build(&pairs, rows)?;
            let mut cache = Cache { bytes, blocks: FixedMap::default() };
            if section == "equal" {
                let mut found = 0;
                for (term, _) in &pairs {
                    found += cache.count(&summary, TermRange::equal(term))?.min(1);
                }
                format!("{found} found")
            } else {
                let lower = pairs.iter().map(|(term, _)| term).min().cloned().unwrap_or_default();
                let mut upper =
                    pairs.iter().map(|(term, _)| term).max().cloned().unwrap_or_default();
                let first = upper.first_mut();
                first.into_iter().for_each(|byte| *byte = byte.saturating_sub(*byte / 10));
                let range =
                    TermRange { lower: Bound::Excluded(lower), upper: Bound::Excluded(upper) };
                let found = cache.count(&summary, range)?;
                format!("{found} rows, {} blocks", cache.blocks.len())
            }
        }
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, other: &str| arguments.get(at).cloned().unwrap_or(other.to_owned());
    let rows = argument(1, "1000000").parse().unwrap_or(1_000_000);
    match run(&argument(0, "build"), rows, &argument(2, "unique")) {
        Ok(report) => println!("{report}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
