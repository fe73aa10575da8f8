//! Layers: defaults < file < environment < command line.
//!
//! Owns: the precedence of layers, errors and warnings. Never: opens the file, reads the environment, checks settings
//! against each other (`consistency`).

use core::fmt;
use std::collections::BTreeMap;

use crate::at_rest::AtRestOptions;
use crate::audit::AuditOptions;
use crate::consistency;
use crate::encryption::{EncryptionOptions, UNKNOWN, WrongKey};
use crate::guardrails;
use crate::key_hosts::{KmsHosts, VaultHosts};
use crate::known;
use crate::options::{NAMES, Options, Status};
use crate::query_log::QueryLogOptions;
use crate::server_encryption::ServerEncryptionOptions;
use crate::spelling;
use crate::value::{Authenticator, CommitFailurePolicy, class_name};
use crate::yaml::{self, Node, NodeKind};

/// Prefix of environment variables that set something: `HELENUS_NATIVE_TRANSPORT_PORT=9142`.
pub const ENV_PREFIX: &str = "HELENUS_";

/// Variables with the prefix that are not settings: the path of the file, which the binary reads.
const ENV_NOT_SETTINGS: &[&str] = &["HELENUS_CONFIG"];

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of the file.
    File {
        /// Path as given.
        path: String,
        /// Line from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment {
        /// Its whole name.
        variable: String,
    },
    /// A flag of the command line.
    CommandLine {
        /// The flag as written.
        flag: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{path}:{line}"),
            Origin::Environment { variable } => write!(f, "environment {variable}"),
            Origin::CommandLine { flag } => write!(f, "command line {flag}"),
        }
    }
}

/// Something that stops the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    /// The file is not YAML or not a map of settings.
    #[error("{path}:{line}: {message}")]
    Syntax {
        /// Path as given.
        path: String,
        /// Line from 1.
        line: usize,
        /// The error.
        message: String,
    },
    /// A value does not have the form that its setting needs.
    #[error("{origin}: \"{name}\" expects {expected}, found \"{found}\"")]
    Value {
        /// Place of the value.
        origin: Origin,
        /// Name as written.
        name: String,
        /// The expected form.
        expected: String,
        /// The value.
        found: String,
    },
    /// A key of a map that no setting has.
    #[error("{origin}: unknown key \"{name}\"")]
    UnknownKey {
        /// Place of the key.
        origin: Origin,
        /// Setting and key.
        name: String,
    },
    /// Two spellings of one setting in one layer.
    #[error("{origin}: \"{name}\" is the old spelling of \"{new}\", which is set too")]
    TwoSpellings {
        /// Place of the second one.
        origin: Origin,
        /// The old spelling.
        name: String,
        /// The new one.
        new: String,
    },
    /// A setting asks for protection that this server does not implement.
    #[error(
        "{origin}: \"{name}\" asks for {protection}, which is not supported yet: \
         refusing to start without it (found \"{found}\")"
    )]
    Unprotected {
        /// Place of the value.
        origin: Origin,
        /// Name as written.
        name: String,
        /// The protection that the value asks for.
        protection: String,
        /// The value.
        found: String,
    },
    /// Settings that contradict each other.
    #[error("\"{name}\": {message}")]
    Inconsistent {
        /// The setting to change.
        name: &'static str,
        /// The contradiction.
        message: String,
    },
    /// A flag that names no setting.
    #[error("unknown option {flag}{}", suggestion.as_ref().map(|s| format!(", did you mean --{s}?")).unwrap_or_default())]
    UnknownFlag {
        /// The flag as written.
        flag: String,
        /// The nearest name.
        suggestion: Option<String>,
    },
    /// A flag without its value.
    #[error("option {flag} needs a value")]
    FlagWithoutValue {
        /// The flag as written.
        flag: String,
    },
}

/// All errors, in the order of the layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfErrors(pub Vec<ConfError>);

impl fmt::Display for ConfErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfErrors {}

/// A setting that has no effect, or an old spelling of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// No such setting.
    Unknown {
        /// Place.
        origin: Origin,
        /// Name as written.
        name: String,
    },
    /// A known setting without an effect.
    NotSupportedYet {
        /// Place.
        origin: Origin,
        /// Name as written.
        name: String,
        /// The value.
        value: String,
        /// True if Cassandra behaves like this without the setting.
        is_default: bool,
    },
    /// A known setting that is not needed here.
    NotNeeded {
        /// Place.
        origin: Origin,
        /// Name as written.
        name: String,
        /// The value.
        value: String,
    },
    /// A limit on ordinary users in a server without logins.
    NobodyIsLimited {
        /// Origin of the value.
        origin: Option<Origin>,
        /// The setting.
        name: String,
    },
    /// An old spelling; it has an effect.
    OldSpelling {
        /// Place.
        origin: Origin,
        /// Name as written.
        name: String,
        /// Current name.
        new: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Unknown { origin, name } => {
                write!(f, "{origin}: unknown setting \"{name}\"")?;
                match nearest(name) {
                    Some(near) => write!(f, ", did you mean \"{}\"?", near.replace('-', "_")),
                    None => Ok(()),
                }
            }
            Warning::NotSupportedYet { origin, name, value, .. } => {
                write!(
                    f,
                    "{origin}: \"{name}\" is not supported yet and has no effect (\"{value}\")"
                )
            }
            Warning::NotNeeded { origin, name, value } => write!(
                f,
                "{origin}: \"{name}\" has no effect (\"{value}\"): there is nothing here that it \
                 could bound"
            ),
            Warning::NobodyIsLimited { origin, name } => write!(
                f,
                "{}\"{name}\" has no effect with AllowAllAuthenticator: it is for ordinary users, and all \
                 are superusers then",
                origin.as_ref().map(|origin| format!("{origin}: ")).unwrap_or_default()
            ),
            Warning::OldSpelling { origin, name, new } => {
                write!(f, "{origin}: \"{name}\" is the old spelling of \"{new}\"")
            }
        }
    }
}

/// Returns one log line for each unknown setting and for each one whose value has no effect. One
/// line lists all settings at Cassandra's default, one all old spellings.
pub fn summarize(warnings: &[Warning]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at_default = Vec::new();
    let mut old = Vec::new();
    for warning in warnings {
        match warning {
            Warning::NotSupportedYet { name, is_default: true, .. } => {
                at_default.push(name.as_str())
            }
            Warning::OldSpelling { name, new, .. } => old.push(format!("{name} ({new})")),
            Warning::Unknown { .. }
            | Warning::NobodyIsLimited { .. }
            | Warning::NotNeeded { .. }
            | Warning::NotSupportedYet { .. } => {
                lines.push(warning.to_string());
            }
        }
    }
    if !at_default.is_empty() {
        lines
            .push(format!("set to their default and not supported yet: {}", at_default.join(", ")));
    }
    if !old.is_empty() {
        lines.push(format!("old spellings, read as their new names: {}", old.join(", ")));
    }
    lines
}

/// The flags of a command line, split but not yet understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Path given with `--config`; the binary reads it (or `HELENUS_CONFIG`).
    pub config_file: Option<String>,
    /// True if `--help` or `-h` was given.
    pub help: bool,
    settings: Vec<(String, String, String)>,
}

impl CommandLine {
    /// Splits `--name value`, `--name=value` and `--name` (true, for settings that are true or
    /// false). Dashes and underscores in names are the same.
    ///
    /// # Errors
    /// A word that is no flag, an unknown flag, a flag without its value: all of them are returned.
    pub fn parse<I, S>(arguments: I) -> Result<CommandLine, ConfErrors>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let mut line = CommandLine::default();
        let mut errors = Vec::new();
        let mut rest = arguments.into_iter().map(Into::into).peekable();
        while let Some(word) = rest.next() {
            if word == "-h" || word == "--help" {
                line.help = true;
                continue;
            }
            let (flag, mut value) = match word.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            let Some(name) = flag.strip_prefix("--").filter(|n| !n.is_empty()) else {
                errors.push(ConfError::UnknownFlag { flag, suggestion: None });
                continue;
            };
            let mut name = name.replace('-', "_");
            if name == "without" {
                name = "takeover_without".to_owned();
            }
            let is_config = name == "config" || name == "options_file";
            if !is_config && !is_known(&name) {
                // Its value, if any, belongs to the flag: one mistake, one message.
                if value.is_none() && rest.peek().is_some_and(|next| !next.starts_with("--")) {
                    rest.next();
                }
                let suggestion = nearest(&name);
                errors.push(ConfError::UnknownFlag { flag, suggestion });
                continue;
            }
            if value.is_none() {
                value = rest.next_if(|next| !next.starts_with("--"));
            }
            let value = match value {
                Some(value) => value,
                None if is_flag(&name) => "true".to_owned(),
                None => {
                    errors.push(ConfError::FlagWithoutValue { flag });
                    continue;
                }
            };
            if is_config {
                line.config_file = Some(value);
            } else {
                line.settings.push((flag, name, value));
            }
        }
        if errors.is_empty() { Ok(line) } else { Err(ConfErrors(errors)) }
    }

    /// A command line with one setting, for tests and embedding.
    pub fn with(mut self, name: &str, value: &str) -> CommandLine {
        self.settings.push((format!("--{name}"), name.replace('-', "_"), value.to_owned()));
        self
    }
}

/// Layers above the defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Path for messages, and text of the YAML file.
    pub file: Option<(String, String)>,
    /// Environment variables; those without [`ENV_PREFIX`] are ignored.
    pub environment: Vec<(String, String)>,
    /// The command line.
    pub command_line: CommandLine,
}

/// Result of loading the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub options: Options,
    /// Warnings about settings that were given without effect.
    pub warnings: Vec<Warning>,
    /// Origin of each setting that is not at its default, by name.
    pub origins: BTreeMap<&'static str, Origin>,
}

/// Applies all layers.
///
/// # Errors
/// All errors of all layers.
pub fn load(sources: &Sources) -> Result<Loaded, ConfErrors> {
    let mut loader = Loader {
        loaded: Loaded {
            options: Options::default(),
            warnings: Vec::new(),
            origins: BTreeMap::new(),
        },
        errors: Vec::new(),
        layer: BTreeMap::new(),
    };
    if let Some((path, text)) = &sources.file {
        loader.file(path, text);
    }
    loader.layer.clear();
    for (variable, value) in &sources.environment {
        let Some(name) = variable.strip_prefix(ENV_PREFIX) else {
            continue;
        };
        if ENV_NOT_SETTINGS.contains(&variable.as_str()) {
            continue;
        }
        let origin = Origin::Environment { variable: variable.clone() };
        loader.text(&name.to_ascii_lowercase(), value, origin);
    }
    loader.layer.clear();
    for (flag, name, value) in &sources.command_line.settings {
        loader.text(name, value, Origin::CommandLine { flag: flag.clone() });
    }
    if loader.errors.is_empty() {
        for (name, message) in guardrails::check(&mut loader.loaded.options) {
            loader.errors.push(ConfError::Inconsistent { name, message });
        }
        consistency::check(&loader.loaded.options, &mut loader.errors);
    }
    let options = &loader.loaded.options;
    if options.authenticator == Authenticator::AllowAll {
        for name in guardrails::on_ordinary_users(options) {
            let origin = loader.loaded.origins.get(name.as_str()).cloned();
            loader.loaded.warnings.push(Warning::NobodyIsLimited { origin, name });
        }
    }
    if let Some((path, _)) = &sources.file {
        let directory = path.rsplit_once('/').map_or(".", |(directory, _)| directory);
        loader.loaded.options.configuration_directory = Some(directory.to_owned());
    }
    if loader.errors.is_empty() { Ok(loader.loaded) } else { Err(ConfErrors(loader.errors)) }
}

/// Parameters of the classes of a setting.
struct ClassParameters {
    setting: &'static str,
    /// Classes that have parameters.
    classes: &'static [&'static str],
    /// The parameters and the settings that they are.
    settings: &'static [(&'static str, &'static str)],
    /// Parameters without meaning here.
    not_needed: &'static [&'static str],
    /// Description of the parameters.
    form: &'static str,
}

const CLASS_PARAMETERS: [ClassParameters; 2] = [
    ClassParameters {
        setting: "authenticator",
        classes: &["MutualTlsAuthenticator", "MutualTlsWithPasswordFallbackAuthenticator"],
        settings: &[("validator_class_name", "mutual_tls_validator")],
        not_needed: &[],
        form: "the parameter validator_class_name",
    },
    ClassParameters {
        setting: "cidr_authorizer",
        classes: &["CassandraCIDRAuthorizer"],
        settings: &[
            ("cidr_authorizer_mode", "cidr_authorizer_mode"),
            ("cidr_checks_for_superusers", "cidr_checks_for_superusers"),
        ],
        not_needed: &["cidr_groups_cache_refresh_interval", "ip_cache_max_size"],
        form: "parameters cidr_authorizer_mode and cidr_checks_for_superusers",
    },
];

struct Loader {
    loaded: Loaded,
    errors: Vec<ConfError>,
    /// For each new name of the layer being read: true if the old spelling set it.
    layer: BTreeMap<&'static str, bool>,
}

impl Loader {
    fn file(&mut self, path: &str, text: &str) {
        let root = match yaml::parse(text) {
            Ok(root) => root,
            Err(error) => {
                self.errors.push(ConfError::Syntax {
                    path: path.into(),
                    line: error.line,
                    message: error.message,
                });
                return;
            }
        };
        match root.kind {
            NodeKind::Null => {}
            NodeKind::Map(entries) => {
                for entry in entries {
                    let line = if entry.value.line == 0 { entry.line } else { entry.value.line };
                    let origin = Origin::File { path: path.into(), line };
                    self.node(&entry.key, &entry.value, origin);
                }
            }
            NodeKind::Scalar(_) | NodeKind::List(_) => self.errors.push(ConfError::Syntax {
                path: path.into(),
                line: root.line,
                message: "expects settings such as \"cluster_name: Test Cluster\"".into(),
            }),
        }
    }

    /// Applies a value of the environment or the command line: maps and lists are written as YAML
    /// there.
    fn text(&mut self, name: &str, text: &str, origin: Origin) {
        let flow = text.trim_start().starts_with(['{', '[']);
        let node = match flow.then(|| yaml::parse(text)) {
            Some(Ok(node)) => node,
            Some(Err(_)) | None if text.is_empty() => Node { line: 0, kind: NodeKind::Null },
            Some(Err(_)) | None => Node::scalar(text),
        };
        self.node(name, &node, origin);
    }

    fn node(&mut self, name: &str, node: &Node, origin: Origin) {
        if name == "seed_provider" {
            match seeds(node) {
                Some(seeds) => self.assign(name, "seeds", &seeds, origin, "seeds"),
                None => self.wrong(origin, name, "a seed provider with a list of seeds", node),
            }
            return;
        }
        if let Some(of) = CLASS_PARAMETERS.iter().find(|of| of.setting == name) {
            self.class_parameters(of, node, &origin);
        }
        let wrong_keys = match name {
            _ if node.is_null() => None,
            "client_encryption_options" | "api_encryption_options" => {
                EncryptionOptions::parse(node).err()
            }
            "server_encryption_options" => ServerEncryptionOptions::parse(node).err(),
            "audit_logging_options" => AuditOptions::parse(node).err(),
            "full_query_logging_options" => QueryLogOptions::parse(node).err(),
            "user_info_encryption" | "system_info_encryption" => AtRestOptions::parse(node).err(),
            "vault_hosts" => VaultHosts::parse(node).err(),
            "kms_hosts" => KmsHosts::parse(node).err(),
            _ => None,
        };
        if let Some(wrong) = wrong_keys {
            self.wrong_keys(name, &wrong, &origin);
            return;
        }
        let Some((new, unit)) = spelling::replaced(name) else {
            self.assign(name, name, node, origin, "");
            return;
        };
        if new != name {
            self.loaded.warnings.push(Warning::OldSpelling {
                origin: origin.clone(),
                name: name.into(),
                new,
            });
        }
        match unit.convert(node) {
            Some(value) => self.assign(name, new, &value, origin, unit.form().unwrap_or("")),
            None => self.wrong(origin, name, unit.form().unwrap_or("another value"), node),
        }
    }

    /// `parameters` of a class, a map or a list of one: each is a setting of its own. Without meaning
    /// for classes that have none.
    fn class_parameters(&mut self, of: &ClassParameters, node: &Node, origin: &Origin) {
        let is_meant = class_name(node)
            .is_some_and(|class| of.classes.iter().any(|known| class.eq_ignore_ascii_case(known)));
        let Some(parameters) = node.get("parameters").filter(|p| is_meant && !p.is_null()) else {
            return;
        };
        let parameters = match &parameters.kind {
            NodeKind::List(items) => items.first().unwrap_or(parameters),
            _ => parameters,
        };
        let NodeKind::Map(entries) = &parameters.kind else {
            if !matches!(&parameters.kind, NodeKind::List(items) if items.is_empty()) {
                self.wrong(origin.clone(), of.setting, of.form, parameters);
            }
            return;
        };
        for entry in entries {
            let key = entry.key.as_str();
            match of.settings.iter().find(|(parameter, _)| *parameter == key) {
                Some((_, setting)) => {
                    self.assign(setting, setting, &entry.value, origin.clone(), "");
                }
                None if of.not_needed.contains(&key) => {}
                None => self.wrong(origin.clone(), key, of.form, &entry.value),
            }
        }
    }

    /// Reports each wrong key of a map by its own name and line.
    fn wrong_keys(&mut self, name: &str, wrong: &[WrongKey], origin: &Origin) {
        for key in wrong {
            let origin = match origin {
                Origin::File { path, .. } if key.value.line > 0 => {
                    Origin::File { path: path.clone(), line: key.value.line }
                }
                other => other.clone(),
            };
            let separator = if key.key.is_empty() { "" } else { "." };
            let full = format!("{name}{separator}{}", key.key);
            if key.expected == UNKNOWN {
                self.errors.push(ConfError::UnknownKey { origin, name: full });
                continue;
            }
            let masked = Node::scalar("***");
            let value = if key.is_shown() { &key.value } else { &masked };
            self.wrong(origin, &full, &key.expected, value);
        }
    }

    fn wrong(&mut self, origin: Origin, name: &str, expected: &str, node: &Node) {
        self.errors.push(ConfError::Value {
            origin,
            name: name.into(),
            expected: expected.into(),
            found: node.brief(),
        });
    }

    /// Sets `name` (written as `written`). `form` describes the value of an old spelling, else it
    /// is empty.
    fn assign(&mut self, written: &str, name: &str, node: &Node, origin: Origin, form: &str) {
        let Some(&(name, status)) = NAMES.iter().find(|(n, _)| *n == name) else {
            self.without_field(written, name, node, origin);
            return;
        };
        self.note_spelling(written, name, &origin);
        if node.is_null() {
            return;
        }
        // Set in a copy of the default, to detect whether the value is valid and equals the
        // default.
        let mut fresh = Options::default();
        let refused = match fresh.set(name, node) {
            Some(Err(unaccepted)) => Some(unaccepted.expected),
            Some(Ok(())) | None => None,
        };
        if let Some(expected) = refused {
            if matches!(
                name,
                "authenticator" | "authorizer" | "network_authorizer" | "cidr_authorizer"
            ) {
                self.errors.push(ConfError::Unprotected {
                    origin,
                    name: written.into(),
                    protection: format!("another {name} than {expected}"),
                    found: class_name(node).unwrap_or_default().into(),
                });
                return;
            }
            let expected = if form.is_empty() { expected } else { form.to_owned() };
            self.wrong(origin, written, &expected, node);
            return;
        }
        let is_default = fresh.render(name) == Options::default().render(name);
        match status {
            Status::Supported if taken_for_another(name, &fresh) => {
                self.loaded.warnings.push(Warning::NotSupportedYet {
                    origin: origin.clone(),
                    name: written.into(),
                    value: node.brief(),
                    is_default: false,
                });
            }
            Status::Supported => {}
            Status::NotYet => self.loaded.warnings.push(Warning::NotSupportedYet {
                origin: origin.clone(),
                name: written.into(),
                value: node.brief(),
                is_default,
            }),
            Status::NotNeeded if is_default => {}
            Status::NotNeeded => self.loaded.warnings.push(Warning::NotNeeded {
                origin: origin.clone(),
                name: written.into(),
                value: node.brief(),
            }),
            Status::Protects if is_default => {}
            Status::Protects => {
                self.errors.push(ConfError::Unprotected {
                    origin,
                    name: written.into(),
                    protection: "protection of data".into(),
                    found: node.brief(),
                });
                return;
            }
        }
        // The same function accepted it above.
        let _ = self.loaded.options.set(name, node);
        self.loaded.origins.insert(name, origin);
    }

    /// A layer that sets a setting by its old and by its new name leaves open which one counts.
    fn note_spelling(&mut self, written: &str, name: &'static str, origin: &Origin) {
        let old = written != name;
        if let Some(before) = self.layer.insert(name, old)
            && before != old
        {
            self.errors.push(ConfError::TwoSpellings {
                origin: origin.clone(),
                name: written.into(),
                new: name.into(),
            });
        }
    }

    fn without_field(&mut self, written: &str, name: &str, node: &Node, origin: Origin) {
        if let Some((_, protection)) = known::PROTECTS.iter().find(|(n, _)| *n == name) {
            if !node.is_null() && known::asks_for_protection(name, node) {
                self.errors.push(ConfError::Unprotected {
                    origin,
                    name: written.into(),
                    protection: (*protection).into(),
                    found: node.brief(),
                });
            }
            return;
        }
        let known = known::NOT_YET.binary_search_by(|(n, _)| n.cmp(&name)).ok();
        let default = known.and_then(|at| known::NOT_YET.get(at)).map(|row| row.1);
        let default = match default {
            None if known::SCYLLA_ONLY.contains(&name) => Some(""),
            other => other,
        };
        match default {
            Some(_) if node.is_null() => {}
            Some(default) => self.loaded.warnings.push(Warning::NotSupportedYet {
                origin,
                name: written.into(),
                value: node.brief(),
                is_default: known::is_default(default, node),
            }),
            None => self.loaded.warnings.push(Warning::Unknown { origin, name: written.into() }),
        }
    }
}

/// Returns true if the value of a supported setting is treated as another value (see its help).
fn taken_for_another(name: &str, options: &Options) -> bool {
    match name {
        "commit_failure_policy" => options.commit_failure_policy == CommitFailurePolicy::Ignore,
        _ => false,
    }
}

/// The `seeds` of Cassandra's seed provider:
/// `[{class_name: …, parameters: [{seeds: "a,b"}]}]`, or the same without the lists.
fn seeds(node: &Node) -> Option<Node> {
    fn first(node: &Node) -> &Node {
        match &node.kind {
            NodeKind::List(items) => items.first().unwrap_or(node),
            _ => node,
        }
    }
    if node.is_null() {
        return Some(node.clone());
    }
    let parameters = first(first(node).get("parameters")?);
    parameters.get("seeds").cloned()
}

fn is_known(name: &str) -> bool {
    name == "seed_provider"
        || NAMES.iter().any(|(n, _)| *n == name)
        || spelling::replaced(name).is_some()
        || known::NOT_YET.iter().chain(known::PROTECTS).any(|(n, _)| *n == name)
        || known::SCYLLA_ONLY.contains(&name)
}

fn is_flag(name: &str) -> bool {
    let rendered = Options::default().render(name);
    matches!(rendered.as_deref(), Some("true" | "false"))
        || known::NOT_YET.iter().any(|(n, d)| *n == name && matches!(*d, "true" | "false"))
        || known::SCYLLA_ONLY.contains(&name)
}

/// Returns the setting with the nearest name, if one is near.
fn nearest(name: &str) -> Option<String> {
    if name.len() > 80 {
        return None;
    }
    let best = NAMES.iter().map(|(n, _)| (distance(name, n), *n)).min()?;
    (best.0 <= 1 + name.len() / 5).then(|| best.1.replace('_', "-"))
}

/// Edit distance; both are short.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let up = *cell;
            left = (diagonal + usize::from(x != y)).min(up + 1).min(left + 1);
            diagonal = up;
            *cell = left;
        }
        if let Some(head) = row.first_mut() {
            *head = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
