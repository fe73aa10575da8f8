//! The search: candidates of one or several predicates, from where it starts to its frontier.
//!
//! It prepares the sources (finds their rows in the indexes, which gives the estimates), intersects them from the
//! smallest estimate on, and reads the key of each row that it gives. It requests missing blocks and keys by
//! [`SearchStep::Need`].

use std::rc::Rc;
use std::sync::Arc;

use data::TableShape;
use index_format::search::{Frontier, Matches, SearchLimits};
use index_format::sets::Need;
use index_format::sources::Fed;
use index_format::{
    Candidate, Intersection, Predicate, RowKey, Scope, SetError, SetStep, Source, Wanted,
};
use stdx::Token;

use crate::found::{Found, frontier_after};
use crate::position::{Relation, SearchRange};

/// One predicate, with its source in each file and memtable of the view.
#[derive(Debug)]
pub struct SearchPredicate {
    /// Its position in the request.
    pub number: usize,
    /// Unit that its index names.
    pub scope: Scope,
    /// Its sources; a file or memtable has one number in all predicates.
    pub sources: Vec<Source>,
}

/// A request for something that a search lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchNeed {
    /// Position of the predicate in the request.
    pub predicate: usize,
    /// Number of the source.
    pub source: u32,
    /// The bytes or key.
    pub wanted: Wanted,
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Source of a predicate that is being prepared, by its places.
    Prepared(usize, usize),
    Set(Need),
    Pending,
}

/// Outcome of [`Search::advance`].
#[derive(Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// Feed this, then advance again.
    Need(SearchNeed),
    /// Many rows were passed; advance again, now or later.
    Pause,
    /// The answer. Nothing follows.
    End(Matches),
}

#[derive(Debug)]
enum Stage {
    /// The next source to prepare: places of the predicate and of the source.
    Preparing(Vec<SearchPredicate>, usize, usize),
    Running(Intersection),
    Done,
}

/// Purpose of a key that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The candidate is given if it lies in the range.
    Match,
    /// The answer ends after it, a row or a whole partition.
    Frontier(Scope),
}

/// A search of one shard.
#[derive(Debug)]
pub struct Search {
    stage: Stage,
    range: SearchRange,
    shape: Rc<TableShape>,
    /// Position in the request of each predicate of the intersection.
    order: Vec<usize>,
    /// Unit of the keys: rows, when any predicate is about rows.
    unit: Scope,
    pending: Option<(Candidate, Purpose)>,
    found: Found,
    estimates: Vec<u64>,
    rows: u64,
    /// Rows that were read when no position to end at was found.
    stuck_at: u64,
}

impl Search {
    /// A search of `predicates`, some or all of the `count` of a request. `rows`: rows of the table, about.
    pub fn new(
        predicates: Vec<SearchPredicate>,
        range: SearchRange,
        shape: Rc<TableShape>,
        limits: SearchLimits,
    ) -> Search {
        let has_rows = predicates.iter().any(|predicate| predicate.scope == Scope::Row);
        let count = predicates.iter().map(|predicate| predicate.number + 1).max().unwrap_or(0);
        Search {
            stage: Stage::Preparing(predicates, 0, 0),
            range,
            shape,
            order: Vec::new(),
            unit: if has_rows { Scope::Row } else { Scope::Partition },
            pending: None,
            found: Found::new(limits),
            estimates: vec![0; count],
            rows: 0,
            stuck_at: 0,
        }
    }

    /// Sets the numbers that the answer shows: of predicates, and of rows of the table, about.
    #[must_use]
    pub fn of_table(mut self, predicates: usize, rows: u64) -> Search {
        self.estimates.resize(predicates.max(self.estimates.len()), 0);
        self.rows = rows;
        self
    }

    /// Gives what the last step named.
    pub fn feed(&mut self, need: &SearchNeed, fed: Fed) {
        match (need.target, &mut self.stage) {
            (Target::Pending, _) => {
                if let (Fed::Key(key), Some((candidate, _))) = (fed, &mut self.pending) {
                    candidate.key = Some(key);
                }
            }
            (Target::Prepared(predicate, source), Stage::Preparing(predicates, ..)) => {
                let found = predicates.get_mut(predicate).and_then(|p| p.sources.get_mut(source));
                found.into_iter().for_each(|source| source.feed(fed.clone()));
            }
            (Target::Set(need), Stage::Running(set)) => set.feed(need, fed),
            _ => {}
        }
    }

    /// Continues.
    ///
    /// # Errors
    /// A defect of a component, with the position of its predicate in the request; the search must not be used again.
    pub fn advance(&mut self) -> Result<SearchStep, SetError> {
        loop {
            if self.pending.is_some() {
                match self.settle_pending() {
                    Some(step) => return Ok(step),
                    None => continue,
                }
            }
            if let Stage::Preparing(..) = &self.stage
                && let Some(step) = self.prepare()?
            {
                return Ok(step);
            }
            if self.is_tired() {
                match self.early_frontier() {
                    Some(frontier) => return Ok(self.end(frontier)),
                    None if self.pending.is_some() => continue,
                    None => {}
                }
            }
            let Stage::Running(set) = &mut self.stage else {
                return Ok(self.end(Frontier::Done));
            };
            let step = set.advance().map_err(|error| self.named(error))?;
            match step {
                SetStep::End => return Ok(self.end(Frontier::Done)),
                SetStep::Pause => return Ok(SearchStep::Pause),
                SetStep::Need(need) => return Ok(SearchStep::Need(self.need_of(need))),
                SetStep::Row(row) if self.range.is_before_token(row.token) => {
                    return Ok(self.end(Frontier::Done));
                }
                SetStep::Row(row) => self.pending = Some((row, Purpose::Match)),
            }
        }
    }

    /// Prepares the sources. Some: this is missing.
    fn prepare(&mut self) -> Result<Option<SearchStep>, SetError> {
        let Stage::Preparing(predicates, at, source_at) = &mut self.stage else { return Ok(None) };
        while let Some(predicate) = predicates.get_mut(*at) {
            let Some(source) = predicate.sources.get_mut(*source_at) else {
                let estimate = predicate.sources.iter().map(Source::estimate).sum();
                let slot = self.estimates.get_mut(predicate.number);
                slot.into_iter().for_each(|slot| *slot = estimate);
                (*at, *source_at) = (*at + 1, 0);
                continue;
            };
            let (number, source_number) = (predicate.number, source.number());
            let named = |error| SetError { source_at: Some((number, source_number)), error };
            if let Some(wanted) = source.prepare().map_err(named)? {
                let target = Target::Prepared(*at, *source_at);
                let need = SearchNeed { predicate: number, source: source_number, wanted, target };
                return Ok(Some(SearchStep::Need(need)));
            }
            *source_at += 1;
        }
        let mut predicates = std::mem::take(predicates);
        let estimates = &self.estimates;
        let estimate = |number: usize| estimates.get(number).copied().unwrap_or(0);
        predicates.sort_by_key(|predicate| estimate(predicate.number));
        self.order = predicates.iter().map(|predicate| predicate.number).collect();
        let of_set = predicates
            .into_iter()
            .map(|p| Predicate::new(p.scope, estimate(p.number), p.sources))
            .collect();
        let mut set = Intersection::new(of_set);
        if self.range.first_token() > Token::MIN {
            set.seek(self.range.first_token());
        }
        self.stage = Stage::Running(set);
        Ok(None)
    }

    /// Takes the pending candidate when its key is known. Some: the key is missing, or the answer is complete.
    fn settle_pending(&mut self) -> Option<SearchStep> {
        let (candidate, purpose) = self.pending.take()?;
        let Some(key) = candidate.key.clone() else {
            let place = candidate.place?;
            let (predicate, source) = (self.order.first().copied().unwrap_or(0), candidate.source);
            let (wanted, target) = (Wanted::Key(place), Target::Pending);
            self.pending = Some((candidate, purpose));
            return Some(SearchStep::Need(SearchNeed { predicate, source, wanted, target }));
        };
        let unit = match purpose {
            Purpose::Match => self.unit,
            Purpose::Frontier(unit) => unit,
        };
        let row = self.row_of(&key, unit);
        match (self.range.relation(&key, row, self.shape.clustering()), purpose) {
            (Relation::After, _) => Some(self.end(Frontier::Done)),
            (Relation::Before, Purpose::Match) => None,
            (Relation::Before, Purpose::Frontier(_)) => {
                self.stuck_at = self.scanned();
                None
            }
            (_, Purpose::Frontier(_)) => {
                let frontier = frontier_after(&key, row);
                Some(self.end(frontier))
            }
            (relation, Purpose::Match) => {
                if relation == Relation::Inside {
                    self.found.push(&key, row);
                }
                self.found.passed(&key, row);
                let frontier = self.found.frontier().filter(|_| self.found.is_full());
                let frontier = frontier.map(|(_, frontier)| frontier.clone())?;
                Some(self.end(frontier))
            }
        }
    }

    /// The clustering, if the key is one of a row.
    fn row_of<'k>(&self, key: &'k Arc<RowKey>, unit: Scope) -> Option<&'k [u8]> {
        let is_row =
            unit == Scope::Row && !self.shape.clustering().is_empty() && !key.clustering.is_empty();
        is_row.then_some(&*key.values)
    }

    fn scanned(&self) -> u64 {
        match &self.stage {
            Stage::Running(set) => set.scanned(),
            Stage::Preparing(..) | Stage::Done => 0,
        }
    }

    fn is_tired(&self) -> bool {
        self.found.is_tired(self.scanned().saturating_sub(self.stuck_at))
    }

    /// A position after the start up to which the answer is complete already. None: there is none, or the key of one
    /// is pending now.
    fn early_frontier(&mut self) -> Option<Frontier> {
        let Stage::Running(set) = &self.stage else { return None };
        let last = self.found.frontier();
        if let Some(floor) = set.floor()
            && floor > self.range.first_token()
            && last.is_none_or(|(token, _)| *token < floor)
        {
            return Some(Frontier::Before { token: floor });
        }
        if let Some((_, frontier)) = last {
            return Some(frontier.clone());
        }
        match set.passed() {
            Some((row, scope)) => self.pending = Some((row.clone(), Purpose::Frontier(scope))),
            None => self.stuck_at = set.scanned(),
        }
        None
    }

    fn end(&mut self, frontier: Frontier) -> SearchStep {
        self.stage = Stage::Done;
        SearchStep::End(Matches {
            partitions: self.found.take_partitions(),
            frontier,
            estimates: self.estimates.clone(),
            rows: self.rows,
        })
    }

    fn number_of(&self, ordinal: usize) -> usize {
        self.order.get(ordinal).copied().unwrap_or(0)
    }

    fn need_of(&self, need: Need) -> SearchNeed {
        let Need { predicate, source, wanted } = need;
        let predicate = self.number_of(predicate);
        SearchNeed { predicate, source, wanted, target: Target::Set(need) }
    }

    fn named(&self, mut error: SetError) -> SetError {
        error.source_at = error.source_at.map(|(at, source)| (self.number_of(at), source));
        error
    }
}
