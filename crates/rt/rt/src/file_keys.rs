//! The door to the keys of encryption at rest of a shard.
//!
//! Owns: the key file's keys, the cache of keys that providers unwrapped, requests for keys that are not in it. Never:
//! asks a provider: the receiver of [`FileKeys::serve_requests`] does, and answers each request by a deadline of its own.
//! Where no provider is configured nothing here waits.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use at_rest::{
    DataKey, KeyAsk, KeyRecord, KeyRing, KeySource, ProvidedKeys, SealError, WrappingKey,
    missing_key,
};

use crate::env::Env;
use crate::sync::{oneshot, queue};

/// Requests that wait for a provider at most.
const REQUESTS_MAX: usize = 1024;

/// The keys of one shard's files. Clones share them.
#[derive(Clone)]
pub struct FileKeys(Rc<Inner>);

struct Inner {
    env: Env,
    ring: RefCell<Option<Arc<KeyRing>>>,
    provided: RefCell<ProvidedKeys>,
    requests: RefCell<Option<queue::Sender<KeyRequest>>>,
}

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
    pub(crate) fn new(env: Env) -> FileKeys {
        let (ring, provided, requests) = Default::default();
        FileKeys(Rc::new(Inner { env, ring, provided, requests }))
    }

    pub(crate) fn set_ring(&self, keys: Option<Arc<KeyRing>>) {
        *self.0.ring.borrow_mut() = keys;
    }

    /// The requests of this shard's files for keys of providers, from now on. Without a receiver they fail.
    pub fn serve_requests(&self) -> queue::Receiver<KeyRequest> {
        let (sender, receiver) = queue::bounded(REQUESTS_MAX);
        *self.0.requests.borrow_mut() = Some(sender);
        receiver
    }

    /// Changes the keys that providers made and unwrapped for this shard.
    pub fn with_provided<T>(&self, change: impl FnOnce(&mut ProvidedKeys) -> T) -> T {
        change(&mut self.0.provided.borrow_mut())
    }

    async fn request(&self, ask: KeyAsk) -> Result<Arc<WrappingKey>, SealError> {
        let KeySource { provider, key } = ask.source().clone();
        let failed = |what: &str| SealError::Provider {
            provider: provider.clone(),
            key: key.clone(),
            what: what.to_owned(),
        };
        let Some(requests) = self.0.requests.borrow().clone() else {
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
    async fn active(&self, source: &KeySource) -> Result<Arc<WrappingKey>, SealError> {
        let found = self.0.provided.borrow().active(source).cloned();
        match found {
            Some(key) => Ok(key),
            None => self.request(KeyAsk::New(source.clone())).await,
        }
    }
}

impl FileKeys {
    /// The keys of the key file; `None`: there is none.
    pub fn ring(&self) -> Option<Arc<KeyRing>> {
        self.0.ring.borrow().clone()
    }

    /// A new data key and its record, wrapped by a named key of a provider, or by the active one of the key file.
    ///
    /// # Errors
    /// `NoActiveKey`; `Provider`, `MissingKey`: the provider gave none.
    pub async fn new_data_key(
        &self,
        source: Option<&KeySource>,
    ) -> Result<(DataKey, KeyRecord), SealError> {
        let random = &mut |out: &mut [u8]| self.0.env.random_fill(out);
        match source {
            Some(source) => Ok(self.active(source).await?.new_data_key(random)),
            None => {
                self.ring().and_then(|ring| ring.new_data_key(random)).ok_or_else(no_active_key)
            }
        }
    }

    /// Returns true if a new data key can be wrapped without asking a provider.
    pub fn has_active(&self, source: Option<&KeySource>) -> bool {
        match source {
            Some(source) => self.0.provided.borrow().active(source).is_some(),
            None => self.ring().is_some_and(|ring| ring.active().is_some()),
        }
    }

    /// Waits until a new data key can be wrapped without asking a provider.
    ///
    /// # Errors
    /// `Provider`, `MissingKey`: the provider gave no key. `NoActiveKey`: the key file has none.
    pub async fn await_active(&self, source: Option<&KeySource>) -> Result<(), SealError> {
        match source {
            Some(source) => self.active(source).await.map(|_| ()),
            None if self.has_active(None) => Ok(()),
            None => Err(no_active_key()),
        }
    }

    /// The data key of a record.
    ///
    /// # Errors
    /// `MissingKey`, `Provider`: not known, and the provider did not give it; `Record`.
    pub async fn open_data_key(&self, record: &KeyRecord) -> Result<DataKey, SealError> {
        let Some(source) = record.source() else {
            return self.ring().ok_or_else(|| missing_key(record))?.open(record);
        };
        let found = self.0.provided.borrow_mut().find(self.0.env.now(), record);
        let key = match found {
            Some(key) => key,
            None => {
                let (version, envelope) = (record.version, record.envelope.clone());
                self.request(KeyAsk::Open { source, version, envelope }).await?
            }
        };
        let opened = key.open(record);
        if opened.is_err() {
            self.0.provided.borrow_mut().forget(record);
        }
        opened
    }

    /// The record of a data key under another named key, as in [`FileKeys::new_data_key`].
    ///
    /// # Errors
    /// Those of [`FileKeys::new_data_key`].
    pub async fn wrap_data_key(
        &self,
        key: &DataKey,
        source: Option<&KeySource>,
    ) -> Result<KeyRecord, SealError> {
        let random = &mut |out: &mut [u8]| self.0.env.random_fill(out);
        match source {
            Some(source) => Ok(self.active(source).await?.wrap(key, random)),
            None => self.ring().and_then(|ring| ring.wrap(key, random)).ok_or_else(no_active_key),
        }
    }

    /// Returns true if the key in use wraps the data key of a record.
    pub fn is_wrapped_by_active(&self, record: &KeyRecord, source: Option<&KeySource>) -> bool {
        match source {
            Some(source) => {
                let provided = self.0.provided.borrow();
                provided.active(source).is_some_and(|key| key.version() == record.version)
                    && record.source().as_ref() == Some(source)
            }
            None => self.ring().is_some_and(|ring| ring.is_current(record)),
        }
    }
}

fn no_active_key() -> SealError {
    SealError::NoActiveKey(
        "it is to be encrypted, and there is no active key; set system_key_directory and generate a key"
            .to_owned(),
    )
}
