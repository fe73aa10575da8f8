//! The build profiles of what is measured.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A profile of `Cargo.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Run by the tests.
    Dev,
    /// Run from a checkout: built in minutes.
    Release,
    /// Shipped and quoted: optimised over all crates.
    Dist,
}

impl Profile {
    /// Name in cargo, in the stored figures and in the options of this tool.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Dev => "dev",
            Profile::Release => "release",
            Profile::Dist => "dist",
        }
    }

    /// Adds the option that selects this profile to a cargo command.
    pub fn select(self, cargo: &mut Command) {
        if self != Profile::Dev {
            cargo.args(["--profile", self.name()]);
        }
    }

    /// Path of a program that was built with this profile in the workspace below `root`.
    pub fn program(self, root: &Path, name: &str) -> PathBuf {
        let directory = if self == Profile::Dev { "debug" } else { self.name() };
        root.join("target").join(directory).join(name)
    }
}
