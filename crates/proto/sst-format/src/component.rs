//! Component names and descriptors.

use std::fmt;

use stdx::Generation;

/// One file of an SSTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// Partitions and rows.
    Data,
    /// Partition keys with positions, promoted column index.
    Index,
    /// Sample of the index, first and last key.
    Summary,
    /// Bloom filter of partition keys.
    Filter,
    /// Statistics and serialization header.
    Statistics,
    /// Offsets of compressed chunks.
    CompressionInfo,
    /// CRC32 of the whole Data file, in decimal.
    Digest,
    /// CRC32 of each 64 KiB of an uncompressed Data file.
    Crc,
    /// List of components.
    Toc,
    /// Our own: CRC32 of each 64 KiB of every other component.
    Checksums,
}

impl Component {
    /// All, in the order in which they are written.
    pub const ALL: [Component; 10] = [
        Component::Data,
        Component::Index,
        Component::CompressionInfo,
        Component::Crc,
        Component::Digest,
        Component::Filter,
        Component::Statistics,
        Component::Summary,
        Component::Checksums,
        Component::Toc,
    ];

    /// The end of its file name.
    pub fn file_name(self) -> &'static str {
        match self {
            Component::Data => "Data.db",
            Component::Index => "Index.db",
            Component::Summary => "Summary.db",
            Component::Filter => "Filter.db",
            Component::Statistics => "Statistics.db",
            Component::CompressionInfo => "CompressionInfo.db",
            Component::Digest => "Digest.crc32",
            Component::Crc => "CRC.db",
            Component::Toc => "TOC.txt",
            Component::Checksums => "Checksums.db",
        }
    }

    /// The component of that file-name end.
    pub fn from_file_name(name: &str) -> Option<Component> {
        Component::ALL.into_iter().find(|c| c.file_name() == name)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_name())
    }
}

/// Version and generation of one SSTable, the start of its file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    /// The generation; unique per table.
    pub generation: Generation,
}

impl Descriptor {
    /// The version this crate reads and writes.
    pub const VERSION: &'static str = "nb";

    /// `nb-<generation>-big-<component>`.
    pub fn file_name(self, component: Component) -> String {
        format!("{}-{}-big-{}", Self::VERSION, self.generation.0, component.file_name())
    }

    /// Parses a file name. `None`: not a component of an SSTable of this version (another version,
    /// a UUID generation, a temporary or foreign file).
    pub fn parse(file_name: &str) -> Option<(Descriptor, Component)> {
        let rest = file_name.strip_prefix(Self::VERSION)?.strip_prefix('-')?;
        let (generation, rest) = rest.split_once('-')?;
        if generation.is_empty() || !generation.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let component = Component::from_file_name(rest.strip_prefix("big-")?)?;
        let generation = Generation(generation.parse().ok()?);
        Some((Descriptor { generation }, component))
    }
}

/// The text of TOC.txt for these components.
pub fn encode_toc(components: &[Component]) -> Vec<u8> {
    let mut out = String::new();
    for component in components {
        out.push_str(component.file_name());
        out.push('\n');
    }
    out.into_bytes()
}

/// The known components that a TOC.txt lists; unknown ones (secondary indexes) are passed over.
///
/// # Errors
/// Text that is not UTF-8, or a list without the Data file.
pub fn decode_toc(bytes: &[u8]) -> crate::Result<Vec<Component>> {
    let text = codec::Reader::new(bytes, "table of contents").utf8(bytes.len())?;
    let components: Vec<Component> =
        text.lines().filter_map(|l| Component::from_file_name(l.trim())).collect();
    if !components.contains(&Component::Data) {
        return Err(crate::FormatError::Invalid {
            what: "the table of contents does not list Data.db",
            offset: 0,
        });
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_come_back_and_foreign_names_are_not_taken() {
        let d = Descriptor { generation: Generation(17) };
        for c in Component::ALL {
            assert_eq!(Descriptor::parse(&d.file_name(c)), Some((d, c)));
        }
        assert_eq!(d.file_name(Component::Data), "nb-17-big-Data.db");
        for name in
            ["nb--big-Data.db", "da-1-bti-Data.db", "nb-1-big-Data.db.tmp", "nb-+1-big-Data.db"]
        {
            assert_eq!(Descriptor::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_table_of_contents_keeps_known_names_and_needs_data() {
        let list = [Component::Data, Component::Index, Component::Toc];
        assert_eq!(decode_toc(&encode_toc(&list)).unwrap(), list);
        assert_eq!(decode_toc(b"Data.db\nSAI+aa.db\n").unwrap(), [Component::Data]);
        assert!(decode_toc(b"Index.db\n").is_err());
        assert!(decode_toc(&[0xff]).is_err());
    }
}
