//! Metrics of one shard's server about its connections, under the exported names.

/// Counters, gauges and stages of one shard's server.
pub(crate) struct Counters {
    pub(crate) requests: telemetry::Counter,
    pub(crate) protocol_errors: telemetry::Counter,
    pub(crate) auth_failures: telemetry::Counter,
    pub(crate) logins_delayed: telemetry::Counter,
    pub(crate) logins_refused: telemetry::Counter,
    pub(crate) logins_shed: telemetry::Counter,
    /// Logins under verification.
    pub(crate) auth_stage: telemetry::Stage,
    pub(crate) bytes_received: telemetry::Counter,
    pub(crate) bytes_sent: telemetry::Counter,
    pub(crate) refused_connections: telemetry::Counter,
    /// Requests above a limit per second.
    pub(crate) rate_of_all: telemetry::Counter,
    pub(crate) rate_of_address: telemetry::Counter,
    pub(crate) rate_of_role: telemetry::Counter,
    /// TLS handshakes of clients.
    pub(crate) handshakes: telemetry::Counter,
    pub(crate) failed_handshakes: telemetry::Counter,
    pub(crate) shed_handshakes: telemetry::Counter,
    pub(crate) expiring_certificates: telemetry::Counter,
    /// Connections closed because their clients did not read.
    pub(crate) stalled: telemetry::Counter,
    pub(crate) acknowledged: telemetry::Counter,
    pub(crate) connections: telemetry::Gauge,
    pub(crate) waiting: telemetry::Gauge,
    /// Bytes charged to the shard's account.
    pub(crate) memory: telemetry::Gauge,
}

impl Counters {
    pub(crate) fn new(shard: &telemetry::Shard) -> Counters {
        let counter = |name, help| shard.counter(name, help, &[]);
        let above_rate = |limit| {
            let help = "requests refused because of a limit of requests per second";
            shard.counter("cql_requests_above_rate_total", help, &[("limit", limit)])
        };
        Counters {
            rate_of_all: above_rate("all"),
            rate_of_address: above_rate("address"),
            rate_of_role: above_rate("role"),
            requests: counter("cql_requests_total", "frames received from clients"),
            protocol_errors: counter("cql_protocol_errors_total", "frames that were malformed"),
            auth_stage: shard.stage("Native-Transport-Auth-Requests"),
            auth_failures: counter("cql_auth_failures_total", "logins that failed"),
            logins_delayed: counter(
                "cql_logins_delayed_total",
                "logins that waited because of failed logins before",
            ),
            logins_refused: counter(
                "cql_logins_refused_total",
                "logins refused because of many failed logins of their address",
            ),
            logins_shed: counter(
                "cql_logins_shed_total",
                "logins refused because too many passwords were being verified",
            ),
            bytes_received: counter("cql_received_bytes_total", "bytes received from clients"),
            bytes_sent: counter("cql_sent_bytes_total", "bytes sent to clients"),
            refused_connections: counter(
                "cql_connections_refused_total",
                "connections closed at once because of a limit",
            ),
            handshakes: counter(
                "cql_tls_handshakes_total",
                "TLS handshakes of clients that succeeded",
            ),
            failed_handshakes: counter(
                "cql_tls_handshakes_failed_total",
                "connections closed because their TLS handshake failed",
            ),
            shed_handshakes: counter(
                "cql_tls_handshakes_shed_total",
                "connections closed because too many TLS handshakes were under way",
            ),
            expiring_certificates: counter(
                "cql_tls_expiring_certificates_total",
                "handshakes of clients whose certificates end soon",
            ),
            acknowledged: counter(
                "cql_early_acknowledgements_total",
                "received bytes acknowledged at once because the rest of a request was missing",
            ),
            stalled: counter(
                "cql_connections_stalled_total",
                "connections closed because their clients read no answers",
            ),
            connections: shard.gauge("cql_connections", "connections now", &[]),
            memory: shard.gauge(
                "cql_request_memory_bytes",
                "memory of requests, of their answers and of what clients have not read",
                &[],
            ),
            waiting: shard.gauge("cql_requests_in_flight", "requests that wait now", &[]),
        }
    }
}
