//! Helpers shared by the tests of the planner and its neighbours.
//!
//! Owns: schemas made by statements ([`schema_of`]), mutations as text ([`show`]), mutated inputs for fuzz functions
//! ([`mutate`]). Never: in a product.

mod tables;

pub use tables::{NOW, TABLES};

use std::sync::Arc;

use cql_functions::UuidSource;
use cql_plan::ddl::{DdlContext, DdlPlan};
use data::{ColumnRef, MutationRef};
use schema::Schema;
use stdx::{Uuid, WallMicros};
use types::CqlType;

/// The schema that a list of DDL statements makes.
pub fn schema_of(statements: &[&str]) -> Arc<Schema> {
    let mut schema = Schema::default();
    let mut next = 0u128;
    for cql in statements {
        let statement = cql_syntax::parse(cql).unwrap_or_else(|e| panic!("{cql}: {e:?}"));
        let plan = DdlPlan::new(&statement.kind, Some("ks")).expect("ddl").expect(cql);
        let mut new_table_id = || {
            next += 1;
            Uuid::from_u128(next)
        };
        let mut cx = DdlContext {
            schema: &schema,
            datacenters: &[("datacenter1", 1)],
            moving: &[],
            new_table_id: &mut new_table_id,
            now: WallMicros(0),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: None,
            indexes: &cql_plan::ddl::IndexSettings::default(),
        };
        let outcome = plan.outcome(&mut cx).unwrap_or_else(|e| panic!("{cql}: {e}"));
        for change in &outcome.changes {
            schema = schema.apply(change).expect("change applies");
        }
    }
    Arc::new(schema)
}

fn show_cell(cell: &data::CellRef<'_>, ty: &CqlType) -> String {
    let mut out =
        if cell.is_tombstone() { "x".to_owned() } else { ty.format_cql_literal(cell.value) };
    if cell.timestamp.0 != 1000 {
        out += &format!("@{}", cell.timestamp.0);
    }
    if cell.is_expiring() {
        out += &format!(" ttl {} at {}", cell.ttl.0, cell.local.0);
    }
    out
}

fn show_clustering(bytes: &[u8], table: &schema::Table) -> String {
    let parts: Vec<String> = data::clustering::components(bytes)
        .zip(table.clustering())
        .map(|(c, column)| c.map_or("null".to_owned(), |c| column.ty.format_cql_literal(c)))
        .collect();
    parts.join(",")
}

fn show_row(row: data::RowRef<'_>, table: &schema::Table) -> String {
    let mut parts = Vec::new();
    if !row.liveness().is_empty() {
        let ttl = row.liveness().ttl.0;
        parts.push(if ttl == 0 { "live".to_owned() } else { format!("live ttl {ttl}") });
    }
    if !row.deletion().is_live() {
        parts.push(format!("deleted@{}", row.deletion().timestamp.0));
    }
    for (id, column) in row.columns() {
        let meta = table.column_by_id(id).expect("column");
        match column {
            ColumnRef::Simple(cell) => {
                parts.push(format!("{}={}", meta.name, show_cell(&cell, &meta.ty)));
            }
            ColumnRef::Complex(complex) => {
                let mut cells = Vec::new();
                if !complex.deletion.is_live() {
                    cells.push(format!("x@{}", complex.deletion.timestamp.0));
                }
                for (path, cell) in complex.cells() {
                    cells.push(match &meta.ty {
                        CqlType::List { element, .. } => show_cell(&cell, element),
                        CqlType::Set { element, .. } => {
                            let mark = if cell.is_tombstone() { "x" } else { "" };
                            format!("{mark}{}", element.format_cql_literal(path))
                        }
                        CqlType::Map { key, value, .. } => {
                            let key = key.format_cql_literal(path);
                            format!("{key}:{}", show_cell(&cell, value))
                        }
                        CqlType::Udt(udt) => {
                            let field = &udt.fields[usize::from(path[1])];
                            format!("{}:{}", field.0, show_cell(&cell, &field.1))
                        }
                        other => panic!("{other}"),
                    });
                }
                parts.push(format!("{}=[{}]", meta.name, cells.join(" ")));
            }
        }
    }
    parts.join(" ")
}

/// A mutation as text: key bytes, then its writes.
pub fn show(schema: &Schema, bytes: &[u8]) -> String {
    let opened = MutationRef::open(bytes).expect("opens");
    let table = schema.table_by_id(opened.table).expect("table");
    let mutation = MutationRef::parse(bytes, table.clustering_count).expect("parses");
    let mut out = vec![mutation.key.iter().map(|b| format!("{b:02x}")).collect::<String>()];
    if !mutation.deletion.is_live() {
        out.push(format!("deleted@{}", mutation.deletion.timestamp.0));
    }
    if let Some(row) = mutation.static_row {
        out.push(format!("static({})", show_row(row, table)));
    }
    for (clustering, row) in mutation.rows() {
        out.push(format!("[{}]({})", show_clustering(clustering, table), show_row(row, table)));
    }
    for t in mutation.range_tombstones() {
        let bound = |b: data::BoundRef<'_>| {
            let side = if b.after { '+' } else { '-' };
            format!("{}{side}", show_clustering(b.prefix, table))
        };
        let at = t.deletion.timestamp.0;
        out.push(format!("range({} {})@{at}", bound(t.start), bound(t.end)));
    }
    out.join(" ")
}

/// Runs a fuzz function over a corpus and deterministic mutations of it.
pub fn mutate(corpus: &[&[u8]], rounds: u64, run: fn(&[u8])) {
    let random = UuidSource::new(42);
    for seed in corpus {
        run(seed);
    }
    for _ in 0..rounds {
        let pick = |n: usize| usize::try_from(random.random() % n.max(1) as u64).unwrap_or(0);
        let mut data = corpus[pick(corpus.len())].to_vec();
        for _ in 0..=pick(4) {
            let at = pick(data.len());
            match pick(4) {
                0 if !data.is_empty() => data[at] = random.random().to_be_bytes()[0],
                1 if !data.is_empty() => {
                    data.remove(at);
                }
                2 => data.truncate(at),
                _ => {
                    let other = corpus[pick(corpus.len())];
                    let from = pick(other.len());
                    let piece = &other[from..(from + pick(20)).min(other.len())];
                    data.splice(at..at, piece.iter().copied());
                }
            }
        }
        run(&data);
    }
}
