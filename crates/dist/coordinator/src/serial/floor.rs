//! The newest ballot that this shard's acceptors refuse whatever they know.
//!
//! Owns: `metadata/paxos-floor/<shard>` of the work directory: how far rows of `system.paxos` may have
//! been deleted ([`super::sweep`]). Never: which rows go.
//!
//! INV-serial-6: a row goes only when all of it is at most as new as the floor in the file of its shard,
//! and the floor never goes back, whatever the wall clock does. So what a deleted row would have refused
//! is refused.
//!
//! File: `helenus paxos floor 1`, `micros <microseconds since 1970>`, `crc32 <of the lines before>`.
//! A node may be started with other shards: the newest of all files counts for each.

use std::cell::{Cell, RefCell};

use paxos::{Ballot, Scope};
use rt::Rt;
use stdx::{IoError, IoErrorKind};

const FIRST_LINE: &str = "helenus paxos floor 1";
const BYTES_MAX: usize = 256;

/// The floor of a shard.
pub(super) struct Floor {
    newest: Cell<Ballot>,
    /// Where it is kept; nowhere before [`Floor::load`].
    directory: RefCell<Option<String>>,
}

impl Default for Floor {
    fn default() -> Floor {
        Floor { newest: Cell::new(Ballot::ZERO), directory: RefCell::default() }
    }
}

impl Floor {
    pub(super) fn get(&self) -> Ballot {
        self.newest.get()
    }

    /// Takes over what earlier runs have kept, and keeps it there from now on.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub(super) async fn load(&self, rt: &Rt, work_dir: &str) -> Result<(), IoError> {
        let directory = format!("{}/metadata/paxos-floor", work_dir.trim_end_matches('/'));
        let entries = match rt.fs().read_dir(&directory).await {
            Ok(entries) => entries,
            Err(error) if error.kind == IoErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        for name in entries.into_iter().map(|entry| entry.name) {
            // What was being written when the node ended is no floor yet.
            if name.parse::<u16>().is_err() {
                continue;
            }
            let path = format!("{directory}/{name}");
            let found = rt.fs().read(&path, BYTES_MAX).await?;
            let Some(micros) = decode(&found) else {
                let detail = "it is damaged; remove it if this node's clock was never set back by \
                    more than 12 hours"
                    .to_owned();
                let kind = IoErrorKind::Device;
                return Err(IoError { kind, operation: "read", path, detail });
            };
            self.raise_to(at(micros));
        }
        *self.directory.borrow_mut() = Some(directory);
        Ok(())
    }

    fn raise_to(&self, floor: Ballot) {
        if floor.is_newer_than(self.newest.get()) {
            self.newest.set(floor);
        }
    }

    /// Refuses what is at most as new from now on, durably when it returns.
    ///
    /// # Errors
    /// It cannot be kept; it is refused all the same until the node ends.
    pub(super) async fn raise(&self, rt: &Rt, floor: Ballot) -> Result<(), IoError> {
        self.raise_to(floor);
        let directory = self.directory.borrow().clone();
        let Some(directory) = directory else { return Ok(()) };
        rt.fs().create_dir_durably(&directory).await?;
        let path = format!("{directory}/{}", rt.shard().0);
        rt.fs().write_atomic(&path, encode(self.newest.get().micros())).await
    }
}

/// The last ballot of a microsecond.
pub(super) fn at(micros: u64) -> Ballot {
    Ballot::new(micros, Scope::Global, u64::MAX)
}

fn encode(micros: u64) -> Vec<u8> {
    let body = format!("{FIRST_LINE}\nmicros {micros}\n");
    let crc = codec::crc32(body.as_bytes());
    format!("{body}crc32 {crc:08x}\n").into_bytes()
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let micros = text.strip_prefix(FIRST_LINE)?.strip_prefix("\nmicros ")?.lines().next()?;
    let micros = micros.parse().ok()?;
    (encode(micros) == bytes).then_some(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_comes_back_and_a_damaged_one_does_not() {
        let bytes = encode(1_700_000_000_000_001);
        assert_eq!(decode(&bytes), Some(1_700_000_000_000_001));
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at]), None, "cut at {at}");
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad), None, "flip at {at}");
        }
    }
}
