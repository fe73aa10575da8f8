//! Membership changes of nodes with their data: join, move, leave; and keyspaces that get other replicas.
//!
//! Owns: `metadata/identity` ([`identity`]), founding and joining ([`joining`], [`bootstrap`]), members that go
//! ([`leaving`]) or take another token ([`moving`]), copies on the order of another node ([`copies`]), operations that are
//! aborted ([`abort`]), what is left to copy after a restart ([`resume_state`]), keyspaces that get other replicas
//! ([`replication_change`]), removal of data that is not owned ([`cleaning`]), finding members that answer elsewhere
//! ([`address_discovery`]). Never: decides who owns what or which step follows (`cluster::topology`), who is alive
//! (`liveness`), copies bytes (`streaming`).
//!
//! Invariants: INV-cleaning-1 ([`cleaning`]), INV-received-2 ([`resume_state`]).
//!
//! Reading order: [`orders`], `env`, `steps` (one change of the metadata), [`copies`], [`leaving`], [`bootstrap`].

pub mod abort;
pub mod address_discovery;
pub mod bootstrap;
pub mod cleaning;
pub mod copies;
pub mod copy_progress;
pub mod description;
mod env;
mod error;
pub mod fuzz;
pub mod hint_handover;
pub mod identity;
pub mod introduction;
pub mod joining;
pub mod leaving;
pub mod moving;
pub mod orders;
pub mod replication_change;
pub mod resume_state;
pub mod seeds;
mod steps;
mod unreachable_seeds;

use std::rc::Rc;

use cluster::ClusterSnapshot;
use stdx::Instant;

pub use env::{HintsMesh, TopologyParts};
pub use error::{Result, TopologyError};

use abort::Aborts;
use address_discovery::AddressDiscovery;
use bootstrap::Bootstrap;
use cleaning::Cleanup;
use copies::RangeCopies;
use env::Env;
use hint_handover::HintHandover;
use leaving::Departure;
use moving::Relocation;
use orders::Orders;
use replication_change::ReplicationChange;

/// The topology operations of one shard. Clones share.
#[derive(Clone)]
pub struct Topology {
    env: Rc<Env>,
}

impl Topology {
    /// Nothing is in progress.
    pub fn new(parts: TopologyParts) -> Topology {
        Topology { env: Rc::new(Env::new(parts)) }
    }

    /// The operations in progress.
    pub fn orders(&self) -> &Orders {
        &self.env.orders
    }

    /// Joining, to its end.
    pub fn bootstrap(&self) -> Bootstrap {
        Bootstrap::new(&self.env)
    }

    /// Members that go.
    pub fn departure(&self) -> Departure {
        Departure::new(&self.env)
    }

    /// Another token, and `rebuild`.
    pub fn relocation(&self) -> Relocation {
        Relocation::new(&self.env)
    }

    /// Operations that are aborted.
    pub fn aborts(&self) -> Aborts {
        Aborts::new(&self.env)
    }

    /// Copies on the order of another node.
    pub fn copies(&self) -> RangeCopies {
        RangeCopies::new(&self.env)
    }

    /// Keyspaces that get other replicas.
    pub fn replication_change(&self) -> ReplicationChange {
        ReplicationChange::new(&self.env)
    }

    /// Removal of data that this node does not own.
    pub fn cleanup(&self) -> Cleanup {
        Cleanup::new(&self.env)
    }

    /// Members that answer elsewhere than the metadata says.
    pub fn address_discovery(&self) -> AddressDiscovery {
        AddressDiscovery::new(&self.env)
    }

    /// The hints of a node that leaves.
    pub fn hint_handover(&self) -> HintHandover {
        HintHandover::new(&self.env)
    }

    /// Gossip begins now.
    pub fn gossip_began(&self, now: Instant) {
        self.env.gossips_since.set(now);
    }

    /// Follows a change of the metadata. Shard 0 only.
    pub fn metadata_changed(&self, before: &ClusterSnapshot, after: &ClusterSnapshot) {
        let copies = self.copies();
        copies.forget_received(before, after);
        self.env.orders.note(before, after);
        copies.end_copies(before, after);
    }
}
