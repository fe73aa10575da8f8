//! The line editor of a terminal: keys, history, completion.
//!
//! Owns: the history file, one line per entry as Python's readline writes it. Never: what a line
//! means.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{History, MemHistory, SearchDirection};
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use crate::complete::{Grammar, Names, complete, grammar};
use crate::input::{Input, Line};

/// Most entries of the history.
const HISTORY_MAX: usize = 10_000;

#[derive(Default)]
struct Completions {
    grammar: Grammar,
    names: Arc<Names>,
    /// Lines of the statement before the one that is edited.
    pending: String,
}

impl Completer for Completions {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let found = complete(
            &self.grammar,
            &self.pending,
            line.get(..position).unwrap_or(line),
            &self.names,
        );
        let only = found.words.len() == 1;
        let pairs = found.words.into_iter().map(|word| {
            let open = word.ends_with(['.', '/', '\'']);
            let replacement = if only && !open { format!("{word} ") } else { word.clone() };
            Pair { display: word, replacement }
        });
        Ok((found.start, pairs.collect()))
    }
}

impl Hinter for Completions {
    type Hint = String;
}

impl Highlighter for Completions {}
impl Validator for Completions {}
impl Helper for Completions {}

/// A terminal with a line editor.
pub(crate) struct Terminal {
    editor: Editor<Completions, MemHistory>,
    /// Path of the saved history; `None`: it is not saved.
    path: Option<PathBuf>,
}

impl Terminal {
    /// Reads the history. With `save` it is written when the shell ends.
    ///
    /// # Errors
    /// There is no terminal to edit on.
    pub(crate) fn open(history: Option<PathBuf>, save: bool) -> Result<Terminal, String> {
        let config = Config::builder()
            .max_history_size(HISTORY_MAX)
            .map_err(|error| error.to_string())?
            .completion_type(CompletionType::List)
            .build();
        let entries = MemHistory::with_config(&config);
        let mut editor =
            Editor::with_history(config, entries).map_err(|error| error.to_string())?;
        editor.set_helper(Some(Completions { grammar: grammar(), ..Completions::default() }));
        let text = history.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        for line in text.unwrap_or_default().lines() {
            // A line that the history does not take (a double) is no loss.
            let _ = editor.add_history_entry(line);
        }
        Ok(Terminal { editor, path: history.filter(|_| save) })
    }

    fn entries(&self) -> Vec<String> {
        let history = self.editor.history();
        (0..history.len())
            .filter_map(|index| history.get(index, SearchDirection::Forward).ok().flatten())
            .map(|found| found.entry.into_owned())
            .collect()
    }

    fn read(&mut self, prompt: &str, remember: bool) -> Line {
        match self.editor.readline(prompt) {
            Ok(line) => {
                if remember && !line.trim().is_empty() {
                    self.remember(&line);
                }
                Line::Text(format!("{line}\n"))
            }
            Err(ReadlineError::Eof) => Line::End,
            Err(ReadlineError::Interrupted) => Line::Interrupted,
            Err(error) => Line::Broken(error.to_string()),
        }
    }
}

impl Input for Terminal {
    fn name(&self) -> &'static str {
        "<stdin>"
    }

    fn line(&mut self, prompt: &str) -> Line {
        self.read(prompt, true)
    }

    fn pause(&mut self, text: &str) -> Line {
        self.read(text, false)
    }

    fn remember(&mut self, statement: &str) {
        // A line that the history does not take (a double) is no loss.
        let _ = self.editor.add_history_entry(statement);
    }

    fn history(&self) -> Option<Vec<String>> {
        Some(self.entries())
    }

    fn history_path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn set_names(&mut self, names: Arc<Names>) {
        if let Some(helper) = self.editor.helper_mut() {
            helper.names = names;
        }
    }

    fn set_pending(&mut self, lines: &str) {
        if let Some(helper) = self.editor.helper_mut() {
            lines.clone_into(&mut helper.pending);
        }
    }

    fn save(&mut self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut text = self.entries().join("\n");
        text.push('\n');
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| error.to_string())?;
        }
        std::fs::write(path, text).map_err(|error| error.to_string())
    }
}
