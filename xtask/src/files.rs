//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Directories with content that was built, installed or fetched.
const SKIPPED: &[&str] =
    &["target", "node_modules", "helenus-data", "__pycache__", "venv", "vendor"];

/// Returns the path as messages show it: relative to the root of the repository.
pub fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// Returns the repository's own files with these extensions.
///
/// # Errors
/// An entry of a directory cannot be read.
pub fn of_repository(root: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    below(root, extensions)
}

/// Returns the files below `directory`, sorted; none when it does not exist. Hidden ones are skipped.
///
/// # Errors
/// An entry of a directory cannot be read.
pub fn below(directory: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') || SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file()
                && path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
