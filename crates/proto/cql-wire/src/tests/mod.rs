//! Whole messages through encoder, segments, decoder: every message in every version, frames of a real Cassandra,
//! streams torn at every byte, limits, and mutated input.

mod errors;
mod golden;
mod hostile;
mod requests;
mod responses;
mod streams;

use crate::decoder::{FrameDecoder, Side};
use crate::event::{
    Event, EventKind, EventKinds, SchemaChange, SchemaChangeKind, SchemaTarget, TopologyChangeKind,
};
use crate::fuzz;
use crate::request::{BatchList, RequestOptions, encode_request};
use crate::response::{self, PreparedResponse, encode_frame, encode_frame_error};
use crate::rows::{MetadataMode, RowsEncoder};
use crate::*;
use codec::{Reader, Writer};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use stdx::Uuid;

const MAX: usize = 16 << 20;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// One frame through a decoder that takes plain frames.
fn through<T>(bytes: &[u8], side: Side, see: impl FnOnce(&Frame<'_>) -> T) -> T {
    let mut decoder = FrameDecoder::new(side, MAX);
    let mut input = bytes;
    let seen = see(&decoder.next(&mut input).unwrap().expect("a whole frame"));
    assert!(input.is_empty());
    assert_eq!(decoder.next(&mut input), Ok(None));
    seen
}

fn each_negotiated() -> Vec<Negotiated> {
    let mut all: Vec<Negotiated> =
        ProtocolVersion::ALL.into_iter().map(Negotiated::plain).collect();
    all.push(Negotiated {
        metadata_id: true,
        lwt_mark: true,
        ..Negotiated::plain(ProtocolVersion::V4)
    });
    all
}

fn columns() -> Vec<ColumnSpec<'static>> {
    use WireType as T;
    let udt = T::Udt {
        keyspace: "ks".into(),
        name: "udt".into(),
        fields: vec![("f".into(), T::Int), ("g".into(), T::List(Box::new(T::Varchar)))],
    };
    let vector =
        "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)";
    let kinds = vec![
        T::Custom(vector.into()),
        T::Ascii,
        T::Bigint,
        T::Blob,
        T::Boolean,
        T::Counter,
        T::Decimal,
        T::Double,
        T::Float,
        T::Int,
        T::Timestamp,
        T::Uuid,
        T::Varchar,
        T::Varint,
        T::Timeuuid,
        T::Inet,
        T::Date,
        T::Time,
        T::Smallint,
        T::Tinyint,
        T::Duration,
        T::Map(Box::new(T::Varchar), Box::new(T::Set(Box::new(udt.clone())))),
        T::Tuple(vec![T::Int, udt]),
        T::Tuple(vec![]),
    ];
    kinds
        .into_iter()
        .map(|kind| ColumnSpec { keyspace: "ks", table: "t", name: "c", kind })
        .collect()
}
