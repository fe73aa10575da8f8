//! Rounds of a read of the nearest rows: which sub-ranges are searched again, which candidates are read, and when the
//! best rows are known.
//!
//! Each search gives the best rows of a replica's own data. A row that the replicas merge has its vector from one of
//! them, whose search gives the row with the same score or ends before it. So the best merged rows are known when they
//! all rank before the ends of the searches; a search that ends earlier is repeated with a larger limit.
//!
//! INV-index-read-5: a round is the last one if the best rows are as many as wanted and none ranks after the end of a
//! search, or if no search has more rows.

use std::cmp::Ordering;

use data::ClusteringComparator;
use index_format::search::VECTOR_ROWS_MAX;
use index_format::{MatchedPartition, MatchedRows, Neighbour, Neighbours};
use stdx::FixedSet;

/// Candidates of a read after which it scans instead: their keys are in memory.
const CANDIDATES_MAX: usize = 250_000;

/// Order of rows: best score first, equal scores in the order of the table.
pub fn compare_neighbours(a: &Neighbour, b: &Neighbour, order: &ClusteringComparator) -> Ordering {
    b.score.total_cmp(&a.score).then_with(|| compare_places(a, b, order))
}

/// Order of rows in the table.
pub fn compare_places(a: &Neighbour, b: &Neighbour, order: &ClusteringComparator) -> Ordering {
    let place = |row: &Neighbour| row.token;
    place(a).cmp(&place(b)).then_with(|| a.key.cmp(&b.key)).then_with(|| {
        match (&a.clustering, &b.clustering) {
            (Some(a), Some(b)) => order.compare(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    })
}

/// The next step of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// Search these parts, each with this limit of rows.
    Search(Vec<(usize, u32)>),
    /// Read everything instead: the searches would give too many candidates.
    Scan,
    /// The best rows are known.
    Done,
}

/// Progress of the search of one part.
#[derive(Clone, Debug)]
struct Part {
    /// Limit of the last search, or of the first one to come.
    limit: u32,
    end: End,
}

#[derive(Clone, Debug)]
enum End {
    /// Not searched yet.
    Unsearched,
    /// All rows of the part that rank up to this one are candidates; none if it is absent.
    Upto(Option<Neighbour>),
    /// All its rows are candidates.
    Exhausted,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct NearestRounds {
    order: ClusteringComparator,
    wanted: usize,
    parts: Vec<Part>,
    /// Candidates of all rounds: key and clustering.
    seen: FixedSet<(Vec<u8>, Option<Vec<u8>>)>,
    /// Those that are to be read.
    unread: Vec<Neighbour>,
    /// The best rows as they are merged.
    best: Vec<Neighbour>,
}

impl NearestRounds {
    /// Rounds for so many rows, of so many parts of the table; `first` is the limit of the first searches.
    pub fn new(
        wanted: usize,
        parts: usize,
        first: u32,
        order: &ClusteringComparator,
    ) -> NearestRounds {
        let part = Part { limit: first.clamp(1, VECTOR_ROWS_MAX), end: End::Unsearched };
        NearestRounds {
            order: order.clone(),
            wanted: wanted.max(1),
            parts: vec![part; parts],
            seen: FixedSet::default(),
            unread: Vec::new(),
            best: Vec::new(),
        }
    }

    /// The next step, when the candidates of the step before are read.
    pub fn next_round(&mut self) -> Round {
        if self.seen.len() > CANDIDATES_MAX {
            return Round::Scan;
        }
        let last = self.best.get(self.wanted.saturating_sub(1)).cloned();
        let mut searches = Vec::new();
        for (number, part) in self.parts.iter_mut().enumerate() {
            let is_over = match &part.end {
                End::Unsearched => {
                    searches.push((number, part.limit));
                    continue;
                }
                End::Exhausted => true,
                End::Upto(end) => matches!((&last, end), (Some(last), Some(end))
                    if compare_neighbours(last, end, &self.order) != Ordering::Greater),
            };
            if is_over {
                continue;
            }
            if part.limit >= VECTOR_ROWS_MAX {
                return Round::Scan;
            }
            part.limit = part.limit.saturating_mul(2).min(VECTOR_ROWS_MAX);
            searches.push((number, part.limit));
        }
        match searches.is_empty() {
            true => Round::Done,
            false => Round::Search(searches),
        }
    }

    /// Takes the answers of the replicas of a part.
    pub fn answered(&mut self, part: usize, answers: Vec<Neighbours>) {
        let mut end = End::Exhausted;
        for answer in answers {
            if !answer.is_exhausted {
                let last = answer.rows.last();
                end = match (end, last) {
                    // The one that ends first counts.
                    (End::Upto(Some(end)), Some(last))
                        if compare_neighbours(&end, last, &self.order) != Ordering::Greater =>
                    {
                        End::Upto(Some(end))
                    }
                    (End::Upto(None), _) => End::Upto(None),
                    (_, last) => End::Upto(last.cloned()),
                };
            }
            for row in answer.rows {
                if self.seen.insert((row.key.clone(), row.clustering.clone())) {
                    self.unread.push(row);
                }
            }
        }
        if let Some(part) = self.parts.get_mut(part) {
            part.end = end;
        }
    }

    /// The candidates that were not read yet, in the order of the table.
    pub fn candidates(&mut self) -> Vec<MatchedPartition> {
        let mut unread = std::mem::take(&mut self.unread);
        unread.sort_by(|a, b| compare_places(a, b, &self.order));
        let mut partitions: Vec<MatchedPartition> = Vec::new();
        for Neighbour { token, key, clustering, .. } in unread {
            let last = partitions.last_mut().filter(|last| last.key == key);
            match (clustering, last.map(|last| &mut last.rows)) {
                (Some(clustering), Some(MatchedRows::Rows(rows))) => rows.push(clustering),
                (_, Some(_)) => {}
                (clustering, None) => {
                    let rows = clustering.map(|row| MatchedRows::Rows(vec![row]));
                    let rows = rows.unwrap_or(MatchedRows::Whole);
                    partitions.push(MatchedPartition { token, key, rows });
                }
            }
        }
        partitions
    }

    /// Takes a row as the replicas merge it, with the score of its vector. Returns its position among the best rows;
    /// `None`: it is none of them, or was taken before.
    pub fn found(&mut self, row: Neighbour) -> Option<usize> {
        let order = &self.order;
        let at = self.best.binary_search_by(|other| compare_neighbours(other, &row, order));
        let at = at.err().filter(|at| *at < self.wanted)?;
        self.best.insert(at, row);
        self.best.truncate(self.wanted);
        Some(at)
    }

    /// The best rows, best first.
    pub fn best(&self) -> &[Neighbour] {
        &self.best
    }
}
