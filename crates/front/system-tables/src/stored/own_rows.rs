//! Rows that a node writes about itself while it runs: what writing them needs, on every shard.
//!
//! When and what: [`super::estimates`], [`super::compaction_history`], [`super::large_data`].

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use admin::AdminMesh;
use coordinator::Coordinator;
use membership::Membership;
use rt::{Gate, Rt};

use super::estimates::Written;

/// Writer of rows on a shard. Clones share.
#[derive(Clone)]
pub struct RowWriter {
    /// The shard.
    pub rt: Rt,
    /// The way to stored rows.
    pub coordinator: Coordinator,
    /// The tables.
    pub membership: Membership,
    /// Owner of the tasks that write.
    pub gate: Gate,
}

/// Writer of the node's own rows on a shard. Clones share.
#[derive(Clone)]
pub struct OwnRows {
    pub(super) rt: Rt,
    pub(super) coordinator: Coordinator,
    pub(super) membership: Membership,
    pub(super) gate: Gate,
    pub(super) admin: Arc<AdminMesh>,
    /// The estimates that the tables have.
    pub(super) written: Rc<RefCell<Written>>,
}

impl OwnRows {
    /// Nothing is written yet.
    pub fn new(writer: RowWriter, admin: &Arc<AdminMesh>) -> OwnRows {
        let RowWriter { rt, coordinator, membership, gate } = writer;
        let (admin, written) = (admin.clone(), Rc::default());
        OwnRows { rt, coordinator, membership, gate, admin, written }
    }
}
