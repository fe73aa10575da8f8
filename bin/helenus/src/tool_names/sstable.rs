//! Cassandra's tools for SSTables: `helenus sstable` with their options.
//!
//! Keyspace and table of Cassandra's tools become the table's directories. Paths are passed
//! unchanged, so the tools also accept those of `helenus sstable`.

use super::{Invocation, Machine};

/// An option of Cassandra's tool and what becomes of it.
enum Becomes {
    /// Another option; the value follows in both.
    Renamed(&'static str),
    /// A switch without counterpart, because the tool does it always or prints nothing more.
    Nothing,
    /// A switch that is dropped with a note.
    Note(&'static str),
    /// An option with a value that is dropped with a note.
    NoteValue(&'static str),
    /// Megabits per second, which become MiB per second.
    Megabits(&'static str),
    /// The error.
    Refused(&'static str),
}

use Becomes::{Megabits, Note, NoteValue, Nothing, Refused, Renamed};

/// A tool of Cassandra.
struct Tool {
    name: &'static str,
    command: &'static [&'static str],
    /// True if it takes a keyspace and a table.
    table: bool,
    options: &'static [(&'static str, Becomes)],
}

const VERBOSE: Becomes = Note("nothing more is printed with it");
const DEBUG: Becomes = Note("errors have no stack traces");
const JOBS: Becomes = NoteValue("files are read one after the other");

const TOOLS: [Tool; 12] = [
    Tool { name: "sstabledump", command: &["dump"], table: false, options: &[] },
    Tool { name: "sstablemetadata", command: &["metadata"], table: false, options: &[] },
    Tool {
        name: "sstableverify",
        command: &["verify"],
        table: true,
        options: &[
            ("-e", Nothing),
            ("--extended", Nothing),
            ("-f", Nothing),
            ("--force", Nothing),
            ("-q", Note("every byte is read all the same")),
            ("--quick", Note("every byte is read all the same")),
            ("-v", VERBOSE),
            ("--verbose", VERBOSE),
            ("--debug", DEBUG),
            ("-c", Refused("versions are in the output of sstablemetadata")),
            ("--check_version", Refused("versions are in the output of sstablemetadata")),
            ("-r", Refused("use sstablerepairedset")),
            ("--mutate_repair_status", Refused("use sstablerepairedset")),
            ("-t", Refused("use \"helenus nodetool verify -t\"")),
            ("--token_range", Refused("use \"helenus nodetool verify -t\"")),
        ],
    },
    Tool {
        name: "sstablescrub",
        command: &["scrub"],
        table: true,
        options: &[
            ("-v", VERBOSE),
            ("--verbose", VERBOSE),
            ("--debug", DEBUG),
            ("-j", JOBS),
            ("--jobs", JOBS),
            ("-m", Refused("there is no leveled manifest; see \"helenus sstable levels\"")),
            (
                "--manifest-check",
                Refused("there is no leveled manifest; see \"helenus sstable levels\""),
            ),
            ("-e", Refused("headers are not rewritten")),
            ("--header-fix", Refused("headers are not rewritten")),
        ],
    },
    Tool { name: "sstablelevelreset", command: &["levels", "reset"], table: true, options: &[] },
    Tool {
        name: "sstableofflinerelevel",
        command: &["levels", "relevel"],
        table: true,
        options: &[],
    },
    Tool {
        name: "sstableexpiredblockers",
        command: &["expiredblockers"],
        table: true,
        options: &[("-g", Renamed("-g"))],
    },
    Tool { name: "sstablerepairedset", command: &["repairedset"], table: false, options: &[] },
    Tool {
        name: "sstablesplit",
        command: &["split"],
        table: false,
        options: &[("--debug", DEBUG)],
    },
    Tool { name: "sstablepartitions", command: &["partitions"], table: false, options: &[] },
    Tool {
        name: "sstableupgrade",
        command: &["upgrade"],
        table: false,
        options: &[("-k", Nothing), ("--keep-source", Nothing), ("--debug", DEBUG)],
    },
    Tool {
        name: "sstableloader",
        command: &["load"],
        table: false,
        options: &[
            ("-cph", Renamed("--connections-per-host")),
            ("-t", Megabits("--throttle-mib")),
            ("--throttle", Megabits("--throttle-mib")),
            ("-f", NoteValue("no file of settings is needed")),
            ("--conf-path", NoteValue("no file of settings is needed")),
            ("-p", NoteValue("rows go to the port of the API; --api-port names it")),
            ("--port", NoteValue("rows go to the port of the API; --api-port names it")),
            ("-sp", NoteValue("rows go to the port of the API; --api-port names it")),
            ("--storage-port", NoteValue("rows go to the port of the API; --api-port names it")),
            ("-u", Renamed("--username")),
            ("-pw", Renamed("--password")),
            ("-ts", Renamed("--ssl-ca")),
            ("--truststore", Renamed("--ssl-ca")),
            ("-i", Refused("nodes are not left out; name those to use with -d")),
            ("--ignore", Refused("nodes are not left out; name those to use with -d")),
        ],
    },
];

/// `None`: no tool of that name.
pub(super) fn resolve(
    name: &str,
    arguments: &[String],
    machine: &Machine<'_>,
) -> Option<Invocation> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    Some(match translate(tool, arguments, machine) {
        Ok((words, notes)) => {
            let command = std::iter::once("sstable").chain(tool.command.iter().copied());
            let arguments = command.map(str::to_owned).chain(words).collect();
            Invocation::Run { arguments, notes, pid_file: None }
        }
        Err(message) => Invocation::Refuse(message),
    })
}

/// Words after the command, and notes.
fn translate(
    tool: &Tool,
    arguments: &[String],
    machine: &Machine<'_>,
) -> Result<(Vec<String>, Vec<String>), String> {
    let (mut options, mut positional, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let (flag, attached) = match word.split_once('=') {
            Some((flag, value)) if word.starts_with("--") => (flag, Some(value)),
            _ => (word.as_str(), None),
        };
        let known = tool.options.iter().find(|(option, _)| *option == flag);
        let mut value = || {
            let next = attached.map(str::to_owned).or_else(|| rest.next().cloned());
            next.ok_or_else(|| format!("{flag} needs a value"))
        };
        match known.map(|(_, becomes)| becomes) {
            None if tool.table && !word.starts_with('-') => positional.push(word.clone()),
            None => options.push(word.clone()),
            Some(Nothing) => {}
            Some(Note(why)) => notes.push(format!("{flag}: {why}")),
            Some(NoteValue(why)) => {
                value()?;
                notes.push(format!("{flag}: {why}"));
            }
            Some(Renamed(other)) => options.extend([(*other).to_owned(), value()?]),
            Some(Megabits(other)) => {
                let text = value()?;
                let megabits: u64 =
                    text.parse().map_err(|_| format!("{flag}: \"{text}\" is not a number"))?;
                options.extend([(*other).to_owned(), mib_of_megabits(megabits).to_string()]);
            }
            Some(Refused(why)) => return Err(format!("{flag} is not supported: {why}")),
        }
    }
    if tool.name == "sstableupgrade" && !options.iter().any(|o| is_output(o)) {
        return wants_help(&options).then_some((options, notes)).ok_or_else(|| {
            "files are not upgraded in place offline: use \"helenus nodetool upgradesstables\" on \
             the running node, or name another directory: --output DIR FILE..."
                .to_owned()
        });
    }
    options.extend(paths(positional, machine)?);
    Ok((options, notes))
}

fn is_output(word: &str) -> bool {
    word == "-o" || word == "--output" || word.starts_with("--output=")
}

fn wants_help(words: &[String]) -> bool {
    words.iter().any(|word| word == "-h" || word == "--help")
}

/// Directories for a keyspace and a table; paths as they are.
fn paths(words: Vec<String>, machine: &Machine<'_>) -> Result<Vec<String>, String> {
    match words.as_slice() {
        [keyspace, table]
            if !words.iter().any(|word| word.contains('/') || (machine.exists)(word)) =>
        {
            (machine.table)(keyspace, table)
        }
        _ => Ok(words),
    }
}

/// At least 1, as 0 is no limit.
fn mib_of_megabits(megabits: u64) -> u64 {
    match megabits {
        0 => 0,
        megabits => (megabits.saturating_mul(125_000) >> 20).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refuses, runs};
    use super::*;

    #[test]
    fn a_keyspace_and_a_table_become_the_tables_directories() {
        for (line, command) in [
            ("sstableverify -f -e ks t", "sstable verify /d/ks/t-1 /e/ks/t-1"),
            ("sstablescrub -n -s ks t", "sstable scrub -n -s /d/ks/t-1 /e/ks/t-1"),
            (
                "sstablelevelreset --really-reset ks t",
                "sstable levels reset --really-reset /d/ks/t-1 /e/ks/t-1",
            ),
            ("sstableexpiredblockers ks t", "sstable expiredblockers /d/ks/t-1 /e/ks/t-1"),
            // Passed on unchanged: "helenus sstable" checks these arguments.
            ("sstableverify /d/nb-1-big-Data.db x", "sstable verify /d/nb-1-big-Data.db x"),
            ("sstableverify nb-1-big-Data.db nb", "sstable verify nb-1-big-Data.db nb"),
            ("sstableverify", "sstable verify"),
        ] {
            assert_eq!(runs(line), (command.to_owned(), Vec::new()), "{line}");
        }
        assert_eq!(refuses("sstableverify ks nosuch"), "Unknown keyspace/table ks.nosuch");
    }

    #[test]
    fn options_are_kept_renamed_noted_or_refused_but_never_dropped_silently() {
        assert_eq!(
            runs("sstabledump -d -k a nb-1-big-Data.db").0,
            "sstable dump -d -k a nb-1-big-Data.db"
        );
        assert_eq!(runs("sstablemetadata -g 5 f").0, "sstable metadata -g 5 f");
        let (line, notes) = runs("sstableverify -q -v ks t");
        assert_eq!(line, "sstable verify /d/ks/t-1 /e/ks/t-1");
        assert_eq!(
            notes,
            ["-q: every byte is read all the same", "-v: nothing more is printed with it"]
        );
        let (line, notes) = runs("sstableloader -d h -u me -pw x -t 400 -cph 3 /d/ks/t");
        let login = "--username me --password x";
        let rest = "--throttle-mib 47 --connections-per-host 3 /d/ks/t";
        assert_eq!(line, format!("sstable load -d h {login} {rest}"));
        assert!(notes.is_empty(), "{notes:?}");
        assert!(refuses("sstablescrub -m ks t").starts_with("-m is not supported: "));
        assert_eq!(refuses("sstableloader -t x d"), "-t: \"x\" is not a number");
        assert_eq!(refuses("sstableloader -d h d -u"), "-u needs a value");
    }

    #[test]
    fn an_upgrade_needs_another_directory() {
        assert!(refuses("sstableupgrade ks t").starts_with("files are not upgraded in place"));
        assert_eq!(
            runs("sstableupgrade --output /o nb-1-big-Data.db").0,
            "sstable upgrade --output /o nb-1-big-Data.db"
        );
        assert_eq!(runs("sstableupgrade --help").0, "sstable upgrade --help");
    }

    #[test]
    fn megabits_per_second_are_limits_at_every_number() {
        for (megabits, mib) in [(0, 0), (1, 1), (8, 1), (17, 2), (400, 47)] {
            assert_eq!(mib_of_megabits(megabits), mib, "{megabits}");
        }
        assert_eq!(mib_of_megabits(u64::MAX), u64::MAX >> 20);
    }
}
