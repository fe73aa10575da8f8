//! The shell: lines in, statements to the server, tables out.
//!
//! Owns: the state that commands set, the loop over lines, the destinations of output and errors,
//! the exit status. Never: the format of a value or a table; the meaning of a shell command (see
//! `commands`).
//!
//! Reading order: [`Shell::run`], [`Shell::feed`], then `statement` for requests.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Stdout, Write};

use cql_wire::Consistency;

use crate::connection::{Connection, Target};
use crate::display::{BLUE, RED, RESET};
use crate::failure::{Failure, python_repr};
use crate::format::Style;
use crate::input::{Input, Line, os_error};
use crate::interrupt::Interrupt;
use crate::lex;
use crate::options::{Options, VERSION};
use crate::schema;

/// Release of Cassandra that this shell expects of the server.
const BUILT_AGAINST: &str = "5.0.9";
/// Rows per page when nothing else is set.
pub(crate) const PAGE_SIZE_DEFAULT: i32 = 100;

/// A statement of this many bytes is cut into tokens only when it may be at its end.
const LONG_BYTES: usize = 64 << 10;

/// A file that receives results.
struct Capture {
    path: String,
    file: BufWriter<File>,
    /// Colours before capturing, which has none.
    color: bool,
}

/// Facts about the server, as it reports them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) cluster: String,
    pub(crate) release: String,
    pub(crate) cql: String,
    pub(crate) data_center: String,
    pub(crate) rack: String,
    pub(crate) partitioner: String,
}

/// One shell.
pub(crate) struct Shell {
    pub(crate) options: Options,
    pub(crate) connection: Connection,
    pub(crate) target: Target,
    pub(crate) server: Server,
    pub(crate) keyspace: Option<String>,
    pub(crate) consistency: Consistency,
    pub(crate) serial_consistency: Consistency,
    pub(crate) tracing: bool,
    pub(crate) expand: bool,
    pub(crate) paging: bool,
    pub(crate) page_size: i32,
    pub(crate) json: bool,
    pub(crate) tty: bool,
    pub(crate) style: Style,
    pub(crate) input: Box<dyn Input>,
    /// Schema version that the names for completion are of.
    pub(crate) names_of: Option<String>,
    pub(crate) stop: bool,
    pub(crate) history_shown: usize,
    /// Columns of tables by keyspace and name, forgotten at each schema change.
    pub(crate) tables: Vec<(String, String, Option<schema::Table>)>,
    out: BufWriter<Stdout>,
    capture: Option<Capture>,
    line_number: usize,
    failed: bool,
    empty_lines: u32,
}

impl Shell {
    /// The target for threads that do part of a command. An interrupt does not reach them: they end between two
    /// pages or chunks, not within one.
    pub(crate) fn target_of_workers(&self) -> Target {
        Target {
            version: Some(self.connection.version()),
            interrupt: Interrupt::default(),
            ..self.target.clone()
        }
    }

    /// Connects and loads the server's identity.
    ///
    /// # Errors
    /// No connection, a wrong password, or no such keyspace.
    pub(crate) fn open(options: Options, input: Box<dyn Input>) -> Result<Shell, Failure> {
        let target = Target {
            host: options.host.clone(),
            port: options.port,
            version: options.version,
            user: options.username.clone().zip(options.password.clone()),
            cql_version: options.cql_version.clone(),
            connect_timeout: options.connect_timeout,
            interrupt: options.interrupt.clone(),
            tls: options.tls.clone(),
        };
        let color = options.color.unwrap_or(false);
        let style = Style {
            color,
            timestamp_format: options.time_format.clone(),
            zone: options.zone.clone(),
            float_precision: options.float_precision,
            double_precision: options.double_precision,
            ..Style::default()
        };
        let connection = Connection::open(&target)?;
        let mut shell = Shell {
            connection,
            target,
            server: Server::default(),
            keyspace: None,
            consistency: Consistency::One,
            serial_consistency: Consistency::Serial,
            tracing: false,
            expand: false,
            paging: true,
            page_size: PAGE_SIZE_DEFAULT,
            json: options.json,
            tty: options.tty,
            style,
            input,
            names_of: None,
            stop: false,
            history_shown: 50,
            tables: Vec::new(),
            out: BufWriter::new(std::io::stdout()),
            capture: None,
            line_number: 1,
            failed: false,
            empty_lines: 0,
            options,
        };
        if let Some(keyspace) = shell.options.keyspace.clone() {
            let used = shell.use_keyspace(&keyspace);
            used.map_err(|_| Failure::no_keyspace(&shell.target.host, &keyspace))?;
        }
        shell.ask_server()?;
        Ok(shell)
    }

    /// The same server and settings for the lines of a file.
    pub(crate) fn sub_shell(&self, input: Box<dyn Input>) -> Result<Shell, Failure> {
        let options = Options {
            keyspace: self.keyspace.clone(),
            tty: false,
            // Input that was given to this shell, perhaps the SOURCE itself.
            execute: None,
            file: None,
            username: self.target.user.as_ref().map(|(name, _)| name.clone()),
            password: self.target.user.as_ref().map(|(_, password)| password.clone()),
            color: Some(self.style.color),
            version: Some(self.connection.version()),
            ..self.options.clone()
        };
        let mut shell = Shell::open(options, input)?;
        shell.tracing = self.tracing;
        shell.json = self.json;
        Ok(shell)
    }

    /// Makes a keyspace the current one of the connection.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) fn use_keyspace(&mut self, keyspace: &str) -> Result<(), Failure> {
        let query = format!("USE \"{}\"", keyspace.replace('"', "\"\""));
        let timeout = self.options.connect_timeout;
        schema::rows(&mut self.connection, &query, Consistency::One, timeout)?;
        self.keyspace = Some(keyspace.to_owned());
        Ok(())
    }

    /// Reads the server's versions again.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) fn ask_server(&mut self) -> Result<(), Failure> {
        let query = "SELECT * FROM system.local WHERE key = 'local'";
        let timeout = self.options.request_timeout;
        let pages = schema::rows(&mut self.connection, query, Consistency::One, timeout)?;
        if let Some(page) = pages.first() {
            self.server = Server {
                cluster: page.text(0, "cluster_name"),
                release: page.text(0, "release_version"),
                cql: page.text(0, "cql_version"),
                data_center: page.text(0, "data_center"),
                rack: page.text(0, "rack"),
                partitioner: page.text(0, "partitioner"),
            };
        }
        Ok(())
    }

    /// Runs until the input ends or EXIT. Returns the exit status: 2 when a statement failed and
    /// the shell is not interactive.
    pub(crate) fn run(&mut self) -> u8 {
        self.greet();
        if let Some(statement) = self.options.execute.clone() {
            if !self.feed(&statement) {
                self.print_error(
                    "Incomplete statement: it ends inside a comment, a quote or a batch",
                );
            }
        } else {
            self.read_lines();
        }
        self.flush();
        if let Err(error) = self.input.save() {
            self.print_error(&format!("The history could not be saved: {error}"));
        }
        if !self.tty && self.failed { 2 } else { 0 }
    }

    fn greet(&mut self) {
        let release = self.server.release.split('-').next().unwrap_or_default().to_owned();
        if release != BUILT_AGAINST {
            self.say(&format!(
                "WARNING: cqlsh was built against {BUILT_AGAINST}, but this server is {release}.  \
                 All features may not work!"
            ));
        }
        if self.tty {
            let path = self.input.history_path().map(|path| path.display().to_string());
            if let Some(path) = path {
                self.say(&format!(
                    "\nATTENTION: All commands will be saved to history file: {path}\nThis may \
                     include sensitive information such as passwords.\nTo disable history, use \
                     --disable-history or set 'disabled = true' in the [history] section of \
                     cqlshrc.\nSee https://cassandra.apache.org/doc/latest/tools/cqlsh.html for \
                     more information.\n"
                ));
            }
            self.show_host();
            self.show_version();
            // With `--tty` alone the output is as cqlsh's, as scripts expect it.
            if std::io::stdout().is_terminal() {
                self.show_product();
            }
            self.say("Use HELP for help.");
            self.flush();
            self.refresh_names();
        }
    }

    fn read_lines(&mut self) {
        let mut statement = String::new();
        let mut prompt = self.prompt();
        while !self.stop {
            let was_interrupted = self.target.interrupt.is_set();
            if was_interrupted {
                if !self.tty {
                    // Skip the rest of a file that a user at a terminal has SOURCEd.
                    break;
                }
                self.target.interrupt.clear();
                statement.clear();
                prompt = self.prompt();
                self.say("");
            }
            self.flush();
            // A server that does not answer would hold up the prompt.
            if self.tty && statement.is_empty() && !was_interrupted {
                self.refresh_changed_names();
            }
            self.input.set_pending(&statement);
            match self.input.line(&prompt) {
                Line::Text(line) => {
                    self.line_number += 1;
                    let blank = matches!(line.as_str(), "" | "\n");
                    statement.push_str(&line);
                    if self.tty && !statement.ends_with('\n') {
                        statement.push('\n');
                    }
                    if cannot_end(&statement, &line) {
                        continue;
                    }
                    if self.feed(&statement) {
                        statement.clear();
                        self.empty_lines = 0;
                        prompt = self.prompt();
                    } else {
                        prompt = self.prompt_to_go_on(blank);
                    }
                }
                Line::End => {
                    if self.tty {
                        self.say("");
                    }
                    if !statement.trim().is_empty() && !self.feed(&statement) {
                        self.print_error("Incomplete statement at end of file");
                    }
                    self.stop = true;
                }
                Line::Interrupted => {
                    statement.clear();
                    prompt = self.prompt();
                    self.say("");
                }
                Line::Broken(why) => {
                    self.print_error(&why);
                    self.stop = true;
                }
            }
        }
    }

    /// Runs the statements of a text if it is complete. Returns whether the text is done with.
    pub(crate) fn feed(&mut self, text: &str) -> bool {
        let split = match lex::split(text) {
            Ok(split) => split,
            Err(error) => {
                let place = match self.tty {
                    true => format!("Invalid syntax at char {}", error.column),
                    false => {
                        format!("Invalid syntax at line {}, char {}", error.line, error.column)
                    }
                };
                self.print_error(&place);
                self.print_error(&format!("  {}", error.text));
                self.print_error(&format!(" {}^", " ".repeat(error.column)));
                return true;
            }
        };
        if split.statements.is_empty() {
            return true;
        }
        if !split.complete {
            return false;
        }
        if text.matches('\n').count() > 1 {
            self.input.remember(text.replace('\n', " ").trim_end());
        }
        for tokens in &split.statements {
            if self.stop || self.target.interrupt.is_set() {
                break;
            }
            self.handle(tokens, text);
        }
        true
    }

    fn prompt(&self) -> String {
        let custom = std::env::var("CQLSH_PROMPT").unwrap_or_default();
        let custom = if custom.is_empty() { custom } else { format!("{custom}\n") };
        let user =
            self.target.user.as_ref().map_or_else(String::new, |(name, _)| format!("{name}@"));
        match &self.keyspace {
            None => format!("{user}{custom}cqlsh> "),
            Some(keyspace) => format!("{user}{custom}cqlsh:{keyspace}> "),
        }
    }

    fn prompt_to_go_on(&mut self, blank: bool) -> String {
        if self.empty_lines >= 3 {
            self.empty_lines = 0;
            return "Statements are terminated with a ';'.  You can press CTRL-C to cancel an \
                    incomplete statement."
                .to_owned();
        }
        self.empty_lines = if blank { self.empty_lines + 1 } else { 0 };
        match &self.keyspace {
            None => "   ... ".to_owned(),
            Some(keyspace) => format!("{}    ... ", " ".repeat(keyspace.chars().count())),
        }
    }

    pub(crate) fn show_host(&mut self) {
        let cluster = self.colored(&self.server.cluster.clone(), BLUE);
        let (host, port) = (self.target.host.clone(), self.target.port);
        self.say(&format!("Connected to {cluster} at {host}:{port}"));
    }

    pub(crate) fn show_version(&mut self) {
        let Server { release, cql, .. } = &self.server;
        let protocol = self.connection.version().number();
        let text = format!(
            "[cqlsh {VERSION} | Cassandra {release} | CQL spec {cql} | Native protocol v{protocol}]"
        );
        self.say(&text);
    }

    /// Names the server program and its data center and rack; for people only, as cqlsh has no such
    /// line.
    fn show_product(&mut self) {
        let product = match self.connection.supported(cql_wire::startup::HELENUS_VERSION) {
            Some(version) => format!("Helenus {version}"),
            None => format!("Cassandra {}", self.server.release),
        };
        let Server { data_center, rack, .. } = &self.server;
        let text = format!("{product}, data center {data_center}, rack {rack}");
        self.say(&text);
    }

    pub(crate) fn colored(&self, text: &str, color: &str) -> String {
        if self.style.color { format!("{color}{text}{RESET}") } else { text.to_owned() }
    }

    /// A line for the console, captured or not.
    pub(crate) fn say(&mut self, line: &str) {
        self.put(line);
        self.put("\n");
    }

    /// Text for the console.
    pub(crate) fn put(&mut self, text: &str) {
        if self.out.write_all(text.as_bytes()).is_err() {
            self.stop = true;
        }
    }

    /// A line of a result.
    pub(crate) fn write_line(&mut self, line: &str) {
        self.write(line);
        self.write("\n");
    }

    /// Text of a result: to the file while capturing.
    pub(crate) fn write(&mut self, text: &str) {
        let done = match &mut self.capture {
            Some(capture) => capture.file.write_all(text.as_bytes()),
            None => self.out.write_all(text.as_bytes()),
        };
        if done.is_err() {
            self.stop = true;
        }
    }

    /// Everything so far reaches the terminal or the file.
    pub(crate) fn flush(&mut self) {
        let captured = self.capture.as_mut().map_or(Ok(()), |capture| capture.file.flush());
        if self.out.flush().is_err() || captured.is_err() {
            self.stop = true;
        }
    }

    /// Prints an error, with its position in the input unless the shell is interactive.
    pub(crate) fn print_error(&mut self, text: &str) {
        self.failed = true;
        self.flush();
        let text = match self.tty {
            true => text.to_owned(),
            false => format!("{}:{}:{text}", self.input.name(), self.line_number),
        };
        let mut line = self.colored(&text, RED);
        line.push('\n');
        // A failure here cannot be reported anywhere.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Returns true if results are written to a file.
    pub(crate) fn is_capturing(&self) -> bool {
        self.capture.is_some()
    }

    /// CAPTURE: where results go.
    pub(crate) fn capture(&mut self, to: Option<&str>) {
        match (to, &self.capture) {
            (None, Some(capture)) => {
                let path = python_repr(&capture.path);
                self.say(&format!("Currently capturing query output to {path}."));
            }
            (None, None) => self.say("Currently not capturing query output."),
            (Some(_), Some(capture)) => {
                let path = capture.path.clone();
                self.print_error(&format!(
                    "Already capturing output to {path}. Use CAPTURE OFF to disable."
                ));
            }
            (Some(path), None) => match File::options().append(true).create(true).open(path) {
                Ok(file) => {
                    let color = std::mem::take(&mut self.style.color);
                    let file = BufWriter::new(file);
                    self.capture = Some(Capture { path: path.to_owned(), file, color });
                    self.say(&format!("Now capturing query output to {}.", python_repr(path)));
                }
                Err(error) => {
                    let why = os_error(&error, path);
                    let path = python_repr(path);
                    self.print_error(&format!("Could not open {path} for append: {why}"));
                }
            },
        }
    }

    /// CAPTURE OFF.
    pub(crate) fn capture_off(&mut self) {
        self.flush();
        match self.capture.take() {
            Some(capture) => self.style.color = capture.color,
            None => self.print_error("Not currently capturing output."),
        }
    }

    /// The columns of a table, asked once.
    pub(crate) fn table(&mut self, keyspace: &str, table: &str) -> Option<&schema::Table> {
        let known =
            |(a, b, _): &(String, String, Option<schema::Table>)| a == keyspace && b == table;
        if !self.tables.iter().any(known) {
            let timeout = self.options.request_timeout;
            let found = schema::table(&mut self.connection, keyspace, table, timeout).ok()?;
            self.tables.push((keyspace.to_owned(), table.to_owned(), found));
        }
        self.tables.iter().find(|entry| known(entry)).and_then(|(_, _, found)| found.as_ref())
    }
}

/// Returns true if a line certainly leaves a long statement open. The statement then need not be
/// cut into tokens again for each of its lines.
fn cannot_end(statement: &str, line: &str) -> bool {
    if statement.len() < LONG_BYTES {
        return false;
    }
    let begins = statement.trim_start().get(..5).unwrap_or_default();
    let line = line.to_lowercase();
    match begins.eq_ignore_ascii_case("begin") {
        true => !line.contains("apply") && !line.contains("batch"),
        false => !line.contains(';'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_statements_are_looked_at_where_they_may_end() {
        let insert = format!("INSERT {}", "x".repeat(LONG_BYTES));
        assert!(cannot_end(&insert, "x\n"));
        assert!(!cannot_end(&insert, "x;\n"));
        let batch = format!("begin batch {}", "x".repeat(LONG_BYTES));
        assert!(cannot_end(&batch, "INSERT INTO t (k) VALUES (1);\n"));
        assert!(!cannot_end(&batch, "APPLY BATCH;\n"));
        assert!(!cannot_end(&batch, "Batch;\n"));
        assert!(!cannot_end("SELECT", "x\n"));
    }
}
