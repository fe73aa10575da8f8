//! Reads and bound values of a SELECT of the nearest rows. Its rules: `testdata/index_rules/vectors.txt`.

use index_format::Similarity;

use super::index_rules::indexed_schema;
use super::{KEYSPACE, NOW};
use crate::error::PlanError;
use crate::plan::{
    BoundValue, ExecuteOptions, PlanContext, PlanKind, PlanLimits, UuidSource, plan,
};
use crate::select::{BoundSelect, UNLIMITED};

const TABLES: &[&str] = &[
    KEYSPACE,
    "CREATE TABLE t (k int PRIMARY KEY, a int, v vector<float, 2>, w int, z int)",
    "CREATE CUSTOM INDEX t_v ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'dot_product'}",
    "CREATE CUSTOM INDEX t_w ON t (w) USING 'sai'",
];

/// Binds a SELECT; also the names of its columns that are read.
fn bind(text: &str, vector: &[u8]) -> Result<(BoundSelect, Vec<String>), PlanError> {
    let schema = indexed_schema(TABLES);
    let limits = PlanLimits::default();
    let cx = PlanContext {
        schema: &schema,
        keyspace: Some("ks"),
        limits: &limits,
        now: NOW,
        functions: None,
    };
    let plan = plan(&cql_syntax::parse(text).expect(text), &cx)?;
    let PlanKind::Select(select) = &plan.kind else { panic!("{text}: no SELECT") };
    let uuids = UuidSource::new(1);
    let options = ExecuteOptions {
        now: NOW,
        clock: NOW,
        default_timestamp: stdx::TimestampMicros(1000),
        page_size: Some(3),
        paging_state: None,
        protocol_version: 5,
        uuids: &uuids,
        watch: None,
    };
    let bound = select.bind(&[BoundValue::Bytes(vector)], &options)?;
    let ids = bound.reads[0].columns.clone().expect("not all columns");
    let of_id = |id| select.table().columns.iter().find(|column| column.id == id);
    let names = ids.iter().map(|id| of_id(*id).expect("a column").name.to_string()).collect();
    Ok((bound, names))
}

fn bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|component| component.to_be_bytes()).collect()
}

#[test]
fn the_vectors_are_read_and_all_rows_are_one_page() {
    let text = "SELECT k, a FROM t WHERE w = 1 ORDER BY v ANN OF ? LIMIT 7";
    let (bound, columns) = bind(text, &bytes(&[0.5, -2.0])).expect(text);
    assert_eq!(columns, ["a", "v", "w"]);
    assert_eq!((bound.limit, bound.page_rows, bound.reads_ahead), (7, UNLIMITED, false));
    let nearest = bound.nearest.expect("an ordering");
    assert_eq!(nearest.vector, [0.5, -2.0]);
    assert_eq!(nearest.vectors.similarity, Similarity::DotProduct);
    let warning = "Top-K queries do not support paging and the page size is set to 3, which is less than LIMIT 7. The \
                   page size has been set to 7 to match the LIMIT.";
    assert_eq!(nearest.warning.as_deref(), Some(warning));
    let (fits, _) =
        bind("SELECT a FROM t ORDER BY v ANN OF ? LIMIT 3", &bytes(&[1.0, 1.0])).unwrap();
    assert_eq!(fits.nearest.expect("an ordering").warning, None);
}

#[test]
fn a_vector_that_cannot_be_searched_for_is_refused() {
    let text = "SELECT a FROM t ORDER BY v ANN OF ? LIMIT 3";
    let refused = |vector: &[f32]| bind(text, &bytes(vector)).expect_err("refused").message;
    assert_eq!(refused(&[f32::NAN, 1.0]), "non-finite value at vector[0]=NaN");
    assert_eq!(refused(&[1.0, 1e18]), "Out-of-bounds value at vector[1]=1.0E18");
    assert!(bind(text, &bytes(&[0.0, 0.0])).is_ok(), "its dot products are 0");
    assert!(bind(text, &bytes(&[1.0])).is_err(), "a dimension is missing");
}
