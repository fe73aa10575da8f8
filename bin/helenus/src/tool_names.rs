//! The names of Cassandra's tools: the binary that is started as one of them acts as that tool.
//!
//! Owns: which tool a file name stands for, Cassandra's options of it, and which directories a
//! keyspace and a table are. Never: what a tool does.
//!
//! A symbolic link is enough: `ln -s helenus nodetool`. A name that is none of Cassandra's is
//! ignored, so that the binary may be called anything.
//!
//! Reading order: [`resolve`], [`sstable`] (tools for files), [`launcher`] (the server).

mod launcher;
mod sstable;

use std::path::Path;

use crate::exit;

/// The command line that a tool's name and arguments stand for.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Arguments after the name of the binary, and notes for standard error.
    Run { arguments: Vec<String>, notes: Vec<String>, pid_file: Option<String> },
    /// A text for standard output.
    Print(String),
    /// An error message.
    Refuse(String),
}

impl Invocation {
    fn run(command: &[&str], rest: impl IntoIterator<Item = String>) -> Invocation {
        let arguments = command.iter().map(|word| (*word).to_owned()).chain(rest).collect();
        Invocation::Run { arguments, notes: Vec::new(), pid_file: None }
    }
}

/// Directories of a keyspace's table, or an error message.
type FindTable<'m> = dyn Fn(&str, &str) -> Result<Vec<String>, String> + 'm;

/// The parts of the machine that names depend on.
pub struct Machine<'m> {
    /// Variable of the environment.
    pub variable: &'m dyn Fn(&str) -> Option<String>,
    /// Returns true if a path exists.
    pub exists: &'m dyn Fn(&str) -> bool,
    /// Directories that hold a table's files.
    pub table: &'m FindTable<'m>,
}

/// Tools of Cassandra that have no counterpart under the same name, with the nearest.
const MISSING: [(&str, &str); 7] = [
    (
        "cassandra-stress",
        "\"helenus bench\" puts load on a server; it has options of its own, see \"helenus bench --help\"",
    ),
    ("compaction-stress", "\"helenus bench\" and \"helenus nodetool compact\" are the nearest"),
    ("sstableutil", "\"helenus sstable summary\" lists the files of a table"),
    ("sstable2json", "use \"helenus sstable dump\" or \"helenus sstable export\""),
    ("json2sstable", "use \"helenus sstable write\""),
    ("stop-server", "use \"helenus nodetool stopdaemon\", or SIGTERM"),
    ("generatetokens", "nodes choose their tokens when they join"),
];

/// The command line that the file name of the binary stands for. `None`: it is not a tool's name.
pub fn resolve(program: &str, arguments: &[String], machine: &Machine<'_>) -> Option<Invocation> {
    let name = Path::new(program).file_name()?.to_str()?;
    let rest = || arguments.iter().cloned();
    Some(match name {
        "nodetool" | "nodeprobe" => Invocation::run(&["nodetool"], rest()),
        "cqlsh" => Invocation::run(&["cqlsh"], rest()),
        "hash_password" => Invocation::run(&["hash_password"], rest()),
        "auditlogviewer" => Invocation::run(&["auditlogviewer"], rest()),
        "fqltool" => Invocation::run(&["fqltool"], rest()),
        "cassandra" => launcher::resolve(arguments, machine),
        _ => match MISSING.iter().find(|(tool, _)| *tool == name) {
            Some((tool, hint)) => {
                Invocation::Refuse(format!("{tool} is not part of Helenus: {hint}"))
            }
            None => return sstable::resolve(name, arguments, machine),
        },
    })
}

/// Directories of a table below the data directories: `keyspace/table-id` or `keyspace/table`. A
/// table that was dropped and created again has several.
///
/// # Errors
/// A message: no such directory.
pub fn table_directories(
    roots: &[String],
    keyspace: &str,
    table: &str,
) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for root in roots {
        let of_keyspace = Path::new(root).join(keyspace);
        // A data directory need not have every keyspace.
        for entry in std::fs::read_dir(&of_keyspace).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_of_table = match name.rsplit_once('-') {
                Some((of, id)) => {
                    of == table && id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())
                }
                None => name == table,
            };
            if is_of_table && entry.path().is_dir() {
                found.push(entry.path().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(format!(
            "Unknown keyspace/table {keyspace}.{table}: no directory of it in {}; HELENUS_CONFIG \
             or HELENUS_WORKDIR names another place",
            roots.join(", ")
        ));
    }
    Ok(found)
}

/// `cassandra.yaml` of the directory that `CASSANDRA_CONF` names, as Cassandra's scripts find it.
/// `HELENUS_CONFIG` wins.
fn config_of_cassandra(machine: &Machine<'_>) -> Option<String> {
    let set = |name: &str| (machine.variable)(name).filter(|value| !value.is_empty());
    if set("HELENUS_CONFIG").is_some() {
        return None;
    }
    let file = format!("{}/cassandra.yaml", set("CASSANDRA_CONF")?.trim_end_matches('/'));
    (machine.exists)(&file).then_some(file)
}

/// Resolves with the real environment, settings and files. `None`: an ordinary command line.
pub fn of_process(program: &str, arguments: &[String]) -> Option<Result<Vec<String>, u8>> {
    let variable = |name: &str| std::env::var(name).ok();
    let exists = |path: &str| Path::new(path).exists();
    let config = || {
        let nowhere = |_: &str, _: &str| Ok(Vec::new());
        config_of_cassandra(&Machine { variable: &variable, exists: &exists, table: &nowhere })
    };
    let table = |keyspace: &str, table: &str| {
        let roots = crate::server::data_directories(config())?;
        table_directories(&roots, keyspace, table)
    };
    let machine = Machine { variable: &variable, exists: &exists, table: &table };
    let tool = Path::new(program).file_name()?.to_string_lossy().into_owned();
    Some(match resolve(program, arguments, &machine)? {
        Invocation::Print(text) => {
            say!("{text}");
            Err(exit::OK)
        }
        Invocation::Refuse(message) => {
            complain_line!("{tool}: {message}");
            Err(exit::USAGE)
        }
        Invocation::Run { arguments, notes, pid_file } => {
            for note in notes {
                complain_line!("{tool}: note: {note}");
            }
            match pid_file.map(|path| write_pid(&path)) {
                Some(Err(message)) => {
                    complain_line!("{tool}: {message}");
                    Err(exit::USAGE)
                }
                _ => Ok(arguments),
            }
        }
    })
}

fn write_pid(path: &str) -> Result<(), String> {
    std::fs::write(path, format!("{}\n", std::process::id()))
        .map_err(|error| format!("cannot write the pid file {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves a line under a tool's name; `ks t` has the directories `/d/ks/t-1` and `/e/ks/t-1`.
    pub(super) fn resolved(line: &str) -> Option<Invocation> {
        resolved_with(line, &|_| None)
    }

    pub(super) fn resolved_with(
        line: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Invocation> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (program, arguments) = words.split_first().unwrap();
        let exists = |path: &str| path == "/conf/cassandra.yaml" || path == "nb-1-big-Data.db";
        let table = |keyspace: &str, table: &str| match (keyspace, table) {
            ("ks", "t") => Ok(vec!["/d/ks/t-1".to_owned(), "/e/ks/t-1".to_owned()]),
            _ => Err(format!("Unknown keyspace/table {keyspace}.{table}")),
        };
        resolve(program, arguments, &Machine { variable, exists: &exists, table: &table })
    }

    /// The command line of a tool that runs, and its notes.
    pub(super) fn runs(line: &str) -> (String, Vec<String>) {
        match resolved(line) {
            Some(Invocation::Run { arguments, notes, .. }) => (arguments.join(" "), notes),
            other => panic!("{line}: {other:?}"),
        }
    }

    pub(super) fn refuses(line: &str) -> String {
        match resolved(line) {
            Some(Invocation::Refuse(message)) => message,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn names_of_cassandras_tools_stand_for_commands() {
        for (line, command) in [
            ("nodetool -h ::1 status", "nodetool -h ::1 status"),
            ("/usr/bin/nodetool status", "nodetool status"),
            ("./cqlsh -e x host", "cqlsh -e x host"),
        ] {
            assert_eq!(runs(line), (command.to_owned(), Vec::new()), "{line}");
        }
        for other in ["helenus server", "/usr/bin/helenus-1.0 nodetool", "x"] {
            assert_eq!(resolved(other), None, "{other}");
        }
    }

    #[test]
    fn tools_that_are_missing_are_refused_with_the_nearest() {
        let message = refuses("cassandra-stress write n=1000");
        assert!(message.starts_with("cassandra-stress is not part of Helenus: \"helenus bench\""));
        for (tool, _) in MISSING {
            assert!(refuses(tool).starts_with(tool));
        }
    }

    #[test]
    fn directories_of_a_table_are_found_below_all_data_directories() {
        let root = std::env::temp_dir().join(format!("helenus-names-{}", std::process::id()));
        let id = "5bc52802de2535edaeab188eecebb090";
        for directory in [
            format!("a/ks/t-{id}"),
            format!("b/ks/t-{id}"),
            "b/ks/t".into(),
            format!("a/ks/tt-{id}"),
        ] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join(format!("a/ks/t-{}", id.replace('5', "6"))), "a file").unwrap();
        let roots = ["a", "b", "c"].map(|name| root.join(name).to_string_lossy().into_owned());
        let found = table_directories(&roots, "ks", "t").unwrap();
        let expected = [format!("a/ks/t-{id}"), "b/ks/t".to_owned(), format!("b/ks/t-{id}")]
            .map(|name| root.join(name).to_string_lossy().into_owned());
        assert_eq!(found, expected);
        let error = table_directories(&roots, "ks", "nosuch").unwrap_err();
        assert!(error.starts_with("Unknown keyspace/table ks.nosuch: "), "{error}");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
