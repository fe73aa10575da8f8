//! Texts of HELP.
//!
//! Owns: one text per shell command. Never: documentation of CQL itself; HELP names its page.

use crate::display::columnize;

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
];

/// The topics.
pub(crate) fn names() -> Vec<String> {
    SHELL.iter().map(|(name, _)| (*name).to_owned()).collect()
}

/// The list of topics.
pub(crate) fn topics() -> String {
    let header = "\nDocumented shell commands:";
    let names = names();
    format!(
        "{header}\n{}\n{}\nCQL is documented at \
         https://cassandra.apache.org/doc/latest/cassandra/cql/\n",
        "=".repeat(header.chars().count()),
        columnize(&names, 79)
    )
}

/// The text of a topic; `None` when there is none.
pub(crate) fn topic(name: &str) -> Option<String> {
    let name = if name.eq_ignore_ascii_case("quit") { "exit" } else { name };
    SHELL
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, text)| format!("\n{text}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_sorted_and_every_one_has_a_text() {
        assert!(SHELL.is_sorted_by_key(|(name, _)| *name));
        for (name, _) in SHELL {
            assert!(topic(&name.to_lowercase()).is_some_and(|text| text.contains(name)));
        }
        assert_eq!(topic("nonsense"), None);
        assert!(topics().contains("CONSISTENCY"));
    }
}
