//! Scenario: the wall clock of one of three nodes jumps by an hour, forward or back. A few seconds
//! later lightweight transactions succeed through all nodes and on all partitions. The node, and no
//! other one, reports that its clock is wrong, and withdraws the report once the clock is right
//! again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use cql_wire::Consistency;

use crate::client::Answer;
use crate::outrun::{NODES, OutrunRun, Slowness};
use crate::report::Report;
use crate::survey;

const HOUR_MICROS: i64 = 3_600_000_000;
/// Partitions that are written through each node: each node is the first replica of some.
const PARTITIONS: i32 = 24;

/// One run's choices.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Every choice follows from it.
    pub seed: u64,
    /// Shards of each node.
    pub shards: u16,
    /// Node whose clock jumps.
    pub node: usize,
    /// Size of the jump, forward.
    pub ahead_micros: i64,
    /// Time until the others must go around it.
    pub notice: Duration,
}

/// The choices of a seed.
pub fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        shards: [1, 2][(seed / 2 % 2) as usize],
        node: (seed % 3) as usize,
        ahead_micros: if seed.is_multiple_of(2) { HOUR_MICROS } else { -HOUR_MICROS },
        notice: Duration::from_secs(6),
    }
}

fn is_wrong(run: &OutrunRun, node: usize) -> Option<bool> {
    let snapshot = run.nodes.get(node)?.telemetry();
    let gauges = snapshot.metrics.iter().filter(|metric| metric.name == "clock_is_wrong");
    let mut values = gauges.filter_map(|metric| match metric.value {
        telemetry::Value::Gauge(value) => Some(value),
        _ => None,
    });
    values.next().map(|value| value == 1)
}

/// Conditional writes of new partitions through all nodes; how many succeeded.
fn write(run: &mut OutrunRun, first: i32) -> Result<usize, String> {
    let mut applied = 0;
    for (at, name) in NODES.iter().enumerate() {
        let address = run.addresses[at];
        let errors: Rc<RefCell<Vec<String>>> = Rc::default();
        let told = errors.clone();
        applied += run.ask("conditional writes", move |rt| async move {
            let mut client = survey::connect(&rt, address).await;
            client.set_consistency(Consistency::Quorum);
            let mut applied = 0;
            let first = first + at as i32 * PARTITIONS;
            for k in first..first + PARTITIONS {
                let text = format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'x') IF NOT EXISTS");
                match client.query(&text).await {
                    Ok(Answer::Rows(rows, _)) if rows == [[Some(vec![1])]] => applied += 1,
                    other => told.borrow_mut().push(format!("{text}: {other:?}")),
                }
            }
            applied
        })?;
        let errors = errors.borrow();
        if let Some(error) = errors.first() {
            let count = errors.len();
            return Err(format!("{count} of {PARTITIONS} failed through {name}: {error}"));
        }
    }
    Ok(applied)
}

/// Checks that exactly the named nodes report that their clocks are wrong.
fn check_said(run: &OutrunRun, wrong: Option<usize>) -> Result<(), String> {
    for (at, name) in NODES.iter().enumerate() {
        let said = is_wrong(run, at);
        if said != Some(wrong == Some(at)) {
            return Err(format!("of the clock of {name} it is said that it is wrong: {said:?}"));
        }
    }
    Ok(())
}

/// Runs one plan.
///
/// # Errors
/// What the checker found, or that the world got stuck.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut run = OutrunRun::start(&crate::outrun::Plan {
        seed: plan.seed,
        shards: plan.shards,
        slowness: Slowness::StandsStill,
        writers: 0,
        is_bounded: true,
    })?;
    run.world.run_for(Duration::from_secs(5));
    let mut applied = write(&mut run, 0)?;
    check_said(&run, None)?;
    run.world.jump_clock(NODES[plan.node], plan.ahead_micros);
    run.world.run_for(plan.notice);
    applied += write(&mut run, 1_000)?;
    check_said(&run, Some(plan.node))?;
    run.world.jump_clock(NODES[plan.node], -plan.ahead_micros);
    run.world.run_for(Duration::from_secs(6));
    applied += write(&mut run, 2_000)?;
    check_said(&run, None)?;
    let mut report = Report {
        trace: run.world.trace_hash(),
        checkpoints: run.world.trace_checkpoints(),
        operations: applied,
        acknowledged: applied,
        ..Report::default()
    };
    report.faults.insert("clock_jump", 2);
    for node in &run.nodes {
        report.probes.add_node(&node.telemetry());
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_have_not_noticed_yet_are_found() {
        for seed in 0..2 {
            let error = run(&Plan { notice: Duration::ZERO, ..plan(seed) }).unwrap_err();
            assert!(error.contains("failed through"), "{error}");
        }
    }

    #[test]
    fn those_that_have_are_not() {
        for seed in 0..2 {
            run(&plan(seed)).unwrap();
        }
    }
}
