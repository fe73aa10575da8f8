//! Answers to the requests of a search: blocks of components, keys of rows in Data, keys of sources without index.

use std::sync::Arc;

use data::command::{KeyRange, RingBound};
use data::{BlockRequest, Slices};
use index::{KeyWalk, SearchNeed, WalkStep};
use index_format::sources::Fed;
use index_format::{Block, BlockRef, RowKey, RowPlace, Scope, Wanted};
use sstable::{IndexComponent, RowKeys, SstableError};
use stdx::Token;

use super::{Searching, Stopped};
use crate::error::StoreError;
use crate::memtable::MemtableScan;
use crate::read::sources::{FileSource, Source};
use crate::tables::table_file::{TableFile, map_error};

impl Searching<'_> {
    /// Reads what a search asked for.
    pub(super) async fn fetch(&mut self, need: &SearchNeed) -> Result<Fed, Stopped> {
        let file = self.file(need.source);
        match (need.wanted, file) {
            (Wanted::IndexBlock(at), Some(file)) => {
                let (asked, _) = self.asked(need.predicate)?;
                let component = IndexComponent::Entries(asked.index);
                self.block(&file, component, at).await.map(Fed::IndexBlock)
            }
            (Wanted::RowsBlock(at), Some(file)) => {
                self.block(&file, IndexComponent::Rows, at).await.map(Fed::RowsBlock)
            }
            (Wanted::Key(place), Some(file)) => {
                self.key_at(&file, need.source, place).await.map(Fed::Key)
            }
            (Wanted::NextKey { floor }, _) => self.next_key(need, floor).await.map(Fed::NextKey),
            (wanted, None) => {
                let bug = stdx::bug!("search of an index: a memtable asked for {wanted:?}");
                Err(StoreError::Invalid(bug.to_string()).into())
            }
        }
    }

    /// A block of a component, from the chunk cache or the file.
    pub(super) async fn block(
        &mut self,
        file: &TableFile,
        component: IndexComponent,
        at: BlockRef,
    ) -> Result<Block, Stopped> {
        let cache = &self.reader.files.cache;
        let number = self.reader.index_reads.number(file.id, component, cache);
        if let Some(chunk) = cache.get(number, at.offset)
            && let Ok(block) = Block::of_chunk(at, chunk)
        {
            return Ok(block);
        }
        self.reader.index_reads.blocks.inc();
        match file.reader.load_index_block(component, at).await {
            Ok(block) => {
                if !self.search.command.bypass_cache {
                    cache.insert(number, at.offset, block.chunk().clone());
                }
                Ok(block)
            }
            Err(error) if error.is_damage() => Err(self.lose(file, component, &error)),
            Err(error) => Err(map_error(error).into()),
        }
    }

    /// The key of a row in Data.
    pub(super) async fn key_at(
        &mut self,
        file: &TableFile,
        slot: u32,
        place: RowPlace,
    ) -> Result<Arc<RowKey>, Stopped> {
        let new = || RowKeys::new(file.reader.meta().clone());
        let taken = self.keys.get_mut(slot as usize).and_then(Option::take);
        let mut keys = taken.unwrap_or_else(new);
        while let Some(block) = keys.read(place.partition_offset, place.row_offset)? {
            let cached = self.reader.files.cache.get(file.id, block);
            let chunk = match cached {
                Some(chunk) => chunk,
                None => {
                    let bypasses = self.search.command.bypass_cache;
                    self.reader.load_of(file, block, bypasses, &mut self.stats).await?
                }
            };
            keys.feed(block, chunk);
        }
        let found = keys.key();
        if found.token != place.token {
            let path =
                file.reader.meta().file(sstable::Component::Attached(IndexComponent::Rows.name()));
            let what =
                format!("no partition of token {} lies at the position of a row", place.token.0);
            let error = SstableError::Corrupt { file: path, offset: place.row_offset, what };
            return Err(self.lose(file, IndexComponent::Rows, &error));
        }
        let key = self.row_key(found.token, found.partition, found.clustering)?;
        if let Some(slot) = self.keys.get_mut(slot as usize) {
            *slot = Some(keys);
        }
        Ok(Arc::new(key))
    }

    /// The key of a row in the order of the table.
    pub(super) fn row_key(
        &self,
        token: Token,
        partition: &[u8],
        clustering: Option<&[u8]>,
    ) -> Result<RowKey, StoreError> {
        let impossible = || {
            let table = &self.table.version().table;
            let what =
                format!("a clustering of {}.{} has no order in bytes", table.keyspace, table.name);
            StoreError::Invalid(what)
        };
        self.indexes.row_key(token, partition, clustering).ok_or_else(impossible)
    }

    /// The next key of a source without index.
    async fn next_key(
        &mut self,
        need: &SearchNeed,
        mut floor: Option<Token>,
    ) -> Result<Option<Arc<RowKey>>, Stopped> {
        let of_need = |walk: &super::Walk| (walk.0, walk.1) == (need.predicate, need.source);
        let at = self.walks.iter().position(of_need);
        let scope = self.asked(need.predicate)?.1.part.scope();
        let mut walk = match at {
            Some(at) => self.walks.swap_remove(at).2,
            None => self.walk(need.source, scope, floor.take())?,
        };
        loop {
            match walk.advance(floor)? {
                WalkStep::End => return Ok(None),
                WalkStep::Behind => walk = self.walk(need.source, scope, floor)?,
                WalkStep::NeedBlock(request) => self.feed(walk.cursor_mut(), request).await?,
                WalkStep::Key => break,
            }
        }
        let key = walk.key();
        let key = self.row_key(key.token, key.partition, key.clustering)?;
        self.walks.push((need.predicate, need.source, walk));
        Ok(Some(Arc::new(key)))
    }

    /// A walk of a source from the start of the range, or from a token on.
    fn walk(
        &self,
        source: u32,
        scope: Scope,
        floor: Option<Token>,
    ) -> Result<KeyWalk<Source>, StoreError> {
        let mut range: KeyRange = self.range.range.clone();
        if let Some(token) = floor.filter(|floor| *floor > self.range.first_token()) {
            range.start = RingBound::Token { token, after: false };
        }
        Ok(KeyWalk::new(self.cursor_of(source, range)?, scope))
    }

    /// A cursor over all rows of a source in a range.
    pub(super) fn cursor_of(&self, source: u32, range: KeyRange) -> Result<Source, StoreError> {
        let all = Arc::new(Slices::all());
        if let Some(file) = self.file(source) {
            let cursor = file.reader.range_cursor(0, range, all, file.filter);
            let map = self.reader.env.options.shard_map;
            return Ok(Source::File(Box::new(FileSource::new(file, cursor, map))));
        }
        let Some(memtable) = self.memtable(source) else {
            let bug = stdx::bug!("search of an index: no source {source}");
            return Err(StoreError::Invalid(bug.to_string()));
        };
        let scan = MemtableScan::new(memtable, self.shape.clone(), &range, all, false);
        Ok(Source::Scan(Box::new(scan)))
    }

    /// Reads the block that such a cursor asked for.
    pub(super) async fn feed(
        &mut self,
        cursor: &mut Source,
        request: BlockRequest,
    ) -> Result<(), Stopped> {
        let Some(file) = cursor.file().map(|source| source.file.clone()) else {
            let bug = stdx::bug!("search of an index: a memtable asked for a block");
            return Err(StoreError::Invalid(bug.to_string()).into());
        };
        let chunk = match self.reader.files.cache.get(file.id, request.block) {
            Some(chunk) => chunk,
            None => {
                let bypasses = self.search.command.bypass_cache;
                self.reader.load_of(&file, request.block, bypasses, &mut self.stats).await?
            }
        };
        cursor.feed(request.block, chunk);
        Ok(())
    }
}
