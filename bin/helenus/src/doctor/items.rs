//! The items of the benchmark: pure decisions on facts.
//!
//! Source: CIS Apache Cassandra 4.0 Benchmark v1.0.0 (numbers and titles); items about Java and Python do not apply.
//! Items H.1 to H.3 are ours: the API, which is Cassandra's JMX, and files with secrets.

use conf::encryption::{CertificatesOfClients, EncryptionOptions};
use conf::{
    ApiLogin, AuditLogger, Authenticator, Authorizer, InternodeEncryption, NetworkAuthorizer,
    Options,
};

use super::facts::{DefaultPassword, Facts, NodeFacts, Role, SecretFiles};

/// State of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Pass,
    Fail,
    /// A person must decide.
    Review,
    /// A fact is missing.
    Unknown,
}

impl State {
    pub(super) const fn word(self) -> &'static str {
        match self {
            State::Pass => "PASS",
            State::Fail => "FAIL",
            State::Review => "REVIEW",
            State::Unknown => "UNKNOWN",
        }
    }
}

/// Outcome of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Number in the benchmark.
    pub(super) number: &'static str,
    pub(super) title: &'static str,
    pub(super) state: State,
    pub(super) detail: String,
    /// Empty when nothing is to do.
    pub(super) remedy: &'static str,
}

/// State, detail, remedy.
type Outcome = (State, String, &'static str);

fn pass(detail: impl Into<String>) -> Outcome {
    (State::Pass, detail.into(), "")
}

fn fail(detail: impl Into<String>, remedy: &'static str) -> Outcome {
    (State::Fail, detail.into(), remedy)
}

fn unknown(detail: impl Into<String>, remedy: &'static str) -> Outcome {
    (State::Unknown, detail.into(), remedy)
}

/// All items in order.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let options = &facts.options;
    let all: [(&'static str, &'static str, Outcome); 20] = [
        ("1.1", "a user and group of its own", own_user(facts)),
        ("1.4", "a supported version", version(facts)),
        ("1.5", "not run as root", not_root(facts)),
        ("1.6", "clocks are synchronized", clocks(facts)),
        ("2.1", "authentication is enabled", authentication(options)),
        ("2.2", "authorization is enabled", authorization(options)),
        ("3.1", "superusers other than cassandra", own_superuser(facts)),
        ("3.2", "the default password is changed", default_password(facts)),
        ("3.3", "no unnecessary roles", roles(facts)),
        ("3.4", "a service account without privileges", not_root(facts)),
        ("3.5", "listens on authorized interfaces only", interfaces(options)),
        ("3.6", "datacenters of roles are authorized", datacenters(options)),
        ("3.7", "user-defined roles", reviewed(facts, "roles", |_| true)),
        ("3.8", "superusers", reviewed(facts, "superusers", |role| role.is_superuser)),
        ("4.1", "logging is enabled", logging(facts)),
        ("4.2", "auditing is enabled", auditing(options)),
        ("5.1", "encryption between nodes", internode(options)),
        ("5.2", "encryption of clients", clients(&options.client_encryption_options)),
        ("H.1", "the API needs a login", api_login(options)),
        ("H.2", "the API is encrypted", api_encryption(options)),
    ];
    let mut found: Vec<Finding> = all
        .into_iter()
        .map(|(number, title, (state, detail, remedy))| Finding {
            number,
            title,
            state,
            detail,
            remedy,
        })
        .collect();
    let (state, detail, remedy) = secret_files(facts);
    let title = "files with secrets are private";
    found.push(Finding { number: "H.3", title, state, detail, remedy });
    found
}

const START_IT: &str = "start the node, or name its API with --host, --port and a login";

fn node(facts: &Facts) -> Result<&NodeFacts, Outcome> {
    facts.node.as_ref().map_err(|why| unknown(why.clone(), START_IT))
}

fn own_user(facts: &Facts) -> Outcome {
    match &facts.owner {
        None => {
            unknown("the work directory does not exist", "name the configuration with --config")
        }
        Some(owner) if owner.uid == 0 => {
            fail("the work directory belongs to root", "give the node a user of its own")
        }
        Some(owner) if owner.is_open => fail(
            format!("others may read or write \"{}\"", facts.options.workdir),
            "chmod o-rwx the work directory",
        ),
        Some(owner) => pass(format!("the work directory belongs to user {}", owner.uid)),
    }
}

fn not_root(facts: &Facts) -> Outcome {
    match &facts.owner {
        None => {
            unknown("the work directory does not exist", "name the configuration with --config")
        }
        Some(owner) if owner.uid == 0 => fail(
            "the work directory belongs to root, so the node runs as root",
            "run it as a user of its own",
        ),
        Some(owner) => pass(format!("runs as user {}", owner.uid)),
    }
}

fn version(facts: &Facts) -> Outcome {
    match node(facts) {
        Err(outcome) => outcome,
        Ok(node) if node.version == env!("CARGO_PKG_VERSION") => pass(node.version.clone()),
        Ok(node) => (
            State::Review,
            format!("the node runs {}, this tool is {}", node.version, env!("CARGO_PKG_VERSION")),
            "compare with the latest release",
        ),
    }
}

fn clocks(facts: &Facts) -> Outcome {
    match node(facts) {
        Err(outcome) => outcome,
        Ok(node) if node.wrong_clocks.is_empty() => pass("no node sees a wrong clock"),
        Ok(node) => fail(
            format!("wrong clocks: {}", node.wrong_clocks.join(", ")),
            "run NTP or PTP on these machines",
        ),
    }
}

fn authentication(options: &Options) -> Outcome {
    match options.authenticator {
        Authenticator::AllowAll => {
            fail("AllowAllAuthenticator", "set \"authenticator\" to PasswordAuthenticator")
        }
        _ => pass(word(options, "authenticator")),
    }
}

fn authorization(options: &Options) -> Outcome {
    match options.authorizer {
        Authorizer::AllowAll => {
            fail("AllowAllAuthorizer", "set \"authorizer\" to CassandraAuthorizer")
        }
        _ => pass(word(options, "authorizer")),
    }
}

fn word(options: &Options, name: &str) -> String {
    options.render(name).unwrap_or_default()
}

fn roles_of(facts: &Facts) -> Result<&[Role], Outcome> {
    if facts.options.authenticator == Authenticator::AllowAll {
        return Err(fail("no client logs in", "see 2.1"));
    }
    let remedy = "give --username and --password of a superuser";
    facts.roles.as_deref().map_err(|why| unknown(why.clone(), remedy))
}

fn own_superuser(facts: &Facts) -> Outcome {
    let roles = match roles_of(facts) {
        Ok(roles) => roles,
        Err(outcome) => return outcome,
    };
    let is_default = |role: &&Role| role.name == "cassandra";
    if roles.iter().any(|role| role.name == "cassandra" && role.is_superuser && role.can_login) {
        let remedy = "create your own superuser, then ALTER ROLE cassandra WITH SUPERUSER = false AND LOGIN = false";
        return fail("the role cassandra is a superuser that can log in", remedy);
    }
    let own = roles.iter().filter(|role| role.is_superuser && !is_default(role)).count();
    let noun = if own == 1 { "superuser" } else { "superusers" };
    pass(format!("{own} {noun}; cassandra is not a superuser that can log in"))
}

fn default_password(facts: &Facts) -> Outcome {
    if facts.options.authenticator == Authenticator::AllowAll {
        return fail("no client logs in", "see 2.1");
    }
    match &facts.default_password {
        DefaultPassword::Works => fail(
            "cassandra/cassandra logs in",
            "ALTER ROLE cassandra WITH PASSWORD = '…', or take LOGIN from it",
        ),
        DefaultPassword::Refused => pass("cassandra/cassandra is refused"),
        DefaultPassword::Untried(why) => unknown(why.clone(), START_IT),
    }
}

fn roles(facts: &Facts) -> Outcome {
    match roles_of(facts) {
        Err(outcome) => outcome,
        Ok(roles) => {
            let logins = roles.iter().filter(|role| role.can_login).count();
            let detail = format!("{} roles, {logins} can log in", roles.len());
            (State::Review, detail, "drop what is not needed; LIST ALL PERMISSIONS shows the rest")
        }
    }
}

fn reviewed(facts: &Facts, what: &str, wanted: impl Fn(&Role) -> bool) -> Outcome {
    match roles_of(facts) {
        Err(outcome) => outcome,
        Ok(roles) => {
            let names: Vec<&str> =
                roles.iter().filter(|role| wanted(role)).map(|role| role.name.as_str()).collect();
            let shown = names.iter().take(10).copied().collect::<Vec<_>>().join(", ");
            let more = if names.len() > 10 { ", …" } else { "" };
            (State::Review, format!("{} {what}: {shown}{more}", names.len()), "confirm each")
        }
    }
}

fn interfaces(options: &Options) -> Outcome {
    let wildcards: Vec<&str> = [
        ("listen_address", &options.listen_address),
        ("rpc_address", &options.rpc_address),
        ("api_address", &options.api_address),
    ]
    .into_iter()
    .filter(|(_, address)| address.is_wildcard())
    .map(|(name, _)| name)
    .collect();
    match wildcards.is_empty() {
        true => pass(format!(
            "clients {}, nodes {}, API {}",
            options.rpc_address, options.listen_address, options.api_address
        )),
        false => fail(
            format!("on all interfaces: {}", wildcards.join(", ")),
            "name the address of one interface",
        ),
    }
}

fn datacenters(options: &Options) -> Outcome {
    match options.network_authorizer {
        NetworkAuthorizer::AllowAll => (
            State::Review,
            "AllowAllNetworkAuthorizer".to_owned(),
            "with several datacenters set \"network_authorizer\" to CassandraNetworkAuthorizer",
        ),
        _ => pass(word(options, "network_authorizer")),
    }
}

fn logging(facts: &Facts) -> Outcome {
    match node(facts) {
        Err(outcome) => outcome,
        Ok(node) if matches!(node.log_level.as_str(), "OFF" | "ERROR" | "WARN") => fail(
            format!("the level is {}", node.log_level),
            "nodetool setlogginglevel ROOT INFO, and \"log_level\" in the configuration",
        ),
        Ok(node) => pass(format!("the level is {}", node.log_level)),
    }
}

fn auditing(options: &Options) -> Outcome {
    let remedy = "set \"audit_logging_options\" with enabled: true";
    let cassandra = &options.audit_logging_options;
    let (table, syslog) = (options.audit.table, options.audit.syslog);
    match (cassandra.enabled, cassandra.logger) {
        _ if table || syslog => pass(format!("\"audit\" is {}", word(options, "audit"))),
        (true, AuditLogger::NoOp) => fail("NoOpAuditLogger discards all events", remedy),
        (true, logger) => pass(logger.class()),
        (false, _) => fail("not enabled", remedy),
    }
}

fn internode(options: &Options) -> Outcome {
    let remedy = "set \"server_encryption_options\" with internode_encryption: all, optional: false, require_client_auth: true";
    let encryption = &options.server_encryption_options;
    let asks = encryption.tls.require_client_auth == CertificatesOfClients::Required;
    match (encryption.internode_encryption, encryption.is_explicitly_optional()) {
        (InternodeEncryption::All, true) => fail("encryption is optional", remedy),
        (InternodeEncryption::All, false) if asks => pass("all connections"),
        (InternodeEncryption::All, false) => fail("certificates of nodes are not required", remedy),
        (other, _) => fail(format!("internode_encryption is {}", other.word()), remedy),
    }
}

fn clients(options: &EncryptionOptions) -> Outcome {
    let remedy = "set \"client_encryption_options\" with enabled: true and optional: false";
    match (options.enabled, options.optional) {
        (true, None | Some(false)) => pass("all connections"),
        (true, Some(true)) => fail("encryption is optional", remedy),
        (false, _) => fail("not enabled", remedy),
    }
}

fn api_login(options: &Options) -> Outcome {
    let elsewhere = !options.api_address.is_loopback();
    match options.api_login {
        Some(ApiLogin::Required) => pass("all clients"),
        Some(ApiLogin::Remote) if elsewhere => pass("clients of other machines"),
        None | Some(ApiLogin::Remote) => (
            State::Review,
            format!("none for users of this machine ({})", options.api_address),
            "set \"api_login\" to required where other users have accounts on this machine",
        ),
        Some(ApiLogin::None) => {
            fail(format!("none on {}", options.api_address), "set \"api_login\" to required")
        }
    }
}

fn api_encryption(options: &Options) -> Outcome {
    let encryption = &options.api_encryption_options;
    match (
        encryption.enabled && encryption.optional != Some(true),
        options.api_address.is_loopback(),
    ) {
        (true, _) => pass("all connections"),
        (false, true) => pass("not needed: it listens on a loopback address only"),
        (false, false) => fail(
            format!("passwords and tokens are readable on the way to {}", options.api_address),
            "set \"api_encryption_options\" with enabled: true and optional: false",
        ),
    }
}

fn secret_files(facts: &Facts) -> Outcome {
    let SecretFiles { open, unchecked } = &facts.secrets;
    match (open.as_slice(), unchecked.as_slice()) {
        ([], []) => pass("no configuration, key, password or token file is readable by others"),
        ([], unchecked) => unknown(
            format!("cannot be checked: {}", unchecked.join(", ")),
            "run this as the user of the node and in its working directory",
        ),
        (open, _) => fail(format!("readable by others: {}", open.join(", ")), "chmod o-rwx"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Owner;
    use super::*;
    use conf::Address;

    /// Settings as a file has them.
    fn conf(text: &str) -> Options {
        super::super::facts::tests::options(text)
    }

    fn role(name: &str, is_superuser: bool) -> Role {
        Role { name: name.to_owned(), is_superuser, can_login: true }
    }

    /// A node that passes each item, as far as facts alone can pass it.
    fn hardened() -> Facts {
        let encrypted = EncryptionOptions { enabled: true, ..EncryptionOptions::default() };
        let options = Options {
            authenticator: Authenticator::Password,
            authorizer: Authorizer::Cassandra,
            network_authorizer: NetworkAuthorizer::Cassandra,
            client_encryption_options: encrypted.clone(),
            api_encryption_options: encrypted,
            server_encryption_options: conf(
                "server_encryption_options: {internode_encryption: all, require_client_auth: true}",
            )
            .server_encryption_options,
            audit_logging_options: conf("audit_logging_options: {enabled: true}")
                .audit_logging_options,
            api_login: Some(ApiLogin::Required),
            ..Options::default()
        };
        Facts {
            options,
            owner: Some(Owner { uid: 999, is_open: false }),
            secrets: SecretFiles::default(),
            node: Ok(NodeFacts {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                wrong_clocks: Vec::new(),
                log_level: "INFO".to_owned(),
            }),
            roles: Ok(vec![role("admin", true), role("app", false)]),
            default_password: DefaultPassword::Refused,
        }
    }

    fn state(facts: &Facts, number: &str) -> State {
        findings(facts).into_iter().find(|finding| finding.number == number).unwrap().state
    }

    #[test]
    fn a_hardened_node_passes_all_items_that_no_person_must_decide() {
        for finding in findings(&hardened()) {
            assert!(matches!(finding.state, State::Pass | State::Review), "{finding:?}");
            assert_eq!(finding.remedy.is_empty(), finding.state == State::Pass, "{finding:?}");
        }
        for number in ["4.2", "5.1", "H.3"] {
            assert_eq!(state(&hardened(), number), State::Pass, "{number}");
        }
        let mut facts = hardened();
        facts.options.audit_logging_options.enabled = false;
        facts.options.audit.table = true;
        assert_eq!(state(&facts, "4.2"), State::Pass);
    }

    #[test]
    fn a_file_that_cannot_be_checked_is_not_private() {
        let mut facts = hardened();
        facts.secrets.unchecked.push("conf/.keystore (not found)".to_owned());
        assert_eq!(state(&facts, "H.3"), State::Unknown);
        facts.secrets.open.push("/etc/tokens".to_owned());
        assert_eq!(state(&facts, "H.3"), State::Fail);
    }

    /// Each item with the nearest facts that fail it.
    #[test]
    fn each_item_fails_for_its_reason_only() {
        type Change = fn(&mut Facts);
        let changes: [(&[&str], Change); 18] = [
            (&["1.1", "1.5", "3.4"], |f| f.owner = Some(Owner { uid: 0, is_open: false })),
            (&["1.1"], |f| f.owner = Some(Owner { uid: 999, is_open: true })),
            (&["1.6"], |f| f.node.as_mut().unwrap().wrong_clocks.push("10.0.0.2".to_owned())),
            (&["2.2"], |f| f.options.authorizer = Authorizer::AllowAll),
            (&["3.1"], |f| f.roles = Ok(vec![role("cassandra", true)])),
            (&["3.2"], |f| f.default_password = DefaultPassword::Works),
            (&["4.1"], |f| f.node.as_mut().unwrap().log_level = "ERROR".to_owned()),
            (&["5.2"], |f| f.options.client_encryption_options.enabled = false),
            (&["5.2"], |f| f.options.client_encryption_options.optional = Some(true)),
            (&["3.5"], |f| f.options.rpc_address = Address::Ip([0, 0, 0, 0].into())),
            (&["H.1"], |f| f.options.api_login = Some(ApiLogin::None)),
            (&["H.2"], |f| {
                f.options.api_address = Address::Ip([10, 0, 0, 1].into());
                f.options.api_encryption_options.optional = Some(true);
            }),
            (&["H.3"], |f| f.secrets.open.push("/etc/tokens".to_owned())),
            (&["4.2"], |f| f.options.audit_logging_options.enabled = false),
            (&["4.2"], |f| f.options.audit_logging_options.logger = AuditLogger::NoOp),
            (&["5.1"], |f| {
                f.options.server_encryption_options.internode_encryption = InternodeEncryption::Dc;
            }),
            (&["5.1"], |f| f.options.server_encryption_options.tls.optional = Some(true)),
            (&["5.1"], |f| {
                f.options.server_encryption_options.tls.require_client_auth =
                    CertificatesOfClients::Optional;
            }),
        ];
        let fails = |facts: &Facts| -> Vec<&'static str> {
            let failed = findings(facts).into_iter().filter(|f| f.state == State::Fail);
            failed.map(|f| f.number).collect()
        };
        assert_eq!(fails(&hardened()), Vec::<&str>::new());
        for (expected, change) in changes {
            let mut facts = hardened();
            change(&mut facts);
            assert_eq!(fails(&facts), expected);
        }
    }

    #[test]
    fn without_logins_items_about_roles_fail_and_without_a_node_they_are_unknown() {
        let mut facts = hardened();
        facts.options.authenticator = Authenticator::AllowAll;
        for number in ["2.1", "3.1", "3.2", "3.3", "3.7", "3.8"] {
            assert_eq!(state(&facts, number), State::Fail, "{number}");
        }
        let mut facts = hardened();
        facts.node = Err("no node answers".to_owned());
        facts.roles = Err("no node answers".to_owned());
        facts.default_password = DefaultPassword::Untried("no node answers".to_owned());
        for number in ["1.4", "1.6", "3.1", "3.2", "3.3", "3.7", "3.8", "4.1"] {
            assert_eq!(state(&facts, number), State::Unknown, "{number}");
        }
        assert_eq!(state(&facts, "2.1"), State::Pass);
    }
}
