//! The generated part of `docs/verification.md`: the simulated scenarios and their fixed seeds.
//!
//! Owns: the table, from the files of `sim/scenarios` and the kept seeds. Never: runs a simulation.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{disk, files};

/// The page with the table.
pub const PAGE: &str = "docs/verification.md";
const BEGIN: &str = "<!-- generated: scenarios -->\n";
const END: &str = "<!-- end of generated -->\n";

/// One scenario file.
struct Scenario {
    name: String,
    subject: String,
    nodes: u64,
    seeds: u64,
}

/// Writes the page again.
///
/// # Errors
/// A file cannot be read or written, the page lacks its marks.
pub fn write(root: &Path) -> Result<()> {
    disk::write(root.join(PAGE), page(root)?)
}

/// A sentence when the page is stale.
///
/// # Errors
/// A file cannot be read, the page lacks its marks.
pub fn check(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    if disk::read_to_string(root.join(PAGE))? != page(root)? {
        wrong.push(format!("{PAGE} is out of date: run cargo xtask verification"));
    }
    Ok(())
}

/// The page with its generated part from the sources.
fn page(root: &Path) -> Result<String> {
    let text = disk::read_to_string(root.join(PAGE))?;
    let (before, rest) = text.split_once(BEGIN).context("the page lacks its first mark")?;
    let (_, after) = rest.split_once(END).context("the page lacks its second mark")?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", table(root)?))
}

fn table(root: &Path) -> Result<String> {
    let mut scenarios = Vec::new();
    for path in files::below(&root.join("sim/scenarios"), &["toml"])? {
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        scenarios.push(scenario(name.unwrap_or_default(), &disk::read_to_string(&path)?));
    }
    let kept = disk::read_to_string(root.join("sim/seeds.txt"))?;
    let kept = kept.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    let fixed: u64 = scenarios.iter().map(|scenario| scenario.seeds).sum();
    let mut out = format!(
        "{} scenarios of clusters, {fixed} fixed and {kept} kept seeds in each test run:\n\n\
         | scenario | nodes | fixed seeds | subject |\n| --- | --- | --- | --- |\n",
        scenarios.len()
    );
    for Scenario { name, subject, nodes, seeds } in scenarios {
        writeln!(out, "| `{name}` | {nodes} | {seeds} | {subject} |")?;
    }
    Ok(out)
}

/// The comment at the top of a scenario's file, and its numbers.
fn scenario(name: String, text: &str) -> Scenario {
    let comment: Vec<&str> =
        text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    Scenario { name, subject: comment.join(" "), nodes: number("nodes"), seeds: number("seeds") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_its_comment_and_numbers() {
        let found = scenario("x".into(), "# One\n# two.\nseeds = 3\nnodes = 5\n# three\n");
        assert_eq!((found.subject.as_str(), found.nodes, found.seeds), ("One two.", 5, 3));
    }
}
