//! Sources of the lines of a shell.
//!
//! Owns: files and standard input as lines, prompts for a terminal without an editor. The editor is
//! in `editor`. Never: the meaning of a line.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use crate::complete::Names;

/// One line, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The line with its end, if it has one.
    Text(String),
    /// The input has ended.
    End,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The input cannot be read.
    Broken(String),
}

/// A source of lines.
pub(crate) trait Input {
    /// How errors name it.
    fn name(&self) -> &str;

    /// The next line. Only a terminal shows the prompt.
    fn line(&mut self, prompt: &str) -> Line;

    /// Waits for Enter after a text.
    fn pause(&mut self, text: &str) -> Line {
        self.line(text)
    }

    /// Remembers a whole statement.
    fn remember(&mut self, _statement: &str) {}

    /// The statements that are remembered, oldest first; `None`: only a terminal has a history.
    fn history(&self) -> Option<Vec<String>> {
        None
    }

    /// Returns the path under which the history will be saved.
    fn history_path(&self) -> Option<&Path> {
        None
    }

    /// Names that can be completed changed.
    fn set_names(&mut self, _names: Arc<Names>) {}

    /// The lines of the statement so far, for completion.
    fn set_pending(&mut self, _lines: &str) {}

    /// Saves the history.
    ///
    /// # Errors
    /// The file cannot be written.
    fn save(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Lines of anything that can be read.
pub(crate) struct Lines<R> {
    name: String,
    reader: R,
    /// Prompts are printed (a terminal was forced).
    prompts: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(name: &str, reader: R, prompts: bool) -> Self {
        Lines { name: name.to_owned(), reader, prompts }
    }
}

impl<R: BufRead> Input for Lines<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn line(&mut self, prompt: &str) -> Line {
        if self.prompts {
            let mut out = std::io::stdout();
            let _ = out.write_all(prompt.as_bytes()).and_then(|()| out.flush());
        }
        let mut bytes = Vec::new();
        match self.reader.read_until(b'\n', &mut bytes) {
            Ok(0) => Line::End,
            Ok(_) => match String::from_utf8(bytes) {
                Ok(text) => Line::Text(text),
                Err(_) => Line::Broken("the input is not UTF-8".to_owned()),
            },
            Err(error) => Line::Broken(error.to_string()),
        }
    }
}

/// Returns Python's text for a file error.
pub(crate) fn os_error(error: &std::io::Error, path: &str) -> String {
    let number = error.raw_os_error().unwrap_or(0);
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or_default();
    format!("[Errno {number}] {reason}: {}", crate::failure::python_repr(path))
}

/// The text of a file without its byte order mark. UTF-16 is taken with a mark only.
///
/// # Errors
/// The file cannot be read or is not text.
pub(crate) fn read_text(path: &str) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| os_error(&error, path))?;
    let units = |pair: fn([u8; 2]) -> u16| -> Vec<u16> {
        bytes.get(2..).unwrap_or_default().as_chunks::<2>().0.iter().map(|two| pair(*two)).collect()
    };
    let text = match bytes.as_slice() {
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        [0xff, 0xfe, ..] => String::from_utf16(&units(u16::from_le_bytes)).ok(),
        [0xfe, 0xff, ..] => String::from_utf16(&units(u16::from_be_bytes)).ok(),
        _ => String::from_utf8(bytes).ok(),
    };
    text.ok_or_else(|| format!("{} is not UTF-8 text", crate::failure::python_repr(path)))
}
