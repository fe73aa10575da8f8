//! Automatic repair of corrupt files: which ranges a node repairs, and when. Decisions from known facts, nothing
//! else.
//!
//! The readable data of a corrupt file with a loss is copied to other files. The file is removed when all its
//! owned ranges were repaired after the copies were made (`store::files::quarantine`). Until then reads of its
//! corrupt parts fail on this node. So they do not wait for the schedule: a full repair of these ranges begins as
//! soon as it would count.
//!
//! **Ranges.** The owned ranges between the first and the last token of the file that were not repaired since the
//! copies. A part waits if it has no live replica, if it moves, or if another repair is comparing it; the other
//! parts do not wait. The history of repairs records what was done, so that no state is persisted here: after a
//! restart the node continues with the rest.
//!
//! **Time.** A repair begins once everything that it reads is readable: other corrupt files of the table with the
//! same tokens have their copies too. Files are repaired one at a time, in the order of the copies. After a
//! failure a file backs off, twice as long each time, and lets others go first.
//!
//! INV-damaged-1: nothing begins for a part that was repaired after the copies.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, TokenRange};
use stdx::{HostId, Instant, TableId, Token};
use store::is_behind_copy;

use crate::history::RepairHistory;
use crate::ranges::{TokenSpan, parts_of, unwrapped};

/// A repair that failed is tried again so much later, and twice as late each time.
const AGAIN: Duration = Duration::from_secs(60);
/// But not later than that.
const AGAIN_MAX: Duration = Duration::from_secs(6 * 3_600);

/// A damaged file of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptFile {
    /// Its table.
    pub table: TableId,
    /// Its Data component.
    pub path: String,
    /// Tokens of its first and its last partition.
    pub tokens: TokenSpan,
    /// When what can be read of it was in other files, seconds since 1970; `None`: it is not yet.
    pub copied: Option<i64>,
}

impl CorruptFile {
    fn meets(&self, other: &CorruptFile) -> bool {
        self.table == other.table && self.tokens.meets(other.tokens)
    }
}

/// Sorts the files into the order of their repairs, by the age of their copies, the oldest first. A
/// file that several shards report is listed once; it has copies when all of them have made theirs.
pub fn in_order(mut files: Vec<CorruptFile>) -> Vec<CorruptFile> {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|next, kept| {
        let is_same = next.path == kept.path;
        if is_same {
            kept.copied = kept.copied.zip(next.copied).map(|(a, b)| a.max(b));
        }
        is_same
    });
    files.sort_by(|a, b| {
        (a.copied.is_none(), a.copied, &a.path).cmp(&(b.copied.is_none(), b.copied, &b.path))
    });
    files
}

/// A range that this node has, without wrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Exclusive.
    pub start: Token,
    /// Inclusive.
    pub end: Token,
    /// Its other replicas.
    pub peers: Vec<HostId>,
    /// True if it moves to another node, or to this one.
    pub moves: bool,
}

/// The ranges that this node has of a table; `None` when there is no such table.
pub fn owned(snapshot: &ClusterSnapshot, table: TableId) -> Option<Vec<Part>> {
    let me = snapshot.local.host_id;
    let placements = snapshot.placements_of_table(table)?;
    let mut parts = Vec::new();
    for (range, replicas) in placements.ranges() {
        if replicas.position(me).is_none() {
            continue;
        }
        let others = replicas.natural().map(|m| m.host_id).filter(|host| *host != me);
        let peers: Vec<HostId> = others.collect();
        let moves = replicas.pending_len() > 0;
        for (start, end) in unwrapped(range) {
            parts.push(Part { start, end, peers: peers.clone(), moves });
        }
    }
    parts.sort_by_key(|part| part.start);
    Some(parts)
}

/// Remaining repair work of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Parts left to repair, ascending.
    pub parts: Vec<Part>,
    /// A part of it has no other replica.
    pub is_alone: bool,
    /// A part of it is this node's.
    pub is_owned: bool,
}

/// Returns the remaining repair work of a file whose copies were made at `copied` seconds since
/// 1970.
pub fn need(owned: &[Part], history: &RepairHistory, file: &CorruptFile, copied: i64) -> Need {
    let mut need = Need::default();
    let whole = TokenRange { start: Token::MIN, end: Token::MAX };
    let Some(span) = file.tokens.part_of(whole) else { return need };
    // Both ascend: merged in one pass.
    let times = history.parts_of(file.table, span.start, span.end);
    let mut times = times.as_slice();
    for part in owned {
        let range = TokenRange { start: part.start, end: part.end };
        let Some(TokenRange { start, end }) = file.tokens.part_of(range) else { continue };
        need.is_owned = true;
        if part.peers.is_empty() && !part.moves {
            need.is_alone = true;
            continue;
        }
        let mut last: Option<Part> = None;
        while let Some(((from, upto, at), behind)) = times.split_first() {
            let (from, until) = (start.max(*from), end.min(*upto));
            if from < until && !is_behind_copy(*at, copied) {
                match last.as_mut().filter(|last| last.end == from) {
                    Some(last) => last.end = until,
                    None => {
                        let next = Part { start: from, end: until, ..part.clone() };
                        need.parts.extend(last.replace(next));
                    }
                }
            }
            if *upto > end {
                break;
            }
            times = behind;
        }
        need.parts.extend(last);
    }
    need
}

/// Repairs for a file that failed, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Number of failed attempts.
    pub attempts: u32,
    /// Why the last one did.
    pub error: String,
    /// The next one is not before.
    pub due: Instant,
}

impl Failed {
    /// One more, now.
    pub fn and(before: Option<&Failed>, error: String, now: Instant) -> Failed {
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        let pause = AGAIN.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(AGAIN_MAX);
        Failed { attempts, error, due: now + pause }
    }
}

/// A file with what is to be done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The file.
    pub file: CorruptFile,
    /// Remaining work if the file has copies; else empty.
    pub need: Need,
    /// Repairs that failed.
    pub failed: Option<Failed>,
}

/// Facts of a decision beside the files.
pub struct Around<'a> {
    /// Seconds since 1970.
    pub now: i64,
    /// `now`, by the monotonic clock.
    pub instant: Instant,
    /// Repairs may begin by themselves.
    pub is_enabled: bool,
    /// Not before.
    pub begin: Instant,
    /// Returns true if a node is alive.
    pub is_alive: &'a dyn Fn(HostId) -> bool,
    /// Returns true if a repair is comparing a part of a table.
    pub is_busy: &'a dyn Fn(TableId, &Part) -> bool,
}

/// State of the repair of a corrupt file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRepair {
    /// Its readable data is not copied to other files yet.
    Copying,
    /// The readable data of that file, which overlaps this one, is not copied yet.
    CopyingOther(String),
    /// A repair that begins now would not count.
    Early,
    /// Repairs do not begin by themselves.
    Disabled,
    /// Automatic repairs do not begin before that.
    Starting(Instant),
    /// Replicas are not alive.
    Dead(Vec<HostId>),
    /// Ranges move.
    Moving,
    /// Another repair compares what it would.
    Busy,
    /// Repairs failed.
    Resting(Failed),
    /// Another file has its turn.
    Queued,
    /// The repair of that number runs.
    Running(u32),
    /// All of it was repaired: the file is being removed.
    Repaired,
    /// Everything with other replicas was repaired; the rest has none.
    Alone,
    /// Nothing of it is this node's.
    NotOwned,
}

impl FileRepair {
    /// Describes the state, as the end of a sentence about the file; `None`: other log lines
    /// describe it.
    pub fn words(&self, address: impl Fn(HostId) -> SocketAddr, now: Instant) -> Option<String> {
        let minutes = |due: Instant| due.since(now).as_secs().div_ceil(60);
        Some(match self {
            FileRepair::Copying => return None,
            FileRepair::CopyingOther(path) => {
                format!("its repair waits until what can be read of {path} is in other files")
            }
            FileRepair::Early => "its repair begins in a few seconds".to_owned(),
            FileRepair::Disabled => {
                "none begins automatically, as auto_repair_enabled is false".to_owned()
            }
            FileRepair::Starting(due) => {
                format!("repairs begin by themselves in {} minutes", minutes(*due))
            }
            FileRepair::Dead(hosts) => {
                let all = hosts.iter().map(|host| format!("/{}", address(*host)));
                let all = all.collect::<Vec<_>>().join(", ");
                format!("its repair waits for replicas that are not alive: {all}")
            }
            FileRepair::Moving => "its repair waits until its ranges do not move".to_owned(),
            FileRepair::Busy => "its repair waits for another one of its ranges".to_owned(),
            FileRepair::Resting(failed) => format!(
                "{} repairs of its ranges failed, the next is in {} minutes: {}",
                failed.attempts,
                minutes(failed.due),
                failed.error
            ),
            FileRepair::Queued => "its repair waits for that of another damaged file".to_owned(),
            FileRepair::Running(id) => format!("repair #{id} of its ranges runs"),
            FileRepair::Repaired => "they were repaired".to_owned(),
            FileRepair::Alone => {
                "a part of them has no other replica, so that only a scrub does".to_owned()
            }
            FileRepair::NotOwned => {
                "it has none of this node's, and a cleanup removes it".to_owned()
            }
        })
    }

    /// Returns true if both are the same apart from times and numbers.
    pub fn is_like(&self, other: &FileRepair) -> bool {
        match (self, other) {
            (FileRepair::Resting(a), FileRepair::Resting(b)) => a.attempts == b.attempts,
            (FileRepair::Dead(a), FileRepair::Dead(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// The state of the repair for each corrupt file, by path.
pub type FileRepairs = BTreeMap<String, FileRepair>;

/// These states as a shard knows them: shard 0 decides them and passes them on.
#[derive(Default)]
pub(crate) struct KnownRepairs(RefCell<Arc<FileRepairs>>);

impl KnownRepairs {
    pub(crate) fn get(&self) -> Arc<FileRepairs> {
        self.0.borrow().clone()
    }

    pub(crate) fn set(&self, repairs: Arc<FileRepairs>) {
        *self.0.borrow_mut() = repairs;
    }
}

/// Outcome of [`decide`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// State of each file.
    pub states: Vec<FileRepair>,
    /// The file whose repair begins now, and its ranges. Its state is [`FileRepair::Queued`].
    pub next: Option<(usize, Vec<(Token, Token)>)>,
}

/// Returns the ranges of a file that can be repaired now, or the state that it waits in.
fn ready(
    candidate: &Candidate,
    others: &[Candidate],
    around: &Around<'_>,
) -> Result<Vec<(Token, Token)>, FileRepair> {
    let (file, need) = (&candidate.file, &candidate.need);
    let copied = file.copied.ok_or(FileRepair::Copying)?;
    if need.parts.is_empty() {
        return Err(match (need.is_owned, need.is_alone) {
            (false, _) => FileRepair::NotOwned,
            (true, true) => FileRepair::Alone,
            (true, false) => FileRepair::Repaired,
        });
    }
    if !around.is_enabled {
        return Err(FileRepair::Disabled);
    }
    if around.instant < around.begin {
        return Err(FileRepair::Starting(around.begin));
    }
    if let Some(failed) = candidate.failed.as_ref().filter(|f| around.instant < f.due) {
        return Err(FileRepair::Resting(failed.clone()));
    }
    if !is_behind_copy(around.now, copied) {
        return Err(FileRepair::Early);
    }
    // The repair would read what is damaged in it.
    let unread = others.iter().find(|o| o.file.copied.is_none() && o.file.meets(file));
    if let Some(other) = unread {
        return Err(FileRepair::CopyingOther(other.file.path.clone()));
    }
    let (mut ranges, mut dead, mut moves) = (Vec::new(), BTreeSet::new(), false);
    for part in &need.parts {
        let is_dead = |host: &&HostId| !(around.is_alive)(**host);
        let can = !part.moves && !part.peers.iter().any(|host| is_dead(&host));
        dead.extend(part.peers.iter().filter(is_dead));
        moves |= part.moves;
        if can && !(around.is_busy)(file.table, part) {
            ranges.push((part.start, part.end));
        }
    }
    match (ranges.is_empty(), dead.is_empty(), moves) {
        (false, _, _) => Ok(ranges),
        (true, false, _) => Err(FileRepair::Dead(dead.into_iter().collect())),
        (true, true, true) => Err(FileRepair::Moving),
        (true, true, false) => Err(FileRepair::Busy),
    }
}

/// Decides for all corrupt files, in their order. `running`: the number of the repair under way,
/// and the path of its file.
pub fn decide(all: &[Candidate], running: Option<(u32, &str)>, around: &Around<'_>) -> Decision {
    let mut decision = Decision::default();
    for (at, candidate) in all.iter().enumerate() {
        if let Some((id, _)) = running.filter(|(_, path)| *path == candidate.file.path) {
            decision.states.push(FileRepair::Running(id));
            continue;
        }
        let state = match ready(candidate, all, around) {
            Err(state) => state,
            Ok(ranges) => {
                if running.is_none() && decision.next.is_none() {
                    decision.next = Some((at, ranges));
                }
                FileRepair::Queued
            }
        };
        decision.states.push(state);
    }
    decision
}

/// Returns the first of these ranges that together have at most so many bytes, or a piece of the
/// first one. Completed pieces are recorded one by one, so that a crash costs no more than one.
pub fn first_of(
    ranges: &[(Token, Token)],
    bytes_of: impl Fn(Token, Token) -> u64,
    bytes_max: u64,
    count_max: usize,
) -> Vec<(Token, Token)> {
    let (mut taken, mut bytes) = (Vec::new(), 0_u64);
    for (start, end) in ranges.iter().copied().take(count_max) {
        bytes = bytes.saturating_add(bytes_of(start, end));
        if bytes <= bytes_max {
            taken.push((start, end));
            continue;
        }
        if taken.is_empty() {
            let parts = bytes.div_ceil(bytes_max.max(1));
            taken.extend(parts_of(start, end, parts).first());
        }
        break;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Uuid;

    const TABLE: TableId = TableId(Uuid::from_u128(7));
    const COPIED: i64 = 1_000;

    /// States, and the file for which a repair begins with its ranges.
    type Decided = (Vec<FileRepair>, Option<(usize, Vec<(i64, i64)>)>);

    fn host(n: u128) -> HostId {
        HostId(Uuid::from_u128(n))
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn file(path: &str, tokens: (i64, i64), copied: Option<i64>) -> CorruptFile {
        let tokens = TokenSpan { first: Token(tokens.0), last: Token(tokens.1) };
        CorruptFile { table: TABLE, path: path.to_owned(), tokens, copied }
    }

    fn part(start: i64, end: i64, peers: &[u128]) -> Part {
        let peers = peers.iter().map(|n| host(*n)).collect();
        Part { start: Token(start), end: Token(end), peers, moves: false }
    }

    fn spans(parts: &[Part]) -> Vec<(i64, i64)> {
        parts.iter().map(|part| (part.start.0, part.end.0)).collect()
    }

    fn candidate(path: &str, parts: Vec<Part>) -> Candidate {
        let need = Need { parts, is_alone: false, is_owned: true };
        Candidate { file: file(path, (0, 100), Some(COPIED)), need, failed: None }
    }

    /// A decision at a moment, with these nodes dead and the parts that begin at these tokens busy.
    fn decided(all: &[Candidate], seconds: u64, dead: &[u128], busy: &[i64]) -> Decided {
        decided_with(all, None, |_| (), (seconds, dead, busy))
    }

    fn decided_with(
        all: &[Candidate],
        running: Option<(u32, &str)>,
        change: impl Fn(&mut Around<'_>),
        (seconds, dead, busy): (u64, &[u128], &[i64]),
    ) -> Decided {
        let mut around = Around {
            now: COPIED + seconds as i64,
            instant: at(seconds),
            is_enabled: true,
            begin: Instant::ZERO,
            is_alive: &|of| !dead.iter().any(|n| host(*n) == of),
            is_busy: &|_, part| busy.contains(&part.start.0),
        };
        change(&mut around);
        let Decision { states, next } = decide(all, running, &around);
        let ints = |(a, b): (Token, Token)| (a.0, b.0);
        (states, next.map(|(at, ranges)| (at, ranges.into_iter().map(ints).collect())))
    }

    /// INV-damaged-1.
    #[test]
    fn what_is_left_are_the_owned_ranges_between_its_tokens_that_were_not_repaired_behind_the_copies()
     {
        let owned = [part(i64::MIN, 0, &[2]), part(0, 50, &[2, 3]), part(60, 90, &[3])];
        let of = |history: &RepairHistory, tokens| {
            need(&owned, history, &file("/a", tokens, Some(COPIED)), COPIED)
        };
        let mut history = RepairHistory::default();
        let all = of(&history, (-10, 70));
        // A range is open at its start: the first token is in it.
        assert_eq!(spans(&all.parts), [(-11, 0), (0, 50), (60, 70)]);
        assert_eq!(all.parts[1].peers, [host(2), host(3)]);
        assert!(all.is_owned && !all.is_alone);
        assert_eq!(spans(&of(&history, (i64::MIN, i64::MAX)).parts)[0], (i64::MIN, 0));
        assert_eq!(spans(&of(&history, (51, 60)).parts), [(0, 0); 0]);
        assert!(!of(&history, (51, 60)).is_owned && of(&history, (51, 61)).is_owned);
        // One that began before the clocks can agree does not count, of another table neither.
        history.note(TABLE, &[(Token::MIN, Token::MAX)], COPIED + 10);
        history.note(TableId(Uuid::from_u128(8)), &[(Token::MIN, Token::MAX)], COPIED + 99);
        assert_eq!(of(&history, (-10, 70)), all);
        history.note(TABLE, &[(Token(10), Token(30))], COPIED - 5);
        assert_eq!(of(&history, (-10, 70)), all, "what was repaired before is joined");
        history.note(TABLE, &[(Token(-5), Token(20))], COPIED + 11);
        assert_eq!(spans(&of(&history, (-10, 70)).parts), [(-11, -5), (20, 50), (60, 70)]);
        history.note(TABLE, &[(Token(-11), Token(70))], COPIED + 11);
        let done = of(&history, (-10, 70));
        assert!(done.parts.is_empty() && done.is_owned, "{done:?}");
        // One token more.
        assert_eq!(spans(&of(&history, (-11, 70)).parts), [(-12, -11)]);
        assert_eq!(spans(&of(&history, (-10, 71)).parts), [(70, 71)]);
    }

    #[test]
    fn what_nobody_else_has_is_not_repaired_unless_it_moves() {
        let mut owned = [part(0, 50, &[]), part(50, 90, &[3])];
        let of = |owned: &[Part]| {
            need(owned, &RepairHistory::default(), &file("/a", (1, 90), Some(COPIED)), COPIED)
        };
        assert_eq!((spans(&of(&owned).parts), of(&owned).is_alone), (vec![(50, 90)], true));
        owned[0].moves = true;
        assert_eq!((of(&owned).parts.len(), of(&owned).is_alone), (2, false));
    }

    #[test]
    fn the_oldest_copy_goes_first_and_of_shards_that_share_a_file_all_have_theirs() {
        let tokens = (0, 9);
        let all = in_order(vec![
            file("/c", tokens, None),
            file("/b", tokens, Some(5)),
            file("/a", tokens, Some(7)),
            file("/d", tokens, Some(1)),
            file("/b", tokens, Some(6)),
            file("/d", tokens, None),
        ]);
        let all: Vec<_> = all.iter().map(|file| (file.path.as_str(), file.copied)).collect();
        assert_eq!(all, [("/b", Some(6)), ("/a", Some(7)), ("/c", None), ("/d", None)]);
    }

    #[test]
    fn one_repair_begins_at_a_time_and_not_before_it_counts() {
        let all = [
            candidate("/a", vec![part(0, 5, &[2]), part(5, 9, &[3])]),
            candidate("/b", vec![part(0, 9, &[2])]),
        ];
        let queued = vec![FileRepair::Queued, FileRepair::Queued];
        let early = vec![FileRepair::Early, FileRepair::Early];
        assert_eq!(decided(&all, 10, &[], &[]), (early, None));
        let begun = Some((0, vec![(0, 5), (5, 9)]));
        assert_eq!(decided(&all, 11, &[], &[]), (queued.clone(), begun));
        let of_a = Some((4, "/a"));
        let (states, next) = decided_with(&all, of_a, |_| (), (11, &[], &[]));
        assert_eq!((states, next), (vec![FileRepair::Running(4), FileRepair::Queued], None));
        // The running repair is for a file that is gone meanwhile.
        let (states, next) = decided_with(&all, Some((4, "/z")), |_| (), (11, &[], &[]));
        assert_eq!((states, next), (queued, None));
    }

    #[test]
    fn nothing_begins_while_nothing_may_begin() {
        let all = [candidate("/a", vec![part(0, 5, &[2])])];
        let off = |around: &mut Around<'_>| around.is_enabled = false;
        let later = |around: &mut Around<'_>| around.begin = at(21);
        let off = decided_with(&all, None, off, (20, &[], &[]));
        assert_eq!(off, (vec![FileRepair::Disabled], None));
        let begins = decided_with(&all, None, later, (20, &[], &[]));
        assert_eq!(begins, (vec![FileRepair::Starting(at(21))], None));
        assert!(decided_with(&all, None, later, (21, &[], &[])).1.is_some());
    }

    #[test]
    fn parts_wait_for_their_own_replicas_movements_and_repairs_only() {
        let mut one =
            candidate("/a", vec![part(0, 5, &[2]), part(5, 7, &[3]), part(7, 9, &[2, 4])]);
        let next = |of: &Candidate, dead: &[u128], busy: &[i64]| {
            let (mut states, next) = decided(std::slice::from_ref(of), 20, dead, busy);
            (states.remove(0), next.map(|(_, ranges)| ranges))
        };
        let queued = |ranges: &[(i64, i64)]| (FileRepair::Queued, Some(ranges.to_vec()));
        assert_eq!(next(&one, &[3], &[]), queued(&[(0, 5), (7, 9)]));
        assert_eq!(next(&one, &[4], &[]), queued(&[(0, 5), (5, 7)]));
        assert_eq!(next(&one, &[4], &[0]), queued(&[(5, 7)]));
        let dead = FileRepair::Dead(vec![host(2), host(3)]);
        assert_eq!(next(&one, &[3, 2, 9], &[]), (dead, None));
        assert_eq!(next(&one, &[], &[0, 5, 7]), (FileRepair::Busy, None));
        one.need.parts[1].moves = true;
        assert_eq!(next(&one, &[], &[]), queued(&[(0, 5), (7, 9)]));
        assert_eq!(next(&one, &[2], &[]), (FileRepair::Dead(vec![host(2)]), None));
        assert_eq!(next(&one, &[], &[0, 7]), (FileRepair::Moving, None));
    }

    #[test]
    fn what_is_over_or_cannot_be_is_said() {
        let of = |is_owned, is_alone, copied| {
            let need = Need { parts: Vec::new(), is_alone, is_owned };
            let one = Candidate { file: file("/a", (0, 9), copied), need, failed: None };
            decided(&[one], 20, &[], &[])
        };
        assert_eq!(of(true, false, Some(COPIED)), (vec![FileRepair::Repaired], None));
        assert_eq!(of(true, true, Some(COPIED)), (vec![FileRepair::Alone], None));
        assert_eq!(of(false, false, Some(COPIED)), (vec![FileRepair::NotOwned], None));
        assert_eq!(of(false, false, None), (vec![FileRepair::Copying], None));
    }

    #[test]
    fn a_file_waits_for_the_copies_of_others_that_its_repair_would_read() {
        let copying = |tokens, table| {
            let file = CorruptFile { table, ..file("/b", tokens, None) };
            Candidate { file, need: Need::default(), failed: None }
        };
        let of = |other: Candidate| {
            let all = [candidate("/a", vec![part(0, 5, &[2])]), other];
            decided(&all, 20, &[], &[])
        };
        let waits = FileRepair::CopyingOther("/b".to_owned());
        assert_eq!(of(copying((100, 120), TABLE)).0, [waits, FileRepair::Copying]);
        assert!(of(copying((101, 120), TABLE)).1.is_some());
        assert!(of(copying((-9, -1), TABLE)).1.is_some());
        assert!(of(copying((0, 120), TableId(Uuid::from_u128(8)))).1.is_some());
    }

    #[test]
    fn one_that_failed_rests_ever_longer_and_lets_others_go_first() {
        let mut all =
            [candidate("/a", vec![part(0, 5, &[2])]), candidate("/b", vec![part(0, 9, &[2])])];
        let failed = Failed::and(None, "why".to_owned(), at(20));
        all[0].failed = Some(failed.clone());
        let (states, next) = decided(&all, 79, &[], &[]);
        assert_eq!(states[0], FileRepair::Resting(failed));
        assert_eq!(next, Some((1, vec![(0, 9)])));
        assert_eq!(decided(&all, 80, &[], &[]).1, Some((0, vec![(0, 5)])));
        let mut last: Option<Failed> = None;
        let mut pauses = Vec::new();
        for _ in 0..40 {
            let next = Failed::and(last.as_ref(), String::new(), Instant::ZERO);
            pauses.push(next.due.since(Instant::ZERO).as_secs());
            last = Some(next);
        }
        assert_eq!(pauses[..5], [60, 120, 240, 480, 960]);
        assert_eq!((pauses[39], last.unwrap().attempts), (6 * 3_600, 40));
    }

    #[test]
    fn a_job_takes_what_fits_or_a_piece_of_what_does_not() {
        let range = |a, b| (Token(a), Token(b));
        let bytes_of = |start: Token, end: Token| (end.0 - start.0) as u64;
        let of = |ranges: &[(i64, i64)], count| {
            let ranges: Vec<_> = ranges.iter().map(|(a, b)| range(*a, *b)).collect();
            first_of(&ranges, bytes_of, 100, count)
        };
        assert_eq!(of(&[(0, 60), (60, 100), (200, 201)], 9), [range(0, 60), range(60, 100)]);
        assert_eq!(of(&[(0, 60), (60, 100)], 1), [range(0, 60)]);
        assert_eq!(of(&[(0, 100)], 9), [range(0, 100)]);
        assert_eq!(of(&[(0, 101), (101, 102)], 9), [range(0, 50)]);
        assert_eq!(of(&[(0, 1000)], 9), [range(0, 100)]);
        assert_eq!(of(&[], 9), []);
    }

    #[test]
    fn words_say_what_it_waits_for() {
        let words = |state: FileRepair| {
            let address = |_| SocketAddr::from(([10, 0, 0, 2], 7000));
            state.words(address, at(10)).unwrap_or_default()
        };
        let dead = words(FileRepair::Dead(vec![host(2)]));
        assert_eq!(dead, "its repair waits for replicas that are not alive: /10.0.0.2:7000");
        let failed = Failed { attempts: 2, error: "why".to_owned(), due: at(131) };
        assert_eq!(
            words(FileRepair::Resting(failed.clone())),
            "2 repairs of its ranges failed, the next is in 3 minutes: why"
        );
        assert_eq!(words(FileRepair::Running(3)), "repair #3 of its ranges runs");
        assert_eq!(words(FileRepair::Copying), "");
        let more = Failed { attempts: 3, ..failed.clone() };
        let resting = FileRepair::Resting(failed);
        assert!(resting.is_like(&resting) && !resting.is_like(&FileRepair::Resting(more)));
        assert!(FileRepair::Running(1).is_like(&FileRepair::Running(2)));
        assert!(!FileRepair::Busy.is_like(&FileRepair::Queued));
    }
}
