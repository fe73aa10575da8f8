//! Checks of the simulated network; each returns the first violation.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::Event;

use super::{World, host, node_of};

/// Every running node sees every running node up, with its newest state, and the others down.
pub(super) fn converged(world: &World) -> Result<(), String> {
    let count = world.settings.nodes;
    for by in (0..count).filter(|n| world.is_running(*n)) {
        for of in 0..count {
            let seen = world.gossip(by).peer(host(of)).ok_or("a member is not known")?;
            if seen.is_alive != world.is_running(of) {
                return Err(format!("{by} sees {of} alive: {}", seen.is_alive));
            }
            if world.is_running(of) {
                let own = world.gossip(of).peer(host(of)).ok_or("not known to itself")?;
                if (seen.generation, seen.app) != (own.generation, own.app) {
                    return Err(format!("{by} has an old state of {of}"));
                }
            }
        }
    }
    Ok(())
}

/// Checks that no node outside `down` was reported down, from event number `first` on.
pub(super) fn no_false_conviction(
    world: &World,
    first: usize,
    down: &BTreeSet<usize>,
) -> Result<(), String> {
    for seen in &world.seen[first..] {
        if let Event::Down { host, reason } = seen.event
            && !down.contains(&node_of(host))
        {
            let seconds = seen.at.0 / 1_000_000_000;
            return Err(format!("{} saw {} down at {seconds}: {reason:?}", seen.by, node_of(host)));
        }
    }
    Ok(())
}

/// Checks that Up and Down alternate for each pair as long as the observer lives (INV-gossip-1),
/// and that generations only grow (INV-gossip-2). `restarts` are the events' numbers at which
/// observers restarted.
pub(super) fn orderly(world: &World, restarts: &[(usize, usize)]) -> Result<(), String> {
    let mut up: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut generations: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (number, seen) in world.seen.iter().enumerate() {
        for (_, node) in restarts.iter().filter(|(at, _)| *at == number) {
            up.retain(|(by, _)| by != node);
            generations.retain(|(by, _), _| by != node);
        }
        let (by, what) = (seen.by, seen.event);
        let is_right = match what {
            Event::Up { host } => up.insert((by, node_of(host))),
            Event::Down { host, .. } => up.remove(&(by, node_of(host))),
            Event::Restarted { host, generation } => generations
                .insert((by, node_of(host)), generation)
                .is_none_or(|before| before < generation),
            Event::StateChanged { .. } => true,
            Event::GenerationRaised { .. }
            | Event::Impostor { .. }
            | Event::Unbelievable { .. } => false,
        };
        if !is_right {
            return Err(format!("INV-gossip-1, INV-gossip-2: {by} says {what:?} out of order"));
        }
    }
    Ok(())
}
