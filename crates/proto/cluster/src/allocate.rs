//! Tokens for a new node, so that all nodes of its datacenter end up with equal parts of the data.
//!
//! Owns: [`allocate`], a pure function of the members, the place of the new node and a seed. Never:
//! the decision itself, which is the `Join` entry of the metadata log.
//!
//! The idea is that of Cassandra's `allocate_tokens_for_local_replication_factor`; the method is our
//! own. A token put into a range at distance x from its start changes what each node owns linearly
//! in x, so the best x of each range has a closed form. Tokens are chosen one after the other, each
//! the best over all ranges, then each is taken out and chosen again [`PASSES`] times. What is made
//! small is the sum of squared differences to the ideal share, of three kinds of ownership: with the
//! replication factor, within the rack (which decides when racks are as many as replicas), and of
//! the bare ring (which decides when every node has everything, so that later nodes find even
//! ranges).

use stdx::Token;

use crate::Members;

mod model;

use model::{Model, Site};

/// Number of passes that reconsider each chosen token.
const PASSES: usize = 3;
/// Most ranges considered per token; of larger rings a sample drawn by the seed.
pub(crate) const RANGES_LOOKED_AT_MAX: usize = 2_048;
/// Places tried for the first node of a rack.
const OFFSETS_TRIED: u64 = 64;

/// Request for the tokens of a new node.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    /// The members. Joining nodes count as if they had joined, leaving nodes as if they had left.
    pub members: &'a Members,
    /// The new node's datacenter.
    pub datacenter: &'a str,
    /// The new node's rack.
    pub rack: &'a str,
    /// Number of tokens: `num_tokens`, at least 1.
    pub count: u16,
    /// Replicas per datacenter to even out for: `allocate_tokens_for_local_replication_factor`.
    pub replication_factor: u32,
    /// Draws between equally good places, so that two clusters differ.
    pub seed: u64,
}

/// Tokens for the new node, ascending, none of them taken by a member of any datacenter.
pub fn allocate(wanted: &Allocation<'_>) -> Vec<Token> {
    let count = usize::from(wanted.count.max(1));
    let replaced: Vec<_> = wanted.members.values().filter_map(|m| m.replaces).collect();
    let here = wanted.members.values().filter(|m| {
        m.datacenter == wanted.datacenter
            && !m.tokens_when(true).is_empty()
            && !replaced.contains(&m.host_id)
    });
    let sites = here.map(|m| Site { rack: &m.rack, tokens: m.tokens_when(true) });
    let mut model = Model::new(sites, wanted.rack, wanted.replication_factor.max(1));
    let chosen = if model.is_first_in_rack() {
        spread_evenly(&mut model, count, wanted.seed)
    } else {
        one_by_one(&mut model, count, wanted.seed)
    };
    free_tokens(wanted.members, chosen)
}

/// The first node of a rack: evenly spaced, at the offset that suits the other racks best.
fn spread_evenly(model: &mut Model, count: usize, seed: u64) -> Vec<u64> {
    let gap = u64::MAX / count as u64;
    let places =
        |offset: u64| (0..count as u64).map(move |i| i.wrapping_mul(gap).wrapping_add(offset));
    let tries = if model.is_empty() { 1 } else { OFFSETS_TRIED };
    let mut best: Option<(f64, u64)> = None;
    for i in 0..tries {
        let offset = model::mix(seed, i) % gap.max(1);
        places(offset).for_each(|p| model.insert(p));
        let cost = model.cost(1.0);
        places(offset).for_each(|p| model.remove(p));
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, offset));
        }
    }
    places(best.map_or(0, |(_, offset)| offset)).collect()
}

/// A node of a rack that has others.
fn one_by_one(model: &mut Model, count: usize, seed: u64) -> Vec<u64> {
    let mut chosen: Vec<u64> = Vec::new();
    for k in 1..=count {
        let place = model.best_place(k as f64 / count as f64, model::mix(seed, k as u64));
        model.insert(place);
        chosen.push(place);
    }
    for pass in 0..PASSES {
        for (k, place) in chosen.iter_mut().enumerate() {
            let before = model.cost(1.0);
            model.remove(*place);
            let better = model.best_place(1.0, model::mix(seed, (pass * count + k) as u64));
            model.insert(better);
            if model.cost(1.0) < before {
                *place = better;
            } else {
                model.remove(better);
                model.insert(*place);
            }
        }
    }
    chosen
}

/// Places as tokens; a token that is taken goes up to the next free one.
fn free_tokens(members: &Members, places: Vec<u64>) -> Vec<Token> {
    let taken = |token: Token| {
        let has = |list: &[Token]| list.binary_search(&token).is_ok();
        members.values().any(|m| has(&m.tokens) || has(&m.moving_to))
    };
    let mut tokens: Vec<Token> = Vec::with_capacity(places.len());
    for place in places {
        let mut token = Token(place.wrapping_add(1 << 63) as i64);
        while token == Token::MIN || tokens.contains(&token) || taken(token) {
            token = Token(token.0.wrapping_add(1));
        }
        tokens.push(token);
    }
    tokens.sort_unstable();
    tokens
}

#[cfg(test)]
mod tests;
