//! Is a history linearizable? A checker of the clients' observations, with unknown outcomes.
//!
//! Owns the search of Wing and Gong with the memoisation of Lowe: linearize the operations one by one in any order
//! that real time allows, ask the model if each one's result fits, go back when none fits, and never try a (set of
//! operations done, state) twice. Never bound to Paxos: the model defines the object. The simulator's checkers use
//! it per partition.
//!
//! An operation of unknown outcome may take effect at any time after its start, or never. If the object promises
//! more, it takes effect before its client is notified that the outcome is unknown, or never ([`End`]).

use std::hash::Hash;

use stdx::FixedSet;

/// The sequential object.
pub trait Model {
    /// Its state.
    type State: Clone + Eq + Hash;
    /// An operation with what its client saw.
    type Operation;

    /// The state at the start.
    fn initial(&self) -> Self::State;

    /// The state after the operation, or `None` when the client cannot have seen this in `state`.
    /// For an operation of unknown outcome: the state if it takes effect here.
    fn apply(&self, state: &Self::State, operation: &Self::Operation) -> Option<Self::State>;
}

/// The end of an operation. At equal times an end counts as later than a start, so the two overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer came then: it took effect between start and end.
    Known(u64),
    /// The client was notified at that time that the outcome is unknown. The operation took effect
    /// between start and end, or never will. Every operation that starts later sees the same one of
    /// the two.
    Doubtful(u64),
    /// It takes effect at any time after the start, or never.
    Unknown,
}

impl End {
    fn limit(self) -> Option<u64> {
        match self {
            End::Known(at) | End::Doubtful(at) => Some(at),
            End::Unknown => None,
        }
    }
}

/// One operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<O> {
    /// Time at which it began.
    pub start: u64,
    /// Its end.
    pub end: End,
    /// The operation.
    pub operation: O,
}

/// The answer of [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order; here it is, by indices into the history, with doubtful ones where they
    /// take effect or are found to have none. Unknown ones that are not needed are left out.
    Linearizable(Vec<usize>),
    /// There is none.
    Violation {
        /// The longest order found.
        longest: Vec<usize>,
        /// Operations one of which would have had to come next, by index.
        stuck: Vec<usize>,
    },
    /// Not decided within the limit of steps.
    GaveUp,
}

/// Set of operations done.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn with_room(calls: usize) -> Done {
        Done(vec![0; calls.div_ceil(64)])
    }

    fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    fn set(&mut self, at: usize, to: bool) {
        if let Some(word) = self.0.get_mut(at / 64) {
            let bit = 1 << (at % 64);
            *word = if to { *word | bit } else { *word & !bit };
        }
    }
}

struct Frame<S> {
    state: S,
    /// Operations that may come next here, with effect or without, and how many were tried.
    candidates: Vec<(usize, bool)>,
    next: usize,
    /// Index at which the operations of unknown outcome begin, until they are tried.
    unlikely: Option<usize>,
}

impl<S> Frame<S> {
    fn new(state: S, (likely, unlikely): Candidates) -> Frame<S> {
        let from = likely.len();
        Frame { state, candidates: [likely, unlikely].concat(), next: 0, unlikely: Some(from) }
    }
}

/// Candidates for the next step: operations with a known outcome, and those that may never take
/// effect.
type Candidates = (Vec<(usize, bool)>, Vec<(usize, bool)>);

/// No operation of known outcome fits. Of those of unknown outcome, the ones after which such an
/// operation fits are tried first. Without this a search among many of them does not end.
fn sort_unlikely<M: Model>(
    model: &M,
    history: &[Call<M::Operation>],
    frame: &mut Frame<M::State>,
    from: usize,
) {
    let (likely, unlikely) = frame.candidates.split_at_mut(from);
    let after = |state: &M::State, at: usize| model.apply(state, &history.get(at)?.operation);
    let helps = |at: usize| {
        after(&frame.state, at).is_some_and(|s| likely.iter().any(|(l, _)| after(&s, *l).is_some()))
    };
    unlikely.sort_by_cached_key(|(at, _)| !helps(*at));
}

/// Looks for an order of `history` in which every answer fits the model, trying at most
/// `steps_max` operations.
pub fn check<M: Model>(model: &M, history: &[Call<M::Operation>], steps_max: u64) -> Verdict {
    let mut by_start: Vec<usize> = (0..history.len()).collect();
    by_start.sort_by_key(|at| history.get(*at).map(|c| c.start));
    let bounded = |at: usize| history.get(at).is_some_and(|c| c.end.limit().is_some());
    let known = (0..history.len()).filter(|at| bounded(*at)).count();

    let mut done = Done::with_room(history.len());
    let mut order: Vec<usize> = Vec::new();
    let mut known_done = 0;
    let mut seen: FixedSet<(Done, M::State)> = FixedSet::default();
    let initial = model.initial();
    let first = candidates(history, &by_start, &done);
    let all = |(likely, unlikely): &Candidates| -> Vec<usize> {
        likely.iter().chain(unlikely).map(|(at, _)| *at).collect()
    };
    let mut stuck: Vec<usize> = all(&first);
    let mut longest: Vec<usize> = Vec::new();
    let mut stack = vec![Frame::new(initial, first)];
    let mut steps = 0u64;

    while let Some(frame) = stack.last_mut() {
        if known_done == known {
            return Verdict::Linearizable(order);
        }
        if let Some(from) = frame.unlikely.take_if(|from| *from == frame.next) {
            sort_unlikely(model, history, frame, from);
        }
        let Some(&(at, effect)) = frame.candidates.get(frame.next) else {
            stack.pop();
            if let Some(last) = order.pop() {
                done.set(last, false);
                known_done -= usize::from(bounded(last));
            }
            continue;
        };
        frame.next += 1;
        steps += 1;
        if steps > steps_max {
            return Verdict::GaveUp;
        }
        let Some(call) = history.get(at) else { continue };
        let state = match effect {
            true => model.apply(&frame.state, &call.operation),
            false => Some(frame.state.clone()),
        };
        let Some(state) = state else { continue };
        if effect && !matches!(call.end, End::Known(_)) && state == frame.state {
            // An operation without effect here equals one that never takes effect, which is a
            // candidate of its own.
            continue;
        }
        done.set(at, true);
        if !seen.insert((done.clone(), state.clone())) {
            done.set(at, false);
            continue;
        }
        order.push(at);
        known_done += usize::from(bounded(at));
        let after = candidates(history, &by_start, &done);
        if order.len() > longest.len() {
            longest.clone_from(&order);
            stuck = all(&after);
            stuck.dedup();
        }
        stack.push(Frame::new(state, after));
    }
    Verdict::Violation { longest, stuck }
}

/// Operations not done that began before every end of one that is not done, each with whether it
/// is to take effect.
fn candidates<O>(history: &[Call<O>], by_start: &[usize], done: &Done) -> Candidates {
    let open = || {
        let calls = by_start.iter().filter(|at| !done.contains(**at));
        calls.filter_map(|at| Some((*at, history.get(*at)?)))
    };
    let first_end = open().filter_map(|(_, c)| c.end.limit()).min().unwrap_or(u64::MAX);
    // Unknown ones last: most histories need few of them.
    let (mut likely, mut unlikely) = (Vec::new(), Vec::new());
    for (at, call) in open().take_while(|(_, c)| c.start <= first_end) {
        match call.end {
            End::Known(_) => likely.push((at, true)),
            End::Doubtful(_) => likely.extend([(at, true), (at, false)]),
            End::Unknown => unlikely.push((at, true)),
        }
    }
    (likely, unlikely)
}

/// A few registers that conditional writes and reads of all of them work on: the shape of LWTs and
/// serial reads within one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers;

/// An operation on [`Registers`]; all start as zero, a register that was never written is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterOperation {
    /// All registers, as seen.
    Read(Vec<u64>),
    /// If register `register` is `expect`, set register `target` to `new`.
    Cas {
        /// The one that is compared.
        register: usize,
        /// With what.
        expect: u64,
        /// The one that is set.
        target: usize,
        /// To what.
        new: u64,
        /// The answer to the client.
        result: CasResult,
    },
}

/// The client's knowledge of its conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CasResult {
    /// It was applied.
    Applied,
    /// It was not; the registers were these.
    NotApplied(Vec<u64>),
    /// Nothing.
    Unknown,
}

impl Model for Registers {
    type State = Vec<u64>;
    type Operation = RegisterOperation;

    fn initial(&self) -> Vec<u64> {
        Vec::new()
    }

    fn apply(&self, state: &Vec<u64>, operation: &RegisterOperation) -> Option<Vec<u64>> {
        let get = |at: usize| state.get(at).copied().unwrap_or(0);
        let equal = |seen: &Vec<u64>| {
            (0..seen.len().max(state.len())).all(|at| get(at) == seen.get(at).copied().unwrap_or(0))
        };
        match operation {
            RegisterOperation::Read(seen) => equal(seen).then(|| state.clone()),
            RegisterOperation::Cas { register, expect, target, new, result } => {
                let met = get(*register) == *expect;
                match result {
                    CasResult::NotApplied(seen) => {
                        return (!met && equal(seen)).then(|| state.clone());
                    }
                    CasResult::Applied if !met => return None,
                    CasResult::Unknown if !met => return Some(state.clone()),
                    CasResult::Applied | CasResult::Unknown => {}
                }
                let mut after = state.clone();
                if after.len() <= *target {
                    after.resize(target.saturating_add(1), 0);
                }
                if let Some(slot) = after.get_mut(*target) {
                    *slot = *new;
                }
                Some(after)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEPS: u64 = 1_000_000;

    fn read(start: u64, end: u64, seen: &[u64]) -> Call<RegisterOperation> {
        Call { start, end: End::Known(end), operation: RegisterOperation::Read(seen.to_vec()) }
    }

    fn cas(
        start: u64,
        end: Option<u64>,
        expect: u64,
        new: u64,
        result: CasResult,
    ) -> Call<RegisterOperation> {
        let operation = RegisterOperation::Cas { register: 0, expect, target: 0, new, result };
        let end = end.map_or(End::Unknown, End::Known);
        Call { start, end, operation }
    }

    fn check_registers(history: &[Call<RegisterOperation>]) -> bool {
        match check(&Registers, history, STEPS) {
            Verdict::Linearizable(_) => true,
            Verdict::Violation { .. } => false,
            Verdict::GaveUp => unreachable!("the limit is far away"),
        }
    }

    #[test]
    fn a_read_after_a_write_sees_it() {
        let write = cas(0, Some(10), 0, 1, CasResult::Applied);
        assert!(check_registers(&[write.clone(), read(11, 12, &[1])]));
        assert!(!check_registers(&[write.clone(), read(11, 12, &[0])]));
        // Overlapping, either is right; one after the other, they must not go back.
        assert!(check_registers(&[write.clone(), read(5, 12, &[0])]));
        assert!(check_registers(&[write.clone(), read(1, 2, &[0]), read(3, 4, &[1])]));
        assert!(!check_registers(&[write, read(1, 2, &[1]), read(3, 4, &[0])]));
    }

    #[test]
    fn an_unknown_write_may_come_late_or_never_but_not_come_and_go() {
        let write = cas(0, None, 0, 1, CasResult::Unknown);
        assert!(check_registers(&[write.clone(), read(11, 12, &[0]), read(13, 14, &[0])]));
        assert!(check_registers(&[write.clone(), read(11, 12, &[0]), read(13, 14, &[1])]));
        assert!(!check_registers(&[write.clone(), read(11, 12, &[1]), read(13, 14, &[0])]));
        let applied = cas(22, Some(23), 1, 2, CasResult::Applied);
        assert!(!check_registers(&[write, read(11, 12, &[5]), applied]));
    }

    #[test]
    fn the_one_unknown_write_that_was_seen_is_found_among_many() {
        // Each may come at any time or never; some order of any of them is wrong.
        let mut history: Vec<_> =
            (0..60).map(|n| cas(n, None, n % 7, n + 1, CasResult::Unknown)).collect();
        history.push(cas(70, None, 0, 1_000, CasResult::Unknown));
        history.push(read(100, 101, &[0]));
        history.push(read(200, 201, &[1_000]));
        match check(&Registers, &history, 2_000) {
            Verdict::Linearizable(order) => assert_eq!(order, [61, 60, 62]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_doubtful_write_is_seen_by_all_that_start_later_or_by_none() {
        let mut write = cas(0, None, 0, 1, CasResult::Unknown);
        write.end = End::Doubtful(10);
        assert!(check_registers(&[write.clone(), read(11, 12, &[0]), read(13, 14, &[0])]));
        assert!(check_registers(&[write.clone(), read(11, 12, &[1]), read(13, 14, &[1])]));
        assert!(check_registers(&[write.clone(), read(5, 12, &[0]), read(13, 14, &[1])]));
        // CASSANDRA-12126: not there, and then there.
        assert!(!check_registers(&[write, read(11, 12, &[0]), read(13, 14, &[1])]));
    }

    #[test]
    fn two_winners_of_one_condition_are_a_violation() {
        let a = cas(0, Some(10), 0, 1, CasResult::Applied);
        let b = cas(0, Some(10), 0, 2, CasResult::Applied);
        let verdict = check(&Registers, &[a.clone(), b.clone()], STEPS);
        let Verdict::Violation { longest, stuck } = verdict else { panic!("{verdict:?}") };
        assert_eq!((longest.len(), stuck.len()), (1, 1));
        let lost = cas(0, Some(10), 0, 2, CasResult::NotApplied(vec![1]));
        assert_eq!(check(&Registers, &[lost, a], STEPS), Verdict::Linearizable(vec![1, 0]));
        assert_eq!(check(&Registers, &[b.clone(), b], 1), Verdict::GaveUp);
    }

    /// All orders, tried one by one.
    fn brute_force(history: &[Call<RegisterOperation>]) -> bool {
        fn go(h: &[Call<RegisterOperation>], used: &mut Vec<bool>, state: &Vec<u64>) -> bool {
            if h.iter().zip(used.iter()).all(|(c, used)| *used || c.end == End::Unknown) {
                return true;
            }
            for at in 0..h.len() {
                let open = |c: &Call<_>| c.end.limit().is_some_and(|end| end < h[at].start);
                if used[at] || (0..h.len()).any(|i| !used[i] && open(&h[i])) {
                    continue;
                }
                let skipped = matches!(h[at].end, End::Doubtful(_)).then(|| state.clone());
                let applied = Registers.apply(state, &h[at].operation);
                for next in [applied, skipped].into_iter().flatten() {
                    used[at] = true;
                    if go(h, used, &next) {
                        return true;
                    }
                    used[at] = false;
                }
            }
            false
        }
        go(history, &mut vec![false; history.len()], &Vec::new())
    }

    proptest! {
        #[test]
        fn the_search_agrees_with_trying_all_orders(
            calls in prop::collection::vec((0..12u64, 1..6u64, 0..5u8, 0..3u64, 0..3u64), 1..7),
        ) {
            let history: Vec<_> = calls.into_iter().map(|(start, length, kind, a, b)| {
                let end = Some(start + length);
                match kind {
                    0 => read(start, start + length, &[a]),
                    1 => cas(start, end, a, b, CasResult::Applied),
                    2 => cas(start, end, a, b, CasResult::NotApplied(vec![b])),
                    3 => cas(start, None, a, b, CasResult::Unknown),
                    _ => {
                        let end = End::Doubtful(start + length);
                        Call { end, ..cas(start, None, a, b, CasResult::Unknown) }
                    }
                }
            }).collect();
            prop_assert_eq!(check_registers(&history), brute_force(&history));
        }
    }
}
