//! Schedule of requests to providers: retries, refreshes, deadlines, expiry. A machine without effects.
//!
//! - A request that several wait for is sent once. At most [`IN_FLIGHT_MAX`] are in flight; the others wait their turn.
//! - A failed request is retried with back-off. Who waits is answered by the deadline with the last failure, and at once
//!   when the provider refuses.
//! - The key in use of a source is checked every refresh period: the provider makes another key, which is put into use
//!   only if the named key has another version or is another one, so that the number of wrapping keys does not grow
//!   with time. A failed check keeps the key in use: an outage or a lapsed login at the provider must not stop the
//!   writes of a node that runs. It shows in the log and in the status.
//! - A key is put into use after the provider has unwrapped it to the same key: what it wraps could not be opened
//!   after a restart otherwise. A check unwraps the key in use again; where the provider refuses that, the named key was
//!   made again, and the new key takes its place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use at_rest::{KeyAsk, KeySource, Secret, WrappingKey};
use stdx::Instant;

use crate::provider::{Made, ProviderError};

/// Requests in flight at most.
pub const IN_FLIGHT_MAX: usize = 16;
/// Requests that wait at most.
pub const WAITERS_MAX: usize = 1024;
/// Time after which a request is answered with the last failure.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
const EXPIRE_EVERY: Duration = Duration::from_secs(30);

/// Times of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long an unused key stays in memory.
    pub expiry: Duration,
    /// How often the key in use is checked.
    pub refresh: Duration,
}

/// An action of the driver.
#[derive(Debug)]
pub enum Output {
    /// Sends a request; its result is [`KeyService::answered`].
    Send(KeyAsk),
    /// Answers a waiter.
    Answer(u64, Result<Arc<WrappingKey>, String>),
    /// Keeps an unwrapped key in the cache.
    Keep(Arc<WrappingKey>),
    /// Puts a key into use.
    Activate(Arc<WrappingKey>),
    /// Forgets the unused keys of a provider.
    Expire(String, Duration),
    /// Logs a failed request: the named key, failures in a row, the reason.
    Failed(KeySource, u32, String),
    /// Takes the key of a source out of use: nothing names it any more.
    Retire(KeySource),
}

/// State of a named key in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// The key.
    pub source: KeySource,
    /// Its version; `None`: the provider has not made a key yet.
    pub version: Option<u32>,
    /// When the provider last made a key.
    pub checked_at: Option<Instant>,
    /// Failures in a row, and the last one.
    pub failures: u32,
    /// The last failure.
    pub last_error: String,
}

struct Waiter {
    id: u64,
    deadline: Instant,
}

struct Pending {
    waiters: Vec<Waiter>,
    is_in_flight: bool,
    /// When it is sent.
    due: Instant,
    failures: u32,
    last_error: String,
}

struct Active {
    key: Arc<WrappingKey>,
    secret: Secret,
    resolved: String,
    checked_at: Instant,
}

/// A key that the provider made, and what is unwrapped before it is decided about.
struct Check {
    made: Made,
    unwraps: Unwraps,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unwraps {
    /// The key itself, to be put into use.
    Made,
    /// The key in use, to be kept.
    InUse,
}

/// See the module.
#[derive(Default)]
pub struct KeyService {
    hosts: BTreeMap<String, Times>,
    /// Sources whose key is asked for until there is one, and checked from then on.
    wanted: BTreeMap<KeySource, Option<Active>>,
    pending: BTreeMap<KeyAsk, Pending>,
    /// Checks, by the request whose answer ends them. The request for the key stays in flight until then.
    checks: BTreeMap<KeyAsk, Check>,
    expired_at: Instant,
}

/// Delay before the next try; `jitter` is random.
fn backoff(failures: u32, jitter: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    let delay = BACKOFF_MIN.saturating_mul(1 << doublings).min(BACKOFF_MAX);
    let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    // Nodes that failed together do not come back together.
    delay.saturating_sub(Duration::from_millis(
        jitter.checked_rem((millis >> 1).max(1)).unwrap_or(0),
    ))
}

impl KeyService {
    /// Sets the hosts, by the name of the provider. Requests of one that is gone end, and keys in use stay in use.
    pub fn set_hosts(&mut self, hosts: BTreeMap<String, Times>) -> Vec<Output> {
        self.hosts = hosts;
        let mut out = Vec::new();
        for (ask, pending) in &mut self.pending {
            if self.hosts.contains_key(&ask.source().provider) {
                // The settings may have been the reason for the failures.
                (pending.due, pending.failures) = (Instant::ZERO, 0);
                continue;
            }
            let gone = unknown(ask.source());
            out.extend(pending.waiters.drain(..).map(|w| Output::Answer(w.id, Err(gone.clone()))));
        }
        out
    }

    /// Asks for a key of a source until there is one.
    pub fn want(&mut self, now: Instant, source: &KeySource) -> Vec<Output> {
        self.wanted.entry(source.clone()).or_default();
        self.poll(now)
    }

    /// A request of the node's files.
    pub fn ask(&mut self, now: Instant, ask: KeyAsk, waiter: u64) -> Vec<Output> {
        let answer = |what: Result<_, String>| vec![Output::Answer(waiter, what)];
        if let KeyAsk::New(source) = &ask
            && let Some(Some(active)) = self.wanted.get(source)
        {
            return answer(Ok(Arc::clone(&active.key)));
        }
        if !self.hosts.contains_key(&ask.source().provider) {
            return answer(Err(unknown(ask.source())));
        }
        let waiting: usize = self.pending.values().map(|pending| pending.waiters.len()).sum();
        if waiting >= WAITERS_MAX {
            return answer(Err("too many requests wait for the provider".to_owned()));
        }
        let deadline = now + ANSWER_MAX;
        self.pending_of(now, ask).waiters.push(Waiter { id: waiter, deadline });
        self.poll(now)
    }

    /// Checks the key of a source now; the waiter is answered with the one in use after it.
    pub fn refresh(&mut self, now: Instant, source: &KeySource, waiter: u64) -> Vec<Output> {
        if !self.hosts.contains_key(&source.provider) {
            return vec![Output::Answer(waiter, Err(unknown(source)))];
        }
        let deadline = now + ANSWER_MAX;
        let pending = self.pending_of(now, KeyAsk::New(source.clone()));
        pending.waiters.push(Waiter { id: waiter, deadline });
        pending.due = now;
        self.poll(now)
    }

    /// Stops asking for keys of sources that nothing names.
    pub fn retain(&mut self, named: &BTreeSet<KeySource>) -> Vec<Output> {
        let gone = self.wanted.extract_if(.., |source, _| !named.contains(source));
        gone.filter_map(|(source, active)| active.map(|_| Output::Retire(source))).collect()
    }

    fn pending_of(&mut self, now: Instant, ask: KeyAsk) -> &mut Pending {
        self.pending.entry(ask).or_insert_with(|| Pending {
            waiters: Vec::new(),
            is_in_flight: false,
            due: now,
            failures: 0,
            last_error: String::new(),
        })
    }

    /// The result of a request that was sent. `jitter` is random.
    pub fn answered(
        &mut self,
        now: Instant,
        ask: &KeyAsk,
        result: Result<Made, ProviderError>,
        jitter: u64,
    ) -> Vec<Output> {
        let mut out = Vec::new();
        if let Some(check) = self.checks.remove(ask) {
            out.extend(self.checked(now, ask.source(), check, result.clone(), jitter));
        }
        out.extend(match result {
            Ok(made) => self.succeeded(ask, made),
            Err(error) => self.failed(now, ask, &error, jitter),
        });
        out.extend(self.poll(now));
        out
    }

    fn succeeded(&mut self, ask: &KeyAsk, made: Made) -> Vec<Output> {
        let source = ask.source();
        if let KeyAsk::New(_) = ask {
            let active = self.wanted.get(source).and_then(Option::as_ref);
            let is_same = |active: &&Active| {
                active.key.version() == made.version && active.resolved == made.resolved
            };
            return match active.filter(is_same).map(|active| active.key.envelope().to_vec()) {
                Some(envelope) => self.check(source, envelope, made, Unwraps::InUse),
                None => self.check(source, made.envelope.clone(), made, Unwraps::Made),
            };
        }
        let Some(pending) = self.pending.remove(ask) else { return Vec::new() };
        let Made { secret, envelope, version, .. } = made;
        let key = Arc::new(WrappingKey::new(source.clone(), version, envelope, &secret));
        let mut out = vec![Output::Keep(Arc::clone(&key))];
        out.extend(answers(pending, &key));
        out
    }

    /// Has an envelope unwrapped, to decide about a key that was made.
    fn check(
        &mut self,
        source: &KeySource,
        envelope: Vec<u8>,
        made: Made,
        unwraps: Unwraps,
    ) -> Vec<Output> {
        let open = KeyAsk::Open { source: source.clone(), version: made.version, envelope };
        self.checks.insert(open.clone(), Check { made, unwraps });
        vec![Output::Send(open)]
    }

    /// Decides about a key that was made.
    fn checked(
        &mut self,
        now: Instant,
        source: &KeySource,
        check: Check,
        result: Result<Made, ProviderError>,
        jitter: u64,
    ) -> Vec<Output> {
        let Check { made, unwraps } = check;
        let new = KeyAsk::New(source.clone());
        let in_use = self.wanted.get_mut(source).and_then(Option::as_mut);
        let expected = match (unwraps, &in_use) {
            (Unwraps::InUse, Some(active)) => &active.secret,
            _ => &made.secret,
        };
        let result = match result {
            Ok(opened) if opened.secret == *expected => Ok(()),
            Ok(_) => Err(ProviderError::Refused(
                "it unwraps the key that it made to another key".to_owned(),
            )),
            Err(error) => Err(error),
        };
        match (unwraps, result) {
            (Unwraps::Made, Ok(())) => self.activate(now, source, made),
            (Unwraps::InUse, Ok(())) => {
                let Some(active) = in_use else { return Vec::new() };
                active.checked_at = now;
                let key = Arc::clone(&active.key);
                self.pending.remove(&new).map(|pending| answers(pending, &key)).unwrap_or_default()
            }
            (Unwraps::InUse, Err(ProviderError::Refused(why))) => {
                let what = format!(
                    "the provider does not open the key in use any more: {why}; files that it wraps cannot be opened \
                     after a restart; a new key takes its place once it was opened, rewrite the files"
                );
                let mut out = vec![Output::Failed(source.clone(), 1, what)];
                out.extend(self.check(source, made.envelope.clone(), made, Unwraps::Made));
                out
            }
            (_, Err(error)) => self.failed(now, &new, &error, jitter),
        }
    }

    fn activate(&mut self, now: Instant, source: &KeySource, made: Made) -> Vec<Output> {
        let Made { secret, envelope, version, resolved } = made;
        let key = Arc::new(WrappingKey::new(source.clone(), version, envelope, &secret));
        let active = Active { key: Arc::clone(&key), secret, resolved, checked_at: now };
        self.wanted.insert(source.clone(), Some(active));
        let mut out = vec![Output::Activate(Arc::clone(&key))];
        let pending = self.pending.remove(&KeyAsk::New(source.clone()));
        out.extend(pending.map(|pending| answers(pending, &key)).unwrap_or_default());
        out
    }

    fn failed(
        &mut self,
        now: Instant,
        ask: &KeyAsk,
        error: &ProviderError,
        jitter: u64,
    ) -> Vec<Output> {
        let Some(pending) = self.pending.get_mut(ask) else { return Vec::new() };
        pending.is_in_flight = false;
        pending.failures = pending.failures.saturating_add(1);
        pending.due = now + backoff(pending.failures, jitter);
        pending.last_error = error.to_string();
        let what = pending.last_error.clone();
        let mut out = vec![Output::Failed(ask.source().clone(), pending.failures, what.clone())];
        if !error.is_temporary() {
            out.extend(pending.waiters.drain(..).map(|w| Output::Answer(w.id, Err(what.clone()))));
        }
        out
    }

    /// Answers whose time is up, and sends what is due.
    pub fn poll(&mut self, now: Instant) -> Vec<Output> {
        let mut out = Vec::new();
        self.answer_late(now, &mut out);
        for (source, active) in &self.wanted {
            let refresh = self.hosts.get(&source.provider).map(|times| times.refresh);
            let is_due = match (active, refresh) {
                (_, None) => false,
                (None, _) => true,
                (Some(active), Some(refresh)) => now.since(active.checked_at) >= refresh,
            };
            let ask = KeyAsk::New(source.clone());
            if is_due && !self.pending.contains_key(&ask) {
                let (waiters, last_error) = (Vec::new(), String::new());
                let new =
                    Pending { waiters, is_in_flight: false, due: now, failures: 0, last_error };
                self.pending.insert(ask, new);
            }
        }
        let in_flight = self.pending.values().filter(|pending| pending.is_in_flight).count();
        let room = IN_FLIGHT_MAX.saturating_sub(in_flight);
        let hosts = &self.hosts;
        let ready = self.pending.iter_mut().filter(|(ask, pending)| {
            !pending.is_in_flight
                && pending.due <= now
                && hosts.contains_key(&ask.source().provider)
        });
        for (ask, pending) in ready.take(room) {
            pending.is_in_flight = true;
            out.push(Output::Send(ask.clone()));
        }
        if now.since(self.expired_at) >= EXPIRE_EVERY {
            self.expired_at = now;
            out.extend(
                self.hosts.iter().map(|(name, times)| Output::Expire(name.clone(), times.expiry)),
            );
        }
        out
    }

    /// Answers waiters at their deadline, and drops requests without a waiter.
    fn answer_late(&mut self, now: Instant, out: &mut Vec<Output>) {
        for pending in self.pending.values_mut() {
            let late = pending.waiters.extract_if(.., |waiter| waiter.deadline <= now);
            let what = match pending.last_error.as_str() {
                "" => format!("no answer within {} s", ANSWER_MAX.as_secs()),
                error => error.to_owned(),
            };
            out.extend(late.map(|waiter| Output::Answer(waiter.id, Err(what.clone()))));
        }
        let wanted = &self.wanted;
        self.pending.retain(|ask, pending| {
            let is_wanted = matches!(ask, KeyAsk::New(source) if wanted.contains_key(source));
            pending.is_in_flight || is_wanted || !pending.waiters.is_empty()
        });
    }

    /// The named keys that wrap new data keys.
    pub fn status(&self) -> Vec<KeyStatus> {
        let of = |(source, active): (&KeySource, &Option<Active>)| {
            let pending = self.pending.get(&KeyAsk::New(source.clone()));
            KeyStatus {
                source: source.clone(),
                version: active.as_ref().map(|active| active.key.version()),
                checked_at: active.as_ref().map(|active| active.checked_at),
                failures: pending.map_or(0, |pending| pending.failures),
                last_error: pending.map(|pending| pending.last_error.clone()).unwrap_or_default(),
            }
        };
        self.wanted.iter().map(of).collect()
    }
}

fn answers(pending: Pending, key: &Arc<WrappingKey>) -> Vec<Output> {
    let waiters = pending.waiters.into_iter();
    waiters.map(|waiter| Output::Answer(waiter.id, Ok(Arc::clone(key)))).collect()
}

fn unknown(source: &KeySource) -> String {
    match source.provider.split_once(':') {
        Some((kind, host)) => {
            format!("{kind}_hosts of this node's settings has no host \"{host}\"")
        }
        None => format!("this node knows no provider \"{}\"", source.provider),
    }
}

#[cfg(test)]
mod tests;
