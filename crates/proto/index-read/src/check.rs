//! Checks of an answer of another node: it lies in the requested range, is in order, and makes progress.

use std::cmp::Ordering;

use data::ClusteringComparator;
use data::clustering;
use data::command::{Partitions, RingBound};
use index_format::{
    Frontier, IndexSearch, MatchedPartition, MatchedRows, Matches, Neighbour, Neighbours,
    VectorSearch,
};
use stdx::Token;

use crate::nearest::compare_neighbours;
use crate::position::compare;

/// Checks an answer to a search.
///
/// # Errors
/// What is wrong with it.
pub fn check(
    matches: &Matches,
    search: &IndexSearch,
    order: &ClusteringComparator,
) -> Result<(), &'static str> {
    if matches.estimates.len() != search.predicates.len() {
        return Err("it has not one estimate for each predicate");
    }
    if matches.keys() > usize::try_from(search.limits.keys).unwrap_or(usize::MAX) {
        return Err("it has more keys than were asked for");
    }
    let mut before: Option<(Token, &[u8])> = None;
    for partition in &matches.partitions {
        let place = (partition.token, partition.key.as_slice());
        if before.is_some_and(|before| before >= place) {
            return Err("its partitions do not ascend");
        }
        before = Some(place);
        if !is_within(&search.command.partitions, partition.token, &partition.key) {
            return Err("it holds partitions that were not asked for");
        }
        check_rows(partition, search, order)?;
    }
    check_frontier(matches, search, order)
}

/// Checks an answer to a search by a vector.
///
/// # Errors
/// What is wrong with it.
pub fn check_neighbours(
    answer: &Neighbours,
    search: &VectorSearch,
    order: &ClusteringComparator,
) -> Result<(), &'static str> {
    if answer.rows.len() > usize::try_from(search.limit).unwrap_or(usize::MAX) {
        return Err("it has more rows than were asked for");
    }
    if answer.rows.is_empty() && !answer.is_exhausted {
        return Err("it has neither rows nor the end of them");
    }
    let mut before: Option<&Neighbour> = None;
    for row in &answer.rows {
        if row.score.is_nan() {
            return Err("it has a score that is no number");
        }
        let is_of_table = match &row.clustering {
            Some(row) => {
                !order.is_empty() && clustering::check(row, order.len()) == Some(order.len())
            }
            None => order.is_empty(),
        };
        if !is_of_table {
            return Err("it holds a clustering of another table");
        }
        if !is_within(&search.command.partitions, row.token, &row.key) {
            return Err("it holds partitions that were not asked for");
        }
        if before.is_some_and(|before| compare_neighbours(before, row, order) != Ordering::Less) {
            return Err("its rows are not best first");
        }
        before = Some(row);
    }
    Ok(())
}

/// The clustering that a search resumes after, if it resumes in this partition.
fn resumed<'s>(search: &'s IndexSearch, key: &[u8]) -> Option<&'s [u8]> {
    let clustering = search.command.resume.as_ref()?.clustering.as_deref();
    let resumes_in = match &search.command.partitions {
        Partitions::Key(asked) => Some(asked),
        Partitions::Range(range) => match &range.start {
            RingBound::Key { key, after: false, .. } => Some(key),
            _ => None,
        },
    };
    clustering.filter(|_| resumes_in.is_some_and(|asked| asked.as_slice() == key))
}

fn check_rows(
    partition: &MatchedPartition,
    search: &IndexSearch,
    order: &ClusteringComparator,
) -> Result<(), &'static str> {
    let MatchedRows::Rows(rows) = &partition.rows else { return Ok(()) };
    let mut before = resumed(search, &partition.key);
    for row in rows {
        if clustering::check(row, order.len()) != Some(order.len()) {
            return Err("it holds a clustering of another table");
        }
        if before.is_some_and(|before| order.compare(before, row) != Ordering::Less) {
            return Err("its rows do not ascend");
        }
        before = Some(row);
    }
    match rows.is_empty() {
        true => Err("it holds a partition without rows"),
        false => Ok(()),
    }
}

/// INV-search-1: it lies after the start, and after all keys.
fn check_frontier(
    matches: &Matches,
    search: &IndexSearch,
    order: &ClusteringComparator,
) -> Result<(), &'static str> {
    let frontier = &matches.frontier;
    let advances = match (frontier, &search.command.partitions) {
        (Frontier::Done, _) => return Ok(()),
        (Frontier::Before { .. }, Partitions::Key(_)) => false,
        (Frontier::Before { token }, Partitions::Range(range)) => {
            let start = match &range.start {
                RingBound::Token { token, .. } | RingBound::Key { token, .. } => *token,
            };
            *token > start
        }
        (Frontier::After { token, key }, partitions) => is_within(partitions, *token, key),
        (Frontier::Inside { token, key, clustering }, partitions) => {
            clustering::check(clustering, order.len()) == Some(order.len())
                && is_within(partitions, *token, key)
                && resumed(search, key)
                    .is_none_or(|before| order.compare(before, clustering) == Ordering::Less)
        }
    };
    if !advances {
        return Err("its frontier does not lie in what was asked for, after the start");
    }
    let last = matches.partitions.last().map(|last| match &last.rows {
        MatchedRows::Rows(rows) => match rows.last() {
            Some(clustering) => Frontier::Inside {
                token: last.token,
                key: last.key.clone(),
                clustering: clustering.clone(),
            },
            None => Frontier::After { token: last.token, key: last.key.clone() },
        },
        MatchedRows::Whole => Frontier::After { token: last.token, key: last.key.clone() },
    });
    match last.is_some_and(|last| compare(&last, frontier, order) == Ordering::Greater) {
        true => Err("it holds matches after its frontier"),
        false => Ok(()),
    }
}

fn is_within(asked: &Partitions, token: Token, key: &[u8]) -> bool {
    match asked {
        Partitions::Key(asked) => asked == key,
        Partitions::Range(range) => {
            is_after(&range.start, token, key) && !is_after(&range.end, token, key)
        }
    }
}

/// Returns true if a partition lies after a bound.
fn is_after(bound: &RingBound, token: Token, key: &[u8]) -> bool {
    match bound {
        RingBound::Token { token: at, after } => {
            if *after {
                token > *at
            } else {
                token >= *at
            }
        }
        RingBound::Key { token: at, key: at_key, after } => {
            let order = (token, key).cmp(&(*at, at_key.as_slice()));
            if *after { order.is_gt() } else { order.is_ge() }
        }
    }
}
