//! `audit_logging_options` of Cassandra 5.0, and ScyllaDB's `audit` settings.
//!
//! Owns: the keys with their forms and defaults, names of loggers and categories. Never: decides which
//! event is written (crate `audit`), opens a file.
//! Source: Cassandra 5.0 `AuditLogOptions`, `AuditLogEntryCategory`; ScyllaDB's documentation.

use std::collections::BTreeMap;

use crate::binlog::{BinLogOptions, flag, read_map, text};
use crate::encryption::{UNKNOWN, WrongKey};
use crate::value::{Range, Refusal, Value, class_name};
use crate::yaml::{Node, NodeKind};

/// Names of categories in filters, in Cassandra's order; the last one is an addition for the HTTP API.
pub const CATEGORIES: [&str; 9] =
    ["QUERY", "DML", "DDL", "DCL", "OTHER", "AUTH", "ERROR", "PREPARE", "ADMIN"];

/// Names of ScyllaDB's categories.
pub const SCYLLA_CATEGORIES: [&str; 6] = ["AUTH", "DML", "DDL", "DCL", "QUERY", "ADMIN"];

/// Destination of audit events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLogger {
    /// `BinAuditLogger`: checksummed binary files.
    #[default]
    Bin,
    /// `FileAuditLogger`: lines in `audit.log`.
    File,
    /// `NoOpAuditLogger`: events are discarded.
    NoOp,
}

impl AuditLogger {
    /// The name of Cassandra's class.
    pub fn class(self) -> &'static str {
        match self {
            AuditLogger::Bin => "BinAuditLogger",
            AuditLogger::File => "FileAuditLogger",
            AuditLogger::NoOp => "NoOpAuditLogger",
        }
    }

    /// Returns the logger of a class name, with or without its package.
    ///
    /// # Errors
    /// The expected form: the class is not supported.
    pub fn of_class(name: &str) -> Result<AuditLogger, String> {
        let class = name.strip_prefix("org.apache.cassandra.audit.").unwrap_or(name);
        let all = [AuditLogger::Bin, AuditLogger::File, AuditLogger::NoOp];
        if let Some(found) = all.into_iter().find(|logger| logger.class() == class) {
            return Ok(found);
        }
        Err(match class {
            "DiagnosticEventAuditLogger" => {
                "BinAuditLogger, FileAuditLogger or NoOpAuditLogger: diagnostic events are not supported"
            }
            _ => "BinAuditLogger, FileAuditLogger or NoOpAuditLogger",
        }
        .to_owned())
    }
}

/// `audit_logging_options`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// `enabled`.
    pub enabled: bool,
    /// Class of `logger`.
    pub logger: AuditLogger,
    /// `logger` parameter `key_value_separator`.
    pub key_value_separator: String,
    /// `logger` parameter `field_separator`.
    pub field_separator: String,
    /// `audit_logs_dir`; unset: `logs/audit` below the work directory.
    pub audit_logs_dir: Option<String>,
    /// `included_keyspaces`: names with commas between them.
    pub included_keyspaces: String,
    /// `excluded_keyspaces`.
    pub excluded_keyspaces: String,
    /// `included_categories`.
    pub included_categories: String,
    /// `excluded_categories`.
    pub excluded_categories: String,
    /// `included_users`.
    pub included_users: String,
    /// `excluded_users`.
    pub excluded_users: String,
    /// Queue and files.
    pub log: BinLogOptions,
}

impl Default for AuditOptions {
    fn default() -> Self {
        AuditOptions {
            enabled: false,
            logger: AuditLogger::Bin,
            key_value_separator: ":".to_owned(),
            field_separator: "|".to_owned(),
            audit_logs_dir: None,
            included_keyspaces: String::new(),
            excluded_keyspaces: "system,system_schema,system_virtual_schema".to_owned(),
            included_categories: String::new(),
            excluded_categories: String::new(),
            included_users: String::new(),
            excluded_users: String::new(),
            log: BinLogOptions::default(),
        }
    }
}

impl AuditOptions {
    /// Reads a map, or its text as written in the environment and on the command line.
    ///
    /// # Errors
    /// Every wrong key.
    pub fn parse(node: &Node) -> Result<AuditOptions, Vec<WrongKey>> {
        let mut options = AuditOptions::default();
        read_map(node, |key, value| options.set(key, value))?;
        Ok(options)
    }

    /// Returns these options with some keys changed.
    ///
    /// # Errors
    /// The first wrong key, with the expected form.
    pub fn with(&self, changes: &BTreeMap<String, String>) -> Result<AuditOptions, String> {
        let mut changed = self.clone();
        for (key, value) in changes {
            let set = changed.set(key, &Node::scalar(value));
            set.map_err(|expected| format!("{key} expects {expected}, not \"{value}\""))?;
        }
        Ok(changed)
    }

    fn set(&mut self, key: &str, value: &Node) -> Result<(), String> {
        match key {
            "enabled" => self.enabled = flag(value)?,
            "logger" => self.set_logger(value)?,
            "audit_logs_dir" => {
                self.audit_logs_dir = Some(text(value)?).filter(|dir| !dir.is_empty());
            }
            "included_keyspaces" => self.included_keyspaces = names(value)?,
            "excluded_keyspaces" => self.excluded_keyspaces = names(value)?,
            "included_categories" => self.included_categories = categories(value)?,
            "excluded_categories" => self.excluded_categories = categories(value)?,
            "included_users" => self.included_users = names(value)?,
            "excluded_users" => self.excluded_users = names(value)?,
            _ => return self.log.set(key, value).unwrap_or_else(|| Err(UNKNOWN.to_owned())),
        }
        Ok(())
    }

    /// A class name, or `{class_name: …, parameters: {…}}`, or a list of one.
    fn set_logger(&mut self, node: &Node) -> Result<(), String> {
        let node = match &node.kind {
            NodeKind::List(items) => match items.as_slice() {
                [one] => one,
                _ => return Err("one logger".to_owned()),
            },
            _ => node,
        };
        let class = class_name(node).ok_or_else(|| "a logger with a class_name".to_owned())?;
        self.logger = AuditLogger::of_class(class)?;
        let Some(parameters) = node.get("parameters").filter(|p| !p.is_null()) else {
            return Ok(());
        };
        let parameters = match &parameters.kind {
            NodeKind::List(items) => items.first().unwrap_or(parameters),
            _ => parameters,
        };
        let form = "parameters key_value_separator and field_separator, which are texts";
        let NodeKind::Map(entries) = &parameters.kind else { return Err(form.to_owned()) };
        for entry in entries {
            let value = entry.value.text().filter(|text| !text.is_empty());
            let value = value.ok_or_else(|| form.to_owned())?.to_owned();
            match entry.key.as_str() {
                "key_value_separator" => self.key_value_separator = value,
                "field_separator" => self.field_separator = value,
                _ => return Err(form.to_owned()),
            }
        }
        Ok(())
    }
}

/// Checks names of categories with commas between them; returns them in upper case.
///
/// # Errors
/// The expected form.
pub fn category_list(text: &str) -> Result<String, String> {
    let all = text.split(',').map(|name| name.trim().to_ascii_uppercase());
    let all: Vec<String> = all.filter(|name| !name.is_empty()).collect();
    match all.iter().all(|name| CATEGORIES.contains(&name.as_str())) {
        true => Ok(all.join(",")),
        false => Err(format!("categories out of {}", CATEGORIES.join(", "))),
    }
}

/// Normalises names with commas between them: no blanks, no empty names.
pub fn name_list(text: &str) -> String {
    let all = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    all.collect::<Vec<&str>>().join(",")
}

fn categories(node: &Node) -> Result<String, String> {
    category_list(&list_text(node)?)
}

fn names(node: &Node) -> Result<String, String> {
    Ok(name_list(&list_text(node)?))
}

/// A text with commas, or a list.
fn list_text(node: &Node) -> Result<String, String> {
    let form = || "names with commas between them".to_owned();
    match &node.kind {
        NodeKind::List(items) => {
            let texts: Option<Vec<&str>> = items.iter().map(Node::text).collect();
            Ok(texts.ok_or_else(form)?.join(","))
        }
        _ => node.text().map(str::to_owned).ok_or_else(form),
    }
}

impl Value for AuditOptions {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        AuditOptions::parse(node).map_err(|_| Refusal::Form)
    }
    fn form() -> String {
        "a map of keys of the audit log".into()
    }
    fn render(&self) -> String {
        if *self == AuditOptions::default() {
            return String::new();
        }
        let quoted = |value: &str| format!("'{}'", value.replace('\'', "''"));
        let mut parts: Vec<String> =
            self.rows().iter().map(|(name, value)| format!("{name}: {}", quoted(value))).collect();
        let default = AuditOptions::default();
        if (&self.key_value_separator, &self.field_separator)
            != (&default.key_value_separator, &default.field_separator)
        {
            let (pair, field) = (quoted(&self.key_value_separator), quoted(&self.field_separator));
            let parameters = format!("key_value_separator: {pair}, field_separator: {field}");
            let class = self.logger.class();
            parts.retain(|part| !part.starts_with("logger:"));
            parts.push(format!("logger: {{class_name: {class}, parameters: {{{parameters}}}}}"));
        }
        format!("{{{}}}", parts.join(", "))
    }
}

impl AuditOptions {
    /// Returns the keys that `nodetool getauditlog` prints with their values, in its order.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let head = [
            ("enabled", self.enabled.to_string()),
            ("logger", self.logger.class().to_owned()),
            ("audit_logs_dir", self.audit_logs_dir.clone().unwrap_or_default()),
        ];
        let filters = [
            ("included_keyspaces", self.included_keyspaces.clone()),
            ("excluded_keyspaces", self.excluded_keyspaces.clone()),
            ("included_categories", self.included_categories.clone()),
            ("excluded_categories", self.excluded_categories.clone()),
            ("included_users", self.included_users.clone()),
            ("excluded_users", self.excluded_users.clone()),
        ];
        head.into_iter().chain(self.log.rows()).chain(filters).collect()
    }
}

/// ScyllaDB's `audit`: `none`, `table`, `syslog` or `table,syslog`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScyllaAudit {
    /// Rows of `audit.audit_log`.
    pub table: bool,
    /// Datagrams to a syslog socket.
    pub syslog: bool,
}

impl Value for ScyllaAudit {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        let mut audit = ScyllaAudit::default();
        let text = node.text().ok_or(Refusal::Form)?;
        for word in text.split(',').map(str::trim) {
            match word.to_ascii_lowercase().as_str() {
                "table" => audit.table = true,
                "syslog" => audit.syslog = true,
                "none" if text.trim().eq_ignore_ascii_case("none") => {}
                _ => return Err(Refusal::Form),
            }
        }
        Ok(audit)
    }
    fn form() -> String {
        "none, table, syslog or table,syslog".into()
    }
    fn render(&self) -> String {
        match (self.table, self.syslog) {
            (false, false) => "none",
            (true, false) => "table",
            (false, true) => "syslog",
            (true, true) => "table,syslog",
        }
        .to_owned()
    }
}

/// Names of ScyllaDB's audit categories with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScyllaCategories(pub String);

impl Default for ScyllaCategories {
    fn default() -> Self {
        ScyllaCategories("DCL,DDL,AUTH,ADMIN".to_owned())
    }
}

impl Value for ScyllaCategories {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        let text = name_list(node.text().ok_or(Refusal::Form)?).to_ascii_uppercase();
        let is_known = |name: &str| name.is_empty() || SCYLLA_CATEGORIES.contains(&name);
        if text.split(',').all(is_known) {
            return Ok(ScyllaCategories(text));
        }
        Err(Refusal::Form)
    }
    fn form() -> String {
        format!("categories out of {}", SCYLLA_CATEGORIES.join(", "))
    }
    fn render(&self) -> String {
        self.0.clone()
    }
}

/// Names of keyspaces or of tables (`keyspace.table`) with commas between them; may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList(pub String);

impl Value for NameList {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        node.text().map(|text| NameList(name_list(text))).ok_or(Refusal::Form)
    }
    fn form() -> String {
        "names with commas between them".into()
    }
    fn render(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn parse(text: &str) -> Result<AuditOptions, Vec<String>> {
        let parsed = AuditOptions::parse(&yaml::parse(text).unwrap());
        parsed.map_err(|wrong| {
            wrong.into_iter().map(|w| format!("{}: {}", w.key, w.expected)).collect()
        })
    }

    #[test]
    fn cassandras_keys_are_read_and_printed_in_the_order_of_getauditlog() {
        let read = parse(
            "{enabled: true, logger: [{class_name: FileAuditLogger, parameters: [{field_separator: ';'}]}], \
             audit_logs_dir: /a, included_users: ' a, b', excluded_categories: 'dml,QUERY', roll_cycle: daily, \
             block: false, max_queue_weight: 5, max_log_size: 6, archive_command: '/x %path', max_archive_retries: 7}",
        )
        .unwrap();
        let rows: Vec<String> =
            read.rows().iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            rows.join(" "),
            "enabled=true logger=FileAuditLogger audit_logs_dir=/a archive_command=/x %path roll_cycle=DAILY \
             block=false max_log_size=6 max_queue_weight=5 max_archive_retries=7 included_keyspaces= \
             excluded_keyspaces=system,system_schema,system_virtual_schema included_categories= \
             excluded_categories=DML,QUERY included_users=a,b excluded_users="
        );
        assert_eq!((&*read.field_separator, &*read.key_value_separator), (";", ":"));
        assert_eq!(
            parse("{enabled: true, logger: BinAuditLogger}").unwrap().logger,
            AuditLogger::Bin
        );
        assert_eq!(parse(&read.render()).unwrap(), read);
    }

    #[test]
    fn every_wrong_key_is_named_with_its_form() {
        let check = |text: &str, key: &str, part: &str| {
            let errors = parse(text).unwrap_err();
            assert!(errors.iter().any(|e| e.starts_with(key) && e.contains(part)), "{errors:?}");
        };
        check("{enable: true}", "enable:", "known key");
        check("{enabled: maybe}", "enabled:", "true or false");
        check(
            "{logger: DiagnosticEventAuditLogger}",
            "logger:",
            "diagnostic events are not supported",
        );
        check("{logger: Foo}", "logger:", "BinAuditLogger");
        check(
            "{logger: [{class_name: FileAuditLogger, parameters: [{x: y}]}]}",
            "logger:",
            "key_value",
        );
        check("{included_categories: FOO}", "included_categories:", "QUERY");
        check("{roll_cycle: FOO}", "roll_cycle:", "HOURLY");
        check("{archive_command: /bin/true}", "archive_command:", "%path");
        check("{max_queue_weight: 0}", "max_queue_weight:", "above 0");
        assert_eq!(parse("{a: 1, b: 2}").unwrap_err().len(), 2);
    }

    #[test]
    fn scyllas_words_are_read_and_others_refused() {
        let read = |text: &str| ScyllaAudit::read(&Node::scalar(text), Range::ALL);
        for text in ["none", "table", "syslog", "table,syslog"] {
            assert_eq!(read(text).unwrap().render(), text);
        }
        assert!(read("syslog, table").unwrap().table);
        for text in ["", "file", "none,table"] {
            assert!(read(text).is_err(), "{text}");
        }
        let read = |text: &str| ScyllaCategories::read(&Node::scalar(text), Range::ALL);
        assert_eq!(read("dml, AUTH").unwrap().0, "DML,AUTH");
        assert!(read("PREPARE").is_err());
    }
}
