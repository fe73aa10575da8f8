//! Partitions of a merge's sources. Taken from the sources past the merge, or by the merge's own steps, in any order,
//! they equal the result of a naive model.

use proptest::prelude::*;
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
    /// The partition that it stands at the start of, or the next one.
    fn next(&self) -> Option<&(i64, Vec<u8>)> {
        self.keys.get(self.shown / 2)
    }

    /// Skips that partition.
    fn pass(&mut self) {
        self.shown = 2 * (self.shown / 2 + 1);
    }

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

/// Partitions in order, with the sources that have each, and how many were taken past the merge.
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
    let (mut found, mut past, mut in_partition) = (Vec::new(), 0, false);
    loop {
        assert_eq!(merge.is_between(), !in_partition);
        if !in_partition && draw(&mut state) % 100 >= own_steps {
            let Some(key) = merge.sources().filter_map(Keys::next).min().cloned() else {
                let mut advance = merge.advance().unwrap();
                while let Advance::NeedBlock(_) = advance {
                    advance = merge.advance().unwrap();
                }
                assert_eq!(advance, Advance::End);
                return (found, past);
            };
            let has = |source: &Keys| source.next() == Some(&key);
            let members = merge.sources().enumerate().filter(|(_, source)| has(source));
            let members: Vec<usize> = members.map(|(index, _)| index).collect();
            for index in &members {
                merge.move_source(*index, |source| {
                    source.pass();
                    true
                });
            }
            found.push((key, members));
            past += 1;
            continue;
        }
        match merge.advance().unwrap() {
            Advance::NeedBlock(_) => {}
            Advance::End => return (found, past),
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
        let (found, past) = partitions_of(sources, seed, own_steps);
        prop_assert_eq!(found, naive.into_iter().collect::<Vec<_>>());
        prop_assert!(!alone || past > 0);
    }
}
