//! Clients are served, or not.

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
