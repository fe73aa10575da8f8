//! The union of the matches of several shards or replicas.
//!
//! INV-index-read-2: the union holds each match of every answer up to its frontier once, and its frontier is not after
//! that of any answer, but for a partition all of whose rows are given.

use std::cmp::Ordering;

use data::ClusteringComparator;
use index_format::{Frontier, MatchedPartition, MatchedRows, Matches, SearchLimits};

use crate::position::compare;

/// Unites answers to one search, up to the smallest of their frontiers and to the limit of keys. Estimates add up.
pub fn unite(
    answers: Vec<Matches>,
    order: &ClusteringComparator,
    limits: &SearchLimits,
) -> Matches {
    let mut estimates: Vec<u64> = Vec::new();
    let (mut rows, mut frontier) = (0_u64, Frontier::Done);
    let mut lists = Vec::with_capacity(answers.len());
    for answer in answers {
        estimates.resize(estimates.len().max(answer.estimates.len()), 0);
        for (sum, estimate) in estimates.iter_mut().zip(&answer.estimates) {
            *sum = sum.saturating_add(*estimate);
        }
        rows = rows.saturating_add(answer.rows);
        if compare(&answer.frontier, &frontier, order) == Ordering::Less {
            frontier = answer.frontier;
        }
        lists.push(answer.partitions);
    }
    let mut partitions = merge(lists, order);
    cut(&mut partitions, &mut frontier, order);
    bound(&mut partitions, &mut frontier, limits);
    Matches { partitions, frontier, estimates, rows }
}

fn place(partition: &MatchedPartition) -> (stdx::Token, &[u8]) {
    (partition.token, &partition.key)
}

/// Merges ascending lists.
fn merge(
    mut lists: Vec<Vec<MatchedPartition>>,
    order: &ClusteringComparator,
) -> Vec<MatchedPartition> {
    if lists.len() < 2 {
        return lists.pop().unwrap_or_default();
    }
    let mut all: Vec<MatchedPartition> = lists.into_iter().flatten().collect();
    // Stable and fast on runs that are sorted already.
    all.sort_by(|a, b| place(a).cmp(&place(b)));
    let mut merged: Vec<MatchedPartition> = Vec::with_capacity(all.len());
    for next in all {
        match merged.last_mut() {
            Some(last) if place(last) == place(&next) => add_rows(&mut last.rows, next.rows, order),
            _ => merged.push(next),
        }
    }
    merged
}

fn add_rows(rows: &mut MatchedRows, more: MatchedRows, order: &ClusteringComparator) {
    match (&mut *rows, more) {
        (MatchedRows::Whole, _) => {}
        (MatchedRows::Rows(_), MatchedRows::Whole) => *rows = MatchedRows::Whole,
        (MatchedRows::Rows(rows), MatchedRows::Rows(more)) => {
            rows.extend(more);
            rows.sort_by(|a, b| order.compare(a, b));
            rows.dedup_by(|a, b| order.compare(a, b) == Ordering::Equal);
        }
    }
}

/// Removes matches after the frontier. A partition that is given whole is complete.
fn cut(
    partitions: &mut Vec<MatchedPartition>,
    frontier: &mut Frontier,
    order: &ClusteringComparator,
) {
    match frontier {
        Frontier::Done => return,
        Frontier::Before { token } => partitions.retain(|p| p.token < *token),
        Frontier::After { token, key } => {
            partitions.retain(|p| place(p) <= (*token, key.as_slice()));
        }
        Frontier::Inside { token, key, .. } => {
            partitions.retain(|p| place(p) <= (*token, key.as_slice()));
        }
    }
    let Frontier::Inside { token, key, clustering } = &*frontier else { return };
    let last = partitions.last_mut().filter(|p| place(p) == (*token, key.as_slice()));
    let is_empty = match last.map(|p| &mut p.rows) {
        None => false,
        Some(MatchedRows::Whole) => {
            *frontier = Frontier::After { token: *token, key: key.clone() };
            false
        }
        Some(MatchedRows::Rows(rows)) => {
            rows.retain(|row| order.compare(row, clustering) != Ordering::Greater);
            rows.is_empty()
        }
    };
    if is_empty {
        partitions.pop();
    }
}

/// Shortens the answer to the limit of keys.
fn bound(partitions: &mut Vec<MatchedPartition>, frontier: &mut Frontier, limits: &SearchLimits) {
    let mut left = usize::try_from(limits.keys).unwrap_or(usize::MAX).max(1);
    for at in 0..partitions.len() {
        let Some(partition) = partitions.get_mut(at) else { return };
        if partition.keys() < left {
            left = left.saturating_sub(partition.keys());
            continue;
        }
        let (token, key) = (partition.token, partition.key.clone());
        let is_cut = match &mut partition.rows {
            MatchedRows::Whole => {
                let is_last = at + 1 == partitions.len();
                if !is_last {
                    *frontier = Frontier::After { token, key };
                }
                !is_last
            }
            MatchedRows::Rows(rows) => {
                let is_last = rows.len() == left && at + 1 == partitions.len();
                if is_last {
                    return;
                }
                let partition = partitions.get_mut(at);
                let Some(MatchedRows::Rows(rows)) = partition.map(|p| &mut p.rows) else { return };
                rows.truncate(left);
                if let Some(clustering) = rows.last().cloned() {
                    *frontier = Frontier::Inside { token, key, clustering };
                }
                true
            }
        };
        if is_cut {
            partitions.truncate(at + 1);
        }
        return;
    }
}
