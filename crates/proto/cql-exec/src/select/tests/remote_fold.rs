//! SELECTs that are sent to other nodes: these do with rows what this node would do.

use data::{FoldFlow, FoldState, RowFold};
use schema::SchemaChange;

use super::*;
use crate::fuzz::fuzz_scan_work;
use crate::{SelectFold, Shipped, ShippedText};

fn world() -> World {
    let mut world = World::new();
    for k in 0..9 {
        world.write(&format!("INSERT INTO t (k,st) VALUES ({k},{})", k % 3));
        for (c1, c2) in (0..k % 4).flat_map(|a| (0..3).map(move |b| (a, b))) {
            world.write(&format!(
                "INSERT INTO t (k,c1,c2,v,w,l,s,m,fu) VALUES ({k},{c1},{c2},{},'w{c2}',[{c1},{c2}],\
                 {{'x','y{c1}'}},{{'a':{c2}}},{{street:'s',zip:{c1}}})",
                k * 100 + c1 * 10 + c2
            ));
        }
    }
    world
}

/// Returns the plan, the bound SELECT, and the bytes for other nodes.
fn executed(world: &World, text: &str, folds: bool) -> (SelectPlan, BoundSelect, Vec<u8>) {
    let plan = world.plan(text).unwrap();
    let bound = world.bind(text, &[]).unwrap();
    let statement = ShippedText { text, keyspace: Some("ks"), is_prepared: true };
    let mut bytes = Vec::new();
    assert!(bound.ship(&plan, folds.then_some(statement), &mut bytes), "{text}");
    (plan, bound, bytes)
}

#[test]
fn a_filter_keeps_there_what_it_keeps_here() {
    let world = world();
    let mut kept = 0;
    for condition in [
        "v = 202",
        "v > 100 AND v <= 310",
        "v < 200",
        "v >= 100",
        "w IN ('w1', 'w7')",
        "c2 = 1 AND c1 = 0",
        "st = 2",
        "st = 1 AND v > 0",
        "l CONTAINS 2",
        "s CONTAINS 'y1'",
        "m CONTAINS KEY 'a'",
        "m['a'] = 2",
        "fu = {street:'s',zip:1}",
        "k IN (1, 3) AND v > 1",
    ] {
        let text = format!("SELECT v FROM t WHERE {condition} ALLOW FILTERING");
        let (plan, bound, bytes) = executed(&world, &text, false);
        let shipped = Shipped::decode(&bytes, plan.table()).unwrap();
        assert_eq!(shipped.text(), None);
        let here = bound.shard_filter(&plan).map(|(filter, _)| filter);
        let there = shipped.filter();
        assert_eq!(here.is_some(), there.is_some(), "{condition}");
        let (Some(here), Some(there)) = (here, there) else { continue };
        for partition in &world.partitions {
            let row = partition.static_row.as_deref().map(RowRef::trusted);
            let keeps = here.keeps_partition(&partition.key, row);
            assert_eq!(there.keeps_partition(&partition.key, row), keeps, "{condition}");
            for (clustering, row) in &partition.rows {
                let row = RowRef::trusted(row);
                let keeps = here.keeps_row(clustering, row);
                assert_eq!(there.keeps_row(clustering, row), keeps, "{condition}");
                kept += usize::from(keeps);
            }
        }
    }
    assert!(kept > 50, "{kept}");
}

#[test]
fn text_is_compared_there_as_its_index_compares_it() {
    let mut world = world();
    let mut table = (**world.schema.table("ks", "t").unwrap()).clone();
    table.version += 1;
    table.indexes = table.indexes_with(schema::IndexMetadata {
        id: stdx::Uuid::from_u128(7),
        name: "t_w".into(),
        kind: schema::IndexKind::Custom,
        options: [("case_sensitive".to_owned(), "false".to_owned())].into(),
        target: schema::IndexTarget { column: "w".into(), part: schema::TargetPart::Simple },
        rules: schema::IndexRules::Sai,
    });
    world.schema = Arc::new(world.schema.apply(&SchemaChange::AlterTable(table)).unwrap());
    let same = ["w = 'W1'", "w LIKE 'W%'", "w LIKE '%1'", "w LIKE '%W1%'", "w LIKE 'W1'"];
    for condition in same {
        assert!(kept_there(&world, condition) > 3, "{condition}");
    }
    assert_eq!(kept_there(&world, "w LIKE 'x%'"), 0);
}

/// Analyzers of SASI with tokens cross too.
#[test]
fn patterns_are_matched_there_by_the_same_tokens() {
    for options in [
        &[("analyzed", "true"), ("tokenization_normalize_uppercase", "true")][..],
        &[
            ("analyzer_class", "org.apache.cassandra.index.sasi.analyzer.DelimiterAnalyzer"),
            ("delimiter", "\u{e9}"),
        ],
    ] {
        let mut world = world();
        let mut table = (**world.schema.table("ks", "t").unwrap()).clone();
        table.version += 1;
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        table.indexes = table.indexes_with(schema::IndexMetadata {
            id: stdx::Uuid::from_u128(7),
            name: "t_w".into(),
            kind: schema::IndexKind::Custom,
            options: options.iter().map(own).collect(),
            target: schema::IndexTarget { column: "w".into(), part: schema::TargetPart::Simple },
            rules: schema::IndexRules::Sasi,
        });
        world.schema = Arc::new(world.schema.apply(&SchemaChange::AlterTable(table)).unwrap());
        assert!(kept_there(&world, "w LIKE 'w1'") > 3, "{options:?}");
        assert_eq!(kept_there(&world, "w LIKE 'w1 x'"), 0);
    }
}

/// Rows that pass a filter on another node, which are those that pass it here.
fn kept_there(world: &World, condition: &str) -> usize {
    let text = format!("SELECT v FROM t WHERE {condition}");
    let (plan, bound, bytes) = executed(world, &text, false);
    let here = bound.shard_filter(&plan).unwrap().0;
    let there = Shipped::decode(&bytes, plan.table()).unwrap().filter().unwrap();
    let mut kept = 0;
    for (clustering, row) in world.partitions.iter().flat_map(|partition| &partition.rows) {
        let row = RowRef::trusted(row);
        let keeps = here.keeps_row(clustering, row);
        assert_eq!(there.keeps_row(clustering, row), keeps, "{condition}");
        kept += usize::from(keeps);
    }
    kept
}

/// Results with their partitions and last rows, and the state in the end.
type Made = (Vec<(Vec<u8>, Option<Vec<u8>>, Vec<u8>)>, Vec<u8>);

/// Folds all partitions of a table in pages of this many rows; the state between pages crosses as
/// bytes.
fn make(world: &World, fold: &dyn RowFold, rows_max: usize) -> Made {
    let (mut results, mut state): (Vec<_>, Option<Vec<u8>>) = (Vec::new(), None);
    let (mut at, mut is_over) = ((0, 0), false);
    while !is_over {
        let before = state.take().map(|bytes| fold.decode_state(&bytes).expect("it comes back"));
        let (on_shard, mut out) = (fold.on_shard(), Vec::new());
        let mut folding = on_shard.begin(before, &mut out);
        let mut looked_at = 0;
        let mut note = |folding: &mut Box<dyn data::Folding + '_>| {
            if let Some(result) = folding.take_result() {
                assert!(fold.is_result(result.bytes));
                results.push((
                    result.key.to_vec(),
                    result.last.map(<[u8]>::to_vec),
                    result.bytes.to_vec(),
                ));
            }
        };
        is_over = true;
        'page: for (p, partition) in world.partitions.iter().enumerate().skip(at.0) {
            let row = partition.static_row.as_deref().map(RowRef::trusted);
            let first_row = if p == at.0 { at.1 } else { 0 };
            let mut flow = folding.partition(partition.token, &partition.key, row);
            note(&mut folding);
            for (r, (clustering, row)) in partition.rows.iter().enumerate().skip(first_row) {
                if flow != FoldFlow::Continue {
                    break;
                }
                if looked_at == rows_max {
                    (at, is_over) = ((p, r), false);
                    break 'page;
                }
                looked_at += 1;
                flow = folding.row(clustering, RowRef::trusted(row));
                note(&mut folding);
            }
            if flow == FoldFlow::Stop {
                break;
            }
            let flow = folding.partition_end();
            note(&mut folding);
            if flow == FoldFlow::Stop {
                break;
            }
        }
        if is_over {
            folding.end();
            note(&mut folding);
        }
        let end = folding.finish();
        assert!(!end.is_failed);
        let kept: FoldState = end.state.unwrap();
        let mut bytes = Vec::new();
        assert!(fold.encode_state(&kept, &mut bytes));
        state = Some(bytes);
    }
    (results, state.unwrap())
}

const FOLDS: &[&str] = &[
    "SELECT count(*), sum(v), min(w), max(l), avg(v) FROM t",
    "SELECT count(*), k, v, w FROM t WHERE v > 100 ALLOW FILTERING",
    "SELECT k, st, count(v), max(w) FROM t GROUP BY k",
    "SELECT k, c1, sum(v), avg(cast(v as double)) FROM t GROUP BY k, c1",
    "SELECT JSON k, c1, count(*) FROM t GROUP BY k, c1 PER PARTITION LIMIT 2 LIMIT 9",
    "SELECT DISTINCT k, st FROM t GROUP BY k",
    "SELECT k, max(v) + 1 FROM t WHERE st = 1 GROUP BY k ALLOW FILTERING",
];

#[test]
fn a_fold_that_goes_on_elsewhere_after_each_row_makes_what_one_in_one_go_makes() {
    let mut world = world();
    world.partitions.retain(|p| Some(p.table) == world.schema.table("ks", "t").map(|t| t.id));
    for text in FOLDS {
        let (plan, bound, bytes) = executed(&world, text, true);
        let here = bound.shard_fold(&plan).expect(text).0;
        let shipped = Shipped::decode(&bytes, plan.table()).unwrap();
        assert_eq!(shipped.text().map(|t| (t.text, t.is_prepared)), Some((*text, true)));
        let there = shipped.fold(&world.plan(text).unwrap(), plan.table()).expect(text);
        let whole = make(&world, &*here, usize::MAX);
        for rows in [1, 2, 5] {
            assert_eq!(make(&world, &*there, rows), whole, "{text} by {rows} rows");
        }
    }
}

#[test]
fn what_would_be_planned_otherwise_is_refused() {
    let world = world();
    let (plan, _, bytes) = executed(&world, FOLDS[2], true);
    let mut other = Table::clone(plan.table());
    other.columns.swap(3, 4);
    let error = Shipped::decode(&bytes, &other).map(drop).unwrap_err();
    assert!(error.to_string().contains("other columns"), "{error}");
    let fold = |text: &str| {
        let shipped = Shipped::decode(&bytes, plan.table()).unwrap();
        shipped.fold(&world.plan(text).unwrap(), plan.table()).is_some()
    };
    assert!(fold(FOLDS[2]));
    assert!(!fold("SELECT k, v FROM t"), "it makes no groups");
    assert!(!fold("SELECT count(*) FROM p"), "it is of another table");
    assert!(!fold("SELECT k, max(v) + 1 FROM t GROUP BY k"), "it has other values");
}

#[test]
fn damaged_work_and_states_are_refused_or_do_something() {
    let world = world();
    for text in FOLDS {
        let (plan, bound, bytes) = executed(&world, text, true);
        let fold = bound.shard_fold(&plan).unwrap().0;
        let (results, state) = make(&world, &*fold, 3);
        for cut in 0..bytes.len() {
            assert!(Shipped::decode(&bytes[..cut], plan.table()).is_err(), "{text}: {cut}");
        }
        for cut in 0..state.len() {
            assert!(fold.decode_state(&state[..cut]).is_none(), "{text}: {cut}");
        }
        for (_, _, result) in results.iter().take(3) {
            assert!(!fold.is_result(&result[..result.len() - 1]));
            assert!(!fold.is_result(&[result.as_slice(), &[0]].concat()));
        }
        // Without the digest, which the fuzz function puts there itself.
        let mut input = vec![u8::try_from(state.len()).unwrap()];
        input.extend_from_slice(&bytes[..2]);
        input.extend_from_slice(&bytes[10..]);
        input.extend_from_slice(&state);
        for bit in 0..input.len() * 8 {
            let mut damaged = input.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fuzz_scan_work(&damaged);
            let mut damaged = state.clone();
            if let Some(byte) = damaged.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
                if let Some(state) = fold.decode_state(&damaged) {
                    let (on_shard, mut out) = (fold.on_shard(), Vec::new());
                    let mut folding = on_shard.begin(Some(state), &mut out);
                    folding.end();
                    let _ = folding.finish();
                }
            }
        }
    }
}
