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
    {
        let mut merge = Merge::new(sources.iter_mut().map(|source| move || source.next()));
        while !interrupted.load(Ordering::Relaxed) {
            let Some(record) = merge.next()? else { break };
            replay.step(record, &interrupted)?;
        }
    }
    let damaged = sources.iter().map(RecordSource::damaged).sum::<usize>();
    replay.finish(damaged, interrupted.load(Ordering::Relaxed))
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
