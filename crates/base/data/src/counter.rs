//! Counter contexts: the value of a counter cell, a count per writer. Source: Cassandra's
//! `db.context.CounterContext`; the bytes are the same.
//!
//! Owns: the encoding, the merge of two contexts, the shard that a leader builds from an increment.
//! Never: the choice of the leader, clocks (arguments).
//!
//! ```text
//! elements i16 · (index i16 | 0x8000 if global)* · (id 16 bytes · clock i64 · count i64)*
//! ```
//!
//! All big endian; shards ascend by id. A shard that no element names is *remote*. Since Cassandra 2.1
//! only *global* shards are written: a writer's whole count, of which the highest clock wins. *Local*
//! ones are differences: those of an increment on its way to its leader (id [`UPDATE_ID`]), and those
//! of nodes before 2.1, whose other copies are remote.
//!
//! INV-counter-1: merging contexts of global and remote shards is commutative, associative and
//! idempotent; one set of shards has one encoding. (Local shards add up, so they are merged once.)

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::row::CellRef;

/// Bytes of a writer's id.
const ID_BYTES: usize = 16;
/// Bytes of a shard.
const SHARD_BYTES: usize = 32;
/// Bit of an element that names a global shard.
const GLOBAL: u16 = 0x8000;
/// The writer of an increment that no leader has applied yet (`CounterContext.UPDATE_CLOCK_ID`).
pub const UPDATE_ID: CounterId = CounterId([0; ID_BYTES]);

/// Identity of a shard's writer: one process of one node, so that no two ever write under the same
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterId(pub [u8; ID_BYTES]);

/// Rule that decides between two contexts with a shard of one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardKind {
    /// Its writer's whole count: the highest clock wins, over any other kind too.
    Global,
    /// A difference: added to others.
    Local,
    /// A copy of another node's local ones: the highest clock wins.
    Remote,
}

/// One writer's part of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The writer.
    pub id: CounterId,
    /// Its logical clock.
    pub clock: i64,
    /// Its count.
    pub count: i64,
    /// How it merges.
    pub kind: ShardKind,
}

/// Iterator over the shards of a context, ascending by id.
#[derive(Clone, Debug)]
pub struct Shards<'a> {
    elements: &'a [u8],
    clears_local: bool,
    index: u16,
    body: &'a [u8],
}

/// The shards of a context; `None` when the bytes are none.
pub fn shards(context: &[u8]) -> Option<Shards<'_>> {
    let (count, rest) = context.split_first_chunk::<2>()?;
    let count = i16::from_be_bytes(*count);
    let (elements, body) = rest.split_at_checked(usize::from(count.unsigned_abs()) * 2)?;
    // A negative number: the file came from another node, to which these were not local.
    (body.len() % SHARD_BYTES == 0).then_some(Shards {
        elements,
        clears_local: count < 0,
        index: 0,
        body,
    })
}

impl Iterator for Shards<'_> {
    type Item = Shard;

    fn next(&mut self) -> Option<Shard> {
        let (id, rest) = self.body.split_first_chunk::<ID_BYTES>()?;
        let (clock, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<8>()?;
        self.body = rest;
        let mut kind = ShardKind::Remote;
        if let Some((element, elements)) = self.elements.split_first_chunk::<2>() {
            let element = u16::from_be_bytes(*element);
            if element & !GLOBAL == self.index {
                self.elements = elements;
                kind = match (element & GLOBAL != 0, self.clears_local) {
                    (true, _) => ShardKind::Global,
                    (false, false) => ShardKind::Local,
                    (false, true) => ShardKind::Remote,
                };
            }
        }
        self.index = self.index.wrapping_add(1);
        let (clock, count) = (i64::from_be_bytes(*clock), i64::from_be_bytes(*count));
        Some(Shard { id: CounterId(*id), clock, count, kind })
    }
}

/// Returns the value that a reader sees: the sum of all shards. Sums wrap around, as in Cassandra.
pub fn total(context: &[u8]) -> i64 {
    shards(context).map_or(0, |s| s.fold(0, |sum: i64, shard| sum.wrapping_add(shard.count)))
}

/// A writer's clock and count; zeros when it has written nothing.
pub fn clock_and_count(context: &[u8], id: CounterId) -> (i64, i64) {
    let found = shards(context).and_then(|mut s| s.find(|shard| shard.id == id));
    found.map_or((0, 0), |shard| (shard.clock, shard.count))
}

/// Returns true if the context has shards of other kinds than global.
pub fn has_legacy_shards(context: &[u8]) -> bool {
    shards(context).is_some_and(|mut s| s.any(|shard| shard.kind != ShardKind::Global))
}

/// Returns true if the context has local shards; it must not be sent to other nodes unchanged.
pub fn has_local_shards(context: &[u8]) -> bool {
    shards(context).is_some_and(|mut s| s.any(|shard| shard.kind == ShardKind::Local))
}

/// The context of an increment on its way to its leader (`CounterContext.createUpdate`).
pub fn update(delta: i64) -> [u8; 36] {
    let shard = Shard { id: UPDATE_ID, clock: 1, count: delta, kind: ShardKind::Local };
    single(&shard)
}

/// The context of one leader's whole count (`CounterContext.createGlobal`).
pub fn global(id: CounterId, clock: i64, count: i64) -> [u8; 36] {
    single(&Shard { id, clock, count, kind: ShardKind::Global })
}

fn single(shard: &Shard) -> [u8; 36] {
    let mut out = Vec::with_capacity(36);
    encode(std::slice::from_ref(shard), &mut out);
    stdx::debug_invariant!(out.len() == 36, "counter context of one shard: {} bytes", out.len());
    let mut array = [0; 36];
    for (to, from) in array.iter_mut().zip(&out) {
        *to = *from;
    }
    array
}

/// Builds the shard that the leader of an increment writes: its own one plus the increment.
/// `now_micros` keeps clocks ascending across a deletion, after which the old clock is no longer
/// seen.
pub fn led(current: &[u8], id: CounterId, increment: &[u8], now_micros: i64) -> [u8; 36] {
    let (clock, count) = clock_and_count(current, id);
    global(id, now_micros.max(clock.saturating_add(1)), count.wrapping_add(total(increment)))
}

fn encode(shards: &[Shard], out: &mut Vec<u8>) {
    let start = out.len();
    let named = shards.iter().filter(|s| s.kind != ShardKind::Remote).count();
    out.extend_from_slice(&i16::try_from(named).unwrap_or(i16::MAX).to_be_bytes());
    for (index, shard) in shards.iter().enumerate() {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        match shard.kind {
            ShardKind::Global => out.extend_from_slice(&(index | GLOBAL).to_be_bytes()),
            ShardKind::Local => out.extend_from_slice(&index.to_be_bytes()),
            ShardKind::Remote => {}
        }
    }
    for shard in shards {
        out.extend_from_slice(&shard.id.0);
        out.extend_from_slice(&shard.clock.to_be_bytes());
        out.extend_from_slice(&shard.count.to_be_bytes());
    }
    let expected = 2 + 2 * named + 32 * shards.len();
    stdx::debug_invariant!(
        out.len() - start == expected,
        "counter context of {} bytes, {expected} expected",
        out.len() - start
    );
}

/// Two shards of one id. Source: `CounterContext.compare`.
fn merge_shard(a: &Shard, b: &Shard) -> Shard {
    use ShardKind::{Global, Local, Remote};
    let newer = |wins: bool| if wins { *a } else { *b };
    match (a.kind, b.kind) {
        (Global, Global) => newer((a.clock, a.count) >= (b.clock, b.count)),
        (Global, _) | (Local, Remote) => *a,
        (_, Global) | (Remote, Local) => *b,
        (Local, Local) => Shard {
            clock: a.clock.wrapping_add(b.clock),
            count: a.count.wrapping_add(b.count),
            ..*a
        },
        // A negative clock is that of a reset before 0.8: the lower one is the newer.
        (Remote, Remote) if a.clock == b.clock => newer(a.count >= b.count),
        (Remote, Remote) => newer(
            (a.clock >= 0 && b.clock > 0 && a.clock > b.clock)
                || (a.clock < 0 && (b.clock > 0 || a.clock < b.clock)),
        ),
    }
}

/// Appends the merge of two contexts. Bytes that are no context lose against those that are.
pub fn merge(left: &[u8], right: &[u8], out: &mut Vec<u8>) {
    let (a, b) = match (shards(left), shards(right)) {
        (Some(a), Some(b)) => (a, b),
        (Some(_), None) => return out.extend_from_slice(left),
        (None, Some(_)) => return out.extend_from_slice(right),
        (None, None) => return out.extend_from_slice(left.max(right)),
    };
    let (mut a, mut b) = (a.peekable(), b.peekable());
    let mut merged: SmallVec<[Shard; 8]> = SmallVec::new();
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(x), Some(y)) => x.id.cmp(&y.id),
        };
        let of_a = if order.is_le() { a.next() } else { None };
        let of_b = if order.is_ge() { b.next() } else { None };
        merged.extend(match (of_a, of_b) {
            (Some(x), Some(y)) => Some(merge_shard(&x, &y)),
            (x, y) => x.or(y),
        });
    }
    encode(&merged, out);
}

/// Appends the context as another node may see it: local shards become remote ones
/// (`CounterContext.clearAllLocal`).
pub fn without_local(context: &[u8], out: &mut Vec<u8>) {
    let Some(all) = shards(context) else { return out.extend_from_slice(context) };
    let cleared: SmallVec<[Shard; 8]> = all
        .map(|shard| match shard.kind {
            ShardKind::Local => Shard { kind: ShardKind::Remote, ..shard },
            _ => shard,
        })
        .collect();
    encode(&cleared, out);
}

/// Merges versions of one counter cell. A tombstone wins whatever its timestamp: an increment of a
/// deleted counter is lost if the tombstone still exists, as in Cassandra (CASSANDRA-7346). `None`:
/// there was no cell. The merged context is in `scratch` when it is none of the sources.
pub(crate) fn merge_cells<'a>(
    cells: &[CellRef<'a>],
    scratch: &'a mut Vec<u8>,
) -> Option<CellRef<'a>> {
    let dead = |c: &&CellRef<'a>| c.local != stdx::DeletionSeconds::NONE;
    if let Some(tombstone) = cells.iter().filter(dead).reduce(|a, b| match a.reconcile(b) {
        Ordering::Less => b,
        _ => a,
    }) {
        return Some(*tombstone);
    }
    let (first, others) = cells.split_first()?;
    if others.is_empty() {
        return Some(*first);
    }
    let mut timestamp = first.timestamp;
    let mut context: SmallVec<[u8; 256]> = SmallVec::from_slice(first.value);
    for cell in others {
        timestamp = timestamp.max(cell.timestamp);
        scratch.clear();
        merge(&context, cell.value, scratch);
        context.clear();
        context.extend_from_slice(scratch);
    }
    Some(CellRef::live(timestamp, scratch))
}
