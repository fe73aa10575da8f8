//! Index searches: tables of inputs and outputs.

use cluster::Consistency;
use stdx::Instant;

use super::reads::{after, plan};
use super::writes::{DEADLINE, dead, host, replica};
use crate::plan::ReplicaInfo;
use crate::search::{SearchConfig, SearchInput, SearchOutput, SearchRequest};
use crate::speculation::Threshold;
use crate::types::{Outputs, ReplicaError, RequestError, Target, TargetSet};

struct Run {
    request: SearchRequest,
    now: u64,
}

impl Run {
    fn started(replicas: &[ReplicaInfo], speculate: Threshold) -> (Run, Vec<SearchOutput>) {
        let config = SearchConfig { deadline: DEADLINE, speculate };
        let request = SearchRequest::new(plan(Consistency::Quorum, replicas), config);
        let mut run = Run { request, now: 0 };
        let first = run.step(SearchInput::Start);
        (run, first)
    }

    fn step(&mut self, input: SearchInput) -> Vec<SearchOutput> {
        let mut out = Outputs::new();
        self.request.step(Instant(self.now), input, &mut out);
        self.now += 1;
        out.into_vec()
    }
}

fn ask(to: u8) -> SearchOutput {
    SearchOutput::Ask { to: Target(to) }
}

fn answer(from: u8) -> SearchInput {
    SearchInput::Answer { from: Target(from) }
}

fn failed(from: u8, reason: ReplicaError) -> SearchInput {
    SearchInput::Failed { from: Target(from), reason }
}

fn done(of: &[u8]) -> Vec<SearchOutput> {
    let set: TargetSet = of.iter().copied().map(Target).collect();
    vec![SearchOutput::Done(Ok(set))]
}

/// INV-index-read-1.
#[test]
fn a_search_ends_with_as_many_answers_as_the_level_needs() {
    let replicas = [replica(0, 0), replica(1, 0), replica(2, 0)];
    let (mut run, first) = Run::started(&replicas, Threshold::Never);
    assert_eq!(first, [ask(0), ask(1), SearchOutput::WakeAt(DEADLINE)]);
    assert_eq!(run.step(answer(2)), [], "not asked");
    assert_eq!(run.step(answer(1)), []);
    assert_eq!(run.step(answer(1)), [], "counted once");
    assert_eq!(run.step(answer(0)), done(&[0, 1]));
    assert_eq!(run.step(answer(2)), [], "over");
}

#[test]
fn a_failed_replica_is_replaced_and_without_another_the_search_fails() {
    let replicas = [replica(0, 0), replica(1, 0), replica(2, 0)];
    let (mut run, _) = Run::started(&replicas, Threshold::Never);
    assert_eq!(run.step(failed(0, ReplicaError::IndexNotAvailable)), [ask(2)]);
    assert_eq!(run.step(answer(0)), [], "an answer after the failure does not count");
    assert_eq!(run.step(answer(1)), []);
    let error = RequestError::ReadFailure {
        consistency: Consistency::Quorum,
        received: 1,
        block_for: 2,
        failures: [(host(0), ReplicaError::IndexNotAvailable), (host(2), ReplicaError::Timeout)]
            .into_iter()
            .collect(),
        data_present: true,
    };
    let end = run.step(failed(2, ReplicaError::Timeout));
    assert_eq!(end, [SearchOutput::Done(Err(error))]);
}

#[test]
fn a_slow_replica_gets_one_stand_in_and_the_deadline_ends_the_search() {
    let replicas = [replica(0, 0), replica(1, 0), replica(2, 0)];
    let (mut run, first) = Run::started(&replicas, after(5));
    assert_eq!(first.last(), Some(&SearchOutput::WakeAt(Instant(5))));
    run.now = 4;
    assert_eq!(run.step(SearchInput::Tick), [], "too early");
    assert_eq!(run.step(SearchInput::Tick), [SearchOutput::WakeAt(DEADLINE), ask(2)]);
    assert_eq!(run.step(answer(2)), []);
    run.now = DEADLINE.0;
    let error = RequestError::ReadTimeout {
        consistency: Consistency::Quorum,
        received: 1,
        block_for: 2,
        data_present: true,
    };
    assert_eq!(run.step(SearchInput::Tick), [SearchOutput::Done(Err(error))]);
}

#[test]
fn nothing_is_asked_when_too_few_replicas_are_alive() {
    let (_, first) = Run::started(&[replica(0, 0), dead(1, 0), dead(2, 0)], Threshold::Never);
    let error =
        RequestError::Unavailable { consistency: Consistency::Quorum, required: 2, alive: 1 };
    assert_eq!(first, [SearchOutput::Done(Err(error))]);
}
