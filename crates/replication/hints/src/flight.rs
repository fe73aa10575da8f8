//! Hints that were sent and are not answered yet.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use messaging::{MessagingError, RequestFuture, Response};
use stdx::{Token, WallMicros};

/// One sent hint.
pub(crate) struct Sent {
    /// Its offset in the file.
    pub(crate) at: u64,
    pub(crate) bytes: usize,
    pub(crate) token: Token,
    pub(crate) written_at: WallMicros,
    pub(crate) future: RequestFuture,
}

/// Hints in flight of one delivery, and the failed ones.
#[derive(Default)]
pub(crate) struct Flight {
    sent: Vec<Sent>,
    bytes: usize,
    /// Offsets of hints that have to be sent again.
    failed: BTreeSet<u64>,
}

impl Flight {
    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Returns true if a hint for that token may be sent. A hint in flight for the same partition
    /// must be answered first, so that the writes of a partition arrive in their order, even after
    /// a retry.
    pub(crate) fn has_room(&self, token: Token, count_max: usize, bytes_max: usize) -> bool {
        self.sent.len() < count_max
            && self.bytes < bytes_max
            && self.sent.iter().all(|s| s.token != token)
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        stdx::debug_invariant!(
            self.sent.iter().all(|s| s.token != sent.token),
            "INV-hints-2: hint {} is sent before the answer to one of its partition",
            sent.at
        );
        self.bytes += sent.bytes;
        self.sent.push(sent);
    }

    /// Waits for one answer. To be called when it is not empty.
    pub(crate) async fn next(&mut self) -> Option<(Sent, Result<Response, MessagingError>)> {
        let (index, result) = poll_fn(|cx| {
            if self.sent.is_empty() {
                return Poll::Ready(None);
            }
            for (index, sent) in self.sent.iter_mut().enumerate() {
                if let Poll::Ready(result) = Pin::new(&mut sent.future).poll(cx) {
                    return Poll::Ready(Some((index, result)));
                }
            }
            Poll::Pending
        })
        .await?;
        let sent = self.sent.remove(index);
        self.bytes -= sent.bytes;
        Some((sent, result))
    }

    /// The hint at that offset must be sent again.
    pub(crate) fn fail(&mut self, at: u64) {
        self.failed.insert(at);
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Everything before is done, when everything before `cursor` was taken up.
    pub(crate) fn done_below(&self, cursor: u64) -> u64 {
        let sent = self.sent.iter().map(|s| s.at).min();
        let failed = self.failed.first().copied();
        [sent, failed].into_iter().flatten().min().map_or(cursor, |at| at.min(cursor))
    }
}
