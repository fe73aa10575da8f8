//! Events that own their memory.

use std::net::SocketAddr;

use cql_wire::event::TopologyChangeKind;
use cql_wire::{Event, SchemaChangeKind, SchemaTarget};

/// Event that a server sends after REGISTER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// The ring changed.
    Topology(TopologyChangeKind, SocketAddr),
    /// A node went up (true) or down.
    Status {
        /// Up, or down.
        up: bool,
        /// Address and port for clients.
        address: SocketAddr,
    },
    /// The schema changed: how, the keyspace, and the table, type, function or aggregate.
    Schema {
        /// Kind of the change.
        kind: SchemaChangeKind,
        /// The keyspace.
        keyspace: String,
        /// Object in the keyspace; `None`: the keyspace itself.
        name: Option<String>,
    },
}

impl ServerEvent {
    pub(crate) fn of(event: &Event<'_>) -> ServerEvent {
        match event {
            Event::TopologyChange { kind, address } => ServerEvent::Topology(*kind, *address),
            Event::StatusChange { up, address } => {
                ServerEvent::Status { up: *up, address: *address }
            }
            Event::SchemaChange(change) => ServerEvent::Schema {
                kind: change.kind,
                keyspace: change.keyspace.to_owned(),
                name: match &change.target {
                    SchemaTarget::Keyspace => None,
                    SchemaTarget::Table(name)
                    | SchemaTarget::Type(name)
                    | SchemaTarget::Function(name, _)
                    | SchemaTarget::Aggregate(name, _) => Some((*name).to_owned()),
                },
            },
        }
    }
}
