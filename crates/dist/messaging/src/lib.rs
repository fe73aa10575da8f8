//! Connections between nodes.
