//! Links that an operator of tests cuts.

use super::*;

fn cut(net: &Net, node: &Started, others: &[u8]) -> Vec<AdminReply> {
    let addresses = others.iter().map(|n| net.world.ip(&name(*n)).to_string()).collect();
    net.command_all(node, &ClusterCommand::CutLinks { addresses })
}

#[test]
fn links_are_cut_where_that_is_allowed_and_heal() {
    let net = Net::new(61);
    let nodes: Vec<Started> = (1..=3)
        .map(|n| net.start_with(n, Options { developer_link_faults: true, ..net.options(n) }))
        .collect();
    net.until_ready(&nodes.iter().collect::<Vec<_>>());
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
    net.query(1, &format!("CREATE KEYSPACE ks WITH replication = {replication}")).unwrap();
    net.query(1, "CREATE TABLE ks.t (k int PRIMARY KEY)").unwrap();
    let set = |others: [&[u8]; 3]| {
        for (node, others) in nodes.iter().zip(others) {
            let replies = cut(&net, node, others);
            assert!(replies.iter().all(|r| matches!(r, AdminReply::Done)), "{replies:?}");
        }
        net.run(40);
    };
    let insert = |n, k: i32| {
        net.query_at(n, &format!("INSERT INTO ks.t (k) VALUES ({k})"), Consistency::Quorum)
    };
    set([&[3], &[3], &[1, 2]]);
    insert(1, 1).unwrap();
    let refused = insert(3, 2).unwrap_err();
    assert!(refused.contains("Cannot achieve consistency level QUORUM"), "{refused}");
    set([&[], &[], &[]]);
    insert(3, 2).unwrap();
}

#[test]
fn a_node_cut_from_its_start_does_not_join_and_another_is_not_cut_at_all() {
    let net = Net::new(62);
    let nodes = net.cluster(&[1, 2]);
    for reply in cut(&net, &nodes[0], &[2]) {
        let AdminReply::Failed(error) = reply else { panic!("{reply:?}") };
        assert!(error.to_string().contains("--developer-link-faults"), "{error}");
    }
    let others = [1, 2].map(|n| net.world.ip(&name(n)));
    let third =
        net.start_with(3, Options { developer_cut_links: others.to_vec(), ..net.options(3) });
    net.run(50);
    assert!(!third.is_ready(), "it joined over links that are cut");
}
