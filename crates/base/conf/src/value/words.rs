//! Settings whose value is one of several words.

use super::{Range, Refusal, Value, class_name};
use crate::yaml::{Node, NodeKind};

/// Declares an enum whose values are words in the file.
macro_rules! words {
    ($(#[doc = $doc:literal])+ $name:ident { $( $(#[doc = $vdoc:literal])+ $variant:ident = $word:literal ),+ $(,)? }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[doc = $vdoc])+ $variant, )+
        }
        impl $name {
            /// The words of all values.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            /// The word of this value.
            pub fn word(self) -> &'static str {
                match self { $( $name::$variant => $word, )+ }
            }
        }
        impl Value for $name {
            fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
                let text = class_name(node).ok_or(Refusal::Form)?;
                $( if text.eq_ignore_ascii_case($word) { return Ok($name::$variant); } )+
                Err(Refusal::Form)
            }
            fn form() -> String {
                match Self::WORDS {
                    [one] => format!("{one}"),
                    many => format!("one of {}", many.join(", ")),
                }
            }
            fn render(&self) -> String {
                self.word().into()
            }
        }
    };
}

words! {
    /// Time at which appended commit-log records are synced.
    CommitLogSync {
        /// Every `commitlog_sync_period`; the answer does not wait for the sync.
        Periodic = "periodic",
        /// Before each answer.
        Batch = "batch",
        /// Before each answer, at most every `commitlog_sync_group_window`.
        Group = "group",
    }
}

words! {
    /// Which traffic between nodes is compressed.
    InternodeCompression {
        /// All of it.
        All = "all",
        /// That between data centres.
        Dc = "dc",
        /// Nothing.
        None = "none",
    }
}

words! {
    /// Compression of flushed files.
    FlushCompression {
        /// Not at all.
        None = "none",
        /// By LZ4's fast compressor where the table's is slow.
        Fast = "fast",
        /// The compression of their table.
        Table = "table",
    }
}

words! {
    /// Reaction to an error of a data file.
    DiskFailurePolicy {
        /// The process ends on a file-system error or corruption.
        Die = "die",
        /// Client traffic stops on any error, also of one file.
        StopParanoid = "stop_paranoid",
        /// Client traffic stops on file-system errors.
        Stop = "stop",
        /// The file is left out and reads continue with the rest.
        BestEffort = "best_effort",
        /// The request fails.
        Ignore = "ignore",
    }
}

words! {
    /// Reaction to an error of the commit log.
    CommitFailurePolicy {
        /// The process ends.
        Die = "die",
        /// Client traffic stops.
        Stop = "stop",
        /// Writes stop, reads continue.
        StopCommit = "stop_commit",
        /// Cassandra fails writes and continues the log; treated as `stop_commit` here.
        Ignore = "ignore",
    }
}

words! {
    /// The partitioner; one is implemented.
    Partitioner {
        /// Murmur3, 64-bit tokens.
        Murmur3 = "Murmur3Partitioner",
    }
}

words! {
    /// Authentication of clients.
    Authenticator {
        /// Everybody.
        AllowAll = "AllowAllAuthenticator",
        /// Roles with a password.
        Password = "PasswordAuthenticator",
        /// Roles by the identity in the client's certificate.
        MutualTls = "MutualTlsAuthenticator",
        /// The same for clients that show a certificate, else a password.
        MutualTlsOrPassword = "MutualTlsWithPasswordFallbackAuthenticator",
        /// The role that the client's certificate names (ScyllaDB's).
        Certificate = "CertificateAuthenticator",
    }
}

words! {
    /// Where `MutualTlsAuthenticator` finds the identity in a certificate.
    CertificateValidator {
        /// The URI `spiffe://…` among the alternative names.
        Spiffe = "SpiffeCertificateValidator",
    }
}

words! {
    /// Permissions of a connected role.
    Authorizer {
        /// Everything.
        AllowAll = "AllowAllAuthorizer",
        /// The permissions it was granted.
        Cassandra = "CassandraAuthorizer",
    }
}

words! {
    /// Which datacenters a role may use.
    NetworkAuthorizer {
        /// All.
        AllowAll = "AllowAllNetworkAuthorizer",
        /// Those of `ACCESS TO DATACENTERS`.
        Cassandra = "CassandraNetworkAuthorizer",
    }
}

words! {
    /// Networks from which a role may connect.
    CidrAuthorizer {
        /// Everywhere.
        AllowAll = "AllowAllCIDRAuthorizer",
        /// From the CIDR groups of `ACCESS FROM CIDRS`.
        Cassandra = "CassandraCIDRAuthorizer",
    }
}

words! {
    /// Which clients of the API must log in.
    ApiLogin {
        /// No client, wherever it connects from.
        None = "none",
        /// Clients of other machines.
        Remote = "remote",
        /// All clients.
        Required = "required",
    }
}

words! {
    /// Reaction to a role that connects from elsewhere.
    CidrMode {
        /// The connection is logged.
        Monitor = "MONITOR",
        /// It may do nothing.
        Enforce = "ENFORCE",
    }
}

words! {
    /// Source of data centre and rack names.
    Snitch {
        /// One data centre `datacenter1`, one rack `rack1`.
        Simple = "SimpleSnitch",
        /// The node's own `cassandra-rackdc.properties`.
        GossipingPropertyFile = "GossipingPropertyFileSnitch",
        /// The entry of the node's address in `cassandra-topology.properties`.
        PropertyFile = "PropertyFileSnitch",
        /// The second and third byte of the node's address.
        RackInferring = "RackInferringSnitch",
    }
}

words! {
    /// Versions of Cassandra that can read the written files.
    StorageCompatibilityMode {
        /// 4.0 and later.
        Cassandra4 = "CASSANDRA_4",
        /// 5.0.
        Upgrading = "UPGRADING",
        /// 5.0.
        None = "NONE",
    }
}

words! {
    /// A version of SSTables that is written.
    SstableVersion {
        /// Cassandra 3.0.25, 3.11.11; ScyllaDB.
        Me = "me",
        /// Cassandra 4.
        Nb = "nb",
        /// Cassandra 5, format BIG.
        Oa = "oa",
        /// Cassandra 5, format BTI.
        Da = "da",
    }
}

/// The format of SSTables, as the map `sstable` selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SstableFormat {
    /// Index and summary.
    Big,
    /// Tries.
    Bti,
}

impl SstableFormat {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            SstableFormat::Big => "big",
            SstableFormat::Bti => "bti",
        }
    }
}

impl Value for SstableFormat {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        let parsed;
        let entries = match &node.kind {
            NodeKind::Map(entries) => entries,
            // The form in which it is rendered.
            NodeKind::Scalar(text) if text.starts_with('{') => {
                parsed = crate::yaml::parse(text).map_err(|_| Refusal::Form)?;
                let NodeKind::Map(entries) = &parsed.kind else { return Err(Refusal::Form) };
                entries
            }
            _ => return Err(Refusal::Form),
        };
        let mut format = SstableFormat::Big;
        for entry in entries {
            // No format has its own options.
            let is_empty = match &entry.value.kind {
                NodeKind::Null => true,
                NodeKind::Map(of_formats) => of_formats.is_empty(),
                _ => false,
            };
            format = match (entry.key.as_str(), entry.value.text()) {
                (_, None) if is_empty => format,
                ("selected_format", Some("big")) => SstableFormat::Big,
                ("selected_format", Some("bti")) => SstableFormat::Bti,
                _ => return Err(Refusal::Form),
            };
        }
        Ok(format)
    }
    fn form() -> String {
        "{selected_format: big} or {selected_format: bti}".into()
    }
    fn render(&self) -> String {
        format!("{{selected_format: {}}}", self.name())
    }
}

words! {
    /// Form of the log.
    LogFormat {
        /// One line of text per event.
        Text = "text",
        /// One JSON object per event.
        Json = "json",
    }
}

words! {
    /// Least severe events that are logged.
    LogLevel {
        /// An operator must act now.
        Error = "error",
        /// An operator should look before the next release.
        Warn = "warn",
        /// State changes.
        Info = "info",
        /// Details for developers.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}
