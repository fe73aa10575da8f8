//! `vault_hosts` and `kms_hosts`: services that hold the keys of encryption at rest.
//!
//! Owns: names and forms of the keys, which variables of the environment stand in for them. Never: opens a file,
//! connects to a host.
//! Source: ScyllaDB's documentation, "Encryption at Rest" (`kms_hosts`); `vault_hosts` is ours, in its style.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::encryption::{Secret, UNKNOWN, WrongKey, entries, wrong};
use crate::value::{Range, Refusal, Value};
use crate::yaml::Node;

/// Hosts of one setting at most.
const HOSTS_MAX: usize = 32;
/// ScyllaDB's `key_cache_expiry`.
const EXPIRY: Duration = Duration::from_secs(600);
/// ScyllaDB's `key_cache_refresh`.
const REFRESH: Duration = Duration::from_secs(1200);
const TIMEOUT: Duration = Duration::from_secs(5);

/// A host of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHost {
    /// `endpoint`: `https://name:port`.
    pub endpoint: String,
    /// `master_key`: the key where a map names none.
    pub master_key: Option<String>,
    /// `truststore`: PEM of the authorities of its certificate. Unset: those of the system.
    pub truststore: Option<String>,
    /// `timeout` of one request.
    pub timeout: Duration,
    /// `key_cache_expiry`: how long an unused key stays in memory.
    pub key_cache_expiry: Duration,
    /// `key_cache_refresh`: how often the key in use is checked at the provider.
    pub key_cache_refresh: Duration,
    /// The rest.
    pub login: KeyLogin,
}

/// How a node proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLogin {
    /// An entry of `vault_hosts`.
    Vault(VaultLogin),
    /// An entry of `kms_hosts`.
    Kms(KmsLogin),
}

/// Keys of an entry of `vault_hosts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaultLogin {
    /// `token`. Unset, and no `token_file`: VAULT_TOKEN of the environment.
    pub token: Option<Secret>,
    /// `token_file`, read before each request.
    pub token_file: Option<String>,
    /// `namespace`.
    pub namespace: Option<String>,
    /// `mount` of the transit engine. Unset: `transit`.
    pub mount: Option<String>,
}

/// Keys of an entry of `kms_hosts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KmsLogin {
    /// `aws_region`.
    pub region: String,
    /// `aws_access_key_id`. Unset: `aws_credentials_file`, then AWS_ACCESS_KEY_ID of the environment.
    pub access_key_id: Option<String>,
    /// `aws_secret_access_key`.
    pub secret_access_key: Option<Secret>,
    /// `aws_session_token`.
    pub session_token: Option<Secret>,
    /// `aws_credentials_file`, read before each request.
    pub credentials_file: Option<String>,
    /// `aws_profile` in that file. Unset: `default`.
    pub profile: Option<String>,
}

/// `vault_hosts`: name to host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaultHosts(pub BTreeMap<String, KeyHost>);

/// `kms_hosts`: name to host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KmsHosts(pub BTreeMap<String, KeyHost>);

impl KeyHost {
    fn new(login: KeyLogin) -> KeyHost {
        KeyHost {
            endpoint: String::new(),
            master_key: None,
            truststore: None,
            timeout: TIMEOUT,
            key_cache_expiry: EXPIRY,
            key_cache_refresh: REFRESH,
            login,
        }
    }

    fn set(&mut self, key: &str, value: &Node) -> Result<(), &'static str> {
        let text =
            value.text().map(str::trim).filter(|text| !text.is_empty()).ok_or("one value")?;
        let owned = || Some(text.to_owned());
        let duration = |min, max| {
            let range = Range { min, max };
            Duration::read(value, range).map_err(|_| "a duration such as 5s, within its bounds")
        };
        match (key, &mut self.login) {
            ("endpoint", _) => {
                self.endpoint = endpoint(text).ok_or("http://NAME:PORT or https://NAME:PORT")?
            }
            ("master_key" | "key_name", _) => self.master_key = owned(),
            ("truststore", _) => self.truststore = owned(),
            ("timeout", _) => self.timeout = duration(100, 60_000)?,
            ("key_cache_expiry", _) => self.key_cache_expiry = duration(1000, DAY_MILLIS)?,
            ("key_cache_refresh", _) => self.key_cache_refresh = duration(1000, DAY_MILLIS)?,
            (_, KeyLogin::Vault(login)) => login.set(key, text)?,
            (_, KeyLogin::Kms(login)) => login.set(key, text)?,
        }
        Ok(())
    }

    /// Completes what may be left out, and checks that it can be used.
    fn finish(&mut self) -> Result<(), &'static str> {
        if let KeyLogin::Kms(login) = &mut self.login {
            if login.region.is_empty() {
                return Err("a host with aws_region");
            }
            if login.access_key_id.is_some() != login.secret_access_key.is_some() {
                return Err(
                    "a host with both or none of aws_access_key_id and aws_secret_access_key",
                );
            }
            if self.endpoint.is_empty() {
                self.endpoint = format!("https://kms.{}.amazonaws.com:443", login.region);
            }
        }
        match self.endpoint.is_empty() {
            true => Err("a host with endpoint"),
            false => Ok(()),
        }
    }

    fn render(&self) -> String {
        let mut parts = vec![format!("endpoint: '{}'", self.endpoint)];
        let mut put = |key: &str, value: Option<&str>| {
            value.into_iter().for_each(|value| parts.push(format!("{key}: '{value}'")));
        };
        put("master_key", self.master_key.as_deref());
        put("truststore", self.truststore.as_deref());
        for (key, value, default) in [
            ("timeout", self.timeout, TIMEOUT),
            ("key_cache_expiry", self.key_cache_expiry, EXPIRY),
            ("key_cache_refresh", self.key_cache_refresh, REFRESH),
        ] {
            put(key, (value != default).then(|| value.render()).as_deref());
        }
        let masked = |secret: &Option<Secret>| secret.as_ref().map(|_| "***");
        match &self.login {
            KeyLogin::Vault(login) => {
                put("token", masked(&login.token));
                put("token_file", login.token_file.as_deref());
                put("namespace", login.namespace.as_deref());
                put("mount", login.mount.as_deref());
            }
            KeyLogin::Kms(login) => {
                put("aws_region", Some(&login.region));
                put("aws_access_key_id", login.access_key_id.as_deref());
                put("aws_secret_access_key", masked(&login.secret_access_key));
                put("aws_session_token", masked(&login.session_token));
                put("aws_credentials_file", login.credentials_file.as_deref());
                put("aws_profile", login.profile.as_deref());
            }
        }
        format!("{{{}}}", parts.join(", "))
    }
}

const DAY_MILLIS: i64 = 86_400_000;

/// The normal form of an endpoint, with its port. `None`: it is none.
fn endpoint(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let port = match scheme {
        "https" => "443",
        "http" => "80",
        _ => return None,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (rest, port),
    };
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    let is_whole =
        !name.is_empty() && name.bytes().all(is_name) && port.parse::<u16>().is_ok_and(|p| p > 0);
    is_whole.then(|| format!("{scheme}://{name}:{port}"))
}

impl VaultLogin {
    fn set(&mut self, key: &str, text: &str) -> Result<(), &'static str> {
        // Ends up in a header or a path.
        let plain = || {
            let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._/".contains(&b));
            is_plain.then(|| Some(text.to_owned())).ok_or("letters, digits, '-', '.', '_' and '/'")
        };
        match key {
            "token" => self.token = Some(Secret(header(text)?)),
            "token_file" => self.token_file = Some(text.to_owned()),
            "namespace" => self.namespace = plain()?,
            "mount" => self.mount = plain()?,
            _ => return Err(UNKNOWN),
        }
        Ok(())
    }
}

impl KmsLogin {
    fn set(&mut self, key: &str, text: &str) -> Result<(), &'static str> {
        match key {
            "aws_region" | "region" => {
                let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
                self.region =
                    text.bytes().all(is_name).then(|| text.to_owned()).ok_or("a region")?;
            }
            "aws_access_key_id" => self.access_key_id = Some(header(text)?),
            "aws_secret_access_key" => self.secret_access_key = Some(Secret(header(text)?)),
            "aws_session_token" => self.session_token = Some(Secret(header(text)?)),
            "aws_credentials_file" => self.credentials_file = Some(text.to_owned()),
            "aws_profile" => self.profile = Some(text.to_owned()),
            "aws_use_ec2_credentials" if text == "false" => {}
            "aws_use_ec2_credentials" | "aws_assume_role_arn" => return Err(ROLES),
            _ => return Err(UNKNOWN),
        }
        Ok(())
    }
}

const ROLES: &str = "to be left out: credentials of an instance and assumed roles are not supported; write credentials \
     to aws_credentials_file";

/// A text that may stand in a header.
fn header(text: &str) -> Result<String, &'static str> {
    let is_one = text.bytes().all(|b| b.is_ascii_graphic());
    is_one.then(|| text.to_owned()).ok_or("one word of printable ASCII")
}

fn parse(node: &Node, login: &KeyLogin) -> Result<BTreeMap<String, KeyHost>, Vec<WrongKey>> {
    let (mut hosts, mut errors) = (BTreeMap::new(), Vec::new());
    for entry in entries(node, "a map of names to hosts")? {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        let name = entry.key.clone();
        if name.is_empty()
            || name.len() > 64
            || !name.bytes().all(is_name)
            || hosts.len() == HOSTS_MAX
        {
            let expected =
                "at most 32 hosts whose names have 1 to 64 letters, digits, '-', '_' and '.'";
            errors.push(wrong(&name, expected, &entry.value));
            continue;
        }
        let mut host = KeyHost::new(login.clone());
        let before = errors.len();
        for field in entries(&entry.value, "a map with the key endpoint")? {
            if let Err(expected) = host.set(&field.key, &field.value) {
                errors.push(wrong(&format!("{name}.{}", field.key), expected, &field.value));
            }
        }
        if errors.len() == before
            && let Err(expected) = host.finish()
        {
            errors.push(wrong(&name, expected, &entry.value));
        }
        hosts.insert(name, host);
    }
    if errors.is_empty() { Ok(hosts) } else { Err(errors) }
}

fn render(hosts: &BTreeMap<String, KeyHost>) -> String {
    if hosts.is_empty() {
        return String::new();
    }
    let hosts: Vec<String> =
        hosts.iter().map(|(name, host)| format!("{name}: {}", host.render())).collect();
    format!("{{{}}}", hosts.join(", "))
}

impl VaultHosts {
    /// Reads a map, or its text.
    ///
    /// # Errors
    /// Every wrong key.
    pub fn parse(node: &Node) -> Result<VaultHosts, Vec<WrongKey>> {
        parse(node, &KeyLogin::Vault(VaultLogin::default())).map(VaultHosts)
    }

    /// Fills in what the environment has: the token.
    pub fn complete(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for host in self.0.values_mut() {
            if let KeyLogin::Vault(login) = &mut host.login
                && login.token.is_none()
                && login.token_file.is_none()
            {
                login.token =
                    variable("VAULT_TOKEN").and_then(|token| header(&token).ok()).map(Secret);
            }
        }
    }
}

impl KmsHosts {
    /// Reads a map, or its text.
    ///
    /// # Errors
    /// Every wrong key.
    pub fn parse(node: &Node) -> Result<KmsHosts, Vec<WrongKey>> {
        parse(node, &KeyLogin::Kms(KmsLogin::default())).map(KmsHosts)
    }

    /// Fills in what the environment has: the credentials.
    pub fn complete(&mut self, variable: impl Fn(&str) -> Option<String>) {
        let word = |name: &str| variable(name).and_then(|text| header(&text).ok());
        for host in self.0.values_mut() {
            if let KeyLogin::Kms(login) = &mut host.login
                && login.access_key_id.is_none()
                && login.credentials_file.is_none()
            {
                login.access_key_id = word("AWS_ACCESS_KEY_ID");
                login.secret_access_key = word("AWS_SECRET_ACCESS_KEY").map(Secret);
                login.session_token = word("AWS_SESSION_TOKEN").map(Secret);
                login.credentials_file = word("AWS_SHARED_CREDENTIALS_FILE");
            }
        }
    }
}

impl Value for VaultHosts {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        VaultHosts::parse(node).map_err(|_| Refusal::Form)
    }

    fn form() -> String {
        "a map of names to hosts, each a map of keys".into()
    }

    fn render(&self) -> String {
        render(&self.0)
    }
}

impl Value for KmsHosts {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        KmsHosts::parse(node).map_err(|_| Refusal::Form)
    }

    fn form() -> String {
        VaultHosts::form()
    }

    fn render(&self) -> String {
        render(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn vault(text: &str) -> Result<VaultHosts, String> {
        VaultHosts::parse(&yaml::parse(text).unwrap()).map_err(|wrong| wrong[0].expected.clone())
    }

    fn kms(text: &str) -> Result<KmsHosts, String> {
        KmsHosts::parse(&yaml::parse(text).unwrap()).map_err(|wrong| wrong[0].expected.clone())
    }

    #[test]
    fn hosts_are_read_secrets_are_masked_and_the_environment_stands_in() {
        let text = "{a: {endpoint: 'https://vault:8200/', token: s3cret, namespace: ns/x, key_cache_refresh: 60s, \
                    master_key: k}, b: {endpoint: 'http://[::1]'}}";
        let mut hosts = vault(text).unwrap();
        assert_eq!(hosts.0["a"].endpoint, "https://vault:8200");
        assert_eq!(hosts.0["b"].endpoint, "http://[::1]:80");
        let shown = hosts.render();
        assert!(!shown.contains("s3cret") && shown.contains("token: '***'"), "{shown}");
        assert!(!format!("{hosts:?}").contains("s3cret"));
        hosts.complete(|name| (name == "VAULT_TOKEN").then(|| "of-env".to_owned()));
        let token = |name: &str| match &hosts.0[name].login {
            KeyLogin::Vault(login) => login.token.clone().unwrap().0,
            KeyLogin::Kms(_) => String::new(),
        };
        assert_eq!((token("a"), token("b")), ("s3cret".to_owned(), "of-env".to_owned()));
        let mut hosts =
            kms("{aws: {aws_region: us-east-1, aws_use_ec2_credentials: false}}").unwrap();
        assert_eq!(hosts.0["aws"].endpoint, "https://kms.us-east-1.amazonaws.com:443");
        hosts.complete(|name| Some(name.to_lowercase()));
        let KeyLogin::Kms(login) = &hosts.0["aws"].login else { panic!() };
        assert_eq!(login.access_key_id.as_deref(), Some("aws_access_key_id"));
    }

    #[test]
    fn what_is_unknown_incomplete_or_unsafe_is_refused_by_name() {
        for (text, expected) in [
            ("{a: {endpoint: 'ftp://x'}}", "http://NAME:PORT"),
            ("{a: {endpoint: 'https://x/y'}}", "http://NAME:PORT"),
            ("{a: {endpoint: 'https://x:0'}}", "http://NAME:PORT"),
            ("{a: {token: x}}", "a host with endpoint"),
            ("{a: {endpoint: x, token: 'a b'}}", "one word"),
            ("{a: {endpoint: x, mount: 'a?b'}}", "letters"),
            ("{a: {endpoint: x, timeout: 1ms}}", "a duration"),
            ("{a: {endpoint: x, tokens: x}}", "to be a known key"),
            ("{'a b': {endpoint: x}}", "at most 32 hosts"),
            ("x", "a map of names to hosts"),
        ] {
            let error = vault(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("{a: {endpoint: x}}", "a host with aws_region"),
            ("{a: {aws_region: 'a/b'}}", "a region"),
            ("{a: {aws_region: a, aws_access_key_id: x}}", "both or none"),
            ("{a: {aws_region: a, aws_use_ec2_credentials: true}}", "credentials of an instance"),
            ("{a: {aws_region: a, aws_assume_role_arn: x}}", "assumed roles"),
            ("{a: {aws_region: a, token: x}}", "to be a known key"),
        ] {
            let error = kms(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
