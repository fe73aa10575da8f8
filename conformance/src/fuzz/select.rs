//! Statements that read.

use super::bound::{Literal, Statement};
use super::random::Random;
use super::restrict::{self, Restrictions};
use super::table::{Column, Mode, Role, Table};
use super::types::{FIELDS, Type};
use super::write;

/// Rows per page that queries ask for.
pub const PAGES: [Option<i32>; 6] = [None, Some(1), Some(2), Some(3), Some(7), Some(100)];

/// A random SELECT.
pub fn statement(table: &Table, random: &mut Random) -> Statement {
    let text = whole(table, random);
    write::settle(&text, random)
}

/// Returns the queries that show all of a table.
#[must_use]
pub fn everything(table: &Table) -> Vec<String> {
    let mut all = vec![format!("SELECT * FROM {}", table.name)];
    if table.mode == Mode::Stated {
        let (multi_cell, others): (Vec<&Column>, Vec<&Column>) =
            table.values().into_iter().partition(|column| column.kind.is_multi_cell());
        let mut stamps: Vec<String> =
            others.iter().map(|c| format!("writetime({0}), ttl({0})", c.name)).collect();
        if !stamps.is_empty() {
            if table.has_mortal_rows {
                stamps.extend(multi_cell.iter().map(|column| column.name.clone()));
            }
            all.push(format!("SELECT {} FROM {}", stamps.join(", "), table.name));
        }
    }
    all
}

fn whole(table: &Table, random: &mut Random) -> String {
    let partition = table.partition();
    let clustering = table.clustering();
    if random.percent(6) {
        let mut names: Vec<&str> = partition.iter().map(|c| c.name.as_str()).collect();
        let statics = table.of(Role::Static);
        names.extend(random.some(&statics, 50).iter().map(|c| c.name.as_str()));
        let by_index = !table.indexes.is_empty() && random.percent(30);
        let restriction = match random.below(3) {
            _ if by_index => {
                let terms = restrict::by_index(table, random).terms;
                format!(" WHERE {}", terms.join(" AND "))
            }
            0 => format!(" WHERE {}", restrict::keys(table, random)),
            1 => format!(" WHERE {}", restrict::tokens(table, random)),
            _ => String::new(),
        };
        let limit = limit(random);
        return format!(
            "SELECT DISTINCT {} FROM {}{restriction}{limit}",
            names.join(", "),
            table.name
        );
    }
    let Restrictions { terms, is_one_partition, filtering } =
        match table.indexes.is_empty() || random.percent(30) {
            true => restrict::without_index(table, random),
            false => restrict::by_index(table, random),
        };
    let group = random.percent(10);
    let is_json = !group && random.percent(4);
    let mut projection = projection(table, random, group);
    if table.has_mortal_rows && projection != "*" {
        let mut all: Vec<&str> = table.values().into_iter().map(|c| c.name.as_str()).collect();
        all.insert(0, &projection);
        projection = all.join(", ");
    }
    let mut text =
        format!("SELECT {}{projection} FROM {}", if is_json { "JSON " } else { "" }, table.name);
    if !terms.is_empty() {
        text.push_str(&format!(" WHERE {}", terms.join(" AND ")));
    }
    if group {
        let mut names: Vec<&str> = partition.iter().map(|c| c.name.as_str()).collect();
        let more = random.below(clustering.len() + 1);
        names.extend(clustering.iter().take(more).map(|c| c.name.as_str()));
        if random.percent(5) {
            names.pop();
        }
        if !names.is_empty() {
            text.push_str(&format!(" GROUP BY {}", names.join(", ")));
        }
    }
    // Cassandra sorts the documents of several partitions by another column than the requested one.
    if !clustering.is_empty() && !is_json && random.percent(if is_one_partition { 25 } else { 3 }) {
        text.push_str(&order(&clustering, random));
    }
    if random.percent(12) {
        let limit = Literal::same((1 + random.below(3)).to_string());
        text.push_str(&format!(" PER PARTITION LIMIT {}", limit.marked_exactly()));
    }
    text.push_str(&limit(random));
    if random.percent(filtering) {
        text.push_str(" ALLOW FILTERING");
    }
    text
}

fn limit(random: &mut Random) -> String {
    match random.percent(20) {
        true => {
            let limit = *random.pick(&["1", "2", "3", "5", "100", "0"]);
            format!(" LIMIT {}", Literal::same(limit).marked_exactly())
        }
        false => String::new(),
    }
}

fn order(clustering: &[&Column], random: &mut Random) -> String {
    let count = 1 + random.below(clustering.len());
    let reversed = random.percent(60);
    let terms: Vec<String> = clustering
        .iter()
        .take(count)
        .map(|column| {
            let descends = (column.role == Role::Clustering(true)) != reversed;
            let descends = descends != random.percent(4);
            format!("{} {}", column.name, if descends { "DESC" } else { "ASC" })
        })
        .collect();
    format!(" ORDER BY {}", terms.join(", "))
}

fn projection(table: &Table, random: &mut Random, group: bool) -> String {
    if !group && random.percent(40) {
        return "*".to_owned();
    }
    let all: Vec<&Column> = table.columns.iter().collect();
    let aggregates = random.percent(if group { 70 } else { 15 });
    let mut terms = Vec::new();
    for _ in 0..1 + random.below(4) {
        let column = *random.pick(&all);
        let mut term = match aggregates && random.percent(80) {
            true => aggregate(column, random),
            false => scalar(table, column, random),
        };
        if random.percent(5) {
            term.push_str(&format!(" AS x{}", terms.len()));
        }
        terms.push(term);
    }
    terms.join(", ")
}

fn aggregate(column: &Column, random: &mut Random) -> String {
    let name = &column.name;
    match random.below(7) {
        0 => "count(*)".to_owned(),
        1 => "count(1)".to_owned(),
        2 => format!("count({name})"),
        3 => format!("min({name})"),
        4 => format!("max({name})"),
        5 if column.kind.is_number() => format!("sum({name})"),
        6 if column.kind.is_number() => format!("avg({name})"),
        _ => format!("max({name})"),
    }
}

fn scalar(table: &Table, column: &Column, random: &mut Random) -> String {
    let (name, kind) = (&column.name, &column.kind);
    let is_value = matches!(column.role, Role::Static | Role::Regular);
    match random.below(14) {
        // Cassandra does not see the type of a descending column in some functions.
        9 | 12 if column.role == Role::Clustering(true) => name.clone(),
        0..=6 => name.clone(),
        7 => {
            let names: Vec<&str> = table.partition().iter().map(|c| c.name.as_str()).collect();
            format!("token({})", names.join(", "))
        }
        // Cassandra shows `toJson` and `to_json` by the name that was used first for a type.
        8 => format!("to_json({name})"),
        9 if kind.is_number() => {
            format!("cast({name} AS {})", random.pick(&["text", "int", "bigint", "double"]))
        }
        10 if is_value && table.mode == Mode::Stated => {
            let function = random.pick(&["writetime", "ttl", "maxwritetime", "writetime", "ttl"]);
            format!("{function}({name})")
        }
        11 => match kind {
            Type::Map(key, ..) => format!("{name}[{}]", key.literal(random)),
            Type::Set(item, _) => format!("{name}[{}]", item.literal(random)),
            Type::List(..) => format!("{name}[{}]", random.below(3)),
            Type::Udt(_) => format!("{name}.{}", random.pick(&FIELDS).0),
            _ if kind.is_number() => {
                let operator = random.pick(&["+", "-", "*", "/", "%"]);
                format!("{name} {operator} {}", random.pick(&["1", "2", "-3", "0", "1.5"]))
            }
            _ => name.clone(),
        },
        12 => match kind {
            Type::Map(..) => format!("{}({name})", random.pick(&["map_keys", "map_values"])),
            Type::Set(..) | Type::List(..) => {
                // No sums of values that are no numbers: whether Cassandra reports that before or
                // after an error in the WHERE clause depends on the type.
                let functions = ["collection_count", "collection_min", "collection_max"];
                format!("{}({name})", random.pick(&functions))
            }
            Type::Native("text" | "ascii") => format!("mask_default({name})"),
            Type::Native("timeuuid") => {
                format!(
                    "{}({name})",
                    random.pick(&["to_date", "to_timestamp", "to_unix_timestamp"])
                )
            }
            Type::Native("timestamp" | "date") => {
                format!(
                    "{}({name})",
                    random.pick(&["to_unix_timestamp", "to_date", "to_timestamp"])
                )
            }
            // Cassandra computes 32 digits of these, and fails inside for log(0).
            Type::Native("decimal" | "varint") => {
                format!("{}({name})", random.pick(&["abs", "round"]))
            }
            _ if kind.is_number() => {
                format!("{}({name})", random.pick(&["abs", "exp", "log", "log10", "round"]))
            }
            _ => format!("mask_null({name})"),
        },
        _ => match kind {
            Type::Native("blob") => format!("to_json({name})"),
            Type::Native(of) => format!("{of}_as_blob({name})"),
            _ => name.clone(),
        },
    }
}
