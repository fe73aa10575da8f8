//! Requests that wait for their answers: a slab, and a timer wheel threaded through it.
//!
//! INV-pending-1: an entry is taken out exactly once, by its answer, its deadline, the end of its
//! connection, or its cancellation; every later event finds no entry.
//! INV-pending-2: an entry is expired at its deadline or at most one [`TICK`] later.

use internode::Verb;
use std::time::Duration;
use stdx::{HostId, Instant, ShardId};

/// Resolution of deadlines.
pub const TICK: Duration = Duration::from_millis(4);
const TICK_NANOS: u64 = 4_000_000;
/// Slots of the wheel: one turn is about four seconds. Later deadlines go round more than once.
const BUCKETS: u64 = 1024;
const NONE: u32 = u32::MAX;

/// One request that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// The connection it was sent on.
    pub(crate) link: u64,
    /// The client that sent it.
    pub(crate) client: usize,
    /// The client's name for it.
    pub(crate) token: u64,
    pub(crate) host: HostId,
    pub(crate) verb: Verb,
    pub(crate) deadline: Instant,
    pub(crate) sent_at: Instant,
    /// Position of its frame in the connection's output.
    pub(crate) begin: u64,
    /// The peer's shard that was asked.
    pub(crate) shard: ShardId,
    /// Bytes of its payload.
    pub(crate) payload_bytes: usize,
}

struct Slot {
    generation: u32,
    waiting: Option<Waiting>,
    /// Neighbours in the list of the bucket, or the next free slot.
    next: u32,
    previous: u32,
    bucket: u16,
}

/// All waiting requests of a shard.
pub(crate) struct Pending {
    slots: Vec<Slot>,
    free: u32,
    len: usize,
    /// First slot of each bucket.
    buckets: Vec<u32>,
    /// One bit per bucket that is not empty.
    filled: [u64; 16],
    /// The last tick that was expired.
    tick: u64,
}

fn bucket_of(tick: u64) -> u16 {
    u16::try_from(tick % BUCKETS).unwrap_or(0)
}

impl Pending {
    /// All that wait, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.slots.iter().filter_map(|slot| slot.waiting.as_ref())
    }

    pub(crate) fn new() -> Pending {
        Pending {
            slots: Vec::new(),
            free: NONE,
            len: 0,
            buckets: vec![NONE; BUCKETS as usize],
            filled: [0; 16],
            tick: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds one and names it: a stream id, never 0. `None` when there are too many.
    pub(crate) fn insert(&mut self, now: Instant, waiting: Waiting) -> Option<u64> {
        if self.len == 0 {
            // No request waits: skip all ticks.
            self.tick = self.tick.max(now.0 / TICK_NANOS);
        }
        let slot = match self.free {
            NONE => {
                let slot = u32::try_from(self.slots.len()).ok().filter(|s| *s < NONE)?;
                let empty =
                    Slot { generation: 0, waiting: None, next: NONE, previous: NONE, bucket: 0 };
                self.slots.push(empty);
                slot
            }
            slot => {
                self.free = self.slots.get(slot as usize)?.next;
                slot
            }
        };
        let entry = self.slots.get_mut(slot as usize)?;
        entry.generation = entry.generation.wrapping_add(1).max(1);
        entry.waiting = Some(waiting);
        let stream = u64::from(entry.generation) << 32 | u64::from(slot);
        self.len += 1;
        self.link_in(slot, waiting.deadline);
        Some(stream)
    }

    /// Says where in the output an entry begins, and how long its payload is.
    pub(crate) fn set_place(&mut self, stream: u64, begin: u64, payload_bytes: usize) {
        if let Some(waiting) = self.find(stream) {
            waiting.begin = begin;
            waiting.payload_bytes = payload_bytes;
        }
    }

    /// The entry with this stream id, which stays.
    pub(crate) fn find(&mut self, stream: u64) -> Option<&mut Waiting> {
        let slot = self.slots.get_mut(usize::try_from(stream & 0xffff_ffff).ok()?)?;
        if u64::from(slot.generation) != stream >> 32 {
            return None;
        }
        slot.waiting.as_mut()
    }

    /// Takes the entry with this stream id out.
    pub(crate) fn take(&mut self, stream: u64) -> Option<Waiting> {
        self.find(stream)?;
        self.remove(u32::try_from(stream & 0xffff_ffff).ok()?)
    }

    /// Takes out all entries of a connection, in the order of their slots.
    pub(crate) fn take_link(&mut self, link: u64, out: &mut Vec<Waiting>) {
        let slots = 0..u32::try_from(self.slots.len()).unwrap_or(NONE);
        for slot in slots {
            let is_its = self
                .slots
                .get(slot as usize)
                .is_some_and(|s| s.waiting.is_some_and(|w| w.link == link));
            if is_its {
                out.extend(self.remove(slot));
            }
        }
    }

    /// Takes out what is due.
    pub(crate) fn expire(&mut self, now: Instant, out: &mut Vec<Waiting>) {
        let target = now.0 / TICK_NANOS;
        if self.len == 0 {
            self.tick = self.tick.max(target);
            return;
        }
        // After a long pause one turn of the wheel sees every bucket.
        let first = self.tick.saturating_add(1).max(target.saturating_sub(BUCKETS - 1));
        self.tick = self.tick.max(target);
        for tick in first..=target {
            let Some(head) = self.buckets.get_mut(usize::from(bucket_of(tick))) else { continue };
            let mut slot = std::mem::replace(head, NONE);
            self.mark(bucket_of(tick), false);
            while slot != NONE {
                let Some(entry) = self.slots.get(slot as usize) else { break };
                let next = entry.next;
                match entry.waiting {
                    Some(waiting) if waiting.deadline <= now => {
                        self.free_slot(slot);
                        out.push(waiting);
                    }
                    // Not due in this turn of the wheel.
                    Some(waiting) => self.link_in(slot, waiting.deadline),
                    None => {}
                }
                slot = next;
            }
        }
    }

    /// When [`Pending::expire`] may next find something.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let start = usize::from(bucket_of(self.tick + 1));
        // From the bucket of the next tick on, word by word, once around.
        for step in 0..=self.filled.len() {
            let word = (start / 64 + step) % self.filled.len();
            let mut bits = self.filled.get(word).copied().unwrap_or(0);
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == self.filled.len() {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (bucket + BUCKETS as usize - start) % BUCKETS as usize;
                let tick = self.tick + 1 + ahead as u64;
                return Some(Instant(tick.saturating_mul(TICK_NANOS)));
            }
        }
        None
    }

    fn mark(&mut self, bucket: u16, is_filled: bool) {
        let Some(word) = self.filled.get_mut(usize::from(bucket / 64)) else {
            stdx::invariant::broken(format_args!("INV-pending-2: no bit for bucket {bucket}"))
        };
        let bit = 1 << (bucket % 64);
        if is_filled { *word |= bit } else { *word &= !bit }
    }

    fn link_in(&mut self, slot: u32, deadline: Instant) {
        let due = deadline.0.div_ceil(TICK_NANOS);
        let tick = due.clamp(self.tick + 1, self.tick + BUCKETS - 1);
        let bucket = bucket_of(tick);
        let Some(head) = self.buckets.get_mut(usize::from(bucket)) else {
            stdx::invariant::broken(format_args!(
                "INV-pending-2: no bucket {bucket}, a request would never expire"
            ))
        };
        let next = std::mem::replace(head, slot);
        if let Some(neighbour) = self.slots.get_mut(next as usize) {
            neighbour.previous = slot;
        }
        match self.slots.get_mut(slot as usize) {
            Some(entry) => (entry.next, entry.previous, entry.bucket) = (next, NONE, bucket),
            None => stdx::invariant!(false, "INV-pending-1: no slot {slot} to wait in"),
        }
        self.mark(bucket, true);
    }

    fn remove(&mut self, slot: u32) -> Option<Waiting> {
        let entry = self.slots.get(slot as usize)?;
        let waiting = entry.waiting?;
        let (next, previous, bucket) = (entry.next, entry.previous, entry.bucket);
        if let Some(neighbour) = self.slots.get_mut(next as usize) {
            neighbour.previous = previous;
        }
        match self.slots.get_mut(previous as usize) {
            Some(neighbour) => neighbour.next = next,
            None => {
                if let Some(head) = self.buckets.get_mut(usize::from(bucket)) {
                    *head = next;
                }
                if next == NONE {
                    self.mark(bucket, false);
                }
            }
        }
        self.free_slot(slot);
        Some(waiting)
    }

    fn free_slot(&mut self, slot: u32) {
        let free = self.free;
        let Some(entry) = self.slots.get_mut(slot as usize) else {
            stdx::invariant::broken(format_args!("INV-pending-1: no slot {slot} to free"))
        };
        stdx::debug_invariant!(
            entry.waiting.is_some(),
            "INV-pending-1: slot {slot} is freed twice"
        );
        entry.waiting = None;
        (entry.next, entry.previous) = (free, NONE);
        self.free = slot;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stdx::Uuid;

    fn waiting(token: u64, link: u64, deadline: u64) -> Waiting {
        Waiting {
            link,
            client: 0,
            token,
            host: HostId(Uuid::nil()),
            verb: Verb::Echo,
            deadline: Instant(deadline),
            sent_at: Instant::ZERO,
            begin: 0,
            shard: ShardId(0),
            payload_bytes: 0,
        }
    }

    /// A model with a map, driven by the same pseudo-random operations (INV-pending-1, INV-pending-2).
    #[test]
    fn every_entry_leaves_once_and_expires_within_a_tick() {
        for seed in 1..20u64 {
            let mut state = seed;
            let mut random = move |n: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                (state >> 33) % n
            };
            let (mut pending, mut model) = (Pending::new(), BTreeMap::new());
            let (mut now, mut expired, mut streams) = (random(1 << 40), Vec::new(), Vec::new());
            for token in 0..4000 {
                match random(8) {
                    0..=3 => {
                        let reach = [1, 20, 5_000, 60_000][random(4) as usize] * 1_000_000;
                        let deadline = now + random(reach);
                        let entry = waiting(token, token % 5, deadline);
                        let stream = pending.insert(Instant(now), entry).unwrap();
                        assert!(model.insert(token, (stream, deadline)).is_none());
                        streams.push((token, stream));
                    }
                    4 if !streams.is_empty() => {
                        let (token, stream) = streams[random(streams.len() as u64) as usize];
                        let (mine, theirs) = (pending.take(stream), model.remove(&token));
                        assert_eq!(mine.is_some(), theirs.is_some(), "seed {seed}");
                        assert_eq!(mine.map(|w| w.token), theirs.map(|_| token));
                    }
                    5 => {
                        let link = random(5);
                        pending.take_link(link, &mut expired);
                        for w in expired.drain(..) {
                            assert!(model.remove(&w.token).is_some() && w.link == link);
                        }
                        assert!(model.keys().all(|t| t % 5 != link));
                    }
                    _ => {
                        // Sometimes as the timer would wake, sometimes late.
                        let longest = [3, 50, 10_000][random(3) as usize] * 1_000_000;
                        let pause = random(longest);
                        now = match pending.next_expiry() {
                            Some(at) if random(2) == 0 => now.max(at.0),
                            _ => now + pause,
                        };
                        pending.expire(Instant(now), &mut expired);
                        for w in expired.drain(..) {
                            assert!(w.deadline.0 <= now, "seed {seed}: early");
                            assert!(model.remove(&w.token).is_some());
                        }
                        let overdue = now.saturating_sub(TICK_NANOS);
                        assert!(model.values().all(|(_, d)| *d > overdue), "seed {seed}: late");
                    }
                }
                assert_eq!(pending.len(), model.len());
                let first = model.values().map(|(_, d)| *d).min();
                let next = pending.next_expiry();
                assert_eq!(next.is_some(), first.is_some());
                if let (Some(next), Some(first)) = (next, first) {
                    let limit = first.max(now) + 2 * TICK_NANOS;
                    assert!(next.0 <= limit, "seed {seed}: sleeps {} past {limit}", next.0);
                }
            }
        }
    }

    #[test]
    fn a_stream_id_of_an_earlier_user_of_the_slot_finds_nothing() {
        let mut pending = Pending::new();
        let first = pending.insert(Instant::ZERO, waiting(1, 1, 10)).unwrap();
        assert!(pending.take(first).is_some());
        let second = pending.insert(Instant::ZERO, waiting(2, 1, 10)).unwrap();
        assert_eq!(first & 0xffff_ffff, second & 0xffff_ffff, "the slot is used again");
        assert!(pending.take(first).is_none() && pending.take(0).is_none());
        assert_eq!(pending.take(second).map(|w| w.token), Some(2));
    }
}
