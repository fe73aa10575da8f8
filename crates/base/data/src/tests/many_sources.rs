//! Which sources of a merge have the next partition: asked for and taken in one go, or by the merge's own steps, in any
//! order, they are what a naive look at all of them says.

use proptest::prelude::*;
use smallvec::SmallVec;
use stdx::Token;

use super::*;
use crate::{Advance, BlockRequest, Cursor, CursorError, Item, MergeCursor, MergeMode};

/// A source of partitions without rows, which asks for a block now and then.
struct Keys {
    /// Ascending.
    keys: Vec<(i64, Vec<u8>)>,
    /// Items that were shown: two of each partition.
    shown: usize,
    draw: u64,
}

impl Keys {
    fn draws(&mut self, percent: u64) -> bool {
        draw(&mut self.draw) % 100 < percent
    }
}

fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 20
}

impl Cursor for Keys {
    fn advance(&mut self) -> Result<Advance, CursorError> {
        if self.draws(10) {
            return Ok(Advance::NeedBlock(BlockRequest { source: 0, block: 1 }));
        }
        self.shown += 1;
        Ok(if self.shown > 2 * self.keys.len() { Advance::End } else { Advance::Item })
    }

    fn item(&self) -> Item<'_> {
        match self.shown % 2 {
            0 => Item::PartitionEnd,
            _ => {
                let (token, key) = &self.keys[self.shown / 2];
                Item::Partition { token: Token(*token), key, deletion: DeletionTime::LIVE }
            }
        }
    }

    fn skip_partition(&mut self) {
        self.shown += self.shown % 2;
    }
}

/// A table without clustering columns.
fn shape_of_one_row() -> TableShape {
    let mut table = table();
    table.columns.retain(|column| column.id != ColumnId(1));
    table.clustering_count = 0;
    TableShape::for_table(&table)
}

/// Partitions in order, with the sources that have each, and how many were taken in one go.
type Found = (Vec<((i64, Vec<u8>), Vec<usize>)>, usize);

fn partitions_of(sources: Vec<Vec<(i64, Vec<u8>)>>, seed: u64, own_steps: u64) -> Found {
    let shape = shape_of_one_row();
    let mut state = seed | 1;
    let keys = sources.into_iter().enumerate().map(|(n, keys)| Keys {
        keys,
        shown: 0,
        draw: (seed ^ (n as u64 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1,
    });
    let mut merge = MergeCursor::new(&shape, MergeMode::All, false, keys.collect::<Vec<_>>());
    let (mut found, mut in_one_go) = (Vec::new(), 0);
    let mut members = SmallVec::new();
    let mut in_partition = false;
    loop {
        // Twice in a row it must be the same, also when a block was asked for between.
        let asks = !in_partition && draw(&mut state) % 100 >= own_steps;
        if asks && merge.next_members(&mut members).unwrap() {
            let first = merge.source(members[0]).map(Cursor::item);
            let Some(Item::Partition { token, key, .. }) = first else { panic!("no partition") };
            found.push(((token.0, key.to_vec()), members.to_vec()));
            in_one_go += 1;
            for index in &members {
                merge.source_mut(u32::try_from(*index).unwrap()).unwrap().skip_partition();
            }
            merge.took_next(&members);
            continue;
        }
        if asks && draw(&mut state).is_multiple_of(2) {
            continue;
        }
        match merge.advance().unwrap() {
            Advance::NeedBlock(_) => {}
            Advance::End => return (found, in_one_go),
            Advance::Item => match merge.item() {
                Item::Partition { token, key, .. } => {
                    let key = (token.0, key.to_vec());
                    let has = merge.members().enumerate().filter(|(_, has)| *has);
                    found.push((key, has.map(|(index, _)| index).collect()));
                    in_partition = true;
                }
                Item::PartitionEnd => in_partition = false,
                _ => panic!("no such item was put in"),
            },
        }
    }
}

proptest! {
    #[test]
    fn the_sources_with_each_partition_are_found(
        // Some tokens have two keys.
        sources in proptest::collection::vec(
            proptest::collection::btree_set((0..60_i64, 0..8_u8), 0..40), 1..40),
        seed in any::<u64>(),
        own_steps in 0..30_u64,
    ) {
        let sources: Vec<Vec<(i64, Vec<u8>)>> = sources
            .into_iter()
            .map(|keys| keys.into_iter().map(|(token, key)| (token, vec![key / 7])).collect())
            .map(|mut keys: Vec<_>| { keys.dedup(); keys })
            .collect();
        let mut naive: BTreeMap<(i64, Vec<u8>), Vec<usize>> = BTreeMap::new();
        for (index, keys) in sources.iter().enumerate() {
            for key in keys {
                naive.entry(key.clone()).or_default().push(index);
            }
        }
        let alone = naive.len() > 50 && own_steps == 0;
        let (found, in_one_go) = partitions_of(sources, seed, own_steps);
        prop_assert_eq!(found, naive.into_iter().collect::<Vec<_>>());
        prop_assert!(!alone || in_one_go > 0);
    }
}
