//! Limits the mutations that a coordinator has in flight to one replica.
//!
//! A replica that answers slowly is not sent more: writes for it wait at the coordinator, and with
//! them the clients that sent them. The window grows while answers are about as quick as the quickest,
//! and shrinks when they queue. The queue on the way to the replica, with reads after it, stays short.
//! A replica that answers nothing for [`WindowSettings::stall`] is stalled: no write waits for it any
//! more, it gets a probe now and then, and the rest goes to hints.
//!
//! INV-window-1: a full window is reported as stalled at most [`WindowSettings::stall`] after the
//! replica's last answer, so that no write waits for ever. INV-window-2: a window never shrinks below
//! [`WindowSettings::count_min`], and with nothing in flight a replica that is not stalled is sent to.

use std::time::Duration;

use stdx::Instant;

/// Bounds and times of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSettings {
    /// Mutations in flight that are always allowed.
    pub count_min: u32,
    /// Most mutations in flight. Below the limits of the messaging and the replica.
    pub count_max: u32,
    /// Bytes of them; one mutation may exceed it.
    pub bytes_max: usize,
    /// How much longer than the quickest answer one may take before the window stops growing; at
    /// twice as much it shrinks.
    pub queue_time: Duration,
    /// Time without an answer after which a replica with a full window is stalled.
    pub stall: Duration,
    /// Time between two mutations that are sent to a stalled replica.
    pub probe: Duration,
}

impl Default for WindowSettings {
    fn default() -> WindowSettings {
        WindowSettings {
            count_min: 16,
            count_max: 4096,
            bytes_max: 8 << 20,
            queue_time: Duration::from_millis(20),
            stall: Duration::from_millis(500),
            probe: Duration::from_millis(100),
        }
    }
}

/// Answer to the question if one more mutation may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may be.
    Free,
    /// Not before an answer comes, or this instant.
    Full(Instant),
    /// The replica makes no progress: it goes to a hint where the level allows it.
    Stalled,
}

/// Initial window, in mutations. It doubles with each round trip while answers are quick; a larger
/// one would fill a thin link, which the windows of all shards share, for as long as
/// [`WindowSettings::stall`].
const COUNT_FIRST: u32 = 32;
/// The quickest answer of the last one to two periods counts.
const QUICKEST_PERIOD: Duration = Duration::from_secs(30);

/// Mutations in flight to one replica.
#[derive(Clone, Debug)]
pub struct ReplicaWindow {
    settings: WindowSettings,
    limit: u32,
    count: u32,
    bytes: usize,
    /// The last answer, or the instant at which the first mutation was sent while nothing was in
    /// flight.
    progress: Instant,
    stalled: bool,
    next_probe: Instant,
    last_cut: Instant,
    /// Quickest answers of the running period and the one before.
    quickest: [Option<Duration>; 2],
    period_began: Instant,
}

impl ReplicaWindow {
    /// Starts with nothing in flight.
    pub fn new(settings: WindowSettings) -> ReplicaWindow {
        ReplicaWindow {
            settings,
            limit: COUNT_FIRST
                .clamp(settings.count_min, settings.count_max.max(settings.count_min)),
            count: 0,
            bytes: 0,
            progress: Instant::ZERO,
            stalled: false,
            next_probe: Instant::ZERO,
            last_cut: Instant::ZERO,
            quickest: [None; 2],
            period_began: Instant::ZERO,
        }
    }

    /// Mutations in flight.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Mutations that may be in flight now.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns true if the replica made no progress at the last check.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// How many more may be sent, not counting bytes; none to a stalled replica.
    pub fn free(&self) -> u32 {
        if self.stalled || self.bytes >= self.settings.bytes_max {
            return 0;
        }
        self.limit.saturating_sub(self.count)
    }

    /// Checks if one more mutation may be sent.
    pub fn room(&mut self, now: Instant) -> Room {
        if self.stalled {
            return if now >= self.next_probe { Room::Free } else { Room::Stalled };
        }
        if self.count == 0 || self.free() > 0 {
            return Room::Free;
        }
        let until = self.progress + self.settings.stall;
        if now < until {
            return Room::Full(until);
        }
        self.stalled = true;
        self.next_probe = now + self.settings.probe;
        Room::Stalled
    }

    /// One was sent.
    pub fn sent(&mut self, now: Instant, bytes: usize) {
        if self.count == 0 {
            self.progress = now;
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.stalled {
            self.next_probe = now + self.settings.probe;
        }
    }

    /// The replica answered one that was sent `elapsed` ago.
    pub fn answered(&mut self, now: Instant, elapsed: Duration, bytes: usize) {
        self.leave(bytes);
        self.progressed(now);
        self.note_quickest(now, elapsed);
        let quickest = self.quickest.iter().flatten().min().copied().unwrap_or(elapsed);
        let WindowSettings { queue_time, count_max, .. } = self.settings;
        if elapsed <= quickest + queue_time {
            // Grows only when it is used.
            if self.count.saturating_mul(2) >= self.limit {
                self.limit = self.limit.saturating_add(1).min(count_max);
            }
        } else if elapsed > quickest + 2 * queue_time && now.since(self.last_cut) >= elapsed {
            // Cut once for the mutations that were in flight together.
            self.cut(now, self.limit / 4);
        }
    }

    /// The replica refused one, because it has too much to do.
    pub fn refused(&mut self, now: Instant, bytes: usize) {
        self.leave(bytes);
        self.progressed(now);
        if now.since(self.last_cut) >= self.settings.queue_time {
            self.cut(now, self.limit / 2);
        }
    }

    /// One ended without an answer: its deadline passed, or the connection was lost.
    pub fn lost(&mut self, bytes: usize) {
        self.leave(bytes);
    }

    fn leave(&mut self, bytes: usize) {
        stdx::debug_invariant!(
            self.count > 0 && self.bytes >= bytes,
            "INV-backpressure-1: {bytes} bytes end that were never sent, {} in {} mutations are under way",
            self.bytes,
            self.count
        );
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn progressed(&mut self, now: Instant) {
        self.progress = now;
        self.stalled = false;
    }

    fn cut(&mut self, now: Instant, by: u32) {
        self.limit = self.limit.saturating_sub(by).max(self.settings.count_min);
        self.last_cut = now;
    }

    fn note_quickest(&mut self, now: Instant, elapsed: Duration) {
        if now.since(self.period_began) >= QUICKEST_PERIOD {
            self.quickest = [None, self.quickest[0]];
            self.period_began = now;
            // With a queue that is never empty the quickest answer would become one that waited.
            // The window restarts from its smallest size, and grows quickly where that is right.
            self.cut(now, u32::MAX);
        }
        let known = self.quickest[0].unwrap_or(elapsed);
        self.quickest[0] = Some(known.min(elapsed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn at(millis: u64) -> Instant {
        Instant(millis * MILLI)
    }

    fn settings() -> WindowSettings {
        WindowSettings { count_min: 4, count_max: 32, bytes_max: 1000, ..WindowSettings::default() }
    }

    /// Sends until there is no room.
    fn fill(window: &mut ReplicaWindow, now: Instant) -> u32 {
        while window.room(now) == Room::Free && window.count() < 10_000 {
            window.sent(now, 1);
        }
        window.count()
    }

    #[test]
    fn a_window_is_bounded_by_count_and_by_bytes_of_which_one_may_exceed_it() {
        let mut window = ReplicaWindow::new(settings());
        assert_eq!(fill(&mut window, at(1)), 32);
        let mut window = ReplicaWindow::new(settings());
        assert_eq!(window.room(at(1)), Room::Free);
        window.sent(at(1), 5000);
        assert_eq!(window.room(at(1)), Room::Full(at(501)));
        window.answered(at(2), Duration::from_millis(1), 5000);
        window.sent(at(2), 999);
        assert_eq!(window.room(at(2)), Room::Free);
        window.sent(at(2), 1);
        assert_eq!(window.room(at(2)), Room::Full(at(502)));
    }

    #[test]
    fn nobody_waits_for_a_replica_without_progress_and_an_answer_ends_that() {
        let mut window = ReplicaWindow::new(settings());
        fill(&mut window, at(10));
        assert_eq!(window.room(at(509)), Room::Full(at(510)));
        window.answered(at(509), Duration::from_millis(499), 1);
        window.sent(at(509), 1);
        assert_eq!(window.room(at(1008)), Room::Full(at(1009)), "one answer is progress");
        // A mutation that ends without an answer does not count as one.
        window.lost(1);
        window.sent(at(1008), 1);
        assert_eq!(window.room(at(1009)), Room::Stalled);
        assert_eq!((window.room(at(1108)), window.free()), (Room::Stalled, 0));
        assert_eq!(window.room(at(1109)), Room::Free, "a probe");
        window.sent(at(1109), 1);
        assert_eq!(window.room(at(1110)), Room::Stalled, "one");
        // Though all of it ended by time.
        while window.count() > 0 {
            window.lost(1);
        }
        assert_eq!(window.room(at(1110)), Room::Stalled);
        window.sent(at(1209), 1);
        window.answered(at(1210), Duration::from_millis(1), 1);
        assert_eq!((window.room(at(1210)), window.is_stalled()), (Room::Free, false));
    }

    /// INV-window-1 and INV-window-2, over random use.
    #[test]
    fn a_window_lets_nobody_wait_for_ever_and_keeps_its_minimum() {
        for seed in 1..200_u64 {
            let mut state = seed;
            let mut below = move |n: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % n
            };
            let settings = settings();
            let mut window = ReplicaWindow::new(settings);
            let (mut now, mut last_answer) = (at(0), at(0));
            for _ in 0..500 {
                now = now + Duration::from_millis(below(300));
                let elapsed = Duration::from_millis(below(500));
                match (below(4), window.count()) {
                    (0, 1..) => {
                        window.answered(now, elapsed, 1);
                        last_answer = now;
                    }
                    (1, 1..) => {
                        window.refused(now, 1);
                        last_answer = now;
                    }
                    (2, 1..) => window.lost(1),
                    _ => {
                        let was_idle = window.count() == 0;
                        let (room, is_stalled) = (window.room(now), window.is_stalled());
                        match room {
                            Room::Free => {
                                if was_idle {
                                    last_answer = last_answer.max(now);
                                }
                                window.sent(now, 1);
                            }
                            Room::Full(until) => {
                                let latest = last_answer + settings.stall;
                                assert!(now < until && until <= latest, "INV-window-1");
                            }
                            Room::Stalled => assert!(is_stalled),
                        }
                        assert!(!was_idle || is_stalled || room == Room::Free, "INV-window-2");
                    }
                }
                assert!(window.limit() >= settings.count_min, "INV-window-2");
            }
        }
    }

    #[test]
    fn a_window_grows_while_answers_are_quick_and_shrinks_when_they_queue() {
        let mut window = ReplicaWindow::new(WindowSettings { count_max: 4096, ..settings() });
        let first = window.limit();
        let mut now = 1;
        for _ in 0..first {
            fill(&mut window, at(now));
            now += 1;
            window.answered(at(now), Duration::from_millis(2), 1);
        }
        let grown = window.limit();
        assert!(grown > first, "{grown}");
        // So much as is not used does not grow.
        while window.count() > 0 {
            window.answered(at(now), Duration::from_millis(2), 1);
        }
        let settled = window.limit();
        window.sent(at(now), 1);
        window.answered(at(now), Duration::from_millis(2), 1);
        assert_eq!(window.limit(), settled);
        // Longer by less than twice the time: neither.
        window.sent(at(now), 1);
        window.answered(at(now), Duration::from_millis(40), 1);
        assert_eq!(window.limit(), settled);
        window.sent(at(now), 1);
        window.answered(at(now + 200), Duration::from_millis(43), 1);
        assert_eq!(window.limit(), settled - settled / 4);
        window.sent(at(now + 200), 1);
        window.answered(at(now + 201), Duration::from_millis(44), 1);
        assert_eq!(window.limit(), settled - settled / 4, "once for what was under way together");
        for n in 0..100 {
            window.sent(at(now + 1000 + 20 * n), 1);
            window.refused(at(now + 1000 + 20 * n), 1);
        }
        assert_eq!(window.limit(), 4);
    }

    #[test]
    fn what_was_quick_long_ago_is_forgotten() {
        let mut window = ReplicaWindow::new(settings());
        window.sent(at(1), 1);
        window.answered(at(2), Duration::from_millis(1), 1);
        // The link became slower: after two periods its latency counts as the quickest.
        let slow = Duration::from_millis(300);
        for n in 0..200 {
            window.sent(at(1000 * n), 1);
            window.answered(at(1000 * n + 300), slow, 1);
        }
        for _ in 0..8 {
            window.sent(at(200_000), 1);
        }
        let limit = window.limit();
        window.answered(at(200_300), slow, 1);
        assert_eq!(window.limit(), limit + 1);
    }

    /// A replica that applies this many mutations each millisecond, and writers that send all they
    /// may, for so long that the quickest answer is measured repeatedly.
    #[test]
    fn what_waits_on_the_way_is_short_and_the_replica_is_kept_busy() {
        for (rate, most) in [(1_usize, 100), (5, 400), (50, 4096)] {
            let settings = WindowSettings { bytes_max: 1 << 30, ..WindowSettings::default() };
            let mut window = ReplicaWindow::new(settings);
            let mut queue = std::collections::VecDeque::new();
            let (mut idle, mut longest) = (0, 0);
            for now in 1..100_000_u64 {
                while window.room(at(now)) == Room::Free {
                    window.sent(at(now), 1);
                    queue.push_back(now);
                }
                if queue.len() < rate {
                    idle += 1;
                }
                for sent in queue.drain(..rate.min(queue.len())) {
                    let took = Duration::from_millis(now - sent + 1);
                    window.answered(at(now), took, 1);
                }
                if now > 2000 {
                    longest = longest.max(queue.len());
                }
            }
            assert!(longest <= most, "rate {rate}: {longest} wait");
            // Now and then, where the quickest answer is looked for.
            assert!(idle <= 50, "rate {rate}: {idle}");
        }
    }
}
