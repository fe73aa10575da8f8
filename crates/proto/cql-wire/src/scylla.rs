//! Keys of ScyllaDB's protocol extensions, which shard-aware drivers look for in SUPPORTED and set in STARTUP.
//!
//! Owns names and number formats only; which shard owns a token is decided by the ring. Source: ScyllaDB's public
//! documentation "CQL protocol extensions" and "protocol v4 extensions".

/// Shard that the connection is on, 0-based, decimal.
pub const SHARD: &str = "SCYLLA_SHARD";
/// Shards of the node, decimal.
pub const NR_SHARDS: &str = "SCYLLA_NR_SHARDS";
/// Class name of the partitioner.
pub const PARTITIONER: &str = "SCYLLA_PARTITIONER";
/// Algorithm that maps tokens to shards.
pub const SHARDING_ALGORITHM: &str = "SCYLLA_SHARDING_ALGORITHM";
/// High bits of the token that the algorithm leaves out, decimal.
pub const SHARDING_IGNORE_MSB: &str = "SCYLLA_SHARDING_IGNORE_MSB";
/// Port on which the client's source port picks the shard.
pub const SHARD_AWARE_PORT: &str = "SCYLLA_SHARD_AWARE_PORT";
/// The same with TLS.
pub const SHARD_AWARE_PORT_SSL: &str = "SCYLLA_SHARD_AWARE_PORT_SSL";
/// SUPPORTED: one value, `LWT_OPTIMIZATION_META_BIT_MASK=<decimal>`. STARTUP: the client wants the mark.
pub const LWT_ADD_METADATA_MARK: &str = "SCYLLA_LWT_ADD_METADATA_MARK";
/// Result metadata ids in v4 as in v5.
pub const USE_METADATA_ID: &str = "SCYLLA_USE_METADATA_ID";

/// The one algorithm: the token biased by 2^63, shifted left by the ignored bits, times the shards, high 64 bits.
pub const ALGORITHM_BIASED_TOKEN_ROUND_ROBIN: &str = "biased-token-round-robin";
/// The one partitioner.
pub const PARTITIONER_MURMUR3: &str = "org.apache.cassandra.dht.Murmur3Partitioner";
/// Bit of prepared metadata flags that marks a conditional statement.
pub const LWT_MARK: u32 = 0x8000_0000;
const LWT_MASK_KEY: &str = "LWT_OPTIMIZATION_META_BIT_MASK=";

/// Sharding of a node, as its clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardingInfo {
    /// Shard of the connection.
    pub shard: u16,
    /// Shards of the node, 1 at least.
    pub shard_count: u16,
    /// Bits of the token left out, below 64.
    pub ignore_msb: u8,
    /// Port for connections to a chosen shard.
    pub shard_aware_port: Option<u16>,
    /// The same with TLS.
    pub shard_aware_port_ssl: Option<u16>,
}

impl ShardingInfo {
    /// The options for SUPPORTED.
    pub fn supported_options(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut options = vec![
            (SHARD, vec![self.shard.to_string()]),
            (NR_SHARDS, vec![self.shard_count.to_string()]),
            (PARTITIONER, vec![PARTITIONER_MURMUR3.to_owned()]),
            (SHARDING_ALGORITHM, vec![ALGORITHM_BIASED_TOKEN_ROUND_ROBIN.to_owned()]),
            (SHARDING_IGNORE_MSB, vec![self.ignore_msb.to_string()]),
        ];
        for (key, port) in [
            (SHARD_AWARE_PORT, self.shard_aware_port),
            (SHARD_AWARE_PORT_SSL, self.shard_aware_port_ssl),
        ] {
            options.extend(port.map(|port| (key, vec![port.to_string()])));
        }
        options
    }

    /// Parses SUPPORTED as a client does. `None` when the node is not sharded in this way, or its
    /// values are invalid.
    pub fn from_supported(options: &[(&str, Vec<&str>)]) -> Option<ShardingInfo> {
        let get = |key: &str| {
            options
                .iter()
                .find(|(name, _)| *name == key)
                .and_then(|(_, values)| values.first().copied())
        };
        let shard = get(SHARD)?.parse().ok()?;
        let shard_count = get(NR_SHARDS)?.parse().ok()?;
        let ignore_msb = get(SHARDING_IGNORE_MSB)?.parse().ok().filter(|bits| *bits < 64)?;
        let known = get(PARTITIONER)? == PARTITIONER_MURMUR3
            && get(SHARDING_ALGORITHM)? == ALGORITHM_BIASED_TOKEN_ROUND_ROBIN
            && shard < shard_count;
        known.then_some(ShardingInfo {
            shard,
            shard_count,
            ignore_msb,
            shard_aware_port: get(SHARD_AWARE_PORT).and_then(|port| port.parse().ok()),
            shard_aware_port_ssl: get(SHARD_AWARE_PORT_SSL).and_then(|port| port.parse().ok()),
        })
    }
}

/// The value of [`LWT_ADD_METADATA_MARK`] in SUPPORTED.
pub fn lwt_mark_value() -> String {
    format!("{LWT_MASK_KEY}{LWT_MARK}")
}

/// The bit mask out of that value, for clients.
pub fn parse_lwt_mark(value: &str) -> Option<u32> {
    value.strip_prefix(LWT_MASK_KEY)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharding_info_comes_back_from_supported() {
        let info = ShardingInfo {
            shard: 1,
            shard_count: 2,
            ignore_msb: 12,
            shard_aware_port: Some(19042),
            shard_aware_port_ssl: None,
        };
        let options = info.supported_options();
        let borrowed: Vec<(&str, Vec<&str>)> = options
            .iter()
            .map(|(key, values)| (*key, values.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(ShardingInfo::from_supported(&borrowed), Some(info));
        let mut bad = borrowed.clone();
        bad[0].1 = vec!["2"];
        assert_eq!(ShardingInfo::from_supported(&bad), None, "a shard must be below the count");
        bad[0].1 = vec!["1"];
        bad[4].1 = vec!["64"];
        assert_eq!(ShardingInfo::from_supported(&bad), None);
        assert_eq!(ShardingInfo::from_supported(&borrowed[1..]), None);
    }

    #[test]
    fn lwt_mark_is_said_in_decimal() {
        assert_eq!(lwt_mark_value(), "LWT_OPTIMIZATION_META_BIT_MASK=2147483648");
        assert_eq!(parse_lwt_mark(&lwt_mark_value()), Some(LWT_MARK));
        assert_eq!(parse_lwt_mark("2147483648"), None);
    }
}
