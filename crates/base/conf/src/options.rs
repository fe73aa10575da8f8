//! The table of settings: name, type, default, range, reload, help.
//!
//! Owns: [`Options`] and the description of each of its fields. Never: sources of values. A setting without an effect
//! so far is `not_yet` (a warning names it when it is set). A setting that is not needed here is `not_needed` (a
//! warning names it when it is not the default). A setting without an effect so far that protects data or access is
//! `protects` (a value other than the default stops the start). Implementing a setting includes changing that one
//! word to `supported`.

use core::net::IpAddr;
use core::time::Duration;

use stdx::Token;

use crate::at_rest::AtRestOptions;
use crate::audit::{AuditOptions, NameList, ScyllaAudit, ScyllaCategories};
use crate::certificate_login::RoleQueries;
use crate::commitlog::{CommitLogCompression, RestorePoint};
use crate::encryption::EncryptionOptions;
use crate::key_hosts::{KmsHosts, VaultHosts};
use crate::parameterized::ParameterizedClass;
use crate::query_log::QueryLogOptions;
use crate::server_encryption::{InternodeAuthenticator, ServerEncryptionOptions};
use crate::value::{
    Address, ApiLogin, Authenticator, Authorizer, CertificateValidator, CidrAuthorizer, CidrMode,
    CommitFailurePolicy, CommitLogSync, DataRate, DataSize, DiskFailurePolicy, FlushCompression,
    InternodeCompression, LogFormat, LogLevel, MemorySize, NetworkAuthorizer, Number, Partitioner,
    Range, Refusal, Snitch, SstableFormat, SstableVersion, StorageCompatibilityMode, Value,
};
use crate::yaml::Node;

/// Support of a setting by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has an effect.
    Supported,
    /// It is known and has no effect; a warning names it when it is set.
    NotYet,
    /// It is known and not needed: the server has nothing that it could bound or speed up. A
    /// warning names it when it is not at its default.
    NotNeeded,
    /// It asks for unsupported protection; any value but the default stops the start.
    Protects,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Name in the file; in the environment `HELENUS_` and the name in capitals.
    pub name: &'static str,
    /// Heading in the reference.
    pub section: &'static str,
    /// Help text, one paragraph.
    pub help: String,
    /// Support of the setting by the server.
    pub status: Status,
    /// True if SIGHUP applies a change; tidy compares it with `node::reload` and the guardrails.
    pub hot: bool,
    /// Description of a valid value.
    pub form: String,
    /// Default as written in a file, empty when nothing is set.
    pub default: String,
    /// Smallest and largest value as written in a file.
    pub range: Option<(String, String)>,
}

/// A rejected value, with the expected form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unaccepted {
    /// The expected form, to follow "expects".
    pub expected: String,
}

macro_rules! status {
    (supported) => {
        Status::Supported
    };
    (not_yet) => {
        Status::NotYet
    };
    (not_needed) => {
        Status::NotNeeded
    };
    (protects) => {
        Status::Protects
    };
}
macro_rules! hot {
    (cold) => {
        false
    };
    (hot) => {
        true
    };
}
macro_rules! range {
    () => {
        None
    };
    ($min:literal $max:expr) => {
        Some(Range { min: $min, max: $max })
    };
}

macro_rules! settings {
    ($( $section:literal { $(
        $(#[doc = $help:literal])+
        $status:ident $hot:ident $name:ident : $ty:ty = $default:expr $(, $min:literal to $max:expr)? ;
    )+ } )+) => {
        /// Every setting with its type, after all layers were applied.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Options {
            $($( $(#[doc = $help])+ pub $name: $ty, )+)+
            /// No setting: directory of the file that was read; the snitch and archiving may have theirs beside it.
            pub configuration_directory: Option<String>,
        }

        impl Default for Options {
            fn default() -> Self {
                Options { $($( $name: $default, )+)+ configuration_directory: None }
            }
        }

        impl Options {
            /// Sets one field from a node that is not null; `None` when there is no such field.
            pub(crate) fn set(&mut self, name: &str, node: &Node) -> Option<Result<(), Unaccepted>> {
                match name {
                    $($( stringify!($name) => {
                        let range: Option<Range> = range!($($min $max)?);
                        Some(match <$ty as Value>::read(node, range.unwrap_or(Range::ALL)) {
                            Ok(value) => {
                                self.$name = value;
                                Ok(())
                            }
                            Err(refusal) => Err(unaccepted::<$ty>(refusal, range)),
                        })
                    } )+)+
                    _ => None,
                }
            }

            /// One field as it is written in a file; `None` when there is no such field.
            pub fn render(&self, name: &str) -> Option<String> {
                match name {
                    $($( stringify!($name) => Some(Value::render(&self.$name)), )+)+
                    _ => None,
                }
            }
        }

        /// Names and whether the server acts on them, in the order of the reference.
        pub const NAMES: &[(&str, Status)] =
            &[$($( (stringify!($name), status!($status)) ),+),+];

        /// The table with its texts, in the order of the reference.
        pub fn settings() -> Vec<Setting> {
            let defaults = Options::default();
            vec![$($( {
                let range: Option<Range> = range!($($min $max)?);
                Setting {
                    name: stringify!($name),
                    section: $section,
                    help: concat!($($help),+).trim().to_owned(),
                    status: status!($status),
                    hot: hot!($hot),
                    form: <$ty as Value>::form(),
                    default: Value::render(&defaults.$name),
                    range: range.map(bounds::<$ty>),
                }
            } ),+),+]
        }
    };
}

fn bounds<T: Value>(range: Range) -> (String, String) {
    (T::render_bound(range.min), T::render_bound(range.max))
}

fn unaccepted<T: Value>(refusal: Refusal, range: Option<Range>) -> Unaccepted {
    let form = T::form();
    let expected = match (refusal, range) {
        (Refusal::Range, Some(range)) => {
            let (min, max) = bounds::<T>(range);
            format!("{form} from {min} to {max}")
        }
        (Refusal::Range | Refusal::Form, _) => form,
    };
    Unaccepted { expected }
}

fn loopback() -> Address {
    Address::Ip([127, 0, 0, 1].into())
}

const DAY_MS: i64 = 86_400_000;
const GIB: i64 = 1 << 30;
const TIB: i64 = 1 << 40;

settings! {
    "Node" {
        /// Name of the cluster. A node joins only members with the same name; a data directory
        /// keeps the name with which it was created.
        supported cold cluster_name: String = "Test Cluster".into();
        /// Directory of all files of the node, except of directories that have a setting of their own.
        supported cold workdir: String = "./helenus-data".into();
        /// Number of shards, each with its own thread. Unset: the usable cores.
        supported cold smp: Option<u16> = None, 1 to 256;
        /// Memory for memtables, caches and requests of all shards together. Unset: a quarter of
        /// the RAM or of the cgroup limit, at most 8 GiB.
        supported cold memory: Option<MemorySize> = None, 67_108_864 to 64 * TIB;
        /// Cores that shards are pinned to, such as `0-3,6`. Unset: not pinned.
        not_yet cold cpuset: Option<String> = None;
        /// Number of tokens that this node draws at its first start.
        supported cold num_tokens: u32 = 16, 1 to 1536;
        /// Tokens of this node, separated by commas, instead of `num_tokens` drawn ones.
        supported cold initial_token: Vec<Token> = Vec::new();
        /// Function that maps a partition key to its token.
        supported cold partitioner: Partitioner = Partitioner::Murmur3;
        /// Replication factor in the local datacenter for which a joining node draws evenly
        /// balanced tokens.
        supported cold allocate_tokens_for_local_replication_factor: u32 = 3, 1 to 1000;
        /// Stream the data of its tokens when a node joins. Without it reads may miss data until a
        /// repair.
        supported cold auto_bootstrap: bool = true;
        /// Refuse a join when the only replicas of some data that the node takes over are down
        /// (Cassandra's system property `cassandra.consistent.rangemovement`). Without it the node
        /// joins with what the live replicas have; writes that a quorum acknowledged may be
        /// missing.
        supported cold consistent_rangemovement: bool = true;
        /// Address of a dead member. At its first start this node takes over that member's tokens
        /// and data; later starts ignore the setting.
        supported cold replace_address_first_boot: Option<Address> = None;
        /// Source of the datacenter and rack names.
        supported cold endpoint_snitch: Snitch = Snitch::Simple;
        /// Datacenter of this node, instead of `dc` in cassandra-rackdc.properties; with
        /// GossipingPropertyFileSnitch.
        supported cold datacenter: Option<String> = None;
        /// Rack of this node, instead of `rack` in cassandra-rackdc.properties; with
        /// GossipingPropertyFileSnitch.
        supported cold rack: Option<String> = None;
        /// Addresses (`10.0.0.1`, `10.0.0.1:7000`) of members to join through at the first
        /// start. A seed without a port has the node's own `storage_port`. A node whose own address and port
        /// are the first seed founds a cluster, unless another seed is a member. With seeds, or a
        /// `listen_address` other than 127.0.0.1, the storage port is opened. `seed_provider` of cassandra.yaml sets it too.
        supported hot seeds: Vec<String> = Vec::new();
        /// Prefer the replicas that answered fastest so far.
        supported cold dynamic_snitch: bool = true;
        /// Interval at which replicas are ranked again.
        supported cold dynamic_snitch_update_interval: Duration = Duration::from_millis(100), 1 to DAY_MS;
        /// Interval at which measured latencies are forgotten, so that a slow replica gets another
        /// chance.
        supported cold dynamic_snitch_reset_interval: Duration = Duration::from_secs(600), 1 to 365 * DAY_MS;
        /// How much slower than the fastest replica the nearest one may be and still be preferred:
        /// 1.0 is twice as slow; with 0 only latency counts.
        supported cold dynamic_snitch_badness_threshold: Number = Number(1.0), 0 to 1000;
        /// Suspicion (phi) from which a silent node counts as down. Higher: later and more certain.
        supported cold phi_convict_threshold: Number = Number(8.0), 5 to 16;
    }
    "Directories" {
        /// Directories of SSTables: each shard writes the files of a table into one of them, so have at
        /// least as many shards as disks. Unset: `data` below `workdir`. A directory that is emptied, not
        /// mounted, or removed from this list while it may hold SSTables stops the start. To move one: stop
        /// the node, move the directory with its file `helenus-data`, change the setting, start.
        supported cold data_file_directories: Vec<String> = Vec::new();
        /// Directory of the commit log. Unset: `commitlog` below `workdir`. A directory that does not hold the
        /// log of the last run stops the start, unless that run was drained or stopped cleanly. To move it:
        /// stop the node, move its files, change the setting, start.
        supported cold commitlog_directory: Option<String> = None;
        /// Directory of hints. Unset: `hints` below `workdir`.
        supported cold hints_directory: Option<String> = None;
        /// Directory of the saved keys of the row cache and the counter cache. Unset:
        /// `saved_caches` below `workdir`.
        supported cold saved_caches_directory: Option<String> = None;
    }
    "Addresses and ports" {
        /// Address on which the node listens for other nodes.
        supported cold listen_address: Address = loopback();
        /// Address that the node announces to other nodes. Unset: `listen_address`.
        supported cold broadcast_address: Option<Address> = None;
        /// Address on which the node listens for CQL clients. 0.0.0.0 needs
        /// `broadcast_rpc_address`.
        supported cold rpc_address: Address = loopback();
        /// Address that the node announces to drivers. Unset: `rpc_address`.
        supported cold broadcast_rpc_address: Option<Address> = None;
        /// Port for other nodes, as announced in `system.local` and `system.peers_v2`.
        supported cold storage_port: u16 = 7000, 1 to 65_535;
        /// Serve CQL clients as soon as the node has started; else after `nodetool enablebinary`.
        supported cold start_native_transport: bool = true;
        /// Port for CQL clients.
        supported cold native_transport_port: u16 = 9042, 1 to 65_535;
        /// Port for shard-aware drivers, where the client's source port selects the shard; 0 is
        /// off.
        supported cold native_shard_aware_transport_port: u16 = 19_042, 0 to 65_535;
        /// Port for CQL clients with TLS, while `native_transport_port` stays in the clear; needs
        /// `client_encryption_options`. Unset: TLS is spoken on `native_transport_port`.
        supported cold native_transport_port_ssl: Option<u16> = None, 1 to 65_535;
        /// Port for shard-aware drivers with TLS, open beside `native_transport_port_ssl`; 0 is off. Without that
        /// port TLS is spoken on `native_shard_aware_transport_port`.
        supported cold native_shard_aware_transport_port_ssl: u16 = 19_142, 0 to 65_535;
        /// Address for nodetool, the HTTP API and `/metrics`.
        supported cold api_address: Address = loopback();
        /// Port for nodetool, the HTTP API and `/metrics`.
        supported cold api_port: u16 = 10_000, 1 to 65_535;
        /// Which clients of the API must log in: `required` all, `remote` those of other machines, `none` no client.
        /// Unset: none, and `api_address` must be a loopback address. See [security](security.md#the-api).
        supported cold api_login: Option<ApiLogin> = None;
        /// File of hashed bearer tokens for the API, as `helenus token` writes it.
        supported cold api_tokens_file: Option<String> = None;
        /// Use TCP keep-alive on client connections.
        supported cold rpc_keepalive: bool = true;
    }
    "CQL clients" {
        /// Largest frame, before and after decompression. A larger one is refused; its connection
        /// stays open.
        supported cold native_transport_max_frame_size: DataSize = DataSize(16 << 20), 65_536 to 2 * GIB - 1;
        /// Limit of client connections; -1 is no limit.
        supported cold native_transport_max_concurrent_connections: i64 = -1, -1 to i64::MAX;
        /// Limit of client connections from one address; -1 is no limit.
        supported cold native_transport_max_concurrent_connections_per_ip: i64 = -1, -1 to i64::MAX;
        /// Limit of client connections that are logged in as one role; -1 is no limit.
        supported cold native_transport_max_concurrent_connections_per_role: i64 = -1, -1 to i64::MAX;
        /// Limit of requests in flight on one connection; more are answered with OVERLOADED.
        supported cold native_transport_max_concurrent_requests_per_connection: u32 = 8192, 1 to 32_768;
        /// Limit of bytes of requests in flight. Unset: 15 % of `memory`.
        supported cold native_transport_max_request_data_in_flight: Option<DataSize> = None, 1_048_576 to TIB;
        /// Limit of bytes of requests in flight from one address. Unset: a quarter of the total.
        not_yet cold native_transport_max_request_data_in_flight_per_ip: Option<DataSize> = None, 1_048_576 to TIB;
        /// Idle time after which a client connection is closed; 0 is never.
        supported cold native_transport_idle_timeout: Duration = Duration::ZERO, 0 to 365 * DAY_MS;
        /// Accept protocol versions below the newest.
        supported cold native_transport_allow_older_protocols: bool = true;
        /// Limit the requests per second of all clients together.
        supported hot native_transport_rate_limiting_enabled: bool = false;
        /// Requests per second of all clients of this node together, where
        /// `native_transport_rate_limiting_enabled` is set; more are answered with OVERLOADED.
        supported hot native_transport_max_requests_per_second: u32 = 1_000_000, 1 to 2_147_483_647;
        /// Requests per second from one address (of IPv6: one /64 network); more are answered with OVERLOADED. 0 is
        /// no limit.
        supported hot native_transport_max_requests_per_second_per_ip: u32 = 0, 0 to 2_147_483_647;
        /// Requests per second of one role on all its connections to this node; more are answered with OVERLOADED.
        /// 0 is no limit.
        supported hot native_transport_max_requests_per_second_per_role: u32 = 0, 0 to 2_147_483_647;
        /// Memory for prepared statements; every shard keeps all of them. Unset: 1/256 of `memory`,
        /// at least 10 MiB.
        supported cold prepared_statements_cache_size: Option<DataSize> = None, 1_048_576 to TIB;
    }
    "Encryption" {
        /// Encryption of connections of CQL clients: keys of Cassandra 5.0 and of ScyllaDB, see
        /// [TLS](tls.md).
        supported cold client_encryption_options: EncryptionOptions = EncryptionOptions::default();
        /// Encryption of connections of the API (nodetool, HTTP, `/metrics`): the keys of
        /// `client_encryption_options`, see [security](security.md#the-api).
        supported cold api_encryption_options: EncryptionOptions = EncryptionOptions::default();
        /// Encryption of connections between nodes: keys of Cassandra 5.0 and of ScyllaDB, see
        /// [TLS](tls.md).
        supported cold server_encryption_options: ServerEncryptionOptions = ServerEncryptionOptions::default();
        /// Port for other nodes on which only TLS is spoken, open while `legacy_ssl_storage_port_enabled` in
        /// `server_encryption_options` is true. Nodes do not need it: they use TLS on `storage_port`.
        supported cold ssl_storage_port: u16 = 7001, 1 to 65_535;
        /// Which nodes may connect, beside what the chains of their certificates say, see [TLS](tls.md).
        supported cold internode_authenticator: InternodeAuthenticator = InternodeAuthenticator::AllowAll;
        /// Encryption of the SSTables of user tables and of saved caches, see
        /// [encryption at rest](encryption-at-rest.md). Spelled as in ScyllaDB: `enabled`, `secret_key_file`. Takes
        /// effect when a file is written; files of either kind are read while the map is set.
        supported cold user_info_encryption: AtRestOptions = AtRestOptions::default();
        /// The same for the SSTables of system tables (the batch log and Paxos hold rows of users), hints, and the
        /// commit log unless `commitlog_encryption_key_file` is set. Both settings share one key file.
        supported cold system_info_encryption: AtRestOptions = AtRestOptions::default();
        /// HashiCorp Vaults whose transit engines hold keys of encryption at rest: a map of names to hosts, see
        /// [encryption at rest](encryption-at-rest.md).
        supported cold vault_hosts: VaultHosts = VaultHosts::default();
        /// AWS KMS, and services with its protocol, that hold keys of encryption at rest: ScyllaDB's setting, see
        /// [encryption at rest](encryption-at-rest.md).
        supported cold kms_hosts: KmsHosts = KmsHosts::default();
        /// Directory of the key files of `user_info_encryption` and `system_info_encryption`.
        supported cold system_key_directory: String = "conf/system_keys".to_owned();
    }
    "Audit" {
        /// The audit log: keys of Cassandra 5.0, see [audit log](audit.md).
        supported cold audit_logging_options: AuditOptions = AuditOptions::default();
        /// ScyllaDB's audit log: `none`, `table` (rows of `audit.audit_log`), `syslog`, or `table,syslog`.
        supported cold audit: ScyllaAudit = ScyllaAudit::default();
        /// Categories that `audit` writes: AUTH, DML, DDL, DCL, QUERY, ADMIN.
        supported cold audit_categories: ScyllaCategories = ScyllaCategories::default();
        /// Tables whose DML, DDL and QUERY events `audit` writes, as `keyspace.table`.
        supported cold audit_tables: NameList = NameList::default();
        /// Keyspaces whose DML, DDL and QUERY events `audit` writes.
        supported cold audit_keyspaces: NameList = NameList::default();
        /// Socket for `audit: syslog`.
        supported cold audit_unix_socket_path: String = "/dev/log".into();
        /// The full query log: keys of Cassandra 5.0, see [full query log](fqltool.md). It is off at the start;
        /// `nodetool enablefullquerylog` switches it on.
        supported cold full_query_logging_options: QueryLogOptions = QueryLogOptions::default();
    }
    "Access" {
        /// How clients log in. As in Cassandra it may be a map with `class_name` and `parameters`: the
        /// parameter `validator_class_name` is the next setting. See [access](access.md).
        supported cold authenticator: Authenticator = Authenticator::AllowAll;
        /// Which part of a client's certificate is its identity: `SpiffeCertificateValidator`. The
        /// authenticators of mutual TLS need it.
        supported cold mutual_tls_validator: Option<CertificateValidator> = None;
        /// Where `CertificateAuthenticator` (ScyllaDB's) finds the role in a client's certificate: a list of
        /// `source` (SUBJECT or ALTNAME) and `query` (a regular expression with one group); the first match
        /// counts.
        supported cold auth_certificate_role_queries: RoleQueries = RoleQueries::default();
        /// Permissions of roles.
        supported cold authorizer: Authorizer = Authorizer::AllowAll;
        /// Which datacenters a connected role may use.
        supported cold network_authorizer: NetworkAuthorizer = NetworkAuthorizer::AllowAll;
        /// Where a role may connect from. As in Cassandra it may be a map with `class_name` and
        /// `parameters`: those named like the next two settings are them; `cidr_groups_cache_refresh_interval`
        /// and `ip_cache_max_size` are not needed, since every node has the groups in its metadata.
        supported cold cidr_authorizer: CidrAuthorizer = CidrAuthorizer::AllowAll;
        /// Treatment of a login from outside the role's CIDR groups by `CassandraCIDRAuthorizer`:
        /// log it (MONITOR) or refuse it (ENFORCE).
        supported cold cidr_authorizer_mode: CidrMode = CidrMode::Monitor;
        /// Restrict superusers to their CIDR groups too.
        supported cold cidr_checks_for_superusers: bool = false;
        /// Name of the superuser that is created when a cluster whose clients log in has no roles.
        supported cold auth_superuser_name: String = "cassandra".to_owned();
        /// Its password as a bcrypt hash (`$2a$10$...`). Unset: the password is `cassandra`.
        supported cold auth_superuser_salted_password: Option<String> = None;
        /// Do not create the default superuser (Cassandra's system property
        /// `cassandra.skip_default_role_setup`). Then roles must come with a Cassandra directory
        /// that is taken over; else no client can log in.
        supported cold skip_default_role_setup: bool = false;
        /// How long a shard remembers verified credentials.
        supported hot credentials_validity: Duration = Duration::from_secs(2), 0 to 365 * DAY_MS;
        /// Limit of verified credentials that a shard remembers; at the limit it forgets all.
        supported hot credentials_cache_max_entries: u64 = 1000, 0 to 1_000_000;
        /// Interval at which remembered credentials are read again. Not needed: a changed password
        /// takes effect at once.
        not_needed cold credentials_update_interval: Option<Duration> = None, 0 to 365 * DAY_MS;
        /// Refresh remembered credentials in the background; as `credentials_update_interval`.
        not_needed cold credentials_cache_active_update: bool = false;
        /// How long roles are cached. Not needed: each node has all roles in its metadata, and a
        /// change takes effect with the next statement.
        not_needed cold roles_validity: Duration = Duration::from_secs(2), 0 to 365 * DAY_MS;
        /// Interval at which cached roles are read again; as `roles_validity`.
        not_needed cold roles_update_interval: Option<Duration> = None, 0 to 365 * DAY_MS;
        /// Refresh cached roles in the background; as `roles_validity`.
        not_needed cold roles_cache_active_update: bool = false;
        /// Limit of cached roles; as `roles_validity`.
        not_needed cold roles_cache_max_entries: u64 = 1000, 0 to 2_147_483_647;
        /// How long permissions are cached; as `roles_validity`.
        not_needed cold permissions_validity: Duration = Duration::from_secs(2), 0 to 365 * DAY_MS;
        /// Interval at which cached permissions are read again; as `roles_validity`.
        not_needed cold permissions_update_interval: Option<Duration> = None, 0 to 365 * DAY_MS;
        /// Refresh cached permissions in the background; as `roles_validity`.
        not_needed cold permissions_cache_active_update: bool = false;
        /// Limit of pairs of role and resource whose permissions are cached; as `roles_validity`.
        not_needed cold permissions_cache_max_entries: u64 = 1000, 0 to 2_147_483_647;
    }
    "Timeouts" {
        /// Timeout of a read of partitions.
        supported hot read_request_timeout: Duration = Duration::from_secs(5), 10 to DAY_MS;
        /// Timeout of a read of token ranges.
        supported hot range_request_timeout: Duration = Duration::from_secs(10), 10 to DAY_MS;
        /// Timeout of a write.
        supported hot write_request_timeout: Duration = Duration::from_secs(2), 10 to DAY_MS;
        /// Timeout of a counter update.
        supported hot counter_write_request_timeout: Duration = Duration::from_secs(5), 10 to DAY_MS;
        /// Timeout of a conditional statement until it is decided; its commit then has
        /// `write_request_timeout`.
        supported hot cas_contention_timeout: Duration = Duration::from_secs(1), 10 to DAY_MS;
        /// Timeout of TRUNCATE.
        supported hot truncate_request_timeout: Duration = Duration::from_secs(60), 10 to DAY_MS;
        /// Timeout of all other requests, such as a schema change that is retried because others
        /// change the schema at the same time.
        supported hot request_timeout: Duration = Duration::from_secs(10), 10 to DAY_MS;
        /// Upper limit of the timeout of any client request; shorter timeouts still hold.
        supported cold native_transport_timeout: Duration = Duration::from_secs(12), 10 to DAY_MS;
        /// Duration above which a request is logged as slow; 0 is off.
        not_yet cold slow_query_log_timeout: Duration = Duration::from_millis(500), 0 to DAY_MS;
    }
    "Between nodes" {
        /// Timeout of connecting to another node, handshake included.
        supported cold internode_tcp_connect_timeout: Duration = Duration::from_secs(2), 10 to 600_000;
        /// Which traffic between nodes is compressed (LZ4). Traffic of a machine with itself never
        /// is.
        supported cold internode_compression: InternodeCompression = InternodeCompression::Dc;
        /// Largest message between nodes. Unset: 64 MiB.
        supported cold internode_max_message_size: Option<DataSize> = None, 1_048_576 to 67_108_864;
        /// Store hints at the coordinator: writes that a replica missed and that are sent once the
        /// replica is back.
        supported hot hinted_handoff_enabled: bool = true;
        /// How long after a replica goes down the coordinator still records hints for it. Writes after that
        /// reach it by a repair only. A recorded hint is stored until it is delivered, or until the
        /// `gc_grace_seconds` of its table are over.
        supported hot max_hint_window: Duration = Duration::from_secs(10_800), 0 to 365 * DAY_MS;
        /// Count `max_hint_window` also from the oldest hint that is stored for a node, so that a
        /// restart of this node does not restart the window.
        supported cold hint_window_persistent_enabled: bool = true;
        /// Datacenters for whose nodes no hints are stored.
        supported cold hinted_handoff_disabled_datacenters: Vec<String> = Vec::new();
        /// Limit of bytes of hints for one node; 0: only the limit of all hints together, 16 GiB.
        supported cold max_hints_size_per_host: DataSize = DataSize(0), 0 to TIB;
        /// Number of nodes to which one shard delivers hints at the same time.
        supported cold max_hints_delivery_threads: u32 = 2, 1 to 1024;
        /// Hand the hints of a node that is decommissioned to another node first.
        supported cold transfer_hints_on_decommission: bool = true;
        /// Limit of bytes per second that replayed batches write, divided by the number of nodes; 0
        /// is no limit.
        supported hot batchlog_replay_throttle: DataSize = DataSize(1 << 20), 0 to TIB;
        /// Limit of bytes of hints per second and target node; 0 is no limit.
        supported hot hinted_handoff_throttle: DataSize = DataSize(1 << 20), 0 to TIB;
        /// Size of a hints file.
        supported cold max_hints_file_size: DataSize = DataSize(128 << 20), 65_536 to 2 * GIB - 1;
        /// Longest time until a hint is on disk.
        supported cold hints_flush_period: Duration = Duration::from_secs(10), 1 to DAY_MS;
        /// Stream SSTables whose partitions all go to the same node as whole files.
        supported cold stream_entire_sstables: bool = true;
        /// Limit of bytes per second of streams to other nodes; 0 is no limit.
        supported hot stream_throughput_outbound: DataRate = DataRate(24 << 20), 0 to TIB;
        /// Limit of bytes per second of streams to nodes of other datacenters, within the limit of
        /// all streams; 0 is no limit of their own.
        supported hot inter_dc_stream_throughput_outbound: DataRate = DataRate(24 << 20), 0 to TIB;
        /// Repair every replicated table automatically: each node repairs its primary ranges when
        /// its turn comes (`auto_repair_turn`), and the ranges of a damaged SSTable at once.
        /// Tombstones of such tables are purged only after a repair of their range.
        supported cold auto_repair_enabled: bool = true;
        /// Period in which every table is repaired once; 0 is 0.8 of its `gc_grace_seconds`, 8 days
        /// at most.
        supported cold auto_repair_window: Duration = Duration::ZERO, 0 to 365 * DAY_MS;
        /// Limit of bytes per second of a node's own data that automatic repairs read, and less
        /// while there is time (does not apply to damaged SSTables); 0: only
        /// `compaction_throughput` limits them.
        supported cold auto_repair_throughput: DataRate = DataRate(8 << 20), 0 to TIB;
        /// Delay after the start of a node until automatic repairs begin.
        supported cold auto_repair_initial_delay: Duration = Duration::from_secs(300), 0 to DAY_MS;
        /// Length of a node's turn to begin an automatic repair.
        supported cold auto_repair_turn: Duration = Duration::from_secs(60), 1000 to DAY_MS;
    }
    "Commit log" {
        /// When records are synced to disk. In every mode an acknowledged write survives the end of
        /// the process; in `batch` and `group` also a power cut.
        supported cold commitlog_sync: CommitLogSync = CommitLogSync::Periodic;
        /// Longest time between syncs in `periodic` mode, and so the most that a power cut can
        /// lose.
        supported cold commitlog_sync_period: Duration = Duration::from_secs(10), 1 to DAY_MS;
        /// Longest time that a write waits in `group` mode for others to share its sync.
        supported cold commitlog_sync_group_window: Duration = Duration::from_millis(10), 1 to 60_000;
        /// Size of a segment file.
        supported cold commitlog_segment_size: DataSize = DataSize(32 << 20), 1_048_576 to 2 * GIB - 1;
        /// Space of the commit log above which the tables of the oldest segment are flushed. Unset:
        /// 8 GiB.
        supported cold commitlog_total_space: Option<DataSize> = None, 1_048_576 to 64 * TIB;
        /// Compressor of segments: each write to the kernel becomes one block or several. Unset:
        /// none, which costs the least CPU. A replay reads compressed and plain segments alike.
        supported cold commitlog_compression: Option<CommitLogCompression> = None;
        /// File with the keys that the commit log is encrypted with (AES-256-GCM): one key of 64
        /// hexadecimal digits on each line. The first encrypts, the others only decrypt; `none` as the first
        /// line: nothing new is encrypted. Unset: not encrypted. Not one of Cassandra's settings.
        supported cold commitlog_encryption_key_file: Option<String> = None;
        /// Directory in which every finished segment is linked, or copied where that cannot be, before
        /// it may be deleted. As `archive_command` of `commitlog_archiving.properties`, which is read
        /// when it lies beside `cassandra.yaml`. Not one of Cassandra's settings.
        supported cold commitlog_archive_directory: Option<String> = None;
        /// Directories whose segments are copied into the commit log at each start and replayed; to be
        /// taken out again when the restore is done. As `restore_directories` of
        /// `commitlog_archiving.properties`. Not one of Cassandra's settings.
        supported cold commitlog_restore_directories: Vec<String> = Vec::new();
        /// Mutations with a later timestamp are not replayed, nor is a TRUNCATE after it. As
        /// `restore_point_in_time` of `commitlog_archiving.properties`. Not one of Cassandra's settings.
        supported cold commitlog_restore_point_in_time: Option<RestorePoint> = None;
        /// Keyspaces, or tables as `keyspace.table`, that are replayed; empty: all. What is left out is
        /// lost. System keyspaces are always replayed. As Cassandra's property `cassandra.replayList`;
        /// not one of its settings.
        supported cold commitlog_replay_list: Vec<String> = Vec::new();
        /// Starts although commit-log data of one run is missing or damaged, without the writes that only it had;
        /// run a repair then. The value is the number that the refused start names, so it accepts no later
        /// loss; remove it after the start. In place of Cassandra's property
        /// `cassandra.commitlog.ignorereplayerrors`; not one of its settings.
        supported cold commitlog_accept_loss: Option<u64> = None;
        /// Size of the largest mutation. Unset: half of `commitlog_segment_size`.
        supported cold max_mutation_size: Option<DataSize> = None, 1024 to GIB;
    }
    "Storage" {
        /// Definitions that a takeover of a Cassandra directory omits: `functions` (aggregates
        /// too), `views`, `indexes` (the supported ones too), `triggers`. They are kept in `left-out.cql` in the first data
        /// directory. On the command line also `--without`. Not one of Cassandra's settings.
        supported cold takeover_without: Vec<String> = Vec::new();
        /// Memory of the memtables of all shards. Unset: 40 % of `memory`.
        supported cold memtable_heap_space: Option<DataSize> = None, 1_048_576 to 64 * TIB;
        /// Memory of the row caches of all shards, for tables whose option `caching` asks for it;
        /// at most half of the memory of all caches, which is 40 % of `memory`. `nodetool
        /// setcachecapacity` changes it until the next start.
        supported hot row_cache_size: DataSize = DataSize(0), 0 to 64 * TIB;
        /// Interval at which the keys of the row cache are saved, in addition to once at shutdown,
        /// so that the next start can warm the cache; 0: never.
        supported cold row_cache_save_period: Duration = Duration::ZERO, 0 to 365 * DAY_MS;
        /// Limit of partitions that each shard saves.
        supported cold row_cache_keys_to_save: u32 = 2_147_483_647, 0 to 2_147_483_647;
        /// Memory of the counter caches of all shards, with which increments need no read; at most
        /// a quarter of the memory of all caches. Unset: 2.5 % of `memory`, at most 50 MiB. 0: no
        /// cache. `nodetool setcachecapacity` changes it until the next start.
        supported hot counter_cache_size: Option<DataSize> = None, 0 to 64 * TIB;
        /// Interval at which the keys of the counter cache are saved, in addition to once at
        /// shutdown, so that the next start can warm the cache; 0: never.
        supported cold counter_cache_save_period: Duration = Duration::from_secs(7_200), 0 to 365 * DAY_MS;
        /// Limit of counters that each shard saves.
        supported cold counter_cache_keys_to_save: u32 = 2_147_483_647, 0 to 2_147_483_647;
        /// Time at the start for reading the saved partitions into the cache, and again for the
        /// saved counters.
        supported cold cache_load_timeout: Duration = Duration::from_secs(30), 0 to DAY_MS;
        /// Format of new SSTables: `big`, or `bti` with tries, which `storage_compatibility_mode`
        /// must allow. All formats are read; `nodetool upgradesstables` rewrites files of other
        /// versions.
        supported cold sstable: SstableFormat = SstableFormat::Big;
        /// `CASSANDRA_4`: SSTables of format BIG are of version `nb`, which Cassandra 4 reads too;
        /// `UPGRADING`, `NONE`: of version `oa`, those of format BTI of version `da`, which only
        /// Cassandra 5 reads. With `NONE` clients may write what expires after 2038-01-19, until 2106: set it
        /// when all nodes write these versions (`UPGRADING`), as others would let it expire in 2038.
        supported cold storage_compatibility_mode: StorageCompatibilityMode = StorageCompatibilityMode::Cassandra4;
        /// Version of new SSTables, whatever `sstable` and `storage_compatibility_mode` say; `me`
        /// is read by Cassandra 3.0.25, 3.11.11 and ScyllaDB. Files of an incremental repair are then
        /// of version `nb`. Not one of Cassandra's settings.
        supported cold sstable_version: Option<SstableVersion> = None;
        /// Compression of flushed files. `table`: as the table says. `fast`: the same, with LZ4's fast
        /// compressor instead of Zstandard, Deflate and LZ4's high one; compactions compress as the table
        /// says. `none`: no compression.
        supported cold flush_compression: FlushCompression = FlushCompression::Fast;
        /// Size above which a partition gets an index of its rows. Unset: 8 KiB.
        supported cold column_index_size: Option<DataSize> = None, 1024 to GIB;
        /// Number of compactions that run at the same time; each shard runs its part, rounded up.
        /// Unset: one for each shard.
        supported hot concurrent_compactors: Option<u32> = None, 1 to 256;
        /// Limit of bytes per second that all compactions write; 0 is no limit.
        supported hot compaction_throughput: DataRate = DataRate(64 << 20), 0 to TIB;
        /// Limit of bytes per second that the background verification of SSTables reads, one file
        /// after the other; 0 is off. Not one of Cassandra's settings.
        supported cold sstable_verification_throughput: DataRate = DataRate(1 << 20), 0 to TIB;
        /// Time after which the background verification reads an SSTable again. Not one of
        /// Cassandra's settings.
        supported cold sstable_verification_interval: Duration = Duration::from_secs(604_800), 60_000 to 3650 * DAY_MS;
        /// Free space below which writes are refused, on each data disk.
        supported cold min_free_space_per_drive: DataSize = DataSize(50 << 20), 0 to TIB;
        /// Size above which a value in a file counts as corrupt.
        not_yet cold max_value_size: DataSize = DataSize(256 << 20), 1_048_576 to 2 * GIB - 1;
        /// Take a snapshot before DROP and TRUNCATE.
        supported cold auto_snapshot: bool = true;
        /// `compaction` of tables whose CREATE TABLE names none, as `class_name` and `parameters`;
        /// also of the built-in keyspaces. Unset: size-tiered.
        supported cold default_compaction: Option<ParameterizedClass> = None;
        /// Limit of hard links per second that snapshots of the node create or remove, so that many
        /// files do not delay other disk work; 0 is no limit.
        supported hot snapshot_links_per_second: u64 = 0, 0 to i64::MAX;
        /// Take a snapshot before each compaction.
        supported cold snapshot_before_compaction: bool = false;
        /// Link each flushed SSTable into `backups` of its table.
        supported hot incremental_backups: bool = false;
        /// Reaction of a shard to an I/O error of a data file. A full disk is no such error: writes
        /// are refused until there is space again. `best_effort`: it continues without the data
        /// directory that failed and the SSTables in it until the next start, so reads at ONE may
        /// be stale; if that was the first or the last directory, it stops serving. With
        /// `best_effort` and `ignore` a start continues although an SSTable cannot be opened, and
        /// treats it as damaged; with the others it fails.
        supported cold disk_failure_policy: DiskFailurePolicy = DiskFailurePolicy::Stop;
        /// Reaction to an I/O error of the commit log. `ignore` is treated as `stop_commit`,
        /// because it is unknown what a failed sync left on disk.
        supported cold commit_failure_policy: CommitFailurePolicy = CommitFailurePolicy::Stop;
    }
    "Limits of requests" {
        /// Batches larger than this give a warning.
        supported cold batch_size_warn_threshold: DataSize = DataSize(5 << 10), 0 to 2 * GIB - 1;
        /// Batches larger than this are refused.
        supported cold batch_size_fail_threshold: DataSize = DataSize(50 << 10), 0 to 2 * GIB - 1;
        /// Unlogged batches over more partitions than this give a warning.
        supported cold unlogged_batch_across_partitions_warn_threshold: u32 = 10, 0 to 2_147_483_647;
        /// Reads that scan more tombstones than this give a warning.
        supported cold tombstone_warn_threshold: u32 = 1000, 0 to 2_147_483_647;
        /// Reads that scan more tombstones than this fail, if the client asked for no paging.
        supported cold tombstone_failure_threshold: u32 = 100_000, 0 to 2_147_483_647;
        /// Number of tombstones after which a page ends, even without a row; the client asks for
        /// the next page as usual. 0: no limit.
        supported cold query_tombstone_page_limit: u32 = 10_000, 0 to 2_147_483_647;
    }
    "Guardrails" {
        /// Keyspaces above this give a warning; -1 is off.
        supported hot keyspaces_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Keyspaces above this are refused; -1 is off.
        supported hot keyspaces_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Tables above this give a warning; -1 is off.
        supported hot tables_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Tables above this are refused; -1 is off.
        supported hot tables_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Columns of a table above this give a warning; -1 is off.
        supported hot columns_per_table_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Columns of a table above this are refused; -1 is off.
        supported hot columns_per_table_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Fields of a user type above this give a warning; -1 is off.
        supported hot fields_per_udt_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Fields of a user type above this are refused; -1 is off.
        supported hot fields_per_udt_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Dimensions of a vector above this give a warning; -1 is off.
        supported hot vector_dimensions_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Dimensions of a vector above this are refused; -1 is off.
        supported hot vector_dimensions_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Secondary indexes of a table above this give a warning; -1 is off.
        supported hot secondary_indexes_per_table_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Secondary indexes of a table above this are refused; -1 is off.
        supported hot secondary_indexes_per_table_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Replication factors below this give a warning; -1 is off.
        supported hot minimum_replication_factor_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Replication factors below this are refused; at most `default_keyspace_rf`; -1 is off.
        supported hot minimum_replication_factor_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Replication factors above this give a warning; -1 is off.
        supported hot maximum_replication_factor_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Replication factors above this are refused; at least `default_keyspace_rf`; -1 is off.
        supported hot maximum_replication_factor_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Replication factor of a keyspace whose statement names none.
        supported cold default_keyspace_rf: u32 = 1, 1 to 2_147_483_647;
        /// Page sizes above this give a warning; -1 is off.
        supported hot page_size_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Page sizes above this are refused; -1 is off.
        supported hot page_size_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Partition keys in one SELECT above this give a warning; -1 is off.
        supported hot partition_keys_in_select_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Partition keys in one SELECT above this are refused; -1 is off.
        supported hot partition_keys_in_select_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Combinations of IN values above this give a warning; -1 is off.
        supported hot in_select_cartesian_product_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Combinations of IN values above this are refused; -1 is off.
        supported hot in_select_cartesian_product_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Values, and keys of map and set elements, larger than this give a warning; unset is off.
        supported hot column_value_size_warn_threshold: Option<DataSize> = None, 0 to TIB;
        /// Values, and keys of map and set elements, larger than this are refused; unset is off.
        supported hot column_value_size_fail_threshold: Option<DataSize> = None, 0 to TIB;
        /// Collections larger than this give a warning when a client writes them, and a line in the
        /// log when an SSTable with one is written; unset is off.
        supported hot collection_size_warn_threshold: Option<DataSize> = None, 0 to TIB;
        /// Collections larger than this are refused when a client writes them; an SSTable with one
        /// gives an error in the log; unset is off.
        supported hot collection_size_fail_threshold: Option<DataSize> = None, 0 to TIB;
        /// Collections with more elements than this give a warning when a client writes them, and a
        /// line in the log when an SSTable with one is written; -1 is off.
        supported hot items_per_collection_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Collections with more elements than this are refused when a client writes them; an
        /// SSTable with one gives an error in the log; -1 is off.
        supported hot items_per_collection_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Partitions with more bytes than this in one SSTable give a warning in the log when it is
        /// written; unset is off.
        supported hot partition_size_warn_threshold: Option<DataSize> = None, 0 to TIB;
        /// The same with an error in the log; the SSTable is written nevertheless; unset is off.
        supported hot partition_size_fail_threshold: Option<DataSize> = None, 0 to TIB;
        /// Partitions with more tombstones than this in one SSTable give a warning in the log when
        /// it is written; -1 is off.
        supported hot partition_tombstones_warn_threshold: i64 = -1, -1 to 2_147_483_647;
        /// The same with an error in the log; the SSTable is written nevertheless; -1 is off.
        supported hot partition_tombstones_fail_threshold: i64 = -1, -1 to 2_147_483_647;
        /// Partitions with more rows than this in one SSTable give a warning in the log and a row
        /// in `system.large_partitions`; 0 is off. One of ScyllaDB's settings.
        supported cold compaction_rows_count_warning_threshold: u32 = 100_000, 0 to 4_294_967_295;
        /// Rows larger than this in one SSTable give a warning in the log and a row in
        /// `system.large_rows`; 0 is off. One of ScyllaDB's settings.
        supported cold compaction_large_row_warning_threshold: DataSize = DataSize(10 << 20), 0 to TIB;
        /// Cells and collections larger than this in one SSTable give a warning in the log and a
        /// row in `system.large_cells`; 0 is off. One of ScyllaDB's settings.
        supported cold compaction_large_cell_warning_threshold: DataSize = DataSize(1 << 20), 0 to TIB;
        /// Collections with more elements than this in one SSTable give a warning in the log and a
        /// row in `system.large_cells`; 0 is off. One of ScyllaDB's settings.
        supported cold compaction_collection_elements_count_warning_threshold: u32 = 10_000, 0 to 4_294_967_295;
        /// Percentage of the data disks in use, memtables included, above which a replica makes
        /// writes to its partitions give a warning; -1 is off. Nodes exchange it by gossip.
        supported hot data_disk_usage_percentage_warn_threshold: i64 = -1, -1 to 100;
        /// Percentage of the data disks in use, memtables included, above which writes to
        /// partitions of a replica are refused; -1 is off.
        supported hot data_disk_usage_percentage_fail_threshold: i64 = -1, -1 to 100;
        /// Size of the data disks that the percentages refer to, if it is smaller than their real
        /// size; unset: their real size.
        supported hot data_disk_usage_max_disk_size: Option<DataSize> = None, 0 to 1024 * TIB;
        /// Table properties that give a warning.
        supported hot table_properties_warned: Vec<String> = Vec::new();
        /// Table properties that are left out, with a warning.
        supported hot table_properties_ignored: Vec<String> = Vec::new();
        /// Table properties that are refused.
        supported hot table_properties_disallowed: Vec<String> = Vec::new();
        /// Consistency levels of reads that give a warning.
        supported hot read_consistency_levels_warned: Vec<String> = Vec::new();
        /// Consistency levels of reads that are refused.
        supported hot read_consistency_levels_disallowed: Vec<String> = Vec::new();
        /// Consistency levels of writes, serial ones too, that give a warning.
        supported hot write_consistency_levels_warned: Vec<String> = Vec::new();
        /// Consistency levels of writes, serial ones too, that are refused.
        supported hot write_consistency_levels_disallowed: Vec<String> = Vec::new();
        /// Allow ALLOW FILTERING.
        supported hot allow_filtering_enabled: bool = true;
        /// Allow GROUP BY.
        supported hot group_by_enabled: bool = true;
        /// Allow changes of lists by index or value, which read the list first.
        supported hot read_before_write_list_operations_enabled: bool = true;
        /// Allow filters on several columns outside the key where replicas must agree.
        supported hot intersect_filtering_query_enabled: bool = true;
        /// Warn of queries that `intersect_filtering_query_enabled` is about.
        supported hot intersect_filtering_query_warned: bool = true;
        /// Allow CREATE INDEX.
        supported hot secondary_indexes_enabled: bool = true;
        /// Allow queries by index without a partition key.
        supported hot non_partition_restricted_index_query_enabled: bool = true;
        /// Allow keyspaces with SimpleStrategy.
        supported hot simplestrategy_enabled: bool = true;
        /// Allow tables without compression.
        supported hot uncompressed_tables_enabled: bool = true;
        /// Allow tables WITH COMPACT STORAGE.
        supported hot compact_tables_enabled: bool = true;
        /// Allow columns and fields of type vector.
        supported hot vector_type_enabled: bool = true;
        /// Allow tables with TimeWindowCompactionStrategy and no default_time_to_live.
        supported hot zero_ttl_on_twcs_enabled: bool = true;
        /// Warn of tables with TimeWindowCompactionStrategy and no default_time_to_live.
        supported hot zero_ttl_on_twcs_warned: bool = true;
        /// Allow clients to set timestamps (USING TIMESTAMP).
        supported hot user_timestamps_enabled: bool = true;
        /// Timestamps of clients that are further in the future give a warning; 0 is off.
        supported hot maximum_timestamp_warn_threshold: Duration = Duration::ZERO, 0 to 36_500 * DAY_MS;
        /// Timestamps of clients that are further in the future are refused; 0 is off. Off in
        /// Cassandra by default; here not, because what is written with such a timestamp cannot be
        /// overwritten or deleted.
        supported hot maximum_timestamp_fail_threshold: Duration = Duration::from_secs(259_200), 0 to 36_500 * DAY_MS;
        /// Timestamps of clients that are further in the past give a warning; 0 is off.
        supported hot minimum_timestamp_warn_threshold: Duration = Duration::ZERO, 0 to 36_500 * DAY_MS;
        /// Timestamps of clients that are further in the past are refused; 0 is off.
        supported hot minimum_timestamp_fail_threshold: Duration = Duration::ZERO, 0 to 36_500 * DAY_MS;
        /// Allow columns of tables to be added, dropped and renamed.
        supported hot alter_table_enabled: bool = true;
        /// Allow tables to be dropped and truncated.
        supported hot drop_truncate_table_enabled: bool = true;
        /// Allow keyspaces to be dropped.
        supported hot drop_keyspace_enabled: bool = true;
        /// Allow masks of columns, and apply them.
        supported cold dynamic_data_masking_enabled: bool = false;
        /// Allow ALTER TABLE … DROP COMPACT STORAGE.
        supported cold drop_compact_storage_enabled: bool = false;
        /// Class of a secondary index whose statement has no USING: `legacy_local_table`, `sai` or the
        /// name of a class.
        supported cold default_secondary_index: String = "legacy_local_table".to_owned();
        /// Allow CREATE INDEX without USING.
        supported cold default_secondary_index_enabled: bool = true;
        /// Allow statements to name the class of SASI indexes. They are refused in both cases: SASI is
        /// not supported by this version.
        supported cold sasi_indexes_enabled: bool = false;
        /// Allow user-defined functions and aggregates. They are written in WebAssembly; in a build
        /// with the feature `lua` also in Lua.
        supported cold user_defined_functions_enabled: bool = false;
        /// Limit of what one call of a user-defined function may execute, in about so many
        /// instructions.
        supported cold user_defined_functions_fuel: u64 = 10_000_000, 1_000 to 1_000_000_000;
        /// Limit of memory that one call of a user-defined function may use.
        supported cold user_defined_functions_memory: DataSize = DataSize(4 << 20), 65_536 to GIB;
        /// Allow the statement USE.
        supported cold use_statements_enabled: bool = true;
    }
    "Tests of a cluster" {
        /// Allow `helenus cluster partition` to cut this node's links to others. For tests only.
        supported cold developer_link_faults: bool = false;
        /// Addresses of nodes to which links are cut from the start; allows further cuts too. For
        /// tests only.
        supported cold developer_cut_links: Vec<IpAddr> = Vec::new();
    }
    "Log" {
        /// How long traces of queries are kept.
        supported cold trace_type_query_ttl: Duration = Duration::from_secs(86_400), 1000 to 7_300 * DAY_MS;
        /// How long traces of repairs are kept.
        supported cold trace_type_repair_ttl: Duration = Duration::from_secs(604_800), 1000 to 7_300 * DAY_MS;
        /// Lowest severity that is logged.
        supported hot log_level: LogLevel = LogLevel::Info;
        /// Format of the log lines.
        supported cold log_format: LogFormat = LogFormat::Text;
    }
}

impl Options {
    /// Directories of the SSTables, at least one.
    pub fn data_directories(&self) -> Vec<String> {
        match self.data_file_directories.is_empty() {
            true => vec![self.below_workdir("data")],
            false => self.data_file_directories.clone(),
        }
    }

    /// Directory of the commit log.
    pub fn commitlog_directory(&self) -> String {
        self.commitlog_directory.clone().unwrap_or_else(|| self.below_workdir("commitlog"))
    }

    /// Directory of the metadata log.
    pub fn metadata_directory(&self) -> String {
        self.below_workdir("metadata")
    }

    /// `saved_caches_directory`, or its place below `workdir`.
    pub fn saved_caches_directory(&self) -> String {
        self.saved_caches_directory.clone().unwrap_or_else(|| self.below_workdir("saved_caches"))
    }

    /// Directory of hints.
    pub fn hints_directory(&self) -> String {
        self.hints_directory.clone().unwrap_or_else(|| self.below_workdir("hints"))
    }

    /// The address announced to other nodes.
    pub fn announced_address(&self) -> &Address {
        self.broadcast_address.as_ref().unwrap_or(&self.listen_address)
    }

    /// The address announced to drivers.
    pub fn announced_rpc_address(&self) -> &Address {
        self.broadcast_rpc_address.as_ref().unwrap_or(&self.rpc_address)
    }

    /// Returns true if the storage port is opened: other nodes are configured, or an address that
    /// they can reach. A node with neither stands alone, so that several can be tried on one
    /// machine.
    pub fn wants_peers(&self) -> bool {
        !self.seeds.is_empty() || self.listen_address != loopback()
    }

    /// Where the file `name` of the snitch, or of archiving, is looked for, in this order.
    pub fn snitch_files(&self, name: &str) -> Vec<String> {
        let beside = self.configuration_directory.iter().map(|d| format!("{d}/{name}"));
        beside.chain([self.below_workdir(name)]).collect()
    }

    /// Largest mutation, bytes: `max_mutation_size`, else half of a commit-log segment.
    pub fn mutation_bytes_max(&self) -> u64 {
        self.max_mutation_size.map_or(self.commitlog_segment_size.0 / 2, |size| size.0)
    }

    fn below_workdir(&self, name: &str) -> String {
        format!("{}/{name}", self.workdir.trim_end_matches('/'))
    }
}
