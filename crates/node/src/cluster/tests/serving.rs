//! Clients are served, or not.

use std::collections::BTreeMap;

use admin::ActionError;
use admin::model::GuardrailRequest;

use super::*;

#[test]
fn a_native_transport_that_is_off_takes_no_clients_and_on_again_it_does() {
    let net = Net::new(220);
    let nodes = net.cluster(&[1, 2]);
    let active = |node: &Started| {
        let found: Rc<RefCell<Option<bool>>> = Rc::default();
        let (out, admin) = (found.clone(), node.admin.clone());
        net.world.client(&format!("a{}", net.world.random_u64()), move |rt| async move {
            let reply = admin.call(&rt, ShardId(0), AdminRequest::Node).await.unwrap();
            let AdminReply::Node(node) = reply else { panic!("{reply:?}") };
            *out.borrow_mut() = Some(node.native_transport_active);
        });
        net.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    };
    let switch = |enabled| {
        for reply in net.command_all(&nodes[0], &ClusterCommand::SetNativeTransport { enabled }) {
            assert!(matches!(reply, AdminReply::Done), "{reply:?}");
        }
        net.run(2);
        assert_eq!(active(&nodes[0]), enabled);
    };
    let select = "SELECT key FROM system.local";
    for _ in 0..3 {
        // Those that wait for something are closed too.
        let idle = net.idle_client(1);
        net.run(1);
        assert!(!idle.borrow().to_owned(), "it is served");
        switch(false);
        assert!(idle.borrow().to_owned(), "its connection has ended");
        assert!(net.query(1, select).is_err());
        net.query(2, select).unwrap();
        switch(false);
        switch(true);
        net.query(1, select).unwrap();
        switch(true);
    }
    // Other nodes did not take it for down: it coordinates nothing, and holds its data.
    switch(false);
    net.query(2, &keyspace("meanwhile")).unwrap();
    net.world.kill(&nodes[0].node);
    let again = net.start(1);
    net.until_ready(&[&again]);
    net.query(1, select).unwrap();
}

#[test]
fn a_timeout_that_is_set_is_told_and_kept_to() {
    let net = Net::new(221);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 3, 1);
    let timeouts = || {
        let found: Rc<RefCell<Option<BTreeMap<String, u64>>>> = Rc::default();
        let (out, admin) = (found.clone(), nodes[0].admin.clone());
        net.world.client(&format!("a{}", net.world.random_u64()), move |rt| async move {
            let reply = admin.call(&rt, ShardId(0), AdminRequest::Cluster).await.unwrap();
            let AdminReply::Cluster(cluster) = reply else { panic!("{reply:?}") };
            *out.borrow_mut() = Some(cluster.timeouts);
        });
        net.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    };
    let set = |kind: &str, millis| {
        let command = ClusterCommand::SetTimeout { kind: kind.to_owned(), millis };
        net.command_all(&nodes[0], &command).pop().unwrap()
    };
    // How long a write waits for replicas that are not known to be down yet.
    net.world.pause(&nodes[1].node, Duration::from_secs(600));
    net.world.pause(&nodes[2].node, Duration::from_secs(600));
    let write = || {
        let began = net.world.now();
        let insert = "INSERT INTO ks.t (k, v) VALUES (1, 'x')";
        let refused = net.query_at(1, insert, Consistency::Quorum).unwrap_err();
        assert!(refused.contains("timed out"), "{refused}");
        net.world.now().since(began)
    };
    let usual = write();
    assert!((1_900..2_500).contains(&usual.as_millis()), "{usual:?}");
    assert_eq!(timeouts()["write"], 2_000);
    assert!(matches!(set("write", 500), AdminReply::Done));
    assert_eq!(timeouts()["write"], 500);
    let shorter = write();
    assert!((400..1_000).contains(&shorter.as_millis()), "{shorter:?}");
    for (kind, millis) in [("internodeuser", 100), ("read", 0)] {
        let refused = set(kind, millis);
        assert!(matches!(refused, AdminReply::Failed(_)), "{kind}: {refused:?}");
    }
    assert_eq!(timeouts()["read"], 5_000);
}

#[test]
fn a_guardrail_that_is_set_counts_on_every_shard_and_settings_show_it() {
    let net = Net::new(222);
    let nodes = net.cluster(&[1, 2]);
    net.query(1, &keyspace("ks")).unwrap();
    net.query(1, "CREATE TABLE ks.t (k int PRIMARY KEY, v text)").unwrap();
    let ask = |shard, request: AdminRequest| {
        let found: Rc<RefCell<Option<AdminReply>>> = Rc::default();
        let (out, admin) = (found.clone(), nodes[0].admin.clone());
        net.world.client(&format!("a{}", net.world.random_u64()), move |rt| async move {
            *out.borrow_mut() = Some(admin.call(&rt, ShardId(shard), request).await.unwrap());
        });
        net.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    };
    let set = |name: &str, value: &str| {
        let change = GuardrailRequest { name: name.to_owned(), values: vec![value.to_owned()] };
        let one = |shard| ask(shard, AdminRequest::SetGuardrail(change.clone()));
        (0..nodes[0].shards).map(one).collect::<Vec<_>>()
    };
    let insert = "INSERT INTO ks.t (k, v) VALUES (1, 'x') USING TIMESTAMP 5";
    let shown = "SELECT value FROM system_views.settings WHERE name = 'user_timestamps_enabled'";
    let told = || match ask(0, AdminRequest::Guardrails) {
        AdminReply::Guardrails(all) => {
            all.into_iter().find(|g| g.name == "user_timestamps_enabled").unwrap().settings
        }
        other => panic!("{other:?}"),
    };
    let setting = |value: &str| vec![("user_timestamps_enabled".to_owned(), value.to_owned())];
    net.query(1, insert).unwrap();
    for (value, is_allowed) in [("false", false), ("true", true), ("false", false)] {
        for reply in set("user_timestamps_enabled", value) {
            assert!(matches!(reply, AdminReply::Done), "{reply:?}");
        }
        // Connections come to any shard.
        for _ in 0..6 {
            assert_eq!(net.query(1, insert).is_ok(), is_allowed, "{value}");
            assert_eq!(net.texts(1, shown), [value]);
        }
        assert_eq!(told(), setting(value));
        // It is this node's.
        net.query(2, insert).unwrap();
        assert_eq!(net.texts(2, shown), ["true"]);
    }
    for (name, value) in [("user_timestamps_enabled", "maybe"), ("nonsense", "1")] {
        for reply in set(name, value) {
            assert!(matches!(reply, AdminReply::Failed(ActionError::Argument(_))), "{reply:?}");
        }
    }
    assert_eq!(told(), setting("false"));
}

impl Net {
    /// A connection that asks nothing; true once the node has ended it.
    fn idle_client(&self, n: u8) -> Rc<RefCell<bool>> {
        let address = SocketAddr::new(self.world.ip(&name(n)), CQL);
        let ended = Rc::new(RefCell::new(false));
        let out = ended.clone();
        self.world.client(&format!("i{}", self.world.random_u64()), move |rt| async move {
            let conn = rt.connect(address).await.unwrap();
            let mut input = Vec::new();
            let read = conn.read(&mut input, 100).await;
            *out.borrow_mut() = matches!(read, Ok(0) | Err(_));
        });
        ended
    }
}

#[test]
fn a_quorum_is_there_as_soon_as_clients_are_served() {
    for seed in 320..323 {
        let net = Net::new(seed);
        let nodes = net.cluster(&[1, 2, 3]);
        net.fill(1, 3, 3);
        // Two of three are dead, then one: the start is not held up.
        for dead in [3, 2] {
            net.world.kill(&nodes[dead - 1].node);
        }
        net.run(40);
        let again = net.start(3);
        net.until_ready(&[&again]);
        let select = "SELECT v FROM ks.t WHERE k = 1";
        let found = net.query_at(3, select, Consistency::Quorum);
        assert_eq!(found, Ok(vec![vec![Some(b"v1".to_vec())]]), "seed {seed}");
    }
}
