//! A random table.

use super::bound::Literal;
use super::index::{self, Index};
use super::random::Random;
use super::types::Type;

/// How the writes of a table get their timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From the statement: ties and late writes.
    Stated,
    /// From the server, so that conditional statements may be among them.
    Clock,
    /// The table has counters.
    Counters,
}

/// Role of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Part of the partition key.
    Partition,
    /// Part of the clustering key; true: descending.
    Clustering(bool),
    /// One value per partition.
    Static,
    /// One value per row.
    Regular,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name, quoted where it must be.
    pub name: String,
    /// Its type.
    pub kind: Type,
    /// Role of the column.
    pub role: Role,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Source of timestamps.
    pub mode: Mode,
    /// All columns: partition key, clustering, static, regular.
    pub columns: Vec<Column>,
    /// Few values of each key column; statements take theirs from here most of the time.
    pub keys: Vec<(String, Vec<Literal>)>,
    /// `default_time_to_live`.
    pub default_ttl: u32,
    /// Rows may be inserted with a TTL that runs out; then each query reads every column.
    ///
    /// Cassandra skips cells that are older than the marker of their row and that the query does
    /// not select, even when the marker has expired. So a row's existence depends on the selected
    /// columns.
    pub has_mortal_rows: bool,
    /// How often it was altered.
    pub alterations: usize,
    /// Its indexes.
    pub indexes: Vec<Index>,
    /// How many indexes it had.
    pub index_changes: usize,
}

impl Table {
    /// The table of a round.
    pub fn random(random: &mut Random, name: &str) -> Table {
        let mode = match random.below(10) {
            0 => Mode::Counters,
            1 | 2 => Mode::Clock,
            _ => Mode::Stated,
        };
        let mut columns = Vec::new();
        let mut add =
            |name: String, kind: Type, role: Role| columns.push(Column { name, kind, role });
        for n in 0..*random.pick(&[1, 1, 2, 3]) {
            add(format!("p{n}"), Type::key(random), Role::Partition);
        }
        let clusterings = *random.pick(&[0, 1, 1, 2, 2, 3]);
        for n in 0..clusterings {
            let descends = random.percent(35);
            add(format!("c{n}"), Type::key(random), Role::Clustering(descends));
        }
        let value = |random: &mut Random| match mode {
            Mode::Counters => Type::Native("counter"),
            _ => Type::regular(random),
        };
        if clusterings > 0 {
            for n in 0..*random.pick(&[0, 0, 1, 2]) {
                add(format!("s{n}"), value(random), Role::Static);
            }
        }
        let fewest = usize::from(mode == Mode::Counters);
        for n in 0..(*random.pick(&[0, 1, 2, 2, 3, 4])).max(fewest) {
            let name = if random.percent(5) { format!("\"R {n}\"") } else { format!("r{n}") };
            add(name, value(random), Role::Regular);
        }
        let keys = columns
            .iter()
            .filter(|column| matches!(column.role, Role::Partition | Role::Clustering(_)))
            .map(|column| {
                let count = if column.role == Role::Partition { 3 } else { 4 };
                let values = (0..count).map(|_| column.kind.value(random)).collect();
                (column.name.clone(), values)
            })
            .collect();
        let default_ttl = if mode != Mode::Counters && random.percent(8) { 5000 } else { 0 };
        let has_mortal_rows = random.percent(30);
        let name = name.to_owned();
        Table {
            name,
            mode,
            columns,
            keys,
            default_ttl,
            has_mortal_rows,
            alterations: 0,
            indexes: Vec::new(),
            index_changes: 0,
        }
    }

    fn is_indexed(&self, column: &str) -> bool {
        self.indexes.iter().any(|index| index.column == column)
    }

    /// The columns of a role; the direction of clusterings does not count.
    #[must_use]
    pub fn of(&self, role: Role) -> Vec<&Column> {
        let same = |column: &&Column| {
            std::mem::discriminant(&column.role) == std::mem::discriminant(&role)
        };
        self.columns.iter().filter(same).collect()
    }

    /// The partition key.
    #[must_use]
    pub fn partition(&self) -> Vec<&Column> {
        self.of(Role::Partition)
    }

    /// The clustering.
    #[must_use]
    pub fn clustering(&self) -> Vec<&Column> {
        self.of(Role::Clustering(false))
    }

    /// Static and regular columns.
    #[must_use]
    pub fn values(&self) -> Vec<&Column> {
        let mut of = self.of(Role::Static);
        of.extend(self.of(Role::Regular));
        of
    }

    /// A literal for a column: of a key column mostly one of few.
    pub fn literal(&self, column: &Column, random: &mut Random) -> String {
        let few = self.keys.iter().find(|(name, _)| *name == column.name);
        match few {
            Some((_, few)) if !random.percent(4) => random.pick(few).marked(),
            _ => column.kind.literal(random),
        }
    }

    /// `ALTER TABLE`, which the table follows.
    pub fn alter(&mut self, random: &mut Random) -> String {
        let name = self.name.clone();
        self.alterations += 1;
        match random.below(5) {
            0 | 1 => {
                let role = match random.percent(15) && !self.clustering().is_empty() {
                    true => Role::Static,
                    false => Role::Regular,
                };
                let kind = match self.mode {
                    Mode::Counters => Type::Native("counter"),
                    _ => Type::regular(random),
                };
                let is_static = if role == Role::Static { " static" } else { "" };
                let column = Column { name: format!("n{}", self.alterations), kind, role };
                let text =
                    format!("ALTER TABLE {name} ADD {} {}{is_static}", column.name, column.kind);
                self.columns.push(column);
                text
            }
            // The last value stays: a table of counters without counters is another one.
            2 | 3 if self.of(Role::Regular).len() > 1 => {
                let gone = random.pick(&self.of(Role::Regular)).name.clone();
                // An indexed column stays: both servers refuse to drop or rename it.
                if !self.is_indexed(&gone) {
                    self.columns.retain(|column| column.name != gone);
                }
                format!("ALTER TABLE {name} DROP {gone}")
            }
            4 => {
                let keys: Vec<usize> = (0..self.columns.len())
                    .filter(|at| {
                        let role = self.columns.get(*at).map(|column| column.role);
                        matches!(role, Some(Role::Partition | Role::Clustering(_)))
                    })
                    .collect();
                let new = format!("k{}", self.alterations);
                let at = *random.pick(&keys);
                if let Some(column) = self.columns.get(at)
                    && self.is_indexed(&column.name)
                {
                    return format!("ALTER TABLE {name} RENAME {} TO {new}", column.name);
                }
                let Some(column) = self.columns.get_mut(at) else { return String::new() };
                let old = std::mem::replace(&mut column.name, new.clone());
                for (of, _) in self.keys.iter_mut().filter(|(of, _)| *of == old) {
                    of.clone_from(&new);
                }
                format!("ALTER TABLE {name} RENAME {old} TO {new}")
            }
            // Refused in different ways.
            2 => format!("ALTER TABLE {name} DROP {}", random.pick(&["nosuch", "p0", "c0"])),
            _ => {
                let odd =
                    ["ADD p0 int", "RENAME r0 TO x", "RENAME p0 TO r0", "ADD x nosuch", "DROP p0"];
                format!("ALTER TABLE {name} {}", random.pick(&odd))
            }
        }
    }

    /// `CREATE INDEX`, which the table follows.
    pub fn create_index(&mut self, random: &mut Random) -> String {
        self.index_changes += 1;
        let column = random.pick(&self.columns);
        let (name, number) = (&self.name, self.index_changes);
        let (index, text) = index::create(name, number, &column.name, &column.kind, random);
        self.indexes.push(index);
        text
    }

    /// `DROP INDEX`, which the table follows.
    pub fn drop_index(&mut self, random: &mut Random) -> String {
        let exists = if random.percent(20) { "IF EXISTS " } else { "" };
        if self.indexes.is_empty() || random.percent(5) {
            return format!("DROP INDEX {exists}{}_nosuch", self.name);
        }
        let index = self.indexes.remove(random.below(self.indexes.len()));
        format!("DROP INDEX {exists}{}", index.name)
    }

    /// `CREATE TABLE`.
    #[must_use]
    pub fn create(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|column| {
                let is_static = if column.role == Role::Static { " static" } else { "" };
                format!("{} {}{is_static}", column.name, column.kind)
            })
            .collect();
        let names = |columns: Vec<&Column>| {
            columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(", ")
        };
        let (partition, clustering) = (names(self.partition()), names(self.clustering()));
        let key = match clustering.is_empty() {
            true => format!("({partition})"),
            false => format!("({partition}), {clustering}"),
        };
        let orders: Vec<String> = self
            .clustering()
            .iter()
            .map(|column| {
                let descends = column.role == Role::Clustering(true);
                format!("{} {}", column.name, if descends { "DESC" } else { "ASC" })
            })
            .collect();
        let mut options = Vec::new();
        if !orders.is_empty() {
            options.push(format!("CLUSTERING ORDER BY ({})", orders.join(", ")));
        }
        if self.default_ttl > 0 {
            options.push(format!("default_time_to_live = {}", self.default_ttl));
        }
        let with = match options.is_empty() {
            true => String::new(),
            false => format!(" WITH {}", options.join(" AND ")),
        };
        format!("CREATE TABLE {} ({}, PRIMARY KEY ({key})){with}", self.name, columns.join(", "))
    }
}
