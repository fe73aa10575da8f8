//! Parameters of QUERY, EXECUTE and BATCH, and bound values.
//!
//! Values are checked once, when the message is decoded, and then read in place: nothing is allocated.

use crate::constants::Consistency;
use crate::error::{Result, WireError};
use crate::primitive::{bytes, check_count, consistency, put_bytes, put_string, string, value};
use crate::version::ProtocolVersion;
use codec::{Reader, Writer};

mod bits {
    pub(super) const VALUES: u32 = 0x001;
    pub(super) const SKIP_METADATA: u32 = 0x002;
    pub(super) const PAGE_SIZE: u32 = 0x004;
    pub(super) const PAGING_STATE: u32 = 0x008;
    pub(super) const SERIAL_CONSISTENCY: u32 = 0x010;
    pub(super) const TIMESTAMP: u32 = 0x020;
    pub(super) const NAMES: u32 = 0x040;
    pub(super) const KEYSPACE: u32 = 0x080;
    pub(super) const NOW_IN_SECONDS: u32 = 0x100;
}

/// One bound value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoundValue<'a> {
    /// CQL null.
    Null,
    /// Leave the column as it is (v4 on).
    Unset,
    /// The serialised value, possibly empty.
    Bytes(&'a [u8]),
}

/// Values of one statement, checked, borrowed from its message.
#[derive(Clone, Copy, Debug)]
pub struct BoundValues<'a> {
    count: u16,
    named: bool,
    version: ProtocolVersion,
    bytes: &'a [u8],
}

impl PartialEq for BoundValues<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}
impl Eq for BoundValues<'_> {}

impl<'a> BoundValues<'a> {
    /// No values.
    pub const EMPTY: BoundValues<'static> =
        BoundValues { count: 0, named: false, version: ProtocolVersion::CURRENT, bytes: &[] };

    pub(crate) fn decode(
        r: &mut Reader<'a>,
        version: ProtocolVersion,
        named: bool,
    ) -> Result<BoundValues<'a>> {
        let count = r.u16()?;
        let start = r.peek_rest();
        let from = r.position();
        for _ in 0..count {
            if named {
                string(r)?;
            }
            value(r, version)?;
        }
        let length = r.position().saturating_sub(from);
        Ok(BoundValues { count, named, version, bytes: start.get(..length).unwrap_or_default() })
    }

    /// Returns their number.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns true if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns true if each value comes with the name of its marker.
    #[inline]
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// Name (when named) and value of each, in the order sent.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (Option<&'a str>, BoundValue<'a>)> + use<'a> {
        let BoundValues { count, named, version, bytes } = *self;
        let mut r = Reader::new(bytes, "bound values");
        (0..count).map_while(move |_| {
            let name = if named { Some(string(&mut r).ok()?) } else { None };
            Some((name, value(&mut r, version).ok()?))
        })
    }

    /// The values alone, in the order sent.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = BoundValue<'a>> + use<'a> {
        self.iter().map(|(_, value)| value)
    }

    fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<()> {
        out.put_u16(self.count);
        if is_same_form(self.version, version) {
            out.extend_from_slice(self.bytes);
            return Ok(());
        }
        for (name, value) in self.iter() {
            if let Some(name) = name {
                put_string(out, name)?;
            }
            put_value(out, version, value)?;
        }
        Ok(())
    }

    /// Like [`BoundValues::encode`] for BATCH, whose values cannot be named.
    pub(crate) fn encode_positional(
        &self,
        version: ProtocolVersion,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if !self.named && is_same_form(self.version, version) {
            out.put_u16(self.count);
            out.extend_from_slice(self.bytes);
            return Ok(());
        }
        out.put_u16(self.count);
        self.values().try_for_each(|value| put_value(out, version, value))
    }
}

/// Returns true if values have the same bytes in both versions: v3 has no unset ones.
pub(crate) fn is_same_form(a: ProtocolVersion, b: ProtocolVersion) -> bool {
    a == b || a.min(b) >= ProtocolVersion::V4
}

fn put_value(out: &mut Vec<u8>, version: ProtocolVersion, value: BoundValue<'_>) -> Result<()> {
    match value {
        BoundValue::Null => out.put_i32(-1),
        BoundValue::Unset if version < ProtocolVersion::V4 => {
            return Err(WireError::NeedsVersion {
                what: "an unset value",
                needed: ProtocolVersion::V4,
            });
        }
        BoundValue::Unset => out.put_i32(-2),
        BoundValue::Bytes(value) => put_bytes(out, Some(value))?,
    }
    Ok(())
}

/// Values put together by a client.
#[derive(Clone, Debug, Default)]
pub struct ValueList {
    count: u16,
    named: bool,
    bytes: Vec<u8>,
}

impl ValueList {
    /// No values yet.
    pub fn new() -> ValueList {
        ValueList::default()
    }

    /// Adds a value by position.
    ///
    /// # Errors
    /// `TooLong` for the 65,536th value or a value above 2 GiB.
    pub fn push(&mut self, value: BoundValue<'_>) -> Result<()> {
        self.add(None, value)
    }

    /// Adds a value by the name of its marker. A list is positional or named, by its first value.
    ///
    /// # Errors
    /// Those of [`ValueList::push`].
    pub fn push_named(&mut self, name: &str, value: BoundValue<'_>) -> Result<()> {
        self.add(Some(name), value)
    }

    fn add(&mut self, name: Option<&str>, value: BoundValue<'_>) -> Result<()> {
        if self.count == 0 {
            self.named = name.is_some();
        }
        let count = usize::from(self.count).saturating_add(1);
        check_count(count, "bound values")?;
        let start = self.bytes.len();
        let named =
            if self.named { put_string(&mut self.bytes, name.unwrap_or_default()) } else { Ok(()) };
        let result =
            named.and_then(|()| put_value(&mut self.bytes, ProtocolVersion::CURRENT, value));
        match result {
            Ok(()) => self.count = self.count.saturating_add(1),
            Err(_) => self.bytes.truncate(start),
        }
        result
    }

    /// No values again; keeps its memory.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    /// The values, to be put into [`QueryParameters`].
    pub fn values(&self) -> BoundValues<'_> {
        BoundValues {
            count: self.count,
            named: self.named,
            version: ProtocolVersion::CURRENT,
            bytes: &self.bytes,
        }
    }
}

/// All parameters of a statement beside its text or id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryParameters<'a> {
    /// Consistency level.
    pub consistency: Consistency,
    /// Bound values; empty in BATCH, where each statement has its own.
    pub values: BoundValues<'a>,
    /// The client knows the columns: leave them out.
    pub skip_metadata: bool,
    /// Rows per page. Zero and negative numbers mean no paging, as in Cassandra.
    pub page_size: Option<i32>,
    /// End of the previous page.
    pub paging_state: Option<&'a [u8]>,
    /// Consistency of the conditional part; SERIAL when not given.
    pub serial_consistency: Option<Consistency>,
    /// Default timestamp in microseconds; never `i64::MIN`.
    pub timestamp: Option<i64>,
    /// Keyspace of unqualified names (v5).
    pub keyspace: Option<&'a str>,
    /// The time that expiry is judged by, in seconds (v5).
    pub now_in_seconds: Option<i32>,
}

impl<'a> QueryParameters<'a> {
    /// Nothing but a consistency level.
    pub const fn new(consistency: Consistency) -> QueryParameters<'a> {
        QueryParameters {
            consistency,
            values: BoundValues::EMPTY,
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }

    /// Takes the parameters from the reader. Flags are honoured in every version that can express them, as in
    /// Cassandra; unknown ones are ignored.
    ///
    /// # Errors
    /// Anything cut short or out of range, in Cassandra's words.
    pub fn decode(r: &mut Reader<'a>, version: ProtocolVersion) -> Result<QueryParameters<'a>> {
        let mut p = QueryParameters::new(consistency(r)?);
        let flags = if version >= ProtocolVersion::V5 { r.u32()? } else { u32::from(r.u8()?) };
        let has = |flag| flags & flag != 0;
        if has(bits::VALUES) {
            p.values = BoundValues::decode(r, version, has(bits::NAMES))?;
        }
        p.skip_metadata = has(bits::SKIP_METADATA);
        if has(bits::PAGE_SIZE) {
            p.page_size = Some(r.i32()?);
        }
        if has(bits::PAGING_STATE) {
            p.paging_state = bytes(r)?;
        }
        if has(bits::SERIAL_CONSISTENCY) {
            p.serial_consistency = Some(consistency(r)?);
        }
        if has(bits::TIMESTAMP) {
            let timestamp = r.i64()?;
            if timestamp == i64::MIN {
                return Err(WireError::BadTimestamp { timestamp });
            }
            p.timestamp = Some(timestamp);
        }
        if has(bits::KEYSPACE) {
            p.keyspace = Some(string(r)?);
        }
        if has(bits::NOW_IN_SECONDS) {
            p.now_in_seconds = Some(r.i32()?);
        }
        Ok(p)
    }

    /// Appends the parameters.
    ///
    /// # Errors
    /// `NeedsVersion` for keyspace and time before v5 and unset values before v4, `BadTimestamp`, `TooLong`.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<()> {
        let v5 = version >= ProtocolVersion::V5;
        if !v5 && (self.keyspace.is_some() || self.now_in_seconds.is_some()) {
            let what = "a keyspace or time with a query";
            return Err(WireError::NeedsVersion { what, needed: ProtocolVersion::V5 });
        }
        let mut flags = 0;
        for (present, flag) in [
            (!self.values.is_empty(), bits::VALUES),
            (self.skip_metadata, bits::SKIP_METADATA),
            (self.page_size.is_some(), bits::PAGE_SIZE),
            (self.paging_state.is_some(), bits::PAGING_STATE),
            (self.serial_consistency.is_some(), bits::SERIAL_CONSISTENCY),
            (self.timestamp.is_some(), bits::TIMESTAMP),
            (!self.values.is_empty() && self.values.named, bits::NAMES),
            (self.keyspace.is_some(), bits::KEYSPACE),
            (self.now_in_seconds.is_some(), bits::NOW_IN_SECONDS),
        ] {
            flags |= if present { flag } else { 0 };
        }
        out.put_u16(self.consistency.number());
        match u8::try_from(flags) {
            Ok(narrow) if !v5 => out.put_u8(narrow),
            _ => out.put_u32(flags),
        }
        if !self.values.is_empty() {
            self.values.encode(version, out)?;
        }
        if let Some(page_size) = self.page_size {
            out.put_i32(page_size);
        }
        if self.paging_state.is_some() {
            put_bytes(out, self.paging_state)?;
        }
        if let Some(serial) = self.serial_consistency {
            out.put_u16(serial.number());
        }
        match self.timestamp {
            Some(timestamp @ i64::MIN) => return Err(WireError::BadTimestamp { timestamp }),
            Some(timestamp) => out.put_i64(timestamp),
            None => {}
        }
        if let Some(keyspace) = self.keyspace {
            put_string(out, keyspace)?;
        }
        if let Some(now) = self.now_in_seconds {
            out.put_i32(now);
        }
        Ok(())
    }
}
