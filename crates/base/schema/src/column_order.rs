//! The order of a table's columns: Cassandra's, because the rows of an SSTable name their cells by it.
//!
//! Owns: the order of INV-schema-2 ([`sort_columns`]), which is that of `SELECT *`, and the order of columns in files
//! ([`compare_names`]). Never: the order in which definitions are encoded; that is by the bytes of names (`encode`).
//!
//! Source: `ColumnMetadata.comparisonOrder` packs kind, shape (one cell before many) and the first six bytes of the name
//! into a number. The bit of the name that it flips for a signed comparison is then compared as a part of an unsigned
//! number, so names that begin with a byte above 0x7f are first. `Columns.selectOrderIterator` merges the columns of one
//! cell and those of many by the signed bytes of their names; it looks for the first of many cells by an empty name, and so
//! finds those with names of such bytes among the columns of one cell, after them.

use std::cmp::Ordering;

use crate::column::{Column, ColumnKind};

/// The order of columns of one kind and shape in SSTables: names that begin with a byte above 0x7f are first, else by bytes.
pub fn compare_names(a: &str, b: &str) -> Ordering {
    let key = |name: &str| !begins_beyond_ascii(name);
    (key(a), a.as_bytes()).cmp(&(key(b), b.as_bytes()))
}

/// The order of columns in SSTables, of two columns of one kind: those of one cell first, each by name.
pub fn compare_in_file(a: &Column, b: &Column) -> Ordering {
    a.is_complex().cmp(&b.is_complex()).then_with(|| compare_names(&a.name, &b.name))
}

fn begins_beyond_ascii(name: &str) -> bool {
    name.as_bytes().first().is_some_and(|byte| !byte.is_ascii())
}

/// Java's `ByteBuffer.compareTo`.
fn compare_signed(a: &str, b: &str) -> Ordering {
    a.bytes().map(u8::cast_signed).cmp(b.bytes().map(u8::cast_signed))
}

/// Class and position: partition key, clustering, statics, regulars.
pub(crate) fn kind_key(kind: ColumnKind) -> (u8, u16) {
    match kind {
        ColumnKind::PartitionKey(position) => (0, position),
        ColumnKind::Clustering { position, .. } => (1, position),
        ColumnKind::Static => (2, 0),
        ColumnKind::Regular => (3, 0),
    }
}

/// The same for all columns of a table: those of the key by position, statics, regulars.
pub fn compare_all_in_file(a: &Column, b: &Column) -> Ordering {
    let names = || match kind_key(a.kind).0 {
        0 | 1 => Ordering::Equal,
        _ => compare_in_file(a, b),
    };
    kind_key(a.kind).cmp(&kind_key(b.kind)).then_with(names)
}

/// Sorts the columns of a table as INV-schema-2 says.
pub fn sort_columns(columns: &mut Vec<Column>) {
    let mut rest = std::mem::take(columns);
    rest.sort_by(compare_all_in_file);
    for class in 0..4 {
        let of_class = rest.iter().take_while(|c| kind_key(c.kind).0 == class).count();
        let others = rest.split_off(of_class);
        merge(std::mem::replace(&mut rest, others), columns);
    }
}

/// Appends columns of one kind that are in the order of files; those of many cells are merged with the others.
fn merge(in_file: Vec<Column>, out: &mut Vec<Column>) {
    let is_merged = |c: &Column| c.is_complex() && !begins_beyond_ascii(&c.name);
    let (complex, first): (Vec<Column>, Vec<Column>) = in_file.into_iter().partition(is_merged);
    let mut complex = complex.into_iter().peekable();
    for column in first {
        let is_before = |other: &Column| compare_signed(&other.name, &column.name).is_lt();
        while let Some(other) = complex.next_if(is_before) {
            out.push(other);
        }
        out.push(column);
    }
    out.extend(complex);
}

/// Returns true if the columns of a table are sorted as INV-schema-2 says.
pub fn are_sorted(columns: &[Column]) -> bool {
    let mut sorted = columns.to_vec();
    sort_columns(&mut sorted);
    sorted == columns
}

#[cfg(test)]
mod tests {
    use stdx::ColumnId;
    use types::CqlType;

    use super::*;

    fn column(name: &str, kind: ColumnKind, is_complex: bool) -> Column {
        let ty = if is_complex { CqlType::set(CqlType::Int, false) } else { CqlType::Int };
        Column { id: ColumnId(0), name: name.into(), ty, kind }
    }

    /// Cassandra's comparison by its own arithmetic.
    fn comparison_order(name: &str) -> (u64, Vec<u8>) {
        let mut first = [0_u8; 8];
        for (to, from) in first.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        ((u64::from_be_bytes(first) ^ (1 << 63)) >> 16, name.as_bytes().to_vec())
    }

    #[test]
    fn names_are_ordered_as_cassandra_compares_them() {
        let names = [
            "ß",
            "é",
            "éa",
            "ö",
            "日本",
            "日本語",
            "🦀",
            "",
            "\0",
            "A",
            "Z",
            "a",
            "aZ",
            "aé",
            "a\u{7f}",
            "abcdefg",
            "abcdefgé",
            "abcdeé",
            "abcdef",
            "z",
            "~",
            "\u{7f}",
            "\u{80}",
        ];
        for a in names {
            for b in names {
                let expected = comparison_order(a).cmp(&comparison_order(b));
                assert_eq!(compare_names(a, b), expected, "{a:?} {b:?}");
            }
        }
        let mut sorted = names.to_vec();
        sorted.sort_by(|a, b| compare_names(a, b));
        assert_eq!(sorted.first(), Some(&"\u{80}"));
        assert_eq!(sorted.iter().position(|name| name.is_empty()), Some(8), "{sorted:?}");
    }

    /// As `SELECT *` of Cassandra 5.0.9 has them, and as its files do.
    #[test]
    fn columns_have_the_order_of_cassandra() {
        let one = ["é", "a", "Z", "日本", "aé", "az", "🦀", "ü"].map(|name| (name, false));
        let many = ["ö", "am", "l"].map(|name| (name, true));
        let all = one.into_iter().chain(many);
        let mut columns: Vec<Column> =
            all.map(|(name, is_complex)| column(name, ColumnKind::Regular, is_complex)).collect();
        let names = |columns: &[Column]| -> Vec<String> {
            columns.iter().map(|c| c.name.to_string()).collect()
        };
        sort_columns(&mut columns);
        let selected = ["é", "ü", "日本", "🦀", "Z", "a", "am", "az", "aé", "ö", "l"];
        assert_eq!(names(&columns), selected);
        columns.sort_by(compare_in_file);
        let in_file = ["é", "ü", "日本", "🦀", "Z", "a", "az", "aé", "ö", "am", "l"];
        assert_eq!(names(&columns), in_file);
    }

    #[test]
    fn columns_of_many_cells_are_merged_by_signed_bytes() {
        let regular = |name: &str, is_complex| column(name, ColumnKind::Regular, is_complex);
        let clustering = ColumnKind::Clustering { position: 0, reversed: false };
        // The columns "az" and "aé" of one cell stay in their order, and so do those of many cells.
        let mut columns = vec![
            regular("z", false),
            regular("aé", false),
            regular("am", true),
            regular("aê", true),
            regular("é", true),
            regular("az", false),
            column("é", ColumnKind::Static, false),
            column("b", ColumnKind::Static, true),
            column("k", clustering, false),
            column("é2", ColumnKind::PartitionKey(1), false),
            column("z", ColumnKind::PartitionKey(0), false),
        ];
        assert!(!are_sorted(&columns));
        sort_columns(&mut columns);
        let names: Vec<&str> = columns.iter().map(|c| &*c.name).collect();
        assert_eq!(names, ["z", "é2", "k", "é", "b", "am", "aê", "az", "aé", "z", "é"]);
        assert!(are_sorted(&columns));
        let again = columns.clone();
        sort_columns(&mut columns);
        assert_eq!(columns, again);
    }
}
