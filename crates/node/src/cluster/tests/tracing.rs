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
