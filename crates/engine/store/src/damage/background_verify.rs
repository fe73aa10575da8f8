//! Automatic verification of files: files suspected to be corrupt at once, and all others in turn,
//! slowly. So bit rot in data that no client reads is found while other replicas have it.
//!
//! The times of verification are kept per table and shard in `helenus-verified.<shard>`; losing them only
//! has files verified again.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use rt::Group;
use sstable::Component;
use sstable::offline::{verify, verify_checksums_with};
use stdx::{Generation, TableId};

use crate::damage::Verifier;
use crate::env::failure::StoreFailure;
use crate::error::StoreError;
use crate::files::marks;
use crate::files::slots::CompactionProgress;
use crate::tables::damage::VerifiedTimes;
use crate::tables::table::TableState;
use crate::tables::table_file::{TableFile, map_error};

/// Interval of the checks for due files.
const ROUND: Duration = Duration::from_secs(60);
/// Interval of the checks for a stop of the store.
const LOOK: Duration = Duration::from_millis(200);
/// A file that was never verified is due when it has been open for so long: others are gone by then.
const COLD: Duration = Duration::from_secs(3_600);
/// Most bytes of the times of a table.
const TIMES_BYTES_MAX: usize = 16 << 20;

pub(crate) fn encode(times: &VerifiedTimes) -> Vec<u8> {
    let mut text = String::new();
    for (generation, at) in times {
        text.push_str(&format!("{} {at}\n", generation.0));
    }
    marks::VERIFIED.encode(text.as_bytes())
}

/// `None`: these are not the lines of such a file.
pub(crate) fn of_lines(body: &str) -> Option<VerifiedTimes> {
    let lines = body.lines();
    let time = |line: &str| {
        let (generation, at) = line.split_once(' ')?;
        Some((Generation(generation.parse().ok()?), at.parse().ok()?))
    };
    lines.map(time).collect()
}

/// Why a verification ended without a result.
enum End {
    Damaged(StoreError),
    /// Unknown: the node stops, an operator stopped the verification, or the file is gone.
    Open,
}

impl Verifier {
    pub(crate) fn start_watch(self: &Rc<Self>) {
        let store = self.clone();
        let watch = async move {
            while !store.env.stopping.get() {
                // Registered before the work: a stop that happens during the work must be noticed
                // after it.
                let suspected = store.env.suspects.changed.notified();
                store.look_at_suspects().await;
                store.release_all().await;
                store.salvage_all().await;
                let deadline = store.env.rt.now() + ROUND;
                // Elapsed: retry failed work.
                let _ = store.env.rt.timeout(deadline, suspected).await;
            }
        };
        // A closed gate: the store is stopping already.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Admin, "store-watch", watch);
        if self.env.options.verification_bytes_per_second == 0 {
            return;
        }
        let store = self.clone();
        let verify = async move {
            while !store.env.stopping.get() {
                if !store.verify_next().await {
                    store.env.pause(ROUND).await;
                }
            }
        };
        let _ = self.env.gate.spawn(&self.env.rt, Group::Admin, "store-verify", verify);
    }

    async fn look_at_suspects(&self) {
        let suspects = self.env.suspects.take();
        for path in suspects {
            let Some((table, file)) = self.file_of_path(&path) else { continue };
            let read = match self.as_on_disk(&table, &file).await {
                Ok(reader) => match self.unless_stopped(verify(&reader)).await {
                    Some(result) => result.map(|_| ()).map_err(map_error),
                    None => return,
                },
                Err(error) => Err(error),
            };
            if let Err(error @ StoreError::Corrupt { .. }) = read {
                self.note_damaged(&table, &file, &error).await;
            }
        }
    }

    /// `None`: the store stops before it ends.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            if self.env.stopping.get() {
                return None;
            }
            let look = self.env.rt.now() + LOOK;
            if let Ok(done) = self.env.rt.timeout(look, work.as_mut()).await {
                return Some(done);
            }
        }
    }

    /// The file that has a component of that path.
    fn file_of_path(&self, path: &str) -> Option<(Rc<TableState>, Rc<TableFile>)> {
        self.tables.all_tables().into_iter().find_map(|table| {
            let view = table.view();
            let has = |file: &&Rc<TableFile>| {
                let data = file.reader.meta().file(Component::Data).to_string();
                data.strip_suffix("Data.db").is_some_and(|stem| path.starts_with(stem))
            };
            let file = view.files.iter().find(has).cloned()?;
            Some((table.clone(), file))
        })
    }

    pub(crate) async fn note_damaged(
        &self,
        table: &TableState,
        file: &TableFile,
        error: &StoreError,
    ) {
        if let Err(error) = self.files.quarantine(table, file, error).await {
            // The quarantine lasts for this run; the failure policy must be informed why no longer.
            self.files.note_write_result::<()>(&Err(error));
        }
    }

    /// Verifies the file that is due longest; false when none is.
    async fn verify_next(&self) -> bool {
        let options = &self.env.options;
        let (rate, interval) =
            (options.verification_bytes_per_second, options.verification_interval);
        let now = self.env.rt.wall().seconds().0;
        let interval = i64::try_from(interval.as_secs()).unwrap_or(i64::MAX);
        let mut next: Option<(i64, Rc<TableState>, Rc<TableFile>)> = None;
        for table in self.tables.all_tables() {
            self.read_times(&table).await;
            let times = table.verified.borrow();
            for file in &table.view().files {
                if table.is_damaged(file.generation) {
                    continue;
                }
                let cold = i64::try_from(COLD.as_secs()).unwrap_or(0);
                let due = match times.as_ref().and_then(|times| times.get(&file.generation)) {
                    Some(at) => at.saturating_add(interval),
                    None => file.created_at.seconds().0.saturating_add(cold),
                };
                if due <= now && next.as_ref().is_none_or(|(before, ..)| due < *before) {
                    next = Some((due, table.clone(), file.clone()));
                }
            }
        }
        let Some((_, table, file)) = next else { return false };
        match self.verify_slowly(&table, &file, rate).await {
            Ok(()) | Err(End::Open) => {}
            Err(End::Damaged(error)) => {
                self.files.note_failure(&error);
                self.note_damaged(&table, &file, &error).await;
            }
        }
        // Also one that was stopped: it has its turn again.
        self.keep_time(&table, file.generation).await;
        true
    }

    async fn verify_slowly(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
        rate: u64,
    ) -> Result<(), End> {
        let claim = self.files.slots.claim(table, Vec::new(), self.watch_shown(table, file));
        let reader = match self.as_on_disk(table, file).await {
            Ok(reader) => reader,
            Err(error) => return Err(self.end_of(table, file, error)),
        };
        let (progress, mut due) = (claim.progress.clone(), self.env.rt.now());
        let mut step = async |bytes: u64| -> bool {
            progress.done.set(progress.done.get().saturating_add(bytes));
            let micros = bytes.saturating_mul(1_000_000) / rate.max(1);
            due = due.max(self.env.rt.now()) + Duration::from_micros(micros);
            self.env.pause_until(due).await;
            let is_there = table.has_all(std::slice::from_ref(file));
            is_there && !progress.stopped.get() && !self.env.stopping.get()
        };
        match verify_checksums_with(&reader, &mut step).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Open),
            Err(error) => Err(self.end_of(table, file, map_error(error))),
        }
    }

    fn end_of(&self, table: &TableState, file: &Rc<TableFile>, error: StoreError) -> End {
        // A file that was merged away meanwhile may have lost its components.
        let is_there = table.has_all(std::slice::from_ref(file));
        match error {
            StoreError::Corrupt { .. } if is_there => End::Damaged(error),
            _ => End::Open,
        }
    }

    fn watch_shown(&self, table: &TableState, file: &TableFile) -> CompactionProgress {
        let version = table.version();
        let meta = file.reader.meta();
        let large = meta.data_file_length().saturating_add(meta.index_length());
        CompactionProgress {
            id: 0,
            table: table.id,
            keyspace: version.table.keyspace.to_string(),
            name: version.table.name.to_string(),
            done_bytes: 0,
            total_bytes: large,
            inputs: 1,
            reason: "background verification".to_owned(),
            kind: "Verify",
        }
    }

    fn times_in(&self, directory: &str) -> String {
        format!("{directory}/helenus-verified.{}", self.env.shard().0)
    }

    /// Reads the times of a table once, from all data directories: which of them the shard wrote to may have
    /// been another before the start.
    async fn read_times(&self, table: &TableState) {
        if table.verified.borrow().is_some() {
            return;
        }
        let (fs, own) =
            (self.env.rt.fs(), self.files.directories.directory_of(&table.version().table));
        let (mut all, mut damaged) = (VerifiedTimes::new(), Vec::new());
        for directory in self.files.directories.everywhere(&fs, &own).await.unwrap_or(vec![own]) {
            let path = self.times_in(&directory);
            let read = marks::read_lines(&fs, marks::VERIFIED, &path, TIMES_BYTES_MAX).await;
            let read = read.and_then(|body| match body {
                None => Ok(VerifiedTimes::new()),
                Some(body) => of_lines(&body).ok_or_else(marks::unknown_lines),
            });
            let times = read.unwrap_or_else(|why| {
                let what =
                    format!("{path} is ignored and rewritten, files are verified again: {why}");
                self.env.tell_failure(StoreFailure::Mark(what));
                damaged.push(path);
                VerifiedTimes::new()
            });
            for (generation, at) in times {
                let known = all.entry(generation).or_insert(at);
                *known = at.max(*known);
            }
        }
        // The number of a file that is gone may be that of another one later.
        let view = table.view();
        all.retain(|known, _| view.files.iter().any(|file| file.generation == *known));
        for path in damaged {
            // Without it files are verified again after a restart, no more.
            drop(fs.write_atomic(&path, encode(&all)).await);
        }
        *table.verified.borrow_mut() = Some(all);
    }

    async fn keep_time(&self, table: &TableState, generation: Generation) {
        if table.dropped.get() || self.env.stopping.get() {
            return;
        }
        let bytes = {
            let mut verified = table.verified.borrow_mut();
            let times = verified.get_or_insert_default();
            times.insert(generation, self.env.rt.wall().seconds().0);
            let view = table.view();
            times.retain(|known, _| view.files.iter().any(|file| file.generation == *known));
            encode(times)
        };
        let path = self.times_in(&self.files.directories.directory_of(&table.version().table));
        let written = self.env.rt.fs().write_atomic(&path, bytes).await;
        // Without it files are verified again after a restart, no more.
        drop(written);
    }

    /// When files of a table were verified in the background, by number, in seconds since 1970.
    pub fn verified_files(&self, id: TableId) -> Vec<(Generation, i64)> {
        let Some(table) = self.tables.table(id) else { return Vec::new() };
        let times = table.verified.borrow();
        times.iter().flatten().map(|(generation, at)| (*generation, *at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_back() {
        let times = VerifiedTimes::from([(Generation(3), 5), (Generation(9), -1)]);
        let bytes = encode(&times);
        assert_eq!(of_lines(&marks::body_of(marks::VERIFIED, &bytes).unwrap()), Some(times));
        for at in 0..bytes.len() {
            assert!(marks::body_of(marks::VERIFIED, &bytes[..at]).is_err(), "{at}");
        }
    }
}
