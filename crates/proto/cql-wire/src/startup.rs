//! STARTUP's options, and the keys of SUPPORTED that are not an extension.

use crate::collections::StringMap;
use crate::compression::Compression;
use crate::error::{Result, WireError};
use crate::scylla;
use crate::version::{Negotiated, ProtocolVersion};

/// CQL version, mandatory in STARTUP.
pub const CQL_VERSION: &str = "CQL_VERSION";
/// Compression of frames or segments.
pub const COMPRESSION: &str = "COMPRESSION";
/// Versions of the protocol (SUPPORTED).
pub const PROTOCOL_VERSIONS: &str = "PROTOCOL_VERSIONS";
/// Version of this server (SUPPORTED); no other server has it.
pub const HELENUS_VERSION: &str = "HELENUS_VERSION";
/// Name of the driver.
pub const DRIVER_NAME: &str = "DRIVER_NAME";
/// Version of the driver.
pub const DRIVER_VERSION: &str = "DRIVER_VERSION";
/// `1`: answer OVERLOADED instead of applying back pressure.
pub const THROW_ON_OVERLOAD: &str = "THROW_ON_OVERLOAD";

/// A client's options, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartupOptions<'a> {
    /// CQL version, 3 at least.
    pub cql_version: &'a str,
    /// Compression.
    pub compression: Option<Compression>,
    /// Name of the driver.
    pub driver_name: Option<&'a str>,
    /// Version of the driver.
    pub driver_version: Option<&'a str>,
    /// OVERLOADED instead of back pressure.
    pub throw_on_overload: bool,
    /// [`scylla::USE_METADATA_ID`] was sent.
    pub metadata_id: bool,
    /// [`scylla::LWT_ADD_METADATA_MARK`] was sent.
    pub lwt_mark: bool,
    /// Everything that was sent, for listings of clients.
    pub all: StringMap<'a>,
}

impl<'a> StartupOptions<'a> {
    /// Checks STARTUP as Cassandra does. Keys are taken in any case, unknown ones are kept in `all`.
    ///
    /// # Errors
    /// `MissingCqlVersion`, `OldCqlVersion`, `BadCqlVersion`, `UnknownCompression`, `SnappyInV5`: to be answered on
    /// the stream; the client may try again.
    pub fn check(options: StringMap<'a>, version: ProtocolVersion) -> Result<StartupOptions<'a>> {
        let cql_version =
            options.get_ignoring_case(CQL_VERSION).ok_or(WireError::MissingCqlVersion)?;
        check_cql_version(cql_version)?;
        let compression = match options.get_ignoring_case(COMPRESSION) {
            None => None,
            Some(name) => {
                let lower = name.to_lowercase();
                let known =
                    Compression::ALL.into_iter().find(|compression| compression.name() == lower);
                let known = known.ok_or(WireError::UnknownCompression { name: lower })?;
                if known == Compression::Snappy && version >= ProtocolVersion::V5 {
                    return Err(WireError::SnappyInV5);
                }
                Some(known)
            }
        };
        Ok(StartupOptions {
            cql_version,
            compression,
            driver_name: options.get_ignoring_case(DRIVER_NAME),
            driver_version: options.get_ignoring_case(DRIVER_VERSION),
            throw_on_overload: options.get_ignoring_case(THROW_ON_OVERLOAD) == Some("1"),
            metadata_id: options.get_ignoring_case(scylla::USE_METADATA_ID).is_some(),
            lwt_mark: options.get_ignoring_case(scylla::LWT_ADD_METADATA_MARK).is_some(),
            all: options,
        })
    }

    /// Returns the parameters that the connection agreed on by these options.
    pub fn negotiated(&self, version: ProtocolVersion) -> Negotiated {
        Negotiated { version, metadata_id: self.metadata_id, lwt_mark: self.lwt_mark }
    }
}

/// `major.minor[.patch][-…]`, at least 2.99.0.
fn check_cql_version(version: &str) -> Result<()> {
    let short = || version.chars().take(64).collect::<String>();
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = numbers.split('.').map(|part| part.parse::<u32>());
    match (parts.next(), parts.next(), parts.all(|part| part.is_ok())) {
        (Some(Ok(major)), Some(Ok(minor)), true) if (major, minor) >= (2, 99) => Ok(()),
        (Some(Ok(_)), Some(Ok(_)), true) => Err(WireError::OldCqlVersion { version: short() }),
        _ => Err(WireError::BadCqlVersion { version: short() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Reader;

    fn check(
        entries: &[(&str, &str)],
        version: ProtocolVersion,
    ) -> Result<(Option<Compression>, bool)> {
        let mut out = Vec::new();
        StringMap::encode(&mut out, entries).unwrap();
        let map = StringMap::decode(&mut Reader::new(&out, "STARTUP")).unwrap();
        StartupOptions::check(map, version)
            .map(|options| (options.compression, options.metadata_id))
    }

    #[test]
    fn startup_options_are_judged_as_cassandra_does() {
        let v4 = ProtocolVersion::V4;
        assert_eq!(check(&[("cql_version", "3.0.0")], v4), Ok((None, false)));
        assert_eq!(check(&[("CQL_VERSION", "2.99.0")], v4), Ok((None, false)));
        let text =
            |entries: &[(&str, &str)], version| check(entries, version).unwrap_err().to_string();
        assert_eq!(text(&[], v4), "Missing value CQL_VERSION in STARTUP message");
        assert_eq!(
            text(&[("CQL_VERSION", "2.0.0")], v4),
            "CQL version 2.0.0 is not supported by the binary protocol (supported version are >= 3.0.0)"
        );
        assert_eq!(text(&[("CQL_VERSION", "three")], v4), "Invalid version value: three");
        let with = |compression| [("CQL_VERSION", "3.4.7"), ("COMPRESSION", compression)];
        assert_eq!(check(&with("LZ4"), v4), Ok((Some(Compression::Lz4), false)));
        assert_eq!(check(&with("snappy"), v4), Ok((Some(Compression::Snappy), false)));
        let in_v5 = text(&with("snappy"), ProtocolVersion::V5);
        assert_eq!(in_v5, "Snappy compression is not supported in protocol V5");
        assert_eq!(text(&with("foo"), v4), "Unknown compression algorithm: foo");
        assert_eq!(
            check(&[("CQL_VERSION", "3.0.0"), (scylla::USE_METADATA_ID, "")], v4),
            Ok((None, true))
        );
    }
}
