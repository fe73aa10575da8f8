//! Resolution of `move`, `rebuild`, `abortbootstrap`, with refusals in Cassandra's words.

use cluster::{ClusterSnapshot, MemberState, PlacementKey, TokenRange};
use stdx::{HostId, Token, Uuid};

use super::{ClusterAction, argument, at_address, failed};
use crate::request::ActionError;

/// The arguments of a rebuild.
pub(super) struct From {
    pub(super) datacenter: Option<String>,
    pub(super) keyspace: Option<String>,
    pub(super) tokens: Option<String>,
    pub(super) sources: Option<String>,
    pub(super) exclude_local_dc: bool,
}

/// A token that this node can move to.
pub(super) fn target(snapshot: &ClusterSnapshot, text: &str) -> Result<Token, ActionError> {
    let token = text
        .parse()
        .map_err(|_| {
            argument(format!(
                "Invalid token for Murmur3Partitioner. Got {text} but expected a long value \
                 (unsigned 8 bytes integer)."
            ))
        })
        .map(Token)?;
    let unsupported = |text: &str| Err(argument(format!("Unsupported operation: {text}")));
    let Some(me) = snapshot.local_member() else {
        return unsupported("local node is not a member of the token ring yet");
    };
    let is_taken = |m: &cluster::Member| m.tokens.contains(&token) || m.moving_to.contains(&token);
    if snapshot.members.values().any(|m| is_taken(m)) {
        return Err(failed(format!("target token {} is already owned by another node.", token.0)));
    }
    if me.tokens.len() != 1 {
        return unsupported("This node has more than one token and cannot be moved thusly.");
    }
    if me.state != MemberState::Normal {
        return unsupported("data is currently moving to this node; unable to leave the ring");
    }
    Ok(token)
}

/// A node that joins, by its host id or address.
pub(super) fn joining(snapshot: &ClusterSnapshot, text: &str) -> Result<HostId, ActionError> {
    let member = match Uuid::parse_str(text) {
        Ok(id) => snapshot.members.get(&HostId(id)),
        Err(_) => Some(at_address(snapshot, text)?),
    };
    let Some(member) = member else { return Err(failed("Host ID not found.")) };
    match member.state {
        MemberState::Joining | MemberState::JoinHandover => Ok(member.host_id),
        state => Err(argument(format!(
            "node {} is {state}, it does not join: decommission it, or remove it with removenode \
             when it is dead",
            member.host_id
        ))),
    }
}

/// Resolves the node whose removal is to be aborted.
pub(super) fn removed(
    snapshot: &ClusterSnapshot,
    text: Option<&str>,
) -> Result<Option<HostId>, ActionError> {
    let Some(text) = text else { return Ok(None) };
    let id = Uuid::parse_str(text).map_err(|_| argument(format!("Invalid UUID string: {text}")))?;
    match HostId(id) {
        host if host == snapshot.local.host_id => {
            Err(argument("this node leaves by itself: use abortdecommission"))
        }
        host if snapshot.members.contains_key(&host) => Ok(Some(host)),
        _ => Err(failed("Host ID not found.")),
    }
}

/// A rebuild of what there is.
pub(super) fn rebuild(
    snapshot: &ClusterSnapshot,
    from: From,
) -> Result<ClusterAction, ActionError> {
    let From { datacenter, keyspace, tokens, sources, exclude_local_dc } = from;
    let own = &snapshot.local.datacenter;
    if exclude_local_dc && datacenter.as_ref() == Some(own) {
        return Err(argument(
            "Cannot set source data center to be local data center, when excludeLocalDataCenter \
             flag is set",
        ));
    }
    if let Some(name) = &datacenter {
        let mut known: Vec<&str> =
            snapshot.members.values().map(|m| m.datacenter.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        if !known.contains(&name.as_str()) {
            return Err(argument(format!(
                "Provided datacenter '{name}' is not a valid datacenter, available datacenters \
                 are: {}",
                known.join(",")
            )));
        }
    }
    if keyspace.is_none() && tokens.is_some() {
        return Err(argument("Cannot specify tokens without keyspace."));
    }
    if tokens.is_none() && sources.is_some() {
        return Err(argument("Cannot specify sources without tokens."));
    }
    if let Some(name) = &keyspace
        && snapshot.schema.keyspace(name).is_none_or(|k| k.is_virtual)
    {
        return Err(failed(format!("Unknown keyspace {name}")));
    }
    let ranges = match (&keyspace, &tokens) {
        (Some(keyspace), Some(text)) => owned(snapshot, keyspace, ranges_of(text)?)?,
        _ => Vec::new(),
    };
    let sources = match sources {
        Some(list) => hosts(snapshot, &list)?,
        None => Vec::new(),
    };
    Ok(ClusterAction::Rebuild { datacenter, keyspace, ranges, sources, exclude_local_dc })
}

fn hosts(snapshot: &ClusterSnapshot, list: &str) -> Result<Vec<HostId>, ActionError> {
    let mut hosts = Vec::new();
    for text in list.split(',') {
        let host = at_address(snapshot, text.trim())?.host_id;
        if host == snapshot.local.host_id {
            return Err(argument(
                "This host was specified as a source for rebuilding. Sources for a rebuild can \
                 only be other nodes in the cluster.",
            ));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

/// Reads `(1,5],(8,13]`.
fn ranges_of(text: &str) -> Result<Vec<TokenRange>, ActionError> {
    let unexpected = || argument(format!("Unexpected string: {text}"));
    let mut ranges = Vec::new();
    for part in text.split_inclusive(']') {
        let part = part.trim().trim_start_matches(',').trim();
        let inner = part.strip_prefix('(').and_then(|p| p.strip_suffix(']'));
        let (start, end) = inner.and_then(|p| p.split_once(',')).ok_or_else(unexpected)?;
        let token = |text: &str| text.trim().parse().map(Token).map_err(|_| unexpected());
        ranges.push(TokenRange { start: token(start)?, end: token(end)? });
    }
    Ok(ranges)
}

/// Checks that each of the ranges is within those that this node owns of the keyspace.
fn owned(
    snapshot: &ClusterSnapshot,
    keyspace: &str,
    ranges: Vec<TokenRange>,
) -> Result<Vec<TokenRange>, ActionError> {
    let key = snapshot.schema.keyspace(keyspace).map(|k| PlacementKey::of_keyspace(snapshot, k));
    let Some(key) = key.filter(|key| !key.is_local()) else {
        return Err(argument(format!("Keyspace [{keyspace}] is local to each node.")));
    };
    let placements = key.placements(snapshot);
    let mine = cluster::ranges::merge(placements.ranges_of(snapshot.local.host_id));
    let whole = |r: &TokenRange| r.start == r.end;
    for range in &ranges {
        // Both ends in one of them, and no gap between.
        let lies_in = |own: &TokenRange| {
            let inside = own.contains(range.end)
                && (own.start == range.start || own.contains(range.start))
                && own.start != range.end;
            let in_order = TokenRange { start: own.start, end: range.end };
            whole(own) || (inside && in_order.width() >= range.width())
        };
        if !mine.iter().any(lies_in) {
            return Err(argument(format!(
                "The specified range ({},{}] is not a range that is owned by this node. Please \
                 ensure that all token ranges specified to be rebuilt belong to this node.",
                range.start.0, range.end.0
            )));
        }
    }
    Ok(ranges)
}
