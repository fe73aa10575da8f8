//! Keys and certificates of the servers, made by `openssl`: RSA with 2048 bits, as Java's `keytool` makes them when it
//! is not asked for anything else.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const PASSWORD: &str = "cassandra";

/// Files of keys and certificates.
pub struct Keys {
    directory: PathBuf,
}

impl Keys {
    /// Makes them below `home`.
    pub fn make(home: &Path) -> Result<Keys> {
        let directory = home.join("security-keys");
        if directory.exists() {
            crate::disk::remove_dir_all(&directory)?;
        }
        crate::disk::create_dir_all(&directory)?;
        let keys = Keys { directory };
        crate::disk::write(
            keys.file("names"),
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=critical,CA:FALSE\n",
        )?;
        for line in [
            "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=Authority -keyout ca.key -out ca.pem",
            "req -newkey rsa:2048 -nodes -subj /CN=node -keyout node.key -out node.csr",
            "x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile names -out node.crt",
            "pkcs12 -export -inkey node.key -in node.crt -certfile ca.pem -out node.p12 -passout pass:cassandra",
        ] {
            let mut command = Command::new("openssl");
            let output = command
                .args(line.split(' '))
                .current_dir(&keys.directory)
                .output()
                .context("openssl")?;
            if !output.status.success() {
                bail!("openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
            }
        }
        Ok(keys)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The authority of the servers' certificates.
    pub fn authority(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// TLS and plain text on one port, for either server.
    pub fn cassandra_settings(&self) -> String {
        format!(
            "client_encryption_options:\n  enabled: true\n  optional: true\n  keystore: {}\n  \
             keystore_password: {PASSWORD}\n  store_type: PKCS12\n",
            self.file("node.p12").display()
        )
    }

    /// The same as a file for Helenus.
    pub fn helenus_settings(&self, home: &Path) -> Result<PathBuf> {
        let path = home.join("security-helenus.yaml");
        crate::disk::write(&path, self.cassandra_settings())?;
        Ok(path)
    }
}
