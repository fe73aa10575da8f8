//! Reads the configuration again while the server runs, and puts in force what can change.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use admin::model::ClusterCommand;
use admin::{ActionError, Commander};
use conf::Options;
use node::reload::{ReloadAction, ReloadPlan, ReloadStep};

use crate::logging::Levels;
use crate::server::Layers;

/// Carries out reloads, one after the other.
pub struct Reloader {
    /// Sources of the configuration.
    pub layers: Layers,
    /// The configuration as it was read last.
    pub current: Options,
    /// The log's.
    pub levels: Arc<Levels>,
    /// The way to the node.
    pub node: Commander,
}

impl Reloader {
    /// Starts its thread. Each message asks for a reload.
    ///
    /// # Errors
    /// No thread or runtime.
    pub fn start(self) -> io::Result<SyncSender<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let (sender, requests) = sync_channel(1);
        std::thread::Builder::new()
            .name("reload".to_owned())
            .spawn(move || self.run(&requests, &runtime))?;
        Ok(sender)
    }

    fn run(mut self, requests: &Receiver<()>, runtime: &tokio::runtime::Runtime) {
        while requests.recv().is_ok() {
            let after = match self.layers.read() {
                Ok(after) => after,
                Err(error) => {
                    tracing::error!(%error, "configuration not reloaded: nothing was changed");
                    continue;
                }
            };
            let plan = ReloadPlan::between(&self.current, &after);
            self.current = after;
            if plan.is_empty() {
                tracing::info!("configuration reloaded: no setting differs from the last reading");
            }
            runtime.block_on(async {
                self.carry_out(plan).await;
                self.reload_file_keys().await;
            });
        }
    }

    async fn carry_out(&self, plan: ReloadPlan) {
        let mut restart = plan.restart;
        for step in plan.steps {
            match self.take(&step).await {
                Ok(()) => tracing::info!(
                    setting = step.name,
                    before = step.before,
                    after = step.after,
                    "configuration reloaded: setting changed"
                ),
                // A node that stands alone has no such part yet.
                Err(ActionError::Unsupported(_)) => restart.push(step.name),
                Err(error) => {
                    tracing::error!(setting = step.name, after = step.after, %error, "setting not changed");
                }
            }
        }
        if !restart.is_empty() {
            tracing::warn!(
                settings = restart.join(", "),
                "configuration reloaded: these settings take effect at the next start"
            );
        }
    }

    /// Reads the key file of encryption at rest again, whether or not the settings have changed.
    async fn reload_file_keys(&self) {
        let options = &self.current;
        let maps = [&options.user_info_encryption, &options.system_info_encryption];
        let has_hosts = !options.vault_hosts.0.is_empty() || !options.kms_hosts.0.is_empty();
        if !has_hosts && !maps.iter().any(|map| map.is_set()) {
            return;
        }
        match self.node.command(ClusterCommand::ReloadFileKeys {}).await {
            Ok(()) => tracing::info!("keys of encryption at rest reloaded"),
            Err(error) => {
                tracing::error!(%error, "keys of encryption at rest not reloaded; those in use stay")
            }
        }
    }

    async fn take(&self, step: &ReloadStep) -> Result<(), ActionError> {
        match &step.action {
            ReloadAction::Log(level) => self.levels.set_root(*level).map_err(ActionError::Failed),
            ReloadAction::Command(_) | ReloadAction::Guardrail(_) => step.take(&self.node).await,
        }
    }
}
