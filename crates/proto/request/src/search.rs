//! One round of an index search over a sub-range: which replicas are asked for their matches, and when there are enough
//! answers.
//!
//! Owns: the choice of replicas, the replacement of failed and slow ones, the error. Never: the matches; the driver holds
//! them and unites those of the replicas that `Done` names.
//!
//! A row that matches after a merge has its matching cell on one of the replicas that were merged. So the matches of as
//! many replicas as the level needs hold the key of each row whose newest acknowledged state matches, if writes were
//! acknowledged at a level that meets it.
//!
//! INV-index-read-1: `Done(Ok)` names replicas that answered and meet the level.

use std::time::Duration;

use stdx::Instant;

use crate::plan::ReadPlan;
use crate::speculation::Threshold;
use crate::types::{Failures, Outputs, ReplicaError, RequestError, Target, TargetSet, count};

/// Settings of a round.
#[derive(Clone, Copy, Debug)]
pub struct SearchConfig {
    /// Latest instant of the end.
    pub deadline: Instant,
    /// Threshold for asking one more replica.
    pub speculate: Threshold,
}

/// Events of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchInput {
    /// Begin. The first input.
    Start,
    /// A replica sent its matches, and they were accepted.
    Answer {
        /// The replica.
        from: Target,
    },
    /// A replica failed, or its answer was not accepted.
    Failed {
        /// The replica.
        from: Target,
        /// Why.
        reason: ReplicaError,
    },
    /// The instant of the last `WakeAt` has come.
    Tick,
}

/// Actions of the driver for a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchOutput {
    /// Ask a replica for its matches.
    Ask {
        /// The replica.
        to: Target,
    },
    /// Give `Tick` at this instant; replaces the one before.
    WakeAt(Instant),
    /// The round is over: the matches of these replicas are enough.
    Done(Result<TargetSet, RequestError>),
}

/// See the module.
#[derive(Debug)]
pub struct SearchRequest {
    plan: ReadPlan,
    config: SearchConfig,
    asked: TargetSet,
    answered: TargetSet,
    failed: TargetSet,
    failures: Failures,
    speculate_at: Option<Instant>,
    is_done: bool,
}

impl SearchRequest {
    /// A round over a sub-range with these replicas.
    pub fn new(plan: ReadPlan, config: SearchConfig) -> SearchRequest {
        SearchRequest {
            plan,
            config,
            asked: TargetSet::EMPTY,
            answered: TargetSet::EMPTY,
            failed: TargetSet::EMPTY,
            failures: Failures::new(),
            speculate_at: None,
            is_done: false,
        }
    }

    /// The replicas of its targets.
    pub fn plan(&self) -> &ReadPlan {
        &self.plan
    }

    /// Advances by one event and appends the driver's actions. After `Done` nothing follows; it is done at the
    /// deadline's step at the latest.
    pub fn step(&mut self, now: Instant, input: SearchInput, out: &mut Outputs<SearchOutput>) {
        if self.is_done {
            return;
        }
        match input {
            SearchInput::Start => self.start(now, out),
            SearchInput::Answer { from } => {
                if self.asked.contains(from) && !self.failed.contains(from) {
                    self.answered.insert(from);
                }
            }
            SearchInput::Failed { from, reason } => self.fail(from, reason),
            SearchInput::Tick => self.tick(now, out),
        }
        self.settle(out);
        if !self.is_done && now >= self.config.deadline {
            let error = self.timeout();
            self.done(Err(error), out);
        }
    }

    fn done(&mut self, result: Result<TargetSet, RequestError>, out: &mut Outputs<SearchOutput>) {
        if let Ok(answered) = &result {
            stdx::invariant!(
                self.plan.is_met_by(*answered),
                "INV-index-read-1: a search ends with too few answers"
            );
        }
        self.is_done = true;
        out.push(SearchOutput::Done(result));
    }

    fn start(&mut self, now: Instant, out: &mut Outputs<SearchOutput>) {
        if let Err(error) = self.plan.check() {
            return self.done(Err(error), out);
        }
        let contacts: Outputs<Target> = self.plan.contacts().iter().copied().collect();
        contacts.into_iter().for_each(|to| self.ask(to, out));
        match self.config.speculate {
            Threshold::Always => self.ask_one_more(out),
            Threshold::After(delay) if self.plan.may_replace() => {
                let at = now + delay.max(Duration::from_nanos(1));
                self.speculate_at = Some(at).filter(|at| *at < self.config.deadline);
            }
            Threshold::After(_) | Threshold::Never => {}
        }
        out.push(SearchOutput::WakeAt(self.speculate_at.unwrap_or(self.config.deadline)));
    }

    fn ask(&mut self, to: Target, out: &mut Outputs<SearchOutput>) {
        self.asked.insert(to);
        out.push(SearchOutput::Ask { to });
    }

    fn ask_one_more(&mut self, out: &mut Outputs<SearchOutput>) {
        if let Some(to) = self.next_candidate() {
            self.ask(to, out);
        }
    }

    /// The best replica that was not asked.
    fn next_candidate(&self) -> Option<Target> {
        let mut candidates = self.plan.candidates().iter().copied();
        candidates.find(|to| self.plan.may_replace() && !self.asked.contains(*to))
    }

    fn fail(&mut self, from: Target, reason: ReplicaError) {
        let is_awaited = self.asked.contains(from) && !self.answered.contains(from);
        if is_awaited
            && self.failed.insert(from)
            && let Some(replica) = self.plan.replicas.get(from)
        {
            self.failures.push((replica.host, reason));
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Outputs<SearchOutput>) {
        if self.speculate_at.is_some_and(|at| now >= at) {
            self.speculate_at = None;
            out.push(SearchOutput::WakeAt(self.config.deadline));
            self.ask_one_more(out);
        }
    }

    fn settle(&mut self, out: &mut Outputs<SearchOutput>) {
        while !self.is_done {
            if self.plan.is_met_by(self.answered) {
                return self.done(Ok(self.answered), out);
            }
            if self.plan.is_met_by(self.asked.minus(self.failed)) {
                return;
            }
            // The outstanding answers are not enough: another replica is asked.
            let Some(to) = self.next_candidate() else {
                let error = self.error();
                return self.done(Err(error), out);
            };
            self.ask(to, out);
        }
    }

    fn error(&self) -> RequestError {
        let block_for = count(self.plan.block_for());
        let received = count(self.answered.len()).min(block_for);
        let data_present = !self.answered.is_empty();
        RequestError::read(self.plan.consistency, received, block_for, &self.failures, data_present)
    }

    fn timeout(&self) -> RequestError {
        let block_for = count(self.plan.block_for());
        let received = count(self.answered.len()).min(block_for.saturating_sub(1));
        let (consistency, data_present) = (self.plan.consistency, !self.answered.is_empty());
        RequestError::ReadTimeout { consistency, received, block_for, data_present }
    }
}
