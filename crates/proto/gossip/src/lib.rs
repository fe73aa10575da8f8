//! Liveness of nodes.
