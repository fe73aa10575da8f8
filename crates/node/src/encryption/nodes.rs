//! TLS between nodes: `server_encryption_options` and `internode_authenticator` as keys and rules of messaging.

use std::collections::BTreeSet;
use std::rc::Rc;

use conf::encryption::CertificatesOfClients;
use conf::{InternodeAuthenticator, InternodeEncryption, Options};
use messaging::{Encryption, Endpoints, Messaging, PeerChecks, Policy, Scope, Strictness};
use rt::{Gate, HandshakePool, Handshakes, Rt, TlsClient, TlsClock};
use tls::config::HostNames;
use tls::material::revocation_lists;
use tls::reload::Fingerprint;
use tls::{ClientParts, Identity, IdentityRule, PeerCertificate, TlsError, Trust};

use super::follow::{InUse, KeyFollower, Prepared};
use super::sources::{Reading, Sources, TrustUse, keystore};
use super::{handshake_pool, limits, server, trust};

/// Name of the setting in errors.
const SECTION: &str = "server_encryption_options";
/// Steps of handshakes with nodes that wait at most: messaging accepts fewer at the same time.
const HANDSHAKES_MAX: usize = 512;

/// Keys and rules of connections between nodes.
pub(crate) struct NodeKeys {
    reading: Reading,
    rules: Rules,
    loaded: Loaded,
    pool: HandshakePool,
}

/// Keys and certificates built from the files.
struct Loaded {
    encryption: Encryption,
    fingerprint: Fingerprint,
    /// Leaf certificates of the node.
    certificates: Vec<PeerCertificate>,
}

/// Settings that do not change while the node runs.
#[derive(Clone)]
struct Rules {
    policy: Policy,
    checks: PeerChecks,
    authenticator: InternodeAuthenticator,
}

impl Rules {
    fn new(options: &Options) -> Rules {
        let encryption = &options.server_encryption_options;
        let scope = match encryption.internode_encryption {
            InternodeEncryption::None => Scope::None,
            InternodeEncryption::Rack => Scope::BetweenRacks,
            InternodeEncryption::Dc => Scope::BetweenDatacenters,
            InternodeEncryption::All => Scope::All,
        };
        let strictness = match encryption.is_explicitly_optional() {
            true => Strictness::Optional,
            false => Strictness::Strict,
        };
        let endpoints = match encryption.tls.require_endpoint_verification {
            true => Endpoints::Compared,
            false => Endpoints::Ignored,
        };
        let checks = PeerChecks { limits: limits(&encryption.tls), endpoints, identities: None };
        let authenticator = options.internode_authenticator.clone();
        Rules { policy: Policy { scope, strictness }, checks, authenticator }
    }
}

/// Reads keys and settings; `None` where no connection is encrypted.
///
/// # Errors
/// Connections are to be encrypted, and a file or a setting cannot be used.
pub(crate) async fn load(rt: &Rt, options: &Options) -> Result<Option<NodeKeys>, TlsError> {
    let settings = &options.server_encryption_options;
    let tls = &settings.tls;
    if tls.enabled && settings.internode_encryption == InternodeEncryption::None {
        tracing::warn!("Setting {SECTION}.enabled has no effect, use internode_encryption");
    }
    if !settings.speaks_tls(keystore(rt, tls).await) {
        return Ok(None);
    }
    let asks = tls.require_client_auth != CertificatesOfClients::NotRequired;
    let is_partial = matches!(
        settings.internode_encryption,
        InternodeEncryption::Rack | InternodeEncryption::Dc
    );
    if asks && is_partial {
        tracing::warn!(
            "require_client_auth of {SECTION} does not protect with internode_encryption rack or dc: a program can \
             claim to be a node of this rack or data center and connect in the clear; set internode_encryption to all"
        );
    }
    let makes = settings.internode_encryption != InternodeEncryption::None;
    let outbound = settings.outbound_key.clone();
    let reading = Reading {
        section: SECTION,
        options: tls.clone(),
        outbound: outbound.map(|place| (place, settings.outbound_password.clone())),
        trust: if asks || makes { TrustUse::Read } else { TrustUse::None },
    };
    let rules = Rules::new(options);
    let sources = reading.read(rt).await?;
    let pool = handshake_pool(rt, SECTION, "tls-nodes", HANDSHAKES_MAX)?;
    let loaded = build(&reading, &rules, &sources, pool.handshakes())?;
    reading.warn_of_left_out()?;
    let optional = settings.is_explicitly_optional();
    tracing::info!(
        internode_encryption = settings.internode_encryption.word(),
        optional,
        identities = ?loaded.encryption.checks.identities,
        "connections between nodes may be encrypted"
    );
    Ok(Some(NodeKeys { reading, rules, loaded, pool }))
}

impl NodeKeys {
    /// The keys and rules that were loaded.
    pub(crate) fn encryption(&self) -> Encryption {
        self.loaded.encryption.clone()
    }

    /// Follows the files until the gate closes.
    pub(crate) fn install(self, rt: &Rt, gate: &Gate, messaging: &Messaging) -> Rc<KeyFollower> {
        let NodeKeys { reading, rules, loaded, pool } = self;
        let Loaded { fingerprint, certificates, .. } = loaded;
        let (messaging, kept, handshakes) = (messaging.clone(), reading.clone(), pool.handshakes());
        let prepare = move |sources: &Sources| {
            let loaded = build(&kept, &rules, sources, handshakes.clone())?;
            let Loaded { encryption, certificates, .. } = loaded;
            let messaging = messaging.clone();
            let put_to_use = Box::new(move || messaging.set_encryption(encryption));
            Ok(Prepared { certificates, put_to_use })
        };
        let in_use = InUse { fingerprint, certificates, pool: Some(pool) };
        KeyFollower::begin(rt, gate, reading, in_use, Box::new(prepare))
    }
}

/// Builds both configurations; checks all parts together.
fn build(
    reading: &Reading,
    rules: &Rules,
    sources: &Sources,
    handshakes: Handshakes,
) -> Result<Loaded, TlsError> {
    let (server, mut certificates) = server(reading, sources, handshakes)?;
    let own = Identity::read(sources.outbound.as_ref().unwrap_or(&sources.key))?;
    let shown: Vec<PeerCertificate> = own.certificates().collect();
    let mut checks = rules.checks.clone();
    checks.identities = identities(&rules.authenticator, &shown)?;
    if sources.outbound.is_some() {
        certificates.extend(shown);
    }
    let client = match (rules.policy.scope, trust(sources)?) {
        (Scope::None, _) => None,
        (_, Some(trust)) => Some(client(reading, sources, own, trust, checks.endpoints)?),
        (_, None) => {
            return Err(TlsError {
                place: format!("\"{SECTION}.truststore\""),
                problem: "is not set, but certificates of other nodes must be verified".to_owned(),
                remedy: "name the certificates of the nodes' authorities".to_owned(),
            });
        }
    };
    let encryption = Encryption { policy: rules.policy, server: Some(server), client, checks };
    Ok(Loaded { encryption, fingerprint: sources.fingerprint(), certificates })
}

/// Builds the configuration of own connections.
fn client(
    reading: &Reading,
    sources: &Sources,
    own: Identity,
    trust: Trust,
    endpoints: Endpoints,
) -> Result<TlsClient, TlsError> {
    let clock = TlsClock::new();
    let config = tls::client_config(ClientParts {
        section: SECTION,
        identity: Some(own),
        trust,
        host_names: match endpoints {
            Endpoints::Compared => HostNames::Compared,
            Endpoints::Ignored => HostNames::Ignored,
        },
        revoked: sources.revoked.as_ref().map_or_else(|| Ok(Vec::new()), revocation_lists)?,
        offer: reading.offer()?,
        clock: clock.clone(),
    })?;
    Ok(TlsClient { config, clock })
}

/// Returns the identities that may connect; `None`: all.
fn identities(
    authenticator: &InternodeAuthenticator,
    shown: &[PeerCertificate],
) -> Result<Option<BTreeSet<String>>, TlsError> {
    let InternodeAuthenticator::MutualTls { trusted, node } = authenticator else {
        return Ok(None);
    };
    if let Some(trusted) = trusted {
        return Ok(Some(trusted.iter().cloned().collect()));
    }
    let failed = |problem: &str, remedy: &str| TlsError {
        place: "\"internode_authenticator\"".to_owned(),
        problem: problem.to_owned(),
        remedy: remedy.to_owned(),
    };
    let own: BTreeSet<String> =
        shown.iter().filter_map(|c| IdentityRule::Spiffe.identity(c).ok()).collect();
    if own.is_empty() {
        return Err(failed(
            "No identity was extracted from the outbound keystore",
            "give the certificate a subject alternative name URI:spiffe://…, or set trusted_peer_identities",
        ));
    }
    match node {
        Some(node) if !own.contains(node) => Err(failed(
            "Configured node identity is not matching identity extracted from the keystore",
            "correct node_identity or the certificate of outbound_keystore",
        )),
        Some(node) => Ok(Some(BTreeSet::from([node.clone()]))),
        None => Ok(Some(own)),
    }
}
