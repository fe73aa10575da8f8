//! Login and TLS of tools at the API of a node.
//!
//! Owns: the options with which a tool logs in ([`ApiOptions`]), the files that they name (password file, token file,
//! key stores, Cassandra's `nodetool-ssl.properties`), what they come to ([`ApiAccess`]). Never: requests.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admin_access::credentials::{Credentials, Secret};
use admin_access::password_file;
use rustls::time_provider::DefaultTimeProvider;
use tls::config::HostNames;
use tls::material::{SOURCE_BYTES_MAX, Source};
use tls::offer::OfferSettings;
use tls::{ClientParts, Identity, KeyMaterial, Offer, Trust, client_config};

use crate::socket::TlsPeer;

/// Longest wait of each read of a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Cassandra's file of Java properties for `--ssl`, below the home directory.
const PROPERTIES_FILE: &str = ".cassandra/nodetool-ssl.properties";
/// Name in the errors of settings.
const SECTION: &str = "--ssl";

/// Options of a tool for its login at the API.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ApiOptions {
    /// Role.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// File of passwords, a line `USER PASSWORD` for each user.
    pub password_file: Option<String>,
    /// File whose first line is a bearer token.
    pub token_file: Option<String>,
    /// Speak TLS.
    pub ssl: bool,
    /// Trusted authorities of the node's certificate: PEM, JKS or PKCS12.
    pub ca: Option<String>,
    /// The tool's certificate with its chain, PEM, or a key store that has the key too.
    pub certificate: Option<String>,
    /// Key of the certificate, PEM.
    pub key: Option<String>,
    /// The node's certificate must name the host.
    pub verifies_host: bool,
    /// Java properties: `name=value`.
    pub properties: Vec<String>,
}

impl fmt::Debug for ApiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiOptions {{ user: {:?}, ssl: {}, .. }}", self.user, self.ssl)
    }
}

/// Login and TLS for requests to the API. The default is neither.
#[derive(Clone, Default)]
pub struct ApiAccess {
    tls: Option<TlsPeer>,
    authorization: Option<String>,
}

impl fmt::Debug for ApiAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_login = self.authorization.is_some();
        write!(f, "ApiAccess {{ tls: {}, login: {has_login} }}", self.tls.is_some())
    }
}

impl ApiAccess {
    /// Configuration of TLS; `None`: in the clear.
    pub fn tls(&self) -> Option<&TlsPeer> {
        self.tls.as_ref()
    }

    /// Value of the header with the login.
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }
}

impl ApiOptions {
    /// Reads the files that the options name. `prompt` asks a person for the password of a user without one; it
    /// returns `None` where there is no terminal.
    ///
    /// # Errors
    /// A file cannot be used, or options exclude each other; a sentence.
    pub fn open(&self, prompt: impl FnOnce() -> Option<String>) -> Result<ApiAccess, String> {
        let authorization = self.credentials(prompt)?.map(|credentials| credentials.header());
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(PROPERTIES_FILE));
        let java = JavaProperties::of(&self.properties, self.ssl.then_some(home).flatten())?;
        // An option of TLS alone asks for it: a password must not be sent in the clear by mistake.
        let names_tls = self.ca.is_some() || self.certificate.is_some() || self.key.is_some();
        let tls = match self.ssl || names_tls || self.verifies_host || java.is_enabled {
            true => Some(self.tls(&java)?),
            false => None,
        };
        Ok(ApiAccess { tls, authorization })
    }

    fn credentials(
        &self,
        prompt: impl FnOnce() -> Option<String>,
    ) -> Result<Option<Credentials>, String> {
        if let Some(path) = &self.token_file {
            if self.user.is_some() {
                return Err("a user name and a token file exclude each other".to_owned());
            }
            let text = text_file("--token-file", path)?;
            let token = text.lines().next().unwrap_or_default().trim().to_owned();
            if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("the first line of {path} is not a token"));
            }
            return Ok(Some(Credentials::Token(Secret(token))));
        }
        // Like Cassandra's tool, which ignores passwords without a user.
        let Some(user) = &self.user else { return Ok(None) };
        let of_file = match (&self.password_file, &self.password) {
            (Some(path), _) => {
                let text = text_file("--password-file", path)?;
                password_file::password_of(&text, user).map(str::to_owned)
            }
            (None, password) => password.clone(),
        };
        let password = of_file.filter(|p| !p.is_empty()).or_else(prompt).unwrap_or_default();
        Ok(Some(Credentials::Password { user: user.clone(), password: Secret(password) }))
    }

    fn tls(&self, java: &JavaProperties) -> Result<TlsPeer, String> {
        let shown = |error: tls::TlsError| error.to_string();
        let trust = self.ca.as_ref().map(|path| ("--ssl-ca", path, None));
        let of_java = java.trust_store.as_ref();
        let of_java = of_java
            .map(|path| ("javax.net.ssl.trustStore", path, java.trust_store_password.as_deref()));
        let Some((name, path, password)) = trust.or(of_java) else {
            return Err(format!(
                "TLS needs the authority of the node's certificate: name it with --ssl-ca, or as \
                 -Djavax.net.ssl.trustStore in ~/{PROPERTIES_FILE}"
            ));
        };
        let trust = Trust::read(&source(name, path)?, password).map_err(shown)?;
        let host_names = if self.verifies_host { HostNames::Compared } else { HostNames::Ignored };
        let config = client_config(ClientParts {
            section: SECTION,
            identity: self.identity(java)?,
            trust,
            host_names,
            revoked: Vec::new(),
            offer: Offer::new(&OfferSettings {
                section: SECTION,
                protocol: None,
                accepted_protocols: Vec::new(),
                cipher_suites: Vec::new(),
                priority_string: None,
            })
            .map_err(shown)?,
            clock: Arc::new(DefaultTimeProvider),
        });
        Ok(TlsPeer { config: config.map_err(shown)?, timeout: HANDSHAKE_MAX })
    }

    /// The tool's certificate and key, if it has one.
    fn identity(&self, java: &JavaProperties) -> Result<Option<Identity>, String> {
        let material = match (&self.certificate, &self.key, &java.key_store) {
            (None, Some(_), _) => return Err("--ssl-key needs --ssl-cert".to_owned()),
            (Some(certificate), key, _) => KeyMaterial {
                store: source("--ssl-cert", certificate)?,
                key: key.as_ref().map(|path| source("--ssl-key", path)).transpose()?,
                password: java.key_store_password.clone(),
            },
            (None, None, Some(store)) => KeyMaterial {
                store: source("javax.net.ssl.keyStore", store)?,
                key: None,
                password: java.key_store_password.clone(),
            },
            (None, None, None) => return Ok(None),
        };
        Identity::read(&material).map(Some).map_err(|error| error.to_string())
    }
}

/// The Java properties of TLS that Cassandra's nodetool reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct JavaProperties {
    is_enabled: bool,
    key_store: Option<String>,
    key_store_password: Option<String>,
    trust_store: Option<String>,
    trust_store_password: Option<String>,
}

impl JavaProperties {
    /// Properties of the file, then of the command line, which win.
    fn of(words: &[String], file: Option<PathBuf>) -> Result<JavaProperties, String> {
        let mut found = JavaProperties::default();
        if let Some(path) = file.filter(|path| path.is_file()) {
            let text = text_file("--ssl", &path.display().to_string())?;
            // Cassandra's script makes arguments of the file's words.
            text.split_whitespace().filter_map(|w| w.strip_prefix("-D")).for_each(|w| found.set(w));
        }
        words.iter().for_each(|word| found.set(word));
        Ok(found)
    }

    /// Others than those of TLS have no effect here.
    fn set(&mut self, property: &str) {
        let (name, value) = property.split_once('=').unwrap_or((property, ""));
        let value = value.to_owned();
        match name {
            "ssl.enable" => self.is_enabled = value.eq_ignore_ascii_case("true"),
            "javax.net.ssl.keyStore" => self.key_store = Some(value),
            "javax.net.ssl.keyStorePassword" => self.key_store_password = Some(value),
            "javax.net.ssl.trustStore" => self.trust_store = Some(value),
            "javax.net.ssl.trustStorePassword" => self.trust_store_password = Some(value),
            _ => {}
        }
    }
}

pub(crate) fn source(name: &str, path: &str) -> Result<Source, String> {
    let bytes = bytes(name, path, SOURCE_BYTES_MAX)?;
    Ok(Source { place: format!("\"{name}\" {path}"), bytes })
}

fn text_file(name: &str, path: &str) -> Result<String, String> {
    let bytes = bytes(name, path, password_file::FILE_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|_| format!("\"{name}\" {path} is not a text file"))
}

fn bytes(name: &str, path: &str, max: usize) -> Result<Vec<u8>, String> {
    let failed = |why: String| format!("\"{name}\" {path} cannot be read: {why}");
    let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if usize::try_from(length).is_ok_and(|length| length > max) {
        return Err(failed(format!("it has more than {max} bytes")));
    }
    std::fs::read(path).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(options: &ApiOptions, typed: Option<&str>) -> Result<Option<Credentials>, String> {
        let access = options.open(|| typed.map(str::to_owned))?;
        Ok(access.authorization().map(|header| Credentials::parse(header).unwrap()))
    }

    fn password(user: &str, password: &str) -> Option<Credentials> {
        let password = Secret(password.to_owned());
        Some(Credentials::Password { user: user.to_owned(), password })
    }

    #[test]
    fn credentials_come_from_options_files_and_the_terminal() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path.display().to_string())
        };
        let ann = ApiOptions { user: Some("ann".to_owned()), ..ApiOptions::default() };
        let given = ApiOptions { password: Some("given".to_owned()), ..ann.clone() };
        assert_eq!(header(&given, Some("typed")), Ok(password("ann", "given")));
        assert_eq!(header(&ann, Some("typed")), Ok(password("ann", "typed")));
        assert_eq!(header(&ann, None), Ok(password("ann", "")));
        let file = path("passwords", "bob other\nann filed\n");
        let filed = ApiOptions { password_file: file.clone(), ..given.clone() };
        assert_eq!(header(&filed, None), Ok(password("ann", "filed")));
        let eve = ApiOptions { user: Some("eve".to_owned()), ..filed.clone() };
        assert_eq!(header(&eve, Some("typed")), Ok(password("eve", "typed")));
        let no_user = ApiOptions { user: None, ..filed };
        assert_eq!(header(&no_user, None), Ok(None));
        let token_file = path("token", "helenus_abc\n# note\n");
        let token = ApiOptions { token_file: token_file.clone(), ..ApiOptions::default() };
        let expected = Credentials::Token(Secret("helenus_abc".to_owned()));
        assert_eq!(header(&token, None), Ok(Some(expected)));
        let both = ApiOptions { token_file, ..ann };
        assert!(header(&both, None).unwrap_err().contains("exclude each other"));
        let empty = ApiOptions { token_file: path("empty", "\n"), ..ApiOptions::default() };
        assert!(header(&empty, None).unwrap_err().contains("is not a token"));
        let missing = ApiOptions { token_file: Some("/nosuch".to_owned()), ..empty };
        assert!(
            header(&missing, None).unwrap_err().contains("\"--token-file\" /nosuch cannot be read")
        );
        assert!(!format!("{given:?}").contains("given"));
    }

    #[test]
    fn java_properties_of_cassandras_file_are_read_and_the_command_line_wins() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nodetool-ssl.properties");
        let text = "-Djavax.net.ssl.keyStore=/k\n-Djavax.net.ssl.keyStorePassword=kp\n\
                    -Djavax.net.ssl.trustStore=/t -Djavax.net.ssl.trustStorePassword=tp\n\
                    -Dcom.sun.management.jmxremote.ssl.need.client.auth=true\n";
        std::fs::write(&file, text).unwrap();
        let words = ["javax.net.ssl.trustStore=/other".to_owned(), "ssl.enable=true".to_owned()];
        let found = JavaProperties::of(&words, Some(file)).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let expected = JavaProperties {
            is_enabled: true,
            key_store: text("/k"),
            key_store_password: text("kp"),
            trust_store: text("/other"),
            trust_store_password: text("tp"),
        };
        assert_eq!(found, expected);
        let missing = JavaProperties::of(&[], Some("/nosuch".into())).unwrap();
        assert_eq!(missing, JavaProperties::default());
    }

    #[test]
    fn tls_needs_an_authority() {
        let error = |options: ApiOptions| options.open(|| None).unwrap_err();
        let ssl = ApiOptions { ssl: true, ca: Some("/nosuch".to_owned()), ..ApiOptions::default() };
        assert!(error(ssl).contains("\"--ssl-ca\" /nosuch cannot be read"));
        let enabled = vec!["ssl.enable=true".to_owned()];
        let of_java = ApiOptions { properties: enabled, ..ApiOptions::default() };
        assert!(error(of_java).contains("--ssl-ca"));
        let implied = ApiOptions { ca: Some("/nosuch".to_owned()), ..ApiOptions::default() };
        assert!(error(implied).contains("\"--ssl-ca\" /nosuch cannot be read"));
        assert!(ApiOptions::default().open(|| None).unwrap().tls().is_none());
    }
}
