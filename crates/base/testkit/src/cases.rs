//! Tests in text files: a command with its input, and the expected output.
//!
//! ```text
//! # A comment, or nothing.
//! command name=value flag
//! input, any number of lines
//! ----
//! what the command prints
//! ```
//!
//! A case ends at an empty line; output with empty lines in it stands between two lines `----` and two more. With
//! `UPDATE_EXPECT=1` the files are rewritten with what the commands print; look at the difference before it is
//! committed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Between the input and the output.
const RULE: &str = "----";

/// One case of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// File and line, for messages.
    pub place: String,
    /// The first word.
    pub command: String,
    /// The other words of its line.
    pub words: Vec<String>,
    /// The lines below it.
    pub input: String,
    /// The expected output.
    pub expected: String,
    /// Comments and empty lines above it.
    above: String,
}

impl Case {
    /// The value of `name=value`.
    pub fn value(&self, name: &str) -> Option<&str> {
        let is_named = |word: &&str| word.split_once('=').is_some_and(|(n, _)| n == name);
        let word = self.words.iter().map(String::as_str).find(is_named)?;
        word.split_once('=').map(|(_, value)| value)
    }

    /// All `name=value` words, in order.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.words.iter().filter_map(|word| word.split_once('='))
    }

    /// The value of `name=value` as a number or the like.
    ///
    /// # Panics
    /// The value is not of that type.
    pub fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        let value = self.value(name)?;
        match value.parse() {
            Ok(parsed) => Some(parsed),
            Err(_) => {
                panic!("{}: {name}={value} is not a {}", self.place, std::any::type_name::<T>())
            }
        }
    }

    /// Returns true if the word stands alone.
    pub fn has(&self, flag: &str) -> bool {
        self.words.iter().any(|word| word == flag)
    }
}

/// Runs all cases of all `*.txt` files of a directory, each file with a runner of its own, so that commands of one
/// file may build on each other. Returns the number of cases.
///
/// # Panics
/// A case prints something else than its file says, or the directory has no case.
pub fn check<R: FnMut(&Case) -> String>(
    directory: impl AsRef<Path>,
    mut runner: impl FnMut() -> R,
) -> usize {
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    let (mut count, mut wrong) = (0, String::new());
    for path in files(directory.as_ref()) {
        let text = read(&path);
        let (cases, rest) = parse(&path.display().to_string(), &text);
        let mut run = runner();
        let mut rewritten = String::new();
        for case in cases {
            count += 1;
            let printed = run(&case);
            let printed = printed.trim_end_matches('\n');
            if printed != case.expected {
                let Case { place, command, expected, .. } = &case;
                let _ = writeln!(
                    wrong,
                    "{place}: {command}\nexpected:\n{expected}\nprinted:\n{printed}\n"
                );
            }
            write(&mut rewritten, &case, printed);
        }
        rewritten.push_str(&rest);
        if is_update && rewritten != text {
            std::fs::write(&path, rewritten).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
    assert!(count > 0, "{}: no case", directory.as_ref().display());
    assert!(is_update || wrong.is_empty(), "{wrong}UPDATE_EXPECT=1 rewrites the files");
    count
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|p| p.extension().is_some_and(|e| e == "txt")).collect();
    files.sort();
    files
}

/// The cases of a file, and the comments after the last one.
fn parse(name: &str, text: &str) -> (Vec<Case>, String) {
    let mut cases = Vec::new();
    let mut above = String::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((number, line)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            let _ = writeln!(above, "{line}");
            continue;
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let mut case = Case {
            place: format!("{name}:{number}"),
            command: words.next().unwrap_or_default(),
            words: words.collect(),
            above: std::mem::take(&mut above),
            ..Case::default()
        };
        for (_, line) in lines.by_ref() {
            if line == RULE {
                break;
            }
            let _ = writeln!(case.input, "{line}");
        }
        let is_long = lines.next_if(|(_, line)| *line == RULE).is_some();
        let mut expected: Vec<&str> = Vec::new();
        while let Some((_, line)) = lines.next() {
            let is_end = match is_long {
                true => line == RULE && lines.next_if(|(_, line)| *line == RULE).is_some(),
                false => line.is_empty(),
            };
            if is_end {
                break;
            }
            expected.push(line);
        }
        if is_long {
            lines.next_if(|(_, line)| line.is_empty());
        }
        case.expected = expected.join("\n");
        cases.push(case);
    }
    (cases, above)
}

fn write(out: &mut String, case: &Case, printed: &str) {
    out.push_str(&case.above);
    out.push_str(&case.command);
    for word in &case.words {
        let _ = write!(out, " {word}");
    }
    let _ = write!(out, "\n{}{RULE}\n", case.input);
    let is_long = printed.lines().any(str::is_empty);
    if is_long {
        let _ = writeln!(out, "{RULE}");
    }
    if !printed.is_empty() {
        let _ = writeln!(out, "{printed}");
    }
    if is_long {
        let _ = writeln!(out, "{RULE}\n{RULE}");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# What it is about.\n\nadd to=3 twice\n4\n5\n----\n12\n\nlong\n----\n----\na\n\nb\n----\n----\n\n# End.\n";

    #[test]
    fn a_file_is_read_and_written_as_it_is() {
        let (cases, rest) = parse("x.txt", TEXT);
        let add = &cases[0];
        assert_eq!((add.place.as_str(), add.command.as_str()), ("x.txt:3", "add"));
        assert_eq!(
            (add.parsed::<u8>("to"), add.has("twice"), add.has("to")),
            (Some(3), true, false)
        );
        assert_eq!((add.input.as_str(), add.expected.as_str()), ("4\n5\n", "12"));
        assert_eq!((cases[1].input.as_str(), cases[1].expected.as_str()), ("", "a\n\nb"));
        let mut written = String::new();
        for case in &cases {
            write(&mut written, case, &case.expected);
        }
        assert_eq!(written + &rest, TEXT);
    }

    #[test]
    fn what_is_printed_otherwise_fails() {
        let directory = std::env::temp_dir().join(format!("testkit-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("a.txt"), "echo\nx\n----\nx\n").unwrap();
        check(&directory, || |case: &Case| case.input.clone());
        let other = std::panic::catch_unwind(|| check(&directory, || |_: &Case| "y".to_owned()));
        std::fs::remove_file(directory.join("a.txt")).unwrap();
        let none = std::panic::catch_unwind(|| check(&directory, || |_: &Case| String::new()));
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(other.is_err() && none.is_err());
    }
}
