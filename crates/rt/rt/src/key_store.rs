//! The keys of encryption at rest that a shard has, and its requests for others.
//!
//! Owns: the key file's keys, the cache of keys that providers unwrapped, requests for keys that are not in it. Never:
//! asks a provider: the receiver of the requests does, and answers each by a deadline of its own.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use at_rest::{KeyAsk, KeyRing, KeySource, ProvidedKeys, SealError, WrappingKey};

use crate::sync::{oneshot, queue};

/// Requests that wait for a provider at most.
pub(crate) const REQUESTS_MAX: usize = 1024;

/// The keys of one shard.
#[derive(Default)]
pub(crate) struct FileKeys {
    pub(crate) ring: RefCell<Option<Arc<KeyRing>>>,
    pub(crate) provided: RefCell<ProvidedKeys>,
    pub(crate) requests: RefCell<Option<queue::Sender<KeyRequest>>>,
}

/// Shared by all handles of files of a shard.
pub(crate) type SharedKeys = Rc<FileKeys>;

/// A key, or the reason why there is none.
pub type KeyAnswer = Result<Arc<WrappingKey>, String>;

/// A request for a key of a provider.
pub struct KeyRequest {
    /// The key.
    pub ask: KeyAsk,
    /// Receives the answer.
    pub answer: oneshot::Sender<KeyAnswer>,
}

impl FileKeys {
    pub(crate) async fn request(&self, ask: KeyAsk) -> Result<Arc<WrappingKey>, SealError> {
        let KeySource { provider, key } = ask.source().clone();
        let failed = |what: &str| SealError::Provider {
            provider: provider.clone(),
            key: key.clone(),
            what: what.to_owned(),
        };
        let Some(requests) = self.requests.borrow().clone() else {
            return Err(SealError::MissingKey { provider, key });
        };
        let (answer, answered) = oneshot::channel();
        match requests.try_send(KeyRequest { ask, answer }) {
            Ok(()) => {}
            Err(queue::TrySendError::Full(_)) => {
                return Err(failed("too many requests wait for the provider"));
            }
            Err(queue::TrySendError::Closed(_)) => return Err(failed("this node is stopping")),
        }
        match answered.await {
            Ok(answer) => answer.map_err(|what| failed(&what)),
            Err(oneshot::Dropped) => Err(failed("this node is stopping")),
        }
    }

    /// The wrapping key in use of a source.
    pub(crate) async fn active(&self, source: &KeySource) -> Result<Arc<WrappingKey>, SealError> {
        let found = self.provided.borrow().active(source).cloned();
        match found {
            Some(key) => Ok(key),
            None => self.request(KeyAsk::New(source.clone())).await,
        }
    }
}
