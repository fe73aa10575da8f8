//! The common part of all providers: a request, an answer, a login.

use at_rest::{KeyAsk, Secret};
use conf::key_hosts::{KeyHost, KeyLogin};
use stdx::WallMicros;

use crate::sigv4::Credentials;
use crate::{kms, vault};

/// Longest text of a provider that an error repeats, characters.
const TEXT_MAX: usize = 200;

/// A POST request to a provider.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Path.
    pub path: String,
    /// Content type of the body.
    pub content_type: &'static str,
    /// Headers beside `Host`, `Content-Type`, `Content-Length`.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: String,
}

/// The proof of who this node is.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// A token of Vault.
    Token(String),
    /// Credentials of AWS.
    Aws(Credentials),
}

/// A key that a provider made or unwrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The key.
    pub secret: Secret,
    /// The key wrapped by the provider.
    pub envelope: Vec<u8>,
    /// Version of the named key; 0: the provider has none.
    pub version: u32,
    /// The provider's own name of the named key, where it says one: an alias may come to mean another key.
    pub resolved: String,
}

/// Why a provider gave no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// It cannot be reached, is overloaded or has failed: another try may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// It refuses: another try would be refused too until an operator changes something.
    #[error("{0}")]
    Refused(String),
}

impl ProviderError {
    /// Returns true if another try may succeed at once.
    pub fn is_temporary(&self) -> bool {
        matches!(self, ProviderError::Unavailable(_))
    }
}

/// A text of a provider as an error repeats it: one line, and not long.
pub(crate) fn shown(text: &str) -> String {
    let is_plain = |c: &char| !c.is_control();
    text.chars().filter(is_plain).take(TEXT_MAX).collect()
}

/// The value of `Host` of requests to an endpoint: without the port that its scheme has anyway.
pub fn authority(endpoint: &str) -> &str {
    match endpoint.split_once("://") {
        Some(("https", host)) => host.strip_suffix(":443").unwrap_or(host),
        Some((_, host)) => host.strip_suffix(":80").unwrap_or(host),
        None => endpoint,
    }
}

/// The file with the login of a host; it is read before each request.
pub fn login_file(host: &KeyHost) -> Option<&str> {
    match &host.login {
        KeyLogin::Vault(login) if login.token.is_none() => login.token_file.as_deref(),
        KeyLogin::Kms(login) if login.access_key_id.is_none() => login.credentials_file.as_deref(),
        _ => None,
    }
}

/// The login at a host, with the content of its [`login_file`].
///
/// # Errors
/// There is none, or the file has none.
pub fn login(host: &KeyHost, file: Option<&str>) -> Result<Login, ProviderError> {
    let refused = |what: &str| Err(ProviderError::Refused(what.to_owned()));
    match &host.login {
        KeyLogin::Vault(login) => {
            let of_file =
                file.map(str::trim).filter(|text| text.bytes().all(|b| b.is_ascii_graphic()));
            match login.token.as_ref().map(|token| token.0.as_str()).or(of_file) {
                Some(token) if !token.is_empty() => Ok(Login::Token(token.to_owned())),
                _ => refused("no token: set token, token_file, or VAULT_TOKEN in the environment"),
            }
        }
        KeyLogin::Kms(login) => {
            if let (Some(id), Some(secret)) = (&login.access_key_id, &login.secret_access_key) {
                return Ok(Login::Aws(Credentials {
                    id: id.clone(),
                    secret: secret.0.clone(),
                    session_token: login.session_token.as_ref().map(|token| token.0.clone()),
                }));
            }
            let profile = login.profile.as_deref().unwrap_or("default");
            match file.map(|text| Credentials::of_file(text, profile)) {
                Some(Some(credentials)) => Ok(Login::Aws(credentials)),
                Some(None) => refused(&format!(
                    "aws_credentials_file has no credentials of profile {profile}"
                )),
                None => refused(
                    "no credentials: set aws_access_key_id and aws_secret_access_key, aws_credentials_file, or \
                     AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
                ),
            }
        }
    }
}

/// The request for a key.
///
/// # Errors
/// The login is of another kind of provider, or what was wrapped is not text.
pub fn request(
    host: &KeyHost,
    login: &Login,
    ask: &KeyAsk,
    wall: WallMicros,
) -> Result<HttpRequest, ProviderError> {
    match (&host.login, login) {
        (KeyLogin::Vault(of), Login::Token(token)) => vault::request(of, token, ask),
        (KeyLogin::Kms(of), Login::Aws(credentials)) => {
            Ok(kms::request(&host.endpoint, &of.region, credentials, ask, wall))
        }
        _ => Err(ProviderError::Refused("the login is of another provider".to_owned())),
    }
}

/// The key in an answer.
///
/// # Errors
/// The provider refuses or has failed, or the answer is not one of such a provider.
pub fn parse(
    host: &KeyHost,
    ask: &KeyAsk,
    status: u16,
    body: &[u8],
) -> Result<Made, ProviderError> {
    match &host.login {
        KeyLogin::Vault(_) => vault::parse(ask, status, body),
        KeyLogin::Kms(_) => kms::parse(ask, status, body),
    }
}
