//! Several nodes under the simulator that write to each other.
#![allow(clippy::disallowed_types, reason = "facts are shared with the nodes' main functions")]

mod backpressure;
mod batches;
mod counting;
mod faults;
mod levels;
mod lwt;
mod moving;
mod nodes;
mod outdated_reads;
mod scan_pages;
mod serving;
mod table;
mod traces;
