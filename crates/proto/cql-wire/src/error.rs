//! Errors in bytes from the other side, in Cassandra's words where it has them.

use crate::compression::Compression;
use crate::constants::{ErrorCode, Opcode};
use crate::version::ProtocolVersion;
use codec::DecodeError;
use codec::writer::LengthError;

/// A message that cannot be decoded, encoded or accepted. The display text is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A protocol version that is not spoken.
    #[error(
        "Invalid or unsupported protocol version ({version}); supported versions are (3/v3, 4/v4, 5/v5, 6/v6-beta)"
    )]
    UnsupportedVersion {
        /// The number asked for.
        version: u8,
    },
    /// A frame of a version in development without the flag that asks for it.
    #[error("Beta version of the protocol used ({version}), but USE_BETA flag is unset")]
    BetaFlagUnset {
        /// The frame's.
        version: ProtocolVersion,
    },
    /// A frame of another version than the connection's.
    #[error(
        "Invalid message version. Got {got} but previous messages on this connection had version {expected}"
    )]
    VersionChanged {
        /// The frame's.
        got: ProtocolVersion,
        /// The connection's.
        expected: ProtocolVersion,
    },
    /// No such opcode.
    #[error("Unknown opcode {number}")]
    UnknownOpcode {
        /// The number.
        number: u8,
    },
    /// A response sent by a client, or a request by a server.
    #[error("Wrong protocol direction (expected {}, got {}) for opcode {} ({opcode})",
        direction(opcode.is_request()), direction(!opcode.is_request()), opcode.number())]
    WrongDirection {
        /// The message.
        opcode: Opcode,
    },
    /// A message that this side never takes, although its opcode is known.
    #[error("Unsupported message")]
    UnsupportedMessage,
    /// Something other than STARTUP or OPTIONS at first.
    #[error("Unexpected message {opcode}, expecting STARTUP or OPTIONS")]
    ExpectingStartup {
        /// The message.
        opcode: Opcode,
    },
    /// STARTUP for the second time.
    #[error("Unexpected message {opcode}, the connection is already initialized")]
    AlreadyInitialized {
        /// The message.
        opcode: Opcode,
    },
    /// Something else while credentials are asked for.
    #[error("Unexpected message {opcode}, expecting SASL_RESPONSE")]
    ExpectingCredentials {
        /// The message.
        opcode: Opcode,
    },
    /// A frame above the limit; its body was skipped, so the connection stays open.
    #[error("Request is too big: length {length} exceeds maximum allowed length {max}.")]
    TooBig {
        /// Bytes of the frame with its header.
        length: u64,
        /// The limit.
        max: u64,
    },
    /// A message whose body is above the limit, in segments or after decompression; it was skipped,
    /// so the connection stays open.
    #[error("CQL Message of size {length} bytes exceeds allowed maximum of {max} bytes")]
    MessageTooBig {
        /// Bytes of the body, uncompressed.
        length: u64,
        /// The limit.
        max: u64,
    },
    /// A request that arrived in part and finds no memory for the rest; it was skipped, so the
    /// connection stays open.
    #[error(
        "Request breached limit on requests in flight: there is no memory for a request of {length} bytes. \
         Server is currently in an overloaded state and cannot accept more requests."
    )]
    NoMemory {
        /// Bytes of the frame with its header.
        length: u64,
    },
    /// A compressed body that does not begin with its length.
    #[error("Provided frame does not appear to be {} compressed", compression.display_name())]
    NotCompressed {
        /// The connection's compression.
        compression: Compression,
    },
    /// A compressed body that declares a negative length.
    #[error(
        "Invalid uncompressed frame length {length}; it must be non-negative and no greater than \
         native_transport_max_frame_size ({max} bytes)"
    )]
    BadUncompressedLength {
        /// The length.
        length: i32,
        /// The limit.
        max: u64,
    },
    /// A negative body length in v5.
    #[error("Invalid value for envelope header body length field: {length}")]
    NegativeLength {
        /// The length.
        length: i32,
    },
    /// A segment whose bytes do not match their checksum.
    #[error(
        "unrecoverable CRC mismatch detected in frame {part}. Read {read}, Computed {computed}"
    )]
    Checksum {
        /// `header` or `body`.
        part: &'static str,
        /// The checksum sent.
        read: u32,
        /// The checksum of the received bytes.
        computed: u32,
    },
    /// Segments that do not add up to frames.
    #[error("invalid segment: {problem}")]
    Segment {
        /// The defect.
        problem: &'static str,
    },
    /// A body that does not decompress.
    #[error("{0}")]
    Compression(#[from] codec::CompressionError),
    /// A body that is cut short, or has a number where none may be.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// A string longer than its message.
    #[error(
        "Not enough bytes to read an UTF8 serialized string preceded by its {prefix} bytes length"
    )]
    ShortString {
        /// Width of the length.
        prefix: u8,
    },
    /// Bytes longer than their message.
    #[error("Not enough bytes to read a byte array preceded by its 2 bytes length")]
    ShortBytes,
    /// A string that is not UTF-8.
    #[error("Cannot decode string as UTF8")]
    NotUtf8,
    /// A bound value with a length below -2.
    #[error("Invalid ByteBuf length {length}")]
    BadValueLength {
        /// The length.
        length: i32,
    },
    /// No such consistency level.
    #[error("Unknown code {number} for a consistency level")]
    UnknownConsistency {
        /// The number.
        number: u16,
    },
    /// No such error code.
    #[error("Unknown error code {number}")]
    UnknownErrorCode {
        /// The number.
        number: i32,
    },
    /// No such failure reason. [`crate::error_body`] reads it as unknown instead.
    #[error("unknown failure reason {number}")]
    UnknownFailureReason {
        /// The number.
        number: u16,
    },
    /// No such batch type.
    #[error("Invalid BATCH message type {number}")]
    UnknownBatchKind {
        /// The number.
        number: u8,
    },
    /// Neither text nor prepared id.
    #[error("Invalid query kind in BATCH messages. Must be 0 or 1 but got {number}")]
    UnknownQueryKind {
        /// The number.
        number: u8,
    },
    /// No such result kind.
    #[error("unknown result kind {number}")]
    UnknownResultKind {
        /// The number.
        number: i32,
    },
    /// No such type id.
    #[error("Unknown option id {number}")]
    UnknownType {
        /// The number.
        number: u16,
    },
    /// Types nested deeper than [`crate::types::DEPTH_MAX`].
    #[error("type is nested deeper than {max}")]
    TypeTooDeep {
        /// The limit.
        max: usize,
    },
    /// A name that an enumeration does not have.
    #[error("Invalid value '{name}' for {kind}")]
    UnknownName {
        /// The enumeration.
        kind: &'static str,
        /// The name, at most its first 64 characters.
        name: String,
    },
    /// `i64::MIN` as timestamp.
    #[error(
        "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807] (got {timestamp})"
    )]
    BadTimestamp {
        /// The timestamp.
        timestamp: i64,
    },
    /// A payload before v4.
    #[error("Received frame with CUSTOM_PAYLOAD flag for native protocol version < 4")]
    CustomPayload,
    /// STARTUP without its mandatory option.
    #[error("Missing value CQL_VERSION in STARTUP message")]
    MissingCqlVersion,
    /// STARTUP with a CQL version before 3.
    #[error(
        "CQL version {version} is not supported by the binary protocol (supported version are >= 3.0.0)"
    )]
    OldCqlVersion {
        /// The version.
        version: String,
    },
    /// STARTUP with something else for a CQL version.
    #[error("Invalid version value: {version}")]
    BadCqlVersion {
        /// The version.
        version: String,
    },
    /// STARTUP with a compression that is not known.
    #[error("Unknown compression algorithm: {name}")]
    UnknownCompression {
        /// Its name in lower case.
        name: String,
    },
    /// STARTUP with Snappy in v5.
    #[error("Snappy compression is not supported in protocol V5")]
    SnappyInV5,
    /// A message to be sent that does not fit the protocol.
    #[error("{0}")]
    TooLong(#[from] LengthError),
    /// A message that this version of the protocol cannot express.
    #[error("{what} needs native protocol version {needed}")]
    NeedsVersion {
        /// The message that was to be sent.
        what: &'static str,
        /// The version that has it.
        needed: ProtocolVersion,
    },
}

const fn direction(request: bool) -> &'static str {
    if request { "REQUEST" } else { "RESPONSE" }
}

impl WireError {
    /// Code of the ERROR message that answers it.
    pub fn code(&self) -> ErrorCode {
        match self {
            WireError::TooBig { .. } | WireError::MessageTooBig { .. } => ErrorCode::Invalid,
            WireError::NoMemory { .. } => ErrorCode::Overloaded,
            WireError::TooLong(_) | WireError::NeedsVersion { .. } => ErrorCode::ServerError,
            _ => ErrorCode::ProtocolError,
        }
    }

    #[cold]
    pub(crate) fn unknown_name(kind: &'static str, name: &str) -> WireError {
        WireError::UnknownName { kind, name: name.chars().take(64).collect() }
    }
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, WireError>;

/// A frame, or a position without one, that cannot be used. It has the way to answer, and whether
/// the connection stays open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct FrameError {
    /// Stream to answer on; 0 when the frame has none that can be read.
    pub stream: i16,
    /// Version number of the answer's frame (1 and 2 too: [`crate::response::encode_frame_error`] knows their header).
    pub reply_version: u8,
    /// True: answer, then close, for the start of the next frame is unknown. False: answer on the
    /// stream and continue; the decoder has skipped the frame.
    pub fatal: bool,
    /// The error.
    pub error: WireError,
}
