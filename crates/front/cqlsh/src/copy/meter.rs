//! Progress and times of COPY as cqlsh prints them.
//!
//! Owns: the line with the rates, the words for a duration. Never: counts rows itself.

use std::io::Write;
use std::time::{Duration, Instant};

/// Prints the progress now and then.
pub(crate) struct Meter {
    start: Instant,
    last: Instant,
    every: Duration,
    rate: f64,
    pending: u64,
    total: u64,
    /// Nothing is printed when CSV goes to standard output.
    quiet: bool,
    file: Option<String>,
}

impl Meter {
    pub(crate) fn new(every: Duration, quiet: bool, file: Option<String>) -> Meter {
        if let Some(path) = &file {
            // A missing file is as good as removed.
            let _ = std::fs::remove_file(path);
        }
        let start = Instant::now();
        Meter { start, last: start, every, rate: 0.0, pending: 0, total: 0, quiet, file }
    }

    /// Rows were done.
    pub(crate) fn add(&mut self, rows: u64) {
        self.pending += rows;
        if self.pending > 0 && self.last.elapsed() >= self.every {
            self.update();
            self.print();
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate on the screen")]
    fn update(&mut self) {
        let seconds = self.last.elapsed().as_secs_f64();
        if seconds > 0.0 {
            let rate = self.pending as f64 / seconds;
            self.rate = if self.rate == 0.0 { rate } else { f64::midpoint(self.rate, rate) };
        }
        self.last = Instant::now();
        self.total += self.pending;
        self.pending = 0;
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate on the screen")]
    fn print(&self) {
        let average = self.total as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        let line = format!(
            "Processed: {} rows; Rate: {:7.0} rows/s; Avg. rate: {average:7.0} rows/s\r",
            self.total, self.rate
        );
        if !self.quiet {
            let mut out = std::io::stdout();
            // The copy continues without a terminal.
            let _ = out.write_all(format!("{line}\r").as_bytes()).and_then(|()| out.flush());
        }
        if let Some(path) = &self.file {
            let file = std::fs::File::options().append(true).create(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        }
    }

    /// Prints the last line and returns all rows.
    pub(crate) fn finish(&mut self) -> u64 {
        self.update();
        self.print();
        self.total
    }
}

/// A duration in cqlsh's words, with its zero days, hours and minutes from one second on.
pub(crate) fn interval(duration: Duration) -> String {
    let mut parts = Vec::new();
    let mut left = duration.as_secs();
    let millis = duration.subsec_millis();
    for (length, unit) in [(86_400, "day"), (3600, "hour"), (60, "minute")] {
        if left > 0 {
            let count = left / length;
            // Python divides to a fraction here, so more than one is more than the unit.
            let plural = if left > length { "s" } else { "" };
            parts.push(format!("{count} {unit}{plural}"));
        }
        left %= length;
    }
    let words = format!("{left}.{millis:03} seconds");
    match parts.as_slice() {
        [] => words,
        [one] => format!("{one} and {words}"),
        several => format!("{}, and {words}", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts from `CopyTask.describe_interval` of cqlsh 6.2.
    #[test]
    fn durations_are_said_as_the_python_shell_says_them() {
        let check = |millis, expect| assert_eq!(interval(Duration::from_millis(millis)), expect);
        check(331, "0.331 seconds");
        check(1_331, "0 day, 0 hour, 0 minute, and 1.331 seconds");
        check(61_000, "0 day, 0 hour, 1 minutes, and 1.000 seconds");
        check(60_000, "0 day, 0 hour, 1 minute, and 0.000 seconds");
        check(7_325_004, "0 day, 2 hours, 2 minutes, and 5.004 seconds");
    }
}
