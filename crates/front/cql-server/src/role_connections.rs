//! Connections by role, where they are limited: counted on shard 0 for the whole node.

use crate::mesh::{ServerReply, ServerRequest};
use crate::server::Server;
use crate::session::Session;
use rt::sync::oneshot;
use rt::{Group, MeshError};
use std::rc::Rc;
use std::time::Duration;
use stdx::{FixedMap, ShardId};

/// Pause before a message to shard 0 that found its ring full is sent again; it doubles.
const RETRY_FIRST: Duration = Duration::from_millis(10);
/// Longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(1);

impl Server {
    /// Counts a connection that logged in as a role; false if the role has too many. On shard 0.
    pub(crate) fn enter_role(&self, role: &str) -> bool {
        let Some(max) = self.settings.connections_per_role_max else { return true };
        let mut by_role = self.by_role.borrow_mut();
        let count = by_role.get(role).copied().unwrap_or(0);
        if count >= max {
            self.counters.refused_connections.inc();
            return false;
        }
        by_role.insert(role.to_owned(), count + 1);
        true
    }

    /// Ends the count of a connection of a role. On shard 0.
    pub(crate) fn leave_role(&self, role: &str) {
        let mut by_role: std::cell::RefMut<'_, FixedMap<String, usize>> = self.by_role.borrow_mut();
        if let Some(count) = by_role.get_mut(role) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                by_role.remove(role);
            }
        }
    }

    /// Counts a connection for its role, where connections of a role are limited; false if the role has too many. A
    /// task of the gate does this: a connection that ends meanwhile is counted for nothing.
    pub(crate) async fn count_for_role(self: &Rc<Self>, session: &Rc<Session>, role: &str) -> bool {
        if self.settings.connections_per_role_max.is_none() {
            return true;
        }
        let (sender, receiver) = oneshot::channel();
        let (server, session, role) = (self.clone(), session.clone(), Rc::<str>::from(role));
        let count = async move {
            // The connection may have ended.
            let _ = sender.send(server.enter_role_as(&session, role).await);
        };
        // The gate is closed: the connection ends, too.
        let spawned = self.gate.spawn(&self.rt, Group::Admin, "role-connections", count);
        spawned.is_ok() && receiver.await.unwrap_or(false)
    }

    async fn enter_role_as(&self, session: &Session, role: Rc<str>) -> bool {
        let has_room = if self.rt.shard() == ShardId(0) {
            !session.has_ended.get() && self.enter_role(&role)
        } else {
            let request = ServerRequest::EnterRole(role.to_string());
            matches!(
                self.mesh.calls.call(&self.rt, ShardId(0), request).await,
                Ok(ServerReply::Entered(true))
            )
        };
        if has_room && session.has_ended.get() {
            // `uncount_role` has run.
            self.notify_first(|| ServerRequest::LeaveRole(role.to_string())).await;
            return false;
        }
        if has_room {
            *session.counted_role.borrow_mut() = Some(role);
        }
        has_room
    }

    /// Ends the count of a connection that ended.
    pub(crate) async fn uncount_role(&self, session: &Session) {
        let Some(role) = session.counted_role.borrow_mut().take() else { return };
        if self.rt.shard() == ShardId(0) {
            return self.leave_role(&role);
        }
        self.notify_first(|| ServerRequest::LeaveRole(role.to_string())).await;
    }

    /// Sends shard 0 a message that must not be lost while the node runs: retries while its ring is full.
    pub(crate) async fn notify_first(&self, message: impl Fn() -> ServerRequest) {
        let mut pause = RETRY_FIRST;
        while let Err(error) = self.mesh.calls.call(&self.rt, ShardId(0), message()).await {
            if error == MeshError::Closed || self.gate.is_closed() {
                tracing::debug!(%error, "the end of a connection could not be counted: the node stops");
                return;
            }
            self.rt.sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }
}
