//! The door to the keys of encryption at rest of a shard.
//!
//! Owns: how [`Rt`] and [`Fs`] use the [`crate::key_store`]. Never: asks a provider: the receiver of
//! [`Rt::serve_key_requests`] does, and answers each request by a deadline of its own. Where no provider is configured
//! nothing here waits.

use std::sync::Arc;

use at_rest::{
    DataKey, KeyAsk, KeyRecord, KeyRing, KeySource, ProvidedKeys, SealError, missing_key,
};

use crate::file::Fs;
use crate::handle::Rt;
use crate::key_store::{KeyRequest, REQUESTS_MAX};
use crate::sync::queue;

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
