//! Command lines: the server's settings, its program, its tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, Ports};

/// Names the server's program.
const BINARY: &str = "HELENUS_BIN";

/// Settings that this crate chooses, and what to use instead.
const CHOSEN: [(&str, &str); 3] =
    [("workdir", "; use directory()"), ("rpc_address", ""), ("api_address", "")];

/// Settings of a node for tests; those of the caller come behind them and win.
const DEFAULTS: [(&str, &str); 3] =
    [("smp", "1"), ("memory", "256MiB"), ("auto_snapshot", "false")];

/// Free KiB that a directory in memory must have. The node refuses writes below 50 MiB.
const ROOM_KIB: u64 = 512 << 10;

/// The directory in memory of Linux.
const MEMORY_DIRECTORY: &str = "/dev/shm";

/// Refuses settings that would contradict this crate's.
pub(crate) fn check(settings: &[(String, String)]) -> Result<(), Error> {
    for (name, value) in settings {
        if let Some((_, instead)) = CHOSEN.iter().find(|(chosen, _)| chosen == name) {
            return Err(Error::Setting(format!("the setting {name} is chosen by Node{instead}")));
        }
        if name == "log_level" && (value == "warn" || value == "error") {
            let text = "log_level: the start is recognised by a line of the level info";
            return Err(Error::Setting(text.to_owned()));
        }
    }
    Ok(())
}

/// Returns the server's options for settings.
pub(crate) fn settings(settings: &[(String, String)], ports: Ports) -> Vec<String> {
    let ports = [
        ("native_transport_port", ports.cql),
        ("native_shard_aware_transport_port", ports.shard_aware),
        ("api_port", ports.api),
    ];
    let is_given = |name: &str| settings.iter().any(|(given, _)| given == name);
    let is_port = |name: &str| ports.iter().any(|(port, _)| *port == name);
    let chosen = ports.iter().map(|(name, port)| option(name, &port.to_string()));
    let defaults = DEFAULTS.iter().filter(|(name, _)| !is_given(name));
    let defaults = defaults.map(|(name, value)| option(name, value));
    let given = settings.iter().filter(|(name, _)| !is_port(name));
    chosen.chain(defaults).chain(given.map(|(name, value)| option(name, value))).collect()
}

fn option(name: &str, value: &str) -> String {
    format!("--{}={value}", name.replace('_', "-"))
}

/// Returns the server's program: the given one, that of `HELENUS_BIN`, or the first on the `PATH`.
pub(crate) fn binary(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    if let Some(path) = std::env::var_os(BINARY).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|directory| directory.join("helenus"));
    programs.find(|program| program.is_file()).ok_or_else(|| {
        Error::NoServer(format!("no server: {BINARY} is not set and no helenus is on the PATH"))
    })
}

/// Removes the settings of a server that runs here otherwise.
pub(crate) fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HELENUS_") {
            command.env_remove(name);
        }
    }
}

/// Runs a tool of the server's program; returns what it prints.
pub(crate) fn tool(binary: &Path, tool: &'static str, arguments: &[&str]) -> Result<String, Error> {
    let mut command = Command::new(binary);
    command.arg(tool).args(arguments).stdin(Stdio::null());
    forget_settings(&mut command);
    let output = command.output().map_err(|e| Error::io("run", binary, e))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let complaints = text(&output.stderr);
    let printed = if complaints.trim().is_empty() { text(&output.stdout) } else { complaints };
    Err(Error::Tool { tool, code: output.status.code(), printed: printed.trim().to_owned() })
}

/// Returns the directory for the data of tests: in memory if there is room.
pub(crate) fn base() -> PathBuf {
    // Without unsafe code and packages there is no other way to the free space.
    let df = Command::new("df").args(["-Pk", MEMORY_DIRECTORY]).stderr(Stdio::null()).output();
    let room = df.ok().and_then(|output| free_kib(&String::from_utf8_lossy(&output.stdout)));
    if room.is_some_and(|kib| kib >= ROOM_KIB) {
        return PathBuf::from(MEMORY_DIRECTORY);
    }
    std::env::temp_dir()
}

/// Returns the free space that `df -Pk` prints: the fourth word of its second line.
fn free_kib(printed: &str) -> Option<u64> {
    printed.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { cql: 1, shard_aware: 2, api: 3 };

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn settings_of_the_caller_replace_defaults_and_ports() {
        assert_eq!(
            settings(&pairs(&[("memory", "1GiB"), ("cluster_name", "a b")]), PORTS),
            [
                "--native-transport-port=1",
                "--native-shard-aware-transport-port=2",
                "--api-port=3",
                "--smp=1",
                "--auto-snapshot=false",
                "--memory=1GiB",
                "--cluster-name=a b",
            ]
        );
        let given = pairs(&[("native_transport_port", "9"), ("api_port", "8")]);
        let ports = PORTS.chosen(&given).unwrap();
        assert_eq!(ports, Ports { cql: 9, shard_aware: 2, api: 8 });
        assert_eq!(settings(&given, ports).iter().filter(|o| o.contains("port=")).count(), 3);
        assert!(PORTS.chosen(&pairs(&[("api_port", "65536")])).is_err());
    }

    #[test]
    fn settings_that_are_chosen_here_are_refused() {
        for (name, _) in CHOSEN {
            assert!(check(&pairs(&[(name, "x")])).is_err(), "{name}");
        }
        assert!(check(&pairs(&[("log_level", "warn")])).is_err());
        assert!(check(&pairs(&[("log_level", "debug"), ("smp", "2")])).is_ok());
    }

    #[test]
    fn free_space_is_read_from_df() {
        let printed = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                       tmpfs 65536 12 65524 1% /dev/shm\n";
        assert_eq!(free_kib(printed), Some(65_524));
        assert_eq!(free_kib(""), None);
    }
}
