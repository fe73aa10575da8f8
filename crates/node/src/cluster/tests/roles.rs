//! Roles among several nodes: made on one, they count on all at once.

use conf::{Authenticator, Authorizer};

use super::*;

const SUPERUSER: (&str, &str) = ("cassandra", "cassandra");
const READER: (&str, &str) = ("reader", "secret");

impl Net {
    fn start_guarded(&self, n: u8) -> Started {
        let options = Options {
            authenticator: Authenticator::Password,
            authorizer: Authorizer::Cassandra,
            ..self.options(n)
        };
        self.start_with(n, options)
    }

    pub(super) fn query_as(&self, n: u8, user: (&'static str, &'static str), text: &str) -> Rows {
        let address = SocketAddr::new(self.world.ip(&name(n)), CQL);
        let found: Rc<RefCell<Option<Rows>>> = Rc::default();
        let (out, text) = (found.clone(), text.to_owned());
        self.world.client(&format!("c{}", self.world.random_u64()), move |rt| async move {
            let rows = client::query_as(&rt, address, user, &text).await;
            *out.borrow_mut() = Some(rows);
        });
        self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        found.take().unwrap()
    }
}

#[test]
fn a_role_and_its_permissions_count_on_every_node_when_the_statement_is_answered() {
    for seed in 300..302 {
        let net = Net::new(seed);
        let nodes: Vec<Started> = (1..=3).map(|n| net.start_guarded(n)).collect();
        net.until_ready(&nodes.iter().collect::<Vec<_>>());
        net.run(5);
        let must = |n: u8, text: &str| {
            net.query_as(n, SUPERUSER, text).unwrap_or_else(|e| panic!("n{n}: {text}: {e}"))
        };
        must(1, &keyspace("ks"));
        must(1, "CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
        let refused = "Provided username reader and/or password are incorrect";
        let local = "SELECT key FROM system.local";
        assert_eq!(net.query_as(2, READER, local), Err(refused.to_owned()));
        must(2, "CREATE ROLE reader WITH PASSWORD = 'secret' AND LOGIN = true");
        let select = "SELECT v FROM ks.t WHERE k = 1";
        let denied = "User reader has no SELECT permission on <table ks.t> or any of its parents";
        for n in 1..=3 {
            assert_eq!(net.query_as(n, READER, local).map(|rows| rows.len()), Ok(1), "n{n}");
            assert_eq!(net.query_as(n, READER, select), Err(denied.to_owned()), "n{n}");
        }
        must(3, "GRANT SELECT ON ks.t TO reader");
        for n in 1..=3 {
            assert_eq!(net.query_as(n, READER, select), Ok(Vec::new()), "n{n}");
        }
        must(1, "REVOKE SELECT ON ks.t FROM reader");
        for n in 1..=3 {
            assert_eq!(net.query_as(n, READER, select), Err(denied.to_owned()), "n{n}");
        }
        // The last node authenticates clients as before, and after a restart too.
        net.world.kill(&nodes[0].node);
        net.world.kill(&nodes[1].node);
        assert_eq!(net.query_as(3, READER, local).map(|rows| rows.len()), Ok(1));
        net.world.kill(&nodes[2].node);
        let again: Vec<Started> = (1..=3).map(|n| net.start_guarded(n)).collect();
        net.until_ready(&again.iter().collect::<Vec<_>>());
        assert_eq!(net.query_as(2, READER, local).map(|rows| rows.len()), Ok(1));
    }
}

#[test]
fn a_cluster_that_had_no_roles_gets_its_first_superuser_when_it_asks_for_logins() {
    let net = Net::new(310);
    let open = net.cluster(&[1, 2, 3]);
    for node in &open {
        net.world.kill(&node.node);
    }
    let nodes: Vec<Started> = (1..=3).map(|n| net.start_guarded(n)).collect();
    net.until_ready(&nodes.iter().collect::<Vec<_>>());
    net.run(10);
    let roles = "SELECT role FROM system_auth.roles";
    for n in 1..=3 {
        let found = net.query_as(n, SUPERUSER, roles).unwrap();
        assert_eq!(found, [[Some(b"cassandra".to_vec())]], "n{n}");
    }
}
