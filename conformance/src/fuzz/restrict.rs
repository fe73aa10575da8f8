//! The WHERE clause of a SELECT.

use super::index::{Index, Part, Rules};
use super::random::Random;
use super::table::{Column, Role, Table};
use super::types::Type;
use super::write;

/// The restrictions of a SELECT.
#[derive(Debug, Default)]
pub struct Restrictions {
    /// The terms of the WHERE clause.
    pub terms: Vec<String>,
    /// The whole partition key is restricted.
    pub is_one_partition: bool,
    /// Percentage of such statements that have ALLOW FILTERING.
    pub filtering: usize,
}

/// Restrictions of keys and filters.
pub fn without_index(table: &Table, random: &mut Random) -> Restrictions {
    let partition = table.partition();
    let clustering = table.clustering();
    let mut restrictions = Vec::new();
    let mut filters = false;
    let mut one_partition = false;
    match random.below(20) {
        0 | 1 => {}
        2 | 3 => restrictions.push(tokens(table, random)),
        4 => {
            // A part of the partition key.
            filters = true;
            let column = random.pick(&partition);
            restrictions.push(format!("{} = {}", column.name, table.literal(column, random)));
        }
        _ => {
            restrictions.push(keys(table, random));
            one_partition = true;
        }
    }
    if !clustering.is_empty() && random.percent(if one_partition { 55 } else { 15 }) {
        filters |= !one_partition;
        if random.percent(85) {
            let range = write::range(table, random);
            let range = range.strip_prefix(" AND ").unwrap_or(&range).to_owned();
            if !range.is_empty() {
                restrictions.push(range);
            }
        } else {
            filters = true;
            let column = random.pick(&clustering);
            restrictions.push(compare(column, table.literal(column, random), random));
        }
    }
    let values = table.values();
    if !values.is_empty() && random.percent(20) {
        filters = true;
        for _ in 0..1 + random.below(2) {
            let column = *random.pick(&values);
            restrictions.push(filter(column, random));
        }
    }
    Restrictions {
        terms: restrictions,
        is_one_partition: one_partition,
        filtering: if filters { 92 } else { 8 },
    }
}

/// Restrictions that indexes answer, some with others beside them.
pub fn by_index(table: &Table, random: &mut Random) -> Restrictions {
    let mut found = Restrictions { filtering: 50, ..Restrictions::default() };
    let mut restricted: Vec<&str> = Vec::new();
    match random.below(10) {
        0 | 1 => {
            found.terms.push(keys(table, random));
            found.is_one_partition = true;
            restricted.extend(table.partition().iter().map(|column| column.name.as_str()));
        }
        2 => found.terms.push(tokens(table, random)),
        _ => {}
    }
    let clustering = table.clustering();
    if !clustering.is_empty() && random.percent(if found.is_one_partition { 40 } else { 8 }) {
        let range = write::range(table, random);
        if let Some(range) = range.strip_prefix(" AND ") {
            found.terms.push(range.to_owned());
            restricted.extend(clustering.iter().map(|column| column.name.as_str()));
        }
    }
    for _ in 0..*random.pick(&[1, 1, 1, 2, 2, 3]) {
        let index = random.pick(&table.indexes);
        let Some(column) = table.columns.iter().find(|column| column.name == index.column) else {
            continue;
        };
        if restricted.contains(&index.column.as_str()) {
            continue;
        }
        restricted.push(&index.column);
        found.terms.push(restriction(table, index, column, random));
    }
    let values: Vec<&Column> = table
        .values()
        .into_iter()
        .filter(|column| !restricted.contains(&column.name.as_str()))
        .collect();
    if !values.is_empty() && random.percent(20) {
        let column = *random.pick(&values);
        found.terms.push(filter(column, random));
    }
    found
}

/// A restriction that the index answers, most of the time.
fn restriction(table: &Table, index: &Index, column: &Column, random: &mut Random) -> String {
    let name = &column.name;
    match (index.part, &column.kind) {
        (Part::Values, Type::List(item, _) | Type::Set(item, _) | Type::Map(_, item, _)) => {
            format!("{name} CONTAINS {}", item.literal(random))
        }
        (Part::Keys, Type::Map(key, ..)) => format!("{name} CONTAINS KEY {}", key.literal(random)),
        (Part::Entries, Type::Map(key, value, _)) => {
            format!("{name}[{}] = {}", key.literal(random), value.literal(random))
        }
        _ if random.percent(6) => {
            let of = (0..1 + random.below(3)).map(|_| table.literal(column, random));
            format!("{name} IN {}", write::list(of))
        }
        (_, kind) if is_ordered(kind) && random.percent(chance_of_range(index.rules)) => {
            let lower = random.pick(&[">", ">="]);
            let upper = random.pick(&["<", "<="]);
            let mut value = || table.literal(column, random);
            let (lower, upper) =
                (format!("{name} {lower} {}", value()), format!("{name} {upper} {}", value()));
            match random.below(3) {
                0 => lower,
                1 => upper,
                _ => format!("{lower} AND {upper}"),
            }
        }
        _ => format!("{name} = {}", table.literal(column, random)),
    }
}

/// Ranges belong to SAI; a legacy index needs ALLOW FILTERING for them.
fn chance_of_range(rules: Rules) -> usize {
    match rules {
        Rules::Sai => 50,
        Rules::Legacy => 8,
    }
}

fn is_ordered(kind: &Type) -> bool {
    let times = ["date", "time", "timestamp", "timeuuid"];
    // SAI compares an IPv4 address as the IPv6 address that it is mapped to: see docs/compat/cql.md.
    kind.is_number() || matches!(kind, Type::Native(name) if times.contains(name))
}

/// Restricts all columns of the partition key.
pub fn keys(table: &Table, random: &mut Random) -> String {
    let terms: Vec<String> = table
        .partition()
        .iter()
        .map(|column| match random.percent(20) {
            true => {
                let of = (0..1 + random.below(4)).map(|_| table.literal(column, random));
                format!("{} IN {}", column.name, write::list(of))
            }
            false => format!("{} = {}", column.name, table.literal(column, random)),
        })
        .collect();
    terms.join(" AND ")
}

/// Restricts the token of the partition key.
pub fn tokens(table: &Table, random: &mut Random) -> String {
    let partition = table.partition();
    let names = partition.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
    let bound = |random: &mut Random| match random.below(4) {
        0 => (*random.pick(&["0", "-9223372036854775808", "9223372036854775807", "-5"])).to_owned(),
        _ => {
            let of = partition.iter().map(|column| table.literal(column, random));
            format!("token({})", of.collect::<Vec<_>>().join(", "))
        }
    };
    let lower = format!("token({names}) {} {}", random.pick(&[">", ">="]), bound(random));
    let upper = format!("token({names}) {} {}", random.pick(&["<", "<="]), bound(random));
    match random.below(4) {
        0 => lower,
        1 => upper,
        2 => format!("token({names}) = {}", bound(random)),
        _ => format!("{lower} AND {upper}"),
    }
}

fn compare(column: &Column, value: String, random: &mut Random) -> String {
    let operator = random.pick(&["=", "=", "<", ">", "<=", ">=", "!="]);
    format!("{} {operator} {value}", column.name)
}

/// A restriction of a column that is no key.
fn filter(column: &Column, random: &mut Random) -> String {
    let name = &column.name;
    match &column.kind {
        // Cassandra returns expired cells of static collections.
        kind if column.role == Role::Static && kind.is_multi_cell() => {
            compare(column, kind.literal(random), random)
        }
        Type::List(item, _) | Type::Set(item, _) if random.percent(80) => {
            format!("{name} CONTAINS {}", item.literal(random))
        }
        Type::Map(key, value, _) if random.percent(85) => match random.below(3) {
            0 => format!("{name} CONTAINS {}", value.literal(random)),
            1 => format!("{name} CONTAINS KEY {}", key.literal(random)),
            _ => format!("{name}[{}] = {}", key.literal(random), value.literal(random)),
        },
        Type::Udt(_) if random.percent(30) => format!("{name}.a = 1"),
        Type::Native("text" | "ascii") if random.percent(10) => {
            format!("{name} LIKE {}", random.pick(&["'a%'", "'%b'", "'%a%'", "'ab'"]))
        }
        kind if random.percent(6) => {
            let of = (0..1 + random.below(3)).map(|_| kind.literal(random));
            format!("{name} IN {}", write::list(of))
        }
        kind => compare(column, kind.literal(random), random),
    }
}
