//! Opening of the work directory by shard 0, before anything else: founds a new cluster, joins an
//! existing one, or restores the previous state.
//!
//! The order, each step durable before the next: 1. the number of the run; 2. for a node that joins
//! its identity; 3. the metadata log; 4. the identity with the cluster's id; 5.
//! `metadata/truncated` with the number of the run, if there was a log already before step 1.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::{ClusterSnapshot, LocalNode, Members, Transformation, metalog};
use codec::SmallForm;
use conf::snitch::Place;
use conf::{Archiving, Options, Snitch};
use key_client::KeyClient;
use membership::log::LogFile;
use messaging::{Messaging, MessagingMesh};
use rt::{FileLock, IoErrorKind, Rt, SmallContent, damaged};
use stdx::{HostId, TableId, TimestampMicros, Token};
use takeover::ForeignDirectory;
use topology::TopologyError;
use topology::description::describe;
use topology::identity::{self, Identity};
use topology::introduction::{self, Membership};
use topology::joining::{self, Newcomer, Outcome};

use crate::api_access::{self, ApiAccess};
use crate::cluster::{network, place};
use crate::encryption::nodes::{self, NodeKeys};
use crate::encryption::{self, ClientKeys};
use crate::small_files::{self, SmallFiles};
use crate::{
    StartError, archiving, commit_log, disk_usage, disks, dropped, file_keys, first_role, parts,
};

/// Shard 0's result of opening the work directory.
pub(crate) struct Opened {
    pub(crate) snapshot: Arc<ClusterSnapshot>,
    /// Number of this run.
    pub(crate) run: u64,
    /// All tables that the metadata log ever had, and those of the system.
    pub(crate) tables_ever: Arc<BTreeSet<TableId>>,
    /// The archive of the commit log, and what of it is replayed.
    pub(crate) archiving: Archiving,
    pub(crate) log: LogFile,
    /// Held while the node runs.
    pub(crate) lock: FileLock,
    /// Shard 0's transport to other nodes; `None`: the node has no peers and opens no port for
    /// them.
    pub(crate) messaging: Option<Messaging>,
    /// Keys of encrypted client connections; `None`: all are in the clear.
    pub(crate) client_keys: Option<ClientKeys>,
    /// Keys of encrypted connections between nodes; `None`: all are in the clear.
    pub(crate) node_keys: Option<NodeKeys>,
    /// Client of the providers of keys of files; `None`: there are none.
    pub(crate) key_client: Option<KeyClient>,
    /// Logins and TLS of the API.
    pub(crate) api: ApiAccess,
}

/// Logs the saved caches that cannot be used.
async fn warn_of_saved_caches(rt: &Rt, options: &Options) {
    let fs = rt.fs();
    for (path, why) in store::damaged_saved_caches(&fs, &options.saved_caches_directory()).await {
        tracing::warn!(path, why, "a saved cache is ignored and will be rewritten");
    }
}

/// Logs the repairs that opening the metadata log has made.
fn report_log(work_dir: &str, opened: &membership::log::Opened) {
    if opened.dropped_bytes > 0 {
        tracing::warn!(
            path = format!("{work_dir}/metadata/log"),
            bytes = opened.dropped_bytes,
            "dropped an incomplete last entry of the metadata log; it was never acknowledged"
        );
    }
    if opened.is_end_rebuilt {
        tracing::warn!(
            path = format!("{work_dir}/{}", small_files::LOG_END),
            "the high-water mark of the metadata log could not be read and has been rebuilt from the log; \
             check the disk"
        );
    }
}

/// Opens or makes the metadata log; founds or joins a cluster.
///
/// # Errors
/// Why the node cannot start.
pub(crate) async fn open(
    rt: &Rt,
    options: &Options,
    mesh: &Arc<MessagingMesh>,
) -> Result<Opened, StartError> {
    let work_dir = options.workdir.trim_end_matches('/').to_owned();
    let client_keys = encryption::load(rt, options).await?;
    let node_keys = nodes::load(rt, options).await?;
    let key_client = file_keys::load(rt, options).await?;
    let api = api_access::load(rt, options).await.map_err(StartError::ApiAccess)?;
    // A wrong pattern stops the start before it changes anything.
    parts::authentication(options)?;
    let fs = rt.fs();
    fs.create_dir_all(&work_dir).await?;
    let lock = match fs.lock_exclusive(&format!("{work_dir}/.lock")).await {
        Ok(lock) => lock,
        Err(error) if error.kind == IoErrorKind::AlreadyExists => {
            return Err(StartError::InUse(work_dir));
        }
        Err(error) => return Err(error.into()),
    };
    let files = small_files::check(rt, &work_dir).await?;
    disks::check(rt, &work_dir, &options.data_directories(), &files).await?;
    warn_of_saved_caches(rt, options).await;
    disk_usage::check_max_size(&fs, options).await.map_err(StartError::Setting)?;
    let known = identity::read(&fs, &work_dir).await?;
    let place = place::find(&fs, options).await?;
    let default_compaction = parts::default_compaction(options)?;
    let base = cql_plan::system::system_schema_with(default_compaction.as_ref());
    let opened = membership::log::open(rt, &work_dir, &base).await?;
    report_log(&work_dir, &opened);
    check_promises(&files, &work_dir, opened.snapshot.as_ref())?;
    membership::log::create_promises(&fs, &work_dir).await?;
    file_keys::create_commit_log_key(rt, options).await?;
    let start = Start {
        rt,
        options,
        mesh,
        work_dir: &work_dir,
        place: &place,
        known,
        files: &files,
        keys: node_keys.as_ref(),
    };
    let (snapshot, run, log, messaging) = match opened.snapshot {
        Some(snapshot) => {
            if let Some(host) = start.owner_of_log(&snapshot) {
                commit_log::check(rt, options, host).await?;
            }
            let mut log = opened.log;
            let (snapshot, newest) = start.adopted(&base, snapshot, &mut log).await?;
            let (snapshot, run, messaging) = start.again(snapshot, newest).await?;
            (snapshot, run, log, messaging)
        }
        None => {
            drop(opened.log);
            start.first(&base).await?
        }
    };
    let mut tables_ever = dropped::ids_of(&log.reader()).await?;
    tables_ever.extend(snapshot.schema.tables_by_id.keys().copied());
    archiving::check_replay(options, &snapshot.schema)?;
    let archiving = archiving::prepare(rt, options).await?;
    let tables_ever = Arc::new(tables_ever);
    let snapshot = Arc::new(snapshot);
    Ok(Opened {
        snapshot,
        run,
        tables_ever,
        archiving,
        log,
        lock,
        messaging,
        client_keys,
        node_keys,
        key_client,
        api,
    })
}

/// Inputs of a start.
struct Start<'a> {
    rt: &'a Rt,
    options: &'a Options,
    mesh: &'a Arc<MessagingMesh>,
    work_dir: &'a str,
    place: &'a Place,
    /// The identity as it was found.
    known: Option<Identity>,
    files: &'a SmallFiles,
    keys: Option<&'a NodeKeys>,
}

/// Promises that are lost could decide one entry twice; where this node decides alone there are none.
fn check_promises(
    files: &SmallFiles,
    work_dir: &str,
    folded: Option<&ClusterSnapshot>,
) -> Result<(), StartError> {
    if !files.is_missing(small_files::PROMISES) {
        return Ok(());
    }
    let path = format!("{work_dir}/{}", small_files::PROMISES);
    if folded.is_some_and(|snapshot| snapshot.voters.len() > 1) {
        let what = "it was deleted, and the cluster has other voters to which this node may have made promises";
        return Err(TopologyError::Identity { path, what: what.to_owned() }.into());
    }
    tracing::warn!(
        path,
        "a small file was deleted and is rebuilt: this node decides alone and promises nothing"
    );
    Ok(())
}

impl Start<'_> {
    /// The log with what a Cassandra changed that ran on the directory since, and the newest of its
    /// timestamps. A crash in between repeats it: the number of this run is not stored yet.
    async fn adopted(
        &self,
        base: &schema::Schema,
        folded: ClusterSnapshot,
        log: &mut LogFile,
    ) -> Result<(ClusterSnapshot, TimestampMicros), StartError> {
        let (rt, options) = (self.rt, self.options);
        let nothing = TimestampMicros::NONE;
        if folded.local.cluster_name != options.cluster_name {
            // Refused in words of its own.
            return Ok((folded, nothing));
        }
        let run = last_run(rt, self.work_dir, self.files).await?.unwrap_or(0);
        let run = i64::try_from(run).unwrap_or(i64::MAX).max(folded.local.created_at.0);
        let steps = folded.system_timestamp().0.saturating_sub(folded.local.created_at.0);
        let newest_own = TimestampMicros(run.saturating_add(steps));
        let found = self.foreign(base).written_since(newest_own).await?;
        let Some(file) = found else { return Ok((folded, nothing)) };
        let mut snapshot = match self.known {
            Some(known) => folded.with_local(known.host_id).unwrap_or(folded),
            None => folded,
        };
        let adopted = self.foreign(base).adopt(&snapshot, file).await?;
        takeover::keep_left_out(&rt.fs(), options, &adopted.left_out).await?;
        for entry in adopted.entries {
            for entry in snapshot.with_features(vec![entry]) {
                let next = snapshot.apply(&entry).map_err(membership::SubmitError::from)?;
                let mut framed = Vec::new();
                entry.encode_entry(next.epoch, &mut framed);
                log.append(framed, next.epoch).await?;
                snapshot = next;
            }
        }
        Ok((snapshot, adopted.newest))
    }

    fn foreign<'b>(&'b self, base: &'b schema::Schema) -> ForeignDirectory<'b> {
        let (rt, options) = (self.rt, self.options);
        ForeignDirectory { rt, options, base, written: parts::sstable_version(options) }
    }

    /// The node whose commit log is expected. `None`: the start is refused for another reason, in
    /// words of its own.
    fn owner_of_log(&self, folded: &ClusterSnapshot) -> Option<HostId> {
        if folded.local.cluster_name != self.options.cluster_name {
            return None;
        }
        match self.known {
            Some(known) if known.cluster_id.is_none_or(|id| id == folded.cluster_id) => {
                Some(known.host_id)
            }
            None if folded.members.len() <= 1 => Some(folded.local.host_id),
            Some(_) | None => None,
        }
    }

    /// A start on a directory that has a log. `newest`: a timestamp that another program left.
    async fn again(
        &self,
        folded: ClusterSnapshot,
        newest: TimestampMicros,
    ) -> Result<(ClusterSnapshot, u64, Option<Messaging>), StartError> {
        let (rt, options) = (self.rt, self.options);
        if folded.local.cluster_name != options.cluster_name {
            return Err(StartError::ClusterName {
                found: folded.local.cluster_name.clone(),
                configured: options.cluster_name.clone(),
            });
        }
        // Cassandra may have run on the directory in between.
        takeover::check_commit_log(&rt.fs(), &options.commitlog_directory()).await?;
        let identity = self.identity_in(&folded)?;
        let Some(snapshot) = folded.with_local(identity.host_id) else {
            return Err(TopologyError::Removed { host: identity.host_id }.into());
        };
        self.check_place(&snapshot)?;
        // Larger than every earlier run's even when the clock went back: runs are counted in a file.
        let run = next_run(rt, self.work_dir, self.files, newest).await?;
        self.begin_truncations(&snapshot, run).await?;
        let run = write_run(rt, self.work_dir, run).await?;
        if options.replace_address_first_boot.is_some() {
            tracing::info!(
                "replace_address_first_boot is passed over: this is not the first start"
            );
        }
        if self.known != Some(identity) {
            identity::write(&rt.fs(), self.work_dir, identity).await?;
        }
        if !options.wants_peers() && snapshot.members.len() <= 1 {
            return Ok((snapshot, run, None));
        }
        let shards = rt.shard_count();
        let introduced = introduction::introduction(
            options,
            &identity,
            numbered(run, shards),
            Membership::Member,
        );
        let messaging = network::open(rt, options, introduced, self.mesh, self.keys).await?;
        network::place_peers_at_start(&messaging, &snapshot);
        introduction::introduce(&messaging, None, &snapshot);
        joining::check_welcome(rt, options, &messaging, &snapshot).await?;
        Ok((snapshot, run, Some(messaging)))
    }

    /// Records in `metadata/truncated` that this run has begun. If the directory had a log before,
    /// this happens before the run's number is durable.
    async fn begin_truncations(
        &self,
        snapshot: &ClusterSnapshot,
        run: Run,
    ) -> Result<(), StartError> {
        let runs = truncation::Runs { last: run.last, this: run.this };
        let begun =
            truncation::begin_truncations(&self.rt.fs(), self.work_dir, snapshot, runs).await;
        begun.map_err(|error| StartError::Store { shard: self.rt.shard().0, error })
    }

    /// Which member of the log this directory belongs to.
    fn identity_in(&self, folded: &ClusterSnapshot) -> Result<Identity, StartError> {
        let cluster_id = Some(folded.cluster_id);
        let path = || format!("{}/{}/identity", self.work_dir, membership::log::DIRECTORY);
        match self.known {
            Some(known) if known.cluster_id.is_none_or(|id| id == folded.cluster_id) => {
                Ok(Identity { host_id: known.host_id, cluster_id })
            }
            Some(known) => {
                let named = known.cluster_id.unwrap_or_default();
                let what = format!(
                    "it names the cluster {named}, the metadata log is that of {}: files of two \
                     nodes were mixed",
                    folded.cluster_id
                );
                Err(TopologyError::Identity { path: path(), what }.into())
            }
            // A directory of a release that had no such file, or a first start that was cut off.
            None if folded.members.len() <= 1 => {
                if self.files.is_missing("metadata/identity") {
                    tracing::warn!(
                        path = path(),
                        "a small file was deleted and is rebuilt from the metadata log"
                    );
                }
                Ok(Identity { host_id: folded.local.host_id, cluster_id })
            }
            None => {
                let what = "it is missing, and the metadata log has several members".to_owned();
                Err(TopologyError::Identity { path: path(), what }.into())
            }
        }
    }

    /// Checks the location: the node's data stays where its snitch placed it at the first start.
    fn check_place(&self, snapshot: &ClusterSnapshot) -> Result<(), StartError> {
        let (local, place) = (&snapshot.local, self.place);
        // A node taken over from Cassandra keeps its names under `SimpleSnitch`, as long as it is
        // alone.
        if self.options.endpoint_snitch == Snitch::Simple && snapshot.members.len() <= 1 {
            return Ok(());
        }
        let differs = |what, found: &String, configured: &String| StartError::Place {
            what,
            found: found.clone(),
            configured: configured.clone(),
        };
        if local.datacenter != place.datacenter {
            return Err(differs("data center", &local.datacenter, &place.datacenter));
        }
        if local.rack != place.rack {
            return Err(differs("rack", &local.rack, &place.rack));
        }
        Ok(())
    }

    /// A start on a directory without a log.
    async fn first(
        &self,
        base: &schema::Schema,
    ) -> Result<(ClusterSnapshot, u64, LogFile, Option<Messaging>), StartError> {
        let (rt, options) = (self.rt, self.options);
        self.refuse_lost_log()?;
        let imported = self.foreign(base).read(None).await?;
        let host_id = match (&imported, self.known) {
            (Some(imported), _) => imported.local.host_id,
            (None, Some(known)) => known.host_id,
            (None, None) => new_host_id(rt),
        };
        commit_log::check(rt, options, host_id).await?;
        let identity = Identity { host_id, cluster_id: None };
        let newest = imported
            .as_ref()
            .map_or(TimestampMicros::NONE, |imported| TimestampMicros(imported.local.created_at.0));
        let begun = next_run(rt, self.work_dir, self.files, newest).await?;
        let run = write_run(rt, self.work_dir, begun).await?;
        let mut messaging = None;
        if options.wants_peers() {
            let shards = rt.shard_count();
            let introduced = introduction::introduction(
                options,
                &identity,
                numbered(run, shards),
                Membership::Joining,
            );
            let opened = network::open(rt, options, introduced, self.mesh, self.keys).await?;
            let newcomer = Newcomer {
                rt,
                options,
                messaging: &opened,
                work_dir: self.work_dir,
                place: self.place,
                identity,
                run,
                may_join: imported.is_none(),
            };
            let outcome = newcomer.found_or_join(base).await?;
            if let Outcome::Joined(joined) = outcome {
                let (log, snapshot) = *joined;
                self.begin_truncations(&snapshot, begun).await?;
                return Ok((snapshot, run, log, Some(opened)));
            }
            messaging = Some(opened);
        }
        let (log, snapshot) = self.found(base, imported, host_id).await?;
        let identity = Identity { host_id, cluster_id: Some(snapshot.cluster_id) };
        identity::write(&rt.fs(), self.work_dir, identity).await?;
        self.begin_truncations(&snapshot, begun).await?;
        if let Some(messaging) = &messaging {
            let shards = rt.shard_count();
            let introduced = introduction::introduction(
                options,
                &identity,
                numbered(run, shards),
                Membership::Member,
            );
            messaging.set_identity(introduced);
            tracing::info!(cluster_id = %snapshot.cluster_id, %host_id, "created a new cluster");
        }
        Ok((snapshot, run, log, messaging))
    }

    /// A node that was a member of a cluster does not found another one on its data.
    fn refuse_lost_log(&self) -> Result<(), StartError> {
        let Some(cluster) = self.known.and_then(|known| known.cluster_id) else { return Ok(()) };
        let path = format!("{}/{}/log", self.work_dir, membership::log::DIRECTORY);
        let what = format!(
            "it is missing or empty, although this node is a member of the cluster {cluster} \
             (metadata/identity)"
        );
        Err(TopologyError::Identity { path, what }.into())
    }

    /// Writes the first entries of a new cluster's log.
    async fn found(
        &self,
        base: &schema::Schema,
        imported: Option<takeover::Imported>,
        host_id: HostId,
    ) -> Result<(LogFile, ClusterSnapshot), StartError> {
        let (rt, options) = (self.rt, self.options);
        let (local, changes, auth) = match imported {
            Some(imported) => {
                tracing::info!(
                    %host_id,
                    changes = imported.changes.len(),
                    "taking over a data directory of Cassandra's"
                );
                takeover::keep_left_out(&rt.fs(), options, &imported.left_out).await?;
                (imported.local, imported.changes, imported.auth)
            }
            None => (self.new_node(host_id), Vec::new(), Vec::new()),
        };
        let has_roles = auth.iter().any(|e| matches!(e, Transformation::PutRole { .. }));
        let mut entries = vec![Transformation::Bootstrap(local)];
        entries.extend(changes.into_iter().map(|c| Transformation::Schema(Box::new(c))));
        entries.extend(auth);
        if !has_roles {
            entries.extend(first_role::entry(options));
        }
        if options.wants_peers() {
            entries.push(describe(options, host_id, rt.shard_count(), &Members::default())?);
        }
        let mut framed = Vec::new();
        let mut snapshot: Option<ClusterSnapshot> = None;
        for entry in entries {
            let entry =
                match snapshot.as_ref().map(|before| before.with_features(vec![entry.clone()])) {
                    Some(with) if with.len() > 1 => Transformation::Group(with),
                    _ => entry,
                };
            let next = match &snapshot {
                None => metalog::bootstrap(&entry, base),
                Some(before) => before.apply(&entry),
            };
            let next = next.map_err(membership::SubmitError::from)?;
            entry.encode_entry(next.epoch, &mut framed);
            snapshot = Some(next);
        }
        let Some(snapshot) = snapshot else { return Err(StartError::Abandoned) };
        self.check_place(&snapshot)?;
        // All entries or none: a taken-over directory must not be taken over by half.
        let epoch = snapshot.epoch;
        let created = membership::log::create(rt, self.work_dir, base, &framed, epoch).await?;
        Ok((created.log, snapshot))
    }

    /// Identity and place of a node that founds a cluster on an empty directory.
    fn new_node(&self, host_id: HostId) -> LocalNode {
        let (rt, options) = (self.rt, self.options);
        let tokens = if options.initial_token.is_empty() {
            let count = u16::try_from(options.num_tokens).unwrap_or(u16::MAX);
            cluster::tokens_for_single_node(count, rt.random_u64())
        } else {
            let mut tokens: Vec<Token> = options.initial_token.clone();
            tokens.sort();
            tokens
        };
        LocalNode {
            host_id,
            cluster_name: options.cluster_name.clone(),
            datacenter: self.place.datacenter.clone(),
            rack: self.place.rack.clone(),
            tokens,
            created_at: rt.wall(),
        }
    }
}

fn new_host_id(rt: &Rt) -> HostId {
    let mut random = [0_u8; 16];
    rt.random_fill(&mut random);
    HostId(uuid::Builder::from_random_bytes(random).into_uuid())
}

fn numbered(number: u64, shards: u16) -> introduction::Run {
    introduction::Run { number, shards }
}

/// Kind and version of `metadata/run`; the body is the number and a line feed.
const RUN_FORM: SmallForm = SmallForm { kind: "run", version: 2 };

/// Numbers of runs.
#[derive(Clone, Copy)]
struct Run {
    /// Number of the last run; `None` when there was none or it is unknown.
    last: Option<u64>,
    /// Number of the run that begins.
    this: u64,
}

/// The number of this run, which is not stored yet: one more than the last, at least the wall clock in microseconds, and larger
/// than `newest`, as timestamps are made of it.
async fn next_run(
    rt: &Rt,
    work_dir: &str,
    files: &SmallFiles,
    newest: TimestampMicros,
) -> Result<Run, StartError> {
    let last = last_run(rt, work_dir, files).await?;
    let wall = u64::try_from(rt.wall().0).unwrap_or(0);
    let newer = u64::try_from(newest.0).map_or(1, |newest| newest.saturating_add(1));
    let this = wall.max(newer).max(last.map_or(1, |l: u64| l.saturating_add(1)));
    Ok(Run { last, this })
}

/// Persists the number of this run and returns it.
async fn write_run(rt: &Rt, work_dir: &str, run: Run) -> Result<u64, StartError> {
    let path = format!("{work_dir}/{}", small_files::RUN);
    rt.fs().write_small(RUN_FORM, &path, format!("{}\n", run.this).as_bytes()).await?;
    Ok(run.this)
}

/// The number of the last run; `None` when there was none.
async fn last_run(rt: &Rt, work_dir: &str, files: &SmallFiles) -> Result<Option<u64>, StartError> {
    let path = format!("{work_dir}/{}", small_files::RUN);
    let refused = |error| files.refuse(error, "remove it if this node's clock was never set back");
    let parse = |bytes: &[u8]| -> Option<u64> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        text.parse().ok().filter(|run: &u64| run.to_string() == text)
    };
    let last = match rt.fs().read_small(RUN_FORM, &path, 256).await.map_err(refused)? {
        SmallContent::Missing => None,
        SmallContent::Body(body) => Some(parse(&body)),
        // The form before had no checksum.
        SmallContent::Legacy(bytes) => {
            Some(parse(&bytes).filter(|_| !files.is_listed(small_files::RUN)))
        }
    };
    match last {
        Some(None) => Err(refused(damaged(&path, "it is not the number of a run"))),
        Some(Some(last)) => Ok(Some(last)),
        None => Ok(None),
    }
}
