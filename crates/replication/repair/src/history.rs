//! History of repairs: when ranges of tables were repaired, durably, and which tombstones may be
//! purged for it.
//!
//! The file `repair_history` in the node's work directory is written by shard 0 alone, in one step,
//! and read by every shard at its start (`docs/formats/repair-history.md`). A time that is lost, or
//! that never reaches a node, only keeps tombstones until the next repair.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{ClusterSnapshot, PlacementKey, TokenRange};
use codec::SmallForm;
use schema::{Keyspace, Table, TableKind, TombstoneGcMode};
use stdx::{DeletionSeconds, TableId, Token, Uuid};
use store::{GcPolicy, NEVER, RepairTimes};

use crate::ranges::{TokenSpan, unwrapped};

/// Most bytes of the file.
pub const BYTES_MAX: usize = 64 << 20;
/// Name of the file.
pub const FILE: &str = "repair_history";
/// Format of the file.
const FORM: SmallForm = SmallForm { kind: "repair-history", version: 2 };
/// First line of version 1, a text with a checksum.
const EARLIER_HEAD: &str = "helenus-repair-history 1\n";

/// Repairs of all tables, as far as this node took part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairHistory(BTreeMap<TableId, RepairTimes>);

impl RepairHistory {
    /// Notes a successful repair of the ranges that began at so many seconds since 1970.
    pub fn note(&mut self, table: TableId, ranges: &[(Token, Token)], seconds: i64) {
        let times = self.0.entry(table).or_default();
        for (start, end) in ranges {
            times.note(*start, *end, seconds);
        }
    }

    /// When a range was repaired as a whole.
    pub fn least_within(&self, table: TableId, start: Token, end: Token) -> Option<i64> {
        self.0.get(&table)?.least_within(start, end)
    }

    /// A range in parts with the times when they were repaired, in order; 0: never.
    pub fn parts_of(&self, table: TableId, start: Token, end: Token) -> Vec<(Token, Token, i64)> {
        let known = self.0.get(&table).map(|times| times.parts_within(start, end));
        let mut parts = Vec::new();
        let mut reached = start;
        for (from, upto, at) in known.unwrap_or_default() {
            if reached < from {
                parts.push((reached, from, 0));
            }
            parts.push((from, upto, at));
            reached = upto;
        }
        if reached < end {
            parts.push((reached, end, 0));
        }
        parts
    }

    /// Removes tables that do not exist any more. Returns true if there were some.
    pub fn keep(&mut self, is_there: impl Fn(TableId) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|table, _| is_there(*table));
        self.0.len() < before
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = String::new();
        for (table, times) in &self.0 {
            text.push_str(&format!("table {}\n", table.0));
            for (start, end, seconds) in times.iter() {
                text.push_str(&format!("range {} {} {seconds}\n", start.0, end.0));
            }
        }
        let bytes = FORM.encode(text.as_bytes());
        stdx::debug_invariant!(
            RepairHistory::decode(&bytes).is_some(),
            "INV-repair-5: the history of {} tables would not be read back",
            self.0.len()
        );
        bytes
    }

    /// Reads the file back, also one of version 1; `None` when it is none.
    pub fn decode(bytes: &[u8]) -> Option<RepairHistory> {
        match codec::is_small_file(bytes) {
            true => RepairHistory::of_lines(std::str::from_utf8(FORM.decode(bytes).ok()?).ok()?),
            false => RepairHistory::of_lines(codec::open_text(bytes, EARLIER_HEAD)?),
        }
    }

    fn of_lines(body: &str) -> Option<RepairHistory> {
        let mut all = RepairHistory::default();
        let mut table = None;
        for line in body.lines() {
            if let Some(id) = line.strip_prefix("table ") {
                table = Some(TableId(id.parse::<Uuid>().ok()?));
                continue;
            }
            let mut words = line.strip_prefix("range ")?.split(' ');
            let mut number = || words.next()?.parse::<i64>().ok();
            let (start, end, seconds) = (number()?, number()?, number()?);
            all.note(table?, &[(Token(start), Token(end))], seconds);
        }
        Some(all)
    }
}

/// Ranges of a keyspace as one node sees them.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Ranges that this node replicates, without wrap, and whether others do too.
    pub(crate) owned: Vec<(Token, Token, bool)>,
    /// Ranges whose first replica is this node and that others replicate too.
    pub(crate) primary: Vec<(Token, Token)>,
}

impl Shares {
    fn of(snapshot: &ClusterSnapshot, key: &PlacementKey) -> Shares {
        let me = snapshot.local.host_id;
        let placements = key.placements(snapshot);
        let mut shares = Shares::default();
        for (range, replicas) in placements.ranges() {
            if replicas.position(me).is_none() {
                continue;
            }
            let others = replicas.natural().any(|m| m.host_id != me);
            let is_first = replicas.natural().next().is_some_and(|m| m.host_id == me);
            let has_others = others || replicas.pending_len() > 0;
            for (start, end) in unwrapped(range) {
                shares.owned.push((start, end, has_others));
                if is_first && others {
                    shares.primary.push((start, end));
                }
            }
        }
        shares
    }
}

/// Returns the ranges of a keyspace that this node replicates, as exclusive start and inclusive
/// end.
pub fn owned(snapshot: &ClusterSnapshot, keyspace: &Keyspace) -> Vec<(Token, Token)> {
    let shares = Shares::of(snapshot, &PlacementKey::of_keyspace(snapshot, keyspace));
    shares.owned.into_iter().map(|(start, end, _)| (start, end)).collect()
}

/// Calls `each` for every table of the schema except virtual ones, with its shares. The shares are
/// computed once for all tables of one placement.
pub(crate) fn each_table(snapshot: &ClusterSnapshot, mut each: impl FnMut(&Arc<Table>, &Shares)) {
    let mut known: Vec<(PlacementKey, Shares)> = Vec::new();
    for keyspace in snapshot.schema.keyspaces.values().filter(|k| !k.is_virtual) {
        let key = PlacementKey::of_keyspace(snapshot, keyspace);
        let at = known.iter().position(|(of, _)| *of == key).unwrap_or_else(|| {
            let shares = Shares::of(snapshot, &key);
            known.push((key, shares));
            known.len() - 1
        });
        let Some((_, shares)) = known.get(at) else { continue };
        for table in keyspace.tables.values().filter(|t| t.kind != TableKind::Virtual) {
            each(table, shares);
        }
    }
}

/// Returns the garbage collection policy of a table's tombstones on this node.
fn policy(shares: &Shares, table: &Table, history: &RepairHistory) -> GcPolicy {
    let option = table.options.tombstone_gc();
    let delay = option
        .map_or(schema::tombstone_gc::PROPAGATION_DELAY_SECONDS, |o| o.propagation_delay_seconds);
    match option.map(|o| o.mode) {
        Some(TombstoneGcMode::Timeout) => return GcPolicy::Timeout,
        Some(TombstoneGcMode::Immediate) => return GcPolicy::Immediate,
        Some(TombstoneGcMode::Disabled) => return GcPolicy::Disabled,
        Some(TombstoneGcMode::Repair) | None => {}
    }
    // No other replica, so no repair: no other node has data that this node has dropped.
    if shares.owned.iter().all(|(_, _, has_others)| !has_others) {
        return GcPolicy::Timeout;
    }
    let times = history.0.get(&table.id);
    let mut limits = Vec::with_capacity(shares.owned.len());
    for (start, end, has_others) in shares.owned.iter().copied() {
        if !has_others {
            limits.push((start, end, DeletionSeconds(i64::MAX)));
            continue;
        }
        let mut reached = start;
        for (from, upto, at) in times.map(|t| t.parts_within(start, end)).unwrap_or_default() {
            if reached < from {
                limits.push((reached, from, NEVER));
            }
            limits.push((from, upto, DeletionSeconds(at.saturating_sub(i64::from(delay)))));
            reached = upto;
        }
        if reached < end {
            limits.push((reached, end, NEVER));
        }
    }
    GcPolicy::repaired(limits)
}

/// When the owned ranges from the first token to the last were repaired, the earliest of these times;
/// `None`: not all of them were, there are none, or some has no other replica.
fn repaired_within(
    shares: &Shares,
    history: &RepairHistory,
    table: TableId,
    tokens: TokenSpan,
) -> Option<i64> {
    let mut least: Option<i64> = None;
    for (start, end, has_others) in shares.owned.iter().copied() {
        let Some(part) = tokens.part_of(TokenRange { start, end }) else { continue };
        let at = history.least_within(table, part.start, part.end).filter(|_| has_others)?;
        least = Some(least.map_or(at, |least| least.min(at)));
    }
    least
}

/// Tells a shard's store what holds for the tombstones of every table.
pub fn apply(snapshot: &ClusterSnapshot, history: &RepairHistory, store: &store::Store) {
    each_table(snapshot, |table, shares| {
        store.reader().set_gc_policy(table.id, policy(shares, table, history));
        store.verifier().release_repaired(table.id, |first, last| {
            repaired_within(shares, history, table.id, TokenSpan { first, last })
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> RepairHistory {
        let mut history = RepairHistory::default();
        let table = TableId(Uuid::from_u128(7));
        history.note(table, &[(Token::MIN, Token(5)), (Token(5), Token::MAX)], 100);
        history.note(TableId(Uuid::from_u128(8)), &[(Token(-5), Token(5))], 200);
        history.note(table, &[(Token(0), Token(2))], 300);
        history
    }

    #[test]
    fn a_span_is_repaired_when_all_of_it_that_is_owned_was_and_others_have_it() {
        let (history, table) = (some(), TableId(Uuid::from_u128(8)));
        let of = |owned: &[(i64, i64, bool)], span: (i64, i64)| {
            let owned = owned.iter().map(|(a, b, others)| (Token(*a), Token(*b), *others));
            let shares = Shares { owned: owned.collect(), primary: Vec::new() };
            let span = TokenSpan { first: Token(span.0), last: Token(span.1) };
            repaired_within(&shares, &history, table, span)
        };
        // The tokens after -5 up to 5 are repaired.
        assert_eq!(of(&[(-9, 9, true)], (-4, 5)), Some(200));
        assert_eq!(of(&[(-9, 9, true)], (-5, 5)), None);
        assert_eq!(of(&[(-9, 9, true)], (-4, 6)), None);
        assert_eq!(of(&[(-5, 0, true), (0, 5, true), (7, 9, true)], (-4, 7)), Some(200));
        assert_eq!(of(&[(-5, 0, true), (0, 5, true), (7, 9, true)], (-4, 8)), None);
        assert_eq!(of(&[(-5, 0, true), (0, 5, false)], (-4, 5)), None);
        // Nothing of it is owned.
        assert_eq!(of(&[(7, 9, true)], (-4, 5)), None);
        let other = TableId(Uuid::from_u128(7));
        let shares = Shares { owned: vec![(Token::MIN, Token::MAX, true)], primary: Vec::new() };
        let span = TokenSpan { first: Token(-4), last: Token(5) };
        let least = repaired_within(&shares, &history, other, span);
        assert_eq!(least, Some(100));
    }

    #[test]
    fn the_file_is_read_back_and_nothing_else_is_taken_for_one() {
        let history = some();
        let bytes = history.encode();
        assert_eq!(RepairHistory::decode(&bytes), Some(history));
        for at in 0..bytes.len() {
            assert_eq!(RepairHistory::decode(&bytes[..at]), None, "{at}");
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert_eq!(RepairHistory::decode(&wrong), None, "{at}");
        }
    }

    #[test]
    fn a_file_of_an_earlier_release_is_read() {
        let table = Uuid::from_u128(8);
        let text = format!("helenus-repair-history 1\ntable {table}\nrange -5 5 200\n");
        let bytes = codec::seal_text(text);
        let history = RepairHistory::decode(&bytes).unwrap();
        assert_eq!(history.least_within(TableId(table), Token(-5), Token(5)), Some(200));
        assert_eq!(RepairHistory::decode(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn no_bytes_as_a_history_make_it_panic() {
        let earlier = codec::seal_text("helenus-repair-history 1\n".to_owned());
        testkit::mutate([some().encode(), earlier], crate::fuzz::fuzz_repair_history);
    }

    #[test]
    fn tables_that_went_are_forgotten() {
        let mut history = some();
        assert!(!history.keep(|_| true));
        assert!(history.keep(|table| table == TableId(Uuid::from_u128(8))));
        assert_eq!(history.0.len(), 1);
    }
}
