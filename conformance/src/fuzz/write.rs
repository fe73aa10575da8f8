//! Statements that change data.

use super::bound::{self, Literal, Statement};
use super::random::Random;
use super::table::{Column, Mode, Role, Table};
use super::types::{FIELDS, Type};

/// Timestamps of [`Mode::Stated`] are below; few, so that they tie.
const TIMESTAMPS: usize = 40;

/// The part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first two thirds.
    Early,
    /// The last third.
    Late,
}

/// Returns a random statement that changes data.
///
/// Deleted counters must not be changed again: Cassandra documents the result as undefined, and it
/// does continue from the value in its cache.
pub fn statement(table: &Table, random: &mut Random, phase: Phase) -> Statement {
    let text = match random.below(100) {
        _ if table.mode == Mode::Counters && phase == Phase::Late => delete(table, random, true),
        0..=5 => batch(table, random),
        6 if random.percent(30) => format!("TRUNCATE {}", table.name),
        _ => single(table, random, true),
    };
    settle(&text, random)
}

/// Builds the statement of a marked text: some literals become bound values, or an error is
/// inserted.
pub fn settle(text: &str, random: &mut Random) -> Statement {
    match random.percent(3) {
        true => Statement::plain(damage(&bound::plain(text), random)),
        false => bound::settle(text, random),
    }
}

/// Numbers of clauses, marked.
fn number(text: &str) -> String {
    Literal::same(text).marked_exactly()
}

fn single(table: &Table, random: &mut Random, may_state: bool) -> String {
    match (table.mode, random.below(100)) {
        (Mode::Counters, _) => update(table, random, may_state),
        (_, 0..=44) => insert(table, random, may_state),
        (_, 45..=71) => update(table, random, may_state),
        _ => delete(table, random, may_state),
    }
}

/// `USING …` with what a statement of this table may have.
fn using(table: &Table, random: &mut Random, may_state: bool, has_ttl: bool) -> String {
    let mut parts = Vec::new();
    if table.mode == Mode::Stated && may_state {
        let stamp = (1 + random.below(TIMESTAMPS)).to_string();
        parts.push(format!("TIMESTAMP {}", number(&stamp)));
    }
    if has_ttl && random.percent(15) {
        // Expiry for conditional statements follows the server's clock.
        let ttl = match table.mode {
            Mode::Clock => random.pick(&["100000", "200000", "0"]),
            _ => random.pick(&["5", "40", "100000", "0"]),
        };
        parts.push(format!("TTL {}", number(ttl)));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!(" USING {}", parts.join(" AND ")),
    }
}

fn insert(table: &Table, random: &mut Random, may_state: bool) -> String {
    let statics_only = !table.of(Role::Static).is_empty() && random.percent(12);
    let mut columns: Vec<&Column> = table.partition();
    if statics_only {
        columns.extend(table.of(Role::Static));
    } else {
        columns.extend(table.clustering());
        let chance = *random.pick(&[30, 60, 100]);
        let values = table.values();
        columns.extend(random.some(&values, chance).into_iter().copied());
    }
    if random.percent(1) {
        columns.remove(random.below(columns.len()));
    }
    let mut using = using(table, random, may_state, true);
    if !table.has_mortal_rows {
        // The marker of a row lives at least as long as its cells.
        for (short, long) in [("5", "200000"), ("40", "200001")] {
            using =
                using.replace(&format!("TTL {}", number(short)), &format!("TTL {}", number(long)));
        }
    }
    let condition = condition_of_insert(table, random, &using);
    if random.percent(8) {
        let default = random.pick(&["", " DEFAULT NULL", " DEFAULT UNSET"]);
        // One value at most may be wrong: which of two Cassandra meets first is up to a hash table.
        let wrong = if random.percent(15) { random.below(columns.len()) } else { usize::MAX };
        let fields: Vec<String> = columns
            .iter()
            .enumerate()
            .filter_map(|(at, column)| {
                let name = column.name.trim_matches('"');
                let key = match name.contains(' ') {
                    true => format!("\"\\\"{name}\\\"\""),
                    false => format!("\"{name}\""),
                };
                let value = match at == wrong {
                    true => random.pick(&["1.5", "\"x\"", "{}", "[]", "true", "null"]).to_string(),
                    false => json(&column.kind, random)?,
                };
                Some(format!("{key}: {value}"))
            })
            .collect();
        let json = fields.join(", ").replace('\'', "''");
        return format!("INSERT INTO {} JSON '{{{json}}}'{default}{condition}{using}", table.name);
    }
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let values: Vec<String> = columns
        .iter()
        .map(|column| match !is_key(column) && random.percent(8) {
            true => "null".to_owned(),
            false => table.literal(column, random),
        })
        .collect();
    format!(
        "INSERT INTO {} ({}) VALUES ({}){condition}{using}",
        table.name,
        names.join(", "),
        values.join(", ")
    )
}

fn is_key(column: &Column) -> bool {
    matches!(column.role, Role::Partition | Role::Clustering(_))
}

/// A JSON value; `None` for types that this does not write.
fn json(kind: &Type, random: &mut Random) -> Option<String> {
    Some(match kind {
        // For two values that are no ASCII, Cassandra reports the one its hash table has first.
        Type::Native("ascii") => (*random.pick(&["\"a\"", "\"b\"", "\"\""])).to_owned(),
        Type::Native("text") => {
            (*random.pick(&["\"a\"", "\"b\"", "\"\"", "\"it's\"", "\"Ä\""])).to_owned()
        }
        Type::Native("boolean") => (*random.pick(&["true", "false", "\"true\""])).to_owned(),
        Type::Native(_) => match kind.is_number() {
            true => (*random.pick(&["0", "1", "-1", "\"2\""])).to_owned(),
            false => format!("\"{}\"", kind.value(random).text.trim_matches('\'')),
        },
        Type::List(item, _) | Type::Set(item, _) => {
            let items: Option<Vec<String>> =
                (0..random.below(3)).map(|_| json(item, random)).collect();
            // A null is wrong in it, and one wrong value is enough.
            let items: Vec<String> = items?.into_iter().filter(|item| item != "null").collect();
            format!("[{}]", items.join(", "))
        }
        Type::Map(..) | Type::Tuple(_) | Type::Udt(_) | Type::Vector(_) => {
            if random.percent(50) {
                return None;
            }
            "null".to_owned()
        }
    })
}

fn condition_of_insert(table: &Table, random: &mut Random, using: &str) -> String {
    let may = table.mode == Mode::Clock && !using.contains("TIMESTAMP");
    match may && random.percent(30) {
        true => " IF NOT EXISTS".to_owned(),
        false => String::new(),
    }
}

/// ` IF …` of an UPDATE or DELETE.
fn condition(table: &Table, random: &mut Random, statics_only: bool) -> String {
    if table.mode != Mode::Clock || !random.percent(35) {
        return String::new();
    }
    let columns = if statics_only { table.of(Role::Static) } else { table.values() };
    if columns.is_empty() || random.percent(25) {
        return " IF EXISTS".to_owned();
    }
    let one = |column: &Column, random: &mut Random| {
        let operator = random.pick(&["=", "=", "!=", "<", ">=", ">", "<="]);
        match (&column.kind, random.below(10)) {
            (_, 0) => format!("{} = null", column.name),
            (_, 1) => format!("{} != null", column.name),
            (_, 2 | 3) => {
                let of = (0..1 + random.below(3)).map(|_| column.kind.literal(random));
                format!("{} IN {}", column.name, list(of))
            }
            (Type::Map(key, value, _), 4..=7) => {
                // Cassandra compares the value as if it were a key: `map-element-order` in differences.txt.
                let operator = match (key == value, *operator) {
                    (false, "<" | "<=" | ">" | ">=") => "=",
                    (_, operator) => operator,
                };
                let (key, value) = (key.literal(random), value.literal(random));
                format!("{}[{key}] {operator} {value}", column.name)
            }
            (Type::List(item, _), 4..=7) => {
                let value = item.literal(random);
                format!("{}[{}] {operator} {value}", column.name, random.below(3))
            }
            (Type::Udt(_), 4..=7) => {
                format!("{}.a {operator} {}", column.name, random.below(3))
            }
            _ => format!("{} {operator} {}", column.name, column.kind.literal(random)),
        }
    };
    // Each on another column: the order of those on the same one is another each time in Cassandra.
    let mut asked: Vec<&Column> = vec![*random.pick(&columns)];
    let other = *random.pick(&columns);
    if random.percent(50) && asked.iter().all(|column| column.name != other.name) {
        asked.push(other);
    }
    let all: Vec<String> = asked.into_iter().map(|column| one(column, random)).collect();
    format!(" IF {}", all.join(" AND "))
}

/// The values of an IN, each marked: in part as a list that is one bound value.
pub fn list(of: impl Iterator<Item = String>) -> String {
    let of: Vec<String> = of.collect();
    match of.len() {
        2 if of.iter().all(|one| bound::is_marked(one)) => bound::list(&of).marked(),
        _ => format!("({})", of.join(", ")),
    }
}

/// A WHERE that names rows.
fn rows(table: &Table, random: &mut Random, clusterings: bool) -> String {
    let mut columns = table.partition();
    if clusterings {
        columns.extend(table.clustering());
    }
    let terms: Vec<String> = columns
        .iter()
        .map(|column| match random.percent(7) {
            true => {
                let of = (0..1 + random.below(3)).map(|_| table.literal(column, random));
                format!("{} IN {}", column.name, list(of))
            }
            false => format!("{} = {}", column.name, table.literal(column, random)),
        })
        .collect();
    terms.join(" AND ")
}

fn update(table: &Table, random: &mut Random, may_state: bool) -> String {
    let statics = table.of(Role::Static);
    let regulars = table.of(Role::Regular);
    let statics_only = !statics.is_empty() && (regulars.is_empty() || random.percent(20));
    let candidates = if statics_only { statics } else { table.values() };
    if candidates.is_empty() {
        return insert(table, random, may_state);
    }
    let mut assignments: Vec<String> = Vec::new();
    for column in random.some(&candidates, 40) {
        assignments.push(assignment(table, column, random));
    }
    if assignments.is_empty() {
        let column = *random.pick(&candidates);
        assignments.push(assignment(table, column, random));
    }
    let using = using(table, random, may_state, table.mode != Mode::Counters);
    let target = rows(table, random, !statics_only);
    let condition = condition(table, random, statics_only);
    format!("UPDATE {}{using} SET {} WHERE {target}{condition}", table.name, assignments.join(", "))
}

fn assignment(table: &Table, column: &Column, random: &mut Random) -> String {
    let (name, kind) = (&column.name, &column.kind);
    if table.mode == Mode::Counters {
        let sign = random.pick(&["+", "-"]);
        return format!("{name} = {name} {sign} {}", random.pick(&["1", "2", "5", "-1", "0"]));
    }
    if random.percent(8) {
        return format!("{name} = null");
    }
    if kind.is_multi_cell() && random.percent(75) {
        return match kind {
            Type::List(item, _) => match random.below(5) {
                0 | 1 => format!("{name} = {name} + {}", kind.literal(random)),
                2 => format!("{name} = {} + {name}", kind.literal(random)),
                3 => format!("{name} = {name} - {}", kind.literal(random)),
                _ => format!("{name}[{}] = {}", random.below(3), item.literal(random)),
            },
            Type::Set(..) => {
                let sign = random.pick(&["+", "+", "-"]);
                format!("{name} = {name} {sign} {}", kind.literal(random))
            }
            Type::Map(key, value, _) => match random.below(4) {
                0 => format!("{name} = {name} + {}", kind.literal(random)),
                1 => {
                    let keys = Type::Set(key.clone(), false).literal(random);
                    format!("{name} = {name} - {keys}")
                }
                2 => format!("{name}[{}] = null", key.literal(random)),
                _ => format!("{name}[{}] = {}", key.literal(random), value.literal(random)),
            },
            _ => {
                let (field, kind) = random.pick(&FIELDS);
                let value = match *kind {
                    "int" => random.pick(&["1", "2", "null"]),
                    "text" => random.pick(&["'a'", "'b'", "null"]),
                    _ => random.pick(&["{1}", "{1, 2}", "null"]),
                };
                format!("{name}.{field} = {value}")
            }
        };
    }
    if kind.is_number() && random.percent(5) {
        return format!("{name} = {name} + 1");
    }
    format!("{name} = {}", kind.literal(random))
}

fn delete(table: &Table, random: &mut Random, may_state: bool) -> String {
    let using = using(table, random, may_state, false);
    let clustering = table.clustering();
    let partition = rows(table, random, false);
    match random.below(10) {
        0 => format!("DELETE FROM {}{using} WHERE {partition}", table.name),
        1..=4 if !clustering.is_empty() => {
            let range = range(table, random);
            format!("DELETE FROM {}{using} WHERE {partition}{range}", table.name)
        }
        5 | 6 => {
            let target = rows(table, random, true);
            let condition = condition(table, random, false);
            format!("DELETE FROM {}{using} WHERE {target}{condition}", table.name)
        }
        _ => {
            let values = table.values();
            if values.is_empty() {
                return format!("DELETE FROM {}{using} WHERE {partition}", table.name);
            }
            let what: Vec<(&Column, String)> = (0..1 + random.below(2))
                .map(|_| {
                    let column = *random.pick(&values);
                    (column, part_of(column, random))
                })
                .collect();
            let statics_only = what.iter().all(|(column, _)| column.role == Role::Static);
            let names: Vec<String> = what.into_iter().map(|(_, name)| name).collect();
            let target = rows(table, random, !statics_only);
            let condition = condition(table, random, statics_only);
            format!(
                "DELETE {} FROM {}{using} WHERE {target}{condition}",
                names.join(", "),
                table.name
            )
        }
    }
}

/// A column, or an element of it.
fn part_of(column: &Column, random: &mut Random) -> String {
    let name = &column.name;
    match &column.kind {
        Type::Map(key, ..) if random.percent(50) => format!("{name}[{}]", key.literal(random)),
        Type::Set(item, _) if random.percent(50) => format!("{name}[{}]", item.literal(random)),
        Type::List(..) if random.percent(40) => format!("{name}[{}]", random.below(3)),
        Type::Udt(_) if random.percent(50) => format!("{name}.{}", random.pick(&FIELDS).0),
        _ => name.clone(),
    }
}

/// Restrictions of the clustering: a prefix and bounds.
pub fn range(table: &Table, random: &mut Random) -> String {
    let clustering = table.clustering();
    let mut text = String::new();
    let equal = random.below(clustering.len());
    for column in clustering.iter().take(equal) {
        text.push_str(&match random.percent(10) {
            true => {
                let of = (0..1 + random.below(3)).map(|_| table.literal(column, random));
                format!(" AND {} IN {}", column.name, list(of))
            }
            false => format!(" AND {} = {}", column.name, table.literal(column, random)),
        });
    }
    let rest: Vec<&&Column> = clustering.iter().skip(equal).collect();
    let Some(next) = rest.first() else { return text };
    if rest.len() > 1 && random.percent(35) {
        let count = 1 + random.below(rest.len());
        let tuple = |random: &mut Random| {
            let values = rest.iter().take(count).map(|c| table.literal(c, random));
            values.collect::<Vec<_>>().join(", ")
        };
        let names = rest.iter().take(count).map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
        match random.below(4) {
            0 => {
                let of: Vec<String> =
                    (0..1 + random.below(3)).map(|_| format!("({})", tuple(random))).collect();
                text.push_str(&format!(" AND ({names}) IN ({})", of.join(", ")));
            }
            1 => text.push_str(&format!(" AND ({names}) = ({})", tuple(random))),
            both => {
                if both == 2 || random.percent(60) {
                    let operator = random.pick(&[">", ">="]);
                    text.push_str(&format!(" AND ({names}) {operator} ({})", tuple(random)));
                }
                if both == 3 || random.percent(40) {
                    let operator = random.pick(&["<", "<="]);
                    text.push_str(&format!(" AND ({names}) {operator} ({})", tuple(random)));
                }
            }
        }
        return text;
    }
    match random.below(6) {
        0 => text.push_str(&format!(" AND {} = {}", next.name, table.literal(next, random))),
        1 => {
            let of = (0..1 + random.below(3)).map(|_| table.literal(next, random));
            text.push_str(&format!(" AND {} IN {}", next.name, list(of)));
        }
        both => {
            if both != 2 {
                let operator = random.pick(&[">", ">="]);
                let value = table.literal(next, random);
                text.push_str(&format!(" AND {} {operator} {value}", next.name));
            }
            if both != 3 {
                let operator = random.pick(&["<", "<="]);
                let value = table.literal(next, random);
                text.push_str(&format!(" AND {} {operator} {value}", next.name));
            }
        }
    }
    text
}

fn batch(table: &Table, random: &mut Random) -> String {
    let kind = match table.mode {
        Mode::Counters => "COUNTER ",
        _ => random.pick(&["", "UNLOGGED "]),
    };
    let is_for_all = table.mode == Mode::Stated && random.percent(50);
    let using = match is_for_all {
        true => {
            let stamp = (1 + random.below(TIMESTAMPS)).to_string();
            format!(" USING TIMESTAMP {}", number(&stamp))
        }
        false => String::new(),
    };
    let statements: Vec<String> = (0..1 + random.below(4))
        .map(|_| format!("{};", single(table, random, !is_for_all)))
        .collect();
    format!("BEGIN {kind}BATCH{using} {} APPLY BATCH", statements.join(" "))
}

/// Makes a statement slightly wrong, most of the time.
pub fn damage(text: &str, random: &mut Random) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let at = random.below(words.len());
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let other = random.below(words.len());
    match random.below(5) {
        0 => {
            words.remove(at);
        }
        1 => words.swap(at, other),
        2 => {
            let odd = ["'x'", "17", "null", "nosuch", "{1}", "?", "(1, 2)", "-", "IN"];
            let odd = *random.pick(&odd);
            // See `bound::settle`.
            if let Some(word) = words.get_mut(at)
                && !(odd == "null" && text.contains("DELETE"))
            {
                *word = odd.to_owned();
            }
        }
        3 => {
            let copy = words.get(other).cloned().unwrap_or_default();
            words.insert(at, copy);
        }
        // For a truncated uuid, Cassandra's lexer reports the error position differently.
        _ => {
            if let Some(word) = words.get_mut(at)
                && word.matches('-').count() < 3
            {
                word.pop();
            }
        }
    }
    words.join(" ")
}
