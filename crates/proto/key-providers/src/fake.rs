//! A provider for tests: answers requests of Vault and of KMS as bytes, without keys of its own.
//!
//! A wrapped key is the key mixed with a digest of the named key's name and version, and a check: no encryption.

use std::collections::BTreeMap;

use at_rest::base64;
use cql_functions::json::Json;
use ring::digest::{SHA256, digest};

use crate::reply::{decode, text};
use crate::sigv4::{Credentials, Scope, Signed, authorization};

/// A fault of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It accepts connections and never answers.
    Hangs,
    /// It answers 503.
    Fails,
    /// It answers 403.
    Refuses,
    /// It answers bytes that are no answer.
    Garbles,
    /// It unwraps to another key.
    WrongKey,
}

/// See the module.
pub struct FakeProvider {
    /// The token that Vault expects.
    pub token: String,
    /// The credentials that KMS expects, with their region.
    pub credentials: (Credentials, String),
    /// Named keys with their newest versions.
    pub keys: BTreeMap<String, u32>,
    /// The fault.
    pub fault: Fault,
    /// Requests that were answered with a key.
    pub served: u64,
    made: u64,
}

fn head_and_body(request: &[u8]) -> Option<(&str, &[u8])> {
    let end = request.windows(4).position(|w| w == b"\r\n\r\n")?;
    let (head, body) = request.split_at_checked(end)?;
    let head = std::str::from_utf8(head).ok()?;
    let length: usize = header(head, "content-length")?.parse().ok()?;
    let body = body.get(4..)?;
    (body.len() >= length).then_some((head, body))
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// A key mixed with what is a function of a named key and its version, and a check.
fn mixed(key: &[u8], name: &str, version: u32) -> Vec<u8> {
    let pad = digest(&SHA256, format!("{name}/{version}").as_bytes());
    key.iter().zip(pad.as_ref()).map(|(one, other)| one ^ other).collect()
}

fn wrapped(key: &[u8], name: &str, version: u32) -> Vec<u8> {
    let check = digest(&SHA256, &[key, name.as_bytes()].concat());
    let check = check.as_ref().iter().take(8).copied();
    mixed(key, name, version).into_iter().chain(check).collect()
}

fn unwrapped(envelope: &[u8], name: &str, version: u32) -> Option<Vec<u8>> {
    let key = mixed(envelope.get(..32)?, name, version);
    (wrapped(&key, name, version) == envelope).then_some(key)
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

impl FakeProvider {
    /// A provider with a key `k` of version 1, the token `token` and credentials `id`, `secret` in `region`.
    pub fn new() -> FakeProvider {
        let (id, secret) = ("id".to_owned(), "secret".to_owned());
        FakeProvider {
            token: "token".to_owned(),
            credentials: (Credentials { id, secret, session_token: None }, "region".to_owned()),
            keys: BTreeMap::from([("k".to_owned(), 1)]),
            fault: Fault::None,
            served: 0,
            made: 0,
        }
    }

    /// The answer to a request. `None`: it is not whole, or is never answered.
    pub fn answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let (head, body) = head_and_body(request)?;
        match self.fault {
            Fault::Hangs => return None,
            Fault::Fails => return Some(answer("503 Unavailable", "{\"errors\":[\"sealed\"]}")),
            Fault::Refuses => {
                return Some(answer("403 Forbidden", "{\"errors\":[\"permission denied\"]}"));
            }
            Fault::Garbles => return Some(b"HTTP/1.1 200 OK\r\n\r\n{\"data\":".to_vec()),
            Fault::None | Fault::WrongKey => {}
        }
        let json = decode(body);
        let answered = json.and_then(|json| match header(head, "x-amz-target") {
            Some(target) => self.kms(head, target, body, &json),
            None => self.vault(head, &json),
        });
        match answered {
            Some(body) => {
                self.served = self.served.saturating_add(1);
                Some(answer("200 OK", &body))
            }
            None => {
                let body = "{\"errors\":[\"bad request\"],\"__type\":\"ValidationException\"}";
                Some(answer("400 Bad Request", body))
            }
        }
    }

    fn new_key(&mut self) -> Vec<u8> {
        self.made = self.made.saturating_add(1);
        digest(&SHA256, &self.made.to_le_bytes()).as_ref().to_vec()
    }

    fn given(&self, key: &[u8]) -> String {
        let mut key = key.to_vec();
        if self.fault == Fault::WrongKey {
            key.iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        base64::encode(&key)
    }

    fn vault(&mut self, head: &str, json: &Json) -> Option<String> {
        if header(head, "x-vault-token") != Some(&self.token) {
            return None;
        }
        let path = head.split(' ').nth(1)?.strip_prefix("/v1/transit/")?;
        if let Some(name) = path.strip_prefix("datakey/plaintext/") {
            let (version, key) = (*self.keys.get(name)?, self.new_key());
            let envelope = base64::encode(&wrapped(&key, name, version));
            let plain = self.given(&key);
            return Some(format!(
                "{{\"data\":{{\"plaintext\":\"{plain}\",\"ciphertext\":\"vault:v{version}:{envelope}\"}}}}"
            ));
        }
        let name = path.strip_prefix("decrypt/")?;
        let (version, envelope) =
            text(json, "ciphertext")?.strip_prefix("vault:v")?.split_once(':')?;
        let key = unwrapped(&base64::decode(envelope)?, name, version.parse().ok()?)?;
        Some(format!("{{\"data\":{{\"plaintext\":\"{}\"}}}}", self.given(&key)))
    }

    fn kms(&mut self, head: &str, target: &str, body: &[u8], json: &Json) -> Option<String> {
        let date = header(head, "x-amz-date")?;
        let signed = [
            ("content-type", header(head, "content-type")?),
            ("host", header(head, "host")?),
            ("x-amz-date", date),
            ("x-amz-target", target),
        ];
        let scope = Scope { region: &self.credentials.1, service: "kms", date };
        let parts = Signed { method: "POST", path: "/", headers: &signed, body };
        if header(head, "authorization")? != authorization(&self.credentials.0, &scope, &parts) {
            return None;
        }
        if target == "TrentService.GenerateDataKey" {
            let name = text(json, "KeyId")?;
            let (version, key) = (*self.keys.get(name)?, self.new_key());
            let mut envelope = wrapped(&key, name, version);
            envelope.extend_from_slice(name.as_bytes());
            let (blob, plain) = (base64::encode(&envelope), self.given(&key));
            return Some(format!(
                "{{\"CiphertextBlob\":\"{blob}\",\"Plaintext\":\"{plain}\",\"KeyId\":\"arn:{name}/{version}\"}}"
            ));
        }
        let blob = text(json, "CiphertextBlob").and_then(base64::decode)?;
        let (envelope, name) = blob.split_at_checked(40)?;
        let name = std::str::from_utf8(name).ok()?;
        let newest = *self.keys.get(name)?;
        let key = (1..=newest).find_map(|version| unwrapped(envelope, name, version))?;
        Some(format!("{{\"Plaintext\":\"{}\"}}", self.given(&key)))
    }
}

impl Default for FakeProvider {
    fn default() -> FakeProvider {
        FakeProvider::new()
    }
}
