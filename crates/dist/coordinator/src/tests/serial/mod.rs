//! Lightweight transactions of several nodes.

mod faults;
mod moving;
mod operations;
mod single;
mod world;
