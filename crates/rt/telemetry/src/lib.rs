//! Per-shard counters, gauges and histograms.
//!
//! Owns: the registry of one shard's metrics and their plain-data snapshot. Never: exports, locks,
//! allocates on the hot path, or crosses threads; a [`Snapshot`] is what crosses.
//!
//! Invariants: one (name, labels) pair is one cell, so registering it again returns the same cell;
//! one name has one kind and one help text; counters never go down.
//!
//! Reading order: [`Shard`], [`Counter`], [`Gauge`], [`Histogram`], [`EstimatedHistogram`],
//! [`Stage`], [`Snapshot`].

mod estimated;
mod histogram;
mod stage;

pub use estimated::{BOUNDS, ESTIMATED_BOUNDS, EstimatedHistogram, EstimatedSnapshot, add_buckets};
pub use histogram::{Histogram, HistogramSnapshot};
pub use stage::{
    STAGE_ACTIVE, STAGE_BLOCKED, STAGE_BLOCKED_TOTAL, STAGE_COMPLETED, STAGE_PENDING, Stage,
    StageTask,
};

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The metrics of one shard. Cheap to clone; all clones share the cells.
#[derive(Clone, Default)]
pub struct Shard {
    registry: Rc<RefCell<BTreeMap<Key, Cells>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: &'static str,
    labels: Vec<(&'static str, String)>,
}

struct Cells {
    help: &'static str,
    cell: AnyCell,
}

enum AnyCell {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
    Estimated(EstimatedHistogram),
}

impl Shard {
    /// An empty registry.
    pub fn new() -> Shard {
        Shard::default()
    }

    /// The counter `name` (`subsystem_noun_unit_total`) with these labels, made at first use.
    ///
    /// # Panics
    /// When the same name and labels are registered already as another kind: a bug in the caller.
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Counter {
        let mut registry = self.registry.borrow_mut();
        let entry = registry
            .entry(key(name, labels))
            .or_insert_with(|| Cells { help, cell: AnyCell::Counter(Counter::default()) });
        match &entry.cell {
            AnyCell::Counter(c) => c.clone(),
            _ => stdx::invariant::broken(format_args!("metric {name} is not a counter")),
        }
    }

    /// The gauge `name` with these labels, made at first use.
    ///
    /// # Panics
    /// As [`Shard::counter`].
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Gauge {
        let mut registry = self.registry.borrow_mut();
        let entry = registry
            .entry(key(name, labels))
            .or_insert_with(|| Cells { help, cell: AnyCell::Gauge(Gauge::default()) });
        match &entry.cell {
            AnyCell::Gauge(g) => g.clone(),
            _ => stdx::invariant::broken(format_args!("metric {name} is not a gauge")),
        }
    }

    /// The histogram `name` (unit last: `…_micros`, `…_bytes`) with these labels, made at first
    /// use.
    ///
    /// # Panics
    /// As [`Shard::counter`].
    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Histogram {
        let mut registry = self.registry.borrow_mut();
        let entry = registry
            .entry(key(name, labels))
            .or_insert_with(|| Cells { help, cell: AnyCell::Histogram(Histogram::new()) });
        match &entry.cell {
            AnyCell::Histogram(h) => h.clone(),
            _ => stdx::invariant::broken(format_args!("metric {name} is not a histogram")),
        }
    }

    /// The histogram of latencies `name` with Cassandra's bounds and these labels, made at first
    /// use.
    ///
    /// # Panics
    /// As [`Shard::counter`].
    pub fn latency(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
    ) -> EstimatedHistogram {
        let mut registry = self.registry.borrow_mut();
        let entry = registry.entry(key(name, labels)).or_insert_with(|| Cells {
            help,
            cell: AnyCell::Estimated(EstimatedHistogram::default()),
        });
        match &entry.cell {
            AnyCell::Estimated(h) => h.clone(),
            _ => stdx::invariant::broken(format_args!("metric {name} is not a latency")),
        }
    }

    /// Everything as plain data, ordered by name, then labels.
    pub fn snapshot(&self) -> Snapshot {
        let registry = self.registry.borrow();
        let metrics = registry
            .iter()
            .map(|(key, cells)| Metric {
                name: key.name,
                help: cells.help,
                labels: key.labels.clone(),
                value: match &cells.cell {
                    AnyCell::Counter(c) => Value::Counter(c.get()),
                    AnyCell::Gauge(g) => Value::Gauge(g.get()),
                    AnyCell::Histogram(h) => Value::Histogram(h.snapshot()),
                    AnyCell::Estimated(h) => Value::Latency(h.snapshot()),
                },
            })
            .collect();
        Snapshot { metrics }
    }
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let mut labels: Vec<_> = labels.iter().map(|(k, v)| (*k, (*v).to_string())).collect();
    labels.sort_unstable();
    Key { name, labels }
}

/// A number that only grows. Wraps at `u64::MAX`.
#[derive(Clone, Debug, Default)]
pub struct Counter(Rc<Cell<u64>>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    /// The value so far.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A number that goes up and down.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Rc<Cell<i64>>);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: i64) {
        self.0.set(value);
    }

    /// Adds `delta`, which may be negative.
    pub fn add(&self, delta: i64) {
        self.0.set(self.0.get().wrapping_add(delta));
    }

    /// The value now.
    pub fn get(&self) -> i64 {
        self.0.get()
    }
}

/// Value of a metric at the time of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Value of a [`Counter`].
    Counter(u64),
    /// Value of a [`Gauge`].
    Gauge(i64),
    /// Value of a [`Histogram`].
    Histogram(HistogramSnapshot),
    /// Value of an [`EstimatedHistogram`] of latencies: buckets in microseconds, sum in
    /// nanoseconds.
    Latency(EstimatedSnapshot),
}

/// One metric of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// `subsystem_noun_unit[_total]`.
    pub name: &'static str,
    /// One sentence for the reader of the exporter's page.
    pub help: &'static str,
    /// Sorted by label name.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

/// All metrics of one shard (or, after [`Snapshot::merge`], of several) as plain `Send` data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Ordered by name, then labels.
    pub metrics: Vec<Metric>,
}

impl Snapshot {
    /// Adds another shard's values: sums of counters, gauges and histogram cells.
    pub fn merge(&mut self, other: Snapshot) {
        for metric in other.metrics {
            let at = self
                .metrics
                .binary_search_by(|m| (m.name, &m.labels).cmp(&(metric.name, &metric.labels)));
            match at {
                Ok(i) => {
                    if let Some(mine) = self.metrics.get_mut(i) {
                        add(&mut mine.value, metric.value);
                    }
                }
                Err(i) => self.metrics.insert(i, metric),
            }
        }
    }

    /// The metric with this name and no labels, or the first with this name.
    pub fn find(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|m| m.name == name)
    }
}

fn add(mine: &mut Value, other: Value) {
    match (mine, other) {
        (Value::Counter(a), Value::Counter(b)) => *a = a.wrapping_add(b),
        (Value::Gauge(a), Value::Gauge(b)) => *a = a.wrapping_add(b),
        (Value::Histogram(a), Value::Histogram(b)) => a.merge(&b),
        (Value::Latency(a), Value::Latency(b)) => a.merge(&b),
        // One name has one kind in the whole program, so nothing is lost here.
        (Value::Counter(_) | Value::Gauge(_) | Value::Histogram(_) | Value::Latency(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_name_and_labels_are_one_cell() {
        let shard = Shard::new();
        shard.counter("a_total", "a", &[("x", "1"), ("b", "2")]).inc();
        shard.counter("a_total", "a", &[("b", "2"), ("x", "1")]).add(2);
        shard.counter("a_total", "a", &[("x", "2")]).inc();
        let values: Vec<_> = shard.snapshot().metrics.into_iter().map(|m| m.value).collect();
        assert_eq!(values, [Value::Counter(3), Value::Counter(1)]);
    }

    #[test]
    fn merge_adds_values_of_the_same_metric_and_keeps_order() {
        let a = Shard::new();
        a.counter("b_total", "b", &[]).add(1);
        a.gauge("d", "d", &[]).set(5);
        let b = Shard::new();
        b.counter("b_total", "b", &[]).add(2);
        b.counter("a_total", "a", &[]).add(7);
        b.gauge("d", "d", &[]).set(-2);
        b.histogram("h_micros", "h", &[]).record(10);
        let mut all = a.snapshot();
        all.merge(b.snapshot());
        let names: Vec<_> = all.metrics.iter().map(|m| m.name).collect();
        assert_eq!(names, ["a_total", "b_total", "d", "h_micros"]);
        assert_eq!(all.find("b_total").map(|m| m.value.clone()), Some(Value::Counter(3)));
        assert_eq!(all.find("d").map(|m| m.value.clone()), Some(Value::Gauge(3)));
    }
}
