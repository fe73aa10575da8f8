//! Requests of the driver of a scenario to the nodes: whether they serve, and all data that the
//! checkers need after healing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cql_wire::Consistency;
use rt::Rt;

use crate::cells;
use crate::checks::{Rows, SchemaView};
use crate::client::{Answer, Client};
use crate::counts::{self, Counts, When};
use crate::history::{Action, Ending, Scope};
use crate::lwt::{self, Conditions};
use crate::scenario::Scenario;
use crate::workload::{self, Shared};

/// Rows per page: small, so that scans take several.
const PAGE_ROWS: i32 = 23;
/// Rows in a page of the table with large rows: a page must stay below half of a small node's
/// memory for requests.
const LARGE_PAGE_ROWS: i32 = 5;
/// Codes of the native protocol.
const READ_FAILURE: i32 = 0x1300;
const READ_TIMEOUT: i32 = 0x1200;
/// How often a read after healing is tried before it counts as failed.
const TRIES: u32 = 5;
/// A table that replicas are compared by: name, statement, and how many columns are the key.
type Compared = (&'static str, &'static str, usize);

const TABLES: [Compared; 6] = [
    ("registers", "SELECT k, v, writetime(v) FROM ks.registers", 1),
    ("rows", "SELECT k, c, v, writetime(v) FROM ks.rows", 2),
    ("left", "SELECT k, b, writetime(b) FROM ks.left", 1),
    ("right", "SELECT k, b, writetime(b) FROM ks.right", 1),
    ("lwt", "SELECT k, c, s, v, writetime(s), writetime(v) FROM ks.lwt", 2),
    ("cells", "SELECT k, c, s, v, m, writetime(s), writetime(v) FROM ks.cells", 2),
];
const LARGE: Compared = ("large", "SELECT k, c, v, writetime(v) FROM ks.large", 2);

/// The tables of a scenario.
fn tables(scenario: &Scenario) -> impl Iterator<Item = Compared> {
    TABLES.into_iter().chain(scenario.large.then_some(LARGE))
}

/// Connects as soon as the node answers.
pub async fn connect(rt: &Rt, address: SocketAddr) -> Client {
    loop {
        match Client::connect(rt, address).await {
            Ok(client) => return client,
            Err(_) => rt.sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Returns when the node serves clients and knows that many peers.
pub async fn serves(rt: Rt, address: SocketAddr, peers: usize) {
    loop {
        let mut client = connect(&rt, address).await;
        if let Ok(Answer::Rows(rows, _)) = client.query("SELECT peer FROM system.peers").await
            && rows.len() >= peers
        {
            return;
        }
        rt.sleep(Duration::from_millis(100)).await;
    }
}

/// The host id of a node.
pub async fn host_id(rt: Rt, address: SocketAddr) -> Option<String> {
    let mut client = Client::connect(&rt, address).await.ok()?;
    let rows = client.query("SELECT host_id FROM system.local").await.ok()?;
    let Answer::Rows(rows, _) = rows else { return None };
    let bytes: [u8; 16] = rows.first()?.first()?.as_deref()?.try_into().ok()?;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default().to_owned();
    Some([part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-"))
}

/// Returns when the node has the tables of the workload.
pub async fn has_tables(rt: &Rt, address: SocketAddr, scenario: &Scenario) {
    loop {
        let mut client = connect(rt, address).await;
        let mut missing = 0;
        for (name, _, _) in tables(scenario) {
            let text = format!("SELECT * FROM ks.{name} LIMIT 1");
            missing += usize::from(!matches!(client.query(&text).await, Ok(Answer::Rows(..))));
        }
        if missing == 0 {
            return;
        }
        rt.sleep(Duration::from_millis(100)).await;
    }
}

/// Writes and reads at QUORUM through one node until both succeed; tells why they do not yet.
pub async fn answers_quorum(
    rt: Rt,
    address: SocketAddr,
    number: i32,
    tell: impl Fn(Option<String>),
) {
    let key = -2 * (number + 1);
    loop {
        match Client::connect(&rt, address).await {
            Err(lost) => tell(Some(lost.0)),
            Ok(mut client) => {
                client.set_consistency(Consistency::Quorum);
                let write = Action::Write { key, stamp: 1 };
                let wrote = workload::perform(&mut client, write).await;
                if wrote == Ok(Answer::Done) {
                    let read = Action::Read { key };
                    let found = workload::perform(&mut client, read).await;
                    let found = workload::ending(read, found);
                    if found == Ending::Found(Some(1)) {
                        tell(None);
                        return;
                    }
                    tell(Some(format!("{found:?}")));
                } else {
                    tell(Some(format!("{wrote:?}")));
                }
            }
        }
        rt.sleep(Duration::from_millis(200)).await;
    }
}

fn page_rows(text: &str) -> i32 {
    if text == LARGE.1 { LARGE_PAGE_ROWS } else { PAGE_ROWS }
}

/// All rows of a statement over its pages, the first `width` columns as key.
async fn scan(client: &mut Client, text: &str, width: usize) -> Result<Rows, String> {
    let mut rows = Rows::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        let mut answer = Err("not asked".to_owned());
        for _ in 0..TRIES {
            match client.query_page(text, Some(page_rows(text)), state.as_deref()).await {
                Ok(Answer::Rows(page, next)) => {
                    answer = Ok((page, next));
                    break;
                }
                other => answer = Err(format!("{text}: {other:?}")),
            }
        }
        let (page, next) = answer?;
        for mut row in page {
            let values = row.split_off(width.min(row.len()));
            if rows.contains_key(&row) {
                return Err(format!("{text}: key {row:?} came twice"));
            }
            rows.insert(row, values);
        }
        state = next;
        if state.is_none() {
            return Ok(rows);
        }
    }
}

/// Reads every key, then every table, at ALL: differences are repaired.
///
/// # Errors
/// The read that fails although everything is healed.
pub async fn read_at_all(
    rt: Rt,
    address: SocketAddr,
    keys: Vec<i32>,
    scenario: Rc<Scenario>,
) -> Result<(), String> {
    let mut client = connect(&rt, address).await;
    client.set_consistency(Consistency::All);
    for key in keys {
        let read = Action::Read { key };
        let mut problem = None;
        for _ in 0..TRIES {
            match workload::ending(read, workload::perform(&mut client, read).await) {
                Ending::Found(_) => {
                    problem = None;
                    break;
                }
                other => problem = Some(format!("key {key} at ALL after healing: {other:?}")),
            }
            rt.sleep(Duration::from_millis(500)).await;
        }
        if let Some(problem) = problem {
            return Err(problem);
        }
    }
    for (_, text, width) in tables(&scenario) {
        scan(&mut client, text, width).await.map_err(|e| format!("at ALL: {e}"))?;
    }
    Ok(())
}

/// Returns the rows of each table that one node shows, read at ONE.
///
/// # Errors
/// Which read fails.
pub async fn look_at_one(
    rt: Rt,
    address: SocketAddr,
    scenario: Rc<Scenario>,
) -> Result<BTreeMap<String, Rows>, String> {
    let mut client = connect(&rt, address).await;
    let mut seen = BTreeMap::new();
    for (name, text, width) in tables(&scenario) {
        seen.insert(name.to_owned(), scan(&mut client, text, width).await?);
    }
    Ok(seen)
}

/// How reads of a node with damaged files ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// With all that is right.
    pub right: u64,
    /// With an error.
    pub failed: u64,
}

/// Reads at ONE through a node with damaged files, each table as a whole and each partition by its key: what
/// is answered must be right, and all of it.
///
/// # Errors
/// A row that is missing, or another one.
pub async fn right_or_failed(
    rt: Rt,
    address: SocketAddr,
    scenario: Rc<Scenario>,
    right: Rc<BTreeMap<String, Rows>>,
) -> Result<Reads, String> {
    let mut client = connect(&rt, address).await;
    let mut reads = Reads::default();
    for (name, text, width) in tables(&scenario) {
        let none = Rows::new();
        let right = right.get(name).unwrap_or(&none);
        let mut partitions: BTreeMap<i32, Rows> = BTreeMap::new();
        for (row, values) in right {
            let of = partitions.entry(int(row.first()).unwrap_or(0)).or_default();
            of.insert(row.clone(), values.clone());
        }
        let of_partition = |key: &i32| format!("{text} WHERE k = {key}");
        let all = std::iter::once((text.to_owned(), right));
        let all = all.chain(partitions.iter().map(|(key, rows)| (of_partition(key), rows)));
        for (text, right) in all {
            match pages(&mut client, &text, width, right).await? {
                true => reads.right += 1,
                false => reads.failed += 1,
            }
        }
    }
    Ok(reads)
}

/// Returns true if a read completed; its rows are compared with the expected ones.
async fn pages(
    client: &mut Client,
    text: &str,
    width: usize,
    right: &Rows,
) -> Result<bool, String> {
    let (mut seen, mut state) = (Rows::new(), None::<Vec<u8>>);
    loop {
        let (page, next) =
            match client.query_page(text, Some(page_rows(text)), state.as_deref()).await {
                Ok(Answer::Rows(page, next)) => (page, next),
                Ok(Answer::Error(READ_FAILURE | READ_TIMEOUT, _)) => return Ok(false),
                other => return Err(format!("{text} at ONE on damaged files: {other:?}")),
            };
        for mut row in page {
            let values = row.split_off(width.min(row.len()));
            if right.get(&row) != Some(&values) {
                let should = right.get(&row);
                return Err(format!(
                    "{text}: on damaged files {row:?} is {values:?}, not {should:?}"
                ));
            }
            if seen.insert(row, values).is_some() {
                return Err(format!("{text}: on damaged files a row came twice"));
            }
        }
        state = next;
        if state.is_none() {
            let missing = right.keys().find(|row| !seen.contains_key(*row));
            return match missing {
                Some(row) => Err(format!("{text}: on damaged files {row:?} is missing")),
                None => Ok(true),
            };
        }
    }
}

/// Reads every key at QUORUM, through the nodes in turn, into the history.
///
/// # Errors
/// Which read fails although everything is healed.
pub async fn read_at_quorum(
    rt: Rt,
    addresses: Vec<(usize, SocketAddr)>,
    keys: Vec<i32>,
    shared: Rc<RefCell<Shared>>,
) -> Result<(), String> {
    for (node, address) in addresses {
        let mut client = connect(&rt, address).await;
        client.set_consistency(Consistency::Quorum);
        for key in &keys {
            let read = Action::Read { key: *key };
            let number = shared.borrow_mut().history.begin(node, read, Scope::Last, rt.now());
            let answer = workload::perform(&mut client, read).await;
            let ending = workload::ending(read, answer);
            if !matches!(ending, Ending::Found(_)) {
                return Err(format!("key {key} at QUORUM after healing: {ending:?}"));
            }
            shared.borrow_mut().history.end(number, rt.now(), ending);
        }
        let counters = shared.borrow().counts.keys();
        for key in counters {
            let of_counts =
                |work: &mut dyn FnMut(&mut Counts)| work(&mut shared.borrow_mut().counts);
            match counts::read(&rt, &mut client, key, node, When::Last, of_counts).await {
                Ok(Ending::Done) => {}
                other => return Err(format!("counter {key} at ALL after healing: {other:?}")),
            }
        }
        let parts = shared.borrow().cells.parts();
        for part in parts {
            let of_cells =
                |work: &mut dyn FnMut(&mut cells::Cells)| work(&mut shared.borrow_mut().cells);
            let request = cells::Request::Read;
            match cells::perform(&rt, &mut client, part, request, node, of_cells).await {
                Ok(Ending::Done) => {}
                other => return Err(format!("cells {part} at QUORUM after healing: {other:?}")),
            }
        }
    }
    Ok(())
}

/// Reads every partition of conditional writes at SERIAL, through the nodes in turn, into the
/// history.
///
/// # Errors
/// Which read fails although everything is healed.
pub async fn read_at_serial(
    rt: Rt,
    addresses: Vec<(usize, SocketAddr)>,
    scenario: Rc<Scenario>,
    shared: Rc<RefCell<Shared>>,
) -> Result<(), String> {
    let parts: Vec<i32> = shared.borrow().transactions.parts.keys().copied().collect();
    for (node, address) in addresses {
        let mut client = connect(&rt, address).await;
        for part in &parts {
            let Some(serial) = lwt::level(&scenario, *part, node, 0) else { continue };
            let request = lwt::Request::Read;
            let mut problem = None;
            for _ in 0..TRIES {
                let begun = shared.borrow_mut().transactions.begin(*part, node, request, rt.now());
                let asked = lwt::perform(&mut client, *part, request, serial, Conditions::Sent);
                let (seen, ending) = asked.await;
                shared.borrow_mut().transactions.end(begun, rt.now(), seen);
                problem = (ending != Ok(Ending::Done)).then_some(ending);
                if problem.is_none() {
                    break;
                }
                rt.sleep(Duration::from_millis(500)).await;
            }
            if let Some(problem) = problem {
                return Err(format!("partition {part} at SERIAL after healing: {problem:?}"));
            }
        }
    }
    Ok(())
}

fn int(value: Option<&Option<Vec<u8>>>) -> Option<i32> {
    Some(i32::from_be_bytes(value?.as_deref()?.try_into().ok()?))
}

/// By batch in how many of its two partitions it is, at QUORUM.
///
/// # Errors
/// Which read fails, or a row that no batch has written.
pub async fn read_batches(rt: Rt, address: SocketAddr) -> Result<BTreeMap<i32, usize>, String> {
    let mut client = connect(&rt, address).await;
    client.set_consistency(Consistency::Quorum);
    let mut found: BTreeMap<i32, usize> = BTreeMap::new();
    for (side, table) in (0i32..).zip(["left", "right"]) {
        let text = format!("SELECT k, b FROM ks.{table}");
        for (key, values) in scan(&mut client, &text, 1).await? {
            match (int(key.first()), int(values.first())) {
                (Some(key), Some(batch)) if key == 2 * batch + side => {
                    *found.entry(batch).or_default() += 1;
                }
                other => return Err(format!("table {table} has a row of no batch: {other:?}")),
            }
        }
    }
    Ok(found)
}

/// Result of [`look_at_each`]: by node its tables, and its schema.
pub type Looks = (Vec<(String, BTreeMap<String, Rows>)>, Vec<SchemaView>);

/// Returns each node's own data, read at ONE, and its schema.
///
/// # Errors
/// Which read fails.
pub async fn look_at_each(
    rt: Rt,
    nodes: Vec<(String, SocketAddr)>,
    scenario: Rc<Scenario>,
) -> Result<Looks, String> {
    let mut looks = (Vec::new(), Vec::new());
    for (node, address) in nodes {
        let mut client = connect(&rt, address).await;
        let mut seen = BTreeMap::new();
        for (name, text, width) in tables(&scenario) {
            let rows = scan(&mut client, text, width).await.map_err(|e| format!("{node}: {e}"))?;
            seen.insert(name.to_owned(), rows);
        }
        looks.0.push((node.clone(), seen));
        let local = scan(&mut client, "SELECT key, schema_version FROM system.local", 1).await?;
        let version = local.into_values().next().and_then(|mut row| row.pop().flatten());
        let ids = "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = 'ks'";
        let ids = scan(&mut client, ids, 1).await?;
        let name_of = |key: &[Option<Vec<u8>>]| {
            let name = key.first().and_then(Option::as_deref).unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        };
        let tables = ids
            .into_iter()
            .map(|(key, mut row)| (name_of(&key), row.pop().flatten().unwrap_or_default()));
        let version = version.ok_or_else(|| format!("{node} has no schema version"))?;
        looks.1.push(SchemaView { node, version, tables: tables.collect() });
    }
    Ok(looks)
}

/// Runs a statement that must succeed.
///
/// # Errors
/// The answer, if it is another one.
pub async fn create_one(client: &mut Client, text: &str) -> Result<(), String> {
    match client.query(text).await {
        Ok(Answer::Done) => Ok(()),
        other => Err(format!("{text}: {other:?}")),
    }
}
