//! Correlation ids of requests to peers: 64 bits that identify the request of an answer.
//!
//! Bits 0 to 7 the target, 8 to 23 the mutation, 24 and 25 the kind, 32 to 63 the slot of the write
//! or the number of the forward. A slot is free again only when none of its requests is open.

use request::Target;

const KIND_SHIFT: u32 = 24;
const LOG: u64 = 1 << KIND_SHIFT;
const FORWARD: u64 = 2 << KIND_SHIFT;
const KINDS: u64 = 3 << KIND_SHIFT;

/// The request that a token identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// A mutation of a write.
    Mutation {
        /// Slot of the write.
        slot: u32,
        /// Which mutation.
        index: u16,
        /// The replica.
        target: Target,
    },
    /// The log of a batch.
    Log {
        /// Slot of the write.
        slot: u32,
        /// To which of the log's nodes.
        place: u8,
    },
    /// A mutation that is passed on.
    Forward,
}

impl Sent {
    /// Decodes a token.
    pub(crate) fn of(token: u64) -> Sent {
        let (slot, place) = token_parts(token);
        match token & KINDS {
            0 => {
                let index = (token >> 8) as u16;
                Sent::Mutation { slot, index, target: Target(place) }
            }
            LOG => Sent::Log { slot, place },
            _ => Sent::Forward,
        }
    }
}

pub(crate) fn mutation_token(slot: u32, index: u16, target: Target) -> u64 {
    u64::from(slot) << 32 | u64::from(index) << 8 | u64::from(target.0)
}

pub(crate) fn log_token(slot: u32, place: u8) -> u64 {
    u64::from(slot) << 32 | LOG | u64::from(place)
}

pub(crate) fn forward_token(number: u32, place: u8) -> u64 {
    u64::from(number) << 32 | FORWARD | u64::from(place)
}

/// The upper half, and the lowest byte.
pub(crate) fn token_parts(token: u64) -> (u32, u8) {
    ((token >> 32) as u32, token as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_it_was_made_from() {
        for slot in [0, 1, u32::MAX] {
            for place in [0, 1, u8::MAX] {
                for index in [0, 1, u16::MAX] {
                    let target = Target(place);
                    let sent = Sent::of(mutation_token(slot, index, target));
                    assert_eq!(sent, Sent::Mutation { slot, index, target });
                }
                assert_eq!(Sent::of(log_token(slot, place)), Sent::Log { slot, place });
                let token = forward_token(slot, place);
                assert_eq!((Sent::of(token), token_parts(token)), (Sent::Forward, (slot, place)));
            }
        }
    }
}
