//! Environment of the evaluation of a function, beside its arguments: times, random numbers, the fuel of users'
//! functions.
//!
//! Never: reads a clock; the output of [`UuidSource`] follows from its seed and the times it is passed.

use std::cell::Cell;
use std::fmt;

use stdx::WallMicros;
use types::timeuuid;

/// A function's view of an execution.
#[derive(Clone, Copy, Debug)]
pub struct EvalEnv<'a> {
    /// Current time, for expiry.
    pub now: WallMicros,
    /// Wall clock of the coordinator, for UUIDs and functions of the time.
    pub clock: WallMicros,
    /// For `now()`, `uuid()`, list paths.
    pub uuids: &'a UuidSource,
    /// Native protocol version of the connection.
    pub protocol_version: u8,
}

impl<'a> EvalEnv<'a> {
    /// Environment of constants, which are evaluated while a statement is planned.
    pub fn of_constants(now: WallMicros, uuids: &'a UuidSource) -> EvalEnv<'a> {
        EvalEnv { now, clock: now, uuids, protocol_version: 5 }
    }
}

/// State that binding keeps between executions, one per shard: the last time UUID, the state of its
/// random numbers (its output follows from its seed and the times it is passed), a scratch buffer.
pub struct UuidSource {
    /// Last 100 ns step since 1970 given out.
    steps: Cell<i64>,
    /// Clock sequence and node of time UUIDs.
    node: u64,
    random: Cell<u64>,
    /// Reused by bind.
    scratch: Cell<Vec<u8>>,
    /// Fuel left for users' functions; `None`: only each call has its bound.
    function_fuel: Cell<Option<u64>>,
}

/// A scratch buffer that grew larger is dropped after its statement.
const SCRATCH_BYTES_KEPT: usize = 256 * 1024;

impl fmt::Debug for UuidSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UuidSource").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl UuidSource {
    /// `seed` must differ between shards and starts: it is the node number of time UUIDs, too.
    pub fn new(seed: u64) -> UuidSource {
        let source = UuidSource {
            steps: Cell::new(0),
            node: 0,
            random: Cell::new(seed),
            scratch: Cell::new(Vec::new()),
            function_fuel: Cell::new(None),
        };
        let random = source.random();
        // The multicast bit marks a node number that is no hardware address (RFC 4122, 4.5).
        let node = timeuuid::clock_seq_and_node((random >> 48) as u16, random | 1 << 40);
        UuidSource { node, ..source }
    }

    /// The same for one request, whose calls of users' functions have one account.
    pub fn with_function_fuel(self, fuel: u64) -> UuidSource {
        self.function_fuel.set(Some(fuel));
        self
    }

    /// Returns the fuel left for users' functions.
    pub fn function_fuel(&self) -> &Cell<Option<u64>> {
        &self.function_fuel
    }

    /// The scratch buffer, empty.
    pub fn take_scratch(&self) -> Vec<u8> {
        let mut scratch = self.scratch.take();
        scratch.clear();
        scratch
    }

    /// Gives the scratch buffer back.
    pub fn give_scratch(&self, scratch: Vec<u8>) {
        if scratch.capacity() <= SCRATCH_BYTES_KEPT {
            self.scratch.set(scratch);
        }
    }

    /// 64 random bits (SplitMix64).
    pub fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A version 4 UUID.
    pub fn random_uuid(&self) -> [u8; 16] {
        let mut out = [0; 16];
        let (high, low) = out.split_at_mut(8);
        high.copy_from_slice(&((self.random() & !0xf000) | 0x4000).to_be_bytes());
        low.copy_from_slice(&((self.random() >> 2) | 1 << 63).to_be_bytes());
        out
    }

    /// The next 100 ns step: that of `now`, or the one after the last.
    fn next_step(&self, now: WallMicros) -> i64 {
        let step = now.0.saturating_mul(10).max(self.steps.get().saturating_add(1));
        self.steps.set(step);
        step
    }

    /// A version 1 UUID, later than every one before.
    pub fn time_uuid(&self, now: WallMicros) -> [u8; 16] {
        timeuuid::from_steps(self.next_step(now), self.node)
    }

    /// The path of a list element put at the front: as far before 2010 as the current time is
    /// after it, so that later ones sort first. Source: `Lists.PrecisionTime`.
    pub fn prepend_uuid(&self, now: WallMicros) -> [u8; 16] {
        const REFERENCE_STEPS: i64 = 1_262_304_000_000 * 10_000;
        let after = self.next_step(now).saturating_sub(REFERENCE_STEPS);
        timeuuid::from_steps(REFERENCE_STEPS.saturating_sub(after), self.node)
    }
}
