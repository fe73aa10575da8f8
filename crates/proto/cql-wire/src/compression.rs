//! Compression of frames and segments.

/// A compression that STARTUP can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// `lz4`.
    Lz4,
    /// `snappy`; not in v5.
    Snappy,
}

impl Compression {
    /// All, in the order in which Cassandra lists them in SUPPORTED.
    pub const ALL: [Compression; 2] = [Compression::Snappy, Compression::Lz4];

    /// The string on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::Lz4 => "lz4",
            Compression::Snappy => "snappy",
        }
    }

    /// The name in messages.
    pub(crate) const fn display_name(self) -> &'static str {
        match self {
            Compression::Lz4 => "LZ4",
            Compression::Snappy => "Snappy",
        }
    }
}
