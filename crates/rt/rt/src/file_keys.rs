//! The door to the keys of encryption at rest of a shard.
//!
//! Owns: the key file's keys, the cache of keys that providers unwrapped, requests for keys that are not in it. Never:
//! asks a provider: the receiver of [`Rt::serve_key_requests`] does, and answers each request by a deadline of its own.
//! Where no provider is configured nothing here waits.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use at_rest::{
    DataKey, KeyAsk, KeyRecord, KeyRing, KeySource, ProvidedKeys, SealError, WrappingKey,
    missing_key,
};

use crate::file::Fs;
use crate::handle::Rt;
use crate::sync::{oneshot, queue};

/// Requests that wait for a provider at most.
const REQUESTS_MAX: usize = 1024;

/// The keys of one shard.
#[derive(Default)]
pub(crate) struct FileKeys {
    ring: RefCell<Option<Arc<KeyRing>>>,
    provided: RefCell<ProvidedKeys>,
    requests: RefCell<Option<queue::Sender<KeyRequest>>>,
}

/// Shared by all [`Fs`] of a shard.
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

impl Rt {
    /// Sets the keys of the key file of this shard. Every [`Fs`] of it has them from now on, those that were
    /// created before too.
    pub fn set_file_keys(&self, keys: Option<Arc<KeyRing>>) {
        *self.inner.file_keys.ring.borrow_mut() = keys;
    }

    /// The requests of this shard's files for keys of providers, from now on. Without a receiver they fail.
    pub fn serve_key_requests(&self) -> queue::Receiver<KeyRequest> {
        let (sender, receiver) = queue::bounded(REQUESTS_MAX);
        *self.inner.file_keys.requests.borrow_mut() = Some(sender);
        receiver
    }

    /// Changes the keys that providers made and unwrapped for this shard.
    pub fn with_provided_keys<T>(&self, change: impl FnOnce(&mut ProvidedKeys) -> T) -> T {
        change(&mut self.inner.file_keys.provided.borrow_mut())
    }
}

impl FileKeys {
    async fn request(&self, ask: KeyAsk) -> Result<Arc<WrappingKey>, SealError> {
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
    async fn active(&self, source: &KeySource) -> Result<Arc<WrappingKey>, SealError> {
        let found = self.provided.borrow().active(source).cloned();
        match found {
            Some(key) => Ok(key),
            None => self.request(KeyAsk::New(source.clone())).await,
        }
    }
}

impl Fs {
    /// The keys of the key file; `None`: there is none.
    pub fn keys(&self) -> Option<Arc<KeyRing>> {
        self.keys.ring.borrow().clone()
    }

    /// A new data key and its record, wrapped by a named key of a provider, or by the active one of the key file.
    ///
    /// # Errors
    /// `NoActiveKey`; `Provider`, `MissingKey`: the provider gave none.
    pub async fn new_data_key(
        &self,
        source: Option<&KeySource>,
    ) -> Result<(DataKey, KeyRecord), SealError> {
        let random = &mut |out: &mut [u8]| self.random_fill(out);
        match source {
            Some(source) => Ok(self.keys.active(source).await?.new_data_key(random)),
            None => {
                self.keys().and_then(|ring| ring.new_data_key(random)).ok_or_else(no_active_key)
            }
        }
    }

    /// Returns true if a new data key can be wrapped without asking a provider.
    pub fn has_active_key(&self, source: Option<&KeySource>) -> bool {
        source.is_none_or(|source| self.keys.provided.borrow().active(source).is_some())
    }

    /// Waits until a new data key can be wrapped without asking a provider.
    ///
    /// # Errors
    /// `Provider`, `MissingKey`: the provider gave no key.
    pub async fn await_active_key(&self, source: Option<&KeySource>) -> Result<(), SealError> {
        match source {
            Some(source) => self.keys.active(source).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The data key of a record.
    ///
    /// # Errors
    /// `MissingKey`, `Provider`: not known, and the provider did not give it; `Record`.
    pub async fn open_data_key(&self, record: &KeyRecord) -> Result<DataKey, SealError> {
        let Some(source) = record.source() else {
            return self.keys().ok_or_else(|| missing_key(record))?.open(record);
        };
        let found = self.keys.provided.borrow_mut().find(self.now(), record);
        let key = match found {
            Some(key) => key,
            None => {
                let (version, envelope) = (record.version, record.envelope.clone());
                self.keys.request(KeyAsk::Open { source, version, envelope }).await?
            }
        };
        let opened = key.open(record);
        if opened.is_err() {
            self.keys.provided.borrow_mut().forget(record);
        }
        opened
    }

    /// The record of a data key under another named key, as in [`Fs::new_data_key`].
    ///
    /// # Errors
    /// As there.
    pub async fn wrap_data_key(
        &self,
        key: &DataKey,
        source: Option<&KeySource>,
    ) -> Result<KeyRecord, SealError> {
        let random = &mut |out: &mut [u8]| self.random_fill(out);
        match source {
            Some(source) => Ok(self.keys.active(source).await?.wrap(key, random)),
            None => self.keys().and_then(|ring| ring.wrap(key, random)).ok_or_else(no_active_key),
        }
    }

    /// Returns true if the key in use wraps the data key of a record.
    pub fn is_wrapped_by_active(&self, record: &KeyRecord, source: Option<&KeySource>) -> bool {
        match source {
            Some(source) => {
                let provided = self.keys.provided.borrow();
                provided.active(source).is_some_and(|key| key.version() == record.version)
                    && record.source().as_ref() == Some(source)
            }
            None => self.keys().is_some_and(|ring| ring.is_current(record)),
        }
    }
}

fn no_active_key() -> SealError {
    SealError::NoActiveKey(
        "it is to be encrypted, and there is no active key; set system_key_directory and generate a key"
            .to_owned(),
    )
}
