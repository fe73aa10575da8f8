//! A worker of COPY FROM: records to bound rows, rows to batches, batches to the nodes that own them.
//!
//! Owns: batches, the window of requests in flight, retries. Never: prints.
//!
//! Batches are built like in cqlsh: if one token range has enough rows, they form batches for any of its replicas.
//! The other rows fill batches for one replica. A failed batch is retried, through another node if the connection to
//! the first one is lost.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cql_wire::request::BatchList;
use cql_wire::{
    Batch, BatchKind, BatchQuery, BoundValue, Consistency, QueryParameters, Request, ValueList,
};
use types::CqlType;

use crate::connection::Target;
use crate::copy::convert::Conversion;
use crate::copy::import::News;
use crate::copy::import::links::{Link, Links};
use crate::copy::import::rows::Rows;
use crate::copy::import::source::Chunk;
use crate::copy::options::CopyOptions;
use crate::copy::ring::Ring;
use crate::failure::Failure;
use crate::schema::Role;

/// First pause for a server that has too much to do; doubled with each further one of a batch.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Bytes of requests that are written at once.
const WRITE_BYTES: usize = 64 << 10;

/// Imported rows after which, or time after which, a worker reports its progress to the shell's
/// thread.
const TELL_ROWS: usize = 2000;
const TELL_EVERY: Duration = Duration::from_millis(50);

/// The statement of each row.
pub(super) struct Statement {
    /// With bind markers.
    pub(super) query: String,
    /// Text before and after the literals of a row; `None`: rows are bound to `query`.
    pub(super) around: Option<(String, String)>,
    /// An UPDATE of counters: in counter batches, with 0 for null.
    pub(super) counter: bool,
    /// For each bind marker: which field.
    pub(super) fields: Vec<usize>,
    /// The fields of the partition key, in its order.
    pub(super) key_fields: Vec<usize>,
    /// Where the values of the partition key are in a row, as they are hashed.
    pub(super) key: Vec<usize>,
    /// Type of each field.
    pub(super) kinds: Vec<CqlType>,
    /// Role of each field's column in the table.
    pub(super) roles: Vec<Option<Role>>,
    pub(super) columns: Vec<String>,
}

impl Statement {
    /// Returns true if fields are literals of statements that are not prepared.
    pub(super) fn is_literal(&self) -> bool {
        self.around.is_some()
    }
}

/// State that all workers share.
pub(super) struct Job<'j> {
    pub(super) options: &'j CopyOptions,
    pub(super) target: &'j Target,
    pub(super) ring: &'j Ring,
    pub(super) conversion: &'j Conversion,
    pub(super) statement: &'j Statement,
    /// For each field of a record: whether it is imported.
    pub(super) keep: &'j [bool],
    pub(super) consistency: Consistency,
    pub(super) field_bytes_max: usize,
}

/// Target of a batch: its rows have these replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// A range of the ring, by its position.
    Range(usize),
    Node(usize),
}

/// A batch.
pub(super) struct InFlight {
    rows: Rc<Rows>,
    /// Which of the rows.
    picked: Vec<usize>,
    owner: Owner,
    attempts: u32,
    /// How often the server had too much to do.
    backoffs: u32,
}

struct Worker<'w> {
    job: &'w Job<'w>,
    news: &'w SyncSender<News>,
    stop: &'w AtomicBool,
    links: Links,
    /// Batches that are to be sent, again or for the first time.
    queue: VecDeque<InFlight>,
    turn: usize,
    /// Nothing is sent before: the server has too much to do.
    pause_until: Instant,
    /// Imported rows that are not yet reported to the shell's thread.
    imported: usize,
    told: Instant,
    /// Reused buffers of the next batch.
    statements: BatchList,
    values: ValueList,
    text: String,
}

/// Takes chunks until there are no more.
pub(super) fn work(
    job: &Job<'_>,
    chunks: &Arc<Mutex<Receiver<Chunk>>>,
    news: &SyncSender<News>,
    stop: &AtomicBool,
) {
    let links = Links::new(job.ring.len());
    let queue = VecDeque::new();
    let now = Instant::now();
    let mut worker = Worker {
        job,
        news,
        stop,
        links,
        queue,
        turn: 0,
        pause_until: now,
        imported: 0,
        told: now,
        statements: BatchList::new(),
        values: ValueList::new(),
        text: String::new(),
    };
    loop {
        let chunk = match chunks.lock() {
            Ok(chunks) => chunks.recv(),
            Err(_) => return,
        };
        let Ok(chunk) = chunk else { break };
        if stop.load(Ordering::Relaxed) {
            break;
        }
        worker.chunk(chunk);
        worker.tell_imported();
    }
    worker.drain();
    worker.tell_imported();
}

impl Worker<'_> {
    fn tell(&self, news: News) {
        // The news go nowhere only when the shell's thread has ended.
        let _ = self.news.send(news);
    }

    /// Waking the shell's thread for each batch would cost as much as the batch.
    fn tell_imported(&mut self) {
        let rows = u64::try_from(std::mem::take(&mut self.imported)).unwrap_or(0);
        if rows > 0 {
            self.told = Instant::now();
            self.tell(News::Imported(rows));
        }
    }

    fn chunk(&mut self, chunk: Chunk) {
        let (rows, unreadable) = Rows::parse(self.job, chunk);
        for (text, records) in unreadable {
            self.tell(News::Unreadable { class: "ParseError", text, records });
        }
        let rows = Rc::new(rows);
        for (owner, picked) in self.batches(&rows) {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let rows = Rc::clone(&rows);
            self.queue.push_back(InFlight { rows, picked, owner, attempts: 1, backoffs: 0 });
            self.settle();
        }
        for (node, failure) in self.links.flush() {
            self.lose(node, &failure);
        }
        self.settle();
    }

    fn batches(&mut self, rows: &Rows) -> Vec<(Owner, Vec<usize>)> {
        let Job { ring, statement, options, .. } = self.job;
        let (least, most) = (options.batch_rows_min, options.batch_rows_max);
        let mut of_ranges: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        if ring.len() == 1 {
            of_ranges.insert(0, (0..rows.len()).collect());
        } else {
            let mut key = Vec::new();
            for row in 0..rows.len() {
                rows.key(row, &statement.key, &mut key);
                let position = ring.position(codec::murmur::token_of(&key).0);
                of_ranges.entry(position).or_default().push(row);
            }
        }
        let mut batches = Vec::new();
        let mut of_nodes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (position, picked) in of_ranges {
            if picked.len() > least {
                cut(Owner::Range(position), &picked, most, &mut batches);
                continue;
            }
            self.turn = self.turn.wrapping_add(1);
            let replicas = ring.replicas(position);
            let chosen = self.turn.checked_rem(replicas.len()).and_then(|at| replicas.get(at));
            of_nodes.entry(chosen.copied().unwrap_or(0)).or_default().extend(picked);
        }
        for (node, picked) in of_nodes {
            cut(Owner::Node(node), &picked, most, &mut batches);
        }
        batches
    }

    /// Sends all batches that wait.
    fn settle(&mut self) {
        while let Some(batch) = self.queue.pop_front() {
            std::thread::sleep(self.pause_until.saturating_duration_since(Instant::now()));
            self.place(batch);
        }
    }

    /// Sends a batch; waits for an answer first when the window of its node is full.
    fn place(&mut self, batch: InFlight) {
        let job = self.job;
        loop {
            let chosen = match batch.owner {
                Owner::Range(position) => self.links.choose(job, job.ring.replicas(position)),
                Owner::Node(node) => self.links.choose(job, &[node]),
            };
            let node = match chosen {
                Ok(node) => node,
                Err(failure) => return self.refused(batch, failure),
            };
            let Some(link) = self.links.get(node) else { continue };
            let Some(stream) = link.free.pop() else {
                self.answer(node);
                continue;
            };
            let to = Sending { job, link: &mut *link, batch: &batch, stream };
            let sent = match job.statement.around {
                None => send(to, &mut self.statements, &mut self.values),
                Some(_) => send_texts(to, &mut self.statements, &mut self.text),
            };
            let sent = sent.and_then(|()| match link.connection.waiting() >= WRITE_BYTES {
                true => link.connection.flush(),
                false => Ok(()),
            });
            if let Some(slot) = link.slots.get_mut(stream) {
                *slot = Some(batch);
            }
            if let Err(failure) = sent {
                self.lose(node, &failure);
            }
            return;
        }
    }

    /// Receives one answer of a node.
    fn answer(&mut self, node: usize) {
        let deadline = Instant::now() + self.job.options.request_timeout;
        let Some(link) = self.links.get(node) else { return };
        let received = link.connection.flush().and_then(|()| link.connection.receive(deadline));
        let (stream, reply) = match received {
            Ok(received) => received,
            Err(failure) => return self.lose(node, &failure),
        };
        let index = usize::try_from(stream).unwrap_or(usize::MAX);
        let Some(batch) = link.slots.get_mut(index).and_then(Option::take) else { return };
        link.free.push(index);
        match reply {
            Ok(_) => {
                self.imported += batch.picked.len();
                if self.imported >= TELL_ROWS || self.told.elapsed() >= TELL_EVERY {
                    self.tell_imported();
                }
            }
            Err(failure) => self.refused(batch, failure),
        }
    }

    /// Handles a lost node: batches in flight to it are retried through the others.
    fn lose(&mut self, node: usize, failure: &Failure) {
        for batch in self.links.down(node, failure) {
            self.refused(batch, failure.clone());
        }
    }

    fn refused(&mut self, mut batch: InFlight, failure: Failure) {
        if failure.is_overload() && batch.backoffs < self.job.options.backoff_max {
            // Nothing was done, so counters are retried too.
            let pause = PAUSE_MIN.saturating_mul(1 << batch.backoffs.min(16));
            self.pause_until = Instant::now() + pause.min(PAUSE_MAX);
            batch.backoffs += 1;
            self.queue.push_back(batch);
            return;
        }
        let attempts = batch.attempts;
        // An increment may have been applied: a counter batch is not retried.
        let last = attempts >= self.job.options.attempts_max || self.job.statement.counter;
        let records = batch.picked.iter().map(|row| batch.rows.record(*row).to_vec()).collect();
        self.tell(News::Refused { failure, records, attempts, last });
        if !last {
            batch.attempts += 1;
            self.queue.push_back(batch);
        }
    }

    /// Waits for all answers.
    fn drain(&mut self) {
        loop {
            self.settle();
            match self.links.busy() {
                Some(node) => self.answer(node),
                None if self.queue.is_empty() => return,
                None => {}
            }
        }
    }
}

/// A batch on its way to a node.
struct Sending<'a> {
    job: &'a Job<'a>,
    link: &'a mut Link,
    batch: &'a InFlight,
    stream: usize,
}

fn send(to: Sending<'_>, list: &mut BatchList, values: &mut ValueList) -> Result<(), Failure> {
    let Sending { job, link, batch, stream } = to;
    let Job { statement, consistency, .. } = job;
    let stream = i16::try_from(stream).unwrap_or(i16::MAX);
    list.clear();
    for row in &batch.picked {
        values.clear();
        for field in &statement.fields {
            values.push(match batch.rows.value(*row, *field) {
                Some(value) => BoundValue::Bytes(value),
                None if statement.counter => BoundValue::Bytes(&[0; 8]),
                None => BoundValue::Null,
            })?;
        }
        if batch.picked.len() > 1 {
            list.push(BatchQuery::Prepared(&link.statement_id), values.values())?;
        }
    }
    let parameters = QueryParameters::new(*consistency);
    let request = match batch.picked.len() {
        1 => Request::Execute {
            id: &link.statement_id,
            result_metadata_id: link.result_id.as_deref(),
            parameters: QueryParameters { values: values.values(), ..parameters },
        },
        _ => Request::Batch(Batch {
            kind: if statement.counter { BatchKind::Counter } else { BatchKind::Unlogged },
            statements: list.statements(),
            parameters,
        }),
    };
    link.connection.send(&request, stream, false)
}

/// Like [`send`], with the values as literals.
fn send_texts(to: Sending<'_>, list: &mut BatchList, text: &mut String) -> Result<(), Failure> {
    let Sending { job, link, batch, stream } = to;
    let Job { statement, consistency, .. } = job;
    let stream = i16::try_from(stream).unwrap_or(i16::MAX);
    let (before, behind) = statement
        .around
        .as_ref()
        .map_or(("", ""), |(before, behind)| (before.as_str(), behind.as_str()));
    list.clear();
    for row in &batch.picked {
        text.clear();
        text.push_str(before);
        for at in 0..statement.kinds.len() {
            if at > 0 {
                text.push(',');
            }
            let literal = batch.rows.value(*row, at);
            // The fields were text before.
            text.push_str(literal.and_then(|field| str::from_utf8(field).ok()).unwrap_or("NULL"));
        }
        text.push_str(behind);
        list.push(BatchQuery::Text(text), ValueList::new().values())?;
    }
    let request = Request::Batch(Batch {
        kind: BatchKind::Unlogged,
        statements: list.statements(),
        parameters: QueryParameters::new(*consistency),
    });
    link.connection.send(&request, stream, false)
}

fn cut(owner: Owner, rows: &[usize], most: usize, batches: &mut Vec<(Owner, Vec<usize>)>) {
    batches.extend(rows.chunks(most).map(|rows| (owner, rows.to_vec())));
}
