//! [`Repair`]: the object of a shard; builds the rooms, hands commands to them, starts and stops.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use coordinator::Coordinator;
use messaging::{Messaging, Request, Responder};
use rt::sync::Notify;
use rt::{Group, Rt};
use stdx::{HostId, ShardId, TableId, Token};

use crate::announce::Announcer;
use crate::auto::{AutoStatus, Automatic, Schedule};
use crate::corrupt_files::KnownRepairs;
use crate::corrupt_files_driver::{CorruptFileParts, CorruptFileRepairs};
use crate::details::RepairDetails;
use crate::drive::Drive;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::history_file::HistoryFile;
use crate::job::RepairStatus;
use crate::jobs::Jobs;
use crate::metrics::Counts;
use crate::participation::{ParticipationDetails, Participations};
use crate::records::RepairRecords;
use crate::scope::RepairOptions;
use crate::serve::Server;
use crate::sessions::{SessionStatus, Sessions};
use crate::settings::RepairSettings;
use crate::shards::{RepairMesh, Shards};
use crate::throttle::Throttle;

/// Dependencies of a shard's repair.
pub struct RepairParts {
    /// The shard.
    pub rt: Rt,
    /// The node's data; part of a cluster.
    pub coordinator: Coordinator,
    /// Messaging with peers.
    pub messaging: Messaging,
    /// The newest snapshot that this node has applied.
    pub snapshot: Rc<dyn Fn() -> Arc<ClusterSnapshot>>,
    /// Verdict of the failure detector.
    pub is_alive: Rc<dyn Fn(HostId) -> bool>,
    /// Mesh to the other shards.
    pub mesh: Arc<RepairMesh>,
    /// Directory of the history file.
    pub work_dir: String,
    /// Writer of records of repairs, if there is one.
    pub records: Option<Rc<dyn RepairRecords>>,
    /// Limits and times.
    pub settings: RepairSettings,
}

/// Repair on one shard. Clones are the same object. Commands are given to one shard of a node.
#[derive(Clone)]
pub struct Repair {
    env: Rc<Env>,
    history: Rc<HistoryFile>,
    participations: Rc<Participations>,
    sessions: Rc<Sessions>,
    server: Rc<Server>,
    jobs: Rc<Jobs>,
    known_corrupt: Rc<KnownRepairs>,
    corrupt_files: Rc<CorruptFileRepairs>,
    schedule: Rc<Schedule>,
}

impl Repair {
    /// Repair of the shard of `parts.rt`; it serves peers by [`Repair::serve_peer`].
    pub fn new(parts: RepairParts) -> Repair {
        let (mesh, work_dir) = (parts.mesh.clone(), parts.work_dir.clone());
        let env = Rc::new(env_of(parts));
        let history = Rc::new(HistoryFile::new(env.clone(), work_dir));
        let participations = Rc::new(Participations::default());
        let known = Rc::new(KnownRepairs::default());
        let shards = Rc::new(Shards::new(
            env.clone(),
            mesh,
            history.clone(),
            participations.clone(),
            known.clone(),
        ));
        let exchange = Rc::new(Exchange::new(env.clone(), shards.clone()));
        let announcer =
            Rc::new(Announcer::new(env.clone(), shards.clone(), participations.clone()));
        let sessions = Rc::new(Sessions::new(
            env.clone(),
            shards.clone(),
            announcer.clone(),
            participations.clone(),
        ));
        let server =
            Rc::new(Server::new(env.clone(), shards.clone(), exchange.clone(), sessions.clone()));
        let drive = Rc::new(Drive {
            env: env.clone(),
            exchange,
            announcer,
            shards: shards.clone(),
            sessions: sessions.clone(),
            participations: participations.clone(),
        });
        let jobs = Rc::new(Jobs::new(env.clone(), drive));
        let corrupt_files = Rc::new(CorruptFileRepairs::new(CorruptFileParts {
            env: env.clone(),
            jobs: jobs.clone(),
            shards: shards.clone(),
            history: history.clone(),
            participations: participations.clone(),
            known: known.clone(),
        }));
        let schedule = Rc::new(Schedule::new(
            env.clone(),
            jobs.clone(),
            history.clone(),
            corrupt_files.clone(),
        ));
        shards.serve();
        history.apply_policies();
        Repair {
            env,
            history,
            participations,
            sessions,
            server,
            jobs,
            known_corrupt: known,
            corrupt_files,
            schedule,
        }
    }

    /// Changes the bytes per second that repairs of this node read to compare, all together, those that
    /// run now too; 0 = no limit.
    pub fn set_throughput(&self, bytes_per_second: u64) {
        self.env.throttle.set_rate(bytes_per_second);
    }

    /// Loads the history of repairs, aborts the sessions that the last run left open, and starts
    /// automatic repairs. Must be called once on every shard.
    ///
    /// # Errors
    /// `Io`. A file that cannot be understood is ignored: it only keeps tombstones.
    pub async fn begin(&self) -> Result<(), stdx::IoError> {
        self.history.load().await?;
        self.history.apply_policies();
        let env = &self.env;
        if env.rt.shard() == ShardId(0) {
            let sessions = self.sessions.clone();
            let watch = async move { sessions.watch().await };
            let _ = env.gate.spawn(&env.rt, Group::Stream, "repair-sessions", watch);
            let schedule = self.schedule.clone();
            let auto = async move { schedule.run().await };
            let _ = env.gate.spawn(&env.rt, Group::Stream, "auto-repair", auto);
            let corrupt_files = self.corrupt_files.clone();
            let corrupt = async move { corrupt_files.run().await };
            let _ = env.gate.spawn(&env.rt, Group::Stream, "repair-damaged", corrupt);
        }
        Ok(())
    }

    /// Applies changed metadata: tables, ranges or options may differ. Must be called on every
    /// shard.
    pub fn metadata_changed(&self) {
        self.history.apply_policies();
    }

    /// Serves a peer's request of the verbs `Repair…`; gives the responder back when it is another
    /// one.
    pub fn serve_peer(&self, request: Request<'_>, responder: Responder) -> Option<Responder> {
        self.server.serve(request, responder)
    }

    /// Starts a repair; returns its number, from 1. 0: there is nothing to repair, because no other
    /// node has replicas of the keyspace.
    ///
    /// # Errors
    /// Invalid options, unknown names, too many repairs at a time.
    pub fn start(&self, options: RepairOptions) -> Result<u32, String> {
        self.jobs.start(options)
    }

    /// A repair of this run of the node, with its lines from that number on. `None`: there was
    /// none, or it ended long ago.
    pub fn status(&self, id: u32, from: u64) -> Option<RepairStatus> {
        self.jobs.status(id, from)
    }

    /// All of them, without lines.
    pub fn list(&self) -> Vec<RepairStatus> {
        self.jobs.list()
    }

    /// Returns all repairs without lines, with their details.
    pub fn list_details(&self) -> Vec<(RepairStatus, RepairDetails)> {
        self.jobs.list_details()
    }

    /// Ends a running repair, or all of them; how many there were.
    pub fn abort(&self, id: Option<u32>) -> usize {
        self.jobs.abort(id)
    }

    /// When parts of ranges of a table were repaired, seconds since 1970, as far as this node took part;
    /// 0: never. Shard 0.
    pub fn repaired_parts(
        &self,
        table: TableId,
        ranges: &[(Token, Token)],
    ) -> Vec<(Token, Token, i64)> {
        let history = self.history.known();
        ranges.iter().flat_map(|(start, end)| history.parts_of(table, *start, *end)).collect()
    }

    /// Incremental sessions that other nodes have opened on this one. Shard 0.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.sessions.statuses()
    }

    /// Returns this node's parts in repairs, current ones and those of this run, the oldest first.
    /// Shard 0.
    pub fn participations(&self) -> Vec<ParticipationDetails> {
        let snapshot = (self.env.snapshot)();
        self.participations.details(&snapshot, |host| self.env.address(host))
    }

    /// The schedule. Shard 0.
    pub fn auto_status(&self) -> AutoStatus {
        self.schedule.status()
    }

    /// Lets repairs begin by themselves, those of the schedule and those for damaged files, or not. Shard 0;
    /// until the node stops.
    pub fn set_automatic(&self, automatic: Automatic) {
        self.schedule.set_automatic(automatic);
    }

    /// The state of the repair for a damaged file, in words, by the path of its Data component.
    pub fn damaged_file_state(&self, path: &str) -> Option<String> {
        let known = self.known_corrupt.get();
        known.get(path)?.words(|host| self.env.address(host), self.env.rt.now())
    }

    /// Ends what runs and refuses the rest.
    pub async fn stop(&self) {
        self.env.stopping.set(true);
        self.env.stop.notify_waiters();
        self.env.gate.close().await;
    }
}

fn env_of(parts: RepairParts) -> Env {
    let RepairParts { rt, coordinator, messaging, snapshot, is_alive, records, settings, .. } =
        parts;
    Env {
        counts: Counts::new(&rt),
        throttle: Throttle::new(settings.bytes_per_second),
        gate: rt.gate("repair"),
        stopping: Cell::new(false),
        stop: Notify::new(),
        rt,
        coordinator,
        messaging,
        snapshot,
        is_alive,
        records,
        settings,
    }
}

#[cfg(test)]
impl Repair {
    /// The history as this shard knows it.
    pub(crate) fn history(&self) -> crate::RepairHistory {
        self.history.known().clone()
    }
}
