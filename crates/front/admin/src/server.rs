//! The HTTP server, a service (`rt::service`): JSON in and out.
//!
//! Commands need a body of type `application/json`, so that a page in a user's browser cannot send
//! one without a preflight (a cross-origin request of that type needs a permission that is never
//! given).

mod access;
mod api;
mod authorise;
mod cidr;
mod cluster;
mod connections;
mod encryption;
mod load;
mod log;
mod node;
mod rates;
mod repair;
mod route;
mod routes;
mod sampling;
mod scylla;
mod scylla_data;
mod scylla_histograms;
mod scylla_metrics;
mod scylla_routes;
mod scylla_tasks;
mod upkeep;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use admin_access::Tokens;
use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use rt::Rt;
use rt::service::{Priority, Scope, Service, ServiceCaller, ServiceFailure, ServiceSpec, Stopped};
use tokio::net::TcpListener;

use crate::model::LOAD_BYTES_MAX;
use crate::request::{AdminCaller, AdminReply, AdminRequest};
use access::Access;
pub use access::{AccessParts, LoginPolicy};
use api::{Api, BODY_BYTES_MAX};
pub use cidr::report as cidr_filtering;
pub use cluster::stages;
use encryption::SharedEncryption;
pub use encryption::{ApiEncryption, PlainConnections};
pub use log::LogControl;
pub use route::{Guard, Route};
pub use routes::ROUTES;
pub use scylla_routes::SCYLLA;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Address and port.
        address: SocketAddr,
        /// The system's word.
        error: io::Error,
    },
    /// No thread or no reactor.
    #[error("cannot run the admin server: {0}")]
    Runtime(io::Error),
}

/// The server as a service: it has no requests other than those of its HTTP clients.
enum NoRequest {}
type AdminService = Service<NoRequest, ()>;

/// A client that still has a connection open does not hold up the node: nothing is drained.
const SPEC: ServiceSpec = ServiceSpec {
    name: "admin",
    requests_max: 0,
    drain_max: Duration::ZERO,
    abort_max: Duration::from_secs(5),
    priority: Priority::Usual,
};

/// Dependencies and settings of the server.
pub struct AdminParts {
    /// Address to listen on; port 0 selects a free one.
    pub address: SocketAddr,
    /// The way to the shards.
    pub caller: AdminCaller,
    /// Changes log levels, if the program supports that.
    pub log: Option<Arc<dyn LogControl>>,
    /// Logins of clients.
    pub access: AccessParts,
    /// TLS; `None`: all connections are in the clear.
    pub encryption: Option<ApiEncryption>,
}

/// The running HTTP server; dropping it stops it without waiting.
pub struct AdminServer {
    address: SocketAddr,
    access: AdminAccess,
    service: AdminService,
}

impl AdminServer {
    /// Listens and serves on a thread of its own until it is stopped or dropped.
    ///
    /// # Errors
    /// `Listen`: the address is taken; `Runtime`: the system refused a thread.
    pub fn start(rt: &Rt, parts: AdminParts) -> Result<AdminServer, AdminError> {
        let AdminParts { address, caller, log, access, encryption } = parts;
        let access = Arc::new(Access::new(access));
        let encryption = SharedEncryption::new(encryption);
        let listen = |error| AdminError::Listen { address, error };
        let listener = StdListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let local = listener.local_addr().map_err(listen)?;
        let shards = rt.shard_count();
        let (of_api, of_listener) = (access.clone(), encryption.clone());
        let body = move |scope: Scope<NoRequest, ()>| async move {
            let api = Api::new(scope.caller(caller), of_api, shards, log);
            serve(listener, of_listener, api).await;
        };
        let double = |request: NoRequest| match request {};
        let service = Service::start(rt, SPEC, body, double).map_err(AdminError::Runtime)?;
        tracing::info!(address = %local, "serving nodetool, the API and /metrics");
        let access = AdminAccess { access, encryption };
        Ok(AdminServer { address: local, access, service })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Its logins and its TLS.
    pub fn access(&self) -> &AdminAccess {
        &self.access
    }

    /// Waits for its end; `None` when it was stopped.
    pub fn failure(&self) -> impl Future<Output = Option<ServiceFailure>> + use<> {
        self.service.failure()
    }

    /// Closes all connections and waits for its thread, for some seconds at most.
    pub async fn stop(self) {
        if self.service.stop().await == Stopped::LeftBehind {
            let seconds = SPEC.abort_max.as_secs();
            tracing::error!(
                seconds,
                "the thread of the admin server does not end; leaving it behind"
            );
        }
    }
}

/// Logins and TLS of a running server; clones share them.
#[derive(Clone)]
pub struct AdminAccess {
    access: Arc<Access>,
    encryption: SharedEncryption,
}

impl AdminAccess {
    /// Makes new connections use these keys.
    pub fn set_encryption(&self, encryption: ApiEncryption) {
        self.encryption.set(encryption);
    }

    /// Replaces the bearer tokens, from the next request on.
    pub fn set_tokens(&self, tokens: Tokens) {
        self.access.set_tokens(tokens);
    }
}

/// The way from the server to the shards.
type ShardCaller = ServiceCaller<AdminRequest, AdminReply>;

/// Serves until it is dropped; returns when the listener cannot be used.
async fn serve(listener: StdListener, encryption: SharedEncryption, api: Api) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "admin server cannot listen");
            return;
        }
    };
    let rates = api.rates.clone();
    let follow = rates.follow(&api);
    let service = routes(api.clone())
        .layer(middleware::from_fn_with_state(api.clone(), authorise::authorise))
        .into_make_service_with_connect_info::<connections::OfConnection>();
    let serve = axum::serve(connections::Limited::new(listener, encryption), service);
    tokio::select! {
        result = serve => if let Err(error) = result {
            tracing::error!(%error, "admin server ended");
        },
        () = follow => {}
    }
}

/// Every row of the tables of routes.
fn routes(state: Api) -> Router {
    let mut groups = [const { None }; 3];
    for route in ROUTES.iter().chain(SCYLLA) {
        let group = groups[route.guard() as usize].get_or_insert_with(Router::new);
        for path in route.paths() {
            *group = std::mem::take(group).route(path, route.handler());
        }
    }
    let [json, no_browsers, bytes] = groups.map(Option::unwrap_or_default);
    json.merge(no_browsers.layer(middleware::from_fn(scylla::refuse_browsers)))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .merge(bytes.layer(DefaultBodyLimit::max(LOAD_BYTES_MAX)))
        .with_state(state)
}

#[cfg(test)]
mod tests;
