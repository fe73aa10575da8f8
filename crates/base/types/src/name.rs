//! CQL names of types and quoting of identifiers.

use crate::CqlType;

/// Words that an identifier may not be without quotes, sorted.
///
/// Source: `cql3/reserved_keywords.txt`.
const RESERVED: &[&str] = &[
    "ADD",
    "ALLOW",
    "ALTER",
    "AND",
    "APPLY",
    "ASC",
    "AUTHORIZE",
    "BATCH",
    "BEGIN",
    "BY",
    "COLUMNFAMILY",
    "CREATE",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DROP",
    "ENTRIES",
    "EXECUTE",
    "FROM",
    "FULL",
    "GRANT",
    "IF",
    "IN",
    "INDEX",
    "INFINITY",
    "INSERT",
    "INTO",
    "IS",
    "KEYSPACE",
    "LIMIT",
    "MATERIALIZED",
    "MODIFY",
    "NAN",
    "NORECURSIVE",
    "NOT",
    "NULL",
    "OF",
    "ON",
    "OR",
    "ORDER",
    "PRIMARY",
    "RENAME",
    "REVOKE",
    "SCHEMA",
    "SELECT",
    "SET",
    "TABLE",
    "TO",
    "TOKEN",
    "TRUNCATE",
    "UNLOGGED",
    "UPDATE",
    "USE",
    "USING",
    "VIEW",
    "WHERE",
    "WITH",
];

/// True if the word is reserved, in any case.
pub fn is_reserved_keyword(word: &str) -> bool {
    RESERVED.binary_search(&word.to_ascii_uppercase().as_str()).is_ok()
}

/// The identifier as CQL text: bare if it is `[a-z][a-z0-9_]*` and not reserved, else in double
/// quotes with quotes doubled (`ColumnIdentifier.maybeQuote`).
pub fn quote_identifier(name: &str) -> String {
    let bare = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if bare && !is_reserved_keyword(name) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

impl CqlType {
    /// The type as CQL spells it, as in `system_schema.columns.type` and DESCRIBE:
    /// `frozen<list<int>>`, `map<text, int>`, `vector<float, 3>`. User types are named without
    /// keyspace, quoted when needed; a custom type is its class name in single quotes.
    pub fn to_cql_name(&self) -> String {
        let mut out = String::new();
        self.write_cql_name(&mut out);
        out
    }

    fn write_cql_name(&self, out: &mut String) {
        match self {
            CqlType::Ascii => out.push_str("ascii"),
            CqlType::Bigint => out.push_str("bigint"),
            CqlType::Blob => out.push_str("blob"),
            CqlType::Boolean => out.push_str("boolean"),
            CqlType::Counter => out.push_str("counter"),
            CqlType::Date => out.push_str("date"),
            CqlType::Decimal => out.push_str("decimal"),
            CqlType::Double => out.push_str("double"),
            CqlType::Duration => out.push_str("duration"),
            CqlType::Empty => out.push_str("empty"),
            CqlType::Float => out.push_str("float"),
            CqlType::Inet => out.push_str("inet"),
            CqlType::Int => out.push_str("int"),
            CqlType::Smallint => out.push_str("smallint"),
            CqlType::Text => out.push_str("text"),
            CqlType::Time => out.push_str("time"),
            CqlType::Timestamp => out.push_str("timestamp"),
            CqlType::Timeuuid => out.push_str("timeuuid"),
            CqlType::Tinyint => out.push_str("tinyint"),
            CqlType::Uuid => out.push_str("uuid"),
            CqlType::Varint => out.push_str("varint"),
            CqlType::List { element, frozen } => {
                write_generic(out, *frozen, "list", std::iter::once(&**element));
            }
            CqlType::Set { element, frozen } => {
                write_generic(out, *frozen, "set", std::iter::once(&**element));
            }
            CqlType::Map { key, value, frozen } => {
                write_generic(out, *frozen, "map", [&**key, &**value]);
            }
            CqlType::Tuple(fields) => write_generic(out, true, "tuple", fields.iter()),
            CqlType::Udt(udt) => {
                if udt.frozen {
                    out.push_str("frozen<");
                }
                out.push_str(&quote_identifier(&udt.name));
                if udt.frozen {
                    out.push('>');
                }
            }
            CqlType::Vector { element, dimension } => {
                out.push_str("vector<");
                element.write_cql_name(out);
                out.push_str(", ");
                out.push_str(&dimension.to_string());
                out.push('>');
            }
            CqlType::Custom(custom) => {
                out.push('\'');
                out.push_str(custom.name());
                out.push('\'');
            }
        }
    }
}

impl std::fmt::Display for CqlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_cql_name())
    }
}

fn write_generic<'a>(
    out: &mut String,
    frozen: bool,
    name: &str,
    parts: impl IntoIterator<Item = &'a CqlType>,
) {
    if frozen {
        out.push_str("frozen<");
    }
    out.push_str(name);
    out.push('<');
    for (i, part) in parts.into_iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        part.write_cql_name(out);
    }
    out.push('>');
    if frozen {
        out.push('>');
    }
}

/// The simple types by their CQL name (`varchar` included), for parsers.
pub fn native_type(name: &str) -> Option<CqlType> {
    const MAX: usize = 9;
    if name.len() > MAX {
        return None;
    }
    Some(match name.to_ascii_lowercase().as_str() {
        "ascii" => CqlType::Ascii,
        "bigint" => CqlType::Bigint,
        "blob" => CqlType::Blob,
        "boolean" => CqlType::Boolean,
        "counter" => CqlType::Counter,
        "date" => CqlType::Date,
        "decimal" => CqlType::Decimal,
        "double" => CqlType::Double,
        "duration" => CqlType::Duration,
        "empty" => CqlType::Empty,
        "float" => CqlType::Float,
        "inet" => CqlType::Inet,
        "int" => CqlType::Int,
        "smallint" => CqlType::Smallint,
        "text" | "varchar" => CqlType::Text,
        "time" => CqlType::Time,
        "timestamp" => CqlType::Timestamp,
        "timeuuid" => CqlType::Timeuuid,
        "tinyint" => CqlType::Tinyint,
        "uuid" => CqlType::Uuid,
        "varint" => CqlType::Varint,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_are_sorted_for_the_binary_search() {
        assert!(RESERVED.is_sorted());
    }

    #[test]
    fn identifiers_are_quoted_only_when_needed() {
        let check = |name: &str, expect: &str| assert_eq!(quote_identifier(name), expect);
        check("abc_1", "abc_1");
        check("Abc", "\"Abc\"");
        check("1a", "\"1a\"");
        check("select", "\"select\"");
        check("type", "type");
        check("a\"b", "\"a\"\"b\"");
        check("", "\"\"");
    }

    #[test]
    fn native_names_read_back() {
        for ty in crate::testing::simple_types() {
            assert_eq!(native_type(&ty.to_cql_name()), Some(ty));
        }
        assert_eq!(native_type("varchar"), Some(CqlType::Text));
        assert_eq!(native_type("strings"), None);
    }
}
