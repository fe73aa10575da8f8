//! Ownership of each node of one datacenter, and the change that one more token makes.

use stdx::Token;

use super::RANGES_LOOKED_AT_MAX;

/// An existing node.
pub(super) struct Site<'a> {
    pub(super) rack: &'a str,
    pub(super) tokens: &'a [Token],
}

/// A token cuts no less than this part off a range: slivers would make later nodes' ranges uneven.
const CUT_MIN: f64 = 1.0 / 16.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Replicas by `NetworkTopologyStrategy` in this datacenter.
    Effective,
    /// The first node of the new node's rack.
    Rack,
    /// The first node.
    Ring,
}

/// One datacenter with the new node in it, which has no tokens at first.
pub(super) struct Model {
    /// Ascending: place on the ring (token + 2^63) and node. The new node is the last one.
    ring: Vec<(u64, u16)>,
    racks: Vec<u16>,
    rack_count: u32,
    factor: u32,
}

/// The change of what nodes own for one candidate, as coefficients of 1 and of x.
#[derive(Default)]
struct Change {
    nodes: Vec<(u16, f64, f64)>,
}

impl Change {
    fn add(&mut self, node: u16, constant: f64, slope: f64) {
        match self.nodes.iter_mut().find(|(n, _, _)| *n == node) {
            Some(entry) => {
                entry.1 += constant;
                entry.2 += slope;
            }
            None => self.nodes.push((node, constant, slope)),
        }
    }

    /// `after` instead of `before` owns a piece of ring.
    fn swap(&mut self, before: &[u16], after: &[u16], constant: f64, slope: f64) {
        for node in before.iter().filter(|n| !after.contains(n)) {
            self.add(*node, -constant, -slope);
        }
        for node in after.iter().filter(|n| !before.contains(n)) {
            self.add(*node, constant, slope);
        }
    }
}

/// `SplitMix64` of two numbers.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_add(b.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Model {
    pub(super) fn new<'a>(sites: impl Iterator<Item = Site<'a>>, rack: &str, factor: u32) -> Model {
        let mut names: Vec<String> = Vec::new();
        let mut model = Model { ring: Vec::new(), racks: Vec::new(), rack_count: 0, factor };
        let mut number = |name: &str| {
            let known = names.iter().position(|n| n == name);
            known.unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            }) as u16
        };
        for (node, site) in sites.enumerate() {
            model.racks.push(number(site.rack));
            let places = site.tokens.iter().map(|t| (t.0 as u64).wrapping_add(1 << 63));
            model.ring.extend(places.map(|p| (p, node as u16)));
        }
        model.racks.push(number(rack));
        model.rack_count = names.len() as u32;
        model.ring.sort_unstable();
        model
    }

    /// Kinds of ownership and how much each counts.
    fn rules(&self) -> [(Rule, f64); 3] {
        let rack = match self.rack_count {
            // The same as the bare ring.
            1 => 0.0,
            // More racks are to come, and then it decides.
            n if n < self.factor => 4.0,
            _ => 0.5,
        };
        [(Rule::Effective, 1.0), (Rule::Rack, rack), (Rule::Ring, 0.05)]
    }

    fn newcomer(&self) -> u16 {
        (self.racks.len() - 1) as u16
    }

    fn rack(&self, node: u16) -> u16 {
        self.racks.get(usize::from(node)).copied().unwrap_or(u16::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(super) fn is_first_in_rack(&self) -> bool {
        let mine = self.rack(self.newcomer());
        self.racks.iter().filter(|r| **r == mine).count() == 1
    }

    pub(super) fn insert(&mut self, place: u64) {
        let at = self.ring.partition_point(|(p, _)| *p <= place);
        self.ring.insert(at, (place, self.newcomer()));
    }

    pub(super) fn remove(&mut self, place: u64) {
        let mine = (place, self.newcomer());
        if let Some(at) = self.ring.iter().position(|entry| *entry == mine) {
            self.ring.remove(at);
        }
    }

    /// Length of the range that ends at ring index `at`, as a part of the ring.
    fn length(&self, at: usize) -> f64 {
        let place = |i: usize| self.ring.get(i).map_or(0, |(p, _)| *p);
        let before = if at == 0 { self.ring.len().saturating_sub(1) } else { at - 1 };
        let width = place(at).wrapping_sub(place(before));
        if width == 0 && self.ring.len() == 1 { 1.0 } else { width as f64 / (u64::MAX as f64) }
    }

    /// Replicas of the range from which a walk sees `nodes`.
    fn walk(&self, rule: Rule, nodes: impl Iterator<Item = u16>, out: &mut Vec<u16>) {
        out.clear();
        match rule {
            Rule::Ring => out.extend({ nodes }.next()),
            Rule::Rack => {
                let mine = self.rack(self.newcomer());
                out.extend({ nodes }.find(|n| self.rack(*n) == mine));
            }
            Rule::Effective => {
                let mut left = (self.factor as usize).min(self.racks.len());
                let mut repeats = i64::from(self.factor) - i64::from(self.rack_count);
                for node in nodes {
                    if left == 0 {
                        return;
                    }
                    if out.contains(&node) {
                        continue;
                    }
                    let rack = self.rack(node);
                    if out.iter().any(|n| self.rack(*n) == rack) {
                        if repeats <= 0 {
                            continue;
                        }
                        repeats -= 1;
                    }
                    out.push(node);
                    left -= 1;
                }
            }
        }
    }

    fn around(&self, from: usize) -> impl Iterator<Item = u16> + '_ {
        let (before, after) = self.ring.split_at(from.min(self.ring.len()));
        after.iter().chain(before).map(|(_, node)| *node)
    }

    /// Like [`Model::around`] from `from`, with the new node standing right before ring index `at`.
    fn around_with(&self, from: usize, at: usize) -> impl Iterator<Item = u16> + '_ {
        let ahead = (at + self.ring.len() - from) % self.ring.len().max(1);
        let walk = self.around(from);
        let new = self.newcomer();
        walk.enumerate()
            .flat_map(move |(i, node)| (i == ahead).then_some(new).into_iter().chain([node]))
    }

    /// Returns each node's share of the data, by rule.
    fn shares(&self, rule: Rule) -> (Vec<f64>, Vec<Vec<u16>>) {
        let mut shares = vec![0.0; self.racks.len()];
        let mut rows = Vec::with_capacity(self.ring.len());
        for at in 0..self.ring.len() {
            let mut replicas = Vec::new();
            self.walk(rule, self.around(at), &mut replicas);
            for node in &replicas {
                if let Some(share) = shares.get_mut(usize::from(*node)) {
                    *share += self.length(at);
                }
            }
            rows.push(replicas);
        }
        (shares, rows)
    }

    /// Returns the share that a node has in an even ring.
    fn ideal(&self, rule: Rule, node: u16) -> f64 {
        let nodes = self.racks.len() as f64;
        let rack = self.rack(node);
        let in_rack = self.racks.iter().filter(|r| **r == rack).count() as f64;
        match rule {
            Rule::Ring => 1.0 / nodes,
            Rule::Rack if rack == self.rack(self.newcomer()) => 1.0 / in_rack,
            Rule::Rack => 0.0,
            Rule::Effective => {
                let factor = f64::from(self.factor);
                let racks = f64::from(self.rack_count);
                let share = if factor < racks || nodes <= racks {
                    factor / nodes
                } else {
                    // One replica in each rack; the others fall on the first nodes met.
                    let others = (factor - racks) * (in_rack - 1.0) / (nodes - racks);
                    (1.0 + others) / in_rack
                };
                share.min(1.0)
            }
        }
    }

    /// Differences to what each node should own, when the new one should have `part` of its share.
    fn differences(&self, rule: Rule, shares: &[f64], part: f64) -> Vec<f64> {
        let new = self.newcomer();
        let differ = shares.iter().enumerate().map(|(node, share)| {
            let node = node as u16;
            let ideal = self.ideal(rule, node);
            share - if node == new { ideal * part } else { ideal }
        });
        differ.collect()
    }

    /// Measure of imbalance; smaller is better.
    pub(super) fn cost(&self, part: f64) -> f64 {
        let of_rule = |(rule, weight): (Rule, f64)| {
            let (shares, _) = self.shares(rule);
            let differences = self.differences(rule, &shares, part);
            weight * differences.iter().map(|d| d * d).sum::<f64>()
        };
        self.rules().into_iter().map(of_rule).sum()
    }

    /// The place of one more token of the new node, when it should then have `part` of its share.
    pub(super) fn best_place(&self, part: f64, seed: u64) -> u64 {
        let count = self.ring.len();
        let mut rules = Vec::new();
        for (rule, weight) in self.rules() {
            let (shares, rows) = self.shares(rule);
            rules.push((rule, weight, self.differences(rule, &shares, part), rows));
        }
        let mut best: Option<(f64, u64, u64)> = None;
        for at in 0..count {
            let draw = mix(seed, at as u64);
            if count > RANGES_LOOKED_AT_MAX && draw as usize % count >= RANGES_LOOKED_AT_MAX {
                continue;
            }
            let length = self.length(at);
            let mut parts = Vec::new();
            let (mut slope, mut square) = (0.0, 0.0);
            for (rule, weight, differences, rows) in &rules {
                let change = self.change(*rule, at, rows);
                for (node, constant, x) in &change.nodes {
                    let now = differences.get(usize::from(*node)).copied().unwrap_or(0.0);
                    parts.push((*weight, now, *constant, *x));
                    slope += weight * x * (now + constant);
                    square += weight * x * x;
                }
            }
            let x = if square > 0.0 { -slope / square } else { length / 2.0 };
            let x = x.clamp(length * CUT_MIN, length * (1.0 - CUT_MIN));
            let cost = parts.iter().map(|(w, now, c, s)| {
                let then = now + c + s * x;
                w * (then * then - now * now)
            });
            let cost: f64 = cost.sum();
            // Equal up to rounding: the seed decides.
            let is_better = best.is_none_or(|(least, drawn, _)| {
                cost < least - 1e-12 || (cost < least + 1e-12 && draw < drawn)
            });
            if is_better {
                let before = if at == 0 { count - 1 } else { at - 1 };
                let start = self.ring.get(before).map_or(0, |(p, _)| *p);
                let step = (x * (u64::MAX as f64)) as u64;
                best = Some((cost, draw, start.wrapping_add(step.max(1))));
            }
        }
        best.map_or(seed, |(_, _, place)| place)
    }

    /// Returns the changes of shares made by a token in the range that ends at ring index `at`.
    fn change(&self, rule: Rule, at: usize, rows: &[Vec<u16>]) -> Change {
        let mut change = Change::default();
        let mut after = Vec::new();
        let before = |i: usize| rows.get(i).map_or(&[][..], Vec::as_slice);
        // The first part of the range itself, of length x.
        let new = self.newcomer();
        self.walk(rule, std::iter::once(new).chain(self.around(at)), &mut after);
        change.swap(before(at), &after, 0.0, 1.0);
        // Whole ranges before it whose walk now meets the new node; once one does not, none before
        // it does, because its walk sees even more nodes first.
        let count = self.ring.len();
        for back in 1..count {
            let from = (at + count - back) % count;
            self.walk(rule, self.around_with(from, at), &mut after);
            if after == before(from) {
                break;
            }
            change.swap(before(from), &after, self.length(from), 0.0);
        }
        change
    }
}
