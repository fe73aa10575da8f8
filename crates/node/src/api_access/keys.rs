//! TLS of the API: `api_encryption_options` as keys of the HTTP server.

use std::rc::Rc;
use std::sync::Arc;

use admin::{AdminAccess, ApiEncryption, PlainConnections};
use conf::Encryption;
use conf::encryption::EncryptionOptions;
use rt::{Gate, Rt};
use tls::reload::Fingerprint;
use tls::rustls::time_provider::DefaultTimeProvider;
use tls::{PeerCertificate, TlsError};

use crate::encryption::follow::{InUse, KeyFollower, Prepared};
use crate::encryption::sources::{Reading, Sources, keystore};
use crate::encryption::{limits, server_config};

/// Name of the setting in errors.
const SECTION: &str = "api_encryption_options";

/// Keys and settings of the API's connections.
pub(super) struct ApiKeys {
    reading: Reading,
    plain: PlainConnections,
    loaded: Loaded,
}

/// Keys and certificates built from the files.
struct Loaded {
    encryption: ApiEncryption,
    fingerprint: Fingerprint,
    /// Leaf certificates of the node.
    certificates: Vec<PeerCertificate>,
}

/// Reads keys and settings; `None` where no connection is encrypted.
///
/// # Errors
/// Connections are to be encrypted, and a file or a setting cannot be used.
pub(super) async fn load(
    rt: &Rt,
    options: &EncryptionOptions,
) -> Result<Option<ApiKeys>, TlsError> {
    let plain = match options.encryption(keystore(rt, options).await) {
        Encryption::None => return Ok(None),
        Encryption::Optional => PlainConnections::Served,
        Encryption::Required => PlainConnections::Refused,
    };
    if options.require_endpoint_verification {
        return Err(TlsError {
            place: format!("\"{SECTION}.require_endpoint_verification\""),
            problem:
                "is not supported for the API, whose clients rarely have certificates of addresses"
                    .to_owned(),
            remedy: "remove it; \"require_client_auth: true\" verifies certificates".to_owned(),
        });
    }
    let reading = Reading::of_clients(SECTION, options);
    let sources = reading.read(rt).await?;
    let loaded = build(&reading, plain, &sources)?;
    reading.warn_of_left_out()?;
    Ok(Some(ApiKeys { reading, plain, loaded }))
}

impl ApiKeys {
    /// The keys that were loaded.
    pub(super) fn encryption(&self) -> ApiEncryption {
        self.loaded.encryption.clone()
    }

    /// Follows the files until the gate closes.
    pub(super) fn install(self, rt: &Rt, gate: &Gate, server: AdminAccess) -> Rc<KeyFollower> {
        let ApiKeys { reading, plain, loaded } = self;
        let kept = reading.clone();
        let prepare = move |sources: &Sources| {
            let loaded = build(&kept, plain, sources)?;
            let (server, encryption) = (server.clone(), loaded.encryption);
            let put_to_use = Box::new(move || server.set_encryption(encryption));
            Ok(Prepared { certificates: loaded.certificates, put_to_use })
        };
        let Loaded { fingerprint, certificates, .. } = loaded;
        let in_use = InUse { fingerprint, certificates, pool: None };
        KeyFollower::begin(rt, gate, reading, in_use, Box::new(prepare))
    }
}

/// Builds the configuration; checks all parts together. The server is on the real machine and has threads of its own:
/// its clock is the machine's.
fn build(
    reading: &Reading,
    plain: PlainConnections,
    sources: &Sources,
) -> Result<Loaded, TlsError> {
    let (config, certificates) = server_config(reading, sources, Arc::new(DefaultTimeProvider))?;
    let encryption = ApiEncryption { plain, config, limits: limits(&reading.options) };
    Ok(Loaded { encryption, fingerprint: sources.fingerprint(), certificates })
}
