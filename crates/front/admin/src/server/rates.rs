//! Rates of events: the averages over the last 1, 5 and 15 minutes that ScyllaDB's paths and
//! `compactionstats` report. They are computed from the counters of all shards, which are polled
//! every five seconds.
//!
//! Source: the exponentially weighted averages of the Java library Metrics, which Cassandra uses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use telemetry::{Snapshot, Value};
use tokio::time::{Instant, MissedTickBehavior};

use super::api::{Answer, Api};

/// Interval of polls.
const TICK: Duration = Duration::from_secs(5);
/// The averages, in minutes.
const MINUTES: [f64; 3] = [1.0, 5.0, 15.0];

/// Finished compactions, which no path has a name for.
const COMPACTIONS: &str = "compactions";
/// Followed counters: ScyllaDB's name, the counter, and the value of its label `code`, if it has
/// one.
const FOLLOWED: [(&str, &str, Option<&str>); 4] = [
    (COMPACTIONS, "compactions_finished_total", None),
    ("write/timeouts", "coordinator_write_timeouts_total", None),
    ("write/unavailables", "coordinator_write_unavailables_total", None),
    // Those of ranges of partitions among them: errors of clients are counted by their code only.
    ("read/timeouts", "cql_errors_total", Some("READ_TIMEOUT")),
];

/// How often something happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rate {
    /// Per second, of the last 1, 5 and 15 minutes.
    rates: [f64; 3],
    /// Per second, since the start.
    mean_rate: f64,
    /// Times since the start.
    count: u64,
}

/// One average.
#[derive(Clone, Debug, Default)]
struct Followed {
    count: u64,
    /// Per second; `None` before the first tick.
    rates: Option<[f64; 3]>,
}

impl Followed {
    /// `count` things happened until now, `seconds` after the last look.
    fn tick(&mut self, count: u64, seconds: f64) {
        let now = count.saturating_sub(self.count) as f64 / seconds.max(1e-3);
        self.count = count;
        let Some(rates) = &mut self.rates else {
            self.rates = Some([now; 3]);
            return;
        };
        for (rate, minutes) in rates.iter_mut().zip(MINUTES) {
            *rate += (1.0 - (-seconds / 60.0 / minutes).exp()) * (now - *rate);
        }
    }
}

/// All that is followed, by ScyllaDB's name.
#[derive(Clone)]
pub(super) struct Rates {
    began: Instant,
    all: Arc<Mutex<BTreeMap<&'static str, Followed>>>,
}

impl Rates {
    /// Nothing has happened yet.
    pub(super) fn new() -> Rates {
        Rates { began: Instant::now(), all: Arc::default() }
    }

    /// Returns the rate of an event; `None`: not followed. The count is that of the last poll.
    pub(super) fn of(&self, name: &str) -> Option<Rate> {
        self.of_at(name, Instant::now())
    }

    fn of_at(&self, name: &str, now: Instant) -> Option<Rate> {
        let is_followed = FOLLOWED.iter().any(|(known, _, _)| *known == name);
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let followed = all.get(name).cloned().unwrap_or_default();
        let mean_rate = followed.count as f64 / (now - self.began).as_secs_f64().max(1.0);
        let (rates, count) = (followed.rates.unwrap_or_default(), followed.count);
        is_followed.then_some(Rate { rates, mean_rate, count })
    }

    /// Finished compactions per second: of the last 15 minutes, and since the start.
    pub(super) fn of_compactions(&self) -> (f64, f64) {
        self.of_compactions_at(Instant::now())
    }

    fn of_compactions_at(&self, now: Instant) -> (f64, f64) {
        self.of_at(COMPACTIONS, now).map_or((0.0, 0.0), |rate| {
            let [_, _, fifteen] = rate.rates;
            (fifteen, rate.mean_rate)
        })
    }

    /// Polls every five seconds, forever.
    pub(super) async fn follow(&self, api: &Api) {
        let mut ticks = tokio::time::interval_at(self.began + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = self.began;
        loop {
            let now = ticks.tick().await;
            // A shard that is busy or stops: the next look is over a longer time.
            if let Ok(metrics) = api.metrics().await {
                self.look(&metrics, now.duration_since(last));
                last = now;
            }
        }
    }

    fn look(&self, metrics: &Snapshot, since: Duration) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, counter, code) in FOLLOWED {
            let count = counted(metrics, counter, code);
            all.entry(name).or_default().tick(count.unwrap_or(0), since.as_secs_f64());
        }
    }
}

/// A counter, of that code if it has codes; `None`: there is none.
pub(super) fn counted(metrics: &Snapshot, name: &str, code: Option<&str>) -> Option<u64> {
    let all = metrics.metrics.iter().filter(|m| m.name == name);
    let is_wanted = |m: &&telemetry::Metric| {
        code.is_none_or(|code| m.labels.iter().any(|(k, v)| *k == "code" && *v == code))
    };
    all.filter(is_wanted).fold(None, |sum, metric| match metric.value {
        Value::Counter(n) => Some(sum.unwrap_or(0) + n),
        _ => sum,
    })
}

/// The numbers without averages: as they are now.
pub(super) async fn count(api: &Api, name: &str) -> Answer<Option<u64>> {
    let Some((_, counter, code)) = FOLLOWED.iter().find(|(known, _, _)| *known == name) else {
        return Ok(None);
    };
    Ok(counted(&api.metrics().await?, counter, *code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_follows_what_happens_the_slower_the_longer_it_is() {
        let mut followed = Followed::default();
        followed.tick(50, 5.0);
        assert_eq!(followed.rates, Some([10.0; 3]));
        // A minute of silence: 1/e of the first average is left.
        for _ in 0..12 {
            followed.tick(50, 5.0);
        }
        let [one, five, fifteen] = followed.rates.unwrap();
        let expected = |minutes: f64| 10.0 * (-1.0 / minutes).exp();
        for (rate, minutes) in [(one, 1.0), (five, 5.0), (fifteen, 15.0)] {
            assert!((rate - expected(minutes)).abs() < 1e-9, "{minutes}: {rate}");
        }
        // A look that failed makes the next one longer, nothing else.
        let mut late = Followed::default();
        late.tick(50, 5.0);
        late.tick(50, 60.0);
        assert!((late.rates.unwrap()[0] - one).abs() < 1e-9);
    }

    #[test]
    fn compactions_of_all_shards_have_the_rates_of_a_meter() {
        let shards = [telemetry::Shard::new(), telemetry::Shard::new()];
        let counters = shards.each_ref().map(|s| s.counter("compactions_finished_total", "x", &[]));
        let rates = Rates::new();
        let look = || {
            let mut all = Snapshot::default();
            shards.iter().for_each(|shard| all.merge(shard.snapshot()));
            rates.look(&all, TICK);
        };
        let after = |seconds| rates.of_compactions_at(rates.began + Duration::from_secs(seconds));
        assert_eq!(after(5), (0.0, 0.0));
        counters[0].add(2);
        counters[1].add(1);
        look();
        assert_eq!(after(5), (0.6, 0.6));
        // Values of Cassandra's meters at these times; numbers of the library's own test.
        for (minutes, expected) in [(1, 0.561_304_19), (2, 0.525_103_99)] {
            (0..12).for_each(|_| look());
            let seconds = 5 + minutes * 60;
            let (fifteen, mean) = after(seconds);
            assert!((fifteen - expected).abs() < 1e-7, "{minutes}: {fifteen}");
            assert!((mean - 3.0 / seconds as f64).abs() < 1e-9, "{minutes}: {mean}");
        }
    }

    #[test]
    fn counters_are_told_apart_by_code_and_added_over_shards() {
        let shards = [telemetry::Shard::new(), telemetry::Shard::new()];
        let mut all = Snapshot::default();
        for shard in &shards {
            shard.counter("cql_errors_total", "x", &[("code", "READ_TIMEOUT")]).add(4);
            shard.counter("cql_errors_total", "x", &[("code", "SYNTAX_ERROR")]).add(7);
            shard.counter("coordinator_write_timeouts_total", "x", &[]).add(3);
            all.merge(shard.snapshot());
        }
        let rates = Rates::new();
        rates.look(&all, Duration::from_secs(2));
        let of = |name: &str| rates.of(name).map(|rate| (rate.count, rate.rates[0]));
        assert_eq!(of("read/timeouts"), Some((8, 4.0)));
        assert_eq!(of("write/timeouts"), Some((6, 3.0)));
        assert_eq!(of("write/unavailables"), Some((0, 0.0)));
        assert_eq!(of("range/timeouts"), None);
    }
}
