//! Which metadata a read may be based on: the epochs at which the ranges that it touches moved.
//!
//! Owns: what a replica makes of a coordinator with older metadata, and when a coordinator plans a
//! running read again. Never: waits for metadata.

use cluster::{ClusterSnapshot, Placements, Replicas, Replication};
use data::command::{Partitions, ReadCommand};
use stdx::{Epoch, Token};

use crate::cluster_view::ClusterView;
use crate::placements::Topology;
use crate::token_range::tokens_of;

/// Returns true if a coordinator must learn the current placement first: it asks a node that does
/// not hold the range any more, or it is two steps of the range's movement late. The other replicas
/// that it asks may then be none any more, and a consistency level met by them and this one means
/// nothing. While the range moves, one step late is too much: a coordinator that has not heard of
/// the movement does not ask the replicas that its reads must reach.
pub fn is_outdated(
    cluster: &ClusterView,
    snapshot: &ClusterSnapshot,
    epoch: Epoch,
    command: &ReadCommand,
) -> bool {
    let Some(topology) = cluster.topology(snapshot, command.table) else { return true };
    let placements = &topology.placements;
    let is_local = *placements.replication() == Replication::Local;
    let me = snapshot.local.host_id;
    touched(placements, &command.partitions).any(|(token, replicas)| {
        // The coordinator's metadata is older: it may ask a node that has handed its part over since.
        if replicas.position(me).is_none() {
            return true;
        }
        let moved = placements.moved(token);
        !is_local && (epoch < moved.before || epoch < moved.at && replicas.is_moving())
    })
}

/// Returns true if the replicas of a range that is read have changed since `epoch`.
pub fn has_moved(topology: &Topology, epoch: Epoch, partitions: &Partitions) -> bool {
    let placements = &topology.placements;
    *placements.replication() != Replication::Local
        && touched(placements, partitions).any(|(token, _)| placements.moved(token).at > epoch)
}

/// Every range that is read, by one of its tokens, with its replicas.
fn touched<'a>(
    placements: &'a Placements,
    partitions: &Partitions,
) -> impl Iterator<Item = (Token, Replicas<'a>)> {
    let (first, upto) = match partitions {
        Partitions::Key(key) => (codec::token_of(key), codec::token_of(key)),
        Partitions::Range(range) => {
            let tokens = tokens_of(range);
            (Token(tokens.after.0.saturating_add(1)), tokens.upto)
        }
    };
    // Those of both ends, and all ranges that end between them: only looked through when there may be any.
    let between = (first < upto).then(|| placements.ranges()).into_iter().flatten();
    let between = between.filter(move |(r, _)| first <= r.end && r.end <= upto);
    let ends = std::iter::once(first).chain((first < upto).then_some(upto));
    let ends = ends.map(|token| (token, placements.replicas(token)));
    ends.chain(between.map(|(range, replicas)| (range.end, replicas)))
}
