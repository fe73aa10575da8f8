//! Values of a type from numbers, and the numbers of values.
//!
//! The number of a value below 2^bits is multiplied by an odd constant, which spreads small numbers
//! over the type and is invertible. The order of a type is the order of the products.

/// Odd, so that multiplication by it can be undone.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Digits after the point of decimals.
const SCALE: i32 = 2;

/// A type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are named after the CQL types")]
pub enum Kind {
    Bigint,
    Blob,
    Boolean,
    Date,
    Decimal,
    Double,
    Inet,
    Int,
    Smallint,
    Text,
    Time,
    Timestamp,
    Tinyint,
    Uuid,
    Varint,
}

/// All of them.
pub const KINDS: [Kind; 15] = [
    Kind::Bigint,
    Kind::Blob,
    Kind::Boolean,
    Kind::Date,
    Kind::Decimal,
    Kind::Double,
    Kind::Inet,
    Kind::Int,
    Kind::Smallint,
    Kind::Text,
    Kind::Time,
    Kind::Timestamp,
    Kind::Tinyint,
    Kind::Uuid,
    Kind::Varint,
];

/// The inverse of an odd number modulo 2^64.
fn inverse(of: u64) -> u64 {
    // Newton's iteration doubles the digits that are right, from the three that any odd number has.
    (0..5).fold(of, |x, _| x.wrapping_mul(2_u64.wrapping_sub(of.wrapping_mul(x))))
}

/// The shortest two's complement of a number that is not negative.
fn varint(value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(7);
    let rest = bytes.get(zeros..).unwrap_or_default();
    let is_negative = rest.first().is_some_and(|byte| byte & 0x80 != 0);
    std::iter::repeat_n(0, usize::from(is_negative)).chain(rest.iter().copied()).collect()
}

fn of_varint(bytes: &[u8]) -> Option<u64> {
    let value = bytes.iter().try_fold(0_u64, |value, byte| {
        (value >> 56 == 0).then_some(value << 8 | u64::from(*byte))
    })?;
    (varint(value) == bytes).then_some(value)
}

impl Kind {
    /// Its name in CQL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bigint => "bigint",
            Self::Blob => "blob",
            Self::Boolean => "boolean",
            Self::Date => "date",
            Self::Decimal => "decimal",
            Self::Double => "double",
            Self::Inet => "inet",
            Self::Int => "int",
            Self::Smallint => "smallint",
            Self::Text => "text",
            Self::Time => "time",
            Self::Timestamp => "timestamp",
            Self::Tinyint => "tinyint",
            Self::Uuid => "uuid",
            Self::Varint => "varint",
        }
    }

    /// It has 2^this different values here.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Boolean => 1,
            Self::Tinyint => 8,
            Self::Smallint => 16,
            Self::Date | Self::Inet | Self::Int => 32,
            Self::Time | Self::Timestamp => 44,
            Self::Double => 48,
            Self::Uuid => 60,
            Self::Decimal => 63,
            Self::Bigint | Self::Blob | Self::Text | Self::Varint => 64,
        }
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// Spreads a number over the type's range: values of the type have this order.
    #[must_use]
    pub fn rank(self, number: u64) -> u64 {
        number.wrapping_mul(SPREAD) & self.mask()
    }

    /// The serialised value of a number.
    #[must_use]
    pub fn bytes(self, number: u64) -> Vec<u8> {
        let rank = self.rank(number);
        // Signed types: the smallest rank is the smallest negative number.
        let low = |bytes: usize| rank.to_be_bytes().get(8 - bytes..).unwrap_or_default().to_vec();
        let signed = |bytes: usize| {
            let mut all = low(bytes);
            if let Some(first) = all.first_mut() {
                *first ^= 0x80;
            }
            all
        };
        match self {
            Self::Boolean => low(1),
            Self::Tinyint => signed(1),
            Self::Smallint => signed(2),
            Self::Int => signed(4),
            Self::Bigint => signed(8),
            Self::Date | Self::Inet => low(4),
            Self::Blob | Self::Time | Self::Timestamp => low(8),
            Self::Text => format!("{rank:016x}").into_bytes(),
            // Exact: it has 48 bits.
            Self::Double => (rank as f64).to_be_bytes().to_vec(),
            Self::Decimal => [SCALE.to_be_bytes().to_vec(), varint(rank)].concat(),
            Self::Varint => varint(rank),
            Self::Uuid => {
                [0x4000_u64.to_be_bytes(), (0x8000_0000_0000_0000 | rank).to_be_bytes()].concat()
            }
        }
    }

    /// The number of a serialised value; `None` when no number has it.
    #[must_use]
    pub fn number(self, bytes: &[u8]) -> Option<u64> {
        let tail = |count: usize| {
            let part = bytes.get(bytes.len().checked_sub(count)?..)?;
            Some(part.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        };
        let rank = match self {
            Self::Boolean => tail(1)?,
            Self::Tinyint => tail(1)? ^ 0x80,
            Self::Smallint => tail(2)? ^ 0x8000,
            Self::Int => tail(4)? ^ 0x8000_0000,
            Self::Bigint => tail(8)? ^ 0x8000_0000_0000_0000,
            Self::Date | Self::Inet => tail(4)?,
            Self::Blob | Self::Time | Self::Timestamp => tail(8)?,
            Self::Text => u64::from_str_radix(std::str::from_utf8(bytes).ok()?, 16).ok()?,
            Self::Double => f64::from_be_bytes(bytes.try_into().ok()?) as u64,
            Self::Decimal => of_varint(bytes.get(4..)?)?,
            Self::Varint => of_varint(bytes)?,
            Self::Uuid => tail(8)? & !0x8000_0000_0000_0000,
        };
        let number = rank.wrapping_mul(inverse(SPREAD)) & self.mask();
        (self.bytes(number) == bytes).then_some(number)
    }

    /// The value of a number as a literal.
    #[must_use]
    pub fn literal(self, number: u64) -> String {
        let rank = self.rank(number);
        let middle = 1_i128 << (self.bits() - 1);
        match self {
            Self::Boolean => (rank == 1).to_string(),
            Self::Tinyint | Self::Smallint | Self::Int | Self::Bigint => {
                (i128::from(rank) - middle).to_string()
            }
            Self::Date | Self::Time | Self::Timestamp | Self::Varint => rank.to_string(),
            Self::Blob => format!("0x{rank:016x}"),
            Self::Text => format!("'{rank:016x}'"),
            Self::Double => format!("{rank}.0"),
            Self::Decimal => format!("{}.{:02}", rank / 100, rank % 100),
            Self::Inet => {
                let bytes: Vec<String> =
                    self.bytes(number).iter().map(ToString::to_string).collect();
                format!("'{}'", bytes.join("."))
            }
            Self::Uuid => {
                let low = 0x8000_0000_0000_0000 | rank;
                format!("00000000-0000-4000-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
            }
        }
    }
}
