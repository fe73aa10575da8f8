//! Lines of the log that tools wait for, word for word.
//!
//! ScyllaDB logs the first when connections of clients may be encrypted. Cassandra logs the next two when clients can
//! connect; test harnesses, init scripts and container probes look for either. The last ends a start of ScyllaDB, which
//! its tools look for. One more line is for a person: how to connect.

use std::net::SocketAddr;

use conf::{Authenticator, Options};
use cql_server::PortEncryption;

use crate::parts::encrypted_port;

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

/// Returns how a person on this machine connects; `None` while clients are not served.
pub(crate) fn connecting(options: &Options, encryption: PortEncryption) -> Option<String> {
    if !options.start_native_transport {
        return None;
    }
    let address = match options.rpc_address.is_wildcard() {
        true => options.announced_rpc_address(),
        false => &options.rpc_address,
    };
    let mut line =
        format!("Connect with: helenus cqlsh {address} {}", options.native_transport_port);
    // A port of its own for TLS leaves the usual one in the clear.
    if encryption == PortEncryption::Required && encrypted_port(options).is_none() {
        line.push_str(" --ssl");
    }
    if options.authenticator != Authenticator::AllowAll {
        line.push_str(" -u ROLE");
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_learns_how_to_connect() {
        let plain = PortEncryption::Plain;
        let mut options = Options::default();
        let line = |options: &Options, encryption| connecting(options, encryption).unwrap();
        assert_eq!(line(&options, plain), "Connect with: helenus cqlsh 127.0.0.1 9042");
        options.authenticator = Authenticator::Password;
        options.native_transport_port = 9142;
        options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
        options.broadcast_rpc_address = Some(conf::Address::Ip([192, 0, 2, 1].into()));
        let expected = "Connect with: helenus cqlsh 192.0.2.1 9142";
        assert_eq!(line(&options, plain), format!("{expected} -u ROLE"));
        assert_eq!(line(&options, PortEncryption::Required), format!("{expected} --ssl -u ROLE"));
        options.native_transport_port_ssl = Some(9143);
        assert_eq!(line(&options, PortEncryption::Required), format!("{expected} -u ROLE"));
        options.start_native_transport = false;
        assert_eq!(connecting(&options, plain), None);
    }

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
