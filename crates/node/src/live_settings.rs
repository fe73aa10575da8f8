//! Settings that an administrator changes while the node runs, until it stops: one arm for each, under
//! its name in `cassandra.yaml`. Commands of nodetool that set one thing end here.

use std::time::Duration;

use admin::{ActionError, ClusterAction};
use conf::{DataRate, DataSize, Options};

use crate::actions::Actions;
use crate::parts::rate_limits;

/// Largest column index of Cassandra, whose byte count is a positive Java `int`.
const COLUMN_INDEX_BYTES_MAX: u64 = 2_147_483_646;

/// Largest limit of requests per second.
const RATE_MAX: u32 = 2_147_483_647;

/// Bounds of the settings in the configuration.
const YEAR_MILLIS: u64 = 365 * 86_400_000;
const CREDENTIALS_MAX: u64 = 1_000_000;

fn at_most(name: &str, value: u64, max: u64) -> Result<u64, ActionError> {
    if value > max {
        let text = format!("{name} must be at most {max}, but was {value}");
        return Err(ActionError::Argument(text));
    }
    Ok(value)
}

/// Returns the default number of replicas of a keyspace, if it is within the limits on replicas; -1
/// is no limit.
fn checked_factor(factor: u32, fail_below: i64, fail_above: i64) -> Result<u32, String> {
    let wanted = i64::from(factor);
    if factor < 1 {
        return Err("default_keyspace_rf cannot be less than 1".to_owned());
    }
    if fail_below != -1 && wanted < fail_below {
        return Err(format!(
            "default_keyspace_rf to be set ({wanted}) cannot be less than \
             minimum_replication_factor_fail_threshold ({fail_below})"
        ));
    }
    if fail_above != -1 && wanted > fail_above {
        return Err(format!(
            "default_keyspace_rf to be set ({wanted}) cannot be greater than \
             maximum_replication_factor_fail_threshold ({fail_above})"
        ));
    }
    Ok(factor)
}

/// Bytes between two entries of a partition's index.
fn checked_column_index(bytes: u64) -> Result<u64, ActionError> {
    match bytes {
        0 => Err(ActionError::Argument("column_index_size must be positive".to_owned())),
        1..=COLUMN_INDEX_BYTES_MAX => Ok(bytes),
        _ => Err(ActionError::Failed(format!(
            "column_index_size must be positive value <= {COLUMN_INDEX_BYTES_MAX}B, but was {bytes}B"
        ))),
    }
}

/// Records the setting that a command changed, so that `system_views.settings` shows the value in force.
/// Commands that change no setting, or one that [`Actions::set_setting`] records, are ignored.
pub(crate) fn record(live: &mut Options, action: &ClusterAction) {
    match action {
        ClusterAction::SetHintedHandoff { enabled } => live.hinted_handoff_enabled = *enabled,
        ClusterAction::SetHintsForDatacenter { datacenter, enabled } => {
            let disabled = &mut live.hinted_handoff_disabled_datacenters;
            disabled.retain(|name| name != datacenter);
            if !enabled {
                disabled.push(datacenter.clone());
            }
        }
        ClusterAction::SetHintThrottle { kib_per_second } => {
            live.hinted_handoff_throttle = DataSize(kib_per_second.saturating_mul(1024));
        }
        ClusterAction::SetHintWindow { millis } => {
            live.max_hint_window = Duration::from_millis(*millis);
        }
        ClusterAction::SetStreamThroughput { bytes_per_second } => {
            live.stream_throughput_outbound = DataRate(*bytes_per_second);
        }
        ClusterAction::SetInterDcStreamThroughput { bytes_per_second } => {
            live.inter_dc_stream_throughput_outbound = DataRate(*bytes_per_second);
        }
        ClusterAction::SetCompactionThroughput { bytes_per_second } => {
            live.compaction_throughput = DataRate(*bytes_per_second);
        }
        ClusterAction::SetConcurrentCompactors { count } => {
            live.concurrent_compactors = Some(*count);
        }
        ClusterAction::SetIncrementalBackups { enabled } => live.incremental_backups = *enabled,
        ClusterAction::SetRowCacheCapacity { bytes } => live.row_cache_size = DataSize(*bytes),
        ClusterAction::SetCounterCacheCapacity { bytes } => {
            live.counter_cache_size = Some(DataSize(*bytes));
        }
        ClusterAction::SetBatchlogThrottle { kib_per_second } => {
            live.batchlog_replay_throttle = DataSize(kib_per_second.saturating_mul(1024));
        }
        _ => {}
    }
}

/// Returns true if a command changes only a setting between nodes: a node without others records it.
pub(crate) fn is_between_nodes(action: &ClusterAction) -> bool {
    matches!(
        action,
        ClusterAction::SetHintedHandoff { .. }
            | ClusterAction::SetHintsForDatacenter { .. }
            | ClusterAction::SetHintThrottle { .. }
            | ClusterAction::SetHintWindow { .. }
            | ClusterAction::SetStreamThroughput { .. }
            | ClusterAction::SetInterDcStreamThroughput { .. }
    )
}

/// Changes a limit of requests per second; false if the setting is none.
///
/// # Errors
/// The value is none of the setting's.
fn set_rate_limit(live: &mut Options, name: &str, value: &str) -> Result<bool, ActionError> {
    let wrong = || ActionError::Argument(format!("{name} cannot be \"{value}\""));
    let rate = |least: u32| {
        let rate = value.parse().ok().filter(|rate| (least..=RATE_MAX).contains(rate));
        rate.ok_or_else(wrong)
    };
    match name {
        "native_transport_rate_limiting_enabled" => {
            live.native_transport_rate_limiting_enabled = value.parse().map_err(|_| wrong())?;
        }
        "native_transport_max_requests_per_second" => {
            live.native_transport_max_requests_per_second = rate(1)?;
        }
        "native_transport_max_requests_per_second_per_ip" => {
            live.native_transport_max_requests_per_second_per_ip = rate(0)?;
        }
        "native_transport_max_requests_per_second_per_role" => {
            live.native_transport_max_requests_per_second_per_role = rate(0)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

impl Actions {
    /// Changes a setting on this shard for what begins from now on.
    ///
    /// # Errors
    /// `Argument`: no such setting can be changed, or not to that value; `Failed`: as Cassandra
    /// fails.
    pub(crate) fn set_setting(&self, name: &str, value: &str) -> Result<(), ActionError> {
        let wrong = || ActionError::Argument(format!("{name} cannot be \"{value}\""));
        let number = || value.parse::<u64>().map_err(|_| wrong());
        let keys = || number().map(|keys| usize::try_from(keys).unwrap_or(usize::MAX));
        match name {
            "column_index_size" => {
                let bytes = checked_column_index(number()?)?;
                self.store.env().live().set_column_index_bytes(bytes);
                self.live.borrow_mut().column_index_size = Some(DataSize(bytes));
            }
            "counter_cache_keys_to_save" => {
                self.store.env().live().set_counter_cache_keys_to_save(keys()?);
                let count = u32::try_from(number()?).unwrap_or(u32::MAX);
                self.live.borrow_mut().counter_cache_keys_to_save = count;
            }
            "row_cache_keys_to_save" => {
                self.store.env().live().set_row_cache_keys_to_save(keys()?);
                let count = u32::try_from(number()?).unwrap_or(u32::MAX);
                self.live.borrow_mut().row_cache_keys_to_save = count;
            }
            "default_keyspace_rf" => {
                let factor = value.parse().map_err(|_| wrong())?;
                let mut live = self.live.borrow_mut();
                let factor = checked_factor(
                    factor,
                    live.minimum_replication_factor_fail_threshold,
                    live.maximum_replication_factor_fail_threshold,
                );
                let factor = factor.map_err(ActionError::Argument)?;
                live.default_keyspace_rf = factor;
                self.server.executor().default_keyspace_rf.set(factor);
            }
            "snapshot_links_per_second" => {
                let links = number()?;
                self.live.borrow_mut().snapshot_links_per_second = links;
                self.store.env().live().set_snapshot_links_per_second(links);
            }
            "credentials_validity" => {
                let validity = Duration::from_millis(at_most(name, number()?, YEAR_MILLIS)?);
                self.live.borrow_mut().credentials_validity = validity;
                self.change_credentials_cache();
            }
            "credentials_cache_max_entries" => {
                let entries = at_most(name, number()?, CREDENTIALS_MAX)?;
                self.live.borrow_mut().credentials_cache_max_entries = entries;
                self.change_credentials_cache();
            }
            "native_transport_allow_older_protocols" => {
                let allowed = value.parse().map_err(|_| wrong())?;
                self.live.borrow_mut().native_transport_allow_older_protocols = allowed;
                self.server.set_allow_older_protocols(allowed);
            }
            _ if set_rate_limit(&mut self.live.borrow_mut(), name, value)? => {
                self.server.set_rate_limits(rate_limits(&self.live.borrow()));
            }
            _ => {
                let text = format!("{name} cannot be changed while the node runs");
                return Err(ActionError::Argument(text));
            }
        }
        Ok(())
    }

    fn change_credentials_cache(&self) {
        let live = self.live.borrow();
        let entries = usize::try_from(live.credentials_cache_max_entries).unwrap_or(usize::MAX);
        self.server.set_credentials_cache(live.credentials_validity, entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cql_server::RateLimits;

    #[test]
    fn the_default_factor_stays_within_the_limits_on_replicas() {
        assert_eq!(checked_factor(3, -1, -1), Ok(3));
        assert_eq!(checked_factor(3, 3, 3), Ok(3));
        let error = |factor, below, above| checked_factor(factor, below, above).unwrap_err();
        assert_eq!(error(0, -1, -1), "default_keyspace_rf cannot be less than 1");
        assert!(error(2, 3, -1).contains("minimum_replication_factor_fail_threshold (3)"));
        assert!(error(5, -1, 4).contains("maximum_replication_factor_fail_threshold (4)"));
    }

    #[test]
    fn limits_of_requests_per_second_change_while_the_node_runs() {
        let mut live = Options::default();
        assert_eq!(rate_limits(&live), RateLimits::default());
        let mut set = |name: &str, value: &str| {
            let name = format!("native_transport_{name}");
            let is_set = set_rate_limit(&mut live, &name, value).ok()?;
            is_set.then(|| rate_limits(&live))
        };
        let limits = |of_all, of_address, of_role| Some(RateLimits { of_all, of_address, of_role });
        assert_eq!(set("max_requests_per_second", "5"), limits(None, None, None));
        assert_eq!(set("rate_limiting_enabled", "true"), limits(Some(5), None, None));
        assert_eq!(set("max_requests_per_second_per_ip", "3"), limits(Some(5), Some(3), None));
        assert_eq!(set("max_requests_per_second_per_role", "2"), limits(Some(5), Some(3), Some(2)));
        assert_eq!(set("max_requests_per_second_per_role", "0"), limits(Some(5), Some(3), None));
        for (name, value) in [
            ("max_requests_per_second", "0"),
            ("max_requests_per_second", "2147483648"),
            ("max_requests_per_second_per_ip", "-1"),
            ("rate_limiting_enabled", "yes"),
            ("frame_bytes", "1"),
        ] {
            assert_eq!(set(name, value), None, "{name} {value}");
        }
        assert!(set("max_requests_per_second", "2147483647").is_some());
    }

    #[test]
    fn a_command_changes_the_setting_that_is_shown() {
        let mut live = Options::default();
        let datacenter = "dc2".to_owned();
        for (action, name, shown) in [
            (ClusterAction::SetHintWindow { millis: 60_000 }, "max_hint_window", "1m"),
            (ClusterAction::SetHintedHandoff { enabled: false }, "hinted_handoff_enabled", "false"),
            (
                ClusterAction::SetHintThrottle { kib_per_second: 512 },
                "hinted_handoff_throttle",
                "512KiB",
            ),
            (
                ClusterAction::SetHintsForDatacenter { datacenter, enabled: false },
                "hinted_handoff_disabled_datacenters",
                "dc2",
            ),
            (ClusterAction::SetConcurrentCompactors { count: 7 }, "concurrent_compactors", "7"),
            (ClusterAction::SetIncrementalBackups { enabled: true }, "incremental_backups", "true"),
            (ClusterAction::SetRowCacheCapacity { bytes: 1 << 20 }, "row_cache_size", "1MiB"),
            (
                ClusterAction::SetStreamThroughput { bytes_per_second: 5 << 20 },
                "stream_throughput_outbound",
                "5MiB/s",
            ),
        ] {
            record(&mut live, &action);
            assert_eq!(live.render(name).as_deref(), Some(shown), "{name}");
        }
    }

    #[test]
    fn settings_have_the_bounds_of_the_configuration() {
        assert_eq!(
            at_most("credentials_cache_max_entries", 1_000_000, CREDENTIALS_MAX),
            Ok(1_000_000)
        );
        assert!(at_most("credentials_cache_max_entries", 1_000_001, CREDENTIALS_MAX).is_err());
        let settings = conf::settings();
        for (name, max) in [
            ("credentials_cache_max_entries", CREDENTIALS_MAX.to_string()),
            ("credentials_validity", format!("{}d", YEAR_MILLIS / 86_400_000)),
        ] {
            let setting = settings.iter().find(|setting| setting.name == name).unwrap();
            assert_eq!(setting.range.as_ref().unwrap().1, max);
        }
    }

    /// The text recorded from a Cassandra 5.0.9.
    #[test]
    fn a_column_index_has_cassandras_bounds() {
        assert_eq!(checked_column_index(16 << 10), Ok(16 << 10));
        assert_eq!(checked_column_index(COLUMN_INDEX_BYTES_MAX), Ok(COLUMN_INDEX_BYTES_MAX));
        assert!(checked_column_index(0).is_err());
        let text = "column_index_size must be positive value <= 2147483646B, but was 102399998976B";
        let error = checked_column_index(99_999_999 << 10).unwrap_err();
        assert_eq!(error, ActionError::Failed(text.to_owned()));
    }
}
