//! One round: a table, statements on both servers, their answers side by side.

use anyhow::{Result, bail};

use super::compare::{Shown, difference, show};
use super::random::Random;
use super::select::{self, PAGES};
use super::table::Table;
use super::types::{FIELDS, UDT};
use super::write;
use crate::client::{Answer, Client, Parameters};

/// Pages of one query, at most.
const PAGES_MAX: usize = 2_000;
/// Queries that are asked again after a flush or compaction.
const AGAIN: usize = 12;

/// What is done to our server beside statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upset {
    /// Memtables go to the disk.
    Flush,
    /// All SSTables become one.
    Compact,
}

/// Two servers.
pub struct Pair<'a> {
    /// Ours.
    pub ours: &'a mut Client,
    /// The reference.
    pub theirs: &'a mut Client,
    /// Upsets ours; the keyspace.
    pub upset: &'a mut dyn FnMut(Upset, &str) -> Result<()>,
    /// Seconds that the first statement sees.
    pub now: i32,
    /// Prints every statement.
    pub verbose: bool,
}

/// A difference that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The statement.
    pub statement: String,
    /// Rows per page.
    pub page: Option<i32>,
    /// Our answer, where it differs.
    pub ours: String,
    /// Theirs.
    pub theirs: String,
    /// All of our answer and of theirs.
    pub answers: (Shown, Shown),
    /// Statements of the round before it that succeeded in changing something.
    pub before: Vec<String>,
}

/// What a round showed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Statements that were compared.
    pub statements: usize,
    /// Those that both servers refused.
    pub refused: usize,
    /// Rows that were compared.
    pub rows: usize,
    /// Differences.
    pub found: Vec<Found>,
}

/// The statements that make the keyspace.
#[must_use]
pub fn keyspace(name: &str) -> Vec<String> {
    let fields: Vec<String> =
        FIELDS.iter().map(|(field, kind)| format!("{field} {kind}")).collect();
    vec![
        format!("DROP KEYSPACE IF EXISTS {name}"),
        format!(
            "CREATE KEYSPACE {name} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': 1}} AND durable_writes = false"
        ),
        format!("USE {name}"),
        format!("CREATE TYPE {UDT} ({})", fields.join(", ")),
    ]
}

/// Runs the round of a seed in `keyspace`, which both connections use.
///
/// # Errors
/// A connection fails. A server that ends while a statement runs is such an error.
pub fn run(pair: &mut Pair<'_>, keyspace: &str, seed: u64, statements: usize) -> Result<Outcome> {
    let mut random = Random::new(seed);
    let table = Table::random(&mut random, &format!("t{seed}"));
    let mut outcome = Outcome::default();
    let mut history = Vec::new();
    let create = table.create();
    pair.compare(&create, None, 0, &mut outcome, &mut history)?;
    let mut asked: Vec<(String, Option<i32>)> = Vec::new();
    for number in 0..statements {
        let second = i32::try_from(number)?;
        if random.percent(55) {
            let is_late = number * 3 > statements * 2;
            let statement = write::statement(&table, &mut random, is_late);
            pair.compare(&statement, None, second, &mut outcome, &mut history)?;
        } else {
            let statement = select::statement(&table, &mut random);
            let page = *random.pick(&PAGES);
            pair.compare(&statement, page, second, &mut outcome, &mut history)?;
            asked.push((statement, page));
        }
        let upset = match random.below(60) {
            0 => Some(Upset::Flush),
            1 => random.percent(50).then_some(Upset::Compact),
            _ => None,
        };
        if let Some(upset) = upset {
            (pair.upset)(upset, keyspace)?;
            history.push(format!("-- {upset:?}"));
            let again: Vec<_> = asked.iter().rev().take(AGAIN).cloned().collect();
            for (statement, page) in again {
                pair.compare(&statement, page, second, &mut outcome, &mut history)?;
            }
        }
    }
    let end = i32::try_from(statements)?;
    for statement in select::everything(&table) {
        for page in [None, Some(2)] {
            pair.compare(&statement, page, end, &mut outcome, &mut history)?;
        }
    }
    let drop = format!("DROP TABLE IF EXISTS {}", table.name);
    pair.compare(&drop, None, end, &mut outcome, &mut history)?;
    Ok(outcome)
}

impl Pair<'_> {
    fn compare(
        &mut self,
        statement: &str,
        page: Option<i32>,
        second: i32,
        outcome: &mut Outcome,
        history: &mut Vec<String>,
    ) -> Result<()> {
        let now = Some(self.now + second);
        let ours = ask(self.ours, statement, page, now)?;
        let theirs = ask(self.theirs, statement, page, now)?;
        outcome.statements += 1;
        let is_error = |shown: &Shown| shown.lines.iter().any(|line| line.starts_with("error 0x"));
        let refused = is_error(&ours) && is_error(&theirs);
        outcome.refused += usize::from(refused);
        outcome.rows += theirs.lines.len().saturating_sub(1);
        if self.verbose {
            println!("{statement};\n    {}", theirs.lines.join("\n    "));
        }
        if let Some((our, their)) = difference(&ours, &theirs) {
            outcome.found.push(Found {
                statement: statement.to_owned(),
                page,
                ours: our,
                theirs: their,
                answers: (ours, theirs),
                before: history.clone(),
            });
        }
        if !refused && !statement.starts_with("SELECT") {
            history.push(statement.to_owned());
        }
        Ok(())
    }
}

/// All pages of an answer.
fn ask(client: &mut Client, statement: &str, page: Option<i32>, now: Option<i32>) -> Result<Shown> {
    let mut parameters = Parameters {
        page_size: page,
        now_in_seconds: now,
        consistency: 1,
        ..Parameters::default()
    };
    let mut pages = Vec::new();
    let mut warnings = Vec::new();
    loop {
        let response = client.query(statement, &parameters)?;
        warnings.extend(response.warnings);
        let next = match &response.answer {
            Answer::Rows(rows) => rows.metadata.paging_state.clone(),
            _ => None,
        };
        pages.push(response.answer);
        match next {
            None => return Ok(show(&pages, warnings)),
            Some(_) if pages.len() >= PAGES_MAX => {
                bail!("{statement}: more than {PAGES_MAX} pages")
            }
            state => parameters.paging_state = state,
        }
    }
}
