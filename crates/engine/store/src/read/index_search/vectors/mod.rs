//! Searches by a vector over one view: the rows whose current vectors are nearest.
//!
//! Owns: the sources of a search ([`segment`], [`listed`]), which of them is asked next, when it ends. Never: the graph
//! (crate `ann`), the order of rows (`index::nearest`).
//!
//! Each row that a source names is read as merged from all, and counts with the vector that it has now: an entry that is
//! older than the row neither displaces another row nor gives the row twice. The vector of a row is in some source, so a
//! search that asks each source until its next score is below the farthest of the answer misses no row, as far as the
//! sources are exact: memtables, files without the index and lists are, graphs miss some.
//!
//! A walk that finds few rows (deleted ones, ones that do not satisfy the predicates) ends early, and all rows are read.

mod listed;
mod plan;
mod scoring;
mod segment;

use std::collections::BTreeSet;
use std::sync::Arc;

use ann::SearchOptions;
use data::command::ReadCommand;
use data::{Slice, Slices};
use index::nearest::{Nearest, Ranked};
use index_format::search::{
    Frontier, IndexSearch, Matching, Neighbour, Neighbours, SearchLimits, VECTOR_ROWS_MAX,
    VectorSearch,
};
use index_format::{RowKey, RowsReader};
use index_read::position::{Continued, advance};

use self::listed::Listed;
use self::scoring::{Scoring, Wanted};
use self::segment::{Places, Segment, SegmentRow, filter_of};
use super::{Searching, Stopped, rows_of};
use crate::error::StoreError;
use crate::read::Reader;
use crate::read::driver::Shaped;
use crate::tables::built_indexes::IndexState;
use crate::tables::table::bump;

/// Bounds of the parts in which matches of predicates are read.
const PART: SearchLimits = SearchLimits { keys: 1_000, bytes: 1 << 20, scanned: 100_000 };

/// See [`Reader::search_vectors`].
pub(in crate::read) async fn search_nearest(
    reader: &Reader,
    search: &VectorSearch,
) -> Result<Neighbours, StoreError> {
    if search.limit == 0 || search.limit > VECTOR_ROWS_MAX {
        let what = format!("a search by a vector for {} rows", search.limit);
        return Err(StoreError::Invalid(what));
    }
    let of_predicates = IndexSearch {
        command: search.command.clone(),
        predicates: search.predicates.clone(),
        matching: Matching::Intersection,
        limits: PART,
    };
    let table = reader.files.opened_table(search.command.table).await?;
    if reader.tables.index_state(table.id, search.index) != Some(IndexState::Built) {
        return Err(StoreError::IndexNotAvailable { index: search.index });
    }
    let mut searching = Searching::begin(reader, &of_predicates).await?;
    let wanted = Wanted::of(search, &searching.indexes)?;
    let _running = reader.env.stages.read.run();
    reader.index_reads.vector_searches.inc();
    loop {
        match VectorSearching::run(&mut searching, search, &wanted).await {
            Ok(neighbours) => {
                bump(&searching.table.counters.reads, 1);
                let tombstones = u64::from(searching.stats.tombstones);
                bump(&searching.table.counters.tombstones, tombstones);
                return Ok(neighbours);
            }
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::Again) => {}
        }
    }
}

/// A source of rows, nearest first.
enum Source {
    Segment(Box<Segment>, usize),
    Listed(Box<Listed>),
}

/// The next row of a source.
enum Head {
    Row(SegmentRow),
    Key(Ranked),
}

impl Head {
    fn most(&self) -> f32 {
        match self {
            Head::Row(row) => row.most,
            Head::Key(ranked) => ranked.score,
        }
    }
}

/// A source that is not used up.
struct Open {
    source: Source,
    head: Option<Head>,
    /// Score of its last row: later ones have no larger ones.
    bound: f32,
}

impl Open {
    fn new(source: Source) -> Open {
        Open { source, head: None, bound: f32::INFINITY }
    }

    fn is_exact(&self) -> bool {
        match &self.source {
            Source::Segment(segment, _) => segment.is_exact,
            Source::Listed(_) => true,
        }
    }
}

/// The sources of a search.
struct Sources {
    open: Vec<Open>,
    /// Places of the rows of files with a component.
    places: Vec<Places>,
    /// Rows of the range in them, at most.
    rows: u64,
}

/// How a walk ended.
enum Walked {
    Whole,
    /// It read many rows for few.
    GaveUp,
}

/// One search over the view of a [`Searching`].
struct VectorSearching<'s, 'r> {
    searching: &'s mut Searching<'r>,
    search: &'s VectorSearch,
    wanted: &'s Wanted,
    /// Reads of rows.
    command: ReadCommand,
    limit: usize,
}

impl VectorSearching<'_, '_> {
    async fn run(
        searching: &mut Searching<'_>,
        search: &VectorSearch,
        wanted: &Wanted,
    ) -> Result<Neighbours, Stopped> {
        let columns = Some(wanted.columns());
        let command = ReadCommand { columns, resume: None, ..search.command.clone() };
        let limit = search.limit as usize;
        let mut this = VectorSearching { searching, search, wanted, command, limit };
        let mut scoring = Scoring::new(wanted, limit);
        this.fill(&mut scoring).await?;
        scoring.check()?;
        this.searching.reader.index_reads.vector_rows.add(scoring.rows);
        let is_exhausted = !scoring.nearest.is_cut();
        let rows = scoring.nearest.into_rows();
        let rows = rows.into_iter().map(|ranked| this.neighbour(ranked)).collect();
        Ok(Neighbours { rows, is_exhausted })
    }

    /// Finds the nearest rows.
    async fn fill(&mut self, scoring: &mut Scoring<'_>) -> Result<(), Stopped> {
        if !self.command.slices.is_all() {
            return self.read_all(scoring).await;
        }
        let sources = self.sources().await?;
        if plan::reads_all(sources.rows, self.limit) {
            return self.read_all(scoring).await;
        }
        let mut matches = None;
        if self.wanted.has_predicates() {
            let estimate = self.searching.estimate().await?;
            let least = estimate.estimates.iter().copied().min().unwrap_or(0);
            if plan::reads_matches(least, estimate.rows, self.limit) {
                return self.read_matches(scoring).await;
            }
            matches = Some(least);
        }
        let most = plan::walked_max(matches, self.limit);
        match self.walk(sources, scoring, most).await? {
            Walked::Whole => return Ok(()),
            Walked::GaveUp => scoring.nearest = Nearest::new(self.limit),
        }
        match matches {
            Some(_) => self.read_matches(scoring).await,
            None => self.read_all(scoring).await,
        }
    }

    /// Compares all rows.
    async fn read_all(&mut self, scoring: &mut Scoring<'_>) -> Result<(), Stopped> {
        stdx::reached!("vector-search-all");
        self.searching.reader.read(&self.command, scoring).await?;
        Ok(())
    }

    /// Compares the rows that other indexes name.
    async fn read_matches(&mut self, scoring: &mut Scoring<'_>) -> Result<(), Stopped> {
        stdx::reached!("vector-search-matches");
        let reader = self.searching.reader;
        let mut search = self.searching.search.clone();
        loop {
            let matches = reader.search_index(&search).await?;
            reader.read_matches(&self.command, &matches.partitions, scoring).await?;
            let is_over = matches.frontier == Frontier::Done
                || advance(&mut search.command, &matches.frontier) == Continued::Over;
            if is_over {
                return Ok(());
            }
        }
    }

    /// The sources of the range.
    async fn sources(&mut self) -> Result<Sources, Stopped> {
        let mut sources = Sources { open: Vec::new(), places: Vec::new(), rows: 0 };
        let view = self.searching.view.clone();
        for (slot, file) in (0..).zip(&view.files) {
            if !self.searching.may_have(file) {
                continue;
            }
            let open = file.reader.index(self.search.index);
            let segments = open.and_then(|open| Some((open.vectors()?.clone(), open.rows)));
            let Some((segments, rows)) = segments else {
                self.searching.reader.index_reads.unindexed.inc();
                sources.rows = sources.rows.saturating_add(rows_of(file));
                sources.open.push(self.listed(slot, false));
                continue;
            };
            let count = rows.rows;
            let mut places = Places::new(slot, RowsReader::new(rows));
            let (first, last) =
                (self.searching.range.first_token(), self.searching.range.last_token());
            let meta = file.reader.meta();
            let ids = match first <= meta.first_token() && last >= meta.last_token() {
                true => 0..count,
                false => places.ids(self.searching, first, last, count).await?,
            };
            let nodes = segments.iter().map(|segment| u64::from(segment.nodes)).sum();
            let allowed = u64::from(ids.end - ids.start);
            sources.rows = sources.rows.saturating_add(allowed.min(nodes));
            let beam = plan::beam(self.wanted.index.optimize_for, self.limit);
            if ids.is_empty() || nodes == 0 {
                continue;
            }
            if allowed < nodes && plan::lists(allowed, nodes, beam) {
                sources.open.push(self.listed(slot, false));
                continue;
            }
            for segment in segments.iter() {
                if segment.rows.start < ids.end && ids.start < segment.rows.end {
                    let options = SearchOptions { beam, filter: filter_of(&ids, segment) };
                    let index = self.search.index;
                    let segment = Segment::new(slot, index, segment, self.wanted, options)?;
                    let at = sources.places.len();
                    sources.open.push(Open::new(Source::Segment(Box::new(segment), at)));
                }
            }
            sources.places.push(places);
        }
        for (slot, memtable) in (self.searching.first_memtable()..).zip(view.memtables()) {
            let vectors = memtable.with_vectors(self.search.index, |vectors| vectors.len());
            if vectors == Some(0) || memtable.is_empty() {
                continue;
            }
            let rows = vectors.map_or(memtable.mutation_count(), |count| count as u64);
            sources.rows = sources.rows.saturating_add(rows);
            sources.open.push(self.listed(slot, vectors.is_some()));
        }
        Ok(sources)
    }

    fn listed(&self, slot: u32, has_index: bool) -> Open {
        let index = has_index.then_some(self.search.index);
        Open::new(Source::Listed(Box::new(Listed::new(slot, index, self.limit))))
    }

    /// Reads the rows that the sources name, nearest first, until none could be among the nearest. Reads `most` rows at
    /// most.
    async fn walk(
        &mut self,
        mut sources: Sources,
        scoring: &mut Scoring<'_>,
        most: usize,
    ) -> Result<Walked, Stopped> {
        stdx::reached!("vector-search-walk");
        let mut seen: BTreeSet<Arc<RowKey>> = BTreeSet::new();
        let mut nodes = 0;
        loop {
            nodes += self.fill_heads(&mut sources.open, scoring).await?;
            if nodes > plan::NODES_MAX {
                return Ok(Walked::GaveUp);
            }
            let heads = sources.open.iter().enumerate();
            let heads = heads.filter_map(|(at, open)| Some((at, open.head.as_ref()?.most())));
            // The first of equal ones.
            let next = heads.rev().max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((at, score)) = next else { return Ok(Walked::Whole) };
            if !scoring.nearest.admits(score) {
                sources.open.swap_remove(at);
                scoring.nearest.pass();
                continue;
            }
            let Some(open) = sources.open.get_mut(at) else { return Ok(Walked::Whole) };
            let Some(head) = open.head.take() else { continue };
            open.bound = score;
            let row = match (head, &open.source) {
                (Head::Key(ranked), _) => Some(ranked.row),
                (Head::Row(row), Source::Segment(_, at)) => match sources.places.get_mut(*at) {
                    Some(places) => places.key(self.searching, row.row).await?,
                    None => None,
                },
                (Head::Row(_), Source::Listed(_)) => None,
            };
            let Some(row) = row else { continue };
            if open.is_exact() && !scoring.nearest.admits_after(score, &row) {
                sources.open.swap_remove(at);
                scoring.nearest.pass();
                continue;
            }
            if !seen.insert(row.clone()) {
                continue;
            }
            if seen.len() > most {
                return Ok(Walked::GaveUp);
            }
            self.read_row(&row, scoring).await?;
            self.searching.reader.env.rt.yield_if_due().await;
        }
    }

    /// Takes the next row of each source that has none ready. Returns the nodes of graphs that were visited for it.
    async fn fill_heads(
        &mut self,
        open: &mut Vec<Open>,
        scoring: &mut Scoring<'_>,
    ) -> Result<usize, Stopped> {
        let (mut at, mut nodes) = (0, 0);
        while let Some(one) = open.get_mut(at) {
            if one.head.is_some() {
                at += 1;
                continue;
            }
            if !scoring.nearest.admits(one.bound) {
                scoring.nearest.pass();
                open.swap_remove(at);
                continue;
            }
            one.head = match &mut one.source {
                Source::Segment(segment, _) => {
                    let row = segment.next(self.searching).await?;
                    nodes += segment.take_compared();
                    row.map(Head::Row)
                }
                Source::Listed(listed) => {
                    listed.next(self.searching, self.wanted).await?.map(Head::Key)
                }
            };
            match one.head {
                Some(_) => at += 1,
                None => drop(open.swap_remove(at)),
            }
        }
        Ok(nodes)
    }

    /// Reads a row as it is now, and offers it.
    async fn read_row(&mut self, row: &RowKey, scoring: &mut Scoring<'_>) -> Result<(), Stopped> {
        let searching = &mut *self.searching;
        let slices = match searching.clustering_of(row) {
            Some(clustering) => Arc::new(Slices(vec![Slice::prefix(clustering.to_vec())])),
            None => self.command.slices.clone(),
        };
        let of = Shaped { table: &searching.table, shape: &searching.shape };
        let stats = &mut searching.stats;
        let key = &row.partition;
        let read = searching.reader.read_key(
            of,
            &searching.view,
            &self.command,
            slices,
            key,
            scoring,
            stats,
        );
        Box::pin(read).await?;
        Ok(())
    }

    fn neighbour(&self, ranked: Ranked) -> Neighbour {
        let Ranked { score, row } = ranked;
        let clustering = self.searching.clustering_of(&row).map(<[u8]>::to_vec);
        Neighbour { score, token: row.token, key: row.partition.to_vec(), clustering }
    }
}
