//! The list of range tombstones of a partition beside a simple one, in whatever order they come.

use proptest::prelude::*;

use super::*;
use crate::clustering::{BoundRef, ClusteringComparator};
use crate::mutation::RangeTombstoneRef;
use crate::tombstones::RangeTombstoneList;

/// By place on a line, what is deleted there: a row is at 3n + 1, between its bounds at 3n and 3n + 2.
#[derive(Default)]
struct Simple(BTreeMap<i32, i64>);

/// Start, true if after the row there; end, likewise; and the time of the deletion.
type Added = (i32, bool, i32, bool, i64);

impl Simple {
    fn add(&mut self, (from, after_from, to, after_to, timestamp): Added) {
        let place = |n: i32, after: bool| 3 * n + 2 * i32::from(after);
        for at in place(from, after_from)..place(to, after_to) {
            let deleted = self.0.entry(at).or_insert(timestamp);
            *deleted = timestamp.max(*deleted);
        }
    }

    /// Stretches of one deletion.
    fn ranges(&self) -> Vec<(i32, i32, i64)> {
        let mut ranges: Vec<(i32, i32, i64)> = Vec::new();
        for (at, timestamp) in &self.0 {
            match ranges.last_mut() {
                Some((_, end, deleted)) if end == at && deleted == timestamp => *end += 1,
                _ => ranges.push((*at, at + 1, *timestamp)),
            }
        }
        ranges
    }
}

fn add(list: &mut RangeTombstoneList, cmp: &ClusteringComparator, of: Added) -> isize {
    let (from, after_from, to, after_to, timestamp) = of;
    let (from, to) = (ck(from), ck(to));
    let (start, end) =
        (BoundRef { prefix: &from, after: after_from }, BoundRef { prefix: &to, after: after_to });
    list.add(cmp, RangeTombstoneRef { start, end, deletion: deletion(timestamp) })
}

/// The place on the line.
fn place_of(bound: BoundRef<'_>) -> i32 {
    let value = crate::clustering::components(bound.prefix).next().unwrap().unwrap();
    3 * i32::from_be_bytes(value.try_into().unwrap()) + 2 * i32::from(bound.after)
}

fn ranges_of(list: &RangeTombstoneList) -> Vec<(i32, i32, i64)> {
    let range = |r: &crate::RangeTombstone| {
        (place_of(r.start.as_bound()), place_of(r.end.as_bound()), r.deletion.timestamp.0)
    };
    list.iter().map(range).collect()
}

/// Compares a list with the simple one after the same deletions, in every way.
fn check(added: &[Added]) {
    let shape = shape();
    let cmp = shape.clustering();
    let (mut list, mut simple) = (RangeTombstoneList::new(), Simple::default());
    let mut bytes = 0;
    for of in added {
        bytes += add(&mut list, cmp, *of);
        simple.add(*of);
    }
    let expected = simple.ranges();
    assert_eq!(ranges_of(&list), expected);
    assert_eq!(list.is_empty(), expected.is_empty());
    assert_eq!(usize::try_from(bytes).unwrap(), list.heap_bytes());
    // Forwards and backwards from place to place.
    let (mut places, mut at) = (Vec::new(), 0);
    while list.get(at).is_some() {
        places.push(at);
        at = list.next(at);
    }
    assert!(list.iter().eq(places.iter().filter_map(|place| list.get(*place))));
    assert_eq!(places.len(), expected.len());
    let mut back: Vec<usize> =
        std::iter::successors(list.previous(at), |place| list.previous(*place)).collect();
    back.reverse();
    assert_eq!(back, places);
    assert!(places.is_sorted());
    let last = expected.last().map_or(0, |(_, end, _)| *end / 3);
    for n in -1..=last + 1 {
        let clustering = ck(n);
        for after in [false, true] {
            let bound = BoundRef { prefix: &clustering, after };
            let on_line = place_of(bound);
            let ending = expected.iter().position(|(_, end, _)| *end > on_line);
            let found = list.first_ending_after(cmp, bound);
            assert_eq!(places.iter().position(|place| *place == found), ending, "{n}");
            let starting = expected.iter().rposition(|(start, ..)| *start < on_line);
            let found = list.last_starting_before(cmp, bound);
            assert_eq!(found, starting.map(|i| places[i]), "{n}");
        }
        let deleted = simple.0.get(&(3 * n + 1)).map_or(DeletionTime::LIVE, |t| deletion(*t));
        assert_eq!(list.covering(cmp, &clustering), deleted, "{n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Short ranges, so that there are many, among them some long ones, which take many away.
    #[test]
    fn a_list_is_what_a_simple_one_is_in_any_order(
        short in proptest::collection::vec((0..1_500_i32, any::<bool>(), 0..3_i32, any::<bool>(), 1..9_i64), 0..1_200),
        long in proptest::collection::vec((0..1_500_i32, any::<bool>(), 0..900_i32, any::<bool>(), 1..9_i64), 0..4),
        at in any::<prop::sample::Index>(),
    ) {
        let mut all = short;
        let at = at.index(all.len() + 1);
        all.splice(at..at, long);
        let added = |(from, after, length, after_end, time)| (from, after, from + length, after_end, time);
        check(&all.into_iter().map(added).collect::<Vec<Added>>());
    }
}

#[test]
fn ranges_in_descending_order_and_from_both_ends_are_what_they_are_in_ascending_order() {
    let one = |n: i32| (n * 2, false, n * 2, true, i64::from(n % 7) + 1);
    let up: Vec<Added> = (0..600).map(one).collect();
    check(&up);
    check(&up.iter().rev().copied().collect::<Vec<_>>());
    let inwards: Vec<Added> = (0..300).flat_map(|n| [one(n), one(599 - n)]).collect();
    check(&inwards);
    // One that hides all, and one that all others hide.
    check(&up.iter().copied().chain([(0, false, 1_200, true, 100)]).collect::<Vec<_>>());
    check(&up.iter().copied().chain([(0, false, 1_200, true, 0)]).collect::<Vec<_>>());
    let lists = [up.clone(), inwards].map(|added| {
        let mut list = RangeTombstoneList::new();
        for of in added {
            add(&mut list, shape().clustering(), of);
        }
        list
    });
    assert_eq!(lists[0], lists[1], "however they lie");
}
