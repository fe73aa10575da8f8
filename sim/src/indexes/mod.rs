//! Secondary indexes under faults: clients write parts of rows and read by indexed columns, while an administrator
//! creates and drops the indexes.
//!
//! Each row has one writer, so [`Histories`] knows the states that a row may have during a read. A read that fails is
//! not retried. After healing every index must answer through every node, and show what a scan at ALL shows.

mod model;
mod nearest;
mod statements;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cql_wire::Consistency;
use rt::Rt;
use stdx::Instant;

use crate::checks::Verdict;
use crate::inverted::Link;
use crate::progress::Progress;
use crate::survey;
use model::{Histories, Predicate, Question, RowKey, ShownRow, TTL, Window};
use statements::{Draw, Layout, NAMES, all_questions, creations, drop_index};

/// Longest pause of a client between two statements.
const THINK_MILLIS: u64 = 80;
/// Statements of a client until it chooses another coordinator.
const STATEMENTS: u32 = 8;
/// Longest time of an index between its creation and its removal; without an index it is a quarter.
const INDEX_MILLIS: u64 = 8_000;
/// Longest time until a statement succeeds after healing.
const HEALED_MAX: Duration = Duration::from_secs(120);
/// Timestamps are this plus the number of the write.
const STAMP_BASE: i64 = 1_700_000_000_000_000;
/// Answer of a read that failed at a replica, perhaps because its index is not built.
const READ_FAILURE: &str = "Ok(Error(4864,";
/// Answer that no node may send.
const SERVER_ERROR: &str = "Ok(Error(0,";

/// Rows of an answer, not decoded.
type EncodedRows = Vec<Vec<Option<Vec<u8>>>>;

/// A write that is not acknowledged.
#[derive(Clone, Debug)]
struct PendingWrite {
    text: String,
    keys: Vec<RowKey>,
}

/// State that the clients share.
#[derive(Default)]
pub struct Indexes {
    histories: Histories,
    /// By client.
    pending: BTreeMap<i32, PendingWrite>,
    writes: i64,
    /// Indexes are created while clients write, not before.
    is_late: bool,
    layout: Layout,
    /// A change of the indexes is not acknowledged: any of them may exist, on any of its columns.
    is_changing: bool,
    wrong: Option<String>,
    /// Answers that were checked, rows in them, answers with the nearest rows, reads without an answer, those that failed
    /// at replicas.
    answers: u64,
    rows: u64,
    nearest: u64,
    unanswered: u64,
    failed: u64,
}

impl Indexes {
    /// No answer was wrong.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn verdict(&self) -> Verdict {
        match &self.wrong {
            Some(wrong) => Err(format!("indexes: {wrong}")),
            None => Ok(()),
        }
    }

    /// Counts for the report.
    pub fn counts(&self) -> [(&'static str, u64); 5] {
        [
            ("indexed read checked", self.answers),
            ("row of an indexed read", self.rows),
            ("read of the nearest rows checked", self.nearest),
            ("indexed read unanswered", self.unanswered),
            ("indexed read failed at replicas", self.failed),
        ]
    }

    /// Checks an answer.
    fn note(&mut self, asked: &Asked, answer: Result<EncodedRows, String>) {
        let verdict = match answer {
            Err(why) if why.starts_with(SERVER_ERROR) => Err(why),
            Err(why) => {
                self.unanswered += 1;
                self.failed += u64::from(why.starts_with(READ_FAILURE));
                Ok(())
            }
            Ok(rows) => {
                self.answers += 1;
                self.rows += rows.len() as u64;
                self.nearest += u64::from(asked.question.nearest.is_some());
                let shown = decode(&rows);
                shown.and_then(|rows| self.histories.check(&asked.question, &asked.window, &rows))
            }
        };
        if let Err(what) = verdict {
            self.wrong.get_or_insert_with(|| format!("{}: {what}", asked.describe()));
        }
    }
}

fn decode(rows: &EncodedRows) -> Result<Vec<ShownRow>, String> {
    rows.iter().map(|row| ShownRow::decode(row)).collect()
}

/// A read and its time.
struct Asked {
    question: Question,
    page: Option<i32>,
    window: Window,
}

impl Asked {
    fn describe(&self) -> String {
        let (text, page) = (self.question.statement(), self.page);
        let (from, until) = (self.window.from.0, self.window.until.0);
        format!("{text} by {page:?} from {from} to {until} ns")
    }
}

/// Creates the table and, with half of the seeds, its indexes.
///
/// # Errors
/// A statement that fails.
pub async fn create(
    rt: Rt,
    address: SocketAddr,
    indexes: Rc<RefCell<Indexes>>,
) -> Result<(), String> {
    let is_late = rt.random_u64().is_multiple_of(2);
    indexes.borrow_mut().is_late = is_late;
    let mut client = survey::connect(&rt, address).await;
    client.set_answer_timeout(Duration::from_secs(60));
    let table = "CREATE TABLE IF NOT EXISTS ks.indexed \
                 (p int, c int, s int static, v int, w int, l int, e vector<float, 2>, \
                  PRIMARY KEY (p, c))";
    survey::create_one(&mut client, table).await?;
    if !is_late {
        for text in creations(Layout::Straight) {
            survey::create_one(&mut client, &text).await?;
        }
    }
    Ok(())
}

/// State that all clients of a run share.
#[derive(Clone)]
pub struct IndexClients {
    pub addresses: Vec<SocketAddr>,
    /// Level of reads during faults.
    pub level: Consistency,
    pub clients: i32,
    /// Reads of 100 that are reads of the nearest rows.
    pub nearest: usize,
    pub progress: Rc<Progress>,
    pub indexes: Rc<RefCell<Indexes>>,
}

impl IndexClients {
    fn link<'a>(&'a self, rt: &'a Rt, level: Consistency) -> Link<'a> {
        Link::new(rt, &self.addresses, level)
    }

    /// Creates, drops and creates indexes until the clients end.
    pub async fn administer(self, rt: Rt) {
        let mut link = self.link(&rt, Consistency::Quorum);
        let mut draw = Draw::new(rt.random_u64());
        let mut exist = !self.indexes.borrow().is_late;
        while self.progress.goes_on() {
            let length = if exist { INDEX_MILLIS } else { INDEX_MILLIS / 4 };
            rt.sleep(Duration::from_millis(1 + rt.random_u64() % length)).await;
            let layout = self.indexes.borrow().layout;
            self.indexes.borrow_mut().is_changing = true;
            match (exist, draw.below(5)) {
                (false, _) => self.until_done(&mut link, &creations(layout)).await,
                (true, 0) => self.until_done(&mut link, &[drop_index("of_l")]).await,
                (true, 1) => self.until_done(&mut link, &[drop_index("of_s")]).await,
                (true, 2) => self.until_done(&mut link, &[drop_index("of_e")]).await,
                (true, _) => {
                    self.until_done(&mut link, &["one", "two"].map(drop_index)).await;
                    self.indexes.borrow_mut().layout = layout.other();
                }
            }
            exist = !exist;
            // Otherwise the change may have been interrupted.
            if self.progress.goes_on() {
                self.indexes.borrow_mut().is_changing = false;
            }
        }
        self.progress.ended();
    }

    /// Retries each statement until it is acknowledged or the clients end.
    async fn until_done(&self, link: &mut Link<'_>, texts: &[String]) {
        for text in texts {
            while self.progress.goes_on() && link.try_once(text, None).await.is_err() {}
        }
    }

    /// Writes the rows of a client and reads any until the clients end.
    pub async fn run(self, rt: Rt, number: i32) {
        let mut draw = Draw::new(rt.random_u64());
        while self.goes_on() {
            let mut writes = self.link(&rt, Consistency::Quorum);
            let mut reads = self.link(&rt, self.level);
            for _ in 0..STATEMENTS {
                if !self.goes_on() {
                    break;
                }
                if draw.below(10) < 6 {
                    self.write_once(&rt, &mut writes, &mut draw, number).await;
                } else {
                    let (question, page) = (draw.question(self.clients, self.nearest), draw.page());
                    let from = rt.now();
                    let answer = reads.try_once(&question.statement(), page).await;
                    let window = Window { from, until: rt.now() };
                    let asked = Asked { question, page, window };
                    self.indexes.borrow_mut().note(&asked, answer);
                }
                rt.sleep(Duration::from_millis(1 + rt.random_u64() % THINK_MILLIS)).await;
            }
        }
        self.progress.ended();
    }

    fn goes_on(&self) -> bool {
        self.progress.goes_on() && self.indexes.borrow().wrong.is_none()
    }

    /// Retries a new write until it is acknowledged or the clients end.
    async fn write_once(&self, rt: &Rt, link: &mut Link<'_>, draw: &mut Draw, number: i32) {
        let write = {
            let indexes = &mut *self.indexes.borrow_mut();
            indexes.writes += 1;
            let write = draw.write(number, STAMP_BASE + indexes.writes);
            indexes.histories.begin(&write.keys, write.change, rt.now());
            let pending = PendingWrite { text: write.text.clone(), keys: write.keys.clone() };
            indexes.pending.insert(number, pending);
            write
        };
        while link.try_once(&write.text, None).await.is_err() {
            self.indexes.borrow_mut().histories.retry(&write.keys);
            if !self.goes_on() {
                return;
            }
        }
        let indexes = &mut *self.indexes.borrow_mut();
        indexes.pending.remove(&number);
        indexes.histories.acknowledge(&write.keys, rt.now());
    }
}

/// After healing: completes the writes, then compares each indexed read through each node with a scan at ALL.
///
/// # Errors
/// A statement that fails, or an answer that is not the filtered scan.
pub async fn look(
    rt: Rt,
    addresses: Vec<SocketAddr>,
    indexes: Rc<RefCell<Indexes>>,
) -> Result<(), String> {
    let until = rt.now() + HEALED_MAX;
    let look = FinalLook { rt: &rt, until, layout: indexes.borrow().layout };
    let pending = std::mem::take(&mut indexes.borrow_mut().pending);
    let mut link = Link::new(&rt, &addresses, Consistency::Quorum);
    for write in pending.into_values() {
        look.answer(&mut link, &write.text, None).await?;
        let histories = &mut indexes.borrow_mut().histories;
        histories.retry(&write.keys);
        histories.acknowledge(&write.keys, rt.now());
    }
    if indexes.borrow().is_changing {
        look.drop_indexes(&mut link).await?;
    }
    look.create_indexes(&mut link).await?;
    // Nothing expires from here on.
    rt.sleep(TTL * 3).await;
    let mut draw = Draw::new(rt.random_u64());
    let scan = Question { predicate: Predicate::All, partition: None, nearest: None };
    for (number, address) in addresses.iter().enumerate() {
        let only = [*address];
        let level = if number == 0 { Consistency::All } else { Consistency::Quorum };
        let mut link = Link::new(&rt, &only, level);
        let all = look.read(&mut link, &indexes, scan, Some(7)).await?;
        for question in all_questions() {
            let page = draw.page();
            let found = look.read(&mut link, &indexes, question, page).await?;
            let expected = question.filter(&all);
            if found != expected {
                let text = question.statement();
                return Err(format!(
                    "indexes: {text} by {page:?} at {level:?} through {address} after healing: {found:?}, \
                     but the scan has {expected:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Statements after healing, each of which must succeed in time.
struct FinalLook<'a> {
    rt: &'a Rt,
    until: Instant,
    layout: Layout,
}

impl FinalLook<'_> {
    async fn answer(
        &self,
        link: &mut Link<'_>,
        text: &str,
        page: Option<i32>,
    ) -> Result<EncodedRows, String> {
        loop {
            match link.try_once(text, page).await {
                Ok(rows) => return Ok(rows),
                Err(why) if self.rt.now() > self.until => {
                    return Err(format!("indexes: {text} after healing: {why}"));
                }
                Err(_) => {}
            }
        }
    }

    async fn drop_indexes(&self, link: &mut Link<'_>) -> Result<(), String> {
        for name in NAMES {
            self.answer(link, &drop_index(name), None).await?;
        }
        Ok(())
    }

    /// Creates the indexes that do not exist.
    async fn create_indexes(&self, link: &mut Link<'_>) -> Result<(), String> {
        while let Err(why) = self.try_to_create(link).await {
            if self.rt.now() > self.until {
                return Err(why);
            }
            self.drop_indexes(link).await?;
        }
        Ok(())
    }

    async fn try_to_create(&self, link: &mut Link<'_>) -> Result<(), String> {
        for text in creations(self.layout) {
            let created = link.try_once(&text, None).await;
            created.map_err(|why| format!("indexes: {text} after healing: {why}"))?;
        }
        Ok(())
    }

    /// Reads all pages, and checks them as answers during faults.
    async fn read(
        &self,
        link: &mut Link<'_>,
        indexes: &RefCell<Indexes>,
        question: Question,
        page: Option<i32>,
    ) -> Result<Vec<ShownRow>, String> {
        let from = self.rt.now();
        let rows = self.answer(link, &question.statement(), page).await?;
        let shown = decode(&rows)?;
        let window = Window { from, until: self.rt.now() };
        indexes.borrow_mut().note(&Asked { question, page, window }, Ok(rows));
        Ok(shown)
    }
}
