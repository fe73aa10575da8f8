//! Repairs of healed clusters that are not the last full one: those that begin by themselves, and
//! incremental ones.

use std::time::Duration;

use admin::model::RepairOrder;
use admin::{AdminReply, AdminRequest};

use crate::checks::Verdict;
use crate::nodes::{TURN, name};
use crate::operator::{self, of_keyspace};
use crate::run::Run;

/// How long it may take until every table was repaired after all was healed: it may rest for ten
/// turns after a failure, wait until its window is used up, and for the other tables of the node.
const LIMIT: Duration = Duration::from_secs(240);
/// Interval of polls.
const LOOK: Duration = Duration::from_secs(5);
/// Attempts of an incremental repair: other repairs may hold its files just then.
const TRIES: u32 = 4;
/// Delay before a retry of the order: longer than the timeout of abandoned sessions.
const TRY_AGAIN: Duration = Duration::from_secs(200);

/// Interval and number of the polls for a running repair.
const INTERRUPT_LOOK: Duration = Duration::from_millis(5);
const INTERRUPT_TRIES: u32 = 600;

/// A table of the schedule: node, table, when the least recently repaired range was.
type Scheduled = (String, String, Option<i64>);

/// Every table was repaired since then, in seconds since 1970.
fn all_since(tables: &[Scheduled], since: i64) -> Verdict {
    match tables.iter().find(|(_, _, at)| at.is_none_or(|at| at < since)) {
        Some((node, table, at)) => Err(format!(
            "table {table} of {node} was not repaired by itself since {since}: last at {at:?}"
        )),
        None => Ok(()),
    }
}

/// Waits until every table was repaired automatically.
///
/// # Errors
/// Which one is not, long after its window.
pub fn await_schedule(run: &mut Run) -> Result<(), String> {
    let clock = |rt: rt::Rt| async move { rt.wall().seconds().0 };
    let since = run.nodes.ask("the time", LOOK, clock)?;
    let limit = run.nodes.world.now() + LIMIT;
    loop {
        let tables = scheduled(run)?;
        let verdict = all_since(&tables, since);
        if verdict.is_ok() && !tables.is_empty() {
            run.nodes.bump("repaired by the schedule");
            return Ok(());
        }
        if run.nodes.world.now() > limit {
            return verdict.and(Err("no table has a schedule".to_owned()));
        }
        run.nodes.world.run_for(LOOK);
    }
}

fn scheduled(run: &mut Run) -> Result<Vec<Scheduled>, String> {
    let mut all = Vec::new();
    for number in 0..run.nodes.members.len() {
        if run.nodes.members.get(number).is_none_or(|m| m.has_left) {
            continue;
        }
        match run.nodes.admin_now(number, AdminRequest::AutoRepair(None))? {
            AdminReply::AutoRepair(report) => {
                let of_ks = report.tables.into_iter().filter(|t| t.keyspace == "ks");
                all.extend(of_ks.map(|t| (name(number), t.table, t.repaired_at)));
            }
            other => return Err(format!("schedule of {}: {other:?}", name(number))),
        }
    }
    Ok(all)
}

/// An incremental repair of every node; what counts as repaired is equal after that.
///
/// # Errors
/// Which one fails, or what differs.
pub fn repair_incrementally(run: &mut Run) -> Result<(), String> {
    for number in 0..run.nodes.members.len() {
        if run.nodes.members.get(number).is_some_and(|m| !m.has_left) {
            repair_marking(run, number)?;
        }
    }
    for number in 0..run.nodes.members.len() {
        if run.nodes.members.get(number).is_none_or(|m| m.has_left) {
            continue;
        }
        let order = RepairOrder { preview: true, validate: true, ..of_keyspace() };
        let report = operator::repair_one(run, number, order)?;
        if let Some(report) = report.filter(|r| r.differing > 0) {
            return Err(format!("what is repaired differs, seen by {}: {report:?}", name(number)));
        }
    }
    run.nodes.bump("incremental repair");
    Ok(())
}

fn repair_marking(run: &mut Run, number: usize) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match operator::repair_one(run, number, RepairOrder { incremental: true, ..of_keyspace() })
        {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
        run.nodes.bump("incremental repair ordered again");
        run.nodes.world.run_for(TRY_AGAIN);
    }
    Err(format!("incremental although everything is healed: {last}"))
}

/// Turns the schedule of a node off as soon as it repairs something, and on again after a while:
/// the repair fails. False: it repairs nothing for some time.
pub fn interrupt_schedule(run: &mut Run, number: usize) -> bool {
    for _ in 0..INTERRUPT_TRIES {
        match run.nodes.admin_now(number, AdminRequest::AutoRepair(None)) {
            Ok(AdminReply::AutoRepair(r)) if r.tables.iter().any(|t| t.state == "RUNNING") => {
                let off = run.nodes.admin_now(number, AdminRequest::AutoRepair(Some(false)));
                run.nodes.world.run_for(TURN);
                let on = run.nodes.admin_now(number, AdminRequest::AutoRepair(Some(true)));
                return off.is_ok() && on.is_ok();
            }
            Ok(AdminReply::AutoRepair(_)) => run.nodes.world.run_for(INTERRUPT_LOOK),
            _ => return false,
        }
    }
    false
}

/// Orders a repair without waiting, of a kind that the seed draws.
pub fn begin_repair(run: &mut Run, number: usize) {
    let random = run.nodes.world.random_u64();
    let order = RepairOrder {
        incremental: !random.is_multiple_of(3),
        primary_range: (random / 3).is_multiple_of(2),
        sequential: (random / 6).is_multiple_of(2),
        ..of_keyspace()
    };
    operator::order_repair(run, number, order);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_not_repaired_in_time_is_noticed() {
        let table = |at| ("n1".to_owned(), "t".to_owned(), at);
        assert_eq!(all_since(&[table(Some(5)), table(Some(6))], 5), Ok(()));
        assert!(all_since(&[table(Some(5)), table(Some(4))], 5).unwrap_err().contains("Some(4)"));
        assert!(all_since(&[table(None)], 5).is_err());
    }
}
