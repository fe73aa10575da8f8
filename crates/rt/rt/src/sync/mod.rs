//! Single-threaded primitives: FIFO, deterministic, never across shards (that is [`crate::Mesh`]).

mod notify;
pub mod oneshot;
pub mod queue;
mod semaphore;
pub(crate) mod waiters;

pub use notify::{Notified, Notify};
pub use semaphore::{Acquire, Permit, Semaphore};
