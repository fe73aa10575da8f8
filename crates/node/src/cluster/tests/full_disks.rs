//! Nodes whose disks are full: they say so, and the others refuse what would go to them.

use admin::ActionError;
use admin::model::{ClusterReport, GuardrailRequest};
use conf::Authenticator;

use super::*;

const SUPERUSER: (&str, &str) = ("cassandra", "cassandra");
const WRITER: (&str, &str) = ("writer", "secret");
const REFUSED: &str = "Guardrail replica_disk_usage violated: Write request failed because disk \
                       usage exceeds failure threshold";
const ROWS: u32 = 24;

impl Net {
    fn start_with_logins(&self, n: u8) -> Started {
        let options = Options {
            authenticator: Authenticator::Password,
            data_disk_usage_percentage_warn_threshold: 70,
            data_disk_usage_percentage_fail_threshold: 80,
            min_free_space_per_drive: conf::DataSize(0),
            ..self.options(n)
        };
        self.start_with(n, options)
    }

    fn ask(&self, at: &Started, shard: u16, request: AdminRequest) -> AdminReply {
        let found: Rc<RefCell<Option<AdminReply>>> = Rc::default();
        let (out, admin) = (found.clone(), at.admin.clone());
        self.world.client(&format!("a{}", self.world.random_u64()), move |rt| async move {
            *out.borrow_mut() = Some(admin.call(&rt, ShardId(shard), request).await.unwrap());
        });
        self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    }

    fn set_guardrail(&self, at: &Started, name: &str, values: &[&str]) -> Vec<AdminReply> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let change = GuardrailRequest { name: name.to_owned(), values };
        let one = |shard| self.ask(at, shard, AdminRequest::SetGuardrail(change.clone()));
        (0..at.shards).map(one).collect()
    }

    /// Returns the states of the disks that `at` knows, by host id.
    fn disks(&self, at: &Started) -> std::collections::BTreeMap<String, String> {
        let AdminReply::Cluster(report) = self.ask(at, 0, AdminRequest::Cluster) else {
            panic!("no report");
        };
        let ClusterReport { gossip, .. } = *report;
        let peers = gossip.unwrap().peers.into_iter();
        peers.map(|peer| (peer.host_id, peer.disk_usage)).collect()
    }

    /// Which of the rows node `n` takes for a client, each time by a connection of its own, so that
    /// every shard is asked.
    fn accepted(&self, n: u8, user: (&'static str, &'static str)) -> Vec<bool> {
        let write = |k| {
            let text = format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'x')");
            match self.query_as(n, user, &text) {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error, REFUSED, "n{n}: row {k}");
                    false
                }
            }
        };
        (0..ROWS).map(write).collect()
    }

    /// Which rows have node `n` as their replica.
    fn rows_of(&self, n: u8, nodes: &[Started]) -> Vec<bool> {
        let host = self.disks_host(n);
        let of = |k: u32| {
            let (keyspace, table) = ("ks".to_owned(), "t".to_owned());
            let ask = AdminRequest::Endpoints { keyspace, table, key: k.to_string() };
            match self.ask(&nodes[0], 0, ask) {
                AdminReply::Endpoints(found) => found.host_ids.contains(&host),
                other => panic!("{other:?}"),
            }
        };
        (0..ROWS).map(of).collect()
    }

    fn disks_host(&self, n: u8) -> String {
        let found = self.query_as(n, SUPERUSER, "SELECT host_id FROM system.local").unwrap();
        let bytes: [u8; 16] = found[0][0].as_deref().unwrap().try_into().unwrap();
        stdx::Uuid::from_bytes(bytes).to_string()
    }
}

#[test]
fn ranges_of_a_full_node_are_refused_by_every_node_until_it_has_room() {
    let net = Net::new(231);
    let nodes: Vec<Started> = (1..=3).map(|n| net.start_with_logins(n)).collect();
    net.until_ready(&nodes.iter().collect::<Vec<_>>());
    net.run(5);
    let must = |text: &str| net.query_as(1, SUPERUSER, text).unwrap();
    must("CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}");
    must("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    must("CREATE ROLE writer WITH PASSWORD = 'secret' AND LOGIN = true");
    let (all, of_2) = (vec![true; ROWS as usize], net.rows_of(2, &nodes));
    assert!(of_2.contains(&true) && of_2.contains(&false), "{of_2:?}");
    let not_of_2: Vec<bool> = of_2.iter().map(|is_of_2| !is_of_2).collect();
    let host = net.disks_host(2);
    let state = |usage: &str, others: &str| {
        for (n, node) in (1..).zip(&nodes) {
            for (of, told) in net.disks(node) {
                assert_eq!(told, if of == host { usage } else { others }, "n{n} of {of}");
            }
        }
    };
    state("SPACIOUS", "SPACIOUS");
    assert_eq!(net.accepted(1, WRITER), all);
    // Its disk is taken for small.
    let done = |replies: Vec<AdminReply>| {
        assert!(replies.iter().all(|reply| matches!(reply, AdminReply::Done)), "{replies:?}");
    };
    done(net.set_guardrail(&nodes[1], "data_disk_usage_max_disk_size", &["1B"]));
    net.run(3);
    state("FULL", "SPACIOUS");
    for n in 1..=3 {
        assert_eq!(net.accepted(n, WRITER), not_of_2, "n{n}");
        assert_eq!(net.accepted(n, SUPERUSER), all, "n{n}");
    }
    // A batch is refused as a whole, one with IF too; a statement with IF is not looked at.
    let row = of_2.iter().position(|is_of_2| *is_of_2).unwrap();
    let other = of_2.iter().position(|is_of_2| !is_of_2).unwrap();
    let insert = |k: usize, end: &str| format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'b'){end}");
    let batch =
        |first: String, second: String| format!("BEGIN BATCH {first}; {second}; APPLY BATCH");
    let refused = Err(REFUSED.to_owned());
    assert_eq!(net.query_as(1, WRITER, &batch(insert(other, ""), insert(row, ""))), refused);
    let update = format!("UPDATE ks.t SET v = 'c' WHERE k = {row}");
    assert_eq!(net.query_as(1, WRITER, &batch(insert(row, " IF NOT EXISTS"), update)), refused);
    assert!(net.query_as(1, WRITER, &insert(row, " IF NOT EXISTS")).is_ok());
    let several = format!("DELETE FROM ks.t WHERE k IN ({other}, {row})");
    assert_eq!(net.query_as(3, WRITER, &several), refused);
    // Full is full while it is down, also for who starts meanwhile and hears of it from others.
    net.world.kill(&nodes[1].node);
    net.run(40);
    assert!(!net.accepted(1, WRITER)[row]);
    // It comes back with the disk that it has.
    let again = net.start_with_logins(2);
    net.until_ready(&[&again]);
    net.run(5);
    assert_eq!(net.accepted(1, WRITER), all);
    assert_eq!(net.accepted(3, WRITER), all);
}

#[test]
fn what_is_stuffed_warns_only_and_what_has_no_limits_says_nothing() {
    let net = Net::new(232);
    let nodes: Vec<Started> = (1..=2).map(|n| net.start_with_logins(n)).collect();
    net.until_ready(&nodes.iter().collect::<Vec<_>>());
    net.run(5);
    let told = |at: &Started| net.disks(at).into_values().collect::<Vec<_>>();
    let set = |name: &str, values: &[&str]| {
        let replies = net.set_guardrail(&nodes[0], name, values);
        assert!(replies.iter().all(|reply| matches!(reply, AdminReply::Done)), "{replies:?}");
        net.run(3);
        let mut states = told(&nodes[1]);
        states.sort();
        states
    };
    set("data_disk_usage_percentage_threshold", &["-1", "70"]);
    assert_eq!(set("data_disk_usage_max_disk_size", &["1B"]), ["SPACIOUS", "STUFFED"]);
    assert_eq!(set("data_disk_usage_percentage_threshold", &["-1", "-1"]), ["", "SPACIOUS"]);
    assert_eq!(set("data_disk_usage_percentage_threshold", &["90", "-1"]), ["FULL", "SPACIOUS"]);
    // More than there is, is refused, and changes nothing.
    for reply in net.set_guardrail(&nodes[0], "data_disk_usage_max_disk_size", &["2048GiB"]) {
        let AdminReply::Failed(ActionError::Argument(text)) = reply else { panic!("{reply:?}") };
        let reason = "Invalid value for data_disk_usage_max_disk_size: 2048GiB specified, but only \
                      1 TiB are actually available on disk";
        assert!(text.ends_with(reason), "{text}");
    }
    assert_eq!(set("data_disk_usage_percentage_threshold", &["90", "-1"]), ["FULL", "SPACIOUS"]);
    // The real disk fills up without a change of limits, and is emptied again.
    assert_eq!(set("data_disk_usage_max_disk_size", &["null"]), ["SPACIOUS", "SPACIOUS"]);
    net.world.disk("n1").set_free_bytes(Some(100));
    net.run(35);
    assert_eq!(told(&nodes[1]).iter().filter(|state| *state == "FULL").count(), 1);
    net.world.disk("n1").set_free_bytes(None);
    net.run(35);
    assert_eq!(told(&nodes[1]), ["SPACIOUS", "SPACIOUS"]);
}

#[test]
fn a_disk_that_is_smaller_than_it_is_said_to_be_stops_the_start() {
    let net = Net::new(233);
    let options =
        Options { data_disk_usage_max_disk_size: Some(conf::DataSize(2 << 40)), ..net.options(1) };
    let failure = net.failure_of(&net.start_with(1, options));
    assert!(failure.contains("only 1 TiB are actually available on disk"), "{failure}");
}
