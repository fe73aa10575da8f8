//! One replica: an acceptor over a simulated disk that loses what was not synced.

use std::collections::BTreeMap;
use std::rc::Rc;

use stdx::{Epoch, WallMicros};

use crate::acceptor::cells::{Column, RowUpdate};
use crate::acceptor::{Acceptor, AcceptorState, Admission, Input, Output, Record, ReplyTo};
use crate::ballot::{Ballot, Scope};

/// Payload: register number, then its new value.
pub(super) type Payload = Rc<[u8]>;
/// Registers of the partition with their write timestamps.
pub(super) type Data = [(i64, u64); 2];

pub(super) const SKEW_MAX_MICROS: u64 = 50_000;
/// How far ahead of its clock a replica promises without a record.
const HORIZON_MICROS: u64 = 2_000;

pub(super) fn payload(register: usize, value: u64) -> Payload {
    let mut bytes = vec![register as u8];
    bytes.extend(value.to_be_bytes());
    bytes.into()
}

fn write(data: &mut Data, at: Ballot, payload: &[u8]) {
    let (register, value) = (usize::from(payload[0]), payload[1..].try_into().unwrap());
    let cell = (at.timestamp().0, u64::from_be_bytes(value));
    // Cassandra's rule: the later timestamp, then the larger value.
    data[register] = data[register].max(cell);
}

pub(super) fn merge(a: &mut Data, b: &Data) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = (*a).max(*b);
    }
}

/// A row of `system.paxos` as a store keeps it: per cell the newest write, deletions before values.
#[derive(Clone, Debug, Default)]
struct Row(BTreeMap<Column, (i64, bool, Vec<u8>)>);

impl Row {
    fn write(&mut self, update: RowUpdate) {
        for (column, value) in update.cells {
            let cell = (update.timestamp.0, value.is_none(), value.unwrap_or_default());
            let slot = self.0.entry(column).or_insert_with(|| cell.clone());
            *slot = slot.clone().max(cell);
        }
    }

    fn read(&self) -> AcceptorState<Payload> {
        AcceptorState::from_row(|column| {
            let (_, deleted, value) = self.0.get(&column)?;
            (!deleted).then_some(value.as_slice())
        })
        .unwrap()
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) acceptor: Acceptor<Payload>,
    pub(super) data: Data,
    row: Row,
    folded: AcceptorState<Payload>,
    durable_data: Data,
    pub(super) up: bool,
    pub(super) incarnation: u64,
    pub(super) skew: i64,
    pub(super) epoch: Epoch,
    /// When the disk is done with what it was given.
    pub(super) disk_free_at: u64,
    floor: Ballot,
    /// Durable: promises up to here have no record.
    horizon: Ballot,
    /// The ballot that a start has promised to every partition.
    forgotten: Ballot,
    views: BTreeMap<ReplyTo, Data>,
}

impl Node {
    pub(super) fn new(skew: i64) -> Node {
        Node {
            acceptor: Acceptor::new(AcceptorState::default()),
            data: Data::default(),
            row: Row::default(),
            folded: AcceptorState::default(),
            durable_data: Data::default(),
            up: true,
            incarnation: 0,
            skew,
            epoch: Epoch(1),
            disk_free_at: 0,
            floor: Ballot::ZERO,
            horizon: Ballot::ZERO,
            forgotten: Ballot::ZERO,
            views: BTreeMap::new(),
        }
    }

    fn admission(&self, now: u64) -> Admission {
        let now = WallMicros(now.cast_signed() + self.skew);
        Admission {
            now,
            skew_max_micros: SKEW_MAX_MICROS,
            floor: self.floor,
            horizon: self.horizon,
        }
    }

    pub(super) fn step(&mut self, now: u64, input: Input<Payload>) -> Vec<Output<Payload>> {
        let mut out = Vec::new();
        let before = self.acceptor.state().clone();
        self.acceptor.step(self.admission(now), input, &mut out);
        check_step(&before, self.acceptor.state());
        for output in &out {
            match output {
                // The mutation is readable in the turn of its commit.
                Output::Persist { record, .. } => apply(&mut self.data, record),
                Output::TakeReadView { to } => {
                    self.views.insert(*to, self.data);
                }
                Output::Reply { .. } => {}
            }
        }
        out
    }

    /// The disk is done with a record.
    pub(super) fn sync(&mut self, record: Record<Payload>) {
        apply(&mut self.durable_data, &record);
        self.row.write(record.to_update());
        self.folded.apply(record);
        assert_eq!(self.row.read(), self.folded, "the row is the fold of its records");
    }

    pub(super) fn take_view(&mut self, to: ReplyTo) -> Option<Data> {
        self.views.remove(&to)
    }

    /// How far the horizon should be raised now, if at all.
    pub(super) fn wants_horizon(&self, now: u64) -> Option<Ballot> {
        let wall = now.saturating_add_signed(self.skew);
        let is_near = self.horizon.micros() < wall + HORIZON_MICROS / 2;
        is_near.then(|| Ballot::new(wall + HORIZON_MICROS, Scope::Global, u64::MAX))
    }

    pub(super) fn raise_horizon(&mut self, to: Ballot) {
        self.horizon = self.horizon.max(to);
    }

    /// Drops the acceptor if nothing waits for the disk, and makes it again from its row. `forgets`: a
    /// defect.
    pub(super) fn evict(&mut self, forgets: bool) -> bool {
        let can_go = self.acceptor.is_idle();
        if can_go {
            if !forgets {
                self.write_promises();
            }
            self.acceptor = Acceptor::new(self.row.read().promised_to_all(self.forgotten));
        }
        can_go
    }

    fn write_promises(&mut self) {
        for record in self.acceptor.unwritten() {
            self.sync(record);
        }
        self.acceptor.written();
    }

    /// Raises the floor, durably, and drops the row if it says nothing more than the floor.
    pub(super) fn sweep(&mut self, now: u64) -> bool {
        let floor = now.saturating_add_signed(self.skew).saturating_sub(1_000);
        self.floor = self.floor.max(Ballot::new(floor, Scope::Global, u64::MAX));
        let drop = self.acceptor.is_idle() && self.acceptor.state().is_droppable(self.floor);
        let drop = drop && !self.acceptor.state().promised.is_zero();
        if drop {
            self.row = Row::default();
            self.folded = AcceptorState::default();
            self.acceptor = Acceptor::new(AcceptorState::default().promised_to_all(self.forgotten));
        }
        drop
    }

    pub(super) fn crash(&mut self) {
        self.up = false;
        self.incarnation += 1;
        self.views.clear();
    }

    /// `forgets`: what was promised without a record; a defect.
    pub(super) fn restart(&mut self, now: u64, forgets: bool) {
        self.up = true;
        self.disk_free_at = now;
        if !forgets {
            self.forgotten = self.forgotten.max(self.horizon);
        }
        self.acceptor = Acceptor::new(self.row.read().promised_to_all(self.forgotten));
        self.folded = self.row.read();
        self.data = self.durable_data;
    }

    /// Takes over another replica's registers and data, synced before anything else happens.
    pub(super) fn take_over(&mut self, other: AcceptorState<Payload>, data: &Data) {
        self.write_promises();
        let mut state = self.acceptor.state().clone();
        for record in state.merge(other) {
            self.sync(record);
        }
        merge(&mut self.data, data);
        merge(&mut self.durable_data, data);
        self.acceptor = Acceptor::new(state);
        self.incarnation += 1;
        self.views.clear();
    }
}

fn apply(data: &mut Data, record: &Record<Payload>) {
    if let Record::Commit(commit) = record
        && let Some(value) = &commit.value
    {
        write(data, commit.origin, value);
    }
}

/// INV-paxos-1, step by step: registers never go back.
fn check_step(before: &AcceptorState<Payload>, after: &AcceptorState<Payload>) {
    assert!(after.promised >= before.promised && after.promised_write >= before.promised_write);
    assert!(after.promised >= after.promised_write);
    let commit = |s: &AcceptorState<Payload>| s.committed.as_ref().map(|c| c.ballot);
    assert!(commit(after) >= commit(before), "INV-paxos-1: a commit was forgotten");
    if let Some(accepted) = &after.accepted {
        assert!(
            Some(accepted.ballot) > commit(after),
            "an accepted value is newer than the commit"
        );
        if before.accepted.as_ref() != Some(accepted) {
            assert!(accepted.ballot >= before.promised, "accepted against a promise");
        }
    }
}
