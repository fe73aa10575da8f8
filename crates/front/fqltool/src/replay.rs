//! `fqltool replay`: executes the records of logs at targets, one after the other, and compares the answers.
//!
//! Each target has a thread, so that its latencies do not depend on the others. A record is sent when all targets
//! have answered the one before.

use crate::Failure;
use crate::arguments::Replay;
use crate::compare::{Report, describe};
use crate::filter::{Filter, LaterPage, Skip};
use crate::latency::Latencies;
use crate::merge::Merge;
use crate::results::{ANSWERS, ANSWERS_NAME, NewFile, QUERIES_NAME, push_answer};
use crate::source::{Follow, RecordSource};
use crate::target::{Outcome, Replayed, Target, TargetAddress, options_of};
use query_log::QueryRecord;
use query_log::format::{QUERY_LOG, push_record};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;
use tool_io::exit;

/// Queries between two lines of progress.
const PROGRESS: u64 = 5000;
/// Failures of a target that are printed; all are counted.
const FAILURES_PRINTED_MAX: u64 = 100;

/// Replays logs.
///
/// # Errors
/// A log, a target or a file cannot be used.
pub fn run(options: &Replay) -> Result<u8, Failure> {
    if let Some(results) = &options.results
        && !results.is_dir()
    {
        let path = results.display();
        return Err(Failure::new(format!(
            "The results path ({path}) should be an existing directory"
        )));
    }
    let opened = options.paths.iter().map(|path| RecordSource::open(path, Follow::No));
    let mut sources = opened.collect::<Result<Vec<_>, _>>()?;
    let interrupted = interrupted_by_signals()?;
    let targets = options.targets.iter().map(|address| Worker::start(address, &interrupted));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let mut replay = Running {
        filter: Filter {
            keyspace: options.keyspace.clone(),
            replays_ddl: options.replays_ddl,
            replays_system: options.replays_system,
        },
        report: Report::new(options.targets.iter().map(|target| target.name.clone()).collect()),
        stores: Stores::create(options)?,
        targets,
        skipped: BTreeMap::new(),
        replayed: 0,
        began: Instant::now(),
    };
    let mut failed = Ok(());
    {
        let mut merge = Merge::new(sources.iter_mut().map(|source| move || source.next_record()));
        while failed.is_ok() && !interrupted.load(Ordering::Relaxed) {
            failed = match merge.next_record() {
                Ok(None) => break,
                Ok(Some(record)) => replay.step(record, &interrupted),
                Err(failure) => Err(failure),
            };
        }
    }
    let damaged = sources.iter().map(RecordSource::damaged).sum::<usize>();
    // Hours of a replay are reported, and its files closed, also when it ends with a failure.
    let finished = replay.finish(damaged, interrupted.load(Ordering::Relaxed));
    failed.and(finished)
}

/// A flag that SIGINT and SIGTERM set. The second signal ends the process.
fn interrupted_by_signals() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|error| Failure::new(format!("cannot catch signals: {error}")))?;
    }
    Ok(flag)
}

/// A replay in progress.
struct Running {
    filter: Filter,
    report: Report,
    stores: Stores,
    targets: Vec<Worker>,
    skipped: BTreeMap<Skip, u64>,
    replayed: u64,
    began: Instant,
}

impl Running {
    fn step(&mut self, record: QueryRecord, interrupted: &AtomicBool) -> Result<(), Failure> {
        let skip = match options_of(&record) {
            Err(_) => Some(Skip::Options),
            Ok(options) => {
                let page = options.paging_state.map_or(LaterPage::No, |_| LaterPage::Yes);
                self.filter.skips(&record, page)
            }
        };
        if let Some(skip) = skip {
            *self.skipped.entry(skip).or_default() += 1;
            return Ok(());
        }
        let record = Arc::new(record);
        let sent = self.targets.iter().try_for_each(|target| target.send(&record));
        sent?;
        let answers = self.targets.iter().map(Worker::receive).collect::<Result<Vec<_>, _>>()?;
        if interrupted.load(Ordering::Relaxed) {
            // The waits were cancelled.
            return Ok(());
        }
        let mut outcomes = Vec::with_capacity(answers.len());
        for (target, answer) in self.targets.iter_mut().zip(answers) {
            target.count(&record, &answer);
            outcomes.push(answer.outcome);
        }
        self.replayed += 1;
        self.stores.add(&record, &outcomes)?;
        if self.targets.len() > 1
            && let Some(text) = self.report.add(&record, &outcomes)
        {
            say!("{text}");
        }
        if self.replayed.is_multiple_of(PROGRESS) {
            let rate = self.replayed as f64 / self.began.elapsed().as_secs_f64().max(0.001);
            say_line!("{} queries, rate = {rate:.2}", self.replayed);
        }
        Ok(())
    }

    fn finish(self, damaged: usize, is_interrupted: bool) -> Result<u8, Failure> {
        self.stores.close()?;
        let seconds = self.began.elapsed().as_secs_f64();
        let end = if is_interrupted { "interrupted: " } else { "" };
        say_line!("{end}{} queries replayed in {seconds:.1} s", self.replayed);
        for (skip, count) in &self.skipped {
            say_line!("{count} not replayed: {}", skip.words());
        }
        let mut failures = 0;
        for target in self.targets {
            say_line!("{}: {}; {} failed", target.name, target.latencies.line(), target.failures);
            failures += target.failures;
            target.stop();
        }
        let is_compared = self.report.compared > 0;
        if is_compared {
            say_line!("{}", self.report.line());
        }
        if damaged > 0 {
            return Err(Failure::damaged(format!(
                "{damaged} damaged files of the log were not read to their end"
            )));
        }
        let differs = if is_compared { self.report.mismatches > 0 } else { failures > 0 };
        Ok(if differs || is_interrupted { exit::FAILED } else { exit::OK })
    }
}

/// A target and its thread.
struct Worker {
    name: String,
    records: Sender<Arc<QueryRecord>>,
    answers: Receiver<Replayed>,
    thread: JoinHandle<()>,
    latencies: Latencies,
    failures: u64,
}

impl Worker {
    fn start(address: &TargetAddress, cancel: &Arc<AtomicBool>) -> Result<Worker, Failure> {
        let mut target = Target::connect(address, cancel)?;
        let (records, to_replay) = channel::<Arc<QueryRecord>>();
        let (answered, answers) = channel();
        let body = move || {
            for record in to_replay {
                if answered.send(target.replay(&record)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name(address.name.clone()).spawn(body);
        let thread =
            thread.map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
        Ok(Worker {
            name: address.name.clone(),
            records,
            answers,
            thread,
            latencies: Latencies::default(),
            failures: 0,
        })
    }

    fn send(&self, record: &Arc<QueryRecord>) -> Result<(), Failure> {
        self.records.send(record.clone()).map_err(|_| self.ended())
    }

    fn receive(&self) -> Result<Replayed, Failure> {
        self.answers.recv().map_err(|_| self.ended())
    }

    fn ended(&self) -> Failure {
        Failure::new(format!("target {}: its thread ended", self.name))
    }

    fn count(&mut self, record: &QueryRecord, answer: &Replayed) {
        self.latencies.add(answer.latency);
        let Outcome::Failed { message, .. } = &answer.outcome else { return };
        self.failures += 1;
        if self.failures <= FAILURES_PRINTED_MAX {
            say_line!(
                "Query against {} failure:\n{}\nMessage: {message}",
                self.name,
                describe(record)
            );
        }
    }

    fn stop(self) {
        drop(self.records);
        // It ends with its channel.
        let _ = self.thread.join();
    }
}

/// Files of answers and queries.
struct Stores {
    answers: Vec<NewFile>,
    queries: Option<NewFile>,
}

impl Stores {
    fn create(options: &Replay) -> Result<Stores, Failure> {
        let of_target = |results: &Path, target: &TargetAddress| {
            NewFile::create(&results.join(&target.name), ANSWERS_NAME, &ANSWERS)
        };
        let answers = match &options.results {
            Some(results) => {
                options.targets.iter().map(|t| of_target(results, t)).collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        let queries = match &options.store_queries {
            Some(directory) => Some(NewFile::create(directory, QUERIES_NAME, &QUERY_LOG)?),
            None => None,
        };
        Ok(Stores { answers, queries })
    }

    fn add(&mut self, record: &QueryRecord, outcomes: &[Outcome]) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        if let Some(queries) = &mut self.queries {
            push_record(&mut bytes, record);
            queries.write(&bytes)?;
        }
        for (file, outcome) in self.answers.iter_mut().zip(outcomes) {
            bytes.clear();
            push_answer(&mut bytes, outcome);
            file.write(&bytes)?;
        }
        Ok(())
    }

    fn close(self) -> Result<(), Failure> {
        self.answers.into_iter().chain(self.queries).try_for_each(NewFile::close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Compare;
    use crate::compare;
    use crate::source::tests::{record, write};
    use query_log::{BatchKind, BatchQuery, LoggedStatement, LoggedValue};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// A server of version 4 that answers SELECT with one row of `value`. Returns its address and the bodies of the
    /// requests that it gets, without STARTUP.
    fn server(value: &'static str) -> (TargetAddress, Receiver<(u8, Vec<u8>)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (seen, requests) = channel();
        std::thread::spawn(move || {
            // The first connection asks for version 5.
            for _ in 0..2 {
                let (stream, _) = listener.accept().unwrap();
                serve(stream, value, &seen);
            }
        });
        (TargetAddress::parse(&address).unwrap(), requests)
    }

    fn serve(mut stream: TcpStream, value: &str, seen: &Sender<(u8, Vec<u8>)>) {
        let mut header = [0; 9];
        while stream.read_exact(&mut header).is_ok() {
            let [version, _, high, low, opcode, a, b, c, d] = header;
            let mut body = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
            stream.read_exact(&mut body).unwrap();
            let (answer, bytes) = match opcode {
                1 if version != 4 => (0, [&[0, 0, 0, 0x0a][..], &[0, 1, b'v']].concat()),
                1 => (2, Vec::new()),
                opcode => {
                    let is_select = body.get(4..10) == Some(b"SELECT");
                    seen.send((opcode, body)).unwrap();
                    (8, if is_select { rows(value) } else { vec![0, 0, 0, 1] })
                }
            };
            let length = (bytes.len() as u32).to_be_bytes();
            let head = [&[0x84, 0, high, low, answer][..], &length].concat();
            stream.write_all(&[head, bytes].concat()).unwrap();
        }
    }

    /// One row with one column of text.
    fn rows(value: &str) -> Vec<u8> {
        let text = |text: &str| [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat();
        let metadata =
            [&[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1][..], &text("ks"), &text("t")].concat();
        let column = [&text("v")[..], &[0, 0x0d]].concat();
        let row = [&[0, 0, 0, 1][..], &(value.len() as u32).to_be_bytes(), value.as_bytes()];
        [metadata, column, row.concat()].concat()
    }

    fn log(directory: &Path) {
        let ks = Some("ks".to_owned());
        let batch = LoggedStatement::Batch {
            kind: BatchKind::Unlogged,
            queries: vec![BatchQuery {
                query: "UPDATE t SET v = ? WHERE k = 1".to_owned(),
                values: vec![LoggedValue::Bytes(b"x".to_vec())],
            }],
        };
        let records = [
            QueryRecord { keyspace: ks.clone(), generated_timestamp: 77, ..record(2, "INSERT 2") },
            record(1, "SELECT v FROM ks.t"),
            record(3, "CREATE TABLE ks.other (k int PRIMARY KEY)"),
            QueryRecord { keyspace: ks, statement: batch, ..record(4, "") },
        ];
        write(directory, "20261128-14.fql", &records);
    }

    /// Replays to two servers with these values, and compares the stored answers. Returns both exit codes and the
    /// requests that the first server got.
    fn replayed(values: [&'static str; 2]) -> (u8, u8, Vec<(u8, Vec<u8>)>) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (queries, results) = (path("log"), path("results"));
        log(&queries);
        let (targets, requests): (Vec<_>, Vec<_>) = values.into_iter().map(server).unzip();
        let stored = directory.path().join("stored");
        let paths = targets.iter().map(|target| results.join(&target.name)).collect();
        let code = run(&Replay {
            paths: vec![queries],
            targets,
            results: Some(results),
            store_queries: Some(stored.clone()),
            ..Replay::default()
        });
        let compared = compare::run(&Compare { paths, queries: stored });
        (code.unwrap(), compared.unwrap(), requests.into_iter().next().unwrap().iter().collect())
    }

    #[test]
    fn records_are_executed_by_their_start_with_keyspace_and_timestamp_and_answers_are_compared() {
        let (code, compared, requests) = replayed(["same", "same"]);
        assert_eq!((code, compared), (exit::OK, exit::OK));
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        let sent: Vec<(u8, String)> = requests.iter().map(|(op, body)| (*op, text(body))).collect();
        assert_eq!(sent.iter().map(|(op, _)| *op).collect::<Vec<u8>>(), [7, 7, 7, 13]);
        assert!(sent[0].1.contains("SELECT v FROM ks.t"));
        assert!(sent[1].1.contains("USE \"ks\""), "once: {sent:?}");
        assert!(sent[2].1.contains("INSERT 2"));
        assert!(requests[2].1.ends_with(&77_i64.to_be_bytes()), "the generated timestamp");
        assert!(sent[3].1.contains("UPDATE t SET v = ? WHERE k = 1"));
    }

    #[test]
    fn a_differing_answer_is_a_mismatch_of_the_replay_and_of_the_stored_answers() {
        let (code, compared, _) = replayed(["one", "two"]);
        assert_eq!((code, compared), (exit::FAILED, exit::FAILED));
    }
}
