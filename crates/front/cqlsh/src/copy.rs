//! COPY: tables from and to CSV.
//!
//! Owns: the grammar of the command, the checks of its columns, the output before and after. Never:
//! CSV itself (`csv`), values (`convert`), the work (`import`, `export`).
//!
//! Several threads work, each over connections of its own with many requests in flight, to the
//! nodes that own the rows (`ring`). The console belongs to the shell's thread.
//!
//! Reading order: `options`, `csv`, `convert`, `import`, `export`, `meter`.

mod convert;
mod csv;
mod export;
mod import;
mod meter;
mod options;
pub(crate) mod ring;

use crate::copy::options::{CopyOptions, Direction};
use crate::failure::python_repr;
use crate::lex::{self, Kind, Token};
use crate::schema::{self, Role, Table};
use crate::shell::Shell;

/// A COPY as it was typed.
#[derive(Debug, PartialEq, Eq)]
struct Command {
    keyspace: Option<String>,
    table: String,
    columns: Vec<String>,
    direction: Direction,
    /// `None`: standard input or output.
    path: Option<String>,
    options: Vec<(String, String)>,
}

/// The table and columns that are copied.
#[derive(Clone, Debug)]
struct Subject {
    keyspace: String,
    table: String,
    columns: Vec<String>,
    layout: Table,
}

impl Subject {
    /// `ks.table` for statements.
    fn quoted(&self) -> String {
        format!(
            "{}.{}",
            types::name::quote_identifier(&self.keyspace),
            types::name::quote_identifier(&self.table)
        )
    }

    fn names_of(&self, role: Role) -> Vec<String> {
        let columns = self.layout.columns.iter().filter(|column| column.role == role);
        columns.map(|column| column.name.clone()).collect()
    }
}

/// Joins names for a statement, with their quotes, by commas.
fn name_list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| types::name::quote_identifier(name)).collect();
    names.join(", ")
}

/// Carries out COPY. `None`: the grammar is wrong.
pub(crate) fn command(shell: &mut Shell, tokens: &[Token], source: &str) -> Option<()> {
    let command = parse(tokens, source)?;
    if let Err(error) = run(shell, command) {
        shell.print_error(&error);
    }
    Some(())
}

fn parse(tokens: &[Token], source: &str) -> Option<Command> {
    let mut rest = tokens.iter().skip(1).filter(|token| token.kind != Kind::End).peekable();
    let name = |token: &Token| match token.kind {
        Kind::Word | Kind::Name => Some(lex::unquote_name(token.text(source))),
        _ => None,
    };
    let is = |token: &Token, word: &str| token.text(source).eq_ignore_ascii_case(word);
    let mut table = name(rest.next()?)?;
    let mut keyspace = None;
    if rest.next_if(|token| is(token, ".")).is_some() {
        keyspace = Some(std::mem::replace(&mut table, name(rest.next()?)?));
    }
    let mut columns = Vec::new();
    if rest.next_if(|token| is(token, "(")).is_some() {
        loop {
            columns.push(name(rest.next()?)?);
            let token = rest.next()?;
            if is(token, ")") {
                break;
            }
            if !is(token, ",") {
                return None;
            }
        }
    }
    let (direction, standard) = match rest.next()?.text(source).to_lowercase().as_str() {
        "from" => (Direction::From, "stdin"),
        "to" => (Direction::To, "stdout"),
        _ => return None,
    };
    let place = rest.next()?;
    let path = match place.kind {
        Kind::Text | Kind::DollarText => Some(lex::unquote_text(place.text(source))),
        _ if is(place, standard) => None,
        _ => return None,
    };
    let mut options = Vec::new();
    let mut wanted = "with";
    while let Some(token) = rest.next() {
        if !is(token, wanted) {
            return None;
        }
        wanted = "and";
        let option = name(rest.next()?)?.to_lowercase();
        if !is(rest.next()?, "=") {
            return None;
        }
        let first = rest.next()?;
        let mut value = lex::unquote_text(first.text(source));
        if is(first, "-") {
            value.push_str(rest.next()?.text(source));
        }
        options.push((option, value));
    }
    Some(Command { keyspace, table, columns, direction, path, options })
}

fn run(shell: &mut Shell, command: Command) -> Result<(), String> {
    let Some(keyspace) = command.keyspace.or_else(|| shell.keyspace.clone()) else {
        return Err("Not in any keyspace.".to_owned());
    };
    let timeout = shell.options.request_timeout;
    let layout = schema::table(&mut shell.connection, &keyspace, &command.table, timeout)
        .map_err(|failure| failure.to_string())?;
    let Some(layout) = layout else {
        let exists = schema::has_keyspace(&mut shell.connection, &keyspace, timeout);
        return Err(match exists.map_err(|failure| failure.to_string())? {
            true => format!("Column family {} not found", command.table),
            false => format!("Keyspace {} not found.", python_repr(&keyspace)),
        });
    };
    let columns = match command.columns.is_empty() {
        true => layout.columns.iter().map(|column| column.name.clone()).collect(),
        false => command.columns,
    };
    let direction = command.direction;
    let mut said = Vec::new();
    let options = CopyOptions::read(
        direction,
        &keyspace,
        &command.table,
        command.options,
        &shell.options,
        &mut said,
    );
    let quiet = direction == Direction::To && command.path.is_none();
    if !quiet {
        said.iter().for_each(|line| shell.say(line));
    }
    let options = options?;
    if !quiet {
        shell.say(&format!("Using {} child processes", options.workers));
    }
    if !options.unrecognized.is_empty() {
        let (way, names) = (direction.name(), options.unrecognized.join(", "));
        return Err(format!("Unrecognized COPY {way} options: {names}"));
    }
    if let Some(unknown) = columns.iter().find(|name| layout.column(name).is_none()) {
        return Err(format!("Invalid column name {unknown}"));
    }
    let path = command.path.map(|path| crate::home::expand_home(&path));
    let subject = Subject { keyspace, table: command.table, columns, layout };
    match direction {
        Direction::To => export::run(shell, &subject, path.as_deref(), &options),
        Direction::From => import::run(shell, &subject, path.as_deref(), &options),
    }
}

/// The line before the first row.
fn starting(subject: &Subject, columns: &[String]) -> String {
    format!(
        "\nStarting copy of {}.{} with columns [{}].",
        subject.keyspace,
        subject.table,
        columns.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str) -> Option<Command> {
        let split = lex::split(source).unwrap();
        parse(split.statements.first().unwrap(), source)
    }

    #[test]
    fn the_command_has_columns_a_place_and_options() {
        let command = check(
            "COPY ks.\"T\" (a, \"B\") FROM 'f.csv' WITH HEADER = true AND null='N' AND MAXROWS=-1 \
             AND delimiter='|';",
        )
        .unwrap();
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            command,
            Command {
                keyspace: Some("ks".to_owned()),
                table: "T".to_owned(),
                columns: vec!["a".to_owned(), "B".to_owned()],
                direction: Direction::From,
                path: Some("f.csv".to_owned()),
                options: vec![
                    option("header", "true"),
                    option("null", "N"),
                    option("maxrows", "-1"),
                    option("delimiter", "|"),
                ],
            }
        );
        let command = check("copy t to stdout;").unwrap();
        assert_eq!((command.direction, command.path), (Direction::To, None));
    }

    #[test]
    fn other_forms_are_refused() {
        for source in [
            "COPY;",
            "COPY t;",
            "COPY t FROM STDOUT;",
            "COPY t TO STDIN;",
            "COPY t () TO 'f';",
            "COPY t TO 'f' HEADER=true;",
            "COPY t TO 'f' WITH HEADER;",
            "COPY t TO 'f' WITH HEADER=true NULL='';",
        ] {
            assert_eq!(check(source), None, "{source}");
        }
    }
}
