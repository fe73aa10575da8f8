//! Analysis of text: the terms that an index has for one value, and a value of a predicate.
//!
//! A storage-attached index filters the whole value ([`TextOptions`]). The analyzers of SASI may also convert it to
//! upper case, or cut it into tokens, each of which is a term.
//!
//! Source: `index.sasi.analyzer`. Words are those of Unicode's annex 29, as are those of Lucene's `StandardTokenizer`.

use unicode_segmentation::UnicodeSegmentation;

use crate::text::TextOptions;

/// Longest word in UTF-16 units; longer ones have no term. Source: `StandardTokenizerOptions`.
const WORD_UNITS_MAX: usize = 255;

/// Analysis of one index. The default leaves text as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Analysis {
    /// Filters of the text, or of each token.
    pub text: TextOptions,
    /// All letters become upper case.
    pub uppercases: bool,
    /// Tokens.
    pub tokens: Tokens,
}

/// How text is cut into tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tokens {
    /// It stays whole.
    #[default]
    Whole,
    /// The parts between a character; empty parts have no term.
    Delimited(char),
    /// Its words.
    Words,
}

impl From<TextOptions> for Analysis {
    fn from(text: TextOptions) -> Analysis {
        Analysis { text, ..Analysis::default() }
    }
}

impl Analysis {
    /// Returns true if text stays as it is.
    pub fn is_plain(self) -> bool {
        self == Analysis::default()
    }

    /// Returns true if a text may have several terms or none.
    pub fn has_tokens(self) -> bool {
        self.tokens != Tokens::Whole
    }

    /// Appends the filtered text, as one term.
    pub fn filter(self, text: &str, out: &mut Vec<u8>) {
        match self.uppercases {
            true => self.text.apply(&text.to_uppercase(), out),
            false => self.text.apply(text, out),
        }
    }

    /// Calls `each` with every term of a text, in its order. Returns false once `each` does, at once.
    pub fn visit(
        self,
        text: &str,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        let mut token = |token: &str| {
            scratch.clear();
            self.filter(token, scratch);
            each(scratch)
        };
        match self.tokens {
            Tokens::Whole => token(text),
            Tokens::Delimited(delimiter) => {
                text.split(delimiter).filter(|part| !part.is_empty()).all(token)
            }
            Tokens::Words => text.unicode_words().filter(|word| is_short(word)).all(token),
        }
    }

    /// The terms of a text, each once.
    pub fn terms(self, text: &str) -> Vec<Vec<u8>> {
        let mut terms: Vec<Vec<u8>> = Vec::new();
        self.visit(text, &mut Vec::new(), |term| {
            terms.push(term.to_vec());
            true
        });
        terms.sort_unstable();
        terms.dedup();
        terms
    }
}

fn is_short(word: &str) -> bool {
    word.len() <= WORD_UNITS_MAX || word.encode_utf16().count() <= WORD_UNITS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(analysis: Analysis, text: &str) -> Vec<String> {
        let terms = analysis.terms(text).into_iter();
        terms.map(|term| String::from_utf8(term).unwrap()).collect()
    }

    #[test]
    fn whole_text_has_one_term() {
        let upper = Analysis { uppercases: true, ..Analysis::default() };
        assert_eq!(terms(Analysis::default(), "Straße, a"), ["Straße, a"]);
        assert_eq!(terms(upper, "Straße, a"), ["STRASSE, A"]);
        assert_eq!(terms(upper, ""), [""]);
    }

    #[test]
    fn a_delimiter_leaves_out_empty_parts() {
        let of =
            |delimiter| Analysis { tokens: Tokens::Delimited(delimiter), ..Analysis::default() };
        assert_eq!(terms(of(','), ",b, a,,b"), [" a", "b"]);
        assert_eq!(terms(of('é'), "aéb"), ["a", "b"]);
        assert_eq!(terms(of(','), ",,"), [""; 0]);
        assert_eq!(terms(of(','), ""), [""; 0]);
    }

    #[test]
    fn words_are_those_that_the_standard_tokenizer_finds() {
        let text = TextOptions { ignores_case: true, normalizes: true, folds_to_ascii: false };
        let words = Analysis { text, uppercases: false, tokens: Tokens::Words };
        assert_eq!(
            terms(words, "Hello, World-wide! x.y.z foo_bar 3.14 user@example.com can't it's"),
            [
                "3.14",
                "can't",
                "example.com",
                "foo_bar",
                "hello",
                "it's",
                "user",
                "wide",
                "world",
                "x.y.z"
            ]
        );
        assert_eq!(terms(words, "日本語 テスト한국"), ["テスト", "日", "本", "語", "한국"]);
        assert_eq!(terms(words, "e\u{301} -- , _"), ["\u{e9}"]);
        assert_eq!(terms(words, &format!("{} ab", "q".repeat(256))), ["ab"]);
        assert_eq!(terms(words, &"q".repeat(255)), ["q".repeat(255)]);
        assert_eq!(terms(words, &"é".repeat(255)), ["é".repeat(255)]);
        assert_eq!(terms(words, &"é".repeat(256)), [""; 0]);
    }

    #[test]
    fn a_visit_ends_when_it_is_told_to() {
        let words = Analysis { tokens: Tokens::Words, ..Analysis::default() };
        let mut seen = 0;
        let ended = words.visit("a b c", &mut Vec::new(), |_| {
            seen += 1;
            seen < 2
        });
        assert_eq!((ended, seen), (false, 2));
    }
}
