//! Verification: the files of a table are read from the disk and compared with their checksums.
//!
//! Nothing is written and nothing is kept from the background: a file that is merged away meanwhile is
//! there until it has been read. Source: Cassandra `CompactionManager.performVerify`, `BigTableVerifier`.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use sstable::SstableReader;
use sstable::offline::{verify, verify_checksums};
use sstable::repair_state::RepairState;
use stdx::TableId;

use crate::compact::cleanup::OwnedRanges;
use crate::damage::Verifier;
use crate::error::StoreError;
use crate::files::slots::CompactionProgress;
use crate::tables::repair_views::state_of;
use crate::tables::table::TableState;
use crate::tables::table_file::{TableFile, map_error};
use crate::transfer::import::check_owned;

/// Interval of the checks for a stop request.
const LOOK: Duration = Duration::from_millis(200);

/// Scope of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Every partition, row, index entry and key of the filter, not the checksums only.
    pub extended: bool,
    /// A file of another version than the one that is written fails.
    pub latest_version: bool,
    /// The small components only, which are read when a file is opened.
    pub quick: bool,
    /// Every partition must lie in these. `None`: any may.
    pub owned: Option<OwnedRanges>,
    /// A damaged file does not count as repaired any more.
    pub forget_repair: bool,
    /// Reports a damaged file to the failure policy of the node.
    pub tell_policy: bool,
}

impl Verifier {
    /// Reads this shard's files of a table. Returns the Data component of each that failed, and
    /// why; the others were verified too.
    ///
    /// # Errors
    /// `UnknownTable`, `Stopping`, `Invalid` (aborted).
    pub async fn verify(
        &self,
        id: TableId,
        options: &VerifyOptions,
    ) -> Result<Vec<(String, StoreError)>, StoreError> {
        let Some(table) = self.tables.table(id) else { return Err(StoreError::UnknownTable(id)) };
        let files = table.view().files.clone();
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let version = table.version();
        // No inputs: the files stay free for other compactions.
        let claim = self.files.slots.claim(
            &table,
            Vec::new(),
            CompactionProgress {
                id: 0,
                table: id,
                keyspace: version.table.keyspace.to_string(),
                name: version.table.name.to_string(),
                done_bytes: 0,
                total_bytes: files.iter().map(|f| f.reader.meta().data_length()).sum(),
                inputs: files.len(),
                reason: "verification".to_owned(),
                kind: "Verify",
            },
        );
        drop(version);
        let mut failed = Vec::new();
        for file in files.iter() {
            let mut check = pin!(self.verify_file(&table, file, options));
            let result = loop {
                if self.env.stopping.get() {
                    return Err(StoreError::Stopping);
                }
                if claim.progress.stopped.get() {
                    return Err(StoreError::Invalid("the verification was stopped".to_owned()));
                }
                let look = self.env.rt.now() + LOOK;
                if let Ok(result) = self.env.rt.timeout(look, check.as_mut()).await {
                    break result;
                }
            };
            if let Err(error) = result {
                if options.tell_policy {
                    self.files.note_failure(&error);
                }
                if matches!(error, StoreError::Corrupt { .. }) {
                    self.note_damaged(&table, file, &error).await;
                }
                let path = file.reader.meta().file(sstable::Component::Data).to_string();
                failed.push((path.clone(), error));
                if options.forget_repair
                    && let Err(error) = self.forget_repair(&table, file).await
                {
                    failed.push((path, error));
                }
            }
            let done = &claim.progress.done;
            done.set(done.get().saturating_add(file.reader.meta().data_length()));
        }
        Ok(failed)
    }

    /// Has a file count as not repaired.
    async fn forget_repair(
        &self,
        table: &Rc<TableState>,
        file: &Rc<TableFile>,
    ) -> Result<(), StoreError> {
        let state = state_of(file);
        if state.repaired_at == 0 {
            return Ok(());
        }
        if file.spanning {
            let what = "it stays marked as repaired: shards share it; scrub it first";
            return Err(StoreError::Invalid(what.to_owned()));
        }
        let _own = self.files.slots.own_table(table).await;
        match table.has_all(std::slice::from_ref(file)) {
            true => self.repair.restate(table, file, RepairState { repaired_at: 0, ..state }).await,
            // Another file has replaced it.
            false => Ok(()),
        }
    }

    async fn verify_file(
        &self,
        table: &TableState,
        file: &Rc<TableFile>,
        options: &VerifyOptions,
    ) -> Result<(), StoreError> {
        let meta = file.reader.meta();
        if options.latest_version && meta.version() != self.env.options.sstable_version {
            return Err(StoreError::Invalid(format!(
                "{} is not the latest version, run upgradesstables",
                meta.file(sstable::Component::Data)
            )));
        }
        let version = table.version();
        // Components read at the start prove nothing about the disk now.
        let fs = self.env.rt.fs();
        let reader =
            SstableReader::open(&fs, meta.directory(), meta.descriptor(), Some(&version.table))
                .await;
        let reader = reader.map_err(map_error)?;
        if options.quick {
            return Ok(());
        }
        if options.extended {
            verify(&reader).await.map_err(map_error)?;
        } else {
            verify_checksums(&reader).await.map_err(map_error)?;
        }
        match &options.owned {
            Some(owned) => check_owned(&reader, owned).await,
            None => Ok(()),
        }
    }
}
