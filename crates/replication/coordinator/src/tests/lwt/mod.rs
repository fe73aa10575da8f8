//! Lightweight transactions of several nodes.

mod faults;
mod horizon;
mod moving;
mod operations;
mod single;
mod world;
