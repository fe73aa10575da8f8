//! Fetch plans: the ranges that a node must copy before it owns them, and their sources.

use std::collections::BTreeMap;

use cluster::ranges::WholeCluster;
use cluster::topology::{finished, unmoved};
use cluster::{ClusterSnapshot, PlacementKey, Placements, TokenRange, movements};
use schema::TableKind;
use stdx::{HostId, TableId, Token};

/// One range of one table to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRange {
    /// The table.
    pub table: TableId,
    /// The range to copy; may wrap around.
    pub range: TokenRange,
    /// Nodes that have the range. Any one of them is enough; the first is tried first.
    pub sources: Vec<HostId>,
}

impl FetchRange {
    /// A range that one node has.
    pub fn of_one(source: HostId, table: TableId, range: TokenRange) -> FetchRange {
        FetchRange { table, range, sources: vec![source] }
    }
}

/// Why there is no safe plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The node is no member.
    #[error("the host {0} is no member")]
    NoMember(HostId),
    /// No live node has a range. In Cassandra's words.
    #[error(
        "Unable to find sufficient sources for streaming range ({},{}] in keyspace {keyspace} with \
         RF={factor}: only nodes that are down have it ({})",
        range.start.0,
        range.end.0,
        listed(down)
    )]
    NoReplica {
        /// The keyspace.
        keyspace: String,
        /// The range.
        range: TokenRange,
        /// Number of its replicas.
        factor: usize,
        /// They, all of them down.
        down: Vec<HostId>,
    },
    /// Fewer replicas are alive than hold every acknowledged write together.
    #[error(
        "too few replicas of \"{keyspace}\" are alive for the tokens from {} to {}: start them, or \
         remove the dead ones, and try again",
        range.start.0,
        range.end.0
    )]
    TooFewReplicas {
        /// The keyspace.
        keyspace: String,
        /// The range.
        range: TokenRange,
    },
    /// No replica that may be copied from has a range. In Cassandra's words.
    #[error(
        "Unable to find sufficient sources for streaming range ({},{}] in keyspace {keyspace}: no \
         node that may be copied from is alive and has it; name another datacenter, ALTER KEYSPACE \
         {keyspace} so that the one that is named has replicas, or rebuild the other keyspaces one \
         by one with -ks",
        range.start.0,
        range.end.0
    )]
    NoSource {
        /// The keyspace.
        keyspace: String,
        /// The range.
        range: TokenRange,
    },
}

fn listed(hosts: &[HostId]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Keyspaces of which a copy may lack what no live replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayLack {
    /// None.
    Nothing,
    /// The node's own (`system_auth`, `system_distributed`, `system_traces`): nothing in their tables
    /// was promised to anybody.
    System,
    /// All of them.
    Anything,
}

impl MayLack {
    fn allows(self, keyspace: &str) -> bool {
        match self {
            MayLack::Nothing => false,
            MayLack::System => keyspace.starts_with("system"),
            MayLack::Anything => true,
        }
    }
}

/// Copies of a plan, and the ranges that it leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The copies to make.
    pub fetches: Vec<FetchRange>,
    /// Reasons why ranges are missing from `fetches` or only copied in part: one range of each
    /// keyspace.
    pub lacks: Vec<PlanError>,
}

/// Options of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuild {
    /// Only from this datacenter.
    pub datacenter: Option<String>,
    /// Only this keyspace.
    pub keyspace: Option<String>,
    /// Only these ranges; empty: all that the node owns.
    pub ranges: Vec<TokenRange>,
    /// Only from these nodes; empty: from any.
    pub sources: Vec<HostId>,
    /// Not from the node's own datacenter.
    pub exclude_local_datacenter: bool,
}

/// Keyspaces with records of the cluster's upkeep only.
const OF_UPKEEP: [&str; 2] = ["system_distributed", "system_traces"];

/// Plans a rebuild: `host` copies the ranges that it owns already. Each range comes from any one
/// replica that `rebuild` allows, the nearest first. If no such node has it, two kinds of ranges
/// are left out: those of a keyspace with one replica, and those of a maintenance keyspace that was
/// not asked for.
///
/// # Errors
/// `NoMember`, `NoSource`.
pub fn plan_rebuild(
    snapshot: &ClusterSnapshot,
    host: HostId,
    rebuild: &Rebuild,
    is_alive: impl Fn(HostId) -> bool,
) -> Result<Vec<FetchRange>, PlanError> {
    let Some(me) = snapshot.members.get(&host) else { return Err(PlanError::NoMember(host)) };
    let may_give = |other: &cluster::Member| {
        other.host_id != host
            && is_alive(other.host_id)
            && rebuild.datacenter.as_ref().is_none_or(|dc| *dc == other.datacenter)
            && (rebuild.sources.is_empty() || rebuild.sources.contains(&other.host_id))
            && !(rebuild.exclude_local_datacenter && other.datacenter == me.datacenter)
    };
    let mut fetches = Vec::new();
    for keyspace in snapshot.schema.keyspaces.values() {
        let is_asked = rebuild.keyspace.as_ref().is_none_or(|name| **name == *keyspace.name);
        let key = PlacementKey::of_keyspace(snapshot, keyspace);
        if !is_asked || key.is_local() {
            continue;
        }
        let placements = key.placements(snapshot);
        let mut ranges: Vec<(TokenRange, Vec<HostId>)> = Vec::new();
        for (range, replicas) in placements.ranges().filter(|(_, r)| r.is_natural(host)) {
            let parts = common(range, &rebuild.ranges);
            if parts.is_empty() {
                continue;
            }
            let mut near: Vec<_> = replicas.natural().filter(|m| may_give(m)).collect();
            near.sort_by_key(|m| (m.datacenter != me.datacenter, m.rack != me.rack));
            let sources: Vec<HostId> = near.iter().map(|m| m.host_id).collect();
            if sources.is_empty() {
                // These keyspaces have the default replication unless an operator altered them, and
                // clients do not read them: no reason to refuse the rest of the rebuild.
                let is_wanted = rebuild.keyspace.is_some() || !OF_UPKEEP.contains(&&*keyspace.name);
                if replicas.natural().count() == 1 || !is_wanted {
                    continue;
                }
                return Err(PlanError::NoSource { keyspace: keyspace.name.to_string(), range });
            }
            for part in parts {
                push(&mut ranges, part, sources.clone());
            }
        }
        for table in keyspace.tables.values().filter(|t| t.kind != TableKind::Virtual) {
            for (range, sources) in &ranges {
                let (range, sources) = (*range, sources.clone());
                fetches.push(FetchRange { table: table.id, range, sources });
            }
        }
    }
    Ok(fetches)
}

/// Returns the parts of a range that lie in the wanted ranges; all of it if `wanted` is empty.
fn common(range: TokenRange, wanted: &[TokenRange]) -> Vec<TokenRange> {
    if wanted.is_empty() {
        return vec![range];
    }
    let whole = |r: TokenRange| match r.start == r.end {
        true => vec![(Token::MIN, Token::MAX)],
        false => r.unwrapped().map(|r| (r.start, r.end)).collect(),
    };
    let mut parts = Vec::new();
    for (start, end) in whole(range) {
        for (from, to) in wanted.iter().flat_map(|w| whole(*w)) {
            let part = TokenRange { start: start.max(from), end: end.min(to) };
            if part.start < part.end {
                parts.push(part);
            }
        }
    }
    parts
}

/// Plans the fetches of a movement (joining, moving, replacing): the ranges that `host` must have
/// before the movement is finished. The snapshot is one in which the movement has begun. Only
/// ranges of replicated tables, never node-local data; in order of keyspace, table and range.
///
/// Each range comes from the replica that loses it, when that is alive: then every write that a
/// quorum acknowledged is still on a quorum. Otherwise the plan has the range several times, once
/// for each of as many other replicas as together hold every such write (`Movement::sources`);
/// their copies merge.
///
/// # Errors
/// `NoMember`; `TooFewReplicas`, `NoReplica`: wait, nothing is safe now.
pub fn plan(
    snapshot: &ClusterSnapshot,
    host: HostId,
    is_alive: impl Fn(HostId) -> bool,
) -> Result<Vec<FetchRange>, PlanError> {
    plan_movement(snapshot, host, host, is_alive)
}

/// Plans the fetches of `host` for the movement of another member, `moving`, that leaves.
///
/// # Errors
/// Those of [`plan`].
pub fn plan_movement(
    snapshot: &ClusterSnapshot,
    moving: HostId,
    host: HostId,
    is_alive: impl Fn(HostId) -> bool,
) -> Result<Vec<FetchRange>, PlanError> {
    plan_lacking(snapshot, moving, host, is_alive, MayLack::Nothing).map(|plan| plan.fetches)
}

/// Like [`plan_movement`], but accepts the losses that `may_lack` allows: if too few replicas of a
/// range are alive, the plan copies it from those that are.
///
/// # Errors
/// Those of [`plan`]; `NoReplica` takes precedence over `TooFewReplicas`.
pub fn plan_lacking(
    snapshot: &ClusterSnapshot,
    moving: HostId,
    host: HostId,
    is_alive: impl Fn(HostId) -> bool,
    may_lack: MayLack,
) -> Result<Plan, PlanError> {
    for member in [moving, host] {
        if !snapshot.members.contains_key(&member) {
            return Err(PlanError::NoMember(member));
        }
    }
    let (members_before, members_after) = (unmoved(snapshot), finished(snapshot, moving));
    let mut plan = Plan::default();
    let mut refused: Option<PlanError> = None;
    let mut known: BTreeMap<PlacementKey, Ranges> = BTreeMap::new();
    for keyspace in snapshot.schema.keyspaces.values() {
        let key = PlacementKey::of_keyspace(snapshot, keyspace);
        // Without tables there is nothing to copy.
        if key.is_local() || keyspace.tables.is_empty() {
            continue;
        }
        let ranges = known.entry(key).or_insert_with_key(|key| {
            let before = key.placements_among(&members_before);
            let after = key.placements_among(&members_after);
            ranges_of(&before, &after, host, &is_alive)
        });
        if let Some(error) = ranges.error(&keyspace.name) {
            let is_worse = matches!(error, PlanError::NoReplica { .. });
            if may_lack.allows(&keyspace.name) {
                plan.lacks.push(error);
            } else if refused.is_none() || is_worse {
                refused = Some(error);
            }
        }
        for table in keyspace.tables.values().filter(|t| t.kind != TableKind::Virtual) {
            for (range, sources) in &ranges.found {
                let (range, sources) = (*range, sources.clone());
                plan.fetches.push(FetchRange { table: table.id, range, sources });
            }
        }
    }
    match refused {
        Some(error) => Err(error),
        None => Ok(plan),
    }
}

/// Plans the fetches of `host` after a keyspace's tables have got other replicas.
///
/// # Errors
/// Those of [`plan`].
pub fn plan_inheritance(
    snapshot: &ClusterSnapshot,
    keyspace: &str,
    host: HostId,
    is_alive: impl Fn(HostId) -> bool,
) -> Result<Vec<FetchRange>, PlanError> {
    let mut fetches = Vec::new();
    let Some((handover, to)) = snapshot.handover(keyspace) else { return Ok(fetches) };
    let (before, after) = (snapshot.placements(&handover.from), snapshot.placements(&to));
    let ranges = ranges_of(&before, &after, host, &is_alive);
    if let Some(error) = ranges.error(keyspace) {
        return Err(error);
    }
    let tables = snapshot.schema.keyspace(keyspace).into_iter().flat_map(|k| k.tables.values());
    for table in tables.filter(|t| t.kind != TableKind::Virtual) {
        for (range, sources) in &ranges.found {
            let (range, sources) = (*range, sources.clone());
            fetches.push(FetchRange { table: table.id, range, sources });
        }
    }
    Ok(fetches)
}

/// The ranges of one placement that a node copies.
#[derive(Default)]
struct Ranges {
    /// With the sources of each copy.
    found: Vec<(TokenRange, Vec<HostId>)>,
    /// An example of a range without a live replica, and its replicas.
    without: Option<(TokenRange, Vec<HostId>)>,
    /// One of those that too few are alive for.
    in_part: Option<TokenRange>,
}

impl Ranges {
    fn error(&self, keyspace: &str) -> Option<PlanError> {
        let keyspace = keyspace.to_owned();
        if let Some((range, down)) = &self.without {
            let (factor, down) = (down.len(), down.clone());
            return Some(PlanError::NoReplica { keyspace, range: *range, factor, down });
        }
        let range = self.in_part?;
        Some(PlanError::TooFewReplicas { keyspace, range })
    }
}

fn ranges_of(
    before: &Placements,
    after: &Placements,
    host: HostId,
    is_alive: &impl Fn(HostId) -> bool,
) -> Ranges {
    let mut ranges = Ranges::default();
    for movement in movements(before, after).into_iter().filter(|m| m.to == host) {
        if movement.from.is_empty() {
            // No replica had it: there is nothing to copy.
            continue;
        }
        let Some(chosen) = movement.sources(is_alive, WholeCluster::Yes) else {
            let left: Vec<HostId> =
                movement.from.iter().copied().filter(|h| is_alive(*h)).collect();
            if left.is_empty() {
                ranges.without.get_or_insert((movement.range, movement.from));
            } else {
                ranges.in_part.get_or_insert(movement.range);
            }
            for source in left {
                push(&mut ranges.found, movement.range, vec![source]);
            }
            continue;
        };
        let is_loser = |h: &HostId| Some(*h) == movement.loser;
        match chosen.as_slice() {
            // Any replica will do: the others stand by.
            [one] if !is_loser(one) => {
                let others = movement.from.iter().filter(|h| *h != one && is_alive(**h));
                let sources = std::iter::once(one).chain(others).copied().collect();
                push(&mut ranges.found, movement.range, sources);
            }
            all => {
                for source in all {
                    push(&mut ranges.found, movement.range, vec![*source]);
                }
            }
        }
    }
    ranges
}

/// Adds a range; extends the previous one if it has the same sources and is adjacent.
fn push(ranges: &mut Vec<(TokenRange, Vec<HostId>)>, range: TokenRange, sources: Vec<HostId>) {
    let neighbour = ranges.iter_mut().rev().take(4).find(|(last, s)| {
        // Never over the end of the ring, and never to the full ring, which looks like nothing.
        *s == sources
            && last.end == range.start
            && range.start < range.end
            && last.start != range.end
    });
    match neighbour {
        Some((last, _)) => last.end = range.end,
        None => ranges.push((range, sources)),
    }
}
