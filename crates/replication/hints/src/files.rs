//! Calls on the hints directory.
//!
//! Order in which a finished file goes: 1. remove it; 2. remove its progress file and its key; 3. sync the
//! directory. A crash between leaves one of these without a hint file, which is removed at the
//! next start, or a file that is delivered again.

use at_rest::KeySource;
use rt::{Buf, File, Fs, OpenOptions, Rt};
use stdx::{IoError, IoErrorKind, WallMicros};

use crate::catalog::HintFile;
use crate::format::{
    BadHeader, FileHeader, FileId, HEADER_BYTES, HintSealing, PROGRESS_BYTES, Progress,
};
use crate::key_files::{self, KEY_SUFFIX};
use crate::sealed::HintCipher;

const PROGRESS_SUFFIX: &str = ".offset";
/// Added to the name of a file that is set aside.
pub(crate) const ASIDE_SUFFIX: &str = ".damaged";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Least bytes of one read.
const READ_BYTES: usize = 256 * 1024;

#[derive(Clone)]
pub(crate) struct Directory {
    pub(crate) fs: Fs,
    pub(crate) path: String,
}

/// Contents of a directory for one shard.
pub(crate) struct Listing {
    pub(crate) files: Vec<(FileId, HintFile)>,
    /// Bytes of files that were set aside.
    pub(crate) aside_bytes: u64,
}

impl Directory {
    pub(crate) fn path_of(&self, id: FileId) -> String {
        format!("{}/{}", self.path, id.file_name())
    }

    fn progress_path(&self, id: FileId) -> String {
        format!("{}/{}{PROGRESS_SUFFIX}", self.path, id.file_name())
    }

    /// Makes the directory and lists this shard's files: those of shard s belong to shard
    /// s modulo the number of shards.
    pub(crate) async fn open(rt: &Rt, path: &str) -> Result<(Directory, Listing), IoError> {
        let directory = Directory { fs: rt.fs(), path: path.to_owned() };
        directory.fs.create_dir_durably(path).await?;
        let entries = directory.fs.read_dir(path).await?;
        let mut listing = Listing { files: Vec::new(), aside_bytes: 0 };
        let mut gone = Vec::new();
        let has = |name: &str| entries.iter().any(|e| e.name == name);
        for entry in entries.iter().filter(|e| !e.is_dir) {
            let name = entry.name.as_str();
            let whole = name.strip_suffix(TEMPORARY_SUFFIX).unwrap_or(name);
            let stem = whole.strip_suffix(PROGRESS_SUFFIX).unwrap_or(whole);
            let key_of = whole.strip_suffix(KEY_SUFFIX);
            let stem = key_of.unwrap_or(stem);
            let stem = stem.strip_suffix(ASIDE_SUFFIX).unwrap_or(stem);
            let Some(id) = FileId::from_file_name(stem) else {
                if rt.shard().0 == 0 {
                    tracing::warn!(
                        file = name,
                        directory = path,
                        "ignoring a file in the hints directory that is not a hint file"
                    );
                }
                continue;
            };
            if id.shard % rt.shard_count().max(1) != rt.shard().0 {
                continue;
            }
            if name == stem {
                if entry.len < HEADER_BYTES as u64 {
                    tracing::warn!(
                        file = name,
                        directory = path,
                        bytes = entry.len,
                        host = %id.target.0,
                        since_millis = id.sequence,
                        "hint file is empty or cut: either the node crashed when it was created, or writes that \
                         the host missed are lost; run a full repair on the host for the ranges that it shares \
                         with this node"
                    );
                }
                // The sequence is the clock at the file's creation, unless that went back.
                let millis = i64::try_from(id.sequence).unwrap_or(i64::MAX);
                let created = WallMicros(millis.saturating_mul(1000));
                listing.files.push((id, HintFile::new(created, entry.len)));
            } else if whole.ends_with(ASIDE_SUFFIX) {
                listing.aside_bytes += entry.len;
                tracing::warn!(
                    file = name,
                    directory = path,
                    bytes = entry.len,
                    "a damaged hint file still exists and counts towards the limit of hints; \
                    remove it"
                );
            } else if key_of.is_some() && whole == name && has(&format!("{stem}{ASIDE_SUFFIX}")) {
                // The key of a damaged file that an operator may want to read.
            } else if whole != name || !has(stem) {
                gone.push(format!("{path}/{name}"));
            }
        }
        for path in gone {
            // Left by a crash; if it cannot be removed the next start finds it again.
            if let Err(error) = directory.remove(&path).await {
                tracing::warn!(%error, "cannot remove a file left over from a crash");
            }
        }
        Ok((directory, listing))
    }

    async fn remove(&self, path: &str) -> Result<(), IoError> {
        match self.fs.remove_file(path).await {
            Err(error) if error.kind != IoErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates a file; its directory entry is not durable yet.
    pub(crate) async fn create(&self, id: FileId) -> Result<File, IoError> {
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        self.fs.open(&self.path_of(id), options).await
    }

    pub(crate) async fn sync(&self) -> Result<(), IoError> {
        self.fs.sync_dir(&self.path).await
    }

    /// Removes a file and its progress.
    pub(crate) async fn remove_file(&self, id: FileId) -> Result<(), IoError> {
        self.remove(&self.path_of(id)).await?;
        self.remove(&self.progress_path(id)).await?;
        self.remove(&key_files::path_for(&self.path_of(id))).await?;
        self.sync().await
    }

    /// Creates the data key of a file that does not exist yet.
    pub(crate) async fn new_cipher(
        &self,
        id: FileId,
        source: Option<&KeySource>,
    ) -> Result<HintCipher, IoError> {
        key_files::create(&self.fs, &self.path_of(id), id, source).await
    }

    /// Removes the key of a file that could not be created. The next start finds one that cannot be removed.
    pub(crate) async fn remove_orphan_key(&self, id: FileId) {
        if let Err(error) = self.remove(&key_files::path_for(&self.path_of(id))).await {
            tracing::warn!(%error, "cannot remove the key of a hint file that could not be created");
        }
    }

    /// Renames a file so that it is not read again.
    pub(crate) async fn set_aside(&self, id: FileId) -> Result<(), IoError> {
        let path = self.path_of(id);
        self.fs.rename(&path, &format!("{path}{ASIDE_SUFFIX}")).await?;
        self.remove(&self.progress_path(id)).await?;
        self.sync().await
    }

    pub(crate) async fn save_progress(
        &self,
        id: FileId,
        progress: &Progress,
    ) -> Result<(), IoError> {
        self.fs.write_atomic(&self.progress_path(id), progress.encode()).await
    }

    /// Opens a file for reading and reads its header and progress.
    pub(crate) async fn read_begin(&self, id: FileId) -> Result<Begin, IoError> {
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let file = self.fs.open(&self.path_of(id), options).await?;
        let (header, read) = file.read_at(Buf::new(), 0, HEADER_BYTES).await;
        read?;
        let path = self.progress_path(id);
        let progress = match self.fs.read(&path, PROGRESS_BYTES).await {
            Ok(bytes) => {
                let progress = Progress::decode(&bytes);
                if progress.is_none() {
                    tracing::warn!(
                        path,
                        "ignoring the damaged delivery progress of a hint file: all of its hints \
                        are sent again"
                    );
                }
                progress.filter(|p| p.sequence == id.sequence)
            }
            Err(error) if error.kind == IoErrorKind::NotFound => None,
            // Not that of this version, or not readable: from the beginning, which does no harm.
            Err(error) => {
                tracing::warn!(%error, "cannot read the delivery progress of a hint file");
                None
            }
        };
        let cipher = key_files::open(&self.fs, &self.path_of(id), id).await?;
        Ok(Begin { file, header: FileHeader::decode(&header), progress, cipher })
    }

    /// Returns the bytes that may still be written. If the file system does not tell, there is
    /// enough room.
    pub(crate) async fn free_bytes(&self) -> u64 {
        self.fs.free_bytes(&self.path).await.unwrap_or(u64::MAX)
    }
}

/// A file that is opened for reading.
pub(crate) struct Begin {
    pub(crate) file: File,
    pub(crate) header: Result<FileHeader, BadHeader>,
    pub(crate) progress: Option<Progress>,
    pub(crate) cipher: Option<HintCipher>,
}

impl Begin {
    /// Checks that the header matches the file's name. A damaged header is accepted: it may have
    /// matched.
    pub(crate) fn fits(&self, id: FileId) -> Result<(), String> {
        match &self.header {
            Ok(header) if header.id != id => Err("its header names another file".to_owned()),
            Ok(header) if header.sealing == HintSealing::Sealed && self.cipher.is_none() => Err(
                format!("it is encrypted, and the record of its key, \"{KEY_SUFFIX}\", is missing"),
            ),
            Err(BadHeader::Version(v)) => {
                Err(format!("version {v} of the format is not known to this release"))
            }
            Ok(_) | Err(BadHeader::Damaged) => Ok(()),
        }
    }
}

/// The part of a file that is in memory.
pub(crate) struct Window {
    file: File,
    pub(crate) buf: Buf,
    pub(crate) start: u64,
    /// The encryption of the records.
    pub(crate) cipher: Option<HintCipher>,
}

impl Window {
    pub(crate) fn new(file: File, cipher: Option<HintCipher>) -> Window {
        Window { file, buf: Buf::new(), start: 0, cipher }
    }

    /// Moves to `from` and reads at least `bytes`, or up to the file's end: then that.
    pub(crate) async fn load(&mut self, from: u64, bytes: usize) -> Result<Option<u64>, IoError> {
        let wanted = bytes.max(READ_BYTES);
        let buf = std::mem::take(&mut self.buf);
        let (buf, read) = self.file.read_at(buf, from, wanted).await;
        self.buf = buf;
        self.start = from;
        let got = read?;
        Ok((got < wanted).then_some(from + got as u64))
    }
}
