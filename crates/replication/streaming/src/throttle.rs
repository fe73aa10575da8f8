//! Pacing of what is sent.

use std::time::Duration;

use stdx::Instant;

/// Computes when bytes may be sent, at a rate that may change.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Bytes per second; 0 = no limit.
    rate: u64,
    /// When everything let through so far has gone at that rate.
    free_at: Instant,
}

impl Throttle {
    pub(crate) fn new(rate: u64) -> Throttle {
        Throttle { rate, free_at: Instant::ZERO }
    }

    pub(crate) fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Bytes that a page may have so that it goes within about a second.
    pub(crate) fn page_bytes(&self, wanted: usize, least: usize) -> usize {
        match usize::try_from(self.rate) {
            Ok(0) | Err(_) => wanted,
            Ok(rate) => wanted.min(rate.max(least)),
        }
    }

    /// Returns when bytes that are ready now may be sent. They count from then on.
    pub(crate) fn due(&mut self, now: Instant, bytes: usize) -> Instant {
        let start = self.free_at.max(now);
        let micros = (bytes as u64).saturating_mul(1_000_000).checked_div(self.rate);
        self.free_at = start + Duration::from_micros(micros.unwrap_or(0));
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_at_the_rate_and_an_idle_time_is_not_saved_up() {
        let second = |n: u64| Instant::ZERO + Duration::from_secs(n);
        let mut throttle = Throttle::new(1000);
        assert_eq!(throttle.due(second(5), 2000), second(5));
        assert_eq!(throttle.due(second(5), 1000), second(7));
        assert_eq!(throttle.due(second(20), 1000), second(20));
        assert_eq!((throttle.page_bytes(1 << 20, 64), throttle.page_bytes(10, 64)), (1000, 10));
        throttle.set_rate(10);
        assert_eq!(throttle.page_bytes(1 << 20, 64), 64);
        throttle.set_rate(0);
        assert_eq!(throttle.due(second(30), usize::MAX), second(30));
        assert_eq!(throttle.due(second(30), 1), second(30));
        assert_eq!(throttle.page_bytes(1 << 20, 64), 1 << 20);
    }
}
