//! The running hash over everything that happens.

/// Scheduling steps between two checkpoints.
pub const CHECKPOINT_STEPS: u64 = 1000;

/// Hash over (time, who, operation, arguments, result) of every step and effect.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    hash: u64,
    steps: u64,
    checkpoints: Vec<u64>,
}

impl Trace {
    /// Adds one number.
    pub fn add(&mut self, value: u64) {
        self.hash = mix(self.hash, value);
    }

    /// Adds bytes.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(hash_bytes(bytes));
    }

    /// Ends a scheduling step.
    pub fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(CHECKPOINT_STEPS) {
            self.checkpoints.push(self.hash);
        }
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The hash at every 1000th step.
    pub fn checkpoints(&self) -> &[u64] {
        &self.checkpoints
    }
}

/// Hash of bytes for the trace; not for tables.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = mix(0, bytes.len() as u64);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    for byte in rest {
        hash = mix(hash, u64::from(*byte));
    }
    hash
}

fn mix(hash: u64, value: u64) -> u64 {
    let x = (hash.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}
