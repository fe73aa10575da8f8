//! What is compared, cut and merged next: the walk over the ranges of one table that one set of
//! replicas shares.
//!
//! A state machine: [`Walk::step`] says what to do, the driver does it and says what came of it.
//! At most one thing is under way.

use std::collections::VecDeque;

use crate::stretch::Stretch;
use crate::wire::Digest;

/// When what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkLimits {
    /// Bytes of this node that are compared with one question.
    pub asked_bytes: usize,
    /// Stretches that are compared with one question.
    pub asked_stretches: usize,
    /// A stretch of so many bytes that differs is merged instead of being cut again.
    pub merged_bytes: usize,
}

/// What this node has of a stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The stretch.
    pub stretch: Stretch,
    /// Of its content here.
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

/// A stretch of which replicas have different content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The stretch.
    pub stretch: Stretch,
    /// Bytes of this node's content.
    pub bytes: usize,
    /// Peers that have what this node has.
    pub like_own: Vec<usize>,
    /// The others; at least one.
    pub others: Vec<Group>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read this node's next page of a stretch, then [`Walk::read`].
    Read(Stretch),
    /// Ask all peers for the digests of these, then [`Walk::answered`].
    Ask(Vec<Own>),
    /// Cut a stretch, read this node's digests of the parts, ask one of each group for theirs, then
    /// [`Walk::cut`].
    Cut(Difference),
    /// Fetch one page of each group, merge, and send what is missing.
    Merge(Difference),
    /// Everything was compared.
    Done,
}

/// See the module.
#[derive(Debug)]
pub struct Walk {
    limits: WalkLimits,
    /// In ring order.
    unread: VecDeque<Stretch>,
    unasked: Vec<Own>,
    unasked_bytes: usize,
    /// What to cut; the next one last.
    apart: Vec<Difference>,
    to_merge: VecDeque<Difference>,
    /// Stretches compared, and those of them that differed.
    compared: u64,
    differing: u64,
}

impl Walk {
    /// A walk over stretches, in order.
    pub fn new(stretches: impl IntoIterator<Item = Stretch>, limits: WalkLimits) -> Walk {
        Walk {
            limits,
            unread: stretches.into_iter().collect(),
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
        self.unread.iter().map(Stretch::width).sum()
    }

    /// Stretches that were read and compared, and those of them that differed.
    pub fn counts(&self) -> (u64, u64) {
        (self.compared, self.differing)
    }

    /// What to do.
    pub fn step(&mut self) -> Step {
        if let Some(difference) = self.to_merge.pop_front() {
            return Step::Merge(difference);
        }
        if let Some(difference) = self.apart.pop() {
            return Step::Cut(difference);
        }
        let is_full = self.unasked_bytes >= self.limits.asked_bytes
            || self.unasked.len() >= self.limits.asked_stretches
            || (!self.unasked.is_empty() && stdx::chaos!("repair-few-stretches"));
        if !is_full && let Some(stretch) = self.unread.pop_front() {
            return Step::Read(stretch);
        }
        if self.unasked.is_empty() {
            return Step::Done;
        }
        self.unasked_bytes = 0;
        Step::Ask(std::mem::take(&mut self.unasked))
    }

    /// This node's page had these, and these are behind it.
    pub fn read(&mut self, own: Vec<Own>, behind: Vec<Stretch>) {
        stdx::invariant!(
            self.unasked_bytes < self.limits.asked_bytes.max(1)
                && self.unasked.len() < self.limits.asked_stretches.max(1),
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

    /// A difference was cut into parts; the answers are those of one peer of each group of
    /// `of.others`, in that order.
    pub fn cut(&mut self, of: Difference, parts: Vec<Own>, answers: &[Vec<Digest>]) {
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
        // Of long ones nothing says that they are alike.
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
    let Own { stretch, bytes, .. } = own;
    (!groups.is_empty()).then_some(Difference { stretch, bytes, like_own, others: groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Token;

    const LIMITS: WalkLimits =
        WalkLimits { asked_bytes: 100, asked_stretches: 3, merged_bytes: 10 };

    fn stretch(n: i64) -> Stretch {
        Stretch::of_tokens(Token(n), Token(n + 10))
    }

    fn own(n: i64, digest: u128, bytes: usize) -> Own {
        Own { stretch: stretch(n), digest: Some(digest), bytes }
    }

    #[test]
    fn equal_replicas_are_read_once_and_asked_in_batches() {
        let mut walk = Walk::new([stretch(0), stretch(10), stretch(20)], LIMITS);
        assert_eq!(walk.left(), 30);
        assert_eq!(walk.step(), Step::Read(stretch(0)));
        walk.read(vec![own(0, 1, 60)], vec![stretch(5)]);
        assert_eq!(walk.step(), Step::Read(stretch(5)));
        walk.read(vec![own(5, 2, 60)], vec![]);
        let asked = vec![own(0, 1, 60), own(5, 2, 60)];
        assert_eq!(walk.step(), Step::Ask(asked.clone()));
        walk.answered(asked, &[vec![Some(1), Some(2)], vec![Some(1), Some(2)]]);
        assert_eq!(walk.step(), Step::Read(stretch(10)));
        walk.read(vec![own(10, 3, 1)], vec![]);
        assert_eq!(walk.step(), Step::Read(stretch(20)));
        walk.read(vec![own(20, 4, 1), own(25, 5, 1)], vec![]);
        let Step::Ask(asked) = walk.step() else { panic!("nothing is asked") };
        assert_eq!((asked.len(), walk.left()), (3, 0));
        let equal = vec![Some(3), Some(4), Some(5)];
        walk.answered(asked, &[equal.clone(), equal]);
        assert_eq!(walk.step(), Step::Done);
        assert_eq!(walk.counts(), (5, 0));
    }

    #[test]
    fn what_differs_is_cut_until_it_is_small() {
        let mut walk = Walk::new([stretch(0)], LIMITS);
        let Step::Read(_) = walk.step() else { panic!("nothing is read") };
        walk.read(vec![own(0, 1, 60), own(3, 7, 5)], vec![]);
        let Step::Ask(asked) = walk.step() else { panic!("nothing is asked") };
        // Peer 0 is like this node in the first, peers 1 and 2 are alike there.
        let answers = [vec![Some(1), Some(7)], vec![Some(2), Some(8)], vec![Some(2), Some(9)]];
        walk.answered(asked, &answers);
        // The small one needs no cut.
        let Step::Merge(small) = walk.step() else { panic!("nothing is merged") };
        assert_eq!((small.stretch.clone(), small.like_own.clone()), (stretch(3), vec![0]));
        assert_eq!(small.others.iter().map(|g| g.peers.clone()).collect::<Vec<_>>(), [[1], [2]]);
        let Step::Cut(large) = walk.step() else { panic!("nothing is cut") };
        assert_eq!(large.others, [Group { digest: Some(2), peers: vec![1, 2] }]);
        let parts = (0..4).map(|n| own(n, n as u128, 15)).collect();
        walk.cut(large, parts, &[vec![Some(0), Some(99), Some(2), Some(3)]]);
        let Step::Cut(part) = walk.step() else { panic!("nothing is cut again") };
        assert_eq!((part.stretch.clone(), part.like_own.clone()), (stretch(1), vec![0]));
        assert_eq!(part.others, [Group { digest: Some(99), peers: vec![1, 2] }]);
        // What cannot be cut is merged.
        walk.cut(part.clone(), vec![own(1, 1, 15)], &[vec![Some(99)]]);
        assert_eq!(walk.step(), Step::Merge(part));
        assert_eq!(walk.step(), Step::Done);
        assert_eq!(walk.counts(), (2, 2));
    }

    #[test]
    fn when_most_parts_differ_they_are_merged_at_once() {
        let mut walk = Walk::new([stretch(0)], LIMITS);
        walk.step();
        walk.read(vec![own(0, 1, 60)], vec![]);
        let Step::Ask(asked) = walk.step() else { panic!("nothing is asked") };
        walk.answered(asked, &[vec![Some(5)]]);
        let Step::Cut(large) = walk.step() else { panic!("nothing is cut") };
        let parts = (0..3).map(|n| own(n, n as u128, 20)).collect();
        walk.cut(large, parts, &[vec![Some(10), Some(11), Some(2)]]);
        for n in 0..2 {
            let Step::Merge(part) = walk.step() else { panic!("nothing is merged") };
            assert_eq!(part.stretch, stretch(n));
        }
        assert_eq!(walk.step(), Step::Done);
    }

    #[test]
    fn long_replicas_are_merged_page_by_page_and_never_taken_for_equal() {
        let mut walk = Walk::new([stretch(0)], LIMITS);
        walk.step();
        walk.read(vec![Own { digest: None, ..own(0, 0, 60) }], vec![]);
        let Step::Ask(asked) = walk.step() else { panic!("nothing is asked") };
        walk.answered(asked, &[vec![None], vec![None]]);
        let Step::Merge(long) = walk.step() else { panic!("nothing is merged") };
        assert_eq!((long.like_own.len(), long.others.len()), (0, 2));
        // Too few digests are no agreement either.
        let mut walk = Walk::new([stretch(0)], LIMITS);
        walk.step();
        walk.read(vec![own(0, 0, 60)], vec![]);
        let Step::Ask(asked) = walk.step() else { panic!("nothing is asked") };
        walk.answered(asked, &[vec![]]);
        assert!(matches!(walk.step(), Step::Merge(_)));
    }
}
