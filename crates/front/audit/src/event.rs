//! Audit events: types and categories as Cassandra 5.0 names them, and the event itself.
//!
//! Source: Cassandra 5.0 `AuditLogEntryType`, `AuditLogEntryCategory`.

use crate::binlog::queue::Weighed;
use cql_wire::Consistency;
use std::cell::OnceCell;
use std::net::SocketAddr;
use std::rc::Rc;
use stdx::Uuid;

/// Category of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Reads.
    Query,
    /// Writes.
    Dml,
    /// Changes of the schema, and TRUNCATE.
    Ddl,
    /// Roles, permissions, identities.
    Dcl,
    /// USE and DESCRIBE.
    Other,
    /// Logins, and statements that a role may not execute.
    Auth,
    /// Failed requests.
    Error,
    /// PREPARE.
    Prepare,
    /// Administrative actions; not one of Cassandra's.
    Admin,
}

impl Category {
    /// The name in lines and filters.
    pub fn name(self) -> &'static str {
        match self {
            Category::Query => "QUERY",
            Category::Dml => "DML",
            Category::Ddl => "DDL",
            Category::Dcl => "DCL",
            Category::Other => "OTHER",
            Category::Auth => "AUTH",
            Category::Error => "ERROR",
            Category::Prepare => "PREPARE",
            Category::Admin => "ADMIN",
        }
    }
}

macro_rules! event_types {
    ($( $variant:ident $name:literal $category:ident, )+) => {
        /// Type of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "named after Cassandra's types")]
        pub enum EventType { $( $variant, )+ }

        impl EventType {
            /// Every type.
            pub const ALL: &[EventType] = &[ $( EventType::$variant, )+ ];

            /// The name in lines.
            pub fn name(self) -> &'static str {
                match self { $( EventType::$variant => $name, )+ }
            }

            /// The category.
            pub fn category(self) -> Category {
                match self { $( EventType::$variant => Category::$category, )+ }
            }
        }
    };
}

event_types! {
    Select "SELECT" Query,
    Update "UPDATE" Dml,
    Delete "DELETE" Dml,
    Batch "BATCH" Dml,
    Truncate "TRUNCATE" Ddl,
    CreateKeyspace "CREATE_KEYSPACE" Ddl,
    AlterKeyspace "ALTER_KEYSPACE" Ddl,
    DropKeyspace "DROP_KEYSPACE" Ddl,
    CreateTable "CREATE_TABLE" Ddl,
    AlterTable "ALTER_TABLE" Ddl,
    DropTable "DROP_TABLE" Ddl,
    CreateType "CREATE_TYPE" Ddl,
    AlterType "ALTER_TYPE" Ddl,
    DropType "DROP_TYPE" Ddl,
    CreateIndex "CREATE_INDEX" Ddl,
    DropIndex "DROP_INDEX" Ddl,
    CreateView "CREATE_VIEW" Ddl,
    AlterView "ALTER_VIEW" Ddl,
    DropView "DROP_VIEW" Ddl,
    CreateTrigger "CREATE_TRIGGER" Ddl,
    DropTrigger "DROP_TRIGGER" Ddl,
    CreateFunction "CREATE_FUNCTION" Ddl,
    DropFunction "DROP_FUNCTION" Ddl,
    CreateAggregate "CREATE_AGGREGATE" Ddl,
    DropAggregate "DROP_AGGREGATE" Ddl,
    Grant "GRANT" Dcl,
    Revoke "REVOKE" Dcl,
    CreateRole "CREATE_ROLE" Dcl,
    AlterRole "ALTER_ROLE" Dcl,
    DropRole "DROP_ROLE" Dcl,
    ListRoles "LIST_ROLES" Dcl,
    ListPermissions "LIST_PERMISSIONS" Dcl,
    CreateIdentity "CREATE_IDENTITY" Dcl,
    DropIdentity "DROP_IDENTITY" Dcl,
    UseKeyspace "USE_KEYSPACE" Other,
    Describe "DESCRIBE" Other,
    PrepareStatement "PREPARE_STATEMENT" Prepare,
    RequestFailure "REQUEST_FAILURE" Error,
    LoginError "LOGIN_ERROR" Auth,
    LoginSuccess "LOGIN_SUCCESS" Auth,
    UnauthorizedAttempt "UNAUTHORIZED_ATTEMPT" Auth,
    AdminAction "ADMIN_ACTION" Admin,
    AdminRefused "ADMIN_REFUSED" Admin,
}

/// Times of an audit event, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTimes {
    /// When the request arrived, or when it failed, as in Cassandra.
    pub at_millis: i64,
    /// When its answer was ready.
    pub logged_millis: i64,
}

/// One audit event without its times.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its type.
    pub event_type: EventType,
    /// Type of the statement, which differs for failures.
    pub statement: EventType,
    /// Role of the client; `None` before its login.
    pub user: Option<Rc<str>>,
    /// Address of the client.
    pub source: SocketAddr,
    /// Id of the batch that it is a part of.
    pub batch: Option<Uuid>,
    /// Keyspace of the statement, or of the last USE.
    pub keyspace: Option<Rc<str>>,
    /// Table, type, function, role: what the statement is about.
    pub scope: Option<Rc<str>>,
    /// Text of the statement without passwords, then the message of a failure.
    pub operation: Rc<str>,
    /// Consistency level of the request.
    pub consistency: Option<Consistency>,
    /// True if the request failed.
    pub is_error: bool,
}

/// An event that was not written yet.
#[derive(Clone, Debug)]
pub struct EventRecord {
    /// The event.
    pub event: Rc<SharedEvent>,
    /// Its times.
    pub times: EventTimes,
}

/// An event with what is computed from it once.
#[derive(Debug)]
pub struct SharedEvent {
    event: Event,
    weight: u64,
    line: CachedLine,
}

/// Text of an event's line.
#[derive(Debug)]
enum CachedLine {
    /// The event is written once: its text is not kept.
    Never,
    /// Other events will have the same text but for their times. It is that of the first writer's style.
    Kept(OnceCell<EventText>),
}

/// Text of a line around its time.
#[derive(Debug)]
pub struct EventText {
    /// Fields before the time.
    pub before: Box<str>,
    /// Fields after the time, and the end of the line.
    pub after: Box<str>,
}

/// Estimated bytes of an event without its texts.
const EVENT_BYTES: usize = 200;

impl SharedEvent {
    /// An event that happened once.
    pub fn once(event: Event) -> Rc<SharedEvent> {
        Rc::new(SharedEvent { weight: weight(&event), event, line: CachedLine::Never })
    }

    /// An event that happens again with other times, to one log.
    pub fn repeated(event: Event) -> Rc<SharedEvent> {
        let line = CachedLine::Kept(OnceCell::new());
        Rc::new(SharedEvent { weight: weight(&event), event, line })
    }

    /// Returns the text of its line, encoded on first use; `None` if it is not kept.
    #[inline]
    pub(crate) fn text(&self, encode: impl FnOnce(&Event) -> EventText) -> Option<&EventText> {
        match &self.line {
            CachedLine::Never => None,
            CachedLine::Kept(text) => Some(text.get_or_init(|| encode(&self.event))),
        }
    }
}

impl std::ops::Deref for SharedEvent {
    type Target = Event;

    #[inline]
    fn deref(&self) -> &Event {
        &self.event
    }
}

fn weight(event: &Event) -> u64 {
    let names = [&event.user, &event.keyspace, &event.scope];
    let names: usize = names.into_iter().flatten().map(|name| name.len()).sum();
    (EVENT_BYTES + event.operation.len() + names) as u64
}

impl Weighed for EventRecord {
    #[inline]
    fn weight(&self) -> u64 {
        self.event.weight
    }
}
