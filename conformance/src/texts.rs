//! Error texts of Cassandra's classes, and the cases that show them.
//!
//! Owns: the list (`error-texts.txt`) and its part of the page of coverage. A text has a case, or
//! the list has the reason why not; a text that got a case must lose its reason. Never: a server.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Result, bail};

/// Name of the list in the folder of the runner.
pub const FILE: &str = "error-texts.txt";

/// One text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The class that has it.
    pub class: String,
    /// The text; `…` stands for what differs from error to error.
    pub text: String,
    /// Why no case shows it.
    pub reason: Option<String>,
}

/// Reads a list: lines `CLASS: TEXT`; those below a line `@ REASON` have no case because of that, those
/// below `@` alone and those above have one. Lines from `#` on are comments.
///
/// # Errors
/// A line without a class, a text that stands there twice.
pub fn parse(list: &str) -> Result<Vec<Text>> {
    let mut texts: Vec<Text> = Vec::new();
    let mut reason = None;
    for (index, line) in list.lines().enumerate() {
        let at = index.saturating_add(1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(given) = line.strip_prefix('@') {
            reason = Some(given.trim().to_owned()).filter(|given| !given.is_empty());
            continue;
        }
        let Some((class, text)) = line.split_once(": ") else {
            bail!("line {at}: not a class and a text: {line}");
        };
        if texts.iter().any(|known| known.class == class && known.text == text) {
            bail!("line {at}: {line} stands there twice");
        }
        let (class, text) = (class.to_owned(), text.to_owned());
        texts.push(Text { class, text, reason: reason.clone() });
    }
    Ok(texts)
}

/// The message of a line `= error CODE 'text' …`, with line ends and tabs as `\n` and `\t`.
#[must_use]
pub fn message_of(line: &str) -> Option<String> {
    let (_, text) = line.strip_prefix("= error ")?.split_once(' ')?;
    let (text, escaped) = match text.strip_prefix("E'") {
        Some(text) => (text, true),
        None => (text.strip_prefix('\'')?, false),
    };
    let text = text.rsplit_once('\'').map_or(text, |(text, _)| text).replace("''", "'");
    Some(if escaped { text.replace("\\\"", "\"") } else { text })
}

/// Returns true if a message has the parts of a text, in their order.
#[must_use]
pub fn shows(message: &str, text: &str) -> bool {
    let mut rest = message;
    for part in text.trim().split('…') {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    true
}

/// The part of the page. `messages` are the messages of the cases, each with its file.
///
/// # Errors
/// A text without case and reason, or with both.
pub fn part(texts: &[Text], messages: &BTreeMap<String, String>) -> Result<String> {
    let mut shown = String::new();
    let mut reasons: Vec<(&str, usize, Vec<&str>)> = Vec::new();
    let mut found = 0_usize;
    for Text { class, text, reason } in texts {
        let case = messages.iter().find(|(message, _)| shows(message, text));
        match (case, reason) {
            (Some((_, file)), None) => {
                found = found.saturating_add(1);
                writeln!(shown, "| {class} | {} | {file} |", crate::coverage::cell(text))?;
            }
            (None, Some(reason)) => {
                let at = reasons.iter().position(|(known, ..)| known == reason);
                let at = at.unwrap_or_else(|| {
                    reasons.push((reason, 0, Vec::new()));
                    reasons.len().saturating_sub(1)
                });
                let Some((_, count, classes)) = reasons.get_mut(at) else { continue };
                *count = count.saturating_add(1);
                if !classes.contains(&class.as_str()) {
                    classes.push(class);
                }
            }
            (None, None) => bail!("{FILE}: no case shows {class}: {text}"),
            (Some((_, file)), Some(_)) => {
                bail!("{FILE}: {file} shows {class}: {text}; it needs no reason any more")
            }
        }
    }
    let mut out = format!(
        "\n## Texts of errors\n\n{} texts of errors are in the sources of Cassandra's language classes \
         (branch 5.0 of October 2024,\n`conformance/error-texts.txt`). {found} have a case. The others have \
         none because:\n\n| reason | texts | classes |\n| --- | --- | --- |\n",
        texts.len()
    );
    for (reason, count, classes) in reasons {
        writeln!(out, "| {reason} | {count} | {} |", classes.join(", "))?;
    }
    write!(out, "\n| class | text | cases |\n| --- | --- | --- |\n{shown}")?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> BTreeMap<String, String> {
        [("Unknown type ks.t".to_owned(), "x".to_owned())].into()
    }

    #[test]
    fn a_text_has_a_case_or_a_reason_and_not_both() {
        let of = |list: &str| part(&parse(list).unwrap(), &messages());
        let page = of("A: Unknown type …\n@ none can\nB: Unknown view …\n").unwrap();
        assert!(page.contains("2 texts of errors") && page.contains("1 have a case"), "{page}");
        assert!(page.contains("| none can | 1 | B |"), "{page}");
        assert!(page.contains("| A | `Unknown type …` | x |"), "{page}");
        assert!(of("B: Unknown view …\n").is_err());
        assert!(of("@ none can\nA: Unknown type …\n").is_err());
    }

    #[test]
    fn parts_of_a_text_are_found_in_their_order() {
        assert!(shows("a 1 b 2", "a … b …"));
        assert!(!shows("b 1 a 2", "a … b …"));
        assert!(!shows("a 1", "a … b …"));
    }

    #[test]
    fn messages_are_what_a_client_gets() {
        let of = |line: &str| message_of(line).unwrap();
        assert_eq!(of("= error INVALID 'it''s' a=1"), "it's");
        assert_eq!(of("= error INVALID E'a\\n\\\"b\\\" ''c'''"), "a\\n\"b\" 'c'");
        assert!(message_of("= error SYNTAX_ERROR line 1:2").is_none());
    }

    #[test]
    fn lists_without_a_class_or_with_a_text_twice_are_refused() {
        for list in ["text", "A: x\nA: x"] {
            assert!(parse(list).is_err(), "{list}");
        }
    }
}
