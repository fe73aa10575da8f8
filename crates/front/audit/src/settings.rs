//! Settings of the audit log in force, and what the program provides to it.

use crate::binlog::{Archiver, WriteFailure};
use conf::audit::{NameList, ScyllaAudit, ScyllaCategories};
use conf::{AuditLogger, AuditOptions, Options};
use std::net::SocketAddr;

/// Settings of the audit log; the same on all shards of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// `audit_logging_options`.
    pub options: AuditOptions,
    /// `audit`.
    pub scylla: ScyllaAudit,
    /// `audit_categories`.
    pub categories: ScyllaCategories,
    /// `audit_tables`.
    pub tables: NameList,
    /// `audit_keyspaces`.
    pub keyspaces: NameList,
    /// `audit_unix_socket_path`.
    pub socket: String,
    /// Directory of the files.
    pub directory: String,
    /// Address of this node for other nodes.
    pub host: SocketAddr,
}

impl AuditSettings {
    /// Settings of a node.
    pub fn new(options: &Options, host: SocketAddr) -> AuditSettings {
        let below = format!("{}/logs/audit", options.workdir.trim_end_matches('/'));
        let directory = options.audit_logging_options.audit_logs_dir.clone().unwrap_or(below);
        AuditSettings {
            options: options.audit_logging_options.clone(),
            scylla: options.audit,
            categories: options.audit_categories.clone(),
            tables: options.audit_tables.clone(),
            keyspaces: options.audit_keyspaces.clone(),
            socket: options.audit_unix_socket_path.clone(),
            directory,
            host,
        }
    }

    /// Returns true if events are written to files.
    pub fn has_files(&self) -> bool {
        self.options.enabled && self.options.logger != AuditLogger::NoOp
    }

    /// Returns true if any events are made.
    pub fn is_on(&self) -> bool {
        self.has_files() || self.scylla.table || self.scylla.syslog
    }
}

/// Programs and sockets of the machine, which a node has no access to. All calls may block.
pub trait AuditHelper: Archiver {
    /// Sends messages to a datagram socket.
    ///
    /// # Errors
    /// One could not be sent.
    fn send_syslog(&self, socket: &str, messages: &[String]) -> Result<(), WriteFailure>;
}
