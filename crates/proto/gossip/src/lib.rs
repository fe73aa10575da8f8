//! Liveness of nodes: heartbeats and small state spread from node to node, and conviction of silent ones.
//!
//! Owns: the machine [`Gossip`] (SYN, ACK, ACK2 by digests as in Cassandra), the phi accrual failure detector
//! ([`detector`]), the messages' encoding. Never: IO, clocks, randomness (arguments); the members and their
//! tokens, those are in the metadata log: gossip about others is ignored.
//!
//! Invariants: INV-gossip-1: the events Up and Down of a peer alternate while it is a member, beginning with Up.
//! INV-gossip-2: (generation, version) known of a peer never goes back. INV-gossip-3: memory is
//! bounded by the members. INV-gossip-4: a peer is up only after it answered this node itself since
//! it was last down; what others tell of it is not enough.
//!
//! Reading order: [`api`], [`state`], [`message`], [`detector`], [`machine`].

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod api;
pub mod detector;
pub mod fuzz;
pub mod machine;
pub mod message;
pub mod state;

pub use api::{Config, DownReason, Event, Input, Member, Output, PeerView};
pub use detector::Detector;
pub use machine::Gossip;
pub use message::Message;
pub use state::{AppState, Digest, DiskUsage, Flags, PeerState, next_generation};

#[cfg(test)]
mod sim;
