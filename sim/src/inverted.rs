//! Invertible data under faults: random operations on the partitions of a random table, with known
//! answers (`conformance::invert`).
//!
//! A partition has one writer, which retries an operation until it is acknowledged. Retries are
//! idempotent, since operations have timestamps of their own. So a read at QUORUM has one correct
//! answer, whatever fails meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use conformance::fuzz::random::Random;
use conformance::invert::model::Cells;
use conformance::invert::operation::Operation;
use conformance::invert::read::Read;
use conformance::invert::table::Table;
use cql_wire::Consistency;
use rt::Rt;

use crate::checks::Verdict;
use crate::client::{Answer, Client};
use crate::progress::Progress;

/// Longest pause between two operations of a partition.
const THINK_MILLIS: u64 = 120;
/// Longest time until an operation or a read succeeds after healing.
const HEALED_MAX: Duration = Duration::from_secs(120);

/// Operations of the writers of a run.
#[derive(Default)]
pub struct Inverted {
    table: Option<Rc<Table>>,
    /// By partition; of the last operation it may not be known whether it was carried out.
    done: BTreeMap<u64, Vec<Operation>>,
    pending: BTreeMap<u64, Operation>,
    wrong: Option<String>,
    reads: u64,
}

impl Inverted {
    /// Returns the table of a run, drawn at the first call.
    pub fn table(&mut self, rt: &Rt) -> Rc<Table> {
        let table = || Rc::new(Table::of("ks.inverted", rt.random_u64()));
        self.table.get_or_insert_with(table).clone()
    }

    /// How many reads were compared.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// No read was wrong.
    pub fn verdict(&self) -> Verdict {
        match &self.wrong {
            Some(wrong) => Err(format!("inverted: {wrong}")),
            None => Ok(()),
        }
    }
}

/// One request: rows over all pages, or why there are none.
async fn ask(client: &mut Client, text: &str, page: Option<i32>) -> Result<Vec<Cells>, String> {
    let mut all = Vec::new();
    let mut state: Option<Vec<u8>> = None;
    loop {
        match client.query_page(text, page, state.as_deref()).await {
            Ok(Answer::Done) => return Ok(all),
            Ok(Answer::Rows(rows, next)) => {
                all.extend(rows);
                match next {
                    Some(next) => state = Some(next),
                    None => return Ok(all),
                }
            }
            other => return Err(format!("{other:?}")),
        }
    }
}

/// The connection of a client, to one node after the other.
pub struct Link<'a> {
    rt: &'a Rt,
    addresses: &'a [SocketAddr],
    level: Consistency,
    client: Option<Client>,
}

impl<'a> Link<'a> {
    /// To one of these nodes.
    pub fn new(rt: &'a Rt, addresses: &'a [SocketAddr], level: Consistency) -> Link<'a> {
        Link { rt, addresses, level, client: None }
    }

    /// Asks at that level from now on.
    pub fn set_level(&mut self, level: Consistency) {
        self.level = level;
        if let Some(client) = &mut self.client {
            client.set_consistency(level);
        }
    }

    /// Reads all pages of one statement.
    ///
    /// # Errors
    /// The cause of a missing answer; the next statement is sent to another node.
    pub async fn try_once(&mut self, text: &str, page: Option<i32>) -> Result<Vec<Cells>, String> {
        if self.client.is_none() {
            let node = self.rt.random_u64() as usize % self.addresses.len().max(1);
            let Some(address) = self.addresses.get(node) else { return Err("no node".to_owned()) };
            let mut client = Client::connect(self.rt, *address).await.map_err(|lost| lost.0)?;
            client.set_consistency(self.level);
            self.client = Some(client);
        }
        let Some(client) = &mut self.client else { return Err("no connection".to_owned()) };
        let answer = ask(client, text, page).await;
        if answer.is_err() {
            self.client = None;
            let pause = Duration::from_millis(50 + self.rt.random_u64() % 200);
            self.rt.sleep(pause).await;
        }
        answer
    }
}

/// The nodes that a client asks, and at which level.
pub struct Target {
    /// Where they listen.
    pub addresses: Vec<SocketAddr>,
    /// The level.
    pub level: Consistency,
}

/// Operations on a partition.
struct Done<'a> {
    partition: u64,
    operations: &'a [Operation],
}

/// Writes and reads one partition until the clients of the run end.
pub async fn run(
    rt: Rt,
    partition: u64,
    to: Target,
    progress: Rc<Progress>,
    inverted: Rc<RefCell<Inverted>>,
) {
    let Target { addresses, level } = to;
    let table = inverted.borrow_mut().table(&rt);
    let mut random = Random::new(rt.random_u64());
    let mut link = Link::new(&rt, &addresses, level);
    let mut number = 0;
    while progress.goes_on() && inverted.borrow().wrong.is_none() {
        number += 1;
        let operation = Operation::of(&table, partition, number);
        let text = operation.statement(&table, partition);
        inverted.borrow_mut().pending.insert(partition, operation.clone());
        while link.try_once(&text, None).await.is_err() {
            if !progress.goes_on() {
                progress.ended();
                return;
            }
        }
        let all = {
            let inverted = &mut *inverted.borrow_mut();
            inverted.pending.remove(&partition);
            let done = inverted.done.entry(partition).or_default();
            done.push(operation);
            done.clone()
        };
        if random.percent(40) {
            let read = Read::random(&table, &mut random);
            let page = random.percent(60).then(|| 1 + (random.bits() % 7) as i32);
            let text = read.statement(&table, partition);
            if let Ok(found) = link.try_once(&text, page).await {
                note(&inverted, &table, &Done { partition, operations: &all }, &read, &found);
            }
        }
        rt.sleep(Duration::from_millis(1 + random.bits() % THINK_MILLIS)).await;
    }
    progress.ended();
}

fn note(
    inverted: &RefCell<Inverted>,
    table: &Table,
    done: &Done<'_>,
    read: &Read,
    found: &[Cells],
) {
    let inverted = &mut *inverted.borrow_mut();
    inverted.reads += 1;
    if let Some(wrong) = read.wrong(table, done.operations, found) {
        let text = read.statement(table, done.partition);
        let after = done.operations.last().map_or(0, |operation| operation.number);
        inverted.wrong.get_or_insert(format!("after operation {after}, {text}: {wrong}"));
    }
}

/// After healing: operations with unknown outcome are retried, and every partition is read in
/// several ways.
///
/// # Errors
/// An operation or read that still fails.
pub async fn look(
    rt: Rt,
    addresses: Vec<SocketAddr>,
    inverted: Rc<RefCell<Inverted>>,
) -> Result<(), String> {
    let table = inverted.borrow_mut().table(&rt);
    let mut link = Link::new(&rt, &addresses, Consistency::Quorum);
    let until = rt.now() + HEALED_MAX;
    let pending = std::mem::take(&mut inverted.borrow_mut().pending);
    for (partition, operation) in pending {
        let text = operation.statement(&table, partition);
        while let Err(why) = link.try_once(&text, None).await {
            if rt.now() > until {
                return Err(format!("inverted: {text}: {why}"));
            }
        }
        let done = &mut inverted.borrow_mut().done;
        done.entry(partition).or_default().push(operation);
    }
    let done = inverted.borrow().done.clone();
    let mut random = Random::new(table.seed);
    for (partition, all) in done {
        for number in 0..8 {
            let read = match number {
                0 => Read::default(),
                _ => Read::random(&table, &mut random),
            };
            let page = random.percent(60).then(|| 1 + (random.bits() % 7) as i32);
            let text = read.statement(&table, partition);
            let found = loop {
                match link.try_once(&text, page).await {
                    Ok(found) => break found,
                    Err(why) if rt.now() > until => return Err(format!("inverted: {text}: {why}")),
                    Err(_) => {}
                }
            };
            note(&inverted, &table, &Done { partition, operations: &all }, &read, &found);
        }
    }
    Ok(())
}
