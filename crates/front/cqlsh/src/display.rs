//! Cells, colours, tables and columns of names, as cqlsh lays them out.
//!
//! Owns: ANSI codes, the width of a cell on a terminal, the table, the expanded form, lists of
//! names in columns of 80 characters. Never: the text of a value (see `format`).
//!
//! Source: cqlsh 6.2 (`displaying.py`, `cqlshmain.py`), and Python's `cmd.Cmd.columnize`.

pub(crate) const RED: &str = "\x1b[0;1;31m";
pub(crate) const GREEN: &str = "\x1b[0;1;32m";
pub(crate) const YELLOW: &str = "\x1b[0;1;33m";
pub(crate) const BLUE: &str = "\x1b[0;1;34m";
pub(crate) const MAGENTA: &str = "\x1b[0;1;35m";
pub(crate) const CYAN: &str = "\x1b[0;1;36m";
pub(crate) const WHITE: &str = "\x1b[0;1;37m";
pub(crate) const DARK_MAGENTA: &str = "\x1b[0;35m";
pub(crate) const RESET: &str = "\x1b[0m";

/// A printed value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Without colour.
    pub(crate) text: String,
    /// With colour; empty when colours are off.
    pub(crate) colored: String,
    /// Width in columns of the terminal.
    pub(crate) width: usize,
}

impl Cell {
    /// One colour for the whole text, its width in characters.
    pub(crate) fn one_color(text: String, color: Option<&str>) -> Cell {
        let colored = color.map_or_else(String::new, |color| format!("{color}{text}{RESET}"));
        Cell { width: text.chars().count(), colored, text }
    }

    fn shown(&self, color: bool) -> &str {
        if color { &self.colored } else { &self.text }
    }

    fn pad(&self, width: usize) -> String {
        " ".repeat(width.saturating_sub(self.width))
    }
}

/// A table: header when wanted, rule, rows; each line ends with a newline.
pub(crate) fn table(names: &[Cell], rows: &[Vec<Cell>], header: bool, color: bool) -> String {
    let mut widths: Vec<usize> = names.iter().map(|name| name.width).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width);
        }
    }
    let mut out = String::new();
    if header {
        let titles: Vec<String> = names
            .iter()
            .zip(&widths)
            .map(|(name, width)| format!("{}{}", name.shown(color), name.pad(*width)))
            .collect();
        out.push(' ');
        out.push_str(titles.join(" | ").trim_end());
        out.push('\n');
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        out.push_str(&format!("-{}-\n", rules.join("-+-")));
    }
    for row in rows {
        out.push(' ');
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if index > 0 {
                out.push_str(" | ");
            }
            out.push_str(&cell.pad(*width));
            out.push_str(cell.shown(color));
        }
        out.push('\n');
    }
    out
}

/// The expanded form: one block of name and value per row, numbered from `first`.
pub(crate) fn expanded(names: &[Cell], rows: &[Vec<Cell>], first: usize, color: bool) -> String {
    let name_width = names.iter().map(|name| name.width).max().unwrap_or(0);
    let value_width = rows.iter().flatten().map(|cell| cell.width).max().unwrap_or(0);
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        out.push_str(&format!("@ Row {}\n", first + index));
        out.push_str(&format!("-{}-+-{}-\n", "-".repeat(name_width), "-".repeat(value_width)));
        for (name, cell) in names.iter().zip(row) {
            let name = format!("{}{}", name.shown(color), name.pad(name_width));
            out.push_str(&format!(" {name} | {}\n", cell.shown(color)));
        }
        out.push('\n');
    }
    out
}

/// Names in columns, down then across, lines of at most `width` characters.
pub(crate) fn columnize(names: &[String], width: usize) -> String {
    let length = |name: &String| name.chars().count();
    if names.is_empty() {
        return "<empty>\n".to_owned();
    }
    if let [only] = names {
        return format!("{only}\n");
    }
    let layout = |rows: usize| -> Vec<usize> {
        names.chunks(rows).map(|column| column.iter().map(length).max().unwrap_or(0)).collect()
    };
    let mut rows = names.len();
    let mut widths = vec![0];
    for candidate in 1..names.len() {
        let tried = layout(candidate);
        let total: usize = tried.iter().map(|width| width + 2).sum();
        if total.saturating_sub(2) <= width {
            rows = candidate;
            widths = tried;
            break;
        }
    }
    let mut out = String::new();
    for row in 0..rows {
        let mut line: Vec<String> = Vec::new();
        for (column, width) in widths.iter().enumerate() {
            let name = names.get(row + column * rows).cloned().unwrap_or_default();
            line.push(format!("{name}{}", " ".repeat(width.saturating_sub(length(&name)))));
        }
        while line.last().is_some_and(|name| name.trim().is_empty()) {
            line.pop();
        }
        // The last name of a line keeps the padding of its column, as Python's does.
        out.push_str(&line.join("  "));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Cell {
        Cell::one_color(text.to_owned(), None)
    }

    #[test]
    fn names_are_left_and_values_right() {
        let names = [plain("k"), plain("value")];
        let rows = [vec![plain("10"), plain("a")], vec![plain("7"), plain("longer")]];
        assert_eq!(
            table(&names, &rows, true, false),
            " k  | value\n----+--------\n 10 |      a\n  7 | longer\n"
        );
        assert_eq!(table(&names, &rows, false, false), " 10 |      a\n  7 | longer\n");
        assert_eq!(table(&names, &[], true, false), " k | value\n---+-------\n");
    }

    #[test]
    fn expanded_rows_are_numbered() {
        let names = [plain("k"), plain("value")];
        let rows = [vec![plain("10"), plain("a")]];
        assert_eq!(
            expanded(&names, &rows, 101, false),
            "@ Row 101\n-------+----\n k     | 10\n value | a\n\n"
        );
    }

    /// Expected lines from Python's `cmd.Cmd().columnize`.
    #[test]
    fn names_go_down_then_across() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(columnize(&names("a"), 80), "a\n");
        assert_eq!(columnize(&[], 80), "<empty>\n");
        assert_eq!(columnize(&names("aa b ccc d"), 80), "aa  b  ccc  d\n");
        assert_eq!(columnize(&names("aaaa bb c dddd e"), 10), "aaaa  dddd\nbb    e   \nc   \n");
        assert_eq!(columnize(&names("aaaa bb c dddd e"), 9), "aaaa  e\nbb  \nc   \ndddd\n");
    }
}
