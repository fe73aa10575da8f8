//! Where rows of one predicate come from: the component of a file, the index of a memtable.

use std::cmp::Ordering;
use std::sync::Arc;

use stdx::Token;

use crate::cursor::{IndexCursor, Step};
use crate::memtable::MemtableRows;
use crate::rows::{Lookup, RowPlace, RowsReader};
use crate::{Block, BlockRef, IndexError, Visibility};

/// Rows that a source skips before it searches for a token.
const STEPS_MAX: u32 = 3;

/// Primary key of a row in a form whose order is that of the table.
#[derive(Clone, Debug)]
pub struct RowKey {
    /// Token of the partition key.
    pub token: Token,
    /// Serialised partition key.
    pub partition: Box<[u8]>,
    /// Clustering in byte-comparable form; empty for the static row.
    pub clustering: Box<[u8]>,
    /// The clustering as mutations and slices have it. It is not compared: `clustering` has its order.
    pub values: Box<[u8]>,
}

impl RowKey {
    fn ordered(&self) -> (Token, &[u8], &[u8]) {
        (self.token, &self.partition, &self.clustering)
    }

    /// Bytes of memory, with those of the counters of an `Arc`.
    pub fn memory_bytes(&self) -> usize {
        let parts = self.partition.len() + self.clustering.len() + self.values.len();
        size_of::<RowKey>() + 2 * size_of::<usize>() + parts
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &RowKey) -> bool {
        self.ordered() == other.ordered()
    }
}

impl Eq for RowKey {}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &RowKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RowKey {
    fn cmp(&self, other: &RowKey) -> Ordering {
        self.ordered().cmp(&other.ordered())
    }
}

/// Unit of comparison. An index of a static column or of a part of the partition key names whole partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The row.
    Row,
    /// Its partition.
    Partition,
}

/// A row of a predicate. The row must still be read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Token of its partition.
    pub token: Token,
    /// Number of the file or memtable.
    pub source: u32,
    /// Its place, in a file.
    pub place: Option<RowPlace>,
    /// Its id, in a file.
    pub row: u32,
    /// Its key; in a file only once it was asked for.
    pub key: Option<Arc<RowKey>>,
}

impl Candidate {
    fn of_key(source: u32, key: Arc<RowKey>) -> Candidate {
        Candidate { token: key.token, source, place: None, row: 0, key: Some(key) }
    }
}

/// Order of two candidates.
pub(crate) enum Compared {
    Order(Ordering),
    /// The key of the first (true) or second is needed.
    NeedsFirst,
    NeedsSecond,
}

/// Compares by token, then by ids within a file, then by keys, which are asked for only here.
pub(crate) fn compare(a: &Candidate, b: &Candidate, scope: Scope) -> Compared {
    let tokens = a.token.0.cmp(&b.token.0);
    if tokens != Ordering::Equal {
        return Compared::Order(tokens);
    }
    if let (Some(place_a), Some(place_b)) = (&a.place, &b.place)
        && a.source == b.source
    {
        let partitions = place_a.partition.cmp(&place_b.partition);
        return Compared::Order(match scope {
            Scope::Partition => partitions,
            Scope::Row => partitions.then(a.row.cmp(&b.row)),
        });
    }
    match (&a.key, &b.key) {
        (None, _) => Compared::NeedsFirst,
        (_, None) => Compared::NeedsSecond,
        (Some(a), Some(b)) => {
            let partitions = a.partition.cmp(&b.partition);
            Compared::Order(match scope {
                Scope::Partition => partitions,
                Scope::Row => partitions.then_with(|| a.clustering.cmp(&b.clustering)),
            })
        }
    }
}

/// A request of a source that cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A block of `Index+<id>.db`.
    IndexBlock(BlockRef),
    /// A block of `Index+Rows.db`.
    RowsBlock(BlockRef),
    /// The key of the row at this place.
    Key(RowPlace),
    /// The next key of a source without index.
    NextKey {
        /// Keys of smaller tokens may be left out.
        floor: Option<Token>,
    },
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Fed {
    /// A block of `Index+<id>.db`.
    IndexBlock(Block),
    /// A block of `Index+Rows.db`.
    RowsBlock(Block),
    /// A key.
    Key(Arc<RowKey>),
    /// The next key of a source without index, above those before. None: no further key.
    NextKey(Option<Arc<RowKey>>),
}

/// Rows of a predicate in one file.
#[derive(Debug)]
pub struct FileSource {
    index: IndexCursor,
    rows: RowsReader,
    /// Row whose place is to be found.
    row: Option<u32>,
    /// Rows of smaller tokens are to be skipped.
    floor: Option<Token>,
    /// None: all rows are shown.
    visibility: Option<Visibility>,
}

/// All keys of a file or memtable without index, as the driver reads them.
#[derive(Debug)]
struct KeySource {
    floor: Option<Token>,
    /// The key that was fed, or the end.
    fed: Option<Option<Arc<RowKey>>>,
    estimate: u64,
}

#[derive(Debug)]
enum Origin {
    File(Box<FileSource>),
    Memory(MemtableRows<Arc<RowKey>>),
    Unindexed(KeySource),
}

/// Rows of a predicate in one file or memtable, in the order of their keys.
#[derive(Debug)]
pub struct Source {
    number: u32,
    origin: Origin,
    head: Option<Candidate>,
    is_done: bool,
    /// Heads that were read.
    loaded: u64,
    /// Rows of smaller tokens are skipped.
    sought: Option<Token>,
}

impl Source {
    fn new(number: u32, origin: Origin) -> Source {
        Source { number, origin, head: None, is_done: false, loaded: 0, sought: None }
    }

    /// Rows of the file `number`, which has one number in all predicates.
    pub fn file(number: u32, index: IndexCursor, rows: RowsReader) -> Source {
        let file = FileSource { index, rows, row: None, floor: None, visibility: None };
        Source::new(number, Origin::File(Box::new(file)))
    }

    /// The same of a file of which only some partitions are shown.
    pub fn file_in_part(
        number: u32,
        index: IndexCursor,
        rows: RowsReader,
        visibility: Visibility,
    ) -> Source {
        let visibility = Some(visibility);
        let file = FileSource { index, rows, row: None, floor: None, visibility };
        Source::new(number, Origin::File(Box::new(file)))
    }

    /// Rows of the memtable `number`.
    pub fn memtable(number: u32, rows: MemtableRows<Arc<RowKey>>) -> Source {
        Source::new(number, Origin::Memory(rows))
    }

    /// All rows, about `estimate`, of the file or memtable `number`, whose keys the driver feeds: they are those of
    /// the predicate and others. (INV-index-1: a file without its component hides no row.)
    pub fn unindexed(number: u32, estimate: u64) -> Source {
        let keys = KeySource { floor: None, fed: None, estimate };
        Source::new(number, Origin::Unindexed(keys))
    }

    /// Finds the rows of the ranges in the index, so that [`Source::estimate`] is known. Some: this is missing.
    ///
    /// # Errors
    /// A defect of a block; the source must not be used again.
    pub fn prepare(&mut self) -> Result<Option<Wanted>, IndexError> {
        match &mut self.origin {
            Origin::File(file) => Ok(file.index.prepare()?.map(Wanted::IndexBlock)),
            Origin::Memory(_) | Origin::Unindexed(_) => Ok(None),
        }
    }

    /// Rows of the predicate, exactly those of the index of a prepared file, at most those of others.
    pub fn estimate(&self) -> u64 {
        match &self.origin {
            Origin::File(file) => file.index.counts().ids,
            Origin::Memory(rows) => rows.left() as u64,
            Origin::Unindexed(keys) => keys.estimate,
        }
    }

    /// Number of the file or memtable.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn loaded(&self) -> u64 {
        self.loaded
    }

    pub(crate) fn head(&self) -> Option<&Candidate> {
        self.head.as_ref()
    }

    pub(crate) fn drop_head(&mut self) {
        self.head = None;
    }

    /// Gives what it wanted.
    pub fn feed(&mut self, fed: Fed) {
        match (fed, &mut self.origin) {
            (Fed::IndexBlock(block), Origin::File(file)) => file.index.feed(block),
            (Fed::RowsBlock(block), Origin::File(file)) => file.rows.feed(block),
            (Fed::Key(key), _) => {
                self.head.iter_mut().for_each(|head| head.key = Some(key.clone()));
            }
            (Fed::NextKey(key), Origin::Unindexed(keys)) => keys.fed = Some(key),
            _ => {}
        }
    }

    /// Skips rows of smaller tokens.
    pub(crate) fn seek(&mut self, token: Token) {
        // An intersection seeks again after each block that was fed. A second look-up of the same token would need the
        // block of the token again, in place of the block of the next row that was just fed, and so on without end.
        if self.sought.is_some_and(|sought| sought.0 >= token.0) {
            return;
        }
        self.sought = Some(token);
        if self.head.as_ref().is_some_and(|head| head.token.0 >= token.0) {
            return;
        }
        self.head = None;
        match &mut self.origin {
            Origin::File(file) => file.floor = Some(token),
            Origin::Memory(rows) => rows.skip_while(|key| key.token.0 < token.0),
            Origin::Unindexed(keys) => keys.floor = Some(token),
        }
    }

    /// Reads the head. Some: this is missing.
    pub(crate) fn load(&mut self) -> Result<Option<Wanted>, IndexError> {
        if self.is_done || self.head.is_some() {
            return Ok(None);
        }
        let loaded = match &mut self.origin {
            Origin::File(file) => file.load(self.number)?,
            Origin::Memory(rows) => {
                let key = rows.current().cloned();
                rows.advance();
                Ok(key.map(|key| Candidate::of_key(self.number, key)))
            }
            Origin::Unindexed(keys) => keys.load(self.number),
        };
        match loaded {
            Err(wanted) => return Ok(Some(wanted)),
            Ok(head) => {
                self.is_done = head.is_none();
                self.loaded += u64::from(head.is_some());
                self.head = head;
            }
        }
        Ok(None)
    }
}

impl FileSource {
    /// Skips rows of smaller tokens one by one, a few at most and only in blocks that are loaded: intersections of like
    /// predicates go forward by a row or two, and a search reads a token for each halving of a block. False: search for the token.
    fn steps_to(&mut self, token: Token) -> Result<bool, IndexError> {
        for _ in 0..STEPS_MAX {
            let row = match self.row {
                Some(row) => row,
                None => match self.index.advance()? {
                    Step::Row(row) => row,
                    Step::End | Step::NeedBlock(_) => return Ok(false),
                },
            };
            self.row = Some(row);
            match self.rows.loaded_token(row) {
                None => return Ok(false),
                Some(found) if found.0 >= token.0 => return Ok(true),
                Some(_) => self.row = None,
            }
        }
        Ok(false)
    }

    /// The next row; `Err` inside names what is missing.
    fn load(&mut self, source: u32) -> Result<Result<Option<Candidate>, Wanted>, IndexError> {
        if let Some(token) = self.floor {
            if !self.steps_to(token)? {
                match self.rows.first_of_token(token)? {
                    Lookup::NeedBlock(at) => return Ok(Err(Wanted::RowsBlock(at))),
                    Lookup::Found(row) => {
                        self.index.seek(row);
                        self.row = self.row.filter(|known| *known >= row);
                    }
                }
            }
            self.floor = None;
        }
        loop {
            let row = match self.row {
                Some(row) => row,
                None => match self.index.advance()? {
                    Step::NeedBlock(at) => return Ok(Err(Wanted::IndexBlock(at))),
                    Step::End => return Ok(Ok(None)),
                    Step::Row(row) => row,
                },
            };
            self.row = Some(row);
            let place = match self.rows.place(row)? {
                Lookup::NeedBlock(at) => return Ok(Err(Wanted::RowsBlock(at))),
                Lookup::Found(place) => place,
            };
            self.row = None;
            let token = place.token;
            if self.visibility.as_ref().is_none_or(|visibility| visibility.shows(token)) {
                return Ok(Ok(Some(Candidate {
                    token,
                    source,
                    place: Some(place),
                    row,
                    key: None,
                })));
            }
        }
    }
}

impl KeySource {
    fn load(&mut self, source: u32) -> Result<Option<Candidate>, Wanted> {
        loop {
            let Some(fed) = self.fed.take() else {
                return Err(Wanted::NextKey { floor: self.floor });
            };
            let Some(key) = fed else { return Ok(None) };
            if self.floor.is_none_or(|floor| key.token.0 >= floor.0) {
                return Ok(Some(Candidate::of_key(source, key)));
            }
        }
    }
}
