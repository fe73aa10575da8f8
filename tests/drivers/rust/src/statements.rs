//! Statements, prepared and not, paging, batches, errors, concurrent load.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use futures::TryStreamExt;
use futures::stream::{FuturesUnordered, StreamExt};
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::PagingState;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlValue, MaybeUnset, Row};

use crate::{Context, builder};

crate::tests![
    insert_select_update_delete_truncate,
    a_prepared_statement_knows_its_columns_and_token,
    named_unset_and_null_values,
    a_prepared_select_star_survives_alter_table,
    client_timestamps_decide_which_write_wins,
    time_to_live_is_reported,
    aggregates_and_functions,
    paging_returns_every_row_once,
    paging_inside_a_partition_in_both_orders_and_with_a_limit,
    paging_state_can_be_carried_to_another_session,
    batches_apply_all_statements,
    errors_have_cassandras_codes_and_texts,
    quorum_of_three_replicas_is_unavailable_on_one_node,
    concurrent_load_reads_what_it_wrote,
];

async fn insert_select_update_delete_truncate(context: Arc<Context>) {
    context.define("CREATE TABLE crud (k int, c int, a text, b int, PRIMARY KEY (k, c))").await;
    context.execute("INSERT INTO crud (k, c, a, b) VALUES (?, ?, ?, ?)", (1, 1, "one", 10)).await;
    context.define("INSERT INTO crud (k, c, a) VALUES (1, 2, 'two')").await;
    context.execute("UPDATE crud SET b = ? WHERE k = ? AND c = ?", (20, 1, 2)).await;
    type Crud = (i32, i32, String, Option<i32>);
    let rows: Vec<Crud> = context.rows("SELECT k, c, a, b FROM crud WHERE k = ?", (1,)).await;
    assert_eq!(rows, [(1, 1, "one".to_owned(), Some(10)), (1, 2, "two".to_owned(), Some(20))]);
    context.execute("DELETE b FROM crud WHERE k = ? AND c = ?", (1, 2)).await;
    context.execute("DELETE FROM crud WHERE k = ? AND c = ?", (1, 1)).await;
    let rows: Vec<Crud> = context.rows("SELECT k, c, a, b FROM crud", ()).await;
    assert_eq!(rows, [(1, 2, "two".to_owned(), None)]);
    context.define("TRUNCATE crud").await;
    let rows: Vec<Crud> = context.rows("SELECT k, c, a, b FROM crud", ()).await;
    assert!(rows.is_empty());
}

async fn a_prepared_statement_knows_its_columns_and_token(context: Arc<Context>) {
    context.define("CREATE TABLE prep (k text, c text, v blob, PRIMARY KEY (k, c))").await;
    let insert = context.session.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)").await;
    let insert = insert.unwrap();
    let names: Vec<&str> = insert.get_variable_col_specs().iter().map(|spec| spec.name()).collect();
    assert_eq!(names, ["k", "c", "v"]);
    assert!(insert.is_token_aware());
    assert_eq!(insert.get_table_name(), Some("prep"));
    for key in ["a", "key-1", "a longer key, of more than 16 bytes", "Žluťoučký kůň"] {
        let values = (key, "x", vec![1_u8]);
        let token = insert.calculate_token(&values).unwrap().unwrap();
        context.session.execute_unpaged(&insert, values).await.unwrap();
        let rows: Vec<(i64,)> = context.rows("SELECT token(k) FROM prep WHERE k = ?", (key,)).await;
        assert_eq!(rows, [(token.value(),)]);
    }
}

async fn named_unset_and_null_values(context: Arc<Context>) {
    context.define("CREATE TABLE unset (k int PRIMARY KEY, a int, b int)").await;
    let named = HashMap::from([("y", 20), ("key", 1), ("x", 10)]);
    context.execute("INSERT INTO unset (k, a, b) VALUES (:key, :x, :y)", named).await;
    let insert = "INSERT INTO unset (k, a, b) VALUES (?, ?, ?)";
    let select = "SELECT a, b FROM unset WHERE k = 1";
    type Pair = (Option<i32>, Option<i32>);
    assert_eq!(context.rows::<Pair>(select, ()).await, [(Some(10), Some(20))]);
    context.execute(insert, (1, MaybeUnset::<i32>::Unset, 30)).await;
    assert_eq!(context.rows::<Pair>(select, ()).await, [(Some(10), Some(30))]);
    context.execute(insert, (1, None::<i32>, MaybeUnset::<i32>::Unset)).await;
    assert_eq!(context.rows::<Pair>(select, ()).await, [(None, Some(30))]);
}

async fn a_prepared_select_star_survives_alter_table(context: Arc<Context>) {
    context.define("CREATE TABLE altered (k int PRIMARY KEY, a int)").await;
    context.define("INSERT INTO altered (k, a) VALUES (1, 2)").await;
    let mut select = context.session.prepare("SELECT * FROM altered WHERE k = ?").await.unwrap();
    // With protocol v4 the server cannot say that the columns have changed.
    select.set_use_cached_result_metadata(false);
    for columns in 2..4 {
        let result = context.session.execute_unpaged(&select, (1,)).await.unwrap();
        let row = result.into_rows_result().unwrap().single_row::<Row>().unwrap();
        assert_eq!(row.columns.len(), columns);
        assert_eq!(row.columns[1], Some(CqlValue::Int(columns as i32)));
        if columns == 2 {
            context.define("ALTER TABLE altered ADD b text").await;
            context.define("INSERT INTO altered (k, a, b) VALUES (1, 3, 'x')").await;
        }
    }
}

async fn client_timestamps_decide_which_write_wins(context: Arc<Context>) {
    context.define("CREATE TABLE stamped (k int PRIMARY KEY, v text)").await;
    for (value, stamp) in [("new", 2000), ("old", 1000)] {
        let mut insert =
            context.session.prepare("INSERT INTO stamped (k, v) VALUES (1, ?)").await.unwrap();
        insert.set_timestamp(Some(stamp));
        context.session.execute_unpaged(&insert, (value,)).await.unwrap();
    }
    let rows: Vec<(String, i64)> = context.rows("SELECT v, writetime(v) FROM stamped", ()).await;
    assert_eq!(rows, [("new".to_owned(), 2000)]);
}

async fn time_to_live_is_reported(context: Arc<Context>) {
    context.define("CREATE TABLE ttls (k int PRIMARY KEY, v int)").await;
    context.execute("INSERT INTO ttls (k, v) VALUES (1, 1) USING TTL ?", (1000,)).await;
    let rows: Vec<(i32,)> = context.rows("SELECT ttl(v) FROM ttls", ()).await;
    assert!(rows.len() == 1 && (900..=1000).contains(&rows[0].0), "{rows:?}");
}

async fn aggregates_and_functions(context: Arc<Context>) {
    context.define("CREATE TABLE agg (k int, c int, v double, PRIMARY KEY (k, c))").await;
    for i in 0..10 {
        let values = (i, f64::from(i) / 2.0);
        context.execute("INSERT INTO agg (k, c, v) VALUES (0, ?, ?)", values).await;
    }
    let cql = "SELECT count(*), min(v), max(v), sum(c), avg(v) FROM agg WHERE k = 0";
    let rows: Vec<(i64, f64, f64, i32, f64)> = context.rows(cql, ()).await;
    assert_eq!(rows, [(10, 0.0, 4.5, 45, 2.25)]);
}

async fn fill(context: &Context) {
    let create = "CREATE TABLE IF NOT EXISTS paged (k int, c int, v text, PRIMARY KEY (k, c))";
    context.define(create).await;
    let insert = context.session.prepare("INSERT INTO paged (k, c, v) VALUES (?, ?, ?)").await;
    let insert = insert.unwrap();
    let writes: FuturesUnordered<_> = (0..200)
        .map(|i| {
            let values = (i / 40, i % 40, format!("v{}-{}", i / 40, i % 40));
            context.session.execute_unpaged(&insert, values)
        })
        .collect();
    writes.for_each(|result| async move { assert!(result.is_ok()) }).await;
}

/// Clusterings of a paged query.
async fn clusterings(context: &Context, cql: &str, page_size: i32) -> Vec<i32> {
    let mut select = context.session.prepare(cql).await.unwrap();
    select.set_page_size(page_size);
    let pager = context.session.execute_iter(select, (3,)).await.unwrap();
    let rows: Vec<(i32,)> = pager.rows_stream::<(i32,)>().unwrap().try_collect().await.unwrap();
    rows.into_iter().map(|(clustering,)| clustering).collect()
}

async fn paging_returns_every_row_once(context: Arc<Context>) {
    fill(&context).await;
    for page_size in [1, 7, 40, 199, 200, 5000] {
        let statement = Statement::new("SELECT k, c, v FROM paged").with_page_size(page_size);
        let pager = context.session.query_iter(statement, ()).await.unwrap();
        let mut stream = pager.rows_stream::<(i32, i32, String)>().unwrap();
        let mut seen = HashSet::new();
        while let Some((k, c, v)) = stream.try_next().await.unwrap() {
            assert_eq!(v, format!("v{k}-{c}"));
            assert!(seen.insert((k, c)));
        }
        assert_eq!(seen.len(), 200);
    }
}

async fn paging_inside_a_partition_in_both_orders_and_with_a_limit(context: Arc<Context>) {
    fill(&context).await;
    let up: Vec<i32> = (0..40).collect();
    let down: Vec<i32> = (0..40).rev().collect();
    let select = "SELECT c FROM paged WHERE k = ?";
    assert_eq!(clusterings(&context, select, 7).await, up);
    assert_eq!(clusterings(&context, &format!("{select} ORDER BY c DESC"), 7).await, down);
    assert_eq!(clusterings(&context, &format!("{select} LIMIT 23"), 5).await, up[..23]);
}

async fn paging_state_can_be_carried_to_another_session(context: Arc<Context>) {
    fill(&context).await;
    let statement = Statement::new("SELECT c FROM paged WHERE k = 4").with_page_size(15);
    let (page, next) = context
        .session
        .query_single_page(statement.clone(), (), PagingState::start())
        .await
        .unwrap();
    assert_eq!(page.into_rows_result().unwrap().rows_num(), 15);
    let ControlFlow::Continue(state) = next.into_paging_control_flow() else {
        panic!("no paging state");
    };
    let other = builder().use_keyspace(&context.keyspace, false).build().await.unwrap();
    let statement = statement.with_page_size(100);
    let (page, next) = other.query_single_page(statement, (), state).await.unwrap();
    let page = page.into_rows_result().unwrap();
    let rest: Vec<(i32,)> = page.rows().unwrap().map(|row| row.unwrap()).collect();
    assert_eq!(rest, (15..40).map(|c| (c,)).collect::<Vec<_>>());
    assert!(next.into_paging_control_flow().is_break());
}

async fn batches_apply_all_statements(context: Arc<Context>) {
    context.define("CREATE TABLE batched (k int, c int, v text, PRIMARY KEY (k, c))").await;
    let insert = context.session.prepare("INSERT INTO batched (k, c, v) VALUES (?, ?, ?)").await;
    let insert = insert.unwrap();
    for kind in [BatchType::Logged, BatchType::Unlogged] {
        context.define("TRUNCATE batched").await;
        let mut batch = Batch::new(kind);
        let mut values = Vec::new();
        for i in 0..20 {
            batch.append_statement(insert.clone());
            values.push(vec![
                CqlValue::Int(i % 3),
                CqlValue::Int(i),
                CqlValue::Text(i.to_string()),
            ]);
        }
        batch.append_statement("INSERT INTO batched (k, c, v) VALUES (9, 9, 'text')");
        values.push(Vec::new());
        batch.append_statement("DELETE FROM batched WHERE k = 0 AND c = 0");
        values.push(Vec::new());
        batch.set_timestamp(Some(5555));
        context.session.batch(&batch, values).await.unwrap();
        let rows: Vec<(i32, i32, i64)> =
            context.rows("SELECT k, c, writetime(v) FROM batched", ()).await;
        assert_eq!(rows.len(), 20);
        assert!(rows.iter().all(|row| row.2 == 5555));
        assert!(!rows.iter().any(|row| (row.0, row.1) == (0, 0)));
    }
}

/// The error that the server gives to a statement.
async fn refused(context: &Context, statement: impl Into<Statement>) -> (DbError, String) {
    let statement = statement.into();
    let cql = statement.contents.clone();
    match context.session.query_unpaged(statement, ()).await {
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, text))) => {
            (error, text)
        }
        Err(error) => panic!("{cql}: {error:?}"),
        Ok(_) => panic!("{cql}: not refused"),
    }
}

async fn errors_have_cassandras_codes_and_texts(context: Arc<Context>) {
    context.define("CREATE TABLE errs (k int, c int, v int, PRIMARY KEY (k, c))").await;
    let exists =
        DbError::AlreadyExists { keyspace: context.keyspace.clone(), table: "errs".to_owned() };
    for (cql, expected, part) in [
        ("SELEKT * FROM nothing", DbError::SyntaxError, "line 1:0"),
        ("SELECT * FROM nosuch", DbError::Invalid, "table nosuch does not exist"),
        ("SELECT * FROM nokeyspace.t", DbError::Invalid, "keyspace nokeyspace does not exist"),
        ("SELECT zzz FROM errs", DbError::Invalid, "Undefined column name zzz"),
        ("SELECT * FROM errs WHERE v = 1", DbError::Invalid, "use ALLOW FILTERING"),
        (
            "INSERT INTO errs (k, v) VALUES (1, 1)",
            DbError::Invalid,
            "Some clustering keys are missing: c",
        ),
        ("CREATE TABLE errs (k int PRIMARY KEY)", exists, "errs"),
        (
            "CREATE KEYSPACE badrep WITH replication = {'class': 'NoStrategy'}",
            DbError::ConfigError,
            "NoStrategy",
        ),
    ] {
        let (error, text) = refused(&context, cql).await;
        assert_eq!(error, expected, "{cql}: {text}");
        assert!(text.contains(part), "{cql}: {text}");
    }
    let rows: Vec<(String,)> = context.rows("SELECT key FROM system.local", ()).await;
    assert_eq!(rows.len(), 1);
}

async fn quorum_of_three_replicas_is_unavailable_on_one_node(context: Arc<Context>) {
    let name = format!("{}_rf3", context.keyspace);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
    context.define(&format!("CREATE KEYSPACE {name} WITH replication = {replication}")).await;
    context.define(&format!("CREATE TABLE {name}.t (k int PRIMARY KEY)")).await;
    let mut insert = Statement::new(format!("INSERT INTO {name}.t (k) VALUES (1)"));
    insert.set_consistency(Consistency::Quorum);
    let (error, text) = refused(&context, insert.clone()).await;
    let expected = DbError::Unavailable { consistency: Consistency::Quorum, required: 2, alive: 1 };
    assert_eq!(error, expected, "{text}");
    insert.set_consistency(Consistency::One);
    context.session.query_unpaged(insert, ()).await.unwrap();
    context.define(&format!("DROP KEYSPACE {name}")).await;
}

async fn concurrent_load_reads_what_it_wrote(context: Arc<Context>) {
    context.define("CREATE TABLE load (k int PRIMARY KEY, v text, n bigint)").await;
    let insert = context.session.prepare("INSERT INTO load (k, v, n) VALUES (?, ?, ?)").await;
    let select = context.session.prepare("SELECT v, n FROM load WHERE k = ?").await;
    let (insert, select) = (insert.unwrap(), select.unwrap());
    futures::stream::iter(0..3000_i32)
        .for_each_concurrent(128, |key| {
            let (context, insert, select) = (&context, &insert, &select);
            async move {
                let values = (key, format!("value-{key}"), i64::from(key) * i64::from(key));
                context.session.execute_unpaged(insert, values.clone()).await.unwrap();
                let result = context.session.execute_unpaged(select, (key,)).await.unwrap();
                let rows = result.into_rows_result().unwrap();
                let read = rows.single_row::<(String, i64)>().unwrap();
                assert_eq!(read, (values.1, values.2));
            }
        })
        .await;
    let rows: Vec<(i64,)> = context.rows("SELECT count(*) FROM load", ()).await;
    assert_eq!(rows, [(3000,)]);
}
