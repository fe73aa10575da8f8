//! Which segments of this run are needed no longer, and how much the log takes.

use rt::IoErrorKind;

use super::{CommitLog, SegmentFile};
use crate::error::LogError;
use crate::format::{LogPosition, SegmentId};
use crate::inventory::Update;

impl CommitLog {
    /// Deletes this run's segments that lie wholly below `position`, oldest first, and none while
    /// segments of earlier runs are there (INV-log-4), nor one that could not be archived.
    ///
    /// # Errors
    /// `Io`: a file could not be removed; `Failed`: it could not be synced for the archive.
    pub async fn release_below(&self, position: LogPosition) -> Result<(), LogError> {
        loop {
            if !self.inner.old.borrow().is_empty() {
                return Ok(());
            }
            let segment = {
                let state = self.inner.state.borrow();
                match state.files.first_key_value() {
                    Some((id, file))
                        if *id < position.segment
                            && file.sealed
                            && state.queue.front().is_none_or(|c| c.segment != *id) =>
                    {
                        *id
                    }
                    _ => return Ok(()),
                }
            };
            if !self.is_archived(segment).await? {
                return Ok(());
            }
            if let Some(file) = self.inner.state.borrow_mut().files.get_mut(&segment) {
                file.is_released = true;
            }
            self.write_inventory(Update::Routine).await?;
            match self.inner.fs.remove_file(&self.path_of(segment)).await {
                Ok(()) => {}
                Err(error) if error.kind == IoErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            let mut state = self.inner.state.borrow_mut();
            state.files.remove(&segment);
            stdx::invariant!(
                state.files.first_key_value().is_none_or(|(oldest, _)| *oldest > segment),
                "INV-log-4: segment {segment:?} deleted before an older one"
            );
        }
    }

    /// Deletes all segments of this run and takes no more appends: everything in them is flushed
    /// and the node is drained.
    ///
    /// # Errors
    /// `Io`: a file could not be removed.
    pub async fn release_all(&self) -> Result<(), LogError> {
        let after = {
            let mut state = self.inner.state.borrow_mut();
            state.closed = true;
            if let Some(mut last) = state.files.last_entry() {
                last.get_mut().sealed = true;
            }
            SegmentId::new(state.next_sequence, 0)
        };
        self.release_below(LogPosition { segment: after, offset: 0 }).await?;
        Ok(self.write_inventory(Update::Now).await?)
    }

    /// Returns true if the log is closed and no segment is left, of any run.
    pub(crate) fn is_released(&self) -> bool {
        let state = self.inner.state.borrow();
        state.closed && state.files.is_empty() && self.inner.old.borrow().is_empty()
    }

    /// Segments of this run that are complete and synced, oldest first.
    pub(crate) fn finished_segments(&self) -> Vec<SegmentId> {
        let state = self.inner.state.borrow();
        let is_finished = |f: &SegmentFile| f.sealed && f.synced == f.written;
        state.files.iter().filter(|(_, f)| is_finished(f)).map(|(id, _)| *id).collect()
    }

    /// Returns true if a segment is synced, except perhaps for a marker at its end.
    pub(crate) fn is_synced(&self, id: SegmentId) -> bool {
        let state = self.inner.state.borrow();
        state.synced >= state.appended || state.files.get(&id).is_none_or(|f| f.synced == f.written)
    }

    /// Bytes of this run's segments on the disk.
    pub fn total_bytes(&self) -> u64 {
        self.inner.state.borrow().files.values().map(|f| f.stored).sum()
    }

    /// When the log takes more than its share: the end of its oldest segment. Flushing every table
    /// whose first unflushed mutation lies below frees it.
    pub fn oldest_over_limit(&self) -> Option<LogPosition> {
        if self.total_bytes() <= self.inner.options.total_bytes_max {
            return None;
        }
        let state = self.inner.state.borrow();
        let (id, file) = state.files.first_key_value()?;
        file.sealed.then_some(LogPosition { segment: *id, offset: u64::MAX })
    }
}
