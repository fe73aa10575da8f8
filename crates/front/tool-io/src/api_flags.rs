//! Options of tools for their login at the API of a node.

use blocking_client::api::{ApiAccess, ApiOptions};
use clap::Args;

/// Login and TLS at the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Login at the API")]
pub struct ApiFlags {
    /// Role that logs in
    #[arg(long, value_name = "ROLE")]
    username: Option<String>,
    /// Its password
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
    /// File with a line "ROLE PASSWORD"
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// File whose first line is a token
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// Speak TLS
    #[arg(long)]
    ssl: bool,
    /// Authority of the nodes' certificates: PEM, JKS or PKCS12
    #[arg(long, value_name = "FILE")]
    ssl_ca: Option<String>,
    /// Own certificate
    #[arg(long, value_name = "FILE")]
    ssl_cert: Option<String>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    ssl_key: Option<String>,
    /// The certificate must name the host
    #[arg(long)]
    ssl_verify_host: bool,
}

impl ApiFlags {
    /// Role and password on the command line or in the password file.
    pub fn user(&self) -> Option<(String, String)> {
        let user = self.username.clone()?;
        let of_file = self.password_file.as_ref().and_then(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            admin_access::password_file::password_of(&text, &user).map(str::to_owned)
        });
        let password = of_file.or_else(|| self.password.clone())?;
        Some((user, password))
    }

    /// Reads the files that the options name.
    ///
    /// # Errors
    /// A file cannot be used, or a password is missing; a sentence.
    pub fn open(&self) -> Result<ApiAccess, String> {
        let mut is_missing = false;
        let options = ApiOptions {
            user: self.username.clone(),
            password: self.password.clone(),
            password_file: self.password_file.clone(),
            token_file: self.token_file.clone(),
            ssl: self.ssl,
            ca: self.ssl_ca.clone(),
            certificate: self.ssl_cert.clone(),
            key: self.ssl_key.clone(),
            verifies_host: self.ssl_verify_host,
            properties: Vec::new(),
        };
        let access = options.open(|| {
            is_missing = true;
            None
        })?;
        match is_missing {
            false => Ok(access),
            true => Err("--username needs --password or --password-file with its line".to_owned()),
        }
    }
}
