//! Users' functions over the wire: created, called, shown, dropped; permissions; errors of bad
//! functions.

use super::roles::{guarded, login, server_with};
use super::*;
use cql_plan::functions::user::FunctionLimits;
use cql_wire::{EventKind, EventKinds};

fn enabled() -> ServerSettings {
    let user_function_limits = FunctionLimits { fuel: 100_000, ..FunctionLimits::default() };
    changed(settings(), |query| {
        query.user_defined_functions_enabled = true;
        query.dynamic_data_masking_enabled = true;
        query.user_function_limits = user_function_limits;
    })
}

fn guarded_and_enabled() -> ServerSettings {
    let (open, guarded) = (enabled(), guarded());
    changed(ServerSettings { authentication: guarded.authentication, ..open }, |query| {
        query.access = guarded.query.access
    })
}

const TWICE: &str = "(module (func (export \"twice\") (param i32) (result i32) (i32.mul (local.get 0) \
                     (i32.const 2))))";
const PLUS: &str = "(module (func (export \"plus\") (param i32 i32) (result i32) (i32.add (local.get 0) \
                   (local.get 1))))";
const ENDLESS: &str = "(module (func (export \"endless\") (param i32) (result i32) (loop (br 0)) \
                       (i32.const 1)))";
/// Gives its argument back, whatever type it has.
const SAME: &str = "(module (memory (export \"memory\") 1) (global (export \"_scylla_abi\") i32 \
                    (i32.const 8)) (data (i32.const 8) \"\\01\") (func (export \"same\") (param i64) \
                    (result i64) (local.get 0)))";
/// 7 for null, else its argument.
const OR7: &str = "(module (memory (export \"memory\") 1) (global (export \"_scylla_abi\") i32 \
                   (i32.const 8)) (data (i32.const 8) \"\\01\\00\\00\\00\\00\\00\\00\\07\") (func \
                   (export \"or7\") (param i64) (result i64) (if (result i64) (i64.lt_s (local.get 0) \
                   (i64.const 0)) (then (i64.const 0x40000000c)) (else (local.get 0)))))";

fn create(name: &str, args: &str, nulls: &str, returns: &str, body: &str) -> String {
    format!(
        "CREATE FUNCTION ks.{name} ({args}) {nulls} ON NULL INPUT RETURNS {returns} LANGUAGE wasm AS \
         $${body}$$"
    )
}

fn create_twice() -> String {
    create("twice", "n int", "RETURNS NULL", "int", TWICE)
}

async fn with_functions(rt: &Rt) -> (CqlServer, Client) {
    let server = node(rt, enabled(), &Meshes::new(1)).await;
    let mut client = Client::ready(&server, V5).await;
    make_functions(&mut client).await;
    (server, client)
}

async fn make_functions(client: &mut Client) {
    client.with_table().await;
    client.must("CREATE TABLE ks.n (k int, c int, v int, w text, PRIMARY KEY (k, c))").await;
    client.must(&create_twice()).await;
    client.must(&create("plus", "a int, b int", "RETURNS NULL", "int", PLUS)).await;
    client.must(&create("endless", "n int", "RETURNS NULL", "int", ENDLESS)).await;
    for text in ["t text", "t list<int>"] {
        let ty = text.strip_prefix("t ").unwrap_or_default();
        client.must(&create("same", text, "RETURNS NULL", ty, SAME)).await;
    }
    client.must(&create("or7", "n int", "CALLED", "int", OR7)).await;
    for (k, c, v) in [(1, 1, 10), (1, 2, 20), (2, 1, 30)] {
        client.must(&format!("INSERT INTO ks.n (k, c, v, w) VALUES ({k}, {c}, {v}, 'w{v}')")).await;
    }
}

async fn rows(client: &mut Client, text: &str) -> Vec<String> {
    match client.query(text).await.body {
        Body::Rows(rows) => show(&rows),
        other => panic!("{text}: {other:?}"),
    }
}

async fn refused(client: &mut Client, text: &str) -> String {
    let (code, message) = client.query(text).await.error();
    assert_eq!(code, ErrorCode::Invalid, "{text}: {message}");
    message
}

#[test]
fn functions_are_called_wherever_a_native_one_may_be() {
    run(|rt| async move {
        let (server, mut client) = with_functions(&rt).await;
        for (text, expect) in [
            ("SELECT ks.twice(v) FROM ks.n WHERE k = 1", &["20", "40"][..]),
            // Not qualified it is looked for in the keyspace of the table.
            ("SELECT twice(twice(v)), same(w) FROM ks.n WHERE k = 2", &["120 w30"]),
            ("SELECT twice(sum(v)) FROM ks.n", &["120"]),
            ("SELECT max(twice(v)) FROM ks.n", &["60"]),
            ("SELECT or7(v) FROM ks.n WHERE k = 2", &["30"]),
            ("SELECT k, c FROM ks.n WHERE k = ks.twice(1) AND c = 1", &["2 1"]),
            ("SELECT c FROM ks.n WHERE v = twice(10) ALLOW FILTERING", &["2"]),
            ("SELECT cast(twice(v) AS text) FROM ks.n WHERE k = 2", &["60"]),
        ] {
            assert_eq!(rows(&mut client, text).await, expect, "{text}");
        }
        client
            .must("INSERT INTO ks.n (k, c, v, w) VALUES (3, twice(4), twice(21), same('x'))")
            .await;
        client.must("UPDATE ks.n SET v = plus(1, twice(2)) WHERE k = 3 AND c = 9").await;
        let all = rows(&mut client, "SELECT c, v, w FROM ks.n WHERE k = 3").await;
        assert_eq!(all, ["8 42 x", "9 5 null"]);
        let nulls = "SELECT same(w), or7(null) FROM ks.n WHERE k = 3 AND c = 9";
        assert_eq!(rows(&mut client, nulls).await, ["null 7"]);
        let name = match client.query("SELECT twice(v) FROM ks.n").await.body {
            Body::Rows(rows) => rows.columns,
            other => panic!("{other:?}"),
        };
        assert_eq!(name, Some(vec!["ks.twice(v)".to_owned()]));
        // Each was compiled when it was made and when it was first called.
        let compiled = server.executor().plan_limits.functions.compilations();
        assert_eq!(compiled, 6 + 4, "twice, same(text), or7 and plus were called");
    });
}

#[test]
fn a_prepared_call_follows_the_function_it_calls() {
    run(|rt| async move {
        let (_server, mut client) = with_functions(&rt).await;
        let prepared = client.prepare("SELECT twice(v) FROM ks.n WHERE k = ?").await;
        let bound = client.prepare("SELECT plus(v, ?) FROM ks.n WHERE k = 2").await;
        assert_eq!(show(&client.execute(&prepared, &[&int(2)]).await.rows()), ["60"]);
        assert_eq!(show(&client.execute(&bound, &[&int(5)]).await.rows()), ["35"]);
        let thrice = TWICE.replace("i32.const 2", "i32.const 3");
        let replace = create("twice", "n int", "RETURNS NULL", "int", &thrice)
            .replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION");
        let got = client.must(&replace).await;
        assert!(matches!(&got.body, Body::SchemaChange(c) if c.contains("Updated")), "{got:?}");
        assert_eq!(show(&client.execute(&prepared, &[&int(2)]).await.rows()), ["90"]);
        client.must("DROP FUNCTION ks.twice").await;
        let (code, message) = client.execute(&prepared, &[&int(2)]).await.error();
        assert!(code != ErrorCode::ServerError, "{message}");
        let gone = refused(&mut client, "SELECT twice(v) FROM ks.n").await;
        assert_eq!(gone, "Unknown function 'twice'");
    });
}

#[test]
fn an_endless_function_fails_its_statement_only() {
    run(|rt| async move {
        let (_server, mut client) = with_functions(&rt).await;
        for text in [
            "SELECT endless(v) FROM ks.n",
            "INSERT INTO ks.n (k, c, v) VALUES (9, 9, endless(1))",
            "SELECT v FROM ks.n WHERE k = endless(1)",
        ] {
            let (code, message) = client.query(text).await.error();
            assert_eq!(code, ErrorCode::FunctionFailure);
            assert_eq!(
                message,
                "execution of 'ks.endless[int]' failed: it used more than its 100000 units of fuel, \
                 about one per instruction"
            );
        }
        assert_eq!(rows(&mut client, "SELECT twice(v) FROM ks.n WHERE k = 2").await, ["60"]);
    });
}

#[test]
fn aggregates_go_over_groups_and_pages() {
    run(|rt| async move {
        let (_server, mut client) = with_functions(&rt).await;
        client.must("CREATE AGGREGATE ks.total (int) SFUNC plus STYPE int INITCOND 0").await;
        client
            .must(
                "CREATE AGGREGATE ks.total2 (int) SFUNC plus STYPE int FINALFUNC twice INITCOND 100",
            )
            .await;
        for (text, expect) in [
            ("SELECT total(v) FROM ks.n", &["60"][..]),
            (
                "SELECT k, ks.total2(v), count(*) FROM ks.n WHERE k = 1",
                &["1 260 \0\0\0\0\0\0\0\u{2}"],
            ),
            ("SELECT total(twice(v)) FROM ks.n WHERE k = 1", &["60"]),
            ("SELECT twice(total(v)) FROM ks.n WHERE k = 1", &["60"]),
            ("SELECT total(v) FROM ks.n WHERE k = 77", &["0"]),
            // Rows with a null are skipped, as the state function is not called on null.
            ("SELECT total(v) FROM ks.n WHERE k = 2 AND c = 1", &["30"]),
        ] {
            assert_eq!(rows(&mut client, text).await, expect, "{text}");
        }
        client.must("INSERT INTO ks.n (k, c) VALUES (2, 5)").await;
        let mut grouped = rows(&mut client, "SELECT k, total(v) FROM ks.n GROUP BY k").await;
        grouped.sort();
        assert_eq!(grouped, ["1 30", "2 30"]);
        let nested = refused(&mut client, "SELECT total(total(v)) FROM ks.n").await;
        assert_eq!(
            nested,
            "aggregate functions cannot be used as arguments of aggregate functions"
        );
        let inserted = "INSERT INTO ks.n (k, c, v) VALUES (1, 1, total(1))";
        assert_eq!(
            refused(&mut client, inserted).await,
            "Aggregation function are not supported in the where clause"
        );
        assert_eq!(
            refused(&mut client, "DROP FUNCTION ks.plus").await,
            "Function 'ks.plus' is still referenced by aggregates ks.total, ks.total2"
        );
        assert_eq!(
            refused(&mut client, "DROP FUNCTION ks.twice (int)").await,
            "Function 'ks.twice(int)' is still referenced by aggregates ks.total2"
        );
        client.must("DROP AGGREGATE ks.total2").await;
        client.must("DROP FUNCTION ks.twice (int)").await;
    });
}

#[test]
fn statements_that_make_no_function_say_why() {
    run(|rt| async move {
        let (_server, mut client) = with_functions(&rt).await;
        client.must("CREATE TYPE ks.u (a int)").await;
        let make =
            |name: &str, returns: &str| create(name, "n int", "RETURNS NULL", returns, TWICE);
        for (text, expect) in [
            (make("twice", "int"), "Function 'twice' already exists"),
            (
                make("twice", "int").replace("FUNCTION", "OR REPLACE FUNCTION IF NOT EXISTS"),
                "Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives",
            ),
            (
                make("twice", "int").replace("RETURNS NULL", "CALLED"),
                "Could not compile function 'ks.twice' from WebAssembly: the exported function \
                 \"twice\" is (param i32) (result i32), but its declaration needs (param i64) (result \
                 i64)",
            ),
            (
                make("other", "int"),
                "Could not compile function 'ks.other' from WebAssembly: the module exports no \
                 function \"other\" (it exports: twice)",
            ),
            (
                make("twice", "int").replace("(n int)", "(n int, n int)"),
                "Duplicate argument names for given function twice with argument names [n, n]",
            ),
            (
                make("twice", "frozen<list<int>>"),
                "Return type 'frozen<list<int>>' cannot be frozen; remove frozen<> modifier from \
                 'frozen<list<int>>'",
            ),
            (make("twice", "nope"), "Unknown type ks.nope"),
            (
                "DROP FUNCTION ks.same".to_owned(),
                "'DROP FUNCTION same' matches multiple function definitions; specify the argument \
                 types by issuing a statement like 'DROP FUNCTION same (type, type, ...)'. You can \
                 use cqlsh 'DESCRIBE FUNCTION same' command to find all overloads",
            ),
            ("DROP FUNCTION ks.nope".to_owned(), "Function 'ks.nope' doesn't exist"),
            ("DROP FUNCTION ks.twice (text)".to_owned(), "Function 'ks.twice(text)' doesn't exist"),
            ("DROP AGGREGATE ks.twice".to_owned(), "Aggregate 'ks.twice' doesn't exist"),
            (
                "CREATE AGGREGATE ks.a (int) SFUNC nope STYPE int".to_owned(),
                "State function ks.nope(int, int) doesn't exist",
            ),
            (
                "CREATE AGGREGATE ks.a (int) SFUNC plus STYPE int".to_owned(),
                "Cannot create aggregate 'a' without INITCOND because state function ks.plus does not \
                 accept 'null' arguments",
            ),
            (
                "CREATE AGGREGATE ks.a (int) SFUNC plus STYPE int FINALFUNC nope INITCOND 0"
                    .to_owned(),
                "Final function ks.nope(int) doesn't exist",
            ),
            (
                "CREATE AGGREGATE ks.twice (int) SFUNC plus STYPE int INITCOND 0".to_owned(),
                "Aggregate 'twice' cannot replace a function",
            ),
            (
                "SELECT ks.same(v) FROM ks.n".to_owned(),
                "Invalid call to function ks.same, none of its type signatures match (known type \
                 signatures: ks.same : (list<int>) -> list<int>, ks.same : (text) -> text)",
            ),
            (
                "SELECT twice(w) FROM ks.n".to_owned(),
                "Type error: w cannot be passed as argument 0 of function ks.twice of type int",
            ),
            (
                "SELECT twice() FROM ks.n".to_owned(),
                "Invalid number of arguments in call to function ks.twice: 1 required but 0 provided",
            ),
        ] {
            assert_eq!(refused(&mut client, &text).await, expect, "{text}");
        }
        for language in ["java", "javascript", "lua"] {
            let text = create_twice().replace("wasm", language);
            let message = refused(&mut client, &text).await;
            assert!(message.contains(language) && message.contains("LANGUAGE wasm"), "{message}");
        }
        client.must(&create_twice().replace("FUNCTION", "FUNCTION IF NOT EXISTS")).await;
        client.must("DROP FUNCTION IF EXISTS ks.nope").await;
        client.must("DROP AGGREGATE IF EXISTS nowhere.nope").await;
        client.must(&create("same", "t u", "RETURNS NULL", "u", SAME)).await;
        assert_eq!(
            refused(&mut client, "DROP TYPE ks.u").await,
            "Cannot drop user type 'ks.u' as it is still used by functions ks.same"
        );
        client.must("ALTER TYPE ks.u ADD b int").await;
        client.must("DROP KEYSPACE ks").await;
        assert_eq!(rows(&mut client, "DESCRIBE FUNCTIONS").await, [""; 0]);
    });
}

#[test]
fn switched_off_nothing_is_made_and_the_reason_is_cassandras() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V4).await;
        client.with_table().await;
        assert_eq!(
            refused(&mut client, &create_twice()).await,
            "User-defined functions are disabled in cassandra.yaml - set \
             user_defined_functions_enabled=true to enable"
        );
    });
}

#[test]
fn functions_are_shown_and_told_of() {
    run(|rt| async move {
        let (server, mut client) = with_functions(&rt).await;
        let mut listener = Client::ready(&server, V5).await;
        let kinds = EventKinds::NONE.with(EventKind::SchemaChange);
        listener.ask(&Request::Register(kinds)).await;
        let got =
            client.must("CREATE AGGREGATE ks.total (int) SFUNC plus STYPE int INITCOND 0").await;
        let Body::SchemaChange(change) = got.body else { panic!("{got:?}") };
        assert!(
            change.contains("Created") && change.contains("Aggregate(\"total\", [\"int\"])"),
            "{change}"
        );
        assert_eq!(listener.receive().await.body, Body::Event(format!("SchemaChange({change})")));
        let got = client.must("DROP FUNCTION ks.same (list<int>)").await;
        let Body::SchemaChange(change) = got.body else { panic!("{got:?}") };
        assert!(
            change.contains("Dropped") && change.contains("Function(\"same\", [\"list<int>\"])"),
            "{change}"
        );
        assert_eq!(listener.receive().await.body, Body::Event(format!("SchemaChange({change})")));

        let functions = rows(&mut client, "DESCRIBE FUNCTIONS").await;
        let names = ["endless(int)", "or7(int)", "plus(int, int)", "same(text)", "twice(int)"];
        assert_eq!(functions, names.map(|name| format!("ks function {name}")));
        assert_eq!(rows(&mut client, "DESCRIBE AGGREGATES").await, ["ks aggregate total(int)"]);
        let text = format!(
            "CREATE FUNCTION ks.twice(n int)\n    RETURNS NULL ON NULL INPUT\n    RETURNS int\n    \
             LANGUAGE wasm\n    AS $${TWICE}$$;"
        );
        assert_eq!(
            rows(&mut client, "DESCRIBE FUNCTION ks.twice").await,
            [format!("ks function twice(int) {text}")]
        );
        assert_eq!(
            rows(&mut client, "DESCRIBE AGGREGATE ks.total").await,
            [
                "ks aggregate total(int) CREATE AGGREGATE ks.total(int)\n    SFUNC plus\n    STYPE int\n    \
              INITCOND 0;"
            ]
        );
        assert_eq!(
            refused(&mut client, "DESCRIBE FUNCTION ks.nope").await,
            "User defined function 'nope' not found in 'ks'"
        );
        let kinds: Vec<String> = rows(&mut client, "DESCRIBE KEYSPACE ks").await;
        let kinds: Vec<&str> = kinds.iter().filter_map(|r| r.split(' ').nth(1)).collect();
        let expect = ["keyspace", "function", "function", "function", "function", "function"];
        assert_eq!(kinds, [&expect[..], &["aggregate", "table", "table"]].concat());
    });
}

#[test]
fn roles_need_permissions_to_make_call_and_drop_functions() {
    run(|rt| async move {
        let settings = changed(guarded(), |query| query.user_defined_functions_enabled = true);
        let server = server_with(&rt, settings).await;
        let mut root = login(&server, "root", "secret").await;
        root.with_table().await;
        for name in ["maker", "caller"] {
            root.must(&format!("CREATE ROLE {name} WITH PASSWORD = 'pw' AND LOGIN = true")).await;
            root.must(&format!("GRANT SELECT ON KEYSPACE ks TO {name}")).await;
        }
        let mut maker = login(&server, "maker", "pw").await;
        let mut caller = login(&server, "caller", "pw").await;
        let denied = |user: &str, permission: &str, on: &str| {
            let message =
                format!("User {user} has no {permission} permission on {on} or any of its parents");
            (ErrorCode::Unauthorized, message)
        };
        let on_all = "<all functions in ks>";
        assert_eq!(maker.query(&create_twice()).await.error(), denied("maker", "CREATE", on_all));
        root.must("GRANT CREATE ON ALL FUNCTIONS IN KEYSPACE ks TO maker").await;
        maker.must(&create_twice()).await;
        // The creator has all permissions on the function.
        let call = "SELECT twice(c) FROM ks.t";
        maker.must(call).await;
        let on = "<function ks.twice(int)>";
        let prepared = maker.prepare(call).await;
        assert_eq!(caller.query(call).await.error(), denied("caller", "EXECUTE", on));
        assert_eq!(caller.execute(&prepared, &[]).await.error(), denied("caller", "EXECUTE", on));
        let replace = create_twice().replace("FUNCTION", "OR REPLACE FUNCTION");
        assert_eq!(caller.query(&replace).await.error(), denied("caller", "ALTER", on));
        let drop = "DROP FUNCTION ks.twice";
        assert_eq!(caller.query(drop).await.error(), denied("caller", "DROP", on));
        maker.must("GRANT EXECUTE ON FUNCTION ks.twice(int) TO caller").await;
        caller.must(call).await;
        caller.execute(&prepared, &[]).await.rows();
        let absent = "GRANT EXECUTE ON FUNCTION ks.twice(text) TO caller";
        assert_eq!(
            root.query(absent).await.error().1,
            "Resource <function ks.twice(text)> doesn't exist"
        );
        // A function of the same name is another one: DROP removes the granted permissions.
        maker.must(drop).await;
        maker.must(&create_twice()).await;
        assert_eq!(caller.query(call).await.error(), denied("caller", "EXECUTE", on));
        root.must("GRANT EXECUTE ON ALL FUNCTIONS TO caller").await;
        caller.must(call).await;
        maker.must(&create("plus", "a int, b int", "RETURNS NULL", "int", PLUS)).await;
        let aggregate = "CREATE AGGREGATE ks.total (int) SFUNC plus STYPE int INITCOND 0";
        assert_eq!(caller.query(aggregate).await.error(), denied("caller", "CREATE", on_all));
        maker.must(aggregate).await;
        caller.must("SELECT total(c) FROM ks.t").await;
        root.must("REVOKE EXECUTE ON ALL FUNCTIONS FROM caller").await;
        let on = "<function ks.total(int)>";
        let total = "SELECT total(c) FROM ks.t";
        assert_eq!(caller.query(total).await.error(), denied("caller", "EXECUTE", on));
        root.must("GRANT EXECUTE ON FUNCTION ks.total(int) TO caller").await;
        let on = "<function ks.plus(int, int)>";
        assert_eq!(caller.query(total).await.error(), denied("caller", "EXECUTE", on));
    });
}

const MASKED: &str = "CREATE TABLE ks.m (k int PRIMARY KEY, v int MASKED WITH plus(5), w text MASKED \
                      WITH ks.same())";

#[test]
fn functions_are_masks_for_whoever_may_not_see_values() {
    run(|rt| async move {
        let server = server_with(&rt, guarded_and_enabled()).await;
        let mut root = login(&server, "root", "secret").await;
        make_functions(&mut root).await;
        root.must(MASKED).await;
        root.must("INSERT INTO ks.m (k, v, w) VALUES (1, 10, 'w')").await;
        root.must("INSERT INTO ks.m (k, w) VALUES (2, 'w')").await;
        for text in [
            "CREATE ROLE reader WITH PASSWORD = 'pw' AND LOGIN = true",
            "GRANT SELECT ON ks.m TO reader",
        ] {
            root.must(text).await;
        }
        let mut reader = login(&server, "reader", "pw").await;
        let all = "SELECT v, w FROM ks.m WHERE k IN (1, 2)";
        let prepared = reader.prepare(all).await;
        // Without EXECUTE on the function, and null stays null where the function says so.
        assert_eq!(rows(&mut reader, all).await, ["15 w", "null w"]);
        assert_eq!(rows(&mut root, all).await, ["10 w", "null w"]);
        let described = rows(&mut root, "DESCRIBE TABLE ks.m").await.join("\n");
        assert!(described.contains("v int MASKED WITH ks.plus(5)"), "{described}");
        assert!(described.contains("w text MASKED WITH ks.same()"), "{described}");
        let drop = "DROP FUNCTION ks.plus";
        assert_eq!(
            refused(&mut root, drop).await,
            "Function 'ks.plus' is still referenced by column masks in tables m"
        );
        assert_eq!(
            refused(&mut root, "DROP FUNCTION ks.same(text)").await,
            "Function 'ks.same(text)' is still referenced by column masks in tables m"
        );
        root.must("DROP FUNCTION ks.same(list<int>)").await;
        // A prepared statement calls the replaced function.
        let times = PLUS.replace("i32.add", "i32.mul");
        let again = create("plus", "a int, b int", "RETURNS NULL", "int", &times);
        root.must(&again.replace("CREATE", "CREATE OR REPLACE")).await;
        let got = reader.execute(&prepared, &[]).await;
        let Body::Rows(got) = &got.body else { panic!("{:?}", got.body) };
        assert_eq!(show(got), ["50 w", "null w"]);
        root.must("ALTER TABLE ks.m ALTER v MASKED WITH endless()").await;
        let (code, failed) = reader.query(all).await.error();
        assert_eq!(code, ErrorCode::FunctionFailure);
        assert!(failed.starts_with("execution of 'ks.endless[int]' failed"), "{failed}");
        assert_eq!(rows(&mut root, all).await, ["10 w", "null w"]);
        root.must("ALTER TABLE ks.m ALTER v DROP MASKED").await;
        root.must(drop).await;
    });
}

#[test]
fn what_is_no_mask_of_a_column_is_refused() {
    run(|rt| async move {
        let (_server, mut client) = with_functions(&rt).await;
        client
            .must(
                "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', \
                 'replication_factor': 1}",
            )
            .await;
        client.must(&create_twice().replace("ks.", "other.")).await;
        client.must("CREATE AGGREGATE ks.total (int) SFUNC plus STYPE int INITCOND 0").await;
        for (column, expect) in [
            (
                "v int MASKED WITH nope()",
                "Unable to find masking function for v, no declared function matches the signature \
                 nope()",
            ),
            (
                "v int MASKED WITH total()",
                "Aggregate function total() cannot be used for masking table columns",
            ),
            (
                "v int MASKED WITH other.twice()",
                "Masking function other.twice() doesn't belong to the same keyspace as the table ks.m",
            ),
            (
                "v int MASKED WITH plus()",
                "Invalid number of arguments in call to function ks.plus: 2 required but 1 provided",
            ),
            (
                "v int MASKED WITH ks.plus('x')",
                "Type error: 'x' cannot be passed as argument 1 of function ks.plus of type int",
            ),
            (
                "v int MASKED WITH same()",
                "Invalid call to function same, none of its type signatures match (known type \
                 signatures: ks.same : (list<int>) -> list<int>, ks.same : (text) -> text)",
            ),
            (
                "v text MASKED WITH twice()",
                "Type error: org.apache.cassandra.db.marshal.UTF8Type cannot be passed as argument 0 of \
                 function ks.twice of type int",
            ),
        ] {
            let text = format!("CREATE TABLE ks.m (k int PRIMARY KEY, {column})");
            assert_eq!(refused(&mut client, &text).await, expect, "{text}");
        }
        client.must(MASKED).await;
        assert_eq!(
            refused(&mut client, "CREATE TABLE other.m LIKE ks.m").await,
            "Cannot use CREATE TABLE LIKE in another keyspace: function 'ks.plus' is the mask of a \
             column"
        );
        client.must("CREATE TABLE ks.m2 LIKE ks.m").await;
        client.must("DROP AGGREGATE ks.total").await;
        assert_eq!(
            refused(&mut client, "DROP FUNCTION ks.plus").await,
            "Function 'ks.plus' is still referenced by column masks in tables m, m2"
        );
    });
}
