//! The protocol between nodes.
