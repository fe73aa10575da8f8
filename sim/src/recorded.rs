//! The recorded cases of `conformance` against a whole simulated node, without a socket: the
//! runner's own client, whose byte stream runs through the world instead of TCP.
//!
//! Owns the stream and the settings of the nodes, which are those of the servers in the test
//! command. Never judges: differences are reported by [`conformance::suite`], as over the wire.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Error, Read, Result as IoResult, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use conf::{CommandLine, Options, Sources};
use conformance::client::Client;
use conformance::run::Mode;
use conformance::suite::{self, Suite, Verdict};
use node::{Node, Outcome};
use rt::Rt;
use rt::sim::{World, WorldOptions};
use rt::sync::queue;

/// Name of the node, its disk and its address.
const NODE: &str = "node";
/// Longest virtual time until the node lets a client in, and until it answers.
const START_MAX: Duration = Duration::from_secs(120);
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 16;

/// Settings of the server that the cases of `cases` want, over what every simulated node has.
pub const CASES: &[(&str, &str)] = &[
    ("row_cache_size", "16MiB"),
    ("maximum_timestamp_fail_threshold", "0s"),
    ("user_defined_functions_enabled", "true"),
    ("drop_compact_storage_enabled", "true"),
];

/// Those of `roles`, over its `guardrails.yaml`.
pub const ROLES: &[(&str, &str)] = &[
    ("authenticator", "PasswordAuthenticator"),
    ("authorizer", "CassandraAuthorizer"),
    ("network_authorizer", "CassandraNetworkAuthorizer"),
    ("dynamic_data_masking_enabled", "true"),
    ("credentials_validity", "600s"),
    (
        "cidr_authorizer",
        "{class_name: CassandraCIDRAuthorizer, parameters: {cidr_authorizer_mode: ENFORCE}}",
    ),
];

/// Next request of the client to its connection.
enum Wish {
    Send(Vec<u8>),
    Receive,
}

/// Bytes, or the end, that the connection has for the client.
#[derive(Default)]
struct Arrived {
    bytes: VecDeque<u8>,
    end: Option<String>,
}

/// A blocking byte stream to the node: reading runs the world until bytes arrive.
struct Stream {
    world: World,
    wishes: queue::Sender<Wish>,
    arrived: Rc<RefCell<Arrived>>,
}

impl Stream {
    fn open(world: &World, client: &str, address: SocketAddr) -> Stream {
        let (wishes, asked) = queue::bounded(64);
        let arrived: Rc<RefCell<Arrived>> = Rc::default();
        let out = arrived.clone();
        world.client(client, |rt| async move {
            let end = carry(&rt, address, asked, &out).await;
            out.borrow_mut().end = Some(end);
        });
        Stream { world: world.clone(), wishes, arrived }
    }

    fn wish(&self, wish: Wish) -> IoResult<()> {
        self.wishes.try_send(wish).map_err(|_| self.ended())
    }

    fn ended(&self) -> Error {
        let end = self.arrived.borrow().end.clone();
        Error::other(end.unwrap_or_else(|| "the connection is not served".to_owned()))
    }
}

/// Carries bytes both ways until the client is gone; why it ended.
async fn carry(
    rt: &Rt,
    address: SocketAddr,
    asked: queue::Receiver<Wish>,
    out: &RefCell<Arrived>,
) -> String {
    let conn = match rt.connect(address).await {
        Ok(conn) => conn,
        Err(error) => return error.to_string(),
    };
    while let Some(wish) = asked.recv().await {
        match wish {
            Wish::Send(bytes) => {
                if let Err(error) = conn.write_all(&bytes).await {
                    return error.to_string();
                }
            }
            Wish::Receive => {
                let mut bytes = Vec::new();
                match conn.read(&mut bytes, READ_BYTES).await {
                    Ok(0) => return "end of stream".to_owned(),
                    Ok(_) => out.borrow_mut().bytes.extend(bytes),
                    Err(error) => return error.to_string(),
                }
            }
        }
    }
    "the client is gone".to_owned()
}

impl conformance::client::Stream for Stream {}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.wish(Wish::Send(bytes.to_vec()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> IoResult<usize> {
        let is_empty = || self.arrived.borrow().bytes.is_empty();
        if is_empty() {
            self.wish(Wish::Receive)?;
            let there = || !is_empty() || self.arrived.borrow().end.is_some();
            let done = self.world.run_until(there, ANSWER_MAX);
            done.map_err(|stuck| Error::other(format!("no answer: {stuck}")))?;
        }
        if is_empty() {
            return Err(self.ended());
        }
        self.arrived.borrow_mut().bytes.read(into)
    }
}

/// The settings of a node: a file's, then these.
fn options(file: Option<&Path>, settings: &[(&str, &str)]) -> Result<Options, String> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok::<_, String>((path.display().to_string(), text))
    };
    let file = file.map(read).transpose()?;
    let start = CommandLine::default()
        .with("workdir", "/data")
        .with("smp", "2")
        .with("memory", "512MiB")
        .with("native_shard_aware_transport_port", "0");
    let command_line = settings.iter().fold(start, |line, (name, value)| line.with(name, value));
    let sources = Sources { file, environment: Vec::new(), command_line };
    let mut options = conf::load(&sources).map_err(|errors| errors.to_string())?.options;
    options.start_native_transport = true;
    options.rpc_address = conf::Address::Ip([0, 0, 0, 0].into());
    options.broadcast_rpc_address = Some(conf::Address::Ip([127, 0, 0, 1].into()));
    Ok(options)
}

/// The folder of the runner and its cases.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance")
}

/// Starts a node with these settings and runs `files` against it.
///
/// # Errors
/// The settings are wrong or the node does not start. Wrong answers are in the verdict.
pub fn run(
    files: Vec<PathBuf>,
    mode: Mode,
    file: Option<&Path>,
    settings: &[(&str, &str)],
) -> Result<Verdict, String> {
    let world = World::new(1, WorldOptions::default());
    let options = options(file, settings)?;
    let address = SocketAddr::new(world.ip(NODE), options.native_transport_port);
    let outcome = Arc::new(Outcome::default());
    let (spec, main) = Node::prepare(NODE, options, outcome.clone());
    let node = world.start_node(spec, main);

    let served = Rc::new(RefCell::new(false));
    let seen = served.clone();
    world.client("first", |rt| async move {
        while rt.connect(address).await.is_err() {
            rt.sleep(Duration::from_millis(20)).await;
        }
        *seen.borrow_mut() = true;
    });
    let started = world.run_until(|| *served.borrow(), START_MAX);
    started
        .map_err(|stuck| format!("the node does not start: {stuck}; {:?}", outcome.failure()))?;

    let suite = Suite { files, prefix: "ct".to_owned(), mode };
    let connections = RefCell::new(0_u32);
    let verdict = suite::run_all(&suite, &|version, user| {
        *connections.borrow_mut() += 1;
        let client = format!("client{}", connections.borrow());
        Client::start_as(Box::new(Stream::open(&world, &client, address)), version, user)
    });
    match world.is_alive(&node) {
        true => Ok(verdict),
        false => Err(format!("the node ended: {:?}", outcome.failure())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(name: &str) -> Vec<PathBuf> {
        suite::expand(&folder().join(name)).expect("the cases are there")
    }

    fn check(files: Vec<PathBuf>, file: Option<&Path>, settings: &[(&str, &str)], enough: usize) {
        let verdict =
            run(files, Mode::Check, file, settings).unwrap_or_else(|error| panic!("{error}"));
        assert!(verdict.is_good(), "{}", verdict.messages.join("\n"));
        assert!(verdict.checked >= enough, "only {} statements were run", verdict.checked);
    }

    #[test]
    fn statements_answer_as_recorded() {
        check(files("cases"), None, CASES, 7_000);
    }

    #[test]
    fn statements_of_roles_answer_as_recorded() {
        let settings = folder().join("roles/guardrails.yaml");
        check(files("roles"), Some(&settings), ROLES, 400);
    }
}
