//! `cassandra`: the server, with the options of Cassandra's launch script.
//!
//! A property of the Java virtual machine (`-Dcassandra.…`) that changes what the node does is
//! either a setting here or refused by name; flags for the machine itself only get a note.

use super::{Invocation, Machine, config_of_cassandra};

const HELP: &str = "\
Usage: cassandra [-f] [-R] [-v] [-h] [-p pidfile] [-Dname=value] [--setting value]...

  -f          stay in the foreground (always so)
  -R          run as root (always allowed)
  -p pidfile  write the process id to a file
  -v          print the version of Cassandra that is announced to drivers
  -Dname=value
              cassandra.config=file, cassandra.replace_address=address,
              cassandra.replace_address_first_boot=address, cassandra.initial_token=tokens,
              cassandra.native_transport_port=port, cassandra.storage_port=port

Everything else is a setting as \"helenus server\" takes it; \"helenus server --help\" lists them.
CASSANDRA_CONF names a directory with a cassandra.yaml; HELENUS_CONFIG and cassandra.config win.
";

/// Properties that are settings.
const PROPERTIES: [(&str, &str); 6] = [
    ("cassandra.config", "config"),
    ("cassandra.replace_address", "replace-address-first-boot"),
    ("cassandra.replace_address_first_boot", "replace-address-first-boot"),
    ("cassandra.initial_token", "initial-token"),
    ("cassandra.native_transport_port", "native-transport-port"),
    ("cassandra.storage_port", "storage-port"),
];

/// Properties without a counterpart that change nothing about the node's data or its place in the
/// cluster.
const IGNORED: [&str; 4] =
    ["cassandra.jmx.", "cassandra.logdir", "cassandra-foreground", "cassandra-pidfile"];

pub(super) fn resolve(arguments: &[String], machine: &Machine<'_>) -> Invocation {
    let mut settings: Vec<String> = Vec::new();
    let mut notes = Vec::new();
    let (mut pid_file, mut config, mut foreground) = (None, config_of_cassandra(machine), false);
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let property = match word.strip_prefix("-D") {
            Some("") => match rest.next() {
                Some(property) => Some(property.as_str()),
                None => return Invocation::Refuse("-D needs a property, name=value".to_owned()),
            },
            other => other,
        };
        if let Some(property) = property {
            let (name, value) = property.split_once('=').unwrap_or((property, ""));
            match PROPERTIES.iter().find(|(known, _)| *known == name) {
                Some((_, "config")) => {
                    config = Some(value.strip_prefix("file://").unwrap_or(value).to_owned());
                }
                Some((_, setting)) => settings.push(format!("--{setting}={value}")),
                None if IGNORED.iter().any(|known| name.starts_with(known))
                    || !name.starts_with("cassandra") =>
                {
                    notes.push(format!("-D{name} is ignored: there is no Java virtual machine"));
                }
                None => return Invocation::Refuse(format!("-D{name} is not supported")),
            }
            continue;
        }
        match word.as_str() {
            "-f" => foreground = true,
            "-R" => {}
            "-v" => {
                return Invocation::Print(format!("{}\n", cql_plan::system_rows::RELEASE_VERSION));
            }
            "-h" | "--help" => return Invocation::Print(HELP.to_owned()),
            "-p" => match rest.next() {
                Some(path) => pid_file = Some(path.clone()),
                None => return Invocation::Refuse("-p needs a file".to_owned()),
            },
            "-H" | "-E" => {
                let _ = rest.next();
                notes.push(format!("{word} is ignored: there is no Java virtual machine"));
            }
            flag if flag.starts_with("-X") => {
                notes.push(format!("{flag} is ignored: --memory says how much memory is used"));
            }
            flag if flag.starts_with("--") => {
                settings.push(word.clone());
                // Its value, which may look like a flag of the script.
                if !flag.contains('=')
                    && let Some(value) = rest.as_slice().first().filter(|v| !v.starts_with("--"))
                {
                    settings.push(value.clone());
                    let _ = rest.next();
                }
            }
            other => return Invocation::Refuse(format!("unknown option \"{other}\"")),
        }
    }
    if !foreground {
        notes.push("it stays in the foreground, as with -f".to_owned());
    }
    let config = config.map(|file| format!("--config={file}"));
    let arguments = std::iter::once("server".to_owned()).chain(config).chain(settings).collect();
    Invocation::Run { arguments, notes, pid_file }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refuses, resolved, resolved_with, runs};
    use super::*;

    #[test]
    fn the_launch_scripts_options_become_settings() {
        let (line, notes) = runs(
            "cassandra -f -R -Dcassandra.config=file:///c.yaml -D cassandra.initial_token=5 \
             --smp 1 -Dcassandra.replace_address_first_boot=127.0.0.3",
        );
        let expected = "server --config=/c.yaml --initial-token=5 --smp 1 \
                        --replace-address-first-boot=127.0.0.3";
        assert_eq!((line.as_str(), notes), (expected, Vec::new()));
        match resolved("cassandra -p /run/x.pid -f") {
            Some(Invocation::Run { pid_file, .. }) => assert_eq!(pid_file.unwrap(), "/run/x.pid"),
            other => panic!("{other:?}"),
        }
        assert_eq!(resolved("cassandra -v"), Some(Invocation::Print("5.0.9\n".to_owned())));
    }

    #[test]
    fn flags_for_the_java_machine_are_noted_and_those_for_the_node_are_refused() {
        let (line, notes) =
            runs("cassandra -f -Xmx4G -Dcom.sun.x=1 -Dcassandra.jmx.local.port=7199");
        assert_eq!((line.as_str(), notes.len()), ("server", 3), "{notes:?}");
        assert_eq!(
            refuses("cassandra -f -Dcassandra.join_ring=false"),
            "-Dcassandra.join_ring is not supported"
        );
        assert_eq!(refuses("cassandra -f -q"), "unknown option \"-q\"");
        assert_eq!(runs("cassandra").1, ["it stays in the foreground, as with -f"]);
    }

    #[test]
    fn every_property_is_a_setting_that_exists() {
        for (_, setting) in PROPERTIES.iter().filter(|(_, setting)| *setting != "config") {
            let name = setting.replace('-', "_");
            assert!(conf::settings().iter().any(|s| s.name == name), "{name}");
        }
    }

    #[test]
    fn cassandra_conf_names_the_file_unless_another_is_named() {
        let line = |line: &str, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            };
            match resolved_with(line, &variable) {
                Some(Invocation::Run { arguments, .. }) => arguments.join(" "),
                other => panic!("{other:?}"),
            }
        };
        let conf = ("CASSANDRA_CONF", "/conf/");
        assert_eq!(line("cassandra -f", &[conf]), "server --config=/conf/cassandra.yaml");
        assert_eq!(line("cassandra -f", &[("CASSANDRA_CONF", "/none")]), "server");
        assert_eq!(line("cassandra -f", &[conf, ("HELENUS_CONFIG", "/h.yaml")]), "server");
        let own = line("cassandra -f -Dcassandra.config=/o.yaml", &[conf]);
        assert_eq!(own, "server --config=/o.yaml");
    }
}
