//! Limits and times; each limit is hit by a test.

use std::time::Duration;

/// Settings of a node's messaging; the same on all its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Largest payload of one message, bytes, both directions.
    pub payload_bytes_max: usize,
    /// Time for connecting and the handshake together.
    pub connect_timeout: Duration,
    /// Pause after the first failed attempt to connect, before jitter; doubles with each further one.
    pub backoff_min: Duration,
    /// Longest pause between attempts, before jitter of 50 to 150 %.
    pub backoff_max: Duration,
    /// A connection without requests is closed after this time.
    pub idle_timeout: Duration,
    /// Interval of the connecting side's pings.
    pub keepalive_interval: Duration,
    /// A connection on which nothing is received for so long is closed.
    pub keepalive_timeout: Duration,
    /// A peer that reads nothing for so long is disconnected.
    pub write_stall: Duration,
    /// Bytes that wait to be sent on one connection above which requests are refused; one message
    /// may stick out.
    pub queue_bytes_max: usize,
    /// Limit for all outgoing connections of a shard together.
    pub queue_bytes_shard_max: usize,
    /// Requests of one connection that wait for their answer.
    pub in_flight_max: usize,
    /// Received requests of one connection that are not answered yet; more are answered with
    /// Overloaded.
    pub serving_max: usize,
    /// Payload bytes of those.
    pub serving_bytes_max: usize,
    /// Payload bytes of received, unanswered requests of a shard.
    pub serving_bytes_shard_max: usize,
    /// Bytes of answers that wait to be sent on one connection above which nothing is read from it;
    /// at four times as many it is closed.
    pub response_bytes_max: usize,
    /// Handshakes of accepted connections at once; more are closed.
    pub handshakes_max: usize,
    /// True if payloads to other machines are compressed, if the peer agrees. Never on loopback.
    pub compression: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            payload_bytes_max: internode::frame::PAYLOAD_BYTES_MAX,
            connect_timeout: Duration::from_secs(2),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(600),
            keepalive_interval: Duration::from_secs(2),
            keepalive_timeout: Duration::from_secs(6),
            write_stall: Duration::from_secs(6),
            queue_bytes_max: 32 << 20,
            queue_bytes_shard_max: 128 << 20,
            in_flight_max: 16_384,
            serving_max: 4096,
            serving_bytes_max: 32 << 20,
            serving_bytes_shard_max: 128 << 20,
            response_bytes_max: 16 << 20,
            handshakes_max: 256,
            compression: false,
        }
    }
}
