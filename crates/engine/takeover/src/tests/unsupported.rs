//! Definitions that are refused, left out on request, or taken over: views, functions, indexes.

use super::*;

#[test]
fn what_helenus_does_not_have_is_refused_by_name_all_at_once() {
    let mut rows = SchemaRows::default();
    let ks = || ("keyspace_name", text("ks"));
    let t = || ("table_name", text("t"));
    let flags = |name: &str, flags: &[&str]| {
        row("tables", &[ks(), ("table_name", text(name)), ("flags", list_of(flags))])
    };
    for (name, place) in rows.tables_mut() {
        match name {
            "views" => place.push(row(name, &[ks(), ("view_name", text("v"))])),
            "indexes" => {
                place.push(row(name, &[ks(), t(), ("index_name", text("i"))]));
                let paxos = [("keyspace_name", text("system")), ("table_name", text("paxos"))];
                place.push(row(name, &paxos));
            }
            "functions" => place.push(row(name, &[ks(), ("function_name", text("f"))])),
            "triggers" => place.push(row(name, &[ks(), t(), ("trigger_name", text("g"))])),
            "column_masks" => place.push(row(name, &[ks(), t(), ("column_name", text("m"))])),
            "tables" => {
                place.push(flags("counts", &["compound", "counter"]));
                place.push(flags("thrift", &["dense", "super"]));
                place.push(flags("fine", &["compound"]));
            }
            _ => {}
        }
    }
    let base = cql_plan::system::system_schema();
    let error = definitions::changes(&base, &rows, &mut Choice::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("--without views,indexes,functions,triggers to"), "{text}");
    let TakeoverError::Unsupported { items, .. } = error else { panic!("{error}") };
    assert_eq!(
        items,
        [
            "materialized view ks.v",
            "index ks.t.i",
            "function ks.f",
            "trigger ks.t.g",
            "mask of column ks.t.m",
            "super columns of table ks.thrift",
        ]
    );
}

#[test]
fn what_the_operator_leaves_out_is_kept_as_statements() {
    let (ks, t) = (|| ("keyspace_name", text("ks")), || ("table_name", text("T")));
    let map = |pairs: &[(&str, &str)]| types::wire::encode_map(pairs.iter().copied()).unwrap();
    let position = |n: i32| ("position", n.to_be_bytes().to_vec());
    let mut rows = SchemaRows::default();
    for (name, place) in rows.tables_mut() {
        let column = |column: &str, kind: &str, at: i32| {
            let of = ("table_name", text("v"));
            let (column, kind) = (("column_name", text(column)), ("kind", text(kind)));
            row(
                "columns",
                &[ks(), of, column, kind, position(at), ("clustering_order", text("desc"))],
            )
        };
        match name {
            "views" => place.push(row(
                name,
                &[
                    ks(),
                    ("view_name", text("v")),
                    ("base_table_name", text("T")),
                    ("where_clause", text("a IS NOT NULL AND k IS NOT NULL")),
                    ("include_all_columns", vec![0]),
                    ("gc_grace_seconds", 9_i32.to_be_bytes().to_vec()),
                ],
            )),
            "columns" => {
                place.push(column("a", "partition_key", 0));
                place.push(column("k", "clustering", 0));
                place.push(column("x", "regular", -1));
            }
            "indexes" => {
                let custom =
                    [("class_name", "StorageAttachedIndex"), ("mode", "a'b"), ("target", "m")];
                let kind = |kind: &str| ("kind", text(kind));
                let options = ("options", map(&custom));
                place.push(row(
                    name,
                    &[ks(), t(), ("index_name", text("i")), kind("CUSTOM"), options],
                ));
                let options = ("options", map(&[("target", "values(m)")]));
                place.push(row(
                    name,
                    &[ks(), t(), ("index_name", text("j")), kind("COMPOSITES"), options],
                ));
            }
            "functions" => place.push(row(
                name,
                &[
                    ks(),
                    ("function_name", text("f")),
                    ("argument_names", list_of(&["x", "select"])),
                    ("argument_types", list_of(&["int", "text"])),
                    ("body", text("return x;")),
                    ("called_on_null_input", vec![1]),
                    ("language", text("java")),
                    ("return_type", text("int")),
                ],
            )),
            "aggregates" => place.push(row(
                name,
                &[
                    ks(),
                    ("aggregate_name", text("s")),
                    ("argument_types", list_of(&["int"])),
                    ("state_func", text("f")),
                    ("state_type", text("int")),
                    ("initcond", text("0")),
                ],
            )),
            "triggers" => {
                let options = ("options", map(&[("class", "a.B")]));
                place.push(row(name, &[ks(), t(), ("trigger_name", text("g")), options]));
            }
            _ => {}
        }
    }
    let base = cql_plan::system::system_schema();
    let some = ["views".to_owned(), "indexes".to_owned()];
    let mut choice = Choice { without: &some, ..Choice::default() };
    let error = definitions::changes(&base, &rows, &mut choice).unwrap_err().to_string();
    assert!(error.contains("have: function ks.f; aggregate ks.s; trigger ks.T.g;"), "{error}");
    assert!(error.contains("--without functions,triggers "), "{error}");
    let all = ["views", "indexes", "functions", "triggers"].map(str::to_owned);
    let mut choice = Choice { without: &all, ..Choice::default() };
    definitions::changes(&base, &rows, &mut choice).unwrap();
    let statements: Vec<&str> = choice.left_out.iter().map(|l| l.statement.as_str()).collect();
    assert_eq!(
        statements,
        [
            "CREATE MATERIALIZED VIEW ks.v\n    AS SELECT a, k, x\n    FROM ks.\"T\"\n    WHERE a IS NOT NULL AND \
             k IS NOT NULL\n    PRIMARY KEY ((a), k)\n    WITH CLUSTERING ORDER BY (k DESC)\n    AND \
             gc_grace_seconds = 9;",
            "CREATE CUSTOM INDEX i ON ks.\"T\" (m) USING 'StorageAttachedIndex' WITH OPTIONS = {'mode': 'a''b'};",
            "CREATE INDEX j ON ks.\"T\" (values(m));",
            "CREATE FUNCTION ks.f(x int, \"select\" text)\n    CALLED ON NULL INPUT\n    RETURNS int\n    \
             LANGUAGE java\n    AS $$return x;$$;",
            "CREATE AGGREGATE ks.s(int)\n    SFUNC f\n    STYPE int\n    INITCOND 0;",
            "CREATE TRIGGER g ON ks.\"T\" USING 'a.B';",
        ]
    );
    let kept = left_out::file_text(&choice.left_out);
    for statement in statements {
        assert!(kept.contains(statement));
    }
}

#[test]
fn indexes_are_taken_over_where_a_statement_could_make_them() {
    let map = |pairs: &[(&str, &str)]| types::wire::encode_map(pairs.iter().copied()).unwrap();
    let (ks, t) = (|| ("keyspace_name", text("ks")), || ("table_name", text("t")));
    let mut rows = SchemaRows::default();
    for (name, place) in rows.tables_mut() {
        let column = |column: &str, kind: &str, at: i32| {
            let position = ("position", at.to_be_bytes().to_vec());
            let (column, kind) = (("column_name", text(column)), ("kind", text(kind)));
            let (ty, order) = (("type", text("int")), ("clustering_order", text("none")));
            row("columns", &[ks(), t(), column, kind, position, ty, order])
        };
        let index = |name: &str, kind: &str, options: &[(&str, &str)]| {
            let (name, kind) = (("index_name", text(name)), ("kind", text(kind)));
            row("indexes", &[ks(), t(), name, kind, ("options", map(options))])
        };
        match name {
            "keyspaces" => {
                let class = [("class", "org.apache.cassandra.locator.SimpleStrategy")];
                let factor = [class[0], ("replication_factor", "1")];
                place.push(row(name, &[ks(), ("replication", map(&factor))]));
            }
            "tables" => {
                let id = ("id", vec![7; 16]);
                place.push(row(name, &[ks(), t(), id, ("flags", list_of(&["compound"]))]));
            }
            "columns" => {
                place.push(column("k", "partition_key", 0));
                place.push(column("v", "regular", -1));
            }
            "indexes" => {
                place.push(index("a", "COMPOSITES", &[("target", "v")]));
                place.push(index("b", "CUSTOM", &[("class_name", "sai"), ("target", "v")]));
                let other = "com.example.Index";
                place.push(index("c", "CUSTOM", &[("class_name", other), ("target", "v")]));
            }
            _ => {}
        }
    }
    let base = cql_plan::system::system_schema();
    let indexes = |available| cql_plan::ddl::IndexSettings { available, ..Default::default() };
    let unsupported = |available| {
        let mut choice = Choice { indexes: indexes(available), ..Choice::default() };
        let error = definitions::changes(&base, &rows, &mut choice).unwrap_err();
        let TakeoverError::Unsupported { items, .. } = error else { panic!("{error}") };
        items
    };
    assert_eq!(unsupported(false), ["index ks.t.a", "index ks.t.b", "index ks.t.c"]);
    assert_eq!(unsupported(true), ["index ks.t.c"]);

    // Returns the names of the indexes that are taken over and that are left out, and the schema with the former.
    let taken = |rows: &SchemaRows, without: &[&str], known: Option<&Schema>| {
        let without: Vec<String> = without.iter().map(|kind| (*kind).to_owned()).collect();
        let indexes = indexes(true);
        let mut choice = Choice { without: &without, known, indexes, left_out: Vec::new() };
        let changes = definitions::changes(&base, rows, &mut choice).unwrap();
        let after = changes.iter().fold(base.clone(), |schema, c| schema.apply(c).unwrap());
        let table = after.table("ks", "t").unwrap();
        let names: Vec<String> = table.indexes.iter().map(|index| index.name.to_string()).collect();
        let left_out: Vec<String> = choice.left_out.into_iter().map(|one| one.what).collect();
        (names, left_out, after)
    };
    let (names, left_out, _) = taken(&rows, &["indexes"], None);
    assert_eq!(names, Vec::<String>::new(), "a request to leave indexes out is for all of them");
    assert_eq!(left_out, ["index ks.t.a", "index ks.t.b", "index ks.t.c"]);
    for (name, place) in rows.tables_mut() {
        if name == "indexes" {
            place.pop();
        }
    }
    let (names, _, known) = taken(&rows, &[], None);
    assert_eq!(names, ["a", "b"]);
    let (names, left_out, _) = taken(&rows, &["indexes"], Some(&known));
    assert_eq!(
        (names.join(" "), left_out.len()),
        ("a b".to_owned(), 0),
        "they are this node's own"
    );

    // A local index is a second plain one for a Cassandra; it stays what it was as long as its row does.
    let local = "CREATE INDEX b ON ks.t ((k), v)";
    let plan = cql_plan::ddl::DdlPlan::new(&cql_syntax::parse(local).unwrap().kind, None);
    let mut own = Table::clone(known.table("ks", "t").unwrap());
    own.indexes = own.indexes_without("b");
    own.version += 1;
    let mut known = known.apply(&SchemaChange::AlterTable(own)).unwrap();
    let outcome = plan.unwrap().unwrap().outcome(&mut cql_plan::ddl::DdlContext {
        schema: &known,
        datacenters: &[],
        moving: &[],
        new_table_id: &mut stdx::Uuid::nil,
        now: stdx::WallMicros(0),
        watch: None,
        default_factor: 1,
        default_compaction: None,
        drop_compact_storage: false,
        functions: None,
        indexes: &indexes(true),
    });
    for change in outcome.unwrap().changes {
        known = known.apply(&change).unwrap();
    }
    let target = |rows: &SchemaRows, known| {
        let (names, left_out, after) = taken(rows, &[], Some(known));
        assert_eq!((names.join(" "), left_out.len()), ("a b".to_owned(), 0));
        after.table("ks", "t").unwrap().index("b").unwrap().options["target"].clone()
    };
    let stored = |rows: &mut SchemaRows, options: &[(&str, &str)], kind: &str| {
        for (name, place) in rows.tables_mut() {
            if name == "indexes" {
                let (index, kind) = (("index_name", text("b")), ("kind", text(kind)));
                place[1] = row("indexes", &[ks(), t(), index, kind, ("options", map(options))]);
            }
        }
    };
    stored(&mut rows, &[("target", "v")], "COMPOSITES");
    assert_eq!(target(&rows, &known), r#"{"pk":["k"],"ck":["v"]}"#);
    stored(&mut rows, &[("class_name", "sai"), ("target", "v")], "CUSTOM");
    assert_eq!(target(&rows, &known), "v", "another index of its name");
    // ScyllaDB stores the target of a local index itself.
    stored(&mut rows, &[("target", r#"{"pk":["k"],"ck":["v"]}"#)], "COMPOSITES");
    let (_, _, after) = taken(&rows, &[], None);
    assert!(after.table("ks", "t").unwrap().index("b").unwrap().is_local());
}
