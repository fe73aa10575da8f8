//! Logins and TLS of the API: `api_login`, `api_tokens_file`, `api_encryption_options`.
//!
//! Owns: reading what they name at the start, before anything is changed, and following it while the node runs.
//! Never: decides about a request (`admin`).

mod audited;
mod keys;
pub(crate) mod logins;
mod tokens;

use std::rc::Rc;
use std::sync::Arc;

use admin::{AccessParts, AdminAccess, ApiEncryption, LoginPolicy};
use audit::AuditMesh;
use conf::{ApiLogin, Options};
use rt::{Gate, Rt};
use tls::TlsError;

use crate::encryption::follow::KeyFollower;
use audited::Audited;
use keys::ApiKeys;
use tokens::{TokenFile, TokenFollower};

/// Keys and tokens that the settings name.
pub(crate) struct ApiAccess {
    keys: Option<ApiKeys>,
    tokens: Option<TokenFile>,
}

/// Reads keys and tokens.
///
/// # Errors
/// A file or a setting cannot be used.
pub(crate) async fn load(rt: &Rt, options: &Options) -> Result<ApiAccess, TlsError> {
    let keys = keys::load(rt, &options.api_encryption_options).await?;
    let tokens = match &options.api_tokens_file {
        Some(path) => Some(tokens::load(rt, path).await?),
        None => None,
    };
    if let Some(warning) = warning(options, keys.is_some()) {
        tracing::warn!("{warning}");
    }
    Ok(ApiAccess { keys, tokens })
}

/// A weakness of the settings that the operator should know.
fn warning(options: &Options, is_encrypted: bool) -> Option<&'static str> {
    if options.api_address.is_loopback() {
        return None;
    }
    match options.api_login {
        Some(ApiLogin::None) => Some(
            "clients of other machines need no login at the API (\"api_login\" is none): every client that reaches it can stop \
             this node",
        ),
        Some(ApiLogin::Remote | ApiLogin::Required) if !is_encrypted => Some(
            "passwords and tokens for the API are readable on the network: set \"api_encryption_options\"",
        ),
        _ => None,
    }
}

impl ApiAccess {
    /// Settings of logins for the server.
    pub(crate) fn parts(&self, options: &Options, audit: &AuditMesh) -> AccessParts {
        AccessParts {
            login: match options.api_login {
                None | Some(ApiLogin::None) => LoginPolicy::Nobody,
                Some(ApiLogin::Remote) => LoginPolicy::Remote,
                Some(ApiLogin::Required) => LoginPolicy::Everybody,
            },
            tokens: self.tokens.as_ref().map(|file| file.tokens.clone()).unwrap_or_default(),
            actions: Some(Arc::new(Audited::new(audit))),
            ..AccessParts::open()
        }
    }

    /// TLS for the server.
    pub(crate) fn encryption(&self) -> Option<ApiEncryption> {
        self.keys.as_ref().map(ApiKeys::encryption)
    }

    /// Follows the files until the gate closes.
    pub(crate) fn install(self, rt: &Rt, gate: &Gate, server: &AdminAccess) -> ApiFollowers {
        let of_tokens = server.clone();
        let put_to_use = Box::new(move |tokens| of_tokens.set_tokens(tokens));
        ApiFollowers {
            keys: self.keys.map(|keys| keys.install(rt, gate, server.clone())),
            tokens: self.tokens.map(|file| TokenFollower::begin(rt, gate, file, put_to_use)),
        }
    }
}

/// Followers of the files.
pub(crate) struct ApiFollowers {
    keys: Option<Rc<KeyFollower>>,
    tokens: Option<Rc<TokenFollower>>,
}

impl ApiFollowers {
    /// Reads all files again; returns what failed.
    pub(crate) async fn reload(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if let Some(keys) = &self.keys {
            failures.extend(keys.reload().await.err().map(|error| error.to_string()));
        }
        if let Some(tokens) = &self.tokens {
            failures.extend(tokens.reload().await.err().map(|error| error.to_string()));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf::Address;

    #[test]
    fn settings_without_protection_are_warned_of() {
        let of = |address: [u8; 4], login, is_encrypted| {
            let api_address = Address::Ip(address.into());
            let options = Options { api_address, api_login: login, ..Options::default() };
            warning(&options, is_encrypted)
                .map(|text| text.contains("needs no login") || text.contains("need no login"))
        };
        let (here, elsewhere) = ([127, 0, 0, 1], [10, 0, 0, 1]);
        assert_eq!(of(here, None, false), None);
        assert_eq!(of(here, Some(ApiLogin::Required), false), None);
        assert_eq!(of(elsewhere, Some(ApiLogin::None), true), Some(true));
        assert_eq!(of(elsewhere, Some(ApiLogin::Required), false), Some(false));
        assert_eq!(of(elsewhere, Some(ApiLogin::Required), true), None);
    }
}
