//! The structure of the workspace in numbers, and their limits.
//!
//! Owns `docs/dev/structure.md` (the table) and `xtask/structure-exceptions.toml` (numbers above a
//! limit when the limit was set). A number may fall, never rise: `cargo xtask tidy` fails for
//! everything above its limit and above its line in the exceptions.
//!
//! Reading order: [`measure`] reads the sources, [`limits`] judges its findings, this file prints.

mod limits;
mod measure;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::layers::Member;
use limits::Exceptions;
use measure::Crate;

/// Path of the table.
const PAGE: &str = "docs/dev/structure.md";
/// Exceptions from the limits, with their reasons.
const EXCEPTIONS: &str = "xtask/structure-exceptions.toml";

/// Returns everything above its limit and its exception, a sentence each.
pub fn violations(root: &Path, members: &[Member]) -> Result<Vec<String>> {
    let exceptions = read_exceptions(root)?;
    Ok(exceptions.violations(&limits::findings(&measure_all(root, members)?)))
}

/// The task with the measured numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Write the table.
    Report,
    /// Write the exceptions too, with the measured numbers.
    Accept,
}

/// Writes the table, and the exceptions if the task includes them.
///
/// A line keeps its reason; new lines get none.
pub fn write(root: &Path, members: &[Member], task: Task) -> Result<()> {
    let accept = task == Task::Accept;
    let crates = measure_all(root, members)?;
    let findings = limits::findings(&crates);
    let exceptions = read_exceptions(root)?;
    let exceptions = if accept { exceptions.accept(&findings) } else { exceptions };
    let put = |path: &str, text: String| {
        fs::write(root.join(path), text).with_context(|| format!("cannot write {path}"))
    };
    if accept {
        put(EXCEPTIONS, exceptions.print())?;
    }
    put(PAGE, page(&crates, &exceptions))?;
    print!("{}", table(&crates));
    Ok(())
}

fn read_exceptions(root: &Path) -> Result<Exceptions> {
    let text = fs::read_to_string(root.join(EXCEPTIONS))
        .with_context(|| format!("cannot read {EXCEPTIONS}"))?;
    Exceptions::parse(&text).with_context(|| format!("cannot read {EXCEPTIONS}"))
}

fn measure_all(root: &Path, members: &[Member]) -> Result<Vec<Crate>> {
    let mut crates = members
        .iter()
        .map(|member| measure::measure(root, &member.directory))
        .collect::<Result<Vec<_>>>()?;
    crates.sort_by(|a, b| b.lines.cmp(&a.lines).then_with(|| a.path.cmp(&b.path)));
    Ok(crates)
}

fn table(crates: &[Crate]) -> String {
    let mut out = String::from(
        "| crate | lines | modules | largest cycle | most methods | most `pub` methods | `impl` in most files | \
         functions over 70 lines | tuple parameters | `bool` parameters of `pub` functions |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let most = |found: Option<(&String, usize)>| {
        found.map_or_else(|| "-".to_owned(), |(name, count)| format!("{name} {count}"))
    };
    for c in crates {
        let methods = c.types.iter().map(|(name, t)| (name, t.methods)).max_by_key(|m| m.1);
        let public = c.types.iter().map(|(name, t)| (name, t.public_methods)).max_by_key(|m| m.1);
        let files = c.types.iter().map(|(name, t)| (name, t.files.len())).max_by_key(|m| m.1);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            c.path,
            c.lines,
            c.modules,
            c.cycle.len().max(1),
            most(methods),
            most(public),
            most(files),
            c.functions.iter().filter(|f| f.lines > limits::FUNCTION_LINES).count(),
            c.functions.iter().map(|f| f.tuple_parameters).sum::<usize>(),
            c.functions.iter().map(|f| f.bool_parameters).sum::<usize>(),
        );
    }
    out
}

fn page(crates: &[Crate], exceptions: &Exceptions) -> String {
    let mut out = String::from(
        "# Structure in numbers\n\nWritten by `cargo xtask structure`; tests are left out. A module is a file or \
         folder directly below a crate's `src`; a cycle is a set of modules each of which imports every other, \
         through others too.\n\n",
    );
    out.push_str(&table(crates));
    out.push_str("\n## Limits\n\n`cargo xtask tidy` fails when a number is above its limit, unless \
                  `xtask/structure-exceptions.toml` has a line for it; above that line it fails too. `cargo xtask structure \
                  --accept` writes the lines anew, so lower numbers become the new bound.\n\n\
                  | rule | limit | exceptions |\n| --- | --- | --- |\n");
    for rule in limits::RULES {
        let _ =
            writeln!(out, "| {} | {} | {} |", rule.what, rule.limit, exceptions.count(rule.name));
    }
    out.push_str("\n## Cycles above the limit\n\n");
    for c in crates.iter().filter(|c| c.cycle.len() > limits::CYCLE) {
        let _ = writeln!(out, "- {}: {}", c.path, c.cycle.join(", "));
    }
    out
}
