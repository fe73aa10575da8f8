//! The files of a log of requests; shard 0 writes them.
//!
//! Owns: the open file, rolling, deletion of old files. Never: names and moments ([`super::rolling`]), formats. Bytes
//! that could not be written are written again at the same offset, so a retry never leaves half a record before it.

use super::rolling::{Finished, Layout, TEXT_NAME};
use rt::{Buf, File, OpenOptions, Rt};
use stdx::{IoError, IoErrorKind, WallMicros};

/// Files of one layout in one directory.
pub struct LogFiles {
    rt: Rt,
    directory: String,
    layout: Layout,
    /// Most bytes of all files; `None` while an archive command removes them.
    bytes_max: Option<u64>,
    current: Option<Current>,
    /// Paths of finished files that no call returned yet.
    unreported: Vec<String>,
}

struct Current {
    file: File,
    name: String,
    length: u64,
    cycle: i64,
}

impl LogFiles {
    /// Files in `directory`. The first one is opened by the first write.
    pub fn new(rt: &Rt, directory: &str, layout: Layout, bytes_max: Option<u64>) -> LogFiles {
        let directory = directory.trim_end_matches('/').to_owned();
        LogFiles {
            rt: rt.clone(),
            directory,
            layout,
            bytes_max,
            current: None,
            unreported: Vec::new(),
        }
    }

    /// Appends bytes. Returns the paths of files that were finished before.
    ///
    /// # Errors
    /// Nothing of `bytes` counts as written. The next call that succeeds returns the paths.
    pub async fn append(&mut self, bytes: Vec<u8>) -> Result<Vec<String>, IoError> {
        let now = self.rt.wall();
        let is_over = |c: &Current| self.layout.must_roll(c.cycle, c.length, now);
        if self.current.as_ref().is_some_and(is_over) {
            self.roll().await?;
        }
        if self.current.is_none() {
            self.current = Some(self.open(now).await?);
        }
        if let Some(current) = &mut self.current {
            let length = bytes.len() as u64;
            let bytes = Buf::from_vec_at(bytes, 0);
            let (_, written) = current.file.write_at(bytes, current.length).await;
            written?;
            current.length += length;
        }
        Ok(std::mem::take(&mut self.unreported))
    }

    /// Syncs and closes the file.
    ///
    /// # Errors
    /// It could not be synced.
    pub async fn close(&mut self) -> Result<(), IoError> {
        match self.current.take() {
            Some(current) => current.file.sync_data().await,
            None => Ok(()),
        }
    }

    /// Returns the paths of finished files, oldest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub async fn finished(&self) -> Result<Vec<String>, IoError> {
        let files = self.list().await?;
        let current = self.current.as_ref().map_or(TEXT_NAME, |current| &current.name);
        let finished = self.layout.finished(&files, current);
        Ok(finished.into_iter().map(|(name, _)| self.path(&name)).collect())
    }

    fn first_number(&self, cycle: i64) -> usize {
        let finished = if self.bytes_max.is_none() { Finished::MovedAway } else { Finished::Stay };
        self.layout.first_number(cycle, self.rt.wall(), finished)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    async fn list(&self) -> Result<Vec<(String, u64)>, IoError> {
        let entries = self.rt.fs().read_dir(&self.directory).await?;
        Ok(entries.into_iter().filter(|e| !e.is_dir).map(|e| (e.name, e.len)).collect())
    }

    async fn names(&self) -> Result<Vec<String>, IoError> {
        Ok(self.list().await?.into_iter().map(|(name, _)| name).collect())
    }

    async fn open(&mut self, now: WallMicros) -> Result<Current, IoError> {
        self.rt.fs().create_dir_all(&self.directory).await?;
        if self.layout == Layout::Text {
            self.roll_leftover(now).await?;
        }
        let first = self.first_number(self.layout.cycle(now));
        let name = self.layout.new_name(now, &self.names().await?, first);
        // Before the first write: it frees the space of a full disk.
        self.delete_surplus(&name).await?;
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            // A disk that hangs stalls the log, not the shard.
            offload_writes: true,
            ..OpenOptions::default()
        };
        let file = self.rt.fs().open(&self.path(&name), options).await?;
        match self.begin(&file).await {
            Ok(length) => Ok(Current { file, name, length, cycle: self.layout.cycle(now) }),
            Err(error) => {
                // The next attempt takes another name: without this each one leaves an empty file.
                if let Layout::Binary(_) = self.layout
                    && let Err(error) = self.rt.fs().remove_file(&self.path(&name)).await
                {
                    tracing::warn!(file = name, %error, "cannot remove an empty file of a log");
                }
                Err(error)
            }
        }
    }

    /// Writes what comes before the first event. Returns the length of the file.
    async fn begin(&self, file: &File) -> Result<u64, IoError> {
        let length = file.len().await?;
        let first: &[u8] = match self.layout {
            Layout::Binary(ref files) => &files.header,
            Layout::Text if self.ends_within_line(file, length).await? => b"\n",
            Layout::Text => b"",
        };
        let (_, written) = file.write_at(Buf::from(first.to_vec()), length).await;
        written?;
        Ok(length + first.len() as u64)
    }

    /// Returns true if a crash has cut off the last line.
    async fn ends_within_line(&self, file: &File, length: u64) -> Result<bool, IoError> {
        let Some(last) = length.checked_sub(1) else { return Ok(false) };
        let byte = file.read_exact_at(last, 1).await?;
        Ok(byte.first() != Some(&b'\n'))
    }

    /// Renames the text file of an earlier run that is of another day or too long.
    async fn roll_leftover(&mut self, now: WallMicros) -> Result<(), IoError> {
        let entries = self.rt.fs().read_dir(&self.directory).await?;
        let Some(old) = entries.iter().find(|entry| entry.name == TEXT_NAME && entry.len > 0)
        else {
            return Ok(());
        };
        let cycle = self.layout.cycle(if old.modified.0 == 0 { now } else { old.modified });
        if self.layout.must_roll(cycle, old.len, now) {
            let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
            let path = self.rename(TEXT_NAME, cycle, &names).await?;
            self.unreported.push(path);
        }
        Ok(())
    }

    async fn rename(&self, name: &str, cycle: i64, names: &[String]) -> Result<String, IoError> {
        match self.layout.rolled_name(cycle, names, self.first_number(cycle)) {
            Some(rolled) => {
                self.rt.fs().rename(&self.path(name), &self.path(&rolled)).await?;
                Ok(self.path(&rolled))
            }
            None => Ok(self.path(name)),
        }
    }

    /// Finishes the file.
    async fn roll(&mut self) -> Result<(), IoError> {
        let Some(current) = &self.current else { return Ok(()) };
        current.file.sync_data().await?;
        let names = self.names().await?;
        let path = self.rename(&current.name, current.cycle, &names).await?;
        self.current = None;
        self.unreported.push(path);
        Ok(())
    }

    async fn delete_surplus(&self, current: &str) -> Result<(), IoError> {
        let Some(bytes_max) = self.bytes_max else { return Ok(()) };
        let files = self.list().await?;
        for name in self.layout.surplus(&files, current, bytes_max) {
            match self.rt.fs().remove_file(&self.path(&name)).await {
                Err(error) if error.kind != IoErrorKind::NotFound => return Err(error),
                _ => tracing::info!(file = name, "deleted the oldest file of the log"),
            }
        }
        Ok(())
    }
}
