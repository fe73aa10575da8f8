//! A repair as its administrator sees it: state, progress, lines.

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rt::sync::Notify;
use stdx::{HostId, Instant, Uuid, WallMicros};

use crate::clock::Clock;
use crate::details::{JobDetails, RepairDetails};
use crate::scope::RepairOptions;

/// Lines that are kept of one repair.
const LINES_MAX: usize = 1000;

/// State of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairState {
    /// Not at its end.
    Running,
    /// Everything was compared, and sent where it was missing.
    Successful,
    /// It ended without success.
    Failed,
}

/// Statistics of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairCounts {
    /// Bytes of this node that were read to be compared.
    pub bytes_read: u64,
    /// Segments compared with all replicas.
    pub segments: u64,
    /// Those that differed.
    pub differing: u64,
    /// Mutations sent to replicas that missed them, this node among them; of a preview: that would
    /// be.
    pub mutations: u64,
    /// Their bytes.
    pub mutation_bytes: u64,
}

/// One line of a repair's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairLine {
    /// Its number, from 0.
    pub number: u64,
    /// When.
    pub at: WallMicros,
    /// Text that `nodetool repair` prints after the time.
    pub text: String,
}

/// Status of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairStatus {
    /// The number of the command, from 1.
    pub id: u32,
    /// Its session.
    pub session: Uuid,
    /// Keyspace.
    pub keyspace: String,
    /// Its state.
    pub state: RepairState,
    /// Percent of the ranges of all tables that were compared, 0 to 100.
    pub percent: u8,
    /// When it began.
    pub started_at: WallMicros,
    /// Statistics so far.
    pub counts: RepairCounts,
    /// Lines after the requested number.
    pub lines: Vec<RepairLine>,
}

impl RepairStatus {
    /// Why it failed.
    pub(crate) fn error(&self) -> String {
        let words = self.lines.iter().rev().nth(1).map(|line| line.text.clone());
        words.unwrap_or_default()
    }
}

/// One table of one session of a repair, by their numbers in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobPart {
    pub(crate) table: usize,
    pub(crate) session: usize,
}

pub(crate) struct Job {
    pub(crate) id: u32,
    pub(crate) session: Uuid,
    /// Trace session of its steps, if it is traced.
    pub(crate) trace: Option<Uuid>,
    pub(crate) options: RepairOptions,
    pub(crate) started_at: WallMicros,
    pub(crate) began: Instant,
    pub(crate) state: Cell<RepairState>,
    pub(crate) counts: Cell<RepairCounts>,
    pub(crate) aborted: Cell<bool>,
    pub(crate) abort: Notify,
    /// Its parts; without its options, which are above.
    pub(crate) details: RefCell<RepairDetails>,
    /// Nodes that it was announced to.
    pub(crate) told: RefCell<Vec<HostId>>,
    /// When the last of its data was called repaired, milliseconds since 1970; 0: none was.
    pub(crate) repaired_at: Cell<i64>,
    /// Time from which the repair's own rate limit allows the next read.
    pub(crate) free_at: Cell<Instant>,
    /// Tokens to compare, and those left, of each session of each table.
    progress: RefCell<BTreeMap<JobPart, (u128, u128)>>,
    lines: RefCell<VecDeque<RepairLine>>,
    next_line: Cell<u64>,
}

impl Job {
    pub(crate) fn new(id: u32, session: Uuid, options: RepairOptions, clock: Clock) -> Job {
        Job {
            id,
            session,
            trace: None,
            options,
            started_at: clock.wall,
            began: clock.instant,
            state: Cell::new(RepairState::Running),
            counts: Cell::default(),
            aborted: Cell::new(false),
            abort: Notify::new(),
            details: RefCell::default(),
            told: RefCell::default(),
            repaired_at: Cell::default(),
            free_at: Cell::new(clock.instant),
            progress: RefCell::default(),
            lines: RefCell::default(),
            next_line: Cell::new(0),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.get() == RepairState::Running
    }

    pub(crate) fn say(&self, at: WallMicros, text: String) {
        let number = self.next_line.get();
        self.next_line.set(number + 1);
        let mut lines = self.lines.borrow_mut();
        if lines.len() >= LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(RepairLine { number, at, text });
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut RepairCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// So many tokens are to be compared for a table and a session.
    pub(crate) fn expect(&self, part: JobPart, width: u128) {
        self.progress.borrow_mut().insert(part, (width, width));
    }

    pub(crate) fn note_left(&self, part: JobPart, left: u128) {
        if let Some(progress) = self.progress.borrow_mut().get_mut(&part) {
            progress.1 = left.min(progress.1);
        }
    }

    pub(crate) fn percent(&self) -> u8 {
        if self.state.get() == RepairState::Successful {
            return 100;
        }
        let progress = self.progress.borrow();
        // At most 2^64 tokens each: a hundred times the sum of all fits by far.
        let sum = |of: &dyn Fn(&(u128, u128)) -> u128| -> u128 { progress.values().map(of).sum() };
        let (all, left) = (sum(&|p| p.0), sum(&|p| p.1));
        let percent = (all.saturating_sub(left) * 100).checked_div(all).unwrap_or(0);
        u8::try_from(percent).unwrap_or(100).min(100)
    }

    pub(crate) fn status(&self, from: u64) -> RepairStatus {
        RepairStatus {
            id: self.id,
            session: self.session,
            keyspace: self.options.keyspace.clone(),
            state: self.state.get(),
            percent: self.percent(),
            started_at: self.started_at,
            counts: self.counts.get(),
            lines: self.lines.borrow().iter().filter(|l| l.number >= from).cloned().collect(),
        }
    }
}

impl Job {
    /// Returns the current details.
    pub(crate) fn details(&self) -> RepairDetails {
        RepairDetails { options: self.options.clone(), ..self.details.borrow().clone() }
    }

    /// Returns the id of its session of that number.
    pub(crate) fn session_of(&self, number: usize) -> Uuid {
        let sessions = Ref::map(self.details.borrow(), |d| &d.sessions);
        sessions.get(number).map_or(self.session, |session| session.id)
    }

    pub(crate) fn note_session_began(&self, number: usize, at: WallMicros) {
        if let Some(session) = self.details.borrow_mut().sessions.get_mut(number) {
            session.started_at = Some(at);
        }
    }

    pub(crate) fn note_session_ended(&self, number: usize, at: WallMicros, error: Option<String>) {
        if let Some(session) = self.details.borrow_mut().sessions.get_mut(number) {
            session.ended = Some((at, error));
        }
    }

    /// A session begins with a table.
    pub(crate) fn note_job(&self, number: usize, id: Uuid, table: &str, at: WallMicros) {
        let (compared_from, sent_from, compared_upto) = (None, None, None);
        if let Some(session) = self.details.borrow_mut().sessions.get_mut(number) {
            session.jobs.push(JobDetails {
                id,
                table: table.to_owned(),
                started_at: at,
                compared_from,
                sent_from,
                compared_upto,
                ended: None,
            });
        }
    }

    /// Something about it is known.
    pub(crate) fn change_job(&self, number: usize, id: Uuid, change: impl FnOnce(&mut JobDetails)) {
        let mut details = self.details.borrow_mut();
        let jobs = details.sessions.get_mut(number).into_iter().flat_map(|s| &mut s.jobs);
        if let Some(job) = jobs.into_iter().find(|job| job.id == id) {
            change(job);
        }
    }

    /// Notes the end of the repair, and of a session that was under way.
    pub(crate) fn note_end(&self, state: RepairState, at: WallMicros, message: String) {
        self.state.set(state);
        let mut details = self.details.borrow_mut();
        details.ended_at = Some(at);
        details.message = Some(message);
    }
}

/// A duration in words, as Cassandra's tools write it.
pub(crate) fn words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 86_400, "day"),
        (seconds / 3600 % 24, "hour"),
        (seconds / 60 % 60, "minute"),
        (seconds % 60, "second"),
    ];
    let first = parts.iter().position(|p| p.0 > 0).unwrap_or(3);
    let last = parts.iter().rposition(|p| p.0 > 0).unwrap_or(3);
    let shown = parts.get(first..=last).unwrap_or_default();
    let word = |(n, unit): &(u64, &str)| match n {
        1 => format!("{n} {unit}"),
        _ => format!("{n} {unit}s"),
    };
    shown.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { instant: Instant::ZERO, wall: WallMicros(0) };

    fn part(table: usize, session: usize) -> JobPart {
        JobPart { table, session }
    }

    #[test]
    fn durations_are_words_without_zeros_around() {
        let of = |n| words(Duration::from_secs(n));
        assert_eq!(
            (of(0).as_str(), of(1).as_str(), of(60).as_str()),
            ("0 seconds", "1 second", "1 minute")
        );
        assert_eq!(of(3605), "1 hour 0 minutes 5 seconds");
    }

    #[test]
    fn percent_is_of_all_tables_and_never_goes_back() {
        let job = Job::new(1, Uuid::nil(), RepairOptions::default(), CLOCK);
        assert_eq!(job.percent(), 0);
        job.expect(part(0, 0), 1 << 60);
        job.expect(part(1, 0), 1 << 60);
        job.note_left(part(0, 0), 1 << 59);
        assert_eq!(job.percent(), 25);
        job.note_left(part(0, 0), 1 << 60);
        assert_eq!(job.percent(), 25);
        job.note_left(part(0, 0), 0);
        job.note_left(part(1, 0), 0);
        assert_eq!(job.percent(), 100);
        let few = Job::new(1, Uuid::nil(), RepairOptions::default(), CLOCK);
        few.expect(part(0, 0), 1000);
        few.note_left(part(0, 0), 500);
        assert_eq!(few.percent(), 50);
    }

    #[test]
    fn old_lines_go_and_numbers_stay() {
        let options = RepairOptions::default();
        let job = Job::new(1, Uuid::nil(), options, CLOCK);
        for n in 0..LINES_MAX + 5 {
            job.say(WallMicros(0), n.to_string());
        }
        let all = job.status(0).lines;
        assert_eq!((all.len(), all[0].number, all[0].text.as_str()), (LINES_MAX, 5, "5"));
        assert_eq!(job.status(LINES_MAX as u64 + 4).lines.len(), 1);
    }
}
