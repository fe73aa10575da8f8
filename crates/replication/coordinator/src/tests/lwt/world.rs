//! Conditional writes on two registers (the columns `v` and `w` of a partition) and what clients saw
//! of them, for the checker.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use cluster::Consistency;
use data::{ColumnRef, RowRef};
use paxos::Scope;
use paxos::linear::{Call, CasResult, End, RegisterOperation, Registers, Verdict, check};
use request::RequestError;
use stdx::{TimestampMicros, Token};
use store::{Flow, RowSink};

use super::super::nodes::{Shard, TIMEOUT};
use super::super::table::{OTHER, VALUE, read_key, update};
use crate::{
    CasError, CasOperation, CasOrder, CasOutcome, CasRefused, ReplicatedRead, RequestTrace,
    SelectLimits,
};

/// The registers of a partition as rows show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen(pub(super) [u64; 2]);

impl RowSink for Seen {
    fn partition(&mut self, _: Token, _: &[u8], _: Option<RowRef<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowRef<'_>) -> Flow {
        for (to, id) in self.0.iter_mut().zip([VALUE, OTHER]) {
            if let Some(ColumnRef::Simple(cell)) = row.column(id) {
                *to = String::from_utf8_lossy(cell.value).parse().unwrap();
            }
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// UPDATE ... SET target = new IF register = expect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cas {
    pub(super) pk: i32,
    pub(super) register: usize,
    pub(super) expect: u64,
    pub(super) target: usize,
    pub(super) new: u64,
    pub(super) seen: Seen,
    /// Evaluating the condition fails.
    pub(super) refuses: bool,
}

impl Cas {
    pub(super) fn new(pk: i32, expect: u64, new: u64) -> Cas {
        let seen = Seen::default();
        Cas { pk, register: 0, expect, target: 0, new, seen, refuses: false }
    }
}

impl RowSink for Cas {
    fn partition(&mut self, token: Token, key: &[u8], row: Option<RowRef<'_>>) -> Flow {
        self.seen.partition(token, key, row)
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        self.seen.row(clustering, row)
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

impl CasOperation for Cas {
    fn restart(&mut self) {
        self.seen = Seen::default();
    }

    fn decide(&mut self, timestamp: TimestampMicros) -> Result<Option<Vec<u8>>, CasRefused> {
        if self.refuses {
            return Err(CasRefused("no".to_owned()));
        }
        let column = [VALUE, OTHER][self.target];
        let is_met = self.seen.0[self.register] == self.expect;
        Ok(is_met.then(|| update(self.pk, column, &self.new.to_string(), timestamp)))
    }
}

impl Shard {
    pub(super) async fn cas(
        &self,
        cas: &mut Cas,
        scope: Scope,
        commit: Consistency,
    ) -> Result<CasOutcome, CasError> {
        self.cas_traced(cas, scope, commit, None).await
    }

    pub(super) async fn cas_traced(
        &self,
        cas: &mut Cas,
        scope: Scope,
        commit: Consistency,
        trace: Option<Rc<RequestTrace>>,
    ) -> Result<CasOutcome, CasError> {
        let order = CasOrder {
            snapshot: self.snapshot(),
            read: read_key(cas.pk),
            rows_wanted: usize::MAX,
            scope,
            commit,
            durable: true,
            deadline: self.rt.now() + TIMEOUT,
            trace,
        };
        self.coordinator.lwt().cas(order, cas).await
    }

    pub(super) async fn read_serial(&self, pk: i32, scope: Scope) -> Result<[u64; 2], CasError> {
        let order = ReplicatedRead {
            snapshot: self.snapshot(),
            consistency: Consistency::Serial,
            deadline: self.rt.now() + TIMEOUT,
            page_timeout: None,
            rows_wanted: 100,
            limits: SelectLimits { rows_per_partition: u32::MAX },
        };
        let mut seen = Seen::default();
        self.coordinator
            .lwt()
            .read_serial(&read_key(pk), &order.serial(scope, None), &mut seen)
            .await?;
        Ok(seen.0)
    }
}

/// The clients' observations of one partition.
#[derive(Default)]
struct Facts {
    /// Counts events: their order is what matters.
    clock: u64,
    calls: Vec<Call<RegisterOperation>>,
    /// Certainly without effect, or reads without an answer.
    without_effect: BTreeSet<usize>,
    /// Those that run: at which node.
    open: BTreeSet<(u8, usize)>,
    last_value: u64,
}

/// A history that clients share.
#[derive(Clone, Default)]
pub(super) struct History(Rc<RefCell<Facts>>);

/// How many operations ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) applied: usize,
    pub(super) not_applied: usize,
    pub(super) reads: usize,
    pub(super) doubtful: usize,
    pub(super) without_effect: usize,
}

impl History {
    fn begin(&self, node: u8, operation: RegisterOperation) -> usize {
        let mut facts = self.0.borrow_mut();
        facts.clock += 1;
        let call = Call { start: facts.clock, end: End::Unknown, operation };
        facts.calls.push(call);
        let at = facts.calls.len() - 1;
        facts.open.insert((node, at));
        at
    }

    fn end(
        &self,
        node: u8,
        at: usize,
        how: impl FnOnce(&mut Call<RegisterOperation>, u64) -> bool,
    ) {
        let mut facts = self.0.borrow_mut();
        facts.clock += 1;
        let now = facts.clock;
        facts.open.remove(&(node, at));
        if !how(&mut facts.calls[at], now) {
            facts.without_effect.insert(at);
        }
    }

    fn doubtful(call: &mut Call<RegisterOperation>, now: u64) -> bool {
        call.end = End::Doubtful(now);
        matches!(call.operation, RegisterOperation::Cas { .. })
    }

    /// The node is gone, and its clients' operations with it.
    pub(super) fn node_died(&self, node: u8) {
        let open: Vec<_> = {
            let facts = self.0.borrow();
            facts.open.iter().filter(|(n, _)| *n == node).map(|(_, at)| *at).collect()
        };
        for at in open {
            self.end(node, at, History::doubtful);
        }
    }

    pub(super) fn new_value(&self) -> u64 {
        let mut facts = self.0.borrow_mut();
        facts.last_value += 1;
        100 + facts.last_value
    }

    /// One conditional write; gives the registers as the client knows them then.
    pub(super) async fn cas(
        &self,
        node: u8,
        shard: &Shard,
        mut cas: Cas,
        commit: Consistency,
    ) -> Option<[u64; 2]> {
        let Cas { register, expect, target, new, .. } = cas;
        let result = CasResult::Unknown;
        let at = self.begin(node, RegisterOperation::Cas { register, expect, target, new, result });
        let answer = shard.cas(&mut cas, Scope::Global, commit).await;
        let mut known = cas.seen.0;
        if matches!(answer, Ok(CasOutcome::Applied)) {
            known[target] = new;
        }
        let is_known = answer.is_ok();
        self.end(node, at, |call, now| {
            let RegisterOperation::Cas { result, .. } = &mut call.operation else { return true };
            match answer {
                Ok(CasOutcome::Applied) => *result = CasResult::Applied,
                Ok(CasOutcome::NotApplied) => {
                    *result = CasResult::NotApplied(cas.seen.0.to_vec());
                }
                Err(CasError::Unknown { .. }) => return History::doubtful(call, now),
                // Chosen, and not at the commit level.
                Err(CasError::Request(RequestError::WriteTimeout { consistency, .. }))
                    if !consistency.is_serial() =>
                {
                    *result = CasResult::Applied;
                }
                Err(_) => return false,
            }
            call.end = End::Known(now);
            true
        });
        is_known.then_some(known)
    }

    /// One serial read.
    pub(super) async fn read(&self, node: u8, shard: &Shard, pk: i32) -> Option<[u64; 2]> {
        let at = self.begin(node, RegisterOperation::Read(Vec::new()));
        let answer = shard.read_serial(pk, Scope::Global).await.ok();
        self.end(node, at, |call, now| {
            call.end = End::Known(now);
            if let Some(seen) = answer {
                call.operation = RegisterOperation::Read(seen.to_vec());
            }
            answer.is_some()
        });
        answer
    }

    pub(super) fn ends(&self) -> Ends {
        let facts = self.0.borrow();
        let mut ends = Ends { without_effect: facts.without_effect.len(), ..Ends::default() };
        for (at, call) in facts.calls.iter().enumerate() {
            if facts.without_effect.contains(&at) {
                continue;
            }
            match &call.operation {
                RegisterOperation::Read(_) => ends.reads += 1,
                RegisterOperation::Cas { result: CasResult::Applied, .. } => ends.applied += 1,
                RegisterOperation::Cas { result: CasResult::NotApplied(_), .. } => {
                    ends.not_applied += 1;
                }
                RegisterOperation::Cas { result: CasResult::Unknown, .. } => ends.doubtful += 1,
            }
        }
        ends
    }

    /// Checks that the history is that of one register.
    pub(super) fn check(&self) -> Result<(), String> {
        let facts = self.0.borrow();
        assert!(facts.open.is_empty(), "clients still run");
        let calls = facts.calls.iter().enumerate();
        let kept = calls.filter(|(at, _)| !facts.without_effect.contains(at));
        let history: Vec<_> = kept.map(|(_, call)| call.clone()).collect();
        match check(&Registers, &history, 20_000_000) {
            Verdict::Linearizable(_) => Ok(()),
            Verdict::Violation { longest, stuck } => {
                let stuck: Vec<_> = stuck.iter().map(|at| &history[*at]).collect();
                Err(format!("stuck after {} of {}: {stuck:?}", longest.len(), history.len()))
            }
            Verdict::GaveUp => panic!("the history is too long to be checked"),
        }
    }
}
