//! Sections about the cost of security: TLS, storms of handshakes, the audit log, encryption at rest.
//!
//! The load generator is `helenus bench`, for both servers: rows of 160 bytes (five values of 32). Each section
//! measures pairs of runs, without and with the feature, alternating, so that the machine's mood hits both alike; the
//! medians are judged. How a section judges is said at its head, and was fixed before anything was measured.
//!
//! Reading order: `bench`, `keys`; then `tls`, `handshakes`, `audit`, `at_rest`.

pub mod at_rest;
pub mod audit;
mod bench;
pub mod handshakes;
mod keys;
pub mod tls;

use std::path::Path;

use anyhow::Result;

use super::process::{Kind, Server};
use super::settings::Settings;
use super::{cassandra, process};
use keys::Keys;

/// State shared by the sections.
pub struct Bench<'a> {
    /// The repository.
    pub root: &'a Path,
    /// Where everything is written.
    pub home: &'a Path,
    /// The command line.
    pub settings: &'a Settings,
}

impl Bench<'_> {
    /// Starts the servers that are to be compared, with TLS and plain text on one port, and pauses them.
    fn start_with_tls(&self, keys: &Keys) -> Result<Vec<(Kind, Server)>> {
        let yaml = keys.helenus_settings(self.home)?;
        let yaml = yaml.display().to_string();
        let options = ["--config", yaml.as_str()];
        let data = process::helenus_data(self.home);
        if data.exists() {
            crate::disk::remove_dir_all(&data)?;
        }
        let mut servers = vec![(
            Kind::Helenus,
            Server::helenus_with(self.root, self.home, &self.settings.memory, &options)?,
        )];
        if self.settings.cassandra {
            cassandra::install(self.home)?;
            let server = cassandra::start_with(
                self.home,
                &self.settings.memory,
                &keys.cassandra_settings(),
            )?;
            servers.push((Kind::Cassandra, server));
        }
        for (_, server) in &mut servers {
            server.pause()?;
        }
        Ok(servers)
    }

    /// Runs `nodetool` on the server that is alone.
    fn nodetool(&self, kind: Kind, words: &[&str]) -> Result<()> {
        match kind {
            Kind::Cassandra => cassandra::nodetool(self.home, words).map(drop),
            Kind::Helenus | Kind::Null => process::nodetool(self.root, words),
        }
    }
}
