//! Requests to several nodes, and this node's part in those of other coordinators.
//!
//! Owns: a module for each kind of request, around a struct of its own. Never: CQL, membership,
//! liveness.
//!
//! Reading order: [`read`], [`index`], [`scan`], [`write`], [`batch`], [`counter`], [`peer_writes`].

pub(crate) mod batch;
pub(crate) mod counter;
pub(crate) mod index;
pub(crate) mod peer_writes;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod write;
