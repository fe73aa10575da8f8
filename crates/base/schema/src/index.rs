//! Secondary indexes of a table: definitions only.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use stdx::{TableId, Uuid};
use types::name::quote_identifier;

use crate::digest::digest_uuid;

/// Option in which the target is stored, as in `system_schema.indexes`.
pub const INDEX_TARGET: &str = "target";
/// Option in which the class is stored, as the statement had it.
pub const INDEX_CLASS: &str = "class_name";

/// One index of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMetadata {
    /// Identity, also in the names of components: see [`index_id`].
    pub id: Uuid,
    /// Name, case kept; unique in its keyspace (INV-schema-6).
    pub name: Arc<str>,
    /// Kind as `system_schema.indexes` shows it.
    pub kind: IndexKind,
    /// Options as the statement had them, with [`INDEX_TARGET`] and, of custom indexes, [`INDEX_CLASS`]. The target of a
    /// local index is JSON, as in ScyllaDB: `{"pk":["p"],"ck":["v"]}`.
    pub options: BTreeMap<String, String>,
    /// The column, and the part of its values.
    pub target: IndexTarget,
    /// Rules by which queries use it.
    pub rules: IndexRules,
}

impl IndexMetadata {
    /// Returns true for ScyllaDB's local index, `((partition key), column)`. It is a legacy index in all else.
    pub fn is_local(&self) -> bool {
        // Targets of other legacy indexes begin with a name or a quotation mark.
        self.kind == IndexKind::Composites
            && self.options.get(INDEX_TARGET).is_some_and(|target| target.starts_with('{'))
    }

    /// The options by which Cassandra knows the index: it has no local ones and does not start with their target.
    pub fn cassandra_options(&self) -> Cow<'_, BTreeMap<String, String>> {
        if !self.is_local() {
            return Cow::Borrowed(&self.options);
        }
        let mut options = self.options.clone();
        options.insert(INDEX_TARGET.to_owned(), self.target.to_string());
        Cow::Owned(options)
    }
}

/// Kind of an index in `system_schema.indexes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexKind {
    /// Legacy index of a table made WITH COMPACT STORAGE; Cassandra 5.0 makes none.
    Keys,
    /// Legacy index.
    Composites,
    /// Index with a class.
    Custom,
}

impl IndexKind {
    /// Name in `system_schema.indexes`.
    pub fn name(self) -> &'static str {
        match self {
            IndexKind::Keys => "KEYS",
            IndexKind::Composites => "COMPOSITES",
            IndexKind::Custom => "CUSTOM",
        }
    }
}

/// Rules of an index: what it accepts and which predicates it answers. All have one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexRules {
    /// Cassandra's first secondary index, without class.
    Legacy,
    /// Storage-attached index.
    Sai,
    /// SASI: prefixes, suffixes and parts of text.
    Sasi,
}

/// Column of an index and the part of its values that is indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexTarget {
    /// Name of the column.
    pub column: Arc<str>,
    /// Indexed part of the value.
    pub part: TargetPart,
}

/// The form that statements have: `v`, `keys(v)`.
impl Display for IndexTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let column = quote_identifier(&self.column);
        match self.part.function() {
            None => f.write_str(&column),
            Some(function) => write!(f, "{function}({column})"),
        }
    }
}

/// Indexed part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetPart {
    /// The value of a column that is no collection, or of a key column.
    Simple,
    /// Each value of a list, set or map.
    Values,
    /// Each key of a map.
    Keys,
    /// Each entry of a map.
    Entries,
    /// A frozen collection as one value.
    Full,
}

impl TargetPart {
    /// All parts with their bytes in the metadata log.
    const CODES: [(TargetPart, u8); 5] = [
        (TargetPart::Simple, 0),
        (TargetPart::Values, 1),
        (TargetPart::Keys, 2),
        (TargetPart::Entries, 3),
        (TargetPart::Full, 4),
    ];

    /// The function around the column in statements; `None`: the bare column.
    pub fn function(self) -> Option<&'static str> {
        match self {
            TargetPart::Simple => None,
            TargetPart::Values => Some("values"),
            TargetPart::Keys => Some("keys"),
            TargetPart::Entries => Some("entries"),
            TargetPart::Full => Some("full"),
        }
    }

    pub(crate) fn code(self) -> u8 {
        Self::CODES.iter().find(|(part, _)| *part == self).map_or(0, |(_, code)| *code)
    }

    pub(crate) fn of_code(code: u8) -> Option<TargetPart> {
        Self::CODES.iter().find(|(_, c)| *c == code).map(|(part, _)| *part)
    }
}

/// Identity of an index that becomes part of `table` with its version `version`. An index that is dropped and made
/// again under its name gets another one, so that components of the first are never read as those of the second.
pub fn index_id(table: TableId, name: &str, version: u64) -> Uuid {
    let mut bytes = table.0.as_bytes().to_vec();
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(name.as_bytes());
    digest_uuid(bytes)
}
