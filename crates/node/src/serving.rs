//! Service of CQL clients: the ports, and disabling and enabling them while the node runs
//! (`nodetool disablebinary`, `enablebinary`). Shard 0 owns the ports and notifies the others. Also
//! the timeouts of clients' requests (`gettimeout`, `settimeout`).

use std::net::SocketAddr;
use std::time::Duration;

use admin::ActionError;
use conf::Options;
use cql_server::{CqlServer, Placement, Port, PortEncryption};
use query::Timeout;
use stdx::ShardId;

use crate::actions::Actions;
use crate::policy::Serving;
use crate::{StartError, log_lines, parts};

/// Kinds of timeouts that can be changed, as `nodetool settimeout` names them. Connections between
/// nodes keep the timeouts with which they were made.
const TIMEOUTS: [(&str, Timeout); 7] = [
    ("read", Timeout::Read),
    ("range", Timeout::Range),
    ("write", Timeout::Write),
    ("counterwrite", Timeout::CounterWrite),
    ("cascontention", Timeout::CasContention),
    ("truncate", Timeout::Truncate),
    ("misc", Timeout::Request),
];

/// Opens the ports for CQL; shard 0 only.
///
/// # Errors
/// `Listen`, `Address`.
pub(crate) async fn listen(
    options: &Options,
    server: &CqlServer,
    encryption: PortEncryption,
) -> Result<(), StartError> {
    let refused = |address: SocketAddr, purpose: &'static str, detail: String| StartError::Listen {
        address: address.to_string(),
        purpose,
        detail,
    };
    if encryption != PortEncryption::Plain {
        tracing::info!("{}", log_lines::ENCRYPTING);
    }
    for port in ports(options, encryption) {
        let address = parts::socket(&options.rpc_address, port.number)?;
        let is_balanced = port.kind.placement == Placement::Balanced;
        let purpose = if is_balanced { "CQL" } else { "shard-aware CQL" };
        let at = server.listen_on(address, port.kind).await;
        let at = at.map_err(|e| refused(address, purpose, e.detail))?;
        if is_balanced {
            tracing::info!("{}", log_lines::listening(at, port.kind.encryption));
        }
    }
    Ok(())
}

/// A port of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientPort {
    number: u16,
    kind: Port,
}

/// Returns the ports for clients. TLS is enabled on the usual ports, unless it has its own.
fn ports(options: &Options, encryption: PortEncryption) -> Vec<ClientPort> {
    let shard_aware = options.native_shard_aware_transport_port;
    let pair = |number, shard_aware, encryption| {
        let port = |number, placement| ClientPort { number, kind: Port { placement, encryption } };
        let both = [port(number, Placement::Balanced), port(shard_aware, Placement::ShardAware)];
        both.into_iter().filter(|port: &ClientPort| port.number != 0)
    };
    let number = options.native_transport_port;
    match parts::encrypted_port(options) {
        Some(encrypted) if encryption != PortEncryption::Plain => {
            let plain = pair(number, shard_aware, PortEncryption::Plain);
            let aware = options.native_shard_aware_transport_port_ssl;
            plain.chain(pair(encrypted, aware, encryption)).collect()
        }
        _ => pair(number, shard_aware, encryption).collect(),
    }
}

impl Actions {
    /// Records that the ports are open, if clients should be served; shard 0 only.
    pub(crate) fn opened(&self) {
        if !self.stopped.get() {
            self.serving.set(self.options.start_native_transport);
        }
        self.is_switching.set(false);
    }

    /// Stops serving clients for good; administration continues.
    pub(crate) async fn stop_serving(&self) {
        self.serving.set(false);
        self.stopped.set(true);
        self.server.stop().await;
    }

    /// Applies shard 0's decision to this shard.
    pub(crate) async fn serve(&self, what: Serving) {
        match what {
            Serving::Stop => {
                if let Some(cluster) = &self.cluster {
                    // Writes that were applied here but could not be logged are lost when the
                    // process ends: the other nodes must stop reading them. This node appears as
                    // down to them, as Cassandra's does.
                    cluster.liveness.set_gossiping(false);
                }
                self.stop_serving().await;
            }
            Serving::Pause => {
                self.serving.set(false);
                self.server.pause().await;
            }
            Serving::Resume => {
                self.serving.set(true);
                self.server.resume();
            }
        }
    }

    /// Serves clients, or not, on all shards. Shard 0 only.
    ///
    /// # Errors
    /// `Failed`: a permanent reason forbids serving, or a port cannot be opened.
    pub(crate) async fn set_native_transport(&self, enabled: bool) -> Result<(), ActionError> {
        let failed = |text: &str| Err(ActionError::Failed(text.to_owned()));
        if self.rt.shard() != ShardId(0) || self.serving.get() == enabled {
            return Ok(());
        }
        if self.stopped.get() {
            return failed(
                "the native transport cannot be started: the node was drained, has left the \
                 cluster, or its disk has failed; restart it",
            );
        }
        if self.is_switching.replace(true) {
            return failed("the native transport is being started or stopped already");
        }
        let done = self.switch(enabled).await;
        self.is_switching.set(false);
        done
    }

    async fn switch(&self, enabled: bool) -> Result<(), ActionError> {
        let liveness = self.cluster.as_ref().map(|cluster| &cluster.liveness);
        if !enabled && let Some(liveness) = liveness {
            // Drivers are notified before their connections end.
            liveness.set_ready(false);
        }
        self.tell_all(if enabled { Serving::Resume } else { Serving::Pause }).await;
        let encryption = self.encryption;
        if enabled && let Err(error) = listen(&self.options, &self.server, encryption).await {
            self.tell_all(Serving::Pause).await;
            return Err(ActionError::Failed(error.to_string()));
        }
        if enabled && let Some(liveness) = liveness {
            liveness.set_ready(true);
        }
        tracing::info!(enabled, "the native transport was switched");
        Ok(())
    }

    /// Notifies every shard, this one too.
    pub(crate) async fn tell_all(&self, what: Serving) {
        for shard in (0..self.rt.shard_count()).map(ShardId) {
            if self.policy.call(&self.rt, shard, what).await.is_err() {
                tracing::error!(shard = shard.0, ?what, "a shard could not be told");
            }
        }
    }

    /// Returns the timeouts of clients' requests in milliseconds.
    pub(crate) fn timeouts(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        TIMEOUTS.iter().map(|(name, kind)| {
            let millis = self.server.executor().timeouts.as_set(*kind).as_millis();
            ((*name).to_owned(), u64::try_from(millis).unwrap_or(u64::MAX))
        })
    }

    /// Changes the timeout of requests of this shard that begin from now on, and of its background
    /// writes (replayed batches, data forwarded to new owners). Requests of other coordinators have
    /// their own deadlines.
    ///
    /// # Errors
    /// `Unsupported`: this timeout cannot be changed; `Argument`: zero, with which nothing could
    /// succeed.
    pub(crate) fn set_timeout(&self, kind: &str, millis: u64) -> Result<(), ActionError> {
        let Some((_, kind)) = TIMEOUTS.iter().find(|(name, _)| *name == kind) else {
            return Err(ActionError::Unsupported("setting that timeout"));
        };
        if millis == 0 {
            return Err(ActionError::Argument("the timeout must be at least 1 ms".to_owned()));
        }
        let timeout = Duration::from_millis(millis);
        self.server.executor().set_timeout(*kind, timeout);
        let mut live = self.live.borrow_mut();
        *match kind {
            Timeout::Read => &mut live.read_request_timeout,
            Timeout::Range => &mut live.range_request_timeout,
            Timeout::Write => &mut live.write_request_timeout,
            Timeout::CounterWrite => &mut live.counter_write_request_timeout,
            Timeout::CasContention => &mut live.cas_contention_timeout,
            Timeout::Truncate => &mut live.truncate_request_timeout,
            Timeout::Request => &mut live.request_timeout,
        } = timeout;
        if *kind == Timeout::Write {
            self.coordinator.batches().set_write_timeout(timeout);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_spoken_on_the_usual_ports_or_on_its_own() {
        let of = |ssl: Option<u16>, encryption| {
            let options = Options { native_transport_port_ssl: ssl, ..Options::default() };
            let ports = ports(&options, encryption).into_iter();
            let shown = ports.map(|port| {
                let aware = match port.kind.placement {
                    Placement::Balanced => "",
                    Placement::ShardAware => " aware",
                };
                format!("{}{aware} {:?}", port.number, port.kind.encryption)
            });
            shown.collect::<Vec<_>>().join(", ")
        };
        use PortEncryption::{Optional, Plain, Required};
        assert_eq!(of(None, Plain), "9042 Plain, 19042 aware Plain");
        assert_eq!(of(None, Optional), "9042 Optional, 19042 aware Optional");
        assert_eq!(of(Some(9042), Required), "9042 Required, 19042 aware Required");
        let own = "9042 Plain, 19042 aware Plain, 9142 Required, 19142 aware Required";
        assert_eq!(of(Some(9142), Required), own);
    }
}
