//! Fault points of the product (`stdx::chaos!`), switched on by seed.
//!
//! In half of all seeds nothing fires. In the others each fault point is on with probability 1/2; one that is on fires
//! once in 2 to 32 times. All of it follows from the seed and the point's name, not from the world's generator, so that
//! a new fault point does not change what other seeds do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use stdx::BugReport;
use stdx::chaos::{ChaosGuard, switch_on};
use stdx::invariant::bug_reports;

use crate::soak::OneRun;

thread_local! {
    /// How often each fault point has fired in this process.
    static FIRED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// The same run with the fault points of its seed; a broken invariant (`stdx::bug!`) fails it.
pub fn with_fault_points(one: OneRun) -> OneRun {
    Box::new(move |seed| {
        let _guard = for_seed(seed);
        let before = bug_reports();
        let report = one(seed)?;
        match bug_reports().into_iter().find(|after| !before.contains(after)) {
            Some(BugReport { latest, .. }) => Err(format!("{}: {latest}", latest.site)),
            None => Ok(report),
        }
    })
}

/// How often each fault point has fired in this process, by name.
pub fn fired() -> BTreeMap<&'static str, u64> {
    FIRED.with_borrow(Clone::clone)
}

fn for_seed(seed: u64) -> Option<ChaosGuard> {
    let seed = mixed(seed ^ 0x00fa_017e_5eed);
    if seed.is_multiple_of(2) {
        return None;
    }
    let calls: Rc<RefCell<BTreeMap<&'static str, u64>>> = Rc::default();
    Some(switch_on(Box::new(move |name| {
        let point = name.bytes().fold(seed, |hash, byte| mixed(hash ^ u64::from(byte)));
        let is_on = point & 1 == 0;
        let once_in = 2 << ((point >> 1) % 5);
        let mut calls = calls.borrow_mut();
        let call = calls.entry(name).or_default();
        *call += 1;
        let fires = is_on && mixed(point ^ *call).is_multiple_of(once_in);
        if fires {
            FIRED.with_borrow_mut(|fired| *fired.entry(name).or_default() += 1);
        }
        fires
    })))
}

/// A bijection of 64 bits that leaves no pattern (the finalizer of splitmix64).
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    /// Returns the decisions of a fault point in 64 calls of a run.
    fn run_of(seed: u64) -> u64 {
        let one: OneRun = Box::new(|_| {
            let fired =
                (0..64).fold(0, |bits, at| bits | u64::from(stdx::chaos!("sim-test")) << at);
            Ok(Report { trace: fired, ..Report::default() })
        });
        with_fault_points(one)(seed).unwrap().trace
    }

    #[test]
    fn fault_points_follow_from_the_seed_and_are_off_outside_of_runs() {
        let runs: Vec<u64> = (0..200).map(run_of).collect();
        assert_eq!(runs, (0..200).map(run_of).collect::<Vec<_>>());
        let with = runs.iter().filter(|fired| **fired != 0).count();
        assert!((25..=75).contains(&with), "{with} of 200 seeds have this point on");
        assert!(runs.iter().all(|fired| *fired != u64::MAX));
        assert!(!stdx::chaos!("sim-test"));
        assert!(fired()["sim-test"] > 0);
    }

    #[test]
    fn a_broken_invariant_fails_its_run_and_not_the_next() {
        let one: OneRun = Box::new(|seed| {
            if seed == 7 {
                let _ = stdx::bug!("seed {seed}");
            }
            Ok(Report::default())
        });
        let one = with_fault_points(one);
        assert!(one(6).is_ok());
        assert!(one(7).unwrap_err().ends_with("internal error: seed 7"));
        assert!(one(8).is_ok());
    }
}
