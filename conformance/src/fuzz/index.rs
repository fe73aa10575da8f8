//! A secondary index of a random table.

use super::random::Random;
use super::types::Type;

/// Implementation of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// `legacy_local_table`.
    Legacy,
    /// Storage-attached.
    Sai,
}

/// Indexed part of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole value of a column without elements.
    Value,
    /// The elements of a list or set, the values of a map.
    Values,
    /// The keys of a map.
    Keys,
    /// The keys of a map, each with its value.
    Entries,
    /// The whole value of a frozen collection.
    Full,
}

/// An index that a statement creates, unless the servers refuse it.
#[derive(Clone, Debug)]
pub struct Index {
    /// Its name.
    pub name: String,
    /// Name of the indexed column.
    pub column: String,
    /// Its part.
    pub part: Part,
    /// Its implementation.
    pub rules: Rules,
}

/// A random index of a column and its `CREATE INDEX`; `number` makes the name unique in its table.
pub fn create(
    table: &str,
    number: usize,
    column: &str,
    kind: &Type,
    random: &mut Random,
) -> (Index, String) {
    let part = part(kind, random);
    let rules = match kind {
        // Storage-attached indexes of vectors answer ANN queries only, of which the order is not exact.
        Type::Vector(_) => Rules::Legacy,
        _ if random.percent(60) => Rules::Sai,
        _ => Rules::Legacy,
    };
    let target = match part {
        Part::Value => column.to_owned(),
        Part::Values if random.percent(50) => column.to_owned(),
        Part::Values => format!("values({column})"),
        Part::Keys => format!("keys({column})"),
        Part::Entries => format!("entries({column})"),
        Part::Full => format!("full({column})"),
    };
    let is_named = random.percent(85);
    let word = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let name = match is_named {
        true => format!("{table}_x{number}"),
        false => format!("{table}_{}_idx", word(column)),
    };
    let custom = rules == Rules::Sai && random.percent(50);
    let using = match rules {
        Rules::Sai => format!(" USING {}", random.pick(&["'sai'", "'StorageAttachedIndex'"])),
        Rules::Legacy if random.percent(40) => " USING 'legacy_local_table'".to_owned(),
        Rules::Legacy => String::new(),
    };
    let is_text = matches!(kind, Type::Native("text" | "ascii"));
    let options = match rules == Rules::Sai && is_text && random.percent(15) {
        true => {
            let option = random.pick(&["case_sensitive", "normalize", "ascii"]);
            let value = random.pick(&["true", "false"]);
            format!(" WITH OPTIONS = {{'{option}': '{value}'}}")
        }
        false => String::new(),
    };
    let text = format!(
        "CREATE {}INDEX {}{}ON {table} ({target}){using}{options}",
        if custom { "CUSTOM " } else { "" },
        if random.percent(10) { "IF NOT EXISTS " } else { "" },
        if is_named { format!("{name} ") } else { String::new() },
    );
    (Index { name, column: column.to_owned(), part, rules }, text)
}

/// The part of a column of this type that an index may have, most of the time.
fn part(kind: &Type, random: &mut Random) -> Part {
    if random.percent(5) {
        return *random.pick(&[Part::Value, Part::Values, Part::Keys, Part::Entries, Part::Full]);
    }
    match kind {
        Type::List(_, false) | Type::Set(_, false) => Part::Values,
        Type::Map(_, _, false) => *random.pick(&[Part::Values, Part::Keys, Part::Entries]),
        Type::List(_, true) | Type::Set(_, true) | Type::Map(_, _, true) => Part::Full,
        _ => Part::Value,
    }
}
