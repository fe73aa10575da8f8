//! Directories that survive a power cut.

use rt::Fs;
use stdx::{IoError, IoErrorKind};

/// Makes a directory and its missing parents, and syncs the entry of each in its parent: the name
/// of a synced file is lost in a power cut when the name of its directory is.
///
/// # Errors
/// A directory cannot be made or synced. Parents that this process may not open are passed over:
/// they were there before.
pub async fn create_dir_durably(fs: &Fs, path: &str) -> Result<(), IoError> {
    fs.create_dir_all(path).await?;
    let mut path = path.trim_end_matches('/');
    loop {
        let parent = match path.rsplit_once('/') {
            Some(("", _)) => "/",
            Some((parent, _)) => parent,
            None => ".",
        };
        match fs.sync_dir(parent).await {
            Err(error) if error.kind != IoErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
        if parent == "." || parent == "/" {
            return Ok(());
        }
        path = parent;
    }
}
