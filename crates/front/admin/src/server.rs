//! The HTTP server: its own thread, its own runtime, JSON in and out.
//!
//! Commands need a body of type `application/json`, so that a page in somebody's browser cannot
//! give one without being asked first (a cross-origin request of that type needs a permission that
//! is never given).

mod api;
mod cidr;
mod cluster;
mod connections;
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

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, oneshot};

use crate::model::LOAD_BYTES_MAX;
use crate::shard::AdminCaller;
use api::{Api, BODY_BYTES_MAX};
pub use cidr::report as cidr_filtering;
pub use cluster::stages;
pub use log::LogControl;
use rates::Rates;
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

/// The HTTP server.
pub struct AdminServer;

impl AdminServer {
    /// Listens and serves on a thread of its own until the handle is dropped or stopped. Port 0
    /// takes a free one. `log`: who can change what is logged, if anybody can.
    ///
    /// # Errors
    /// `Listen`: the address is taken; `Runtime`: the system refused a thread.
    pub fn start(
        address: IpAddr,
        port: u16,
        (caller, shards): (AdminCaller, u16),
        log: Option<Arc<dyn LogControl>>,
    ) -> Result<AdminHandle, AdminError> {
        let address = SocketAddr::new(address, port);
        let listen = |error| AdminError::Listen { address, error };
        let listener = StdListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let local = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(AdminError::Runtime)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let main = async move {
            let listener = match TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => {
                    tracing::error!(%error, "admin server cannot listen");
                    return;
                }
            };
            let busy = Arc::new(AtomicUsize::new(0));
            let snapshot_turn = Arc::new(Mutex::new(()));
            let rates = Rates::new();
            let state = Api {
                caller,
                shards,
                busy,
                snapshot_turn,
                log,
                rates: rates.clone(),
                jobs: sampling::Jobs::default(),
            };
            let follow = rates.follow(&state);
            let service = routes(state.clone())
                .layer(axum::middleware::from_fn(connections::receive))
                .into_make_service_with_connect_info::<connections::OfConnection>();
            let serve = axum::serve(connections::Limited::new(listener), service);
            // Whoever still has a connection open does not hold up the node: dropped, not drained.
            tokio::select! {
                result = serve => if let Err(error) = result {
                    tracing::error!(%error, "admin server ended");
                },
                () = follow => {}
                _ = stopped => {}
            }
        };
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || runtime.block_on(main))
            .map_err(AdminError::Runtime)?;
        tracing::info!(address = %local, "serving nodetool, the API and /metrics");
        Ok(AdminHandle { address: local, stop: Some(stop), thread: Some(thread) })
    }
}

/// A running server; dropping it stops it.
pub struct AdminHandle {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops it without waiting.
    pub fn request_stop(&mut self) {
        // An error means that it has ended already.
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Stops it and waits for its thread. Not for shards: it blocks.
    pub fn join(mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic there was logged there.
            let _ = thread.join();
        }
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.request_stop();
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
