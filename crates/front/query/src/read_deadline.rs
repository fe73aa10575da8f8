//! Deadlines of reads that scan more than they return: filtered scans, aggregates.
//!
//! Their time depends on the table, not on the answer. A page of a filtered scan ends, with few rows or none, when
//! half of the timeout is over: the client asks for the next one, and neither side times out. An aggregate has one
//! answer and continues as long as it makes progress: it fails when it scanned nothing for the whole timeout.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use rt::{Elapsed, Rt};
use stdx::Instant;

/// Deadline of one read.
pub(crate) struct ReadDeadline {
    rt: Rt,
    timeout: Duration,
    /// A page that has taken so long ends.
    enough: Instant,
    /// Number of scan steps so far.
    looks: Cell<u64>,
}

impl ReadDeadline {
    /// Starts the clock of a read.
    pub(crate) fn new(rt: &Rt, timeout: Duration) -> ReadDeadline {
        let enough = rt.now() + timeout / 2;
        ReadDeadline { rt: rt.clone(), timeout, enough, looks: Cell::new(0) }
    }

    /// Longest time without a scan step.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Counts a scan step; returns true if the page has taken long enough.
    pub(crate) fn look(&self) -> bool {
        self.looks.set(self.looks.get().wrapping_add(1));
        self.rt.now() >= self.enough
    }

    /// Waits for a read as long as it makes progress.
    ///
    /// # Errors
    /// `Elapsed`: nothing was scanned for the timeout.
    pub(crate) async fn wait<T>(
        &self,
        mut reading: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Elapsed> {
        loop {
            let before = self.looks.get();
            let result = self.rt.timeout(self.rt.now() + self.timeout, reading.as_mut()).await;
            if result.is_ok() || self.looks.get() == before {
                return result;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    /// Takes a scan step every `every` seconds, `times` times; returns the duration, or the
    /// timeout.
    async fn read(rt: &Rt, every: u64, times: u32) -> Result<Duration, Elapsed> {
        let patience = ReadDeadline::new(rt, Duration::from_secs(10));
        let began = rt.now();
        let reading = pin!(async {
            for _ in 0..times {
                rt.sleep(Duration::from_secs(every)).await;
                let is_enough = patience.look();
                assert_eq!(is_enough, rt.now().since(began) >= Duration::from_secs(5));
            }
        });
        patience.wait(reading).await.map(|()| rt.now().since(began))
    }

    #[test]
    fn a_read_that_gets_on_is_waited_for_and_one_that_does_not_is_given_up() {
        crate::tests::run(|rt| async move {
            assert_eq!(read(&rt, 2, 30).await.ok(), Some(Duration::from_secs(60)));
            assert_eq!(read(&rt, 9, 3).await.ok(), Some(Duration::from_secs(27)));
            let began = rt.now();
            assert!(read(&rt, 21, 2).await.is_err());
            assert_eq!(rt.now().since(began), Duration::from_secs(10));
        });
    }
}
