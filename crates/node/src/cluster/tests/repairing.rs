//! Repairs as an operator orders them, and what is shown of them afterwards.

use admin::model::{RepairCommand, RepairOrder, RepairReport};

use super::*;

impl Net {
    fn repair(&self, at: &Started, command: RepairCommand) -> Vec<RepairReport> {
        let found: Rc<RefCell<Option<AdminReply>>> = Rc::default();
        let (out, admin) = (found.clone(), at.admin.clone());
        self.world.client(&format!("a{}", self.world.random_u64()), move |rt| async move {
            let request = AdminRequest::Repair(command);
            *out.borrow_mut() = admin.call(&rt, ShardId(0), request).await.ok();
        });
        self.world.run_until(|| found.borrow().is_some(), Duration::from_secs(60)).unwrap();
        match found.take() {
            Some(AdminReply::Repairs(reports)) => reports,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_traced_repair_is_in_the_traces_and_among_the_repairs() {
    let net = Net::new(417);
    let nodes = net.cluster(&[1, 2, 3]);
    net.fill(1, 3, 20);
    let order = RepairOrder {
        keyspace: "ks".to_owned(),
        tables: vec!["t".to_owned()],
        incremental: true,
        job_threads: 1,
        trace: true,
        ..RepairOrder::default()
    };
    let id = net.repair(&nodes[0], RepairCommand::Start(order))[0].id;
    let status = || net.repair(&nodes[0], RepairCommand::Status { id, from: 0 }).remove(0);
    for _ in 0..60 {
        net.run(1);
        if status().state != "RUNNING" {
            break;
        }
    }
    let report = status();
    assert_eq!(report.state, "SUCCESSFUL", "{:?}", report.lines);

    let shown = "SELECT id, success_message, participants FROM system_views.repairs";
    let shown = net.query(1, shown).unwrap();
    let [repair] = shown.as_slice() else { panic!("{shown:?}") };
    let session = stdx::Uuid::parse_str(&report.session).unwrap();
    assert_eq!(repair[0].as_deref(), Some(session.as_bytes().as_slice()));
    assert_eq!(repair[1].as_deref(), Some(b"Repair completed successfully".as_slice()));
    // Two others: a count, and two texts.
    assert_eq!(repair[2].as_ref().map(|list| list[..4].to_vec()), Some(vec![0, 0, 0, 2]));
    let of = format!("SELECT status, type FROM system_views.repairs WHERE id = {session}");
    assert_eq!(net.texts(1, &of), ["success"]);
    // Ranges with the same replicas are one session.
    let sessions = "SELECT status, repair_id FROM system_views.repair_sessions";
    assert_eq!(net.texts(1, sessions), ["success"]);
    assert!(net.texts(2, "SELECT status FROM system_views.repairs").is_empty());
    // Its job, and the part of every node in it, have one name.
    let count = |n: u8, table: &str| {
        let rows = format!("SELECT id, status FROM system_views.{table}");
        let rows = net.query(n, &rows).unwrap();
        assert!(rows.iter().all(|row| row[1].as_deref() == Some(b"success")), "n{n}: {rows:?}");
        rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect::<Vec<_>>()
    };
    let jobs = count(1, "repair_jobs");
    assert_eq!((jobs.len(), count(2, "repair_jobs").len()), (1, 0));
    let of_session = net.query(1, "SELECT jobs FROM system_views.repair_sessions").unwrap();
    assert_eq!(of_session[0][0].as_deref().unwrap()[8..], jobs[0]);
    for n in 1..=3 {
        assert_eq!(count(n, "repair_validations"), jobs, "n{n}");
        let parts = "SELECT id, initiator, incremental, completed FROM \
                     system_views.repair_participates";
        let parts = net.query(n, parts).unwrap();
        let [part] = parts.as_slice() else { panic!("n{n}: {parts:?}") };
        assert_eq!(part[0], repair[0]);
        let initiator = format!("/{}:7000", net.world.ip(&name(1)));
        assert_eq!(part[1].as_deref(), Some(initiator.as_bytes()));
        assert_eq!(part[2..], [Some(vec![1]), Some(vec![1])], "n{n}");
    }
    // Streams of the cluster's founding have ended.
    assert!(net.texts(1, "SELECT status FROM system_views.streaming").is_empty());

    let columns = "command, request, parameters['columnFamilies'], duration, session_id";
    let sessions = format!("SELECT {columns} FROM system_traces.sessions");
    let sessions = net.query_at(1, &sessions, Consistency::Two).unwrap();
    let [trace] = sessions.as_slice() else { panic!("{sessions:?}") };
    let texts = trace[..3].iter().map(|c| String::from_utf8(c.clone().unwrap()).unwrap());
    assert_eq!(texts.collect::<Vec<_>>(), ["REPAIR", "repair", "ks.t"]);
    assert!(trace[3].is_some(), "it has ended");
    let events =
        "SELECT activity, source_elapsed, TTL(activity), session_id FROM system_traces.events";
    let events = net.query_at(1, events, Consistency::Two).unwrap();
    assert!(events.iter().all(|row| row[3] == trace[4]));
    let int =
        |value: &Option<Vec<u8>>| i32::from_be_bytes(value.as_deref().unwrap().try_into().unwrap());
    assert!(events.iter().all(|row| int(&row[1]) >= 0));
    // A week, as `trace_type_repair_ttl` says.
    assert!(events.iter().all(|row| (604_000..=604_800).contains(&int(&row[2]))));
    let said: Vec<String> = events
        .iter()
        .map(|row| String::from_utf8_lossy(row[0].as_deref().unwrap_or_default()).into_owned())
        .collect();
    // Every line of the output is an event, in order.
    let lines: Vec<&str> = report.lines.iter().map(|l| l.text.as_str()).collect();
    assert_eq!(said, lines);
    let ip = |n| format!("/{}:7000", net.world.ip(&name(n)));
    assert!(
        said.iter().any(|text| text.starts_with("This node and /")
            && text.ends_with(" are consistent for ks.t")
            && text.contains(&ip(2))
            && text.contains(&ip(3))),
        "{said:?}"
    );
    drop(nodes);
}
