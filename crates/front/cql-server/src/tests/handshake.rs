//! From the first byte to READY.

use cql_wire::{EventKind, EventKinds};

use super::*;

#[test]
fn every_version_and_compression_gets_ready_and_answers() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let none: &[(&str, &str)] = &[];
        let lz4 = &[("COMPRESSION", "lz4")][..];
        let snappy = &[("COMPRESSION", "snappy")][..];
        let cases = [
            (V3, none),
            (V3, lz4),
            (V3, snappy),
            (V4, none),
            (V4, lz4),
            (V4, snappy),
            (V5, none),
            (V5, lz4),
            (V6, none),
            (V6, lz4),
        ];
        for (version, options) in cases {
            let mut client = Client::new(&server, version);
            assert_eq!(client.startup(options).await.body, Body::Ready, "{version} {options:?}");
            let rows = client.must("SELECT table_name FROM system_schema.tables").await.rows();
            assert_eq!(rows.columns, Some(vec!["table_name".to_owned()]), "{version}");
        }
        assert_eq!(server.connection_count(), 0);
    });
}

#[test]
fn the_version_in_development_is_as_v5_and_wants_its_flag() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V6).await;
        let prepared = client.prepare("SELECT key FROM system.local WHERE key = ?").await;
        assert!(prepared.metadata_id.is_some());
        let mut bytes = client.encode(&RequestOptions::default(), &Request::Options);
        // The flags, in the segment after its header of six bytes; packing computes a new checksum.
        let mut frame = bytes[6..bytes.len() - 4].to_vec();
        frame[1] = 0;
        bytes.clear();
        pack_segments(&frame, false, &mut bytes);
        client.connection.feed(&bytes);
        let (code, message) = client.receive().await.error();
        assert_eq!(code, ErrorCode::ProtocolError);
        let expect = "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset";
        assert_eq!(message, expect);
        client.must("SELECT * FROM system.local").await;
        let kinds = EventKinds::NONE.with(EventKind::SchemaChange);
        assert_eq!(client.ask(&Request::Register(kinds)).await.body, Body::Ready);
        let keyspace = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
                        'replication_factor': 1}";
        Client::ready(&server, V4).await.must(keyspace).await;
        assert!(matches!(client.receive().await.body, Body::Event(_)));
    });
}

#[test]
fn snappy_is_refused_in_v5_and_the_client_may_try_again() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::new(&server, V5);
        let (code, message) = client.startup(&[("COMPRESSION", "snappy")]).await.error();
        assert_eq!(code, ErrorCode::ProtocolError);
        assert_eq!(message, "Snappy compression is not supported in protocol V5");
        assert_eq!(client.startup(&[]).await.body, Body::Ready);
    });
}

#[test]
fn options_say_what_is_supported_before_and_after_startup() {
    run(|rt| async move {
        let settings = ServerSettings { shard_aware_port: Some(19042), ..settings() };
        let server = node(&rt, settings, &Meshes::new(1)).await;
        let mut client = Client::new(&server, V4);
        for _ in 0..2 {
            let Body::Supported(options) = client.ask(&Request::Options).await.body else {
                panic!("no SUPPORTED")
            };
            let get = |key: &str| {
                options.iter().find(|(k, _)| k == key).map(|(_, v)| v.join(",")).unwrap_or_default()
            };
            assert_eq!(get("CQL_VERSION"), "3.4.7");
            assert_eq!(get("COMPRESSION"), "snappy,lz4");
            assert_eq!(get("PROTOCOL_VERSIONS"), "3/v3,4/v4,5/v5,6/v6-beta");
            assert_eq!(get("SCYLLA_NR_SHARDS"), "1");
            assert_eq!(get("SCYLLA_SHARDING_IGNORE_MSB"), "12");
            assert_eq!(get("SCYLLA_SHARD_AWARE_PORT"), "19042");
            let mark = "LWT_OPTIMIZATION_META_BIT_MASK=2147483648";
            assert_eq!(get("SCYLLA_LWT_ADD_METADATA_MARK"), mark);
            if client.negotiated.version == V4 {
                let got = client.startup(&[]).await;
                assert!(matches!(got.body, Body::Ready | Body::Error(..)));
            }
        }
    });
}

#[test]
fn statements_before_startup_and_a_second_startup_are_refused() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::new(&server, V4);
        let (code, message) = client.query("SELECT * FROM system.local").await.error();
        assert_eq!(code, ErrorCode::ProtocolError);
        assert_eq!(message, "Unexpected message QUERY, expecting STARTUP or OPTIONS");
        assert_eq!(client.startup(&[]).await.body, Body::Ready);
        let (_, message) = client.startup(&[]).await.error();
        assert_eq!(message, "Unexpected message STARTUP, the connection is already initialized");
    });
}

#[test]
fn a_right_password_logs_in_and_a_wrong_one_does_not() {
    run(|rt| async move {
        let server = node(&rt, with_password(), &Meshes::new(1)).await;
        // The tests' roles have no password yet.
        let membership = &server.executor().membership;
        for (name, can_login) in [("me", true), ("guest", false)] {
            let role = Role { is_superuser: false, can_login, salted_hash: secret_hash() };
            let entry = Transformation::PutRole { name: name.to_owned(), role };
            let epoch = membership.snapshot().epoch;
            membership.submit(epoch, vec![entry]).await.unwrap();
        }
        for version in [V3, V4, V5, V6] {
            let mut client = Client::new(&server, version);
            let got = client.startup(&[]).await.body;
            let class = "org.apache.cassandra.auth.PasswordAuthenticator";
            assert_eq!(got, Body::Authenticate(class.to_owned()));
            let (_, message) = client.query("SELECT * FROM system.local").await.error();
            assert_eq!(message, "Unexpected message QUERY, expecting SASL_RESPONSE");
            for token in [&b"\0me\0wrong"[..], b"\0nobody\0secret"] {
                let got = client.ask(&Request::AuthResponse(Some(token))).await;
                let (code, message) = got.error();
                assert_eq!(code, ErrorCode::BadCredentials);
                let user = if token.starts_with(b"\0me") { "me" } else { "nobody" };
                let expected = format!("Provided username {user} and/or password are incorrect");
                assert_eq!(message, expected);
            }
            let got = client.ask(&Request::AuthResponse(Some(b"\0guest\0secret"))).await;
            assert_eq!(got.error().1, "guest is not permitted to log in");
            // Twice: hashed, then known.
            let got = client.ask(&Request::AuthResponse(Some(b"\0me\0secret"))).await;
            assert_eq!(got.body, Body::AuthSuccess);
            client.must("SELECT * FROM system.local").await;
        }
    });
}
