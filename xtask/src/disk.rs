//! Calls of the file system whose errors name the path.
//!
//! Owns: these calls. Never: the contents of files.

use std::fs::{File, Metadata, ReadDir};
use std::path::Path;

use anyhow::{Context, Result};

fn named<T>(result: std::io::Result<T>, what: &str, path: &Path) -> Result<T> {
    result.with_context(|| format!("cannot {what} {}", path.display()))
}

pub fn create_dir_all(path: impl AsRef<Path>) -> Result<()> {
    named(std::fs::create_dir_all(path.as_ref()), "create the directory", path.as_ref())
}

pub fn remove_dir_all(path: impl AsRef<Path>) -> Result<()> {
    named(std::fs::remove_dir_all(path.as_ref()), "remove the directory", path.as_ref())
}

pub fn read_dir(path: impl AsRef<Path>) -> Result<ReadDir> {
    named(std::fs::read_dir(path.as_ref()), "list", path.as_ref())
}

pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    named(std::fs::read(path.as_ref()), "read", path.as_ref())
}

pub fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    named(std::fs::read_to_string(path.as_ref()), "read", path.as_ref())
}

pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
    named(std::fs::write(path.as_ref(), bytes), "write", path.as_ref())
}

pub fn remove_file(path: impl AsRef<Path>) -> Result<()> {
    named(std::fs::remove_file(path.as_ref()), "remove", path.as_ref())
}

pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    std::fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

pub fn metadata(path: impl AsRef<Path>) -> Result<Metadata> {
    named(std::fs::metadata(path.as_ref()), "look at", path.as_ref())
}

pub fn open(path: impl AsRef<Path>) -> Result<File> {
    named(File::open(path.as_ref()), "open", path.as_ref())
}

pub fn create(path: impl AsRef<Path>) -> Result<File> {
    named(File::create(path.as_ref()), "create", path.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_path() {
        let path = std::env::temp_dir().join("helenus-no-such-directory/file");
        let shown = path.display().to_string();
        let errors = [
            read_to_string(&path).unwrap_err(),
            read_dir(&path).map(drop).unwrap_err(),
            create(&path).map(drop).unwrap_err(),
            copy(&path, &path).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains(&shown), "{error}");
        }
    }
}
