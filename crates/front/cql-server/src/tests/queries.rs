//! `system_views.queries`.

use super::*;
use store::SyncMode;

const ALL: &str = "SELECT thread_id, task FROM system_views.queries";
const OWN: &str = "Native-Transport-Requests-0-2-1 QUERY SELECT thread_id, task FROM \
                   system_views.queries [pageSize = -1] at consistency ONE";

/// Runs a turn; its answers are received later.
async fn turn(client: &mut Client) {
    let output = poll_fn(|cx| {
        client.connection.turn(cx);
        let output = client.connection.output().to_vec();
        client.connection.consume_output(output.len());
        Poll::Ready(output)
    })
    .await;
    client.received.extend_from_slice(&output);
}

/// The rows of `system_views.queries`.
async fn seen(client: &mut Client) -> Vec<String> {
    let rows = client.must(ALL).await.rows();
    show(&rows)
}

/// How long the first connection's request of a stream has waited for its turn, and run since.
async fn times(client: &mut Client, stream: i16) -> (Duration, Duration) {
    let columns = "SELECT queued_micros, running_micros FROM system_views.queries";
    let key = format!("WHERE thread_id = 'Native-Transport-Requests-0-1-{stream}'");
    let rows = client.must(&format!("{columns} {key}")).await.rows().rows;
    let micros = |at: usize| {
        let value: [u8; 8] = rows[0][at].clone().unwrap().try_into().unwrap();
        Duration::from_micros(u64::from_be_bytes(value))
    };
    (micros(0), micros(1))
}

#[test]
fn what_waits_for_room_in_the_output_is_queued() {
    run(|rt| async move {
        let settings = ServerSettings { output_bytes_max: 64, ..settings() };
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut first = Client::ready(&server, V4).await;
        let mut second = Client::ready(&server, V4).await;
        first.with_table().await;
        let parameters = QueryParameters::new(Consistency::One);
        let long = "SELECT * FROM system.local";
        let slow = "CREATE TABLE ks.slow (k int PRIMARY KEY)";
        for (stream, query) in [(3, long), (7, slow)] {
            first.send(stream, &Request::Query { query, parameters });
        }
        let arrived = rt.now();
        turn(&mut first).await;
        rt.sleep(Duration::from_micros(50)).await;
        let began = rt.now();
        turn(&mut first).await;
        let (queued, running) = times(&mut second, 7).await;
        assert_eq!(queued, began.since(arrived));
        assert!(running <= rt.now().since(began), "{running:?}");
        for stream in [3, 7] {
            assert_eq!(first.receive().await.stream, stream);
        }
        // A turn later nothing is left over.
        let other = "CREATE TABLE ks.other (k int PRIMARY KEY)";
        first.send(9, &Request::Query { query: other, parameters });
        turn(&mut first).await;
        assert_eq!(times(&mut second, 9).await.0, Duration::ZERO);
        assert_eq!(first.receive().await.stream, 9);
    });
}

#[test]
fn a_statement_is_listed_while_it_waits_and_not_afterwards() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut first = Client::ready(&server, V4).await;
        let mut second = Client::ready(&server, V5).await;
        first.with_table().await;
        // The first read of a new table waits until its directory was looked through.
        first.must("SELECT * FROM ks.t WHERE k = 1").await;
        assert_eq!(seen(&mut second).await, [OWN]);
        // Answered in its turn.
        let parameters = QueryParameters::new(Consistency::One);
        first.send(3, &Request::Query { query: "SELECT * FROM ks.t WHERE k = 1", parameters });
        turn(&mut first).await;
        assert_eq!(seen(&mut second).await, [OWN]);
        assert_eq!(first.receive().await.stream, 3);
        // Schema changes wait for the disk.
        let query = "CREATE TABLE ks.slow (k int PRIMARY KEY)";
        let parameters =
            QueryParameters { page_size: Some(100), ..QueryParameters::new(Consistency::Quorum) };
        first.send(7, &Request::Query { query, parameters });
        let began = rt.now();
        turn(&mut first).await;
        let slow = "Native-Transport-Requests-0-1-7 QUERY CREATE TABLE ks.slow (k int PRIMARY KEY) \
                    [pageSize = 100] at consistency QUORUM";
        assert_eq!(seen(&mut second).await, [slow, OWN]);
        rt.sleep(Duration::from_micros(20)).await;
        let (queued, running) = times(&mut second, 7).await;
        assert_eq!(queued, Duration::ZERO);
        let since = rt.now().since(began);
        assert!(running >= Duration::from_micros(20) && running <= since, "{running:?} {since:?}");
        assert_eq!(first.receive().await.stream, 7);
        assert_eq!(seen(&mut second).await, [OWN]);
    });
}

#[test]
fn writes_that_wait_for_a_sync_are_listed_by_the_id_of_their_statement() {
    run(|rt| async move {
        let batch_mode = |options: &mut StoreOptions| options.sync = SyncMode::Batch;
        let server = node_with(&rt, settings(), &Meshes::new(1), batch_mode).await;
        let mut first = Client::ready(&server, V4).await;
        let mut second = Client::ready(&server, V4).await;
        first.with_table().await;
        let write = first.prepare("INSERT INTO ks.t (k, c, v) VALUES (?, ?, 'x')").await;
        let id: String = write.id.iter().map(|byte| format!("{byte:02x}")).collect();
        let values = value_list(&[&int(1), &int(2)]);
        let parameters =
            QueryParameters { values: values.values(), ..QueryParameters::new(Consistency::One) };
        let execute = Request::Execute { id: &write.id, result_metadata_id: None, parameters };
        // The first write that waits has no description: commits did not wait before it.
        first.send(4, &execute);
        turn(&mut first).await;
        assert_eq!(seen(&mut second).await, [OWN]);
        assert_eq!(first.receive().await.body, Body::Void);
        first.send(4, &execute);
        first.send(
            5,
            &Request::Query {
                query: "INSERT INTO ks.t (k, c) VALUES (1, 3)",
                parameters: QueryParameters::new(Consistency::One),
            },
        );
        turn(&mut first).await;
        let expected = [
            &format!(
                "Native-Transport-Requests-0-1-4 EXECUTE {id} with 2 values at consistency ONE"
            ),
            "Native-Transport-Requests-0-1-5 QUERY INSERT INTO ks.t (k, c) VALUES (1, 3) \
             [pageSize = -1] at consistency ONE",
            OWN,
        ];
        assert_eq!(seen(&mut second).await, expected);
        for _ in 0..2 {
            assert_eq!(first.receive().await.body, Body::Void);
        }
        assert_eq!(seen(&mut second).await, [OWN]);
    });
}
