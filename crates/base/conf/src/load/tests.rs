use core::time::Duration;

use super::*;
use crate::{Address, Authenticator, CidrAuthorizer, CidrMode, DataSize, MemorySize};

fn yaml(text: &str) -> Result<Loaded, ConfErrors> {
    load(&Sources { file: Some(("cassandra.yaml".into(), text.into())), ..Sources::default() })
}

fn errors(text: &str) -> Vec<String> {
    yaml(text).unwrap_err().0.iter().map(ToString::to_string).collect()
}

fn flags(words: &[&str]) -> Result<Loaded, ConfErrors> {
    let command_line = CommandLine::parse(words.iter().copied())?;
    load(&Sources { command_line, ..Sources::default() })
}

#[test]
fn nothing_given_means_defaults_without_a_warning() {
    let loaded = load(&Sources::default()).unwrap();
    assert_eq!(loaded.options, Options::default());
    assert!(loaded.warnings.is_empty());
    assert_eq!(loaded.options.data_directories(), ["./helenus-data/data"]);
    assert_eq!(loaded.options.commitlog_directory(), "./helenus-data/commitlog");
    assert_eq!(loaded.options.mutation_bytes_max(), 16 << 20);
}

#[test]
fn old_and_new_spellings_set_the_same() {
    let new = yaml("read_request_timeout: 3s\ncommitlog_segment_size: 16MiB\n").unwrap();
    let old = yaml("read_request_timeout_in_ms: 3000\ncommitlog_segment_size_in_mb: 16\n").unwrap();
    assert_eq!(new.options, old.options);
    assert_eq!(new.options.read_request_timeout, Duration::from_secs(3));
    assert_eq!(new.options.commitlog_segment_size, DataSize(16 << 20));
    assert!(new.warnings.is_empty());
    assert_eq!(old.warnings.len(), 2);
    assert_eq!(summarize(&old.warnings).len(), 1);
}

#[test]
fn a_wrong_value_is_named_with_line_and_form() {
    assert_eq!(
        errors("cluster_name: x\nread_request_timeout: abc\n"),
        [
            r#"cassandra.yaml:2: "read_request_timeout" expects a duration such as 5s or 500ms, found "abc""#
        ]
    );
    assert_eq!(
        errors("read_request_timeout_in_ms: 5s\n"),
        [
            r#"cassandra.yaml:1: "read_request_timeout_in_ms" expects a number of milliseconds, found "5s""#
        ]
    );
    assert_eq!(
        errors("native_transport_port: 65536\n"),
        [
            r#"cassandra.yaml:1: "native_transport_port" expects a whole number from 1 to 65535, found "65536""#
        ]
    );
    assert_eq!(
        errors("commitlog_sync: never\n"),
        [
            r#"cassandra.yaml:1: "commitlog_sync" expects one of periodic, batch, group, found "never""#
        ]
    );
    // The bare number belongs to the old spelling only.
    assert_eq!(errors("read_request_timeout: 5000\n").len(), 1);
}

#[test]
fn all_wrong_values_are_named_at_once() {
    assert_eq!(errors("num_tokens: 0\nauto_snapshot: perhaps\nlog_format: xml\n").len(), 3);
}

#[test]
fn the_edges_of_a_range_are_accepted_and_their_neighbours_refused() {
    for (value, accepted) in [("0", false), ("1", true), ("1536", true), ("1537", false)] {
        assert_eq!(yaml(&format!("num_tokens: {value}\n")).is_ok(), accepted, "{value}");
    }
}

#[test]
fn both_spellings_in_one_file_are_refused() {
    let text = "read_request_timeout: 5s\nread_request_timeout_in_ms: 5000\n";
    assert!(matches!(yaml(text).unwrap_err().0[..], [ConfError::TwoSpellings { .. }]));
}

#[test]
fn unknown_and_unsupported_settings_are_warnings() {
    let loaded = yaml("no_such_thing: 1\ncdc_on_repair_enabled: true\nmax_streaming_retries: 12\n");
    let warnings = loaded.unwrap().warnings;
    assert_eq!(
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            r#"cassandra.yaml:1: unknown setting "no_such_thing""#,
            r#"cassandra.yaml:2: "cdc_on_repair_enabled" is not supported yet and has no effect ("true")"#,
            r#"cassandra.yaml:3: "max_streaming_retries" is not supported yet and has no effect ("12")"#,
        ]
    );
    assert_eq!(summarize(&warnings).len(), 3);
    assert!(summarize(&warnings)[2].ends_with("cdc_on_repair_enabled"));
}

#[test]
fn settings_of_caches_that_are_not_there_are_named_when_they_ask_for_something() {
    let stock = "roles_validity: 2000ms\nroles_update_interval_in_ms: -1\n\
                 permissions_cache_max_entries: 1000\nroles_cache_active_update: false\n";
    let warned = |text: &str| {
        let warnings = yaml(text).unwrap().warnings.into_iter();
        warnings.map(|w| w.to_string()).filter(|w| !w.contains("old spelling")).collect::<Vec<_>>()
    };
    assert!(warned(stock).is_empty(), "{:?}", warned(stock));
    let why = "there is nothing here that it could bound";
    assert_eq!(
        warned("permissions_validity: 10s\nroles_update_interval: 1s\n"),
        [
            format!(r#"cassandra.yaml:1: "permissions_validity" has no effect ("10s"): {why}"#),
            format!(r#"cassandra.yaml:2: "roles_update_interval" has no effect ("1s"): {why}"#),
        ]
    );
    let loaded = yaml("credentials_cache_max_entries: 5\n").unwrap();
    assert!(loaded.warnings.is_empty());
    assert_eq!(loaded.options.credentials_cache_max_entries, 5);
}

#[test]
fn a_setting_that_asks_for_protection_stops_the_start() {
    for text in [
        "authenticator: TransitionalAuthenticator\n",
        "authenticator:\n  class_name: com.example.LdapAuthenticator\n",
        "authorizer: LdapAuthorizer\n",
        "network_authorizer: LdapNetworkAuthorizer\n",
        "cidr_authorizer: {class_name: LdapCIDRAuthorizer}\n",
        "transparent_data_encryption_options: {enabled: true}\n",
        "partition_denylist_enabled: true\n",
    ] {
        let errors = yaml(text).unwrap_err().0;
        assert!(matches!(errors[..], [ConfError::Unprotected { .. }]), "{text}: {errors:?}");
    }
    for text in [
        "client_encryption_options:\n  enabled: false\n  keystore: conf/.keystore\n",
        "server_encryption_options:\n  internode_encryption: none\n",
        "authenticator:\n  class_name: AllowAllAuthenticator\n",
        "authorizer: org.apache.cassandra.auth.AllowAllAuthorizer\n",
        "audit_logging_options: {enabled: true, logger: {class_name: BinAuditLogger}}\n",
        "incremental_backups: true\nsnapshot_before_compaction: true\n",
        "drop_truncate_table_enabled: false\n",
        "dynamic_data_masking_enabled: true\n",
        "cidr_authorizer:\n  class_name: AllowAllCIDRAuthorizer\n  parameters:\n    a: b\n",
    ] {
        assert!(yaml(text).is_ok(), "{text}");
    }
}

#[test]
fn wrong_keys_of_encryption_are_named_with_their_lines_and_without_secrets() {
    let text = "client_encryption_options:\n  enabled: true\n  keystore_pasword: hidden\n  \
                require_client_auth: some\n  keystore_password: [hidden]\n";
    let errors = yaml(text).unwrap_err().to_string();
    let expected = [
        "cassandra.yaml:3: unknown key \"client_encryption_options.keystore_pasword\"",
        "cassandra.yaml:4: \"client_encryption_options.require_client_auth\" expects one of true, false, optional",
        "cassandra.yaml:5: \"client_encryption_options.keystore_password\" expects a text",
    ];
    for line in expected {
        assert!(errors.contains(line), "{line}: {errors}");
    }
    assert!(!errors.contains("hidden"), "{errors}");
}

#[test]
fn encryption_between_nodes_is_checked_as_a_whole() {
    let keys = "server_encryption_options: {internode_encryption: all, require_client_auth: true";
    let spiffe = "internode_authenticator: {class_name: MutualTlsInternodeAuthenticator, parameters: \
                  {validator_class_name: SpiffeCertificateValidator}}\n";
    for text in [
        format!("{keys}}}\n{spiffe}"),
        format!("{keys}, legacy_ssl_storage_port_enabled: true}}\nssl_storage_port: 7005\n"),
        "server_encryption_options: {internode_encryption: none}\nssl_storage_port: 7000\n"
            .to_owned(),
        "server_encryption_options: {internode_encryption: transitional}\n".to_owned(),
        "internode_authenticator: org.apache.cassandra.auth.AllowAllInternodeAuthenticator\n"
            .to_owned(),
    ] {
        let loaded = yaml(&text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
        assert!(loaded.warnings.is_empty(), "{text}: {:?}", loaded.warnings);
    }
    for (text, expected) in [
        (
            spiffe.to_owned(),
            "requires server_encryption_options.internode_encryption to be enabled",
        ),
        (
            format!("server_encryption_options: {{internode_encryption: all}}\n{spiffe}"),
            "server_encryption_options.require_client_auth to be true",
        ),
        (
            "server_encryption_options: {legacy_ssl_storage_port_enabled: true}\n".to_owned(),
            "Enable encryption or disable the legacy ssl storage port",
        ),
        (
            format!("{keys}, legacy_ssl_storage_port_enabled: true}}\nssl_storage_port: 7000\n"),
            "\"ssl_storage_port\": is 7000, as is \"storage_port\"",
        ),
        (
            "server_encryption_options:\n  internode_encryption: all\n  keystore_pasword: x\n"
                .to_owned(),
            "cassandra.yaml:3: unknown key \"server_encryption_options.keystore_pasword\"",
        ),
        (
            "internode_authenticator: Ldap\n".to_owned(),
            "\"internode_authenticator\" expects AllowAll",
        ),
    ] {
        let error = yaml(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn wrong_keys_of_the_audit_log_are_named_with_their_lines() {
    let text = "audit_logging_options:\n  enabled: true\n  logger:\n    - class_name: \
                DiagnosticEventAuditLogger\n  included_categories: FOO\n";
    let errors = yaml(text).unwrap_err().to_string();
    for line in [
        "\"audit_logging_options.logger\" expects BinAuditLogger, FileAuditLogger or NoOpAuditLogger: diagnostic",
        "cassandra.yaml:5: \"audit_logging_options.included_categories\" expects categories out of QUERY",
    ] {
        assert!(errors.contains(line), "{line}: {errors}");
    }
}

#[test]
fn an_api_for_other_machines_needs_logins_that_exist_or_an_explicit_none() {
    let refused = |text: &str| yaml(text).map(|_| ()).map_err(|errors| errors.to_string());
    let elsewhere = "api_address: 10.0.0.1\n";
    let with = |text: &str| refused(&format!("{elsewhere}{text}"));
    assert_eq!(refused(""), Ok(()));
    assert_eq!(refused("api_address: 127.0.0.7\n"), Ok(()));
    assert_eq!(refused("api_address: \"::1\"\n"), Ok(()));
    for address in ["10.0.0.1", "0.0.0.0", "\"::\"", "some.host"] {
        let error = refused(&format!("api_address: {address}\n")).unwrap_err();
        assert!(error.contains("\"api_address\""), "{error}");
        assert!(error.contains("without a login; set \"api_login\" to required"), "{error}");
    }
    assert_eq!(with("api_login: none\n"), Ok(()));
    let passwords = "authenticator: PasswordAuthenticator\n";
    for login in ["required", "remote"] {
        assert_eq!(with(&format!("api_login: {login}\n{passwords}")), Ok(()));
        assert_eq!(with(&format!("api_login: {login}\napi_tokens_file: /t\n")), Ok(()));
        let error = with(&format!("api_login: {login}\n")).unwrap_err();
        assert!(error.contains("asks for logins, but no client could log in"), "{error}");
    }
    let certificates = "api_encryption_options: {enabled: true, require_client_auth: true}\n";
    let error = with(&format!("api_login: required\n{certificates}")).unwrap_err();
    assert!(error.contains("certificates stand for roles"), "{error}");
    let error = with("api_login: maybe\n").unwrap_err();
    assert!(error.contains("none, remote, required"), "{error}");
}

#[test]
fn the_port_for_tls_needs_encryption_and_a_number_of_its_own() {
    let with = |text: &str| yaml(&format!("native_transport_port_ssl: 9142\n{text}"));
    let loaded = with("client_encryption_options: {enabled: true}\n").unwrap();
    assert_eq!(loaded.options.native_transport_port_ssl, Some(9142));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let optional = with("client_encryption_options: {optional: true}\n");
    assert!(optional.is_ok());
    for text in ["", "client_encryption_options: {enabled: false}\n"] {
        let error = with(text).unwrap_err().to_string();
        assert!(error.contains("\"native_transport_port_ssl\": needs \"enabled\""), "{error}");
    }
    let same = "client_encryption_options: {enabled: true}\nstorage_port: 9142\nlisten_address: 127.0.0.1\n";
    assert!(with(same).is_err());
    // The port of all connections may be named again.
    let one = yaml("native_transport_port_ssl: 9042\nclient_encryption_options: {enabled: true}\n");
    assert!(one.is_ok());
}

#[test]
fn a_policy_that_is_taken_for_another_is_named_in_a_warning() {
    let warned = |text: &str| yaml(text).unwrap().warnings.len();
    assert_eq!(warned("commit_failure_policy: ignore\n"), 1);
    for policy in ["die", "stop_paranoid", "stop", "best_effort", "ignore"] {
        assert_eq!(warned(&format!("disk_failure_policy: {policy}\n")), 0, "{policy}");
    }
    for policy in ["die", "stop", "stop_commit"] {
        assert_eq!(warned(&format!("commit_failure_policy: {policy}\n")), 0, "{policy}");
    }
}

#[test]
fn password_authentication_is_supported() {
    let loaded = yaml("authenticator: PasswordAuthenticator\n").unwrap();
    assert_eq!(loaded.options.authenticator, Authenticator::Password);
}

#[test]
fn logins_by_certificate_need_their_validator_and_certificates_of_clients() {
    let with = |class: &str, parameters: &str, clients: &str| {
        let text = format!(
            "authenticator:\n  class_name: {class}\n{parameters}client_encryption_options:\n  \
             keystore: k\n  truststore: t\n{clients}"
        );
        yaml(&text).map(|loaded| loaded.options.authenticator)
    };
    let spiffe = "  parameters:\n    validator_class_name: \
                  org.apache.cassandra.auth.SpiffeCertificateValidator\n";
    let required = "  enabled: true\n  require_client_auth: true\n";
    let optional = "  enabled: true\n  require_client_auth: optional\n";
    let class = "org.apache.cassandra.auth.MutualTlsAuthenticator";
    assert_eq!(with(class, spiffe, required), Ok(Authenticator::MutualTls));
    let fallback = "MutualTlsWithPasswordFallbackAuthenticator";
    for clients in [required, optional, "  require_client_auth: optional\n"] {
        assert_eq!(with(fallback, spiffe, clients), Ok(Authenticator::MutualTlsOrPassword));
    }
    let refusal =
        |class, parameters, clients| with(class, parameters, clients).unwrap_err().to_string();
    let enabled = "MutualTlsAuthenticator requires client_encryption_options.enabled \
                   to be true & client_encryption_options.require_client_auth to be true";
    for clients in [optional, "  enabled: true\n", "  require_client_auth: true\n"] {
        assert!(refusal(class, spiffe, clients).contains(enabled));
    }
    let not_required = "MutualTlsWithPasswordFallbackAuthenticator requires \
                        client_encryption_options.require_client_auth to be optional/true";
    assert!(refusal(fallback, spiffe, "  enabled: true\n").contains(not_required));
    let unset = "authenticator.parameters.validator_class_name is not set";
    for class in [class, fallback] {
        assert!(refusal(class, "", required).contains(unset));
    }
    let other = "  parameters:\n    validator_class_name: com.example.Validator\n";
    assert!(refusal(class, other, required).contains("SpiffeCertificateValidator"));
    let unknown = "  parameters: {validator: SpiffeCertificateValidator}\n";
    assert!(refusal(class, unknown, required).contains("validator_class_name"));
}

#[test]
fn scyllas_certificate_logins_need_queries() {
    let with = |rest: &str| {
        let text = format!(
            "authenticator: com.scylladb.auth.CertificateAuthenticator\n{rest}\
             client_encryption_options:\n  enabled: true\n  certificate: c\n  keyfile: k\n  \
             truststore: t\n  require_client_auth: true\n"
        );
        yaml(&text).map(|loaded| loaded.options)
    };
    let queries = "auth_certificate_role_queries:\n  - source: SUBJECT\n    query: CN=([^,\\s]+)\n";
    let options = with(queries).unwrap();
    assert_eq!(options.authenticator, Authenticator::Certificate);
    assert_eq!(options.auth_certificate_role_queries.0.len(), 1);
    assert!(with("").unwrap_err().to_string().contains("must name at least one query"));
    assert!(with("auth_certificate_role_queries: [{source: ISSUER, query: a}]\n").is_err());
}

#[test]
fn misspelt_settings_and_keys_are_named_as_unknown() {
    let warnings = yaml("authenticatr: PasswordAuthenticator\n").unwrap().warnings;
    assert_eq!(
        warnings[0].to_string(),
        r#"cassandra.yaml:1: unknown setting "authenticatr", did you mean "authenticator"?"#
    );
    let errors = yaml("client_encryption_options:\n  optionel: true\n").unwrap_err().0;
    assert_eq!(
        errors[0].to_string(),
        r#"cassandra.yaml:2: unknown key "client_encryption_options.optionel""#
    );
}

#[test]
fn parameters_of_the_cidr_authorizer_are_settings() {
    let with = |parameters: &str| {
        let class = "cidr_authorizer:\n  class_name: CassandraCIDRAuthorizer\n";
        yaml(&format!("authenticator: PasswordAuthenticator\n{class}  parameters:{parameters}"))
    };
    let options = with("\n").unwrap().options;
    assert_eq!(options.cidr_authorizer, CidrAuthorizer::Cassandra);
    assert_eq!(options.cidr_authorizer_mode, CidrMode::Monitor);
    assert!(!options.cidr_checks_for_superusers);
    let all = "\n    cidr_authorizer_mode: enforce\n    cidr_checks_for_superusers: true\n    \
               cidr_groups_cache_refresh_interval: 5\n    ip_cache_max_size: 100\n";
    for text in [all, " [{cidr_authorizer_mode: ENFORCE, cidr_checks_for_superusers: true}]\n"] {
        let options = with(text).unwrap().options;
        assert_eq!(options.cidr_authorizer_mode, CidrMode::Enforce);
        assert!(options.cidr_checks_for_superusers);
    }
    for text in [" {mode: ENFORCE}\n", " 5\n", " {cidr_authorizer_mode: STRICT}\n"] {
        let errors = with(text).unwrap_err().0;
        assert!(matches!(errors[..], [ConfError::Value { .. }]), "{text}: {errors:?}");
    }
}

#[test]
fn permissions_need_roles_to_log_in() {
    for name in [
        "authorizer: Cassandra",
        "network_authorizer: CassandraNetwork",
        "cidr_authorizer: CassandraCIDR",
    ] {
        let text = format!("{name}Authorizer\n");
        let errors = yaml(&text).unwrap_err().0;
        assert!(matches!(errors[..], [ConfError::Inconsistent { .. }]), "{text}: {errors:?}");
        assert!(yaml(&format!("authenticator: PasswordAuthenticator\n{text}")).is_ok());
    }
    let hash = "$2a$10$AaZBeH0YDCt.sW/RE37neeguGz4zpbkvPgRaIhdDMzewkmK6nOmFC";
    for (hash, is_one) in [(hash, true), (&hash[1..], false), ("secret", false)] {
        let text = format!("auth_superuser_salted_password: '{hash}'\n");
        assert_eq!(yaml(&text).is_ok(), is_one, "{text}");
    }
}

#[test]
fn later_layers_win() {
    let sources = |environment: &[(&str, &str)], line: CommandLine| Sources {
        file: Some(("c.yaml".into(), "native_transport_port: 1\nauto_snapshot: false\n".into())),
        environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        command_line: line,
    };
    let port = |sources: &Sources| load(sources).unwrap().options.native_transport_port;
    assert_eq!(port(&sources(&[], CommandLine::default())), 1);
    let variable = [("HELENUS_NATIVE_TRANSPORT_PORT", "2"), ("PATH", "x"), ("HELENUS_CONFIG", "y")];
    assert_eq!(port(&sources(&variable, CommandLine::default())), 2);
    let all = sources(&variable, CommandLine::default().with("native-transport-port", "3"));
    assert_eq!(port(&all), 3);
    let loaded = load(&all).unwrap();
    assert!(!loaded.options.auto_snapshot);
    assert!(loaded.warnings.is_empty());
    assert_eq!(
        loaded.origins["native_transport_port"].to_string(),
        "command line --native-transport-port"
    );
}

#[test]
fn wrong_values_of_the_environment_are_named_by_their_variable() {
    let environment = vec![("HELENUS_API_PORT".into(), "x".into())];
    let errors = load(&Sources { environment, ..Sources::default() }).unwrap_err();
    assert_eq!(
        errors.to_string(),
        r#"environment HELENUS_API_PORT: "api_port" expects a whole number, found "x""#
    );
}

#[test]
fn flags_are_those_scylla_users_know() {
    let loaded = flags(&[
        "--smp",
        "2",
        "--memory",
        "1G",
        "--workdir",
        "/data",
        "--listen-address",
        "10.0.0.1",
        "--rpc-address=10.0.0.2",
        "--native-transport-port",
        "9142",
        "--api-address",
        "10.0.0.3",
        "--api-login=none",
        "--api-port=10001",
        "--cluster-name",
        "x",
        "--seeds",
        "127.0.0.1",
        "--overprovisioned",
        "--auto-snapshot",
        "false",
        "--start_native_transport",
    ])
    .unwrap();
    let options = &loaded.options;
    assert_eq!(options.smp, Some(2));
    assert_eq!(options.memory, Some(MemorySize(1 << 30)));
    assert_eq!(options.data_directories(), ["/data/data"]);
    assert_eq!(options.rpc_address, Address::Ip([10, 0, 0, 2].into()));
    assert_eq!(options.announced_rpc_address(), &options.rpc_address);
    assert_eq!((options.native_transport_port, options.api_port), (9142, 10_001));
    assert!(!options.auto_snapshot && options.start_native_transport);
    let names: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(names.iter().any(|w| w.contains("overprovisioned")), "{names:?}");
}

#[test]
fn flags_that_are_unknown_or_lack_their_value_are_errors() {
    let line = CommandLine::parse(["--native-transport-prot", "1", "--nonsense=1", "--smp"]);
    assert_eq!(
        line.unwrap_err().to_string(),
        "unknown option --native-transport-prot, did you mean --native-transport-port?\n\
         unknown option --nonsense\noption --smp needs a value"
    );
    assert!(CommandLine::parse(["server"]).is_err());
    let line = CommandLine::parse(["--config", "a.yaml", "-h"]).unwrap();
    assert_eq!((line.config_file.as_deref(), line.help), (Some("a.yaml"), true));
}

#[test]
fn seeds_are_read_from_the_seed_provider() {
    let text = "seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
                parameters:\n      - seeds: \"10.0.0.1,10.0.0.2:7000\"\n";
    let loaded = yaml(text).unwrap();
    assert_eq!(loaded.options.seeds, ["10.0.0.1", "10.0.0.2:7000"]);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert!(yaml("seed_provider: 3\n").is_err());
}

#[test]
fn the_storage_port_is_wanted_with_seeds_or_an_address_of_its_own() {
    assert!(!yaml("cluster_name: x\n").unwrap().options.wants_peers());
    assert!(!yaml("listen_address: localhost\n").unwrap().options.wants_peers());
    assert!(yaml("listen_address: 127.0.0.2\n").unwrap().options.wants_peers());
    assert!(yaml("seeds: 127.0.0.1\n").unwrap().options.wants_peers());
}

#[test]
fn files_of_the_snitch_are_looked_for_beside_the_configuration_first() {
    let of = |path: &str, text: &str| {
        let sources = Sources { file: Some((path.into(), text.into())), ..Sources::default() };
        load(&sources).unwrap().options.snitch_files("x")
    };
    let text = "workdir: /w\nendpoint_snitch: GossipingPropertyFileSnitch\n";
    assert_eq!(of("/etc/c/cassandra.yaml", text), ["/etc/c/x", "/w/x"]);
    assert_eq!(of("cassandra.yaml", text), ["./x", "/w/x"]);
    // Archiving asks for its file whatever the snitch is.
    assert_eq!(of("/etc/c/cassandra.yaml", "workdir: /w\n"), ["/etc/c/x", "/w/x"]);
    let nowhere = load(&Sources::default()).unwrap().options;
    assert_eq!(nowhere.snitch_files("x"), ["./helenus-data/x"]);
}

#[test]
fn numbers_may_have_a_fraction_and_have_a_range() {
    let phi = |text: &str| yaml(&format!("phi_convict_threshold: {text}\n"));
    assert_eq!(phi("12.5").unwrap().options.phi_convict_threshold.0, 12.5);
    assert!(phi("4.9").is_err() && phi("16.1").is_err() && phi("NaN").is_err());
    assert!(phi("5").is_ok() && phi("16").is_ok() && phi("x").is_err());
}

#[test]
fn there_may_be_several_data_directories() {
    let loaded = yaml("data_file_directories: [/a, /ab, /b/]\n").unwrap();
    assert_eq!(loaded.options.data_directories(), ["/a", "/ab", "/b/"]);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (text, name) in [
        ("listen_address: 0.0.0.0\n", "listen_address"),
        ("rpc_address: 0.0.0.0\n", "broadcast_rpc_address"),
        ("data_file_directories: [/a, /b, /a/]\n", "data_file_directories"),
        ("data_file_directories: [/a/b, /a]\n", "data_file_directories"),
        ("initial_token: 1,2,3\nnum_tokens: 2\n", "initial_token"),
        ("initial_token: 7,1,7\nnum_tokens: 3\n", "initial_token"),
        ("api_port: 9042\n", "api_port"),
        ("max_mutation_size: 17MiB\n", "max_mutation_size"),
        ("tombstone_warn_threshold: 100001\n", "tombstone_warn_threshold"),
        ("rack: r\n", "rack"),
    ] {
        let errors = yaml(text).unwrap_err().0;
        assert!(
            matches!(&errors[..], [ConfError::Inconsistent { name: n, .. }] if *n == name),
            "{text}: {errors:?}"
        );
    }
    assert!(yaml("rpc_address: 0.0.0.0\nbroadcast_rpc_address: 10.0.0.1\n").is_ok());
    assert!(yaml("initial_token: '-9,8'\nnum_tokens: 2\n").is_ok());
    assert!(yaml("native_shard_aware_transport_port: 0\n").is_ok());
}

#[test]
fn an_empty_value_leaves_the_default() {
    let loaded = yaml("prepared_statements_cache_size:\nnum_tokens:\nkey_cache_size:\n").unwrap();
    let configuration_directory = Some(".".to_owned());
    assert_eq!(loaded.options, Options { configuration_directory, ..Options::default() });
    assert!(loaded.warnings.is_empty());
}

#[test]
fn the_commit_log_is_compressed_as_cassandras_file_says() {
    let text = "commitlog_compression:\n  - class_name: LZ4Compressor\n    parameters:\n";
    let loaded = yaml(text).unwrap();
    assert_eq!(loaded.options.commitlog_compression, Some(crate::CommitLogCompression::Lz4));
    assert!(loaded.warnings.is_empty());
    assert!(yaml("commitlog_compression:\n  - class_name: LZ5Compressor\n").is_err());
}

#[test]
fn a_file_that_is_no_map_is_an_error_and_an_empty_one_is_not() {
    assert!(yaml("").is_ok());
    assert_eq!(
        errors("- a\n"),
        ["cassandra.yaml:1: expects settings such as \"cluster_name: Test Cluster\""]
    );
    assert!(matches!(yaml("a: [\n").unwrap_err().0[..], [ConfError::Syntax { .. }]));
}

#[test]
fn timestamp_thresholds_fit_each_other_and_zero_is_off() {
    let of = |warn: &str, fail: &str| {
        format!(
            "maximum_timestamp_warn_threshold: {warn}\nmaximum_timestamp_fail_threshold: {fail}\n"
        )
    };
    let loaded = yaml(&of("1d", "1d")).unwrap().options;
    assert_eq!(loaded.maximum_timestamp_warn_threshold, Duration::from_secs(86_400));
    assert!(yaml(&of("1d", "0s")).is_ok());
    let wrong = errors(&of("2d", "1d"));
    assert!(
        wrong[0].contains("maximum_timestamp_warn_threshold")
            && wrong[0].contains("should be lower than the fail threshold"),
        "{wrong:?}"
    );
    assert!(yaml("minimum_timestamp_warn_threshold: 5d\n").is_ok());
}

#[test]
fn settings_of_the_cluster_are_read_in_both_spellings() {
    let loaded = yaml(
        "hinted_handoff_disabled_datacenters:\n  - west\n  - north\n\
         batchlog_replay_throttle_in_kb: 512\n\
         dynamic_snitch_update_interval_in_ms: 50\n\
         dynamic_snitch_badness_threshold: 0.1\n\
         max_hints_size_per_host: 5MiB\n",
    )
    .unwrap()
    .options;
    assert_eq!(loaded.hinted_handoff_disabled_datacenters, ["west", "north"]);
    assert_eq!(loaded.batchlog_replay_throttle, DataSize(512 << 10));
    assert_eq!(loaded.dynamic_snitch_update_interval, Duration::from_millis(50));
    assert_eq!(loaded.dynamic_snitch_badness_threshold.0, 0.1);
    assert_eq!(loaded.max_hints_size_per_host, DataSize(5 << 20));
}

#[test]
fn guardrails_are_read_in_one_form_and_those_on_nobody_are_named() {
    let text = "table_properties_warned: [CDC, comment, cdc]\n\
                read_consistency_levels_disallowed: [SERIAL, ANY]\nkeyspaces_warn_threshold: 7\n\
                maximum_timestamp_warn_threshold: 1d\n";
    let loaded = yaml(text).unwrap();
    assert_eq!(loaded.options.table_properties_warned, ["cdc", "comment"]);
    assert_eq!(loaded.options.read_consistency_levels_disallowed, ["ANY", "SERIAL"]);
    let named: Vec<String> = loaded
        .warnings
        .iter()
        .filter_map(|w| match w {
            Warning::NobodyIsLimited { name, .. } => Some(name.clone()),
            _ => None,
        })
        .collect();
    // In the order of the file, each with its line.
    let expected = [
        "keyspaces_warn_threshold",
        "read_consistency_levels_disallowed",
        "table_properties_warned",
    ];
    assert_eq!(named, expected);
    let shown: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(
        shown[0].starts_with("cassandra.yaml:3: \"keyspaces_warn_threshold\" has no effect"),
        "{shown:?}"
    );
    let with_users = yaml(&format!("authenticator: PasswordAuthenticator\n{text}")).unwrap();
    let is_named = |w: &Warning| matches!(w, Warning::NobodyIsLimited { .. });
    assert!(!with_users.warnings.iter().any(is_named));
    let wrong = errors("keyspaces_warn_threshold: 0\n");
    assert!(wrong[0].contains("0 is not allowed; if attempting to disable use -1"), "{wrong:?}");
}

#[test]
fn the_format_of_sstables_is_a_map_and_bti_needs_a_mode_that_allows_it() {
    use crate::{SstableFormat, SstableVersion, StorageCompatibilityMode};
    let options = yaml("sstable:\n  selected_format: bti\nstorage_compatibility_mode: NONE\n")
        .unwrap()
        .options;
    assert_eq!(options.sstable, SstableFormat::Bti);
    assert_eq!(options.storage_compatibility_mode, StorageCompatibilityMode::None);
    let options = yaml("sstable: {selected_format: big, format: }\nsstable_version: me\n");
    let options = options.unwrap().options;
    assert_eq!(
        (options.sstable, options.sstable_version),
        (SstableFormat::Big, Some(SstableVersion::Me))
    );
    let refused = errors("sstable: {selected_format: bti}\n");
    assert!(refused[0].contains("not available"), "{refused:?}");
    for text in
        ["sstable: bti", "sstable: {selected_format: x}", "sstable: {format: {bti: {a: b}}}"]
    {
        let refused = errors(text);
        assert!(refused[0].contains("{selected_format: big}"), "{text}: {refused:?}");
    }
}

#[test]
fn what_a_takeover_goes_without_is_one_of_four_kinds() {
    let line = CommandLine::parse(["--without", "functions,views"]).unwrap();
    let sources = Sources { command_line: line, ..Sources::default() };
    assert_eq!(load(&sources).unwrap().options.takeover_without, ["functions", "views"]);
    let line = CommandLine::parse(["--without", "tables"]).unwrap();
    let sources = Sources { command_line: line, ..Sources::default() };
    let error = load(&sources).unwrap_err().to_string();
    assert!(error.contains("\"tables\" is none of functions, views, indexes, triggers"), "{error}");
}
