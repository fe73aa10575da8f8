//! Incremental repair, the side of a participant: sessions that a coordinator opened on this node,
//! and their end. Shard 0 of a node keeps them.
//!
//! A session is opened (files are set apart, which takes as long as it takes: the coordinator asks
//! again), flushed, and closed: its files are repaired ones then, or ordinary ones again. What a
//! session did before this run of the node is not known: its files are given up at the start. A
//! session of which nothing was heard for long is given up too. Giving up is always safe: what was
//! not called repaired is compared again.

use std::cell::RefCell;
use std::collections::BTreeMap;

use codec::{DecodeError, Reader, Writer};
use internode::{ErrorReply, Verb};
use messaging::{Request, Responder};
use rt::Group;
use stdx::{HostId, Instant, TableId, Token, Uuid};

use crate::mesh::Order;
use crate::repair::{Inner, Repair};
use crate::wire::{self, Close, CloseKind, Open, Opened};

/// Sessions of a node at a time, each of one table.
const SESSIONS_MAX: usize = 1024;

/// How far a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Ready,
    Failed(String),
}

/// A session as this node takes part in it.
#[derive(Debug)]
pub(crate) struct Participation {
    stage: Stage,
    coordinator: HostId,
    heard: Instant,
}

/// The sessions of a node, by table.
pub(crate) type Sessions = RefCell<BTreeMap<(Uuid, TableId), Participation>>;

/// What shows of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// The session.
    pub session: Uuid,
    /// The table.
    pub table: TableId,
    /// Who drives it.
    pub coordinator: HostId,
    /// `PREPARING`, `REPAIRING` or `FAILED`.
    pub state: &'static str,
}

impl Repair {
    /// Incremental sessions that other nodes have opened on this one. Shard 0.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let sessions = self.inner.sessions.borrow();
        let all = sessions.iter().map(|((session, table), p)| SessionStatus {
            session: *session,
            table: *table,
            coordinator: p.coordinator,
            state: match p.stage {
                Stage::Opening => "PREPARING",
                Stage::Ready => "REPAIRING",
                Stage::Failed(_) => "FAILED",
            },
        });
        all.collect()
    }

    /// `None`: taken.
    pub(crate) fn serve_session(
        &self,
        request: &Request<'_>,
        responder: Responder,
    ) -> Option<Responder> {
        let invalid = |error: DecodeError| ErrorReply::Invalid(error.to_string());
        match request.verb {
            Verb::RepairTell => match crate::tell::decode(request.payload) {
                Ok((repair, news)) => {
                    if let Some(asked) = self.inner.take_news(request.from, repair, news) {
                        let inner = self.inner.clone();
                        let task = async move { inner.estimate(asked).await };
                        let (rt, gate) = (&self.inner.rt, &self.inner.gate);
                        // A closed gate: the node stops.
                        let _ = gate.spawn(rt, Group::Stream, "repair-estimate", task);
                    }
                    responder.respond(|_| {});
                }
                Err(error) => responder.fail(&invalid(error)),
            },
            Verb::RepairOpen => match wire::decode_open(request.payload) {
                Ok(open) => self.open(request.from, open, responder),
                Err(error) => responder.fail(&invalid(error)),
            },
            Verb::RepairClose => match wire::decode_close(request.payload) {
                Ok(close) => self.close(close, responder),
                Err(error) => responder.fail(&invalid(error)),
            },
            _ => return Some(responder),
        }
        None
    }

    fn open(&self, from: HostId, open: Open, responder: Responder) {
        let inner = &self.inner;
        let key = (open.session, open.table);
        let now = inner.rt.now();
        if let Some(known) = inner.sessions.borrow_mut().get_mut(&key) {
            known.heard = now;
            let opened = match &known.stage {
                Stage::Opening => Opened::Working,
                Stage::Ready => Opened::Ready,
                Stage::Failed(words) => Opened::Failed(words.clone()),
            };
            return responder.respond(|out| wire::encode_opened(out, &opened));
        }
        if open.again {
            // This node has forgotten it, with what it was sent.
            let opened = Opened::Failed("the session is not known here any more".to_owned());
            return responder.respond(|out| wire::encode_opened(out, &opened));
        }
        if inner.sessions.borrow().len() >= SESSIONS_MAX {
            return responder.fail(&ErrorReply::Overloaded);
        }
        let participation = Participation { stage: Stage::Opening, coordinator: from, heard: now };
        inner.sessions.borrow_mut().insert(key, participation);
        let this = self.clone();
        let task = async move {
            let Open { table, session, ranges, .. } = open;
            let outcome = this.inner.on_all_shards(&Order::Begin { table, session, ranges }).await;
            if let Some(known) = this.inner.sessions.borrow_mut().get_mut(&key) {
                known.stage = match outcome {
                    Ok(_) => Stage::Ready,
                    Err(error) => Stage::Failed(error.to_string()),
                };
            } else {
                // Closed meanwhile: what was set apart since is nobody's.
                let end = Order::End { table, session, repaired_at: None };
                let _ = this.inner.on_all_shards(&end).await;
            }
        };
        let _ = inner.gate.spawn(&inner.rt, Group::Stream, "repair-open", task);
        responder.respond(|out| wire::encode_opened(out, &Opened::Working));
    }

    fn close(&self, close: Close, responder: Responder) {
        let this = self.clone();
        let task = async move {
            match this.inner.closed(&close).await {
                Ok(()) => responder.respond(|_| {}),
                Err(error) => responder.fail(&error),
            }
        };
        let inner = &self.inner;
        let _ = inner.gate.spawn(&inner.rt, Group::Stream, "repair-close", task);
    }

    /// Gives up sessions of which nothing is heard. Shard 0.
    pub(crate) async fn watch_sessions(&self) {
        let inner = &self.inner;
        loop {
            inner.give_up_unknown().await;
            let next = inner.rt.now() + inner.settings.session_idle / 8;
            if inner.rt.timeout(next, inner.stop.notified()).await.is_ok() || inner.stopping.get() {
                return;
            }
            let idle = inner.settings.session_idle;
            let now = inner.rt.now();
            inner.sessions.borrow_mut().retain(|(session, _), p| {
                let stays = now.since(p.heard) < idle;
                if !stays {
                    tracing::warn!(%session, coordinator = %p.coordinator,
                        "nothing was heard of an incremental repair: it is given up here");
                }
                stays
            });
            let times = (now, inner.rt.wall());
            inner.participations.give_up((inner.snapshot)().local.host_id, idle, times);
        }
    }
}

impl Inner {
    /// Files of sessions that are not under way become ordinary ones.
    async fn give_up_unknown(&self) {
        let Ok(all) = self.on_all_shards(&Order::Sessions).await else { return };
        for (table, session) in all.sessions {
            let is_own = self.own_sessions.borrow().contains(&session);
            if is_own || self.sessions.borrow().contains_key(&(session, table)) {
                continue;
            }
            let end = Order::End { table, session, repaired_at: None };
            if let Err(error) = self.on_all_shards(&end).await {
                tracing::warn!(%session, %error, "files of a repair session could not be released");
            }
        }
    }

    async fn closed(&self, close: &Close) -> Result<(), ErrorReply> {
        let Close { kind, table, session, ranges } = close;
        let (table, session) = (*table, *session);
        let key = (session, table);
        let order = match kind {
            CloseKind::Flush => Order::Flush { table, session },
            CloseKind::GiveUp => Order::End { table, session, repaired_at: None },
            CloseKind::Repaired(at) => Order::End { table, session, repaired_at: Some(*at) },
            CloseKind::Sync => {
                let synced = self.on_all_shards(&Order::Sync { table }).await;
                return synced.map(|_| ()).map_err(|e| ErrorReply::Internal(e.to_string()));
            }
            CloseKind::Noted(seconds) => {
                return self.note(table, ranges, *seconds).await;
            }
        };
        match kind {
            CloseKind::GiveUp => {
                self.sessions.borrow_mut().remove(&key);
            }
            _ => match self.sessions.borrow_mut().get_mut(&key) {
                Some(known) if known.stage == Stage::Ready => known.heard = self.rt.now(),
                // An answer that was lost may be asked for again.
                _ if matches!(kind, CloseKind::Repaired(_)) => return Ok(()),
                _ => {
                    let text = "the session is not known here any more".to_owned();
                    return Err(ErrorReply::Invalid(text));
                }
            },
        }
        let outcome = self.on_all_shards(&order).await;
        if matches!(kind, CloseKind::Repaired(_)) && outcome.is_ok() {
            self.sessions.borrow_mut().remove(&key);
        }
        match outcome {
            Ok(_) | Err(store::StoreError::UnknownTable(_)) => Ok(()),
            Err(store::StoreError::Stopping) => Err(ErrorReply::Stopping),
            Err(error) => Err(ErrorReply::Internal(error.to_string())),
        }
    }

    /// Keeps in mind that ranges were repaired, durably, and lets tombstones go for it. Shard 0.
    pub(crate) async fn note(
        &self,
        table: TableId,
        ranges: &[(Token, Token)],
        seconds: i64,
    ) -> Result<(), ErrorReply> {
        let ranges = ranges.to_vec();
        let internal = |error: String| ErrorReply::Internal(error);
        // First to the disk: what was purged for it must not be forgotten to be repaired.
        self.write_history(table, &ranges, seconds).await.map_err(|e| internal(e.to_string()))?;
        let noted = Order::Noted { table, ranges, seconds };
        self.on_all_shards(&noted).await.map_err(|e| internal(e.to_string()))?;
        Ok(())
    }

    async fn write_history(
        &self,
        table: TableId,
        ranges: &[(Token, Token)],
        seconds: i64,
    ) -> Result<(), stdx::IoError> {
        let _permit = self.history_slot.acquire(1).await;
        let mut history = self.history.borrow().clone();
        let snapshot = (self.snapshot)();
        history.keep(|id| snapshot.schema.table_by_id(id).is_some());
        history.note(table, ranges, seconds);
        let path = format!("{}/{}", self.work_dir, crate::history::FILE);
        self.rt.fs().write_atomic(&path, history.encode()).await?;
        *self.history.borrow_mut() = history;
        Ok(())
    }
}

/// Appends ranges.
pub(crate) fn put_ranges(out: &mut Vec<u8>, ranges: &[(Token, Token)]) {
    out.put_vint_unsigned(ranges.len() as u64);
    for (start, end) in ranges {
        out.put_i64(start.0);
        out.put_i64(end.0);
    }
}

/// Reads ranges back: ascending, apart from each other.
pub(crate) fn take_ranges(r: &mut Reader<'_>) -> Result<Vec<(Token, Token)>, DecodeError> {
    let count = r.vint_len()?;
    let count = r.check_count(count, 16)?;
    let mut ranges: Vec<(Token, Token)> = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, end) = (Token(r.i64()?), Token(r.i64()?));
        let ascends = ranges.last().is_none_or(|(_, last)| *last <= start);
        if start >= end || !ascends {
            return Err(r.invalid(start.0));
        }
        ranges.push((start, end));
    }
    Ok(ranges)
}
