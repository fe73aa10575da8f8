//! [`Jobs`]: the repairs that this node drives, those that run and those that ended.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use cluster::TokenRange;
use rt::Group;

use crate::clock::Clock;
use crate::details::RepairDetails;
use crate::drive::Drive;
use crate::env::Env;
use crate::error::RepairError;
use crate::job::{Job, RepairStatus};
use crate::scope::{self, RepairOptions};

/// Ended repairs that are remembered.
const ENDED_MAX: usize = 50;

/// The repairs of this run of the node, the oldest first.
pub(crate) struct Jobs {
    env: Rc<Env>,
    drive: Rc<Drive>,
    all: RefCell<VecDeque<Rc<Job>>>,
    next_id: Cell<u32>,
    /// True if automatic repairs may begin.
    automatic: Cell<bool>,
}

impl Jobs {
    pub(crate) fn new(env: Rc<Env>, drive: Rc<Drive>) -> Jobs {
        let automatic = Cell::new(env.settings.auto.enabled);
        Jobs { env, drive, all: RefCell::default(), next_id: Cell::new(0), automatic }
    }

    pub(crate) fn is_automatic(&self) -> bool {
        self.automatic.get()
    }

    pub(crate) fn set_automatic(&self, automatic: bool) {
        self.automatic.set(automatic);
    }

    /// Starts a repair; returns its number, from 1. 0: there is nothing to repair.
    pub(crate) fn start(&self, options: RepairOptions) -> Result<u32, String> {
        let env = &self.env;
        let snapshot = (env.snapshot)();
        scope::check(&snapshot, &options)?;
        if !scope::is_replicated(&snapshot, &options.keyspace) {
            return Ok(0);
        }
        let running = self.running();
        if running >= env.settings.running_max {
            return Err(format!(
                "{running} repairs are running on this node: wait for one of them"
            ));
        }
        let id = self.next_id.get() + 1;
        let trace = options.trace;
        let mut job = Job::new(id, env.session_id(), options, Clock::read(&env.rt));
        job.trace = env.records.as_ref().filter(|_| trace).map(|records| records.time_uuid());
        let job = Rc::new(job);
        let (drive, of_task) = (self.drive.clone(), job.clone());
        let task = async move { drive.run(&of_task).await };
        if env.gate.spawn(&env.rt, Group::Stream, "repair", task).is_err() {
            return Err(RepairError::Stopping.to_string());
        }
        self.next_id.set(id);
        let mut jobs = self.all.borrow_mut();
        jobs.push_back(job);
        let ended = jobs.iter().filter(|j| !j.is_running()).count();
        if ended > ENDED_MAX
            && let Some(oldest) = jobs.iter().position(|j| !j.is_running())
        {
            drop(jobs.remove(oldest));
        }
        Ok(id)
    }

    pub(crate) fn status(&self, id: u32, from: u64) -> Option<RepairStatus> {
        self.all.borrow().iter().find(|j| j.id == id).map(|j| j.status(from))
    }

    pub(crate) fn list(&self) -> Vec<RepairStatus> {
        self.all.borrow().iter().map(|j| j.status(u64::MAX)).collect()
    }

    pub(crate) fn list_details(&self) -> Vec<(RepairStatus, RepairDetails)> {
        self.all.borrow().iter().map(|j| (j.status(u64::MAX), j.details())).collect()
    }

    /// Ends a running repair, or all of them; how many there were.
    pub(crate) fn abort(&self, id: Option<u32>) -> usize {
        let jobs = self.all.borrow();
        let meant = jobs.iter().filter(|j| j.is_running() && id.is_none_or(|id| j.id == id));
        meant
            .map(|job| {
                job.aborted.set(true);
                job.abort.notify_waiters();
            })
            .count()
    }

    /// Returns the number of repairs under way.
    pub(crate) fn running(&self) -> usize {
        self.all.borrow().iter().filter(|j| j.is_running()).count()
    }

    /// Returns true if a repair of this node that may write is comparing a part of a table.
    pub(crate) fn repairs_now(&self, keyspace: &str, table: &str, range: TokenRange) -> bool {
        let jobs = self.all.borrow();
        jobs.iter().any(|j| j.is_running() && j.options.may_change(keyspace, table, range))
    }
}
