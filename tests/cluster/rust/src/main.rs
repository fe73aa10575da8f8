//! The load of one driver while nodes fail: crate `scylla`. See `../../README.md`, "Drivers under
//! faults".

use std::collections::BTreeMap;
use std::future::Future;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};

const NAME: &str = "rust";
const WORKERS: usize = 2;
const VERIFIERS: usize = 8;
const PAUSE: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_secs(5);
const CAS_WRITE_UNKNOWN: i32 = 0x1700;

/// Variable by which some writes are claimed and not made, to see that it is found; of keys that
/// nobody else uses, from this one on.
const LIE: &str = "LOAD_LIE";
const FIRST_KEY_OF_LIES: usize = 1_000_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Default)]
struct Known {
    acknowledged: Vec<i32>,
    counts: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
    wrong: Vec<String>,
    /// Of the shared register.
    seen: i32,
}

struct Load {
    session: Session,
    insert: PreparedStatement,
    select: PreparedStatement,
    create: PreparedStatement,
    cas: PreparedStatement,
    serial: PreparedStatement,
    known: Mutex<Known>,
    stop: AtomicBool,
    is_lying: bool,
}

/// A row: whether it says that it was applied, and its `v`.
#[derive(Default)]
struct Found {
    is_applied: bool,
    text: Option<String>,
    number: Option<i32>,
}

/// Whether an error is one that failing nodes explain: the outcome is not known. With its name.
fn explained(error: &ExecutionError) -> (bool, String) {
    match error {
        ExecutionError::RequestTimeout(_) => (true, "RequestTimeout".into()),
        ExecutionError::ConnectionPoolError(_) => (true, "ConnectionPoolError".into()),
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => {
            let name = format!("{error:?}");
            let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
            let is_expected = match error {
                DbError::Other(code) => *code == CAS_WRITE_UNKNOWN,
                DbError::Unavailable { .. }
                | DbError::Overloaded
                | DbError::IsBootstrapping
                | DbError::ReadTimeout { .. }
                | DbError::WriteTimeout { .. }
                | DbError::ReadFailure { .. }
                | DbError::WriteFailure { .. } => true,
                _ => false,
            };
            (is_expected, name)
        }
        ExecutionError::LastAttemptError(
            RequestAttemptError::BrokenConnectionError(_)
            | RequestAttemptError::UnableToAllocStreamId,
        ) => (true, "BrokenConnectionError".into()),
        other => (false, format!("{other:?}")),
    }
}

impl Load {
    async fn connect() -> Result<Load, Failure> {
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            .request_timeout(Some(TIMEOUT))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()));
        let hosts = std::env::var("LOAD_HOSTS")?;
        let session = SessionBuilder::new()
            .known_nodes(hosts.split(','))
            .connection_timeout(TIMEOUT)
            .keepalive_interval(Duration::from_secs(5))
            .keepalive_timeout(TIMEOUT)
            .default_execution_profile_handle(profile.build().into_handle())
            .use_keyspace("faults", false)
            .build()
            .await?;
        let prepare = |text: &'static str| session.prepare(text);
        let insert = prepare("INSERT INTO kv (driver, k, v) VALUES (?, ?, ?)").await?;
        let select = prepare("SELECT v FROM kv WHERE driver = ? AND k = ?").await?;
        let create = prepare("INSERT INTO register (k, v) VALUES (?, 0) IF NOT EXISTS").await?;
        let cas = prepare("UPDATE register SET v = ? WHERE k = ? IF v = ?").await?;
        let mut serial = prepare("SELECT v FROM register WHERE k = ?").await?;
        serial.set_consistency(Consistency::Serial);
        let (known, stop) = (Mutex::default(), AtomicBool::new(false));
        let is_lying = std::env::var_os(LIE).is_some();
        Ok(Load { session, insert, select, create, cas, serial, known, stop, is_lying })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.known.lock().expect("no holder panics"))
    }

    fn note(&self, text: String) {
        self.with(|known| known.wrong.push(text));
    }

    fn add(&self, what: &'static str) {
        self.with(|known| *known.counts.entry(what).or_default() += 1);
    }

    /// The first row, or nothing of it; `None` when nobody knows what happened.
    async fn execute(&self, of: &PreparedStatement, values: impl SerializeRow) -> Option<Found> {
        let result = match self.session.execute_unpaged(of, values).await {
            Ok(result) => result,
            Err(error) => {
                let (is_expected, name) = explained(&error);
                self.with(|known| {
                    *known.errors.entry(name).or_default() += 1;
                    if !is_expected {
                        known.wrong.push(format!("unexpected: {error:?}"));
                    }
                });
                return None;
            }
        };
        let Ok(rows) = result.into_rows_result() else { return Some(Found::default()) };
        let names: Vec<String> = rows.column_specs().iter().map(|c| c.name().to_owned()).collect();
        let row = rows.maybe_first_row::<Row>().expect("any row can be read");
        let mut found = Found::default();
        for (name, value) in names.iter().zip(row.map(|row| row.columns).unwrap_or_default()) {
            match (name.as_str(), value) {
                ("[applied]", Some(CqlValue::Boolean(is_applied))) => found.is_applied = is_applied,
                ("v", Some(CqlValue::Text(text))) => found.text = Some(text),
                ("v", Some(CqlValue::Int(number))) => found.number = Some(number),
                _ => {}
            }
        }
        Some(found)
    }

    async fn write_and_read(&self, key: i32, round: usize) {
        let value = format!("{NAME}-{key}");
        let is_claimed = self.is_lying && key % 20 == 0;
        let is_written =
            is_claimed || self.execute(&self.insert, (NAME, key, value)).await.is_some();
        let chosen = self.with(|known| {
            if is_written {
                known.acknowledged.push(key);
            }
            let count = known.acknowledged.len().max(1);
            known.acknowledged.get(round.wrapping_mul(7919) % count).copied()
        });
        if let Some(key) = chosen {
            self.check(key).await;
        }
    }

    /// Reads what was acknowledged; false when nobody answers.
    async fn check(&self, key: i32) -> bool {
        let Some(found) = self.execute(&self.select, (NAME, key)).await else { return false };
        self.add("reads");
        if found.text != Some(format!("{NAME}-{key}")) {
            self.note(format!("key {key} was acknowledged and reads {:?}", found.text));
        }
        true
    }

    /// A counter that this worker alone raises: each step is applied once, or it is not known.
    async fn raise(&self, name: &str, value: &mut i32, is_unknown: &mut bool) {
        let Some(found) = self.execute(&self.cas, (*value + 1, name, *value)).await else {
            self.add("unknown");
            *is_unknown = true;
            return;
        };
        if found.is_applied {
            self.add("applied");
            *value += 1;
        } else if *is_unknown && found.number == Some(*value + 1) {
            self.add("found applied");
            *value += 1;
        } else {
            self.note(format!("{name}: {value} was there and {:?} is read", found.number));
            *value = found.number.unwrap_or(*value);
        }
        *is_unknown = false;
    }

    /// A counter that everybody raises: it never goes back.
    async fn share(&self) {
        let seen = self.with(|known| known.seen);
        let Some(found) = self.execute(&self.serial, ("shared",)).await else { return };
        let value = found.number.unwrap_or(-1);
        if value < seen {
            self.note(format!("shared: {seen} was there and {value} is read"));
        }
        let found = self.execute(&self.cas, (value + 1, "shared", value)).await;
        let is_applied = found.as_ref().is_some_and(|f| f.is_applied);
        if found.is_none() {
            self.add("shared unknown");
        } else if is_applied {
            self.add("shared applied");
        }
        self.with(|known| known.seen = known.seen.max(value + i32::from(is_applied)));
    }

    async fn work(&self, number: usize) {
        let name = format!("{NAME}-{number}");
        while self.execute(&self.create, (&name,)).await.is_none() {}
        let (mut value, mut is_unknown) = (0, false);
        let first = number + if self.is_lying { FIRST_KEY_OF_LIES } else { 0 };
        for round in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            let key = i32::try_from(first + round * WORKERS).expect("a run is short");
            self.write_and_read(key, round).await;
            if round % 4 == 0 {
                self.raise(&name, &mut value, &mut is_unknown).await;
            }
            if round % 8 == 1 {
                self.share().await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let last = loop {
            if let Some(found) = self.execute(&self.serial, (&name,)).await {
                break found.number;
            }
        };
        if last != Some(value) && !(is_unknown && last == Some(value + 1)) {
            self.note(format!("{name}: {value} was there and {last:?} is read at the end"));
        }
    }

    async fn verify(&self, number: usize) {
        let keys = self.with(|known| known.acknowledged.clone());
        for key in keys.into_iter().skip(number).step_by(VERIFIERS) {
            while !self.check(key).await {}
        }
    }

    async fn run(self: Arc<Load>) {
        let workers = (0..WORKERS).map(|number| {
            let this = self.clone();
            tokio::spawn(async move { this.work(number).await })
        });
        let workers: Vec<_> = workers.collect();
        println!("ready");
        let of_reader = self.clone();
        let stopped = tokio::task::spawn_blocking(move || {
            // Any other line, or the end of the input, stops the load.
            for _ in std::io::stdin().lock().lines().map_while(|l| l.ok().filter(|l| l == "count"))
            {
                println!("{}", of_reader.with(|known| known.acknowledged.len()));
            }
        });
        stopped.await.expect("reading does not panic");
        self.stop.store(true, Ordering::SeqCst);
        self.end(join_all(workers)).await;
        let reads = self.with(|known| known.counts.get("reads").copied().unwrap_or(0));
        self.with(|known| known.counts.insert("reads under faults", reads));
        let verifiers = (0..VERIFIERS).map(|number| {
            let this = self.clone();
            tokio::spawn(async move { this.verify(number).await })
        });
        self.end(join_all(verifiers.collect::<Vec<_>>())).await;
    }

    async fn end(&self, tasks: impl Future<Output = Vec<Result<(), tokio::task::JoinError>>>) {
        for error in tasks.await.into_iter().filter_map(Result::err) {
            self.note(format!("the program failed: {error}"));
        }
    }

    fn report(&self) -> String {
        let quoted = |text: &str| {
            let plain = |c: char| if c == '"' || c == '\\' || c.is_control() { '\'' } else { c };
            format!("\"{}\"", text.chars().map(plain).collect::<String>())
        };
        self.with(|known| {
            let counts = known.counts.iter().map(|(name, n)| format!("{}: {n}", quoted(name)));
            let errors = known.errors.iter().map(|(name, n)| format!("{}: {n}", quoted(name)));
            let wrong = known.wrong.iter().map(|text| quoted(text));
            format!(
                "{{\"driver\": {}, \"acknowledged\": {}, \"counts\": {{{}}}, \"errors\": {{{}}}, \
                 \"wrong\": [{}]}}",
                quoted(NAME),
                known.acknowledged.len(),
                counts.collect::<Vec<_>>().join(", "),
                errors.collect::<Vec<_>>().join(", "),
                wrong.collect::<Vec<_>>().join(", "),
            )
        })
    }
}

fn main() -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let load = Arc::new(Load::connect().await?);
        load.clone().run().await;
        println!("{}", load.report());
        Ok(())
    })
}
