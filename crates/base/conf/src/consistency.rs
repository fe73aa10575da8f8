//! Checks that concern several settings: each pair that contradicts itself is an error before the node starts.

use crate::at_rest::KeyProvider;
use crate::certificate_login;
use crate::encryption::CertificatesOfClients;
use crate::load::ConfError;
use crate::options::Options;
use crate::server_encryption;
use crate::value::{
    ApiLogin, Authenticator, Authorizer, CidrAuthorizer, CommitLogSync, NetworkAuthorizer, Snitch,
    SstableFormat, StorageCompatibilityMode,
};

/// Collects errors of settings that contradict each other.
struct Inconsistent<'e>(&'e mut Vec<ConfError>);

impl Inconsistent<'_> {
    fn add(&mut self, name: &'static str, message: impl Into<String>) {
        self.0.push(ConfError::Inconsistent { name, message: message.into() });
    }
}

/// Checks settings that must fit each other.
pub(crate) fn check(options: &Options, errors: &mut Vec<ConfError>) {
    let wrong = &mut Inconsistent(errors);
    let kinds = ["functions", "views", "indexes", "triggers"];
    if let Some(other) = options.takeover_without.iter().find(|k| !kinds.contains(&k.as_str())) {
        wrong.add("takeover_without", format!("\"{other}\" is none of {}", kinds.join(", ")));
    }
    check_addresses(options, wrong);
    check_protection(options, wrong);
    check_api(options, wrong);
    check_files(options, wrong);
    check_tokens(options, wrong);
    if options.mutation_bytes_max() > options.commitlog_segment_size.0 / 2 {
        let message = "must be at most half of \"commitlog_segment_size\"";
        wrong.add("max_mutation_size", message);
    }
    check_ports(options, wrong);
    check_port_for_tls(options, wrong);
    for (name, what) in server_encryption::inconsistencies(options) {
        wrong.add(name, what);
    }
    check_limits(options, wrong);
    check_key_hosts(options, wrong);
}

/// Checks that providers of keys are declared and have a key.
fn check_key_hosts(options: &Options, wrong: &mut Inconsistent<'_>) {
    for (name, map) in [
        ("user_info_encryption", &options.user_info_encryption),
        ("system_info_encryption", &options.system_info_encryption),
    ] {
        let (hosts, setting) = match map.key_provider {
            KeyProvider::File => continue,
            KeyProvider::Vault => (&options.vault_hosts.0, "vault_hosts"),
            KeyProvider::Kms => (&options.kms_hosts.0, "kms_hosts"),
        };
        let host = map.host.as_deref().unwrap_or_default();
        match hosts.get(host) {
            None => wrong.add(name, format!("names \"{host}\", which \"{setting}\" does not have")),
            Some(found) if map.master_key.is_none() && found.master_key.is_none() => {
                wrong.add(
                    name,
                    format!("has no \"master_key\", nor has \"{host}\" of \"{setting}\""),
                );
            }
            Some(_) => {}
        }
    }
}

/// Rejects wildcards as addresses that others connect to.
fn check_addresses(options: &Options, wrong: &mut Inconsistent<'_>) {
    if options.listen_address.is_wildcard() {
        wrong.add("listen_address", "cannot be a wildcard address");
    }
    if options.rpc_address.is_wildcard() && options.broadcast_rpc_address.is_none() {
        wrong.add(
            "broadcast_rpc_address",
            format!(
                "must be set when \"rpc_address\" is the wildcard address {}",
                options.rpc_address
            ),
        );
    }
    for (name, address) in [
        ("broadcast_address", &options.broadcast_address),
        ("broadcast_rpc_address", &options.broadcast_rpc_address),
    ] {
        if address.as_ref().is_some_and(crate::Address::is_wildcard) {
            wrong.add(name, "cannot be a wildcard address");
        }
    }
}

/// Rejects permissions without logins: they are checked only where roles log in.
fn check_protection(options: &Options, wrong: &mut Inconsistent<'_>) {
    if options.authenticator == Authenticator::AllowAll {
        let message = "can't be used with AllowAllAuthenticator";
        if options.authorizer != Authorizer::AllowAll {
            wrong.add("authorizer", message);
        }
        if options.network_authorizer != NetworkAuthorizer::AllowAll {
            wrong.add("network_authorizer", message);
        }
        if options.cidr_authorizer != CidrAuthorizer::AllowAll {
            wrong.add("cidr_authorizer", message);
        }
    }
    for (name, problem) in certificate_login::check(options) {
        wrong.add(name, problem);
    }
    let hash = options.auth_superuser_salted_password.as_deref();
    if hash.is_some_and(|hash| hash.len() != 60 || !hash.starts_with("$2a$")) {
        wrong.add("auth_superuser_salted_password", "is not a bcrypt hash of the form $2a$");
    }
}

/// Checks that other machines need a login at the API, and that some client can log in.
fn check_api(options: &Options, wrong: &mut Inconsistent<'_>) {
    let needs_login = match options.api_login {
        None if options.api_address.is_loopback() => false,
        None => {
            wrong.add(
                "api_address",
                format!(
                    "is {}, where clients of other machines could stop this node without a login; set \
                     \"api_login\" to required or remote, or to none if only trusted machines reach it",
                    options.api_address
                ),
            );
            false
        }
        Some(ApiLogin::None) => false,
        Some(ApiLogin::Required | ApiLogin::Remote) => true,
    };
    let encryption = &options.api_encryption_options;
    let certificates = encryption.asks_for_encryption()
        && encryption.require_client_auth != CertificatesOfClients::NotRequired;
    let has_roles = options.authenticator != Authenticator::AllowAll;
    if needs_login && options.api_tokens_file.is_none() && !has_roles {
        let detail = match certificates {
            true => {
                "certificates stand for roles, and \"authenticator\" allows all clients without roles"
            }
            false => "no client could log in",
        };
        wrong.add(
            "api_login",
            format!(
                "asks for logins, but {detail}; set \"authenticator\" to PasswordAuthenticator, or name a \
                 file of tokens in \"api_tokens_file\" (\"helenus token create\" writes it)"
            ),
        );
    }
}

/// Checks that formats and directories fit each other.
fn check_files(options: &Options, wrong: &mut Inconsistent<'_>) {
    if options.sstable == SstableFormat::Bti
        && options.storage_compatibility_mode == StorageCompatibilityMode::Cassandra4
    {
        wrong.add(
            "sstable",
            "selects format bti, which is not available when \"storage_compatibility_mode\" is \
             CASSANDRA_4",
        );
    }
    let trimmed = |path: &String| format!("{}/", path.trim_end_matches('/'));
    let directories: Vec<String> = options.data_file_directories.iter().map(trimmed).collect();
    for (n, one) in directories.iter().enumerate() {
        let below = |other: &&String| one.starts_with(*other) || other.starts_with(one);
        if let Some(other) = directories.iter().skip(n + 1).find(below) {
            let (one, other) = (one.trim_end_matches('/'), other.trim_end_matches('/'));
            wrong.add(
                "data_file_directories",
                format!("has {one} and {other}, which must not be the same or one in the other"),
            );
        }
    }
}

/// Checks location and tokens of the node.
fn check_tokens(options: &Options, wrong: &mut Inconsistent<'_>) {
    let place = options.datacenter.is_some() || options.rack.is_some();
    if place && options.endpoint_snitch != Snitch::GossipingPropertyFile {
        let name = if options.datacenter.is_some() { "datacenter" } else { "rack" };
        wrong.add(name, "needs \"endpoint_snitch\" to be GossipingPropertyFileSnitch");
    }
    let tokens = options.initial_token.len();
    if tokens > 0 && u32::try_from(tokens) != Ok(options.num_tokens) {
        // Cassandra: "The number of initial tokens (by initial_token) specified (n) is different
        // from num_tokens value (m)".
        wrong.add(
            "initial_token",
            format!("has {tokens} tokens, \"num_tokens\" is {}", options.num_tokens),
        );
    }
    let mut sorted = options.initial_token.clone();
    sorted.sort_unstable();
    if let Some([twice, ..]) = sorted.windows(2).find(|two| matches!(two, [a, b] if a == b)) {
        wrong.add("initial_token", format!("has the token {} twice", twice.0));
    }
}

/// Rejects a port that is used twice on one address.
fn check_ports(options: &Options, wrong: &mut Inconsistent<'_>) {
    let own = options.native_transport_port;
    let ssl_port = options.native_transport_port_ssl.filter(|port| *port != own);
    let has_legacy = options.server_encryption_options.legacy_ssl_storage_port_enabled;
    let legacy = has_legacy.then_some(options.ssl_storage_port);
    let ports = [
        ("native_transport_port", options.native_transport_port, &options.rpc_address),
        (
            "native_shard_aware_transport_port",
            options.native_shard_aware_transport_port,
            &options.rpc_address,
        ),
        ("native_transport_port_ssl", ssl_port.unwrap_or(0), &options.rpc_address),
        (
            "native_shard_aware_transport_port_ssl",
            ssl_port.map_or(0, |_| options.native_shard_aware_transport_port_ssl),
            &options.rpc_address,
        ),
        ("api_port", options.api_port, &options.api_address),
        ("storage_port", options.storage_port, &options.listen_address),
        ("ssl_storage_port", legacy.unwrap_or(0), &options.listen_address),
    ];
    for (at, (name, port, address)) in ports.iter().enumerate() {
        let same = ports.iter().take(at).find(|(_, p, a)| {
            p == port && *p != 0 && (a == address || a.is_wildcard() || address.is_wildcard())
        });
        if let Some((other, ..)) = same {
            wrong.add(name, format!("is {port}, as is \"{other}\""));
        }
    }
}

/// Checks that a port for TLS has keys.
fn check_port_for_tls(options: &Options, wrong: &mut Inconsistent<'_>) {
    let encryption = &options.client_encryption_options;
    if options.native_transport_port_ssl.is_some() && !encryption.asks_for_encryption() {
        // Cassandra: "Encryption must be enabled in client_encryption_options for
        // native_transport_port_ssl".
        let message = "needs \"enabled\" in \"client_encryption_options\"";
        wrong.add("native_transport_port_ssl", message);
    }
}

/// Checks periods and pairs of thresholds.
fn check_limits(options: &Options, wrong: &mut Inconsistent<'_>) {
    if options.commitlog_sync == CommitLogSync::Periodic && options.commitlog_sync_period.is_zero()
    {
        wrong.add("commitlog_sync_period", "must be above 0");
    }
    if options.tombstone_warn_threshold > options.tombstone_failure_threshold {
        wrong.add("tombstone_warn_threshold", "must not be above \"tombstone_failure_threshold\"");
    }
    if options.batch_size_warn_threshold > options.batch_size_fail_threshold {
        wrong.add("batch_size_warn_threshold", "must not be above \"batch_size_fail_threshold\"");
    }
}
