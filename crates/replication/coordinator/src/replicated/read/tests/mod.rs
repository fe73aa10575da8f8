//! Three or four nodes under the simulator that read from each other.
#![allow(clippy::disallowed_types, reason = "facts are shared with the nodes' main functions")]

mod concurrent;
mod divergence;
mod filtered;
mod hostile_pages;
mod indexed;
mod local;
mod nearest;
mod nodes;
mod scans;
mod serving;
mod sink;
mod trouble;
