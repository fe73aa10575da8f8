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
use conf::encryption::{EncryptionOptions, KeyPlace, KeystoreFile, TrustPlace};
use conf::{Address, AtRestOptions, AuditLogger, Options};
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

/// Name of the key file of encryption at rest, where the configuration names none.
const KEY_FILE: &str = "data_encryption_keys";

/// Everything that the items look at.
pub(super) struct Facts {
    pub(super) options: Options,
    /// Owner of the work directory; `None`: there is none.
    pub(super) owner: Option<Owner>,
    pub(super) secrets: SecretFiles,
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

/// Files with secrets that are not known to be private.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SecretFiles {
    /// Users other than the owner and its group may read them.
    pub(super) open: Vec<String>,
    /// Their mode cannot be read; each with the reason.
    pub(super) unchecked: Vec<String>,
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
        let secrets = SecretFiles::check(secret_files(&options, config));
        Ok(Facts { owner, secrets, node, roles, default_password, options })
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

impl SecretFiles {
    fn check(paths: Vec<String>) -> SecretFiles {
        let mut found = SecretFiles::default();
        for path in paths {
            match std::fs::metadata(&path) {
                // In a directory that others may enter, the modes of its files decide.
                Ok(at) if at.mode() & if at.is_dir() { 0o005 } else { 0o004 } != 0 => {
                    found.open.push(path);
                }
                Ok(_) => {}
                Err(error) => found.unchecked.push(format!("{path} ({error})")),
            }
        }
        found
    }
}

/// Files that hold passwords, keys or hashes of tokens, and the directory of the audit log if it is not below the work
/// directory.
fn secret_files(options: &Options, config: Option<&str>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    // A configuration without secrets may be read.
    let config = config.map(str::to_owned).or_else(|| std::env::var("HELENUS_CONFIG").ok());
    files.extend(config.filter(|path| has_secret(path)));
    files.extend(options.api_tokens_file.clone());
    files.extend(options.commitlog_encryption_key_file.clone());
    files.extend(at_rest_keys(options));
    let (clients, api) = (&options.client_encryption_options, &options.api_encryption_options);
    for section in [clients, api] {
        files.extend(key_files(section, section.asks_for_encryption()));
    }
    let nodes = &options.server_encryption_options;
    let is_used = nodes.speaks_tls(KeystoreFile::Missing);
    files.extend(key_files(&nodes.tls, is_used));
    files.extend(nodes.outbound_key.as_ref().and_then(key_file));
    files.extend(nodes.outbound_password.file.clone());
    let audit = &options.audit_logging_options;
    if audit.enabled && audit.logger != AuditLogger::NoOp {
        files.extend(audit.audit_logs_dir.clone());
    }
    files.sort_unstable();
    files.dedup();
    files
}

/// Key files of encryption at rest.
fn at_rest_keys(options: &Options) -> Vec<String> {
    let directory = options.system_key_directory.trim_end_matches('/');
    let sections = [&options.user_info_encryption, &options.system_info_encryption];
    let path = |section: &AtRestOptions| {
        let name = section.secret_key_file.as_deref().unwrap_or(KEY_FILE);
        if name.starts_with('/') { name.to_owned() } else { format!("{directory}/{name}") }
    };
    sections.into_iter().filter(|section| section.is_set()).map(path).collect()
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

/// Files of one section. A key store that only its default names counts where connections are encrypted.
fn key_files(section: &EncryptionOptions, is_used: bool) -> Vec<String> {
    let place = section.key.clone().or_else(|| is_used.then(|| section.key_place()));
    let mut files: Vec<String> = place.as_ref().and_then(key_file).into_iter().collect();
    files.extend(section.key_password.file.clone());
    files.extend(section.trust_password.file.clone());
    // A trust store has no secrets.
    files.retain(|path| section.trust != Some(TrustPlace::Store(path.clone())));
    files
}

fn key_file(place: &KeyPlace) -> Option<String> {
    match place {
        KeyPlace::Store(path) => Some(path.clone()),
        KeyPlace::Files { keyfile, .. } => Some(keyfile.clone()),
        KeyPlace::Inline(_) => None,
    }
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

#[cfg(test)]
pub(super) mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Settings as a file has them.
    pub(in super::super) fn options(text: &str) -> Options {
        let file = Some(("test.yaml".to_owned(), text.to_owned()));
        conf::load(&conf::Sources { file, ..conf::Sources::default() }).unwrap().options
    }

    #[test]
    fn files_of_all_sections_are_checked() {
        let text = "\
            api_tokens_file: /s/tokens\n\
            commitlog_encryption_key_file: /s/commitlog\n\
            client_encryption_options: {enabled: true, keystore: /s/client, keystore_password_file: /s/client-pw}\n\
            api_encryption_options: {enabled: true, certificate: /s/cert, keyfile: /s/api}\n\
            server_encryption_options: {internode_encryption: all, keystore: /s/node, keystore_password_file: /s/node-pw, \
            outbound_keystore: /s/outbound, outbound_keystore_password_file: /s/outbound-pw, truststore: /s/trust}\n\
            user_info_encryption: {enabled: true, secret_key_file: data}\n\
            system_key_directory: /s/keys\n\
            audit_logging_options: {enabled: true, audit_logs_dir: /s/audit}\n";
        let expected = [
            "/s/api",
            "/s/audit",
            "/s/client",
            "/s/client-pw",
            "/s/commitlog",
            "/s/keys/data",
            "/s/node",
            "/s/node-pw",
            "/s/outbound",
            "/s/outbound-pw",
            "/s/tokens",
        ];
        assert_eq!(secret_files(&options(text), Some("/nosuch")), expected);
        // Defaults count where they are used.
        let text = "server_encryption_options: {internode_encryption: dc}\nsystem_info_encryption: {enabled: true}\n";
        let expected = ["conf/.keystore", "conf/system_keys/data_encryption_keys"];
        assert_eq!(secret_files(&options(text), Some("/nosuch")), expected);
        assert_eq!(secret_files(&Options::default(), Some("/nosuch")), Vec::<String>::new());
    }

    #[test]
    fn a_file_is_private_open_or_cannot_be_checked() {
        let directory =
            std::env::temp_dir().join(format!("helenus-doctor-test-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let made = |name: &str, mode| {
            let path = directory.join(name);
            std::fs::write(&path, "secret").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let (private, open) = (made("private", 0o640), made("open", 0o644));
        let missing = directory.join("missing").display().to_string();
        let found = SecretFiles::check(vec![private, open.clone(), missing.clone()]);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found.open, [open]);
        assert!(matches!(&found.unchecked[..], [one] if one.starts_with(&missing)), "{found:?}");
    }
}
