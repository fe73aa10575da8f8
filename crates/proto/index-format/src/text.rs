//! Filters of indexed text, as `case_sensitive`, `normalize` and `ascii` of `StorageAttachedIndex` ask for them.
//!
//! Source: `index.sai.analyzer.filter.BasicFilters`, in the order of `NonTokenizingAnalyzer`: lower case, NFC, ASCII.

use unicode_normalization::char::{canonical_combining_class, decompose_compatible};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Filters of one index. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// `case_sensitive` = false: upper and lower case are alike.
    pub ignores_case: bool,
    /// `normalize` = true: Unicode normalisation form C.
    pub normalizes: bool,
    /// `ascii` = true: letters and signs with an ASCII equivalent become it.
    pub folds_to_ascii: bool,
}

impl TextOptions {
    /// Returns true if text stays as it is.
    pub fn is_plain(self) -> bool {
        self == TextOptions::default()
    }

    /// Appends the filtered text.
    pub fn apply(self, text: &str, out: &mut Vec<u8>) {
        if self.is_plain() || (text.is_ascii() && !self.ignores_case) {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        if text.is_ascii() {
            out.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
            return;
        }
        let mut text = if self.ignores_case { text.to_lowercase() } else { text.to_owned() };
        if self.normalizes && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            text = text.nfc().collect();
        }
        if self.folds_to_ascii {
            let mut folded = String::with_capacity(text.len());
            text.chars().for_each(|c| fold_to_ascii(c, &mut folded));
            text = folded;
        }
        out.extend_from_slice(text.as_bytes());
    }
}

/// Blocks whose characters are folded by their compatibility decomposition: Latin-1 to IPA extensions, phonetic and
/// additional Latin, super- and subscripts, enclosed alphanumerics, extended Latin C and D, presentation and full-width forms.
const FOLDED: [(char, char); 8] = [
    ('\u{b2}', '\u{24f}'),
    ('\u{1d00}', '\u{1dbf}'),
    ('\u{1e00}', '\u{1eff}'),
    ('\u{2070}', '\u{209f}'),
    ('\u{2460}', '\u{24ff}'),
    ('\u{2c60}', '\u{2c7f}'),
    ('\u{fb00}', '\u{fb06}'),
    ('\u{ff01}', '\u{ff5e}'),
];

/// Characters without a decomposition, their ASCII forms.
const LETTERS: [(&str, &str); 40] = [
    ("ÆǢǼᴁ", "AE"),
    ("æǣǽᴂ", "ae"),
    ("ŒɶᴔᎾ", "OE"),
    ("œ", "oe"),
    ("ß", "ss"),
    ("ẞ", "SS"),
    ("Þ", "TH"),
    ("þ", "th"),
    ("ØƆƟǾ", "O"),
    ("øɔɵǿ", "o"),
    ("ÐĐƉƊƋ", "D"),
    ("ðđƌɖɗ", "d"),
    ("ŁĿȽⱠⱢ", "L"),
    ("łŀƚɫɬɭ", "l"),
    ("ĦⱧ", "H"),
    ("ħɥɦⱨ", "h"),
    ("ŦƬƮȾ", "T"),
    ("ŧƫƭʈⱦ", "t"),
    ("ı", "i"),
    ("ŊƝ", "N"),
    ("ŋƞɲɳ", "n"),
    ("ĸƙⱪ", "k"),
    ("ƘⱩ", "K"),
    ("ſ", "s"),
    ("ɃƁƂ", "B"),
    ("ƀƃɓ", "b"),
    ("ƇȻ", "C"),
    ("ƈȼɕ", "c"),
    ("ƑꝻ", "F"),
    ("ƒ", "f"),
    ("ƓǤ", "G"),
    ("ǥɠɡ", "g"),
    ("Ɨ", "I"),
    ("ɨ", "i"),
    ("ƤⱣ", "P"),
    ("ƥ", "p"),
    ("ƲɅ", "V"),
    ("ƳɎ", "Y"),
    ("ƴɏ", "y"),
    ("ƵȤⱫ", "Z"),
];

/// Signs and their ASCII forms.
const SIGNS: [(&str, &str); 6] = [
    ("«»“”„″‶❝❞❮❯", "\""),
    ("‘’‚‛′‵‹›❛❜", "'"),
    ("‐‑‒–—⁻₋", "-"),
    ("⁎", "*"),
    ("⁄", "/"),
    ("‸", "^"),
];

fn fold_to_ascii(c: char, out: &mut String) {
    if c.is_ascii() {
        out.push(c);
        return;
    }
    let listed = LETTERS.iter().chain(&SIGNS).find(|(all, _)| all.contains(c));
    if let Some((_, ascii)) = listed {
        out.push_str(ascii);
        return;
    }
    let mark = out.len();
    if FOLDED.iter().any(|(first, last)| (*first..=*last).contains(&c)) {
        let mut is_ascii = true;
        decompose_compatible(c, |part| {
            if part.is_ascii_graphic() {
                out.push(part);
            } else if canonical_combining_class(part) == 0 {
                is_ascii = false;
            }
        });
        if is_ascii && out.len() > mark {
            return;
        }
        out.truncate(mark);
    }
    out.push(c);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: TextOptions, text: &str, expected: &str) {
        let mut out = b"before ".to_vec();
        options.apply(text, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("before {expected}"), "{text}");
    }

    #[test]
    fn filters_change_what_they_are_for_only() {
        let plain = TextOptions::default();
        let no_case = TextOptions { ignores_case: true, ..plain };
        let normal = TextOptions { normalizes: true, ..plain };
        let ascii = TextOptions { folds_to_ascii: true, ..plain };
        check(plain, "Straße É e\u{301}", "Straße É e\u{301}");
        check(no_case, "ÀB STRASSE ΟΔΟΣ", "àb strasse οδος");
        check(no_case, "ABC", "abc");
        check(normal, "E\u{301} Ab", "\u{c9} Ab");
        check(ascii, "Ærøskøbing Straße ÉÑ ﬁ ①②", "AEroskobing Strasse EN fi 12");
        check(ascii, "Ｆｕｌｌ x² “q” – Ё Ω 漢", "Full x2 \"q\" - Ё Ω 漢");
        check(ascii, "e\u{301}", "e\u{301}");
        let all = TextOptions { ignores_case: true, normalizes: true, folds_to_ascii: true };
        check(all, "E\u{301}COLE Œuvre", "ecole oeuvre");
    }
}
