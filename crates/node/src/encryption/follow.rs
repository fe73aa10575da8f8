//! Follows the files of one section of the settings: reloads them when they change, reports expiring certificates.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rt::{Gate, Group, Rt};
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
}

/// Follows the files of keys and certificates.
pub(crate) struct KeyFollower {
    rt: Rt,
    reading: Reading,
    prepare: Prepare,
    reload: RefCell<Reload>,
    certificates: RefCell<Vec<(PeerCertificate, ExpiryWatch)>>,
    pub(super) reloads: telemetry::Counter,
    pub(super) failures: telemetry::Counter,
    pub(super) expiry: telemetry::Gauge,
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

    /// Reads the files and loads them if they changed and are stable.
    async fn look(&self) -> Decision {
        let read = self.reading.read(&self.rt).await;
        let fingerprint = fingerprint_of(&read);
        let decision = self.reload.borrow_mut().observe(self.rt.now(), fingerprint);
        if decision == Decision::Load {
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
        match prepared.and_then(|prepared| self.unexpired(prepared, now)) {
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

    /// Refuses an expired certificate: peers and clients would, so the one in use is at least as good. One that is in
    /// use already is no reason against new authorities and revocation lists.
    fn unexpired(&self, prepared: Prepared, now: i64) -> Result<Prepared, TlsError> {
        let in_use = self.certificates.borrow();
        let is_new = |found: &PeerCertificate| {
            let is_same = |c: &PeerCertificate| {
                (&c.subject, c.not_after) == (&found.subject, found.not_after)
            };
            !in_use.iter().any(|(certificate, _)| is_same(certificate))
        };
        let mut found = prepared.certificates.iter();
        let Some(expired) = found.find(|found| found.not_after < now && is_new(found)) else {
            drop(in_use);
            return Ok(prepared);
        };
        stdx::reached!("node-expired-certificate-refused");
        let days = (now - expired.not_after) / 86_400;
        let since = if days == 0 { "today".to_owned() } else { format!("{days} days ago") };
        Err(TlsError {
            place: format!("\"{}\"", self.reading.section),
            problem: format!("the certificate of {} expired {since}", expired.subject),
            remedy: "install a renewed one, or correct the clock of this machine and run nodetool reloadssl"
                .to_owned(),
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
