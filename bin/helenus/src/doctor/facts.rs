//! Facts about a node: its configuration, its files, and the node itself where it runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use admin::model::{ClusterReport, LogLevelReport, NodeReport};
use admin::operation::CLUSTER;
use admin::verbs::{HttpError, NodeApi};
use blocking_client::api::ApiAccess;
use blocking_client::{CqlConnection, CqlError, Socket};
use clap::Args;
use conf::encryption::{EncryptionOptions, KeyPlace, TrustPlace};
use conf::{Address, Options};
use cql_client::{Login, LoginError, Received};
use cql_wire::request::RequestOptions;
use cql_wire::{Consistency, ProtocolVersion, QueryParameters, Request, ResponseBody};
use tool_io::api_flags::ApiFlags;

use crate::nodetool::api_of;
use crate::server;

/// How long the node may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Everything that the items look at.
pub(super) struct Facts {
    pub(super) options: Options,
    /// Owner of the work directory; `None`: there is none.
    pub(super) owner: Option<Owner>,
    /// Files with secrets that others may read.
    pub(super) open_files: Vec<String>,
    /// Report of the node, or the reason why there is none.
    pub(super) node: Result<NodeFacts, String>,
    pub(super) roles: Result<Vec<Role>, String>,
    pub(super) default_password: DefaultPassword,
}

/// The API of the node, where it is not that of the configuration.
#[derive(Clone, Debug, Args)]
pub struct ApiPlace {
    /// Address of the node's API, if it is not that of the configuration
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Port of the node's API, if it is not that of the configuration
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

/// Owner of the work directory.
pub(super) struct Owner {
    pub(super) uid: u32,
    /// Users other than the owner and its group may read or write it.
    pub(super) is_open: bool,
}

/// Reports of a running node.
pub(super) struct NodeFacts {
    pub(super) version: String,
    /// Addresses of nodes whose clock is not that of most others.
    pub(super) wrong_clocks: Vec<String>,
    /// Level of the whole log.
    pub(super) log_level: String,
}

/// A role of the database.
pub(super) struct Role {
    pub(super) name: String,
    pub(super) is_superuser: bool,
    pub(super) can_login: bool,
}

/// Outcome of a login as cassandra/cassandra.
pub(super) enum DefaultPassword {
    Works,
    Refused,
    Untried(String),
}

impl Facts {
    /// Reads the configuration, then asks the node if it runs.
    ///
    /// # Errors
    /// The configuration or the login cannot be read; a sentence.
    pub(super) fn gather(
        config: Option<&str>,
        api: &ApiPlace,
        login: &ApiFlags,
    ) -> Result<Facts, String> {
        let options = server::configured(config.map(str::to_owned))?;
        let access = login.open()?;
        let host = api.host.clone().unwrap_or_else(|| reachable(&options.api_address));
        let port = api.port.unwrap_or(options.api_port);
        let node = ask_node(&api_of(&host, port, &access));
        let cql = Cql { options: &options, access: &access };
        let roles = cql.roles(login.user());
        let default_password = cql.default_password();
        let work_dir = std::fs::metadata(&options.workdir).ok();
        let owner =
            work_dir.map(|found| Owner { uid: found.uid(), is_open: found.mode() & 0o007 != 0 });
        let open_files = secret_files(&options, config).into_iter().filter(is_open);
        let open_files = open_files.collect();
        Ok(Facts { owner, open_files, node, roles, default_password, options })
    }
}

/// The address at which a server on this address is reached from this machine.
fn reachable(address: &Address) -> String {
    match address.ip() {
        Some(IpAddr::V4(ip)) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        Some(IpAddr::V6(ip)) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.to_string(),
        _ => address.to_string(),
    }
}

fn is_open(path: &String) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.mode() & 0o004 != 0)
}

/// Files that hold passwords, keys or hashes of tokens.
fn secret_files(options: &Options, config: Option<&str>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    // A configuration without secrets may be read.
    let config = config.map(str::to_owned).or_else(|| std::env::var("HELENUS_CONFIG").ok());
    files.extend(config.filter(|path| has_secret(path)));
    files.extend(options.api_tokens_file.clone());
    files.extend(options.commitlog_encryption_key_file.clone());
    for section in [&options.client_encryption_options, &options.api_encryption_options] {
        files.extend(key_files(section));
    }
    files.sort_unstable();
    files.dedup();
    files
}

fn has_secret(path: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| {
        let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_once(':')).any(|(key, value)| {
            let is_secret = key.contains("password") || key.contains("private_key");
            is_secret && !key.ends_with("_file") && !value.trim().is_empty()
        })
    })
}

fn key_files(section: &EncryptionOptions) -> Vec<String> {
    let mut files: Vec<String> = match &section.key {
        Some(KeyPlace::Store(path)) => vec![path.clone()],
        Some(KeyPlace::Files { keyfile, .. }) => vec![keyfile.clone()],
        Some(KeyPlace::Inline(_)) | None => Vec::new(),
    };
    files.extend(section.key_password.file.clone());
    files.extend(section.trust_password.file.clone());
    // A trust store has no secrets.
    files.retain(|path| section.trust != Some(TrustPlace::Store(path.clone())));
    files
}

fn ask_node(api: &NodeApi) -> Result<NodeFacts, String> {
    let failed = |error: HttpError| match error {
        HttpError::Connect(error) => format!("no node answers at {api:?}: {error}"),
        HttpError::Refused(_, words) | HttpError::Strange(words) => format!("{api:?}: {words}"),
    };
    let node: NodeReport = api.get("/api/v1/node").map_err(failed)?;
    let cluster: ClusterReport = api.get(CLUSTER).map_err(failed)?;
    let levels: Vec<LogLevelReport> = api.get("/api/v1/log").map_err(failed)?;
    let is_root = |level: &&LogLevelReport| matches!(level.logger.as_str(), "" | "ROOT");
    let peers = cluster.gossip.map(|gossip| gossip.peers).unwrap_or_default();
    let wrong = peers.into_iter().filter(|peer| peer.wrong_clock).map(|peer| {
        let member = node.nodes.iter().find(|member| member.host_id == peer.host_id);
        member.map_or(peer.host_id, |member| member.address.clone())
    });
    Ok(NodeFacts {
        wrong_clocks: wrong.collect(),
        log_level: levels.iter().find(is_root).map_or("INFO".to_owned(), |l| l.level.clone()),
        version: node.server_version,
    })
}

/// CQL of the node.
struct Cql<'a> {
    options: &'a Options,
    access: &'a ApiAccess,
}

impl Cql<'_> {
    fn connect(&self) -> Result<CqlConnection<Socket>, String> {
        let host = reachable(&self.options.rpc_address);
        let ip: IpAddr = host.parse().map_err(|_| format!("{host} is not an address"))?;
        let address = SocketAddr::new(ip, self.options.native_transport_port);
        let failed = |error: std::io::Error| format!("no CQL at {address}: {error}");
        let socket = TcpStream::connect_timeout(&address, ANSWER_MAX).map_err(failed)?;
        socket.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        let encryption = &self.options.client_encryption_options;
        let only_tls = encryption.enabled && encryption.optional != Some(true);
        let socket = match (self.access.tls(), only_tls) {
            (Some(peer), _) if encryption.asks_for_encryption() => {
                let host = host.as_str();
                Socket::with_tls_to(socket, address, host, peer.clone())
                    .map_err(|e| e.to_string())?
            }
            (_, true) => {
                return Err("CQL is encrypted: give --ssl and --ssl-ca".to_owned());
            }
            _ => Socket::Plain(socket),
        };
        Ok(CqlConnection::new(socket, ProtocolVersion::V4, ANSWER_BYTES_MAX))
    }

    fn default_password(&self) -> DefaultPassword {
        let mut connection = match self.connect() {
            Ok(connection) => connection,
            Err(why) => return DefaultPassword::Untried(why),
        };
        let user = Some(("cassandra".to_owned(), "cassandra".to_owned()));
        match connection.login(Login { user, ..Login::plain() }, Some(ANSWER_MAX)) {
            Ok(()) => DefaultPassword::Works,
            Err(CqlError::Login(LoginError::WrongCredentials(_))) => DefaultPassword::Refused,
            Err(error) => DefaultPassword::Untried(error.to_string()),
        }
    }

    fn roles(&self, user: Option<(String, String)>) -> Result<Vec<Role>, String> {
        if user.is_none() {
            return Err("roles are read with a login".to_owned());
        }
        let mut connection = self.connect()?;
        let login = Login { user, ..Login::plain() };
        connection.login(login, Some(ANSWER_MAX)).map_err(|error| error.to_string())?;
        let query = "SELECT role, is_superuser, can_login FROM system_auth.roles";
        let parameters = QueryParameters::new(Consistency::One);
        let request = Request::Query { query, parameters };
        let read = |got: Received<'_>| match got.response.body {
            ResponseBody::Rows(rows) => {
                let values: Vec<Option<&[u8]>> = rows.values().collect();
                let is_true = |value: &Option<&[u8]>| *value == Some(&[1][..]);
                let of_row = |row: &[Option<&[u8]>]| {
                    let [Some(name), superuser, login] = row else { return None };
                    let name = String::from_utf8_lossy(name).into_owned();
                    Some(Role { name, is_superuser: is_true(superuser), can_login: is_true(login) })
                };
                Ok(values.chunks(3).filter_map(of_row).collect())
            }
            ResponseBody::Error { message, .. } => Err(message.to_owned()),
            _ => Err("the answer has no rows".to_owned()),
        };
        let options = RequestOptions::default();
        let read = connection.request(&request, &options, Some(ANSWER_MAX), read);
        read.map_err(|error| error.to_string())?
    }
}
