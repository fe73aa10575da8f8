//! Fields and histograms as the tool lays them out, with its colours and bars.

use std::collections::BTreeMap;

use sst_format::histogram::EstimatedHistogram;

/// Buckets of the histogram from which percentiles are taken.
const PERCENTILE_BUCKETS: usize = 165;
/// Characters of the longest bar.
const BAR: u64 = 30;

/// How the text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataStyle {
    /// With ANSI sequences for colours.
    pub colors: bool,
    /// Bars of block characters instead of letters.
    pub unicode: bool,
}

const RESET: &str = "\u{1b}[0m";
const BLUE: &str = "\u{1b}[34m";
const CYAN: &str = "\u{1b}[36m";
const WHITE: &str = "\u{1b}[37m";

/// The text printed so far.
pub(super) struct Text {
    pub(super) out: String,
    style: MetadataStyle,
}

impl Text {
    pub(super) fn new(style: MetadataStyle) -> Text {
        Text { out: String::new(), style }
    }

    /// Another one that looks the same.
    pub(super) fn alike(&self) -> Text {
        Text::new(self.style)
    }

    fn color(&self, color: &'static str) -> &'static str {
        if self.style.colors { color } else { "" }
    }

    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    pub(super) fn field(&mut self, name: &str, value: &str) {
        self.commented(name, value, None);
    }

    /// A field with more words after its value.
    pub(super) fn commented(&mut self, name: &str, value: &str, comment: Option<&str>) {
        let (blue, cyan, reset) = (self.color(BLUE), self.color(CYAN), self.color(RESET));
        let comment = comment.map_or(String::new(), |comment| self.white(&format!(" ({comment})")));
        self.line(&format!("{blue}{name}{cyan}: {reset}{value}{comment}"));
    }

    /// A date, or its substitute, with the original number.
    pub(super) fn date(&mut self, name: &str, date: Option<String>, raw: i64) {
        self.commented(name, date.as_deref().unwrap_or("--"), Some(&raw.to_string()));
    }

    /// A number after its name in brackets, indented.
    pub(super) fn leader(&mut self, name: &str, value: u64, comment: Option<&str>) {
        let (cyan, reset) = (self.color(CYAN), self.color(RESET));
        let comment = comment.map_or(String::new(), |comment| self.white(&format!(" ({comment})")));
        self.line(&format!("  {cyan}[{reset}{name}{cyan}] {reset}{value}{comment}"));
    }

    fn white(&self, text: &str) -> String {
        format!("{}{text}{}", self.color(WHITE), self.color(RESET))
    }

    /// In brackets; nothing of nothing.
    fn quiet(&self, text: Option<&str>) -> String {
        text.map_or(String::new(), |text| self.white(&format!("({text})")))
    }

    /// `name` returns the text for a number, and a comment in brackets: `None` where no number ever
    /// has one, which leaves no space.
    pub(super) fn histogram(
        &mut self,
        title: &str,
        counts: &BTreeMap<u64, u64>,
        comment: Option<&dyn Fn(u64) -> Option<String>>,
    ) {
        let name = |text: &Text, key: u64| match comment {
            Some(comment) => format!("{key} {}", text.quiet(comment(key).as_deref())),
            None => key.to_string(),
        };
        // Sequences for colours take no place.
        let plain = Text::new(MetadataStyle { colors: false, ..self.style });
        let names = counts.keys().map(|key| name(&plain, *key).len());
        let width = names.chain([title.len(), 5]).max().unwrap_or(5);
        let digits = counts.values().map(|v| v.to_string().len()).chain([5]).max().unwrap_or(5);
        let (blue, cyan, reset) = (self.color(BLUE), self.color(CYAN), self.color(RESET));
        let percents = self.quiet(Some("%"));
        self.line(&format!(
            "   {blue}{title:width$} {cyan}|{blue} {:digits$}  {percents}  {blue}Histogram{reset} ",
            "Count"
        ));
        let largest = counts.values().copied().max().unwrap_or(0).max(1);
        let sum: u64 = counts.values().sum();
        for (key, count) in counts {
            let percent = (100.0 * (*count as f64 / sum.max(1) as f64)) as u64;
            let percent = self.quiet(Some(&format!("{percent:>3}")));
            let bar = self.white(&bar(*count, largest, self.style.unicode));
            let pad = width - name(&plain, *key).len();
            let name = name(self, *key);
            self.line(&format!(
                "   {name}{:pad$} {cyan}|{reset} {count:>digits$} {percent} {bar}",
                ""
            ));
        }
        let mut all = EstimatedHistogram::new(PERCENTILE_BUCKETS);
        for (key, count) in counts {
            all.add_times(*key, *count);
        }
        self.line(&format!("{blue}   Percentiles{reset}"));
        for (label, value) in [
            ("50th", all.percentile(0.5)),
            ("75th", all.percentile(0.75)),
            ("95th", all.percentile(0.95)),
            ("98th", all.percentile(0.98)),
            ("99th", all.percentile(0.99)),
            ("Min", all.min()),
            ("Max", all.max()),
        ] {
            let name = name(self, value);
            self.line(&format!("   {blue}{label:10}{reset}{name}"));
        }
    }
}

/// The buckets of a histogram that are not empty.
pub(super) fn filled(histogram: &EstimatedHistogram) -> BTreeMap<u64, u64> {
    let pairs = histogram.offsets.iter().zip(&histogram.buckets);
    pairs.filter(|(_, count)| **count > 0).map(|(at, count)| (*at, *count)).collect()
}

fn bar(count: u64, largest: u64, unicode: bool) -> String {
    let length = count as f64 / largest as f64 * BAR as f64;
    let whole = length as usize;
    let rest = length - whole as f64;
    // The steps of its tables of partial characters, from the largest.
    let (full, steps): (&str, &[(f64, &str)]) = match unicode {
        false => ("O", &[(0.75, "o"), (0.3, ".")]),
        true => (
            "\u{2589}",
            &[
                (0.875, "\u{2589}"),
                (0.75, "\u{258a}"),
                (0.625, "\u{258b}"),
                (0.375, "\u{258d}"),
                (0.25, "\u{258e}"),
                (0.125, "\u{258f}"),
            ],
        ),
    };
    let partial = steps.iter().find(|(from, _)| rest >= *from).map_or("", |(_, part)| *part);
    full.repeat(whole) + partial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_in_the_tools_steps() {
        assert_eq!(bar(2, 13, false), "OOOO.");
        assert_eq!(bar(1, 2, false), "O".repeat(15));
        assert_eq!(bar(2, 13, true), format!("{}\u{258d}", "\u{2589}".repeat(4)));
        assert_eq!(bar(13, 13, true), "\u{2589}".repeat(30));
    }
}
