//! `helenus token`: bearer tokens for the API.
//!
//! The file of a node holds hashes only; the token itself is printed once.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use admin_access::tokens::{TOKEN_BYTES, token_text};
use admin_access::{AccessScope, Token, Tokens};
use clap::Subcommand;

use crate::exit;

/// Commands about tokens.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a token: print it, and append its hash to the file that "api_tokens_file" of the nodes names
    Create {
        /// Name of its holder, for logs
        #[arg(long, value_name = "NAME")]
        name: String,
        /// Scope: read-only or operator
        #[arg(long, value_name = "SCOPE", value_parser = ["read-only", "operator"])]
        scope: String,
        /// The file; it is created if it does not exist
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Print the names and scopes of a file
    List {
        /// The file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
}

/// Runs a command; the exit code.
pub fn main(command: &Command) -> u8 {
    let done = match command {
        Command::Create { name, scope, file } => create(name, scope, file),
        Command::List { file } => list(file),
    };
    match done {
        Ok(text) => {
            say!("{text}");
            exit::OK
        }
        Err(text) => {
            complain_line!("helenus token: {text}");
            exit::FAILED
        }
    }
}

fn create(name: &str, scope: &str, file: &Path) -> Result<String, String> {
    let scope = AccessScope::from_word(scope).ok_or("the scope is read-only or operator")?;
    let text = token_text(&random()?);
    let token = Token::new(name, scope, &text)?;
    let existing = read(file)?.unwrap_or_default();
    refuse_open(file)?;
    let separator = if existing.is_empty() || existing.ends_with('\n') { "" } else { "\n" };
    let added = format!("{separator}{}\n", token.line());
    // The whole file as it will be, before it is changed.
    parse(file, &format!("{existing}{added}"))?;
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", file.display());
    let mut options = OpenOptions::new();
    let mut opened = options.append(true).create(true).mode(0o600).open(file).map_err(failed)?;
    opened.write_all(added.as_bytes()).and_then(|()| opened.sync_all()).map_err(failed)?;
    Ok(format!("{text}\n"))
}

/// Refuses a file that users other than its owner and its group may read: it was made with another tool.
fn refuse_open(file: &Path) -> Result<(), String> {
    let mode = match std::fs::metadata(file) {
        Ok(found) => found.mode(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
    };
    match mode & 0o007 {
        0 => Ok(()),
        _ => Err(format!(
            "{0} may be read or written by other users (mode {1:o}): chmod o-rwx {0}, then repeat the command",
            file.display(),
            mode & 0o777
        )),
    }
}

fn list(file: &Path) -> Result<String, String> {
    let text = read(file)?.ok_or_else(|| format!("{} does not exist", file.display()))?;
    let tokens = parse(file, &text)?;
    Ok(tokens.iter().map(|token| format!("{} {}\n", token.name, token.scope)).collect())
}

/// Content of the file; `None`: there is none.
fn read(file: &Path) -> Result<Option<String>, String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

fn parse(file: &Path, text: &str) -> Result<Tokens, String> {
    Tokens::parse(text).map_err(|error| format!("{}: {error}", file.display()))
}

fn random() -> Result<[u8; TOKEN_BYTES], String> {
    let mut bytes = [0; TOKEN_BYTES];
    let mut source = std::fs::File::open("/dev/urandom").map_err(|error| error.to_string())?;
    source.read_exact(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_printed_once_and_its_hash_is_appended() {
        let directory =
            std::env::temp_dir().join(format!("helenus-token-test-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("tokens");
        std::fs::write(&file, "# ours").unwrap();
        // A file that others may read is left as it is.
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let refused = create("prometheus", "read-only", &file).unwrap_err();
        let remedy = format!("(mode 644): chmod o-rwx {}, then repeat the command", file.display());
        assert!(refused.ends_with(&remedy), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# ours");
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let token = create("prometheus", "read-only", &file).unwrap();
        let other = create("deploy", "operator", &file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# ours\nprometheus read-only sha256:"), "{text}");
        assert!(!text.contains(token.trim()) && token != other);
        let tokens = Tokens::parse(&text).unwrap();
        assert_eq!(tokens.find(token.trim()).unwrap().name, "prometheus");
        assert_eq!(tokens.find(other.trim()).unwrap().scope, AccessScope::Operator);
        // A name that is taken, and one that is none, change nothing.
        for name in ["deploy", "a b"] {
            assert!(create(name, "operator", &file).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert_eq!(list(&file).unwrap(), "prometheus read-only\ndeploy operator\n");
        // A new file is private.
        let new = directory.join("new");
        create("prometheus", "read-only", &new).unwrap();
        assert_eq!(std::fs::metadata(&new).unwrap().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
