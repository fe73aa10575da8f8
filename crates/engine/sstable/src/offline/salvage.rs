//! Opens a damaged file set as far as possible. Reading rows needs Data, Statistics and, when
//! compressed, CompressionInfo. Everything else can be rebuilt.

use rt::Fs;
use schema::Table;
use sst_format::checksums::{Checksums, DataCrc};
use sst_format::component::{decode_toc, encode_toc};
use sst_format::partitions::Footer;
use sst_format::summary::SummaryBuilder;
use sst_format::{
    BloomFilter, Component, Descriptor, FormatError, Partitioner, Statistics, Summary, Version,
};

use crate::meta::{Components, Purpose, SstableMeta, check_identity, index_component};
use crate::reader::{SMALL_COMPONENT_BYTES_MAX, is_not_found, read_tail};
use crate::set_files::{ComponentFile, SetFiles};
use crate::{Result, SstableError, SstableReader};

/// The opened parts of a file set.
pub(super) struct Salvaged {
    pub(super) reader: SstableReader,
    /// The index can be asked for places of partitions.
    pub(super) has_index: bool,
    /// Components that are damaged or lost, with the error.
    pub(super) bad: Vec<String>,
}

/// Opens a file set, or the remains of a damaged one. `table`: see [`SstableMeta::open`].
///
/// # Errors
/// Errors that prevent any reading of rows.
pub(super) async fn open(
    fs: &Fs,
    directory: &str,
    set: Descriptor,
    table: Option<&Table>,
) -> Result<Salvaged> {
    let whole = SstableReader::open(fs, directory, set, table).await;
    if !whole.as_ref().is_err_and(SstableError::is_damage) {
        return whole.map(|reader| Salvaged { reader, has_index: true, bad: Vec::new() });
    }
    let path = |c: Component| format!("{directory}/{}", set.file_name(c));
    // Without its key nothing of an encrypted set can be read.
    let files = SetFiles::open(fs, directory, set).await?;
    let mut components = Components { is_sealed: files.is_sealed(), ..Components::default() };
    let mut there = Vec::new();
    let mut bad = Vec::new();
    for component in Component::ALL.into_iter().filter(Component::is_small) {
        match files.read(component, SMALL_COMPONENT_BYTES_MAX).await {
            Ok(bytes) => {
                there.push(component);
                components.small.push((component, bytes));
            }
            Err(e) if is_not_found(&e) => {}
            Err(e) => bad.push(format!("{component}: {e}")),
        }
    }
    check_compression(&components, &path(Component::CompressionInfo))?;
    check_statistics(&components, set.version, &path(Component::Statistics))?;
    let data = files.open_file(Component::Data, true).await;
    let data = data.map_err(|error| match error {
        SstableError::Corrupt { .. } => error,
        _ => SstableError::Missing { file: path(Component::Data) },
    })?;
    components.data_length = data.len().await?;
    let mut has_index = true;
    let index_of = index_component(set.version);
    let index = match files.open_file(index_of, true).await {
        Ok(file) => file,
        Err(e) => {
            bad.push(format!("{index_of}: {e}"));
            has_index = false;
            data.clone()
        }
    };
    let mut rows = None;
    if has_index && let Err(e) = read_index(&index, set, &mut components).await {
        bad.push(format!("{index_of}: {e}"));
        has_index = false;
    }
    if set.version.is_bti() {
        match files.open_file(Component::Rows, true).await {
            Ok(file) => {
                components.rows_length = file.len().await?;
                rows = Some(file);
            }
            Err(e) => {
                bad.push(format!("{}: {e}", Component::Rows));
                has_index = false;
            }
        }
    }
    let is_needed_bad = set_bad_aside(set, &mut components, &mut bad);
    // Stand-ins, so that the rest opens.
    let missing = |list: &Components, c| !list.small.iter().any(|(found, _)| *found == c);
    if missing(&components, Component::Toc) {
        let mut names = vec![Component::Data, index_of];
        names.extend(there);
        components.small.push((Component::Toc, encode_toc(&names)));
    }
    let failed = |error: FormatError| SstableError::of_format(&path(Component::Data), 0, &error);
    if set.version.is_bti() {
        if Footer::decode(&components.index_tail, components.index_length).is_err() {
            bad.push(format!("{}: its end cannot be read", Component::Partitions));
            has_index = false;
            let footer = Footer { first: Vec::new(), last: Vec::new(), count: 1, root: 0 };
            components.index_tail.clear();
            footer.encode(1, &mut components.index_tail).map_err(failed)?;
            components.index_length = components.index_tail.len() as u64 + 1;
        }
    } else if missing(&components, Component::Summary) {
        let mut summary = SummaryBuilder::new(128);
        summary.add(&[], 0);
        let bytes = summary.finish(&[]).encode().map_err(failed)?;
        components.small.push((Component::Summary, bytes));
    }
    let meta = match SstableMeta::open_for(Purpose::Salvage, directory, set, table, &components) {
        // The cause is a damaged name of a compressor, say, and not an unknown compressor.
        Err(SstableError::Unsupported { .. }) if is_needed_bad => {
            return Err(whole
                .err()
                .unwrap_or(SstableError::Missing { file: path(Component::Toc) }));
        }
        meta => meta?,
    };
    if bad.is_empty()
        && let Err(error) = whole
    {
        bad.push(error.to_string());
    }
    Ok(Salvaged { reader: SstableReader::of_parts(meta, data, index, rows), has_index, bad })
}

async fn read_index(
    index: &ComponentFile,
    set: Descriptor,
    components: &mut Components,
) -> Result<()> {
    components.index_length = index.len().await?;
    if set.version.is_bti() {
        components.index_tail = read_tail(index, components.index_length).await?;
    }
    Ok(())
}

/// Without its CompressionInfo the chunks of a compressed file would be treated as rows. TOC.txt
/// and Checksums.db list it if there was one; where both are lost, a CRC.db proves that there was
/// none.
fn check_compression(components: &Components, path: &str) -> Result<()> {
    let read = |c| components.small.iter().find(|(found, _)| *found == c).map(|(_, bytes)| bytes);
    let info = Component::CompressionInfo;
    let toc = read(Component::Toc).and_then(|bytes| decode_toc(bytes).ok());
    let sums = read(Component::Checksums).and_then(|bytes| Checksums::decode(bytes).ok());
    let is_known = toc.is_some() || sums.is_some() || read(Component::Crc).is_some();
    let is_named = toc.is_some_and(|toc| toc.contains(&info))
        || sums.is_some_and(|list| list.component(info).is_some());
    match read(info).is_none() && (is_named || !is_known) {
        true => Err(SstableError::Missing { file: path.to_owned() }),
        false => Ok(()),
    }
}

/// With the Statistics.db of another file set rows would have other times than they were written with.
fn check_statistics(components: &Components, version: Version, path: &str) -> Result<()> {
    let read = |c| components.small.iter().find(|(found, _)| *found == c).map(|(_, bytes)| bytes);
    let list = read(Component::Checksums).and_then(|bytes| Checksums::decode(bytes).ok());
    let binding = list.and_then(|list| list.binding);
    if let (Some(binding), Some(bytes)) = (binding, read(Component::Statistics))
        && Statistics::identity(bytes, version).is_ok()
    {
        let checked = check_identity(&binding, bytes, version);
        return checked.map_err(|e| SstableError::of_format(path, 0, &e));
    }
    Ok(())
}

/// Removes damaged components from the list if reading works without them. Returns true if a needed
/// one is damaged.
fn set_bad_aside(set: Descriptor, components: &mut Components, bad: &mut Vec<String>) -> bool {
    let checksums = components.small.iter().find(|(c, _)| *c == Component::Checksums);
    let checksums = checksums.and_then(|(_, bytes)| Checksums::decode(bytes).ok());
    let lengths = [
        (Component::Data, components.data_length),
        (index_component(set.version), components.index_length),
        (Component::Rows, components.rows_length),
    ];
    // With other lengths it would stand against opening; chunks have checksums of their own.
    let (mut is_useless, mut is_needed_bad) = (false, false);
    for (component, length) in lengths {
        let listed = checksums.as_ref().and_then(|list| list.component(component));
        if let Some(listed) = listed
            && listed.length != length
        {
            bad.push(format!("{component}: {length} bytes instead of {}", listed.length));
            is_useless = true;
        }
    }
    components.small.retain(|(component, bytes)| {
        let error = match component {
            Component::Statistics | Component::CompressionInfo => None,
            Component::Checksums => Checksums::decode(bytes).err(),
            Component::Toc => decode_toc(bytes).err(),
            Component::Filter => BloomFilter::decode(bytes, set.version).err(),
            Component::Crc => DataCrc::decode(bytes).err(),
            Component::Digest => sst_format::checksums::decode_digest(bytes).err(),
            Component::Summary => {
                let orders = [Partitioner::Murmur3, Partitioner::ByteOrdered];
                let read = orders.map(|order| Summary::decode(bytes, order).err());
                let [first, second] = read;
                second.and(first)
            }
            _ => None,
        };
        let listed = checksums.as_ref().and_then(|list| list.component(*component));
        let error = error.or_else(|| listed.and_then(|list| list.verify_all(bytes).err()));
        match error {
            Some(error) => {
                bad.push(format!("{component}: {error}"));
                // Without these nothing can be read; they are tried as they are.
                is_needed_bad |= needed(*component);
                needed(*component)
            }
            None => true,
        }
    });
    let lost = checksums.iter().flat_map(|list| &list.components).any(|listed| {
        listed.component.is_small() && !components.small.iter().any(|(c, _)| *c == listed.component)
    });
    if is_useless || is_needed_bad || lost {
        components.small.retain(|(c, _)| *c != Component::Checksums);
    }
    is_needed_bad
}

fn needed(component: Component) -> bool {
    matches!(component, Component::Statistics | Component::CompressionInfo)
}
