//! The grammar of nodetool's command line, which is Cassandra's: `-h` is the host, `-pp` and `-cf` are options of
//! their own, options stand before or after the verb.

use std::rc::Rc;

use super::client::{NodeApi, Terminal};
use super::command::Verb;
use super::flags::GLOBAL;
use super::line::Line;
use super::refused::refused;
use super::table::verb;
use crate::nodetool::HostStyle;

/// Port of the API unless `api_port` names another.
const API_PORT: u16 = 10_000;

/// Understands a command line, without the name of the program.
///
/// # Errors
/// The error, in the words of Cassandra's tool.
pub fn parse(words: Vec<String>, terminal: Rc<dyn Terminal>) -> Result<Line, String> {
    let mut parser = Parser {
        line: Line {
            api: NodeApi { host: "127.0.0.1".to_owned(), port: API_PORT, terminal },
            style: HostStyle::default(),
            verb: "help",
            options: Vec::new(),
            arguments: Vec::new(),
            properties: Vec::new(),
        },
        verb: None,
        unexpected: Vec::new(),
    };
    let mut only_arguments = false;
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        if word == "--" && !only_arguments {
            only_arguments = true;
            continue;
        }
        // Cassandra's script hands them to the Java virtual machine, wherever they stand.
        if let Some(property) = jvm_property(&word).filter(|_| !only_arguments) {
            parser.line.properties.push(property.to_owned());
            continue;
        }
        // Tokens below zero are arguments, with or without the `--` that Cassandra's tool needs.
        let is_number = word.parse::<i64>().is_ok();
        if !word.starts_with('-') || word.len() == 1 || only_arguments || is_number {
            parser.word(word)?;
        } else {
            parser.option(word, &mut rest)?;
        }
    }
    parser.finish()
}

struct Parser {
    line: Line,
    verb: Option<&'static Verb>,
    unexpected: Vec<String>,
}

impl Parser {
    /// The verb, or one of its arguments.
    fn word(&mut self, word: String) -> Result<(), String> {
        if self.verb.is_some() {
            self.line.arguments.push(word);
            return Ok(());
        }
        // After a word that it does not know Cassandra's tool checks none.
        if !self.unexpected.is_empty() {
            self.unexpected.push(word);
            return Ok(());
        }
        match (verb(&word), refused(&word)) {
            (Some(found), _) => self.verb = Some(found),
            (None, Some(why)) => return Err(format!("{word} is not supported: {why}")),
            (None, None) => self.unexpected.push(word),
        }
        Ok(())
    }

    /// An option, with its value from the rest of the line.
    fn option(
        &mut self,
        word: String,
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), String> {
        if self.verb.is_none() && !self.unexpected.is_empty() {
            self.unexpected.push(word);
            return Ok(());
        }
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let own = self.verb.map_or(&[][..], |verb| verb.flags);
        let Some(flag) = own.iter().chain(GLOBAL).find(|f| f.names.contains(&name)) else {
            self.unexpected.push(word);
            return Ok(());
        };
        let value = match flag.value {
            None => String::new(),
            Some(title) => attached
                .or_else(|| rest.next())
                .ok_or_else(|| format!("Required values for option '{title}' not provided"))?,
        };
        self.line.options.push((flag.names.last().copied().unwrap_or(""), value));
        Ok(())
    }

    fn finish(self) -> Result<Line, String> {
        let Parser { mut line, verb, unexpected } = self;
        if !unexpected.is_empty() {
            return Err(format!("Found unexpected parameters: [{}]", unexpected.join(", ")));
        }
        if let Some(verb) = verb {
            line.verb = verb.name;
            if line.arguments.len() > verb.arguments_max {
                let extra = line.arguments.split_off(verb.arguments_max);
                return Err(format!("Found unexpected parameters: [{}]", extra.join(", ")));
            }
            if line.arguments.is_empty() && !verb.required.is_empty() {
                return Err(format!("Required parameters are missing: {}", verb.required));
            }
        }
        if let Some(host) = line.value("--host") {
            line.api.host = host.to_owned();
        }
        if let Some(port) = line.value("--port") {
            line.api.port = port.parse().map_err(|_| format!("For input string: \"{port}\""))?;
        }
        line.style.port = line.has("--print-port");
        Ok(line)
    }
}

/// `-Dname=value`, as runbooks pass it for TLS and the like. Those of TLS count; others have no effect here.
fn jvm_property(word: &str) -> Option<&str> {
    word.strip_prefix("-D").filter(|property| !property.is_empty())
}
