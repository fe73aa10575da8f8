//! The notations of the protocol's part 3: `[string]`, `[bytes]`, `[value]`, `[inet]` and so on.

use crate::constants::Consistency;
use crate::error::{Result, WireError};
use crate::query::BoundValue;
use crate::version::ProtocolVersion;
use codec::{Reader, Writer};
use core::net::{IpAddr, SocketAddr};
use stdx::Uuid;

/// `[string]`.
#[inline]
pub(crate) fn string<'a>(r: &mut Reader<'a>) -> Result<&'a str> {
    let length = usize::from(r.u16()?);
    text(r, length, 2)
}

/// `[long string]`.
#[inline]
pub(crate) fn long_string<'a>(r: &mut Reader<'a>) -> Result<&'a str> {
    let length = r.i32()?;
    let length = usize::try_from(length).map_err(|_| WireError::ShortString { prefix: 4 })?;
    text(r, length, 4)
}

#[inline]
fn text<'a>(r: &mut Reader<'a>, length: usize, prefix: u8) -> Result<&'a str> {
    let bytes = r.bytes(length).map_err(|_| WireError::ShortString { prefix })?;
    std::str::from_utf8(bytes).map_err(|_| WireError::NotUtf8)
}

/// `[short bytes]`.
#[inline]
pub(crate) fn short_bytes<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let length = usize::from(r.u16()?);
    r.bytes(length).map_err(|_| WireError::ShortBytes)
}

/// `[bytes]`: any negative length is null.
#[inline]
pub(crate) fn bytes<'a>(r: &mut Reader<'a>) -> Result<Option<&'a [u8]>> {
    match usize::try_from(r.i32()?) {
        Ok(length) => Ok(Some(r.bytes(length)?)),
        Err(_) => Ok(None),
    }
}

/// `[value]`: -1 is null, -2 unset; before v4 every negative length is null, as Cassandra has it.
#[inline]
pub(crate) fn value<'a>(r: &mut Reader<'a>, version: ProtocolVersion) -> Result<BoundValue<'a>> {
    let length = r.i32()?;
    match usize::try_from(length) {
        Ok(length) => Ok(BoundValue::Bytes(r.bytes(length)?)),
        Err(_) if length == -1 || version < ProtocolVersion::V4 => Ok(BoundValue::Null),
        Err(_) if length == -2 => Ok(BoundValue::Unset),
        Err(_) => Err(WireError::BadValueLength { length }),
    }
}

/// `[consistency]`.
#[inline]
pub(crate) fn consistency(r: &mut Reader<'_>) -> Result<Consistency> {
    Consistency::from_number(r.u16()?)
}

/// `[uuid]`.
pub(crate) fn uuid(r: &mut Reader<'_>) -> Result<Uuid> {
    Ok(Uuid::from_bytes(r.array::<16>()?))
}

/// `[inetaddr]`.
pub(crate) fn inet_address(r: &mut Reader<'_>) -> Result<IpAddr> {
    let at = *r;
    match r.u8()? {
        4 => Ok(IpAddr::from(r.array::<4>()?)),
        16 => Ok(IpAddr::from(r.array::<16>()?)),
        length => Err(at.invalid(i64::from(length)).into()),
    }
}

/// `[inet]`.
pub(crate) fn inet(r: &mut Reader<'_>) -> Result<SocketAddr> {
    let address = inet_address(r)?;
    let at = *r;
    let port = r.i32()?;
    let port = u16::try_from(port).map_err(|_| at.invalid(i64::from(port)))?;
    Ok(SocketAddr::new(address, port))
}

/// `[string list]`.
pub(crate) fn string_list<'a>(r: &mut Reader<'a>) -> Result<Vec<&'a str>> {
    let count = usize::from(r.u16()?);
    let mut list = Vec::with_capacity(r.check_count(count, 2)?);
    for _ in 0..count {
        list.push(string(r)?);
    }
    Ok(list)
}

/// A count of two bytes.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize, what: &'static str) -> Result<()> {
    out.put_u16(check_count(count, what)?);
    Ok(())
}

/// Checks that a count fits into two bytes.
pub(crate) fn check_count(count: usize, what: &'static str) -> Result<u16> {
    let max = usize::from(u16::MAX);
    let too_long = |_| codec::writer::LengthError { what, length: count, max };
    Ok(u16::try_from(count).map_err(too_long)?)
}

/// `[string]`.
#[inline]
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) -> Result<()> {
    Ok(out.put_bytes_u16(text.as_bytes(), "string")?)
}

/// `[string]`, cut at a character when it is longer than a string can be: for messages to people.
pub(crate) fn put_string_cut(out: &mut Vec<u8>, text: &str) {
    let cut = text.get(..text.floor_char_boundary(usize::from(u16::MAX))).unwrap_or_default();
    // At most 65,535 bytes by now: it always fits.
    let _fits = put_string(out, cut);
}

/// `[long string]`.
pub(crate) fn put_long_string(out: &mut Vec<u8>, text: &str) -> Result<()> {
    Ok(out.put_bytes_i32(text.as_bytes(), "long string")?)
}

/// `[short bytes]`.
pub(crate) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    Ok(out.put_bytes_u16(bytes, "short bytes")?)
}

/// `[bytes]`.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) -> Result<()> {
    match bytes {
        Some(bytes) => out.put_bytes_i32(bytes, "bytes")?,
        None => out.put_i32(-1),
    }
    Ok(())
}

/// `[inetaddr]`.
pub(crate) fn put_inet_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            out.put_u8(4);
            out.put_bytes(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.put_u8(16);
            out.put_bytes(&v6.octets());
        }
    }
}

/// `[inet]`.
pub(crate) fn put_inet(out: &mut Vec<u8>, address: SocketAddr) {
    put_inet_address(out, address.ip());
    out.put_i32(i32::from(address.port()));
}

/// `[string list]`.
pub(crate) fn put_string_list<S: AsRef<str>>(out: &mut Vec<u8>, list: &[S]) -> Result<()> {
    put_count(out, list.len(), "string list")?;
    list.iter().try_for_each(|text| put_string(out, text.as_ref()))
}
