//! Rules of documents: which must exist, links and anchors, contents of the book, quoted log lines and paths.
//!
//! Never: the network. Links to other hosts are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use crate::files::{self, shown};
use crate::layers::Member;

/// The contents of the book; each page below `docs` is listed once.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// The page whose table of log lines quotes the sources.
const TROUBLESHOOTING: &str = "docs/user/troubleshooting.md";

/// The page with the generated differences from Cassandra.
const DIFFERENCES: &str = "docs/compat/cql.md";

const REQUIRED: [&str; 14] = [
    "README.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "COMPAT.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "NOTICE",
    "clippy.toml",
    "deny.toml",
    "docs/glossary.md",
    "docs/dev/decisions/README.md",
    "docs/dev/roadmap.md",
];

/// Folders whose pages describe the code as it is; others also describe its past.
const CURRENT: [&str; 3] = ["docs/internals", "docs/formats", "docs/user"];

/// Checks all documents below `root`.
///
/// # Errors
/// A file cannot be read.
pub fn check(root: &Path, members: &[Member], wrong: &mut Vec<String>) -> Result<()> {
    for path in REQUIRED.into_iter().filter(|path| !root.join(path).is_file()) {
        wrong.push(format!("{path} is missing"));
    }
    let readme = fs::read_to_string(root.join("README.md")).unwrap_or_default();
    let ci = fs::read_to_string(root.join(".ci/run")).unwrap_or_default();
    if !(readme.contains("\ncargo xtask test\n") && ci.contains("cargo xtask test")) {
        wrong.push("README.md and .ci/run do not name the one test command".into());
    }
    links(root, wrong)?;
    summary(root, wrong)?;
    paths(root, members, wrong)?;
    statements(root, wrong)?;
    log_lines(root, wrong)
}

/// A link of a document.
struct Link<'t> {
    line: usize,
    target: &'t str,
}

/// The links of a document outside of code.
fn links_of(text: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let targets = content.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        found.extend(targets.map(|target| Link { line, target }));
    }
    found
}

/// Links lead to files that exist, anchors to headings.
fn links(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let mut known: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for path in files::of_repository(root, &["md"])? {
        let text = fs::read_to_string(&path)?;
        let directory = path.parent().unwrap_or(root);
        for Link { line, target } in links_of(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { normal(&directory.join(file)) };
            if !file.exists() {
                let shown = shown(root, &path);
                wrong.push(format!("{shown}:{line}: link to \"{target}\" leads nowhere"));
                continue;
            }
            if anchor.is_empty() || file.extension().is_none_or(|e| e != "md") {
                continue;
            }
            if !known.contains_key(&file) {
                known.insert(file.clone(), anchors(&fs::read_to_string(&file)?));
            }
            if !known.get(&file).is_some_and(|anchors| anchors.contains(anchor)) {
                let shown = shown(root, &path);
                wrong.push(format!("{shown}:{line}: no heading for the anchor of \"{target}\""));
            }
        }
    }
    Ok(())
}

/// The path without `.` and `..`.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The anchors of a document's headings, as GitHub and mdbook form them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let heading = line.trim_start_matches('#');
        if in_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor(heading.trim());
        let next = (1..).map(|n| format!("{anchor}-{n}"));
        let free = core::iter::once(anchor.clone()).chain(next).find(|a| !found.contains(a));
        found.extend(free);
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The book lists each page below `docs` once.
fn summary(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(root.join(SUMMARY)).unwrap_or_default();
    let mut listed = BTreeSet::new();
    for Link { line, target } in links_of(&text) {
        if !listed.insert(normal(&root.join("docs").join(target))) {
            wrong.push(format!("{SUMMARY}:{line}: {target} is listed twice"));
        }
    }
    for path in files::below(&root.join("docs"), &["md"])? {
        if !listed.contains(&path) && !path.ends_with("SUMMARY.md") {
            wrong.push(format!("{}: {SUMMARY} does not list it", shown(root, &path)));
        }
    }
    Ok(())
}

/// The log lines that the page on troubleshooting explains occur in the sources.
fn log_lines(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let page = fs::read_to_string(root.join(TROUBLESHOOTING)).unwrap_or_default();
    let mut sources = String::new();
    for directory in ["crates", "bin"] {
        for path in files::below(&root.join(directory), &["rs"])? {
            sources.push_str(&joined(&fs::read_to_string(path)?));
        }
    }
    for (line, quoted) in quoted_lines(&page) {
        for part in quoted.split('…').map(str::trim).filter(|part| !part.is_empty()) {
            if !sources.contains(part) {
                wrong.push(format!("{TROUBLESHOOTING}:{line}: no source has the text \"{part}\""));
            }
        }
    }
    Ok(())
}

/// Sources that a page of [`CURRENT`] names exist: `crate/file.rs`, or a path from the root.
fn paths(root: &Path, members: &[Member], wrong: &mut Vec<String>) -> Result<()> {
    for folder in CURRENT {
        for page in files::below(&root.join(folder), &["md"])? {
            let text = fs::read_to_string(&page)?;
            for (line, words) in (1..).zip(text.lines()) {
                for name in words.split('`').skip(1).step_by(2).filter(|name| is_source(name)) {
                    if !places(root, members, name).iter().any(|place| place.exists()) {
                        let page = shown(root, &page);
                        wrong.push(format!("{page}:{line}: source \"{name}\" does not exist"));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Checks that pages with the number of compared statements agree with the generated page.
fn statements(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let generated = fs::read_to_string(root.join(DIFFERENCES)).unwrap_or_default();
    let found = generated.lines().find_map(|line| line.strip_prefix("Of ")?.split(' ').next());
    let Some(count) = found.and_then(|number| number.parse::<u32>().ok()) else {
        wrong.push(format!("{DIFFERENCES} does not say how many statements were compared"));
        return Ok(());
    };
    let text = format!("{},{:03}", count / 1000, count % 1000);
    for page in ["README.md", "docs/verification.md"] {
        if !fs::read_to_string(root.join(page))?.contains(&text) {
            wrong.push(format!("{page} does not have the {count} statements of {DIFFERENCES}"));
        }
    }
    Ok(())
}

/// True when the code of a text names a source file with its folder.
fn is_source(name: &str) -> bool {
    name.contains('/')
        && name.ends_with(".rs")
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'))
}

/// The possible paths of a source that is named so.
fn places(root: &Path, members: &[Member], name: &str) -> Vec<PathBuf> {
    let mut places = vec![root.join(name)];
    if let Some((first, rest)) = name.split_once('/') {
        let of_crate = members.iter().filter(|member| member.name == first);
        for member in of_crate {
            places.push(member.directory.join(rest));
            places.push(member.directory.join("src").join(rest));
        }
        places.extend(members.iter().map(|member| member.directory.join("src").join(name)));
    }
    places
}

/// Sources with the lines of one literal joined.
fn joined(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source.split("\\\n");
    out.push_str(rest.next().unwrap_or_default());
    for part in rest {
        out.push_str(part.trim_start());
    }
    out
}

/// First cells, in code, of the table below the heading "By log line".
fn quoted_lines(page: &str) -> Vec<(usize, &str)> {
    let mut is_here = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        if line.starts_with('#') {
            is_here = line.trim_start_matches('#').trim() == "By log line";
        }
        let cell = line.strip_prefix("| `").and_then(|rest| rest.split("` |").next());
        if let Some(cell) = cell.filter(|_| is_here) {
            found.push((number, cell));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_the_web_pages() {
        let found = anchors("# A `b`, c_d: e-f\n```\n# not this\n```\n## Same\n## Same\n#no\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a-b-c_d-e-f", "same", "same-1"]);
    }

    #[test]
    fn links_in_code_are_no_links() {
        let text = "[a](b.md#c) and [d](e)\n```\n[x](y)\n```\n";
        let found: Vec<_> = links_of(text).iter().map(|link| (link.line, link.target)).collect();
        assert_eq!(found, [(1, "b.md#c"), (1, "e")]);
    }

    #[test]
    fn sources_are_named_with_their_folder() {
        let names = ["lwt/drive.rs", "a.rs", "crates/x/src/b.rs", "lib.md", "a b/c.rs"];
        assert_eq!(names.map(is_source), [true, false, true, false, false]);
    }

    #[test]
    fn paths_are_normal_without_a_file_system() {
        assert_eq!(normal(Path::new("/a/b/../c/./d")), Path::new("/a/c/d"));
    }

    #[test]
    fn quoted_log_lines_are_those_below_their_heading() {
        let page = "| `other` | x |\n## By log line\n| text | y |\n| `is … down` | z |\n## Next\n| `no` |\n";
        assert_eq!(quoted_lines(page), [(4, "is … down")]);
        assert_eq!(joined("\"one \\\n     two\""), "\"one two\"");
    }
}
