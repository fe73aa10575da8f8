//! One round: a table, statements on both servers, their answers side by side.

use std::time::Duration;

use anyhow::{Result, bail};

use super::bound::Statement;
use super::compare::{Shown, difference, name, show};
use super::random::Random;
use super::scan::{Replay, await_builds};
use super::select::{self, PAGES};
use super::table::{Mode, Table};
use super::types::{FIELDS, UDT};
use super::write;
use crate::client::{Answer, Bound, Client, Parameters, Prepared};
use crate::value::{Column, encode_all};

/// Pages of one query, at most.
const PAGES_MAX: usize = 2_000;
/// Queries that are asked again after a flush or compaction.
const AGAIN: usize = 12;
/// Retries of a read while an index is built, and the time between two of them.
pub(super) const BUILD_RETRIES: usize = 1_200;
pub(super) const BUILD_PAUSE: Duration = Duration::from_millis(25);

/// Disturbance of our server between statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upset {
    /// Memtables go to the disk.
    Flush,
    /// All SSTables become one.
    Compact,
    /// The server ends and is started again.
    Restart,
}

/// Outcome of an upset.
pub enum Done {
    /// The server cannot be upset so.
    Not,
    /// The connection is as it was.
    Kept,
    /// The connection was lost: new ones to ours and to the reference, since some warnings come once per
    /// connection.
    Anew(Box<(Client, Client)>),
}

/// Upsets our server.
pub type Upsetting<'a> = dyn FnMut(Upset, &str) -> Result<Done> + 'a;

/// Two servers.
pub struct Pair<'a> {
    /// Ours.
    pub ours: &'a mut Client,
    /// The reference.
    pub theirs: &'a mut Client,
    /// Upsets ours; the keyspace.
    pub upset: &'a mut Upsetting<'a>,
    /// Seconds that the first statement sees.
    pub now: i32,
    /// Prints every statement.
    pub verbose: bool,
    /// Our server may be restarted.
    pub restarts: bool,
    /// Tables get secondary indexes.
    pub indexes: bool,
    /// The keyspace, which both connections use.
    pub keyspace: String,
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

/// The statements of a round so far.
struct History {
    /// Those that changed something, and the upsets.
    shown: Vec<String>,
    replay: Replay,
}

/// Results of a round.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Statements that were compared.
    pub statements: usize,
    /// Those that both servers refused.
    pub refused: usize,
    /// Statements with bound values.
    pub bound: usize,
    /// Rows that were compared.
    pub rows: usize,
    /// How often ours was flushed.
    pub flushes: usize,
    /// How often ours was compacted.
    pub compactions: usize,
    /// How often ours was restarted.
    pub restarts: usize,
    /// Answers by index that are ours and those of a scan of the reference, but not those of its index.
    pub their_index: Vec<Found>,
    /// Indexes that the reference did not build, which end the round.
    pub unbuilt: usize,
    /// One server made a change that the other refused, which ends the round.
    pub parted: bool,
    /// Differences.
    pub found: Vec<Found>,
}

/// Durability of a keyspace's writes: through the commit log or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// They do: the servers are restarted in between.
    Durable,
    /// They do not.
    MemoryOnly,
}

/// The statements that make the keyspace.
#[must_use]
pub fn keyspace(name: &str, writes: Durability) -> Vec<String> {
    let is_durable = writes == Durability::Durable;
    let fields: Vec<String> =
        FIELDS.iter().map(|(field, kind)| format!("{field} {kind}")).collect();
    vec![
        format!("DROP KEYSPACE IF EXISTS {name}"),
        format!(
            "CREATE KEYSPACE {name} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': 1}} \
             AND durable_writes = {is_durable}"
        ),
        format!("USE {name}"),
        format!("CREATE TYPE {UDT} ({})", fields.join(", ")),
    ]
}

/// Runs the round of a seed.
///
/// # Errors
/// A connection fails. A server that ends while a statement runs is such an error.
pub fn run(pair: &mut Pair<'_>, seed: u64, statements: usize) -> Result<Outcome> {
    let mut random = Random::new(seed);
    let mut table = Table::random(&mut random, &format!("t{seed}"));
    // Tables of counters have no indexes.
    while pair.indexes && table.mode == Mode::Counters && random.percent(90) {
        table = Table::random(&mut random, &format!("t{seed}"));
    }
    let mut outcome = Outcome::default();
    let mut history = History { shown: Vec::new(), replay: Replay::new(&table.name) };
    let create = Statement::plain(table.create());
    pair.compare(&create, None, 0, &mut outcome, &mut history)?;
    if pair.indexes && random.percent(60) {
        for _ in 0..1 + random.below(3) {
            let statement = Statement::plain(table.create_index(&mut random));
            pair.compare(&statement, None, 0, &mut outcome, &mut history)?;
        }
    }
    let mut asked: Vec<(Statement, Option<i32>)> = Vec::new();
    for number in 0..statements {
        let second = i32::try_from(number)?;
        let change = match pair.indexes && random.percent(3) {
            true => Some(change_indexes(&mut table, &mut random)),
            false => random.percent(1).then(|| table.alter(&mut random)),
        };
        if let Some(change) = change {
            let statement = Statement::plain(change);
            pair.compare(&statement, None, second, &mut outcome, &mut history)?;
            let describe = Statement::plain(format!("DESCRIBE TABLE {}", table.name));
            pair.compare(&describe, None, second, &mut outcome, &mut history)?;
        } else if random.percent(55) {
            let phase = match number * 3 > statements * 2 {
                true => write::Phase::Late,
                false => write::Phase::Early,
            };
            let statement = write::statement(&table, &mut random, phase);
            pair.compare(&statement, None, second, &mut outcome, &mut history)?;
        } else {
            let statement = select::statement(&table, &mut random);
            let page = *random.pick(&PAGES);
            pair.compare(&statement, page, second, &mut outcome, &mut history)?;
            asked.push((statement, page));
        }
        if outcome.parted || outcome.unbuilt > 0 {
            break;
        }
        let upset = match random.below(60) {
            0 => Some(Upset::Flush),
            1 => random.percent(50).then_some(Upset::Compact),
            2 if pair.restarts && random.percent(20) => Some(Upset::Restart),
            _ => None,
        };
        if let Some(upset) = upset {
            if !pair.upset(upset, &mut outcome)? {
                continue;
            }
            history.shown.push(format!("-- {upset:?}"));
            let again: Vec<_> = asked.iter().rev().take(AGAIN).cloned().collect();
            for (statement, page) in again {
                pair.compare(&statement, page, second, &mut outcome, &mut history)?;
            }
        }
    }
    let end = i32::try_from(statements)?;
    if !outcome.parted && outcome.unbuilt == 0 {
        pair.compare_all(&table, end, &mut outcome, &mut history)?;
    }
    let drop = Statement::plain(format!("DROP TABLE IF EXISTS {}", table.name));
    pair.compare(&drop, None, end, &mut outcome, &mut history)?;
    history.replay.end(pair.theirs)?;
    Ok(outcome)
}

fn change_indexes(table: &mut Table, random: &mut Random) -> String {
    match random.percent(if table.indexes.is_empty() { 95 } else { 65 }) {
        true => table.create_index(random),
        false => table.drop_index(random),
    }
}

impl Pair<'_> {
    /// Compares all that is in the table, in one page and in many.
    fn compare_all(
        &mut self,
        table: &Table,
        second: i32,
        outcome: &mut Outcome,
        history: &mut History,
    ) -> Result<()> {
        for statement in select::everything(table) {
            for page in [None, Some(2)] {
                self.compare(&Statement::plain(&statement), page, second, outcome, history)?;
            }
        }
        Ok(())
    }

    /// Upsets our server; returns true if that is supported.
    fn upset(&mut self, upset: Upset, outcome: &mut Outcome) -> Result<bool> {
        match (self.upset)(upset, &self.keyspace)? {
            Done::Not => return Ok(false),
            Done::Kept => {}
            Done::Anew(clients) => {
                (*self.ours, *self.theirs) = *clients;
                if self.indexes {
                    let is_built = await_builds(self.theirs, &self.keyspace)?;
                    outcome.unbuilt += usize::from(!is_built);
                }
            }
        }
        match upset {
            Upset::Flush => outcome.flushes += 1,
            Upset::Compact => outcome.compactions += 1,
            Upset::Restart => outcome.restarts += 1,
        }
        Ok(true)
    }

    fn compare(
        &mut self,
        statement: &Statement,
        page: Option<i32>,
        second: i32,
        outcome: &mut Outcome,
        history: &mut History,
    ) -> Result<()> {
        let seconds = self.now + second;
        let ours = ask(self.ours, statement, page, Some(seconds))?;
        let theirs = ask(self.theirs, statement, page, Some(seconds))?;
        outcome.statements += 1;
        outcome.bound += usize::from(statement.values.is_some());
        let is_error = |shown: &Shown| shown.lines.iter().any(|line| line.starts_with("error 0x"));
        let (our_error, their_error) = (is_error(&ours), is_error(&theirs));
        let refused = our_error && their_error;
        outcome.refused += usize::from(refused);
        outcome.rows += theirs.lines.len().saturating_sub(1);
        if self.verbose {
            println!("{};\n    {}", statement.shown(), theirs.lines.join("\n    "));
        }
        let changes = !["SELECT", "DESCRIBE"].iter().any(|read| statement.text.starts_with(read));
        // A change that only one of them accepted leaves a lasting difference.
        outcome.parted |= changes && our_error != their_error;
        if let Some((our, their)) = difference(&ours, &theirs) {
            let is_read = self.indexes && statement.text.starts_with("SELECT");
            let scanned = match is_read && !our_error {
                true => Some(history.replay.scan(self.theirs, statement, page, seconds)?),
                false => None,
            };
            let is_their_index = scanned.is_some_and(|scanned| scanned.lines == ours.lines);
            let list = if is_their_index { &mut outcome.their_index } else { &mut outcome.found };
            list.push(Found {
                statement: statement.shown(),
                page,
                ours: our,
                theirs: their,
                answers: (ours, theirs),
                before: history.shown.clone(),
            });
        }
        if !refused && changes {
            history.shown.push(statement.shown());
            history.replay.note(statement, seconds);
            if self.indexes && statement.text.contains(" INDEX ") {
                let is_built = await_builds(self.theirs, &self.keyspace)?;
                outcome.unbuilt += usize::from(!is_built);
            }
        }
        Ok(())
    }
}

/// All pages of an answer; before them, what a statement with bound values is prepared to.
pub(super) fn ask(
    client: &mut Client,
    statement: &Statement,
    page: Option<i32>,
    now: Option<i32>,
) -> Result<Shown> {
    let mut parameters = Parameters {
        page_size: page,
        now_in_seconds: now,
        consistency: 1,
        ..Parameters::default()
    };
    let mut first = Vec::new();
    let mut warnings = Vec::new();
    let mut prepared = None;
    if let Some(values) = &statement.values {
        let response = client.prepare(&statement.text, None)?;
        warnings.extend(response.warnings);
        let Answer::Prepared(found) = response.answer else {
            return Ok(show(&[response.answer], warnings));
        };
        parameters.values = values_of(&found, values);
        first = show_prepared(&found);
        prepared = Some(found);
    }
    let mut pages = Vec::new();
    loop {
        let mut execute = || match &prepared {
            None => client.query(&statement.text, &parameters),
            Some(prepared) => client.execute(prepared, &parameters),
        };
        let mut response = execute()?;
        for _ in 0..BUILD_RETRIES {
            if !is_being_built(&response.answer) {
                break;
            }
            std::thread::sleep(BUILD_PAUSE);
            response = execute()?;
        }
        warnings.extend(response.warnings);
        let next = match &response.answer {
            Answer::Rows(rows) => rows.metadata.paging_state.clone(),
            _ => None,
        };
        pages.push(response.answer);
        match next {
            Some(_) if pages.len() >= PAGES_MAX => {
                bail!("{}: more than {PAGES_MAX} pages", statement.shown())
            }
            Some(state) => parameters.paging_state = Some(state),
            None => break,
        }
    }
    let mut shown = show(&pages, warnings);
    first.append(&mut shown.lines);
    Ok(Shown { lines: first, ..shown })
}

/// Returns true if a read failed because its index is still being built.
fn is_being_built(answer: &Answer) -> bool {
    matches!(answer, Answer::Error(error) if error.message.contains("INDEX_NOT_AVAILABLE"))
}

/// The values for the markers. One that is no literal of the marker's type is bound as bytes.
fn values_of(prepared: &Prepared, values: &[String]) -> Vec<Bound> {
    let of = |(column, value): (&Column, &String)| {
        let one = std::slice::from_ref(column);
        let encoded = encode_all(one, value).ok().and_then(|mut values| values.pop());
        encoded.unwrap_or_else(|| Bound::Bytes(vec![0, 0, 0, 1]))
    };
    prepared.bound.iter().zip(values).map(of).collect()
}

fn show_prepared(prepared: &Prepared) -> Vec<String> {
    let columns = |columns: &[Column]| {
        let columns: Vec<String> = columns
            .iter()
            .map(|column| format!("{} {}", name(&column.name), column.kind))
            .collect();
        columns.join(" | ")
    };
    vec![
        format!("markers {} key {:?}", columns(&prepared.bound), prepared.key_indexes),
        format!("result {}", columns(&prepared.result.columns)),
    ]
}
