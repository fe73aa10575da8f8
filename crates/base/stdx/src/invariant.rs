//! The three grades of broken invariant (STYLE.md, rule 11).
//!
//! [`invariant!`](crate::invariant!) ends the process, [`bug!`](crate::bug!) fails one request and is counted,
//! [`debug_invariant!`](crate::debug_invariant!) costs nothing in a release build. The counts of `bug!` have no clock
//! and no log here: code that has both polls [`bug_reports`].

#![allow(
    clippy::disallowed_types,
    reason = "counts of the process: reports only, nothing decides by them"
)]

use std::fmt;
use std::sync::Mutex;

/// Always on: stops the process when going on could make data wrong.
///
/// The message says what was expected; fields follow as format arguments.
#[macro_export]
macro_rules! invariant {
    ($cond:expr, $($arg:tt)+) => {
        if !$cond {
            $crate::invariant::broken(::core::format_args!($($arg)+))
        }
    };
}

/// Like [`invariant!`], but only in debug builds, tests, simulation and fuzzing: for costly checks.
#[macro_export]
macro_rules! debug_invariant {
    ($cond:expr, $($arg:tt)+) => {
        if cfg!(debug_assertions) && !$cond {
            $crate::invariant::broken(::core::format_args!($($arg)+))
        }
    };
}

/// Counts a broken invariant that cannot make data wrong, and returns it as a [`Bug`] for the request to fail with.
///
/// ```
/// # fn lookup() -> Option<u32> { None }
/// fn answer() -> Result<u32, stdx::Bug> {
///     lookup().ok_or_else(|| stdx::bug!("no answer for request {}", 7))
/// }
/// assert_eq!(answer().unwrap_err().to_string(), "internal error: no answer for request 7");
/// ```
#[macro_export]
macro_rules! bug {
    ($($arg:tt)+) => {
        $crate::invariant::count_bug(
            ::core::concat!(::core::file!(), ":", ::core::line!()),
            ::core::format_args!($($arg)+),
        )
    };
}

/// A broken invariant that fails one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bug {
    /// Source file and line of the `bug!`.
    pub site: &'static str,
    /// The expectation, with its values.
    pub what: String,
}

impl fmt::Display for Bug {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "internal error: {}", self.what)
    }
}

impl std::error::Error for Bug {}

/// How often one `bug!` has fired in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BugReport {
    /// The latest one.
    pub latest: Bug,
    /// Times it has fired since the process started.
    pub count: u64,
}

static BUGS: Mutex<Vec<BugReport>> = Mutex::new(Vec::new());

/// Expansion of [`bug!`](crate::bug!).
#[cold]
#[inline(never)]
pub fn count_bug(site: &'static str, what: fmt::Arguments<'_>) -> Bug {
    let bug = Bug { site, what: what.to_string() };
    // A poisoned lock still holds whole reports: nothing panics between two writes to one.
    let mut reports = BUGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match reports.iter_mut().find(|report| report.latest.site == site) {
        Some(report) => {
            report.count = report.count.saturating_add(1);
            report.latest = bug.clone();
        }
        // Bounded by the number of `bug!` in the source.
        None => reports.push(BugReport { latest: bug.clone(), count: 1 }),
    }
    bug
}

/// The `bug!`s that have fired in this process, each site once, in the order in which they first fired.
pub fn bug_reports() -> Vec<BugReport> {
    BUGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

/// Ends the process (release: abort, tests: panic that fails the test).
///
/// # Panics
/// Always: that is its purpose.
#[cold]
#[inline(never)]
#[track_caller]
pub fn broken(what: std::fmt::Arguments<'_>) -> ! {
    panic!("invariant broken: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_counted_by_site() {
        let mut last = None;
        for number in 0..3 {
            last = Some(crate::bug!("number {number}"));
        }
        let last = last.unwrap();
        assert_eq!(last.to_string(), "internal error: number 2");
        let report =
            bug_reports().into_iter().find(|report| report.latest.site == last.site).unwrap();
        assert_eq!(report, BugReport { latest: last, count: 3 });
    }
}
