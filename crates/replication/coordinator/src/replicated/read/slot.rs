//! Slot of a read: one page of one partition or sub-range, with the pages received and the next
//! requests.

use std::rc::Rc;

use data::TableShape;
use data::command::{Partitions, ReadCommand, RingBound};
use data::page_cursor::PageChain;
use data::replica_page::{PageEnd, PageError, PageLimits, ReplicaPage};
use request::plan::Replicas;
use request::read::RowsFrom;
use request::{
    PageFacts, ReadInput, ReconcileCommand, Target, TargetSet, TokenRange, digest_of, reconcile,
};
use smallvec::SmallVec;
use stdx::{HostId, Token};

use super::filtered::Filtered;
use replica::go_on;

/// The pages of one replica, in order.
struct Pages {
    from: Target,
    pages: Vec<Vec<u8>>,
    /// Live rows that it was asked for last.
    rows: u32,
}

/// Parameters of a new slot of the machine.
pub(super) struct NewSlot {
    /// Which use of the slot this is.
    pub(super) number: u32,
    pub(super) range: TokenRange,
    pub(super) command: ReadCommand,
    pub(super) limits: PageLimits,
    pub(super) replicas: Replicas,
    pub(super) needs_digests: bool,
}

/// A slot of the machine with its pages.
pub(super) struct Slot {
    /// Which use of the slot this is.
    pub(super) number: u32,
    pub(super) range: TokenRange,
    /// The command that replicas are asked, and its limits.
    pub(super) command: Rc<ReadCommand>,
    pub(super) limits: PageLimits,
    /// The replicas of its targets.
    pub(super) replicas: Replicas,
    shape: Rc<TableShape>,
    needs_digests: bool,
    pages: SmallVec<[Pages; 3]>,
    /// Never merged: see [`super::filtered`].
    filtered: SmallVec<[(Target, Box<Filtered>); 1]>,
    merged: Vec<u8>,
    repairs: SmallVec<[(Target, Vec<Vec<u8>>); 4]>,
}

impl Slot {
    pub(super) fn new(of: NewSlot, shape: Rc<TableShape>) -> Slot {
        let NewSlot { number, range, command, limits, replicas, needs_digests } = of;
        Slot {
            number,
            range,
            command: Rc::new(command),
            limits,
            replicas,
            shape,
            needs_digests,
            pages: SmallVec::new(),
            filtered: SmallVec::new(),
            merged: Vec::new(),
            repairs: SmallVec::new(),
        }
    }

    pub(super) fn is_of_one_partition(&self) -> bool {
        matches!(self.command.partitions, Partitions::Key(_))
    }

    /// Returns true if nothing can follow this end.
    fn is_last(&self, end: &PageEnd<'_>) -> bool {
        match end {
            PageEnd::Exhausted => true,
            PageEnd::After { .. } => self.is_of_one_partition(),
            PageEnd::Inside { .. } => false,
        }
    }

    /// Returns true if a replica has sent its page.
    pub(super) fn has_page_of(&self, target: Target) -> bool {
        self.pages_of(target).is_some()
    }

    /// Takes what passes the filter of a page. Of another node it is checked.
    pub(super) fn take_filtered(
        &mut self,
        from: Target,
        filtered: Box<Filtered>,
    ) -> Result<ReadInput, PageError> {
        let page = filtered.check(&self.command, &self.shape)?;
        self.filtered.retain(|(target, _)| *target != from);
        self.filtered.push((from, filtered));
        Ok(ReadInput::Filtered { from, page })
    }

    /// Returns the filtered page of these rows; `None`: they are a whole page's.
    pub(super) fn filtered(&self, rows: RowsFrom) -> Option<&Filtered> {
        let RowsFrom::Filtered(target) = rows else { return None };
        self.filtered.iter().find(|(from, _)| *from == target).map(|(_, filtered)| &**filtered)
    }

    fn pages_of(&self, target: Target) -> Option<&Pages> {
        self.pages.iter().find(|p| p.from == target)
    }

    /// Takes a page. One of another node is checked.
    pub(super) fn take_page(
        &mut self,
        from: Target,
        bytes: Vec<u8>,
        is_own: bool,
    ) -> Result<ReadInput, PageError> {
        let reversed = self.command.reversed;
        let page = match is_own {
            true => ReplicaPage::open(&bytes)?,
            false => {
                let page = ReplicaPage::parse(&bytes, &self.shape, reversed)?;
                if !is_within(&self.command.partitions, &page) {
                    return Err(PageError::Malformed("it holds rows that were not asked for"));
                }
                page
            }
        };
        if let Some(before) = self.pages_of(from) {
            chain(&before.pages, &self.shape, reversed)?.push(page, &self.shape, reversed)?;
        }
        let digest =
            if self.needs_digests { digest_of(&bytes) } else { request::PageDigest::default() };
        let (live_rows, exhausted) = (page.live_rows(), self.is_last(&page.end()));
        match self.pages.iter_mut().find(|p| p.from == from) {
            Some(before) => before.pages.push(bytes),
            None => self.pages.push(Pages { from, pages: vec![bytes], rows: self.limits.rows }),
        }
        Ok(ReadInput::Data { from, page: PageFacts { digest, live_rows, exhausted } })
    }

    /// Returns the command that asks a replica for the page after its last one. `None`: it sent
    /// none, or its last page was the end.
    pub(super) fn more(&mut self, to: Target, rows: u32) -> Option<ReadCommand> {
        let before = self.pages.iter_mut().find(|p| p.from == to)?;
        before.rows = rows;
        let end = ReplicaPage::open(before.pages.last()?).ok()?.end();
        let rows_before = self.command.resume.as_ref().map_or(0, |r| r.rows_in_partition);
        let mut command = ReadCommand::clone(&self.command);
        go_on(&mut command, &end, rows_before).then_some(command)
    }

    /// Merges the pages of these replicas.
    pub(super) fn reconcile(&mut self, of: TargetSet) -> ReadInput {
        let command = ReconcileCommand {
            reversed: self.command.reversed,
            now: self.command.now,
            rows_per_partition: self.limits.rows_per_partition,
            counts_static: self.command.wants_static,
        };
        let sources: Result<Vec<_>, PageError> = of
            .iter()
            .filter_map(|t| self.pages_of(t))
            .map(|p| Ok((p.from, chain(&p.pages, &self.shape, self.command.reversed)?)))
            .collect();
        let merged = sources
            .map_err(|error| error.to_string())
            .and_then(|s| reconcile(&self.shape, &command, &s).map_err(|error| error.to_string()));
        let merged = match merged {
            Ok(merged) => merged,
            Err(error) => stdx::invariant::broken(format_args!("pages that were checked: {error}")),
        };
        let end = ReplicaPage::open(&merged.page).map_or(PageEnd::Exhausted, |p| p.end());
        let exhausted = self.is_last(&end);
        let needs_repair = merged.needs_repair();
        // A page that ended for its bytes has few rows because they are large, or because there are
        // many tombstones. The reader continues after it instead of making this one larger.
        let at_bytes = |t: Target| {
            self.pages_of(t).is_some_and(|p| {
                let last = p.pages.last().and_then(|page| ReplicaPage::open(page).ok());
                last.is_some_and(|page| page.live_rows() < p.rows)
            })
        };
        let ends_here = exhausted || merged.short.iter().any(at_bytes);
        let short = if ends_here { TargetSet::EMPTY } else { merged.short };
        let live_rows = merged.live_rows;
        self.repairs = merged.repairs;
        self.merged = merged.page;
        ReadInput::Reconciled { live_rows, exhausted, short, repairs: needs_repair }
    }

    /// The mutations that all of these miss.
    pub(super) fn repairs_of(&self, of: TargetSet) -> Vec<Vec<u8>> {
        let missing = self.repairs.iter().filter(|(t, _)| of.contains(*t));
        missing.flat_map(|(_, mutations)| mutations.iter().cloned()).collect()
    }

    /// Returns the nodes whose pages these rows are from.
    pub(super) fn hosts_of(&self, rows: RowsFrom) -> impl Iterator<Item = HostId> {
        let is_meant = move |from: Target| match rows {
            RowsFrom::Merged => true,
            RowsFrom::Page(target) => from == target,
            RowsFrom::Filtered(_) => false,
        };
        let filtered = match rows {
            RowsFrom::Filtered(target) => Some(target),
            RowsFrom::Merged | RowsFrom::Page(_) => None,
        };
        let targets = self.pages.iter().map(|p| p.from).filter(move |from| is_meant(*from));
        let targets = targets.chain(filtered);
        targets.filter_map(|target| self.replicas.get(target).map(|replica| replica.host))
    }

    /// The page to be shown.
    pub(super) fn shown(&self, rows: RowsFrom) -> Option<ReplicaPage<'_>> {
        let bytes = match rows {
            RowsFrom::Merged => &self.merged,
            RowsFrom::Page(target) => self.pages_of(target)?.pages.first()?,
            RowsFrom::Filtered(_) => &self.filtered(rows)?.page.page,
        };
        ReplicaPage::open(bytes).ok()
    }
}

/// Returns true if a page contains requested partitions only. Its partitions are in order.
pub(super) fn is_within(asked: &Partitions, page: &ReplicaPage<'_>) -> bool {
    let end = page.end();
    let mut found = page.partitions().chain(end.partition());
    match asked {
        Partitions::Key(_) => found.all(|(token, key)| holds(asked, token, key)),
        Partitions::Range(_) => {
            let last = page.partitions().last().into_iter().chain(end.partition());
            found.next().into_iter().chain(last).all(|(token, key)| holds(asked, token, key))
        }
    }
}

/// Returns true if a partition belongs to the requested ones.
pub(super) fn holds(asked: &Partitions, token: Token, key: &[u8]) -> bool {
    match asked {
        Partitions::Key(asked) => *key == **asked,
        Partitions::Range(range) => {
            is_behind(&range.start, token, key) && !is_behind(&range.end, token, key)
        }
    }
}

/// Returns true if a partition lies after a bound.
fn is_behind(bound: &RingBound, token: Token, key: &[u8]) -> bool {
    match bound {
        RingBound::Token { token: at, after } => {
            if *after {
                token > *at
            } else {
                token >= *at
            }
        }
        RingBound::Key { token: at, key: at_key, after } => {
            let order = (token, key).cmp(&(*at, at_key.as_slice()));
            if *after { order.is_gt() } else { order.is_ge() }
        }
    }
}

fn chain<'p>(
    pages: &'p [Vec<u8>],
    shape: &TableShape,
    reversed: bool,
) -> Result<PageChain<'p>, PageError> {
    let mut chain = PageChain::default();
    for page in pages {
        chain.push(ReplicaPage::open(page)?, shape, reversed)?;
    }
    Ok(chain)
}
