//! Events and schema changes: REGISTER, EVENT and RESULT of kind schema change.

use crate::error::{Result, WireError};
use crate::primitive::{inet, put_inet, put_string, put_string_list, string, string_list};
use crate::version::ProtocolVersion;
use codec::Reader;
use core::net::SocketAddr;

/// Kind of event that a client can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Nodes come, go, move.
    TopologyChange,
    /// Nodes go up and down.
    StatusChange,
    /// Keyspaces, tables, types, functions change.
    SchemaChange,
}

impl EventKind {
    /// All of them.
    pub const ALL: [EventKind; 3] =
        [EventKind::TopologyChange, EventKind::StatusChange, EventKind::SchemaChange];

    /// The string on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::TopologyChange => "TOPOLOGY_CHANGE",
            EventKind::StatusChange => "STATUS_CHANGE",
            EventKind::SchemaChange => "SCHEMA_CHANGE",
        }
    }
}

/// A set of [`EventKind`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EventKinds {
    topology: bool,
    status: bool,
    schema: bool,
}

impl EventKinds {
    /// None of them.
    pub const NONE: EventKinds = EventKinds { topology: false, status: false, schema: false };

    /// This set and one more kind.
    #[must_use]
    pub const fn with(mut self, kind: EventKind) -> EventKinds {
        match kind {
            EventKind::TopologyChange => self.topology = true,
            EventKind::StatusChange => self.status = true,
            EventKind::SchemaChange => self.schema = true,
        }
        self
    }

    /// Both sets together: a second REGISTER adds to the first.
    #[must_use]
    pub const fn union(self, other: EventKinds) -> EventKinds {
        EventKinds {
            topology: self.topology || other.topology,
            status: self.status || other.status,
            schema: self.schema || other.schema,
        }
    }

    /// Returns true if this kind is in it.
    pub const fn contains(self, kind: EventKind) -> bool {
        match kind {
            EventKind::TopologyChange => self.topology,
            EventKind::StatusChange => self.status,
            EventKind::SchemaChange => self.schema,
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<EventKinds> {
        let mut kinds = EventKinds::NONE;
        for _ in 0..r.u16()? {
            kinds = kinds.with(pick("Type", string(r)?, &EventKind::ALL, |kind| kind.name())?);
        }
        Ok(kinds)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) -> Result<()> {
        let names: Vec<&str> = EventKind::ALL
            .into_iter()
            .filter(|kind| self.contains(*kind))
            .map(EventKind::name)
            .collect();
        put_string_list(out, &names)
    }
}

/// Finds a name among an enumeration's, in any case, as Cassandra does.
fn pick<T: Copy>(
    what: &'static str,
    name: &str,
    all: &[T],
    name_of: fn(&T) -> &'static str,
) -> Result<T> {
    let found = all.iter().find(|one| name_of(one).eq_ignore_ascii_case(name));
    found.copied().ok_or_else(|| WireError::unknown_name(what, name))
}

/// Change of a node in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyChangeKind {
    /// It joined.
    NewNode,
    /// It left.
    RemovedNode,
    /// It has other tokens.
    MovedNode,
}

impl TopologyChangeKind {
    /// All of them.
    pub const ALL: [TopologyChangeKind; 3] = [
        TopologyChangeKind::NewNode,
        TopologyChangeKind::RemovedNode,
        TopologyChangeKind::MovedNode,
    ];

    /// The string on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            TopologyChangeKind::NewNode => "NEW_NODE",
            TopologyChangeKind::RemovedNode => "REMOVED_NODE",
            TopologyChangeKind::MovedNode => "MOVED_NODE",
        }
    }
}

/// Change of a schema object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaChangeKind {
    /// It is new.
    Created,
    /// It was altered.
    Updated,
    /// It was dropped.
    Dropped,
}

impl SchemaChangeKind {
    /// All of them.
    pub const ALL: [SchemaChangeKind; 3] =
        [SchemaChangeKind::Created, SchemaChangeKind::Updated, SchemaChangeKind::Dropped];

    /// The string on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            SchemaChangeKind::Created => "CREATED",
            SchemaChangeKind::Updated => "UPDATED",
            SchemaChangeKind::Dropped => "DROPPED",
        }
    }
}

/// Schema object that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaTarget<'a> {
    /// The keyspace itself.
    Keyspace,
    /// A table or view.
    Table(&'a str),
    /// A user-defined type.
    Type(&'a str),
    /// A function with its argument types, in CQL.
    Function(&'a str, Vec<&'a str>),
    /// An aggregate with its argument types, in CQL.
    Aggregate(&'a str, Vec<&'a str>),
}

/// A change of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaChange<'a> {
    /// The change.
    pub kind: SchemaChangeKind,
    /// Its keyspace.
    pub keyspace: &'a str,
    /// To what.
    pub target: SchemaTarget<'a>,
}

impl<'a> SchemaChange<'a> {
    pub(crate) fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<()> {
        let (target, name, arguments) = match &self.target {
            SchemaTarget::Keyspace => ("KEYSPACE", None, None),
            SchemaTarget::Table(name) => ("TABLE", Some(name), None),
            SchemaTarget::Type(name) => ("TYPE", Some(name), None),
            SchemaTarget::Function(name, arguments) => ("FUNCTION", Some(name), Some(arguments)),
            SchemaTarget::Aggregate(name, arguments) => ("AGGREGATE", Some(name), Some(arguments)),
        };
        if arguments.is_some() && version < ProtocolVersion::V4 {
            // v3 does not know functions: Cassandra sends an update of the keyspace, followed by an
            // empty name.
            for text in [SchemaChangeKind::Updated.name(), "KEYSPACE", self.keyspace, ""] {
                put_string(out, text)?;
            }
            return Ok(());
        }
        put_string(out, self.kind.name())?;
        put_string(out, target)?;
        put_string(out, self.keyspace)?;
        if let Some(name) = name {
            put_string(out, name)?;
        }
        match arguments {
            Some(arguments) => put_string_list(out, arguments),
            None => Ok(()),
        }
    }

    pub(crate) fn decode(r: &mut Reader<'a>) -> Result<SchemaChange<'a>> {
        let kind = pick("Change", string(r)?, &SchemaChangeKind::ALL, |kind| kind.name())?;
        let target = string(r)?;
        let keyspace = string(r)?;
        let target = match target {
            "KEYSPACE" => SchemaTarget::Keyspace,
            "TABLE" => SchemaTarget::Table(string(r)?),
            "TYPE" => SchemaTarget::Type(string(r)?),
            "FUNCTION" => SchemaTarget::Function(string(r)?, string_list(r)?),
            "AGGREGATE" => SchemaTarget::Aggregate(string(r)?, string_list(r)?),
            other => return Err(WireError::unknown_name("Target", other)),
        };
        Ok(SchemaChange { kind, keyspace, target })
    }
}

/// One EVENT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The ring changed.
    TopologyChange {
        /// Kind of the change.
        kind: TopologyChangeKind,
        /// Address and port for clients.
        address: SocketAddr,
    },
    /// A node went up or down.
    StatusChange {
        /// Up, or down.
        up: bool,
        /// Address and port for clients.
        address: SocketAddr,
    },
    /// The schema changed.
    SchemaChange(SchemaChange<'a>),
}

impl<'a> Event<'a> {
    /// Returns the subscription that delivers it.
    pub fn kind(&self) -> EventKind {
        match self {
            Event::TopologyChange { .. } => EventKind::TopologyChange,
            Event::StatusChange { .. } => EventKind::StatusChange,
            Event::SchemaChange(_) => EventKind::SchemaChange,
        }
    }

    pub(crate) fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<()> {
        put_string(out, self.kind().name())?;
        match self {
            Event::TopologyChange { kind, address } => {
                put_string(out, kind.name())?;
                put_inet(out, *address);
                Ok(())
            }
            Event::StatusChange { up, address } => {
                put_string(out, if *up { "UP" } else { "DOWN" })?;
                put_inet(out, *address);
                Ok(())
            }
            Event::SchemaChange(change) => change.encode(version, out),
        }
    }

    pub(crate) fn decode(r: &mut Reader<'a>) -> Result<Event<'a>> {
        Ok(match pick("Type", string(r)?, &EventKind::ALL, |kind| kind.name())? {
            EventKind::TopologyChange => {
                let kind =
                    pick("Change", string(r)?, &TopologyChangeKind::ALL, |kind| kind.name())?;
                Event::TopologyChange { kind, address: inet(r)? }
            }
            EventKind::StatusChange => {
                let status = string(r)?;
                let up = match status {
                    "UP" => true,
                    "DOWN" => false,
                    other => return Err(WireError::unknown_name("Status", other)),
                };
                Event::StatusChange { up, address: inet(r)? }
            }
            EventKind::SchemaChange => Event::SchemaChange(SchemaChange::decode(r)?),
        })
    }
}
