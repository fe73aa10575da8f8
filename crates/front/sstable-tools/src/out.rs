//! Output of tools: text as Java's formatter lays it out, tables of numbers, progress.

use std::io::{IsTerminal, Write};

/// Standard output, or a file in its place. The first error ends the printing and is the tool's.
pub(super) struct Out {
    to: std::io::BufWriter<Box<dyn Write + Send>>,
    written: std::io::Result<()>,
}

impl Out {
    pub(super) fn new() -> Out {
        Out::to(Box::new(std::io::stdout()))
    }

    /// Writes to another destination than standard output.
    pub(super) fn to(to: Box<dyn Write + Send>) -> Out {
        Out { to: std::io::BufWriter::new(to), written: Ok(()) }
    }

    pub(super) fn print(&mut self, text: &str) {
        if self.written.is_ok() {
            self.written = self.to.write_all(text.as_bytes());
        }
    }

    pub(super) fn line(&mut self, text: &str) {
        self.print(text);
        self.print("\n");
    }

    /// Returns true if the output has no reader any more, or the disk of a redirection is full.
    pub(super) fn is_broken(&self) -> bool {
        self.written.is_err()
    }

    pub(super) fn finish(mut self) -> std::io::Result<()> {
        self.written.and_then(|()| self.to.flush())
    }
}

/// How far a long run has come, on standard error when that is a terminal.
pub(super) struct Progress {
    what: String,
    shown: Option<u64>,
    is_wanted: bool,
}

impl Progress {
    pub(super) fn new(what: &str) -> Progress {
        Progress { what: shortened(what), shown: None, is_wanted: std::io::stderr().is_terminal() }
    }

    /// The same for a tool that prints to standard output: no progress if that is a terminal.
    pub(super) fn beside_output(what: &str) -> Progress {
        let mut progress = Progress::new(what);
        progress.is_wanted &= !std::io::stdout().is_terminal();
        progress
    }

    /// A `total` of 0 is not known: nothing is shown.
    pub(super) fn at(&mut self, done: u64, total: u64) {
        if !self.is_wanted || total == 0 {
            return;
        }
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
        if self.shown != Some(percent) {
            complain!("\r{} {percent} %", self.what);
            self.shown = Some(percent);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            // Nothing of it stays on the line.
            complain!("\r{:width$}\r", "", width = self.what.chars().count() + 6);
        }
    }
}

/// Shortens a progress message to one line of a terminal, because the next state overwrites it. The
/// verb and the end, which distinguishes files, remain.
fn shortened(what: &str) -> String {
    /// Characters of the message; a terminal has at least 80 columns.
    const CHARS_MAX: usize = 70;
    let count = what.chars().count();
    if count <= CHARS_MAX {
        return what.to_owned();
    }
    let (verb, rest) =
        what.split_once(' ').filter(|(verb, _)| verb.len() < 20).unwrap_or(("", what));
    let kept = CHARS_MAX.saturating_sub(verb.len() + 2);
    let skip = rest.chars().count().saturating_sub(kept);
    let end: String = rest.chars().skip(skip).collect();
    format!("{verb} …{end}").trim_start().to_owned()
}

/// Bytes as Cassandra's tools print them (`FBUtilities.prettyPrintMemory`).
pub(super) fn memory(bytes: u64) -> String {
    let prefix = (63u32.saturating_sub(bytes.leading_zeros())) / 10;
    if prefix == 0 {
        return format!("{bytes} B");
    }
    let unit = ["", "K", "M", "G", "T", "P", "E"].get(prefix as usize).copied().unwrap_or("E");
    // Java scales a float here: large numbers lose digits.
    let scaled = bytes as f32 / 2f32.powi(prefix as i32 * 10);
    format!("{} {unit}iB", fixed3(f64::from(scaled)))
}

/// Formats three digits after the point, halves away from zero as seen in the shortest decimal
/// form: Java's `%.3f`.
pub(super) fn fixed3(value: f64) -> String {
    let text = format!("{value}");
    let Some((whole, fraction)) = text.split_once('.') else { return format!("{text}.000") };
    let Some(next) = fraction.as_bytes().get(3) else { return format!("{whole}.{fraction:0<3}") };
    let kept = fraction.get(..3).unwrap_or(fraction);
    let digits: Option<u128> = format!("{}{kept}", whole.trim_start_matches('-')).parse().ok();
    let Some(digits) = digits.map(|d| d + u128::from(*next >= b'5')) else {
        return format!("{value:.3}");
    };
    let sign = if whole.starts_with('-') { "-" } else { "" };
    format!("{sign}{}.{:03}", digits / 1000, digits % 1000)
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A partition key in a table of text: on one line, and no longer than tells it apart, as a key may have
/// 64 KiB, which every row would be as wide as.
pub(super) fn key_cell(key: &str) -> String {
    const CHARS_MAX: usize = 64;
    let mut out = String::new();
    for c in key.chars().take(CHARS_MAX) {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    let count = key.chars().count();
    if count > CHARS_MAX {
        out.push_str(&format!("… ({count} characters)"));
    }
    out
}

/// Rows under a heading. The first column, and those whose heading begins with `<`, are aligned to
/// the left, the others to the right.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heading: &[&str]) -> Table {
        Table { rows: vec![heading.iter().map(|h| (*h).to_owned()).collect()] }
    }

    pub(super) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    pub(super) fn text(&self) -> String {
        let heading = self.rows.first().map_or(&[][..], Vec::as_slice);
        let is_left: Vec<bool> =
            heading.iter().enumerate().map(|(i, h)| i == 0 || h.starts_with('<')).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.trim_start_matches('<').chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::from("  ");
            for ((cell, width), left) in row.iter().zip(&widths).zip(&is_left) {
                let cell = if number == 0 { cell.trim_start_matches('<') } else { cell };
                match left {
                    true => line.push_str(&format!("{cell:<width$}  ")),
                    false => line.push_str(&format!("{cell:>width$}  ")),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_laid_out_as_javas_formatter_does() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.000 KiB"),
            (1_536, "1.500 KiB"),
            (1_024_000, "1000.000 KiB"),
            (1_048_576, "1.000 MiB"),
            (123_456_789, "117.738 MiB"),
            (5_368_709_120, "5.000 GiB"),
        ] {
            assert_eq!(memory(bytes), text);
        }
        // Exactly in the middle: Rust rounds to the even digit, Java up.
        assert_eq!(
            (fixed3(0.0625), fixed3(0.000_5), fixed3(9.999_5)),
            ("0.063".into(), "0.001".into(), "10.000".into())
        );
        assert_eq!((fixed3(-1.25), fixed3(2.0)), ("-1.250".into(), "2.000".into()));
    }

    #[test]
    fn progress_fits_on_a_line() {
        assert_eq!(shortened("verify nb-1-big-Data.db"), "verify nb-1-big-Data.db");
        let long = format!("verify /data/{}/nb-1-big-Data.db", "ä".repeat(90));
        let short = shortened(&long);
        assert_eq!(short.chars().count(), 70, "{short}");
        assert!(short.starts_with("verify …ä") && short.ends_with("ä/nb-1-big-Data.db"), "{short}");
        assert_eq!(shortened(&"x".repeat(90)).chars().count(), 69);
    }

    #[test]
    fn keys_in_tables_stay_on_a_line_and_are_not_wider_than_it() {
        assert_eq!(key_cell("a:ü 1"), "a:ü 1");
        assert_eq!(key_cell("a\n\tb\u{1b}"), "a\\n\\tb\\u{1b}");
        let (long, longer) = ("ü".repeat(64), "ü".repeat(65));
        assert_eq!(key_cell(&long), long);
        assert_eq!(key_cell(&longer), format!("{long}… (65 characters)"));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["Key", "Size", "<Files"]);
        assert!(table.is_empty());
        table.row(vec!["a long key".into(), "1".into(), "x".into()]);
        table.row(vec!["b".into(), "12345".into(), "yy".into()]);
        assert_eq!(
            table.text(),
            "  Key          Size  Files\n  a long key      1  x\n  b           12345  yy\n"
        );
    }
}
