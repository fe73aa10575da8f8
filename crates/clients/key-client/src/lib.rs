//! Asks providers for keys of encryption at rest, for the files of one shard.
//!
//! Owns: connections to providers, the tasks that answer the shard's requests for keys. Never: what is asked and retried
//! when, what an answer means (`key-providers`); which files are encrypted (`store`).
//!
//! No file waits for a provider but through [`rt::Fs`], which is answered by a deadline. A key, token or credential is
//! never logged.
//!
//! Reading order: [`KeyClient`], [`exchange`].

mod exchange;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use at_rest::{KeyAsk, KeySource};
use conf::key_hosts::KeyHost;
use key_providers::{KeyService, KeyStatus, Output, ProviderError, Times};
use rt::sync::oneshot;
use rt::{Gate, Group, KeyAnswer, KeyRequest, Rt};
use telemetry::Counter;

use exchange::Endpoint;

/// How often deadlines, retries and refreshes are checked.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// The client of one shard. Clones share it.
#[derive(Clone)]
pub struct KeyClient(Rc<Inner>);

struct Inner {
    rt: Rt,
    gate: Gate,
    hosts: RefCell<BTreeMap<String, Rc<Endpoint>>>,
    service: RefCell<KeyService>,
    waiters: RefCell<BTreeMap<u64, oneshot::Sender<KeyAnswer>>>,
    requests: Counter,
    failures: Counter,
}

impl KeyClient {
    /// Serves the requests of this shard's files until the shard ends. `hosts`: by the name of the provider, such as
    /// `vault:prod`.
    ///
    /// # Errors
    /// The certificates that a host's is checked by cannot be read.
    pub async fn start(rt: &Rt, hosts: BTreeMap<String, KeyHost>) -> Result<KeyClient, String> {
        let telemetry = rt.telemetry();
        let requests = "requests to providers of keys of encryption at rest";
        let failures = "failed requests to providers of keys of encryption at rest";
        let client = KeyClient(Rc::new(Inner {
            rt: rt.clone(),
            gate: rt.gate("key client"),
            hosts: RefCell::default(),
            service: RefCell::default(),
            waiters: RefCell::default(),
            requests: telemetry.counter("key_provider_requests_total", requests, &[]),
            failures: telemetry.counter("key_provider_failures_total", failures, &[]),
        }));
        client.set_hosts(hosts).await?;
        let (asked, polled) = (client.clone(), client.clone());
        let receiver = rt.fs().keys().serve_requests();
        client.spawn("key requests", async move {
            while let Some(KeyRequest { ask, answer }) = receiver.recv().await {
                asked.ask(ask, answer);
            }
        });
        client.spawn("key client", async move {
            loop {
                polled.0.rt.sleep(POLL_EVERY).await;
                let now = polled.0.rt.now();
                let outputs = polled.0.service.borrow_mut().poll(now);
                polled.carry_out(outputs);
            }
        });
        Ok(client)
    }

    /// Replaces the hosts. Keys in use stay in use.
    ///
    /// # Errors
    /// Those of [`KeyClient::start`]; the keys in use stay.
    pub async fn set_hosts(&self, hosts: BTreeMap<String, KeyHost>) -> Result<(), String> {
        let mut endpoints = BTreeMap::new();
        let mut times = BTreeMap::new();
        for (name, host) in hosts {
            let (expiry, refresh) = (host.key_cache_expiry, host.key_cache_refresh);
            times.insert(name.clone(), Times { expiry, refresh });
            let endpoint = Endpoint::new(&self.0.rt, host).await;
            endpoints
                .insert(name.clone(), Rc::new(endpoint.map_err(|what| format!("{name}: {what}"))?));
        }
        *self.0.hosts.borrow_mut() = endpoints;
        let outputs = self.0.service.borrow_mut().set_hosts(times);
        self.carry_out(outputs);
        Ok(())
    }

    /// Asks for a key to wrap with until there is one, and waits for it.
    ///
    /// # Errors
    /// The last failure, after a while; the client goes on asking.
    pub async fn want(&self, source: &KeySource) -> KeyAnswer {
        let now = self.0.rt.now();
        let outputs = self.0.service.borrow_mut().want(now, source);
        self.carry_out(outputs);
        let (answer, answered) = oneshot::channel();
        self.ask(KeyAsk::New(source.clone()), answer);
        answered.await.unwrap_or_else(|oneshot::Dropped| Err("this node is stopping".to_owned()))
    }

    /// Checks the keys in use at their providers now, and waits for the answers.
    ///
    /// # Errors
    /// The failures; keys in use stay in use.
    pub async fn refresh(&self) -> Result<(), String> {
        let mut failures = Vec::new();
        for KeyStatus { source, .. } in self.status() {
            let (answer, answered) = oneshot::channel();
            let (id, now) = (self.add_waiter(answer), self.0.rt.now());
            let outputs = self.0.service.borrow_mut().refresh(now, &source, id);
            self.carry_out(outputs);
            match answered.await {
                Ok(Ok(_)) => {}
                Ok(Err(what)) => failures.push(format!("{source}: {what}")),
                Err(oneshot::Dropped) => failures.push("this node is stopping".to_owned()),
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    /// Stops asking for keys that neither settings nor tables name. Files that they wrap are opened as before.
    pub fn retain(&self, named: &BTreeSet<KeySource>) {
        let outputs = self.0.service.borrow_mut().retain(named);
        self.carry_out(outputs);
    }

    /// The named keys that wrap new data keys.
    pub fn status(&self) -> Vec<KeyStatus> {
        self.0.service.borrow().status()
    }

    fn ask(&self, ask: KeyAsk, answer: oneshot::Sender<KeyAnswer>) {
        let (id, now) = (self.add_waiter(answer), self.0.rt.now());
        let outputs = self.0.service.borrow_mut().ask(now, ask, id);
        self.carry_out(outputs);
    }

    fn add_waiter(&self, answer: oneshot::Sender<KeyAnswer>) -> u64 {
        let mut waiters = self.0.waiters.borrow_mut();
        let id = waiters.last_key_value().map_or(0, |(last, _)| last + 1);
        waiters.insert(id, answer);
        id
    }

    fn carry_out(&self, outputs: Vec<Output>) {
        let (rt, now) = (&self.0.rt, self.0.rt.now());
        for output in outputs {
            match output {
                Output::Send(ask) => self.send(ask),
                Output::Keep(key) => rt.fs().keys().with_provided(|keys| keys.insert(now, key)),
                Output::Activate(key) => {
                    let (source, version) = (key.source().to_string(), key.version());
                    tracing::info!(source, version, "a key of a provider is in use for new files");
                    rt.fs().keys().with_provided(|keys| keys.activate(now, key));
                }
                Output::Expire(provider, after) => {
                    rt.fs().keys().with_provided(|keys| keys.expire(now, &provider, after));
                }
                Output::Retire(source) => {
                    tracing::info!(
                        source = source.to_string(),
                        "a key of a provider is out of use: no setting and no table names it"
                    );
                    rt.fs().keys().with_provided(|keys| keys.retire(now, &source));
                }
                Output::Answer(id, answer) => {
                    let waiter = self.0.waiters.borrow_mut().remove(&id);
                    // A waiter that is gone needs no answer.
                    drop(waiter.map(|waiter| waiter.send(answer)));
                }
                Output::Failed(source, failures, why) => {
                    self.0.failures.add(1);
                    if failures.is_power_of_two() {
                        let source = source.to_string();
                        tracing::warn!(
                            source,
                            failures,
                            why,
                            "a provider of encryption keys gives no key; retrying"
                        );
                    }
                }
            }
        }
    }

    /// Sends a request from a task of its own.
    fn send(&self, ask: KeyAsk) {
        let client = self.clone();
        self.spawn("key exchange", async move {
            client.0.requests.add(1);
            let host = client.0.hosts.borrow().get(&ask.source().provider).cloned();
            let result = match host {
                Some(host) => exchange::exchange(&client.0.rt, &host, &ask).await,
                None => {
                    Err(ProviderError::Refused("the host was removed from the settings".to_owned()))
                }
            };
            let (now, jitter) = (client.0.rt.now(), client.0.rt.random_u64());
            let outputs = client.0.service.borrow_mut().answered(now, &ask, result, jitter);
            client.carry_out(outputs);
        });
    }

    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        // Fails when the shard is ending: its files get no answer and say so.
        let _ = self.0.gate.spawn(&self.0.rt, Group::Admin, name, task);
    }
}

#[cfg(test)]
mod tests;
