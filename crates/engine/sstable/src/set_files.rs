//! The component files of one file set, as plain bytes: decrypted on the way in and encrypted on the way out where
//! the set has a key.
//!
//! Above this module offsets, lengths and checksums are those of plain bytes. An encrypted set has the component
//! Encryption.db, which holds its wrapped data key; every other component but TOC.txt is a sealed file
//! ([`at_rest::block`]) whose name is that of the component. The record is written before any of them, and only
//! [`rewrap`] replaces it.

use std::rc::Rc;
use std::sync::Arc;

use at_rest::block::Span;
use at_rest::{DataKey, KeyRecord, KeySource, Opener, SealError, new_salt};
use rt::{Buf, File, Fs, OpenOptions};
use sst_format::{Component, Descriptor};
use stdx::IoErrorKind;

use crate::{Result, SstableError};

/// Form in which a file set is written.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Sealing {
    /// Plain bytes.
    #[default]
    Plain,
    /// With a data key of its own, under the active key of the key file.
    Sealed,
    /// With a data key of its own, under a named key of a provider.
    SealedBy(Arc<KeySource>),
}

impl Sealing {
    /// Returns true if files are encrypted.
    pub fn is_sealed(&self) -> bool {
        *self != Sealing::Plain
    }

    /// The named key of a provider that wraps data keys; `None`: that of the key file.
    pub fn source(&self) -> Option<&KeySource> {
        match self {
            Sealing::SealedBy(source) => Some(source),
            Sealing::Plain | Sealing::Sealed => None,
        }
    }
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct SetFiles {
    fs: Fs,
    directory: Rc<str>,
    set: Descriptor,
    key: Option<Rc<DataKey>>,
}

/// Turns an error about sealed bytes into one that names the file.
pub(crate) fn of_seal(file: &str, error: &SealError) -> SstableError {
    let (file, what) = (file.to_owned(), error.to_string());
    match error {
        error if error.is_damage() => SstableError::Corrupt { file, offset: error.offset(), what },
        SealError::Provider { .. } => SstableError::NoKey { file, what },
        _ => SstableError::Unsupported { file, what },
    }
}

/// The record of a file set's key; `None`: the set is not encrypted.
///
/// # Errors
/// `Corrupt`, `Io`.
pub async fn key_record(fs: &Fs, directory: &str, set: Descriptor) -> Result<Option<KeyRecord>> {
    let path = format!("{directory}/{}", set.file_name(Component::Encryption));
    match fs.read(&path, at_rest::record::RECORD_BYTES_MAX).await {
        Ok(bytes) => Ok(Some(KeyRecord::decode(&bytes).map_err(|e| of_seal(&path, &e))?)),
        Err(error) if error.kind == IoErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Outcome of [`rewrap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrapped {
    /// The set is not encrypted.
    Plain,
    /// The active key wraps its data key already.
    Current,
    /// The active key wraps it now.
    Changed,
}

/// Wraps the data key of a file set with the key in use that a form names: Encryption.db is replaced in one step, and no
/// other component changes. Names of the set elsewhere (snapshots) keep the record that they have.
///
/// # Errors
/// `Unsupported` without the old key or an active one; `NoKey`, `Corrupt`, `Io`.
pub async fn rewrap(
    fs: &Fs,
    directory: &str,
    set: Descriptor,
    sealing: &Sealing,
) -> Result<Rewrapped> {
    let Some(record) = key_record(fs, directory, set).await? else { return Ok(Rewrapped::Plain) };
    let path = format!("{directory}/{}", set.file_name(Component::Encryption));
    let key = fs.keys().open_data_key(&record).await.map_err(|error| of_seal(&path, &error))?;
    if fs.keys().is_wrapped_by_active(&record, sealing.source()) {
        return Ok(Rewrapped::Current);
    }
    let wrapped = fs.keys().wrap_data_key(&key, sealing.source()).await;
    let wrapped = wrapped.map_err(|error| of_seal(&path, &error))?;
    fs.write_atomic(&path, wrapped.encode()).await?;
    Ok(Rewrapped::Changed)
}

impl SetFiles {
    /// The files of a set that exists, with its key.
    ///
    /// # Errors
    /// `Unsupported`: it is encrypted with a key that is not known; `NoKey`, `Corrupt`, `Io`.
    pub async fn open(fs: &Fs, directory: &str, set: Descriptor) -> Result<SetFiles> {
        let record = key_record(fs, directory, set).await?;
        let key = match record {
            None => None,
            Some(record) => {
                let file = format!("{directory}/{}", set.file_name(Component::Data));
                let opened = fs.keys().open_data_key(&record).await;
                Some(Rc::new(opened.map_err(|error| of_seal(&file, &error))?))
            }
        };
        Ok(SetFiles { fs: fs.clone(), directory: directory.into(), set, key })
    }

    /// The files of a set that is being written. A sealed one gets its record now, durable with its directory.
    ///
    /// # Errors
    /// `Unsupported`: no key is active; `NoKey`, `Io`.
    pub(crate) async fn create(
        fs: &Fs,
        directory: &str,
        set: Descriptor,
        sealing: &Sealing,
    ) -> Result<SetFiles> {
        let mut files = SetFiles { fs: fs.clone(), directory: directory.into(), set, key: None };
        if !sealing.is_sealed() {
            return Ok(files);
        }
        let path = files.path(Component::Encryption);
        let made = fs.keys().new_data_key(sealing.source()).await;
        let (key, record) = made.map_err(|error| of_seal(&path, &error))?;
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let file = fs.open(&path, options).await?;
        let (_, written) = file.write_at(Buf::from(record.encode()), 0).await;
        written?;
        file.sync_data().await?;
        files.key = Some(Rc::new(key));
        Ok(files)
    }

    /// The file system.
    pub(crate) fn fs(&self) -> &Fs {
        &self.fs
    }

    /// Path of a component.
    pub(crate) fn path(&self, component: Component) -> String {
        format!("{}/{}", self.directory, self.set.file_name(component))
    }

    /// The key of a component; `None`: it is stored verbatim.
    fn key_of(&self, component: Component) -> Option<&Rc<DataKey>> {
        self.key.as_ref().filter(|_| !component.is_in_the_clear())
    }

    /// Returns true if the set is encrypted.
    pub(crate) fn is_sealed(&self) -> bool {
        self.key.is_some()
    }

    /// The whole content of a component.
    ///
    /// # Errors
    /// `Io`, `NotFound` among them; `Corrupt`.
    pub async fn read(&self, component: Component, max: usize) -> Result<Vec<u8>> {
        let path = self.path(component);
        let bytes = self.fs.read(&path, max).await?;
        match self.key_of(component) {
            None => Ok(bytes),
            Some(key) => at_rest::open_whole(key, component.file_name(), bytes)
                .map_err(|error| of_seal(&path, &error)),
        }
    }

    /// Opens a component for reading.
    ///
    /// # Errors
    /// `Io`, `NotFound` among them; `Corrupt`.
    pub(crate) async fn open_file(
        &self,
        component: Component,
        direct: bool,
    ) -> Result<ComponentFile> {
        let options = OpenOptions { read: true, direct, ..OpenOptions::default() };
        let file = self.fs.open(&self.path(component), options).await?;
        match self.key_of(component) {
            None => Ok(ComponentFile::Plain(file)),
            Some(key) => {
                let sealed = SealedFile::open(file, key, component.file_name()).await?;
                Ok(ComponentFile::Sealed(Rc::new(sealed)))
            }
        }
    }

    /// The stored form of a whole component.
    pub fn stored(&self, component: Component, bytes: Vec<u8>) -> Vec<u8> {
        match self.key_of(component) {
            None => bytes,
            Some(key) => {
                let salt = new_salt(&mut |out| self.fs.random_fill(out));
                at_rest::seal_whole(key, component.file_name(), salt, &bytes)
            }
        }
    }

    /// Replaces a whole component in one step.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) async fn replace(&self, component: Component, bytes: Vec<u8>) -> Result<()> {
        let stored = self.stored(component, bytes);
        Ok(self.fs.write_atomic(&self.path(component), stored).await?)
    }

    /// The encryption of a component that is written from front to back; `None`: there is none.
    pub(crate) fn sealer(&self, component: Component) -> Option<at_rest::Sealer> {
        let salt = || new_salt(&mut |out| self.fs.random_fill(out));
        let key = self.key_of(component)?;
        Some(at_rest::Sealer::new(key, component.file_name(), salt()))
    }
}

/// An open component: offsets and lengths are those of plain bytes.
#[derive(Clone)]
pub(crate) enum ComponentFile {
    /// Stored verbatim.
    Plain(File),
    /// Encrypted.
    Sealed(Rc<SealedFile>),
}

impl ComponentFile {
    /// Reads `length` bytes at `offset` into `buf`, replacing its content; fewer only at the end of the file.
    pub(crate) async fn read_at(
        &self,
        buf: Buf,
        offset: u64,
        length: usize,
    ) -> (Buf, Result<usize>) {
        match self {
            ComponentFile::Plain(file) => {
                let (buf, read) = file.read_at(buf, offset, length).await;
                (buf, read.map_err(SstableError::from))
            }
            // Boxed: its state would make that of every read larger.
            ComponentFile::Sealed(file) => Box::pin(file.read_at(buf, offset, length)).await,
        }
    }

    /// Plain bytes of the file.
    pub(crate) async fn len(&self) -> Result<u64> {
        match self {
            ComponentFile::Plain(file) => Ok(file.len().await?),
            ComponentFile::Sealed(file) => Ok(file.opener.length()),
        }
    }
}

/// An encrypted component.
pub(crate) struct SealedFile {
    file: File,
    opener: Opener,
}

impl SealedFile {
    async fn open(file: File, key: &DataKey, name: &str) -> Result<SealedFile> {
        let physical = file.len().await?;
        let (from, length) = Opener::end_span(physical);
        let (mut buf, read) = file.read_at(Buf::new(), from, length).await;
        let read = read?;
        let end = buf.as_mut_slice().get_mut(..read).unwrap_or_default();
        let opener = Opener::of_end(key, name, physical, end);
        let opener = opener.map_err(|error| of_seal(file.path(), &error))?;
        Ok(SealedFile { file, opener })
    }

    async fn read_at(&self, buf: Buf, offset: u64, length: usize) -> (Buf, Result<usize>) {
        let Some(span) = self.opener.span(offset, length) else {
            let mut buf = buf;
            buf.clear();
            return (buf, Ok(0));
        };
        let (mut buf, read) = self.file.read_at(buf, span.offset, span.length).await;
        let opened = match read {
            Ok(read) => self.open_span(span, &mut buf, read),
            Err(error) => Err(error.into()),
        };
        (buf, opened)
    }

    fn open_span(&self, span: Span, buf: &mut Buf, read: usize) -> Result<usize> {
        let stored = buf.as_mut_slice().get_mut(..read).unwrap_or_default();
        let opened = self.opener.open(span, stored);
        opened.map_err(|error| of_seal(self.file.path(), &error))?;
        buf.resize(span.plain);
        Ok(span.plain)
    }
}
