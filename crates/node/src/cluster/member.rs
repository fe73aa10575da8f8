//! One shard of a node that is part of a cluster: its parts bound to the other nodes.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::{AdminMesh, AdminReply, AdminRequest};
use cluster::{ClusterSnapshot, Consistency};
use conf::{InternodeCompression, Options};
use coordinator::{ClusterParts, Coordinator, HintSink, ReplicatedWrite, ReplicationSettings};
use gossip::AppState;
use hints::{HintSealing, Hints, HintsParts, HintsSettings};
use internode::{ErrorReply, Verb};
use liveness::{Liveness, LivenessMesh, Start};
use membership::Membership;
use messaging::{Handler, Messaging, Request, Responder};
use repair::{AutoSettings, Repair, RepairMesh, RepairParts, RepairSettings};
use request::WriteType;
use rt::{Gate, Group, Rt};
use stdx::{HostId, ShardId, TtlSeconds, Uuid, WallMicros};
use streaming::{StreamMesh, StreamParts, StreamSettings, Streaming};
use system_tables::stored::own_rows::RowWriter;
use system_tables::stored::repair_history::RepairRows;

use topology::{HintsMesh, Topology, TopologyError, TopologyParts, introduction, seeds};

use crate::StartError;
use crate::cluster::network;
use crate::cluster::truncation::OwnTruncations;
use coordinator::{Origin, ReplicaMutation};

/// Between two rounds of gossip, as in Cassandra.
const ROUND: Duration = Duration::from_secs(1);
/// Interval at which the size of the data is sent to the peers.
const LOAD_PERIOD: Duration = Duration::from_secs(60);
/// Patience with peers at a start, and with requests of peers at the stop.
const CATCH_UP: Duration = Duration::from_secs(5);
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Connections of a shard to the other nodes. Clones share.
#[derive(Clone)]
pub(crate) struct ClusterShard {
    pub(crate) rt: Rt,
    pub(crate) options: Arc<Options>,
    /// In force on shard 0: those of the start until they are read again.
    pub(crate) seeds: Rc<RefCell<Vec<String>>>,
    pub(crate) messaging: Messaging,
    pub(crate) liveness: Liveness,
    pub(crate) membership: Membership,
    pub(crate) coordinator: Coordinator,
    pub(crate) hints: Hints,
    pub(crate) streaming: Streaming,
    pub(crate) repair: Repair,
    /// How truncations went here; empty until clients can be served.
    pub(crate) truncations: Rc<OwnTruncations>,
    /// Coming into the cluster, moving and going.
    pub(crate) topology: Topology,
    /// Owner of background tasks.
    pub(crate) gate: Gate,
    /// Owner of the removal of data; closed with the store.
    pub(crate) cleaning: Gate,
}

/// Gives each message of a peer to the part that it is for.
struct Dispatch(ClusterShard);

/// The hints of a shard as its coordinator sees them.
struct Sink(Hints);

impl HintSink for Sink {
    fn may_hint(&self, host: HostId) -> bool {
        self.0.may_hint(host)
    }

    fn store(&self, host: HostId, mutation: &[u8], written_at: WallMicros) -> bool {
        // The hint store counts dropped hints.
        self.0.store(host, mutation, written_at)
    }

    fn flush(&self) -> std::pin::Pin<Box<dyn Future<Output = bool>>> {
        let hints = self.0.clone();
        Box::pin(async move { hints.flush().await.is_ok() })
    }
}

/// The ways between shards that this needs.
pub(crate) struct ClusterMeshes<'a> {
    pub(crate) liveness: &'a Arc<LivenessMesh>,
    pub(crate) streaming: &'a Arc<StreamMesh>,
    pub(crate) repair: &'a Arc<RepairMesh>,
    pub(crate) hints: &'a Arc<HintsMesh>,
}

/// Groups of verbs, by their numbers' upper byte: `docs/formats/internode.md`.
const GOSSIP: u16 = 1;
const METADATA: u16 = 5;

impl Handler for Dispatch {
    fn handle(&self, request: Request<'_>, responder: Responder) {
        let node = &self.0;
        node.membership.notice(request.from, request.epoch);
        match request.verb.number() >> 8 {
            GOSSIP => node.liveness.serve_peer(&request),
            METADATA => node.membership.serve_peer(request.verb, request.payload, responder),
            _ if request.verb == Verb::Truncate => node.serve_truncation(&request, responder),
            _ if request.verb == Verb::TakeOver => {
                node.topology.copies().serve_take_over(&request, responder)
            }
            _ => {
                let rest = node.coordinator.serve_peer(request, responder);
                let rest = rest.and_then(|rest| node.streaming.serve_peer(request, rest));
                let rest = rest.and_then(|rest| node.repair.serve_peer(request, rest));
                if let Some(responder) = rest {
                    responder.fail(&ErrorReply::UnknownVerb(request.verb.number()));
                }
            }
        }
    }
}

impl ClusterShard {
    /// Binds the parts of this shard.
    ///
    /// # Errors
    /// `Hints`: their directory cannot be used.
    pub(crate) async fn new(
        rt: &Rt,
        options: &Arc<Options>,
        messaging: Messaging,
        meshes: ClusterMeshes<'_>,
        membership: &Membership,
        coordinator: &Coordinator,
    ) -> Result<ClusterShard, StartError> {
        let host = membership.snapshot().local.host_id;
        let snapshot = || {
            let membership = membership.clone();
            Rc::new(move || membership.snapshot())
        };
        let parts = HintsParts { messaging: messaging.clone(), snapshot: snapshot() };
        let hints = Hints::open(rt, parts, hints_settings(options)).await;
        let hints = hints.map_err(|error| StartError::Hints(error.to_string()))?;
        let streaming = Streaming::new(StreamParts {
            rt: rt.clone(),
            store: coordinator.store().clone(),
            messaging: messaging.clone(),
            mesh: meshes.streaming.clone(),
            snapshot: snapshot(),
            settings: stream_settings(options),
        });
        let liveness = Liveness::new(rt.clone(), meshes.liveness.clone(), host);
        let gate = rt.gate("cluster");
        let repair = repair(
            options,
            &messaging,
            meshes.repair,
            RepairSources {
                liveness: &liveness,
                writer: RowWriter {
                    rt: rt.clone(),
                    coordinator: coordinator.clone(),
                    membership: membership.clone(),
                    gate: gate.clone(),
                },
            },
        );
        let (seeds, cleaning) = (Rc::new(RefCell::new(options.seeds.clone())), rt.gate("cleanup"));
        let topology = Topology::new(TopologyParts {
            rt: rt.clone(),
            options: options.clone(),
            seeds: seeds.clone(),
            messaging: messaging.clone(),
            liveness: liveness.clone(),
            membership: membership.clone(),
            coordinator: coordinator.clone(),
            hints: hints.clone(),
            streaming: streaming.clone(),
            hints_mesh: meshes.hints.clone(),
            gate: gate.clone(),
            cleaning: cleaning.clone(),
        });
        let this = ClusterShard {
            rt: rt.clone(),
            options: options.clone(),
            seeds,
            messaging,
            liveness,
            membership: membership.clone(),
            coordinator: coordinator.clone(),
            hints,
            streaming,
            repair,
            truncations: Rc::default(),
            topology,
            gate,
            cleaning,
        };
        this.begin().await?;
        Ok(this)
    }

    /// Lets the parts follow each other.
    async fn begin(&self) -> Result<(), StartError> {
        self.repair.begin().await.map_err(StartError::from)?;
        self.coordinator.lwt().load_checkpoints(&self.options.workdir).await?;
        self.follow_metadata();
        self.follow_liveness();
        self.follow_clocks();
        self.attach_coordinator();
        self.hand_on_hints();
        self.topology.hint_handover().serve_hints_mesh();
        self.topology.cleanup().clean_by_itself();
        if self.rt.shard() == ShardId(0) {
            let liveness = self.liveness.clone();
            self.membership.attach(self.messaging.clone(), move |host| liveness.is_alive(host));
        }
        Ok(())
    }

    fn follow_liveness(&self) {
        let snapshot = self.membership.snapshot();
        // No peer was heard of yet: their hint windows begin now.
        let others = snapshot.members.keys().filter(|host| **host != snapshot.local.host_id);
        for host in others {
            self.hints.set_down(*host, self.rt.now());
        }
        let this = self.clone();
        self.liveness.on_change(move |host, is_up| {
            if is_up {
                // Tried at once, not after a pause.
                this.messaging.peer_is_up(host);
                this.hints.set_up(host);
            } else {
                this.hints.set_down(host, this.rt.now());
            }
        });
    }

    /// Answers requests of peers from now on; before that they get the reply that nothing was done.
    pub(crate) fn serve_peers(&self) {
        self.messaging.serve(Rc::new(Dispatch(self.clone())));
    }

    fn follow_metadata(&self) {
        // On shard 0 they are known since the start, some of them at other addresses than in the
        // log.
        let snapshot = self.membership.snapshot();
        introduction::introduce(&self.messaging, Some(&snapshot), &snapshot);
        if self.options.internode_compression == InternodeCompression::Dc {
            let membership = self.membership.clone();
            self.messaging.hooks().compress_only(Rc::new(move |host| {
                let snapshot = membership.snapshot();
                let member = snapshot.members.get(&host);
                member.is_none_or(|m| m.datacenter != snapshot.local.datacenter)
            }));
        }
        let places = self.membership.clone();
        self.messaging
            .hooks()
            .place_peers(Rc::new(move |host| network::nearness(&places.snapshot(), host)));
        let noticing = self.membership.clone();
        self.messaging
            .hooks()
            .on_newer_epoch(Rc::new(move |host, epoch| noticing.notice(host, epoch)));
        let this = self.clone();
        let is_first = self.rt.shard() == ShardId(0);
        let repair = self.repair.clone();
        self.membership.on_change(move |before, after| {
            repair.metadata_changed();
            introduction::follow(&this.messaging, before, after);
            for host in before.members.keys().filter(|host| !after.members.contains_key(*host)) {
                this.hints.forget(*host);
            }
            if is_first {
                this.topology.metadata_changed(before, after);
            }
            if is_first && before.members != after.members {
                this.liveness.set_members(this.gossip_members(after));
            }
        });
        // All shards use an epoch before gossip reports it.
        if is_first {
            let liveness = self.liveness.clone();
            self.membership.on_applied(move |_, after| {
                liveness.update(|app| app.epoch = app.epoch.max(after.epoch));
            });
        }
    }

    fn attach_coordinator(&self) {
        let membership = self.membership.clone();
        let liveness = self.liveness.clone();
        let waiting = self.membership.clone();
        self.coordinator.attach(ClusterParts {
            messaging: self.messaging.clone(),
            snapshot: Rc::new(move || membership.snapshot()),
            is_alive: Rc::new(move |host| liveness.is_alive(host)),
            hints: Rc::new(Sink(self.hints.clone())),
            epoch_wait: Some(Rc::new(move |epoch, deadline| {
                let membership = waiting.clone();
                Box::pin(async move { membership.wait_for(epoch, deadline).await })
            })),
            settings: ReplicationSettings {
                write_request_timeout: self.options.write_request_timeout,
                dynamic_snitch: self.options.dynamic_snitch,
                dynamic_snitch_update_interval: self.options.dynamic_snitch_update_interval,
                dynamic_snitch_reset_interval: self.options.dynamic_snitch_reset_interval,
                dynamic_snitch_badness_threshold: self.options.dynamic_snitch_badness_threshold.0,
                ..ReplicationSettings::default()
            },
        });
    }

    /// Forwards hints of a node that has left to the present owners.
    fn hand_on_hints(&self) {
        let (rt, membership) = (self.rt.clone(), self.membership.clone());
        let coordinator = self.coordinator.clone();
        self.hints.set_redistribute(Rc::new(move |missed| {
            let (coordinator, snapshot) = (coordinator.clone(), membership.snapshot());
            let deadline = rt.now() + coordinator.batches().write_timeout();
            let mutation = ReplicaMutation::durable(missed.token, missed.mutation);
            Box::pin(async move {
                if !coordinator.is_replicated(&snapshot, missed.table) {
                    return coordinator.apply(mutation, Origin::Hint).await.is_ok();
                }
                let write = ReplicatedWrite {
                    snapshot,
                    consistency: Consistency::Any,
                    write_type: WriteType::Simple,
                    mutations: vec![mutation],
                    logged: false,
                    batch_id: Uuid::nil(),
                    deadline,
                };
                coordinator.writer().write_missed(write, missed.written_at).await.is_ok()
            })
        }));
    }

    /// Replaces the seeds. Shard 0 only.
    ///
    /// # Errors
    /// One of them is no address; nothing has changed then.
    pub(crate) fn set_seeds(&self, seeds: Vec<String>) -> Result<(), StartError> {
        seeds::read(&seeds, self.options.storage_port)?;
        *self.seeds.borrow_mut() = seeds;
        self.liveness.set_members(self.gossip_members(&self.membership.snapshot()));
        Ok(())
    }

    /// Their addresses. One that cannot be understood has stopped the start, or was refused.
    pub(crate) fn seed_addresses(&self) -> Vec<SocketAddr> {
        seeds::read(&self.seeds.borrow(), self.options.storage_port).unwrap_or_default()
    }

    fn gossip_members(&self, snapshot: &ClusterSnapshot) -> Vec<gossip::Member> {
        let seeds = self.seed_addresses();
        let members = snapshot.members.values();
        members
            .map(|m| gossip::Member { host: m.host_id, is_seed: seeds.contains(&m.storage) })
            .collect()
    }

    /// Begins to gossip, and catches up on metadata that was decided while this node was away.
    /// Shard 0 only.
    ///
    /// # Errors
    /// `Io`; `Removed` when the others have removed this node.
    pub(crate) async fn meet_others(&self) -> Result<(), StartError> {
        let generation = liveness::next_generation(&self.rt, &self.options.workdir).await?;
        let snapshot = self.membership.snapshot();
        let noticing = self.membership.clone();
        self.liveness.start(Start {
            messaging: self.messaging.clone(),
            generation,
            work_dir: self.options.workdir.clone(),
            phi_convict_threshold: self.options.phi_convict_threshold.0,
            round: ROUND,
            state: AppState {
                epoch: snapshot.epoch,
                shards: self.rt.shard_count(),
                release: cql_plan::system_rows::RELEASE_VERSION.to_owned(),
                ..AppState::default()
            },
            on_epoch: Box::new(move |host, epoch| noticing.notice(host, epoch)),
        });
        self.liveness.set_members(self.gossip_members(&snapshot));
        self.topology.gossip_began(self.rt.now());
        if snapshot.members.len() > 1 {
            let deadline = self.rt.now() + CATCH_UP;
            if !self.membership.catch_up_at_start(deadline).await {
                tracing::warn!(
                    "no majority of the voters answered: this node goes on with the \
                    metadata it has, and schema and members cannot be changed until they do"
                );
            }
        }
        let snapshot = self.membership.snapshot();
        if snapshot.local_member().is_none() {
            return Err(TopologyError::Removed { host: snapshot.local.host_id }.into());
        }
        Ok(())
    }

    /// Tells the others now and then how much data this node has. Shard 0 only.
    pub(crate) fn tell_load(&self, admin: Arc<AdminMesh>) {
        let this = self.clone();
        let task = async move {
            loop {
                let mut load = 0_u64;
                for shard in (0..this.rt.shard_count()).map(ShardId) {
                    let answer = admin.call(&this.rt, shard, AdminRequest::Tables).await;
                    if let Ok(AdminReply::Tables(tables)) = answer {
                        let bytes = tables.iter().map(|table| table.disk_bytes);
                        load = bytes.fold(load, u64::saturating_add);
                    }
                }
                this.liveness.update(|app| app.load = load);
                let next = this.rt.now() + LOAD_PERIOD;
                if this.rt.timeout(next, this.rt.stop_requested()).await.is_ok() {
                    return;
                }
            }
        };
        // A closed gate: the node stops.
        let _ = self.gate.spawn(&self.rt, Group::Gossip, "load", task);
    }

    /// Announces the stop to the peers and stops serving them; the parts that it binds must still
    /// exist.
    pub(crate) async fn stop(&self) {
        self.liveness.stop().await;
        self.hints.pause();
        self.repair.stop().await;
        self.streaming.stop().await;
        self.gate.close().await;
        self.messaging.stop(STOP_GRACE).await;
        if let Err(error) = self.hints.close().await {
            tracing::warn!(%error, "hints that were not on the disk are lost");
        }
    }
}

/// Sources of a shard's repairs.
struct RepairSources<'a> {
    liveness: &'a Liveness,
    writer: RowWriter,
}

/// The repairs of a shard.
fn repair(
    options: &Options,
    messaging: &Messaging,
    mesh: &Arc<RepairMesh>,
    sources: RepairSources<'_>,
) -> Repair {
    let RepairSources { liveness, writer } = sources;
    let (alive, membership) = (liveness.clone(), writer.membership.clone());
    Repair::new(RepairParts {
        rt: writer.rt.clone(),
        coordinator: writer.coordinator.clone(),
        messaging: messaging.clone(),
        snapshot: Rc::new(move || membership.snapshot()),
        is_alive: Rc::new(move |host| alive.is_alive(host)),
        mesh: mesh.clone(),
        work_dir: options.workdir.trim_end_matches('/').to_owned(),
        records: Some(Rc::new(repair_rows(options, writer))),
        settings: RepairSettings {
            // Cassandra's validation compactions keep to the same rate.
            bytes_per_second: options.compaction_throughput.0,
            auto: auto_settings(options),
            ..RepairSettings::default()
        },
    })
}

fn repair_rows(options: &Options, writer: RowWriter) -> RepairRows {
    let ttl = options.trace_type_repair_ttl.as_secs();
    RepairRows::new(writer, TtlSeconds(i32::try_from(ttl).unwrap_or(i32::MAX)))
}

fn auto_settings(options: &Options) -> AutoSettings {
    let window = options.auto_repair_window;
    AutoSettings {
        enabled: options.auto_repair_enabled,
        window: (!window.is_zero()).then_some(window),
        bytes_per_second: options.auto_repair_throughput.0,
        initial_delay: options.auto_repair_initial_delay,
        turn: options.auto_repair_turn,
    }
}

fn stream_settings(options: &Options) -> StreamSettings {
    StreamSettings {
        outbound_bytes_per_second: options.stream_throughput_outbound.0,
        inter_dc_bytes_per_second: options.inter_dc_stream_throughput_outbound.0,
        whole_files: options.stream_entire_sstables,
        ..StreamSettings::default()
    }
}

fn hints_settings(options: &Options) -> HintsSettings {
    let sealing = match options.system_info_encryption.enabled {
        true => HintSealing::Sealed,
        false => HintSealing::Plain,
    };
    let source = crate::file_keys::source(options, &options.system_info_encryption);
    HintsSettings {
        sealing,
        key_source: source.map(Arc::new),
        enabled: options.hinted_handoff_enabled,
        disabled_datacenters: options.hinted_handoff_disabled_datacenters.iter().cloned().collect(),
        window: options.max_hint_window,
        window_persistent: options.hint_window_persistent_enabled,
        host_bytes_max: options.max_hints_size_per_host.0,
        deliveries_max: usize::try_from(options.max_hints_delivery_threads).unwrap_or(usize::MAX),
        flush_period: options.hints_flush_period,
        file_bytes_max: options.max_hints_file_size.0,
        throttle_bytes_per_second: options.hinted_handoff_throttle.0,
        ..HintsSettings::new(options.hints_directory())
    }
}
