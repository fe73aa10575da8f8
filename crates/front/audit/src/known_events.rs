//! Events of prepared statements that clients execute again, with the destinations that take them.
//!
//! Never: makes an event, decides which destination takes it. What is known is forgotten with a change of settings.

use crate::event::SharedEvent;
use cql_wire::Consistency;
use query::{ClientState, Prepared, RequestRecord, same_text};
use std::net::SocketAddr;
use std::rc::Rc;

/// Statements times clients that are known; a power of two. One more takes the place of another.
const PLACES: usize = 1024;
/// Bytes of the text of a statement that is kept: all places take some MiB.
pub(crate) const TEXT_BYTES_MAX: usize = 4 << 10;

/// Destinations that take an event, by their index.
pub(crate) type SinkSet = u8;

/// An event, and the destinations that take it.
#[derive(Clone)]
pub(crate) struct RoutedEvent {
    pub(crate) event: Rc<SharedEvent>,
    pub(crate) sinks: SinkSet,
}

/// Known events of a shard.
#[derive(Default)]
pub(crate) struct KnownEvents {
    /// Empty, or [`PLACES`] places.
    places: Vec<Option<KnownEvent>>,
}

/// The event of every execution of a statement by a client.
struct KnownEvent {
    statement: Rc<Prepared>,
    peer: SocketAddr,
    user: Option<Rc<str>>,
    session_keyspace: Option<Rc<str>>,
    consistency: Option<Consistency>,
    routed: RoutedEvent,
}

/// Returns the place of a statement and a client.
#[inline]
fn place(statement: &Prepared, client: &ClientState) -> usize {
    // Ids are checksums: any two bytes are spread evenly. Clients differ in their ports.
    let of_statement = u16::from_le_bytes([statement.id[2], statement.id[3]]);
    usize::from(of_statement ^ client.peer.port().rotate_left(5)) & (PLACES - 1)
}

impl KnownEvents {
    /// Returns the event of a successful execution, and which destinations take it.
    #[inline]
    pub(crate) fn get(
        &self,
        client: &ClientState,
        record: &RequestRecord,
        statement: &Rc<Prepared>,
    ) -> Option<&RoutedEvent> {
        let known = self.places.get(place(statement, client))?.as_ref()?;
        let is_known = Rc::ptr_eq(&known.statement, statement)
            && known.consistency == record.consistency
            && known.peer == client.peer
            && client.is_same_user(known.user.as_ref())
            && same_text(known.session_keyspace.as_ref(), record.session_keyspace.as_ref());
        is_known.then_some(&known.routed)
    }

    /// Remembers the event of all successful executions of a statement by a client.
    pub(crate) fn insert(
        &mut self,
        client: &ClientState,
        record: &RequestRecord,
        statement: &Rc<Prepared>,
        routed: RoutedEvent,
    ) {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        if let Some(slot) = self.places.get_mut(place(statement, client)) {
            *slot = Some(KnownEvent {
                statement: statement.clone(),
                peer: client.peer,
                user: client.user(),
                session_keyspace: record.session_keyspace.clone(),
                consistency: record.consistency,
                routed,
            });
        }
    }
}
