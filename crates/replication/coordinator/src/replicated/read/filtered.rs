//! Pages of ranges that replicas filter: a replica sends the rows that pass, and the digest of its whole page.
//!
//! Owns: which replicas are asked to filter, the fallback for those that cannot, the validation of received pages. Never: merges such a page: it has no deletions, and lacks rows that its replica
//! has.
//!
//! INV-filtered-1: a filtered page is shown only if it is the filtered result of a whole page whose digest as many replicas have as the level needs. So no row is missed whose parts match on
//! different replicas.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use data::command::{Partitions, ReadCommand, RingBound};
use data::replica_page::{FilteredPage, PageEnd, PageError, ReplicaPage};
use data::{RowFilter, TableShape};
use internode::{ErrorReply, FilteredAnswer, Verb, encode_filtered_read};
use messaging::MessagingError;
use replica::{NodePage, replica_error};
use request::{PageDigest, PageFacts, ReplicaError, digest_of};
use stdx::HostId;

use super::Reads;
use super::asking::ToPeer;
use super::calls::{Answer, AnswerFuture, What};
use super::slot::{holds, is_within};
use crate::local::ShardFilter;
use crate::shared::ReplicatedRead;

/// Filter of a read's pages.
#[derive(Clone)]
pub(super) struct Filtering {
    pub(super) filter: Arc<dyn RowFilter>,
    /// The encoded filter for other nodes.
    work: Rc<[u8]>,
    /// Nodes that would not do it for this read.
    refused: Rc<RefCell<Vec<HostId>>>,
    /// Replicas differed a moment ago: whole pages are asked for, as they may be merged.
    pub(super) is_wary: Rc<Cell<bool>>,
}

impl Filtering {
    /// `None`: pages of this read are not filtered by replicas.
    pub(super) fn of(
        filter: Option<&ShardFilter>,
        command: &ReadCommand,
        order: &ReplicatedRead,
    ) -> Option<Filtering> {
        let ShardFilter { filter, shipped, .. } = filter?;
        // A partition that is cut ends after so many live rows, whether they pass or not.
        let has_limit = order.limits.rows_per_partition != u32::MAX;
        if has_limit || !matches!(command.partitions, Partitions::Range(_)) {
            return None;
        }
        let work = Rc::from(shipped.as_deref()?);
        let (refused, is_wary) = Default::default();
        Some(Filtering { filter: filter.clone(), work, refused, is_wary })
    }

    /// Returns true if a node may be asked to filter.
    pub(super) fn may_ask(&self, reads: &Reads, host: HostId) -> bool {
        let now = reads.env().rt.now();
        let not_filtering = &reads.inner.not_filtering;
        not_filtering.may_ask(host, now) && !self.refused.borrow().contains(&host)
    }

    /// Asks a replica; one that does not do it is asked for its whole page.
    pub(super) fn ask(&self, reads: &Reads, peer: ToPeer) -> AnswerFuture {
        let (this, reads) = (self.clone(), reads.clone());
        let answer = peer.request(Verb::FilteredRead, |out| {
            encode_filtered_read(out, &this.work, &peer.command, peer.limits);
        });
        Box::pin(async move {
            let error = match answer.await {
                Ok(response) => {
                    peer.note(response.elapsed, Some(response.payload.len()));
                    return match decode(&response.payload) {
                        Some(filtered) => Ok(Answer::Filtered(Box::new(filtered))),
                        None => Err(ReplicaError::Unknown),
                    };
                }
                Err(error) => error,
            };
            let host = peer.host;
            match &error {
                MessagingError::Remote(ErrorReply::UnknownVerb(_)) => {
                    let now = reads.env().rt.now();
                    reads.inner.not_filtering.note(host, now);
                }
                MessagingError::Remote(ErrorReply::Invalid(why)) => {
                    tracing::debug!(%host, why, "replica declined to filter a page");
                    this.refused.borrow_mut().push(host);
                }
                error => {
                    peer.note_error(error);
                    return Err(replica_error(error));
                }
            }
            reads.inner.filtered_refused.inc();
            peer.ask(What::Page).await
        })
    }
}

/// The rows of a page that pass the filter, with the digest of the whole page.
pub(super) struct Filtered {
    pub(super) page: FilteredPage,
    pub(super) digest: PageDigest,
    /// True if this node built it: it need not be validated.
    is_own: bool,
}

impl Filtered {
    /// Wraps this node's own page.
    pub(super) fn own(page: NodePage) -> Option<Filtered> {
        let digest = digest_of(&page.page);
        Some(Filtered { page: page.filtered?, digest, is_own: true })
    }

    /// Returns the end of the page: see [`super::drive`]'s `last_place`. The last partition may
    /// have been filtered out here.
    pub(super) fn last_place<'p>(&'p self, end: PageEnd<'p>) -> PageEnd<'p> {
        match (end, self.page.last_key.as_deref()) {
            (PageEnd::Exhausted, Some(key)) => PageEnd::After { token: codec::token_of(key), key },
            (end, _) => end,
        }
    }

    /// Validates the page as an answer to this command, and returns its facts for the machine.
    pub(super) fn check(
        &self,
        command: &ReadCommand,
        shape: &TableShape,
    ) -> Result<PageFacts, PageError> {
        let FilteredPage { page, whole, last_key } = &self.page;
        let page = match self.is_own {
            true => ReplicaPage::open(page)?,
            false => ReplicaPage::parse(page, shape, command.reversed)?,
        };
        let exhausted = page.is_exhausted();
        let facts = PageFacts { digest: self.digest, live_rows: whole.live_rows, exhausted };
        if self.is_own {
            return Ok(facts);
        }
        let last_key = last_key.as_deref().map(|key| (codec::token_of(key), key));
        if !is_within(&command.partitions, &page)
            || last_key.is_some_and(|(token, key)| !holds(&command.partitions, token, key))
        {
            return Err(PageError::Malformed("it holds rows that were not asked for"));
        }
        if page.partitions().last().is_some_and(|last| last_key.is_none_or(|key| key < last)) {
            return Err(PageError::Malformed("its last partition was not scanned"));
        }
        if !gets_on(command, shape, &page.end()) {
            return Err(PageError::Malformed("it ends where it begins"));
        }
        Ok(facts)
    }
}

/// Returns true if a page with that end lies past the command's start, so that a read of such pages
/// terminates.
fn gets_on(command: &ReadCommand, shape: &TableShape, end: &PageEnd<'_>) -> bool {
    let Partitions::Range(range) = &command.partitions else { return true };
    let RingBound::Key { token, key, after: false } = &range.start else { return true };
    let PageEnd::Inside { token: at, key: at_key, clustering } = end else { return true };
    let resumed = command.resume.as_ref().and_then(|resume| resume.clustering.as_deref());
    match resumed.filter(|_| (token, key.as_slice()) == (at, *at_key)) {
        Some(resumed) => shape.clustering().compare(clustering, resumed) == Ordering::Greater,
        None => true,
    }
}

pub(super) fn decode(payload: &[u8]) -> Option<Filtered> {
    let answer = FilteredAnswer::decode(payload)
        .inspect_err(|error| tracing::warn!(%error, "discarding a filtered page"))
        .ok()?;
    let FilteredAnswer { digest, whole, last_key, page } = answer;
    let (page, last_key) = (page.to_vec(), last_key.map(<[u8]>::to_vec));
    let page = FilteredPage { page, whole, last_key };
    Some(Filtered { page, digest: PageDigest(digest), is_own: false })
}
