//! This node's part in repairs, its own and those of others, for the virtual tables of repairs: the
//! announcements of coordinators, and the reads done for them. Shard 0 of a node keeps them.
//!
//! Owns: times, numbers, names; bounded. Never: decides anything, survives a restart.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use cluster::{ClusterSnapshot, TokenRange};
use data::replica_page::ReplicaPage;
use stdx::{HostId, Instant, TableId, Token, Uuid, WallMicros};

use crate::announcement::{Ending, News};
use crate::clock::Clock;
use crate::scope::{Preview, text_of};
use crate::segment::Segment;

/// Repairs that are remembered; the oldest goes first.
const REPAIRS_MAX: usize = 128;
/// Comparisons of one repair that are remembered.
const VALIDATIONS_MAX: usize = 1024;
/// Ranges of all of them together; 16 bytes each.
const RANGES_MAX: usize = 1 << 16;

/// Why a repair has ended of which nothing more is known.
const SILENT: &str = "its coordinator is silent";

/// When something began, changed and ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// When this node heard of it.
    pub began: WallMicros,
    /// When something happened last.
    pub updated: WallMicros,
    /// When and how it ended.
    pub ended: Option<(WallMicros, Result<(), String>)>,
}

impl Course {
    fn new(at: WallMicros) -> Course {
        Course { began: at, updated: at, ended: None }
    }

    /// The first end counts.
    fn end(&mut self, at: WallMicros, ending: Ending) {
        if self.ended.is_none() {
            self.updated = at;
            self.ended = Some((at, ending));
        }
    }
}

/// This node's part in a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParticipationDetails {
    /// The repair.
    pub id: Uuid,
    /// The coordinating node.
    pub initiator: SocketAddr,
    /// Names in the form `ks.t`; dropped tables are left out.
    pub tables: Vec<String>,
    /// Ranges in the form `(1,2]`.
    pub ranges: Vec<String>,
    /// Only data that no repair has covered is compared.
    pub incremental: bool,
    /// All replicas take part.
    pub global: bool,
    /// Kind of preview, if it changes nothing.
    pub preview: Preview,
    /// When its data was called repaired, milliseconds since 1970; 0: it was not.
    pub repaired_at: i64,
    /// When.
    pub course: Course,
    /// Comparisons on this node, in the order in which they began.
    pub validations: Vec<ValidationDetails>,
}

/// The ranges of a table that were compared for one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationDetails {
    /// The same on all replicas: [`job_id`].
    pub id: Uuid,
    /// The session.
    pub session: Uuid,
    /// Keyspace and name of the table; `None`: it is dropped.
    pub table: Option<(String, String)>,
    /// Ranges in the form `(1,2]`.
    pub ranges: Vec<String>,
    /// Partitions and their bytes that the files of the node have in the ranges; 0: not known.
    pub estimated: (u64, u64),
    /// Partitions read so far.
    pub partitions: u64,
    /// Bytes read so far, those too that were read again to find what differs.
    pub bytes_read: u64,
    /// When it was known how much there is to read.
    pub started: Option<WallMicros>,
    /// When the first digest was sent to the coordinator.
    pub sent: Option<WallMicros>,
    /// When.
    pub course: Course,
}

struct Validation {
    id: Uuid,
    session: Uuid,
    table: TableId,
    ranges: Vec<(Token, Token)>,
    estimated: (u64, u64),
    partitions: u64,
    bytes_read: u64,
    /// Partitions up to here have been counted.
    upto: Option<Token>,
    started: Option<WallMicros>,
    sent: Option<WallMicros>,
    course: Course,
}

struct Participation {
    id: Uuid,
    initiator: HostId,
    tables: Vec<TableId>,
    ranges: Vec<(Token, Token)>,
    incremental: bool,
    global: bool,
    preview: Preview,
    repaired_at: i64,
    heard: Instant,
    course: Course,
    validations: Vec<Validation>,
}

/// Estimated size of a comparison's ranges in this node's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) partitions: u64,
    pub(crate) bytes: u64,
}

impl Estimate {
    pub(crate) fn add(&mut self, more: Estimate) {
        self.partitions = self.partitions.saturating_add(more.partitions);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// Statistics of the reads for a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadCount {
    pub(crate) partitions: u64,
    pub(crate) bytes: u64,
    /// Tokens of the first and of the last partition.
    pub(crate) tokens: Option<(Token, Token)>,
}

impl ReadCount {
    /// Counts a page of a segment. A partition counts where it begins.
    pub(crate) fn of(page: &ReplicaPage<'_>, segment: &Segment) -> ReadCount {
        let begins = !matches!(segment, Segment::Rows { after: Some(_), .. });
        ReadCount::of_page(page, begins)
    }

    /// Counts a page; `begins`: its first partition begins in it.
    pub(crate) fn of_page(page: &ReplicaPage<'_>, begins: bool) -> ReadCount {
        let mut read = ReadCount { bytes: page.bytes().len() as u64, ..ReadCount::default() };
        for (token, _) in page.partitions().filter(|_| begins) {
            read.partitions += 1;
            read.tokens = Some((read.tokens.map_or(token, |(first, _)| first), token));
        }
        read
    }

    /// Adds the reads after these.
    pub(crate) fn and(self, more: ReadCount) -> ReadCount {
        let tokens = match (self.tokens, more.tokens) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (one, other) => one.or(other),
        };
        ReadCount {
            partitions: self.partitions.saturating_add(more.partitions),
            bytes: self.bytes.saturating_add(more.bytes),
            tokens,
        }
    }
}

/// All parts, in the order in which this node heard of them.
#[derive(Default)]
pub(crate) struct Participations(RefCell<VecDeque<Participation>>);

/// A repair, as its participants know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairKey {
    /// The node that coordinates it.
    pub(crate) initiator: HostId,
    pub(crate) repair: Uuid,
}

/// A comparison whose size is to be estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Estimating {
    /// The comparison: [`job_id`].
    pub(crate) id: Uuid,
    pub(crate) table: TableId,
    pub(crate) ranges: Vec<(Token, Token)>,
}

/// The id of a table's comparison in a session, which every replica finds alike: a hash of what it is
/// about (a custom UUID by RFC 9562, section 5.8).
pub(crate) fn job_id(repair: Uuid, session: Uuid, table: TableId) -> Uuid {
    let mut about = Vec::with_capacity(48);
    for part in [repair, session, table.0] {
        about.extend_from_slice(part.as_bytes());
    }
    let mut bytes = request::digest_of(&about).0.to_be_bytes();
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Uuid::from_bytes(bytes)
}

impl Participation {
    fn range_count(&self) -> usize {
        let validations = self.validations.iter().map(|v| v.ranges.len());
        self.ranges.len().saturating_add(validations.sum())
    }

    fn end(&mut self, at: WallMicros, ending: &Ending) {
        for validation in &mut self.validations {
            validation.course.end(at, ending.clone());
        }
        self.course.end(at, ending.clone());
    }
}

impl Participations {
    /// Takes news of a repair in; `Some`: ranges of a table are to be compared, of which this may find
    /// out how much they have.
    pub(crate) fn take(&self, about: RepairKey, news: News, clock: Clock) -> Option<Estimating> {
        let RepairKey { initiator, repair } = about;
        let (now, at) = (clock.instant, clock.wall);
        let mut all = self.0.borrow_mut();
        let mut known = all.iter_mut().find(|p| p.id == repair && p.initiator == initiator);
        if let Some(known) = known.as_mut() {
            known.heard = now;
        }
        match (news, known) {
            (News::Begins { incremental, global, preview, tables, ranges }, None) => {
                all.push_back(Participation {
                    id: repair,
                    initiator,
                    tables,
                    ranges,
                    incremental,
                    global,
                    preview,
                    repaired_at: 0,
                    heard: now,
                    course: Course::new(at),
                    validations: Vec::new(),
                });
                shrink(&mut all);
                None
            }
            (News::Compares { session, table, ranges }, Some(known)) => {
                let id = job_id(repair, session, table);
                let is_new = known.validations.iter().all(|v| v.id != id);
                if !is_new || known.validations.len() >= VALIDATIONS_MAX {
                    return None;
                }
                known.course.updated = at;
                known.validations.push(Validation {
                    id,
                    session,
                    table,
                    ranges: ranges.clone(),
                    estimated: (0, 0),
                    partitions: 0,
                    bytes_read: 0,
                    upto: None,
                    started: None,
                    sent: None,
                    course: Course::new(at),
                });
                shrink(&mut all);
                Some(Estimating { id, table, ranges })
            }
            (News::HasCompared { session, table, ending }, Some(known)) => {
                let id = job_id(repair, session, table);
                known.course.updated = at;
                if let Some(validation) = known.validations.iter_mut().find(|v| v.id == id) {
                    validation.course.end(at, ending);
                }
                None
            }
            (News::HasEnded { repaired_at, ending }, Some(known)) => {
                known.repaired_at = repaired_at;
                known.end(at, &ending);
                None
            }
            (News::GoesOn | News::Begins { .. }, Some(_)) | (_, None) => None,
        }
    }

    fn change(&self, id: Uuid, at: WallMicros, change: impl FnOnce(&mut Validation)) {
        let mut all = self.0.borrow_mut();
        let mut validations = all.iter_mut().flat_map(|p| &mut p.validations);
        if let Some(validation) = validations.find(|v| v.id == id) {
            validation.course.updated = at;
            change(validation);
        }
    }

    /// Something was read because a coordinator asked for it.
    pub(crate) fn count(
        &self,
        from: HostId,
        table: TableId,
        token: Token,
        read: ReadCount,
        at: WallMicros,
    ) {
        let mut all = self.0.borrow_mut();
        let of_peer = all.iter_mut().rev().filter(|p| p.initiator == from);
        let mut validations = of_peer.flat_map(|p| &mut p.validations);
        let found = validations.find(|v| {
            let holds = |(start, end): &(Token, Token)| {
                (*start < token || *start == Token::MIN) && token <= *end
            };
            v.course.ended.is_none() && v.table == table && v.ranges.iter().any(holds)
        });
        let Some(validation) = found else { return };
        validation.course.updated = at;
        validation.sent.get_or_insert(at);
        validation.add(read);
    }

    /// Returns true if a repair of one of these nodes that may write is running on a part of a
    /// table.
    pub(crate) fn compares(
        &self,
        is_meant: impl Fn(HostId) -> bool,
        table: TableId,
        range: TokenRange,
    ) -> bool {
        self.0.borrow().iter().any(|p| {
            is_meant(p.initiator)
                && p.course.ended.is_none()
                && p.preview == Preview::None
                && p.tables.contains(&table)
                && p.ranges.iter().any(|(a, b)| *a < range.end && range.start < *b)
        })
    }

    /// The size of a comparison is known.
    pub(crate) fn note_estimate(&self, id: Uuid, found: Estimate, at: WallMicros) {
        self.change(id, at, |validation| {
            validation.estimated = (found.partitions, found.bytes);
            validation.started = Some(at);
        });
    }

    /// Counts a local read for a repair of this node.
    pub(crate) fn count_own(&self, job: Uuid, read: ReadCount, at: WallMicros) {
        self.change(job, at, |validation| validation.add(read));
    }

    /// Returns this node's parts in repairs, current ones and those of this run, the oldest first.
    pub(crate) fn details(
        &self,
        snapshot: &ClusterSnapshot,
        address: impl Fn(HostId) -> SocketAddr,
    ) -> Vec<ParticipationDetails> {
        let name = |id: &TableId| {
            let table = snapshot.schema.table_by_id(*id)?;
            Some((table.keyspace.to_string(), table.name.to_string()))
        };
        let all = self.0.borrow();
        let validation = |v: &Validation| ValidationDetails {
            id: v.id,
            session: v.session,
            table: name(&v.table),
            ranges: texts(&v.ranges),
            estimated: v.estimated,
            partitions: v.partitions,
            bytes_read: v.bytes_read,
            started: v.started,
            sent: v.sent,
            course: v.course.clone(),
        };
        let details = all.iter().map(|p| ParticipationDetails {
            id: p.id,
            initiator: address(p.initiator),
            tables: p.tables.iter().filter_map(name).map(|(ks, t)| format!("{ks}.{t}")).collect(),
            ranges: texts(&p.ranges),
            incremental: p.incremental,
            global: p.global,
            preview: p.preview,
            repaired_at: p.repaired_at,
            course: p.course.clone(),
            validations: p.validations.iter().map(validation).collect(),
        });
        details.collect()
    }

    /// Repairs of others of which nothing was heard for so long have failed.
    pub(crate) fn give_up(&self, me: HostId, idle: Duration, clock: Clock) {
        let (now, at) = (clock.instant, clock.wall);
        let mut all = self.0.borrow_mut();
        let silent = all.iter_mut().filter(|p| p.initiator != me && now.since(p.heard) >= idle);
        for participation in silent.filter(|p| p.course.ended.is_none()) {
            stdx::reached!("repair-initiator-silent");
            participation.end(at, &Err(SILENT.to_owned()));
        }
    }
}

impl Validation {
    /// Counts partitions once, also when they are read again.
    fn add(&mut self, read: ReadCount) {
        self.bytes_read = self.bytes_read.saturating_add(read.bytes);
        if let Some((first, last)) = read.tokens
            && self.upto.is_none_or(|upto| first > upto)
        {
            self.upto = Some(last);
            self.partitions = self.partitions.saturating_add(read.partitions);
        }
    }
}

/// Lets the oldest go until all bounds are kept.
fn shrink(all: &mut VecDeque<Participation>) {
    let mut ranges: usize = all.iter().map(Participation::range_count).sum();
    while all.len() > REPAIRS_MAX || (ranges > RANGES_MAX && all.len() > 1) {
        let Some(oldest) = all.pop_front() else { return };
        ranges = ranges.saturating_sub(oldest.range_count());
    }
    if ranges > RANGES_MAX
        && let Some(last) = all.back_mut()
    {
        // One alone has too many: its first comparisons go.
        while ranges > RANGES_MAX && !last.validations.is_empty() {
            ranges = ranges.saturating_sub(last.validations.remove(0).ranges.len());
        }
    }
}

fn texts(ranges: &[(Token, Token)]) -> Vec<String> {
    ranges.iter().map(|(start, end)| text_of(TokenRange { start: *start, end: *end })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: HostId = HostId(Uuid::from_u128(1));
    const PEER: HostId = HostId(Uuid::from_u128(2));
    const TABLE: TableId = TableId(Uuid::from_u128(7));

    fn at(seconds: u64) -> Clock {
        Clock {
            instant: Instant::ZERO + Duration::from_secs(seconds),
            wall: WallMicros(i64::try_from(seconds).unwrap() * 1_000_000),
        }
    }

    fn of(initiator: HostId, repair: Uuid) -> RepairKey {
        RepairKey { initiator, repair }
    }

    fn begins(ranges: usize) -> News {
        News::Begins {
            incremental: false,
            global: true,
            preview: Preview::None,
            tables: vec![TABLE],
            ranges: (0..ranges as i64).map(|n| (Token(n), Token(n + 1))).collect(),
        }
    }

    fn compares(session: u128) -> News {
        let ranges = vec![(Token(0), Token(100))];
        News::Compares { session: Uuid::from_u128(session), table: TABLE, ranges }
    }

    fn read(partitions: u64, tokens: (i64, i64)) -> ReadCount {
        let tokens = Some((Token(tokens.0), Token(tokens.1)));
        ReadCount { partitions, bytes: 10, tokens }
    }

    #[test]
    fn what_is_read_counts_for_the_comparison_that_is_under_way_and_partitions_once() {
        let all = Participations::default();
        let repair = Uuid::from_u128(5);
        assert_eq!(all.take(of(PEER, repair), begins(1), at(1)), None);
        let Estimating { id, .. } = all.take(of(PEER, repair), compares(6), at(2)).unwrap();
        assert_eq!(id, job_id(repair, Uuid::from_u128(6), TABLE));
        assert_eq!(all.take(of(PEER, repair), compares(6), at(2)), None, "it is told twice");
        let count = |from, token, read| all.count(from, TABLE, Token(token), read, at(3).wall);
        count(PEER, 1, read(4, (1, 50)));
        count(PEER, 10, read(2, (10, 20)));
        count(PEER, 51, read(3, (51, 60)));
        // Ignored: reads for another node, of another range, and after the end.
        count(ME, 61, read(9, (61, 62)));
        count(PEER, 101, read(9, (101, 102)));
        let ending = Ok(());
        let session = Uuid::from_u128(6);
        let ended = News::HasCompared { session, table: TABLE, ending };
        all.take(of(PEER, repair), ended, at(4));
        count(PEER, 70, read(9, (70, 80)));
        let all = all.0.borrow();
        let validation = &all[0].validations[0];
        assert_eq!((validation.partitions, validation.bytes_read), (7, 30));
        assert_eq!(
            (validation.sent, validation.course.ended.clone()),
            (Some(at(3).wall), Some((at(4).wall, Ok(()))))
        );
    }

    #[test]
    fn a_repair_of_which_nothing_is_heard_has_failed_and_an_own_one_has_not() {
        let all = Participations::default();
        let (theirs, own) = (Uuid::from_u128(5), Uuid::from_u128(6));
        all.take(of(PEER, theirs), begins(1), at(0));
        all.take(of(PEER, theirs), compares(6), at(0));
        all.take(of(ME, own), begins(1), at(0));
        let idle = Duration::from_secs(10);
        all.take(of(PEER, theirs), News::GoesOn, at(5));
        all.give_up(ME, idle, at(14));
        assert_eq!(all.0.borrow()[0].course.ended, None);
        all.give_up(ME, idle, at(15));
        let failed = Some((at(15).wall, Err(SILENT.to_owned())));
        assert_eq!(all.0.borrow()[0].course.ended, failed);
        assert_eq!(all.0.borrow()[0].validations[0].course.ended, failed);
        assert_eq!(all.0.borrow()[1].course.ended, None);
        // Later events do not change how it ended.
        let ended = News::HasEnded { repaired_at: 9, ending: Ok(()) };
        all.take(of(PEER, theirs), ended, at(20));
        assert_eq!(all.0.borrow()[0].course.ended, failed);
    }

    #[test]
    fn a_part_of_a_table_is_compared_until_the_repair_has_ended() {
        let all = Participations::default();
        let repair = |n| Uuid::from_u128(n);
        let preview = |preview| match begins(1) {
            News::Begins { incremental, global, tables, ranges, .. } => {
                News::Begins { incremental, global, preview, tables, ranges }
            }
            other => other,
        };
        let compares = |table, start, end| {
            all.compares(
                |host| host == PEER,
                table,
                TokenRange { start: Token(start), end: Token(end) },
            )
        };
        all.take(of(ME, repair(4)), begins(1), at(0));
        all.take(of(PEER, repair(5)), preview(Preview::All), at(0));
        assert!(!compares(TABLE, 0, 1));
        all.take(of(PEER, repair(6)), begins(1), at(0));
        assert!(compares(TABLE, 0, 1) && !compares(TABLE, -1, 0) && !compares(TABLE, 1, 9));
        assert!(!compares(TableId(Uuid::from_u128(8)), 0, 1));
        let ended = News::HasEnded { repaired_at: 9, ending: Ok(()) };
        all.take(of(PEER, repair(6)), ended, at(1));
        assert!(!compares(TABLE, 0, 1));
    }

    #[test]
    fn only_so_much_is_remembered() {
        let all = Participations::default();
        let repair = |n: usize| Uuid::from_u128(n as u128);
        for n in 0..REPAIRS_MAX + 3 {
            all.take(of(PEER, repair(n)), begins(1), at(0));
        }
        assert_eq!(all.0.borrow().len(), REPAIRS_MAX);
        assert_eq!(all.0.borrow()[0].id, repair(3));
        for n in 0..20 {
            all.take(of(PEER, repair(1000 + n)), begins(4096), at(0));
        }
        let ranges: usize = all.0.borrow().iter().map(Participation::range_count).sum();
        assert!(ranges <= RANGES_MAX && ranges > RANGES_MAX / 2, "{ranges}");
        assert_eq!(all.0.borrow().back().unwrap().id, repair(1019));
        let last = repair(1019);
        for n in 0..VALIDATIONS_MAX + 5 {
            all.take(of(PEER, last), compares(n as u128), at(0));
        }
        assert_eq!(all.0.borrow().back().unwrap().validations.len(), VALIDATIONS_MAX);
    }
}
