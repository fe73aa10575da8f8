//! [`Progress`]: how much the clients of a run still ask.

use std::cell::Cell;

/// Shared by all clients of a run.
#[derive(Default)]
pub struct Progress {
    left: Cell<u64>,
    running: Cell<usize>,
}

impl Progress {
    /// Begins with that many clients, which share that many requests.
    pub fn begin(&self, requests: u64, clients: usize) {
        self.left.set(requests);
        self.running.set(clients);
    }

    /// Ends all requests.
    pub fn stop(&self) {
        self.left.set(0);
    }

    /// Returns true if requests may still be sent.
    pub fn goes_on(&self) -> bool {
        self.left.get() > 0
    }

    /// Takes one of the remaining requests; false: none is left.
    pub fn take(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    /// A client has ended.
    pub fn ended(&self) {
        self.running.set(self.running.get().saturating_sub(1));
    }

    /// Returns true if all clients have ended.
    pub fn is_over(&self) -> bool {
        self.running.get() == 0
    }
}
