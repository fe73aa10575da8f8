//! Check of an encrypted file set whose key is not known: the checksums of its stored blocks.

use at_rest::{BLOCK_BYTES, TRAILER_BYTES, UnkeyedCheck};
use rt::{Buf, File, Fs, OpenOptions};
use sst_format::component::{decode_toc, other_names_in_toc};
use sst_format::{AttachedName, Component, Descriptor};
use stdx::IoErrorKind;

use crate::reader::TOC_BYTES_MAX;
use crate::set_files::{key_record, of_seal};
use crate::{Result, SstableError};

/// Bytes of one read, a multiple of the bytes of a block.
const READ_BYTES: usize = 64 * BLOCK_BYTES;

/// Compares the checksums of every stored block of an encrypted file set, without its key. Damage is found, a
/// forgery and an exchange of whole components are not. Returns the bytes that were read; `None`: the set is not
/// encrypted.
///
/// # Errors
/// `Corrupt` naming file and offset, `Missing`, `Io`.
pub async fn verify_unkeyed(fs: &Fs, directory: &str, set: Descriptor) -> Result<Option<u64>> {
    if key_record(fs, directory, set).await?.is_none() {
        return Ok(None);
    }
    let path = |c: Component| format!("{directory}/{}", set.file_name(c));
    let toc_path = path(Component::Toc);
    let toc = match fs.read(&toc_path, TOC_BYTES_MAX).await {
        Err(error) if error.kind == IoErrorKind::NotFound => {
            return Err(SstableError::Missing { file: toc_path });
        }
        toc => toc?,
    };
    let listed = decode_toc(&toc).map_err(|e| SstableError::of_format(&toc_path, 0, &e))?;
    let attached = other_names_in_toc(&toc);
    let attached = attached.iter().filter_map(|name| AttachedName::parse(name));
    let mut components: Vec<Component> =
        listed.into_iter().filter(|c| !c.is_in_the_clear()).collect();
    components.extend(attached.map(Component::Attached));
    components.sort_unstable();
    components.dedup();
    let mut bytes = 0;
    for component in components {
        let path = path(component);
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let file = match fs.open(&path, options).await {
            Err(error) if error.kind == IoErrorKind::NotFound => {
                return Err(SstableError::Missing { file: path });
            }
            file => file?,
        };
        bytes += check(&file, &path).await?;
    }
    Ok(Some(bytes))
}

async fn check(file: &File, path: &str) -> Result<u64> {
    let length = file.len().await?;
    let at = length.saturating_sub(TRAILER_BYTES as u64);
    let (mut trailer, read) = file.read_at(Buf::new(), at, TRAILER_BYTES).await;
    trailer.resize(read?);
    let check = UnkeyedCheck::new(length, trailer.as_slice());
    let check = check.map_err(|error| of_seal(path, &error))?;
    let (mut offset, mut buf) = (0, Buf::new());
    while offset < check.blocks_end() {
        let left = usize::try_from(check.blocks_end() - offset).unwrap_or(usize::MAX);
        let wanted = left.min(READ_BYTES);
        let (read_into, read) = file.read_at(buf, offset, wanted).await;
        buf = read_into;
        buf.resize(read?);
        let checked = check.check(offset, buf.as_mut_slice());
        checked.map_err(|error| of_seal(path, &error))?;
        offset += wanted as u64;
    }
    Ok(length)
}
