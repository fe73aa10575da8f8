//! Administrative commands from the program that runs the node, without HTTP.

use std::future::Future;

use rt::MeshError;
use stdx::ShardId;

use crate::model::{ClusterCommand, GuardrailRequest};
use crate::request::{ActionError, AdminCaller, AdminReply, AdminRequest, shard_ids};

/// Sends commands to the shards, as the HTTP API does for nodetool. Usable on any executor.
#[derive(Clone)]
pub struct Commander {
    caller: AdminCaller,
    shards: u16,
}

impl Commander {
    /// A commander of a node with that many shards.
    pub fn new(caller: AdminCaller, shards: u16) -> Commander {
        Commander { caller, shards }
    }

    /// Carries out a command on shard 0 or on all shards ([`ClusterCommand::is_for_one_shard`]).
    ///
    /// # Errors
    /// The first refusal; `Failed` when the node is stopping or busy.
    pub async fn command(&self, command: ClusterCommand) -> Result<(), ActionError> {
        if command.is_for_one_shard() {
            return outcome(self.caller.call(ShardId(0), AdminRequest::Command(command)).await);
        }
        self.all(AdminRequest::Command(command)).await
    }

    /// Changes a guardrail on all shards.
    ///
    /// # Errors
    /// As [`Commander::command`].
    pub async fn set_guardrail(&self, change: GuardrailRequest) -> Result<(), ActionError> {
        self.all(AdminRequest::SetGuardrail(change)).await
    }

    /// Sends to every shard at once and waits for all, also after a failure.
    fn all(&self, request: AdminRequest) -> impl Future<Output = Result<(), ActionError>> + Send {
        let sent: Vec<_> =
            shard_ids(self.shards).map(|shard| self.caller.call(shard, request.clone())).collect();
        async move {
            let mut first = Ok(());
            for reply in sent {
                first = first.and(outcome(reply.await));
            }
            first
        }
    }
}

fn outcome(reply: Result<AdminReply, MeshError>) -> Result<(), ActionError> {
    match reply {
        Ok(AdminReply::Failed(error)) => Err(error),
        Ok(_) => Ok(()),
        Err(MeshError::Full) => Err(ActionError::Failed("the node is busy".to_owned())),
        Err(MeshError::Closed) => Err(ActionError::Failed("the node is stopping".to_owned())),
    }
}
