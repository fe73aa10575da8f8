//! Lines of the log that tools wait for, word for word.
//!
//! Cassandra logs the first two when clients can connect; test harnesses, init scripts and container
//! probes look for either. The third ends a start of ScyllaDB, which its tools look for.

use std::net::SocketAddr;

/// Clients can connect from now on.
pub(crate) const COMPLETE: &str = "Startup complete";

/// The CQL port is open.
pub(crate) fn listening(at: SocketAddr) -> String {
    // Java prints an address without a name after a slash.
    format!("Starting listening for CQL clients on /{at} (unencrypted)...")
}

/// The node serves.
pub(crate) fn initialized() -> String {
    format!("Helenus version {} initialization completed.", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first recorded from a Cassandra 5.0.9.
    #[test]
    fn lines_are_those_that_tools_wait_for() {
        assert_eq!(
            listening("127.0.8.50:19842".parse().unwrap()),
            "Starting listening for CQL clients on /127.0.8.50:19842 (unencrypted)..."
        );
        assert!(initialized().ends_with(" initialization completed."));
    }
}
