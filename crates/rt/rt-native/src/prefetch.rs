//! [`prefetch`]: asks for memory before it is needed.

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;
/// Lines that are asked for at most.
const LINES_MAX: usize = 8;

/// Asks the processor to load the beginning of a value, at most 512 bytes, and does not wait for it. Whoever
/// goes through values that lie all over the memory asks for one some steps before it comes to it. Changes
/// nothing; does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    let lines = size_of_val(value).div_ceil(LINE).min(LINES_MAX);
    for line in 0..lines {
        prefetch_line(std::ptr::from_ref(value).cast::<i8>().wrapping_add(line * LINE));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(at: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is a hint: it reads nothing that a program can see and faults at no address.
    #[expect(unsafe_code, reason = "an instruction; listed in UNSAFE.md")]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at);
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line(_: *const i8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_size_may_be_asked_for_and_stay_as_they_are() {
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for end in (0..600).chain([4096, 5000]) {
            prefetch(&bytes[..end]);
            prefetch(&bytes[5000 - end..]);
        }
        prefetch(&());
        prefetch(&[7_u64; 100]);
        assert!(bytes.iter().zip((0..=255).cycle()).all(|(a, b): (&u8, u8)| *a == b));
    }
}
