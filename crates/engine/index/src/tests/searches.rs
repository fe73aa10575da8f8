//! Searches against sets of keys.

use index_format::search::{Frontier, SearchLimits};
use testkit::Random;

use super::model::{Key, Model, continued, keys_of, position_of, random_range};

const WIDE: SearchLimits = SearchLimits { keys: u32::MAX, bytes: u64::MAX, scanned: u64::MAX };

fn random_limits(random: &mut Random) -> SearchLimits {
    let mut limits = WIDE;
    if random.below(2) == 0 {
        limits.keys = 1 + random.below(8) as u32;
    }
    if random.below(3) == 0 {
        limits.bytes = 1 + random.below(300) as u64;
    }
    if random.below(2) == 0 {
        limits.scanned = random.below(30) as u64;
    }
    limits
}

/// The predicates of a search: one that drives, or all.
fn used(model: &Model, random: &mut Random) -> Vec<usize> {
    match random.below(2) {
        0 => vec![random.below(model.scopes.len())],
        _ => (0..model.scopes.len()).collect(),
    }
}

/// INV-index-1 and INV-index-2, without limits.
#[test]
fn a_search_gives_the_candidates_of_its_range_each_once_in_order() {
    let mut given = 0;
    for seed in 0..1_000 {
        let mut random = Random::new(seed);
        let model = Model::random(&mut random);
        let (predicates, range) = (used(&model, &mut random), random_range(&mut random));
        let matches = model.search(&predicates, &range, WIDE);
        assert_eq!(matches.frontier, Frontier::Done, "seed {seed}");
        assert_eq!(keys_of(&matches), model.expected(&predicates, &range), "seed {seed}");
        given += matches.keys();
    }
    assert!(given > 10_000, "{given} keys");
}

/// INV-index-2: each answer ends after its start, and the answers add up to one without limits.
#[test]
fn searches_that_continue_at_their_frontiers_give_what_one_gives() {
    let (mut answers, mut kinds) = (0, [0; 4]);
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let model = Model::random(&mut random);
        let (predicates, range) = (used(&model, &mut random), random_range(&mut random));
        let (mut keys, mut last): (Vec<Key>, _) = (Vec::new(), None);
        let mut next = Some(range.clone());
        while let Some(range) = next {
            let limits = random_limits(&mut random);
            let matches = model.search(&predicates, &range, limits);
            assert!(matches.keys() as u64 <= u64::from(limits.keys), "seed {seed}");
            let position = position_of(&matches.frontier);
            assert!(position.is_none_or(|at| last.is_none_or(|last| last < at)), "seed {seed}");
            let kind = match &matches.frontier {
                Frontier::Done => 0,
                Frontier::Before { .. } => 1,
                Frontier::After { .. } => 2,
                Frontier::Inside { .. } => 3,
            };
            (kinds[kind], answers) = (kinds[kind] + 1, answers + 1);
            keys.extend(keys_of(&matches));
            (next, last) = (continued(&range, &matches.frontier), position.or(last));
        }
        assert_eq!(keys, model.expected(&predicates, &range), "seed {seed}");
    }
    assert!(answers > 5_000 && kinds.iter().all(|count| *count > 50), "{answers}, {kinds:?}");
}

#[test]
fn an_answer_shows_estimates_of_the_predicates_that_it_used() {
    let mut exact = 0;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let model = Model::random(&mut random);
        let predicates = used(&model, &mut random);
        let range = random_range(&mut random);
        let matches = model.search(&predicates, &range, WIDE);
        assert_eq!((matches.estimates.len(), matches.rows), (model.scopes.len(), 1_000));
        for at in 0..model.scopes.len() {
            let all = model.pairs(at);
            let expected = if predicates.contains(&at) { all } else { 0 };
            assert_eq!(matches.estimates[at], expected, "seed {seed}, predicate {at}");
            exact += usize::from(expected > 0);
        }
    }
    assert!(exact > 100);
}
