//! The private enum of the two worlds, as far as clocks and randomness go.

use stdx::{Instant, WallMicros};

/// Environment of one shard: real or simulated.
#[derive(Clone)]
pub(crate) enum Env {
    Native(rt_native::Env),
    Sim(rt_sim::Env),
}

impl Env {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Env::Native(env) => Instant(env.now_nanos()),
            Env::Sim(env) => env.now(),
        }
    }

    pub(crate) fn wall(&self) -> WallMicros {
        match self {
            Env::Native(env) => WallMicros(env.wall_micros()),
            Env::Sim(env) => env.wall(),
        }
    }

    pub(crate) fn random_u64(&self) -> u64 {
        match self {
            Env::Native(env) => env.random_u64(),
            Env::Sim(env) => env.random_u64(),
        }
    }

    pub(crate) fn random_fill(&self, out: &mut [u8]) {
        match self {
            Env::Native(env) => env.random_fill(out),
            Env::Sim(env) => env.random_fill(out),
        }
    }
}
