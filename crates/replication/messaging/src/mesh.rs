//! Messages between the messaging of one node's shards.

use crate::security::Encryption;
use internode::{Agreement, Hello};
use rt::{Mesh, MovedStream, Published};

/// An accepted connection that is moved to the shard that serves it.
pub(crate) struct Adopt {
    pub(crate) conn: MovedStream,
    pub(crate) hello: Hello,
    pub(crate) agreement: Agreement,
    /// Bytes received after the HELLO.
    pub(crate) rest: Vec<u8>,
}

/// The way between the messaging of a node's shards. Made before the shards start.
pub struct MessagingMesh {
    pub(crate) calls: Mesh<Box<Adopt>, ()>,
    /// Keys and rules of encrypted connections; none: all are in the clear.
    pub(crate) encryption: Published<Encryption>,
}

impl MessagingMesh {
    /// Creates the mesh of a node with so many shards.
    pub fn new(shards: u16) -> MessagingMesh {
        // Waiting handshakes are limited where they are accepted; this only has to be as large.
        MessagingMesh { calls: Mesh::new(shards, 1024), encryption: Published::default() }
    }
}
