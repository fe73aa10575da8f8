//! Several nodes under the simulator that write to each other.
#![allow(clippy::disallowed_types, reason = "facts are shared with the nodes' main functions")]

mod batches;
mod faults;
mod levels;
mod moving;
mod nodes;
mod serial;
mod serving;
mod table;
