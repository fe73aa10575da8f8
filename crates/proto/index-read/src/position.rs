//! Positions of searches in the order of a table, and where the next search begins.

use std::cmp::Ordering;

use data::ClusteringComparator;
use data::command::{Partitions, ReadCommand, ResumePosition, RingBound};
use index_format::Frontier;
use stdx::Token;

/// Outcome of moving the start of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continued {
    /// The command begins after the frontier.
    Yes,
    /// Everything is searched.
    Over,
}

/// Moves the start of a command to after the frontier of its search.
pub fn advance(command: &mut ReadCommand, frontier: &Frontier) -> Continued {
    let inside = |clustering: &[u8]| {
        Some(ResumePosition { clustering: Some(clustering.to_vec()), rows_in_partition: 0 })
    };
    match (&mut command.partitions, frontier) {
        (_, Frontier::Done)
        | (Partitions::Key(_), Frontier::After { .. } | Frontier::Before { .. }) => {
            return Continued::Over;
        }
        (Partitions::Key(_), Frontier::Inside { clustering, .. }) => {
            command.resume = inside(clustering);
        }
        (Partitions::Range(range), Frontier::Before { token }) => {
            range.start = RingBound::Token { token: *token, after: false };
            command.resume = None;
        }
        (Partitions::Range(range), Frontier::After { token, key }) => {
            range.start = RingBound::Key { token: *token, key: key.clone(), after: true };
            command.resume = None;
        }
        (Partitions::Range(range), Frontier::Inside { token, key, clustering }) => {
            range.start = RingBound::Key { token: *token, key: key.clone(), after: false };
            command.resume = inside(clustering);
        }
    }
    Continued::Yes
}

/// Order of two frontiers.
pub(crate) fn compare(a: &Frontier, b: &Frontier, order: &ClusteringComparator) -> Ordering {
    let (Some(token_a), Some(token_b)) = (token_of(a), token_of(b)) else {
        // The end comes last.
        return token_of(a).is_none().cmp(&token_of(b).is_none());
    };
    token_a.cmp(&token_b).then_with(|| match (key_of(a), key_of(b)) {
        (Some(key_a), Some(key_b)) => key_a.cmp(key_b).then_with(|| inside(a, b, order)),
        // Before all keys of the token.
        (key_a, key_b) => key_a.is_some().cmp(&key_b.is_some()),
    })
}

fn inside(a: &Frontier, b: &Frontier, order: &ClusteringComparator) -> Ordering {
    match (clustering_of(a), clustering_of(b)) {
        (Some(a), Some(b)) => order.compare(a, b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

/// `None`: the end.
fn token_of(frontier: &Frontier) -> Option<Token> {
    match frontier {
        Frontier::Done => None,
        Frontier::Before { token }
        | Frontier::After { token, .. }
        | Frontier::Inside { token, .. } => Some(*token),
    }
}

fn key_of(frontier: &Frontier) -> Option<&[u8]> {
    match frontier {
        Frontier::Done | Frontier::Before { .. } => None,
        Frontier::After { key, .. } | Frontier::Inside { key, .. } => Some(key),
    }
}

fn clustering_of(frontier: &Frontier) -> Option<&[u8]> {
    match frontier {
        Frontier::Inside { clustering, .. } => Some(clustering),
        _ => None,
    }
}
