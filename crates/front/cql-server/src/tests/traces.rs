//! Every request with the tracing flag has a session in `system_traces`, however it ends.

use super::*;

/// Sends a request with the tracing flag; the trace's session: request, parameters.
async fn traced(client: &mut Client, request: &Request<'_>) -> (Got, Vec<String>) {
    let options = RequestOptions { stream: 9, tracing: true, ..Default::default() };
    let bytes = client.encode(&options, request);
    client.connection.feed(&bytes);
    let got = client.receive().await;
    let id = got.tracing.unwrap_or_else(|| panic!("no tracing id: {got:?}"));
    let select = format!(
        "SELECT request, parameters, duration FROM system_traces.sessions WHERE session_id = {id}"
    );
    let rows = client.must(&select).await.rows().rows;
    assert_eq!(rows.len(), 1, "{got:?}");
    assert!(rows[0][2].is_some(), "{got:?}");
    let texts = rows[0][..2].iter().flatten();
    (got, texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}

#[test]
fn statements_that_fail_and_use_have_a_session() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        for (query, consistency, code) in [
            ("SELEC", Consistency::One, Some(ErrorCode::SyntaxError)),
            ("SELECT * FROM ks.nope", Consistency::One, Some(ErrorCode::Invalid)),
            (
                "INSERT INTO ks.t (k, c) VALUES (null, 1)",
                Consistency::One,
                Some(ErrorCode::Invalid),
            ),
            ("INSERT INTO ks.t (k, c) VALUES (?, 1)", Consistency::One, Some(ErrorCode::Invalid)),
            ("SELECT * FROM ks.t", Consistency::Three, Some(ErrorCode::Unavailable)),
            ("DELETE FROM ks.t WHERE k = 1", Consistency::Three, Some(ErrorCode::Unavailable)),
            ("USE nope", Consistency::One, Some(ErrorCode::Invalid)),
            ("DESCRIBE TABLE ks.nope", Consistency::One, Some(ErrorCode::Invalid)),
            (
                "CREATE TABLE ks.t (k int PRIMARY KEY)",
                Consistency::One,
                Some(ErrorCode::AlreadyExists),
            ),
            ("USE ks", Consistency::One, None),
            ("DESCRIBE TABLE ks.t", Consistency::One, None),
            ("INSERT INTO ks.t (k, c) VALUES (1, 1)", Consistency::One, None),
            ("INSERT INTO ks.t (k, c) VALUES (1, 1) IF NOT EXISTS", Consistency::One, None),
            ("TRUNCATE ks.t", Consistency::One, None),
        ] {
            let parameters = QueryParameters::new(consistency);
            let (got, session) = traced(&mut client, &Request::Query { query, parameters }).await;
            assert_eq!(session[0], "Execute CQL3 query");
            assert!(session[1].contains(query), "{session:?}");
            match (code, got.body) {
                (Some(code), Body::Error(found, _)) => assert_eq!(found, code, "{query}"),
                (None, Body::Error(..)) => panic!("{query}"),
                (None, _) => {}
                (Some(_), other) => panic!("{query}: {other:?}"),
            }
        }
    });
}

#[test]
fn prepare_and_unknown_statements_have_a_session() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        for query in ["SELECT * FROM ks.t WHERE k = ?", "SELECT * FROM ks.nope", "SELEC"] {
            let request = Request::Prepare { query, keyspace: None };
            let (_, session) = traced(&mut client, &request).await;
            assert_eq!(session[0], "Preparing CQL3 query");
            assert!(session[1].contains(query), "{session:?}");
        }
        let parameters = QueryParameters::new(Consistency::One);
        let request = Request::Execute { id: &[7; 16], result_metadata_id: None, parameters };
        let (got, session) = traced(&mut client, &request).await;
        assert_eq!(got.error().0, ErrorCode::Unprepared);
        assert_eq!(session[0], "Execute CQL3 prepared query");
    });
}
