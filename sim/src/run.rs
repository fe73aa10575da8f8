//! [`Run`]: what a running scenario owns.
//!
//! Five rooms: the nodes and their world, the clients, the administrator's operations, the input of the checkers, and
//! (in the nodes) the counts for the report. A scenario adds functions over a `Run` in its own file.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stdx::Instant;

use crate::checks::{EpochView, Loss, Trouble};
use crate::folded::Folded;
use crate::indexes::Indexes;
use crate::inverted::Inverted;
use crate::leaks::Holdings;
use crate::nodes::{Nodes, Reply};
use crate::progress::Progress;
use crate::sabotage::Sabotage;
use crate::scenario::{Fault, Scenario};
use crate::workload::Shared;

/// State that the clients of a run share.
#[derive(Default)]
pub struct Clients {
    /// How much they still ask.
    pub progress: Rc<Progress>,
    /// Requests and their outcomes.
    pub shared: Rc<RefCell<Shared>>,
    /// Operations with known answers.
    pub inverted: Rc<RefCell<Inverted>>,
    /// Aggregations and filters with known answers.
    pub folded: Rc<RefCell<Folded>>,
    /// Writes of the indexed table and answers by its indexes.
    pub indexes: Rc<RefCell<Indexes>>,
    /// Requests, without those of the surveys.
    pub asked: usize,
}

/// Something ordered that may take until everything is healed.
#[derive(Clone, Debug)]
pub enum Pending {
    /// That node leaves.
    Decommission(usize),
    /// That node moves to another token.
    Move(usize),
    /// That node is dead for good and is to be removed.
    Remove(String),
    /// Abort of one of the above, for a node that leaves, moves or joins.
    GivenUp(usize, Movement, Reply),
    /// Abort of the removal of a dead node; it is removed in the end.
    RemovalGivenUp(String, Reply),
}

/// Operation that can be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// A node leaves.
    Leaving,
    /// It moves to another token.
    Moving,
    /// It joins.
    Joining,
}

impl Pending {
    /// Returns true if that node may end because of it.
    pub fn may_end(&self, number: usize) -> bool {
        match self {
            Pending::Decommission(n) => *n == number,
            Pending::GivenUp(n, what, _) => *n == number && *what != Movement::Moving,
            Pending::Move(_) | Pending::Remove(_) | Pending::RemovalGivenUp(..) => false,
        }
    }
}

/// Operations that an administrator has begun.
#[derive(Default)]
pub struct Operations {
    /// Operations that are not done.
    pub pending: Vec<Pending>,
    /// The keyspace may have another number of replicas than in the beginning.
    pub has_altered: bool,
    /// How often several nodes were seen to move at once.
    pub together: Rc<Cell<u64>>,
}

/// Evidence for the checkers beside the history.
#[derive(Default)]
pub struct Evidence {
    /// When which node may be late.
    pub troubles: Vec<Trouble>,
    /// When values that were read but not acknowledged may be lost.
    pub losses: Vec<Loss>,
    /// Epochs that nodes reported.
    pub epochs: Vec<EpochView>,
    /// Resources that the nodes held before the clients started.
    pub holdings: Vec<Holdings>,
}

/// A running scenario.
pub struct Run {
    /// The world and its nodes.
    pub nodes: Nodes,
    /// The clients.
    pub clients: Clients,
    /// Operations that an administrator has begun.
    pub operations: Operations,
    /// Evidence for the checkers.
    pub evidence: Evidence,
    /// The node whose files have rotted for good.
    pub rotten: Option<usize>,
}

impl Run {
    /// A world without nodes.
    pub fn new(scenario: &Scenario, seed: u64, sabotage: Sabotage) -> Run {
        let mends_by_itself = scenario.repairs
            && scenario.has(Fault::BitRot)
            && seed.is_multiple_of(2)
            && !sabotage.unrepaired;
        Run {
            nodes: Nodes::new(seed, Rc::new(scenario.clone()), sabotage, mends_by_itself),
            clients: Clients::default(),
            operations: Operations::default(),
            evidence: Evidence::default(),
            rotten: None,
        }
    }

    /// A node may be late from then until that moment.
    pub fn trouble(&mut self, node: usize, from: Instant, until: Instant) {
        self.evidence.troubles.push(Trouble { node, from, until });
    }
}
