//! Comparison of two answers.

use crate::client::{Answer, ServerError};
use crate::value::render;

/// An answer as text: lines that are compared one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Lines of the answer.
    pub lines: Vec<String>,
    /// Warnings, sorted.
    pub warnings: Vec<String>,
}

/// Columns and rows of all pages, or what else was answered.
#[must_use]
pub fn show(pages: &[Answer], warnings: Vec<String>) -> Shown {
    let mut lines = Vec::new();
    for (number, answer) in pages.iter().enumerate() {
        match answer {
            Answer::Void => lines.push("void".to_owned()),
            Answer::SetKeyspace(name) => lines.push(format!("keyspace {name}")),
            Answer::Prepared(_) => lines.push("prepared".to_owned()),
            Answer::SchemaChange(change, target, names) => {
                lines.push(format!("schema {change} {target} {}", names.join(" ")));
            }
            Answer::Error(error) => lines.push(show_error(error)),
            Answer::Rows(rows) => {
                let columns = &rows.metadata.columns;
                if number == 0 {
                    let header: Vec<String> =
                        columns.iter().map(|c| format!("{} {}", name(&c.name), c.kind)).collect();
                    lines.push(header.join(" | "));
                }
                for row in &rows.rows {
                    let cells: Vec<String> = columns
                        .iter()
                        .zip(row)
                        .map(|(column, cell)| name(&render(&column.kind, cell.as_deref())))
                        .collect();
                    lines.push(cells.join(" | "));
                }
            }
        }
    }
    let mut warnings = warnings;
    warnings.sort();
    warnings.dedup();
    Shown { lines, warnings }
}

/// The name of a column. Cassandra shows `to_json` by the spelling that came first for a type since it
/// was started.
pub(super) fn name(name: &str) -> String {
    name.replace("system.tojson(", "system.to_json(")
}

/// An error: of a syntax error the place only, since its words may be clearer than Cassandra's.
fn show_error(error: &ServerError) -> String {
    let text = error.message.trim();
    let text = match (error.code, text.split_once(' ')) {
        (0x2000, Some(("line", rest))) => {
            format!("line {}", rest.split(' ').next().unwrap_or_default())
        }
        _ => sort_signatures(text),
    };
    format!("error {:#06x} {text} {}", error.code, error.fields.join(" ")).trim_end().to_owned()
}

/// The signatures of a function that fits none in order: Cassandra lists them in that of a hash table.
fn sort_signatures(text: &str) -> String {
    const BEGIN: &str = "(known type signatures: ";
    let Some((before, list)) = text.split_once(BEGIN) else { return text.to_owned() };
    let mut signatures: Vec<&str> = list.trim_end_matches(')').split(", system.").collect();
    for signature in &mut signatures {
        *signature = signature.strip_prefix("system.").unwrap_or(signature);
    }
    signatures.sort_unstable();
    format!("{before}{BEGIN}{})", signatures.join(", "))
}

/// The first difference, as two texts; `None` when there is none.
#[must_use]
pub fn difference(ours: &Shown, theirs: &Shown) -> Option<(String, String)> {
    let none = || "(nothing)".to_owned();
    let lines = ours.lines.len().max(theirs.lines.len());
    for at in 0..lines {
        let (our, their) = (ours.lines.get(at), theirs.lines.get(at));
        if our != their {
            let place = |line: Option<&String>| match line {
                Some(line) => format!("line {at}: {line}"),
                None => format!("line {at}: (none)"),
            };
            return Some((place(our), place(their)));
        }
    }
    if ours.warnings != theirs.warnings {
        let join = |warnings: &[String]| match warnings.is_empty() {
            true => none(),
            false => warnings.join(" / "),
        };
        let texts = (join(&ours.warnings), join(&theirs.warnings));
        return Some((format!("warnings: {}", texts.0), format!("warnings: {}", texts.1)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_in_lines_and_in_warnings() {
        let shown = |lines: &[&str], warnings: &[&str]| Shown {
            lines: lines.iter().map(|&l| l.to_owned()).collect(),
            warnings: warnings.iter().map(|&l| l.to_owned()).collect(),
        };
        let one = shown(&["a int", "1"], &[]);
        assert_eq!(difference(&one, &one), None);
        for other in [
            shown(&["a int", "2"], &[]),
            shown(&["a int"], &[]),
            shown(&["a int", "1", "1"], &[]),
            shown(&["a int", "1"], &["w"]),
        ] {
            assert!(difference(&one, &other).is_some(), "{other:?}");
        }
    }

    #[test]
    fn of_a_syntax_error_only_the_place_counts() {
        let error = |message: &str, code| {
            let message = message.to_owned();
            show(&[Answer::Error(ServerError { code, message, fields: Vec::new() })], Vec::new())
        };
        assert_eq!(error("line 1:7 no viable", 0x2000), error("line 1:7 unexpected", 0x2000));
        assert_ne!(error("line 1:7 no viable", 0x2000), error("line 1:8 no viable", 0x2000));
        assert_ne!(error("line 1:7 a", 0x2200), error("line 1:7 b", 0x2200));
    }
}
