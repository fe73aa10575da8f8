//! Rows that satisfy several predicates: the intersection, by primary key, of unions over files and memtables.
//!
//! Ids of two files cannot be compared, so rows are compared by token first. Tokens come from `Index+Rows.db`; the key of a
//! row is asked for only when another file or memtable has a row of the same token. Nothing is complemented, so no
//! predicate needs a list of all rows. With one predicate it is the plan of a replica that sends the matches of the
//! driving one.

use std::cmp::Ordering;

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

/// Outcome of [`Intersection::advance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetStep {
    /// The next candidate, in the order of the table, each once.
    Row(Candidate),
    /// Feed this, then advance again.
    Need(Need),
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

    /// Reads all heads, each after the last row that was passed, and returns the smallest token. None: no row.
    fn load(&mut self) -> Result<Ready<Option<Token>>, IndexError> {
        let mut least: Option<i64> = None;
        for source in &mut self.sources {
            loop {
                if let Some(wanted) = source.load()? {
                    return Ok(Ready::No(source.number(), wanted));
                }
                let (Some(head), Some(last)) = (source.head(), &self.last) else { break };
                match compare(head, last, self.scope) {
                    Compared::NeedsFirst => return needs_key(head),
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
    Behind(Vec<usize>),
    Need(Need),
}

/// The intersection of predicates.
#[derive(Debug)]
pub struct Intersection {
    /// By estimate: the driver first.
    predicates: Vec<Predicate>,
}

impl Intersection {
    /// Rows in all of these predicates, at least one.
    pub fn new(mut predicates: Vec<Predicate>) -> Intersection {
        predicates.sort_by_key(|predicate| predicate.estimate);
        Intersection { predicates }
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
    pub fn advance(&mut self) -> Result<SetStep, IndexError> {
        loop {
            let mut tokens = Vec::with_capacity(self.predicates.len());
            for (at, predicate) in self.predicates.iter_mut().enumerate() {
                // It follows before it is read, and skips what those before it do not have.
                tokens.iter().max().into_iter().for_each(|token| predicate.seek(Token(*token)));
                match predicate.load()? {
                    Ready::No(source, wanted) => {
                        return Ok(SetStep::Need(Need { predicate: at, source, wanted }));
                    }
                    Ready::Yes(None) => return Ok(SetStep::End),
                    Ready::Yes(Some(token)) => {
                        tokens.push(token.0);
                    }
                }
            }
            let Some(highest) = tokens.iter().copied().max() else { return Ok(SetStep::End) };
            let mut is_aligned = true;
            for (predicate, token) in self.predicates.iter_mut().zip(&tokens) {
                if *token < highest {
                    predicate.seek(Token(highest));
                    is_aligned = false;
                }
            }
            if !is_aligned {
                continue;
            }
            match self.judge()? {
                Verdict::Need(need) => return Ok(SetStep::Need(need)),
                Verdict::Behind(behind) => self.leave(&behind)?,
                Verdict::Match(at) => {
                    let row = self.head(at)?;
                    let scopes = self.predicates.iter().map(|predicate| predicate.scope);
                    let has_rows = scopes.clone().any(|scope| scope == Scope::Row);
                    // Whole partitions stay for the further rows of the partition.
                    let left = scopes.enumerate();
                    let left = left.filter(|(_, scope)| !has_rows || *scope == Scope::Row);
                    let left: Vec<usize> = left.map(|(at, _)| at).collect();
                    self.leave(&left)?;
                    return Ok(SetStep::Row(row));
                }
            }
        }
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
        let mut heads = Vec::with_capacity(self.predicates.len());
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
            let group: Vec<Head<'_>> = heads.iter().filter(|h| h.scope == scope).copied().collect();
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
    let mut behind = Vec::new();
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
