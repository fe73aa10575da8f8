//! The list of known differences: statements that are allowed to answer otherwise, with the reason.
//!
//! One line each: `FILE.cqltest:LINE  reason`; blank lines and lines from `#` on are skipped. An
//! entry whose statement no longer differs is an error, so the list cannot outlive its reasons.

use anyhow::{Result, bail};

use crate::run::Difference;

/// One known difference.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    /// Line of the entry in the list.
    at: usize,
    file: String,
    line: usize,
}

/// The list.
#[derive(Clone, Debug, Default)]
pub struct KnownDifferences(Vec<Known>);

/// Differences of one file, told apart by the list.
#[derive(Debug, Default)]
pub struct Judged {
    /// Not in the list.
    pub unknown: Vec<Difference>,
    /// How many are in the list.
    pub known: usize,
    /// Entries whose statement does not differ: a message each.
    pub outlived: Vec<String>,
}

impl KnownDifferences {
    /// Reads a list.
    ///
    /// # Errors
    /// A line without file, line number or reason, or one that stands there twice.
    pub fn parse(text: &str) -> Result<KnownDifferences> {
        let mut list: Vec<Known> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let at = index.saturating_add(1);
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = line.split_once(char::is_whitespace).and_then(|(place, reason)| {
                let (file, number) = place.rsplit_once(':')?;
                (!reason.trim().is_empty()).then_some((file, number.parse::<usize>().ok()?))
            });
            let Some((file, number)) = place else {
                bail!("line {at}: not FILE:LINE and a reason: {line}");
            };
            if list.iter().any(|known| known.file == file && known.line == number) {
                bail!("line {at}: {file}:{number} is listed twice");
            }
            list.push(Known { at, file: file.to_owned(), line: number });
        }
        Ok(KnownDifferences(list))
    }

    /// Tells the differences of a file apart.
    #[must_use]
    pub fn judge(&self, file: &str, differences: Vec<Difference>) -> Judged {
        let mut judged = Judged::default();
        for known in self.0.iter().filter(|known| known.file == file) {
            if !differences.iter().any(|difference| difference.line == known.line) {
                judged.outlived.push(format!(
                    "line {} of the known differences: {file}:{} no longer differs; remove this line",
                    known.at, known.line
                ));
            }
        }
        for difference in differences {
            if self.0.iter().any(|k| k.file == file && k.line == difference.line) {
                judged.known += 1;
            } else {
                judged.unknown.push(difference);
            }
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(line: usize) -> Difference {
        Difference { line, source: Vec::new(), expected: Vec::new(), got: Vec::new() }
    }

    #[test]
    fn listed_differences_pass_and_unlisted_ones_do_not() {
        let list = KnownDifferences::parse("# why\n\na.cqltest:3  no indexes\nb.cqltest:5 x y\n");
        let judged = list.expect("parses").judge("a.cqltest", vec![difference(3), difference(5)]);
        assert_eq!(judged.known, 1);
        assert_eq!(judged.unknown.iter().map(|d| d.line).collect::<Vec<_>>(), [5]);
        assert!(judged.outlived.is_empty());
    }

    #[test]
    fn an_entry_that_no_longer_differs_is_named() {
        let list = KnownDifferences::parse("a.cqltest:3 no indexes\n").expect("parses");
        let judged = list.judge("a.cqltest", Vec::new());
        assert_eq!(
            judged.outlived,
            ["line 1 of the known differences: a.cqltest:3 no longer differs; remove this line"]
        );
    }

    #[test]
    fn entries_without_place_or_reason_are_refused() {
        for text in ["a.cqltest:3", "a.cqltest why", "a.cqltest:x why", "a:1 x\na:1 y"] {
            assert!(KnownDifferences::parse(text).is_err(), "{text}");
        }
    }
}
