//! Jobs that are handed out to processes one at a time: an idle process gets the next one, so that
//! processes wait for each other only at the last job.
//!
//! A worker is this program again. It reads the number of a job from its standard input and carries
//! it out. It reports the result in a line of its own after its output, and ends at the end of its
//! input.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines with which a worker reports the result of a job.
const PASSED: &str = "#passed";
const FAILED: &str = "#failed";

/// Executor of jobs. Its result: true if a job passed, or why the outcome is unknown.
pub trait Carrier {
    /// Carries one job out.
    ///
    /// # Errors
    /// The job was not completed; the carrier cannot be used any more.
    fn carry_out(&mut self, job: usize) -> Result<bool, String>;

    /// Ends it.
    ///
    /// # Errors
    /// It did not end as it should.
    fn end(self) -> Result<(), String>;
}

/// A worker that is a process of its own.
pub struct Worker {
    child: Child,
    /// `None` once it was notified that there are no more jobs.
    jobs: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts this program again with that word.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(word: &str) -> Result<Worker, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(own);
        command.arg(word).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let (jobs, out) = (child.stdin.take(), child.stdout.take());
        let (Some(jobs), Some(out)) = (jobs, out) else { return Err("no pipes".to_owned()) };
        Ok(Worker { child, jobs: Some(jobs), lines: BufReader::new(out).lines() })
    }
}

impl Carrier for Worker {
    /// Prints what the worker prints.
    fn carry_out(&mut self, job: usize) -> Result<bool, String> {
        // The end of a worker that no longer reads jobs shows below, with its cause.
        let _ = self.jobs.as_mut().map(|jobs| writeln!(jobs, "{job}"));
        for line in self.lines.by_ref() {
            match line.map_err(|e| e.to_string())?.as_str() {
                PASSED => return Ok(true),
                FAILED => return Ok(false),
                line => println!("{line}"),
            }
        }
        let status = self.child.wait().map_err(|e| e.to_string())?;
        Err(format!("the process of the run ended with {status}"))
    }

    fn end(mut self) -> Result<(), String> {
        self.jobs = None;
        let status = self.child.wait().map_err(|e| e.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("a process ended with {status} behind its last run")),
        }
    }
}

/// The other side: carries out the jobs whose numbers arrive, until the input ends.
///
/// # Errors
/// A line that is no number, or a side that cannot be read or written.
pub fn serve(
    jobs: impl BufRead,
    mut answers: impl Write,
    mut carry_out: impl FnMut(usize) -> bool,
) -> Result<(), String> {
    for line in jobs.lines() {
        let line = line.map_err(|e| e.to_string())?;
        let job = line.parse().map_err(|_| format!("\"{line}\" is not the number of a job"))?;
        let answer = if carry_out(job) { PASSED } else { FAILED };
        writeln!(answers, "{answer}").map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Runs jobs on this number of carriers, begun in that order; returns how many failed. `report`
/// gets the job whose carrier broke, which has failed, and carriers that ended badly after their
/// last job. Another carrier continues with the rest.
pub fn deal<C: Carrier>(
    jobs: &[usize],
    carriers: usize,
    start: impl Fn() -> Result<C, String> + Sync,
    report: impl Fn(Option<usize>, &str) + Sync,
) -> usize {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let carry_out = || {
        let mut carrier = None;
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = match carrier.take().map_or_else(&start, Ok) {
                Ok(mut usable) => usable.carry_out(*job).inspect(|_| carrier = Some(usable)),
                Err(error) => Err(error),
            };
            match result {
                Ok(true) => {}
                Ok(false) => _ = failed.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    report(Some(*job), &error);
                }
            }
        }
        if let Some(Err(error)) = carrier.map(C::end) {
            failed.fetch_add(1, Ordering::Relaxed);
            report(None, &error);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..carriers {
            scope.spawn(carry_out);
        }
    });
    failed.into_inner()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const JOBS: usize = 9;

    /// Its job 0 lasts until all others are done or no carrier is left to do them.
    struct Pretended<'a> {
        done: Option<Sender<usize>>,
        all: &'a Mutex<Receiver<usize>>,
    }

    impl Carrier for Pretended<'_> {
        fn carry_out(&mut self, job: usize) -> Result<bool, String> {
            if job > 0 {
                let sent = self.done.as_ref().map(|done| done.send(job).is_ok());
                return Ok(sent == Some(true));
            }
            self.done = None;
            Ok(self.all.lock().expect("not poisoned").iter().count() == JOBS - 1)
        }

        fn end(self) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn who_is_free_gets_the_next_job() {
        let (done, all) = channel();
        let (all, done) = (Mutex::new(all), Mutex::new(vec![done.clone(), done]));
        let start = || {
            let done = done.lock().expect("not poisoned").pop();
            Ok(Pretended { done, all: &all })
        };
        let jobs: Vec<usize> = (0..JOBS).collect();
        assert_eq!(deal(&jobs, 2, start, |_, error| panic!("{error}")), 0);
    }

    /// Breaks at job 3, fails job 5, and does not end well when it is asked to.
    struct Bad(bool);

    impl Carrier for Bad {
        fn carry_out(&mut self, job: usize) -> Result<bool, String> {
            if job == 3 { Err("gone".to_owned()) } else { Ok(job != 5) }
        }

        fn end(self) -> Result<(), String> {
            if self.0 { Err("late".to_owned()) } else { Ok(()) }
        }
    }

    #[test]
    fn a_carrier_that_breaks_fails_its_job_and_another_goes_on() {
        let reported = Mutex::new(Vec::new());
        let started = AtomicUsize::new(0);
        let start = || Ok(Bad(started.fetch_add(1, Ordering::Relaxed) == 1));
        let report = |job: Option<usize>, error: &str| {
            reported.lock().expect("not poisoned").push((job, error.to_owned()));
        };
        let jobs: Vec<usize> = (0..JOBS).collect();
        assert_eq!(deal(&jobs, 1, start, report), 3);
        let (broken, late) = ((Some(3), "gone".to_owned()), (None, "late".to_owned()));
        assert_eq!(*reported.lock().expect("not poisoned"), [broken, late]);
        assert_eq!(started.into_inner(), 2);
    }

    #[test]
    fn jobs_fail_when_no_carrier_can_be_started() {
        let start = || Err::<Bad, _>("none".to_owned());
        let told = AtomicUsize::new(0);
        let failed = deal(&[1, 2, 4], 2, start, |job, error| {
            assert!(job.is_some() && error == "none");
            told.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!((failed, told.into_inner()), (3, 3));
    }

    #[test]
    fn a_worker_answers_every_number_and_refuses_what_is_none() {
        let mut answers = Vec::new();
        serve(&b"4\n5\n"[..], &mut answers, |job| job == 4).expect("numbers");
        assert_eq!(answers, b"#passed\n#failed\n");
        let error = serve(&b"4\nx\n"[..], &mut answers, |_| true).unwrap_err();
        assert!(error.contains("\"x\" is not the number"), "{error}");
    }
}
