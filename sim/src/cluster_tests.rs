//! Whole runs: right ones pass, and each kind of sabotage is found by the checker that is for it.

use super::*;

fn scenario(name: &str) -> Scenario {
    Scenario::of_name(name).unwrap().unwrap()
}

/// Looks for a seed whose sabotaged run fails with one of these words; the run of the same seed
/// without sabotage must pass.
fn found(name: &str, sabotage: Sabotage, words: &[&str]) {
    found_in(&scenario(name), sabotage, words);
}

fn found_in(scenario: &Scenario, sabotage: Sabotage, words: &[&str]) {
    let mut others = Vec::new();
    for seed in 0..120 {
        match run_with(scenario, seed, sabotage) {
            Err(error) if words.iter().any(|word| error.contains(word)) => {
                let right = run(scenario, seed).map(|_| ());
                assert_eq!(right, Ok(()), "seed {seed} fails without sabotage too");
                return;
            }
            Err(error) => others.push(error),
            Ok(_) => {}
        }
    }
    panic!("{sabotage:?} was never found in {}; other failures: {others:?}", scenario.name);
}

#[test]
fn one_node_goes_through_its_faults_and_a_seed_gives_one_trace() {
    let one = scenario("one");
    let (first, second) = (run(&one, 3).unwrap(), run(&one, 3).unwrap());
    assert_eq!((first.trace, first.checkpoints), (second.trace, second.checkpoints));
    assert!(first.acknowledged > 1_000 && first.faults.values().sum::<u64>() > 5);
    assert_ne!(run(&one, 4).unwrap().trace, first.trace);
}

#[test]
fn reads_and_writes_at_one_are_found_to_go_back() {
    let sabotage = Sabotage { weak_levels: true, ..Sabotage::default() };
    found("partitions", sabotage, &["is older than", "no row, but value", "came back"]);
}

#[test]
fn cells_written_and_read_at_one_are_found_to_go_back() {
    let sabotage = Sabotage { weak_levels: true, ..Sabotage::default() };
    let mut cells = scenario("cells");
    cells.mix = crate::scenario::Mix { cells: 1, ..Default::default() };
    found_in(&cells, sabotage, &["instead of"]);
}

#[test]
fn known_answers_at_one_are_found_to_be_wrong() {
    let sabotage = Sabotage { weak_levels: true, ..Sabotage::default() };
    // Only the operations whose answers are known read anything.
    let mut inverted = scenario("inverted");
    inverted.mix = crate::scenario::Mix { write: 1, ..Default::default() };
    found_in(&inverted, sabotage, &["inverted: after operation"]);
}

#[test]
fn indexed_reads_at_one_are_found_to_lack_rows_or_to_show_stale_ones() {
    let sabotage = Sabotage { weak_levels: true, ..Sabotage::default() };
    found("indexes", sabotage, &["ns: lacks row", "such a matching state"]);
}

#[test]
fn the_nearest_rows_at_one_are_found_to_lack_rows_or_to_show_stale_ones() {
    let sabotage = Sabotage { weak_levels: true, ..Sabotage::default() };
    let mut vectors = scenario("vectors");
    vectors.nearest = 100;
    found_in(&vectors, sabotage, &["ns: lacks row", "such a matching state"]);
}

#[test]
fn a_row_that_is_folded_and_is_another_one_is_found() {
    let sabotage = Sabotage { spoilt_rows: true, ..Sabotage::default() };
    found("scans", sabotage, &["folded: SELECT"]);
}

#[test]
fn batches_without_a_log_are_found_halved() {
    // One node with several shards: on more nodes hints complete nearly all of them too.
    let sabotage = Sabotage { unlogged_batches: true, ..Sabotage::default() };
    found("one", sabotage, &["1 of 2 partitions"]);
}

#[test]
fn replicas_that_were_not_repaired_are_found_to_differ() {
    let sabotage = Sabotage { unrepaired: true, ..Sabotage::default() };
    found("partitions", sabotage, &["n1 has"]);
}

#[test]
fn a_cluster_that_was_not_healed_is_found_not_to_answer() {
    let sabotage = Sabotage { unhealed: true, ..Sabotage::default() };
    found("partitions", sabotage, &["does not answer QUORUM requests"]);
}

#[test]
fn writes_without_their_conditions_are_found_not_to_be_linearizable() {
    let sabotage = Sabotage { unconditional: true, ..Sabotage::default() };
    found("lwt", sabotage, &["is not linearizable"]);
}

#[test]
fn increments_that_are_sent_again_are_found_to_count_twice() {
    let sabotage = Sabotage { repeated_increments: true, ..Sabotage::default() };
    found("counters", sabotage, &["instead of"]);
}

#[test]
fn tables_that_are_not_repaired_by_themselves_are_found() {
    let sabotage = Sabotage { unscheduled: true, ..Sabotage::default() };
    found("repairing", sabotage, &["was not repaired by itself", "no table has a schedule"]);
}

#[test]
fn a_new_datacenter_that_lacks_data_is_found() {
    let sabotage = Sabotage { unbuilt: true, ..Sabotage::default() };
    found("new_datacenter", sabotage, &["after rebuild"]);
}

#[test]
fn what_goes_on_although_it_was_given_up_is_found() {
    let sabotage = Sabotage { no_aborts: true, ..Sabotage::default() };
    found("aborting", sabotage, &["was given up"]);
    found("giving_up", sabotage, &["taken out although its removal was given up"]);
}

#[test]
fn a_commit_log_that_is_lost_with_another_number_of_shards_is_found() {
    let sabotage = Sabotage { unsharded_log: true, ..Sabotage::default() };
    let words =
        ["is older than", "no row, but value", "instead of", "is not linearizable", "is gone"];
    found("other_shards", sabotage, &words);
}

#[test]
fn a_run_that_is_not_freed_is_found() {
    let one = |sabotage: Sabotage| -> crate::soak::OneRun {
        Box::new(move |seed| run_with(&scenario("one"), seed, sabotage))
    };
    let right =
        crate::fixed::run(&one(Sabotage::default()), 3, crate::fixed::Runs::Two).map(|_| ());
    assert_eq!(right, Ok(()));
    let sabotage = Sabotage { kept_world: true, ..Sabotage::default() };
    let error = crate::fixed::run(&one(sabotage), 3, crate::fixed::Runs::Two).unwrap_err();
    assert!(error.contains("bytes of memory are left"), "{error}");
}

#[test]
fn files_that_rot_away_are_found_to_be_missing_without_a_repair() {
    let sabotage = Sabotage { unrepaired: true, ..Sabotage::default() };
    found("disks", sabotage, &["n1 has"]);
}

/// State of a process that ends when only the metadata log has the DROP.
#[test]
fn a_drop_that_was_cut_off_is_carried_out_at_the_next_start() {
    let mut run = Run::new(&scenario("one"), 1, Sabotage::default());
    found::found(&mut run).unwrap();
    let (address, disk) = (run.nodes.address("n1"), run.nodes.world.disk("n1"));
    let ask = |run: &mut Run, text: &'static str| {
        let asked = run.nodes.ask(text, SURVEY_MAX, move |rt| async move {
            survey::connect(&rt, address).await.query(text).await
        });
        assert_eq!(asked.unwrap(), Ok(crate::client::Answer::Done), "{text}");
    };
    ask(&mut run, "INSERT INTO ks.registers (k, v) VALUES (1, 1)");
    run.nodes.flush(0).unwrap();
    let of_table = |path: &String| path.contains("/ks/registers-");
    let files: Vec<(String, Vec<u8>)> = disk
        .list()
        .into_iter()
        .filter(of_table)
        .filter_map(|path| Some((path.clone(), disk.read(&path)?)))
        .collect();
    assert!(files.iter().any(|(path, _)| path.ends_with("-Data.db")), "{files:?}");
    ask(&mut run, "DROP TABLE ks.registers");
    run.nodes.world.run_for(QUIET);
    let life = run.nodes.members[0].life.clone();
    life.request_stop();
    run.nodes.world.run_until(|| !run.nodes.world.is_alive(&life), QUIET).unwrap();
    run.nodes.ended(0);
    disk.list().iter().filter(|path| of_table(path)).for_each(|path| disk.remove(path));
    files.iter().for_each(|(path, bytes)| disk.write(path, bytes));
    disk.remove("/data/metadata/drops");
    run.nodes.restart(0);
    run.nodes.ask("the start", START_MAX, move |rt| survey::serves(rt, address, 0)).unwrap();
    // Clients are served before drops are carried out.
    run.nodes.world.run_for(QUIET);
    let left: Vec<String> =
        disk.list().into_iter().filter(of_table).filter(|p| p.ends_with("-Data.db")).collect();
    assert!(!left.is_empty() && left.iter().all(|p| p.contains("/snapshots/dropped-")), "{left:?}");
}

#[test]
fn files_that_a_start_passes_over_are_found_to_be_missing() {
    let sabotage = Sabotage { unseen_damage: true, ..Sabotage::default() };
    found("disks", sabotage, &["on damaged files"]);
}

#[test]
fn damaged_files_for_which_no_repair_begins_are_found() {
    let sabotage = Sabotage { unscheduled: true, ..Sabotage::default() };
    found("disks", sabotage, &["although it should repair", "does not say"]);
}

#[test]
fn tombstones_that_go_before_a_repair_are_found_to_bring_data_back() {
    let sabotage = Sabotage { early_purge: true, ..Sabotage::default() };
    found("resurrection", sabotage, &["instead of"]);
}

#[test]
fn reads_at_levels_that_do_not_meet_are_found() {
    let sabotage = Sabotage { weak_levels: true, ..Sabotage::default() };
    found("levels", sabotage, &["is older than", "no row, but value", "came back"]);
}

#[test]
fn unconditional_writes_are_found_while_replicas_change() {
    let sabotage = Sabotage { unconditional: true, ..Sabotage::default() };
    found("handing_over", sabotage, &["is not linearizable"]);
}

#[test]
fn a_node_that_connects_in_the_clear_is_seen() {
    let sabotage = Sabotage { clear_node: true, ..Sabotage::default() };
    found("encrypted", sabotage, &["in the clear"]);
}

#[test]
fn a_node_that_admits_strangers_is_seen() {
    let sabotage = Sabotage { trusting_node: true, ..Sabotage::default() };
    found("encrypted", sabotage, &["a stranger was admitted"]);
}

#[test]
fn a_node_that_writes_files_in_the_clear_is_seen() {
    let sabotage = Sabotage { plain_files: true, ..Sabotage::default() };
    found("sealed", sabotage, &["is not encrypted"]);
}
