//! [`Counting`]: an allocator that knows how many bytes its thread holds, for checks that nothing
//! leaks. The server does not use it.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    // Without a destructor, so that nothing is allocated for it.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Allocator that forwards to another one and counts, by thread, the bytes allocated and freed.
pub struct Counting<A>(pub A);

/// Bytes that this thread has allocated and not given back; negative when it frees what others have
/// allocated. Zero for ever when [`Counting`] is not the program's allocator.
pub fn held_bytes() -> i64 {
    HELD.try_with(Cell::get).unwrap_or(0)
}

fn count(bytes: usize, sign: i64) {
    // A thread that ends stops counting.
    let _ = HELD.try_with(|held| held.set(held.get().wrapping_add(sign * bytes as i64)));
}

// SAFETY: each call goes to the inner allocator with the caller's own arguments, and its answer goes
// back as it is; counting neither allocates nor unwinds.
#[expect(unsafe_code, reason = "an allocator's interface; listed in UNSAFE.md")]
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those that the inner allocator asks for.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above; the pointer came from the inner allocator.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, 1);
        count(layout.size(), -1);
        // SAFETY: as above; the pointer came from the inner allocator.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "an allocator's interface")]
    fn what_is_allocated_grown_and_given_back_counts() {
        let counting = Counting(std::alloc::System);
        let before = held_bytes();
        let (small, large) = (Layout::new::<[u8; 40]>(), Layout::new::<[u8; 100]>());
        // SAFETY: layouts are not empty, and each pointer is used with the layout it has.
        let pointer = unsafe { counting.alloc_zeroed(small) };
        assert_eq!(held_bytes() - before, 40);
        // SAFETY: as above.
        let pointer = unsafe { counting.realloc(pointer, small, 100) };
        assert_eq!(held_bytes() - before, 100);
        // SAFETY: as above.
        unsafe { counting.dealloc(pointer, large) };
        assert_eq!(held_bytes() - before, 0);
        // SAFETY: as above.
        let pointer = unsafe { counting.alloc(large) };
        assert_eq!(held_bytes() - before, 100);
        // SAFETY: as above.
        unsafe { counting.dealloc(pointer, large) };
        assert_eq!(held_bytes(), before);
    }
}
