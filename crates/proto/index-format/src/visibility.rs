//! Partitions of a file that its shard shows.

use std::rc::Rc;

use stdx::{ShardId, ShardMap, TableId, Token};

/// Tokens of a file that a shard shows. A file may have partitions of other shards, and slices that were released.
#[derive(Clone, Debug)]
pub struct Visibility {
    /// Owners of tokens.
    pub map: ShardMap,
    /// Table of the file.
    pub table: TableId,
    /// The only shard whose partitions are shown. None: those of all.
    pub shard: Option<ShardId>,
    /// Slices (shard, of how many) that were released.
    pub hidden: Rc<[(u16, u16)]>,
}

impl Visibility {
    /// Returns true if partitions of a token are shown.
    pub fn shows(&self, token: Token) -> bool {
        let owner = |map: ShardMap| map.shard_of(self.table, token);
        self.shard.is_none_or(|shard| owner(self.map) == shard)
            && self.hidden.iter().all(|(shard, shards)| owner(self.map.over(*shards)).0 != *shard)
    }

    /// Returns true if all tokens are shown.
    pub fn is_all(&self) -> bool {
        self.shard.is_none() && self.hidden.is_empty()
    }
}
