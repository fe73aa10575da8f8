//! Clients that do not behave, and too many that do.

use super::*;
use cql_wire::Opcode;

/// Runs one turn of a connection and takes its output.
async fn turn(connection: &mut Connection) -> Vec<u8> {
    poll_fn(|cx| {
        connection.turn(cx);
        Poll::Ready(())
    })
    .await;
    let output = connection.output().to_vec();
    connection.consume_output(output.len());
    output
}

/// INV-connection-2.
#[test]
fn garbage_costs_only_its_connection() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut good = Client::ready(&server, V4).await;
        let samples: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            &[0xff; 64],
            &[4, 0, 0, 0, 7, 0x7f, 0xff, 0xff, 0xff],
            &[5, 0, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 1, 2, 3],
            &[0x84, 0, 0, 0, 2, 0, 0, 0, 0],
        ];
        for sample in samples {
            let mut bad = Client::new(&server, V4);
            bad.connection.feed(sample);
            let output = turn(&mut bad.connection).await;
            assert!(output.len() < 1000);
            drop(bad);
            good.must("SELECT key FROM system.local").await;
        }
        assert_eq!(server.connection_count(), 1);
    });
}

#[test]
fn random_bytes_never_panic_and_never_grow_memory() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut seed = 0x1234_5678_9abc_def0_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut sample = Client::new(&server, V4);
        let mut map = Vec::new();
        StringMap::encode(&mut map, &[("CQL_VERSION", "3.0.0")]).unwrap();
        let map = StringMap::decode(&mut codec::Reader::new(&map, "test")).unwrap();
        let options = RequestOptions::default();
        let mut corpus = sample.encode(&options, &Request::Startup(map));
        let parameters = QueryParameters::new(Consistency::One);
        for query in ["SELECT * FROM system.local", "USE system", "CREATE TABLE a.b (c int)"] {
            corpus.extend(sample.encode(&options, &Request::Query { query, parameters }));
        }
        corpus.extend(
            sample.encode(&options, &Request::Prepare { query: "USE system", keyspace: None }),
        );
        corpus.extend(sample.encode(&options, &Request::Options));
        sample.connection.feed(&corpus);
        assert!(!turn(&mut sample.connection).await.is_empty());
        for _ in 0..10_000 {
            let mut mutant = corpus.clone();
            for _ in 0..1 + random() % 4 {
                let at = random() as usize % mutant.len();
                mutant[at] = random() as u8;
            }
            mutant.truncate(1 + random() as usize % mutant.len());
            let mut client = Client::new(&server, V4);
            client.connection.feed(&mutant);
            let output = turn(&mut client.connection).await;
            assert!(output.len() < 1 << 20);
        }
        assert_eq!(server.connection_count(), 1);
    });
}

#[test]
fn a_frame_in_pieces_is_put_together() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        for version in [V4, V5] {
            let mut client = Client::ready(&server, version).await;
            let parameters = QueryParameters::new(Consistency::One);
            let query = "SELECT table_name FROM system_schema.tables";
            let bytes = client.encode(
                &RequestOptions { stream: 4, ..Default::default() },
                &Request::Query { query, parameters },
            );
            for byte in &bytes[..bytes.len() - 1] {
                client.connection.feed(&[*byte]);
                assert!(turn(&mut client.connection).await.is_empty());
            }
            client.connection.feed(&bytes[bytes.len() - 1..]);
            assert_eq!(client.receive().await.stream, 4);
        }
    });
}

#[test]
fn a_frame_above_the_limit_is_refused_and_the_connection_goes_on() {
    run(|rt| async move {
        let settings = ServerSettings { frame_bytes_max: 1000, ..settings() };
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        let long = format!("SELECT * FROM system.local -- {}", "x".repeat(1000));
        let (code, message) = client.query(&long).await.error();
        assert_eq!(code, ErrorCode::Invalid);
        assert!(message.starts_with("Request is too big"), "{message}");
        client.must("SELECT key FROM system.local").await;
    });
}

#[test]
fn a_request_above_the_limit_after_decompression_is_refused_and_the_others_go_on() {
    run(|rt| async move {
        let settings = ServerSettings { frame_bytes_max: 1000, ..settings() };
        let server = node(&rt, settings, &Meshes::new(1)).await;
        for (version, compression) in
            [(V3, "lz4"), (V3, "snappy"), (V4, "lz4"), (V4, "snappy"), (V5, "lz4")]
        {
            let mut client = Client::new(&server, version);
            assert_eq!(client.startup(&[("COMPRESSION", compression)]).await.body, Body::Ready);
            let parameters = QueryParameters::new(Consistency::One);
            let query = "SELECT key FROM system.local";
            let long = format!("{query} -- {}", "x".repeat(1000));
            for (stream, query) in [(4, query), (5, long.as_str()), (6, query)] {
                client.send(stream, &Request::Query { query, parameters });
            }
            let mut streams = Vec::new();
            for _ in 0..3 {
                let got = client.receive().await;
                streams.push(got.stream);
                if got.stream != 5 {
                    got.rows();
                    continue;
                }
                let (code, message) = got.error();
                assert_eq!(code, ErrorCode::Invalid);
                let body = long.len() + if version == V5 { 4 + 2 + 4 } else { 4 + 2 + 1 };
                let text = format!(
                    "CQL Message of size {body} bytes exceeds allowed maximum of 1000 bytes"
                );
                assert_eq!(message, text);
            }
            streams.sort_unstable();
            assert_eq!(streams, [4, 5, 6], "{version} {compression}");
            client.must(query).await;
        }
    });
}

#[test]
fn a_request_that_finds_no_memory_is_refused_before_it_is_complete() {
    run(|rt| async move {
        let settings = changed(settings(), |query| query.request_bytes_max = 400 << 10);
        let server = node(&rt, settings, &Meshes::new(1)).await;
        for version in [V4, V5] {
            let mut client = Client::ready(&server, version).await;
            let parameters = QueryParameters::new(Consistency::One);
            let query = format!("SELECT key FROM system.local -- {}", "x".repeat(900 << 10));
            let options = RequestOptions { stream: 9, ..RequestOptions::default() };
            let bytes = client.encode(&options, &Request::Query { query: &query, parameters });
            // The same calls as in the driver.
            let mut received = Vec::new();
            let mut feed = |connection: &mut Connection, part: &[u8]| {
                received.extend_from_slice(part);
                connection.feed_buffer(&mut received);
                connection.refuse_overfilling();
            };
            // Alone: served although it is larger than all the memory for requests.
            for part in bytes.chunks(64 << 10) {
                feed(&mut client.connection, part);
                client.connection.hold(0);
                let answer = turn(&mut client.connection).await;
                client.received.extend(answer);
                client.connection.hold(0);
            }
            let got = client.receive().await;
            assert_eq!(got.stream, 9);
            got.rows();
            client.must("SELECT key FROM system.local").await;
            client.connection.hold(0);
            assert_eq!(server.executor().account.used(), 0);
            // Beside others.
            let others = query::Charge::new(&server.executor().account);
            others.set(300 << 10);
            let mut most = 0;
            let mut answers = Vec::new();
            for part in bytes.chunks(64 << 10) {
                feed(&mut client.connection, part);
                client.connection.hold(0);
                answers.extend(turn(&mut client.connection).await);
                client.connection.hold(0);
                most = most.max(server.executor().account.used() - (300 << 10));
            }
            assert!(most < 600 << 10, "{most} bytes");
            client.received.extend(answers);
            let got = client.receive().await;
            assert_eq!(got.stream, 9);
            let (code, message) = got.error();
            assert_eq!(code, ErrorCode::Overloaded, "{message}");
            assert!(message.contains("there is no memory for a request of "), "{message}");
            client.must("SELECT key FROM system.local").await;
            others.set(0);
            client.must(&query).await;
        }
    });
}

#[test]
fn more_requests_than_allowed_get_overloaded() {
    run(|rt| async move {
        let settings = ServerSettings { requests_per_connection_max: 3, ..settings() };
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client
            .must(
                "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                 'replication_factor': 1}",
            )
            .await;
        // Schema changes wait for the disk.
        let parameters = QueryParameters::new(Consistency::One);
        for i in 0..5_i16 {
            let query = format!("CREATE TABLE ks.t{i} (k int PRIMARY KEY)");
            client.send(i, &Request::Query { query: &query, parameters });
        }
        let mut overloaded = Vec::new();
        let mut done = Vec::new();
        for _ in 0..5 {
            let got = client.receive().await;
            match got.body {
                Body::Error(ErrorCode::Overloaded, _) => overloaded.push(got.stream),
                Body::SchemaChange(_) => done.push(got.stream),
                other => panic!("{other:?}"),
            }
        }
        done.sort_unstable();
        assert_eq!((overloaded, done), (vec![3, 4], vec![0, 1, 2]));
        assert_eq!(client.connection.in_flight(), 0);
        client.must("SELECT key FROM system.local").await;
    });
}

#[test]
fn requests_that_wait_are_answered_out_of_order() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let parameters = QueryParameters::new(Consistency::One);
        let slow = "CREATE TABLE ks.slow (k int PRIMARY KEY)";
        client.send(1, &Request::Query { query: slow, parameters });
        client.send(2, &Request::Query { query: "SELECT * FROM ks.t WHERE k = 1", parameters });
        assert_eq!(client.receive().await.stream, 2);
        assert_eq!(client.receive().await.stream, 1);
    });
}

#[test]
fn a_stream_in_use_twice_ends_the_connection() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let parameters = QueryParameters::new(Consistency::One);
        let slow = "CREATE TABLE ks.slow (k int PRIMARY KEY)";
        client.send(5, &Request::Query { query: slow, parameters });
        client.send(5, &Request::Query { query: "SELECT * FROM ks.t", parameters });
        let (code, _) = client.receive().await.error();
        assert_eq!(code, ErrorCode::ProtocolError);
        assert!(!client.connection.wants_input());
        // Running requests are still answered.
        assert!(matches!(client.receive().await.body, Body::SchemaChange(_)));
        assert!(client.connection.is_finished());
    });
}

#[test]
fn a_client_that_goes_away_in_the_middle_leaves_nothing_behind() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        let parameters = QueryParameters::new(Consistency::One);
        let slow = "CREATE TABLE ks.slow (k int PRIMARY KEY)";
        client.send(5, &Request::Query { query: slow, parameters });
        assert!(turn(&mut client.connection).await.is_empty());
        assert_eq!(client.connection.in_flight(), 1);
        drop(client);
        assert_eq!(server.connection_count(), 0);
        assert_eq!(
            server.inner().refuses(usize::MAX, query::ConnectionLoad::Busy, 0),
            None,
            "no request is counted any more"
        );
        let mut other = Client::ready(&server, V4).await;
        other.must("SELECT * FROM ks.t").await;
    });
}

#[test]
fn answers_of_one_turn_stop_at_the_bound_of_the_output() {
    run(|rt| async move {
        let settings = ServerSettings { output_bytes_max: 4000, ..settings() };
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        let query = "SELECT table_name FROM system_virtual_schema.tables";
        let parameters = QueryParameters::new(Consistency::One);
        for _ in 0..200 {
            client.send(3, &Request::Query { query, parameters });
        }
        let options = RequestOptions { stream: 4, ..Default::default() };
        let last = client.encode(&options, &Request::Options);
        assert_eq!(last[4], Opcode::Options.number());
        client.connection.feed(&last);
        let mut most = 0;
        loop {
            let output = turn(&mut client.connection).await;
            most = most.max(output.len());
            client.received.extend_from_slice(&output);
            let mut ended = false;
            while let Some(got) = client.try_receive() {
                ended |= got.stream == 4;
            }
            if ended {
                break;
            }
        }
        assert!(most < 20_000, "{most} bytes at once");
    });
}
