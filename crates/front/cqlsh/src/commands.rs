//! Commands that the shell carries out itself.
//!
//! Owns: the grammar and output of each command. Never: statements of CQL, COPY (see `copy`).
//!
//! Source: `cqlshhandling.py` and the `do_…` functions of cqlsh 6.2.

use std::fs::File;
use std::io::{BufRead, Write};

use cql_wire::{Consistency, ProtocolVersion, QueryParameters, Request};

use crate::connection::{Answer, Connection, Page, Target};
use crate::copy::ring::{bare, ranges};
use crate::display;
use crate::failure::Failure;
use crate::home::expand_home;
use crate::input::{Lines, read_text};
use crate::lex::{self, Kind, Token};
use crate::shell::{PAGE_SIZE_DEFAULT, Shell};
use crate::{copy, help, trace};

/// Words of a command after its first.
struct Words<'s> {
    tokens: &'s [Token],
    source: &'s str,
}

impl<'s> Words<'s> {
    fn at(&self, index: usize) -> Option<&'s str> {
        self.tokens.get(index).map(|token| token.text(self.source))
    }

    fn kind(&self, index: usize) -> Option<Kind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    fn is(&self, index: usize, word: &str) -> bool {
        self.at(index).is_some_and(|text| text.eq_ignore_ascii_case(word))
    }

    fn is_end(&self, index: usize) -> bool {
        self.tokens.len() == index
    }
}

/// Outcome of ON or OFF.
#[derive(PartialEq, Eq)]
enum Switch {
    On,
    Off,
    Size(i32),
}

impl Shell {
    /// Carries out a shell command. Returns false when the word is none.
    pub(crate) fn command(&mut self, word: &str, tokens: &[Token], source: &str) -> bool {
        let ended = tokens.last().is_some_and(|token| token.kind == Kind::End);
        let end = tokens.len().saturating_sub(usize::from(ended));
        let words = Words { tokens: tokens.get(1..end).unwrap_or_default(), source };
        let done = match word {
            "describe" | "desc" => self.describe(&words, lex::original(tokens, source)),
            "consistency" => self.consistency_command(&words),
            "serial" => self.serial_command(&words),
            "show" => self.show_command(&words),
            "source" => self.source_command(&words),
            "capture" => self.capture_command(&words),
            "login" => self.login_command(&words),
            "help" | "?" => self.help_command(&words),
            "tracing" => self.switch_command("TRACING", &words),
            "expand" => self.switch_command("EXPAND", &words),
            "paging" => self.switch_command("PAGING", &words),
            "output" => self.output_command(&words),
            "history" => self.history_command(&words),
            "copy" => copy::command(self, tokens, source),
            "exit" | "quit" => words.is_end(0).then(|| self.stop = true),
            "clear" | "cls" => words.is_end(0).then(|| self.clear()),
            "debug" if words.is_end(0) || words.is(0, "things") && words.is_end(1) => {
                self.print_error("DEBUG is not supported: it is the debugger of Python");
                Some(())
            }
            "debug" => None,
            _ => return false,
        };
        if done.is_none() {
            let typed = tokens.first().map_or(word, |token| token.text(source));
            let typed = if typed == "?" { "help" } else { typed };
            self.print_error(&format!("Improper {typed} command."));
        }
        true
    }

    fn switch_command(&mut self, name: &str, words: &Words<'_>) -> Option<()> {
        let current = match name {
            "TRACING" => self.tracing,
            "EXPAND" => self.expand,
            _ => self.paging,
        };
        let shown = |on: bool| if on { "ON" } else { "OFF" };
        let wanted = match words.at(0) {
            None => None,
            Some(_) if !words.is_end(1) => return None,
            Some(word) if word.eq_ignore_ascii_case("on") => Some(Switch::On),
            Some(word) if word.eq_ignore_ascii_case("off") => Some(Switch::Off),
            Some(word) if name == "PAGING" => {
                let is_number = words.kind(0) == Some(Kind::Number);
                Some(Switch::Size(word.parse().ok().filter(|_| is_number)?))
            }
            Some(_) => return None,
        };
        let on = match &wanted {
            None => {
                self.say(&format!("{name} is {}", shown(current)));
                current
            }
            Some(Switch::Size(_)) => true,
            Some(switch) => {
                let on = *switch == Switch::On;
                let verb = if on == current { "is already" } else { "set to" };
                self.say(&format!("{name} {verb} {}", shown(on)));
                on
            }
        };
        match name {
            "TRACING" => self.tracing = on,
            "EXPAND" => self.expand = on,
            _ => {
                self.paging = on;
                match wanted {
                    Some(Switch::Size(size)) => self.page_size = size,
                    _ if !on => self.page_size = PAGE_SIZE_DEFAULT,
                    _ => {}
                }
                if on {
                    self.say(&format!("Page size: {}", self.page_size));
                }
            }
        }
        Some(())
    }

    fn consistency_command(&mut self, words: &Words<'_>) -> Option<()> {
        let Some(word) = words.at(0) else {
            let name = self.consistency.name();
            self.say(&format!("Current consistency level is {name}."));
            return Some(());
        };
        self.consistency = words.is_end(1).then(|| level(word)).flatten()?;
        self.say(&format!("Consistency level set to {}.", word.to_uppercase()));
        Some(())
    }

    fn serial_command(&mut self, words: &Words<'_>) -> Option<()> {
        if !words.is(0, "consistency") {
            return None;
        }
        let Some(word) = words.at(1) else {
            let name = self.serial_consistency.name();
            self.say(&format!("Current serial consistency level is {name}."));
            return Some(());
        };
        let level = words.is_end(2).then(|| level(word)).flatten();
        self.serial_consistency = level.filter(|level| level.is_serial())?;
        self.say(&format!("Serial consistency level set to {}.", word.to_uppercase()));
        Some(())
    }

    fn show_command(&mut self, words: &Words<'_>) -> Option<()> {
        let what = words.at(0)?.to_lowercase();
        match what.as_str() {
            "version" if words.is_end(1) => {
                match self.ask_server() {
                    Ok(()) => self.show_version(),
                    Err(failure) => self.print_failure(&failure),
                }
                Some(())
            }
            "host" if words.is_end(1) => {
                self.show_host();
                Some(())
            }
            "session" if words.is_end(2) => {
                let id = types::timeuuid::parse_uuid(words.at(1)?)?;
                trace::print(self, &id, true);
                Some(())
            }
            "replicas" => {
                let minus = words.is(1, "-");
                let at = if minus { 2 } else { 1 };
                let token: i128 = words.at(at)?.parse().ok()?;
                let keyspace = words.at(at + 1).map(lex::unquote_name);
                if !words.is_end(at + 1 + usize::from(keyspace.is_some())) {
                    return None;
                }
                self.show_replicas(if minus { -token } else { token }, keyspace);
                Some(())
            }
            _ => None,
        }
    }

    /// Prints the owners of a token, from the server's own account of the ring.
    fn show_replicas(&mut self, token: i128, keyspace: Option<String>) {
        let Some(keyspace) = keyspace.or_else(|| self.keyspace.clone()) else {
            return self.say("[]");
        };
        let pages = match self.describe_rows("DESCRIBE CLUSTER", Some(&keyspace)) {
            Ok((pages, _)) => pages,
            // No such keyspace.
            Err(Failure { code: Some(cql_wire::ErrorCode::Invalid), .. }) => Vec::new(),
            Err(failure) => return self.print_failure(&failure),
        };
        let mut ring: Vec<(i128, String)> = pages
            .iter()
            .flat_map(ranges)
            .filter_map(|(token, hosts)| Some((token.parse().ok()?, hosts)))
            .collect();
        ring.sort();
        let owner = ring.iter().find(|(end, _)| *end >= token).or_else(|| ring.first());
        // Keyspaces that every node has for itself are on no ring.
        let hosts = owner.map_or("", |(_, hosts)| hosts.as_str());
        let hosts = hosts.split(", ").filter(|host| !host.is_empty());
        let hosts: Vec<String> = hosts.map(|host| format!("'{}'", bare(host))).collect();
        self.say(&format!("[{}]", hosts.join(", ")));
    }

    fn source_command(&mut self, words: &Words<'_>) -> Option<()> {
        let path = self.path(words, 0)?;
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(why) => {
                let path = crate::failure::python_repr(&path);
                self.print_error(&format!("Could not open {path}: {why}"));
                return Some(());
            }
        };
        self.flush();
        let input = Lines::new(&path, std::io::Cursor::new(text), false);
        match self.sub_shell(Box::new(input)) {
            Ok(mut shell) => {
                shell.run();
            }
            Err(failure) => self.print_failure(&failure),
        }
        Some(())
    }

    fn capture_command(&mut self, words: &Words<'_>) -> Option<()> {
        if words.is_end(0) {
            self.capture(None);
        } else if words.is(0, "off") && words.is_end(1) {
            self.capture_off();
        } else {
            let path = self.path(words, 0)?;
            self.capture(Some(&path));
        }
        Some(())
    }

    /// A literal that is the last word, with `~` expanded.
    fn path(&self, words: &Words<'_>, index: usize) -> Option<String> {
        if !matches!(words.kind(index)?, Kind::Text | Kind::DollarText) || !words.is_end(index + 1)
        {
            return None;
        }
        Some(expand_home(&lex::unquote_text(words.at(index)?)))
    }

    fn login_command(&mut self, words: &Words<'_>) -> Option<()> {
        let name = words.at(0)?;
        let name = match words.kind(0)? {
            Kind::Word => name.to_owned(),
            Kind::Text | Kind::DollarText => lex::unquote_text(name),
            Kind::Name => lex::unquote_name(name),
            _ => return None,
        };
        let password = match words.at(1) {
            None => ask_password(),
            Some(text) if words.is_end(2) && words.kind(1) == Some(Kind::Text) => {
                lex::unquote_text(text)
            }
            Some(_) => return None,
        };
        let target = Target {
            user: Some((name, password)),
            version: Some(self.connection.version()),
            ..self.target.clone()
        };
        match self.login(&target) {
            Ok(()) => self.target = target,
            Err(failure) => self.print_error(&no_servers(&target, &failure)),
        }
        Some(())
    }

    fn login(&mut self, target: &Target) -> Result<(), Failure> {
        let old = std::mem::replace(&mut self.connection, Connection::open(target)?);
        let keyspace = self.keyspace.clone();
        let used = keyspace.map_or(Ok(()), |keyspace| self.use_keyspace(&keyspace));
        if used.is_err() {
            self.connection = old;
        }
        used
    }

    fn help_command(&mut self, words: &Words<'_>) -> Option<()> {
        let is_topic = |token: &Token| {
            let letters = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
            token.kind == Kind::Word && token.text(words.source).bytes().all(letters)
        };
        if !words.tokens.iter().all(is_topic) {
            return None;
        }
        if words.is_end(0) {
            let text = help::topics();
            self.put(&text);
            return Some(());
        }
        for index in 0..words.tokens.len() {
            let topic = words.at(index)?;
            match (help::topic(topic), help::address(topic), self.options.browser.clone()) {
                (_, Some(address), Some(browser)) => self.browse(&browser, topic, &address),
                (Some(text), ..) => self.put(&text),
                (None, ..) => self.print_error(&format!("*** No help on {topic}")),
            }
        }
        Some(())
    }

    /// Shows the page of a topic in the browser that was named.
    fn browse(&mut self, browser: &str, topic: &str, address: &str) {
        self.flush();
        let mut words = browser.split_whitespace().map(|word| word.replace("%s", address));
        let mut command = std::process::Command::new(words.next().unwrap_or_default());
        command.args(words);
        if !browser.contains("%s") {
            command.arg(address);
        }
        if !command.status().is_ok_and(|status| status.success()) {
            self.print_error(&format!(
                "*** No browser to display CQL help. URL for help topic {topic} : {address}"
            ));
        }
    }

    /// Clears the terminal as its description specifies, else with the sequence of most terminals.
    fn clear(&mut self) {
        self.flush();
        if std::process::Command::new("clear").status().is_err() {
            self.put("\x1b[H\x1b[2J\x1b[3J");
        }
    }

    fn output_command(&mut self, words: &Words<'_>) -> Option<()> {
        let name = |json: bool| if json { "JSON" } else { "TABLE" };
        match words.at(0) {
            None => self.say(&format!("OUTPUT is {}", name(self.json))),
            Some(word) if words.is_end(1) => {
                self.json = match word.to_lowercase().as_str() {
                    "json" => true,
                    "table" => false,
                    _ => return None,
                };
                self.say(&format!("OUTPUT set to {}", name(self.json)));
            }
            Some(_) => return None,
        }
        Some(())
    }

    fn history_command(&mut self, words: &Words<'_>) -> Option<()> {
        if let Some(word) = words.at(0) {
            self.history_shown = words.is_end(1).then(|| word.parse().ok()).flatten()?;
        }
        let Some(mut history) = self.input.history() else {
            self.print_error("HISTORY: only a terminal has one");
            return Some(());
        };
        // The command itself is the last.
        history.pop();
        for line in history.iter().skip(history.len().saturating_sub(self.history_shown)) {
            self.say(line);
        }
        Some(())
    }

    fn describe(&mut self, words: &Words<'_>, text: &str) -> Option<()> {
        let what = check_describe(words)?;
        let (pages, warnings) = match self.describe_rows(text, None) {
            Ok(answer) => answer,
            Err(failure) => {
                let said = match failure.code {
                    Some(_) => failure.message,
                    None => failure.to_string(),
                };
                self.print_error(&said);
                return Some(());
            }
        };
        match what.as_str() {
            "columnfamilies" | "tables" | "types" | "functions" | "aggregates" => {
                self.describe_list(&pages);
            }
            "keyspaces" => {
                let names: Vec<String> = pages
                    .iter()
                    .flat_map(|page| (0..page.len()).map(|row| page.text(row, "name")))
                    .collect();
                let columns = display::columnize(&names, 80);
                self.say("");
                self.put(&columns);
                self.say("");
            }
            "cluster" => self.describe_cluster(&pages),
            _ => {
                for page in &pages {
                    for row in 0..page.len() {
                        self.say("");
                        self.write(&page.text(row, "create_statement"));
                        self.say("");
                    }
                }
            }
        }
        self.print_warnings(&warnings);
        Some(())
    }

    /// Returns the rows of a DESCRIBE, as if `keyspace` were the current one if the protocol
    /// supports that.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) fn describe_rows(
        &mut self,
        query: &str,
        keyspace: Option<&str>,
    ) -> Result<(Vec<Page>, Vec<String>), Failure> {
        let keyspace = keyspace.filter(|_| self.connection.version() == ProtocolVersion::V5);
        let mut pages = Vec::new();
        let mut state: Option<Vec<u8>> = None;
        loop {
            let parameters = QueryParameters {
                page_size: self.page_rows(),
                paging_state: state.as_deref(),
                keyspace,
                ..QueryParameters::new(Consistency::LocalOne)
            };
            let request = Request::Query { query, parameters };
            let reply = self.connection.request(&request, false, self.options.request_timeout)?;
            // Like for SELECT: cqlsh knows the warnings of the last page only.
            let warnings = reply.warnings;
            let Answer::Rows(page) = reply.answer else { return Ok((pages, warnings)) };
            state.clone_from(&page.paging_state);
            pages.push(page);
            if state.is_none() {
                return Ok((pages, warnings));
            }
        }
    }

    fn describe_list(&mut self, pages: &[Page]) {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for page in pages {
            for row in 0..page.len() {
                let keyspace = page.text(row, "keyspace_name");
                let name = page.text(row, "name");
                match groups.last_mut().filter(|(known, _)| *known == keyspace) {
                    Some((_, names)) => names.push(name),
                    None => groups.push((keyspace, vec![name])),
                }
            }
        }
        if groups.is_empty() {
            return;
        }
        for (keyspace, names) in &groups {
            self.say("");
            if self.keyspace.is_none() {
                self.say(&format!("Keyspace {keyspace}"));
                self.say(&format!("---------{}", "-".repeat(keyspace.chars().count())));
            }
            let columns = display::columnize(names, 80);
            self.put(&columns);
        }
        self.say("");
    }

    fn describe_cluster(&mut self, pages: &[Page]) {
        for page in pages {
            for row in 0..page.len() {
                self.say(&format!("\nCluster: {}", page.text(row, "cluster")));
                self.say(&format!("Partitioner: {}", page.text(row, "partitioner")));
                self.say(&format!("Snitch: {}\n", page.text(row, "snitch")));
                if page.columns.iter().any(|column| column.name == "range_ownership") {
                    self.say("Range ownership:");
                    for (token, hosts) in ranges(page) {
                        self.say(&format!(" {token:>39}  [{hosts}]"));
                    }
                    self.say("");
                }
            }
        }
    }
}

fn level(word: &str) -> Option<Consistency> {
    Consistency::ALL.iter().copied().find(|level| level.name().eq_ignore_ascii_case(word))
}

/// Checks the grammar of DESCRIBE. Returns its subject's keyword, in lower case.
fn check_describe(words: &Words<'_>) -> Option<String> {
    let what = words.at(0)?.to_lowercase();
    let name = |from: usize| -> Option<usize> {
        let is_name =
            |at: usize| words.tokens.get(at).is_some_and(|token| lex::is_name(token, words.source));
        if !is_name(from) {
            return None;
        }
        if words.is(from + 1, ".") { is_name(from + 2).then_some(from + 3) } else { Some(from + 1) }
    };
    let behind = match what.as_str() {
        "functions" | "aggregates" | "keyspaces" | "columnfamilies" | "tables" | "cluster"
        | "types" | "schema" => 1,
        "full" if words.is(1, "schema") => 2,
        "only" if words.is(1, "keyspace") => name(2).unwrap_or(2),
        "keyspace" if words.is_end(1) || words.is(1, "with") => 1,
        "keyspace" | "function" | "aggregate" | "columnfamily" | "table" | "index" | "type" => {
            // Words that are not reserved may be names themselves.
            name(1).or_else(|| name(0))?
        }
        "materialized" if words.is(1, "view") => name(2)?,
        _ => name(0)?,
    };
    let internals = words.is(behind, "with") && words.is(behind + 1, "internals");
    words.is_end(if internals { behind + 2 } else { behind }).then_some(what)
}

/// Returns the driver's error for a connection that no server accepted.
pub(crate) fn no_servers(target: &Target, failure: &Failure) -> String {
    let name = target.name();
    format!("('Unable to connect to any servers', {{'{name}': {}}})", failure.repr())
}

/// Asks for a password: on the terminal, without an echo where `stty` can switch it off, even when
/// statements come from standard input; without a terminal on standard input.
pub fn ask_password() -> String {
    let mut line = String::new();
    let terminal = File::options().read(true).write(true).open("/dev/tty");
    let read = match terminal {
        Ok(mut terminal) => {
            let echo = |setting: &str| {
                let Ok(input) = File::open("/dev/tty") else { return false };
                std::process::Command::new("stty").arg(setting).stdin(input).status().is_ok()
            };
            let hidden = echo("-echo");
            let asked = terminal.write_all(b"Password: ");
            // One byte at a time: input after the line is not for this reader.
            let read = asked.and_then(|()| {
                let mut terminal = std::io::BufReader::with_capacity(1, &terminal);
                terminal.read_line(&mut line)
            });
            if hidden {
                echo("echo");
                let _ = terminal.write_all(b"\n");
            }
            read
        }
        Err(_) => {
            let mut out = std::io::stderr();
            let _ = out.write_all(b"Password: ").and_then(|()| out.flush());
            std::io::stdin().read_line(&mut line)
        }
    };
    match read {
        Ok(_) => line.trim_end_matches(['\r', '\n']).to_owned(),
        Err(_) => String::new(),
    }
}
