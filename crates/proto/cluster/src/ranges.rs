//! Ranges of tokens: their owners, and the movements when the ring changes.
//!
//! Owns: [`TokenRange`], the ranges of a node, effective ownership, [`movements`]. Never: the
//! streaming itself, liveness (an argument).
//!
//! INV-ranges-1: the movements from one table to another are exactly the (range, node) pairs that
//! the second has and the first has not.

use std::collections::BTreeMap;

use stdx::{HostId, Token};

use crate::placement::{Placements, Replicas};
use crate::replication::Replication;

/// The tokens above `start` up to and including `end`; wraps around when `start >= end`, and is the
/// full ring when both are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenRange {
    /// Exclusive.
    pub start: Token,
    /// Inclusive.
    pub end: Token,
}

impl TokenRange {
    /// Every token.
    pub const FULL: TokenRange = TokenRange { start: Token::MIN, end: Token::MIN };

    /// Returns true if the range contains `token`.
    pub fn contains(self, token: Token) -> bool {
        if self.start < self.end {
            self.start < token && token <= self.end
        } else {
            self.start < token || token <= self.end
        }
    }

    /// Number of tokens in it, 1..=2^64.
    pub fn width(self) -> u128 {
        match (self.end.0 as u64).wrapping_sub(self.start.0 as u64) {
            0 => 1 << 64,
            n => u128::from(n),
        }
    }

    /// Its part of the ring, above 0 up to 1.
    pub fn fraction(self) -> f64 {
        self.width() as f64 / (1_u128 << 64) as f64
    }

    /// Without wrap: one range, or the part up to the largest token and the part from the smallest
    /// on. A part that ends at [`Token::MAX`] holds everything above its start.
    pub fn unwrapped(self) -> impl Iterator<Item = TokenRange> {
        let wraps = self.start >= self.end;
        let first_end = if wraps { Token::MAX } else { self.end };
        let first = TokenRange { start: self.start, end: first_end };
        let second = TokenRange { start: Token::MIN, end: self.end };
        let first = (first.start < first.end).then_some(first);
        let second = (wraps && second.start < second.end).then_some(second);
        first.into_iter().chain(second)
    }
}

/// Joins neighbours: ranges in ring order, as few as possible. A union that covers everything is
/// [`TokenRange::FULL`].
pub fn merge(ranges: impl IntoIterator<Item = TokenRange>) -> Vec<TokenRange> {
    let mut parts: Vec<TokenRange> = Vec::new();
    for range in ranges {
        if range.start == range.end {
            return vec![TokenRange::FULL];
        }
        parts.extend(range.unwrapped());
    }
    parts.sort_unstable();
    let mut merged: Vec<TokenRange> = Vec::new();
    for part in parts {
        match merged.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => merged.push(part),
        }
    }
    let ends_high = merged.last().is_some_and(|r| r.end == Token::MAX);
    let starts_low = merged.first().is_some_and(|r| r.start == Token::MIN);
    if ends_high && starts_low {
        if merged.len() == 1 {
            return vec![TokenRange::FULL];
        }
        // One range that wraps around instead of two.
        let first = merged.remove(0);
        if let Some(last) = merged.last_mut() {
            last.end = first.end;
        }
    }
    merged
}

impl Placements {
    /// The ranges whose first natural replica is `host`: what `repair -pr` repairs there.
    pub fn primary_ranges(&self, host: HostId) -> Vec<TokenRange> {
        self.select(|replicas| replicas.natural().next().is_some_and(|m| m.host_id == host))
    }

    /// The ranges of which `host` is the first natural replica of its own datacenter
    /// (`repair -pr -local`).
    pub fn primary_ranges_in_datacenter(&self, host: HostId) -> Vec<TokenRange> {
        let Some(me) = self.members().iter().find(|m| m.host_id == host) else {
            return Vec::new();
        };
        self.select(|replicas| {
            let first = replicas.natural().find(|m| m.datacenter == me.datacenter);
            first.is_some_and(|m| m.host_id == host)
        })
    }

    /// The ranges that `host` is a natural replica of, one per token of the ring.
    pub fn ranges_of(&self, host: HostId) -> Vec<TokenRange> {
        self.select(|replicas| replicas.is_natural(host))
    }

    /// The ranges that `host` is written to: natural and pending. Data outside is not its own.
    pub fn ranges_written_to(&self, host: HostId) -> Vec<TokenRange> {
        self.select(|replicas| replicas.position(host).is_some())
    }

    fn select(&self, wanted: impl Fn(Replicas<'_>) -> bool) -> Vec<TokenRange> {
        self.ranges().filter(|(_, replicas)| wanted(*replicas)).map(|(range, _)| range).collect()
    }

    /// Part of all data that each member holds a replica of, 0..=1: the column "Owns (effective)"
    /// of `nodetool status` and `ring` for a keyspace. Every member has an entry. "Owns" without a
    /// keyspace is that of the table for `Replication::Simple(1)`.
    pub fn ownership(&self) -> BTreeMap<HostId, f64> {
        let mut owned: BTreeMap<HostId, f64> =
            self.members().iter().map(|m| (m.host_id, 0.0)).collect();
        for (range, replicas) in self.ranges() {
            for member in replicas.natural() {
                if let Some(share) = owned.get_mut(&member.host_id) {
                    *share += range.fraction();
                }
            }
        }
        owned
    }
}

/// One range that a node takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movement {
    /// The range that moves.
    pub range: TokenRange,
    /// The new owner.
    pub to: HostId,
    /// The replica that loses the range to `to`, when there is one. A copy of its data alone keeps
    /// every acknowledged write, because the new owner then stands in its place.
    pub loser: Option<HostId>,
    /// The present replicas: the loser, then replicas of the new owner's datacenter, then the
    /// others. Within each group those of its rack are first, the rest in the order of the table.
    pub from: Vec<HostId>,
    /// Number of replicas in the new owner's datacenter (the first ones of `from`), the loser left
    /// out, that hold together every write that a local quorum acknowledged.
    pub local_quorum: usize,
    /// Like `local_quorum`, over all datacenters.
    pub quorum: usize,
    /// Number of `from` in the new owner's datacenter; all with `SimpleStrategy`.
    pub local: usize,
}

impl Movement {
    /// Returns the replicas to copy from so that no acknowledged write is lost: the loser when it
    /// is alive, else as many others as a quorum needs; `None` when too few are alive.
    ///
    /// If the loser is dead, writes at QUORUM over several datacenters are covered only when the
    /// quorum over all of them is requested: `whole_cluster`.
    pub fn sources(
        &self,
        alive: impl Fn(HostId) -> bool,
        whole_cluster: WholeCluster,
    ) -> Option<Vec<HostId>> {
        if let Some(loser) = self.loser
            && alive(loser)
        {
            return Some(vec![loser]);
        }
        let (candidates, needed) = match whole_cluster {
            WholeCluster::Yes => (self.from.len(), self.quorum),
            WholeCluster::No if self.local_quorum > 0 => (self.local, self.local_quorum),
            // A datacenter that had no replica before: any one that has the data.
            WholeCluster::No => (self.from.len(), self.quorum.min(1)),
        };
        let here = self.from.iter().take(candidates).copied();
        let live: Vec<HostId> =
            here.filter(|h| Some(*h) != self.loser && alive(*h)).take(needed).collect();
        (live.len() == needed).then_some(live)
    }
}

/// The writes that a copy must hold: those that a quorum over all datacenters acknowledged, or only
/// those of a quorum of its own datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WholeCluster {
    /// Also writes at QUORUM whose acknowledgements came from other datacenters.
    Yes,
    /// Writes at LOCAL_QUORUM, and at QUORUM with one datacenter.
    No,
}

/// Returns the ranges that every node must copy when the natural replicas change from those of
/// `before` to those of `after`. For a movement in progress, `before` is the table of the members
/// as they were and `after` that of the members as they will be ([`crate::topology::finished`]).
pub fn movements(before: &Placements, after: &Placements) -> Vec<Movement> {
    let mut all = Vec::new();
    for (range, _, _) in aligned(before, after) {
        range_movements(range, before, after, &mut all);
    }
    all
}

/// The ranges in which neither table changes, with the replicas of both.
pub(crate) fn aligned<'a>(
    before: &'a Placements,
    after: &'a Placements,
) -> impl Iterator<Item = (TokenRange, Replicas<'a>, Replicas<'a>)> {
    let mut ends: Vec<Token> = before.ends().iter().chain(after.ends()).copied().collect();
    ends.sort_unstable();
    ends.dedup();
    let mut start = ends.last().copied().unwrap_or(Token::MIN);
    ends.into_iter().map(move |end| {
        let range = TokenRange { start, end };
        start = end;
        (range, before.replicas(end), after.replicas(end))
    })
}

fn range_movements(
    range: TokenRange,
    before: &Placements,
    after: &Placements,
    all: &mut Vec<Movement>,
) {
    let old = before.replicas(range.end);
    let new = after.replicas(range.end);
    // SimpleStrategy knows no datacenters: every place is alike.
    let one_place = !matches!(before.replication(), Replication::Network(_));
    let mut losers: Vec<_> = old.natural().filter(|m| !new.is_natural(m.host_id)).collect();
    for member in new.natural().filter(|m| !old.is_natural(m.host_id)) {
        let is_near = |dc: &str| one_place || dc == member.datacenter;
        // A loser of the same datacenter only: its place there is what is taken.
        let matching = losers.iter().position(|l| is_near(&l.datacenter));
        let loser = matching.map(|at| losers.remove(at).host_id);
        let mut from: Vec<_> = old.natural().collect();
        from.sort_by_key(|m| {
            let other_dc = !is_near(&m.datacenter);
            (Some(m.host_id) != loser, other_dc, other_dc || m.rack != member.rack)
        });
        let local = from.iter().filter(|m| is_near(&m.datacenter)).count();
        // n replicas, each write on at least a quorum of the factor: a set misses none of them when
        // it is larger than n - quorum. With fewer nodes than the factor one is enough.
        let needed = |holders: usize, factor: u32| {
            let spare = holders.saturating_sub(factor as usize / 2 + 1);
            (spare + 1).min(holders)
        };
        let factor = Factor::of(before.replication(), &member.datacenter);
        all.push(Movement {
            range,
            to: member.host_id,
            loser,
            local_quorum: needed(local, factor.local),
            quorum: needed(from.len(), factor.all),
            local,
            from: from.into_iter().map(|m| m.host_id).collect(),
        });
    }
}

/// Replication factors in one datacenter and over all.
struct Factor {
    local: u32,
    all: u32,
}

impl Factor {
    fn of(replication: &Replication, datacenter: &str) -> Factor {
        match replication {
            Replication::Local => Factor { local: 1, all: 1 },
            Replication::Simple(n) => Factor { local: *n, all: *n },
            Replication::Network(map) => Factor {
                local: map.get(datacenter).copied().unwrap_or(0),
                all: map.values().fold(0, |sum: u32, n| sum.saturating_add(*n)),
            },
        }
    }
}

#[cfg(test)]
mod tests;
