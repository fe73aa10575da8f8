//! Rare-path probes: code that tests must reach marks itself, and a soak reports the marks never reached.
//!
//! A probe costs one relaxed load after its first hit, so it may stand on warm paths, not in inner loops. Names are
//! unique in the workspace (`cargo xtask tidy` checks it), lower case, `area-what`: `hints-delivery-resumed`.

#![allow(
    clippy::disallowed_types,
    reason = "marks of the process: reports only, nothing decides by them"
)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Marks a rare path as reached by this process.
#[macro_export]
macro_rules! reached {
    ($name:literal) => {{
        static PROBE: $crate::probe::Probe = $crate::probe::Probe::new($name);
        PROBE.hit();
    }};
}

/// One probe; [`reached!`](crate::reached!) declares it.
pub struct Probe {
    name: &'static str,
    hit: AtomicBool,
}

static REACHED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

impl Probe {
    /// A probe that was not reached yet.
    pub const fn new(name: &'static str) -> Probe {
        Probe { name, hit: AtomicBool::new(false) }
    }

    /// Records the first hit; later ones do nothing.
    #[inline]
    pub fn hit(&self) {
        if !self.hit.load(Ordering::Relaxed) {
            self.record();
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&self) {
        self.hit.store(true, Ordering::Relaxed);
        REACHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(self.name);
    }
}

/// Names of the probes this process has reached, sorted.
pub fn reached_names() -> Vec<&'static str> {
    REACHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_listed_once_reached() {
        let pass = |go: bool| {
            if go {
                crate::reached!("stdx-probe-test");
            }
        };
        pass(false);
        assert!(!reached_names().contains(&"stdx-probe-test"));
        pass(true);
        pass(true);
        assert_eq!(reached_names().iter().filter(|name| **name == "stdx-probe-test").count(), 1);
    }
}
