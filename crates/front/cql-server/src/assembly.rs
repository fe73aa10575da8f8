//! Puts the CQL server of one shard together: its parts, the hooks it installs, the requests of other shards.
//!
//! The top of the crate: nothing here is called by the modules that it connects.

use crate::connection_tables::ConnectionTables;
use crate::forwarded;
use crate::mesh::{MeshCalls, ServerMesh, ServerReply, ServerRequest};
use crate::server::{CqlServer, Server, ServerCore};
use crate::settings::ServerSettings;
use coordinator::Coordinator;
use cql_plan::plan::PlanLimits;
use membership::Membership;
use query::{Executor, ExecutorParts, VirtualSource};
use rt::{Group, Reply, Rt, Stream};
use std::rc::Rc;
use std::sync::Arc;

/// Components of a [`CqlServer`].
pub struct ServerParts {
    /// The shard.
    pub rt: Rt,
    /// Access to all data of the node.
    pub coordinator: Coordinator,
    /// Schema and roles.
    pub membership: Membership,
    /// The same on all shards.
    pub settings: Arc<ServerSettings>,
    /// Limits that plans enforce.
    pub plan_limits: PlanLimits,
    /// Channels to the other shards' servers.
    pub mesh: Arc<ServerMesh>,
    /// Source of the virtual tables that this crate does not compute.
    pub virtual_source: Rc<dyn VirtualSource>,
}

impl CqlServer {
    /// Assembles the server and begins to serve the other shards' servers. No connection is
    /// accepted before [`CqlServer::listen_on`].
    pub fn new(parts: ServerParts) -> CqlServer {
        let ServerParts {
            rt,
            coordinator,
            membership,
            settings,
            plan_limits,
            mesh,
            virtual_source,
        } = parts;
        let gate = rt.gate("cql-connections");
        let tables = Rc::new(ConnectionTables::new(virtual_source));
        let query = Executor::new(ExecutorParts {
            rt: rt.clone(),
            coordinator,
            membership: membership.clone(),
            settings: settings.query.clone(),
            plan_limits,
            gate: gate.clone(),
            shards: Rc::new(MeshCalls { rt: rt.clone(), mesh: mesh.clone() }),
            virtual_source: tables.clone(),
        });
        let core = ServerCore { rt: rt.clone(), query, settings, mesh: mesh.clone(), gate };
        let inner = Rc::new(Server::new(core));
        tables.show_connections_of(&inner);
        let server = CqlServer { inner };
        forwarded::install(&server);
        query::serve_scans(&server.inner.query);
        let hook = server.clone();
        membership.on_applied(move |before, after| hook.announce_changes(before, after));
        let serving = server.clone();
        mesh.calls.serve(&rt, move |request, reply| serving.serve_request(request, reply));
        server
    }

    fn serve_request(&self, request: ServerRequest, reply: Reply<ServerReply>) {
        let server = self.inner.clone();
        match request {
            ServerRequest::Adopt(moved, beginning) => {
                // Counted by the shard that accepted it.
                reply.send(match Stream::from_moved(&server.rt, moved) {
                    Ok(conn) => {
                        self.serve_counted(conn, beginning);
                        ServerReply::Done
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be taken over");
                        ServerReply::NotAdopted
                    }
                });
            }
            ServerRequest::Closed(ip) => {
                server.forget_ip(ip);
                reply.send(ServerReply::Done);
            }
            ServerRequest::Prepare { text, keyspace } => {
                // The shard that the client is connected to reports errors.
                let _ = query::prepare_here(&server.query, &text, keyspace.as_deref());
                reply.send(ServerReply::Done);
            }
            ServerRequest::LogIn(attempt) => {
                let verifying = server.clone();
                let verify = async move {
                    reply.send(ServerReply::LoggedIn(verifying.verify(attempt).await));
                };
                // The gate is closed: the caller's shard stops, too.
                let _ = server.gate.spawn(&server.rt, Group::Admin, "login", verify);
            }
            ServerRequest::HashPassword(password) => {
                let hashing = server.clone();
                let hash = async move {
                    reply.send(ServerReply::Hashed(
                        query::hash_password(&hashing.query, &password).await,
                    ));
                };
                let _ = server.gate.spawn(&server.rt, Group::Admin, "hash-password", hash);
            }
            ServerRequest::EnterRole(role) => {
                reply.send(ServerReply::Entered(server.enter_role(&role)));
            }
            ServerRequest::LeaveRole(role) => {
                server.leave_role(&role);
                reply.send(ServerReply::Done);
            }
            ServerRequest::Clients => reply.send(ServerReply::Clients(server.clients())),
            ServerRequest::Queries => reply.send(ServerReply::Queries(server.queries())),
            ServerRequest::Truncation(request) => server
                .query
                .truncations
                .serve(request, move |answer| reply.send(ServerReply::Truncation(answer))),
        }
    }
}
