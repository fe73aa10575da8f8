use super::*;
use crate::member::MemberState;
use crate::placement::Placements;
use crate::testing::{Members, host, member, members};
use std::collections::BTreeSet;
use stdx::Token;

const LOCAL: &str = "x";

fn network(map: &[(&str, u32)]) -> Replication {
    Replication::Network(map.iter().map(|(dc, n)| ((*dc).to_owned(), *n)).collect())
}

/// Three nodes in x (1, 2, 3), two in y (4, 5), all replicas of token 0; then `joining` ones.
fn nodes(joining: &[(u128, &str)]) -> Members {
    let normal = [(1, "x", 10), (2, "x", 30), (3, "x", 50), (4, "y", 20), (5, "y", 40)];
    let mut all: Vec<_> =
        normal.iter().map(|(id, dc, token)| member(*id, dc, "r", &[*token])).collect();
    for (id, dc) in joining {
        let mut m = member(*id, dc, "r", &[*id as i64 - 5]);
        m.state = MemberState::Joining;
        all.push(m);
    }
    members(all)
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
}
use Kind::{Read, Write};

/// `Ok(block_for)` or `Err((required, alive, datacenter))`.
fn check(
    replication: &Replication,
    joining: &[(u128, &str)],
    kind: Kind,
    consistency: Consistency,
    dead: &[u128],
) -> Result<u32, (u32, u32, Option<String>)> {
    let all = nodes(joining);
    let table = Placements::build(&all, replication);
    let replicas = table.replicas(Token(0));
    let dead: BTreeSet<_> = dead.iter().map(|id| host(*id)).collect();
    let alive = |m: &Member| !dead.contains(&m.host_id);
    let levels = Levels { replication, local_datacenter: LOCAL };
    let result = match kind {
        Read => levels.check_read(consistency, replicas, alive),
        Write => levels.check_write(consistency, replicas, alive),
    };
    result.map_err(|s| (s.required, s.alive, s.datacenter))
}

#[test]
fn each_level_needs_what_cassandra_needs_and_one_fewer_is_too_few() {
    use Consistency as C;
    let r = network(&[("x", 3), ("y", 2)]);
    // Level, read block_for, dead that is still enough, dead that is too few, required, alive, dc.
    type Row = (C, u32, &'static [u128], &'static [u128], u32, u32, Option<&'static str>);
    let table: [Row; 9] = [
        (C::One, 1, &[1, 2, 3, 4], &[1, 2, 3, 4, 5], 1, 0, None),
        (C::Two, 2, &[1, 2, 3], &[1, 2, 3, 4], 2, 1, None),
        (C::Three, 3, &[1, 4], &[1, 2, 3], 3, 2, None),
        (C::Quorum, 3, &[4, 5], &[3, 4, 5], 3, 2, None),
        (C::All, 5, &[], &[5], 5, 4, None),
        (C::LocalQuorum, 2, &[1, 4, 5], &[1, 2], 2, 1, None),
        (C::LocalOne, 1, &[1, 2, 4, 5], &[1, 2, 3], 1, 0, None),
        (C::EachQuorum, 4, &[1], &[1, 2], 2, 1, Some("x")),
        (C::EachQuorum, 4, &[1], &[5], 2, 1, Some("y")),
    ];
    for (level, block_for, enough, too_few, required, alive, dc) in table {
        for kind in [Read, Write] {
            assert_eq!(check(&r, &[], kind, level, enough), Ok(block_for), "{level:?}");
            let short = Err((required, alive, dc.map(str::to_owned)));
            assert_eq!(check(&r, &[], kind, level, too_few), short, "{level:?}");
        }
    }
    assert_eq!(check(&r, &[], Write, C::Any, &[1, 2, 3, 4, 5]), Ok(1));
}

#[test]
fn pending_replicas_raise_what_writes_wait_for_but_not_reads() {
    use Consistency as C;
    // Every node is a replica; 6 joins in x, 7 in y. Both are pending for token 0.
    let r = network(&[("x", 4), ("y", 3)]);
    let joining = [(6, "x"), (7, "y")];
    for (level, read, write) in [
        (C::Any, 1, 1),
        (C::One, 1, 3),
        (C::LocalOne, 1, 2),
        (C::Two, 2, 4),
        (C::Quorum, 4, 6),
        (C::LocalQuorum, 3, 4),
        (C::EachQuorum, 5, 7),
        (C::All, 7, 9),
    ] {
        let levels = Levels { replication: &r, local_datacenter: LOCAL };
        let all = nodes(&joining);
        let table = Placements::build(&all, &r);
        let replicas = table.replicas(Token(0));
        assert_eq!((replicas.natural_len(), replicas.pending_len()), (5, 2));
        assert_eq!(levels.block_for(level), read, "{level:?}");
        assert_eq!(levels.block_for_write(level, replicas), write, "{level:?}");
    }
    let each = Levels { replication: &r, local_datacenter: LOCAL };
    let all = nodes(&joining);
    let table = Placements::build(&all, &r);
    let needed = each.each_quorum_for_write(table.replicas(Token(0)));
    assert_eq!(needed, BTreeMap::from([("x".to_owned(), 4), ("y".to_owned(), 3)]));
    // A live pending replica counts for a write and not for a read.
    assert_eq!(check(&r, &joining, Write, C::LocalQuorum, &[]), Ok(4));
    assert_eq!(check(&r, &joining, Write, C::LocalQuorum, &[6]), Err((4, 3, None)));
    assert_eq!(check(&r, &joining, Read, C::LocalQuorum, &[6]), Ok(3));
    assert_eq!(check(&r, &joining, Read, C::LocalQuorum, &[1]), Err((3, 2, None)));
    // LOCAL_ONE names 1 as required although it waits for 2.
    assert_eq!(check(&r, &joining, Write, C::LocalOne, &[1, 2, 3]), Err((1, 1, None)));
}

#[test]
fn simple_strategy_has_one_quorum_and_local_levels_count_the_local_datacenter() {
    use Consistency as C;
    let r = Replication::Simple(3);
    // Replicas of token 0: 1(x) 4(y) 2(x).
    assert_eq!(check(&r, &[], Read, C::Quorum, &[4]), Ok(2));
    assert_eq!(check(&r, &[], Read, C::EachQuorum, &[4]), Ok(2));
    assert_eq!(check(&r, &[], Read, C::EachQuorum, &[4, 1]), Err((2, 1, None)));
    assert_eq!(check(&r, &[], Write, C::LocalQuorum, &[4]), Ok(2));
    assert_eq!(check(&r, &[], Write, C::LocalQuorum, &[1]), Err((2, 1, None)));
}

#[test]
fn a_datacenter_with_factor_zero_or_without_nodes_cannot_have_each_quorum() {
    use Consistency as C;
    let zero = network(&[("x", 3), ("y", 0)]);
    assert_eq!(check(&zero, &[], Read, C::EachQuorum, &[]), Err((1, 0, Some("y".to_owned()))));
    let absent = network(&[("x", 3), ("z", 2)]);
    assert_eq!(check(&absent, &[], Write, C::EachQuorum, &[]), Err((2, 0, Some("z".to_owned()))));
    // LOCAL_* in a datacenter that holds nothing.
    let levels = Levels { replication: &network(&[("y", 2)]), local_datacenter: "x" };
    assert_eq!(levels.local_quorum("x"), 1);
}

#[test]
fn serial_rounds_need_half_of_natural_and_pending() {
    let r = network(&[("x", 4), ("y", 3)]);
    let run = |joining: &[(u128, &str)], level, dead: &[u128]| {
        let all = nodes(joining);
        let table = Placements::build(&all, &r);
        let dead: BTreeSet<_> = dead.iter().map(|id| host(*id)).collect();
        let levels = Levels { replication: &r, local_datacenter: LOCAL };
        levels
            .check_serial(level, table.replicas(Token(0)), |m| !dead.contains(&m.host_id))
            .map(|q| (q.participants, q.required))
            .map_err(|s| (s.required, s.alive, s.to_string()))
    };
    use Consistency::{LocalSerial, Serial};
    let text = |cl: &str| format!("Cannot achieve consistency level {cl}");
    assert_eq!(run(&[], Serial, &[1, 2]), Ok((5, 3)));
    assert_eq!(run(&[], Serial, &[1, 2, 3]), Err((3, 2, text("SERIAL"))));
    assert_eq!(run(&[], LocalSerial, &[1, 4, 5]), Ok((3, 2)));
    assert_eq!(run(&[], LocalSerial, &[1, 2]), Err((2, 1, text("LOCAL_SERIAL"))));
    assert_eq!(run(&[(6, "x")], Serial, &[1, 2]), Ok((6, 4)));
    assert_eq!(run(&[(6, "x")], Serial, &[1, 2, 3]), Err((4, 3, text("SERIAL"))));
    // Two pending: refused with a number that no node can reach; by datacenter there is one each.
    let two = [(6, "x"), (7, "y")];
    let message =
        "Cannot perform LWT operation as there is more than one (7) pending range movement";
    assert_eq!(run(&two, Serial, &[]), Err((8, 7, message.to_owned())));
    assert_eq!(run(&two, LocalSerial, &[]), Ok((4, 3)));
}

#[test]
fn which_request_takes_which_level_in_cassandras_words() {
    use Consistency as C;
    let text = |r: Result<(), ReplicationError>| r.err().map(|e| e.to_string());
    let node_local = "NODE_LOCAL consistency level is highly dangerous and should be used only for \
                      debugging purposes";
    for level in C::ALL {
        let read = match level {
            C::Any => Some("ANY ConsistencyLevel is only supported for writes".to_owned()),
            C::NodeLocal => Some(node_local.to_owned()),
            _ => None,
        };
        assert_eq!(text(level.validate_for_read()), read);
        let write = match level {
            C::Serial | C::LocalSerial => {
                Some("You must use conditional updates for serializable writes".to_owned())
            }
            C::NodeLocal => Some(node_local.to_owned()),
            _ => None,
        };
        assert_eq!(text(level.validate_for_write()), write);
        assert_eq!(level.validate_for_cas().is_ok(), level.is_serial());
    }
    assert_eq!(
        text(C::Any.validate_for_counter_write("hits")).unwrap(),
        "Consistency level ANY is not yet supported for counter table hits"
    );
    assert_eq!(
        text(C::Serial.validate_for_counter_write("hits")).unwrap(),
        "Counter operations are inherently non-serializable"
    );
    assert_eq!(
        text(C::EachQuorum.validate_for_cas_commit(&Replication::Simple(1))).unwrap(),
        "consistency level EACH_QUORUM not compatible with replication strategy \
         (org.apache.cassandra.locator.SimpleStrategy)"
    );
    assert_eq!(text(C::EachQuorum.validate_for_cas_commit(&network(&[("x", 1)]))), None);
    assert_eq!(
        text(C::LocalSerial.validate_for_cas_commit(&Replication::Simple(1))).unwrap(),
        "LOCAL_SERIAL is not supported as conditional update commit consistency. Use ANY if you \
         mean \"make sure it is accepted but I don't care how many replicas commit it for \
         non-SERIAL reads\""
    );
    let shortage = Shortage {
        consistency: C::EachQuorum,
        datacenter: Some("dc1".to_owned()),
        moving: None,
        required: 2,
        alive: 1,
    };
    assert_eq!(shortage.to_string(), "Cannot achieve consistency level EACH_QUORUM in DC dc1");
}
