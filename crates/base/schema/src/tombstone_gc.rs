//! `tombstone_gc`: the condition under which a compaction may purge a tombstone. ScyllaDB's option
//! by name, form and meaning. It is stored in the table's extensions under its name, which Cassandra
//! and its tools ignore.
//!
//! The bytes of the extension are a CQL `map<text, text>`: count i32, then each key and value with
//! its length i32 before it.

use codec::{Reader, Writer};

use crate::model::TableOptions;

/// Name of the option and of its extension.
pub const TOMBSTONE_GC: &str = "tombstone_gc";
/// `propagation_delay_in_seconds` when it is not given, as ScyllaDB has it.
pub const PROPAGATION_DELAY_SECONDS: u32 = 3600;

/// Condition under which tombstones may be purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TombstoneGcMode {
    /// Deletions older than the last repair of their range.
    Repair,
    /// Deletions older than `gc_grace_seconds`, repaired or not: Cassandra's rule.
    Timeout,
    /// At once.
    Immediate,
    /// Never.
    Disabled,
}

impl TombstoneGcMode {
    const ALL: [TombstoneGcMode; 4] = [
        TombstoneGcMode::Repair,
        TombstoneGcMode::Timeout,
        TombstoneGcMode::Immediate,
        TombstoneGcMode::Disabled,
    ];

    /// Returns the name in CQL.
    pub fn name(self) -> &'static str {
        match self {
            TombstoneGcMode::Repair => "repair",
            TombstoneGcMode::Timeout => "timeout",
            TombstoneGcMode::Immediate => "immediate",
            TombstoneGcMode::Disabled => "disabled",
        }
    }

    /// The mode of that name, in lower case.
    pub fn of_name(name: &str) -> Option<TombstoneGcMode> {
        TombstoneGcMode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The option of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TombstoneGc {
    /// The rule.
    pub mode: TombstoneGcMode,
    /// Mode repair: a deletion made less than this many seconds before a repair began may not have
    /// reached all replicas when it read, and waits for the next one.
    pub propagation_delay_seconds: u32,
}

const MODE: &str = "mode";
const DELAY: &str = "propagation_delay_in_seconds";

impl TombstoneGc {
    /// From the option's map.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence without an end.
    pub fn of_map<'a>(
        entries: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<TombstoneGc, String> {
        let mut found = TombstoneGc {
            mode: TombstoneGcMode::Timeout,
            propagation_delay_seconds: PROPAGATION_DELAY_SECONDS,
        };
        let mut has_mode = false;
        for (key, value) in entries {
            match key {
                MODE => {
                    let mode = TombstoneGcMode::of_name(value);
                    found.mode = mode.ok_or_else(|| {
                        format!(
                            "Invalid value '{value}' for tombstone_gc sub-option 'mode': only \
                             'repair', 'timeout', 'immediate' and 'disabled' are allowed"
                        )
                    })?;
                    has_mode = true;
                }
                DELAY => {
                    found.propagation_delay_seconds = value.parse().map_err(|_| {
                        format!(
                            "Invalid value '{value}' for tombstone_gc sub-option \
                             'propagation_delay_in_seconds': it must be a number of seconds"
                        )
                    })?;
                }
                other => {
                    return Err(format!(
                        "Invalid tombstone_gc sub-option '{other}': only 'mode' and \
                         'propagation_delay_in_seconds' are allowed"
                    ));
                }
            }
        }
        if has_mode {
            Ok(found)
        } else {
            Err("Missing sub-option 'mode' for the 'tombstone_gc' option".to_owned())
        }
    }

    /// Returns the option's map, in the order of its keys.
    pub fn to_map(self) -> [(&'static str, String); 2] {
        [(MODE, self.mode.name().to_owned()), (DELAY, self.propagation_delay_seconds.to_string())]
    }

    fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        let map = self.to_map();
        out.put_i32(i32::try_from(map.len()).unwrap_or(i32::MAX));
        for (key, value) in &map {
            for text in [*key, value.as_str()] {
                out.put_i32(i32::try_from(text.len()).unwrap_or(i32::MAX));
                out.put_bytes(text.as_bytes());
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<TombstoneGc> {
        let mut r = Reader::new(bytes, TOMBSTONE_GC);
        let count = r.i32().ok()?;
        if !(0..=8).contains(&count) {
            return None;
        }
        let mut pairs = Vec::new();
        for _ in 0..count {
            let key = std::str::from_utf8(r.bytes_i32().ok()?).ok()?;
            pairs.push((key, std::str::from_utf8(r.bytes_i32().ok()?).ok()?));
        }
        r.finish().ok()?;
        TombstoneGc::of_map(pairs.into_iter()).ok()
    }
}

impl TableOptions {
    /// Returns the option as it was set. `None`: it was not set, or the extension of that name has
    /// another meaning. The default then depends on how the table is replicated.
    pub fn tombstone_gc(&self) -> Option<TombstoneGc> {
        self.extensions.get(TOMBSTONE_GC).and_then(|bytes| TombstoneGc::decode(bytes))
    }

    /// Sets the option.
    pub fn set_tombstone_gc(&mut self, option: TombstoneGc) {
        self.extensions.insert(TOMBSTONE_GC.to_owned(), option.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_read_back_from_the_extension() {
        for mode in TombstoneGcMode::ALL {
            let mut options = TableOptions::default();
            assert_eq!(options.tombstone_gc(), None);
            let option = TombstoneGc { mode, propagation_delay_seconds: 77 };
            options.set_tombstone_gc(option);
            assert_eq!(options.tombstone_gc(), Some(option));
        }
    }

    #[test]
    fn bytes_of_others_are_no_option() {
        let mut options = TableOptions::default();
        let option = TombstoneGc { mode: TombstoneGcMode::Repair, propagation_delay_seconds: 3600 };
        let whole = option.encode();
        for length in 0..whole.len() {
            options.extensions.insert(TOMBSTONE_GC.to_owned(), whole[..length].to_vec());
            assert_eq!(options.tombstone_gc(), None, "{length}");
        }
        options.extensions.insert(TOMBSTONE_GC.to_owned(), vec![0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(options.tombstone_gc(), None);
    }

    #[test]
    fn maps_are_checked() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            TombstoneGc::of_map(pairs.iter().copied())
                .map(|o| (o.mode, o.propagation_delay_seconds))
        };
        assert_eq!(of(&[("mode", "repair")]), Ok((TombstoneGcMode::Repair, 3600)));
        let delay = ("propagation_delay_in_seconds", "0");
        assert_eq!(of(&[("mode", "disabled"), delay]), Ok((TombstoneGcMode::Disabled, 0)));
        for wrong in [
            [].as_slice(),
            &[delay],
            &[("mode", "Repair")],
            &[("mode", "repair"), ("propagation_delay_in_seconds", "-1")],
            &[("mode", "repair"), ("x", "1")],
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
