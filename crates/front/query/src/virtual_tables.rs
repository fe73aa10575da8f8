//! Tables that are computed when they are read: their rows through the same gate as stored ones.
//! Partitions come in the order of their keys, as in Cassandra's virtual tables.
//!
//! Owns: selecting the computed rows of a read command.
//! Rows that need other parts of the node come from a [`VirtualSource`].

use crate::executor::Executor;
use crate::virtual_source::VirtualRow;
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::{ClusteringComparator, RowRef};
use schema::Table;
use std::cmp::Ordering;
use stdx::Token;
use store::{Flow, ReadStats, RowSink};
use types::Comparator;

/// All rows of a virtual table.
pub(crate) async fn rows(executor: &Executor, table: &Table) -> Vec<VirtualRow> {
    match (&*table.keyspace, &*table.name) {
        ("system_virtual_schema", _) => {
            let schema = executor.schema();
            rows_or_none(table, cql_plan::virtual_schema::rows(&schema, table))
        }
        ("system_schema", "indexes") => {
            let snapshot = executor.snapshot();
            let at = snapshot.system_timestamp();
            let rows = cql_plan::system_rows::shown_index_rows(&snapshot.schema, table, at);
            rows_or_none(table, rows)
        }
        _ => executor.virtual_source.rows(table).await,
    }
}

/// Returns the rows, or none if they cannot be built, which is a mistake in the built-in
/// definition.
fn rows_or_none<E: std::fmt::Display>(
    table: &Table,
    rows: std::result::Result<Vec<VirtualRow>, E>,
) -> Vec<VirtualRow> {
    rows.unwrap_or_else(|error| {
        tracing::error!(%error, table = &*table.name, "virtual table has no rows");
        Vec::new()
    })
}

/// All rows of a table of `system_auth`, computed from this shard's snapshot.
pub(crate) fn auth_rows(executor: &Executor, table: &Table) -> Vec<VirtualRow> {
    match cql_plan::auth::rows(&executor.snapshot().auth, table) {
        Ok(rows) => rows,
        Err(error) => {
            tracing::error!(%error, table = &*table.name, "a table of roles has no rows");
            Vec::new()
        }
    }
}

/// Shows the rows that a command asks for to a sink, in read order. `floor` is where the command's
/// range began on the first page, if this is a later one.
pub(crate) fn read<S: RowSink>(
    table: &Table,
    rows: &[VirtualRow],
    command: &ReadCommand,
    floor: Option<&RingBound>,
    sink: &mut S,
) -> ReadStats {
    let comparator = ClusteringComparator::for_table(table);
    let mut keyed: Vec<(Token, &VirtualRow)> =
        rows.iter().map(|row| (codec::token_of(&row.key), row)).collect();
    let order = KeyOrder::of(table);
    keyed.retain(|(token, row)| match &command.partitions {
        Partitions::Key(key) => row.key == *key,
        Partitions::Range(range) => {
            contains(&order, range, *token, &row.key)
                && floor.is_none_or(|floor| is_behind(&order, floor, *token, &row.key))
        }
    });
    keyed.retain(|(_, row)| in_slices(&comparator, command, &row.clustering));
    keyed.sort_by(|(_, a), (_, b)| {
        let by_clustering = comparator.compare(&a.clustering, &b.clustering);
        let by_clustering = if command.reversed { by_clustering.reverse() } else { by_clustering };
        order.compare(&a.key, &b.key).then(by_clustering)
    });
    let first_key = match &command.partitions {
        Partitions::Key(key) => Some(key.clone()),
        Partitions::Range(range) => match &range.start {
            RingBound::Key { key, after: false, .. } => Some(key.clone()),
            RingBound::Key { .. } | RingBound::Token { .. } => None,
        },
    };
    if let (Some(resume), Some(key)) = (&command.resume, first_key)
        && let Some(last) = &resume.clustering
    {
        keyed.retain(|(_, row)| {
            let order = comparator.compare(&row.clustering, last);
            let wanted = if command.reversed { Ordering::Less } else { Ordering::Greater };
            row.key != key || order == wanted
        });
    }
    show(&keyed, sink)
}

fn show<S: RowSink>(rows: &[(Token, &VirtualRow)], sink: &mut S) -> ReadStats {
    let mut stats = ReadStats::default();
    for partition in rows.chunk_by(|(_, a), (_, b)| a.key == b.key) {
        let Some((token, first)) = partition.first() else { continue };
        stats.partitions += 1;
        let mut flow = sink.partition(*token, &first.key, None);
        for (_, row) in partition {
            if flow != Flow::Continue {
                break;
            }
            stats.rows += 1;
            flow = sink.row(&row.clustering, RowRef::trusted(&row.row));
        }
        if flow == Flow::Stop || sink.partition_end() == Flow::Stop {
            break;
        }
    }
    stats
}

/// The order of a table's partition keys: component by component, by their types, or by token.
enum KeyOrder {
    /// A virtual table whose newest partitions come first.
    NewestFirst(Comparator),
    /// Any other virtual table.
    Values(Vec<Comparator>),
    /// Any other table.
    Tokens,
}

impl KeyOrder {
    fn of(table: &Table) -> KeyOrder {
        if !table.is_virtual() {
            return KeyOrder::Tokens;
        }
        let mut keys = table.columns.iter().take(table.partition_key_count);
        if cql_plan::system::is_log_table(table)
            && let Some(timestamp) = keys.next()
        {
            return KeyOrder::NewestFirst(Comparator::for_type(&timestamp.ty));
        }
        KeyOrder::Values(keys.map(|column| Comparator::for_type(&column.ty)).collect())
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let comparators = match self {
            KeyOrder::Values(comparators) => comparators.as_slice(),
            KeyOrder::NewestFirst(comparator) => {
                return comparator.compare(b, a).then_with(|| b.cmp(a));
            }
            KeyOrder::Tokens => {
                return codec::token_of(a).cmp(&codec::token_of(b)).then_with(|| a.cmp(b));
            }
        };
        if let [only] = comparators {
            return only.compare(a, b).then_with(|| a.cmp(b));
        }
        let (mut rest_a, mut rest_b) = (a, b);
        for comparator in comparators {
            let (Some((one, after_a)), Some((other, after_b))) =
                (component(rest_a), component(rest_b))
            else {
                break;
            };
            match comparator.compare(one, other) {
                Ordering::Equal => (rest_a, rest_b) = (after_a, after_b),
                order => return order,
            }
        }
        a.cmp(b)
    }
}

/// The first component of a composite key and what follows it.
fn component(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = key.split_first_chunk::<2>()?;
    let (part, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some((part, rest.get(1..)?))
}

fn contains(order: &KeyOrder, range: &KeyRange, token: Token, key: &[u8]) -> bool {
    is_behind(order, &range.start, token, key) && !is_behind(order, &range.end, token, key)
}

/// Tokens are those of `token()` in a statement, keys those of the position where a page ended.
fn is_behind(order: &KeyOrder, bound: &RingBound, token: Token, key: &[u8]) -> bool {
    match bound {
        RingBound::Token { token: t, after: true } => token > *t,
        RingBound::Token { token: t, after: false } => token >= *t,
        RingBound::Key { key: k, after, .. } => match order.compare(key, k) {
            Ordering::Less => false,
            Ordering::Equal => !after,
            Ordering::Greater => true,
        },
    }
}

fn in_slices(comparator: &ClusteringComparator, command: &ReadCommand, clustering: &[u8]) -> bool {
    command.slices.is_all()
        || command.slices.0.iter().any(|slice| {
            comparator.compare_to_bound(clustering, slice.start()) == Ordering::Greater
                && comparator.compare_to_bound(clustering, slice.end()) == Ordering::Less
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cql_plan::virtual_row::VirtualRowBuilder;
    use stdx::DeletionSeconds;

    #[derive(Default)]
    struct Keys(Vec<String>);

    impl RowSink for Keys {
        fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
            self.0.push(String::from_utf8_lossy(key).into_owned());
            Flow::Continue
        }

        fn row(&mut self, _: &[u8], _: RowRef<'_>) -> Flow {
            Flow::Continue
        }

        fn partition_end(&mut self) -> Flow {
            Flow::Continue
        }
    }

    #[test]
    fn partitions_come_by_key_and_a_page_goes_on_behind_the_last_one() {
        let schema = cql_plan::system::system_schema();
        let table = schema.table("system_views", "settings").unwrap();
        let rows: Vec<VirtualRow> = ["smp", "api_port", "workdir", "memory"]
            .iter()
            .map(|name| {
                let mut row = VirtualRowBuilder::new(table);
                row.text("name", name).text("value", "x").finish().unwrap()
            })
            .collect();
        let read_range = |range: KeyRange| {
            let command =
                ReadCommand::whole(table.id, Partitions::Range(range), DeletionSeconds(0));
            let mut keys = Keys::default();
            read(table, &rows, &command, None, &mut keys);
            keys.0
        };
        assert_eq!(read_range(KeyRange::all()), ["api_port", "memory", "smp", "workdir"]);
        let key = b"memory".to_vec();
        let token = codec::token_of(&key);
        let start = RingBound::Key { token, key, after: true };
        let rest = KeyRange { start, ..KeyRange::all() };
        assert_eq!(read_range(rest), ["smp", "workdir"]);
    }

    #[test]
    fn composite_keys_are_ordered_component_by_component() {
        let order = KeyOrder::Values(vec![
            Comparator::for_type(&types::CqlType::Text),
            Comparator::for_type(&types::CqlType::Int),
        ]);
        let key = |text: &str, n: i32| {
            cql_plan::virtual_row::partition_key(&[text.as_bytes(), &n.to_be_bytes()]).unwrap()
        };
        let mut keys = [key("b", 1), key("aa", 1), key("b", -1), key("a", 7)];
        keys.sort_by(|a, b| order.compare(a, b));
        assert_eq!(keys, [key("a", 7), key("aa", 1), key("b", -1), key("b", 1)]);
    }
}
