//! Numbers and tables as Java prints them.

/// Rows of cells, each column as wide as its widest cell, the last one padded too.
pub(super) struct Table {
    delimiter: &'static str,
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(delimiter: &'static str) -> Table {
        Table { delimiter, widths: Vec::new(), rows: Vec::new() }
    }

    pub(super) fn add(&mut self, row: &[&str]) {
        if self.widths.len() < row.len() {
            self.widths.resize(row.len(), 0);
        }
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(row.iter().map(|c| (*c).to_owned()).collect());
    }

    /// All tables get the widths of the widest.
    pub(super) fn share_widths(tables: &mut [Table]) {
        let columns = tables.iter().map(|t| t.widths.len()).max().unwrap_or(0);
        let widest = |column: usize| {
            tables.iter().filter_map(|t| t.widths.get(column)).copied().max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        for table in tables {
            table.widths.clone_from(&widths);
        }
    }

    pub(super) fn print(&self, out: &mut String) {
        for row in &self.rows {
            for (column, width) in self.widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                out.push_str(cell);
                let shown = cell.chars().count();
                out.extend(std::iter::repeat_n(' ', width.saturating_sub(shown)));
                if column + 1 < self.widths.len() {
                    out.push_str(self.delimiter);
                }
            }
            out.push('\n');
        }
    }
}

/// `469.86 KiB`, `1.3 MiB`, `0 bytes`: at most two decimals, none that are 0
/// (`FileUtils.stringifyFileSize`).
pub fn file_size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if bytes >= 1 << shift {
            return format!(
                "{} {unit}",
                up_to_two_decimals(bytes as f64 / (1_u64 << shift) as f64)
            );
        }
    }
    format!("{bytes} bytes")
}

/// The size of a node's data: as [`file_size`], but never in bytes. A node of Cassandra has its system
/// tables on the disk from its start, so that scripts know KiB and larger only; a new node here may
/// have flushed nothing yet.
pub fn load_size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{:.2} KiB", bytes as f64 / 1024.0),
        bytes => file_size(bytes),
    }
}

fn up_to_two_decimals(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `6.742KiB`, `927B` (`FBUtilities.prettyPrintMemory`).
pub fn pretty_memory(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if bytes >= 1 << shift {
            return format!("{:.3}{unit}", bytes as f64 / (1_u64 << shift) as f64);
        }
    }
    format!("{bytes}B")
}

/// Fixed decimals, `NaN` as Java writes it.
pub(super) fn decimal(value: f64, digits: usize) -> String {
    if value.is_nan() { "NaN".to_owned() } else { format!("{value:.digits$}") }
}

/// Formats a number like Java's `Double.toString`.
pub(super) fn java_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) && value.is_finite() {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let point = if digits.contains('.') { "" } else { ".0" };
        return format!("{digits}{point}E{exponent}");
    }
    let text = value.to_string();
    if text.contains('.') || value.is_infinite() { text } else { format!("{text}.0") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_java_writes_them() {
        assert_eq!(file_size(0), "0 bytes");
        assert_eq!(file_size(1023), "1023 bytes");
        assert_eq!(file_size(1024), "1 KiB");
        assert_eq!(file_size(481_137), "469.86 KiB");
        assert_eq!(file_size(559 << 10), "559 KiB");
        assert_eq!(file_size(1_363_149), "1.3 MiB");
        assert_eq!(file_size(u64::MAX), "16777216 TiB");
        let loads = [0, 512, 1023, 1024, 481_137].map(load_size);
        assert_eq!(loads, ["0.00 KiB", "0.50 KiB", "1.00 KiB", "1 KiB", "469.86 KiB"]);
        assert_eq!(pretty_memory(927), "927B");
        assert_eq!(pretty_memory(5098), "4.979KiB");
        assert_eq!(pretty_memory(3 << 30), "3.000GiB");
    }

    #[test]
    fn doubles_have_a_decimal_point() {
        assert_eq!(java_double(64.0), "64.0");
        assert_eq!(java_double(0.051), "0.051");
        assert_eq!(java_double(f64::NAN), "NaN");
        assert_eq!(java_double(0.0005), "5.0E-4");
        assert_eq!(java_double(0.000_123_4), "1.234E-4");
        assert_eq!(java_double(9_999_999.0), "9999999.0");
        assert_eq!(java_double(1e7), "1.0E7");
        assert_eq!(java_double(12_345_678.0), "1.2345678E7");
        assert_eq!(java_double(0.0), "0.0");
        assert_eq!(decimal(8.875, 2), "8.88");
    }

    #[test]
    fn short_rows_are_padded_to_the_last_column() {
        let mut table = Table::new(" ");
        table.add(&["a", "bb"]);
        table.add(&["ccc", "d", "e"]);
        let mut out = String::new();
        table.print(&mut out);
        assert_eq!(out, "a   bb  \nccc d  e\n");
    }
}
