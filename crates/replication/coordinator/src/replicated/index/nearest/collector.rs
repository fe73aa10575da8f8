//! The best rows of a read of the nearest rows, with their contents.

use data::{ColumnRef, RowFilter, RowRef};
use index_format::{Neighbour, Similarity, VectorIndex};
use index_read::NearestRounds;
use stdx::{ColumnId, DeletionSeconds, Token};
use store::{Flow, Look, LookedAt, RowSink};

/// Memory of a row beside its bytes.
const ROW_BYTES: usize = 160;

/// The column, vector and similarity that score rows, and which rows are wanted.
#[derive(Clone, Copy)]
pub(super) struct Scoring<'a> {
    pub(super) column: ColumnId,
    pub(super) vectors: VectorIndex,
    pub(super) vector: &'a [f32],
    /// Expiry.
    pub(super) now: DeletionSeconds,
    pub(super) filter: Option<&'a dyn RowFilter>,
    /// The table has clustering columns.
    pub(super) is_clustered: bool,
    /// Bytes of rows that may be held.
    pub(super) bytes_max: usize,
}

impl Scoring<'_> {
    /// The score of a row as it is merged. `None`: it has no vector that the index can have.
    fn score(&self, row: RowRef<'_>) -> Option<f32> {
        let Some(ColumnRef::Simple(cell)) = row.column(self.column) else { return None };
        let value = cell.is_live(self.now).then_some(cell.value)?;
        let vector = self.vectors.vector_of(value)?;
        let similarity: Similarity = self.vectors.similarity;
        Some(similarity.score(self.vector, &vector))
    }
}

/// Contents of a row.
struct Contents {
    row: Vec<u8>,
    static_row: Option<Vec<u8>>,
}

impl Contents {
    fn bytes(&self) -> usize {
        self.row.len() + self.static_row.as_ref().map_or(0, Vec::len) + ROW_BYTES
    }
}

/// Takes merged rows in any order, keeps the best ones.
pub(super) struct Collector<'a> {
    scoring: Scoring<'a>,
    pub(super) rounds: NearestRounds,
    /// Those of `rounds.best()`.
    contents: Vec<Contents>,
    bytes: usize,
    /// The best rows take more memory than they may.
    pub(super) is_too_large: bool,
    /// The partition at hand.
    token: Token,
    key: Vec<u8>,
    static_row: Option<Vec<u8>>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(scoring: Scoring<'a>, rounds: NearestRounds) -> Collector<'a> {
        Collector {
            scoring,
            rounds,
            contents: Vec::new(),
            bytes: 0,
            is_too_large: false,
            token: Token::MIN,
            key: Vec::new(),
            static_row: None,
        }
    }

    /// Begins again with these rounds.
    pub(super) fn restart(&mut self, rounds: NearestRounds) {
        *self = Collector::new(self.scoring, rounds);
    }

    /// Shows the best rows, best first, each as a partition of its own.
    pub(super) fn show<S: RowSink>(&self, sink: &mut S) {
        for (Neighbour { token, key, clustering, .. }, contents) in
            self.rounds.best().iter().zip(&self.contents)
        {
            let static_row = contents.static_row.as_deref().map(RowRef::trusted);
            let mut flow = sink.partition(*token, key, static_row);
            if flow == Flow::Continue {
                let clustering = clustering.as_deref().unwrap_or_default();
                flow = sink.row(clustering, RowRef::trusted(&contents.row));
            }
            if flow == Flow::Stop || sink.partition_end() == Flow::Stop {
                return;
            }
        }
    }
}

impl RowSink for Collector<'_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        let is_wanted = |filter: &dyn RowFilter| filter.keeps_partition(key, static_row);
        if !self.scoring.filter.is_none_or(is_wanted) {
            return Flow::SkipPartition;
        }
        self.token = token;
        self.key = key.to_vec();
        self.static_row = static_row.map(|row| row.bytes().to_vec());
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        if !self.scoring.filter.is_none_or(|filter| filter.keeps_row(clustering, row)) {
            return Flow::Continue;
        }
        let Some(score) = self.scoring.score(row) else { return Flow::Continue };
        let clustering = self.scoring.is_clustered.then(|| clustering.to_vec());
        let found = Neighbour { score, token: self.token, key: self.key.clone(), clustering };
        let Some(at) = self.rounds.found(found) else { return Flow::Continue };
        let contents = Contents { row: row.bytes().to_vec(), static_row: self.static_row.clone() };
        self.bytes += contents.bytes();
        self.contents.insert(at, contents);
        while self.contents.len() > self.rounds.best().len() {
            self.bytes -= self.contents.pop().map_or(0, |dropped| dropped.bytes());
        }
        self.is_too_large |= self.bytes > self.scoring.bytes_max;
        if self.is_too_large { Flow::Stop } else { Flow::Continue }
    }

    fn partition_end(&mut self) -> Flow {
        if self.is_too_large { Flow::Stop } else { Flow::Continue }
    }

    fn looked_at(&mut self, _: LookedAt<'_>) -> Look {
        if self.is_too_large { Look::Stop } else { Look::Continue }
    }
}
