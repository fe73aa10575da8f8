//! Lightweight transactions of several nodes.

mod faults;
mod operations;
mod single;
mod world;
