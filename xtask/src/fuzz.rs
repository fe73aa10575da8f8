//! Fuzz functions under libFuzzer.
//!
//! A fuzz function is `pub fn fuzz_<name>(data: &[u8])` in module `fuzz` of a crate. The test
//! command runs each over its corpus and mutations; this runs one for longer. The libFuzzer shell
//! is made here, below `target/fuzz`, so there is none to forget; seeds are in
//! `fuzz/corpus/<name>`, inputs that fail in `fuzz/artifacts/<name>`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::layers::members;
use crate::scan;

/// Flags with which cargo-fuzz makes rustc measure coverage.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
     --cfg fuzzing -Clink-dead-code -Cdebug-assertions -Ccodegen-units=1";

struct Target {
    name: String,
    package: String,
    directory: String,
}

fn targets(root: &Path) -> Result<Vec<Target>> {
    let mut found = Vec::new();
    for member in members(root)? {
        let Ok(source) = fs::read_to_string(member.directory.join("src/fuzz.rs")) else {
            continue;
        };
        for line in scan::without_tests(&scan::code(&source)).lines() {
            let Some(rest) = line.trim().strip_prefix("pub fn fuzz_") else {
                continue;
            };
            let name = rest.split('(').next().unwrap_or(rest).to_owned();
            let directory = member.directory.display().to_string();
            found.push(Target { name, package: member.name.clone(), directory });
        }
    }
    Ok(found)
}

/// Prints the names.
pub fn list(root: &Path) -> Result<bool> {
    for target in targets(root)? {
        println!("{:32} {}", target.name, target.package);
    }
    Ok(true)
}

/// Runs one for some seconds; `true` when nothing was found.
pub fn run(root: &Path, name: &str, seconds: u64) -> Result<bool> {
    let targets = targets(root)?;
    let Some(target) = targets.iter().find(|t| t.name == name) else {
        bail!("no fuzz function \"{name}\"; see cargo xtask fuzz --list");
    };
    let shell = root.join("target/fuzz").join(name);
    // Inputs that libFuzzer finds are stored apart from the seeds, which are in the repository.
    let seeds = root.join("fuzz/corpus").join(name);
    let corpus = root.join("target/fuzz/corpus").join(name);
    let artifacts = root.join("fuzz/artifacts").join(name);
    for directory in [&shell.join("src"), &seeds, &corpus, &artifacts] {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    fs::write(
        shell.join("Cargo.toml"),
        format!(
            "[package]\nname = \"fuzz-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nlibfuzzer-sys = \"0.4\"\ntarget = {{ package = \"{}\", path = \"{}\" \
             }}\n\n[workspace]\n",
            target.package, target.directory
        ),
    )?;
    fs::write(
        shell.join("src/main.rs"),
        format!(
            "#![no_main]\nlibfuzzer_sys::fuzz_target!(|data: &[u8]| \
             target::fuzz::fuzz_{name}(data));\n"
        ),
    )?;
    let status = Command::new("cargo")
        .args(["+nightly", "run", "--release", "--manifest-path"])
        .arg(shell.join("Cargo.toml"))
        // With a target named, the flags are not for build scripts and procedural macros.
        .args(["--target", &host()?])
        .arg("--target-dir")
        .arg(root.join("target/fuzz/build"))
        .arg("--")
        .arg(&corpus)
        .arg(&seeds)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .env("RUSTFLAGS", FLAGS)
        // Set by the cargo that runs this; it would choose its own toolchain again.
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .current_dir(&shell)
        .status()
        .context("cannot run cargo +nightly")?;
    Ok(status.success())
}

/// The triple of this machine, as the compiler calls it.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}
