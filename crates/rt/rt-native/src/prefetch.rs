//! Prefetch hints to the processor; they affect timing only.

/// Most lines that [`prefetch`] asks for.
const LINES_MAX: usize = 8;
/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// Asks the processor to load these bytes, as far as the first eight lines, into its nearest cache, and does not wait
/// for them. Does nothing on processors that this is not known of.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE).take(LINES_MAX) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            #[expect(
                unsafe_code,
                reason = "an instruction without a safe wrapper; listed in UNSAFE.md"
            )]
            // SAFETY: the instruction is part of every x86-64, reads nothing that a program can see, and faults for no
            // address; this one is of a slice besides.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}
