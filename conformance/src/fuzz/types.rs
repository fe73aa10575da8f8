//! Types of columns and literals for them, from small pools, so that statements meet each other.

use super::bound::Literal;
use super::random::Random;

/// A type as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// By its name.
    Native(&'static str),
    /// `list<..>`; whether it is frozen.
    List(Box<Type>, bool),
    /// `set<..>`.
    Set(Box<Type>, bool),
    /// `map<.., ..>`.
    Map(Box<Type>, Box<Type>, bool),
    /// `tuple<..>`.
    Tuple(Vec<Type>),
    /// The user-defined type [`UDT`].
    Udt(bool),
    /// `vector<float, n>`.
    Vector(usize),
}

/// Name of the one user-defined type.
pub const UDT: &str = "u";
/// Its fields.
pub const FIELDS: [(&str, &str); 3] = [("a", "int"), ("b", "text"), ("c", "frozen<set<int>>")];

/// The natives that may be keys.
const KEYS: [&str; 18] = [
    "int",
    "text",
    "int",
    "text",
    "bigint",
    "ascii",
    "blob",
    "boolean",
    "date",
    "double",
    "float",
    "inet",
    "smallint",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
];
/// The others.
const OTHERS: [&str; 3] = ["varint", "decimal", "duration"];

impl std::fmt::Display for Type {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let frozen = |is_frozen: bool, inner: String| match is_frozen {
            true => format!("frozen<{inner}>"),
            false => inner,
        };
        out.write_str(&match self {
            Self::Native(name) => (*name).to_owned(),
            Self::List(item, is_frozen) => frozen(*is_frozen, format!("list<{item}>")),
            Self::Set(item, is_frozen) => frozen(*is_frozen, format!("set<{item}>")),
            Self::Map(key, value, is_frozen) => frozen(*is_frozen, format!("map<{key}, {value}>")),
            Self::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                format!("tuple<{}>", parts.join(", "))
            }
            Self::Udt(is_frozen) => frozen(*is_frozen, UDT.to_owned()),
            Self::Vector(length) => format!("vector<float, {length}>"),
        })
    }
}

impl Type {
    fn native(random: &mut Random, of: &[&'static str]) -> Type {
        let name: &&str = random.pick(of);
        Type::Native(name)
    }

    /// A type of a key column.
    pub fn key(random: &mut Random) -> Type {
        if random.percent(6) {
            return match random.below(3) {
                0 => Type::List(Box::new(Type::Native("int")), true),
                1 => Type::Tuple(vec![Type::Native("int"), Type::Native("text")]),
                _ => Type::Set(Box::new(Type::Native("text")), true),
            };
        }
        Type::native(random, &KEYS)
    }

    /// A type of another column.
    pub fn regular(random: &mut Random) -> Type {
        let item = |random: &mut Random| {
            Box::new(match random.below(12) {
                0 => Type::Udt(true),
                1 => Type::Tuple(vec![Type::Native("int"), Type::Native("text")]),
                _ => Type::native(random, &["int", "text", "uuid"]),
            })
        };
        let is_frozen = random.percent(30);
        match random.below(20) {
            0..=8 => Type::native(random, &KEYS),
            9 => Type::native(random, &OTHERS),
            10 | 11 => Type::List(item(random), is_frozen),
            12 | 13 => Type::Set(item(random), is_frozen),
            14..=16 => Type::Map(item(random), item(random), is_frozen),
            17 => Type::Tuple(vec![Type::Native("int"), Type::Native("text")]),
            18 => Type::Udt(is_frozen),
            _ => Type::Vector(3),
        }
    }

    /// Returns true if its elements are cells of their own.
    #[must_use]
    pub fn is_multi_cell(&self) -> bool {
        matches!(
            self,
            Self::List(_, false) | Self::Set(_, false) | Self::Map(_, _, false) | Self::Udt(false)
        )
    }

    /// Returns true if it is a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        let numbers =
            ["int", "bigint", "smallint", "tinyint", "double", "float", "varint", "decimal"];
        matches!(self, Self::Native(name) if numbers.contains(name))
    }

    /// A literal of it, marked.
    pub fn literal(&self, random: &mut Random) -> String {
        self.value(random).marked()
    }

    /// A literal of it.
    pub fn value(&self, random: &mut Random) -> Literal {
        match self {
            Self::Native(name) => {
                let text = *random.pick(pool(name));
                Literal { text: text.to_owned(), bound: bound(name, text).to_owned() }
            }
            Self::List(item, _) => join(&items(random, item, 3), '[', ']'),
            Self::Set(item, _) => {
                let items = items(random, item, 3);
                let literal = join(&items, '{', '}');
                if items.len() > 1 { literal.never_bound() } else { literal }
            }
            Self::Map(key, value, _) => {
                let pair = |random: &mut Random| (key.value(random), value.value(random));
                let pairs: Vec<(Literal, Literal)> =
                    (0..random.below(3)).map(|_| pair(random)).collect();
                // Which of two values of one key counts is up to a hash table of Cassandra's.
                let same = matches!(pairs.as_slice(), [one, two] if one.0 == two.0);
                let pairs: Vec<Literal> = pairs
                    .into_iter()
                    .skip(usize::from(same))
                    .map(|(key, value)| Literal {
                        text: format!("{}: {}", key.text, value.text),
                        bound: format!("{}: {}", key.bound, value.bound),
                    })
                    .collect();
                let literal = join(&pairs, '{', '}');
                if pairs.len() > 1 { literal.never_bound() } else { literal }
            }
            Self::Tuple(parts) => {
                let parts: Vec<Literal> = parts
                    .iter()
                    .map(|part| match random.percent(10) {
                        true => Literal::same("null"),
                        false => part.value(random),
                    })
                    .collect();
                join(&parts, '(', ')')
            }
            Self::Udt(_) => {
                let fields = [
                    ("a", Type::Native("int")),
                    ("b", Type::Native("text")),
                    ("c", Type::Set(Box::new(Type::Native("int")), true)),
                ];
                let fields: Vec<Literal> = random
                    .some(&fields, 70)
                    .into_iter()
                    .map(|(name, kind)| (name, kind.clone()))
                    .map(|(name, kind)| {
                        let value = kind.value(random);
                        Literal {
                            text: format!("{name}: {}", value.text),
                            bound: format!("{name}: {}", value.bound),
                        }
                    })
                    .collect();
                match fields.is_empty() {
                    true => Literal::same("{a: 1}"),
                    false => join(&fields, '{', '}'),
                }
            }
            Self::Vector(length) => {
                let items: Vec<Literal> = (0..*length)
                    .map(|_| Literal::same(*random.pick(&["0.5", "1", "-2.25", "0"])))
                    .collect();
                join(&items, '[', ']')
            }
        }
    }
}

fn items(random: &mut Random, item: &Type, most: usize) -> Vec<Literal> {
    (0..random.below(most + 1)).map(|_| item.value(random)).collect()
}

fn join(parts: &[Literal], open: char, close: char) -> Literal {
    let all = |of: fn(&Literal) -> &str| {
        let parts: Vec<&str> = parts.iter().map(of).collect();
        format!("{open}{}{close}", parts.join(", "))
    };
    Literal { text: all(|part| &part.text), bound: all(|part| &part.bound) }
}

/// A literal of [`pool`] as a bound value.
fn bound(name: &str, text: &'static str) -> &'static str {
    match (name, text) {
        ("date", "'2020-01-01'") => "18262",
        ("date", "'1970-01-01'") => "0",
        ("date", "'1969-12-31'") => "-1",
        ("date", _) => "19782",
        ("time", "'00:00:00'") => "0",
        ("time", "'12:30:00.5'") => "45000500000000",
        ("time", _) => "86399999999999",
        ("timestamp", "'2020-01-01T00:00:00Z'") => "1577836800000",
        ("duration", "1d") => "raw(0x000200)",
        ("duration", "1mo2d") => "raw(0x020400)",
        ("duration", "P1Y") => "raw(0x180000)",
        ("duration", _) => "raw(0x000002)",
        ("decimal", "1e3") => "1000",
        (_, text) => text,
    }
}

fn pool(name: &str) -> &'static [&'static str] {
    match name {
        "int" => &["0", "1", "2", "3", "-1", "2147483647", "-2147483648"],
        "bigint" => &["0", "1", "2", "-1", "9223372036854775807", "-9223372036854775808"],
        "smallint" => &["0", "1", "2", "-1", "32767", "-32768"],
        "tinyint" => &["0", "1", "2", "-1", "127", "-128"],
        "varint" => &["0", "1", "-1", "255", "-256", "123456789012345678901234567890"],
        "decimal" => &["0", "1", "-1.5", "2.25", "1e3", "-0.001"],
        "double" => &["0.0", "1.0", "-1.5", "1e300", "NaN", "Infinity", "-Infinity"],
        "float" => &["0.0", "1.0", "-1.5", "1e30", "NaN", "Infinity"],
        "text" => &["'a'", "'b'", "'ab'", "''", "'Ä'", "'it''s'", "'c'"],
        "ascii" => &["'a'", "'b'", "'ab'", "''", "'z'"],
        "blob" => &["0x", "0x00", "0xff", "0x0001", "0xcafe"],
        "boolean" => &["true", "false"],
        "date" => &["'2020-01-01'", "'1970-01-01'", "'1969-12-31'", "'2024-02-29'"],
        "time" => &["'00:00:00'", "'12:30:00.5'", "'23:59:59.999999999'"],
        "timestamp" => &["0", "'2020-01-01T00:00:00Z'", "-1", "1700000000000"],
        "duration" => &["1d", "2h", "1mo2d", "P1Y", "-3s"],
        "inet" => &["'127.0.0.1'", "'10.0.0.1'", "'::1'", "'fe80::1'"],
        "uuid" => &[
            "00000000-0000-4000-8000-000000000001",
            "ffffffff-ffff-4fff-bfff-ffffffffffff",
            "12345678-1234-4234-9234-123456789abc",
            "00000000-0000-1000-8000-000000000000",
        ],
        "timeuuid" => &[
            "00000000-0000-1000-8000-000000000000",
            "d2177dd0-eaa2-11de-a572-001b779c76e3",
            "d2177dd0-eaa2-11de-a572-001b779c76e4",
            "d2177dd1-eaa2-11de-a572-001b779c76e3",
        ],
        _ => &["0"],
    }
}
