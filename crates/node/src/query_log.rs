//! The full query log of a node: the commands that change it. It is off at the start, as in Cassandra.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ::audit::binlog::Archiver;
use admin::ActionError;
use conf::QueryLogOptions;
use cql_server::CqlServer;
use query_logger::{EnableError, QueryLogMesh, QueryLogSettings, QueryLogger, QueryLoggerParts};
use rt::Rt;
use stdx::ShardId;

use crate::Program;

/// Creates the full query log of a shard, which is off.
pub(crate) fn logger(
    rt: &Rt,
    server: &CqlServer,
    mesh: &QueryLogMesh,
    program: &Program,
) -> Rc<QueryLogger> {
    let helper = program.audit.clone();
    QueryLogger::new(QueryLoggerParts {
        rt: rt.clone(),
        executor: server.executor().clone(),
        mesh: mesh.clone(),
        archiver: helper.map(|helper| -> Arc<dyn Archiver> { helper }),
    })
}

/// Keys of `full_query_logging_options` that change while the node runs: those of the flags of `enablefullquerylog`.
const CHANGEABLE: [&str; 7] = [
    "archive_command",
    "block",
    "log_dir",
    "max_archive_retries",
    "max_log_size",
    "max_queue_weight",
    "roll_cycle",
];

/// Applies the changes of a command. Texts are those of Cassandra 5.0.9, where it has them.
fn changed(
    base: &QueryLogOptions,
    changes: &BTreeMap<String, String>,
) -> Result<QueryLogSettings, ActionError> {
    let wrong = |words: String| Err(ActionError::Argument(words));
    if let Some(key) = changes.keys().find(|key| !CHANGEABLE.contains(&key.as_str())) {
        let supported = CHANGEABLE.join(", ");
        return wrong(format!(
            "{key} cannot be changed while the node runs; supported keys: {supported}"
        ));
    }
    let value = |key: &str| changes.get(key).map(|value| value.trim());
    let archives = value("archive_command").is_some_and(|command| !command.is_empty());
    if archives && !base.log.allow_nodetool_archive_command {
        return Err(ActionError::Failed(
            "Can't enable full query log archiving via nodetool unless \
             full_query_logging_options.allow_nodetool_archive_command is set to true"
                .to_owned(),
        ));
    }
    if let Some(cycle) =
        value("roll_cycle").filter(|cycle| conf::RollCycle::of_name(cycle).is_err())
    {
        let cycle = cycle.to_uppercase();
        return wrong(format!("No enum constant net.openhft.chronicle.queue.RollCycles.{cycle}"));
    }
    for (key, name) in [("max_queue_weight", "maxQueueWeight"), ("max_log_size", "maxLogSize")] {
        let number = value(key).and_then(|value| value.parse::<i64>().ok());
        if number.is_some_and(|number| number <= 0) {
            return wrong(format!("{name} must be > 0"));
        }
    }
    let options = base.with(changes).map_err(ActionError::Argument)?;
    let Some(directory) = options.log_dir.clone() else {
        return wrong("you might have forgotten to specify a directory to save logs".to_owned());
    };
    if !directory.starts_with('/') {
        return wrong(format!(
            "the directory of the full query log needs an absolute path, not \"{directory}\""
        ));
    }
    let trimmed = directory.trim_end_matches('/').to_owned();
    let directory = if trimmed.is_empty() { directory } else { trimmed };
    Ok(QueryLogSettings { options, directory })
}

/// Commands about the full query log on a shard.
pub(crate) struct QueryLogCommands<'a> {
    pub(crate) rt: &'a Rt,
    pub(crate) configured: &'a QueryLogOptions,
    pub(crate) logger: &'a QueryLogger,
}

impl QueryLogCommands<'_> {
    /// `enablefullquerylog`: on all shards, led by shard 0.
    pub(crate) async fn enable(
        &self,
        changes: &BTreeMap<String, String>,
    ) -> Result<(), ActionError> {
        let settings = changed(self.configured, changes)?;
        if self.rt.shard() != ShardId(0) {
            return Ok(());
        }
        let directory = settings.directory.clone();
        match self.logger.enable(settings).await {
            Ok(()) => {
                tracing::info!(directory, "the full query log was switched on by an administrator");
                Ok(())
            }
            Err(EnableError::Failed(words)) => Err(ActionError::Failed(words)),
            Err(error) => Err(ActionError::Argument(error.to_string())),
        }
    }

    /// `disablefullquerylog`: its files stay.
    pub(crate) async fn disable(&self) -> Result<(), ActionError> {
        if self.rt.shard() == ShardId(0) {
            self.logger.disable().await;
            tracing::info!("the full query log was switched off by an administrator");
        }
        Ok(())
    }

    /// `resetfullquerylog`: its files are deleted.
    pub(crate) async fn reset(&self) -> Result<(), ActionError> {
        if self.rt.shard() == ShardId(0) {
            let configured = self.configured.log_dir.as_deref();
            let done = self.logger.reset(configured).await;
            done.map_err(ActionError::Failed)?;
            tracing::info!("the full query log was reset by an administrator");
        }
        Ok(())
    }

    /// The rows of `getfullquerylog`.
    pub(crate) fn rows(&self) -> Vec<(String, String)> {
        let active = self.logger.settings();
        let enabled = ("enabled".to_owned(), active.is_some().to_string());
        let rows = match &active {
            Some(settings) => settings.options.rows(),
            None => self.configured.rows(),
        };
        let rows = rows.into_iter().map(|(name, value)| match (name, &active) {
            ("log_dir", Some(settings)) => (name.to_owned(), settings.directory.clone()),
            _ => (name.to_owned(), value),
        });
        std::iter::once(enabled).chain(rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changes: &[(&str, &str)]) -> Result<QueryLogSettings, String> {
        let base =
            QueryLogOptions { log_dir: Some("/q/".to_owned()), ..QueryLogOptions::default() };
        with(&base, changes)
    }

    fn with(base: &QueryLogOptions, changes: &[(&str, &str)]) -> Result<QueryLogSettings, String> {
        let changes = changes.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        changed(base, &changes.collect()).map_err(|error| error.to_string())
    }

    /// The texts are those of 5.0.9.
    #[test]
    fn changes_apply_to_the_configuration_and_wrong_ones_are_refused_in_cassandras_words() {
        let settings = of(&[("block", "false"), ("roll_cycle", "minutely")]).unwrap();
        assert_eq!((settings.directory.as_str(), settings.options.log.block), ("/q", false));
        assert_eq!(settings.options.log.roll_cycle.name, "MINUTELY");
        assert_eq!(of(&[("log_dir", "/p")]).unwrap().directory, "/p");
        let refused = |key: &str, value: &str| of(&[(key, value)]).unwrap_err();
        assert_eq!(
            refused("roll_cycle", "weekly"),
            "No enum constant net.openhft.chronicle.queue.RollCycles.WEEKLY"
        );
        assert_eq!(refused("max_queue_weight", "0"), "maxQueueWeight must be > 0");
        assert_eq!(refused("max_log_size", "-1"), "maxLogSize must be > 0");
        assert!(
            refused("archive_command", "x %path")
                .starts_with("Can't enable full query log archiving")
        );
        assert!(refused("log_dir", "relative").contains("absolute path"));
        assert!(refused("enabled", "true").starts_with("enabled cannot be changed"));
        assert_eq!(
            with(&QueryLogOptions::default(), &[]).unwrap_err(),
            "you might have forgotten to specify a directory to save logs"
        );
        let mut allows =
            QueryLogOptions { log_dir: Some("/q".to_owned()), ..QueryLogOptions::default() };
        allows.log.allow_nodetool_archive_command = true;
        let archives = with(&allows, &[("archive_command", "x %path")]).unwrap();
        assert_eq!(archives.options.log.archive_command, "x %path");
    }
}
