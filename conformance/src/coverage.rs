//! The forms of statements and the errors that the cases cover, as a page: `conformance --coverage conformance`.
//!
//! Owns: the page, made of the list of forms (`productions.txt`) and the case files. Never: a server.
//! A page that no longer follows from these is found by a test.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};

use crate::file::{self, Action, Item};
use crate::texts::{self, Text};

/// Words of an error's text that make its class.
const CLASS_WORDS: usize = 4;
/// Characters of an example that are shown.
const EXAMPLE_CHARS_MAX: usize = 110;

/// A statement of a case.
struct Case {
    file: String,
    text: String,
    /// The line `= error …`, when it is one.
    error: Option<String>,
}

/// Normalises a text: one line, single spaces, lower case, signs apart, no semicolon at the end.
fn plain(text: &str) -> String {
    let spaced: String = text
        .replace("..", " .. ")
        .chars()
        .flat_map(|c| match c {
            '(' | ')' | ',' | '{' | '}' | '[' | ']' | '=' | '<' | '>' | '!' | '+' => {
                vec![' ', c, ' ']
            }
            _ => vec![c],
        })
        .collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    words.join(" ").to_lowercase().trim_end_matches(';').trim_end().to_owned()
}

/// Returns true if a statement has a form. `…` stands for any text; at the end of the form it must
/// not be empty. A form without `…` at its end also matches longer statements.
fn fits(form: &str, text: &str) -> bool {
    let mut parts = form.split('…').map(str::trim);
    let Some(first) = parts.next() else { return false };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    if !first.is_empty() && !rest.is_empty() && !rest.starts_with(' ') {
        return false;
    }
    for part in parts {
        if part.is_empty() {
            return !rest.trim().is_empty();
        }
        let padded = format!("{rest} ");
        let Some(at) = padded.find(&format!(" {part} ")) else { return false };
        let end = at.saturating_add(part.len()).saturating_add(1);
        rest = rest.get(end..).unwrap_or("");
    }
    true
}

fn cases(files: &[(String, String)]) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, text) in files {
        let parsed = file::parse(text).with_context(|| name.clone())?;
        let mut prepared = BTreeMap::new();
        for item in parsed.items {
            let Item::Block(block) = item else { continue };
            let error = block.expected.iter().find(|line| line.starts_with("= error "));
            let mut push = |text: &str| {
                let (file, text) = (name.clone(), plain(text));
                cases.push(Case { file, text, error: error.cloned() });
            };
            match &block.action {
                Action::Query(text) => push(text),
                Action::Prepare(name, text) => {
                    prepared.insert(name.clone(), text.clone());
                    push(text);
                }
                Action::Execute(name, ..) => {
                    push(prepared.get(name).map_or("", String::as_str));
                }
                Action::Batch(texts) => texts.iter().for_each(|text| push(text)),
                Action::Login(..) => push(""),
            }
        }
    }
    Ok(cases)
}

/// Class of an error line and the text that is shown for it.
fn class_of(line: &str) -> Option<(String, String)> {
    let rest = line.strip_prefix("= error ")?;
    let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
    if code == "SYNTAX_ERROR" {
        return Some((code.to_owned(), "SYNTAX_ERROR line L:C".to_owned()));
    }
    let text = text.trim_matches('\'').replace("''", "'");
    let words: Vec<&str> = text.split_whitespace().take(CLASS_WORDS).collect();
    let class: Vec<String> = words
        .iter()
        .map(|word| {
            let named = word.contains(['\'', '"', '$', '.', '<', ':', '_', '[', '(']);
            let number = word.chars().any(|c| c.is_ascii_digit());
            if named || number { "…".to_owned() } else { (*word).to_owned() }
        })
        .collect();
    let shown: String = text.chars().take(EXAMPLE_CHARS_MAX).collect();
    Some((format!("{code} {}", class.join(" ")), format!("{code} {shown}")))
}

pub(crate) fn cell(text: &str) -> String {
    format!("`{}`", text.replace('`', "'").replace('|', "/"))
}

/// The page. `files` are names and texts of the cases, `texts` is the list of texts of errors.
///
/// # Errors
/// A case file that cannot be read, a form that is listed twice, a text of an error without case and
/// reason.
pub fn page(productions: &str, files: &[(String, String)], texts: &[Text]) -> Result<String> {
    let cases = cases(files)?;
    let mut out = String::from(
        "# Coverage of the language\n\nMade by `conformance --coverage` of `conformance/productions.txt` \
         and the cases; not to be edited. A\ncase file is named once per line: the first that has the \
         form and is answered, or the error.\n",
    );
    let (mut forms, mut found) = (0_usize, 0_usize);
    let mut body = String::new();
    let mut seen = Vec::new();
    for line in productions.lines().map(str::trim) {
        if let Some(heading) = line.strip_prefix("# ") {
            write!(body, "\n## {heading}\n\n| form | cases |\n| --- | --- |\n")?;
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let form = plain(line);
        if seen.contains(&form) {
            bail!("productions.txt: {line} is listed twice");
        }
        forms = forms.saturating_add(1);
        let with = |refused: bool| {
            cases.iter().find(|c| c.error.is_some() == refused && fits(&form, &c.text))
        };
        let state = match (with(false), with(true)) {
            (Some(case), _) => {
                found = found.saturating_add(1);
                case.file.clone()
            }
            (None, Some(case)) => {
                found = found.saturating_add(1);
                format!("{}, refused only", case.file)
            }
            (None, None) => "none".to_owned(),
        };
        writeln!(body, "| {} | {state} |", cell(line))?;
        seen.push(form);
    }
    write!(out, "{found} of {forms} forms have a case.\n{body}")?;
    let mut classes: BTreeMap<String, (String, String)> = BTreeMap::new();
    for case in &cases {
        if let Some((class, shown)) = case.error.as_deref().and_then(class_of) {
            classes.entry(class).or_insert_with(|| (shown, case.file.clone()));
        }
    }
    write!(
        out,
        "\n## Errors\n\n{} classes of errors, by code and first words, each with an example.\n\n\
         | error | cases |\n| --- | --- |\n",
        classes.len()
    )?;
    for (shown, file) in classes.values() {
        writeln!(out, "| {} | {file} |", cell(shown))?;
    }
    let mut messages = BTreeMap::new();
    for case in &cases {
        if let Some(message) = case.error.as_deref().and_then(texts::message_of) {
            messages.entry(message).or_insert_with(|| case.file.clone());
        }
    }
    out.push_str(&texts::part(texts, &messages)?);
    Ok(out)
}

/// The list of texts of errors in a folder `conformance`.
///
/// # Errors
/// It cannot be read or is not well formed.
pub fn read_texts(folder: &std::path::Path) -> Result<Vec<Text>> {
    let list = folder.join(texts::FILE);
    let text = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    texts::parse(&text)
}

/// Names and texts of the case files below a folder `conformance`, by name.
///
/// # Errors
/// They cannot be read.
pub fn read(folder: &std::path::Path) -> Result<(String, Vec<(String, String)>)> {
    let list = folder.join("productions.txt");
    let productions = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let mut files = Vec::new();
    for cases in ["cases", "roles"] {
        for entry in std::fs::read_dir(folder.join(cases))? {
            let path = entry?.path();
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            if path.extension().is_some_and(|extension| extension == "cqltest") {
                files.push((stem.to_owned(), std::fs::read_to_string(&path)?));
            }
        }
    }
    files.sort();
    Ok((productions, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_statement_has_a_case() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let (productions, files) = read(folder).unwrap();
        // Fails for a text of an error without case and reason.
        let page = page(&productions, &files, &read_texts(folder).unwrap()).unwrap();
        let missing: Vec<&str> = page.lines().filter(|line| line.ends_with("| none |")).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn forms_are_found_in_statements() {
        let check = |form: &str, text: &str| fits(&plain(form), &plain(text));
        assert!(check(
            "SELECT … FROM … WHERE … CONTAINS KEY …",
            "select a from t where m contains key 1"
        ));
        assert!(!check(
            "SELECT … FROM … WHERE … CONTAINS KEY …",
            "SELECT a FROM t WHERE m CONTAINS 1"
        ));
        assert!(check("SELECT … FROM … ORDER BY … DESC", "SELECT a FROM t ORDER BY b DESC;"));
        assert!(!check("SELECT DISTINCT …", "SELECT distinct_one FROM t"));
        assert!(check("UPDATE … SET … = … + [ …", "UPDATE t SET l=l+[1] WHERE k=1"));
        assert!(!check("DROP TABLE …", "DROP TABLE"));
    }

    #[test]
    fn errors_are_grouped_by_their_first_words() {
        let class = |line: &str| class_of(line).unwrap().0;
        let one = class("= error INVALID 'Undefined column name a in table ${ks}.t'");
        assert_eq!(one, "INVALID Undefined column name a");
        assert_eq!(
            class("= error INVALID 'Table ''${ks}.t'' doesn''t exist'"),
            class("= error INVALID 'Table ''${ks}.u'' doesn''t exist'")
        );
    }
}
