//! Scans of a ring with vnodes, where no node has everything.

use cluster::Consistency;
use data::command::{KeyRange, Partitions, RingBound};
use dist_testing::{Random, Replicas};
use stdx::Token;

use super::nodes::{Ask, Nodes, Options, TIMEOUT, all};
use super::sink::next_page;

const KEYS: i32 = 60;

fn four_nodes(seed: u64) -> Nodes {
    let shards = vec![1, 2, 1, 3];
    let nodes = Nodes::start(&Options { shards, factor: 2, tokens: 6, ..Options::new(seed) });
    let mut random = Random(seed);
    let writes: Vec<_> = (1..=400)
        .map(|at| {
            let mutation = random.write(KEYS, at);
            let to = nodes.replicas_of(&mutation);
            (mutation, to)
        })
        .collect();
    nodes.write_all(&writes);
    nodes
}

#[test]
fn scans_at_every_level_from_every_node_show_what_one_node_with_everything_shows() {
    for seed in 60..64 {
        let nodes = four_nodes(seed);
        for level in [Consistency::One, Consistency::Quorum, Consistency::All] {
            for n in 1..=4 {
                for rows_wanted in [1, 40, 5000] {
                    let ask = Ask { rows_wanted, ..Ask::at(level) };
                    let found = nodes.read(n, &all(), &ask);
                    assert!(found.result.is_ok(), "seed {seed} {level:?} n{n}: {:?}", found.result);
                    assert_eq!(found.rows, nodes.expected(&all(), &ask), "seed {seed} {level:?}");
                }
            }
        }
        // All replicas have the same, whatever their number of shards.
        assert_eq!(nodes.mismatches(), 0);
    }
}

#[test]
fn parts_of_the_ring_and_pages_of_scans_are_complete() {
    for seed in 70..74 {
        let nodes = four_nodes(seed);
        for _ in 0..12 {
            let at = || Token(nodes.random.borrow_mut().next() as i64);
            let (a, b) = (at(), at());
            let bound = |token, after| RingBound::Token { token, after };
            let (start, end) = (bound(a.min(b), true), bound(a.max(b), false));
            let mut command = all();
            command.partitions = Partitions::Range(KeyRange { start, end });
            let rows = 1 + nodes.below(20);
            let ask =
                Ask { rows_wanted: rows, stop_after: Some(rows), ..Ask::at(Consistency::Quorum) };
            let whole = Ask { stop_after: None, ..ask.clone() };
            let expected = nodes.expected(&command, &whole);
            let (mut found, mut rest) = (Vec::new(), Some(command));
            while let Some(command) = rest {
                let page = nodes.read(nodes.any(), &command, &ask);
                page.result.as_ref().unwrap();
                rest = next_page(&command, &page.rows).filter(|_| page.rows.len() == rows);
                found.extend(page.rows);
            }
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}

#[test]
fn a_scan_that_gets_on_may_take_longer_than_the_timeout_of_its_pages() {
    let nodes = four_nodes(75);
    let ask = Ask { rows_wanted: usize::MAX, ..Ask::at(Consistency::All) };
    let expected = nodes.expected(&all(), &ask);
    // Connections are there before they are slow.
    for n in 1..=4 {
        nodes.read(n, &all(), &ask).result.unwrap();
    }
    let name = |n: u8| format!("n{n}");
    for (from, to) in (1..=4).flat_map(|from| (1..=4).map(move |to| (from, to))) {
        nodes.world.set_latency(&name(from), &name(to), 1_150_000..1_200_000);
    }
    let one_deadline = nodes.read(1, &all(), &ask);
    assert!(one_deadline.result.is_err() && one_deadline.took == TIMEOUT, "{one_deadline:?}");
    let by_page = nodes.read(1, &all(), &Ask { by_page: true, ..ask });
    assert!(by_page.took > TIMEOUT && by_page.took < 4 * TIMEOUT, "{:?}", by_page.took);
    by_page.result.unwrap();
    assert_eq!(by_page.rows, expected);
}
