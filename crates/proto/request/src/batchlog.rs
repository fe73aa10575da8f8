//! The nodes that store the log of a logged batch.
//!
//! Source: Cassandra `ReplicaPlans.filterBatchlogEndpoints`.

use smallvec::SmallVec;

/// A node of the coordinator's datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCandidate {
    /// Its rack, a small number of the snapshot's.
    pub rack: u16,
    /// The failure detector holds it for alive.
    pub alive: bool,
    /// It is the coordinator itself.
    pub is_self: bool,
}

/// Indexes of the nodes that keep the batch log: two alive ones of different racks, not of the
/// coordinator's when there are two elsewhere; fewer when there are not. The coordinator itself
/// only when it is alone in its datacenter. Empty: the batch cannot be logged (with ANY the
/// coordinator keeps the log itself).
///
/// `random` is drawn by the driver.
pub fn choose_log_nodes(
    nodes: &[LogCandidate],
    local_rack: u16,
    random: u64,
) -> SmallVec<[usize; 2]> {
    if nodes.len() == 1 {
        return SmallVec::from_slice(&[0]);
    }
    let usable = |n: &LogCandidate| n.alive && !n.is_self;
    let all = || nodes.iter().enumerate().filter(move |(_, n)| usable(n));
    let total = all().count();
    if total <= 2 {
        return all().map(|(i, _)| i).collect();
    }
    let elsewhere = all().filter(|(_, n)| n.rack != local_rack).count();
    let pool = move || all().filter(move |(_, n)| elsewhere < 2 || n.rack != local_rack);
    let mut random = Random(random);
    let mut racks: SmallVec<[u16; 8]> = SmallVec::new();
    for (_, node) in pool() {
        if !racks.contains(&node.rack) {
            racks.push(node.rack);
        }
    }
    if racks.len() == 1 {
        let count = pool().count();
        let first = random.below(count);
        // The second is one of the others.
        let second = (first + 1 + random.below(count.saturating_sub(1))) % count.max(1);
        return pool()
            .enumerate()
            .filter(|(n, _)| *n == first || *n == second)
            .map(|(_, (i, _))| i)
            .collect();
    }
    let mut chosen = SmallVec::new();
    for _ in 0..2 {
        if racks.is_empty() {
            break;
        }
        let rack = racks.swap_remove(random.below(racks.len()));
        let members = || pool().filter(move |(_, n)| n.rack == rack);
        let pick = random.below(members().count());
        chosen.extend(members().nth(pick).map(|(i, _)| i));
    }
    chosen
}

/// SplitMix64: a few numbers from one.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % (bound.max(1) as u64)).unwrap_or(0)
    }
}
