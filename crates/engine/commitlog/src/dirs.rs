//! Directories that survive a power cut.

use rt::Fs;
use stdx::IoError;

/// See [`Fs::create_dir_durably`].
///
/// # Errors
/// As there.
pub async fn create_dir_durably(fs: &Fs, path: &str) -> Result<(), IoError> {
    fs.create_dir_durably(path).await
}
