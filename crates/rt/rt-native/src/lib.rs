//! The real machine: shard threads, reactor, timers, files, sockets.
//!
//! Owns: threads, the OS clocks and random source, every system call, the only unsafe code.
//! Never: tasks, scheduling or anything that a simulated node must do alike (that is `rt`).
//!
//! Invariants:
//! - INV-native-1: a buffer handed to the kernel stays with its operation until the kernel is done,
//!   whatever happens to the future that waits for it.
//! - INV-native-2: a file descriptor stays open while an operation on it is under way.
//! - INV-native-3: one shard is one thread; only [`cross`], [`pool`] and [`service`] cross threads.
//!
//! Reading order: [`shard`], [`file`], [`uring`], [`pool`], [`net`], [`fs`], [`buf`], [`cross`], [`service`].

pub mod buf;
pub mod counting;
pub mod cross;
mod descriptor;
pub mod error;
pub mod file;
pub mod fs;
pub mod net;
pub mod pool;
mod prefetch;
pub mod service;
pub mod shard;
mod uring;

pub use buf::{ALIGN, Buf};
pub use file::{File, OpenOptions};
pub use net::{Conn, Listener, MovedConn};
pub use prefetch::prefetch;
pub use shard::{Env, IoBackend, NativeOptions, Threads, start};
