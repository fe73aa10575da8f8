//! Fault points: places in the product where a simulated run may choose the rare outcome.
//!
//! [`chaos!`](crate::chaos!) is false unless the thread has a [`ChaosGuard`], which only the simulator creates, with a
//! draw that follows from the run's seed. A fault point chooses among outcomes that are all correct (a full queue, a
//! page that ends early, a cache that misses); on its own it never makes data wrong.

use std::cell::{Cell, RefCell};

/// True if the rare outcome happens here, this time.
#[macro_export]
macro_rules! chaos {
    ($name:literal) => {
        $crate::chaos::happens($name)
    };
}

/// Decides, by the name of the fault point, whether it fires.
pub type Draw = Box<dyn FnMut(&'static str) -> bool>;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static DRAW: RefCell<Option<Draw>> = const { RefCell::new(None) };
}

/// Expansion of [`chaos!`](crate::chaos!).
#[inline]
pub fn happens(name: &'static str) -> bool {
    ON.get() && draw(name)
}

#[cold]
#[inline(never)]
fn draw(name: &'static str) -> bool {
    DRAW.with(|cell| match cell.try_borrow_mut() {
        Ok(mut held) => held.as_mut().is_some_and(|draw| draw(name)),
        // A draw that itself meets a fault point.
        Err(_) => false,
    })
}

/// Fault points of this thread fire while it exists.
pub struct ChaosGuard {
    before: Option<Draw>,
}

/// Switches the fault points of this thread on.
#[must_use = "fault points are off again when the guard is dropped"]
pub fn switch_on(draw: Draw) -> ChaosGuard {
    ON.set(true);
    ChaosGuard { before: DRAW.with(|cell| cell.replace(Some(draw))) }
}

impl Drop for ChaosGuard {
    fn drop(&mut self) {
        ON.set(self.before.is_some());
        DRAW.with(|cell| cell.replace(self.before.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_points_fire_only_under_a_guard() {
        assert!(!crate::chaos!("stdx-chaos-test"));
        {
            let _outer = switch_on(Box::new(|name| name == "stdx-chaos-test"));
            assert!(crate::chaos!("stdx-chaos-test"));
            {
                let _inner = switch_on(Box::new(|_| false));
                assert!(!crate::chaos!("stdx-chaos-test"));
            }
            assert!(crate::chaos!("stdx-chaos-test"));
        }
        assert!(!crate::chaos!("stdx-chaos-test"));
    }
}
