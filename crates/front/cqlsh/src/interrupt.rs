//! Ctrl-C while a statement runs.
//!
//! Owns: the flag that the signal sets. Never: the abort itself. Only a shell at a terminal
//! watches; a script is killed by the signal as any program is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;

/// Flag for the user's wish to return to the prompt. One built by `default` is never set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for Ctrl-C from now on, instead of ending by it.
    ///
    /// # Errors
    /// The signal cannot be watched.
    pub(crate) fn watch() -> std::io::Result<Interrupt> {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGINT, Arc::clone(&flag))?;
        Ok(Interrupt(flag))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the flag itself, for waiting code.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Marks interrupts so far as handled.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
