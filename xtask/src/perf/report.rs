//! Results of a comparison: tables for reading, JSON for archiving, verdicts against the goals.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};

/// One goal and its measurement.
pub struct Verdict {
    what: String,
    measured: f64,
    /// Largest value that reaches the goal, or smallest where `at_least`.
    goal: f64,
    at_least: bool,
    unit: &'static str,
}

impl Verdict {
    /// Reached at or below `goal`.
    pub fn at_most(what: impl Into<String>, measured: f64, goal: f64, unit: &'static str) -> Self {
        Verdict { what: what.into(), measured, goal, at_least: false, unit }
    }

    /// Reached at or above `goal`.
    pub fn at_least(what: impl Into<String>, measured: f64, goal: f64, unit: &'static str) -> Self {
        Verdict { what: what.into(), measured, goal, at_least: true, unit }
    }

    /// A figure that is missing reaches nothing.
    pub fn is_reached(&self) -> bool {
        if self.at_least { self.measured >= self.goal } else { self.measured <= self.goal }
    }

    /// The goal, for a table.
    pub fn goal_text(&self) -> String {
        let bound = if self.at_least { "at least" } else { "at most" };
        format!("{bound} {} {}", rounded(self.goal), self.unit)
    }

    /// The measured ratio as a table shows it.
    pub fn measured_text(&self) -> String {
        rounded(self.measured)
    }

    /// For a table.
    pub fn word(&self) -> &'static str {
        if self.is_reached() { "reached" } else { "missed" }
    }
}

/// Collects what the sections found.
pub struct Report {
    /// Names of its files, without their endings: tables, raw figures.
    names: [&'static str; 2],
    text: String,
    json: Map<String, Value>,
    verdicts: Vec<Verdict>,
}

impl Report {
    /// Written as `report.md` and `compare.json`.
    pub fn new() -> Report {
        Report::in_files("report", "compare")
    }

    /// Written as `name.md` and `name.json`.
    pub fn named(name: &'static str) -> Report {
        Report::in_files(name, name)
    }

    fn in_files(tables: &'static str, raw: &'static str) -> Report {
        let (text, json, verdicts) = (String::new(), Map::new(), Vec::new());
        Report { names: [tables, raw], text, json, verdicts }
    }

    /// Appends to the text and shows it.
    pub fn table(&mut self, title: &str, header: &[&str], rows: &[Vec<String>]) {
        let mut out = format!("\n## {title}\n\n| {} |\n|", header.join(" | "));
        for _ in header {
            out.push_str(" --- |");
        }
        out.push('\n');
        for row in rows {
            // Writing into a string cannot fail.
            let _ = writeln!(out, "| {} |", row.join(" | "));
        }
        println!("{out}");
        self.text.push_str(&out);
    }

    /// Records raw figures under a name.
    pub fn keep(&mut self, name: &str, value: Value) {
        self.json.insert(name.to_owned(), value);
    }

    /// Records a verdict; returns its word, for a table.
    pub fn judge(&mut self, verdict: Verdict) -> String {
        let word = verdict.word().to_owned();
        self.verdicts.push(verdict);
        word
    }

    /// Writes tables with verdicts and raw figures below `home`. Called after every section, so
    /// that an interrupted comparison leaves its results.
    pub fn write(&self, home: &Path) -> Result<()> {
        let verdicts: Vec<Value> = self
            .verdicts
            .iter()
            .map(|v| {
                json!({
                    "what": v.what,
                    "measured": v.measured,
                    "goal": v.goal,
                    "goal_is": if v.at_least { "at least" } else { "at most" },
                    "unit": v.unit,
                    "reached": v.is_reached(),
                })
            })
            .collect();
        let mut all = self.json.clone();
        all.insert("verdicts".to_owned(), Value::Array(verdicts));
        let text = serde_json::to_string_pretty(&Value::Object(all))?;
        let [tables, raw] = self.names;
        crate::disk::write(home.join(format!("{raw}.json")), text + "\n")?;
        crate::disk::write(
            home.join(format!("{tables}.md")),
            self.text.clone() + &self.verdict_lines(),
        )?;
        Ok(())
    }

    /// One line per goal.
    pub fn verdict_lines(&self) -> String {
        let mut out = String::from("\n## Goals\n\n");
        for v in &self.verdicts {
            let (word, measured, goal) = (v.word(), rounded(v.measured), v.goal_text());
            let _ = writeln!(out, "- {word}: {}: {measured} {} (goal: {goal})", v.what, v.unit);
        }
        out
    }
}

/// Three significant digits or so.
pub fn rounded(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The middle value; of an even number the upper one of the two.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The lowest value.
pub fn lowest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().reduce(f64::min).unwrap_or(f64::NAN)
}

/// The highest value.
pub fn highest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().reduce(f64::max).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_reached_at_its_bound_and_missed_behind_it() {
        let at_most = |v| Verdict::at_most("x", v, 20.0, "ms").word();
        assert_eq!((at_most(20.0), at_most(20.1)), ("reached", "missed"));
        let at_least = |v| Verdict::at_least("x", v, 100.0, "MB/s").word();
        assert_eq!((at_least(100.0), at_least(99.9)), ("reached", "missed"));
        assert_eq!(at_most(f64::NAN), "missed", "a figure that is missing reaches nothing");
        assert_eq!(at_least(f64::NAN), "missed");
    }

    #[test]
    fn median_and_extremes_are_of_all_runs() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 3.0, 2.0]) - 3.0).abs() < f64::EPSILON);
        assert!((lowest([3.0, 1.0, 2.0]) - 1.0).abs() < f64::EPSILON);
        assert!((highest([3.0, 1.0, 2.0]) - 3.0).abs() < f64::EPSILON);
        assert!(median([]).is_nan() && lowest([]).is_nan() && highest([]).is_nan());
    }
}
