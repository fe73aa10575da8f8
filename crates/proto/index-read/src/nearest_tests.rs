//! Reads of the nearest rows over random replicas that differ, against brute force over the merged table.

use std::collections::BTreeMap;

use data::ClusteringComparator;
use index_format::search::VECTOR_ROWS_MAX;
use index_format::{MatchedRows, Neighbour, Neighbours};
use stdx::Token;
use testkit::Random;

use crate::tests::{key, order, row, token};
use crate::{NearestRounds, Round, compare_neighbours};

/// State of a row as of a time; `None`: deleted then.
type Version = (u64, Option<(i32, bool)>);

/// Rows of one replica or of all: by key and clustering, the newest version.
type Rows = BTreeMap<(u8, i32), Version>;

const REPLICAS: usize = 3;
const PARTS: usize = 3;

/// A table on three replicas: each write is on two of them or on all.
struct World {
    truth: Rows,
    replicas: Vec<Rows>,
}

fn write(rows: &mut Rows, at: (u8, i32), version: Version) {
    let newest = rows.entry(at).or_insert(version);
    if newest.0 < version.0 {
        *newest = version;
    }
}

impl World {
    fn new(random: &mut Random) -> World {
        let (mut truth, mut replicas) = (Rows::new(), vec![Rows::new(); REPLICAS]);
        let (keys, writes) = (1 + random.below(12), 1 + random.below(150));
        for time in 1..=writes {
            let at = (random.below(keys) as u8, random.below(4) as i32);
            // Few values, so that scores tie.
            let value = (random.below(12) as i32, random.below(3) > 0);
            let version = (time as u64, (random.below(6) > 0).then_some(value));
            let lacking = random.below(REPLICAS + 1);
            write(&mut truth, at, version);
            for (number, replica) in replicas.iter_mut().enumerate() {
                if number != lacking {
                    write(replica, at, version);
                }
            }
        }
        World { truth, replicas }
    }
}

fn neighbour(at: (u8, i32), score: i32) -> Neighbour {
    // Halves: exact.
    let score = score as f32 / 2.0;
    Neighbour { score, token: token(at.0), key: key(at.0), clustering: Some(row(at.1)) }
}

/// The part of the table that a key lies in; parts are ranges of tokens.
fn part_of(key: u8) -> usize {
    usize::from(key / 4) % PARTS
}

/// The nearest rows, by a sort of all.
fn nearest(
    rows: &Rows,
    keeps: impl Fn(u8, bool) -> bool,
    order: &ClusteringComparator,
) -> Vec<Neighbour> {
    let live = rows.iter().filter_map(|(at, (_, state))| {
        let (score, flag) = (*state)?;
        keeps(at.0, flag).then(|| neighbour(*at, score))
    });
    let mut all: Vec<Neighbour> = live.collect();
    all.sort_by(|a, b| compare_neighbours(a, b, order));
    all
}

/// Damage to the answers of searches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    None,
    /// The best row is missing.
    LosesFirst,
    /// It says that it has no further row.
    ClaimsEnd,
    /// Only one replica is asked.
    AsksOne,
}

/// A read through the rounds; also the number of searches.
fn read(
    world: &World,
    wanted: usize,
    filters: bool,
    damage: Damage,
    random: &mut Random,
    order: &ClusteringComparator,
) -> (Vec<Neighbour>, usize) {
    let mut rounds = NearestRounds::new(wanted, PARTS, wanted as u32, order);
    let (mut searches, mut read) = (0, std::collections::BTreeSet::new());
    loop {
        let asked = match rounds.next_round() {
            Round::Done => return (rounds.best().to_vec(), searches),
            Round::Scan => panic!("so small a table is never scanned"),
            Round::Search(asked) => asked,
        };
        for (part, limit) in asked {
            searches += 1;
            let left_out = random.below(REPLICAS);
            let mut answers = Vec::new();
            for (number, replica) in world.replicas.iter().enumerate() {
                if number == left_out || damage == Damage::AsksOne && !answers.is_empty() {
                    continue;
                }
                let mut rows = nearest(replica, |key, _| part_of(key) == part, order);
                let mut is_exhausted = rows.len() <= limit as usize;
                rows.truncate(limit as usize);
                match damage {
                    Damage::LosesFirst if rows.len() > 1 => drop(rows.remove(0)),
                    Damage::ClaimsEnd => is_exhausted = true,
                    _ => {}
                }
                answers.push(Neighbours { rows, is_exhausted });
            }
            rounds.answered(part, answers);
        }
        for partition in rounds.candidates() {
            let MatchedRows::Rows(clusterings) = &partition.rows else { panic!("it has rows") };
            for clustering in clusterings {
                assert!(read.insert((partition.key.clone(), clustering.clone())), "read once");
                let found = world
                    .truth
                    .iter()
                    .find(|((k, c), _)| key(*k) == partition.key && row(*c) == *clustering);
                if let Some((at, (_, Some((score, flag))))) = found
                    && (*flag || !filters)
                {
                    rounds.found(neighbour(*at, *score));
                }
            }
        }
    }
}

/// The number of seeds for which the read is not what brute force gives.
fn differences(damage: Damage) -> usize {
    let order = order(1);
    let mut different = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed + 1);
        let world = World::new(&mut random);
        let (wanted, filters) = (1 + random.below(12), random.below(2) == 0);
        let mut expected = nearest(&world.truth, |_, flag| flag || !filters, &order);
        expected.truncate(wanted);
        let (found, _) = read(&world, wanted, filters, damage, &mut random, &order);
        different += usize::from(found != expected);
    }
    different
}

/// INV-index-read-5.
#[test]
fn the_rounds_find_what_brute_force_over_the_merged_table_finds() {
    assert_eq!(differences(Damage::None), 0);
}

#[test]
fn answers_that_lack_rows_are_noticed_by_that_test() {
    for damage in [Damage::LosesFirst, Damage::ClaimsEnd, Damage::AsksOne] {
        assert!(differences(damage) > 20, "{damage:?}: {}", differences(damage));
    }
}

#[test]
fn a_search_is_repeated_only_while_it_may_have_better_rows() {
    let order = order(1);
    let mut rounds = NearestRounds::new(2, 2, 2, &order);
    assert_eq!(rounds.next_round(), Round::Search(vec![(0, 2), (1, 2)]));
    let answer = |rows: &[(u8, i32)], is_exhausted| {
        let rows = rows.iter().map(|(key, score)| neighbour((*key, 0), *score)).collect();
        Neighbours { rows, is_exhausted }
    };
    rounds.answered(0, vec![answer(&[(1, 9), (2, 8)], false), answer(&[(3, 7)], true)]);
    rounds.answered(1, vec![answer(&[(9, 5), (8, 4)], false)]);
    assert_eq!(rounds.candidates().len(), 5);
    assert_eq!(rounds.candidates(), Vec::new(), "each is given once");
    // The first row is gone; the third is as good as the end of the second part.
    assert_eq!(rounds.found(neighbour((2, 0), 8)), Some(0));
    assert_eq!(rounds.found(neighbour((3, 0), 7)), Some(1));
    assert_eq!(rounds.found(neighbour((9, 0), 5)), None);
    // Rows of part 0 that rank before the second best may be missing; those of part 1 rank after it.
    assert_eq!(rounds.next_round(), Round::Search(vec![(0, 4)]));
    rounds.answered(0, vec![answer(&[(1, 9), (2, 8), (3, 7)], true)]);
    assert_eq!(rounds.candidates(), Vec::new());
    assert_eq!(rounds.next_round(), Round::Done);
    assert_eq!(rounds.found(neighbour((2, 0), 8)), None, "a row counts once");
}

#[test]
fn searches_that_would_give_too_much_end_in_a_scan() {
    let order = order(1);
    let mut rounds = NearestRounds::new(1, 1, VECTOR_ROWS_MAX, &order);
    assert_eq!(rounds.next_round(), Round::Search(vec![(0, VECTOR_ROWS_MAX)]));
    rounds.answered(0, vec![Neighbours { rows: vec![neighbour((1, 0), 1)], is_exhausted: false }]);
    // No row was found: there may be one after the end.
    assert_eq!(rounds.next_round(), Round::Scan);
    // An answer without rows and without an end gives nothing to rely on.
    let mut rounds = NearestRounds::new(1, 1, 1, &order);
    rounds.answered(0, vec![Neighbours { rows: Vec::new(), is_exhausted: false }]);
    rounds.found(neighbour((1, 0), 1));
    assert_eq!(rounds.next_round(), Round::Search(vec![(0, 2)]));
}

#[test]
fn an_answer_of_another_node_is_checked() {
    use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
    use index_format::VectorSearch;
    use stdx::{DeletionSeconds, TableId, Uuid};

    let order = order(1);
    let table = TableId(Uuid::from_u128(1));
    let start = RingBound::Token { token: Token(0), after: true };
    let range = KeyRange { start, ..KeyRange::all() };
    let search = VectorSearch {
        command: ReadCommand::whole(table, Partitions::Range(range), DeletionSeconds(0)),
        index: Uuid::from_u128(2),
        vector: vec![1.0],
        limit: 2,
        predicates: Vec::new(),
    };
    let check = |rows: Vec<Neighbour>, is_exhausted| {
        crate::check_neighbours(&Neighbours { rows, is_exhausted }, &search, &order)
    };
    let (best, second) = (neighbour((2, 0), 5), neighbour((2, 1), 4));
    assert_eq!(check(vec![best.clone(), second.clone()], false), Ok(()));
    assert_eq!(check(Vec::new(), true), Ok(()));
    assert!(check(Vec::new(), false).is_err(), "no progress");
    assert!(check(vec![second.clone(), best.clone()], true).is_err(), "worst first");
    assert!(check(vec![best.clone(), best.clone()], true).is_err(), "twice");
    let third = neighbour((3, 0), 1);
    assert!(check(vec![best.clone(), second, third], false).is_err(), "too many");
    assert!(check(vec![neighbour((1, 0), 5)], true).is_err(), "another range");
    assert!(check(vec![Neighbour { score: f32::NAN, ..best.clone() }], true).is_err());
    assert!(check(vec![Neighbour { clustering: None, ..best.clone() }], true).is_err());
    let two = [row(1), row(2)].concat();
    assert!(check(vec![Neighbour { clustering: Some(two), ..best }], true).is_err());
}
