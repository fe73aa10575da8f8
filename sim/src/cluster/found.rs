//! The beginning of a run: nodes, tables, rows that are there before anything breaks.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;

use super::{QUIET, START_MAX, indexed};
use crate::counts;
use crate::folded;
use crate::large;
use crate::nodes::Arrival;
use crate::run::Run;
use crate::sabotage::Sabotage;
use crate::scenario::Scenario;
use crate::survey;
use crate::workload::SCHEMA;

/// Starts the nodes one after the other, then makes the tables.
pub(super) fn found(run: &mut Run) -> Result<(), String> {
    for number in 1..=run.nodes.scenario.nodes {
        let name = run.nodes.add_member(Arrival::Founding);
        let address = run.nodes.address(&name);
        let others = (number - 1) as usize;
        let what = format!("the start of {name}");
        run.nodes.ask(&what, START_MAX, move |rt| survey::serves(rt, address, others))?;
    }
    let (address, scenario) = (run.nodes.address("n1"), run.nodes.scenario.clone());
    let sabotage = run.nodes.sabotage;
    run.nodes
        .ask("CREATE TABLE", START_MAX, move |rt| create(rt, address, scenario, sabotage))??;
    if run.nodes.scenario.inverted > 0 {
        let inverted = run.clients.inverted.clone();
        run.nodes.ask("CREATE TABLE", START_MAX, move |rt| async move {
            let table = inverted.borrow_mut().table(&rt);
            let mut client = survey::connect(&rt, address).await;
            client.set_answer_timeout(Duration::from_secs(60));
            survey::create_one(&mut client, &table.create()).await
        })??;
    }
    indexed::create(run)?;
    let (all, scenario) = (run.nodes.addresses(), run.nodes.scenario.clone());
    run.nodes.ask("the tables on all nodes", START_MAX, move |rt| async move {
        for address in all {
            survey::has_tables(&rt, address, &scenario).await;
        }
    })?;
    if run.nodes.scenario.large {
        for k in 0..large::PARTITIONS {
            run.nodes.ask("large rows", START_MAX, move |rt| large::write(rt, address, k))??;
            (0..run.nodes.members.len()).try_for_each(|number| run.nodes.flush(number))?;
        }
    }
    if run.nodes.scenario.folding > 0 {
        let name = run.nodes.address("n1");
        run.nodes.ask("rows to be folded", START_MAX, move |rt| folded::write(rt, name))??;
        (0..run.nodes.members.len()).try_for_each(|number| run.nodes.flush(number))?;
        if run.nodes.sabotage.spoilt_rows {
            run.nodes.ask("another row", START_MAX, move |rt| folded::spoil(rt, name))??;
        }
    }
    run.nodes.world.run_for(QUIET);
    run.evidence.holdings =
        (0..run.nodes.members.len()).map(|n| run.nodes.holdings_of(n)).collect();
    Ok(())
}

/// Makes keyspace and tables through one node.
async fn create(
    rt: Rt,
    address: SocketAddr,
    scenario: Rc<Scenario>,
    sabotage: Sabotage,
) -> Result<(), String> {
    let mut client = survey::connect(&rt, address).await;
    client.set_answer_timeout(Duration::from_secs(60));
    for text in SCHEMA {
        let text = text.replace("{}", &scenario.replication_text());
        survey::create_one(&mut client, &text).await?;
    }
    if scenario.strategies {
        for table in ["registers", "rows", "cells"] {
            let has_windows = table != "registers";
            let map = strategy_of(rt.random_u64(), has_windows);
            let text = format!("ALTER TABLE ks.{table} WITH compaction = {{{map}}}");
            survey::create_one(&mut client, &text).await?;
        }
    }
    if scenario.mix.count > 0 {
        survey::create_one(&mut client, counts::SCHEMA).await?;
    }
    if scenario.large {
        survey::create_one(&mut client, large::SCHEMA).await?;
    }
    if scenario.folding > 0 {
        for text in folded::schema() {
            survey::create_one(&mut client, &text).await?;
        }
    }
    if let Some(seconds) = scenario.gc_grace_seconds {
        let mut text = format!("ALTER TABLE ks.cells WITH gc_grace_seconds = {seconds}");
        if sabotage.early_purge {
            text.push_str(" AND tombstone_gc = {'mode': 'timeout'}");
        } else if let Some(delay) = scenario.propagation_delay_seconds {
            text.push_str(&format!(
                " AND tombstone_gc = {{'mode': 'repair', 'propagation_delay_in_seconds': {delay}}}"
            ));
        }
        survey::create_one(&mut client, &text).await?;
    }
    Ok(())
}

/// The `compaction` map of one of the strategies, such that it does something with few small files;
/// `has_windows`: the table has a first clustering column of whole numbers.
fn strategy_of(drawn: u64, has_windows: bool) -> &'static str {
    const MAPS: [&str; 7] = [
        "'class': 'SizeTieredCompactionStrategy', 'min_threshold': 2",
        "'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 1, 'fanout_size': 2",
        "'class': 'TimeWindowCompactionStrategy', 'min_threshold': 2, \
         'compaction_window_unit': 'MINUTES', 'compaction_window_size': 1",
        "'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T2', \
         'min_sstable_size': '0B'",
        "'class': 'IncrementalCompactionStrategy', 'min_threshold': 2, 'sstable_size_in_mb': 1",
        "'class': 'ClusterKeyCompactionStrategy', 'min_threshold': 2, \
         'compaction_window_unit': 'ONES', 'compaction_window_size': 2",
        "'class': 'ClusterKeyCompactionStrategy', 'min_threshold': 2, 'window_count': 1000",
    ];
    let choice = if has_windows { MAPS.len() } else { MAPS.len() - 2 };
    // Below the length of an array.
    MAPS.get((drawn % choice as u64) as usize).copied().unwrap_or(MAPS[0])
}
