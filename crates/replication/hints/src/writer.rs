//! Writes hints from memory to files.
//!
//! Order of one write:
//!
//! 1. Append the records after the durable ones.
//! 2. Sync the file.
//! 3. Sync the directory if the file is new.
//! 4. Release the hints to deliveries, which read them from the file, and remove them from memory.
//!
//! A crash before step 3 completes leaves records that nothing depended on. After a failed sync the
//! contents of the disk are unknown. So the file is not written any more, and its unsynced records
//! go into another one.

use rt::Buf;
use stdx::{HostId, IoErrorKind};

use crate::catalog::{Active, HintFile, Kept};
use crate::error::HintsError;
use crate::format::{self, FileHeader, FileId, HEADER_BYTES, HintRef, HintSealing, Place};
use crate::hints::Inner;
use crate::policy::Dropped;
use crate::sealed::HintCipher;

impl Inner {
    /// Writes and syncs what waits for every replica.
    pub(crate) async fn flush_all(&self) -> Result<(), HintsError> {
        let _permit = self.writer.acquire(1).await;
        let hosts: Vec<HostId> = self.state.borrow().hosts.keys().copied().collect();
        let mut result = Ok(());
        for host in hosts {
            if let Err(error) = self.flush_host(host).await {
                result = Err(error);
            }
        }
        if self.state.borrow().buffered_bytes() == 0 {
            // Nothing waits that could find out whether there is room again: the next one will.
            self.state.borrow_mut().disk_full = false;
        }
        self.show();
        result
    }

    /// Writes what waits for a replica and closes its file, so that all of it can be delivered.
    pub(crate) async fn flush_and_seal(&self, host: HostId) {
        let _permit = self.writer.acquire(1).await;
        // Logged where it failed; what is on the disk is delivered anyway.
        let _ = self.flush_host(host).await;
        if let Some(entry) = self.state.borrow_mut().hosts.get_mut(&host) {
            entry.active = None;
        }
        self.show();
    }

    /// The caller holds the writer's permit.
    async fn flush_host(&self, host: HostId) -> Result<(), HintsError> {
        loop {
            let portion = self.state.borrow_mut().take_portion(host);
            if portion.is_empty() {
                return Ok(());
            }
            match self.write_portion(host, &portion).await {
                Ok(()) => {
                    let mut state = self.state.borrow_mut();
                    state.portion_done(host, &portion);
                    state.disk_full = false;
                }
                Err(error) => {
                    let mut state = self.state.borrow_mut();
                    state.portion_failed(host, portion);
                    let was_full = state.disk_full;
                    state.disk_full = matches!(error, HintsError::DiskFull(_));
                    if !(state.disk_full && was_full) {
                        tracing::warn!(%error, "cannot write hints; they stay in memory");
                    }
                    self.counters.write_errors.inc();
                    return Err(error);
                }
            }
        }
    }

    async fn write_portion(&self, host: HostId, portion: &[Kept]) -> Result<(), HintsError> {
        let sealing = self.state.borrow().settings.sealing;
        let overhead = match sealing {
            HintSealing::Plain => 0,
            HintSealing::Sealed => HintCipher::OVERHEAD_BYTES,
        };
        let bytes: u64 = portion.iter().map(|kept| kept.bytes() + overhead).sum();
        let least = self.state.borrow().settings.disk_free_bytes_min;
        let free = self.directory.free_bytes().await;
        if free < least.saturating_add(bytes) {
            let words = format!("{free} bytes are free, {least} are kept free");
            return Err(HintsError::DiskFull(words));
        }
        let (active, synced) = self.active_for(host, bytes).await?;
        let id = active.id;
        let mut out = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0) + HEADER_BYTES);
        if synced == 0 {
            self.header(id, sealing).encode(&mut out);
            stdx::invariant!(
                out.len() == HEADER_BYTES,
                "hints: a header of {} bytes, its reader takes {HEADER_BYTES}",
                out.len()
            );
        }
        let header = out.len() as u64;
        for kept in portion {
            let offset = synced + out.len() as u64;
            let synced = u32::try_from(synced).unwrap_or(u32::MAX);
            stdx::invariant!(
                synced != u32::MAX,
                "hints: a file of 4 GiB, records have no room for what was synced before them"
            );
            let place = Place { sequence: id.sequence, offset, synced };
            match &active.cipher {
                None => format::encode_record(&mut out, place, &kept.hint()),
                Some(cipher) => {
                    let hint = kept.hint();
                    let mutation = &*cipher.seal(offset, &hint);
                    format::encode_record(&mut out, place, &HintRef { mutation, ..hint });
                }
            }
        }
        let length = out.len() as u64;
        stdx::invariant!(
            length == header + bytes,
            "hints: {} hints took {length} bytes, {bytes} were counted for them",
            portion.len()
        );
        let (_, written) = active.file.write_at(Buf::from(out), synced).await;
        let result = match written {
            Ok(()) => self.sync(&active).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.give_up(host, &active, synced).await;
            return Err(match error.kind {
                IoErrorKind::NoSpace => HintsError::DiskFull(error.to_string()),
                _ => HintsError::Io(error),
            });
        }
        let created = self.rt.wall();
        let mut state = self.state.borrow_mut();
        let entry = state.hosts.entry(host).or_default();
        entry.active = Some(Active { entry_synced: true, ..active });
        let file = entry.files.entry(id).or_insert_with(|| HintFile::new(created, 0));
        stdx::invariant!(
            file.bytes == synced && file.offset <= synced.max(HEADER_BYTES as u64),
            "INV-hints-1: {length} bytes written at {synced} of a hint file that has {}, delivered to {}",
            file.bytes,
            file.offset
        );
        file.bytes = synced + length;
        Ok(())
    }

    async fn sync(&self, active: &Active) -> Result<(), stdx::IoError> {
        active.file.sync_data().await?;
        if active.entry_synced {
            return Ok(());
        }
        self.directory.sync().await
    }

    /// The file for the next records of a replica and its synced length, 0 for a new one.
    async fn active_for(&self, host: HostId, bytes: u64) -> Result<(Active, u64), HintsError> {
        let id = {
            let mut state = self.state.borrow_mut();
            let most = state.settings.file_bytes_max;
            let active = state.hosts.get(&host).and_then(|h| h.active.clone());
            if let Some(active) = active
                && let Some(file) = state.file(active.id)
                && file.bytes + bytes <= most
                && !stdx::chaos!("hints-file-early")
            {
                return Ok((active, file.bytes));
            }
            // The clock, so that the name tells the file's age; unique even if the clock is set
            // back.
            let by_clock = u64::try_from(self.rt.wall().millis()).unwrap_or(0);
            let sequence = state.next_sequence.max(by_clock);
            state.next_sequence = sequence + 1;
            FileId { target: host, sequence, shard: self.rt.shard().0 }
        };
        let (sealing, source) = {
            let settings = &self.state.borrow().settings;
            (settings.sealing, settings.key_source.clone())
        };
        let created = async {
            let cipher = match sealing {
                HintSealing::Plain => None,
                HintSealing::Sealed => {
                    Some(self.directory.new_cipher(id, source.as_deref()).await?)
                }
            };
            Ok((self.directory.create(id).await?, cipher))
        };
        let created: Result<_, stdx::IoError> = created.await;
        if created.is_err() && sealing == HintSealing::Sealed {
            self.directory.remove_orphan_key(id).await;
        }
        let (file, cipher) = created.map_err(|error| match error.kind {
            IoErrorKind::NoSpace => HintsError::DiskFull(error.to_string()),
            _ => HintsError::Io(error),
        })?;
        Ok((Active { id, file, entry_synced: false, cipher }, 0))
    }

    fn header(&self, id: FileId, sealing: HintSealing) -> FileHeader {
        let snapshot = (self.parts.snapshot)();
        FileHeader {
            id,
            writer: snapshot.local.host_id,
            shards: self.rt.shard_count(),
            created: self.rt.wall(),
            sealing,
        }
    }

    /// Abandons a file after a failed write or sync: it is not written any more; its synced part
    /// stays.
    async fn give_up(&self, host: HostId, active: &Active, synced: u64) {
        stdx::reached!("hints-file-given-up");
        if let Some(entry) = self.state.borrow_mut().hosts.get_mut(&host) {
            entry.active = None;
        }
        if synced == 0
            && let Err(error) = self.directory.remove_file(active.id).await
        {
            tracing::debug!(%error, "cannot remove an empty hint file");
        }
    }

    /// Drops what is kept for a replica, or for all.
    pub(crate) async fn truncate(&self, only: Option<HostId>) -> Result<(), HintsError> {
        let _permit = self.writer.acquire(1).await;
        let hosts: Vec<HostId> = {
            let state = self.state.borrow();
            state.hosts.keys().copied().filter(|h| only.is_none_or(|o| o == *h)).collect()
        };
        let mut result = Ok(());
        for host in hosts {
            if let Err(error) = self.drop_all(host, Dropped::Operator).await {
                result = Err(error);
            }
        }
        self.show();
        result
    }

    /// Drops what is kept for a replica. The caller holds the writer's permit.
    pub(crate) async fn drop_all(&self, host: HostId, why: Dropped) -> Result<(), HintsError> {
        let hints = self.state.borrow_mut().drop_waiting(host);
        self.dropped(why, hints);
        if let Some(entry) = self.state.borrow_mut().hosts.get_mut(&host) {
            entry.active = None;
        }
        loop {
            let first = {
                let state = self.state.borrow();
                let entry = state.hosts.get(&host);
                entry.and_then(|h| h.files.first_key_value().map(|(id, f)| (*id, f.bytes)))
            };
            let Some((id, bytes)) = first else { return Ok(()) };
            self.directory.remove_file(id).await?;
            if let Some(entry) = self.state.borrow_mut().hosts.get_mut(&host) {
                entry.files.remove(&id);
            }
            self.counters.dropped_file_bytes.add(bytes);
            let why = why.name();
            tracing::info!(file = id.file_name(), bytes, why, "hint file dropped");
        }
    }
}
