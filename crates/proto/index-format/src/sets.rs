//! Rows that satisfy several predicates: the intersection, by primary key, of unions over files and memtables.
//!
//! Ids of two files cannot be compared, so rows are compared by token first. Tokens come from `Index+Rows.db`; the key of a
//! row is asked for only when another file or memtable has a row of the same token. Nothing is complemented, so no
//! predicate needs a list of all rows. With one predicate it is the plan of a replica that sends the matches of the
//! driving one.

use std::cmp::Ordering;

use smallvec::SmallVec;
use stdx::Token;

use crate::IndexError;
use crate::sources::{Candidate, Compared, Fed, Scope, Source, Wanted, compare};

/// Rows of one predicate: the union of its sources.
#[derive(Debug)]
pub struct Predicate {
    scope: Scope,
    estimate: u64,
    sources: Vec<Source>,
    /// The row that was left last. If its key is unknown, no other source has a row of its token.
    last: Option<Candidate>,
}

/// A request of an intersection, and the source that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Ordinal of the predicate by its estimate; to be given back.
    pub predicate: usize,
    /// Number of the source.
    pub source: u32,
    /// The bytes or the key.
    pub wanted: Wanted,
}

/// Steps of one call of [`Intersection::advance`] at most: about 50 us.
const STEPS_MAX: usize = 256;

/// Numbers of predicates: seldom more than a few.
type Numbers = SmallVec<[usize; 4]>;

/// An error of an intersection, and the source that it comes from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct SetError {
    /// Ordinal of the predicate by its estimate, and number of the source. None: a wrong use of the intersection.
    pub source_at: Option<(usize, u32)>,
    /// The error.
    pub error: IndexError,
}

impl From<IndexError> for SetError {
    fn from(error: IndexError) -> SetError {
        SetError { source_at: None, error }
    }
}

/// Outcome of [`Intersection::advance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetStep {
    /// The next candidate, in the order of the table, each once.
    Row(Candidate),
    /// Feed this, then advance again.
    Need(Need),
    /// Many rows were passed; advance again, now or later.
    Pause,
    /// No further row.
    End,
}

/// A value, or what is missing to compute it.
enum Ready<T> {
    Yes(T),
    No(u32, Wanted),
}

impl Predicate {
    /// A predicate with about `estimate` rows.
    pub fn new(scope: Scope, estimate: u64, sources: Vec<Source>) -> Predicate {
        Predicate { scope, estimate, sources, last: None }
    }

    /// Unit of its rows.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Reads all heads, each after the last row that was passed, and returns the smallest token. None: no row.
    fn load(&mut self, number: usize) -> Result<Ready<Option<Token>>, SetError> {
        let mut least: Option<i64> = None;
        for source in &mut self.sources {
            loop {
                let loaded = source.load();
                let source_at = Some((number, source.number()));
                if let Some(wanted) = loaded.map_err(|error| SetError { source_at, error })? {
                    return Ok(Ready::No(source.number(), wanted));
                }
                let (Some(head), Some(last)) = (source.head(), &self.last) else { break };
                match compare(head, last, self.scope) {
                    Compared::NeedsFirst => return Ok(needs_key(head)?),
                    Compared::Order(Ordering::Greater) | Compared::NeedsSecond => break,
                    Compared::Order(_) => source.drop_head(),
                }
            }
            least = least.into_iter().chain(source.head().map(|head| head.token.0)).min();
        }
        Ok(Ready::Yes(least.map(Token)))
    }

    fn seek(&mut self, token: Token) {
        self.sources.iter_mut().for_each(|source| source.seek(token));
    }

    /// The smallest head. All heads are read.
    fn first(&self) -> Result<Ready<Option<&Candidate>>, IndexError> {
        let mut first: Option<&Candidate> = None;
        for head in self.sources.iter().filter_map(Source::head) {
            let Some(least) = first else {
                first = Some(head);
                continue;
            };
            match compare(head, least, self.scope) {
                Compared::Order(Ordering::Less) => first = Some(head),
                Compared::Order(_) => {}
                Compared::NeedsFirst => return needs_key(head),
                Compared::NeedsSecond => return needs_key(least),
            }
        }
        Ok(Ready::Yes(first))
    }

    fn feed(&mut self, source: u32, fed: Fed) {
        let found = self.sources.iter_mut().find(|known| known.number() == source);
        found.into_iter().for_each(|found| found.feed(fed.clone()));
    }
}

fn needs_key<T>(row: &Candidate) -> Result<Ready<T>, IndexError> {
    let place = row.place.ok_or(IndexError::Input { what: "row of a memtable without a key" })?;
    Ok(Ready::No(row.source, Wanted::Key(place)))
}

/// Relation of the heads of all predicates, which are of one token.
enum Verdict {
    /// The row of this predicate is in all.
    Match(usize),
    /// These are before the row that could be the next.
    Behind(Numbers),
    Need(Need),
}

/// The intersection of predicates.
#[derive(Debug)]
pub struct Intersection {
    /// By estimate: the driver first.
    predicates: Vec<Predicate>,
    /// Rows of smaller tokens were passed.
    floor: Option<Token>,
    /// Rows up to this one, in this scope, were passed.
    passed: Option<(Candidate, Scope)>,
}

impl Intersection {
    /// Rows in all of these predicates, at least one.
    pub fn new(mut predicates: Vec<Predicate>) -> Intersection {
        predicates.sort_by_key(|predicate| predicate.estimate);
        Intersection { predicates, floor: None, passed: None }
    }

    /// Heads of sources that were read so far: the work of the intersection.
    pub fn scanned(&self) -> u64 {
        let sources = self.predicates.iter().flat_map(|predicate| &predicate.sources);
        sources.map(Source::loaded).sum()
    }

    /// All rows of smaller tokens were returned, or are not in the intersection.
    pub fn floor(&self) -> Option<Token> {
        self.floor
    }

    /// All rows up to this one, which is not in the intersection, were returned or are not in it. In the scope of a
    /// partition: all rows of its partition too.
    pub fn passed(&self) -> Option<(&Candidate, Scope)> {
        self.passed.as_ref().map(|(row, scope)| (row, *scope))
    }

    /// Gives what the last step named.
    pub fn feed(&mut self, need: Need, fed: Fed) {
        let predicate = self.predicates.get_mut(need.predicate);
        predicate.into_iter().for_each(|predicate| predicate.feed(need.source, fed.clone()));
    }

    /// Skips rows of smaller tokens.
    pub fn seek(&mut self, token: Token) {
        self.predicates.iter_mut().for_each(|predicate| predicate.seek(token));
    }

    /// Moves to the next row.
    ///
    /// # Errors
    /// A defect of a component; the intersection must not be used again.
    pub fn advance(&mut self) -> Result<SetStep, SetError> {
        if let [predicate] = self.predicates.as_mut_slice() {
            let (step, floor) = advance_alone(predicate)?;
            self.floor = floor.or(self.floor);
            return Ok(step);
        }
        for _ in 0..STEPS_MAX {
            if let Some(need) = self.align_tokens()? {
                return Ok(need);
            }
            match self.judge()? {
                Verdict::Need(need) => return Ok(SetStep::Need(need)),
                Verdict::Behind(behind) => {
                    if let Some(first) = behind.first() {
                        let scope = self.scope(*first);
                        self.passed = Some((self.head(*first)?, scope));
                    }
                    self.leave(&behind)?;
                }
                Verdict::Match(at) => {
                    let row = self.head(at)?;
                    let scopes = self.predicates.iter().map(|predicate| predicate.scope);
                    let has_rows = scopes.clone().any(|scope| scope == Scope::Row);
                    // Whole partitions stay for the further rows of the partition.
                    let left = scopes.enumerate();
                    let left = left.filter(|(_, scope)| !has_rows || *scope == Scope::Row);
                    let left: Numbers = left.map(|(at, _)| at).collect();
                    self.leave(&left)?;
                    return Ok(SetStep::Row(row));
                }
            }
        }
        Ok(SetStep::Pause)
    }

    /// Moves all predicates to one token. Some: the step to return first.
    fn align_tokens(&mut self) -> Result<Option<SetStep>, SetError> {
        for _ in 0..STEPS_MAX {
            let mut highest: Option<Token> = None;
            let mut is_aligned = true;
            for (at, predicate) in self.predicates.iter_mut().enumerate() {
                // It follows before it is read, and skips what those before it do not have.
                highest.into_iter().for_each(|token| predicate.seek(token));
                let token = match predicate.load(at)? {
                    Ready::No(source, wanted) => {
                        return Ok(Some(SetStep::Need(Need { predicate: at, source, wanted })));
                    }
                    Ready::Yes(None) => return Ok(Some(SetStep::End)),
                    Ready::Yes(Some(token)) => token,
                };
                is_aligned &= highest.is_none_or(|highest| highest == token);
                highest = Some(highest.map_or(token, |highest| highest.max(token)));
            }
            self.floor = highest.or(self.floor);
            let Some(highest) = highest else { return Ok(Some(SetStep::End)) };
            if is_aligned {
                return Ok(None);
            }
            self.predicates.iter_mut().for_each(|predicate| predicate.seek(highest));
        }
        Ok(Some(SetStep::Pause))
    }

    fn scope(&self, at: usize) -> Scope {
        self.predicates.get(at).map_or(Scope::Row, |predicate| predicate.scope)
    }

    fn head(&self, at: usize) -> Result<Candidate, IndexError> {
        let lost = IndexError::Input { what: "predicate without a row" };
        match self.predicates.get(at).ok_or(lost.clone())?.first()? {
            Ready::Yes(Some(head)) => Ok(head.clone()),
            _ => Err(lost),
        }
    }

    fn leave(&mut self, predicates: &[usize]) -> Result<(), IndexError> {
        for at in predicates {
            let row = self.head(*at)?;
            self.predicates.get_mut(*at).into_iter().for_each(|p| p.last = Some(row.clone()));
        }
        Ok(())
    }

    fn judge(&self) -> Result<Verdict, IndexError> {
        let mut heads: SmallVec<[Head<'_>; 4]> = SmallVec::new();
        for (at, predicate) in self.predicates.iter().enumerate() {
            match predicate.first()? {
                Ready::No(source, wanted) => {
                    return Ok(Verdict::Need(Need { predicate: at, source, wanted }));
                }
                Ready::Yes(None) => {
                    return Err(IndexError::Input { what: "predicate without a row" });
                }
                Ready::Yes(Some(head)) => heads.push(Head { at, head, scope: predicate.scope }),
            }
        }
        let mut leaders = [None; 2];
        for (scope, leader) in [Scope::Row, Scope::Partition].into_iter().zip(&mut leaders) {
            let group: SmallVec<[Head<'_>; 4]> =
                heads.iter().filter(|h| h.scope == scope).copied().collect();
            match align(&group, scope)? {
                Aligned::Leader(found) => *leader = found,
                Aligned::Verdict(verdict) => return Ok(verdict),
            }
        }
        let [Some(row), Some(partition)] = leaders else {
            let leader = leaders.into_iter().flatten().next();
            return Ok(Verdict::Match(leader.map_or(0, |leader| leader.at)));
        };
        let of = |scope| heads.iter().filter(move |h| h.scope == scope).map(|h| h.at).collect();
        Ok(match ordered(&row, &partition, Scope::Partition)? {
            Err(verdict) => verdict,
            Ok(Ordering::Equal) => Verdict::Match(row.at),
            Ok(Ordering::Less) => Verdict::Behind(of(Scope::Row)),
            Ok(Ordering::Greater) => Verdict::Behind(of(Scope::Partition)),
        })
    }
}

/// [`Intersection::advance`] of one predicate: its step, and the token that it has reached.
fn advance_alone(predicate: &mut Predicate) -> Result<(SetStep, Option<Token>), SetError> {
    let need = |source, wanted| SetStep::Need(Need { predicate: 0, source, wanted });
    let floor = match predicate.load(0)? {
        Ready::No(source, wanted) => return Ok((need(source, wanted), None)),
        Ready::Yes(None) => return Ok((SetStep::End, None)),
        Ready::Yes(floor) => floor,
    };
    let row = match predicate.first()? {
        Ready::No(source, wanted) => return Ok((need(source, wanted), floor)),
        Ready::Yes(None) => return Ok((SetStep::End, floor)),
        Ready::Yes(Some(head)) => head.clone(),
    };
    predicate.last = Some(row.clone());
    Ok((SetStep::Row(row), floor))
}

#[derive(Clone, Copy)]
struct Head<'a> {
    at: usize,
    head: &'a Candidate,
    scope: Scope,
}

enum Aligned<'a> {
    /// All are equal to this one; None without any.
    Leader(Option<Head<'a>>),
    Verdict(Verdict),
}

/// The order of two heads, or the verdict that a key is needed.
fn ordered(
    a: &Head<'_>,
    b: &Head<'_>,
    scope: Scope,
) -> Result<Result<Ordering, Verdict>, IndexError> {
    let needed = match compare(a.head, b.head, scope) {
        Compared::Order(order) => return Ok(Ok(order)),
        Compared::NeedsFirst => a,
        Compared::NeedsSecond => b,
    };
    match needs_key::<()>(needed.head)? {
        Ready::No(source, wanted) => {
            Ok(Err(Verdict::Need(Need { predicate: needed.at, source, wanted })))
        }
        Ready::Yes(()) => Ok(Ok(Ordering::Equal)),
    }
}

fn align<'a>(group: &[Head<'a>], scope: Scope) -> Result<Aligned<'a>, IndexError> {
    let mut leader: Option<Head<'a>> = None;
    for head in group {
        if let Some(found) = &leader {
            match ordered(head, found, scope)? {
                Err(verdict) => return Ok(Aligned::Verdict(verdict)),
                Ok(Ordering::Greater) => {}
                Ok(_) => continue,
            }
        }
        leader = Some(*head);
    }
    let mut behind = Numbers::new();
    for head in group {
        if let Some(found) = &leader {
            match ordered(head, found, scope)? {
                Err(verdict) => return Ok(Aligned::Verdict(verdict)),
                Ok(Ordering::Less) => behind.push(head.at),
                Ok(_) => {}
            }
        }
    }
    Ok(if behind.is_empty() {
        Aligned::Leader(leader)
    } else {
        Aligned::Verdict(Verdict::Behind(behind))
    })
}
