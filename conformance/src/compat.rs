//! The tables of statements that differ from Cassandra, in `docs/compat/cql.md`.
//!
//! Owns: the tables, generated from the list of differences and the case files, which hold both answers.
//! Never: a server; running the cases proves our answers. Text outside of the marks stays. A test fails when
//! the document is stale.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};

use crate::differences::Reasons;
use crate::file::{self, Block, Item};

/// Precedes the generated part.
const BEGIN: &str = "<!-- made by conformance --compat; not to be edited -->\n";
/// Follows it.
const END: &str = "<!-- made by conformance --compat: end -->\n";
/// The document, relative to the folder of the cases.
pub const DOCUMENT: &str = "../docs/compat/cql.md";
/// Characters of a statement and of an answer that are shown.
const SHOWN_MAX: usize = 90;

/// A statement that differs.
struct Case {
    file: String,
    block: Block,
}

/// The generated part. `files` are names and texts of the cases.
///
/// # Errors
/// A case file that cannot be read, a name that is not in the list, one that no case has.
pub fn part(reasons: &Reasons, files: &[(String, String)]) -> Result<String> {
    let mut cases: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    let mut statements = 0_usize;
    for (name, text) in files {
        for item in file::parse(text).with_context(|| name.clone())?.items {
            let Item::Block(block) = item else { continue };
            statements = statements.saturating_add(1);
            if let Some(differs) = &block.differs {
                if !reasons.has(&differs.name) {
                    bail!("{name}:{}: no difference is called {}", block.line, differs.name);
                }
                let of = cases.entry(differs.name.clone()).or_default();
                of.push(Case { file: name.clone(), block: *block });
            }
        }
    }
    let differing: usize = cases.values().map(Vec::len).sum();
    let mut out = format!(
        "Of {statements} statements in {} files of cases, recorded from a Cassandra 5.0.9, {differing} \
         have another answer here,\nin {} named ways. The cases (`conformance/`) hold both answers, by the \
         name of the difference.\n",
        files.len(),
        reasons.all().len()
    );
    let mut area = "";
    for reason in reasons.all() {
        let Some(of) = cases.get(&reason.name) else {
            bail!("no case has the difference {}", reason.name);
        };
        let Some(first) = of.first() else { continue };
        if reason.area != area {
            area = &reason.area;
            write!(
                out,
                "\n### {area}\n\n| difference | for example | Cassandra 5.0.9 | here | cases |\n\
                 | --- | --- | --- | --- | --- |\n"
            )?;
        }
        let (theirs, ours) = answers(&first.block);
        writeln!(
            out,
            "| **{}**: {} | {} | {theirs} | {ours} | {} |",
            reason.name,
            reason.reason.replace('|', "\\|"),
            code(&statement(&first.block)),
            counted(of)
        )?;
    }
    Ok(out)
}

/// The document with its generated part replaced.
///
/// # Errors
/// The document has not both marks, in their order.
pub fn insert(document: &str, part: &str) -> Result<String> {
    let marked = document.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let Some((before, after)) = marked else { bail!("the document has not the two marks") };
    Ok(format!("{before}{BEGIN}\n{part}\n{END}{after}"))
}

/// Returns the sent statements in one line.
fn statement(block: &Block) -> String {
    let is_sent = |line: &&String| !line.starts_with('@') || line.starts_with("@bind");
    let sent: Vec<&str> = block
        .source
        .iter()
        .filter(is_sent)
        .map(|line| line.trim_start_matches(['>', '&']).trim())
        .collect();
    sent.join(" ").replace("${ks}", "ks")
}

/// The first line of each answer that the other has not, from where they part.
fn answers(block: &Block) -> (String, String) {
    let ours = block.differs.as_ref().map_or(&[][..], |differs| differs.ours.as_slice());
    let only = |these: &[String], those: &[String]| {
        these.iter().find(|line| !those.contains(line)).map(|line| plain(line))
    };
    match (only(&block.expected, ours), only(ours, &block.expected)) {
        (Some(theirs), Some(ours)) => {
            let from = parting(&theirs, &ours);
            (code(&tail(&theirs, from)), code(&tail(&ours, from)))
        }
        (Some(theirs), None) => (code(&theirs), without(&theirs).to_owned()),
        (None, Some(ours)) => (without(&ours).to_owned(), code(&ours)),
        (None, None) => ("the same in another order".to_owned(), String::new()),
    }
}

/// Describes an answer that lacks this line of the other.
fn without(line: &str) -> &'static str {
    match line.chars().next() {
        Some('|') => "without that row",
        Some('!') => "without a warning",
        _ => "without it",
    }
}

/// A line of an answer as a reader wants it: without marks, and text without quotes.
fn plain(line: &str) -> String {
    let line = line.strip_prefix("= ").unwrap_or(line);
    let line = line.strip_prefix("error ").unwrap_or(line).replace("${ks}", "ks");
    match line.split_once(" '").and_then(|(code, rest)| Some((code, rest.strip_suffix('\'')?))) {
        Some((code, text)) => format!("{code} {}", text.replace("''", "'")),
        None => line,
    }
}

/// Where two lines begin to differ, in characters, when showing them from their start would not tell.
fn parting(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    if same < SHOWN_MAX / 2 { 0 } else { same.saturating_sub(SHOWN_MAX / 4) }
}

/// The line from there on, beginning with a word.
fn tail(line: &str, from: usize) -> String {
    let rest: String = line.chars().skip(from).collect();
    match rest.split_once(' ') {
        Some((_, rest)) if from > 0 => format!("… {rest}"),
        _ => rest,
    }
}

/// The files of the cases, each with how many it has.
fn counted(cases: &[Case]) -> String {
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for case in cases {
        let count = files.entry(&case.file).or_default();
        *count = count.saturating_add(1);
    }
    let shown: Vec<String> = files
        .into_iter()
        .map(|(file, count)| match count {
            1 => file.to_owned(),
            _ => format!("{file} ({count})"),
        })
        .collect();
    shown.join(", ")
}

/// Text of a table's cell, cut where it is long.
fn code(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("`{}`", shown.replace('`', "'").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &str =
        "> SELECT a\n>> FROM t\n= rows t\n: a int\n| 1\n~ one\n~= rows t\n~: a int\n~| 2\n";

    fn files() -> Vec<(String, String)> {
        vec![("x".to_owned(), CASES.to_owned()), ("y".to_owned(), format!("{CASES}{CASES}"))]
    }

    #[test]
    fn the_document_follows_from_the_cases() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let list = std::fs::read_to_string(folder.join(crate::differences::FILE)).unwrap();
        let (_, files) = crate::coverage::read(folder).unwrap();
        let part = part(&Reasons::parse(&list).unwrap(), &files).unwrap();
        let kept = std::fs::read_to_string(folder.join(DOCUMENT)).unwrap();
        let wanted = insert(&kept, &part).unwrap();
        let first = kept.lines().zip(wanted.lines()).find(|(kept, wanted)| kept != wanted);
        assert!(
            kept == wanted,
            "docs/compat/cql.md is stale, rebuild it with `conformance --compat conformance`: {first:?}"
        );
    }

    #[test]
    fn a_row_has_both_answers_and_where_the_cases_are() {
        let reasons = Reasons::parse("## Area\none: why\n").unwrap();
        let part = part(&reasons, &files()).unwrap();
        assert!(part.contains("Of 3 statements in 2 files"), "{part}");
        let row = "| **one**: why | `SELECT a FROM t` | `\\| 1` | `\\| 2` | x, y (2) |";
        assert!(part.contains(row), "{part}");
    }

    #[test]
    fn long_answers_are_shown_from_where_they_part() {
        let of = |theirs: &str, ours: &str| {
            let text = format!("> x\n{theirs}\n~ one\n~{ours}\n");
            let parsed = file::parse(&text).unwrap();
            let Some(Item::Block(block)) = parsed.items.first() else { panic!("no block") };
            answers(block)
        };
        let long = "word ".repeat(20);
        let (theirs, ours) = of(
            &format!("= error INVALID '{long}it''s one'"),
            &format!("= error INVALID '{long}two'"),
        );
        assert_eq!(theirs, "`… word word word word it's one`");
        assert_eq!(ours, "`… word word word word two`");
        let (theirs, ours) = of("= rows", "= error INVALID 'a'");
        assert_eq!((theirs.as_str(), ours.as_str()), ("`rows`", "`INVALID a`"));
    }

    #[test]
    fn names_without_a_case_and_cases_without_a_name_are_refused() {
        assert!(part(&Reasons::parse("## A\none: why\ntwo: why\n").unwrap(), &files()).is_err());
        assert!(part(&Reasons::parse("## A\ntwo: why\n").unwrap(), &files()).is_err());
    }

    #[test]
    fn only_text_between_the_marks_is_replaced() {
        let document = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(insert(&document, "new\n").unwrap(), format!("a\n{BEGIN}\nnew\n\n{END}b\n"));
        assert!(insert("a\n", "new\n").is_err());
    }
}
