//! Component names and descriptors.

use std::fmt;

use stdx::Generation;

use crate::Version;
use crate::attached::AttachedName;

/// One file of an SSTable: one of the fixed kinds, or one that an extension attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// Partitions and rows.
    Data,
    /// Partition keys with positions, promoted column index.
    Index,
    /// Sample of the index, first and last key.
    Summary,
    /// Format BTI: a trie of partition keys.
    Partitions,
    /// Format BTI: tries of the rows of wide partitions.
    Rows,
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
    /// Our own: the record of the key that the other components are encrypted with. See
    /// `docs/formats/encryption.md`.
    Encryption,
    /// Neither of them: of a secondary index, for example. See [`crate::attached`].
    Attached(AttachedName),
}

impl Component {
    /// All fixed kinds, in the order in which TOC.txt lists them. Positions are numbers of the streaming protocol.
    pub const ALL: [Component; 13] = [
        Component::Data,
        Component::Index,
        Component::Partitions,
        Component::Rows,
        Component::CompressionInfo,
        Component::Crc,
        Component::Digest,
        Component::Filter,
        Component::Statistics,
        Component::Summary,
        Component::Checksums,
        Component::Toc,
        Component::Encryption,
    ];

    /// The end of its file name.
    pub fn file_name(&self) -> &str {
        match self {
            Component::Attached(name) => name.as_str(),
            Component::Data => "Data.db",
            Component::Index => "Index.db",
            Component::Summary => "Summary.db",
            Component::Partitions => "Partitions.db",
            Component::Rows => "Rows.db",
            Component::Filter => "Filter.db",
            Component::Statistics => "Statistics.db",
            Component::CompressionInfo => "CompressionInfo.db",
            Component::Digest => "Digest.crc32",
            Component::Crc => "CRC.db",
            Component::Toc => "TOC.txt",
            Component::Checksums => "Checksums.db",
            Component::Encryption => "Encryption.db",
        }
    }

    /// The component of a fixed kind with that file-name end.
    pub fn from_file_name(name: &str) -> Option<Component> {
        Component::ALL.into_iter().find(|c| c.file_name() == name)
    }

    /// The component with that file-name end, of a fixed kind or attached. `None`: no component has
    /// such a name ([`AttachedName::parse`]).
    pub fn any_from_file_name(name: &str) -> Option<Component> {
        let attached = || AttachedName::parse(name).map(Component::Attached);
        Component::from_file_name(name).or_else(attached)
    }

    /// Returns true if it is of a fixed kind and is read block by block.
    pub fn is_large(&self) -> bool {
        matches!(self, Component::Data | Component::Index | Component::Partitions | Component::Rows)
    }

    /// Returns true if it is read whole when a file set is opened. An attached component is neither
    /// large nor small: its owner reads it.
    pub fn is_small(&self) -> bool {
        !self.is_large() && !self.is_attached()
    }

    /// Returns true if it is stored verbatim also in an encrypted file set: the list of the components, and the
    /// record of the key.
    pub fn is_in_the_clear(&self) -> bool {
        matches!(self, Component::Toc | Component::Encryption)
    }

    /// Returns true if it is not of a fixed kind.
    pub fn is_attached(&self) -> bool {
        matches!(self, Component::Attached(_))
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_name())
    }
}

/// The text of an identifier that is a UUID: three groups of base-36 digits for its time (days,
/// seconds, 100 ns), then the rest of it. Source: `io.sstable.UUIDBasedSSTableId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UuidName([u8; UuidName::LENGTH]);

impl UuidName {
    const LENGTH: usize = 28;

    fn parse(text: &str) -> Option<UuidName> {
        let bytes = *text.as_bytes().first_chunk::<{ Self::LENGTH }>()?;
        let is_digit = |b: &u8| b.is_ascii_digit() || b.is_ascii_lowercase();
        let well_formed = bytes.iter().enumerate().all(|(i, b)| match i {
            4 | 9 => *b == b'_',
            _ => is_digit(b),
        });
        (well_formed && text.len() == Self::LENGTH).then_some(UuidName(bytes))
    }

    /// Returns the text, as in the file name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// A number that stands for it: the top bit set, and a hash of the text. Two of one table may
    /// have the same, which the caller must refuse.
    fn generation(&self) -> Generation {
        let hash = crate::hyperloglog::murmur2_64(&self.0);
        Generation(hash | Descriptor::UUID_GENERATION)
    }
}

/// Version and generation of one SSTable, the start of its file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    /// The generation; unique per table.
    pub generation: Generation,
    /// Version of the format.
    pub version: Version,
    uuid: Option<UuidName>,
}

impl Descriptor {
    /// Set in the generation that stands for a name with a UUID.
    pub const UUID_GENERATION: u64 = 1 << 63;

    /// A file set with a number for a name.
    pub fn new(version: Version, generation: Generation) -> Descriptor {
        Descriptor { generation, version, uuid: None }
    }

    /// A file set of version `nb`.
    pub fn nb(generation: Generation) -> Descriptor {
        Descriptor::new(Version::Nb, generation)
    }

    /// The identifier as it stands in file names: a number or a UUID.
    pub fn id(&self) -> String {
        match &self.uuid {
            Some(uuid) => uuid.as_str().to_owned(),
            None => self.generation.0.to_string(),
        }
    }

    /// `<version>-<id>-<format>`, the start of all its file names.
    pub fn prefix(&self) -> String {
        format!("{}-{}-{}", self.version, self.id(), self.version.format())
    }

    /// `<version>-<id>-<format>-<component>`.
    pub fn file_name(&self, component: Component) -> String {
        format!("{}-{}", self.prefix(), component.file_name())
    }

    /// Parses the file name of a component of a fixed kind. `None`: not one of an SSTable that can be read
    /// (another version, a temporary or foreign file, an attached component: see
    /// [`Descriptor::parse_any`]).
    pub fn parse(file_name: &str) -> Option<(Descriptor, Component)> {
        let (descriptor, component) = Descriptor::parse_any(file_name)?;
        Some((descriptor, Component::from_file_name(component)?))
    }

    /// Like [`Descriptor::parse`], but returns the rest after the format's name as the component.
    pub fn parse_any(file_name: &str) -> Option<(Descriptor, &str)> {
        let (version, rest) = file_name.split_once('-')?;
        let version = Version::from_letters(version)?;
        let (id, rest) = rest.split_once('-')?;
        let component = rest.strip_prefix(version.format())?.strip_prefix('-')?;
        if let Some(uuid) = UuidName::parse(id) {
            let generation = uuid.generation();
            return Some((Descriptor { generation, version, uuid: Some(uuid) }, component));
        }
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let generation: u64 = id.parse().ok()?;
        if generation >= Descriptor::UUID_GENERATION {
            return None;
        }
        Some((Descriptor::new(version, Generation(generation)), component))
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

/// The components that a TOC.txt lists, attached ones among them, in its order. Lines that cannot be
/// components are ignored.
///
/// # Errors
/// Text that is not UTF-8, or a list without the Data file.
pub fn decode_toc(bytes: &[u8]) -> crate::Result<Vec<Component>> {
    let text = codec::Reader::new(bytes, "table of contents").utf8(bytes.len())?;
    let components: Vec<Component> =
        text.lines().filter_map(|l| Component::any_from_file_name(l.trim())).collect();
    if !components.contains(&Component::Data) {
        return Err(crate::FormatError::Invalid {
            what: "the table of contents does not list Data.db",
            offset: 0,
        });
    }
    Ok(components)
}

/// The names in a TOC.txt of components of no fixed kind, also those that are no [`AttachedName`]: they stay
/// listed, and are removed with the file set.
pub fn other_names_in_toc(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let names = text.lines().map(str::trim).filter(|name| {
        // Nothing but a name in the same directory.
        let is_name = !name.is_empty() && !name.contains(['/', '\0']) && !name.contains("..");
        is_name && Component::from_file_name(name).is_none()
    });
    names.map(str::to_owned).collect()
}

/// The attached components that a TOC.txt lists.
pub fn attached_in_toc(bytes: &[u8]) -> Vec<AttachedName> {
    other_names_in_toc(bytes).iter().filter_map(|name| AttachedName::parse(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_come_back_and_foreign_names_are_not_taken() {
        for version in Version::ALL {
            let d = Descriptor::new(version, Generation(17));
            for c in Component::ALL {
                assert_eq!(Descriptor::parse(&d.file_name(c)), Some((d, c)));
            }
        }
        let d = Descriptor::nb(Generation(17));
        assert_eq!(d.file_name(Component::Data), "nb-17-big-Data.db");
        for name in [
            "nb--big-Data.db",
            "da-1-big-Data.db",
            "nb-1-bti-Data.db",
            "lb-1-big-Data.db",
            "nc-1-big-Data.db",
            "nb-1-big-Data.db.tmp",
            "nb-+1-big-Data.db",
            "nb-9223372036854775808-big-Data.db",
            "Keyspace1-Standard1-ic-0-Data.db",
        ] {
            assert_eq!(Descriptor::parse(name), None, "{name}");
        }
        assert_eq!(Descriptor::parse_any("nb-17-big-SAI+aa.db"), Some((d, "SAI+aa.db")));
    }

    #[test]
    fn names_with_a_uuid_come_back_with_a_generation_of_their_own() {
        let name = "da-3gxy_0c1a_2rdl12ns5v5xyzabcd-bti-Data.db";
        let (d, component) = Descriptor::parse(name).unwrap();
        assert_eq!((d.version, component), (Version::Da, Component::Data));
        assert_eq!(d.file_name(component), name);
        assert_eq!(d.id(), "3gxy_0c1a_2rdl12ns5v5xyzabcd");
        assert!(d.generation.0 & Descriptor::UUID_GENERATION != 0);
        let other = "da-3gxy_0c1a_2rdl12ns5v5xyzabce-bti-Data.db";
        assert_ne!(Descriptor::parse(other).unwrap().0.generation, d.generation);
        for id in ["3gxy_0c1a_2rdl12ns5v5xyzabc", "3gxy-0c1a_2rdl12ns5v5xyzabcd", "3GXY_0c1a_x"] {
            assert_eq!(Descriptor::parse(&format!("da-{id}-bti-Data.db")), None, "{id}");
        }
    }

    #[test]
    fn a_table_of_contents_keeps_known_names_and_needs_data() {
        let sai = AttachedName::parse("SAI+aa.db").unwrap();
        let list = [Component::Data, Component::Index, Component::Toc, Component::Attached(sai)];
        assert_eq!(decode_toc(&encode_toc(&list)).unwrap(), list);
        assert_eq!(decode_toc(b"Data.db\n../x\na b.db\n").unwrap(), [Component::Data]);
        assert_eq!(other_names_in_toc(b"Data.db\nSAI+aa.db\na b\n../x\n\n"), ["SAI+aa.db", "a b"]);
        assert_eq!(attached_in_toc(b"Data.db\nSAI+aa.db\na b\n../x\n"), [sai]);
        assert!(decode_toc(b"Index.db\n").is_err());
        assert!(decode_toc(&[0xff]).is_err());
    }
}
