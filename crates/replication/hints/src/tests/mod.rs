//! Hints in the simulator: a node that keeps hints, others that receive them.

mod bounds;
mod crash;
mod damage;
mod directed;
mod faults;
mod formats;
mod harness;
mod log_capture;
mod sealed;
mod shards;
