//! Keys of providers that a flush needs: a background flush never waits for one.
//!
//! A table whose provider has given no key yet keeps its memtables, and its writes are refused when they hold their
//! share of the memory (INV-unflushable-2); other tables are written and flushed meanwhile. Nothing is written in the
//! clear instead.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use rt::Group;
use stdx::{Instant, TableId};

use crate::env::failure::StoreFailure;
use crate::error::StoreError;
use crate::tables::table::TableState;
use crate::write::Writer;

/// Time between a failed request and the next.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Tables that wait for a key; the instant before which a failed request is not repeated, `None` while one runs.
#[derive(Default)]
pub(crate) struct TablesWithoutKey(RefCell<BTreeMap<TableId, Option<Instant>>>);

/// Waits for the key that new files of a table need.
///
/// # Errors
/// `Invalid`: names directory, key and provider.
pub(crate) async fn await_key(writer: &Writer, table: &TableState) -> Result<(), StoreError> {
    let table = &table.version().table;
    let sealing = writer.env.options.sealing.of(table);
    if !sealing.is_sealed() {
        return Ok(());
    }
    let key = writer.env.rt.fs().keys().await_active(sealing.source()).await;
    let directory = writer.files.directories.directory_of(table);
    key.map_err(|error| StoreError::Invalid(format!("{directory}: {error}")))
}

/// Refuses a write to a table without its key whose memtables hold their share of the memory.
///
/// # Errors
/// `Unflushable`.
#[cold]
pub(crate) fn admit_without_key(writer: &Writer, table: &TableState) -> Result<(), StoreError> {
    // The count is of the last round of flushes.
    writer.count_refused(table);
    let (share, bytes) = (writer.refused_share(), table.refused_bytes.get());
    if bytes <= share {
        return Ok(());
    }
    let version = table.version();
    let key = match writer.env.options.sealing.of(&version.table).source() {
        Some(source) => source.to_string(),
        None => "an active key of the key file".to_owned(),
    };
    let table = format!("{}.{}", version.table.keyspace, version.table.name);
    let why = format!(
        "its files need {key}, which is missing: provide it, or change the option of the table"
    );
    Err(StoreError::Unflushable { table, bytes, share, why })
}

/// Returns true if the key that new files of a table need is in memory, or if they need none. Otherwise it is asked
/// for, and the background work is notified when it has come.
pub(crate) fn has_key(writer: &Writer, table: &Rc<TableState>) -> bool {
    if table.view().flushing.is_empty() && !table.lacks_key.get() {
        return true;
    }
    let sealing = writer.env.options.sealing.of(&table.version().table);
    let fs = writer.env.rt.fs();
    let has_key = !sealing.is_sealed() || fs.keys().has_active(sealing.source());
    if table.lacks_key.replace(!has_key) || !has_key {
        writer.count_refused(table);
    }
    if has_key {
        return true;
    }
    {
        let mut waiting = writer.without_key.0.borrow_mut();
        let now = writer.env.rt.now();
        if waiting.get(&table.id).is_some_and(|next| next.is_none_or(|next| now < next)) {
            return false;
        }
        waiting.insert(table.id, None);
    }
    let (env, waiting) = (writer.env.clone(), Rc::clone(&writer.without_key));
    let table = Rc::clone(table);
    let ask = async move {
        let asked = fs.keys().await_active(sealing.source()).await;
        match asked.is_ok() {
            true => waiting.0.borrow_mut().remove(&table.id),
            false => waiting.0.borrow_mut().insert(table.id, Some(env.rt.now() + RETRY_AFTER)),
        };
        if let Err(error) = asked {
            let version = table.version();
            let name = format!("{}.{}", version.table.keyspace, version.table.name);
            env.tell_failure(StoreFailure::Unflushable(format!("{name}: {error}")));
        }
        env.work.notify_one();
    };
    // A closed gate: the store is stopping, and its last flush waits for the key itself.
    let _ = writer.env.gate.spawn(&writer.env.rt, Group::Flush, "store-key", ask);
    false
}
