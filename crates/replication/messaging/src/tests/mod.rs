//! Messaging under the simulator, and once natively.
//!
//! `ledger` is the checker of what must hold for every request, with its corruptors; `harness`
//! makes nodes; the others are scenarios.

mod bounds;
mod cut;
mod directed;
mod encryption;
mod faults;
mod handshakes;
mod harness;
mod hostile;
mod ledger;
mod native;
mod shards;
