//! Settings that change while the node runs, when its configuration is read again (SIGHUP).
//!
//! Owns: the difference of two configurations as steps that the node can take, and taking them.
//! Never: reads files. A setting whose value in the configuration is the same as before is not
//! changed, so that changes by `nodetool` stay.

use admin::model::{ClusterCommand, GuardrailRequest};
use admin::{ActionError, Commander};
use conf::{LogLevel, Options};

/// One change of a setting that takes effect while the node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadStep {
    /// The setting, or the guardrail.
    pub name: String,
    /// Its earlier value, in the form of the file.
    pub before: String,
    /// Its new value.
    pub after: String,
    /// How it takes effect.
    pub action: ReloadAction,
}

/// How a changed setting takes effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadAction {
    /// By the command that `nodetool` sends.
    Command(ClusterCommand),
    /// A limit on statements.
    Guardrail(GuardrailRequest),
    /// By the program's log, which is not the node's.
    Log(LogLevel),
}

/// The difference of two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadPlan {
    /// Changes that take effect, in the order of the reference; guardrails last.
    pub steps: Vec<ReloadStep>,
    /// Settings that changed and need a restart.
    pub restart: Vec<String>,
}

impl ReloadPlan {
    /// Compares the configuration of the last reading with the current one.
    pub fn between(before: &Options, after: &Options) -> ReloadPlan {
        let mut plan = ReloadPlan::default();
        let guardrails = |of: &Options| conf::guardrails::report(of);
        let mut limits = Vec::new();
        for (was, is) in guardrails(before).iter().zip(guardrails(after)) {
            limits.extend(is.settings.iter().map(|(name, _)| name.clone()));
            if was.settings == is.settings {
                continue;
            }
            let shown = |of: &[(String, String)]| {
                of.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
            };
            plan.steps.push(ReloadStep {
                before: shown(&was.settings),
                after: shown(&is.settings),
                action: ReloadAction::Guardrail(guardrail(&is.name, &is.settings)),
                name: is.name,
            });
        }
        let mut others = Vec::new();
        for (name, _) in conf::options::NAMES {
            let (Some(was), Some(is)) = (before.render(name), after.render(name)) else { continue };
            if was == is || limits.iter().any(|limit| limit == name) {
                continue;
            }
            match action(name, after) {
                Some(action) => others.push(ReloadStep {
                    name: (*name).to_owned(),
                    before: was,
                    after: is,
                    action,
                }),
                None => plan.restart.push((*name).to_owned()),
            }
        }
        others.append(&mut plan.steps);
        plan.steps = others;
        plan
    }

    /// Returns true if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.restart.is_empty()
    }
}

impl ReloadStep {
    /// Applies it on all shards. A log level is for the program, not for the node.
    ///
    /// # Errors
    /// The node's refusal.
    pub async fn take(&self, node: &Commander) -> Result<(), ActionError> {
        match &self.action {
            ReloadAction::Command(command) => node.command(command.clone()).await,
            ReloadAction::Guardrail(change) => node.set_guardrail(change.clone()).await,
            ReloadAction::Log(_) => Err(ActionError::Unsupported("changing the log")),
        }
    }
}

/// Value in the form of `setguardrailsconfig`: lists without brackets.
fn guardrail(name: &str, settings: &[(String, String)]) -> GuardrailRequest {
    let value = |(_, value): &(String, String)| match value.as_str() {
        "[]" => "null".to_owned(),
        list if list.starts_with('[') => list.trim_matches(['[', ']']).replace(", ", ","),
        other => other.to_owned(),
    };
    GuardrailRequest { name: name.to_owned(), values: settings.iter().map(value).collect() }
}

/// Returns the action for a changed setting; `None` if it needs a restart.
fn action(name: &str, to: &Options) -> Option<ReloadAction> {
    let millis = |time: core::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let timeout = |kind: &str, time| ClusterCommand::SetTimeout {
        kind: kind.to_owned(),
        millis: millis(time),
    };
    let set = |name: &str, value: u64| ClusterCommand::SetSetting {
        name: name.to_owned(),
        value: value.to_string(),
    };
    Some(ReloadAction::Command(match name {
        "read_request_timeout" => timeout("read", to.read_request_timeout),
        "range_request_timeout" => timeout("range", to.range_request_timeout),
        "write_request_timeout" => timeout("write", to.write_request_timeout),
        "counter_write_request_timeout" => {
            timeout("counterwrite", to.counter_write_request_timeout)
        }
        "cas_contention_timeout" => timeout("cascontention", to.cas_contention_timeout),
        "truncate_request_timeout" => timeout("truncate", to.truncate_request_timeout),
        "request_timeout" => timeout("misc", to.request_timeout),
        "hinted_handoff_enabled" => {
            ClusterCommand::SetHintedHandoff { enabled: to.hinted_handoff_enabled }
        }
        "max_hint_window" => ClusterCommand::SetHintWindow { millis: millis(to.max_hint_window) },
        "hinted_handoff_throttle" => ClusterCommand::SetHintThrottle {
            kib_per_second: to.hinted_handoff_throttle.0.div_ceil(1024),
        },
        "batchlog_replay_throttle" => ClusterCommand::SetBatchlogThrottle {
            kib_per_second: to.batchlog_replay_throttle.0.div_ceil(1024),
        },
        "stream_throughput_outbound" => ClusterCommand::SetStreamThroughput {
            bytes_per_second: to.stream_throughput_outbound.0,
        },
        "inter_dc_stream_throughput_outbound" => ClusterCommand::SetInterDcStreamThroughput {
            bytes_per_second: to.inter_dc_stream_throughput_outbound.0,
        },
        "compaction_throughput" => {
            ClusterCommand::SetCompactionThroughput { bytes_per_second: to.compaction_throughput.0 }
        }
        "concurrent_compactors" => {
            ClusterCommand::SetConcurrentCompactors { count: to.concurrent_compactors? }
        }
        "row_cache_size" => ClusterCommand::SetRowCacheCapacity { bytes: to.row_cache_size.0 },
        "counter_cache_size" => {
            ClusterCommand::SetCounterCacheCapacity { bytes: to.counter_cache_size?.0 }
        }
        "incremental_backups" => {
            ClusterCommand::SetIncrementalBackups { enabled: to.incremental_backups }
        }
        "snapshot_links_per_second" => set(name, to.snapshot_links_per_second),
        "credentials_validity" => set(name, millis(to.credentials_validity)),
        "credentials_cache_max_entries" => set(name, to.credentials_cache_max_entries),
        "native_transport_rate_limiting_enabled" => ClusterCommand::SetSetting {
            name: name.to_owned(),
            value: to.native_transport_rate_limiting_enabled.to_string(),
        },
        "native_transport_max_requests_per_second" => {
            set(name, u64::from(to.native_transport_max_requests_per_second))
        }
        "native_transport_max_requests_per_second_per_ip" => {
            set(name, u64::from(to.native_transport_max_requests_per_second_per_ip))
        }
        "native_transport_max_requests_per_second_per_role" => {
            set(name, u64::from(to.native_transport_max_requests_per_second_per_role))
        }
        "seeds" => ClusterCommand::ReloadSeeds {},
        "log_level" => return Some(ReloadAction::Log(to.log_level)),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf::{CommandLine, Sources};

    fn options(yaml: &str) -> Options {
        let file = Some(("c.yaml".to_owned(), yaml.to_owned()));
        let command_line = CommandLine::default();
        conf::load(&Sources { file, environment: Vec::new(), command_line }).unwrap().options
    }

    fn plan(before: &str, after: &str) -> ReloadPlan {
        ReloadPlan::between(&options(before), &options(after))
    }

    #[test]
    fn a_changed_setting_becomes_a_command_or_needs_a_restart() {
        let changed = plan(
            "read_request_timeout: 5s\nnum_tokens: 16\nlog_level: info\n",
            "read_request_timeout: 7s\nnum_tokens: 8\nlog_level: debug\n",
        );
        let steps: Vec<(&str, &str, &str)> = changed
            .steps
            .iter()
            .map(|s| (s.name.as_str(), s.before.as_str(), s.after.as_str()))
            .collect();
        assert_eq!(steps, [("read_request_timeout", "5s", "7s"), ("log_level", "info", "debug")]);
        let read = ClusterCommand::SetTimeout { kind: "read".to_owned(), millis: 7000 };
        assert_eq!(changed.steps[0].action, ReloadAction::Command(read));
        assert_eq!(changed.steps[1].action, ReloadAction::Log(LogLevel::Debug));
        assert_eq!(changed.restart, ["num_tokens"]);
        assert!(plan("num_tokens: 16\n", "num_tokens: 16\n").is_empty());
    }

    #[test]
    fn a_changed_guardrail_is_one_step_in_the_form_that_is_set() {
        let changed = plan(
            "tables_warn_threshold: 10\n",
            "tables_warn_threshold: 20\ntables_fail_threshold: 30\n\
             table_properties_warned: [comment, cdc]\n",
        );
        assert_eq!(changed.restart, Vec::<String>::new());
        let mut live = options("tables_warn_threshold: 10\n");
        for step in &changed.steps {
            let ReloadAction::Guardrail(request) = &step.action else { panic!("{step:?}") };
            conf::guardrails::set(&mut live, &request.name, &request.values).unwrap();
        }
        assert_eq!((live.tables_warn_threshold, live.tables_fail_threshold), (20, 30));
        assert_eq!(live.table_properties_warned, ["cdc", "comment"]);
        assert_eq!(changed.steps.len(), 2);
        // And back: an empty list.
        let back = plan("table_properties_warned: [comment]\n", "tables_warn_threshold: -1\n");
        let ReloadAction::Guardrail(request) = &back.steps[0].action else { panic!("{back:?}") };
        conf::guardrails::set(&mut live, &request.name, &request.values).unwrap();
        assert!(live.table_properties_warned.is_empty());
    }
}
