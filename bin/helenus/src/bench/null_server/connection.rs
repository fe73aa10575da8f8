//! One connection: frames in, canned answers out.

use std::sync::Arc;

use cql_wire::error_body::ErrorBody;
use cql_wire::response::{self, encode_frame};
use cql_wire::{
    ErrorCode, Frame, FrameDecoder, FrameExtras, Negotiated, Opcode, ProtocolVersion, Request,
    RequestFrame, Side, StartupOptions, WireError, scylla, startup,
};

use super::canned::{Canned, Statements};

/// Longest frame that is taken, as the server's default.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// High bits of the token that drivers leave out when they choose a shard, as the server's.
const IGNORE_MSB: u8 = 12;

/// Refusal of a request: error code and text.
struct Refusal(ErrorCode, String);

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Refusal {
        Refusal(error.code(), error.to_string())
    }
}

/// State of one connection.
pub(super) struct Connection {
    statements: Arc<Statements>,
    shard: u16,
    shards: u16,
    decoder: FrameDecoder,
    input: Vec<u8>,
    core: Core,
}

/// Everything but decoder and input, so that a request may borrow from those.
struct Core {
    negotiated: Negotiated,
    /// Version in which STARTUP was accepted; the decoder needs it.
    started: Option<ProtocolVersion>,
    segmented: bool,
    closing: bool,
    /// Finished frames that are not in the output yet.
    frames: Vec<u8>,
    output: Vec<u8>,
    /// Prepared statements met on this connection.
    known: Vec<(Vec<u8>, Arc<Canned>)>,
}

impl Connection {
    pub(super) fn new(statements: Arc<Statements>, shard: u16, shards: u16) -> Connection {
        Connection {
            statements,
            shard,
            shards,
            decoder: FrameDecoder::new(Side::Server, FRAME_BYTES_MAX),
            input: Vec::new(),
            core: Core {
                negotiated: Negotiated::plain(ProtocolVersion::V4),
                started: None,
                segmented: false,
                closing: false,
                frames: Vec::new(),
                output: Vec::new(),
                known: Vec::new(),
            },
        }
    }

    /// Where received bytes are appended.
    pub(super) fn input(&mut self) -> &mut Vec<u8> {
        &mut self.input
    }

    /// Bytes for the client.
    pub(super) fn output(&self) -> &[u8] {
        &self.core.output
    }

    /// The output was written.
    pub(super) fn clear_output(&mut self) {
        self.core.output.clear();
    }

    /// Returns true if the connection is to be closed once the output is written.
    pub(super) fn is_closing(&self) -> bool {
        self.core.closing
    }

    /// Answers every whole frame that arrived.
    pub(super) fn turn(&mut self) {
        let mut rest = self.input.as_slice();
        while !self.core.closing {
            match self.decoder.next(&mut rest) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    self.core.take(&frame, &self.statements, self.shard, self.shards);
                }
                Err(error) => {
                    self.core.closing |= error.fatal;
                    response::encode_frame_error(&mut self.core.frames, &error);
                }
            }
            if let Some(version) = self.core.started.take() {
                // READY is still sent in the old framing.
                self.core.flush();
                self.core.closing |= self.decoder.start(version, None).is_err();
                self.core.segmented = version.has_segments();
            }
        }
        let used = self.input.len() - rest.len();
        self.input.drain(..used);
        self.core.flush();
    }
}

impl Core {
    fn flush(&mut self) {
        if self.segmented {
            if !self.frames.is_empty() {
                cql_wire::pack_segments(&self.frames, false, &mut self.output);
            }
        } else if self.output.is_empty() {
            std::mem::swap(&mut self.frames, &mut self.output);
        } else {
            self.output.extend_from_slice(&self.frames);
        }
        self.frames.clear();
    }

    fn take(&mut self, frame: &Frame<'_>, statements: &Statements, shard: u16, shards: u16) {
        let header = frame.header;
        self.negotiated = Negotiated { version: header.version, ..self.negotiated };
        let stream = header.stream;
        let answered = RequestFrame::decode(frame, self.negotiated)
            .map_err(Refusal::from)
            .and_then(|request| self.answer(stream, &request.request, statements, shard, shards));
        if let Err(Refusal(code, message)) = answered {
            self.put(stream, Opcode::Error, |body, version| {
                let error = ErrorBody::without_fields(code).unwrap_or(ErrorBody::ServerError);
                response::put_error(body, version, &error, &message)
            })
            // Only a message that does not fit can fail, and those are cut.
            .unwrap_or_else(|_| self.closing = true);
        }
    }

    fn put(
        &mut self,
        stream: i16,
        opcode: Opcode,
        write: impl FnOnce(&mut Vec<u8>, ProtocolVersion) -> Result<(), WireError>,
    ) -> Result<(), Refusal> {
        let version = self.negotiated.version;
        let extras = FrameExtras::default();
        let body = |body: &mut Vec<u8>| write(body, version);
        Ok(encode_frame(&mut self.frames, version, stream, opcode, &extras, body)?)
    }

    fn answer(
        &mut self,
        stream: i16,
        request: &Request<'_>,
        statements: &Statements,
        shard: u16,
        shards: u16,
    ) -> Result<(), Refusal> {
        let canned = match request {
            Request::Execute { id, parameters, .. } => {
                let canned = match self.known.iter().find(|(known, _)| known == id) {
                    Some((_, canned)) => canned.clone(),
                    None => {
                        let canned = statements.by_id(id).ok_or_else(|| {
                            let text = "the null server does not know this prepared statement";
                            Refusal(ErrorCode::ServerError, text.to_owned())
                        })?;
                        self.known.push((id.to_vec(), canned.clone()));
                        canned
                    }
                };
                let body = canned.body(parameters.skip_metadata);
                return self.put(stream, Opcode::Result, |out, _| {
                    out.extend_from_slice(body);
                    Ok(())
                });
            }
            Request::Query { query, .. } => statements.of_text(query)?,
            Request::Prepare { query, .. } => {
                let canned = statements.prepare(query)?;
                let negotiated = self.negotiated;
                return self.put(stream, Opcode::Result, |body, _| {
                    response::put_prepared(body, negotiated, &canned.prepared())
                });
            }
            Request::Batch(_) => statements.void(),
            Request::Register(_) => return self.put(stream, Opcode::Ready, |_, _| Ok(())),
            Request::Startup(options) => {
                let version = self.negotiated.version;
                let options = StartupOptions::check(*options, version)?;
                if options.compression.is_some() {
                    let text = "the null server offers no compression";
                    return Err(Refusal(ErrorCode::ProtocolError, text.to_owned()));
                }
                self.negotiated = Negotiated { lwt_mark: false, ..options.negotiated(version) };
                self.started = Some(version);
                return self.put(stream, Opcode::Ready, |_, _| Ok(()));
            }
            Request::Options => {
                let supported = supported(shard, shards);
                return self.put(stream, Opcode::Supported, |body, _| {
                    response::put_supported(body, &supported)
                });
            }
            Request::AuthResponse(_) => {
                let text = "the null server asks for no login";
                return Err(Refusal(ErrorCode::ProtocolError, text.to_owned()));
            }
        };
        self.put(stream, Opcode::Result, |out, _| {
            out.extend_from_slice(canned.body(false));
            Ok(())
        })
    }
}

impl From<super::canned::NotCanned> for Refusal {
    fn from(error: super::canned::NotCanned) -> Refusal {
        Refusal(ErrorCode::Invalid, error.0)
    }
}

fn supported(shard: u16, shards: u16) -> Vec<(&'static str, Vec<String>)> {
    let versions = ProtocolVersion::ALL.into_iter().map(|v| v.name().to_owned()).collect();
    let mut supported = vec![
        (startup::CQL_VERSION, vec!["3.4.7".to_owned()]),
        (startup::COMPRESSION, Vec::new()),
        (startup::PROTOCOL_VERSIONS, versions),
    ];
    let sharding = scylla::ShardingInfo {
        shard,
        shard_count: shards,
        ignore_msb: IGNORE_MSB,
        shard_aware_port: None,
        shard_aware_port_ssl: None,
    };
    supported.extend(sharding.supported_options());
    supported.push((scylla::USE_METADATA_ID, vec![String::new()]));
    supported
}
