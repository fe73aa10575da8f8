//! Holds: data and files that a source keeps for a peer while the peer fetches them.
//!
//! A hold is of one peer, table and set of ranges, on one shard. It ends when the peer closes it, or
//! some time after the peer's last request. A request after that is answered with an unknown hold,
//! and the peer restarts its pass.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use messaging::Responder;
use rt::Group;
use rt::sync::Notify;
use stdx::{HostId, Instant, Uuid};
use store::Held;

use super::Serving;
use crate::stats::SessionKey;
use crate::wire::{ChunkRequest, FileOffer, OpenAnswer, OpenRequest, put_chunk};

/// Holds of a shard at a time; above, tables go as rows.
const HOLDS_MAX: usize = 64;

/// One of them.
pub(crate) struct Hold {
    pub(crate) held: Held,
    from: HostId,
    plan: Uuid,
    operation: String,
    /// Keyspace and table.
    name: String,
    touched: Cell<Instant>,
    /// Notified when the hold ends.
    ended: Rc<Notify>,
}

/// By number.
#[derive(Default)]
pub(crate) struct Holds {
    all: RefCell<BTreeMap<u64, Rc<Hold>>>,
}

impl Holds {
    /// The hold of that number, when it is this peer's.
    pub(crate) fn find(&self, number: u64, from: HostId, now: Instant) -> Option<Rc<Hold>> {
        let found = self.all.borrow().get(&number).filter(|hold| hold.from == from).cloned();
        if let Some(hold) = &found {
            hold.touched.set(now);
        }
        found
    }

    pub(crate) fn end(&self, number: u64, from: HostId) {
        let mut all = self.all.borrow_mut();
        if all.get(&number).is_some_and(|hold| hold.from == from)
            && let Some(hold) = all.remove(&number)
        {
            hold.ended.notify_one();
        }
    }

    pub(crate) fn clear(&self) {
        self.all.borrow_mut().clear();
    }
}

impl Serving {
    /// Holds what there is and offers the files that may go whole.
    pub(super) async fn open(self, from: HostId, open: OpenRequest, responder: Responder) {
        let source = self.0.clone();
        let env = &source.env;
        let shards = env.rt.shard_count();
        let mut answer = OpenAnswer { shards, hold: 0, files: Vec::new(), version: open.version };
        let wanted = env.settings.whole_files && open.peer_shards == shards;
        if wanted && source.holds.all.borrow().len() < HOLDS_MAX {
            let min = env.settings.whole_bytes_min;
            match env.store.transfer().hold(open.table, &open.ranges, min, &open.taken).await {
                Ok(None) => {}
                Ok(Some(held)) => {
                    let offer = |file: &store::HeldFile| FileOffer {
                        generation: file.generation(),
                        version: file.version(),
                        components: file.components().collect(),
                    };
                    answer.files = held.files().iter().map(offer).collect();
                    answer.hold = self.keep(from, &open, held);
                }
                Err(error) => return self.fail(&error, responder),
            }
        }
        if answer.hold != 0 {
            let id = SessionKey { plan: open.plan, host: from };
            let bytes: u64 = answer.files.iter().map(FileOffer::bytes).sum();
            env.counts.sending(id, &open.operation, env.rt.now(), |session| {
                session.files += answer.files.len() as u64;
                session.file_bytes += bytes;
            });
        }
        responder.respond(|out| answer.encode(out));
    }

    /// Numbers a hold and sees to its end.
    fn keep(&self, from: HostId, open: &OpenRequest, held: Held) -> u64 {
        let (source, env) = (&self.0, &self.0.env);
        let number = env.rt.random_u64().max(1);
        let ended = Rc::new(Notify::new());
        let hold = Hold {
            held,
            from,
            plan: open.plan,
            operation: open.operation.clone(),
            name: env.table_name(open.table),
            touched: Cell::new(env.rt.now()),
            ended: ended.clone(),
        };
        source.holds.all.borrow_mut().insert(number, Rc::new(hold));
        let of_task = source.clone();
        let task = async move {
            let (source, env) = (&of_task, &of_task.env);
            let idle = env.settings.hold_idle;
            let mut look_at = env.rt.now() + idle;
            loop {
                let pause = env.rt.timeout(look_at, ended.notified());
                // Stopped, or the hold has ended; else it is time to look.
                let Ok(Err(_)) = env.unless_stopped(pause).await else { return };
                let touched = source.holds.all.borrow().get(&number).map(|h| h.touched.get());
                let Some(touched) = touched else { return };
                look_at = touched + idle;
                if look_at <= env.rt.now() {
                    stdx::reached!("stream-hold-expired");
                    source.holds.all.borrow_mut().remove(&number);
                    tracing::info!(
                        host = %from,
                        "discarding a stream held for a node: it was not fetched in time"
                    );
                    return;
                }
            }
        };
        // A closed gate: streaming stops, and with it every hold.
        let _ = env.gate.spawn(&env.rt, Group::Stream, "stream-hold", task);
        number
    }

    /// Gives bytes of a file.
    pub(super) async fn chunk(self, from: HostId, chunk: ChunkRequest, responder: Responder) {
        let source = self.0.clone();
        let env = &source.env;
        let Some(hold) = source.holds.find(chunk.hold, from, env.rt.now()) else {
            responder.respond(|out| put_chunk(out, None));
            return;
        };
        let file = hold.held.files().iter().find(|f| f.generation() == chunk.generation);
        let Some(file) = file else {
            responder.respond(|out| put_chunk(out, None));
            return;
        };
        let wanted = usize::try_from(chunk.bytes).unwrap_or(usize::MAX);
        let wanted = wanted.min(env.settings.chunk_bytes);
        let bytes = whole_blocks(self.page_bytes(from, wanted));
        let read = match file.read(chunk.component, chunk.offset, bytes).await {
            Ok(read) => read,
            Err(error) => return self.fail(&error, responder),
        };
        let Some(responder) = self.pace(from, read.len(), responder).await else { return };
        let sent = read.len() as u64;
        env.counts.sent_bytes.add(sent);
        env.counts.sent_chunks.inc();
        let id = SessionKey { plan: hold.plan, host: from };
        env.counts.sending(id, &hold.operation, env.rt.now(), |session| {
            let name = file_name(&hold.name, chunk.generation.0);
            let all = file.components().map(|(_, bytes)| bytes).sum();
            session.note_file(&name, all, sent);
        });
        responder.respond(|out| put_chunk(out, Some(read.as_slice())));
    }
}

/// Returns the name for display: the Data file at the source.
pub(crate) fn file_name(table: &str, generation: u64) -> String {
    format!("{table}/nb-{generation}-big-Data.db")
}

/// Whole blocks of the disk, at least one.
fn whole_blocks(bytes: usize) -> usize {
    (bytes - bytes % 4096).max(4096)
}
