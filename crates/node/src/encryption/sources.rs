//! The files of keys and certificates that a section of the settings names.

use conf::encryption::{
    CertificatesOfClients, EncryptionOptions, KeyPlace, KeystoreFile, Password, TrustPlace,
};
use rt::{IoErrorKind, Rt};
use tls::config::SessionTickets;
use tls::material::SOURCE_BYTES_MAX;
use tls::offer::OfferSettings;
use tls::reload::Fingerprint;
use tls::{KeyMaterial, Offer, Source, TlsError};

/// Longest password file.
const PASSWORD_BYTES_MAX: usize = 4096;

/// Use of the trust store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrustUse {
    /// The other side is not verified.
    None,
    /// It is read, if one is named.
    Read,
}

/// Files and texts of a section of the settings.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Name of the section, for errors and the log.
    pub(crate) section: &'static str,
    pub(crate) options: EncryptionOptions,
    /// Key of own connections with its password, if it has its own.
    pub(crate) outbound: Option<(KeyPlace, Password)>,
    pub(crate) trust: TrustUse,
}

/// Content of all files and texts that the settings name.
pub(crate) struct Sources {
    pub(crate) key: KeyMaterial,
    pub(crate) outbound: Option<KeyMaterial>,
    pub(crate) trust: Option<(Source, Option<String>)>,
    pub(crate) revoked: Option<Source>,
}

/// Names of the keys of a section that name a key and its parts.
struct KeyNames {
    store: &'static str,
    password_file: &'static str,
    inline: &'static str,
}

const OWN: KeyNames =
    KeyNames { store: "keystore", password_file: "keystore_password_file", inline: "private_key" };
const OUTBOUND: KeyNames = KeyNames {
    store: "outbound_keystore",
    password_file: "outbound_keystore_password_file",
    inline: "outbound_private_key",
};

/// Looks whether the key store that the settings name exists; a default that they do not name counts as missing.
pub(crate) async fn keystore(rt: &Rt, options: &EncryptionOptions) -> KeystoreFile {
    match &options.key {
        Some(KeyPlace::Store(path)) => match rt.fs().exists(path).await {
            Ok(false) => KeystoreFile::Missing,
            Ok(true) | Err(_) => KeystoreFile::Present,
        },
        Some(KeyPlace::Files { .. } | KeyPlace::Inline(_)) => KeystoreFile::Present,
        None => KeystoreFile::Missing,
    }
}

/// Session tickets by the settings.
pub(crate) fn tickets(options: &EncryptionOptions) -> SessionTickets {
    match options.enable_session_tickets {
        Some(false) => SessionTickets::Off,
        Some(true) | None => SessionTickets::Issued,
    }
}

impl Reading {
    /// Section of a port for clients. As in Cassandra the trust store is not read where no client is verified.
    pub(crate) fn of_clients(section: &'static str, options: &EncryptionOptions) -> Reading {
        let trust = match options.require_client_auth {
            CertificatesOfClients::NotRequired => TrustUse::None,
            CertificatesOfClients::Optional | CertificatesOfClients::Required => TrustUse::Read,
        };
        Reading { section, options: options.clone(), outbound: None, trust }
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) async fn read(&self, rt: &Rt) -> Result<Sources, TlsError> {
        let options = &self.options;
        let key = self.key(rt, &options.key_place(), &options.key_password, &OWN).await?;
        let outbound = match &self.outbound {
            Some((place, password)) => Some(self.key(rt, place, password, &OUTBOUND).await?),
            None => None,
        };
        let trust = match &options.trust {
            _ if self.trust == TrustUse::None => None,
            Some(TrustPlace::Store(path)) => {
                let name = "truststore_password_file";
                let password = self.password(rt, &options.trust_password, name).await?;
                Some((self.file(rt, "truststore", path).await?, password))
            }
            Some(TrustPlace::Inline(pem)) => Some((self.inline("trusted_certificates", pem), None)),
            None => None,
        };
        let revoked = match &options.revocation_list {
            Some(path) => Some(self.file(rt, "certificate_revocation_list", path).await?),
            None => None,
        };
        Ok(Sources { key, outbound, trust, revoked })
    }

    async fn key(
        &self,
        rt: &Rt,
        place: &KeyPlace,
        password: &Password,
        names: &KeyNames,
    ) -> Result<KeyMaterial, TlsError> {
        let password = self.password(rt, password, names.password_file).await?;
        Ok(match place {
            KeyPlace::Store(path) => {
                KeyMaterial { store: self.file(rt, names.store, path).await?, key: None, password }
            }
            KeyPlace::Files { certificate, keyfile } => KeyMaterial {
                store: self.file(rt, "certificate", certificate).await?,
                key: Some(self.file(rt, "keyfile", keyfile).await?),
                password,
            },
            KeyPlace::Inline(pem) => {
                KeyMaterial { store: self.inline(names.inline, &pem.0), key: None, password }
            }
        })
    }

    fn inline(&self, name: &str, text: &str) -> Source {
        Source { place: format!("\"{}.{name}\"", self.section), bytes: text.as_bytes().to_vec() }
    }

    async fn file(&self, rt: &Rt, name: &str, path: &str) -> Result<Source, TlsError> {
        let place = format!("\"{}.{name}\" {path}", self.section);
        match rt.fs().read(path, SOURCE_BYTES_MAX).await {
            Ok(bytes) => Ok(Source { place, bytes }),
            Err(error) => {
                let remedy = match error.kind {
                    IoErrorKind::NotFound => "create the file or correct the path",
                    IoErrorKind::PermissionDenied => "let the user of the server read it",
                    _ => "name a file of keys or certificates",
                };
                let problem = format!("cannot be read ({})", error.detail);
                Err(TlsError { place, problem, remedy: remedy.to_owned() })
            }
        }
    }

    /// Returns the inline password, or the first line of its file.
    async fn password(
        &self,
        rt: &Rt,
        password: &Password,
        name: &str,
    ) -> Result<Option<String>, TlsError> {
        if let Some(inline) = &password.inline {
            return Ok(Some(inline.0.clone()));
        }
        let Some(path) = &password.file else { return Ok(None) };
        let source = self.file(rt, name, path).await?;
        let text = core::str::from_utf8(&source.bytes).ok();
        let line = text
            .filter(|text| text.len() <= PASSWORD_BYTES_MAX)
            .map(|text| text.lines().next().unwrap_or_default().to_owned());
        line.map(Some).ok_or_else(|| TlsError {
            place: source.place,
            problem: "is not a text of one line".to_owned(),
            remedy: "write the password into its first line".to_owned(),
        })
    }

    /// Protocols and cipher suites by the settings.
    ///
    /// # Errors
    /// A name is unknown, or nothing is left to offer.
    pub(crate) fn offer(&self) -> Result<Offer, TlsError> {
        let options = &self.options;
        Offer::new(&OfferSettings {
            section: self.section,
            protocol: options.protocol.clone(),
            accepted_protocols: options.accepted_protocols.clone(),
            cipher_suites: options.cipher_suites.clone(),
            priority_string: options.priority_string.clone(),
        })
    }

    /// Names obsolete protocols and cipher suites in the log.
    ///
    /// # Errors
    /// Those of [`Reading::offer`].
    pub(crate) fn warn_of_left_out(&self) -> Result<(), TlsError> {
        let section = self.section;
        for name in self.offer()?.left_out {
            tracing::warn!(
                name,
                "a protocol or cipher suite of {section} is not offered: it is obsolete"
            );
        }
        Ok(())
    }
}

impl Sources {
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let outbound = self.outbound.as_ref().map(|key| &key.store);
        let trust = self.trust.as_ref().map(|(source, _)| source);
        let own = [Some(&self.key.store), self.key.key.as_ref(), outbound];
        Fingerprint::of(own.into_iter().chain([trust, self.revoked.as_ref()]).flatten())
    }
}
