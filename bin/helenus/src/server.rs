//! `helenus server`: settings from all layers, the log, signals, and a node.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use conf::{Address, CommandLine, Loaded, MemorySize, Options, Setting, Sources, Status};
use node::{Node, Program, SeedSource, StartError};
use rt::{IoBackend, Machine, NativeOptions};

use crate::audit_helper::MachineHelper;
use crate::logging::{self, Levels};
use crate::reload::Reloader;
use crate::signals::Signals;
use crate::{exit, resources};

/// Variable that names the configuration file when `--config` does not.
const CONFIG_VARIABLE: &str = "HELENUS_CONFIG";

/// Runs a node until it ends; the exit code.
pub fn main(arguments: Vec<String>) -> u8 {
    let command_line = match CommandLine::parse(arguments) {
        Ok(line) => line,
        Err(errors) => return usage(&errors.to_string()),
    };
    if command_line.help {
        say_line!("Run a node in the foreground until it is stopped\n\n{}", help());
        return exit::OK;
    }
    let layers = Layers(command_line.clone());
    let loaded = match load(command_line) {
        Ok(loaded) => loaded,
        Err(message) => return usage(&message),
    };
    let Loaded { mut options, warnings, .. } = loaded;
    if let Err(message) = resolve_addresses(&mut options) {
        return usage(&message);
    }
    let levels = match logging::start(options.log_level, options.log_format) {
        Ok(levels) => levels,
        Err(message) => return usage(&message),
    };
    fill_from_machine(&mut options);
    raise_open_files();
    announce(&options);
    for line in conf::summarize(&warnings) {
        tracing::warn!("{line}");
    }
    run(options, layers, Arc::new(levels))
}

/// The layers of the configuration, to be read again as this program read them at its start.
#[derive(Clone)]
pub struct Layers(CommandLine);

impl Layers {
    /// Returns the settings of the present configuration. Blocks while host names are resolved.
    ///
    /// # Errors
    /// The configuration cannot be read, or a name has no address; in words.
    pub fn read(&self) -> Result<Options, String> {
        let mut options = load(self.0.clone())?.options;
        resolve_addresses(&mut options)?;
        fill_from_machine(&mut options);
        Ok(options)
    }
}

impl SeedSource for Layers {
    fn read(&self) -> Result<Vec<String>, String> {
        let seeds = load(self.0.clone())?.options.seeds;
        seeds.iter().map(|seed| resolved_seed(seed)).collect()
    }
}

fn usage(message: &str) -> u8 {
    for line in message.lines() {
        complain_line!("helenus server: {line}");
    }
    complain_line!("see \"helenus server --help\"");
    exit::USAGE
}

fn load(command_line: CommandLine) -> Result<Loaded, String> {
    let from_environment = std::env::var(CONFIG_VARIABLE).ok().filter(|path| !path.is_empty());
    let file = match command_line.config_file.clone().or(from_environment) {
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("cannot read configuration file \"{path}\": {error}"))?;
            Some((path, text))
        }
        None => None,
    };
    let mut environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    // The process's own order is arbitrary; messages should not be.
    environment.sort();
    let loaded = conf::load(&Sources { file, environment, command_line });
    let mut loaded = loaded.map_err(|errors| errors.to_string())?;
    let variable = |name: &str| std::env::var(name).ok();
    loaded.options.vault_hosts.complete(variable);
    loaded.options.kms_hosts.complete(variable);
    Ok(loaded)
}

/// Returns the data directories of the node with the settings of the environment and of a file, if
/// one is named.
pub fn data_directories(config_file: Option<String>) -> Result<Vec<String>, String> {
    let mut command_line = CommandLine::default();
    command_line.config_file = config_file;
    Ok(load(command_line)?.options.data_directories())
}

/// Returns the settings of the environment and of a file, if one is named, with the addresses of host names.
pub fn configured(config_file: Option<String>) -> Result<Options, String> {
    let mut command_line = CommandLine::default();
    command_line.config_file = config_file;
    Layers(command_line).read()
}

/// Host names become addresses here, because nothing below may ask the network for names.
fn resolve_addresses(options: &mut Options) -> Result<(), String> {
    resolve("listen_address", &mut options.listen_address)?;
    resolve("rpc_address", &mut options.rpc_address)?;
    resolve("api_address", &mut options.api_address)?;
    if let Some(address) = &mut options.broadcast_address {
        resolve("broadcast_address", address)?;
    }
    if let Some(address) = &mut options.broadcast_rpc_address {
        resolve("broadcast_rpc_address", address)?;
    }
    if let Some(address) = &mut options.replace_address_first_boot {
        resolve("replace_address_first_boot", address)?;
    }
    for seed in &mut options.seeds {
        *seed = resolved_seed(seed)?;
    }
    Ok(())
}

fn resolve(setting: &str, address: &mut Address) -> Result<(), String> {
    let Address::Name(name) = &*address else { return Ok(()) };
    *address = Address::Ip(lookup(setting, name)?);
    Ok(())
}

/// A seed, `host` or `host:port`, with its address. One that has none stops the start: without it
/// a node that is the next of its seeds would take itself for the first one and found a cluster of
/// its own.
fn resolved_seed(seed: &str) -> Result<String, String> {
    let seed = seed.trim();
    let is_address = seed.parse::<IpAddr>().is_ok() || seed.parse::<SocketAddr>().is_ok();
    // Text in brackets is an address or an error; crate `node` checks it.
    if seed.is_empty() || is_address || seed.starts_with('[') {
        return Ok(seed.to_owned());
    }
    let (name, port) = match seed.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (seed, None),
    };
    let ip = lookup("seeds", name)?;
    Ok(match (port, ip) {
        (None, ip) => ip.to_string(),
        (Some(port), IpAddr::V4(ip)) => format!("{ip}:{port}"),
        (Some(port), IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
    })
}

fn lookup(setting: &str, name: &str) -> Result<IpAddr, String> {
    let found: Vec<IpAddr> = (name, 0)
        .to_socket_addrs()
        .map_err(|error| format!("\"{setting}\": cannot resolve \"{name}\": {error}"))?
        .map(|a| a.ip())
        .collect();
    // IPv4 first, as Cassandra does without rpc_interface_prefer_ipv6.
    let ip = found.iter().find(|ip| ip.is_ipv4()).or(found.first());
    ip.copied().ok_or_else(|| format!("\"{setting}\": \"{name}\" has no address"))
}

fn fill_from_machine(options: &mut Options) {
    if options.smp.is_none() {
        options.smp = Some(resources::cores());
    }
    if options.memory.is_none() {
        options.memory = Some(MemorySize(resources::memory_default()));
    }
}

fn raise_open_files() {
    match resources::raise_open_files() {
        Some(files) if files < 10_000 => {
            tracing::warn!(files, "few open files are allowed; raise the hard limit (ulimit -Hn)");
        }
        _ => {}
    }
}

fn announce(options: &Options) {
    tracing::info!(
        version = crate::VERSION,
        pid = std::process::id(),
        shards = options.smp,
        memory_mib = options.memory.map(|m| m.0 >> 20),
        "starting Helenus"
    );
    tracing::info!(
        workdir = absolute(&options.workdir),
        data_file_directories = other(&options.data_file_directories),
        commitlog_directory = other(options.commitlog_directory.as_slice()),
        "storing data"
    );
}

/// Directories that are set apart from `workdir`.
fn other(directories: &[String]) -> Option<String> {
    let all: Vec<String> = directories.iter().map(|directory| absolute(directory)).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// A path that means the same in another directory; only for messages.
fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

fn run(options: Options, layers: Layers, levels: Arc<Levels>) -> u8 {
    // Before anything is opened: everything that is started is stopped in order.
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "cannot catch signals");
            return exit::FAILED;
        }
    };
    let program = Program {
        log: Some(levels.clone()),
        seeds: Some(Arc::new(layers.clone())),
        audit: Some(Arc::new(MachineHelper)),
        ..Program::default()
    };
    let machine = Machine::native(NativeOptions { cpuset: None, io: IoBackend::Auto });
    let node = Node::start_for(options.clone(), &machine, program);
    let io = node.io_description();
    tracing::info!(through = io.trim_start_matches("files: "), "accessing files");
    let reloader = Reloader { layers, current: options, levels, node: node.commander() };
    let watched = reloader.start().and_then(|reload| signals.watch(node.stopper(), reload));
    if let Err(error) = watched {
        tracing::error!(%error, "cannot watch signals; stopping");
        node.request_stop();
        // The first error is the one to report.
        let _ = node.join();
        return exit::FAILED;
    }
    match node.join() {
        Ok(()) => {
            tracing::info!("stopped");
            exit::OK
        }
        Err(error) => {
            report(&error);
            exit::of_start(&error)
        }
    }
}

fn report(error: &StartError) {
    tracing::error!(%error, "the node ended");
    // The log may go to a collector; a user who started the program by hand reads this.
    complain_line!("helenus server: {error}");
}

/// All settings, for `--help`.
pub fn help() -> String {
    let mut out = String::from(
        "\
Without options: one node on 127.0.0.1:9042, data below ./helenus-data.

Settings, each layer over the one before: defaults, the file of --config FILE or HELENUS_CONFIG
(a cassandra.yaml), the environment (HELENUS_ and the name in capitals), the command line
(--name value, --name=value, --name for true; dashes and underscores are the same).
SIGTERM and SIGINT drain and stop; SIGHUP reads the configuration again.

",
    );
    let _ = writeln!(out, "{}", exit::HELP);
    let mut section = "";
    for setting in conf::settings().iter().filter(|s| s.status == Status::Supported) {
        if setting.section != section {
            section = setting.section;
            let _ = writeln!(out, "\n{section}:");
        }
        write_setting(&mut out, setting);
    }
    out.push_str(
        "\nOther settings of a cassandra.yaml are accepted: the log of the start names each that has no effect.\n\
         A setting that asks for protection that does not exist stops the start.\n",
    );
    out
}

fn write_setting(out: &mut String, setting: &Setting) {
    let default = match setting.default.as_str() {
        "" => String::new(),
        text => format!(" [default: {text}]"),
    };
    let name = setting.name.replace('_', "-");
    let _ = writeln!(out, "  --{name} <{}>{default}", setting.form);
    let mut line = String::new();
    for word in setting.help.split_whitespace() {
        if line.len() + word.len() > 86 {
            let _ = writeln!(out, "          {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "          {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_supported_setting_once() {
        let text = help();
        for setting in conf::settings() {
            let flag = format!("  --{} <", setting.name.replace('_', "-"));
            let expected = usize::from(setting.status == Status::Supported);
            assert_eq!(text.matches(&flag).count(), expected, "{flag}");
        }
        assert!(text.lines().all(|l| l.len() <= 100 || l.starts_with("  --")));
    }

    #[test]
    fn command_line_wins_over_the_file() {
        let file = Some(("c.yaml".to_owned(), "native_transport_port: 9100\nsmp: 3".to_owned()));
        let command_line =
            CommandLine::parse(["--native-transport-port", "9200", "--log-format=json"]).unwrap();
        let sources = Sources { file, environment: Vec::new(), command_line };
        let options = conf::load(&sources).unwrap().options;
        assert_eq!((options.native_transport_port, options.smp), (9200, Some(3)));
        assert_eq!(options.log_format, conf::LogFormat::Json);
    }

    #[test]
    fn an_address_stays_and_a_wrong_name_is_refused() {
        let mut address = Address::Ip([127, 0, 0, 9].into());
        assert_eq!(resolve("rpc_address", &mut address), Ok(()));
        assert_eq!(address, Address::Ip([127, 0, 0, 9].into()));
        let mut address = Address::Name("no-such-host.invalid".into());
        let error = resolve("rpc_address", &mut address).unwrap_err();
        assert!(error.starts_with("\"rpc_address\": cannot resolve"), "{error}");
    }

    #[test]
    fn seeds_become_addresses_and_keep_their_ports() {
        for same in ["127.0.0.1", "127.0.0.1:7001", "::1", "[::1]:7000", ""] {
            assert_eq!(resolved_seed(same).as_deref(), Ok(same));
        }
        assert_eq!(resolved_seed(" localhost:7001 ").as_deref(), Ok("127.0.0.1:7001"));
        assert_eq!(resolved_seed("localhost").as_deref(), Ok("127.0.0.1"));
        let error = resolved_seed("no-such-host.invalid:7000").unwrap_err();
        assert!(error.starts_with("\"seeds\": cannot resolve \"no-such-host.invalid\""), "{error}");
    }

    #[test]
    fn directories_are_shown_as_absolute_paths() {
        let here = std::env::current_dir().unwrap().display().to_string();
        assert_eq!(absolute("./helenus-data"), format!("{here}/helenus-data"));
        assert_eq!(other(&["/a".to_owned(), "b".to_owned()]), Some(format!("/a, {here}/b")));
        assert_eq!(other(&[]), None);
    }

    #[test]
    fn what_is_not_set_comes_from_the_machine() {
        let mut options = Options::default();
        fill_from_machine(&mut options);
        assert!(options.smp.is_some_and(|n| n >= 1));
        assert!(options.memory.is_some_and(|m| m.0 >= 64 << 20));
    }
}
