//! The file of bearer tokens: read at the start, followed while the node runs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use admin_access::Tokens;
use admin_access::tokens::FILE_BYTES_MAX;
use rt::{Gate, Group, IoErrorKind, Rt};
use tls::TlsError;
use tls::reload::QUIET;

/// Interval at which the file is read to detect changes.
const POLL: Duration = Duration::from_secs(10);
/// Reads of a file that changes all the time.
const READS_MAX: u32 = 5;

/// A file that was read.
pub(super) struct TokenFile {
    path: String,
    pub(super) tokens: Tokens,
}

/// Reads the file.
///
/// # Errors
/// It cannot be read, or a line is malformed.
pub(super) async fn load(rt: &Rt, path: &str) -> Result<TokenFile, TlsError> {
    Ok(TokenFile { path: path.to_owned(), tokens: read(rt, path).await? })
}

/// The file in errors.
fn place(path: &str) -> String {
    format!("\"api_tokens_file\" {path}")
}

async fn read(rt: &Rt, path: &str) -> Result<Tokens, TlsError> {
    let failed = |problem: String, remedy: &str| TlsError {
        place: place(path),
        problem,
        remedy: remedy.to_owned(),
    };
    let bytes = rt.fs().read(path, FILE_BYTES_MAX).await.map_err(|error| {
        let remedy = match error.kind {
            IoErrorKind::NotFound => {
                "create the file with \"helenus token create\" or correct the path"
            }
            IoErrorKind::PermissionDenied => "let the user of the server read it",
            _ => "name a file of tokens",
        };
        failed(format!("cannot be read ({})", error.detail), remedy)
    })?;
    let text = core::str::from_utf8(&bytes)
        .map_err(|_| failed("is not a text".to_owned(), "name a file of tokens"))?;
    Tokens::parse(text).map_err(|error| {
        failed(error.to_string(), "correct the line; \"helenus token create\" writes such lines")
    })
}

/// Replaces the tokens of the server.
type PutToUse = Box<dyn Fn(Tokens)>;

/// Follows the file.
pub(crate) struct TokenFollower {
    rt: Rt,
    path: String,
    put_to_use: PutToUse,
    /// The tokens in use, or the error of the latest read.
    latest: RefCell<Result<Tokens, TlsError>>,
}

impl TokenFollower {
    /// Follows the file until the gate closes.
    pub(super) fn begin(
        rt: &Rt,
        gate: &Gate,
        file: TokenFile,
        put_to_use: PutToUse,
    ) -> Rc<TokenFollower> {
        let TokenFile { path, tokens } = file;
        let latest = RefCell::new(Ok(tokens));
        let follower = Rc::new(TokenFollower { rt: rt.clone(), path, put_to_use, latest });
        let following = follower.clone();
        // The gate is closed: the node stops.
        let _ = gate.spawn(rt, Group::Admin, "api-tokens", async move { following.follow().await });
        follower
    }

    async fn follow(&self) {
        loop {
            let stopping = self.rt.stop_requested();
            if self.rt.timeout(self.rt.now() + POLL, stopping).await.is_ok() {
                return;
            }
            // The error was logged.
            let _ = self.reload().await;
        }
    }

    /// Reads the file until two reads at an interval of [`QUIET`] are equal: one that is being written may lack tokens,
    /// or have some that were withdrawn. A file that did not change is read once.
    async fn read_stable(&self) -> Result<Tokens, TlsError> {
        let mut earlier = read(&self.rt, &self.path).await;
        if *self.latest.borrow() == earlier {
            return earlier;
        }
        for _ in 1..READS_MAX {
            let stopping = self.rt.stop_requested();
            if self.rt.timeout(self.rt.now() + QUIET, stopping).await.is_ok() {
                break;
            }
            let later = read(&self.rt, &self.path).await;
            if later == earlier {
                return later;
            }
            earlier = later;
        }
        Err(TlsError {
            place: place(&self.path),
            problem: "is being written".to_owned(),
            remedy: "repeat the command when the file is complete".to_owned(),
        })
    }

    /// Reads the file; the earlier tokens stay in use when that fails.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) async fn reload(&self) -> Result<(), TlsError> {
        let read = self.read_stable().await;
        if *self.latest.borrow() != read {
            match &read {
                Ok(tokens) => {
                    tracing::info!(tokens = tokens.len(), "reloaded the tokens of the API");
                    (self.put_to_use)(tokens.clone());
                }
                Err(error) => {
                    tracing::error!(%error, "cannot reload the tokens of the API; the earlier ones stay in use");
                }
            }
            *self.latest.borrow_mut() = read.clone();
        }
        read.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use admin_access::{AccessScope, Token};
    use rt::sim::{World, WorldOptions};

    use super::*;

    fn line(name: &str, text: &str) -> String {
        format!("{}\n", Token::new(name, AccessScope::ReadOnly, text).unwrap().line())
    }

    #[test]
    fn changed_tokens_are_put_to_use_and_a_damaged_file_keeps_the_earlier_ones() {
        let world = World::new(7, WorldOptions::default());
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        world.client("n1", move |rt| async move {
            let write = async |text: String| {
                rt.fs().create_dir_all("/api").await.unwrap();
                rt.fs().write_atomic("/api/tokens", text.into_bytes()).await.unwrap();
            };
            let missing = load(&rt, "/api/tokens").await.err().unwrap().to_string();
            assert!(
                missing.starts_with("\"api_tokens_file\" /api/tokens: cannot be read ("),
                "{missing}"
            );
            assert!(
                missing.ends_with(
                    "; create the file with \"helenus token create\" or correct the path"
                ),
                "{missing}"
            );
            write("a read-only secret\n".to_owned()).await;
            let wrong = load(&rt, "/api/tokens").await.err().unwrap().to_string();
            assert!(wrong.contains("line 1: expects sha256:"), "{wrong}");
            write(line("a", "one")).await;
            let file = load(&rt, "/api/tokens").await.unwrap();
            assert!(file.tokens.find("one").is_some());
            let used = Rc::new(RefCell::new(Vec::new()));
            let noted = used.clone();
            let gate = rt.gate("tokens");
            let put_to_use = Box::new(move |tokens| noted.borrow_mut().push(tokens));
            let follower = TokenFollower::begin(&rt, &gate, file, put_to_use);
            rt.sleep(POLL * 3).await;
            assert!(used.borrow().is_empty());
            write(line("b", "two")).await;
            rt.sleep(POLL * 2).await;
            assert!(used.borrow().last().unwrap().find("two").is_some());
            assert!(used.borrow().last().unwrap().find("one").is_none());
            write("b operator sha256:12\n".to_owned()).await;
            rt.sleep(POLL * 2).await;
            assert_eq!(used.borrow().len(), 1);
            assert!(follower.reload().await.unwrap_err().to_string().contains("line 1"));
            // The same file as before the damage is put to use again.
            write(line("b", "two")).await;
            follower.reload().await.unwrap();
            assert_eq!(used.borrow().len(), 2);
            seen.set(true);
        });
        world.run_until(|| done.get(), Duration::from_secs(3600)).unwrap();
    }

    #[test]
    fn a_file_that_is_being_written_is_used_when_it_is_complete() {
        let world = World::new(7, WorldOptions::default());
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        world.client("n1", move |rt| async move {
            let write = async |text: String| {
                rt.fs().create_dir_all("/api").await.unwrap();
                rt.fs().write_atomic("/api/tokens", text.into_bytes()).await.unwrap();
            };
            write(line("a", "one")).await;
            let file = load(&rt, "/api/tokens").await.unwrap();
            let used = Rc::new(RefCell::new(Vec::new()));
            let noted = used.clone();
            let gate = rt.gate("tokens");
            let put_to_use = Box::new(move |tokens| noted.borrow_mut().push(tokens));
            let _follower = TokenFollower::begin(&rt, &gate, file, put_to_use);
            // The half is there at the first poll, the rest half a second after it.
            rt.sleep(POLL - QUIET / 2).await;
            write(line("b", "two")).await;
            rt.sleep(QUIET).await;
            assert!(used.borrow().is_empty());
            write(format!("{}{}", line("b", "two"), line("c", "three"))).await;
            rt.sleep(POLL).await;
            let used = used.borrow();
            assert_eq!(used.len(), 1);
            assert!(used[0].find("two").is_some() && used[0].find("three").is_some());
            seen.set(true);
        });
        world.run_until(|| done.get(), Duration::from_secs(3600)).unwrap();
    }
}
