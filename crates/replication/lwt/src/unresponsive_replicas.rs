//! Replicas that took statements and gave no answer: left out of the routes for a moment, so that one
//! that stands still costs a few uncertain writes and not all of its keys' until it is marked down.
//!
//! Who proposes is a matter of speed, not of safety: any replica may.

use std::collections::VecDeque;
use std::time::Duration;

use stdx::{HostId, Instant};

/// For how long a silent node is left out; then one statement tries it.
const LEFT_OUT: Duration = Duration::from_secs(2);
/// The most nodes that are remembered; the oldest is forgotten.
const HOSTS: usize = 64;

/// Which nodes were silent, and until when they are left out.
#[derive(Debug, Default)]
pub(crate) struct Silent(VecDeque<(HostId, Instant)>);

impl Silent {
    /// The node answered: it is used like any other.
    pub(crate) fn answered(&mut self, host: HostId) {
        if !self.0.is_empty() {
            self.0.retain(|(silent, _)| *silent != host);
        }
    }

    /// A statement's answer did not come.
    pub(crate) fn lost(&mut self, host: HostId, now: Instant) {
        self.answered(host);
        if self.0.len() >= HOSTS {
            self.0.pop_front();
        }
        self.0.push_back((host, now + LEFT_OUT));
    }

    /// Returns true if a statement may be sent there. After the timeout one statement may try; the
    /// node is left out again until that one is answered.
    pub(crate) fn may_try(&mut self, host: HostId, now: Instant) -> bool {
        let Some((_, until)) = self.0.iter_mut().find(|(silent, _)| *silent == host) else {
            return true;
        };
        let is_over = *until <= now;
        if is_over {
            *until = now + LEFT_OUT;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn host(n: u128) -> HostId {
        HostId(stdx::Uuid::from_u128(n))
    }

    #[test]
    fn a_silent_node_is_tried_by_one_statement_at_a_time_until_it_answers() {
        let mut silent = Silent::default();
        assert!(silent.may_try(host(1), at(0)));
        silent.lost(host(1), at(1));
        assert!(!silent.may_try(host(1), at(2)));
        assert!(silent.may_try(host(2), at(2)));
        assert!(silent.may_try(host(1), at(3)));
        assert!(!silent.may_try(host(1), at(3)), "one is under way");
        assert!(silent.may_try(host(1), at(5)));
        silent.answered(host(1));
        assert!(silent.may_try(host(1), at(5)) && silent.may_try(host(1), at(5)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut silent = Silent::default();
        for n in 0..200 {
            silent.lost(host(n), at(0));
        }
        assert_eq!(silent.0.len(), HOSTS);
        assert!(silent.may_try(host(0), at(1)) && !silent.may_try(host(199), at(1)));
    }
}
