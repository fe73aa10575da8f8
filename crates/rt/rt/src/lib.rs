//! The only door to the machine: tasks, time, randomness, files, sockets, cross-shard calls, services.
//!
//! Owns: the one executor of both worlds, the handles, the single-threaded primitives, the mesh.
//! Never: decides anything about data; never lets a type of `rt-native` or `rt-sim` that differs
//! between the two worlds through to its users.
//!
//! Invariants:
//! - INV-rt-1: handles are concrete structs over a private enum of the two worlds; upper layers
//!   cannot tell which one they run in.
//! - INV-rt-2: everything that happens on a simulated shard follows from the world's seed.
//! - INV-rt-3: every task has a gate; a shard that ends drops all its tasks.
//! - INV-rt-4: a task's future is polled and dropped on its own shard only.
//!
//! Reading order: [`Rt`], [`Gate`], [`Fs`], [`Conn`], [`Mesh`], [`service`], [`sync`], [`Machine`], [`sim`].

mod env;
mod executor;
mod file;
mod file_keys;
mod gate;
mod handle;
mod handshake_pool;
mod machine;
mod mesh;
mod net;
mod published;
pub mod service;
mod shared;
pub mod sim;
mod small_file;
mod stream;
pub mod sync;
mod timer;
mod tls_handshake;
mod tls_stream;

pub use executor::Group;
pub use file::{DirEntry, DiskSpace, File, FileLock, Fs, Metadata, OpenOptions};
pub use file_keys::{FileKeys, KeyAnswer, KeyRequest};
pub use gate::{Closed, Gate};
pub use handle::{Rt, YieldIfDue};
pub use handshake_pool::{HandshakePool, Handshakes};
pub use machine::{Machine, Main, NodeSpec, Running, Stopper};
pub use mesh::{ForeignCaller, Mesh, MeshError, Reply};
pub use net::{Conn, ListenOptions, Listener, MovedConn, resolve};
pub use published::Published;
pub use rt_native::counting::{Counting, held_bytes};
pub use rt_native::{ALIGN, Buf, IoBackend, NativeOptions, prefetch};
pub use small_file::{SmallContent, damaged};
pub use stdx::{Instant, IoError, IoErrorKind, ShardId, WallMicros};
pub use stream::{Accepted, MovedStream, Stream};
pub use timer::Elapsed;
pub use tls_handshake::is_handshake as is_tls_handshake;
pub use tls_handshake::{NotConnected, PlainText, TlsClient, TlsClock, TlsServer};
pub use tls_stream::TlsInfo;

#[cfg(test)]
mod tests;
