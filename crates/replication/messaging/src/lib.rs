//! Connections between nodes: handshake, requests and answers, back-pressure.
//!
//! Owns: the sockets of `storage_port`, the connections and which of them are encrypted (`security`), requests that wait for answers and their deadlines, the
//! bounds on all of it. Never: interprets a message, retries a request, or chooses a replica. Bytes are
//! `internode`'s.
//!
//! A connection carries requests one way only: the connecting side asks, the accepting side answers. There is one
//! per peer, shard of the peer and lane, opened at first use. The accepting side is always read while the peer
//! takes its answers, so two nodes cannot wait for each other.
//!
//! Invariants:
//! INV-messaging-1: every accepted request completes exactly once, not later than its deadline and [`TICK`],
//! unless it is cancelled.
//! INV-messaging-2: `maybe_delivered: false` means that the peer's handler did not and will not see the request.
//! INV-messaging-3: whatever a peer sends or fails to read, only its own connection suffers.
//! INV-messaging-4: where the policy asks for encryption, no request leaves and none is served in the clear.
//!
//! Reading order: [`Messaging`], [`Handler`], [`Completions`], then `env`, `hooks`, `outbound` (the side that
//! asks), `inbound` (the side that answers), `outbox`, `pending`, `dropped_log`, `clocks`; `cut` is for tests. See
//! `docs/formats/internode.md`.

mod clocks;
mod completions;
mod counters;
mod cut;
mod dropped_log;
mod env;
mod error;
mod hooks;
mod inbound;
mod io;
mod link;
mod mesh;
mod messaging;
mod outbound;
mod outbox;
mod peer;
mod peer_log;
mod pending;
mod security;
mod settings;
#[cfg(test)]
mod tests;

pub use clocks::{CLOCK_OFFSET_MAX, ClockVerdict, judge};
pub use completions::{Answer, Completion, Completions, SendId};
pub use counters::{KindStats, KindsStats, PeerStats};
pub use error::{Bound, MessagingError, OpenError};
pub use hooks::{Admission, Compressed, Hooks, LinkFailed, LinkFailure, NewerEpoch, Places};
pub use inbound::{Handler, Request, Responder};
pub use mesh::MessagingMesh;
pub use messaging::Messaging;
pub use outbound::{Client, RequestFuture, Response};
pub use peer::{Outgoing, Peer};
pub use pending::TICK;
pub use security::{
    Encryption, Endpoints, Making, Nearness, PeerChecks, Policy, Scope, Strictness, Wire,
};
pub use settings::Settings;
