//! Connections by role, where they are limited: counted on shard 0 for the whole node.

use crate::mesh::{ServerReply, ServerRequest};
use crate::server::Server;
use crate::session::Session;
use query::Failure;
use rt::sync::oneshot;
use rt::{Group, MeshError};
use std::rc::Rc;
use std::time::Duration;
use stdx::{FixedMap, ShardId};

/// Pause before a message to shard 0 that found its ring full is sent again; it doubles.
const RETRY_FIRST: Duration = Duration::from_millis(10);
/// Longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Time that a login waits for the count of its role's connections.
const ENTRY_PATIENCE: Duration = Duration::from_secs(5);

/// Outcome of counting a connection for its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It is counted.
    Entered,
    /// The role has too many connections.
    TooMany,
    /// Shard 0 did not count it: it is overloaded or stops, or the connection ended.
    Uncounted,
}

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

    /// Counts a connection for its role, where connections of a role are limited. A task of the gate does this: a
    /// connection that ends meanwhile is counted for nothing.
    ///
    /// # Errors
    /// The role has too many connections, or it could not be counted: OVERLOADED.
    pub(crate) async fn count_for_role(
        self: &Rc<Self>,
        session: &Rc<Session>,
        role: &str,
    ) -> query::Result<()> {
        if self.settings.connections_per_role_max.is_none() {
            return Ok(());
        }
        let message = match self.try_count_for_role(session, role).await {
            Entry::Entered => return Ok(()),
            Entry::TooMany => format!("Too many connections of role {role}"),
            Entry::Uncounted => {
                "Server is busy and cannot accept more logins. Try again later.".to_owned()
            }
        };
        Err(Failure::overloaded(message))
    }

    async fn try_count_for_role(self: &Rc<Self>, session: &Rc<Session>, role: &str) -> Entry {
        let (sender, receiver) = oneshot::channel();
        let (server, session, role) = (self.clone(), session.clone(), Rc::<str>::from(role));
        let count = async move {
            // The connection may have ended.
            let _ = sender.send(server.enter_role_as(&session, role).await);
        };
        // The gate is closed: the connection ends, too.
        match self.gate.spawn(&self.rt, Group::Admin, "role-connections", count) {
            Ok(()) => receiver.await.unwrap_or(Entry::Uncounted),
            Err(_) => Entry::Uncounted,
        }
    }

    async fn enter_role_as(&self, session: &Session, role: Rc<str>) -> Entry {
        let entry = if self.rt.shard() == ShardId(0) {
            match !session.has_ended.get() && self.enter_role(&role) {
                true => Entry::Entered,
                false => Entry::TooMany,
            }
        } else {
            self.enter_role_on_first(session, &role).await
        };
        if entry == Entry::Entered && session.has_ended.get() {
            // `uncount_role` has run.
            self.notify_first(|| ServerRequest::LeaveRole(role.to_string())).await;
            return Entry::Uncounted;
        }
        if entry == Entry::Entered {
            *session.counted_role.borrow_mut() = Some(role);
        }
        entry
    }

    /// Asks shard 0 to count a connection; retries while its ring is full.
    pub(crate) async fn enter_role_on_first(&self, session: &Session, role: &str) -> Entry {
        let deadline = self.rt.now() + ENTRY_PATIENCE;
        let mut pause = RETRY_FIRST;
        loop {
            let request = ServerRequest::EnterRole(role.to_owned());
            match self.mesh.calls.call(&self.rt, ShardId(0), request).await {
                Ok(ServerReply::Entered(true)) => return Entry::Entered,
                Ok(_) => return Entry::TooMany,
                Err(error) => {
                    let is_over = session.has_ended.get() || self.is_draining();
                    if error == MeshError::Closed || is_over || self.rt.now() >= deadline {
                        tracing::debug!(%error, "a connection could not be counted for its role");
                        return Entry::Uncounted;
                    }
                }
            }
            self.rt.sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
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
