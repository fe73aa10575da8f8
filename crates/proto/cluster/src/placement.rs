//! Replicas of each token: natural ones to read from, pending ones to write to as well.
//!
//! Owns: [`Placements`], a table of ranges, [`Replicas`], one row of it, [`PlacementKey`], which tables
//! of users share one, and when each range moved last ([`dating`]). A table is a pure function of members
//! and replication; the caller keeps it per snapshot. Rows are ranges with lists of nodes, however they
//! came about: tablets will fill the same table.
//!
//! INV-placement-1: ranges cover the ring without gap or overlap. INV-placement-2: no node stands
//! twice in a row. INV-placement-3: natural and pending together contain every node that is a
//! replica before or after any of the movements in progress, so that a write that waits for the
//! natural quorum plus all pending ones is seen by a read of an earlier or later step. INV-placement-4: a
//! node moves in a row ([`Replicas::moves`]) when it is a replica on one side of the movements only.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::Keyspace;
use stdx::{Epoch, HostId, TableId, Token};

use crate::member::Member;
use crate::place_history::Moved;
use crate::ranges::TokenRange;
use crate::replication::{Replication, replication_of};
use crate::snapshot::ClusterSnapshot;
use crate::strategy::{NodeIndex, Ring, Walk};

mod dating;

/// Key of a table's placement. Tables with equal keys have the same ranges, replicas and movements;
/// a range is known by its key and its tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementKey {
    /// The ring, by this replication.
    Replication(Replication),
}

impl PlacementKey {
    /// Returns the key of a table; `None` when there is no such table.
    pub fn of_table(snapshot: &ClusterSnapshot, table: TableId) -> Option<PlacementKey> {
        let table = snapshot.schema.table_by_id(table)?;
        let keyspace = snapshot.schema.keyspace(&table.keyspace)?;
        Some(PlacementKey::of_keyspace(snapshot, keyspace))
    }

    /// Returns the key that all tables of a keyspace share.
    pub fn of_keyspace(snapshot: &ClusterSnapshot, keyspace: &Keyspace) -> PlacementKey {
        PlacementKey::Replication(snapshot.replication_of(keyspace))
    }

    /// Returns the replication: the number of replicas, and their datacenters.
    pub fn replication(&self) -> &Replication {
        match self {
            PlacementKey::Replication(replication) => replication,
        }
    }

    /// Returns true if each node has all data for itself.
    pub fn is_local(&self) -> bool {
        *self.replication() == Replication::Local
    }

    /// The ranges and their replicas at a snapshot's epoch.
    pub fn placements(&self, snapshot: &ClusterSnapshot) -> Placements {
        snapshot.placements(self.replication())
    }

    /// The same with other members than a snapshot's: those before or after a movement.
    pub fn placements_among(&self, members: &BTreeMap<HostId, Arc<Member>>) -> Placements {
        Placements::build(members, self.replication())
    }
}

/// The replicas of every range for one replication.
#[derive(Clone, Debug)]
pub struct Placements {
    replication: Replication,
    /// In the order of host ids.
    nodes: Vec<Arc<Member>>,
    /// Ascending; range i is (end of i - 1, end of i], the first one wraps around.
    ends: Vec<Token>,
    rows: Vec<Row>,
    flat: Vec<NodeIndex>,
    /// Epochs of each range's last movements; empty when the table is not dated.
    moved: Vec<Moved>,
    /// The last change of members' places that is in `moved`.
    dated: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    start: u32,
    natural: u16,
    pending: u16,
    /// By index: see [`Replicas::moves`].
    moving: u128,
}

impl Placements {
    /// The table for `members`. Cost: tokens times the length of a walk, twice when nodes move.
    ///
    /// `Replication::Local` gives an empty table; [`ClusterSnapshot::placements`] knows the local
    /// member and gives that one everything.
    pub fn build(members: &BTreeMap<HostId, Arc<Member>>, replication: &Replication) -> Placements {
        let nodes: Vec<Arc<Member>> = members.values().cloned().collect();
        let mut table = Placements {
            replication: replication.clone(),
            ends: Vec::new(),
            rows: Vec::new(),
            flat: Vec::new(),
            moved: Vec::new(),
            dated: None,
            nodes,
        };
        if *replication == Replication::Local {
            return table;
        }
        // Reads use the handovers that have begun; writes reach every present and future replica.
        let read = Ring::new(&table.nodes, &|m| m.state.is_handover());
        let moves = table.nodes.iter().any(|m| m.is_in_transition());
        let others = if moves {
            vec![Ring::new(&table.nodes, &|_| false), Ring::new(&table.nodes, &|_| true)]
        } else {
            Vec::new()
        };
        let ends = others.iter().chain([&read]).flat_map(|r| r.tokens.iter().map(|(t, _)| *t));
        table.ends = ends.collect();
        table.ends.sort_unstable();
        table.ends.dedup();
        let mut walk = Walk::default();
        let mut extra = Vec::new();
        for end in &table.ends {
            let start = table.flat.len();
            read.replicas_at(replication, read.first_at(*end), &mut walk, &mut table.flat);
            let natural = table.flat.len() - start;
            // In one of the two rings, not in both.
            let mut moving = 0_u128;
            for ring in &others {
                extra.clear();
                ring.replicas_at(replication, ring.first_at(*end), &mut walk, &mut extra);
                for node in &extra {
                    let here = table.flat.get(start..).unwrap_or(&[]);
                    let at = here.iter().position(|n| n == node).unwrap_or_else(|| {
                        table.flat.push(*node);
                        table.flat.len() - start - 1
                    });
                    moving ^= bit(at);
                }
            }
            let pending = table.flat.len() - start - natural;
            let start = u32::try_from(start).unwrap_or(u32::MAX);
            let (natural, pending) = (natural as u16, pending as u16);
            table.rows.push(Row { start, natural, pending, moving });
        }
        table
    }

    /// The table in which the natural replicas are those of `first`, and all others of either are
    /// written to too. Both are built from the same members.
    pub fn joined(first: &Placements, second: &Placements) -> Placements {
        let mut table = Placements {
            replication: first.replication.clone(),
            nodes: first.nodes.clone(),
            ends: first.ends.iter().chain(&second.ends).copied().collect(),
            rows: Vec::new(),
            flat: Vec::new(),
            moved: Vec::new(),
            dated: None,
        };
        table.ends.sort_unstable();
        table.ends.dedup();
        for end in &table.ends {
            let (of_first, of_second) = (first.replicas(*end), second.replicas(*end));
            let start = table.flat.len();
            table.flat.extend_from_slice(of_first.all);
            for node in of_second.all {
                if !of_first.all.contains(node) {
                    table.flat.push(*node);
                }
            }
            let natural = of_first.natural_len();
            let pending = table.flat.len() - start - natural;
            let start = u32::try_from(start).unwrap_or(u32::MAX);
            let (natural, pending) = (natural as u16, pending as u16);
            table.rows.push(Row { start, natural, pending, moving: of_first.moving });
        }
        table
    }

    /// The tokens at which ranges end, ascending.
    pub(crate) fn ends(&self) -> &[Token] {
        &self.ends
    }

    /// The table in which one member has everything: `LocalStrategy`, or a node that is alone.
    pub fn of_one(member: Arc<Member>) -> Placements {
        Placements {
            replication: Replication::Local,
            nodes: vec![member],
            ends: vec![Token::MIN],
            rows: vec![Row { start: 0, natural: 1, pending: 0, moving: 0 }],
            flat: vec![0],
            moved: Vec::new(),
            dated: None,
        }
    }

    /// Returns the replication that the placements were built for.
    pub fn replication(&self) -> &Replication {
        &self.replication
    }

    /// The members it was built from, in the order of their host ids.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.nodes
    }

    /// The replicas of a token. A binary search; nothing is allocated.
    pub fn replicas(&self, token: Token) -> Replicas<'_> {
        self.row(self.index_of(token))
    }

    /// The range that a token lies in; the full ring when there is no token at all.
    pub fn range_of(&self, token: Token) -> TokenRange {
        self.range(self.index_of(token))
    }

    /// Every range with its replicas, the one that wraps around first.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (TokenRange, Replicas<'_>)> {
        (0..self.rows.len()).map(|i| (self.range(i), self.row(i)))
    }

    fn index_of(&self, token: Token) -> usize {
        let at = self.ends.partition_point(|end| *end < token);
        if at == self.ends.len() { 0 } else { at }
    }

    fn range(&self, index: usize) -> TokenRange {
        let before = if index == 0 { self.ends.last() } else { self.ends.get(index - 1) };
        let start = before.copied().unwrap_or(Token::MIN);
        TokenRange { start, end: self.ends.get(index).copied().unwrap_or(Token::MIN) }
    }

    fn row(&self, index: usize) -> Replicas<'_> {
        let nobody = Row { start: 0, natural: 0, pending: 0, moving: 0 };
        let row = self.rows.get(index).copied().unwrap_or(nobody);
        let rest = self.flat.get(row.start as usize..).unwrap_or(&[]);
        let all = rest.get(..usize::from(row.natural) + usize::from(row.pending)).unwrap_or(&[]);
        let natural = usize::from(row.natural).min(all.len());
        Replicas { nodes: &self.nodes, all, natural, moving: row.moving }
    }
}

/// A range has no more readers or writers than bits: further replicas have no bit.
fn bit(index: usize) -> u128 {
    u32::try_from(index).ok().and_then(|at| 1_u128.checked_shl(at)).unwrap_or(0)
}

/// The replicas of one range. Indices run over the natural ones, then over the pending ones.
#[derive(Clone, Copy, Debug)]
pub struct Replicas<'a> {
    nodes: &'a [Arc<Member>],
    all: &'a [NodeIndex],
    natural: usize,
    moving: u128,
}

impl<'a> Replicas<'a> {
    /// Those that are read from, in Cassandra's order: the owner of the token first.
    pub fn natural(self) -> impl Iterator<Item = &'a Arc<Member>> + Clone {
        self.members().take(self.natural)
    }

    /// Those that are only written to: they will own the range, or have just handed it over.
    pub fn pending(self) -> impl Iterator<Item = &'a Arc<Member>> + Clone {
        self.members().skip(self.natural)
    }

    /// All that a write goes to.
    pub fn members(self) -> impl Iterator<Item = &'a Arc<Member>> + Clone {
        self.all.iter().filter_map(move |n| self.nodes.get(usize::from(*n)))
    }

    /// The member of that index.
    pub fn get(self, index: usize) -> Option<&'a Arc<Member>> {
        self.nodes.get(usize::from(*self.all.get(index)?))
    }

    /// The index of a member; below [`Replicas::natural_len`] for a natural one.
    pub fn position(self, host: HostId) -> Option<usize> {
        self.members().position(|m| m.host_id == host)
    }

    /// Returns true if the member is a natural replica: one that is read from.
    pub fn is_natural(self, host: HostId) -> bool {
        self.natural().any(|m| m.host_id == host)
    }

    /// Returns true if the member at that index has the range only before the movements in
    /// progress, or only after them. Every pending replica does, and so do the natural ones whose
    /// place the pending ones take or had.
    pub fn moves(self, index: usize) -> bool {
        self.moving & bit(index) != 0
    }

    /// Returns true if any of the replicas moves.
    pub fn is_moving(self) -> bool {
        self.moving != 0
    }

    /// Number of natural replicas.
    pub fn natural_len(self) -> usize {
        self.natural
    }

    /// Number of pending replicas.
    pub fn pending_len(self) -> usize {
        self.all.len() - self.natural
    }

    /// Number of both.
    pub fn len(self) -> usize {
        self.all.len()
    }

    /// Returns true if no member holds the range: replication factor 0, or no tokens.
    pub fn is_empty(self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if both have the same nodes in the same order and the same of them natural and
    /// moving.
    pub fn same_as(self, other: Replicas<'_>) -> bool {
        self.natural == other.natural
            && self.moving == other.moving
            && self.len() == other.len()
            && self.members().map(|m| m.host_id).eq(other.members().map(|m| m.host_id))
    }
}

impl ClusterSnapshot {
    /// The table for a replication at this epoch.
    pub fn placements(&self, replication: &Replication) -> Placements {
        match (replication, self.local_member()) {
            (Replication::Local, Some(member)) => Placements::of_one(member.clone()),
            _ => Placements::build(&self.members, replication),
        }
    }

    /// The ranges of a table and their replicas at this epoch. `None` when there is no such table.
    pub fn placements_of_table(&self, table: TableId) -> Option<Placements> {
        Some(PlacementKey::of_table(self, table)?.placements(self))
    }

    /// A keyspace's replication; virtual ones are local.
    pub fn replication_of(&self, keyspace: &Keyspace) -> Replication {
        if keyspace.is_virtual { Replication::Local } else { replication_of(keyspace) }
    }
}

#[cfg(test)]
mod case_tests;
#[cfg(test)]
mod tests;
