//! Numbers and names that the protocol fixes.

use crate::error::WireError;

macro_rules! numbered {
    (
        $(#[$doc:meta])* $name:ident : $repr:ty, unknown $unknown:ident;
        $($(#[$vdoc:meta])* $variant:ident = $number:literal, $text:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them, by number.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The number on the wire.
            #[inline]
            pub const fn number(self) -> $repr {
                match self { $($name::$variant => $number,)* }
            }

            /// The name that Cassandra prints.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// From the number on the wire.
            ///
            /// # Errors
            /// The number is unknown; the text is Cassandra's.
            #[inline]
            pub const fn from_number(number: $repr) -> Result<$name, WireError> {
                match number {
                    $($number => Ok($name::$variant),)*
                    number => Err(WireError::$unknown { number }),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

numbered! {
    /// Consistency level of a request.
    Consistency: u16, unknown UnknownConsistency;
    /// One replica, or a hint (writes).
    Any = 0, "ANY";
    /// One replica.
    One = 1, "ONE";
    /// Two replicas.
    Two = 2, "TWO";
    /// Three replicas.
    Three = 3, "THREE";
    /// A majority of all replicas.
    Quorum = 4, "QUORUM";
    /// All replicas.
    All = 5, "ALL";
    /// A majority in the local datacenter.
    LocalQuorum = 6, "LOCAL_QUORUM";
    /// A majority in each datacenter.
    EachQuorum = 7, "EACH_QUORUM";
    /// Linearizable, over all datacenters.
    Serial = 8, "SERIAL";
    /// Linearizable within the local datacenter.
    LocalSerial = 9, "LOCAL_SERIAL";
    /// One replica in the local datacenter.
    LocalOne = 10, "LOCAL_ONE";
    /// Only the coordinator itself.
    NodeLocal = 11, "NODE_LOCAL";
}

impl Consistency {
    /// SERIAL or LOCAL_SERIAL.
    pub const fn is_serial(self) -> bool {
        matches!(self, Consistency::Serial | Consistency::LocalSerial)
    }
}

numbered! {
    /// Code of an ERROR message (`ExceptionCode`).
    ErrorCode: i32, unknown UnknownErrorCode;
    /// Something unexpected on the server.
    ServerError = 0x0000, "SERVER_ERROR";
    /// The client broke the protocol.
    ProtocolError = 0x000A, "PROTOCOL_ERROR";
    /// Authentication failed.
    BadCredentials = 0x0100, "BAD_CREDENTIALS";
    /// Too few live replicas.
    Unavailable = 0x1000, "UNAVAILABLE";
    /// The coordinator has too much to do.
    Overloaded = 0x1001, "OVERLOADED";
    /// The coordinator is joining.
    IsBootstrapping = 0x1002, "IS_BOOTSTRAPPING";
    /// TRUNCATE failed.
    TruncateError = 0x1003, "TRUNCATE_ERROR";
    /// Too few replicas acknowledged the write in time.
    WriteTimeout = 0x1100, "WRITE_TIMEOUT";
    /// Too few replicas answered the read in time.
    ReadTimeout = 0x1200, "READ_TIMEOUT";
    /// Replicas failed the read.
    ReadFailure = 0x1300, "READ_FAILURE";
    /// A user-defined function failed.
    FunctionFailure = 0x1400, "FUNCTION_FAILURE";
    /// Replicas failed the write.
    WriteFailure = 0x1500, "WRITE_FAILURE";
    /// The CDC log is full.
    CdcWriteFailure = 0x1600, "CDC_WRITE_FAILURE";
    /// The outcome of the conditional write is unknown.
    CasWriteUnknown = 0x1700, "CAS_WRITE_UNKNOWN";
    /// The statement cannot be parsed.
    SyntaxError = 0x2000, "SYNTAX_ERROR";
    /// The user may not do that.
    Unauthorized = 0x2100, "UNAUTHORIZED";
    /// The statement makes no sense.
    Invalid = 0x2200, "INVALID";
    /// Bad options of a schema change.
    ConfigError = 0x2300, "CONFIG_ERROR";
    /// Keyspace or table already exists.
    AlreadyExists = 0x2400, "ALREADY_EXISTS";
    /// The prepared statement is not known here.
    Unprepared = 0x2500, "UNPREPARED";
}

numbered! {
    /// Kind of a message.
    Opcode: u8, unknown UnknownOpcode;
    /// Response: something went wrong.
    Error = 0, "ERROR";
    /// Request: first of a connection.
    Startup = 1, "STARTUP";
    /// Response: the connection can be used.
    Ready = 2, "READY";
    /// Response: credentials first.
    Authenticate = 3, "AUTHENTICATE";
    /// Request of v1, refused since.
    Credentials = 4, "CREDENTIALS";
    /// Request: what can be set at STARTUP?
    Options = 5, "OPTIONS";
    /// Response to OPTIONS.
    Supported = 6, "SUPPORTED";
    /// Request: one statement as text.
    Query = 7, "QUERY";
    /// Response: outcome of a statement.
    Result = 8, "RESULT";
    /// Request: prepare a statement.
    Prepare = 9, "PREPARE";
    /// Request: run a prepared statement.
    Execute = 10, "EXECUTE";
    /// Request: subscribe to events.
    Register = 11, "REGISTER";
    /// Response without request, on stream -1.
    Event = 12, "EVENT";
    /// Request: many statements at once.
    Batch = 13, "BATCH";
    /// Response: next step of authentication.
    AuthChallenge = 14, "AUTH_CHALLENGE";
    /// Request: next step of authentication.
    AuthResponse = 15, "AUTH_RESPONSE";
    /// Response: authenticated.
    AuthSuccess = 16, "AUTH_SUCCESS";
}

impl Opcode {
    /// Returns true if clients send it.
    #[inline]
    pub const fn is_request(self) -> bool {
        match self {
            Opcode::Startup
            | Opcode::Credentials
            | Opcode::Options
            | Opcode::Query
            | Opcode::Prepare
            | Opcode::Execute
            | Opcode::Register
            | Opcode::Batch
            | Opcode::AuthResponse => true,
            Opcode::Error
            | Opcode::Ready
            | Opcode::Authenticate
            | Opcode::Supported
            | Opcode::Result
            | Opcode::Event
            | Opcode::AuthChallenge
            | Opcode::AuthSuccess => false,
        }
    }
}

numbered! {
    /// Reason of one replica's failure (v5).
    FailureReason: u16, unknown UnknownFailureReason;
    /// No reason given.
    Unknown = 0, "UNKNOWN";
    /// Too many tombstones were read.
    ReadTooManyTombstones = 1, "READ_TOO_MANY_TOMBSTONES";
    /// The replica ran out of time.
    Timeout = 2, "TIMEOUT";
    /// The replica has another schema.
    IncompatibleSchema = 3, "INCOMPATIBLE_SCHEMA";
    /// The read is too large.
    ReadSize = 4, "READ_SIZE";
    /// The replica is down.
    NodeDown = 5, "NODE_DOWN";
    /// The index is not built.
    IndexNotAvailable = 6, "INDEX_NOT_AVAILABLE";
    /// The query touches too many indexes.
    ReadTooManyIndexes = 7, "READ_TOO_MANY_INDEXES";
}

numbered! {
    /// Kind of a BATCH message.
    BatchKind: u8, unknown UnknownBatchKind;
    /// Through the batch log.
    Logged = 0, "LOGGED";
    /// Without the batch log.
    Unlogged = 1, "UNLOGGED";
    /// Counters only.
    Counter = 2, "COUNTER";
}

/// Kind of write that timed out or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteType {
    /// One statement, or a batch of one partition.
    Simple,
    /// A logged batch whose log was written.
    Batch,
    /// An unlogged batch.
    UnloggedBatch,
    /// A counter update.
    Counter,
    /// Writing the batch log itself.
    BatchLog,
    /// A conditional write.
    Cas,
    /// View updates.
    View,
    /// The CDC log.
    Cdc,
}

impl WriteType {
    /// All of them.
    pub const ALL: [WriteType; 8] = [
        WriteType::Simple,
        WriteType::Batch,
        WriteType::UnloggedBatch,
        WriteType::Counter,
        WriteType::BatchLog,
        WriteType::Cas,
        WriteType::View,
        WriteType::Cdc,
    ];

    /// The string on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            WriteType::Simple => "SIMPLE",
            WriteType::Batch => "BATCH",
            WriteType::UnloggedBatch => "UNLOGGED_BATCH",
            WriteType::Counter => "COUNTER",
            WriteType::BatchLog => "BATCH_LOG",
            WriteType::Cas => "CAS",
            WriteType::View => "VIEW",
            WriteType::Cdc => "CDC",
        }
    }

    /// From the string on the wire.
    ///
    /// # Errors
    /// `UnknownName`.
    pub fn from_name(name: &str) -> Result<WriteType, WireError> {
        WriteType::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| WireError::unknown_name("WriteType", name))
    }
}
