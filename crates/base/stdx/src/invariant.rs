//! The three grades of broken invariant (STYLE.md, rule 11).

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

/// As [`invariant!`], but only in debug builds, tests, simulation and fuzzing: for costly checks.
#[macro_export]
macro_rules! debug_invariant {
    ($cond:expr, $($arg:tt)+) => {
        if cfg!(debug_assertions) && !$cond {
            $crate::invariant::broken(::core::format_args!($($arg)+))
        }
    };
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
