//! Aggregations and filters over tables whose rows are known: written before the first fault and
//! never changed. So each answer, at every level and from every replica, is correct or is an error.
//!
//! One table has one replica of each row, so that at every level shards of several nodes compute
//! the groups. The other has the scenario's replicas, any of which may continue for one that dies.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cql_wire::Consistency;
use rt::Rt;

use crate::checks::Verdict;
use crate::client::Answer;
use crate::inverted::Link;
use crate::progress::Progress;
use crate::survey;

/// Cells of rows.
type Found = Vec<Vec<Option<Vec<u8>>>>;

/// Partitions, and most rows of one.
const PARTITIONS: i32 = 26;
const ROWS_MAX: i32 = 14;
/// The tables; the first has one replica of each row.
const TABLES: [&str; 2] = ["alone.folded", "ks.folded"];
/// Longest pause between two statements of a client.
const THINK_MILLIS: u64 = 60;
/// Longest time until a statement succeeds after healing.
const HEALED_MAX: Duration = Duration::from_secs(120);
/// How often a write is tried before anything breaks: memory may be short.
const TRIES: u32 = 20;

/// Makes the tables.
pub fn schema() -> Vec<String> {
    let keyspace = "CREATE KEYSPACE IF NOT EXISTS alone WITH replication = {'class': 'SimpleStrategy', \
                    'replication_factor': 1}";
    let table = |name: &str| {
        format!(
            "CREATE TABLE IF NOT EXISTS {name} (k int, g int, c int, s int static, v int, t text, \
             PRIMARY KEY (k, g, c))"
        )
    };
    std::iter::once(keyspace.to_owned()).chain(TABLES.into_iter().map(table)).collect()
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    k: i32,
    g: i32,
    c: i32,
    v: Option<i32>,
    t: &'static str,
}

fn static_of(k: i32) -> i32 {
    k % 3
}

/// All rows, in the order of the ring and of their clustering.
fn rows() -> Vec<Row> {
    let mut keys: Vec<i32> = (0..PARTITIONS).collect();
    keys.sort_by_key(|k| codec::token_of(&k.to_be_bytes()));
    let of_key = |k: i32| {
        // One is much larger than the others, some have one row.
        let count = if k == 5 { 8 * ROWS_MAX } else { 1 + (k * 5) % ROWS_MAX };
        (0..count).map(move |c| {
            let mixed = (k * 7919 + c * 104_729) % 1009;
            let v = (mixed % 5 != 0).then_some(mixed * 2_000_017);
            Row { k, g: c / 4, c, v, t: ["a", "b", "bc", "d"][(mixed % 4) as usize] }
        })
    };
    keys.into_iter().flat_map(of_key).collect()
}

/// The statements that write a partition of a table.
fn writes(table: &str, k: i32) -> Vec<String> {
    let of_key: Vec<Row> = rows().into_iter().filter(|row| row.k == k).collect();
    let batch = |rows: &[Row]| {
        let insert = |row: &Row| {
            let Row { k, g, c, v, t } = row;
            let v = v.map_or("null".to_owned(), |v| v.to_string());
            format!("INSERT INTO {table} (k, g, c, v, t) VALUES ({k}, {g}, {c}, {v}, '{t}');")
        };
        let inserts: String = rows.iter().map(insert).collect();
        format!("BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")
    };
    let mut texts: Vec<String> = of_key.chunks(20).map(batch).collect();
    texts.push(format!("INSERT INTO {table} (k, s) VALUES ({k}, {})", static_of(k)));
    texts
}

/// A statement whose answer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// One group over everything.
    All,
    /// The same of the rows that a filter leaves.
    Filtered { t: &'static str },
    /// A group for each partition.
    Partitions,
    /// The same, for some rows, up to a limit.
    Some { least: i32, limit: usize },
    /// Groups inside of partitions, limited per partition.
    Groups { each: usize },
    /// Rows of a value, with what stands for the partition.
    Rows { least: i32, s: i32 },
    /// Rows that do not exist.
    None,
    /// A part of the ring.
    Behind { k: i32 },
}

impl Question {
    fn random(rt: &Rt) -> Question {
        let any = |n: u64| rt.random_u64() % n;
        let least = |n: u64| (n % 1009) as i32 * 2_000_017;
        match any(9) {
            0 => Question::All,
            1 => Question::Filtered { t: ["a", "bc", "none"][any(3) as usize] },
            2 => Question::Partitions,
            3 => Question::Some { least: least(any(2000)), limit: 1 + any(30) as usize },
            4 => Question::Groups { each: 1 + any(3) as usize },
            5 | 6 => Question::Rows { least: least(any(2000)), s: any(3) as i32 },
            7 => Question::None,
            _ => Question::Behind { k: any(PARTITIONS as u64) as i32 },
        }
    }

    /// Returns one question of each form.
    fn all() -> [Question; 8] {
        [
            Question::All,
            Question::Filtered { t: "b" },
            Question::Partitions,
            Question::Some { least: 500 * 2_000_017, limit: 9 },
            Question::Groups { each: 2 },
            Question::Rows { least: 300 * 2_000_017, s: 1 },
            Question::None,
            Question::Behind { k: 7 },
        ]
    }

    fn statement(self, table: &str) -> String {
        match self {
            Question::All => format!(
                "SELECT count(*), count(v), sum(v), min(v), max(t), avg(v), min(k) FROM {table}"
            ),
            Question::Filtered { t } => {
                format!("SELECT count(*), sum(v) FROM {table} WHERE t = '{t}' ALLOW FILTERING")
            }
            Question::Partitions => {
                format!("SELECT k, s, count(*), sum(v), max(t) FROM {table} GROUP BY k")
            }
            Question::Some { least, limit } => format!(
                "SELECT k, count(v), max(v) FROM {table} WHERE v >= {least} GROUP BY k LIMIT {limit} \
                 ALLOW FILTERING"
            ),
            Question::Groups { each } => format!(
                "SELECT k, g, sum(v), count(*) FROM {table} GROUP BY k, g PER PARTITION LIMIT {each}"
            ),
            Question::Rows { least, s } => format!(
                "SELECT k, c, v, t FROM {table} WHERE v >= {least} AND s = {s} ALLOW FILTERING"
            ),
            Question::None => format!("SELECT k, c FROM {table} WHERE v = -1 ALLOW FILTERING"),
            Question::Behind { k } => {
                format!("SELECT count(*), max(v) FROM {table} WHERE token(k) > token({k})")
            }
        }
    }

    fn answer(self) -> Found {
        let all = rows();
        let int = |n: i32| Some(n.to_be_bytes().to_vec());
        let long = |n: usize| Some((n as i64).to_be_bytes().to_vec());
        let text = |t: Option<&str>| t.map(|t| t.as_bytes().to_vec());
        let sum = |rows: &[&Row]| {
            int(rows.iter().filter_map(|r| r.v).fold(0, |sum: i32, v| sum.wrapping_add(v)))
        };
        let values = |rows: &[&Row]| rows.iter().filter_map(|r| r.v).collect::<Vec<i32>>();
        let greatest = |rows: &[&Row]| values(rows).into_iter().max().and_then(int);
        let where_ =
            |keep: &dyn Fn(&Row) -> bool| all.iter().filter(|r| keep(r)).collect::<Vec<_>>();
        match self {
            Question::All => {
                let rows = where_(&|_| true);
                let some = values(&rows);
                let total: i64 = some.iter().map(|v| i64::from(*v)).sum();
                let average = (total / some.len() as i64) as i32;
                vec![vec![
                    long(rows.len()),
                    long(some.len()),
                    sum(&rows),
                    some.iter().copied().min().and_then(int),
                    text(rows.iter().map(|r| r.t).max()),
                    int(average),
                    int(0),
                ]]
            }
            Question::Filtered { t } => {
                let rows = where_(&|row| row.t == t);
                vec![vec![long(rows.len()), sum(&rows)]]
            }
            Question::Partitions => {
                let of_group = |rows: Vec<&Row>| {
                    let Some(k) = rows.first().map(|r| r.k) else { return Vec::new() };
                    let most = text(rows.iter().map(|r| r.t).max());
                    vec![int(k), int(static_of(k)), long(rows.len()), sum(&rows), most]
                };
                grouped(where_(&|_| true), |r| (r.k, 0)).into_iter().map(of_group).collect()
            }
            Question::Some { least, limit } => {
                let rows = where_(&|row| row.v.is_some_and(|v| v >= least));
                let of_group = |rows: Vec<&Row>| {
                    let k = rows.first().map(|r| r.k).and_then(int);
                    vec![k, long(values(&rows).len()), greatest(&rows)]
                };
                let groups = grouped(rows, |r| (r.k, 0)).into_iter();
                groups.take(limit).map(of_group).collect()
            }
            Question::Groups { each } => {
                let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
                let of_group = |rows: Vec<&Row>| {
                    let Row { k, g, .. } = rows.first()?;
                    let count = counts.entry(*k).or_default();
                    *count += 1;
                    (*count <= each).then(|| vec![int(*k), int(*g), sum(&rows), long(rows.len())])
                };
                grouped(where_(&|_| true), |r| (r.k, r.g))
                    .into_iter()
                    .filter_map(of_group)
                    .collect()
            }
            Question::Rows { least, s } => {
                let keep = |row: &Row| row.v.is_some_and(|v| v >= least) && static_of(row.k) == s;
                let row = |r: &Row| vec![int(r.k), int(r.c), r.v.and_then(int), text(Some(r.t))];
                where_(&keep).into_iter().map(row).collect()
            }
            Question::None => Vec::new(),
            Question::Behind { k } => {
                let token = |k: i32| codec::token_of(&k.to_be_bytes());
                let rows = where_(&|row| token(row.k) > token(k));
                vec![vec![long(rows.len()), greatest(&rows)]]
            }
        }
    }
}

/// Groups adjacent rows that have the same key.
fn grouped(rows: Vec<&Row>, by: impl Fn(&Row) -> (i32, i32)) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| by(last) == by(row)) => group.push(row),
            _ => groups.push(vec![row]),
        }
    }
    groups
}

/// Results that the clients of a run have seen.
#[derive(Default)]
pub struct Folded {
    wrong: Option<String>,
    answers: u64,
}

impl Folded {
    /// How many answers were compared.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// No answer was wrong.
    pub fn verdict(&self) -> Verdict {
        match &self.wrong {
            Some(wrong) => Err(format!("folded: {wrong}")),
            None => Ok(()),
        }
    }

    fn note(&mut self, asked: &str, expected: &Found, found: &Found) {
        self.answers += 1;
        if expected != found {
            let at = expected.iter().zip(found).position(|(e, f)| e != f);
            let at = at.unwrap_or(expected.len().min(found.len()));
            let (e, f) = (expected.get(at), found.get(at));
            self.wrong.get_or_insert(format!(
                "{asked}: {} rows, {} expected; the first other one, number {at}, is {f:?} instead of {e:?}",
                found.len(),
                expected.len()
            ));
        }
    }
}

/// Writes a table at ALL, before anything breaks.
///
/// # Errors
/// Which write fails.
pub async fn write(rt: Rt, address: SocketAddr) -> Result<(), String> {
    let mut client = survey::connect(&rt, address).await;
    client.set_consistency(Consistency::All);
    let all = TABLES.into_iter().flat_map(|t| (0..PARTITIONS).flat_map(move |k| writes(t, k)));
    for text in all {
        let mut answer = client.query(&text).await;
        for _ in 1..TRIES {
            if answer == Ok(Answer::Done) {
                break;
            }
            rt.sleep(Duration::from_millis(300)).await;
            answer = client.query(&text).await;
        }
        if answer != Ok(Answer::Done) {
            return Err(format!("{text} at ALL before anything broke: {answer:?}"));
        }
    }
    Ok(())
}

/// Changes a row that no client knows of: what the checker must find.
///
/// # Errors
/// It was not written.
pub async fn spoil(rt: Rt, address: SocketAddr) -> Result<(), String> {
    let mut client = survey::connect(&rt, address).await;
    client.set_consistency(Consistency::All);
    for table in TABLES {
        let text = format!("UPDATE {table} SET v = 7 WHERE k = 5 AND g = 3 AND c = 13");
        let answer = client.query(&text).await;
        if answer != Ok(Answer::Done) {
            return Err(format!("{text}: {answer:?}"));
        }
    }
    Ok(())
}

fn draw(rt: &Rt) -> (&'static str, Consistency, Option<i32>, Question) {
    use Consistency::{All, LocalOne, LocalQuorum, One, Quorum};
    let any = |n: u64| rt.random_u64() % n;
    let table = TABLES[any(2) as usize];
    let level = match table == TABLES[0] {
        // One answer is enough at any level.
        true => [One, LocalOne, Quorum, LocalQuorum, All][any(5) as usize],
        false => [One, One, LocalOne, Quorum][any(4) as usize],
    };
    let page = [None, Some(1), Some(4), Some(100)][any(4) as usize];
    (table, level, page, Question::random(rt))
}

/// Asks until the clients of the run end.
pub async fn run(
    rt: Rt,
    addresses: Vec<SocketAddr>,
    progress: Rc<Progress>,
    folded: Rc<RefCell<Folded>>,
) {
    let mut link = Link::new(&rt, &addresses, Consistency::One);
    while progress.goes_on() && folded.borrow().wrong.is_none() {
        let (table, level, page, question) = draw(&rt);
        let text = question.statement(table);
        link.set_level(level);
        if let Ok(found) = link.try_once(&text, page).await {
            let asked = format!("{text} by {page:?} at {level:?}");
            folded.borrow_mut().note(&asked, &question.answer(), &found);
        }
        rt.sleep(Duration::from_millis(1 + rt.random_u64() % THINK_MILLIS)).await;
    }
    progress.ended();
}

/// After healing: sends every form of question through every node; each must be answered.
///
/// # Errors
/// A question without an answer.
pub async fn look(
    rt: Rt,
    addresses: Vec<SocketAddr>,
    folded: Rc<RefCell<Folded>>,
) -> Result<(), String> {
    let until = rt.now() + HEALED_MAX;
    for address in addresses {
        let only = [address];
        let mut link = Link::new(&rt, &only, Consistency::One);
        for (table, question) in
            TABLES.into_iter().flat_map(|t| Question::all().into_iter().map(move |q| (t, q)))
        {
            let text = question.statement(table);
            let page = [None, Some(3)][(rt.random_u64() % 2) as usize];
            let found = loop {
                match link.try_once(&text, page).await {
                    Ok(found) => break found,
                    Err(why) if rt.now() > until => return Err(format!("folded: {text}: {why}")),
                    Err(_) => {}
                }
            };
            let asked = format!("{text} by {page:?} through {address}");
            folded.borrow_mut().note(&asked, &question.answer(), &found);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_not_the_rows_are_noticed() {
        for question in Question::all() {
            let right = question.answer();
            let found = |found: &Found| {
                let mut folded = Folded::default();
                folded.note("it", &right, found);
                folded.verdict()
            };
            assert_eq!(found(&right), Ok(()), "{question:?}");
            let mut more = right.clone();
            more.push(vec![None]);
            assert!(found(&more).is_err(), "{question:?}");
            if right.is_empty() {
                continue;
            }
            let mut fewer = right.clone();
            fewer.remove(fewer.len() / 2);
            assert!(found(&fewer).is_err(), "{question:?}");
            let mut other = right.clone();
            let cell = other.last_mut().and_then(|row| row.last_mut()).unwrap();
            *cell = Some(vec![9, 9]);
            assert!(found(&other).is_err(), "{question:?}");
        }
    }

    #[test]
    fn the_questions_have_answers_that_say_something() {
        assert!(rows().len() > 200);
        assert!(
            rows().iter().any(|row| row.k == 5 && row.g == 3 && row.c == 13 && row.v != Some(7))
        );
        for question in Question::all() {
            let rows = question.answer().len();
            match question {
                Question::None => assert_eq!(rows, 0),
                Question::All | Question::Filtered { .. } | Question::Behind { .. } => {
                    assert_eq!(rows, 1);
                }
                _ => assert!(rows > 5, "{question:?}: {rows}"),
            }
        }
        assert_eq!(Question::Partitions.answer().len(), PARTITIONS as usize);
    }
}
