//! Statistics of a shard's streams.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use stdx::{HostId, Instant, Uuid};
use telemetry::{Counter, Shard};

/// A sending session of which nothing was heard for so long is over.
const SENDING_IDLE: Duration = Duration::from_secs(60);

/// A sending session counts as active for this long after its last event: the sender of rows does
/// not know how many are left.
const SENDING_ACTIVE: Duration = Duration::from_secs(10);

/// One direction between this shard and a peer, for one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStats {
    /// Why: `Bootstrap`, `Rebuild` ….
    pub operation: String,
    /// The operation; the same on all shards and peers.
    pub plan: Uuid,
    /// The peer.
    pub host: HostId,
    /// Ranges of it; known to the receiver only.
    pub ranges: u64,
    /// Ranges that are here.
    pub ranges_done: u64,
    /// Bytes of pages.
    pub bytes: u64,
    /// Partitions; one that continues in another page is counted again.
    pub partitions: u64,
    /// Files that go whole.
    pub files: u64,
    /// Files of them that are transferred.
    pub files_done: u64,
    /// Bytes of those files.
    pub file_bytes: u64,
    /// Bytes of them that are transferred; included in `bytes`.
    pub file_bytes_done: u64,
    /// The files in transfer, by name.
    pub current: Vec<FileStats>,
    /// True while the session is active.
    pub is_active: bool,
    /// Time since its start.
    pub age: Duration,
    /// Time since its last event.
    pub idle: Duration,
}

/// A file in transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStats {
    /// Keyspace, table and name of its Data at the source.
    pub name: String,
    /// Size of the file.
    pub bytes: u64,
    /// Bytes that are transferred.
    pub bytes_done: u64,
}

impl SessionStats {
    /// Counts transferred bytes of a file; the file is listed until it is complete.
    pub(crate) fn note_file(&mut self, name: &str, bytes: u64, more: u64) {
        self.bytes += more;
        self.file_bytes_done += more;
        let at = match self.current.iter().position(|f| f.name == name) {
            Some(at) => at,
            None => {
                self.current.push(FileStats { name: name.to_owned(), bytes, bytes_done: 0 });
                self.current.len() - 1
            }
        };
        let Some(file) = self.current.get_mut(at) else { return };
        file.bytes_done += more;
        if file.bytes_done >= file.bytes {
            self.current.remove(at);
            self.files_done += 1;
        }
    }
}

/// The streams of this shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Bytes per second that this shard sends at most; 0 = no limit.
    pub bytes_per_second_max: u64,
    /// Limit to other datacenters; 0 = no limit of their own.
    pub inter_dc_bytes_per_second_max: u64,
    /// Sessions that receive.
    pub receiving: Vec<SessionStats>,
    /// Sessions that send.
    pub sending: Vec<SessionStats>,
}

#[derive(Debug)]
struct Session {
    stats: SessionStats,
    began: Instant,
    touched: Instant,
}

/// Key of a session: an operation and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionKey {
    pub(crate) plan: Uuid,
    pub(crate) host: HostId,
}

type Sessions = RefCell<BTreeMap<SessionKey, Session>>;

/// Counters and sessions.
pub(crate) struct Counts {
    receiving: Sessions,
    sending: Sessions,
    pub(crate) sent_bytes: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) received_partitions: Counter,
    pub(crate) received_files: Counter,
    pub(crate) sent_chunks: Counter,
    pub(crate) retries: Counter,
    pub(crate) refused: Counter,
}

impl Counts {
    pub(crate) fn new(shard: &Shard) -> Counts {
        let counter = |name, help| shard.counter(name, help, &[]);
        Counts {
            receiving: Sessions::default(),
            sending: Sessions::default(),
            sent_bytes: counter("stream_sent_bytes_total", "bytes of pages given to peers"),
            received_bytes: counter("stream_received_bytes_total", "bytes of pages fetched"),
            received_partitions: counter("stream_received_partitions_total", "partitions fetched"),
            received_files: counter("stream_received_files_total", "files fetched as they are"),
            sent_chunks: counter("stream_sent_chunks_total", "pieces of files given to peers"),
            retries: counter("stream_retries_total", "pages that were asked for again"),
            refused: counter("stream_refused_total", "requests for pages that were refused"),
        }
    }

    /// Changes the numbers of a session, which begins with that.
    fn touch(
        sessions: &Sessions,
        key: SessionKey,
        operation: &str,
        now: Instant,
        change: impl FnOnce(&mut SessionStats),
    ) {
        let mut sessions = sessions.borrow_mut();
        let session = sessions.entry(key).or_insert_with(|| Session {
            stats: SessionStats {
                operation: operation.to_owned(),
                plan: key.plan,
                host: key.host,
                ranges: 0,
                ranges_done: 0,
                bytes: 0,
                partitions: 0,
                files: 0,
                files_done: 0,
                file_bytes: 0,
                file_bytes_done: 0,
                current: Vec::new(),
                is_active: true,
                age: Duration::ZERO,
                idle: Duration::ZERO,
            },
            began: now,
            touched: now,
        });
        session.touched = now;
        change(&mut session.stats);
    }

    pub(crate) fn receiving(
        &self,
        id: SessionKey,
        operation: &str,
        now: Instant,
        change: impl FnOnce(&mut SessionStats),
    ) {
        Counts::touch(&self.receiving, id, operation, now, change);
    }

    pub(crate) fn sending(
        &self,
        id: SessionKey,
        operation: &str,
        now: Instant,
        change: impl FnOnce(&mut SessionStats),
    ) {
        self.sending.borrow_mut().retain(|_, s| now.since(s.touched) < SENDING_IDLE);
        Counts::touch(&self.sending, id, operation, now, change);
    }

    /// An operation is over.
    pub(crate) fn forget(&self, plan: Uuid) {
        self.receiving.borrow_mut().retain(|key, _| key.plan != plan);
    }

    pub(crate) fn stats(&self, now: Instant) -> (Vec<SessionStats>, Vec<SessionStats>) {
        self.sending.borrow_mut().retain(|_, s| now.since(s.touched) < SENDING_IDLE);
        let all = |sessions: &Sessions| {
            let sessions = sessions.borrow();
            let at_now = sessions.values().map(|s| SessionStats {
                age: now.since(s.began),
                idle: now.since(s.touched),
                ..s.stats.clone()
            });
            at_now.collect::<Vec<_>>()
        };
        for session in self.sending.borrow_mut().values_mut() {
            session.stats.is_active = now.since(session.touched) < SENDING_ACTIVE;
        }
        (all(&self.receiving), all(&self.sending))
    }
}
