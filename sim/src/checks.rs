//! The checkers. Each takes observations and returns the first violation. Each has a test that
//! spoils good input and demands that the violation is found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stdx::Instant;

use crate::history::{Action, Ending, Event, History, Scope};

/// Result of a check; the error is the violation, in words.
pub type Verdict = Result<(), String>;

/// How a value became certain, when not by its acknowledgement.
const READ: &str = "read";

/// Known writes of one key.
#[derive(Default)]
struct Writes {
    /// Stamp to when it was sent, and whether it is a deletion.
    sent: BTreeMap<i64, (Instant, bool)>,
    /// Those that were refused and must not be seen.
    refused: BTreeSet<i64>,
    /// Acknowledged writes and read values.
    certain: Vec<Certain>,
}

/// A value that is certain.
#[derive(Clone, Copy)]
struct Certain {
    /// The request that made it so: when it was sent and answered.
    begin: Instant,
    end: Instant,
    stamp: i64,
    how: &'static str,
    scope: Scope,
}

impl Certain {
    fn of(event: &Event, stamp: i64, how: &'static str) -> Certain {
        Certain { begin: event.begin, end: event.end, stamp, how, scope: event.scope }
    }
}

/// Longest time that a write waits for a sync of the commit log, much more than its own limit.
const WAITS_FOR_SYNC_MAX: Duration = Duration::from_secs(10);

/// A replica shows a write before the write is on its disk, and may lose it afterwards: the write was not
/// acknowledged then, but some read may have seen it.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Reads from here on may have seen it.
    since: Instant,
    /// From here on it may be gone.
    gone: Instant,
    /// Reads that began until here may have seen it.
    until: Instant,
}

impl Loss {
    /// A power cut: values read before may not have been synced.
    pub fn power_cut(at: Instant) -> Self {
        Self { since: Instant::ZERO, gone: at, until: at }
    }

    /// A kill: writes that waited for a sync of the commit log were not written yet, as that sync
    /// writes them. Values read long before were synced.
    pub fn kill(at: Instant) -> Self {
        let since = Instant(at.0.saturating_sub(WAITS_FOR_SYNC_MAX.as_nanos() as u64));
        Self { since, gone: at, until: at }
    }

    /// The disk took no writes from `since` on, and the node started again at `until`.
    pub fn bad_disk(since: Instant, until: Instant) -> Self {
        Self { since, gone: since, until }
    }

    /// A read sees a state between its begin and its end: its answer may be in flight when the
    /// power fails.
    fn takes_back(&self, known: &Certain, event: &Event) -> bool {
        known.begin <= self.until && known.end >= self.since && self.gone <= event.end
    }
}

/// Checks registers under QUORUM: no value that was never written, no acknowledged value lost, no
/// deleted value that comes back, and no read older than an acknowledgement or a read that ended
/// before it began.
///
/// `losses` are the times in which a value that was read but not acknowledged may be lost.
pub fn registers(history: &History, losses: &[Loss]) -> Verdict {
    let mut keys: BTreeMap<i32, Writes> = BTreeMap::new();
    let mut reads: Vec<(i32, &Event, Option<i64>)> = Vec::new();
    for event in &history.events {
        let (key, stamp, is_deletion) = match event.action {
            Action::Write { key, stamp } => (key, stamp, false),
            Action::Delete { key, stamp } => (key, stamp, true),
            Action::Read { .. }
            | Action::Partition { .. }
            | Action::Table { .. }
            | Action::Batch { .. }
            | Action::Create { .. }
            | Action::Lwt { .. }
            | Action::Cells { .. }
            | Action::Count { .. }
            | Action::Alter { .. }
            | Action::Scratch { .. } => continue,
        };
        let writes = keys.entry(key).or_default();
        writes.sent.insert(stamp, (event.begin, is_deletion));
        match event.ending {
            Ending::Done => {
                writes.certain.push(Certain::of(event, stamp, "acknowledged"));
            }
            Ending::Refused => {
                writes.refused.insert(stamp);
            }
            Ending::Found(_) | Ending::Listed(_) | Ending::Unknown(_) | Ending::Wrong(_) => {}
        }
    }
    for event in &history.events {
        match (event.action, &event.ending) {
            (Action::Read { key }, Ending::Found(value)) => reads.push((key, event, *value)),
            (action, Ending::Listed(rows)) => {
                // A page sequence is one long read of each key that it covers.
                let written = keys.keys().chain(rows.keys()).copied();
                let covered: BTreeSet<i32> = written.filter(|key| action.reads(*key)).collect();
                if let Some(key) = rows.keys().find(|key| !covered.contains(key)) {
                    return Err(format!("{action:?} gave key {key}, which it does not cover"));
                }
                let values = covered.into_iter().map(|key| (key, event, rows.get(&key).copied()));
                reads.extend(values);
            }
            _ => {}
        }
    }
    // In the order of their ends, so that what a read saw binds the later ones.
    reads.sort_by_key(|(_, event, _)| event.end);
    for (key, event, value) in reads {
        let writes = keys.entry(key).or_default();
        let stamp = read(writes, event, value, losses).map_err(|problem| {
            format!("key {key}, read through node {} at {}: {problem}", event.node, at(event.begin))
        })?;
        if event.scope.do_reads_bind() {
            writes.certain.push(Certain::of(event, stamp, READ));
        }
    }
    Ok(())
}

/// Checks one read; gives the least stamp that explains it.
fn read(
    writes: &Writes,
    event: &Event,
    value: Option<i64>,
    losses: &[Loss],
) -> Result<i64, String> {
    let is_lost = |known: &Certain| {
        known.how == READ && losses.iter().any(|loss| loss.takes_back(known, event))
    };
    let before = writes.certain.iter().filter(|known| {
        known.end <= event.begin && !is_lost(known) && known.scope.binds(event.scope)
    });
    let newest = before.max_by_key(|known| known.stamp);
    let (since, least, how) =
        newest.map_or((Instant::ZERO, 0, "nothing"), |known| (known.end, known.stamp, known.how));
    let least_is_deletion = writes.sent.get(&least).is_some_and(|(_, deleted)| *deleted);
    let Some(value) = value else {
        // No row: never written, or a deletion, or a value that the filter hides; not older than
        // the certain value.
        let possible = |(stamp, (sent, deleted)): (&i64, &(Instant, bool))| {
            let is_hidden = *deleted || event.action.hides(*stamp);
            (*stamp >= least && is_hidden && *sent <= event.end && !writes.refused.contains(stamp))
                .then_some(*stamp)
        };
        return match writes.sent.iter().find_map(possible) {
            _ if least == 0 => Ok(0),
            Some(stamp) => Ok(stamp),
            None => Err(format!("no row, but value {least} was {how} until {}", at(since))),
        };
    };
    if event.action.hides(value) {
        return Err(format!("value {value} does not pass the filter"));
    }
    match writes.sent.get(&value) {
        None => return Err(format!("value {value} was never written")),
        Some((sent, _)) if *sent > event.end => {
            return Err(format!("value {value} was written only later, at {}", at(*sent)));
        }
        Some((_, true)) => return Err(format!("value {value} is that of a deletion")),
        Some(_) => {}
    }
    if writes.refused.contains(&value) {
        return Err(format!("value {value} was refused as unavailable and is there"));
    }
    if value < least {
        let until = at(since);
        return Err(match least_is_deletion {
            true => format!("value {value} came back: deletion {least} was {how} until {until}"),
            false => format!("value {value} is older than {least}, which was {how} until {until}"),
        });
    }
    Ok(value)
}

fn at(instant: Instant) -> String {
    format!("{}.{:06} s", instant.0 / 1_000_000_000, instant.0 / 1_000 % 1_000_000)
}

/// The rows of a table as one replica shows them: key columns to the other values, as bytes.
pub type Rows = BTreeMap<Vec<Option<Vec<u8>>>, Vec<Option<Vec<u8>>>>;

/// After healing and a read of everything at ALL: all replicas have the same rows, values and write
/// times. `replicas`: by node the tables by name.
pub fn converged(replicas: &[(String, BTreeMap<String, Rows>)]) -> Verdict {
    let Some((first, expected)) = replicas.first() else { return Ok(()) };
    for (node, tables) in replicas.iter().skip(1) {
        let names: BTreeSet<&String> = tables.keys().chain(expected.keys()).collect();
        for name in names {
            let none = Rows::new();
            let (mine, theirs) =
                (tables.get(name).unwrap_or(&none), expected.get(name).unwrap_or(&none));
            let keys: BTreeSet<_> = mine.keys().chain(theirs.keys()).collect();
            for key in keys {
                let (a, b) = (theirs.get(key), mine.get(key));
                if a != b {
                    return Err(format!(
                        "table {name}, key {key:?}: {first} has {a:?}, {node} has {b:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Checks batches: present ones were sent, no half batch is present, acknowledged ones are present,
/// refused ones are not. `found`: by batch, the number of its two partitions that have it.
pub fn batches(history: &History, found: &BTreeMap<i32, usize>) -> Verdict {
    let mut sent = BTreeMap::new();
    for event in &history.events {
        if let Action::Batch { batch } = event.action {
            sent.insert(batch, &event.ending);
        }
    }
    for (batch, parts) in found {
        match sent.get(batch) {
            None => return Err(format!("batch {batch} was never sent")),
            Some(Ending::Refused) => {
                return Err(format!("batch {batch} was refused as unavailable and is there"));
            }
            Some(_) if *parts != 2 => {
                return Err(format!("batch {batch}: {parts} of 2 partitions"));
            }
            Some(_) => {}
        }
    }
    let lost = |(batch, ending): &(&i32, &&Ending)| {
        matches!(ending, Ending::Done) && !found.contains_key(batch)
    };
    match sent.iter().find(lost) {
        Some((batch, _)) => Err(format!("batch {batch} was acknowledged and is gone")),
        None => Ok(()),
    }
}

/// Schema as one node shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaView {
    /// The node's name.
    pub node: String,
    /// `schema_version` of `system.local`.
    pub version: Vec<u8>,
    /// Tables of the keyspace by name, with their ids.
    pub tables: BTreeMap<String, Vec<u8>>,
}

/// Checks for one schema: all nodes have the same version and the same table ids, and every table
/// whose creation was acknowledged.
pub fn schema(history: &History, views: &[SchemaView]) -> Verdict {
    let Some(first) = views.first() else { return Ok(()) };
    for view in views {
        if view.version != first.version {
            return Err(format!("{} and {} have different schema versions", first.node, view.node));
        }
        for name in view.tables.keys().chain(first.tables.keys()) {
            if view.tables.get(name) != first.tables.get(name) {
                return Err(format!(
                    "table {name}: {} and {} have different ids of it, or one has none",
                    first.node, view.node
                ));
            }
        }
        for event in &history.events {
            if let (Action::Create { table }, Ending::Done) = (event.action, &event.ending) {
                let name = created_name(table);
                if !view.tables.contains_key(&name) {
                    return Err(format!("{name} was acknowledged and is not on {}", view.node));
                }
            }
        }
    }
    Ok(())
}

/// Report of a node about itself at a moment: its number, its epoch, the version of its schema.
pub type EpochView = (usize, u64, String);

/// Checks for one schema per epoch: all nodes at an epoch have the same version, at any time of the
/// run.
pub fn epochs(views: &[EpochView]) -> Verdict {
    let mut known: BTreeMap<u64, (usize, &str)> = BTreeMap::new();
    for (node, epoch, version) in views {
        let (first, of_first) = *known.entry(*epoch).or_insert((*node, version));
        if of_first != version {
            return Err(format!(
                "epoch {epoch}: node {first} has schema {of_first}, node {node} has {version}"
            ));
        }
    }
    Ok(())
}

/// The name of a table of [`Action::Create`].
pub fn created_name(table: u64) -> String {
    format!("made{table}")
}

/// The name of a table of [`Action::Scratch`].
pub fn scratch_name(table: u64) -> String {
    format!("scratch{table}")
}

/// A time in which a node may be late: it stood still, was dead, or its disk was slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// From 0.
    pub node: usize,
    /// First moment.
    pub from: Instant,
    /// Last moment.
    pub until: Instant,
}

/// Every request through a node that was well all the time is answered within the server's own limit
/// and `lateness`.
pub fn deadlines(history: &History, troubles: &[Trouble], lateness: Duration) -> Verdict {
    for event in &history.events {
        let limit = event.action.limit() + lateness;
        let excused = troubles.iter().any(|trouble| {
            trouble.node == event.node && trouble.from <= event.end && trouble.until >= event.begin
        });
        let took = event.end.since(event.begin);
        if !excused && took > limit {
            return Err(format!(
                "{:?} through node {} at {} took {took:?}, allowed are {limit:?}; it ended with \
                 {:?}",
                event.action,
                event.node,
                at(event.begin),
                event.ending
            ));
        }
    }
    Ok(())
}

/// No answer that should not exist.
pub fn answers(history: &History) -> Verdict {
    let wrong = history.events.iter().find(|event| matches!(event.ending, Ending::Wrong(_)));
    match wrong {
        Some(Event { ending: Ending::Wrong(answer), node, action, begin, .. }) => {
            Err(format!("{action:?} through node {node} at {}: {answer}", at(*begin)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
