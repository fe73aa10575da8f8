//! A program that wants into the cluster: it begins TLS with the nodes without a certificate, with one of another
//! authority, with one that has expired, or leaves in the middle of a handshake.
//!
//! The checker ([`Attempts::check`]): no node answers a message that came over TLS from such a program, nor, where
//! encryption is required of all, one that came in the clear, but by refusing it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use internode::{Features, Handshake, Hello, Lane, RefusalCode, VersionRange};
use rt::{Rt, Stream, TlsClient, TlsClock};
use stdx::{HostId, ShardId, Uuid};
use tls::config::HostNames;
use tls::rustls::pki_types::ServerName;
use tls::{ClientParts, Identity, KeyMaterial, Offer, Source, Trust, client_config};

/// Longest handshake and longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest pause between attempts.
const PAUSE_MAX_MICROS: u64 = 1_500_000;

/// How it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trick {
    /// TLS without a certificate.
    NoCertificate,
    /// TLS with a certificate of another authority.
    OtherAuthority,
    /// TLS with a certificate of the nodes' authority that has expired.
    Expired,
    /// A part of a handshake, and then nothing.
    Cut,
    /// In the clear.
    Plain,
}

/// Results of all attempts.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    /// Attempts at which a message was sent.
    sent: u64,
    /// Handshakes that were left in the middle.
    cut: u64,
    /// The first message that was answered.
    admitted: Option<String>,
}

impl Attempts {
    /// Checks what came of them; returns the number of refused ones.
    ///
    /// # Errors
    /// A node answered, or nothing was tried.
    pub fn check(&self) -> Result<u64, String> {
        if let Some(admitted) = &self.admitted {
            return Err(format!("a stranger was admitted: {admitted}"));
        }
        if self.sent == 0 || self.cut == 0 {
            return Err(format!("no stranger tried: {self:?}"));
        }
        Ok(self.sent)
    }
}

/// Shared with the world.
pub type SharedAttempts = Rc<RefCell<Attempts>>;

/// Where to try: a node by a random number, and whether nodes refuse strangers in the clear.
pub type Targets = Box<dyn Fn(u64) -> Option<(SocketAddr, bool)>>;

/// Clients of TLS, one for each kind of certificate.
struct Disguises {
    none: TlsClient,
    other: TlsClient,
    expired: TlsClient,
}

impl Disguises {
    fn new() -> Result<Disguises, tls::TlsError> {
        let other = include_bytes!("fixtures/stranger.pem").as_slice();
        let expired = include_bytes!("fixtures/expired.pem").as_slice();
        Ok(Disguises {
            none: client(None)?,
            other: client(Some(other))?,
            expired: client(Some(expired))?,
        })
    }

    fn of(&self, trick: Trick) -> &TlsClient {
        match trick {
            Trick::OtherAuthority => &self.other,
            Trick::Expired => &self.expired,
            Trick::NoCertificate | Trick::Cut | Trick::Plain => &self.none,
        }
    }
}

fn client(certificate: Option<&[u8]>) -> Result<TlsClient, tls::TlsError> {
    let source = |bytes: &[u8]| Source { place: "intruder".to_owned(), bytes: bytes.to_vec() };
    let material =
        certificate.map(|bytes| KeyMaterial { store: source(bytes), key: None, password: None });
    let clock = TlsClock::new();
    let config = client_config(ClientParts {
        section: "intruder",
        identity: material.map(|material| Identity::read(&material)).transpose()?,
        trust: Trust::read(&source(include_bytes!("fixtures/nodes-ca.pem")), None)?,
        host_names: HostNames::Ignored,
        revoked: Vec::new(),
        offer: Offer::default(),
        clock: clock.clone(),
    })?;
    Ok(TlsClient { config, clock })
}

/// Tries to get in for as long as the world runs.
pub async fn run(rt: Rt, targets: Targets, attempts: SharedAttempts) {
    let disguises = match Disguises::new() {
        Ok(disguises) => disguises,
        Err(error) => {
            attempts.borrow_mut().admitted = Some(format!("no disguise: {error}"));
            return;
        }
    };
    loop {
        rt.sleep(Duration::from_micros(rt.random_u64() % PAUSE_MAX_MICROS)).await;
        let Some((to, refuses_plain)) = targets(rt.random_u64()) else { continue };
        let tricks = [
            Trick::NoCertificate,
            Trick::OtherAuthority,
            Trick::Expired,
            Trick::Cut,
            if refuses_plain { Trick::Plain } else { Trick::Cut },
        ];
        let chosen = rt.random_u64() % tricks.len() as u64;
        let Some(trick) = usize::try_from(chosen).ok().and_then(|n| tricks.get(n).copied()) else {
            continue;
        };
        let deadline = rt.now() + PATIENCE;
        let attempt = attempt(&rt, &disguises, to, trick, &attempts);
        // Elapsed: the link is broken, or the node stands still.
        let _ = rt.timeout(deadline, attempt).await;
    }
}

async fn attempt(
    rt: &Rt,
    disguises: &Disguises,
    to: SocketAddr,
    trick: Trick,
    attempts: &RefCell<Attempts>,
) {
    let Ok(conn) = rt.connect(to).await else { return };
    let stream = match trick {
        Trick::Plain => Stream::plain(conn),
        Trick::Cut => {
            // The begin of a ClientHello of 300 bytes.
            let mut hello = vec![0x16, 3, 1, 1, 44, 1, 0, 1, 40, 3, 3];
            hello.resize(300, 0);
            let length = usize::try_from(1 + rt.random_u64() % 299).unwrap_or(1);
            let _ = conn.write_all(hello.get(..length).unwrap_or_default()).await;
            attempts.borrow_mut().cut += 1;
            return rt.sleep(Duration::from_micros(rt.random_u64() % 500_000)).await;
        }
        Trick::NoCertificate | Trick::OtherAuthority | Trick::Expired => {
            let name = ServerName::IpAddress(to.ip().into());
            let client = disguises.of(trick);
            match Stream::connect_tls(rt, conn, client, name, rt.now() + PATIENCE).await {
                Ok(stream) => stream,
                // TLS 1.3 refuses a certificate only after the handshake is complete here.
                Err(_) => return,
            }
        }
    };
    let mut message = Vec::new();
    Handshake::Hello(hello(rt)).encode(&mut message);
    if stream.write_all(&message).await.is_err() {
        return;
    }
    attempts.borrow_mut().sent += 1;
    let mut answer = Vec::new();
    while stream.read(&mut answer, 10_000).await.is_ok_and(|read| read > 0) {}
    let is_refused = match Handshake::decode(&answer) {
        // Bytes that are no message would be an answer too.
        Ok(None) => answer.is_empty(),
        Ok(Some((Handshake::Refused(refused), _))) => {
            trick == Trick::Plain && refused.code == RefusalCode::EncryptionRequired
        }
        Ok(Some(_)) | Err(_) => false,
    };
    if !is_refused {
        let text = format!("{trick:?} at {to}: {} bytes were answered", answer.len());
        attempts.borrow_mut().admitted.get_or_insert(text);
    }
}

/// The question for a node's identity, which a node that is not known yet may ask.
fn hello(rt: &Rt) -> Hello {
    Hello {
        versions: VersionRange::THIS,
        features: Features::NONE,
        lane: Lane::Probe,
        joining: false,
        cluster_id: None,
        cluster_name: conf::Options::default().cluster_name,
        from: HostId(Uuid::from_bytes(u128::from(rt.random_u64()).to_be_bytes())),
        to: None,
        incarnation: 1,
        source_shard: ShardId(0),
        shard_count: 1,
        destination_shard: ShardId(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_and_a_run_without_attempts_are_found() {
        let good = Attempts { sent: 3, cut: 2, admitted: None };
        assert_eq!(good.check(), Ok(3));
        let admitted = Some("Expired at 10.0.0.1:7000".to_owned());
        for bad in [
            Attempts { admitted, ..good.clone() },
            Attempts { sent: 0, ..good.clone() },
            Attempts { cut: 0, ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
