//! A worker of COPY FROM: records to bound rows, rows to batches, batches over one connection.
//!
//! Owns: the window of requests in flight, retries. Never: prints.
//!
//! Rows of one partition go together when there are enough of them; the others fill batches in
//! their order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cql_wire::request::BatchList;
use cql_wire::{
    Batch, BatchKind, BatchQuery, BoundValue, Consistency, QueryParameters, Request, ValueList,
};
use types::CqlType;

use crate::connection::{Connection, Target};
use crate::copy::convert::Conversion;
use crate::copy::import::source::Chunk;
use crate::copy::import::{News, prepare};
use crate::copy::options::CopyOptions;
use crate::failure::Failure;
use crate::schema::Role;

/// Bytes of requests that are written at once.
const WRITE_BYTES: usize = 64 << 10;

/// The statement of each row.
pub(super) struct Statement {
    pub(super) query: String,
    /// An UPDATE of counters: in counter batches, with 0 for null.
    pub(super) counter: bool,
    /// For each bind marker: which field.
    pub(super) fields: Vec<usize>,
    /// Type of each field.
    pub(super) kinds: Vec<CqlType>,
    /// What each field is in the table.
    pub(super) roles: Vec<Option<Role>>,
    pub(super) columns: Vec<String>,
}

/// What all workers share.
pub(super) struct Job<'j> {
    pub(super) options: &'j CopyOptions,
    pub(super) target: &'j Target,
    pub(super) conversion: &'j Conversion,
    pub(super) statement: &'j Statement,
    /// For each field of a record: whether it is imported.
    pub(super) keep: &'j [bool],
    pub(super) consistency: Consistency,
    pub(super) field_bytes_max: usize,
}

/// Values of a row by field, and the record they are from.
struct Row {
    values: Vec<Option<Vec<u8>>>,
    record: Vec<u8>,
}

struct InFlight {
    rows: Vec<Row>,
    attempts: u32,
}

struct Worker<'w> {
    job: &'w Job<'w>,
    news: &'w SyncSender<News>,
    connection: Connection,
    statement_id: Vec<u8>,
    result_id: Option<Vec<u8>>,
    slots: Vec<Option<InFlight>>,
    free: Vec<usize>,
}

/// Takes chunks until there are no more.
pub(super) fn work(
    job: &Job<'_>,
    chunks: &Arc<Mutex<Receiver<Chunk>>>,
    news: &SyncSender<News>,
    stop: &AtomicBool,
) {
    let opened = Connection::open(job.target).and_then(|mut connection| {
        let timeout = job.options.request_timeout;
        let prepared = prepare(&mut connection, &job.statement.query, timeout)?;
        Ok((connection, prepared))
    });
    let (connection, prepared) = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            // The news go nowhere only when the shell's thread has ended.
            let _ = news.send(News::Broken(failure.to_string()));
            return;
        }
    };
    let window = job.options.in_flight_max;
    let mut slots = Vec::new();
    slots.resize_with(window, || None);
    let mut worker = Worker {
        job,
        news,
        connection,
        statement_id: prepared.id,
        result_id: prepared.result_id,
        slots,
        free: (0..window).collect(),
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
        if let Err(failure) = worker.chunk(&chunk) {
            return worker.broken(&failure);
        }
    }
    if let Err(failure) = worker.drain() {
        worker.broken(&failure);
    }
}

impl Worker<'_> {
    fn tell(&self, news: News) {
        // The news go nowhere only when the shell's thread has ended.
        let _ = self.news.send(news);
    }

    fn chunk(&mut self, chunk: &Chunk) -> Result<(), Failure> {
        let rows = self.rows(chunk);
        for rows in self.batches(rows) {
            self.put(InFlight { rows, attempts: 1 })?;
        }
        Ok(())
    }

    /// The rows of a chunk; those that cannot be read are told by their errors.
    fn rows(&self, chunk: &Chunk) -> Vec<Row> {
        let mut rows = Vec::with_capacity(chunk.ends.len());
        let mut unreadable: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
        let mut fields = Vec::new();
        let mut start = 0;
        for end in &chunk.ends {
            let record = chunk.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            self.job.options.dialect.fields(record, &mut fields);
            match self.values(&fields) {
                Ok(values) => rows.push(Row { values, record: record.to_vec() }),
                Err(text) => match unreadable.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, records)) => records.push(record.to_vec()),
                    None => unreadable.push((text, vec![record.to_vec()])),
                },
            }
        }
        for (text, records) in unreadable {
            self.tell(News::Unreadable { class: "ParseError", text, records });
        }
        rows
    }

    fn values(&self, fields: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let Job { statement, conversion, keep, .. } = self.job;
        // Fields of skipped columns may be there; with more or fewer fields all are counted.
        let kept: Vec<&Vec<u8>> = fields
            .iter()
            .enumerate()
            .filter(|(at, _)| keep.get(*at).copied().unwrap_or(true))
            .map(|(_, field)| field)
            .collect();
        if kept.len() != statement.kinds.len() {
            let (found, wanted) = (kept.len(), statement.kinds.len());
            return Err(format!("Invalid row length {found} should be {wanted}"));
        }
        let mut values = Vec::with_capacity(kept.len());
        for (at, (field, kind)) in kept.iter().zip(&statement.kinds).enumerate() {
            if field.len() > self.job.field_bytes_max {
                let most = self.job.field_bytes_max;
                return Err(format!("field larger than field limit ({most})"));
            }
            let text = std::str::from_utf8(field).map_err(|_| "a field is not UTF-8".to_owned())?;
            let is_key =
                matches!(statement.roles.get(at), Some(Some(Role::Partition | Role::Clustering)));
            let value = conversion.field(kind, text)?;
            if is_key && value.is_none() {
                return Err(null_key(statement.columns.get(at), &conversion.null));
            }
            values.push(value);
        }
        Ok(values)
    }

    fn batches(&self, rows: Vec<Row>) -> Vec<Vec<Row>> {
        let CopyOptions { batch_rows_min: least, batch_rows_max: most, .. } = *self.job.options;
        let mut groups: Vec<Vec<Row>> = Vec::new();
        if most > 1 {
            let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
            for row in rows {
                let index = *known.entry(self.partition(&row)).or_insert(groups.len());
                match groups.get_mut(index) {
                    Some(group) => group.push(row),
                    None => groups.push(vec![row]),
                }
            }
        } else {
            groups.push(rows);
        }
        let mut batches = Vec::new();
        let mut mixed: Vec<Row> = Vec::new();
        for group in groups {
            if most > 1 && group.len() <= least {
                mixed.extend(group);
            } else {
                cut(group, most, &mut batches);
            }
        }
        cut(mixed, most, &mut batches);
        batches
    }

    fn partition(&self, row: &Row) -> Vec<u8> {
        let mut key = Vec::new();
        for (role, value) in self.job.statement.roles.iter().zip(&row.values) {
            if *role == Some(Role::Partition) {
                let value = value.as_deref().unwrap_or_default();
                key.extend_from_slice(&value.len().to_be_bytes());
                key.extend_from_slice(value);
            }
        }
        key
    }

    /// Sends rows; waits for an answer first when the window is full.
    fn put(&mut self, batch: InFlight) -> Result<(), Failure> {
        let stream = loop {
            match self.free.pop() {
                Some(stream) => break stream,
                None => self.answer()?,
            }
        };
        self.send(&batch, stream)?;
        if let Some(slot) = self.slots.get_mut(stream) {
            *slot = Some(batch);
        }
        if self.connection.waiting() >= WRITE_BYTES {
            self.connection.flush()?;
        }
        Ok(())
    }

    fn send(&mut self, batch: &InFlight, stream: usize) -> Result<(), Failure> {
        let Job { statement, consistency, .. } = self.job;
        let stream = i16::try_from(stream).unwrap_or(i16::MAX);
        let mut list = BatchList::new();
        let mut values = ValueList::new();
        for row in &batch.rows {
            values = ValueList::new();
            for field in &statement.fields {
                let value = row.values.get(*field).and_then(Option::as_deref);
                values.push(match value {
                    Some(value) => BoundValue::Bytes(value),
                    None if statement.counter => BoundValue::Bytes(&[0; 8]),
                    None => BoundValue::Null,
                })?;
            }
            if batch.rows.len() > 1 {
                list.push(BatchQuery::Prepared(&self.statement_id), values.values())?;
            }
        }
        let parameters = QueryParameters::new(*consistency);
        let request = match batch.rows.len() {
            1 => Request::Execute {
                id: &self.statement_id,
                result_metadata_id: self.result_id.as_deref(),
                parameters: QueryParameters { values: values.values(), ..parameters },
            },
            _ => Request::Batch(Batch {
                kind: if statement.counter { BatchKind::Counter } else { BatchKind::Unlogged },
                statements: list.statements(),
                parameters,
            }),
        };
        self.connection.send(&request, stream, false)
    }

    /// Takes one answer.
    fn answer(&mut self) -> Result<(), Failure> {
        self.connection.flush()?;
        let deadline = Instant::now() + self.job.options.request_timeout;
        let (stream, reply) = self.connection.receive(deadline)?;
        let index = usize::try_from(stream).unwrap_or(usize::MAX);
        let Some(mut batch) = self.slots.get_mut(index).and_then(Option::take) else {
            return Ok(());
        };
        self.free.push(index);
        let Err(failure) = reply else {
            self.tell(News::Imported(u64::try_from(batch.rows.len()).unwrap_or(0)));
            return Ok(());
        };
        let attempts = batch.attempts;
        // What was added to a counter may have been added.
        let last = attempts >= self.job.options.attempts_max || self.job.statement.counter;
        let records = batch.rows.iter().map(|row| row.record.clone()).collect();
        self.tell(News::Refused { failure, records, attempts, last });
        if !last {
            batch.attempts += 1;
            self.put(batch)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        while self.free.len() < self.slots.len() {
            self.answer()?;
        }
        Ok(())
    }

    /// The connection is gone, and with it what was in flight.
    fn broken(&mut self, failure: &Failure) {
        for batch in std::mem::take(&mut self.slots).into_iter().flatten() {
            let records = batch.rows.into_iter().map(|row| row.record).collect();
            let attempts = batch.attempts;
            self.tell(News::Refused { failure: failure.clone(), records, attempts, last: true });
        }
        self.tell(News::Broken(failure.to_string()));
    }
}

fn cut(mut rows: Vec<Row>, most: usize, batches: &mut Vec<Vec<Row>>) {
    while rows.len() > most {
        let rest = rows.split_off(most);
        batches.push(std::mem::replace(&mut rows, rest));
    }
    if !rows.is_empty() {
        batches.push(rows);
    }
}

fn null_key(column: Option<&String>, null: &str) -> String {
    let mut text = format!(
        "Cannot insert null value for primary key column '{}'.",
        column.map_or("", String::as_str)
    );
    if null.is_empty() {
        text.push_str(
            " If you want to insert empty strings, consider using the WITH NULL=<marker> option \
             for COPY.",
        );
    }
    text
}
