//! Cases in text files: what to do and with what, and what comes of it.
//!
//! A case is a line with a directive, lines of input, a line `----` and lines of output; an empty line ends it. Lines
//! that begin with `#` between cases are comments. `UPDATE_EXPECT=1` writes the outputs that the code gives into the
//! file, for a review of the difference.

use std::fmt::Write as _;
use std::path::Path;

/// Most cases that one failure shows.
const SHOWN_MAX: usize = 5;

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case<'t> {
    /// The action.
    pub directive: &'t str,
    /// The input, line breaks included.
    pub input: &'t str,
}

/// Runs the cases of a file in their order; returns their number.
///
/// # Panics
/// An output differs from the one in the file, unless `UPDATE_EXPECT` is set; the file cannot be
/// read, or is not a file of cases.
pub fn run_cases(path: &Path, mut run: impl FnMut(&Case<'_>) -> String) -> usize {
    let text = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let found = compare(&text, &mut run)
        .unwrap_or_else(|(line, what)| panic!("{}:{line}: {what}", path.display()));
    if found.differences.is_empty() {
        return found.cases;
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, found.text)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return found.cases;
    }
    let shown: Vec<String> = found
        .differences
        .iter()
        .take(SHOWN_MAX)
        .map(|(line, difference)| format!("{}:{line}: {difference}", path.display()))
        .collect();
    panic!(
        "{} of {} cases differ; UPDATE_EXPECT=1 accepts what the code gives\n{}",
        found.differences.len(),
        found.cases,
        shown.join("\n")
    );
}

/// Result of a run over a file.
struct Found {
    cases: usize,
    /// The file with the outputs of this run.
    text: String,
    /// Line of the directive, and what differs.
    differences: Vec<(usize, String)>,
}

fn compare(
    text: &str,
    run: &mut impl FnMut(&Case<'_>) -> String,
) -> Result<Found, (usize, &'static str)> {
    let mut found = Found { cases: 0, text: String::new(), differences: Vec::new() };
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((number, line)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            let _ = writeln!(found.text, "{line}");
            continue;
        }
        let mut input = Vec::new();
        loop {
            match lines.next() {
                Some((_, "----")) => break,
                Some((_, line)) if !line.is_empty() => input.push(line),
                _ => return Err((number, "a case without a line \"----\"")),
            }
        }
        let input = input.join("\n");
        let mut expected = Vec::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.is_empty()) {
            expected.push(line);
        }
        let expected = expected.join("\n");
        let given = run(&Case { directive: line, input: &input });
        let given = given.trim_end_matches('\n');
        if given.lines().any(str::is_empty) {
            return Err((number, "the output has an empty line"));
        }
        found.cases += 1;
        let _ = writeln!(found.text, "{line}\n{input}\n----");
        if !given.is_empty() {
            let _ = writeln!(found.text, "{given}");
        }
        if given != expected {
            let difference = format!("{line}\n{input}\nexpected:\n{expected}\ngot:\n{given}\n");
            found.differences.push((number, difference));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# two cases\n\nadd\n1\n2\n----\n3\n\nadd\n4\n----\n5\n";

    fn add(case: &Case<'_>) -> String {
        assert_eq!(case.directive, "add");
        let sum: i64 = case.input.lines().map(|line| line.parse::<i64>().unwrap()).sum();
        format!("{sum}\n")
    }

    #[test]
    fn a_case_that_differs_is_found_and_written_anew() {
        let found = compare(FILE, &mut add).unwrap_or_else(|_| panic!("refused"));
        assert_eq!((found.cases, found.differences.len()), (2, 1));
        assert_eq!(found.differences[0].0, 9);
        assert_eq!(found.text, FILE.replace("----\n5\n", "----\n4\n"));
        let found = compare(&found.text, &mut add).unwrap_or_else(|_| panic!("refused"));
        assert!(found.differences.is_empty());
    }

    #[test]
    fn what_is_no_case_is_refused_with_its_line() {
        for (text, line) in [("add\n1\n", 1), ("\nadd\n\n----\n", 2), ("a\n----\n", 1)] {
            let result = compare(text, &mut |_| "a\n\nb".to_owned()).map(|found| found.cases);
            assert_eq!(result.map_err(|(line, _)| line), Err(line), "{text:?}");
        }
    }
}
