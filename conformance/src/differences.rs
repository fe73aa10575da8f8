//! The list of differences between our answers and Cassandra's, with reasons.
//!
//! Owns the names and reasons (`differences.txt`). The statements that differ are in the cases: a
//! line `~ NAME` after the recorded answer, and our answer in lines that begin with `~`. So a
//! difference is checked as exactly as an agreement, and one that has disappeared is found.

use anyhow::{Result, bail};

/// Name of the list in the folder of the runner.
pub const FILE: &str = "differences.txt";

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Name in the cases.
    pub name: String,
    /// Heading that it stands below.
    pub area: String,
    /// Description of the difference and its cause, for a reader.
    pub reason: String,
}

/// The list, in the order of its file.
#[derive(Clone, Debug, Default)]
pub struct Reasons(Vec<Reason>);

impl Reasons {
    /// Reads a list: `## AREA` and `NAME: REASON`, the reason on one or, indented, more lines; other
    /// lines from `#` on are comments.
    ///
    /// # Errors
    /// A line without name or reason, a name below no area or one that stands there twice.
    pub fn parse(text: &str) -> Result<Reasons> {
        let mut list: Vec<Reason> = Vec::new();
        let mut area = String::new();
        for (index, line) in text.lines().enumerate() {
            let at = index.saturating_add(1);
            if let Some(heading) = line.strip_prefix("## ") {
                heading.trim().clone_into(&mut area);
            } else if line.starts_with(' ') {
                let Some(last) = list.last_mut() else { bail!("line {at}: nothing to continue") };
                last.reason.push(' ');
                last.reason.push_str(line.trim());
            } else if !line.is_empty() && !line.starts_with('#') {
                let Some((name, reason)) = line.split_once(": ") else {
                    bail!("line {at}: not a name and a reason: {line}");
                };
                if area.is_empty() || list.iter().any(|known| known.name == name) {
                    bail!("line {at}: {name} stands there twice or below no area");
                }
                let (name, reason) = (name.to_owned(), reason.trim().to_owned());
                list.push(Reason { name, area: area.clone(), reason });
            }
        }
        Ok(Reasons(list))
    }

    /// All, in the order of the file.
    #[must_use]
    pub fn all(&self) -> &[Reason] {
        &self.0
    }

    /// Returns true if there is a difference of that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|reason| reason.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_an_area_and_a_reason() {
        let list = Reasons::parse("# why\n\n## One\na: x\n  y\n## Two\nb: z\n").unwrap();
        let of = |name: &str, area: &str, reason: &str| Reason {
            name: name.to_owned(),
            area: area.to_owned(),
            reason: reason.to_owned(),
        };
        assert_eq!(list.all(), [of("a", "One", "x y"), of("b", "Two", "z")]);
        assert!(list.has("b") && !list.has("c"));
    }

    #[test]
    fn entries_without_name_reason_or_area_are_refused() {
        for text in ["a: x", "## One\na", "## One\na: x\na: y", "  x"] {
            assert!(Reasons::parse(text).is_err(), "{text}");
        }
    }
}
