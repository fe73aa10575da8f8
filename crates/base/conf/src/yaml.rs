//! YAML text to a tree of nodes that remember their line.
//!
//! Owns: the only use of the YAML parser in the workspace. Never: the meaning of values. A scalar
//! stays the text that was written, because `00`, `1.10` and `yes` mean different things to
//! different settings.
//! Invariant: a tree has at most [`NODES_MAX`] nodes and [`DEPTH_MAX`] levels, whatever the text.

use granit_parser::{Event, Parser, ScalarStyle};

/// Most nodes of one document. cassandra.yaml has about 400; more is a mistake or an attack.
pub const NODES_MAX: usize = 20_000;
/// Deepest nesting of lists and maps.
pub const DEPTH_MAX: usize = 32;
/// Longest text that is parsed, bytes.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// One value with the line it stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Line in the source, from 1; 0 where there is no source line (environment, command line).
    pub line: usize,
    /// The value.
    pub kind: NodeKind,
}

/// The shapes a YAML value can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Nothing, `~` or `null`.
    Null,
    /// The text of a scalar after unquoting.
    Scalar(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in the order of the text; keys are scalars.
    Map(Vec<Entry>),
}

/// One key of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Line of the key, from 1.
    pub line: usize,
    /// Its value.
    pub value: Node,
}

/// Error of text that is not YAML, or not YAML as a configuration file uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// Line, from 1.
    pub line: usize,
    /// The error, in lower case.
    pub message: String,
}

impl Node {
    /// Creates a scalar without a line, as given by the environment or the command line.
    pub fn scalar(text: impl Into<String>) -> Node {
        Node { line: 0, kind: NodeKind::Scalar(text.into()) }
    }

    /// Returns the value of `key`, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.kind {
            NodeKind::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            NodeKind::Null | NodeKind::Scalar(_) | NodeKind::List(_) => None,
        }
    }

    /// Returns the text, if this is a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar(text) => Some(text),
            NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_) => None,
        }
    }

    /// Returns true if no value was written.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Null)
    }

    /// Renders the value on one line, for messages.
    pub fn brief(&self) -> String {
        match &self.kind {
            NodeKind::Null => String::new(),
            NodeKind::Scalar(text) => text.chars().take(120).collect(),
            NodeKind::List(items) => {
                let items: Vec<String> = items.iter().take(8).map(Node::brief).collect();
                format!("[{}]", items.join(", "))
            }
            NodeKind::Map(entries) => {
                let entries: Vec<String> = entries
                    .iter()
                    .take(8)
                    .map(|e| format!("{}: {}", e.key, e.value.brief()))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }
}

/// Parses the first document of `text`; an empty text is [`NodeKind::Null`].
///
/// # Errors
/// The text is not YAML, has a second document, an alias, a key that is not a scalar, or a key
/// twice in one map; or it exceeds the limits of this module.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(YamlError { line: 1, message: format!("longer than {TEXT_BYTES_MAX} bytes") });
    }
    let mut builder = Builder { open: Vec::new(), root: None, nodes: 0 };
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| YamlError {
            line: error.marker().line().max(1),
            message: error.info(),
        })?;
        builder.event(event, span.start.line().max(1))?;
    }
    Ok(builder.root.unwrap_or(Node { line: 1, kind: NodeKind::Null }))
}

/// A list or map whose end was not parsed yet.
enum Open {
    List { line: usize, items: Vec<Node> },
    Map { line: usize, entries: Vec<Entry>, key: Option<(String, usize)> },
}

struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, ..) => {
                let plain = matches!(style, ScalarStyle::Plain);
                let null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = if null { NodeKind::Null } else { NodeKind::Scalar(text.into_owned()) };
                self.put(Node { line, kind })
            }
            Event::SequenceStart(..) => self.start(Open::List { line, items: Vec::new() }, line),
            Event::MappingStart(..) => {
                self.start(Open::Map { line, entries: Vec::new(), key: None }, line)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List { line, items }) => {
                    self.put(Node { line, kind: NodeKind::List(items) })
                }
                Some(Open::Map { line, entries, .. }) => {
                    self.put(Node { line, kind: NodeKind::Map(entries) })
                }
                None => Err(YamlError { line, message: "unbalanced end".into() }),
            },
            Event::Alias(..) | Event::UnresolvedAlias(..) => {
                Err(YamlError { line, message: "aliases are not supported here".into() })
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(YamlError { line, message: "a second document".into() })
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, open: Open, line: usize) -> Result<(), YamlError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(YamlError {
                line,
                message: format!("nested deeper than {DEPTH_MAX} levels"),
            });
        }
        self.open.push(open);
        Ok(())
    }

    fn put(&mut self, node: Node) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(1);
        let line = node.line;
        if self.nodes > NODES_MAX {
            return Err(YamlError { line, message: format!("more than {NODES_MAX} values") });
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, .. }) => match key.take() {
                Some((key, key_line)) => entries.push(Entry { key, line: key_line, value: node }),
                None => {
                    let NodeKind::Scalar(text) = node.kind else {
                        let message = "a key that is not a plain text".into();
                        return Err(YamlError { line, message });
                    };
                    if entries.iter().any(|e| e.key == text) {
                        return Err(YamlError {
                            line,
                            message: format!("\"{text}\" is there twice"),
                        });
                    }
                    *key = Some((text, line));
                }
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_lines_and_their_text() {
        let root = parse("# head\na: 00\n\nb:\n  - x\n  - {c: 'y z'}\nd:\n").unwrap();
        assert_eq!(root.get("a"), Some(&Node { line: 2, kind: NodeKind::Scalar("00".into()) }));
        let b = root.get("b").unwrap();
        assert_eq!(b.brief(), "[x, {c: y z}]");
        assert!(root.get("d").unwrap().is_null());
        let NodeKind::Map(entries) = &root.kind else { panic!("not a map") };
        assert_eq!(entries[1].line, 4);
    }

    #[test]
    fn empty_text_is_null_and_so_is_a_text_of_comments() {
        assert!(parse("").unwrap().is_null());
        assert!(parse("# only\n# words\n").unwrap().is_null());
    }

    #[test]
    fn a_key_twice_is_refused_with_its_line() {
        assert_eq!(
            parse("a: 1\nb: 2\na: 3\n").unwrap_err(),
            YamlError { line: 3, message: "\"a\" is there twice".into() }
        );
    }

    #[test]
    fn aliases_and_second_documents_are_refused() {
        assert!(parse("a: &x 1\nb: *x\n").is_err());
        assert!(parse("a: 1\n---\nb: 1\n").is_err());
    }

    #[test]
    fn the_deepest_nesting_is_accepted_and_one_more_is_refused() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        assert!(parse(&nested(DEPTH_MAX + 1)).is_err());
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = parse("a: 1\nb: 'open\n").unwrap_err();
        assert!((2..=3).contains(&error.line), "{error:?}");
        assert!(!error.message.is_empty());
    }
}
