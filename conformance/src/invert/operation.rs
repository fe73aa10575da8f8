//! The operations of a partition: each follows from the table's seed, the partition and its number.

use super::mixed;
use super::table::{Shape, Table};
use crate::fuzz::random::Random;

/// Timestamps are this plus ten times a number.
const STAMP_BASE: i64 = 1_700_000_000_000_000;
/// Neighbours among which operations take each other's timestamps.
const SHUFFLED: u64 = 0b111;
/// Numbers of keys within maps and sets.
const ELEMENTS: u64 = 4;
/// Slots of one operation: columns times elements.
const SLOTS: u64 = 64;

/// An end of a slice: the value of the column after the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Number of the value.
    pub number: u64,
    /// The value itself belongs to the slice.
    pub is_inclusive: bool,
}

/// Rows of a partition: those with this prefix of the clustering key, and of them those between the ends,
/// by the value of the next column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Numbers of the first columns.
    pub prefix: Vec<u64>,
    /// From this value on.
    pub low: Option<End>,
    /// Up to this value.
    pub high: Option<End>,
}

/// Change of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The number of its value, or `None`: deleted.
    Plain(Option<u64>),
    /// All elements, by the number of the key, with that of the value (sets have none).
    Whole(Vec<(u64, u64)>),
    /// One element: its value, or `None`: deleted.
    Element(u64, Option<u64>),
}

/// Action of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// INSERT of a row, which then exists even without values.
    Insert(Vec<u64>, Vec<(usize, Change)>),
    /// UPDATE of a row.
    Update(Vec<u64>, Vec<(usize, Change)>),
    /// UPDATE of static columns.
    Statics(Vec<(usize, Change)>),
    /// DELETE of rows.
    Rows(Slice),
    /// DELETE of the partition.
    Partition,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// From 1.
    pub number: u64,
    /// Its timestamp.
    pub stamp: i64,
    /// Action of the operation.
    pub action: Action,
}

/// The number that a value of an operation has: the upper digits are those of the operation.
#[must_use]
fn value(operation: u64, column: usize, element: u64) -> u64 {
    operation * SLOTS + (column as u64 * ELEMENTS + element) % SLOTS
}

/// The operation that wrote a value of at least 32 bits.
#[must_use]
pub fn writer_of(value: u64) -> u64 {
    value / SLOTS
}

impl Slice {
    /// Returns true if the slice contains a clustering key.
    #[must_use]
    pub fn has(&self, table: &Table, key: &[u64]) -> bool {
        if !key.starts_with(&self.prefix) {
            return false;
        }
        let at = self.prefix.len();
        let (Some(column), Some(number)) = (table.clustering.get(at), key.get(at)) else {
            return true;
        };
        let rank = |number| column.kind.rank(number);
        let is_above = self.low.is_none_or(|end| {
            rank(*number) > rank(end.number) || (end.is_inclusive && *number == end.number)
        });
        let is_below = self.high.is_none_or(|end| {
            rank(*number) < rank(end.number) || (end.is_inclusive && *number == end.number)
        });
        is_above && is_below
    }

    /// A random one.
    pub fn random(table: &Table, random: &mut Random) -> Self {
        let at = random.below(table.clustering.len() + 1);
        let prefix = (0..at).map(|column| table.pooled(column, random)).collect();
        let mut slice = Self { prefix, low: None, high: None };
        if at < table.clustering.len() {
            let end = |random: &mut Random| {
                let (number, is_inclusive) = (table.pooled(at, random), random.percent(50));
                random.percent(60).then_some(End { number, is_inclusive })
            };
            slice.low = end(random);
            slice.high = end(random);
        }
        slice
    }

    /// Returns the terms after the partition's terms in WHERE.
    #[must_use]
    pub fn terms(&self, table: &Table) -> String {
        let literal = |column: usize, number: u64| {
            table.clustering.get(column).map_or(String::new(), |c| c.kind.literal(number))
        };
        let at = self.prefix.len();
        let mut terms: Vec<String> = self
            .prefix
            .iter()
            .enumerate()
            .map(|(column, number)| format!(" AND c{column} = {}", literal(column, *number)))
            .collect();
        for (end, sign) in [(self.low, '>'), (self.high, '<')] {
            if let Some(End { number, is_inclusive }) = end {
                let equal = if is_inclusive { "=" } else { "" };
                terms.push(format!(" AND c{at} {sign}{equal} {}", literal(at, number)));
            }
        }
        terms.concat()
    }
}

impl Operation {
    /// The operation of a partition with a number, from 1.
    #[must_use]
    pub fn of(table: &Table, partition: u64, number: u64) -> Self {
        let mut random = Random::new(mixed(&[table.seed, 3, partition, number]));
        let twist = mixed(&[table.seed, 4, partition]) & SHUFFLED;
        let stamp = STAMP_BASE + 10 * i64::try_from(number ^ twist).unwrap_or(i64::MAX / 20);
        let key = |random: &mut Random| -> Vec<u64> {
            (0..table.clustering.len()).map(|column| table.pooled(column, random)).collect()
        };
        let action = match random.below(100) {
            0..34 => {
                let key = key(&mut random);
                Action::Insert(key, changes(table, number, &mut random, Use::Insert))
            }
            34..72 => {
                let key = key(&mut random);
                Action::Update(key, changes(table, number, &mut random, Use::Update))
            }
            72..80 => match changes(table, number, &mut random, Use::Statics) {
                none if none.is_empty() => {
                    Action::Rows(Slice { prefix: key(&mut random), low: None, high: None })
                }
                changes => Action::Statics(changes),
            },
            80..88 => Action::Rows(Slice { prefix: key(&mut random), low: None, high: None }),
            88..98 => match Slice::random(table, &mut random) {
                all if all == Slice::default() => Action::Partition,
                slice => Action::Rows(slice),
            },
            _ => Action::Partition,
        };
        Self { number, stamp, action }
    }

    /// Its statement.
    #[must_use]
    pub fn statement(&self, table: &Table, partition: u64) -> String {
        let (name, stamp) = (&table.name, self.stamp);
        let place = table.of_partition(partition);
        match &self.action {
            Action::Insert(key, changes) => {
                let mut columns: Vec<(String, String)> = table
                    .partition
                    .iter()
                    .zip(table.partition_key(partition))
                    .enumerate()
                    .map(|(n, (kind, number))| (format!("p{n}"), kind.literal(number)))
                    .collect();
                for (n, (column, number)) in table.clustering.iter().zip(key).enumerate() {
                    columns.push((format!("c{n}"), column.kind.literal(*number)));
                }
                for (column, change) in changes {
                    columns.push((table.column(*column), assigned(table, *column, change)));
                }
                let (names, values): (Vec<String>, Vec<String>) = columns.into_iter().unzip();
                let (names, values) = (names.join(", "), values.join(", "));
                format!("INSERT INTO {name} ({names}) VALUES ({values}) USING TIMESTAMP {stamp}")
            }
            Action::Update(key, changes) => {
                let slice = Slice { prefix: key.clone(), low: None, high: None };
                let (set, terms) = (assignments(table, changes), slice.terms(table));
                format!("UPDATE {name} USING TIMESTAMP {stamp} SET {set} WHERE {place}{terms}")
            }
            Action::Statics(changes) => {
                let set = assignments(table, changes);
                format!("UPDATE {name} USING TIMESTAMP {stamp} SET {set} WHERE {place}")
            }
            Action::Rows(slice) => {
                let terms = slice.terms(table);
                format!("DELETE FROM {name} USING TIMESTAMP {stamp} WHERE {place}{terms}")
            }
            Action::Partition => {
                format!("DELETE FROM {name} USING TIMESTAMP {stamp} WHERE {place}")
            }
        }
    }
}

/// Which columns an operation may change, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Insert,
    Update,
    Statics,
}

fn changes(table: &Table, number: u64, random: &mut Random, of: Use) -> Vec<(usize, Change)> {
    let mut changes = Vec::new();
    for (at, column) in table.columns.iter().enumerate() {
        let is_meant = match of {
            Use::Insert => random.percent(if column.is_static { 25 } else { 60 }),
            Use::Update => !column.is_static && random.percent(45),
            Use::Statics => column.is_static && random.percent(70),
        };
        if is_meant {
            changes.push((at, change(column.shape, Cell { number, at }, random, of)));
        }
    }
    let is_wanted = |column: &super::table::Column| column.is_static == (of == Use::Statics);
    if changes.is_empty()
        && of != Use::Insert
        && let Some(at) = table.columns.iter().position(is_wanted)
        && let Some(column) = table.columns.get(at)
    {
        changes.push((at, change(column.shape, Cell { number, at }, random, of)));
    }
    changes
}

/// The cell that a change is about: number of the operation, place of the column.
#[derive(Clone, Copy)]
struct Cell {
    number: u64,
    at: usize,
}

fn change(shape: Shape, cell: Cell, random: &mut Random, of: Use) -> Change {
    let Cell { number, at } = cell;
    let is_kept = random.percent(80);
    match shape {
        Shape::Plain(_) | Shape::Frozen(_) => Change::Plain(is_kept.then(|| value(number, at, 0))),
        Shape::Set(_) | Shape::Map(..) => {
            let element = random.bits() % ELEMENTS;
            match of == Use::Insert || random.percent(35) {
                true => {
                    let keys = (0..ELEMENTS).filter(|_| is_kept && random.percent(50));
                    Change::Whole(keys.map(|key| (key, value(number, at, key))).collect())
                }
                false => Change::Element(element, is_kept.then(|| value(number, at, element))),
            }
        }
    }
}

/// A whole value as a literal.
fn assigned(table: &Table, column: usize, change: &Change) -> String {
    let Some(column) = table.columns.get(column) else { return String::new() };
    match (column.shape, change) {
        (Shape::Plain(kind), Change::Plain(Some(number))) => kind.literal(*number),
        (Shape::Frozen(kind), Change::Plain(Some(number))) => {
            let items: Vec<String> = frozen(*number).map(|item| kind.literal(item)).collect();
            format!("[{}]", items.join(", "))
        }
        (Shape::Set(kind), Change::Whole(elements)) => {
            let keys: Vec<String> = elements.iter().map(|(key, _)| kind.literal(*key)).collect();
            format!("{{{}}}", keys.join(", "))
        }
        (Shape::Map(key, of), Change::Whole(elements)) => {
            let pair = |(k, v): &(u64, u64)| format!("{}: {}", key.literal(*k), of.literal(*v));
            let pairs: Vec<String> = elements.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        _ => "null".to_owned(),
    }
}

/// Returns the numbers in a frozen list: the value's, and further ones, whose count follows from
/// the number.
pub fn frozen(number: u64) -> impl Iterator<Item = u64> {
    (0..=number % 3).map(move |step| number + step)
}

fn assignments(table: &Table, changes: &[(usize, Change)]) -> String {
    let one = |(column, change): &(usize, Change)| {
        let name = table.column(*column);
        let shape = table.columns.get(*column).map(|column| column.shape);
        match (shape, change) {
            (Some(Shape::Set(kind)), Change::Element(key, value)) => {
                let sign = if value.is_some() { '+' } else { '-' };
                format!("{name} = {name} {sign} {{{}}}", kind.literal(*key))
            }
            (Some(Shape::Map(kind, of)), Change::Element(key, value)) => {
                let value = value.map_or("null".to_owned(), |value| of.literal(value));
                format!("{name}[{}] = {value}", kind.literal(*key))
            }
            _ => format!("{name} = {}", assigned(table, *column, change)),
        }
    };
    changes.iter().map(one).collect::<Vec<_>>().join(", ")
}
