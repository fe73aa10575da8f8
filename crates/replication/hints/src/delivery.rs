//! Delivery of hint files to their replica.
//!
//! A file is read from its delivered offset. Hints are sent by [`Verb::Hint`] to the shard of the
//! replica that owns their partition, several at a time. The first failure ends the delivery. It
//! resumes there with the next period or when the replica is up again. A completely delivered file
//! is removed.

use std::time::Duration;

use codec::murmur::token_of;
use data::MutationRef;
use internode::{Hint, Verb};
use messaging::Outgoing;
use stdx::{HostId, IoError, IoErrorKind, ShardMap, TableId, Token};

use crate::catalog::PendingHints;
use crate::files::Window;
use crate::flight::{Flight, Sent};
use crate::format::{BadHeader, FileId, HEADER_BYTES, HintRef, Progress};
use crate::hints::{Hints, Inner};
use crate::policy::{self, Dropped, Failure, Pace};
use crate::sealed::HintCipher;
use crate::walk::{Found, Step, Walker};

/// A file is quarantined after so many failed reads without progress between.
const READ_FAILURES_MAX: u32 = 5;
/// Longest sleep before a delivery checks whether it should continue.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long a transfer waits for a running delivery to end, and how often it polls: longer than the
/// timeout of answers.
const TAKE_OVER_MAX: Duration = Duration::from_secs(10);
const TAKE_OVER_PAUSE: Duration = Duration::from_millis(20);

/// Outcome of the delivery of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The file is delivered and deleted.
    Through,
    /// The rest waits.
    Later,
}

/// Route of hints.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// Their replica.
    pub(crate) target: HostId,
    /// The receiving node: the target, or a node that keeps them for it.
    pub(crate) via: HostId,
    /// This node leaves: pauses do not count, and it is not one of many that deliver.
    pub(crate) is_transfer: bool,
}

impl Hints {
    /// Delivers everything that is kept, or hands it to another node, which keeps it for the replicas or
    /// applies it: for a node that leaves ("transfer_hints_on_decommission"). What is left.
    pub async fn transfer(&self, via: HostId) -> Vec<PendingHints> {
        let inner = &self.inner;
        inner.set_transfers(1);
        let hosts: Vec<(HostId, bool)> = {
            let state = inner.state.borrow();
            state.hosts.iter().filter(|(_, h)| !h.is_empty()).map(|(id, h)| (*id, h.left)).collect()
        };
        for (host, has_left) in hosts {
            // A running delivery may be a slow one; it ends where it is, and this one continues.
            if !inner.take_over(host).await {
                continue;
            }
            if has_left {
                inner.clear_departed(host).await;
            } else {
                for to in [host, via] {
                    inner.deliver_to(Route { target: host, via: to, is_transfer: true }).await;
                }
            }
            if let Some(entry) = inner.state.borrow_mut().hosts.get_mut(&host) {
                entry.busy = false;
            }
        }
        inner.set_transfers(-1);
        inner.wake.notify_one();
        self.pending()
    }
}

impl Inner {
    /// Changes the number of transfers. While there is one, no other delivery begins or continues.
    fn set_transfers(&self, by: i64) {
        let mut state = self.state.borrow_mut();
        state.transfers = state.transfers.saturating_add(by);
    }

    /// Waits until no other task has a host's files, and takes them. Returns false if it took too
    /// long.
    async fn take_over(&self, host: HostId) -> bool {
        let until = self.rt.now() + TAKE_OVER_MAX;
        loop {
            {
                let mut state = self.state.borrow_mut();
                let Some(entry) = state.hosts.get_mut(&host) else { return false };
                if !std::mem::replace(&mut entry.busy, true) {
                    return true;
                }
            }
            if self.rt.now() >= until || self.is_closed() {
                stdx::reached!("hints-take-over-too-late");
                return false;
            }
            self.rt.sleep(TAKE_OVER_PAUSE).await;
        }
    }

    /// Delivers a replica's files in their order until none is left or one has to wait. Returns
    /// true if none is left.
    pub(crate) async fn deliver_to(&self, route: Route) -> bool {
        if self.must_stop(route, None) {
            return false;
        }
        self.flush_and_seal(route.target).await;
        while let Some(id) = self.first_file(route.target) {
            if self.must_stop(route, Some(id)) {
                return false;
            }
            let ended = self.deliver_file(id, route).await;
            self.show();
            if ended == Ended::Later {
                return false;
            }
        }
        true
    }

    /// The oldest file that is not being written.
    pub(crate) fn first_file(&self, target: HostId) -> Option<FileId> {
        let state = self.state.borrow();
        let host = state.hosts.get(&target)?;
        let active = host.active.as_ref().map(|a| a.id);
        host.files.keys().copied().find(|id| Some(*id) != active)
    }

    fn must_stop(&self, route: Route, id: Option<FileId>) -> bool {
        let state = self.state.borrow();
        let up = |host| state.hosts.get(&host).is_some_and(|h| h.up && !h.left);
        let left = state.hosts.get(&route.target).is_none_or(|h| h.left);
        let paused = (state.paused || state.transfers > 0) && !route.is_transfer;
        let gone = id.is_some_and(|id| state.file(id).is_none());
        state.closed || paused || left || gone || !up(route.via)
    }

    async fn deliver_file(&self, id: FileId, route: Route) -> Ended {
        let _running = self.counters.stage.run();
        let ended = match self.send_file(id, route).await {
            Ok(ended) => ended,
            Err(error) => self.read_failed(id, &error).await,
        };
        self.save_progress(id, true).await;
        ended
    }

    /// Opens a file and returns its reader, positioned at the next record. `None`: the file cannot
    /// be used and was quarantined.
    pub(crate) async fn begin_file(&self, id: FileId) -> Result<Option<(Window, Walker)>, IoError> {
        let begin = self.directory.read_begin(id).await?;
        if let Err(why) = begin.fits(id) {
            self.set_aside(id, &why).await;
            return Ok(None);
        }
        let mut state = self.state.borrow_mut();
        let Some(file) = state.file_mut(id) else { return Ok(None) };
        if !std::mem::replace(&mut file.opened, true)
            && let Some(progress) = begin.progress
        {
            stdx::reached!("hints-delivery-resumed");
            file.offset = progress.offset.max(HEADER_BYTES as u64);
            file.saved = file.offset;
            file.damaged |= progress.damaged;
        }
        let mut walker = Walker::new(id.sequence, file.offset, file.bytes);
        if matches!(begin.header, Err(BadHeader::Damaged)) && file.offset == HEADER_BYTES as u64 {
            walker.count_gap(0);
        }
        Ok(Some((Window::new(begin.file, begin.cipher), walker)))
    }

    async fn send_file(&self, id: FileId, route: Route) -> Result<Ended, IoError> {
        let Some((mut window, mut walker)) = self.begin_file(id).await? else {
            return Ok(Ended::Through);
        };
        let mut flight = Flight::default();
        let mut pace = Pace::default();
        let mut failed = None;
        let mut plain = Vec::new();
        // After the last record that was handled: sent, or not worth it.
        let mut cursor = walker.position();
        let complete = loop {
            if self.must_stop(route, Some(id)) {
                break false;
            }
            let found = match walker.step(&window.buf, window.start) {
                Step::Record(found) => found,
                Step::Read { from, bytes } => {
                    match window.load(from, bytes).await {
                        Ok(Some(end)) => walker.cut(end),
                        Ok(None) => {}
                        Err(error) => {
                            failed = Some(error);
                            break false;
                        }
                    }
                    self.rt.yield_if_due().await;
                    continue;
                }
                Step::End => {
                    cursor = walker.position();
                    break true;
                }
            };
            let Some(found) = self.opened(id, window.cipher.as_ref(), found, &mut plain) else {
                continue;
            };
            if !self.send(id, route, &found, &mut flight, &mut pace).await {
                break false;
            }
            cursor = found.next;
            self.advance(id, flight.done_below(cursor));
            self.save_progress(id, false).await;
            self.rt.yield_if_due().await;
        };
        // A replica that is gone, or files that are: nothing more of them is sent or waited for.
        let gone = self.is_gone(id, route.target);
        while !gone && !flight.is_empty() {
            self.settle(id, &mut flight).await;
        }
        self.report(id, &walker);
        self.advance(id, flight.done_below(cursor));
        match failed {
            Some(error) => Err(error),
            None if gone || !complete || flight.has_failed() => Ok(Ended::Later),
            None => {
                let delivered = self.state.borrow().file(id).map(|file| file.offset);
                stdx::invariant!(
                    flight.is_empty() && delivered.is_none_or(|offset| offset >= cursor),
                    "INV-hints-1: hint file {} would go, delivered to {delivered:?} of {cursor}",
                    id.file_name()
                );
                Ok(self.finish(id).await)
            }
        }
    }

    fn is_gone(&self, id: FileId, target: HostId) -> bool {
        let state = self.state.borrow();
        state.file(id).is_none() || state.hosts.get(&target).is_none_or(|h| h.left)
    }

    /// Everything of the file before `offset` is done.
    fn advance(&self, id: FileId, offset: u64) {
        if let Some(file) = self.state.borrow_mut().file_mut(id)
            && offset > file.offset
        {
            file.offset = offset;
            // It made progress: earlier failed reads were transient.
            file.read_failures = 0;
            file.acked = file.acked.split_off(&offset);
        }
    }

    /// Sends one hint as soon as there is room for it, or finds a reason not to. False: the
    /// delivery ends before it.
    async fn send(
        &self,
        id: FileId,
        route: Route,
        found: &Found<'_>,
        flight: &mut Flight,
        pace: &mut Pace,
    ) -> bool {
        let hint = &found.hint;
        if self.state.borrow().file(id).is_some_and(|f| f.acked.contains(&found.at)) {
            return true;
        }
        let Some((table, token)) = self.place_if_deliverable(id, found) else { return true };
        let (count_max, bytes_max) = {
            let settings = &self.state.borrow().settings;
            (settings.in_flight_max, settings.in_flight_bytes_max)
        };
        while !flight.has_room(token, count_max, bytes_max) {
            self.settle(id, flight).await;
        }
        loop {
            if flight.has_failed() || self.must_stop(route, Some(id)) {
                return false;
            }
            let now = self.rt.now();
            if pace.free_at() <= now {
                break;
            }
            self.rt.sleep_until(pace.free_at().min(now + LOOK_AGAIN)).await;
        }
        let Some(peer) = self.parts.messaging.peer(route.via) else { return false };
        let now = self.rt.now();
        let bytes = hint.mutation.len();
        pace.spend(now, bytes as u64, self.rate(route));
        let timeout = self.state.borrow().settings.answer_timeout;
        let map = ShardMap::ByTokenHash { shards: peer.shard_count.max(1) };
        let to = Outgoing {
            host: route.via,
            shard: map.shard_of(table, token),
            verb: Verb::Hint,
            deadline: now + timeout,
            trace: None,
        };
        let message = Hint {
            target: route.target,
            created_at: hint.written_at,
            gc_grace_seconds: hint.gc_grace_seconds,
            bytes: hint.mutation,
        };
        let future = self.parts.messaging.request(&to, |out| message.encode(out));
        let written_at = hint.written_at;
        flight.push(Sent { at: found.at, bytes, token, written_at, future });
        true
    }

    fn rate(&self, route: Route) -> u64 {
        let was_away = self.state.borrow().hosts.get(&route.target).is_none_or(|h| h.throttled);
        if !route.is_transfer && !was_away {
            return 0;
        }
        let members = match route.is_transfer {
            true => 2,
            false => (self.parts.snapshot)().members.len(),
        };
        policy::rate(&self.state.borrow().settings, members, self.rt.shard_count())
    }

    /// The hint of a record, decrypted where the file is encrypted. `None`: it is not what was written; the file is
    /// kept as a damaged one.
    pub(crate) fn opened<'f>(
        &self,
        id: FileId,
        cipher: Option<&HintCipher>,
        found: Found<'f>,
        plain: &'f mut Vec<u8>,
    ) -> Option<Found<'f>> {
        let Some(cipher) = cipher else { return Some(found) };
        let (at, opened) = (found.at, cipher.open(&found, plain));
        if opened.is_none() {
            self.dropped(Dropped::Unreadable, 1);
            if let Some(file) = self.state.borrow_mut().file_mut(id) {
                file.damaged = true;
            }
            tracing::error!(
                file = id.file_name(),
                offset = at,
                host = %id.target.0,
                "an encrypted hint was changed after it was written and is dropped; run a full repair on the host \
                 for the ranges that it shares with this node"
            );
        }
        opened
    }

    /// The table and token of a hint that is worth delivering; else counts why not.
    pub(crate) fn place_if_deliverable(
        &self,
        id: FileId,
        found: &Found<'_>,
    ) -> Option<(TableId, Token)> {
        let HintRef { mutation, .. } = found.hint;
        let Some(mutation) = MutationRef::open(mutation) else {
            self.dropped(Dropped::Unreadable, 1);
            tracing::warn!(
                file = id.file_name(),
                offset = found.at,
                "dropping a hint: this release cannot read its mutation"
            );
            return None;
        };
        let table = self.table(mutation.table);
        match policy::deliverable(&found.hint, table, self.rt.wall()) {
            Ok(()) => Some((mutation.table, token_of(mutation.key))),
            Err(why) => {
                self.dropped(why, 1);
                None
            }
        }
    }

    /// Takes one answer.
    async fn settle(&self, id: FileId, flight: &mut Flight) {
        let Some((sent, result)) = flight.next().await else { return };
        match result {
            Ok(_) => {
                self.counters.delivered.inc();
                let micros = self.rt.wall().0.saturating_sub(sent.written_at.0);
                let micros = u64::try_from(micros).unwrap_or(0);
                self.counters.age.record_nanos(micros.saturating_mul(1000));
            }
            Err(error) if policy::failure(&error) == Failure::Never => {
                self.dropped(Dropped::Refused, 1);
                tracing::warn!(file = id.file_name(), offset = sent.at, %error,
                    "dropping a hint that its replica refuses for good");
            }
            Err(error) => {
                stdx::reached!("hints-delivery-stopped");
                self.counters.failed.inc();
                if !flight.has_failed() {
                    tracing::info!(host = %id.target.0, file = id.file_name(), %error,
                        "hint delivery interrupted; it resumes later");
                }
                flight.fail(sent.at);
                return;
            }
        }
        if let Some(file) = self.state.borrow_mut().file_mut(id) {
            file.acked.insert(sent.at);
        }
    }

    /// Logs and counts unreadable places once. Until the end it may not be known what was synced.
    pub(crate) fn report(&self, id: FileId, walker: &Walker) {
        let mut state = self.state.borrow_mut();
        let Some(file) = state.file_mut(id) else { return };
        for gap in walker.gaps() {
            file.damaged |= gap.was_synced;
            if !file.reported.insert(gap.from) {
                continue;
            }
            let (name, offset, bytes) = (id.file_name(), gap.from, gap.to - gap.from);
            if gap.was_synced {
                stdx::reached!("hints-damaged-range");
                self.counters.damaged_ranges.inc();
                tracing::error!(
                    file = name,
                    offset,
                    bytes,
                    host = %id.target.0,
                    since_millis = id.sequence,
                    "hint file is damaged: writes that the host missed are lost there; run a full repair on the \
                     host for the ranges that it shares with this node"
                );
            } else {
                stdx::reached!("hints-crash-tail");
                self.counters.crash_tails.inc();
                tracing::info!(
                    file = name,
                    offset,
                    bytes,
                    "truncating the unsynced tail that a crash left in a hint file"
                );
            }
        }
    }

    /// Deletes a delivered file, or quarantines it if it was damaged.
    pub(crate) async fn finish(&self, id: FileId) -> Ended {
        if self.state.borrow().file(id).is_some_and(|f| f.damaged) {
            self.set_aside(id, "it has damaged places").await;
            return Ended::Through;
        }
        match self.directory.remove_file(id).await {
            Ok(()) => {
                self.forget_file(id);
                tracing::info!(host = %id.target.0, file = id.file_name(), "hint file delivered");
                Ended::Through
            }
            Err(error) => {
                self.counters.write_errors.inc();
                tracing::warn!(%error, "cannot remove a delivered hint file");
                Ended::Later
            }
        }
    }

    fn forget_file(&self, id: FileId) -> u64 {
        let mut state = self.state.borrow_mut();
        let host = state.hosts.get_mut(&id.target);
        host.and_then(|h| h.files.remove(&id)).map_or(0, |f| f.bytes)
    }

    /// Renames a file so that an operator can inspect it, and continues without it.
    async fn set_aside(&self, id: FileId, why: &str) {
        let name = id.file_name();
        match self.directory.set_aside(id).await {
            Ok(()) => tracing::error!(
                file = name,
                why,
                "hint file was set aside: \".damaged\" was added to its name"
            ),
            Err(error) => tracing::error!(file = name, why, %error,
                "cannot use or rename a hint file; the next start retries it"),
        }
        let bytes = self.forget_file(id);
        self.state.borrow_mut().aside_bytes += bytes;
    }

    /// A failed read may be the device's mood or its end.
    pub(crate) async fn read_failed(&self, id: FileId, error: &IoError) -> Ended {
        self.counters.read_errors.inc();
        tracing::warn!(%error, "cannot read a hint file");
        if error.kind == IoErrorKind::NotFound {
            self.forget_file(id);
            return Ended::Through;
        }
        // Its key may be added.
        if error.kind == IoErrorKind::PermissionDenied {
            return Ended::Later;
        }
        let failures = match self.state.borrow_mut().file_mut(id) {
            Some(file) => {
                file.read_failures += 1;
                file.read_failures
            }
            None => return Ended::Later,
        };
        if failures >= READ_FAILURES_MAX {
            stdx::reached!("hints-unreadable-file-set-aside");
            self.set_aside(id, "it cannot be read").await;
            return Ended::Through;
        }
        Ended::Later
    }

    /// Persists the delivered offset of a file if it has advanced far enough, or `always`.
    pub(crate) async fn save_progress(&self, id: FileId, always: bool) {
        let progress = {
            let state = self.state.borrow();
            let Some(file) = state.file(id) else { return };
            let moved = file.offset.saturating_sub(file.saved.max(HEADER_BYTES as u64));
            if moved == 0 || !(always || moved >= state.settings.progress_bytes) {
                return;
            }
            Progress { sequence: id.sequence, offset: file.offset, damaged: file.damaged }
        };
        match self.directory.save_progress(id, &progress).await {
            Ok(()) => {
                if let Some(file) = self.state.borrow_mut().file_mut(id) {
                    stdx::invariant!(
                        progress.offset <= file.offset,
                        "INV-hints-1: progress {} noted, delivered to {}",
                        progress.offset,
                        file.offset
                    );
                    file.saved = progress.offset;
                }
            }
            Err(error) => {
                self.counters.write_errors.inc();
                tracing::warn!(%error, "cannot persist the delivery progress of a hint file");
            }
        }
    }
}
