use super::check::{converged, no_false_conviction, orderly};
use super::*;
use crate::api::DownReason;
use crate::state::Flags;

/// 8 ln 10 times the longest mean (2 s), and two rounds.
const CONVICTED_WITHIN: f64 = 39.0;

fn nobody() -> BTreeSet<usize> {
    BTreeSet::new()
}

fn started(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.run(15.0);
    converged(&world).unwrap();
    world
}

#[test]
fn a_cluster_finds_itself_and_spreads_every_change() {
    for seed in 0..20 {
        let nodes = [1, 2, 3, 10, 40][seed as usize % 5];
        let mut world = started(Settings::calm(nodes, seed));
        for round in 0..5 {
            let node = world.draw(nodes);
            let app = AppState { load: round + 1, ..AppState::default() };
            world.input(node, Input::Update(app));
            if nodes > 1 {
                // The check sees a change that has not spread.
                assert!(converged(&world).is_err(), "seed {seed}");
            }
            world.run(10.0);
            converged(&world).unwrap_or_else(|e| panic!("seed {seed}, {nodes} nodes: {e}"));
        }
        no_false_conviction(&world, 0, &nobody()).unwrap();
        orderly(&world, &[]).unwrap();
    }
}

#[test]
fn three_nodes_that_announce_see_each_other_within_a_round() {
    for seed in 0..20 {
        let mut world = World::new(Settings::calm(3, seed));
        for node in 0..3 {
            world.input(node, Input::Announce);
        }
        world.run(0.2);
        converged(&world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn rough_networks_convict_nobody_who_lives() {
    for seed in 0..6 {
        let nodes = [3, 12, 25][seed as usize % 3];
        let mut world = World::new(Settings::rough(nodes, seed));
        world.run(600.0);
        no_false_conviction(&world, 0, &nobody()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        orderly(&world, &[]).unwrap();
        world.settings.loss = 0;
        world.run(15.0);
        converged(&world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(world.delivered > 2_000, "{}", world.delivered);
    }
    // The check fails when the detector is impatient.
    let mut world = World::new(Settings { phi: 1.0, ..Settings::rough(12, 1) });
    world.run(600.0);
    assert!(no_false_conviction(&world, 0, &nobody()).is_err());
}

/// Seconds until every running node saw `node` go down; `None` when one did not within `limit`.
fn down_everywhere(world: &mut World, node: usize, limit: f64) -> Option<f64> {
    let start = world.seconds();
    while world.seconds() - start < limit {
        world.run(1.0);
        let others = (0..world.settings.nodes).filter(|n| world.is_running(*n) && *n != node);
        if { others }.all(|by| !world.gossip(by).is_alive(host(node))) {
            return Some(world.seconds() - start);
        }
    }
    None
}

#[test]
fn a_crash_is_seen_by_all_within_the_bound_and_not_at_once() {
    for seed in 0..12 {
        let settings =
            if seed % 2 == 0 { Settings::calm(9, seed) } else { Settings::rough(9, seed) };
        let mut world = World::new(settings);
        world.run(120.0);
        let node = world.draw(9);
        let before = world.seen.len();
        world.crash(node);
        let took = down_everywhere(&mut world, node, CONVICTED_WITHIN);
        let took = took.unwrap_or_else(|| panic!("seed {seed}: not seen in {CONVICTED_WITHIN} s"));
        assert!(took > 5.0, "seed {seed}: {took} s");
        // No other node is, and it stays down although heartbeats were on their way.
        world.run(60.0);
        no_false_conviction(&world, before, &[node].into()).unwrap();
        let downs = world.seen[before..].iter().filter(|s| matches!(s.event, Event::Down { .. }));
        assert_eq!(downs.count(), 8, "seed {seed}: once by each");
        orderly(&world, &[]).unwrap();
    }
    // The check fails when the detector is too patient.
    let mut world = World::new(Settings { phi: 40.0, ..Settings::calm(9, 1) });
    world.run(120.0);
    world.crash(3);
    assert_eq!(down_everywhere(&mut world, 3, CONVICTED_WITHIN), None);
}

#[test]
fn in_a_small_cluster_a_crash_is_seen_by_all_some_18_rounds_after_its_last_news() {
    for seed in 0..30 {
        let nodes = 3 + seed as usize % 3;
        let mut world = World::new(Settings::calm(nodes, seed));
        world.run([60.0, 120.0, 1_200.0][seed as usize / 10]);
        world.crash(1);
        let took = down_everywhere(&mut world, 1, CONVICTED_WITHIN).unwrap();
        assert!((16.0..=23.0).contains(&took), "seed {seed}: {nodes} nodes: {took} s");
    }
}

#[test]
fn a_restart_with_the_clock_set_back_is_a_new_generation() {
    for seed in 0..10 {
        let mut world = started(Settings::calm(5, seed));
        let before = world.gossip(2).peer(host(2)).unwrap().generation;
        world.input(2, Input::Update(AppState { load: 77, ..AppState::default() }));
        world.run(5.0);
        world.crash(2);
        // Quick restarts are not convicted in between, slow ones are.
        world.run([1.0, 50.0][seed as usize % 2]);
        world.set_clock(2, -100_000_000);
        let restarts = [(world.seen.len(), 2)];
        world.start(2);
        world.run(15.0);
        assert!(world.gossip(2).peer(host(2)).unwrap().generation > before);
        converged(&world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        orderly(&world, &restarts).unwrap();
        for by in [0, 1, 3, 4] {
            assert_eq!(world.gossip(by).peer(host(2)).unwrap().app.load, 0, "the past is gone");
            let saw = |e: &Event| matches!(e, Event::Restarted { host: h, .. } if *h == host(2));
            assert_eq!(world.seen.iter().filter(|s| s.by == by && saw(&s.event)).count(), 1);
        }
    }
    // Without the number that survives, the node looks like its past: the check sees it.
    let mut world = started(Settings::calm(5, 1));
    world.crash(2);
    world.set_clock(2, -100_000_000);
    world.nodes[2].generation = None;
    let restarts = [(world.seen.len(), 2)];
    world.start(2);
    world.run(15.0);
    assert!(orderly(&world, &restarts).is_err(), "it had to raise its generation");
}

#[test]
fn a_partition_is_seen_on_both_sides_and_healed_within_the_bound() {
    for seed in 0..8 {
        let mut world = started(Settings::calm(8, seed));
        // The seeds, 0 and 1, are on different sides or on the same one.
        let side: Vec<usize> = if seed % 2 == 0 { vec![0, 2, 4] } else { vec![0, 1, 2, 3] };
        world.partition(&side);
        world.run(CONVICTED_WITHIN);
        for by in 0..8 {
            for of in 0..8 {
                let together = side.contains(&by) == side.contains(&of);
                assert_eq!(world.gossip(by).is_alive(host(of)), together, "{seed}: {by} of {of}");
            }
        }
        assert!(converged(&world).is_err());
        // One crashes meanwhile: old heartbeats from the other side do not bring it back.
        world.crash(7);
        world.run(CONVICTED_WITHIN);
        let before = world.seen.len();
        world.heal();
        world.run(30.0);
        converged(&world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let ghosts = |s: &&Seen| s.event == Event::Up { host: host(7) };
        assert_eq!(world.seen[before..].iter().filter(ghosts).count(), 0, "seed {seed}");
        orderly(&world, &[]).unwrap();
    }
}

#[test]
fn a_link_cut_one_way_convicts_nobody_because_others_pass_the_news_on() {
    for seed in 0..6 {
        let mut world = started(Settings::calm(6, seed));
        world.cut_one_way(2, 3);
        world.run(200.0);
        no_false_conviction(&world, 0, &nobody()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    // A node that is cut off from all others is convicted, by all.
    let mut world = started(Settings::calm(6, 1));
    for to in [0, 1, 3, 4, 5] {
        world.cut_one_way(2, to);
    }
    assert!(down_everywhere(&mut world, 2, CONVICTED_WITHIN).is_some());
}

#[test]
fn a_node_that_was_stopped_does_not_convict_the_others_when_it_goes_on() {
    let paused = |settings: Settings| {
        let mut world = started(settings);
        let before = world.seen.len();
        // Its own clock goes on; messages of the time are delivered late.
        world.pause(3, Duration::from_secs(60));
        world.partition(&[3]);
        world.run(60.1);
        world.heal();
        world.run(30.0);
        let by_it = world.seen[before..]
            .iter()
            .filter(|s| s.by == 3 && matches!(s.event, Event::Down { .. }))
            .count();
        (by_it, world)
    };
    for seed in 0..8 {
        let (by_it, world) = paused(Settings::calm(6, seed));
        assert_eq!(by_it, 0, "seed {seed}");
        converged(&world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        // The others were right to convict it.
        let convicted =
            |s: &&Seen| s.event == Event::Down { host: host(3), reason: DownReason::Convicted };
        assert_eq!(world.seen.iter().filter(convicted).count(), 5);
    }
    // Without the detection of pauses it does convict them.
    let careless = Settings { pause_max: Duration::from_secs(3_600), ..Settings::calm(6, 1) };
    assert!(paused(careless).0 > 0);
}

#[test]
fn a_node_that_announces_its_stop_is_down_everywhere_at_once() {
    let mut world = started(Settings::calm(7, 4));
    let app = AppState { flags: Flags::SHUTTING_DOWN, ..AppState::default() };
    world.input(5, Input::Update(app));
    world.input(5, Input::Announce);
    world.run(0.1);
    world.crash(5);
    world.run(1.0);
    for by in [0, 1, 2, 3, 4, 6] {
        assert!(!world.gossip(by).is_alive(host(5)));
    }
    let reason = DownReason::Shutdown;
    let downs = world.seen.iter().filter(|s| s.event == Event::Down { host: host(5), reason });
    assert_eq!(downs.count(), 6);
    world.run(60.0);
    orderly(&world, &[]).unwrap();
    let restarts = [(world.seen.len(), 5)];
    world.start(5);
    world.run(15.0);
    converged(&world).unwrap();
    orderly(&world, &restarts).unwrap();
}

#[test]
fn hours_of_everything_at_once_end_in_agreement() {
    let mut probes = [0_usize; 4];
    for seed in 0..6 {
        let mut world = World::new(Settings::rough(9, seed));
        let mut restarts = Vec::new();
        world.run(20.0);
        for _ in 0..40 {
            let node = world.draw(9);
            let what = world.draw(5);
            match what {
                0 if world.is_running(node) => world.crash(node),
                0 | 1 if !world.is_running(node) => {
                    let ahead = world.draw(2_000) as i64 - 1_000;
                    world.set_clock(node, ahead);
                    restarts.push((world.seen.len(), node));
                    world.start(node);
                }
                2 => {
                    let side: Vec<usize> = (0..9).filter(|_| world.draw(2) == 0).collect();
                    world.partition(&side);
                }
                3 => world.heal(),
                4 => {
                    let time = Duration::from_secs(world.draw(60) as u64);
                    world.pause(node, time);
                }
                _ => continue,
            }
            probes[what.min(3)] += 1;
            let time = world.draw(60) as f64;
            world.run(time);
        }
        world.heal();
        world.settings = Settings::calm(9, seed);
        for node in 0..9 {
            if !world.is_running(node) {
                restarts.push((world.seen.len(), node));
                world.start(node);
            }
        }
        world.run(120.0);
        converged(&world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        orderly(&world, &restarts).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert!(probes.iter().all(|n| *n > 5), "{probes:?}");
}
