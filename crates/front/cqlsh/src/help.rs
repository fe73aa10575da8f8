//! Texts of HELP.
//!
//! Owns: one text per shell command; those about CQL are in `cql`. Never: all of CQL.

mod cql;

use crate::display::columnize;

/// The page that has all of CQL.
const PAGE: &str = "https://cassandra.apache.org/doc/latest/cassandra/cql/cql_singlefile.html";

const SHELL: &[(&str, &str)] = &[
    (
        "CAPTURE",
        "CAPTURE ['<file>' | OFF]\n\nAppends the results of statements to a file instead of \
         showing them. Errors and the output of shell commands are still shown. CAPTURE OFF ends \
         it; CAPTURE alone says where results go.",
    ),
    ("CLEAR", "CLEAR\n\nClears the terminal. CLS does the same."),
    ("CLS", "CLS\n\nClears the terminal. CLEAR does the same."),
    (
        "CONSISTENCY",
        "CONSISTENCY [<level>]\n\nSets the consistency level of the statements that follow; \
         alone, shows it. Levels: ANY, ONE, TWO, THREE, QUORUM, ALL, LOCAL_ONE, LOCAL_QUORUM, \
         EACH_QUORUM, SERIAL, LOCAL_SERIAL. SERIAL and LOCAL_SERIAL are for SELECT only.",
    ),
    (
        "COPY",
        "COPY <table> [(<column>, ...)] FROM ('<file>, <pattern>, ...' | STDIN) [WITH \
         <option>=<value> [AND ...]]\nCOPY <table> [(<column>, ...)] TO ('<file>' | STDOUT) [WITH \
         <option>=<value> [AND ...]]\n\nCopies a table from or to CSV.\n\nOptions of both: \
         DELIMITER=',' QUOTE='\"' ESCAPE='\\' HEADER=false NULL='' DATETIMEFORMAT \
         MAXATTEMPTS=5 REPORTFREQUENCY=0.25 DECIMALSEP='.' THOUSANDSSEP='' \
         BOOLSTYLE='True,False' NUMPROCESSES CONFIGFILE RATEFILE\nOptions of COPY FROM: \
         CHUNKSIZE=5000 INGESTRATE MINBATCHSIZE=10 MAXBATCHSIZE=20 MAXROWS=-1 SKIPROWS=0 \
         SKIPCOLS='' MAXPARSEERRORS=-1 MAXINSERTERRORS=1000 ERRFILE PREPAREDSTATEMENTS=true \
         TTL\nOptions of COPY TO: ENCODING=utf8 PAGESIZE=1000 PAGETIMEOUT=10 BEGINTOKEN ENDTOKEN \
         MAXREQUESTS=6 MAXOUTPUTSIZE=-1 FLOATPRECISION=5 DOUBLEPRECISION=12\n\nAn option that \
         does nothing here is refused. Data on STDIN end with a line that is a single dot.",
    ),
    ("DESC", "DESC ...\n\nShort for DESCRIBE."),
    (
        "DESCRIBE",
        "DESCRIBE KEYSPACES | TABLES | TYPES | FUNCTIONS | AGGREGATES | CLUSTER\nDESCRIBE [FULL] \
         SCHEMA\nDESCRIBE [ONLY] KEYSPACE [<name>]\nDESCRIBE TABLE | TYPE | INDEX | MATERIALIZED \
         VIEW | FUNCTION | AGGREGATE <name>\nDESCRIBE <name>\n\nLists names, or prints the \
         statements that make an object again. WITH INTERNALS adds ids and dropped columns.",
    ),
    ("EXIT", "EXIT\n\nEnds the shell. QUIT does the same."),
    (
        "EXPAND",
        "EXPAND [ON | OFF]\n\nPrints each row as lines of name and value; alone, shows the \
         setting.",
    ),
    ("HELP", "HELP [<topic>]\n\nLists the topics, or explains one."),
    ("HISTORY", "HISTORY [<n>]\n\nShows the latest commands; a number sets how many."),
    (
        "LOGIN",
        "LOGIN <username> ['<password>']\n\nConnects as another user. Without a password it is \
         asked for.",
    ),
    (
        "OUTPUT",
        "OUTPUT [TABLE | JSON]\n\nPrints rows as tables or as JSON objects, one per line; alone, \
         shows the setting.",
    ),
    (
        "PAGING",
        "PAGING [ON | OFF | <rows>]\n\nFetches results in pages, of 100 rows unless a number \
         says otherwise; alone, shows the setting.",
    ),
    (
        "SERIAL",
        "SERIAL CONSISTENCY [SERIAL | LOCAL_SERIAL]\n\nSets the level of conditions (IF) in the \
         statements that follow; alone, shows it.",
    ),
    (
        "SHOW",
        "SHOW VERSION | HOST | SESSION <id> | REPLICAS <token> [<keyspace>]\n\nShows versions, \
         the server this shell is connected to, a trace, or who has a token.",
    ),
    ("SOURCE", "SOURCE '<file>'\n\nRuns the statements of a file. Errors do not stop it."),
    (
        "TRACING",
        "TRACING [ON | OFF]\n\nTraces the statements that follow and prints the traces; alone, \
         shows the setting.",
    ),
    (
        "UNICODE",
        "Text is UTF-8, in and out. Control characters in values of text and ascii are shown as \
         escapes with a backslash, in another colour where there are colours; everything else is \
         shown as it is.",
    ),
];

/// The topics.
pub(crate) fn names() -> Vec<String> {
    let cql = cql::TOPICS.iter().map(|(name, ..)| *name);
    SHELL.iter().map(|(name, _)| *name).chain(cql).map(str::to_owned).collect()
}

/// The list of topics.
pub(crate) fn topics() -> String {
    let shell: Vec<String> = SHELL.iter().map(|(name, _)| (*name).to_owned()).collect();
    let cql: Vec<String> = cql::TOPICS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let mut text = String::new();
    for (header, names) in [("\nDocumented shell commands:", shell), ("CQL help topics:", cql)] {
        let rule = "=".repeat(header.chars().count());
        text.push_str(&format!("{header}\n{rule}\n{}\n", columnize(&names, 79)));
    }
    text
}

/// The text of a topic; `None` when there is none.
pub(crate) fn topic(name: &str) -> Option<String> {
    let name = if name.eq_ignore_ascii_case("quit") { "exit" } else { name };
    if let Some((_, text)) = SHELL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Some(format!("\n{text}\n\n"));
    }
    let (_, _, text) = cql::TOPICS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name))?;
    Some(format!("\n{text}\n\n{}\n\n", address(name)?))
}

/// The page of a topic of CQL; `None` when it is none.
pub(crate) fn address(name: &str) -> Option<String> {
    let (_, place, _) = cql::TOPICS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name))?;
    Some(format!("{PAGE}#{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_sorted_and_every_one_has_a_text() {
        assert!(SHELL.is_sorted_by_key(|(name, _)| *name));
        assert!(cql::TOPICS.is_sorted_by_key(|(name, ..)| *name));
        for name in names() {
            assert!(topic(&name.to_lowercase()).is_some_and(|text| text.len() > 20), "{name}");
        }
        assert_eq!(topic("nonsense"), None);
        assert!(topics().contains("CONSISTENCY") && topics().contains("LIST_PERMISSIONS"));
        assert_eq!(address("copy"), None);
        assert_eq!(address("Uuid"), Some(format!("{PAGE}#constants")));
    }
}
