//! Masked results, and the roles that see the values.

use super::*;
use cql_plan::auth::Requirement;
use cql_plan::plan::plan;
use cql_plan::requirements;

fn world() -> World {
    let mut world = World::new();
    world.write("INSERT INTO mk (k, st) VALUES (1, 'static')");
    world.write("INSERT INTO mk (k, c, b, n, m, p) VALUES (1, 'aaa', 'one', 1, {'x': 1}, 10)");
    world.write("INSERT INTO mk (k, c, n, p) VALUES (1, 'bbb', 2, 20)");
    world
}

/// Runs the same plan without and with the permission to see masked values.
fn both(world: &World, text: &str) -> [Rows; 2] {
    let select = world.plan(text).unwrap();
    [false, true].map(|unmask| {
        let mut bound = select.bind(&[], &world.options(None, None)).unwrap();
        if unmask {
            bound.unmask();
        }
        let mut out = Vec::new();
        let mut exec = SelectExec::new(&select, &bound, &mut out);
        for read in bound.reads() {
            world.read(read, &mut exec);
        }
        let done = exec.finish().unwrap();
        decode(&select, &out, done.rows)
    })
}

#[test]
fn one_plan_shows_each_reader_what_it_may_see() {
    let world = world();
    for (text, masked, unmasked) in [
        (
            "SELECT c, b, n, p, st FROM mk",
            ["a** **** null 10 ?", "b** **** null 20 ?"],
            ["aaa one 1 10 static", "bbb null 2 20 static"],
        ),
        (
            "SELECT * FROM mk",
            ["1 a** ? **** {} null 10", "1 b** ? **** {} null 20"],
            ["1 aaa static one {'x': 1} 1 10", "1 bbb static null null 2 20"],
        ),
        ("SELECT m['x'], k FROM mk", ["null 1", "null 1"], ["1 1", "null 1"]),
        (
            "SELECT JSON c, n FROM mk",
            [r#"{"c": "a**", "n": null}"#, r#"{"c": "b**", "n": null}"#],
            [r#"{"c": "aaa", "n": 1}"#, r#"{"c": "bbb", "n": 2}"#],
        ),
        ("SELECT c FROM mk WHERE k = 1 ORDER BY c DESC", ["b**", "a**"], ["bbb", "aaa"]),
        ("SELECT c FROM mk WHERE k IN (1, 2) ORDER BY c DESC", ["b**", "a**"], ["bbb", "aaa"]),
        ("SELECT c, sum(n) FROM mk GROUP BY k, c", ["a** 0", "b** 0"], ["aaa 1", "bbb 2"]),
        ("SELECT mask_outer(c, 1, 1) FROM mk", ["***", "***"], ["*a*", "*b*"]),
    ] {
        assert_eq!(both(&world, text), [masked, unmasked], "{text}");
    }
    let counted = both(&world, "SELECT count(n), count(b), max(c) FROM mk");
    assert_eq!(counted, [["0 2 b**"], ["2 1 bbb"]]);
}

#[test]
fn to_ask_by_a_masked_column_needs_more_than_to_select() {
    let world = world();
    let needed = |text: &str| {
        let limits = PlanLimits::default();
        let statement = cql_syntax::parse(text).unwrap();
        let plan = plan(&statement, &world.context(&limits)).unwrap();
        requirements(&plan, &world.schema).into_iter().find_map(|needed| match needed {
            Requirement::Masked { table, columns, .. } => Some((table, columns.join(" "))),
            Requirement::Permission(..) => None,
        })
    };
    for (text, columns) in [
        ("SELECT p FROM mk WHERE k = 1", None),
        ("SELECT c, b FROM mk WHERE token(k) > 1", None),
        ("SELECT p FROM mk WHERE p = 10 ALLOW FILTERING", None),
        ("SELECT p FROM mk WHERE k = 1 AND c > 'a'", Some("c")),
        ("SELECT p FROM mk WHERE n = 1 AND b = 'one' ALLOW FILTERING", Some("b n")),
        ("SELECT p FROM mk WHERE m CONTAINS 1 ALLOW FILTERING", Some("m")),
    ] {
        let expect = columns.map(|c| ("ks.mk".to_owned(), c.to_owned()));
        assert_eq!(needed(text), expect, "{text}");
    }
}
