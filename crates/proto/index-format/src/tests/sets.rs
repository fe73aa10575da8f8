//! Intersections over files and memtables against sets of keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use stdx::Token;
use testkit::Random;

use super::component::{InMemory, read};
use super::rows;
use crate::*;

/// One row: (token, partition, clustering); clustering 0 is the static row.
type Key = (i64, u8, u8);

fn row_key(key: &Key) -> Arc<RowKey> {
    Arc::new(RowKey {
        token: Token(key.0),
        partition: [key.1].into(),
        clustering: if key.2 == 0 { [].into() } else { [key.2].into() },
        values: [].into(),
    })
}

struct File {
    keys: Vec<Key>,
    rows: Bytes,
    /// Index of each predicate. None: it has lost its component.
    indexes: Vec<Option<InMemory>>,
}

impl File {
    /// Keys that a source without index gives.
    fn all(&self, scope: Scope) -> Vec<Key> {
        let is_shown = |key: &&Key| scope == Scope::Partition || key.2 > 0;
        self.keys.iter().filter(is_shown).copied().collect()
    }
}

struct Table {
    files: Vec<File>,
    /// Rows of each memtable under each predicate.
    memtables: Vec<Vec<MemtableIndex<Arc<RowKey>>>>,
    scopes: Vec<Scope>,
    /// Keys of each predicate, over all sources.
    keys: Vec<BTreeSet<Key>>,
}

fn random_table(seed: u64) -> Table {
    let mut random = Random::new(seed);
    let tokens = 1 + random.below(40);
    let clusterings = [1, 2, 20][random.below(3)];
    let predicates = 1 + random.below(3);
    let scope = |random: &mut Random| [Scope::Row, Scope::Row, Scope::Partition][random.below(3)];
    let scopes: Vec<Scope> = (0..predicates).map(|_| scope(&mut random)).collect();
    let mut keys = vec![BTreeSet::new(); predicates];
    let mut files = Vec::new();
    // Two partitions may have one token.
    let key = |random: &mut Random| {
        let token = random.below(tokens) as i64 * 1_000 - 5_000;
        (token, random.below(8) as u8 / 7, random.below(clusterings + 1) as u8)
    };
    for _ in 0..random.below(4) {
        let of_file: BTreeSet<Key> = (0..random.below(300)).map(|_| key(&mut random)).collect();
        let of_file: Vec<Key> = of_file.into_iter().collect();
        let mut places = Vec::new();
        let mut last = None;
        for (at, key) in of_file.iter().enumerate() {
            let partition = match last {
                Some((partition, last)) if last == (key.0, key.1) => partition,
                Some((partition, _)) => partition + 1,
                None => 0,
            };
            let is_same =
                last.replace((partition, (key.0, key.1))).is_some_and(|(p, _)| p == partition);
            let offset = at as u64 * 10;
            let partition_offset = if is_same {
                places.last().map_or(0, |p: &RowPlace| p.partition_offset)
            } else {
                offset
            };
            let token = Token(key.0);
            places.push(RowPlace { token, partition, partition_offset, row_offset: offset + 5 });
        }
        let rows = rows::build(&places, &[]);
        let mut file = File { keys: of_file, rows, indexes: Vec::new() };
        for at in 0..predicates {
            let of_file = &file.keys;
            if random.below(6) == 0 {
                keys[at].extend(file.all(scopes[at]));
                file.indexes.push(None);
                continue;
            }
            let odds = [2, 5, 40][random.below(3)];
            let ids: Vec<u32> = (0..of_file.len() as u32)
                .filter(|id| {
                    let is_static = of_file[*id as usize].2 == 0;
                    // An index of a part of the partition key has all rows, of a static column static ones.
                    random.below(odds) == 0 && (scopes[at] == Scope::Partition || !is_static)
                })
                .collect();
            keys[at].extend(ids.iter().map(|id| of_file[*id as usize]));
            let pairs = ids.iter().map(|id| (&b"x"[..], *id));
            file.indexes.push(Some(InMemory::build(of_file.len() as u32, pairs)));
        }
        files.push(file);
    }
    let mut memtables = Vec::new();
    for _ in 0..random.below(3) {
        let mut of_memtable = Vec::new();
        for at in 0..predicates {
            let mut index = MemtableIndex::default();
            for _ in 0..random.below(60) {
                let mut key = key(&mut random);
                key.2 = if scopes[at] == Scope::Partition { 0 } else { key.2.max(1) };
                index.insert(b"x", row_key(&key));
                keys[at].insert(key);
            }
            of_memtable.push(index);
        }
        memtables.push(of_memtable);
    }
    Table { files, memtables, scopes, keys }
}

impl Table {
    fn expected(&self) -> Vec<Key> {
        let has_rows = self.scopes.contains(&Scope::Row);
        let mut all: BTreeSet<Key> = BTreeSet::new();
        self.keys.iter().for_each(|keys| all.extend(keys));
        let partitions: Vec<BTreeSet<(i64, u8)>> =
            self.keys.iter().map(|keys| keys.iter().map(|key| (key.0, key.1)).collect()).collect();
        let is_hit = |key: &Key| {
            self.scopes.iter().enumerate().all(|(at, scope)| match scope {
                Scope::Row => self.keys[at].contains(key),
                Scope::Partition => partitions[at].contains(&(key.0, key.1)),
            })
        };
        let hits = all.into_iter().filter(|key| is_hit(key));
        if has_rows {
            return hits.collect();
        }
        let partitions: BTreeMap<(i64, u8), Key> = hits.map(|key| ((key.0, key.1), key)).collect();
        partitions.into_values().map(|key| (key.0, key.1, 0)).collect()
    }

    /// The partition, when no predicate is about rows: any of its rows stands for it.
    fn whole(&self, key: Key) -> Key {
        if self.scopes.contains(&Scope::Row) { key } else { (key.0, key.1, 0) }
    }

    fn intersection(&self) -> Intersection {
        let predicates = self.scopes.iter().enumerate().map(|(at, scope)| {
            let mut sources = Vec::new();
            for (number, file) in (0..).zip(&self.files) {
                let Some(index) = &file.indexes[at] else {
                    sources.push(Source::unindexed(number, file.keys.len() as u64));
                    continue;
                };
                let index = IndexCursor::new(&index.summary, vec![TermRange::equal(b"x")]);
                let rows = RowsReader::new(rows::open(&file.rows).unwrap().into());
                sources.push(Source::file(number, index, rows));
            }
            for (number, memtable) in (100..).zip(&self.memtables) {
                sources.push(Source::memtable(number, memtable[at].rows(vec![TermRange::all()])));
            }
            Predicate::new(*scope, self.keys[at].len() as u64, sources)
        });
        Intersection::new(predicates.collect())
    }

    /// The keys of the intersection from a token on, and how many keys were read for comparisons.
    fn run(&self, from: Option<i64>) -> (Vec<Key>, usize) {
        let mut order: Vec<usize> = (0..self.scopes.len()).collect();
        order.sort_by_key(|at| self.keys[*at].len());
        let mut set = self.intersection();
        from.into_iter().for_each(|token| set.seek(Token(token)));
        let (mut found, mut keys) = (Vec::new(), 0);
        // Keys that sources without index have given.
        let mut given: BTreeMap<(usize, u32), usize> = BTreeMap::new();
        loop {
            match set.advance().unwrap() {
                SetStep::End => return (found, keys),
                SetStep::Pause => {}
                SetStep::Row(row) => found.push(self.whole(match (&row.key, row.place) {
                    (_, Some(_)) => self.files[row.source as usize].keys[row.row as usize],
                    (Some(key), None) => (
                        key.token.0,
                        key.partition[0],
                        key.clustering.first().copied().unwrap_or(0),
                    ),
                    (None, None) => panic!("a row without place and key"),
                })),
                SetStep::Need(need) => {
                    let file = &self.files[need.source as usize];
                    let fed = match need.wanted {
                        Wanted::IndexBlock(at) => {
                            let index = file.indexes[order[need.predicate]].as_ref().unwrap();
                            Fed::IndexBlock(read(&index.bytes, at).unwrap())
                        }
                        Wanted::RowsBlock(at) => Fed::RowsBlock(read(&file.rows, at).unwrap()),
                        Wanted::NextKey { floor } => {
                            let all = file.all(self.scopes[order[need.predicate]]);
                            let at = given.entry((need.predicate, need.source)).or_default();
                            // A driver may leave the floor out.
                            let floor = floor.filter(|floor| floor.0 / 1_000 % 2 == 0);
                            while all.get(*at).is_some_and(|key| floor.is_some_and(|f| key.0 < f.0))
                            {
                                *at += 1;
                            }
                            *at += 1;
                            Fed::NextKey(all.get(*at - 1).map(row_key))
                        }
                        Wanted::Key(place) => {
                            keys += 1;
                            let row = (place.row_offset - 5) / 10;
                            Fed::Key(row_key(&file.keys[row as usize]))
                        }
                    };
                    set.feed(need, fed);
                }
            }
        }
    }
}

#[test]
fn intersections_are_those_of_sets_of_keys() {
    let (mut hits, mut keys_read) = (0, 0);
    for seed in 0..1_500 {
        let table = random_table(seed);
        let expected = table.expected();
        let (found, keys) = table.run(None);
        assert_eq!(found, expected, "seed {seed}");
        hits += found.len();
        keys_read += keys;
        let mut random = Random::new(seed);
        let from = random.below(40) as i64 * 1_000 - 5_001 + random.below(3) as i64;
        let rest: Vec<Key> = expected.iter().copied().filter(|key| key.0 >= from).collect();
        assert_eq!(table.run(Some(from)).0, rest, "seed {seed} from {from}");
    }
    assert!(hits > 5_000 && keys_read > 5_000, "{hits} rows, {keys_read} keys");
}

#[test]
fn one_file_needs_no_keys() {
    let mut tried = 0;
    for seed in 0..1_500 {
        let table = random_table(seed);
        let is_whole = |file: &File| file.indexes.iter().all(Option::is_some);
        if table.files.len() == 1 && table.memtables.is_empty() && is_whole(&table.files[0]) {
            assert_eq!(table.run(None).1, 0, "seed {seed}");
            tried += 1;
        }
    }
    assert!(tried > 50);
}
