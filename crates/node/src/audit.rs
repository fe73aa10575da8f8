//! The audit log of a node: its start, and the commands that change it.

use std::collections::BTreeMap;

use ::audit::{AuditMesh, AuditSettings, Auditor, AuditorParts};
use admin::ActionError;
use conf::{AuditOptions, Options};
use cql_server::CqlServer;
use rt::Rt;
use stdx::ShardId;

use crate::StartError;
use crate::actions::Actions;

/// Parts of the audit log of a shard.
pub(crate) fn parts(
    rt: &Rt,
    options: &Options,
    server: &CqlServer,
    mesh: &AuditMesh,
) -> AuditorParts {
    let executor = server.executor().clone();
    let settings = AuditSettings::new(options, executor.settings.storage_address);
    AuditorParts { rt: rt.clone(), executor, mesh: mesh.clone(), helper: None, settings }
}

/// Begins to log on all shards if the settings say so. Shard 0 only, before clients are served.
///
/// # Errors
/// The log cannot be written: a node that must log does not serve without.
pub(crate) async fn start(auditor: &Auditor) -> Result<(), StartError> {
    let settings = (*auditor.settings()).clone();
    if !settings.is_on() {
        return Ok(());
    }
    let logger = settings.options.logger.class();
    let (enabled, scylla) = (settings.options.enabled, settings.scylla);
    let directory = settings.directory.clone();
    let started = auditor.change(settings).await;
    started.map_err(|error| StartError::Setting(format!("cannot start the audit log: {error}")))?;
    tracing::info!(
        enabled,
        logger,
        directory,
        table = scylla.table,
        syslog = scylla.syslog,
        "the audit log is on"
    );
    Ok(())
}

/// Keys of `audit_logging_options` that change while the node runs: those of the flags of `enableauditlog`.
const CHANGEABLE: [&str; 13] = [
    "archive_command",
    "block",
    "excluded_categories",
    "excluded_keyspaces",
    "excluded_users",
    "included_categories",
    "included_keyspaces",
    "included_users",
    "logger",
    "max_archive_retries",
    "max_log_size",
    "max_queue_weight",
    "roll_cycle",
];

fn check_keys(changes: &BTreeMap<String, String>) -> Result<(), String> {
    match changes.keys().find(|key| !CHANGEABLE.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!(
            "{key} cannot be changed while the node runs; supported keys: {}",
            CHANGEABLE.join(", ")
        )),
    }
}

impl Actions {
    /// `enableauditlog`: the settings of the start with these changes, on all shards.
    pub(crate) async fn enable_audit_log(
        &self,
        changes: &BTreeMap<String, String>,
    ) -> Result<(), ActionError> {
        check_keys(changes).map_err(ActionError::Argument)?;
        let base = &self.options.audit_logging_options;
        let archives = changes.get("archive_command").is_some_and(|command| !command.is_empty());
        if archives && !base.log.allow_nodetool_archive_command {
            return Err(ActionError::Failed(
                "Can't enable audit log archiving via nodetool unless \
                 audit_logging_options.allow_nodetool_archive_command is set to true"
                    .to_owned(),
            ));
        }
        let changed = base.with(changes).map_err(ActionError::Argument)?;
        self.apply_audit_options(AuditOptions { enabled: true, ..changed }).await
    }

    /// `disableauditlog`: destinations by ScyllaDB's settings stay.
    pub(crate) async fn disable_audit_log(&self) -> Result<(), ActionError> {
        // From then on `getauditlog` prints the configuration, like in Cassandra.
        let base = self.options.audit_logging_options.clone();
        self.apply_audit_options(AuditOptions { enabled: false, ..base }).await
    }

    async fn apply_audit_options(&self, options: AuditOptions) -> Result<(), ActionError> {
        if self.rt.shard() == ShardId(0) {
            let mut settings = (*self.auditor.settings()).clone();
            settings.options = options.clone();
            let (enabled, logger) = (options.enabled, options.logger.class());
            self.auditor.change(settings).await.map_err(ActionError::Failed)?;
            match enabled {
                true => tracing::info!(logger, "audit log enabled by an administrator"),
                false => tracing::info!("audit log disabled by an administrator"),
            }
        }
        self.live.borrow_mut().audit_logging_options = options;
        Ok(())
    }

    /// The rows of `getauditlog`.
    pub(crate) fn audit_rows(&self) -> Vec<(String, String)> {
        let settings = self.auditor.settings();
        let rows = settings.options.rows().into_iter().map(|(name, value)| match name {
            "audit_logs_dir" => (name.to_owned(), settings.directory.clone()),
            _ => (name.to_owned(), value),
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_change_applies_are_refused_by_name() {
        let of = |key: &str| check_keys(&BTreeMap::from([(key.to_owned(), "x".to_owned())]));
        CHANGEABLE.into_iter().for_each(|key| assert_eq!(of(key), Ok(())));
        for key in ["enabled", "audit_logs_dir", "allow_nodetool_archive_command", "other"] {
            assert!(of(key).unwrap_err().starts_with(&format!("{key} cannot be changed")));
        }
    }
}
