//! The word list: phrases that read like a translation, in texts and comments of the code and in documents.
//!
//! Log lines, errors, help texts, comments and documents are scanned. The numbers of today stand in
//! `xtask/english.toml`, by directory or document; they only fall. Texts of tests are left out: only their reader
//! meets them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{files, scan};

/// How many findings each document and directory may have.
const COUNTS: &str = "xtask/english.toml";

/// Phrases, and what to write instead. A phrase matches whole words.
const PHRASES: &[(&str, &str)] = &[
    ("somebody", "name the actor: a client, a peer, a caller"),
    ("nobody", "name the actor: no client, no replica, no caller"),
    ("whoever", "name the actor"),
    ("anew", "again; rebuild, rewrite, retry"),
    ("again and again", "repeatedly"),
    ("told", "notified, reported"),
    ("tells of", "reports"),
    ("is not there", "is missing, is not supported"),
    ("are not there", "are missing, are not supported"),
    ("is there", "exists, is supported"),
    ("is through", "is complete"),
    ("let go of", "released, removed"),
    ("lets go of", "releases, removes"),
    ("as it lies", "verbatim, unmodified"),
    ("as they lie", "verbatim, unmodified"),
    ("in one go", "in one pass, in one batch"),
    ("at one go", "in one pass, in one batch"),
    ("by itself", "automatically"),
    ("passes over", "skips, ignores"),
    ("passed over", "skipped, ignored"),
    ("behind it", "after it"),
    ("gives up", "stops retrying, aborts"),
    // The file `Scylla.db` has this name.
    ("Scylla", "ScyllaDB"),
];

/// Words that a sentence of a comment does not begin with: a noun or a verb stands there.
const FIRST_WORDS: &[&str] = &["What", "Who", "Whose", "Whom", "Whether", "Of"];

/// One place with a phrase of the list.
struct Finding {
    line: usize,
    phrase: String,
    instead: &'static str,
}

/// Findings of one source file.
#[derive(Default)]
struct Findings {
    texts: Vec<Finding>,
    comments: Vec<Finding>,
}

/// Checks the whole repository; a sentence for each thing that is wrong.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let counts = counts(root)?;
    let allowed = allowed(root)?;
    let mut wrong = Vec::new();
    for (name, found) in &counts {
        let allowed = allowed.get(name).copied().unwrap_or(0);
        if *found > allowed {
            wrong.push(format!(
                "{name}: {found} uses of words of the list, {allowed} allowed: cargo xtask english PATH shows them"
            ));
        }
    }
    for (name, allowed) in &allowed {
        let found = counts.get(name).copied().unwrap_or(0);
        if found < *allowed {
            wrong
                .push(format!("{COUNTS}: \"{name}\" is {found} now: cargo xtask english --accept"));
        }
    }
    Ok(wrong)
}

/// Prints each finding in files whose path begins with `below`.
pub fn print(root: &Path, below: &str) -> Result<()> {
    for (shown, found) in all(root)? {
        if shown.starts_with(below) {
            for finding in found.texts.iter().chain(&found.comments) {
                println!("{}", finding.sentence(&shown));
            }
        }
    }
    Ok(())
}

/// Writes today's numbers.
pub fn accept(root: &Path) -> Result<()> {
    let mut out = String::from(
        "# Uses of words of the list in xtask/src/english.rs. Numbers fall, they do not rise.\n\
         # Written by `cargo xtask english --accept`.\n\n",
    );
    for (name, count) in counts(root)? {
        let _ = writeln!(out, "\"{name}\" = {count}");
    }
    std::fs::write(root.join(COUNTS), out).with_context(|| format!("cannot write {COUNTS}"))
}

/// Each file and what was found in it.
fn all(root: &Path) -> Result<Vec<(String, Findings)>> {
    let mut all = Vec::new();
    for path in files::of_repository(root, &["rs", "md"])? {
        let shown = files::shown(root, &path);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let found = match shown.as_str() {
            // The list itself is here.
            "xtask/src/english.rs" => continue,
            _ if shown.ends_with(".md") => {
                Findings { texts: document(&text), comments: Vec::new() }
            }
            _ => source(&shown, &text),
        };
        all.push((shown, found));
    }
    Ok(all)
}

/// How many findings each document has, and the texts and comments of each directory.
fn counts(root: &Path) -> Result<BTreeMap<String, usize>> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (shown, found) in all(root)? {
        let mut count = |name: String, number: usize| {
            if number > 0 {
                *counts.entry(name).or_default() += number;
            }
        };
        if shown.ends_with(".md") {
            count(shown, found.texts.len());
        } else {
            let directory = directory(&shown);
            count(format!("{directory}, texts"), found.texts.len());
            count(format!("{directory}, comments"), found.comments.len());
        }
    }
    Ok(counts)
}

fn allowed(root: &Path) -> Result<BTreeMap<String, usize>> {
    let text = std::fs::read_to_string(root.join(COUNTS))
        .with_context(|| format!("cannot read {COUNTS}"))?;
    let mut allowed = BTreeMap::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let count = || format!("{COUNTS}: \"{line}\" is no count");
        let (name, number) = line.split_once(" = ").with_context(count)?;
        allowed.insert(name.trim_matches('"').to_owned(), number.parse().with_context(count)?);
    }
    Ok(allowed)
}

impl Finding {
    fn sentence(&self, shown: &str) -> String {
        format!("{shown}:{}: \"{}\": {}", self.line, self.phrase, self.instead)
    }
}

/// The directory that a file is counted for: a crate, or the first part of the path.
fn directory(shown: &str) -> String {
    let crate_path = shown.split_once("/src/").map(|(before, _)| before);
    crate_path.or_else(|| shown.split('/').next()).unwrap_or(shown).to_owned()
}

fn source(shown: &str, text: &str) -> Findings {
    let mut found = Findings::default();
    let whole_file_tests = shown.contains("/tests/")
        || shown.ends_with("tests.rs")
        || shown.starts_with("sim/")
        || shown.starts_with("conformance/")
        || shown.starts_with("perf/");
    // Test modules stand at the end of a file.
    let tests_from = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    let mut line = 1;
    let mut counted = 0;
    let mut comment_above = None;
    for span in scan::spans(text) {
        line += text.get(counted..span.start).map_or(0, newlines);
        counted = span.start;
        let Some(words) = text.get(span.start..span.end) else {
            continue;
        };
        match span.kind {
            scan::SpanKind::Comment => {
                let starts = comment_above != Some(line);
                comment(words, line, starts, &mut found.comments);
                comment_above = Some(line + 1);
            }
            scan::SpanKind::Text if !whole_file_tests && span.start < tests_from => {
                for (row, words) in (line..).zip(words.lines()) {
                    phrases(words, row, &mut found.texts);
                }
            }
            scan::SpanKind::Text => {}
        }
    }
    found
}

/// `starts`: no comment stands in the line above.
fn comment(words: &str, line: usize, starts: bool, found: &mut Vec<Finding>) {
    let words = words.trim_start_matches(['/', '!']).trim_start();
    phrases(words, line, found);
    let first = words.split(' ').next().unwrap_or("");
    if starts && FIRST_WORDS.contains(&first) {
        found.push(Finding {
            line,
            phrase: format!("{first} …"),
            instead: "begin with the noun or the verb",
        });
    }
}

fn document(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (line, words) in (1..).zip(text.lines()) {
        is_code ^= words.trim_start().starts_with("```");
        if !is_code {
            phrases(words, line, &mut found);
        }
    }
    found
}

fn phrases(words: &str, line: usize, found: &mut Vec<Finding>) {
    for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| scan::has_word(words, phrase)) {
        found.push(Finding { line, phrase: (*phrase).to_owned(), instead });
    }
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|b| *b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_comments_are_different() {
        let text = "/// What it is.\nfn a() {\n    log(\"somebody left\"); // anew\n}\n#[cfg(test)]\nmod t { \"nobody\" }\n";
        let found = source("crates/a/src/b.rs", text);
        assert_eq!(found.texts.iter().map(|f| f.line).collect::<Vec<_>>(), [3]);
        let comments: Vec<_> = found.comments.iter().map(|f| (f.line, f.phrase.as_str())).collect();
        assert_eq!(comments, [(1, "What …"), (3, "anew")]);
    }

    #[test]
    fn scylladb_has_one_spelling() {
        let found = document("Scylla's tools\nScyllaDB's tools, scylla-driver\n");
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_sentence_that_goes_on_in_the_next_line_has_no_first_word() {
        let found = source(
            "crates/a/src/b.rs",
            "/// The bytes\n/// Of a frame.\n\n/// Of a frame.\nfn a() {}\n",
        );
        assert_eq!(found.comments.iter().map(|f| f.line).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn documents_are_read_but_for_their_code() {
        let found = document("somebody\n```\nnobody\n```\nanew\n");
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn files_are_counted_for_their_crate() {
        assert_eq!(directory("crates/engine/store/src/a/b.rs"), "crates/engine/store");
        assert_eq!(directory("tests/a/b.rs"), "tests");
    }
}
