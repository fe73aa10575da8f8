//! The documents as a site: `cargo xtask docs`.
//!
//! Owns: the source tree of mdbook below `target/book`, copied from the documents, because mdbook reads no
//! page outside of its source directory. Never: installs mdbook.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::disk;
use crate::documents::{SUMMARY, normal};
use crate::files;

const MISSING: &str = "mdbook is not installed. This command installs nothing; `cargo install mdbook` does. \
                       MDBOOK may name the program";

/// Builds the site and prints where it is.
///
/// # Errors
/// mdbook is missing or fails, a file cannot be copied.
pub fn build(root: &Path) -> Result<bool> {
    let home = root.join("target/book");
    if home.exists() {
        disk::remove_dir_all(&home)?;
    }
    let source = home.join("src");
    for page in pages(root)? {
        copy(root, &source, &page)?;
    }
    let summary = disk::read_to_string(root.join(SUMMARY))?;
    disk::write(source.join("SUMMARY.md"), from_root(&summary))?;
    disk::write(home.join("book.toml"), disk::read_to_string(root.join("docs/book.toml"))?)?;
    let program = std::env::var_os("MDBOOK").unwrap_or_else(|| "mdbook".into());
    let status = match Command::new(program).arg("build").current_dir(&home).status() {
        Ok(status) => status,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(MISSING),
        Err(error) => return Err(error).context("cannot run mdbook"),
    };
    println!("{}", home.join("html/index.html").display());
    Ok(status.success())
}

/// All files of the site: the pages that the summary lists, and the pictures.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let summary = disk::read_to_string(root.join(SUMMARY))?;
    let targets = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut found: Vec<PathBuf> =
        targets.map(|target| normal(&root.join("docs").join(target))).collect();
    found.extend(files::below(&root.join("docs"), &["svg"])?);
    Ok(found)
}

/// Copies one file to the same place below `source`.
fn copy(root: &Path, source: &Path, page: &Path) -> Result<()> {
    let place = source.join(page.strip_prefix(root)?);
    disk::create_dir_all(place.parent().unwrap_or(source))?;
    disk::write(&place, disk::read_to_string(page)?)
}

/// The summary with links that start at the root of the repository.
fn from_root(summary: &str) -> String {
    let mut parts = summary.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("](");
        match part.strip_prefix("../") {
            Some(rest) => out.push_str(rest),
            None => {
                out.push_str("docs/");
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_summary_start_at_the_root() {
        let summary = "- [a](../README.md)\n- [b](user/b.md)\n";
        assert_eq!(from_root(summary), "- [a](README.md)\n- [b](docs/user/b.md)\n");
    }
}
