//! Guardrails: limits that change at run time and warn or reject requests of ordinary users.
//!
//! Owns: the limits ([`Guardrails`]) and the one request they are held against ([`Watch`]), with
//! Cassandra's names and texts. Never: which users are ordinary, the source of the limits, or limits
//! on timestamps, which apply to all users (`cql-server::guardrails`). As in Cassandra, superusers
//! are not watched, and without authentication no user is.
//!
//! Source: `db.guardrails.Guardrails`, `Threshold`, `EnableFlag`, `Values`.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use cql_syntax::ast::RawType;

use crate::error::PlanError;

/// Two limits on a number; below 1 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Beyond it there is a warning.
    pub warn: i64,
    /// Beyond it the statement is refused.
    pub fail: i64,
}

impl Threshold {
    /// No limits.
    pub const OFF: Threshold = Threshold { warn: -1, fail: -1 };

    fn is_off(self) -> bool {
        self.warn <= 0 && self.fail <= 0
    }
}

/// Something that may be used, or not, or better not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// It may be used.
    pub enabled: bool,
    /// A client that uses it is warned.
    pub warned: bool,
}

impl Feature {
    /// It may be used.
    pub const ON: Feature = Feature { enabled: true, warned: false };
    /// It may be used, with a warning.
    pub const WARNED: Feature = Feature { enabled: true, warned: true };

    /// Either on, or off.
    pub fn of(enabled: bool) -> Feature {
        Feature { enabled, warned: false }
    }
}

/// Values that are warned of, left out or refused; in the order that messages list them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Warned of.
    pub warned: Vec<String>,
    /// Left out with a warning.
    pub ignored: Vec<String>,
    /// Refused.
    pub disallowed: Vec<String>,
}

/// How full the disks of a replica are, when they are fuller than they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskPressure {
    /// Writes are warned of.
    Stuffed,
    /// Writes are refused.
    Full,
}

/// Rate of the warnings about pressure; a client is not warned at every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The client gets warnings.
    Given,
    /// The client gets no warnings; refusals are errors all the same.
    Withheld,
}

/// Kind of a term of a storage-attached index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermKind {
    /// A frozen collection, a tuple or a type, as a whole.
    Frozen,
    /// A vector.
    Vector,
    /// Anything else, numbers too.
    String,
}

/// All limits. The default is Cassandra's: two features are warned of, nothing but terms of indexes is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the settings of cassandra.yaml")]
pub struct Guardrails {
    pub keyspaces: Threshold,
    pub tables: Threshold,
    pub columns_per_table: Threshold,
    pub fields_per_udt: Threshold,
    pub vector_dimensions: Threshold,
    pub secondary_indexes_per_table: Threshold,
    pub minimum_replication_factor: Threshold,
    pub maximum_replication_factor: Threshold,
    pub page_size: Threshold,
    pub partition_keys_in_select: Threshold,
    pub in_select_cartesian_product: Threshold,
    pub column_value_size: Threshold,
    pub collection_size: Threshold,
    pub items_per_collection: Threshold,
    pub sai_string_term_size: Threshold,
    pub sai_frozen_term_size: Threshold,
    pub sai_vector_term_size: Threshold,
    pub allow_filtering: Feature,
    pub alter_table: Feature,
    pub compact_tables: Feature,
    pub drop_keyspace: Feature,
    pub group_by: Feature,
    pub intersect_filtering_query: Feature,
    pub non_partition_restricted_index_query: Feature,
    pub read_before_write_list_operations: Feature,
    pub secondary_indexes: Feature,
    pub simplestrategy: Feature,
    pub uncompressed_tables: Feature,
    pub vector_type: Feature,
    pub zero_ttl_on_twcs: Feature,
    pub table_properties: Values,
    /// Names in the order of Cassandra's `ConsistencyLevel`.
    pub read_consistency_levels: Values,
    /// Names in the order of Cassandra's `ConsistencyLevel`.
    pub write_consistency_levels: Values,
}

impl Default for Guardrails {
    fn default() -> Guardrails {
        Guardrails {
            keyspaces: Threshold::OFF,
            tables: Threshold::OFF,
            columns_per_table: Threshold::OFF,
            fields_per_udt: Threshold::OFF,
            vector_dimensions: Threshold::OFF,
            secondary_indexes_per_table: Threshold::OFF,
            minimum_replication_factor: Threshold::OFF,
            maximum_replication_factor: Threshold::OFF,
            page_size: Threshold::OFF,
            partition_keys_in_select: Threshold::OFF,
            in_select_cartesian_product: Threshold::OFF,
            column_value_size: Threshold::OFF,
            collection_size: Threshold::OFF,
            items_per_collection: Threshold::OFF,
            sai_string_term_size: Threshold { warn: 1 << 10, fail: 8 << 10 },
            sai_frozen_term_size: Threshold { warn: 1 << 10, fail: 8 << 10 },
            sai_vector_term_size: Threshold { warn: 16 << 10, fail: 32 << 10 },
            allow_filtering: Feature::ON,
            alter_table: Feature::ON,
            compact_tables: Feature::ON,
            drop_keyspace: Feature::ON,
            group_by: Feature::ON,
            intersect_filtering_query: Feature::WARNED,
            non_partition_restricted_index_query: Feature::ON,
            read_before_write_list_operations: Feature::ON,
            secondary_indexes: Feature::ON,
            simplestrategy: Feature::ON,
            uncompressed_tables: Feature::ON,
            vector_type: Feature::ON,
            zero_ttl_on_twcs: Feature::WARNED,
            table_properties: Values::default(),
            read_consistency_levels: Values::default(),
            write_consistency_levels: Values::default(),
        }
    }
}

impl Guardrails {
    /// Returns true if written values are checked.
    pub fn limits_values(&self) -> bool {
        !(self.column_value_size.is_off()
            && self.collection_size.is_off()
            && self.items_per_collection.is_off()
            && self.read_before_write_list_operations == Feature::ON)
    }
}

impl Guardrails {
    /// Returns true if the terms of written rows are checked.
    pub fn limits_terms(&self) -> bool {
        !(self.sai_string_term_size.is_off()
            && self.sai_frozen_term_size.is_off()
            && self.sai_vector_term_size.is_off())
    }
}

/// Why a filter over several columns may be wrong; Cassandra's words.
const INTERSECTION: &str = "Filtering queries involving an intersection on multiple mutable (i.e. \
                            non-key) columns over unrepaired data at read consistency levels that \
                            would require coordinator reconciliation may violate the guarantees of \
                            those consistency levels.";
/// The blank at the end is Cassandra's.
const ZERO_TTL: &str = "It is suspicious to use default_time_to_live set to 0 with such compaction \
                        strategy. Please keep in mind that data will not start to automatically \
                        expire after they are older than a respective compaction window unit of a \
                        certain size. Please set TTL for your INSERT or UPDATE statements if you \
                        expect data to be expired as table settings will not do it. ";
const INDEX_SCAN: &str = "Executing a query on secondary indexes without partition key restriction \
                          might degrade performance";
const FILTERING: &str = "ALLOW FILTERING can potentially visit all the data in the table and have \
                         unpredictable performance.";

fn size_text(column: &str, bytes: usize, warns: bool, limit: i64) -> String {
    let threshold = kind(warns);
    format!(
        "Value of column '{column}' has size {bytes}, this exceeds the {threshold} threshold of {limit}."
    )
}

/// Name of a guardrail and the reason for it.
type Rail = (&'static str, Option<&'static str>);

/// A guardrail on values.
#[derive(Clone, Copy)]
struct ValuesRail {
    name: &'static str,
    /// Name of the values, in messages.
    what: &'static str,
}

/// Result of a check: the request of an ordinary user passes or is rejected.
type Checked = Result<(), PlanError>;

/// A message, built from the limit and a flag that is true for a warning.
type Text<'t> = &'t dyn Fn(bool, i64) -> String;

/// The guardrails as they are for one request, and what its client is warned of. A refusal is among
/// the warnings too, as in Cassandra.
#[derive(Debug)]
pub struct Watch {
    rails: Arc<Guardrails>,
    warnings: RefCell<Vec<String>>,
    refused: Cell<bool>,
}

impl Watch {
    /// Starts without warnings.
    pub fn new(rails: Arc<Guardrails>) -> Watch {
        Watch { rails, warnings: RefCell::default(), refused: Cell::new(false) }
    }

    /// Returns the warnings for the client.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }

    /// Number of warnings.
    pub fn count(&self) -> usize {
        self.warnings.borrow().len()
    }

    /// Drops all warnings but the first `count`, because their checks run again.
    pub fn forget(&self, count: usize) {
        self.warnings.borrow_mut().truncate(count);
    }

    /// Returns true if a check rejected the request.
    pub fn has_refused(&self) -> bool {
        self.refused.get()
    }

    /// The limits.
    pub fn rails(&self) -> &Guardrails {
        &self.rails
    }

    fn warn(&self, (name, reason): Rail, message: &str) -> String {
        let mut text = format!("Guardrail {name} violated: {message}");
        if let Some(reason) = reason {
            text.push_str(if message.ends_with('.') { " " } else { ". " });
            text.push_str(reason);
        }
        self.warnings.borrow_mut().push(text.clone());
        text
    }

    fn fail(&self, rail: Rail, message: &str) -> Checked {
        self.refused.set(true);
        Err(PlanError::invalid(self.warn(rail, message)))
    }

    fn threshold(
        &self,
        rail: Rail,
        limit: Threshold,
        is_beyond: impl Fn(i64) -> bool,
        text: Text<'_>,
    ) -> Checked {
        if limit.fail > 0 && is_beyond(limit.fail) {
            return self.fail(rail, &text(false, limit.fail));
        }
        if limit.warn > 0 && is_beyond(limit.warn) {
            self.warn(rail, &text(true, limit.warn));
        }
        Ok(())
    }

    fn at_most(
        &self,
        name: &'static str,
        limit: Threshold,
        value: usize,
        text: Text<'_>,
    ) -> Checked {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.threshold((name, None), limit, |limit| value > limit, text)
    }

    fn ensure(&self, rail: Rail, feature: Feature, what: &str) -> Checked {
        if !feature.enabled {
            return self.fail(rail, &format!("{what} is not allowed"));
        }
        if feature.warned {
            self.warn(rail, &format!("{what} is not recommended"));
        }
        Ok(())
    }

    /// Returns those of `given` that must be ignored.
    fn values<'g>(
        &self,
        rail: ValuesRail,
        values: &Values,
        given: &[&'g str],
    ) -> Result<Vec<&'g str>, PlanError> {
        let ValuesRail { name, what } = rail;
        let among = |set: &[String]| -> Vec<&'g str> {
            given.iter().copied().filter(|g| set.iter().any(|s| s == g)).collect()
        };
        let listed = |names: &[&str]| format!("[{}]", names.join(", "));
        let all = |set: &[String]| format!("[{}]", set.join(", "));
        let refused = among(&values.disallowed);
        if !refused.is_empty() {
            let text = format!(
                "Provided values {} are not allowed for {what} (disallowed values are: {})",
                listed(&refused),
                all(&values.disallowed)
            );
            return self.fail((name, None), &text).map(|()| Vec::new());
        }
        let ignored = among(&values.ignored);
        if !ignored.is_empty() {
            let text = format!(
                "Ignoring provided values {} as they are not supported for {what} (ignored values \
                 are: {})",
                listed(&ignored),
                all(&values.ignored)
            );
            self.warn((name, None), &text);
        }
        let warned = among(&values.warned);
        if !warned.is_empty() {
            let text = format!(
                "Provided values {} are not recommended for {what} (warned values are: {})",
                listed(&warned),
                all(&values.warned)
            );
            self.warn((name, None), &text);
        }
        Ok(ignored)
    }
}

/// Statements on data.
impl Watch {
    /// ALLOW FILTERING is used.
    ///
    /// # Errors
    /// The guardrail refuses it; the same holds for all checks below.
    pub fn allow_filtering(&self) -> Checked {
        let rail = ("allow_filtering", Some(FILTERING));
        self.ensure(rail, self.rails.allow_filtering, "Querying with ALLOW FILTERING")
    }

    /// GROUP BY is used.
    pub fn group_by(&self) -> Checked {
        self.ensure(("group_by", None), self.rails.group_by, "GROUP BY functionality")
    }

    /// A filter on several columns outside the key needs the answers of several replicas.
    pub fn intersect_filtering_query(&self) -> Checked {
        self.ensure(
            ("intersect_filtering_query", Some(INTERSECTION)),
            self.rails.intersect_filtering_query,
            "Filtering query with intersection on mutable columns at consistency level requiring \
             coordinator reconciliation",
        )
    }

    /// An index is used without a partition key.
    pub fn non_partition_restricted_index_query(&self) -> Checked {
        self.ensure(
            ("non_partition_restricted_index_query_enabled", Some(INDEX_SCAN)),
            self.rails.non_partition_restricted_index_query,
            "Non-partition key restricted query",
        )
    }

    /// Rows per page.
    pub fn page_size(&self, table: &str, rows: u32) -> Checked {
        self.at_most("page_size", self.rails.page_size, rows as usize, &|warns, limit| {
            if warns {
                format!(
                    "Query for table {table} with page size {rows} exceeds warning threshold of \
                     {limit}."
                )
            } else {
                format!(
                    "Aborting query for table {table}, page size {rows} exceeds fail threshold of \
                     {limit}."
                )
            }
        })
    }

    /// Partitions that IN names.
    pub fn partition_keys_in_select(&self, table: &str, keys: usize) -> Checked {
        let limit = self.rails.partition_keys_in_select;
        self.at_most("partition_keys_in_select", limit, keys, &|warns, limit| {
            if warns {
                format!(
                    "Query with partition keys in IN clause on table {table}, with number of \
                     partition keys {keys} exceeds warning threshold of {limit}."
                )
            } else {
                format!(
                    "Aborting query with partition keys in IN clause on table {table}, number of \
                     partition keys {keys} exceeds fail threshold of {limit}."
                )
            }
        })
    }

    /// Checks the number of combinations of IN restrictions; `of` is "partition key" or "clustering
    /// key".
    pub fn combinations(&self, of: &str, count: usize) -> Checked {
        let limit = self.rails.in_select_cartesian_product;
        self.at_most("in_select_cartesian_product", limit, count, &|warns, limit| {
            if warns {
                format!(
                    "The cartesian product of the IN restrictions on {of} produces {count} values, \
                     this exceeds warning threshold of {limit}."
                )
            } else {
                format!(
                    "Aborting query because the cartesian product of the IN restrictions on {of} \
                     produces {count} values, this exceeds fail threshold of {limit}."
                )
            }
        })
    }

    /// The level of a read.
    pub fn read_consistency(&self, level: &str) -> Checked {
        let (name, what) = ("read_consistency_levels", "read consistency levels");
        let rail = ValuesRail { name, what };
        self.values(rail, &self.rails.read_consistency_levels, &[level]).map(drop)
    }

    /// The levels of a write, the serial one too, in the order of Cassandra's `ConsistencyLevel`.
    pub fn write_consistency(&self, levels: &[&str]) -> Checked {
        let (name, what) = ("write_consistency_levels", "write consistency levels");
        let rail = ValuesRail { name, what };
        self.values(rail, &self.rails.write_consistency_levels, levels).map(drop)
    }

    /// Reports that a replica of the data to be written has fuller disks than it should.
    pub fn replica_disk(&self, pressure: DiskPressure, notice: Notice) -> Checked {
        let before = self.count();
        let rail = ("replica_disk_usage", None);
        let checked = match pressure {
            DiskPressure::Stuffed => {
                self.warn(rail, "Replica disk usage exceeds warning threshold");
                Ok(())
            }
            DiskPressure::Full => {
                self.fail(rail, "Write request failed because disk usage exceeds failure threshold")
            }
        };
        if notice == Notice::Withheld {
            self.forget(before);
        }
        checked
    }

    /// Reports that a list is read before it is written; `what` names the operation.
    pub fn read_before_write(&self, what: &str) -> Checked {
        let rail = ("read_before_write_list_operations", None);
        self.ensure(rail, self.rails.read_before_write_list_operations, what)
    }

    /// Bytes of a value, or of a path of a cell.
    pub fn column_value(&self, column: &str, bytes: usize) -> Checked {
        let limit = self.rails.column_value_size;
        let name = "column_value_size";
        self.at_most(name, limit, bytes, &|warns, limit| size_text(column, bytes, warns, limit))
    }

    /// Bytes of a term that is written to a storage-attached index.
    pub(crate) fn index_term(&self, kind: TermKind, column: &str, bytes: usize) -> Checked {
        let (name, limit) = match kind {
            TermKind::String => ("sai_string_term_size", self.rails.sai_string_term_size),
            TermKind::Frozen => ("sai_frozen_term_size", self.rails.sai_frozen_term_size),
            TermKind::Vector => ("sai_vector_term_size", self.rails.sai_vector_term_size),
        };
        self.at_most(name, limit, bytes, &|warns, limit| size_text(column, bytes, warns, limit))
    }

    /// Elements that are written to a collection.
    pub fn collection_items(&self, column: &str, items: usize) -> Checked {
        let limit = self.rails.items_per_collection;
        self.at_most("items_per_collection", limit, items, &|warns, limit| {
            format!(
                "Detected collection {column} with {items} items, this exceeds the {} threshold of \
                 {limit}.",
                kind(warns)
            )
        })
    }

    /// Bytes that are written to a collection.
    pub fn collection_size(&self, column: &str, bytes: usize) -> Checked {
        self.at_most("collection_size", self.rails.collection_size, bytes, &|warns, limit| {
            format!(
                "Detected collection {column} of size {bytes}, this exceeds the {} threshold of \
                 {limit}.",
                kind(warns)
            )
        })
    }
}

/// Statements on the schema.
impl Watch {
    /// `count` keyspaces with the new one.
    pub(crate) fn keyspaces(&self, name: &str, count: usize) -> Checked {
        self.at_most("keyspaces", self.rails.keyspaces, count, &|warns, limit| {
            if warns {
                format!(
                    "Creating keyspace {name}, current number of keyspaces {count} exceeds warning \
                     threshold of {limit}."
                )
            } else {
                format!(
                    "Cannot have more than {limit} keyspaces, aborting the creation of keyspace \
                     {name}"
                )
            }
        })
    }

    /// `count` tables with the new one.
    pub(crate) fn tables(&self, name: &str, count: usize) -> Checked {
        self.at_most("tables", self.rails.tables, count, &|warns, limit| {
            if warns {
                format!(
                    "Creating table {name}, current number of tables {count} exceeds warning \
                     threshold of {limit}."
                )
            } else {
                format!(
                    "Cannot have more than {limit} tables, aborting the creation of table {name}"
                )
            }
        })
    }

    pub(crate) fn secondary_indexes(&self) -> Checked {
        let what = "Creating secondary indexes";
        self.ensure(("secondary_indexes", None), self.rails.secondary_indexes, what)
    }

    /// Checks the number of indexes that a table will have; `name` is the one that the statement gives.
    pub(crate) fn secondary_indexes_per_table(
        &self,
        name: Option<&str>,
        table: &str,
        count: usize,
    ) -> Checked {
        let limit = self.rails.secondary_indexes_per_table;
        let index = match name {
            Some(name) => format!("{name} on table {table}"),
            None => format!("on table {table}"),
        };
        self.at_most("secondary_indexes_per_table", limit, count, &|warns, limit| {
            if warns {
                format!(
                    "Creating secondary index {index}, current number of indexes {count} exceeds \
                     warning threshold of {limit}."
                )
            } else {
                format!(
                    "Tables cannot have more than {limit} secondary indexes, aborting the creation \
                     of secondary index {index}"
                )
            }
        })
    }

    pub(crate) fn columns_per_table(&self, table: &str, count: usize) -> Checked {
        let limit = self.rails.columns_per_table;
        self.at_most("columns_per_table", limit, count, &|warns, limit| {
            if warns {
                format!(
                    "The table {table} has {count} columns, this exceeds the warning threshold of \
                     {limit}."
                )
            } else {
                format!(
                    "Tables cannot have more than {limit} columns, but {count} provided for table \
                     {table}"
                )
            }
        })
    }

    pub(crate) fn fields_per_udt(&self, name: &str, count: usize) -> Checked {
        self.at_most("fields_per_udt", self.rails.fields_per_udt, count, &|warns, limit| {
            if warns {
                format!(
                    "The user type {name} has {count} columns, this exceeds the warning threshold \
                     of {limit}."
                )
            } else {
                format!(
                    "User types cannot have more than {limit} columns, but {count} provided for \
                     user type {name}."
                )
            }
        })
    }

    /// Vectors in a type; `what` is "Column c" or "Field f".
    pub(crate) fn raw_type(&self, what: &str, ty: &RawType) -> Checked {
        match ty {
            RawType::Vector(_, dimensions) => {
                self.ensure(("vector_type_enabled", None), self.rails.vector_type, what)?;
                let count = usize::try_from(*dimensions).unwrap_or(usize::MAX);
                let limit = self.rails.vector_dimensions;
                self.at_most("vector_dimensions", limit, count, &|warns, limit| {
                    format!(
                        "{what} has a vector of {count} dimensions, this exceeds the {} threshold \
                         of {limit}.",
                        kind(warns)
                    )
                })
            }
            RawType::List(ty) | RawType::Set(ty) | RawType::Frozen(ty) => self.raw_type(what, ty),
            RawType::Map(key, value) => {
                self.raw_type(what, key)?;
                self.raw_type(what, value)
            }
            RawType::Tuple(types) => types.iter().try_for_each(|ty| self.raw_type(what, ty)),
            _ => Ok(()),
        }
    }

    /// Replicas in one datacenter, or in all for `SimpleStrategy`.
    pub(crate) fn replication_factor(&self, keyspace: &str, factor: u32) -> Checked {
        let factor = i64::from(factor);
        let text = |where_: &'static str| {
            move |warns, limit| {
                format!(
                    "The keyspace {keyspace} has a replication factor of {factor}, {where_} the {} \
                     threshold of {limit}.",
                    kind(warns)
                )
            }
        };
        self.threshold(
            ("minimum_replication_factor", None),
            self.rails.minimum_replication_factor,
            |limit| factor < limit,
            &text("below"),
        )?;
        self.threshold(
            ("maximum_replication_factor", None),
            self.rails.maximum_replication_factor,
            |limit| factor > limit,
            &text("above"),
        )
    }

    /// Properties of WITH; those to be left out.
    pub(crate) fn table_properties<'g>(
        &self,
        given: &[&'g str],
    ) -> Result<Vec<&'g str>, PlanError> {
        let mut given = given.to_vec();
        given.sort_unstable();
        let rail = ValuesRail { name: "table_properties", what: "Table Properties" };
        self.values(rail, &self.rails.table_properties, &given)
    }

    pub(crate) fn alter_table(&self) -> Checked {
        let rail = ("alter_table", None);
        self.ensure(rail, self.rails.alter_table, "ALTER TABLE changing columns")
    }

    pub(crate) fn compact_table(&self) -> Checked {
        let what = "Creation of new COMPACT STORAGE tables";
        self.ensure(("compact_tables", None), self.rails.compact_tables, what)
    }

    pub(crate) fn drop_keyspace(&self) -> Checked {
        let rail = ("drop_keyspace_enabled", None);
        self.ensure(rail, self.rails.drop_keyspace, "DROP KEYSPACE functionality")
    }

    pub(crate) fn simple_strategy(&self) -> Checked {
        self.ensure(("simplestrategy", None), self.rails.simplestrategy, "SimpleStrategy")
    }

    pub(crate) fn uncompressed_table(&self) -> Checked {
        let rail = ("uncompressed_tables_enabled", None);
        self.ensure(rail, self.rails.uncompressed_tables, "Uncompressed table")
    }

    pub(crate) fn zero_ttl_on_twcs(&self) -> Checked {
        self.ensure(
            ("zero_ttl_on_twcs", Some(ZERO_TTL)),
            self.rails.zero_ttl_on_twcs,
            "0 default_time_to_live on a table with TimeWindowCompactionStrategy compaction \
             strategy",
        )
    }
}

fn kind(is_warning: bool) -> &'static str {
    if is_warning { "warning" } else { "failure" }
}

#[cfg(test)]
mod tests;
