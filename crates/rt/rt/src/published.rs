//! A value that one shard publishes for all shards of a node.

use rt_native::cross::lock;
use std::sync::{Arc, Mutex};

/// The latest value that was published, if any. Reading takes a lock: not for the path of requests.
pub struct Published<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for Published<T> {
    fn default() -> Published<T> {
        Published(Mutex::new(None))
    }
}

impl<T> Published<T> {
    /// Replaces the value; those who read the earlier one keep it.
    pub fn publish(&self, value: Arc<T>) {
        *lock(&self.0) = Some(value);
    }

    /// Returns the latest value.
    pub fn latest(&self) -> Option<Arc<T>> {
        lock(&self.0).clone()
    }
}
