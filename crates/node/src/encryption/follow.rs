//! Follows the files of one section of the settings: reloads them when they change, reports expiring certificates.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rt::service::ServiceFailure;
use rt::{Gate, Group, HandshakePool, Rt};
use tls::reload::{Decision, ExpiryNotice, ExpiryWatch, Fingerprint, QUIET, Reload};
use tls::{PeerCertificate, Source, TlsError};

use super::sources::{Reading, Sources};

/// Interval at which the files are read to detect changes.
const POLL: Duration = Duration::from_secs(10);

/// Configurations that were built from the files, all parts checked together, and are not in use yet.
pub(crate) struct Prepared {
    /// Leaf certificates of the node.
    pub(crate) certificates: Vec<PeerCertificate>,
    /// Makes new connections use them.
    pub(crate) put_to_use: Box<dyn FnOnce()>,
}

/// Builds configurations from the files.
type Prepare = Box<dyn Fn(&Sources) -> Result<Prepared, TlsError>>;

/// Keys and certificates that were put into use at the start.
pub(crate) struct InUse {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) certificates: Vec<PeerCertificate>,
    /// Computes the handshakes; `None` where they are computed elsewhere.
    pub(crate) pool: Option<HandshakePool>,
}

/// Follows the files of keys and certificates.
pub(crate) struct KeyFollower {
    rt: Rt,
    reading: Reading,
    prepare: Prepare,
    reload: RefCell<Reload>,
    certificates: RefCell<Vec<(PeerCertificate, ExpiryWatch)>>,
    /// Files that were refused because certificates were not valid at that time, with these certificates.
    untimely: RefCell<Option<(Fingerprint, Vec<PeerCertificate>)>>,
    pub(super) reloads: telemetry::Counter,
    pub(super) failures: telemetry::Counter,
    pub(super) expiry: telemetry::Gauge,
    /// Lives as long as its keys are in use.
    pool: Option<HandshakePool>,
}

impl KeyFollower {
    /// Follows the files until the gate closes.
    pub(crate) fn begin(
        rt: &Rt,
        gate: &Gate,
        reading: Reading,
        in_use: InUse,
        prepare: Prepare,
    ) -> Rc<KeyFollower> {
        let follower = Rc::new(KeyFollower::new(rt, reading, in_use, prepare));
        let following = follower.clone();
        // The gate is closed: the node stops.
        let _ = gate.spawn(rt, Group::Admin, "tls-reload", async move { following.follow().await });
        follower
    }

    fn new(rt: &Rt, reading: Reading, in_use: InUse, prepare: Prepare) -> KeyFollower {
        let shard = rt.telemetry();
        let labels = [("settings", reading.section)];
        KeyFollower {
            rt: rt.clone(),
            prepare,
            reload: RefCell::new(Reload::new(in_use.fingerprint)),
            certificates: RefCell::new(watched(in_use.certificates)),
            untimely: RefCell::new(None),
            reloads: shard.counter(
                "tls_reloads_total",
                "changed keys and certificates in use",
                &labels,
            ),
            failures: shard.counter(
                "tls_reload_failures_total",
                "changed keys and certificates that could not be used; the earlier ones stay",
                &labels,
            ),
            expiry: shard.gauge(
                "tls_certificate_expiry_seconds",
                "time at which the first certificate of this node ends, seconds since 1970",
                &labels,
            ),
            reading,
            pool: in_use.pool,
        }
    }

    /// Waits for an unexpected end of the threads that compute the handshakes, until the node is asked to stop: a gate
    /// that waits for this must not wait for the threads, which end with the shard.
    pub(crate) fn failure(&self) -> impl Future<Output = Option<ServiceFailure>> + use<> {
        let (rt, failure) = (self.rt.clone(), self.pool.as_ref().map(HandshakePool::failure));
        async move {
            let mut failure = pin!(failure?);
            let mut stopping = pin!(rt.stop_requested());
            poll_fn(|cx| match failure.as_mut().poll(cx) {
                Poll::Ready(failed) => Poll::Ready(failed),
                Poll::Pending => stopping.as_mut().poll(cx).map(|()| None),
            })
            .await
        }
    }

    async fn follow(&self) {
        loop {
            self.report_expiry();
            let pause = match self.look().await {
                Decision::Wait => QUIET,
                Decision::Keep | Decision::Load => POLL,
            };
            let stopping = self.rt.stop_requested();
            if self.rt.timeout(self.rt.now() + pause, stopping).await.is_ok() {
                return;
            }
        }
    }

    /// Reads the files and loads them if they changed and are stable, or if their certificates have become valid.
    async fn look(&self) -> Decision {
        let read = self.reading.read(&self.rt).await;
        let fingerprint = fingerprint_of(&read);
        let decision = self.reload.borrow_mut().observe(self.rt.now(), fingerprint);
        if decision == Decision::Load || self.has_become_valid(fingerprint) {
            // The error was logged.
            let _ = self.use_sources(read, fingerprint);
        }
        decision
    }

    /// Reloads the files immediately, changed or not.
    ///
    /// # Errors
    /// They cannot be used; the earlier keys stay.
    pub(crate) async fn reload(&self) -> Result<(), TlsError> {
        let read = self.reading.read(&self.rt).await;
        let fingerprint = fingerprint_of(&read);
        self.use_sources(read, fingerprint)
    }

    fn use_sources(
        &self,
        read: Result<Sources, TlsError>,
        fingerprint: Fingerprint,
    ) -> Result<(), TlsError> {
        let section = self.reading.section;
        let now = self.rt.wall().0.div_euclid(1_000_000);
        let prepared = read.and_then(|sources| (self.prepare)(&sources));
        *self.untimely.borrow_mut() = None;
        match prepared.and_then(|prepared| self.timely(prepared, fingerprint, now)) {
            Ok(Prepared { certificates, put_to_use }) => {
                put_to_use();
                self.reload.borrow_mut().loaded(fingerprint);
                self.reloads.inc();
                tracing::info!("reloaded keys and certificates of {section} for new connections");
                *self.certificates.borrow_mut() = watched(certificates);
                self.report_expiry();
                Ok(())
            }
            Err(error) => {
                self.reload.borrow_mut().failed(fingerprint);
                self.failures.inc();
                tracing::error!(
                    %error,
                    "cannot reload keys and certificates; the earlier ones stay in use"
                );
                Err(error)
            }
        }
    }

    /// Refuses a certificate that is not valid now: peers and clients would, so the one in use is at least as good. One
    /// that is in use already is no reason against new authorities and revocation lists.
    fn timely(
        &self,
        prepared: Prepared,
        fingerprint: Fingerprint,
        now: i64,
    ) -> Result<Prepared, TlsError> {
        let in_use = self.certificates.borrow();
        let is_new = |found: &PeerCertificate| {
            let is_same = |c: &PeerCertificate| {
                (&c.subject, c.not_before, c.not_after)
                    == (&found.subject, found.not_before, found.not_after)
            };
            !in_use.iter().any(|(certificate, _)| is_same(certificate))
        };
        let is_untimely = |found: &&PeerCertificate| !found.is_valid_at(now) && is_new(found);
        let untimely: Vec<_> = prepared.certificates.iter().filter(is_untimely).cloned().collect();
        drop(in_use);
        let Some(found) = untimely.first() else { return Ok(prepared) };
        stdx::reached!("node-untimely-certificate-refused");
        let ended = match now.saturating_sub(found.not_after) / 86_400 {
            0 => "expired today".to_owned(),
            days => format!("expired {days} days ago"),
        };
        let begins = match found.not_before.saturating_sub(now) / 86_400 {
            0 => "is not valid yet: it will be within a day".to_owned(),
            days => format!("is not valid for another {days} days"),
        };
        let problem = if found.not_after < now { ended } else { begins };
        let error = TlsError {
            place: format!("\"{}\"", self.reading.section),
            problem: format!("the certificate of {} {problem}", found.subject),
            remedy: "install a valid one, or correct the clock of this machine: it is loaded when it is valid"
                .to_owned(),
        };
        *self.untimely.borrow_mut() = Some((fingerprint, untimely));
        Err(error)
    }

    /// Returns true if these files were refused, and all their certificates are valid now: time has passed, or the
    /// machine's clock was wrong.
    fn has_become_valid(&self, fingerprint: Fingerprint) -> bool {
        let now = self.rt.wall().0.div_euclid(1_000_000);
        self.untimely.borrow().as_ref().is_some_and(|(refused, certificates)| {
            *refused == fingerprint && certificates.iter().all(|found| found.is_valid_at(now))
        })
    }

    fn report_expiry(&self) {
        let (now, section) = (self.rt.wall().0 / 1_000_000, self.reading.section);
        let mut certificates = self.certificates.borrow_mut();
        let first = certificates.iter().map(|(certificate, _)| certificate.not_after).min();
        self.expiry.set(first.unwrap_or(0));
        for (certificate, watch) in certificates.iter_mut() {
            let subject = &certificate.subject;
            match watch.check(certificate.not_after, now) {
                Some(ExpiryNotice::Expired) => {
                    tracing::error!(subject, "the certificate of {section} has expired; renew it");
                }
                Some(ExpiryNotice::Days(days)) => {
                    tracing::warn!(
                        subject,
                        days,
                        "the certificate of {section} expires soon; renew it"
                    );
                }
                None => {}
            }
        }
    }
}

fn watched(certificates: Vec<PeerCertificate>) -> Vec<(PeerCertificate, ExpiryWatch)> {
    certificates.into_iter().map(|certificate| (certificate, ExpiryWatch::default())).collect()
}

/// Returns the fingerprint of a read; a temporarily missing file is a change like any other.
fn fingerprint_of(read: &Result<Sources, TlsError>) -> Fingerprint {
    match read {
        Ok(sources) => sources.fingerprint(),
        Err(error) => Fingerprint::of([&Source { place: error.to_string(), bytes: Vec::new() }]),
    }
}
