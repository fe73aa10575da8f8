//! The connections of a worker: one for each node, opened with its first batch.
//!
//! Owns: the choice of a batch's node, nodes that do not answer. Never: handling of failed batches.

use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::copy::import::prepare;
use crate::copy::import::worker::{InFlight, Job};
use crate::failure::Failure;

/// How long a node that does not answer is left alone.
const REST: Duration = Duration::from_secs(1);

/// A connection with the window of requests in flight.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// Empty where rows are literals.
    pub(super) statement_id: Vec<u8>,
    pub(super) result_id: Option<Vec<u8>>,
    pub(super) slots: Vec<Option<InFlight>>,
    pub(super) free: Vec<usize>,
}

impl Link {
    fn open(job: &Job<'_>, node: usize) -> Result<Link, Failure> {
        let target = job.ring.target(node, job.target);
        let mut connection = Connection::open(&target)?;
        let timeout = job.options.request_timeout;
        let (statement_id, result_id) = match job.statement.is_literal() {
            true => (Vec::new(), None),
            false => {
                let prepared = prepare(&mut connection, &job.statement.query, timeout)?;
                (prepared.id, prepared.result_id)
            }
        };
        let window = job.options.in_flight_max;
        let mut slots = Vec::new();
        slots.resize_with(window, || None);
        Ok(Link { connection, statement_id, result_id, slots, free: (0..window).collect() })
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

enum State {
    Untried,
    Open(Box<Link>),
    Down(Instant, Failure),
}

/// All nodes as one worker sees them.
pub(super) struct Links {
    states: Vec<State>,
    turn: usize,
}

impl Links {
    pub(super) fn new(nodes: usize) -> Links {
        let mut states = Vec::new();
        states.resize_with(nodes, || State::Untried);
        Links { states, turn: 0 }
    }

    /// Returns the least busy of the nodes that answers, or else any other that does.
    ///
    /// # Errors
    /// No node answers: the error of each.
    pub(super) fn choose(&mut self, job: &Job<'_>, nodes: &[usize]) -> Result<usize, Failure> {
        self.turn = self.turn.wrapping_add(1);
        if let Some(node) = self.least_busy(job, nodes.iter().copied()) {
            return Ok(node);
        }
        if let Some(node) = self.least_busy(job, 0..self.states.len()) {
            return Ok(node);
        }
        let down = |(node, state): (usize, &State)| match state {
            State::Down(_, failure) => {
                Some((job.ring.target(node, job.target).name(), failure.clone()))
            }
            State::Untried | State::Open(_) => None,
        };
        let tried: Vec<_> = self.states.iter().enumerate().filter_map(down).collect();
        Err(Failure::no_hosts(&tried))
    }

    fn least_busy(
        &mut self,
        job: &Job<'_>,
        nodes: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Option<usize> {
        let count = nodes.len();
        let start = self.turn.checked_rem(count)?;
        let mut best: Option<(usize, usize)> = None;
        // Equally busy ones take turns.
        for node in nodes.clone().cycle().skip(start).take(count) {
            if let Some(busy) = self.open(job, node)
                && best.is_none_or(|(_, least)| busy < least)
            {
                best = Some((node, busy));
            }
        }
        best.map(|(node, _)| node)
    }

    /// Requests in flight to a node; `None` when it does not answer.
    fn open(&mut self, job: &Job<'_>, node: usize) -> Option<usize> {
        let state = self.states.get_mut(node)?;
        match state {
            State::Open(link) => return Some(link.in_flight()),
            State::Down(since, _) if since.elapsed() < REST => return None,
            State::Untried | State::Down(..) => {}
        }
        match Link::open(job, node) {
            Ok(link) => {
                *state = State::Open(Box::new(link));
                Some(0)
            }
            Err(failure) => {
                *state = State::Down(Instant::now(), failure);
                None
            }
        }
    }

    /// The connection to a node, when it is open.
    pub(super) fn get(&mut self, node: usize) -> Option<&mut Link> {
        match self.states.get_mut(node) {
            Some(State::Open(link)) => Some(link),
            _ => None,
        }
    }

    /// Marks a node as down. Returns the batches that were in flight to it.
    pub(super) fn down(&mut self, node: usize, failure: &Failure) -> Vec<InFlight> {
        let Some(state) = self.states.get_mut(node) else { return Vec::new() };
        match std::mem::replace(state, State::Down(Instant::now(), failure.clone())) {
            State::Open(link) => link.slots.into_iter().flatten().collect(),
            State::Untried | State::Down(..) => Vec::new(),
        }
    }

    /// A node that has requests in flight.
    pub(super) fn busy(&self) -> Option<usize> {
        self.states
            .iter()
            .position(|state| matches!(state, State::Open(link) if link.in_flight() > 0))
    }

    /// Writes what waits, and returns the nodes that do not take it.
    pub(super) fn flush(&mut self) -> Vec<(usize, Failure)> {
        let mut failed = Vec::new();
        for (node, state) in self.states.iter_mut().enumerate() {
            if let State::Open(link) = state
                && link.connection.waiting() > 0
                && let Err(failure) = link.connection.flush()
            {
                failed.push((node, failure));
            }
        }
        failed
    }
}
