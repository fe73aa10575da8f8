//! Random histories: a read by the index at QUORUM returns exactly what a filter over the same quorums returns.

use super::world::{Defect, World};

const EVENTS: usize = 400;
const SEEDS: u64 = 600;

/// Runs one history. `Err`: what was wrong first.
fn run(seed: u64, defect: Defect) -> Result<World, String> {
    let mut world = World::new(seed, defect);
    for event in 0..EVENTS {
        world.event().map_err(|what| format!("seed {seed}, event {event}: {what}"))?;
    }
    world.settle().map_err(|what| format!("seed {seed}, at the end: {what}"))?;
    Ok(world)
}

/// INV-global-1, INV-global-2, INV-global-3: without one of them an answer lacks a row or has one too many.
#[test]
fn an_indexed_read_at_quorum_equals_the_filter() {
    let (mut matches, mut ghosts, mut deletions) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let world = run(seed, Defect::None).unwrap_or_else(|what| panic!("{what}"));
        matches += world.counts.matches;
        ghosts += world.counts.ghosts;
        deletions += world.counts.deletions;
    }
    // The histories reach what they are for.
    assert!(matches > 1_000 && ghosts > 1_000 && deletions > 100, "{matches} {ghosts} {deletions}");
}

/// Asserts that some history finds a defect.
fn is_found(defect: Defect) {
    let found = (1..=SEEDS).find_map(|seed| run(seed, defect).err());
    assert!(found.is_some(), "{defect:?} is not found");
}

#[test]
fn deletion_on_absence_is_found() {
    is_found(Defect::DeleteOnAbsence);
}

#[test]
fn entries_after_the_base_write_are_found() {
    is_found(Defect::IndexAfterBase);
}

#[test]
fn entries_without_a_ttl_are_found() {
    is_found(Defect::EntryWithoutTtl);
}

#[test]
fn skipped_verification_is_found() {
    is_found(Defect::SkipVerification);
}

#[test]
fn one_slot_for_all_writes_is_found() {
    is_found(Defect::OneSlot);
}

#[test]
fn entries_with_old_timestamps_are_found() {
    is_found(Defect::OldTimestamp);
}

#[test]
fn deletion_without_read_repair_is_found() {
    is_found(Defect::NoReadRepair);
}

#[test]
fn entries_of_one_replica_are_found() {
    is_found(Defect::WeakEntries);
}
