//! Scope of a repair: its ranges, tables and peers, decided from the metadata alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{ClusterSnapshot, PlacementKey, Placements, Replicas, Replication, TokenRange};
use schema::{Table, TableKind};
use stdx::{HostId, TableId, Token};
use store::ReadScope;

/// Options of a repair; names are those of `nodetool repair`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Keyspace.
    pub keyspace: String,
    /// Its tables; empty: all.
    pub tables: Vec<String>,
    /// Only ranges whose first replica is this node (`-pr`).
    pub primary_range: bool,
    /// Only these tokens, the first exclusive (`-st`, `-et`); empty: all.
    pub ranges: Vec<(Token, Token)>,
    /// Only replicas of these datacenters (`-dc`, `-local`); empty: all.
    pub datacenters: Vec<String>,
    /// Only these replicas, by address (`-hosts`); empty: all. This node must be one of them.
    pub hosts: Vec<String>,
    /// Count what differs and change nothing (`-prv`).
    pub preview: bool,
    /// Ask replicas one after the other (`-seq`).
    pub sequential: bool,
    /// Tables that are repaired at a time, 1 to 4 (`-j`).
    pub job_threads: u8,
    /// Compare only data that no repair has covered, and mark it as repaired afterwards:
    /// Cassandra's default. A repair of a subset of the replicas (`-dc`, `-hosts`, `-force`,
    /// `--pull`) is always full.
    pub incremental: bool,
    /// With a preview: only what repairs have covered (`--validate`).
    pub validate: bool,
    /// Ask one replica of each datacenter at a time (`-dcpar`).
    pub datacenter_parallel: bool,
    /// Leave replicas out that are not alive (`-force`).
    pub force: bool,
    /// Only this node gets what it lacks (`--pull`).
    pub pull: bool,
    /// Only unfinished lightweight transactions are brought to their ends (`--paxos-only`).
    pub paxos_only: bool,
    /// Do not complete lightweight transactions (`--skip-paxos`); otherwise every repair that
    /// writes begins with them.
    pub skip_paxos: bool,
    /// Record its steps as events of a trace (`--trace`).
    pub trace: bool,
    /// Maximum bytes per second that this node reads to compare; 0 = as in the settings.
    pub bytes_per_second: u64,
    /// Ranges without other replicas are left out instead of being an error (`-iuk`).
    pub ignore_unreplicated: bool,
}

/// Data that a repair compares, and the effect on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything.
    Full,
    /// Data that was never repaired; it is repaired afterwards.
    Incremental,
    /// Nothing is written. Compares all data, or only unrepaired data, or only repaired data.
    Preview(ReadScope),
}

impl RepairOptions {
    /// Returns true if all replicas take part, and all get the data that they lack.
    pub fn is_global(&self) -> bool {
        self.datacenters.is_empty() && self.hosts.is_empty() && !self.force && !self.pull
    }

    /// Returns true if unfinished lightweight transactions are completed first.
    pub fn repairs_paxos(&self) -> bool {
        !self.skip_paxos && !matches!(self.kind(), Kind::Preview(_))
    }

    /// Returns true if it may write to a table in the range.
    pub fn may_change(&self, keyspace: &str, table: &str, range: TokenRange) -> bool {
        let wanted = || self.ranges.iter().map(|(start, end)| (*start, *end));
        let mut wanted = wanted().flat_map(|(start, end)| TokenRange { start, end }.unwrapped());
        !matches!(self.kind(), Kind::Preview(_))
            && self.keyspace == keyspace
            && (self.tables.is_empty() || self.tables.iter().any(|name| name == table))
            && (self.ranges.is_empty()
                || wanted.any(|r| r.start < range.end && range.start < r.end))
    }

    /// Parallelism of the requests to replicas, in the words of Cassandra's enum.
    pub(crate) fn parallelism(&self) -> &'static str {
        match (self.sequential, self.datacenter_parallel) {
            (true, _) => "sequential",
            (false, true) => "dc_parallel",
            (false, false) => "parallel",
        }
    }

    /// Returns the kind of repair that the options select.
    pub fn kind(&self) -> Kind {
        match (self.preview, self.validate, self.incremental) {
            (_, true, _) => Kind::Preview(ReadScope::Repaired),
            (true, false, true) => Kind::Preview(ReadScope::Unrepaired),
            (true, false, false) => Kind::Preview(ReadScope::Repair),
            (false, false, true) if self.is_global() => Kind::Incremental,
            (false, false, _) => Kind::Full,
        }
    }
}

/// Data that a preview compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preview {
    /// No preview.
    #[default]
    None,
    /// Everything.
    All,
    /// Data that no repair has covered.
    Unrepaired,
    /// Data that repairs have covered.
    Repaired,
}

impl Preview {
    /// Returns the name of Cassandra's `PreviewKind`.
    pub fn name(self) -> &'static str {
        match self {
            Preview::None => "NONE",
            Preview::All => "ALL",
            Preview::Unrepaired => "UNREPAIRED",
            Preview::Repaired => "REPAIRED",
        }
    }

    pub(crate) fn of(options: &RepairOptions) -> Preview {
        match options.kind() {
            Kind::Full | Kind::Incremental => Preview::None,
            Kind::Preview(ReadScope::Unrepaired) => Preview::Unrepaired,
            Kind::Preview(ReadScope::Repaired) => Preview::Repaired,
            Kind::Preview(_) => Preview::All,
        }
    }
}

/// Ranges that the same nodes hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// All natural replicas but this node, in ascending order.
    pub others: Vec<HostId>,
    /// The subset of `others` that is compared and repaired; not empty.
    pub peers: Vec<HostId>,
    /// Without wrap, ascending, neighbours joined.
    pub ranges: Vec<TokenRange>,
}

/// Work of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The tables, by name.
    pub tables: Vec<TableId>,
    /// Not empty, unless unreplicated ranges are left out.
    pub sessions: Vec<Session>,
    /// Ranges of the ring.
    pub range_count: usize,
}

/// Checks that the options are compatible and that the names exist.
///
/// # Errors
/// Describes the problem, in Cassandra's words where it has them.
pub fn check(snapshot: &ClusterSnapshot, options: &RepairOptions) -> Result<(), String> {
    let Some(keyspace) = snapshot.schema.keyspace(&options.keyspace) else {
        return Err(format!("Keyspace [{}] does not exist.", options.keyspace));
    };
    for table in &options.tables {
        if !keyspace.tables.contains_key(table.as_str()) {
            return Err(format!("Unknown keyspace/cf pair ({}.{table})", options.keyspace));
        }
    }
    let local = &snapshot.local.datacenter;
    let is_local_only = options.datacenters.iter().all(|dc| dc == local);
    if !(1..=4).contains(&options.job_threads) {
        return Err("Too many job threads. Max is 4".to_owned());
    }
    if !options.datacenters.is_empty() && !options.hosts.is_empty() {
        return Err("Cannot combine -dc and -hosts options.".to_owned());
    }
    if options.primary_range && (!is_local_only || !options.hosts.is_empty()) {
        return Err("You need to run primary range repair on all nodes in the cluster.".to_owned());
    }
    if options.primary_range && !options.ranges.is_empty() {
        return Err("-pr cannot be combined with -st and -et".to_owned());
    }
    if !options.datacenters.is_empty() && !options.datacenters.contains(local) {
        return Err("the local data center must be part of the repair".to_owned());
    }
    if options.pull && options.hosts.len() != 2 {
        return Err(
            "Pull repair can only be performed between two hosts. Please specify two hosts, \
                    one of which must be this host."
                .to_owned(),
        );
    }
    if options.pull && options.ranges.is_empty() {
        return Err(
            "Token ranges must be specified when performing pull repair. Please specify at \
                    least one token range which both hosts have in common."
                .to_owned(),
        );
    }
    if options.skip_paxos && options.paxos_only {
        return Err("paxos-only and skip-paxos cannot both be set".to_owned());
    }
    if options.ranges.iter().any(|(start, end)| start == end) {
        return Err("Start and end tokens must be different.".to_owned());
    }
    Ok(())
}

/// Returns true if there can be anything to repair: Cassandra gives a command without work no
/// number.
pub fn is_replicated(snapshot: &ClusterSnapshot, keyspace: &str) -> bool {
    let Some(keyspace) = snapshot.schema.keyspace(keyspace) else { return false };
    let key = PlacementKey::of_keyspace(snapshot, keyspace);
    let factor = match key.replication() {
        Replication::Local => 1,
        Replication::Simple(n) => *n,
        Replication::Network(map) => map.values().fold(0_u32, |sum, n| sum.saturating_add(*n)),
    };
    let (me, placements) = (snapshot.local.host_id, key.placements(snapshot));
    factor >= 2 && !placements.ranges_of(me).is_empty()
}

/// A range as Cassandra writes it.
pub fn text_of(range: TokenRange) -> String {
    format!("({},{}]", range.start.0, range.end.0)
}

fn intersect(a: TokenRange, b: TokenRange) -> Option<TokenRange> {
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    (start < end).then_some(TokenRange { start, end })
}

/// Plans a repair whose options were checked.
///
/// # Errors
/// Why it cannot be done now, in Cassandra's words where it has them.
pub fn plan(snapshot: &ClusterSnapshot, options: &RepairOptions) -> Result<Scope, String> {
    let Some(keyspace) = snapshot.schema.keyspace(&options.keyspace) else {
        return Err(format!("Keyspace [{}] does not exist.", options.keyspace));
    };
    let me = snapshot.local.host_id;
    let placements = PlacementKey::of_keyspace(snapshot, keyspace).placements(snapshot);
    let wanted: Vec<TokenRange> = options
        .ranges
        .iter()
        .flat_map(|(start, end)| TokenRange { start: *start, end: *end }.unwrapped())
        .collect();
    let mut sessions: BTreeMap<(Vec<HostId>, Vec<HostId>), Vec<TokenRange>> = BTreeMap::new();
    let (mut range_count, mut covered) = (0, 0);
    for (range, replicas) in placements.ranges() {
        if !replicas.is_natural(me) || !is_primary(snapshot, options, replicas) {
            continue;
        }
        let mut parts: Vec<TokenRange> = range.unwrapped().collect();
        if range.start == range.end {
            parts = vec![TokenRange { start: Token::MIN, end: Token::MAX }];
        }
        if !wanted.is_empty() {
            let within = |p: &TokenRange| {
                let p = *p;
                wanted.iter().filter_map(move |w| intersect(p, *w)).collect::<Vec<_>>()
            };
            parts = parts.iter().flat_map(within).collect();
        }
        if parts.is_empty() {
            continue;
        }
        covered += parts.iter().map(|p| p.width()).sum::<u128>();
        if replicas.pending_len() > 0 {
            let to: Vec<String> = replicas.pending().map(|m| format!("/{}", m.storage)).collect();
            return Err(format!(
                "the range {} is moving to {}: repair it when that is done",
                text_of(range),
                to.join(", ")
            ));
        }
        let peers = peers_of(options, range, replicas, me)?;
        if peers.is_empty() {
            if options.ignore_unreplicated {
                continue;
            }
            let (range, name) = (text_of(range), &options.keyspace);
            return Err(format!("Nothing to repair for {range} in {name} - aborting"));
        }
        range_count += 1;
        sessions.entry((others_of(replicas, me), peers)).or_default().extend(parts);
    }
    if covered < wanted.iter().map(|w| w.width()).sum() {
        return Err(not_covered(options, &placements, me, covered));
    }
    let is_wanted = |t: &&Arc<Table>| {
        t.kind != TableKind::Virtual
            && (options.tables.is_empty() || options.tables.iter().any(|n| *n == *t.name))
    };
    let tables = keyspace.tables.values().filter(is_wanted).map(|t| t.id).collect();
    let sessions = sessions
        .into_iter()
        .map(|((others, peers), ranges)| Session { others, peers, ranges: joined(ranges) })
        .collect();
    Ok(Scope { tables, sessions, range_count })
}

fn not_covered(
    options: &RepairOptions,
    placements: &Placements,
    me: HostId,
    covered: u128,
) -> String {
    let asked = options.ranges.first().copied().unwrap_or((Token::MIN, Token::MIN));
    let asked = text_of(TokenRange { start: asked.0, end: asked.1 });
    if covered == 0 {
        return format!("Nothing to repair for {asked} in {} - aborting", options.keyspace);
    }
    let local: Vec<String> = placements.ranges_of(me).into_iter().map(text_of).collect();
    format!(
        "Requested range {asked} intersects a local range ({}) but is not fully contained in one; \
         this would lead to imprecise repair. keyspace: {}",
        local.join(", "),
        options.keyspace
    )
}

fn is_primary(snapshot: &ClusterSnapshot, options: &RepairOptions, replicas: Replicas<'_>) -> bool {
    if !options.primary_range {
        return true;
    }
    let me = &snapshot.local;
    let mut eligible = replicas
        .natural()
        .filter(|m| options.datacenters.is_empty() || m.datacenter == me.datacenter);
    eligible.next().is_some_and(|m| m.host_id == me.host_id)
}

fn others_of(replicas: Replicas<'_>, me: HostId) -> Vec<HostId> {
    let mut others: Vec<HostId> =
        replicas.natural().map(|m| m.host_id).filter(|h| *h != me).collect();
    others.sort_unstable();
    others
}

fn peers_of(
    options: &RepairOptions,
    range: TokenRange,
    replicas: Replicas<'_>,
    me: HostId,
) -> Result<Vec<HostId>, String> {
    let named = |m: &cluster::Member| {
        options.hosts.iter().any(|h| {
            *h == m.storage.ip().to_string()
                || *h == m.storage.to_string()
                || *h == m.host_id.to_string()
        })
    };
    if !options.hosts.is_empty() {
        if !replicas.natural().any(|m| m.host_id == me && named(m)) {
            return Err("The current host must be part of the repair".to_owned());
        }
        if replicas.natural().filter(|m| named(m)).count() < 2 {
            let neighbours: Vec<String> = replicas
                .natural()
                .filter(|m| m.host_id != me)
                .map(|m| format!("/{}", m.storage))
                .collect();
            return Err(format!(
                "Specified hosts [{}] do not share range {} needed for repair. Either restrict \
                 repair ranges with -st/-et options, or specify one of the neighbors that share \
                 this range with this node: [{}].",
                options.hosts.join(", "),
                text_of(range),
                neighbours.join(", ")
            ));
        }
    }
    let mut peers: Vec<HostId> = replicas
        .natural()
        .filter(|m| m.host_id != me)
        .filter(|m| options.hosts.is_empty() || named(m))
        .filter(|m| options.datacenters.is_empty() || options.datacenters.contains(&m.datacenter))
        .map(|m| m.host_id)
        .collect();
    peers.sort_unstable();
    Ok(peers)
}

fn joined(mut ranges: Vec<TokenRange>) -> Vec<TokenRange> {
    ranges.sort_unstable();
    let mut all: Vec<TokenRange> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// Returns true if a session's ranges are still held by the same nodes, and do not move.
pub fn still_holds(snapshot: &ClusterSnapshot, keyspace: &str, session: &Session) -> bool {
    let Some(keyspace) = snapshot.schema.keyspace(keyspace) else { return false };
    let me = snapshot.local.host_id;
    let placements = PlacementKey::of_keyspace(snapshot, keyspace).placements(snapshot);
    let touches = |range: TokenRange| {
        let is_full = range.start == range.end;
        let mut parts = range.unwrapped();
        is_full || parts.any(|p| session.ranges.iter().any(|r| intersect(p, *r).is_some()))
    };
    placements.ranges().filter(|(range, _)| touches(*range)).all(|(_, replicas)| {
        replicas.is_natural(me)
            && replicas.pending_len() == 0
            && others_of(replicas, me) == session.others
    })
}
