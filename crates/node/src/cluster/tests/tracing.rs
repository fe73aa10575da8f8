//! Traces of requests that several nodes take part in.

use std::collections::BTreeSet;

use super::*;

impl Net {
    fn traced(&self, n: u8, text: &str) {
        let address = SocketAddr::new(self.world.ip(&name(n)), CQL);
        let done: Rc<RefCell<bool>> = Rc::default();
        let (out, text) = (done.clone(), text.to_owned());
        self.world.client(&format!("c{}", self.world.random_u64()), move |rt| async move {
            let statement = (text.as_str(), Consistency::All);
            client::query_with(&rt, address, statement, true).await.unwrap();
            *out.borrow_mut() = true;
        });
        self.world.run_until(|| *done.borrow(), Duration::from_secs(60)).unwrap();
    }
}

#[test]
fn a_trace_has_what_each_replica_did() {
    let net = Net::new(231);
    let _nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 3, 1);
    for (text, received) in [
        ("INSERT INTO ks.t (k, v) VALUES (0, 'y')", "MUTATION_REQ message received from"),
        ("SELECT v FROM ks.t WHERE k = 0", "READ_REQ message received from"),
    ] {
        net.query(1, "TRUNCATE system_traces.events").unwrap();
        net.traced(1, text);
        net.run(2);
        let events = "SELECT source, activity, session_id FROM system_traces.events";
        let events = net.query_at(2, events, Consistency::Two).unwrap();
        let sessions: BTreeSet<_> = events.iter().map(|row| row[2].clone()).collect();
        assert_eq!(sessions.len(), 1, "one trace");
        let is_of = |n: u8, row: &&Vec<Option<Vec<u8>>>| match net.world.ip(&name(n)) {
            std::net::IpAddr::V4(ip) => row[0].as_deref() == Some(ip.octets().as_slice()),
            std::net::IpAddr::V6(ip) => row[0].as_deref() == Some(ip.octets().as_slice()),
        };
        for n in 1..=3 {
            let mut mine = events.iter().filter(|row| is_of(n, row));
            let has_received = mine.clone().any(|row| {
                let activity = row[1].as_deref().unwrap_or_default();
                String::from_utf8_lossy(activity).starts_with(received)
            });
            assert!(mine.next().is_some(), "{text}: nothing of n{n}");
            assert_eq!(has_received, n != 1, "{text}: n{n}");
        }
    }
}

#[test]
fn a_trace_has_what_a_filter_costs_each_replica_and_shard() {
    let net = Net::new(232);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 2, 40);
    net.query(1, "TRUNCATE system_traces.events").unwrap();
    net.traced(1, "SELECT k FROM ks.t WHERE v = 'v7' ALLOW FILTERING");
    net.run(2);
    let events = "SELECT source, activity FROM system_traces.events";
    let events = net.query_at(2, events, Consistency::Two).unwrap();
    let of = |n: u8| {
        let source = match net.world.ip(&name(n)) {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let mine = events.iter().filter(move |row| row[0].as_ref() == Some(&source));
        let text = |bytes: &Option<Vec<u8>>| String::from_utf8(bytes.clone().unwrap()).unwrap();
        mine.map(move |row| text(&row[1])).collect::<Vec<_>>()
    };
    let rows_of = |n: u8| -> u64 {
        let lines = of(n).into_iter().filter(|text| text.starts_with("Shard "));
        let rows = lines.map(|text| {
            let rows = text.split(" read ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
            rows.parse::<u64>().unwrap()
        });
        rows.sum()
    };
    // Each row is read by both of its replicas.
    assert_eq!((1..=3).map(rows_of).sum::<u64>(), 80, "{events:?}");
    for (n, node) in (1..).zip(&nodes) {
        let shards: BTreeSet<String> = of(n)
            .iter()
            .filter(|text| text.starts_with("Shard "))
            .map(|text| text.split(' ').nth(1).unwrap().to_owned())
            .collect();
        assert_eq!(shards.len(), usize::from(node.shards), "n{n}: {:?}", of(n));
    }
    let said = of(1);
    let cost = said.iter().find(|text| text.starts_with("Filtering on v looked at 40 rows of 40 "));
    let dropped = " dropped 39 rows and 0 whole partitions, and kept 1 rows; ";
    assert!(cost.is_some_and(|cost| cost.contains(dropped)), "{said:?}");
    assert!(said.iter().any(|text| text.starts_with("Enqueuing request to /")), "{said:?}");
}
