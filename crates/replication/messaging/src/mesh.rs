//! Messages between the messaging of one node's shards.

use internode::{Agreement, Hello};
use rt::{Mesh, MovedStream};

/// An accepted connection on its way to the shard that serves it.
pub(crate) struct Adopt {
    pub(crate) conn: MovedStream,
    pub(crate) hello: Hello,
    pub(crate) agreement: Agreement,
    /// Bytes that came behind the HELLO.
    pub(crate) rest: Vec<u8>,
}

/// The way between the messaging of a node's shards. Made before the shards start.
pub struct MessagingMesh {
    pub(crate) calls: Mesh<Box<Adopt>, ()>,
}

impl MessagingMesh {
    /// For a node of so many shards.
    pub fn new(shards: u16) -> MessagingMesh {
        // Handshakes that wait are bounded where they are accepted; this only has to be as large.
        MessagingMesh { calls: Mesh::new(shards, 1024) }
    }
}
