//! `sstablerepairedset`: marks SSTables of a running node as repaired or unrepaired.

use crate::model::{ErrorKind, RepairedRequest};

use super::client::HttpError;
use super::cluster::bad;
use super::line::{Failure, Line, Outcome};
use super::node::node;
use crate::operation::Method;

/// Names of the tables in the line that announces the change.
fn shown(line: &Line) -> String {
    match line.arguments.as_slice() {
        [] => "all keyspaces".to_owned(),
        [_] => "all tables".to_owned(),
        [keyspace, tables @ ..] => format!("tables {} in keyspace {keyspace}", tables.join(",")),
    }
}

/// Keyspaces that the line means: the one that it names, else all that are replicated.
fn keyspaces(line: &Line) -> Result<Vec<String>, Failure> {
    let node = node(&line.api)?;
    match line.arguments.first() {
        Some(name) if node.keyspace(name).is_none() => {
            Err(bad(format!("Keyspace [{name}] does not exist.")))
        }
        Some(name) => Ok(vec![name.clone()]),
        None => {
            let replicated = node.keyspaces.iter().filter(|k| k.strategy() != "LocalStrategy");
            Ok(replicated.map(|k| k.name.clone()).collect())
        }
    }
}

/// Prints the selected files even if nothing is marked, as Cassandra's tool does.
pub(super) fn run(line: &Line) -> Outcome {
    let repaired = line.has("--is-repaired");
    if repaired == line.has("--is-unrepaired") {
        let text = "Exactly one of --is-repaired or --is-unrepaired must be provided.\n";
        return Ok(text.to_owned());
    }
    let preview = !line.has("--really-set");
    let keyspaces = keyspaces(line)?;
    let tables = line.arguments.get(1..).unwrap_or_default().to_vec();
    let (doing, done) = match preview {
        true => ("Previewing repaired state mutation of", "would be"),
        false => ("Mutating repaired state of", "were"),
    };
    let state = if repaired { "repaired" } else { "unrepaired" };
    line.api.print(format_args!("{doing} SSTables for {} to {state}\n", shown(line)));
    let request = RepairedRequest { keyspaces, tables, repaired, preview };
    let files: Vec<String> = match line.api.order(Method::Post, "/api/v1/repaired", &request) {
        Ok(files) => files,
        Err(HttpError::Refused(ErrorKind::UnknownTable, words)) => {
            return Err(Failure::Node(of_table(&words)));
        }
        Err(error) => return Err(error.into()),
    };
    let mut text = format!("The following SSTables {done} mutated:\n");
    for file in files {
        text.push_str(&file);
        text.push('\n');
    }
    Ok(text)
}

/// Returns Cassandra's wording: `Unknown keyspace/cf pair (ks.t)` belongs to other commands.
fn of_table(words: &str) -> String {
    let pair = words.strip_prefix("Unknown keyspace/cf pair (");
    match pair.and_then(|pair| pair.strip_suffix(')')?.split_once('.')) {
        Some((keyspace, table)) => format!("Table {table} does not exist in keyspace {keyspace}"),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    /// Recorded from a Cassandra 5.0.9.
    #[test]
    fn one_of_the_two_marks_is_asked_for_and_tables_are_named() {
        for text in ["", "--is-repaired --is-unrepaired ks", "ks t"] {
            let line = parse(&format!("sstablerepairedset {text}")).unwrap();
            let asked = run(&line).unwrap();
            assert_eq!(
                asked,
                "Exactly one of --is-repaired or --is-unrepaired must be provided.\n"
            );
        }
        let shown = |text: &str| shown(&parse(&format!("sstablerepairedset {text}")).unwrap());
        assert_eq!(shown("--is-repaired"), "all keyspaces");
        assert_eq!(shown("--is-repaired ks"), "all tables");
        assert_eq!(shown("--is-repaired --really-set ks a b"), "tables a,b in keyspace ks");
        let missing = of_table("Unknown keyspace/cf pair (k.nosuch)");
        assert_eq!(missing, "Table nosuch does not exist in keyspace k");
    }
}
