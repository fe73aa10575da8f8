//! Keys of a source without index: all rows of a file or memtable, read by a cursor.

use data::{Advance, BlockRequest, Cursor, CursorError, Item};
use index_format::Scope;
use stdx::Token;

/// Partitions that are skipped one by one before the driver should search the floor instead.
const SKIPPED_MAX: u32 = 8;

/// Outcome of [`KeyWalk::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// At the next key: see [`KeyWalk::key`].
    Key,
    /// Feed this block to the cursor, then advance again.
    NeedBlock(BlockRequest),
    /// Several partitions were skipped and the floor is not reached: continue with a cursor that begins there.
    Behind,
    /// No further key.
    End,
}

/// A key of the walk. `clustering`: `None` for a partition as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedKey<'a> {
    /// Token of the partition.
    pub token: Token,
    /// Its key.
    pub partition: &'a [u8],
    /// The row.
    pub clustering: Option<&'a [u8]>,
}

/// Walks the keys that a cursor over a range of partitions shows: of its rows, or of its partitions that have a row.
#[derive(Debug)]
pub struct KeyWalk<C> {
    cursor: C,
    scope: Scope,
    token: Token,
    partition: Vec<u8>,
    skipped: u32,
}

impl<C: Cursor> KeyWalk<C> {
    /// A walk before the first key.
    pub fn new(cursor: C, scope: Scope) -> KeyWalk<C> {
        KeyWalk { cursor, scope, token: Token::MIN, partition: Vec::new(), skipped: 0 }
    }

    /// The cursor, to feed it.
    pub fn cursor_mut(&mut self) -> &mut C {
        &mut self.cursor
    }

    /// Moves to the next key. Partitions of tokens below `floor` are skipped.
    ///
    /// # Errors
    /// Those of the cursor.
    pub fn advance(&mut self, floor: Option<Token>) -> Result<WalkStep, CursorError> {
        loop {
            match self.cursor.advance()? {
                Advance::End => return Ok(WalkStep::End),
                Advance::NeedBlock(request) => return Ok(WalkStep::NeedBlock(request)),
                Advance::Item => {}
            }
            match self.cursor.item() {
                Item::Partition { token, key, .. } => {
                    self.token = token;
                    self.partition.clear();
                    self.partition.extend_from_slice(key);
                    if floor.is_some_and(|floor| token < floor) {
                        if self.skipped >= SKIPPED_MAX {
                            return Ok(WalkStep::Behind);
                        }
                        self.skipped += 1;
                        self.cursor.skip_partition();
                    } else {
                        self.skipped = 0;
                    }
                }
                Item::Static(_) | Item::Row { .. } if self.scope == Scope::Partition => {
                    self.cursor.skip_partition();
                    return Ok(WalkStep::Key);
                }
                Item::Row { .. } if floor.is_some_and(|floor| self.token < floor) => {
                    self.cursor.skip_partition();
                }
                Item::Row { .. } => return Ok(WalkStep::Key),
                Item::Static(_) | Item::Marker(_) | Item::PartitionEnd => {}
            }
        }
    }

    /// The key that the walk is at.
    pub fn key(&self) -> WalkedKey<'_> {
        let clustering = match self.cursor.item() {
            Item::Row { clustering, .. } if self.scope == Scope::Row => Some(clustering),
            _ => None,
        };
        WalkedKey { token: self.token, partition: &self.partition, clustering }
    }
}
