//! A grammar as data, and the terms that it expects after some tokens.
//!
//! Owns: the notation of `cql.grammar`, the walk over it. Never: names of the schema, or texts to
//! show.
//!
//! The walk follows every possible reading of the tokens, so that no look-ahead is needed. A
//! reading is dropped at the first token that does not fit. The result is the union of the next
//! terms of all readings that reach the end of the tokens. Two readings at one token with the same
//! names in sight are one, which bounds the walk by tokens times rules.

use crate::lex::{self, Kind, Token};

/// Element that may stand at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// A keyword, spelled as it is suggested.
    Keyword(String),
    /// A keyword that is accepted and never suggested.
    Unsuggested(String),
    /// A sign such as `(` or `<=`.
    Sign(String),
    /// A text in single quotes, without them.
    Text(String),
    /// The same, that no other text stands for: what follows depends on it.
    ExactText(String),
    /// A name or value of a kind: `table`, `column`, `number`.
    Kind(String),
}

#[derive(Clone, Debug)]
enum Node {
    Term(Term),
    Rule(String),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Optional(Box<Node>),
    Repeated(Box<Node>),
}

/// The names that a reading has met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InSight {
    /// The keyspace before a dot.
    pub(crate) qualifier: Option<String>,
    /// Keyspace (when it was named) and table of the statement.
    pub(crate) table: Option<(Option<String>, String)>,
}

/// A term that is expected, with the names in sight there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) term: Term,
    pub(crate) names: InSight,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    /// Tokens that are read.
    at: usize,
    names: InSight,
}

/// Rules by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grammar {
    rules: Vec<(String, Node)>,
}

impl Grammar {
    /// Parses the notation.
    ///
    /// # Errors
    /// The text is not in the notation, or a rule that it names is missing; with the position.
    pub(crate) fn parse(text: &str) -> Result<Grammar, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let mut parser = Parser { words: &words, at: 0 };
        let mut rules = Vec::new();
        while let Some(name) = parser.next() {
            parser.expect(":")?;
            rules.push((name.to_owned(), parser.choice(name)?));
            parser.expect(";")?;
        }
        let grammar = Grammar { rules };
        for word in &words {
            let is_rule = word.starts_with(|sign: char| sign.is_ascii_lowercase());
            if is_rule && grammar.rule(word).is_none() {
                return Err(format!("no rule \"{word}\""));
            }
        }
        Ok(grammar)
    }

    fn rule(&self, name: &str) -> Option<&Node> {
        self.rules.iter().find(|(known, _)| known == name).map(|(_, node)| node)
    }

    /// Returns the possible continuations after the tokens of one statement.
    pub(crate) fn expected(&self, tokens: &[Token], source: &str) -> Vec<Expected> {
        let mut walk = Walk { grammar: self, tokens, source, expected: Vec::new() };
        let start = Reading { at: 0, names: InSight::default() };
        if let Some((_, first)) = self.rules.first() {
            walk.read(first, vec![start]);
        }
        walk.expected
    }
}

struct Walk<'g> {
    grammar: &'g Grammar,
    tokens: &'g [Token],
    source: &'g str,
    expected: Vec<Expected>,
}

impl Walk<'_> {
    /// The readings after `node`, of those before it.
    fn read(&mut self, node: &Node, before: Vec<Reading>) -> Vec<Reading> {
        if before.is_empty() {
            return before;
        }
        match node {
            Node::Term(term) => {
                before.into_iter().filter_map(|reading| self.term(term, reading)).collect()
            }
            Node::Rule(name) => match self.grammar.rule(name) {
                Some(body) => self.read(body, before),
                None => Vec::new(),
            },
            Node::Sequence(parts) => {
                parts.iter().fold(before, |readings, part| self.read(part, readings))
            }
            Node::Choice(parts) => {
                let mut after = Vec::new();
                for part in parts {
                    add(&mut after, self.read(part, before.clone()));
                }
                after
            }
            Node::Optional(part) => {
                let mut after = before.clone();
                add(&mut after, self.read(part, before));
                after
            }
            Node::Repeated(part) => {
                let mut after = before.clone();
                let mut latest = before;
                // Each round reads at least one more token, so the rounds end with the tokens.
                while !latest.is_empty() {
                    latest = self.read(part, latest);
                    latest.retain(|reading| !after.contains(reading));
                    add(&mut after, latest.clone());
                }
                after
            }
        }
    }

    fn term(&mut self, term: &Term, mut reading: Reading) -> Option<Reading> {
        let Some(token) = self.tokens.get(reading.at) else {
            let expected = Expected { term: term.clone(), names: reading.names };
            if !self.expected.contains(&expected) {
                self.expected.push(expected);
            }
            return None;
        };
        let text = token.text(self.source);
        let fits = match term {
            Term::Keyword(word) | Term::Unsuggested(word) => {
                token.kind == Kind::Word && text.eq_ignore_ascii_case(word)
            }
            Term::Sign(sign) => text == sign,
            Term::Text(_) => token.kind == Kind::Text,
            Term::ExactText(exact) => {
                let inside = text.trim_matches('\'');
                let package = inside.strip_suffix(exact.as_str());
                token.kind == Kind::Text
                    && package.is_some_and(|p| p.is_empty() || p.ends_with('.'))
            }
            Term::Kind(kind) => match kind.as_str() {
                "text" | "file" | "data_center" => {
                    matches!(token.kind, Kind::Text | Kind::DollarText)
                }
                "number" => token.kind == Kind::Number,
                "role" => matches!(token.kind, Kind::Word | Kind::Name | Kind::Text),
                _ => matches!(token.kind, Kind::Word | Kind::Name),
            },
        };
        if !fits {
            return None;
        }
        reading.at += 1;
        if let Term::Kind(kind) = term {
            match kind.as_str() {
                "qualifier" => reading.names.qualifier = Some(lex::unquote_name(text)),
                "table" => {
                    let keyspace = reading.names.qualifier.take();
                    reading.names.table = Some((keyspace, lex::unquote_name(text)));
                }
                "type" | "user_function" | "user_aggregate" => reading.names.qualifier = None,
                _ => {}
            }
        }
        Some(reading)
    }
}

fn add(readings: &mut Vec<Reading>, more: Vec<Reading>) {
    for reading in more {
        if !readings.contains(&reading) {
            readings.push(reading);
        }
    }
}

struct Parser<'t> {
    words: &'t [&'t str],
    at: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'t str> {
        let word = self.peek();
        self.at += 1;
        word
    }

    fn expect(&mut self, expected: &str) -> Result<(), String> {
        match self.next() {
            Some(word) if word == expected => Ok(()),
            other => Err(format!("word {}: {other:?} instead of {expected:?}", self.at)),
        }
    }

    fn choice(&mut self, rule: &str) -> Result<Node, String> {
        let mut parts = vec![self.sequence(rule)?];
        while self.peek() == Some("|") {
            self.at += 1;
            parts.push(self.sequence(rule)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::Choice(parts) })
    }

    fn sequence(&mut self, rule: &str) -> Result<Node, String> {
        let mut parts = Vec::new();
        while let Some(word) = self.peek() {
            if matches!(word, "|" | ";" | ")" | "]" | "}") {
                break;
            }
            self.at += 1;
            parts.push(self.item(word, rule)?);
        }
        if parts.is_empty() {
            return Err(format!("rule \"{rule}\" has an empty alternative"));
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::Sequence(parts) })
    }

    fn item(&mut self, word: &str, rule: &str) -> Result<Node, String> {
        let inside = |quote| word.trim_matches(quote).to_owned();
        let node = match word.chars().next() {
            Some('(' | '[' | '{') => {
                let inner = self.choice(rule)?;
                let (end, node) = match word {
                    "(" => (")", inner),
                    "[" => ("]", Node::Optional(Box::new(inner))),
                    _ => ("}", Node::Repeated(Box::new(inner))),
                };
                self.expect(end)?;
                node
            }
            Some('\'') => Node::Term(Term::Sign(inside('\''))),
            Some('"') => Node::Term(Term::Text(inside('"'))),
            Some('=') => Node::Term(Term::ExactText(word.trim_matches(['=', '"']).to_owned())),
            Some('$') => Node::Term(Term::Kind(word.trim_start_matches('$').to_owned())),
            Some('!') => Node::Term(Term::Unsuggested(word.trim_start_matches('!').to_owned())),
            Some('~') => Node::Term(Term::Keyword(word.trim_start_matches('~').to_owned())),
            Some(first) if first.is_ascii_uppercase() => Node::Term(Term::Keyword(word.to_owned())),
            Some(first) if first.is_ascii_lowercase() => Node::Rule(word.to_owned()),
            _ => return Err(format!("rule \"{rule}\": \"{word}\" is not in the notation")),
        };
        Ok(node)
    }
}
