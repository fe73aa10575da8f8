//! The simulated machine: virtual time, disks, network, crashes; one thread, one seed.
//!
//! Owns: the order of everything (which shard, which task, which event), the disks of all nodes,
//! the network between them, the trace. Never: threads, the real clock, real files, real randomness.
//!
//! Invariants:
//! - INV-sim-1: every choice comes from the world's generator, every effect goes into the trace; so
//!   two runs of one seed agree at every checkpoint.
//! - INV-sim-2: a dead process has no effect: its calls never return, its drops change nothing.
//! - INV-sim-3: what a power cut leaves is what was synced, plus any part of the rest.
//! - INV-sim-4: no borrow of the world's state is held while a task runs or is dropped.
//!
//! Reading order: [`state`], [`world`], [`env`], [`disk`], [`fs`], [`link`], [`net`], [`trace`].

pub mod disk;
pub mod env;
pub mod fs;
pub mod link;
pub mod net;
pub mod state;
pub mod trace;
pub mod world;

pub use disk::{CrashKind, DataCall};
pub use env::Env;
pub use fs::{DiskControl, File, FileLock, OpenOptions};
pub use link::{LinkOptions, NetworkControl};
pub use net::{Conn, Listener, MovedConn, OnBegin};
pub use state::{ProcessId, Shard, WorldOptions};
pub use world::{Stuck, World};
