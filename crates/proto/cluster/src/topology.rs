//! Changes of membership: what may follow what, and the refusal of what may not.
//!
//! Owns: the rules by which [`ClusterSnapshot::apply`] accepts the entries about members, voters and features.
//! Never: carrying out a movement, or liveness (a driver checks it before it submits).
//!
//! A movement is three entries, data is copied after the first:
//!
//! | | begins | read by the new ring | done | given up |
//! | --- | --- | --- | --- | --- |
//! | join | `Join` | `JoinHandover` | `Normal` | `Leave` |
//! | replace | `Replace` | `JoinHandover` | `Normal`: the old one goes | `Leave` |
//! | leave | `Leaving` | `LeaveHandover` | `Leave` | `Normal` |
//! | move | `Move` | `MoveHandover` | `Normal` | `Normal` |
//!
//! Before `done` the driver waits until every replica that answers has applied the handover: then
//! no coordinator reads by the ring before it any more. A handover may be taken back by this machine's
//! rules; drivers do so with a dead newcomer's only. While a range moves, majorities are read that meet
//! those of both rings (`request::ReadPlan`), so that what was read, though never acknowledged, is found
//! by either.
//!
//! INV-topology-1: tokens and known addresses are each held by one member. INV-topology-2: voters
//! are members that own data. INV-topology-3: each range depends on at most one movement in
//! progress, so that movements may finish or be given up in any order ([`overlap`]).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use stdx::{HostId, Token};

use crate::member::{ADDRESS_UNKNOWN, Member, MemberState, NAME_BYTES_MAX, TOKENS_MAX};
use crate::replication::Replication;
use crate::snapshot::ClusterSnapshot;

mod error;
mod overlap;
mod voters;

pub use error::MembershipError;
pub use overlap::MOVEMENTS_MAX;
pub use voters::{VOTERS_MAX, choose_voters};

/// Most members of a cluster; indices of nodes in placement tables are 16 bits wide.
pub const MEMBERS_MAX: usize = 4_096;

/// The new addresses of one member. [`ADDRESS_UNKNOWN`] says that an address is not known any more,
/// because another member has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whose.
    pub host: HostId,
    /// Address for other nodes.
    pub storage: SocketAddr,
    /// Address for clients.
    pub rpc: SocketAddr,
}

type Result<T> = std::result::Result<T, MembershipError>;

impl ClusterSnapshot {
    /// This node as a member; `None` when it has not joined or is out again.
    pub fn local_member(&self) -> Option<&Arc<Member>> {
        self.members.get(&self.local.host_id)
    }

    /// Member of that id.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn member(&self, host: HostId) -> Result<&Arc<Member>> {
        self.members.get(&host).ok_or(MembershipError::Unknown { host })
    }

    pub(crate) fn join(&mut self, member: &Arc<Member>) -> Result<()> {
        let is_clean = member.state == MemberState::Joining
            && member.replaces.is_none()
            && member.moving_to.is_empty();
        if !is_clean {
            return Err(MembershipError::Malformed { host: member.host_id });
        }
        self.check_no_handover()?;
        self.check_newcomer(member)?;
        self.check_tokens(member.host_id, &member.tokens)?;
        self.members.insert(member.host_id, member.clone());
        self.check_overlap(member.host_id)
    }

    pub(crate) fn replace(&mut self, old: HostId, member: &Arc<Member>) -> Result<()> {
        let is_clean = member.state == MemberState::Joining
            && member.replaces == Some(old)
            && member.moving_to.is_empty();
        if !is_clean {
            return Err(MembershipError::Malformed { host: member.host_id });
        }
        self.check_no_handover()?;
        let dead = self.member(old)?.clone();
        if let Some(other) = self.replacement_of(old) {
            return Err(MembershipError::AlreadyReplaced { old, by: other });
        }
        if dead.state != MemberState::Normal {
            return Err(MembershipError::Busy { host: old, state: dead.state });
        }
        if member.tokens != dead.tokens {
            return Err(MembershipError::ReplaceTokens { old, new: member.host_id });
        }
        if (&member.datacenter, &member.rack) != (&dead.datacenter, &dead.rack) {
            return Err(MembershipError::ReplacePlace {
                old,
                datacenter: dead.datacenter.clone(),
                rack: dead.rack.clone(),
            });
        }
        // The newcomer may stand at the old one's address: the old one is nowhere then.
        self.forget_addresses(old, member);
        self.check_newcomer(member)?;
        self.members.insert(member.host_id, member.clone());
        self.check_overlap(member.host_id)
    }

    /// Sets the place of the only member. With other members it would move data that no node
    /// copies.
    pub(crate) fn locate(&mut self, datacenter: &str, rack: &str) -> Result<()> {
        let mut members = self.members.values_mut();
        match (members.next(), members.next()) {
            (Some(only), None) => {
                let mut next = Member::clone(only);
                datacenter.clone_into(&mut next.datacenter);
                rack.clone_into(&mut next.rack);
                *only = Arc::new(next);
                Ok(())
            }
            _ => Err(MembershipError::Relocated),
        }
    }

    pub(crate) fn set_state(&mut self, host: HostId, state: MemberState) -> Result<()> {
        use MemberState as S;
        let member = self.member(host)?.clone();
        let mut next = Member::clone(&member);
        next.state = state;
        match (member.state, state) {
            (S::Joining, S::JoinHandover)
            | (S::JoinHandover, S::Joining)
            | (S::Leaving, S::LeaveHandover | S::Normal)
            | (S::LeaveHandover, S::Leaving)
            | (S::Moving, S::MoveHandover)
            | (S::MoveHandover, S::Moving) => {}
            (S::Normal, S::Leaving) => {
                if let Some(by) = self.replacement_of(host) {
                    return Err(MembershipError::AlreadyReplaced { old: host, by });
                }
                self.check_no_handover()?;
                self.check_not_last(host)?;
            }
            (S::JoinHandover, S::Normal) => {
                if let Some(old) = next.replaces.take() {
                    self.check_no_voter(old)?;
                    self.members.remove(&old);
                }
            }
            (S::MoveHandover, S::Normal) => next.tokens = std::mem::take(&mut next.moving_to),
            (S::Moving, S::Normal) => next.moving_to = Vec::new(),
            (from, to) => return Err(MembershipError::IllegalState { host, from, to }),
        }
        self.members.insert(host, Arc::new(next));
        if member.state == S::Normal { self.check_overlap(host) } else { Ok(()) }
    }

    pub(crate) fn move_to(&mut self, host: HostId, tokens: &[Token]) -> Result<()> {
        self.check_no_handover()?;
        let member = self.member(host)?.clone();
        if member.state != MemberState::Normal {
            return Err(MembershipError::Busy { host, state: member.state });
        }
        if let Some(by) = self.replacement_of(host) {
            return Err(MembershipError::AlreadyReplaced { old: host, by });
        }
        self.check_tokens(host, tokens)?;
        let mut next = Member::clone(&member);
        next.state = MemberState::Moving;
        next.moving_to = tokens.to_vec();
        self.members.insert(host, Arc::new(next));
        self.check_overlap(host)
    }

    /// Takes a member out: one that has left, or one that does not join after all.
    pub(crate) fn leave(&mut self, host: HostId) -> Result<()> {
        let member = self.member(host)?;
        match member.state {
            MemberState::Joining | MemberState::LeaveHandover => {}
            from => return Err(MembershipError::NotLeft { host, state: from }),
        }
        self.check_no_voter(host)?;
        self.members.remove(&host);
        Ok(())
    }

    /// Takes a member out as it is; what only it had is gone (`nodetool assassinate`).
    pub(crate) fn evict(&mut self, host: HostId) -> Result<()> {
        let member = self.member(host)?.clone();
        match member.state {
            // It owns nothing yet.
            MemberState::Joining => return self.leave(host),
            MemberState::JoinHandover => {
                return Err(MembershipError::Busy { host, state: member.state });
            }
            _ => {}
        }
        self.check_no_voter(host)?;
        self.check_not_last(host)?;
        if let Some(by) = self.replacement_of(host) {
            return Err(MembershipError::AlreadyReplaced { old: host, by });
        }
        // Its going is a movement that is finished at once: no other one may depend on it.
        let mut gone = Member::clone(&member);
        gone.state = MemberState::Leaving;
        self.members.insert(host, Arc::new(gone));
        self.check_overlap(host)?;
        self.members.remove(&host);
        Ok(())
    }

    pub(crate) fn readdress(&mut self, changes: &[Address]) -> Result<()> {
        let mut named = BTreeSet::new();
        for change in changes {
            if !named.insert(change.host) {
                return Err(MembershipError::Malformed { host: change.host });
            }
            let mut next = Member::clone(self.member(change.host)?);
            next.storage = change.storage;
            next.rpc = change.rpc;
            self.members.insert(change.host, Arc::new(next));
        }
        // Checked when all are in: two members may swap theirs.
        for change in changes {
            let member = self.member(change.host)?.clone();
            self.check_addresses(&member)?;
        }
        Ok(())
    }

    pub(crate) fn describe(
        &mut self,
        host: HostId,
        shards: u16,
        features: u64,
        release: &str,
    ) -> Result<()> {
        let mut next = Member::clone(self.member(host)?);
        check_name(host, "release", release)?;
        check_features(host, self.features, features)?;
        next.shards = shards;
        next.features = features;
        release.clone_into(&mut next.release);
        self.members.insert(host, Arc::new(next));
        Ok(())
    }

    pub(crate) fn enable(&mut self, features: u64) -> Result<()> {
        for member in self.members.values() {
            check_features(member.host_id, features, member.features)?;
        }
        self.features |= features;
        Ok(())
    }

    /// Refuses a change of a keyspace that the movements in progress do not allow.
    pub(crate) fn check_keyspace_change(
        &self,
        old: Option<&Replication>,
        new: &Replication,
    ) -> Result<()> {
        let moving: Vec<&Arc<Member>> =
            self.members.values().filter(|m| m.is_in_transition()).collect();
        let Some(first) = moving.first() else { return Ok(()) };
        match old {
            // The movements in progress were planned for the old factor.
            Some(old) if old != new => {
                let list = moving.iter().map(|m| format!("/{}", m.storage));
                let nodes = list.collect::<Vec<_>>().join(", ");
                Err(MembershipError::AlterDuringMovement { nodes })
            }
            Some(_) => Ok(()),
            None => overlap::check(&self.members, [new].into_iter(), first.host_id),
        }
    }

    fn check_overlap(&self, host: HostId) -> Result<()> {
        let replications: BTreeSet<Replication> =
            self.schema.keyspaces.values().map(|k| self.replication_of(k)).collect();
        overlap::check(&self.members, replications.iter(), host)
    }

    fn check_newcomer(&self, member: &Member) -> Result<()> {
        let host = member.host_id;
        if self.members.contains_key(&host) {
            return Err(MembershipError::DuplicateHost { host });
        }
        if self.members.len() >= MEMBERS_MAX {
            return Err(MembershipError::TooManyMembers);
        }
        check_name(host, "datacenter", &member.datacenter)?;
        check_name(host, "rack", &member.rack)?;
        check_name(host, "release", &member.release)?;
        check_features(host, self.features, member.features)?;
        if member.datacenter.is_empty() || member.rack.is_empty() {
            return Err(MembershipError::NoPlace { host });
        }
        self.check_addresses(member)
    }

    /// Checks that `tokens` is not empty, ascending, distinct, and disjoint from the tokens of
    /// other members.
    fn check_tokens(&self, host: HostId, tokens: &[Token]) -> Result<()> {
        if tokens.is_empty() || tokens.len() > TOKENS_MAX {
            return Err(MembershipError::TokenCount { host, count: tokens.len() });
        }
        if !tokens.windows(2).all(|pair| matches!(pair, [a, b] if a < b)) {
            return Err(MembershipError::Malformed { host });
        }
        for other in self.members.values() {
            let held =
                |list: &[Token]| list.iter().find(|t| tokens.binary_search(t).is_ok()).copied();
            // A move may keep some of the mover's own tokens.
            let own = if other.host_id == host { None } else { held(&other.tokens) };
            if let Some(token) = own.or_else(|| held(&other.moving_to)) {
                return Err(MembershipError::TokenTaken { token, by: other.host_id });
            }
        }
        Ok(())
    }

    fn check_addresses(&self, member: &Member) -> Result<()> {
        for other in self.members.values().filter(|m| m.host_id != member.host_id) {
            for (address, held) in [(member.storage, other.storage), (member.rpc, other.rpc)] {
                if address == held && address != ADDRESS_UNKNOWN {
                    return Err(MembershipError::AddressTaken { address, by: other.host_id });
                }
            }
        }
        Ok(())
    }

    fn check_no_voter(&self, host: HostId) -> Result<()> {
        if self.voters.contains(&host) { Err(MembershipError::IsVoter { host }) } else { Ok(()) }
    }

    /// Checks that a member which owns data stays when `host` leaves.
    fn check_not_last(&self, host: HostId) -> Result<()> {
        let stays = |m: &Arc<Member>| m.host_id != host && m.state == MemberState::Normal;
        if self.members.values().any(stays) { Ok(()) } else { Err(MembershipError::LastMember) }
    }

    fn replacement_of(&self, old: HostId) -> Option<HostId> {
        self.members.values().find(|m| m.replaces == Some(old)).map(|m| m.host_id)
    }

    fn forget_addresses(&mut self, old: HostId, newcomer: &Member) {
        if let Some(entry) = self.members.get_mut(&old) {
            let mut dead = Member::clone(entry);
            if dead.storage == newcomer.storage {
                dead.storage = ADDRESS_UNKNOWN;
            }
            if dead.rpc == newcomer.rpc {
                dead.rpc = ADDRESS_UNKNOWN;
            }
            *entry = Arc::new(dead);
        }
    }
}

fn check_name(host: HostId, what: &'static str, name: &str) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(MembershipError::NameTooLong { host, what });
    }
    Ok(())
}

/// Checks that `has` contains all of `needed`.
fn check_features(host: HostId, needed: u64, has: u64) -> Result<()> {
    match needed & !has {
        0 => Ok(()),
        missing => Err(MembershipError::MissingFeatures { host, missing }),
    }
}

/// The members as they are when the movement of `host` is finished and no other one: the `after` of
/// [`crate::ranges::movements`]. The `before` is [`unmoved`].
pub fn finished(snapshot: &ClusterSnapshot, host: HostId) -> crate::Members {
    overlap::resolve(&snapshot.members, &|m| m.host_id == host)
}

/// The members as if no movement had begun.
pub fn unmoved(snapshot: &ClusterSnapshot) -> crate::Members {
    overlap::resolve(&snapshot.members, &|_| false)
}

#[cfg(test)]
mod moved_tests;
#[cfg(test)]
mod quorum_tests;
#[cfg(test)]
mod tests;

/// The ring before and after all movements, for the tests of other modules.
#[cfg(test)]
pub(crate) mod tests_support {
    use crate::Members;

    pub(crate) fn resolve(members: &Members, done: bool) -> Members {
        super::overlap::resolve(members, &|_| done)
    }
}
