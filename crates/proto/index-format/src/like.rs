//! Patterns of LIKE: their form, the search that finds their terms, the test of a value.
//!
//! A `%` at the start or the end stands for any text; others are characters like any other. The pattern is analyzed as
//! the values are: with an analyzer that gives tokens, each token of the pattern must match a token of the value.
//!
//! Source: `SingleColumnRestriction.LikeRestriction`, `index.sasi.plan.Expression`.

use crate::TermRange;
use crate::analysis::Analysis;
use crate::writer::TERM_BYTES_MAX;

const WILDCARD: u8 = b'%';
/// Most tokens of a pattern: each is compared with each of a value.
pub const TOKENS_MAX: usize = 128;
/// Tokens of a pattern that are searched for; the test of the row checks all of them.
const SEARCHED_MAX: usize = 8;

/// Form of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LikeKind {
    /// `abc`.
    Matches,
    /// `abc%`.
    Prefix,
    /// `%abc`.
    Suffix,
    /// `%abc%`.
    Contains,
}

impl LikeKind {
    /// All forms.
    pub const ALL: [LikeKind; 4] =
        [LikeKind::Matches, LikeKind::Prefix, LikeKind::Suffix, LikeKind::Contains];

    /// Splits a pattern into its form and its text. `None`: the text is empty.
    pub fn parse(pattern: &[u8]) -> Option<(LikeKind, &[u8])> {
        let (kind, text) = match pattern {
            [WILDCARD, text @ .., WILDCARD] => (LikeKind::Contains, text),
            [text @ .., WILDCARD] => (LikeKind::Prefix, text),
            [WILDCARD, text @ ..] => (LikeKind::Suffix, text),
            text => (LikeKind::Matches, text),
        };
        (!text.is_empty()).then_some((kind, text))
    }

    /// Returns true if a term matches a text in this form.
    pub fn accepts(self, term: &[u8], text: &[u8]) -> bool {
        match self {
            LikeKind::Matches => term == text,
            LikeKind::Prefix => term.starts_with(text),
            LikeKind::Suffix => term.ends_with(text),
            LikeKind::Contains => contains(term, text),
        }
    }
}

/// Test of terms that no range of terms expresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermFilter {
    /// Terms that end so.
    EndsWith(Vec<u8>),
    /// Terms with these bytes in them.
    Contains(Vec<u8>),
}

impl TermFilter {
    /// Returns true if rows of this term are candidates. A term that was cut may stand for a value that matches.
    pub fn accepts(&self, term: &[u8]) -> bool {
        let is_cut = term.len() >= TERM_BYTES_MAX;
        is_cut
            || match self {
                TermFilter::EndsWith(text) => LikeKind::Suffix.accepts(term, text),
                TermFilter::Contains(text) => LikeKind::Contains.accepts(term, text),
            }
    }
}

/// A pattern, analyzed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LikePattern {
    /// Its form.
    pub kind: LikeKind,
    /// Analysis of the values that it is compared with.
    pub analysis: Analysis,
    /// Texts that the terms of a value must match, each one of them. Without any no value matches.
    pub parts: Vec<Vec<u8>>,
}

impl LikePattern {
    /// The pattern of a form and a text. Text that is not UTF-8 matches nothing.
    pub fn new(kind: LikeKind, text: &[u8], analysis: Analysis) -> LikePattern {
        let parts = std::str::from_utf8(text).map_or_else(|_| Vec::new(), |t| analysis.terms(t));
        LikePattern { kind, analysis, parts }
    }

    /// Returns true if a value matches.
    pub fn accepts(&self, value: &[u8]) -> bool {
        let (Some(_), Ok(value)) = (self.parts.first(), std::str::from_utf8(value)) else {
            return false;
        };
        if self.analysis.is_plain() {
            return self.parts.iter().all(|part| self.kind.accepts(value.as_bytes(), part));
        }
        let mut missing: Vec<&[u8]> = self.parts.iter().map(Vec::as_slice).collect();
        self.analysis.visit(value, &mut Vec::new(), |term| {
            missing.retain(|part| !self.kind.accepts(term, part));
            !missing.is_empty()
        });
        missing.is_empty()
    }

    /// Ranges and filters of terms, one pair for each token; rows that match are in all of them. Without a token the one
    /// pair has no range, so that it finds nothing.
    pub fn searches(&self) -> Vec<(Vec<TermRange>, Option<TermFilter>)> {
        let search = |part: &Vec<u8>| {
            let start = part.get(..TERM_BYTES_MAX).unwrap_or(part);
            let (range, filter) = match self.kind {
                LikeKind::Matches => (TermRange::equal(start), None),
                LikeKind::Prefix => (TermRange::prefix(start), None),
                LikeKind::Suffix => (TermRange::all(), Some(TermFilter::EndsWith(part.clone()))),
                LikeKind::Contains => (TermRange::all(), Some(TermFilter::Contains(part.clone()))),
            };
            (vec![range], filter)
        };
        match self.parts.is_empty() {
            true => vec![(Vec::new(), None)],
            false => self.parts.iter().take(SEARCHED_MAX).map(search).collect(),
        }
    }
}

/// Returns true if `text` lies somewhere in `term`. Text is searched in linear time, whatever it repeats.
fn contains(term: &[u8], text: &[u8]) -> bool {
    match (std::str::from_utf8(term), std::str::from_utf8(text)) {
        (Ok(term), Ok(text)) => term.contains(text),
        _ => text.is_empty() || term.windows(text.len()).any(|window| window == text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Tokens;
    use crate::text::TextOptions;

    #[test]
    fn patterns_have_the_form_that_their_ends_say() {
        let parse = |pattern: &'static str| LikeKind::parse(pattern.as_bytes());
        assert_eq!(parse("a%b"), Some((LikeKind::Matches, &b"a%b"[..])));
        assert_eq!(parse("a%%"), Some((LikeKind::Prefix, &b"a%"[..])));
        assert_eq!(parse("%%a"), Some((LikeKind::Suffix, &b"%a"[..])));
        assert_eq!(parse("%a%"), Some((LikeKind::Contains, &b"a"[..])));
        assert_eq!(parse("%%%"), Some((LikeKind::Contains, &b"%"[..])));
        for empty in ["", "%", "%%"] {
            assert_eq!(parse(empty), None, "{empty}");
        }
    }

    /// Values, patterns and matches as SASI of Cassandra 5.0.9 gives them for the same analyzers.
    #[test]
    fn values_match_as_their_analyzer_says() {
        let text = TextOptions { ignores_case: true, normalizes: true, folds_to_ascii: false };
        let whole = Analysis { text, ..Analysis::default() };
        let words = Analysis { text, tokens: Tokens::Words, ..Analysis::default() };
        let list = Analysis { tokens: Tokens::Delimited(','), ..Analysis::default() };
        let check = |analysis, pattern: &str, value: &str| {
            let (kind, text) = LikeKind::parse(pattern.as_bytes()).unwrap();
            LikePattern::new(kind, text, analysis).accepts(value.as_bytes())
        };
        let plain = Analysis::default();
        assert!(check(plain, "ab%", "abc") && !check(plain, "ab%", "Abc"));
        assert!(check(plain, "%bc", "abc") && !check(plain, "%b", "abc"));
        assert!(check(plain, "%b%", "abc") && !check(plain, "b", "abc"));
        assert!(check(whole, "%PIE", "Apple pie") && check(whole, "É", "e\u{301}"));
        assert!(check(words, "world%", "Hello, World-wide") && !check(words, "or%", "world"));
        assert!(check(words, "hello world", "World, hello") && !check(words, "hello b", "hello a"));
        assert!(check(words, "a,b%", "b ab") && !check(words, "a,b%", "a ab"));
        assert!(!check(words, ", %", ", a") && !check(words, "a%", ""));
        assert!(check(list, "a,b%", "b,ab,x") && !check(list, ",%", ",a"));
        let broken = LikePattern::new(LikeKind::Prefix, b"a", plain);
        assert!(!broken.accepts(b"a\xff"));
    }

    #[test]
    fn cut_terms_are_candidates_of_every_filter() {
        let long = vec![b'a'; TERM_BYTES_MAX];
        for filter in [TermFilter::EndsWith(b"b".to_vec()), TermFilter::Contains(b"b".to_vec())] {
            assert!(filter.accepts(&long));
            assert!(!filter.accepts(&long[1..]));
        }
        let pattern =
            LikePattern::new(LikeKind::Prefix, &[b'a'; TERM_BYTES_MAX + 9], Analysis::default());
        let searches = pattern.searches();
        assert!(searches[0].0[0].contains(&long));
    }

    #[test]
    fn a_search_has_a_part_for_each_token_up_to_a_bound() {
        let words = Analysis { tokens: Tokens::Words, ..Analysis::default() };
        let count = |text: &[u8]| LikePattern::new(LikeKind::Matches, text, words).searches().len();
        assert_eq!((count(b"a b a"), count(b"a b c d e f g h i j")), (2, SEARCHED_MAX));
        let none = LikePattern::new(LikeKind::Matches, b", ", words);
        assert_eq!(none.searches(), [(Vec::new(), None)]);
        assert!(LikePattern::new(LikeKind::Matches, b"\xff", words).parts.is_empty());
    }
}
