//! The index that a statement with ALLOW FILTERING would need, and guardrails on terms of indexes.

use std::sync::Arc;

use super::KEYSPACE;
use super::index_rules::{indexed_schema, options_with};
use crate::guardrails::{Guardrails, Threshold, Watch};
use crate::plan::{ExecuteOptions, Plan, PlanContext, PlanKind, PlanLimits, UuidSource, plan};

const TABLES: &[&str] = &[
    KEYSPACE,
    "CREATE TABLE t (k int, k2 text, c int, v int, w text, \"W x\" text, \"Vw\" text, b blob, d duration, s text static, \
     m map<text, int>, l list<text>, f frozen<list<int>>, u frozen<tuple<int, int>>, vec vector<float, 2>, \
     PRIMARY KEY ((k, k2), c))",
    "CREATE TABLE one (k int PRIMARY KEY, v int)",
    "CREATE TABLE n (k int PRIMARY KEY, n counter)",
    "CREATE INDEX t_w ON t (w) USING 'sai'",
    "CREATE INDEX t_s ON t (s) USING 'legacy_local_table'",
    "CREATE INDEX t_m ON t (keys(m)) USING 'sai'",
];

fn planned(schema: &Arc<schema::Schema>, text: &str) -> Plan {
    let limits = PlanLimits::default();
    let cx = PlanContext {
        schema,
        keyspace: Some("ks"),
        limits: &limits,
        now: super::NOW,
        functions: None,
    };
    plan(&cql_syntax::parse(text).expect(text), &cx).expect(text)
}

#[test]
fn a_filter_that_no_index_answers_gets_the_statement_that_creates_one() {
    let schema = indexed_schema(TABLES);
    for (clause, expected) in [
        ("v = 1", Some("ks.t (v)")),
        ("v > 1", Some("ks.t (v)")),
        // Equality first.
        ("c > 1 AND \"Vw\" = 'a' AND v > 1", Some("ks.t (\"Vw\")")),
        // Cassandra's storage-attached indexes are of columns with plain names.
        ("\"W x\" = 'a'", None),
        ("k2 = 'a'", Some("ks.t (k2)")),
        // No filter, but a slice of every partition.
        ("c = 1", None),
        ("m['a'] = 1", Some("ks.t (entries(m))")),
        ("m CONTAINS 1", Some("ks.t (values(m))")),
        ("l CONTAINS 'a'", Some("ks.t (values(l))")),
        ("f = [1]", Some("ks.t (full(f))")),
        ("u = (1, 2)", Some("ks.t (u)")),
        // One filter of two is answered.
        ("w = 'a' AND v = 1", Some("ks.t (v)")),
        // A legacy index answers no ranges, nor does any of text.
        ("s = 'a' AND v = 1", Some("ks.t (v)")),
        ("s > 'a'", None),
        ("w = 'a'", None),
        ("m CONTAINS KEY 'a'", None),
        ("k = 1 AND k2 = 'a' AND c = 1", None),
        ("b = 0x00", None),
        ("vec = [1, 2]", None),
        // Elements of a frozen collection.
        ("f CONTAINS 1", None),
    ] {
        let text = format!("SELECT * FROM t WHERE {clause} ALLOW FILTERING");
        let plan = planned(&schema, &text);
        let PlanKind::Select(select) = &plan.kind else { panic!("{text}") };
        let expected = expected.map(|target| format!("CREATE INDEX ON {target} USING 'sai'"));
        assert_eq!(select.advised_index(), expected.as_deref(), "{text}");
    }
    for text in [
        "SELECT * FROM t WHERE w = 'a'",
        "SELECT * FROM t ALLOW FILTERING",
        "SELECT * FROM one WHERE k = 1 ALLOW FILTERING",
        "SELECT * FROM n WHERE n = 1 ALLOW FILTERING",
    ] {
        let plan = planned(&schema, text);
        let PlanKind::Select(select) = &plan.kind else { panic!("{text}") };
        assert_eq!(select.advised_index(), None, "{text}");
    }
}

const TERMS: &[&str] = &[
    KEYSPACE,
    "CREATE TABLE g (k text, k2 text, c text, w text, b int, s text static, x text, \
     m map<text, text>, l list<text>, f frozen<list<int>>, y text, PRIMARY KEY ((k, k2), c))",
    "CREATE INDEX g0 ON g (k) USING 'sai'",
    "CREATE INDEX g2 ON g (c) USING 'sai'",
    "CREATE INDEX g3 ON g (w) USING 'sai'",
    "CREATE INDEX g4 ON g (s) USING 'sai'",
    "CREATE INDEX g5 ON g (entries(m)) USING 'sai'",
    "CREATE INDEX g6 ON g (keys(m)) USING 'sai'",
    "CREATE INDEX g8 ON g (l) USING 'sai'",
    "CREATE INDEX g9 ON g (full(f)) USING 'sai'",
    "CREATE CUSTOM INDEX gx ON g (x) USING 'sai' WITH OPTIONS = {'ascii': 'true'}",
    "CREATE INDEX gy ON g (y) USING 'legacy_local_table'",
];

/// Recorded from a Cassandra 5.0.9 with these thresholds: warnings, and the refusal as the last of them.
#[test]
fn terms_of_attached_indexes_are_held_against_the_limits() {
    let schema = indexed_schema(TERMS);
    let rails = Arc::new(Guardrails {
        sai_string_term_size: Threshold { warn: 20, fail: 40 },
        sai_frozen_term_size: Threshold { warn: 20, fail: 60 },
        ..Guardrails::default()
    });
    let long = "x".repeat(25);
    let row = "k, k2, c";
    for (statement, expected) in [
        (format!("INSERT INTO g ({row}, w) VALUES ('a', 'b', 'c', '{long}')"), vec!["w 25"]),
        (format!("INSERT INTO g ({row}, b) VALUES ('{long}', 'b', 'c', 1)"), vec!["k 25"]),
        (format!("INSERT INTO g ({row}, b) VALUES ('a', '{long}', 'c', 1)"), vec![]),
        (format!("INSERT INTO g ({row}, b) VALUES ('a', 'b', '{long}', 1)"), vec!["c 25"]),
        (format!("INSERT INTO g (k, k2, s) VALUES ('a', 'b', '{long}')"), vec!["s 25"]),
        (
            format!("INSERT INTO g ({row}, m) VALUES ('a', 'b', 'c', {{'{long}': 'v'}})"),
            vec!["m 32", "m 25"],
        ),
        (
            format!("UPDATE g SET m['k'] = '{long}' WHERE k = 'a' AND k2 = 'b' AND c = 'c'"),
            vec!["m 32"],
        ),
        (
            format!("UPDATE g SET l = l + ['{long}'] WHERE k = 'a' AND k2 = 'b' AND c = 'c'"),
            vec!["l 25"],
        ),
        (format!("INSERT INTO g ({row}, f) VALUES ('a', 'b', 'c', [1, 1, 1, 1])"), vec!["f 36"]),
        (format!("DELETE FROM g WHERE k = '{long}' AND k2 = 'b' AND c = 'c'"), vec!["k 25"]),
        (format!("DELETE FROM g WHERE k = '{long}' AND k2 = 'b'"), vec![]),
        (format!("DELETE w FROM g WHERE k = 'a' AND k2 = 'b' AND c = '{long}'"), vec!["c 25"]),
        // Text is measured as the index has it: signs of two bytes become one.
        (
            format!("INSERT INTO g ({row}, x) VALUES ('a', 'b', 'c', '{}')", "ä".repeat(25)),
            vec!["x 25"],
        ),
        (format!("INSERT INTO g ({row}, y) VALUES ('a', 'b', 'c', '{long}')"), vec![]),
        (
            format!("INSERT INTO g ({row}, w) VALUES ('a', 'b', 'c', '{}')", "x".repeat(41)),
            vec!["w 41!"],
        ),
        (
            format!("INSERT INTO g ({row}, f) VALUES ('a', 'b', 'c', [1, 1, 1, 1, 1, 1, 1, 1])"),
            vec!["f 68!"],
        ),
    ] {
        let plan = planned(&schema, &statement);
        let PlanKind::Modify(modify) = &plan.kind else { panic!("{statement}") };
        let (uuids, watch) = (UuidSource::new(1), Watch::new(rails.clone()));
        let options = ExecuteOptions { watch: Some(&watch), ..options_with(&uuids) };
        let bound = modify.bind(&[], &options, &mut Vec::new());
        let texts = expected.iter().map(|what| {
            let (column, bytes) = what.split_once(' ').unwrap_or_default();
            let (bytes, kind) = match bytes.strip_suffix('!') {
                Some(bytes) => (bytes, "failure"),
                None => (bytes, "warning"),
            };
            let (guardrail, limits) =
                if column == "f" { ("frozen", (20, 60)) } else { ("string", (20, 40)) };
            let limit = if kind == "failure" { limits.1 } else { limits.0 };
            format!(
                "Guardrail sai_{guardrail}_term_size violated: Value of column '{column}' has size {bytes}, \
                 this exceeds the {kind} threshold of {limit}."
            )
        });
        let texts: Vec<String> = texts.collect();
        assert_eq!(watch.warnings(), texts, "{statement}");
        let is_refused = expected.iter().any(|what| what.ends_with('!'));
        let refusal = bound.map_err(|error| error.message).err();
        assert_eq!(refusal, texts.last().filter(|_| is_refused).cloned(), "{statement}");
    }
}
