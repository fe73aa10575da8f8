//! Lines of a table: the runs of both databases, a ratio and its verdict.

use serde_json::{Value, json};

use super::super::report::{Report, Verdict, highest, lowest, median, rounded};

/// Collects the lines of one table.
pub struct Lines<'r> {
    report: &'r mut Report,
    rows: Vec<Vec<String>>,
    raw: Vec<Value>,
}

/// Median and spread.
fn shown(runs: &[f64]) -> String {
    let all = || runs.iter().copied();
    match runs {
        [] => "-".to_owned(),
        [one] => rounded(*one),
        _ => format!(
            "{} ({} to {})",
            rounded(median(all())),
            rounded(lowest(all())),
            rounded(highest(all()))
        ),
    }
}

impl<'r> Lines<'r> {
    /// No lines yet.
    pub fn new(report: &'r mut Report) -> Lines<'r> {
        Lines { report, rows: Vec::new(), raw: Vec::new() }
    }

    /// Adds the runs of both.
    pub fn add(&mut self, what: &str, unit: &str, [ours, theirs]: [&[f64]; 2]) {
        self.line(what, unit, [ours, theirs], None);
    }

    /// Adds the runs of both with a verdict; none without the figures of both.
    pub fn judge(&mut self, what: &str, unit: &str, runs: [&[f64]; 2], verdict: Option<Verdict>) {
        self.line(what, unit, runs, verdict);
    }

    fn line(&mut self, what: &str, unit: &str, runs: [&[f64]; 2], verdict: Option<Verdict>) {
        let [ours, theirs] = runs;
        self.raw.push(json!({ "what": what, "unit": unit, "helenus": ours, "cassandra": theirs }));
        let ratio = median(theirs.iter().copied()) / median(ours.iter().copied());
        let ratio = if ratio.is_finite() { rounded(ratio) } else { "-".to_owned() };
        let (goal, word) = match verdict {
            None => (String::new(), String::new()),
            Some(verdict) => {
                let goal = format!("{}: {}", verdict.goal_text(), verdict.measured_text());
                (goal, self.report.judge(verdict))
            }
        };
        let what = format!("{what}, {unit}");
        self.rows.push(vec![what, shown(ours), shown(theirs), ratio, goal, word]);
    }

    /// Writes the table.
    pub fn finish(self, title: &str, name: &str) {
        self.report.table(
            title,
            &[
                "figure, median (lowest to highest)",
                "helenus",
                "cassandra",
                "cassandra / helenus",
                "goal: measured",
                "verdict",
            ],
            &self.rows,
        );
        self.report.keep(name, Value::Array(self.raw));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_shown_by_their_median_and_spread() {
        assert_eq!(shown(&[]), "-");
        assert_eq!(shown(&[2.0]), "2.00");
        assert_eq!(shown(&[3.0, 1.0, 2.0]), "2.00 (1.00 to 3.00)");
    }
}
