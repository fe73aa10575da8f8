//! Random tables.

use super::kind::{KINDS, Kind};
use super::mixed;
use crate::fuzz::random::Random;

/// Different values of a clustering column that operations use.
pub const POOL: u64 = 5;

/// Shape of a column's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One value.
    Plain(Kind),
    /// A set; its elements are cells.
    Set(Kind),
    /// A map; its elements are cells.
    Map(Kind, Kind),
    /// A list in one cell.
    Frozen(Kind),
}

impl Shape {
    fn name(self) -> String {
        match self {
            Self::Plain(kind) => kind.name().to_owned(),
            Self::Set(of) => format!("set<{}>", of.name()),
            Self::Map(key, value) => format!("map<{}, {}>", key.name(), value.name()),
            Self::Frozen(of) => format!("frozen<list<{}>>", of.name()),
        }
    }
}

/// A column that is not of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Shape of its content.
    pub shape: Shape,
    /// One for the partition.
    pub is_static: bool,
}

/// A clustering column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clustering {
    /// Its type.
    pub kind: Kind,
    /// In the table's order large values come first.
    pub is_descending: bool,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// With its keyspace.
    pub name: String,
    /// Types of the partition key.
    pub partition: Vec<Kind>,
    /// The clustering key: at least one column.
    pub clustering: Vec<Clustering>,
    /// The others: static ones first.
    pub columns: Vec<Column>,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Table {
    /// The table of a seed.
    #[must_use]
    pub fn of(name: &str, seed: u64) -> Self {
        let mut random = Random::new(mixed(&[seed, 1]));
        // Keys of few values would fall together.
        let wide: Vec<Kind> = KINDS.into_iter().filter(|kind| kind.bits() >= 16).collect();
        let some =
            |random: &mut Random, least: usize, most: usize| least + random.below(most - least + 1);
        let partition = (0..some(&mut random, 1, 2)).map(|_| *random.pick(&wide)).collect();
        let clustering = (0..some(&mut random, 1, 3))
            .map(|_| Clustering { kind: *random.pick(&wide), is_descending: random.percent(40) })
            .collect();
        let mut columns = Vec::new();
        for (is_static, count) in
            [(true, some(&mut random, 0, 2)), (false, some(&mut random, 1, 5))]
        {
            for _ in 0..count {
                let (kind, key) = (*random.pick(&KINDS), *random.pick(&wide));
                let shape = match random.below(8) {
                    0 => Shape::Set(key),
                    1 | 2 => Shape::Map(key, kind),
                    3 => Shape::Frozen(kind),
                    _ => Shape::Plain(kind),
                };
                columns.push(Column { shape, is_static });
            }
        }
        Self { name: name.to_owned(), partition, clustering, columns, seed }
    }

    /// Its CREATE TABLE.
    #[must_use]
    pub fn create(&self) -> String {
        let mut parts = Vec::new();
        for (number, kind) in self.partition.iter().enumerate() {
            parts.push(format!("p{number} {}", kind.name()));
        }
        for (number, column) in self.clustering.iter().enumerate() {
            parts.push(format!("c{number} {}", column.kind.name()));
        }
        for (number, column) in self.columns.iter().enumerate() {
            let word = if column.is_static { " static" } else { "" };
            parts.push(format!("{} {}{word}", self.column(number), column.shape.name()));
        }
        let names = |letter: char, count: usize| {
            (0..count).map(|n| format!("{letter}{n}")).collect::<Vec<_>>().join(", ")
        };
        let (partition, clustering) =
            (names('p', self.partition.len()), names('c', self.clustering.len()));
        parts.push(format!("PRIMARY KEY (({partition}), {clustering})"));
        let order: Vec<String> = self
            .clustering
            .iter()
            .enumerate()
            .map(|(n, column)| {
                format!("c{n} {}", if column.is_descending { "DESC" } else { "ASC" })
            })
            .collect();
        let (name, parts) = (&self.name, parts.join(", "));
        format!(
            "CREATE TABLE {name} ({parts}) WITH CLUSTERING ORDER BY ({}) \
             AND caching = {{'rows_per_partition': '4'}}",
            order.join(", ")
        )
    }

    /// The name of a column that is not of the key.
    #[must_use]
    pub fn column(&self, number: usize) -> String {
        let is_static = self.columns.get(number).is_some_and(|column| column.is_static);
        format!("{}{number}", if is_static { 's' } else { 'v' })
    }

    /// The numbers of one partition's key.
    #[must_use]
    pub fn partition_key(&self, partition: u64) -> Vec<u64> {
        // Small numbers of one type are different values.
        (0..self.partition.len()).map(|_| partition).collect()
    }

    /// WHERE of a partition.
    #[must_use]
    pub fn of_partition(&self, partition: u64) -> String {
        let terms: Vec<String> = self
            .partition
            .iter()
            .zip(self.partition_key(partition))
            .enumerate()
            .map(|(n, (kind, number))| format!("p{n} = {}", kind.literal(number)))
            .collect();
        terms.join(" AND ")
    }

    /// A random value of a clustering column.
    pub fn pooled(&self, column: usize, random: &mut Random) -> u64 {
        mixed(&[self.seed, 2, column as u64, random.bits() % POOL]) & 0xffff
    }

    /// Returns the sort key of a clustering column's value in the table.
    #[must_use]
    pub fn place(&self, column: usize, number: u64) -> u64 {
        self.clustering.get(column).map_or(0, |column| {
            let rank = column.kind.rank(number);
            if column.is_descending { !rank } else { rank }
        })
    }
}
