//! Movements that may run at the same time.
//!
//! Two movements overlap when some range's replicas depend on both. Then finishing one of them
//! alone could make a node a replica that has no copy of the data, so the second one is refused.
//! The check is the definition itself, over every subset of the movements, for every replication in
//! the schema.

use std::sync::Arc;

use stdx::HostId;

use super::MembershipError;
use crate::Members;
use crate::member::{Member, MemberState};
use crate::place_history::STEPS_KEPT;
use crate::replication::Replication;
use crate::strategy::{NodeIndex, Ring, Walk};

/// Most movements at the same time: every subset of them is checked.
pub const MOVEMENTS_MAX: usize = 4;
// A sender may lack a step of each without lacking two of any range.
const _: () = assert!(STEPS_KEPT >= MOVEMENTS_MAX, "too few changes of places are kept");

/// Refuses when ranges depend on two movements. `newest` is named in the error.
pub(super) fn check<'a>(
    members: &Members,
    replications: impl Iterator<Item = &'a Replication>,
    newest: HostId,
) -> Result<(), MembershipError> {
    let nodes: Vec<Arc<Member>> = members.values().cloned().collect();
    let moving: Vec<HostId> =
        nodes.iter().filter(|m| m.is_in_transition()).map(|m| m.host_id).collect();
    if moving.len() > MOVEMENTS_MAX {
        return Err(MembershipError::TooManyMovements { host: newest });
    }
    if moving.len() < 2 {
        return Ok(());
    }
    // Ring number `mask` has the movements of its bits finished.
    let rings: Vec<Ring> = (0..1_usize << moving.len())
        .map(|mask| {
            let done = |m: &Member| {
                moving.iter().position(|h| *h == m.host_id).is_some_and(|bit| mask >> bit & 1 == 1)
            };
            Ring::new(&nodes, &done)
        })
        .collect();
    let mut ends: Vec<_> = rings.iter().flat_map(|r| r.tokens.iter().map(|(t, _)| *t)).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut walk = Walk::default();
    let mut sets: Vec<Vec<NodeIndex>> = vec![Vec::new(); rings.len()];
    for replication in replications {
        for end in &ends {
            for (ring, set) in rings.iter().zip(&mut sets) {
                set.clear();
                ring.replicas_at(replication, ring.first_at(*end), &mut walk, set);
                set.sort_unstable();
            }
            if let Some(other) = dependent(&sets, &moving, newest) {
                return Err(MembershipError::Overlap { host: newest, other });
            }
        }
    }
    Ok(())
}

/// `None` when the replica sets depend on one movement at most; else one beside `newest` that
/// they depend on.
fn dependent(sets: &[Vec<NodeIndex>], moving: &[HostId], newest: HostId) -> Option<HostId> {
    // Bit b matters when some two sets that differ in b alone differ.
    let matters = |bit: usize| {
        (0..sets.len())
            .any(|mask| mask >> bit & 1 == 0 && sets.get(mask) != sets.get(mask | 1 << bit))
    };
    let mut found = (0..moving.len()).filter(|bit| matters(*bit)).filter_map(|b| moving.get(b));
    let first = found.next()?;
    let second = found.next()?;
    Some(if *first == newest { *second } else { *first })
}

/// The members when the movements of those in `done` are finished and the others not begun. All are
/// normal; those that own nothing are left out.
pub(super) fn resolve(members: &Members, done: &dyn Fn(&Member) -> bool) -> Members {
    let mut resolved = Members::new();
    let is_replaced = |host: HostId| members.values().any(|m| m.replaces == Some(host) && done(m));
    for member in members.values() {
        let tokens = member.tokens_when(done(member));
        if tokens.is_empty() || is_replaced(member.host_id) {
            continue;
        }
        let mut next = Member::clone(member);
        next.tokens = tokens.to_vec();
        next.moving_to = Vec::new();
        next.replaces = None;
        next.state = MemberState::Normal;
        resolved.insert(next.host_id, Arc::new(next));
    }
    resolved
}
