//! Incremental repair on a participant: the sessions that a coordinator opened on this node, and
//! their end. Shard 0 of a node keeps them.
//!
//! A session is opened, flushed, and closed. Opening sets files apart; that takes long, so the
//! coordinator polls for the result. After the close its files are repaired ones, or ordinary ones
//! again. The state of a session does not survive a restart: its files are released at the start. A
//! session without messages for long is aborted too. An abort is always safe: data that was not
//! marked as repaired is compared again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use codec::DecodeError;
use internode::{ErrorReply, Verb};
use messaging::{Request, Responder};
use rt::Group;
use stdx::{HostId, Instant, TableId, Uuid};

use crate::announce::Announcer;
use crate::announcement;
use crate::clock::Clock;
use crate::env::Env;
use crate::participation::{Participations, RepairKey};
use crate::shards::{Order, Shards};
use crate::wire::{self, Close, CloseKind, Open, Opened};

/// Sessions of a node at a time, each of one table.
const SESSIONS_MAX: usize = 1024;

/// Stage of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Ready,
    Failed(String),
}

/// State of a session on this participant.
#[derive(Debug)]
struct OpenSession {
    stage: Stage,
    coordinator: HostId,
    heard: Instant,
}

/// The sessions of a node.
pub(crate) struct Sessions {
    env: Rc<Env>,
    shards: Rc<Shards>,
    announcer: Rc<Announcer>,
    participations: Rc<Participations>,
    /// Sessions that other nodes drive, by table.
    open: RefCell<BTreeMap<(Uuid, TableId), OpenSession>>,
    /// Sessions that this node drives.
    own: RefCell<BTreeSet<Uuid>>,
}

/// Status of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// The session.
    pub session: Uuid,
    /// The table.
    pub table: TableId,
    /// The coordinating node.
    pub coordinator: HostId,
    /// `PREPARING`, `REPAIRING` or `FAILED`.
    pub state: &'static str,
}

impl Sessions {
    pub(crate) fn new(
        env: Rc<Env>,
        shards: Rc<Shards>,
        announcer: Rc<Announcer>,
        participations: Rc<Participations>,
    ) -> Sessions {
        let (open, own) = (RefCell::default(), RefCell::default());
        Sessions { env, shards, announcer, participations, open, own }
    }

    /// Registers a session that this node drives.
    pub(crate) fn begin_own(&self, session: Uuid) {
        self.own.borrow_mut().insert(session);
    }

    /// Removes a session that this node drove.
    pub(crate) fn end_own(&self, session: Uuid) {
        self.own.borrow_mut().remove(&session);
    }

    /// Sessions that other nodes have opened on this one. Shard 0.
    pub(crate) fn statuses(&self) -> Vec<SessionStatus> {
        let sessions = self.open.borrow();
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

    /// Serves the verbs of sessions and announcements; gives the responder back when it is another one.
    pub(crate) fn serve(
        self: &Rc<Sessions>,
        request: &Request<'_>,
        responder: Responder,
    ) -> Option<Responder> {
        let invalid = |error: DecodeError| ErrorReply::Invalid(error.to_string());
        match request.verb {
            Verb::RepairTell => match announcement::decode(request.payload) {
                Ok((repair, news)) => {
                    let about = RepairKey { initiator: request.from, repair };
                    if let Some(asked) = self.announcer.hear(about, news) {
                        let announcer = self.announcer.clone();
                        let task = async move { announcer.estimate(asked).await };
                        let (rt, gate) = (&self.env.rt, &self.env.gate);
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

    fn open(self: &Rc<Sessions>, from: HostId, open: Open, responder: Responder) {
        let key = (open.session, open.table);
        let now = self.env.rt.now();
        if let Some(known) = self.open.borrow_mut().get_mut(&key) {
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
            let opened = Opened::Failed("the session is no longer known here".to_owned());
            return responder.respond(|out| wire::encode_opened(out, &opened));
        }
        if self.open.borrow().len() >= SESSIONS_MAX {
            return responder.fail(&ErrorReply::Overloaded);
        }
        let opened = OpenSession { stage: Stage::Opening, coordinator: from, heard: now };
        self.open.borrow_mut().insert(key, opened);
        let this = self.clone();
        let task = async move {
            let Open { table, session, ranges, .. } = open;
            let outcome = this.shards.on_all(&Order::Begin { table, session, ranges }).await;
            if let Some(known) = this.open.borrow_mut().get_mut(&key) {
                known.stage = match outcome {
                    Ok(_) => Stage::Ready,
                    Err(error) => Stage::Failed(error.to_string()),
                };
            } else {
                // The session was closed meanwhile: data set apart since then belongs to no
                // session.
                let end = Order::End { table, session, repaired_at: None };
                let _ = this.shards.on_all(&end).await;
            }
        };
        let _ = self.env.gate.spawn(&self.env.rt, Group::Stream, "repair-open", task);
        responder.respond(|out| wire::encode_opened(out, &Opened::Working));
    }

    fn close(self: &Rc<Sessions>, close: Close, responder: Responder) {
        let this = self.clone();
        let task = async move {
            match this.closed(&close).await {
                Ok(()) => responder.respond(|_| {}),
                Err(error) => responder.fail(&error),
            }
        };
        let _ = self.env.gate.spawn(&self.env.rt, Group::Stream, "repair-close", task);
    }

    /// Aborts sessions of which nothing is heard. Shard 0.
    pub(crate) async fn watch(&self) {
        let env = &self.env;
        loop {
            self.give_up_unknown().await;
            let next = env.rt.now() + env.settings.session_idle / 8;
            if env.rt.timeout(next, env.stop.notified()).await.is_ok() || env.stopping.get() {
                return;
            }
            let idle = env.settings.session_idle;
            let now = env.rt.now();
            self.open.borrow_mut().retain(|(session, _), p| {
                let stays = now.since(p.heard) < idle;
                if !stays {
                    tracing::warn!(%session, coordinator = %p.coordinator,
                        "abandoning an incremental repair: its coordinator is silent");
                }
                stays
            });
            let clock = Clock { instant: now, wall: env.rt.wall() };
            self.participations.give_up((env.snapshot)().local.host_id, idle, clock);
        }
    }

    /// Turns files of unknown sessions into ordinary ones.
    async fn give_up_unknown(&self) {
        let Ok(all) = self.shards.on_all(&Order::Sessions).await else { return };
        for (table, session) in all.sessions {
            let is_own = self.own.borrow().contains(&session);
            if is_own || self.open.borrow().contains_key(&(session, table)) {
                continue;
            }
            let end = Order::End { table, session, repaired_at: None };
            if let Err(error) = self.shards.on_all(&end).await {
                tracing::warn!(%session, %error, "cannot release the files of a repair session");
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
                let synced = self.shards.on_all(&Order::Sync { table }).await;
                return synced.map(|_| ()).map_err(|e| ErrorReply::Internal(e.to_string()));
            }
            CloseKind::Noted(seconds) => {
                return self.shards.note_repaired(table, ranges, *seconds).await;
            }
        };
        match kind {
            CloseKind::GiveUp => {
                self.open.borrow_mut().remove(&key);
            }
            _ => match self.open.borrow_mut().get_mut(&key) {
                Some(known) if known.stage == Stage::Ready => known.heard = self.env.rt.now(),
                // An answer that was lost may be asked for again.
                _ if matches!(kind, CloseKind::Repaired(_)) => return Ok(()),
                _ => {
                    let text = "the session is no longer known here".to_owned();
                    return Err(ErrorReply::Invalid(text));
                }
            },
        }
        let outcome = self.shards.on_all(&order).await;
        if matches!(kind, CloseKind::Repaired(_)) && outcome.is_ok() {
            self.open.borrow_mut().remove(&key);
        }
        match outcome {
            Ok(_) | Err(store::StoreError::UnknownTable(_)) => Ok(()),
            Err(store::StoreError::Stopping) => Err(ErrorReply::Stopping),
            Err(error) => Err(ErrorReply::Internal(error.to_string())),
        }
    }
}
