//! The plan of a comparison: the next segments to read, compare, split and merge, in the ranges of one table that one
//! set of replicas shares.
//!
//! A state machine: [`Plan::step`] returns the next step, the driver executes it and reports the result. At most one
//! step is under way.

use std::collections::VecDeque;

use crate::segment::Segment;
use crate::wire::Digest;

/// When what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Bytes of this node that are compared with one question.
    pub asked_bytes: usize,
    /// Segments that are compared with one question.
    pub asked_segments: usize,
    /// A segment of so many bytes that differs is merged instead of being split again.
    pub merged_bytes: usize,
}

/// This node's content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The segment.
    pub segment: Segment,
    /// Digest of its content here.
    pub digest: Digest,
    /// Bytes of its content here.
    pub bytes: usize,
}

/// Replicas that have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their digest.
    pub digest: Digest,
    /// Numbers of peers.
    pub peers: Vec<usize>,
}

/// A segment of which replicas have different content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The segment.
    pub segment: Segment,
    /// Bytes of this node's content.
    pub bytes: usize,
    /// Peers that have what this node has.
    pub like_own: Vec<usize>,
    /// The others; at least one.
    pub others: Vec<Group>,
}

/// Next step of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read this node's next page of a segment, then [`Plan::read`].
    Read(Segment),
    /// Ask all peers for the digests of these, then [`Plan::answered`].
    Ask(Vec<Own>),
    /// Cut a segment, read this node's digests of the parts, ask one of each group for theirs, then
    /// [`Plan::split`].
    Split(Difference),
    /// Fetch one page of each group, merge, and send what is missing.
    Merge(Difference),
    /// Everything was compared.
    Done,
}

/// See the module.
#[derive(Debug)]
pub struct Plan {
    limits: PlanLimits,
    /// In ring order.
    unread: VecDeque<Segment>,
    unasked: Vec<Own>,
    unasked_bytes: usize,
    /// Differences to split; the next one last.
    apart: Vec<Difference>,
    to_merge: VecDeque<Difference>,
    /// Segments compared, and those of them that differed.
    compared: u64,
    differing: u64,
}

impl Plan {
    /// A plan over segments, in order.
    pub fn new(segments: impl IntoIterator<Item = Segment>, limits: PlanLimits) -> Plan {
        Plan {
            limits,
            unread: segments.into_iter().collect(),
            unasked: Vec::new(),
            unasked_bytes: 0,
            apart: Vec::new(),
            to_merge: VecDeque::new(),
            compared: 0,
            differing: 0,
        }
    }

    /// Tokens that this node has not read yet.
    pub fn left(&self) -> u128 {
        self.unread.iter().map(Segment::width).sum()
    }

    /// Segments that were read and compared, and those of them that differed.
    pub fn counts(&self) -> (u64, u64) {
        (self.compared, self.differing)
    }

    /// Returns the next step.
    pub fn step(&mut self) -> Step {
        if let Some(difference) = self.to_merge.pop_front() {
            return Step::Merge(difference);
        }
        if let Some(difference) = self.apart.pop() {
            return Step::Split(difference);
        }
        let is_full = self.unasked_bytes >= self.limits.asked_bytes
            || self.unasked.len() >= self.limits.asked_segments
            || (!self.unasked.is_empty() && stdx::chaos!("repair-few-stretches"));
        if !is_full && let Some(segment) = self.unread.pop_front() {
            return Step::Read(segment);
        }
        if self.unasked.is_empty() {
            return Step::Done;
        }
        self.unasked_bytes = 0;
        Step::Ask(std::mem::take(&mut self.unasked))
    }

    /// Adds the segments of this node's page, and the segments left after it.
    pub fn read(&mut self, own: Vec<Own>, behind: Vec<Segment>) {
        stdx::invariant!(
            self.unasked_bytes < self.limits.asked_bytes.max(1)
                && self.unasked.len() < self.limits.asked_segments.max(1),
            "INV-repair-4: read on with {} stretches of {} bytes that wait for their comparison",
            self.unasked.len(),
            self.unasked_bytes
        );
        for part in behind.into_iter().rev() {
            self.unread.push_front(part);
        }
        self.unasked_bytes += own.iter().map(|o| o.bytes).sum::<usize>();
        self.unasked.extend(own);
    }

    /// The digests of what was asked for, of each peer in order of their numbers.
    pub fn answered(&mut self, asked: Vec<Own>, answers: &[Vec<Digest>]) {
        self.compared += asked.len() as u64;
        for (at, own) in asked.into_iter().enumerate() {
            let of_peers = answers
                .iter()
                .enumerate()
                .map(|(peer, digests)| (vec![peer], digests.get(at).copied().flatten()));
            if let Some(difference) = difference(own, Vec::new(), of_peers) {
                self.differing += 1;
                self.sort(difference);
            }
        }
        // The first one next.
        self.apart.reverse();
    }

    fn sort(&mut self, difference: Difference) {
        let is_small = difference.bytes <= self.limits.merged_bytes;
        // Peers that have more than can be compared at once are read page by page.
        let is_long = difference.others.iter().any(|g| g.digest.is_none());
        if is_long {
            stdx::reached!("repair-long-replica");
        }
        match is_small || is_long {
            true => self.to_merge.push_back(difference),
            false => self.apart.push(difference),
        }
    }

    /// A difference was split into parts; the answers are those of one peer of each group of
    /// `of.others`, in that order.
    pub fn split(&mut self, of: Difference, parts: Vec<Own>, answers: &[Vec<Digest>]) {
        stdx::invariant!(
            answers.len() == of.others.len(),
            "INV-repair-1: {} answers of {} groups, the others would be taken for equal",
            answers.len(),
            of.others.len()
        );
        let count = parts.len();
        if count < 2 {
            stdx::reached!("repair-cannot-be-cut");
            return self.to_merge.push_back(of);
        }
        let mut found = Vec::new();
        for (at, own) in parts.into_iter().enumerate() {
            let groups =
                of.others.iter().zip(answers).map(|(group, digests)| {
                    (group.peers.clone(), digests.get(at).copied().flatten())
                });
            found.extend(difference(own, of.like_own.clone(), groups));
        }
        if found.len() * 2 > count {
            stdx::reached!("repair-most-differs");
            // Most of it differs: cutting further would only be more questions.
            self.to_merge.extend(found);
            return;
        }
        for difference in found.into_iter().rev() {
            self.sort(difference);
        }
    }
}

/// The difference between this node's content and that of peers, if there is one.
fn difference(
    own: Own,
    mut like_own: Vec<usize>,
    others: impl Iterator<Item = (Vec<usize>, Digest)>,
) -> Option<Difference> {
    let mut groups: Vec<Group> = Vec::new();
    for (peers, digest) in others {
        if digest.is_some() && digest == own.digest {
            like_own.extend(peers);
            continue;
        }
        // Long segments have no digest, so they are never grouped.
        let alike = groups.iter_mut().find(|g| g.digest.is_some() && g.digest == digest);
        match alike {
            Some(group) => group.peers.extend(peers),
            None => groups.push(Group { digest, peers }),
        }
    }
    stdx::debug_invariant!(
        own.digest.is_some() || like_own.is_empty(),
        "INV-repair-1: replicas {like_own:?} count as equal to content without a digest"
    );
    let Own { segment, bytes, .. } = own;
    (!groups.is_empty()).then_some(Difference { segment, bytes, like_own, others: groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Token;

    const LIMITS: PlanLimits = PlanLimits { asked_bytes: 100, asked_segments: 3, merged_bytes: 10 };

    fn segment(n: i64) -> Segment {
        Segment::of_tokens(Token(n), Token(n + 10))
    }

    fn own(n: i64, digest: u128, bytes: usize) -> Own {
        Own { segment: segment(n), digest: Some(digest), bytes }
    }

    #[test]
    fn equal_replicas_are_read_once_and_asked_in_batches() {
        let mut plan = Plan::new([segment(0), segment(10), segment(20)], LIMITS);
        assert_eq!(plan.left(), 30);
        assert_eq!(plan.step(), Step::Read(segment(0)));
        plan.read(vec![own(0, 1, 60)], vec![segment(5)]);
        assert_eq!(plan.step(), Step::Read(segment(5)));
        plan.read(vec![own(5, 2, 60)], vec![]);
        let asked = vec![own(0, 1, 60), own(5, 2, 60)];
        assert_eq!(plan.step(), Step::Ask(asked.clone()));
        plan.answered(asked, &[vec![Some(1), Some(2)], vec![Some(1), Some(2)]]);
        assert_eq!(plan.step(), Step::Read(segment(10)));
        plan.read(vec![own(10, 3, 1)], vec![]);
        assert_eq!(plan.step(), Step::Read(segment(20)));
        plan.read(vec![own(20, 4, 1), own(25, 5, 1)], vec![]);
        let Step::Ask(asked) = plan.step() else { panic!("nothing is asked") };
        assert_eq!((asked.len(), plan.left()), (3, 0));
        let equal = vec![Some(3), Some(4), Some(5)];
        plan.answered(asked, &[equal.clone(), equal]);
        assert_eq!(plan.step(), Step::Done);
        assert_eq!(plan.counts(), (5, 0));
    }

    #[test]
    fn what_differs_is_cut_until_it_is_small() {
        let mut plan = Plan::new([segment(0)], LIMITS);
        let Step::Read(_) = plan.step() else { panic!("nothing is read") };
        plan.read(vec![own(0, 1, 60), own(3, 7, 5)], vec![]);
        let Step::Ask(asked) = plan.step() else { panic!("nothing is asked") };
        // Peer 0 is like this node in the first, peers 1 and 2 are alike there.
        let answers = [vec![Some(1), Some(7)], vec![Some(2), Some(8)], vec![Some(2), Some(9)]];
        plan.answered(asked, &answers);
        // The small one needs no cut.
        let Step::Merge(small) = plan.step() else { panic!("nothing is merged") };
        assert_eq!((small.segment.clone(), small.like_own.clone()), (segment(3), vec![0]));
        assert_eq!(small.others.iter().map(|g| g.peers.clone()).collect::<Vec<_>>(), [[1], [2]]);
        let Step::Split(large) = plan.step() else { panic!("nothing is cut") };
        assert_eq!(large.others, [Group { digest: Some(2), peers: vec![1, 2] }]);
        let parts = (0..4).map(|n| own(n, n as u128, 15)).collect();
        plan.split(large, parts, &[vec![Some(0), Some(99), Some(2), Some(3)]]);
        let Step::Split(part) = plan.step() else { panic!("nothing is cut again") };
        assert_eq!((part.segment.clone(), part.like_own.clone()), (segment(1), vec![0]));
        assert_eq!(part.others, [Group { digest: Some(99), peers: vec![1, 2] }]);
        // A segment that cannot be cut is merged.
        plan.split(part.clone(), vec![own(1, 1, 15)], &[vec![Some(99)]]);
        assert_eq!(plan.step(), Step::Merge(part));
        assert_eq!(plan.step(), Step::Done);
        assert_eq!(plan.counts(), (2, 2));
    }

    #[test]
    fn when_most_parts_differ_they_are_merged_at_once() {
        let mut plan = Plan::new([segment(0)], LIMITS);
        plan.step();
        plan.read(vec![own(0, 1, 60)], vec![]);
        let Step::Ask(asked) = plan.step() else { panic!("nothing is asked") };
        plan.answered(asked, &[vec![Some(5)]]);
        let Step::Split(large) = plan.step() else { panic!("nothing is cut") };
        let parts = (0..3).map(|n| own(n, n as u128, 20)).collect();
        plan.split(large, parts, &[vec![Some(10), Some(11), Some(2)]]);
        for n in 0..2 {
            let Step::Merge(part) = plan.step() else { panic!("nothing is merged") };
            assert_eq!(part.segment, segment(n));
        }
        assert_eq!(plan.step(), Step::Done);
    }

    #[test]
    fn long_replicas_are_merged_page_by_page_and_never_taken_for_equal() {
        let mut plan = Plan::new([segment(0)], LIMITS);
        plan.step();
        plan.read(vec![Own { digest: None, ..own(0, 0, 60) }], vec![]);
        let Step::Ask(asked) = plan.step() else { panic!("nothing is asked") };
        plan.answered(asked, &[vec![None], vec![None]]);
        let Step::Merge(long) = plan.step() else { panic!("nothing is merged") };
        assert_eq!((long.like_own.len(), long.others.len()), (0, 2));
        // Too few digests are no agreement either.
        let mut plan = Plan::new([segment(0)], LIMITS);
        plan.step();
        plan.read(vec![own(0, 0, 60)], vec![]);
        let Step::Ask(asked) = plan.step() else { panic!("nothing is asked") };
        plan.answered(asked, &[vec![]]);
        assert!(matches!(plan.step(), Step::Merge(_)));
    }
}
