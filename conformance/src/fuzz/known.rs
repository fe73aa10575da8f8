//! Differences of the fuzzer that have a reason.

use anyhow::{Result, bail};

use super::round::Found;

/// A list of them.
#[derive(Debug, Default)]
pub struct Known(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    statement: String,
    ours: String,
    theirs: String,
}

impl Known {
    /// Reads a list. Each line is `statement | ours | theirs | reason`: texts that the statement
    /// and the two answers contain, and the reason of the difference. Empty lines and lines with
    /// `#` are skipped.
    ///
    /// # Errors
    /// A line has another form or no reason.
    pub fn parse(text: &str) -> Result<Known> {
        let mut rules = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [statement, ours, theirs, reason] = parts.as_slice() else {
                bail!("line {}: four parts are wanted, between bars", number + 1);
            };
            if reason.is_empty() {
                bail!("line {}: no reason", number + 1);
            }
            rules.push(Rule {
                statement: (*statement).to_owned(),
                ours: (*ours).to_owned(),
                theirs: (*theirs).to_owned(),
            });
        }
        Ok(Known(rules))
    }

    /// Returns true if a difference has a reason.
    #[must_use]
    pub fn explains(&self, found: &Found) -> bool {
        self.0.iter().any(|rule| {
            found.statement.contains(&rule.statement)
                && found.ours.contains(&rule.ours)
                && found.theirs.contains(&rule.theirs)
        })
    }
}
