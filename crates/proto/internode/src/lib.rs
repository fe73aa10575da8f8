//! The protocol between nodes: bytes in, frames and messages out, and back.
//!
//! Owns: the handshake ([`hello`]), the refusals and their texts ([`identity`]), frames ([`frame`]), the
//! numbers of verbs ([`verb`]), the messages that no other crate encodes ([`message`], [`read`], [`scan`],
//! [`reply`]). Never: sockets, clocks, schemas; payloads of gossip, Paxos and the metadata log are opaque here
//! and built by those crates. See `docs/formats/internode.md`.
//!
//! INV-internode-1: no bytes from outside cause a panic, or an allocation larger than the bytes
//! already received or the decoder's limit.
//! INV-internode-2: a frame is handed out only whole and only when both its checksums fit.
//! INV-internode-3: numbers of verbs, kinds, errors and refusals are never given a second meaning.
//!
//! Reading order: [`hello`], [`identity`], [`verb`], [`frame`], [`reply`], [`message`], [`read`], [`scan`].

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub mod filtered;
pub mod frame;
pub mod fuzz;
pub mod hello;
pub mod identity;
pub mod index_search;
pub mod message;
pub mod read;
pub mod reply;
pub mod scan;
pub mod vector_search;
pub mod verb;

pub use filtered::{FilteredAnswer, FilteredRead, encode_filtered_read};
pub use frame::{
    Frame, FrameDecoder, FrameEncoder, FrameError, FrameHeader, FrameKind, FrameTooLong,
    patch_deadline,
};
pub use hello::{Features, Handshake, HandshakeError, Hello, HelloAck, Lane, RefusalCode, Refused};
pub use identity::{Agreement, Identity, Refusal, VersionRange, judge};
pub use index_search::{decode_index_search, decode_matches, encode_index_search, encode_matches};
pub use message::{
    ForwardAck, ForwardTarget, Hint, Mutation, MutationFlags, MutationForward, Ping,
};
pub use read::{ReadLimits, ReadRequest, encode_read};
pub use reply::ErrorReply;
pub use scan::{ScanCost, ScanEnd, ScanPage, ScanRequest};
pub use vector_search::{
    decode_neighbours, decode_vector_search, encode_neighbours, encode_vector_search,
};
pub use verb::Verb;

#[cfg(test)]
mod tests;
