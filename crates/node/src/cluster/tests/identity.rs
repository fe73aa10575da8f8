//! Nodes are identified by host id, not by address.

use std::collections::BTreeMap;

use super::*;

/// Files of a directory and below, by path.
async fn files(rt: &Rt, directory: &str) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in rt.fs().read_dir(&directory).await.unwrap() {
            let path = format!("{directory}/{}", entry.name);
            if entry.is_dir {
                left.push(path);
            } else {
                let bytes = rt.fs().read(&path, 1 << 30).await.unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

impl Net {
    /// Takes all files of a node that does not run off its disk.
    fn take_disk(&self, n: u8) -> BTreeMap<String, Vec<u8>> {
        let found: Rc<RefCell<BTreeMap<String, Vec<u8>>>> = Rc::default();
        let out = found.clone();
        self.on_disk(n, move |rt| async move {
            let all = files(&rt, "/data").await;
            for path in all.keys() {
                rt.fs().remove_file(path).await.unwrap();
            }
            *out.borrow_mut() = all;
        });
        found.take()
    }

    fn put_disk(&self, n: u8, files: BTreeMap<String, Vec<u8>>) {
        self.on_disk(n, move |rt| async move {
            for (path, bytes) in files {
                let directory = path.rsplit_once('/').unwrap().0;
                rt.fs().create_dir_durably(directory).await.unwrap();
                rt.fs().write_atomic(&path, bytes).await.unwrap();
            }
        });
    }

    /// Like [`Net::options`], at the location of another node.
    fn options_at(&self, n: u8, place: u8) -> Options {
        let other = self.options(place);
        Options { rack: other.rack, smp: other.smp, ..self.options(n) }
    }
}

#[test]
fn two_nodes_that_swap_their_addresses_stay_who_they_are() {
    let net = Net::new(230);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 1, 12);
    let (second, third) = (net.host_of(2), net.host_of(3));
    for node in &nodes[1..] {
        net.world.kill(&node.node);
    }
    let (of_second, of_third) = (net.take_disk(2), net.take_disk(3));
    net.put_disk(2, of_third);
    net.put_disk(3, of_second);
    let swapped =
        [net.start_with(2, net.options_at(2, 3)), net.start_with(3, net.options_at(3, 2))];
    net.until_ready(&[&swapped[0], &swapped[1]]);
    net.run(30);
    assert_eq!((net.host_of(2), net.host_of(3)), (third, second));
    net.check_peers(&[1, 2, 3]);
    // With one replica each, every row is where its owner is.
    for n in 1..=3 {
        net.check_rows(n, 12);
    }
}

#[test]
fn a_node_that_was_away_knows_everything_when_it_serves() {
    let net = Net::new(232);
    let nodes = net.cluster(&[1, 2, 3]);
    net.world.kill(&nodes[2].node);
    net.run(40);
    net.query(1, &keyspace("made")).unwrap();
    for table in ["a", "b", "c"] {
        net.query(2, &format!("CREATE TABLE made.{table} (k int PRIMARY KEY)")).unwrap();
    }
    net.query(1, "ALTER TABLE made.b ADD v text").unwrap();
    let back = net.start(3);
    let ready = Rc::new(RefCell::new(None));
    let (out, address) = (ready.clone(), SocketAddr::new(net.world.ip(&name(3)), CQL));
    // Asks as soon as the port is open.
    net.world.client("early", move |rt| async move {
        loop {
            let text = "SELECT v FROM made.b WHERE k = 1";
            let found = client::query(&rt, address, text, Consistency::One).await;
            if !matches!(&found, Err(error) if error.contains("connect") || error.contains("refused"))
            {
                *out.borrow_mut() = Some(found);
                return;
            }
            rt.sleep(Duration::from_millis(1)).await;
        }
    });
    net.until_ready(&[&back]);
    net.run(1);
    assert_eq!(ready.take(), Some(Ok(Vec::new())));
}
