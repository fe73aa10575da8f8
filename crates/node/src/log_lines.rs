//! Lines of the log that tools wait for, word for word.
//!
//! ScyllaDB logs the first when connections of clients may be encrypted. Cassandra logs the next two when clients can
//! connect; test harnesses, init scripts and container probes look for either. The last ends a start of ScyllaDB, which
//! its tools look for.

use std::net::SocketAddr;

use cql_server::PortEncryption;

/// Connections of clients may be encrypted.
pub(crate) const ENCRYPTING: &str = "Enabling encrypted CQL connections between client and node";

/// Clients can connect from now on.
pub(crate) const COMPLETE: &str = "Startup complete";

/// The CQL port is open.
pub(crate) fn listening(at: SocketAddr, encryption: PortEncryption) -> String {
    let encryption = match encryption {
        PortEncryption::Plain => "unencrypted",
        PortEncryption::Optional => "optionally encrypted",
        PortEncryption::Required => "encrypted",
    };
    // Java writes an address without a name behind a slash.
    format!("Starting listening for CQL clients on /{at} ({encryption})...")
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
            listening("127.0.8.50:19842".parse().unwrap(), PortEncryption::Plain),
            "Starting listening for CQL clients on /127.0.8.50:19842 (unencrypted)..."
        );
        assert!(initialized().ends_with(" initialization completed."));
    }
}
