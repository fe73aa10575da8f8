//! Options of a SASI index, read.
//!
//! Owns: their meaning. Never: the refusal of wrong ones, which CREATE INDEX does first.
//!
//! Source: `IndexMode`, `ColumnIndex`, the options classes of `index.sasi.analyzer`.

use std::collections::BTreeMap;

use schema::IndexMetadata;
use types::CqlType;

use crate::analysis::{Analysis, Tokens};
use crate::like::LikeKind;
use crate::text::TextOptions;

/// Package of the analyzers.
pub const ANALYZERS: &str = "org.apache.cassandra.index.sasi.analyzer.";

/// Mode of a SASI index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SasiMode {
    /// Equality, prefixes, ranges of values that are no text.
    Prefix,
    /// Equality, prefixes, suffixes and parts.
    Contains,
    /// Equality and ranges of values that are no text.
    Sparse,
}

impl SasiMode {
    /// The mode of that name, in any case of letters.
    pub fn of_name(name: &str) -> Option<SasiMode> {
        match name.to_uppercase().as_str() {
            "PREFIX" => Some(SasiMode::Prefix),
            "CONTAINS" => Some(SasiMode::Contains),
            "SPARSE" => Some(SasiMode::Sparse),
            _ => None,
        }
    }
}

/// A SASI index as its options have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SasiOptions {
    /// Its mode.
    pub mode: SasiMode,
    /// Its terms are compared as text: no ranges, but LIKE.
    pub is_literal: bool,
    /// An analyzer is in use, though it may change nothing.
    pub is_analyzed: bool,
    /// Analysis of its values.
    pub analysis: Analysis,
}

impl SasiOptions {
    /// The options of an index of a column of this type.
    pub fn of(index: &IndexMetadata, ty: &CqlType) -> SasiOptions {
        SasiOptions::read(&index.options, ty)
    }

    /// The same from the options of a statement.
    pub fn read(options: &BTreeMap<String, String>, ty: &CqlType) -> SasiOptions {
        let option = |name: &str| options.get(name).map(String::as_str);
        let flag = |name: &str| option(name).map(|text| text.eq_ignore_ascii_case("true"));
        let is_text = matches!(ty, CqlType::Text | CqlType::Ascii);
        let class = option("analyzer_class").and_then(|class| class.strip_prefix(ANALYZERS));
        let is_analyzed = flag("analyzed").unwrap_or(option("analyzer_class").is_some());
        let analysis = match class {
            _ if !is_analyzed || !is_text => Analysis::default(),
            Some("NonTokenizingAnalyzer") => {
                let ignores_case = flag("case_sensitive") == Some(false);
                let lower = ignores_case || flag("normalize_lowercase") == Some(true);
                filtered(lower, flag("normalize_uppercase") == Some(true), Tokens::Whole)
            }
            Some("DelimiterAnalyzer") => {
                let delimiter = option("delimiter").and_then(|text| text.chars().next());
                let tokens = Tokens::Delimited(delimiter.unwrap_or(','));
                Analysis { tokens, ..Analysis::default() }
            }
            Some("NoOpAnalyzer") => Analysis::default(),
            _ => {
                let lower = flag("tokenization_normalize_lowercase") == Some(true);
                let upper = flag("tokenization_normalize_uppercase") == Some(true);
                filtered(lower, upper, Tokens::Words)
            }
        };
        SasiOptions {
            mode: option("mode").and_then(SasiMode::of_name).unwrap_or(SasiMode::Prefix),
            is_literal: flag("is_literal").unwrap_or(is_text),
            is_analyzed,
            analysis,
        }
    }

    /// Returns true if the index answers `=`.
    pub fn answers_equality(&self) -> bool {
        !self.analysis.has_tokens()
    }

    /// Returns true if the index answers ranges.
    pub fn answers_ranges(&self) -> bool {
        !self.is_literal && self.mode != SasiMode::Contains
    }

    /// Returns true if the index answers LIKE of this form.
    pub fn answers_like(&self, kind: LikeKind) -> bool {
        self.is_literal
            && match (self.mode, kind) {
                (SasiMode::Sparse, _)
                | (SasiMode::Prefix, LikeKind::Suffix | LikeKind::Contains) => false,
                (SasiMode::Contains, LikeKind::Prefix) => !self.analysis.has_tokens(),
                _ => true,
            }
    }
}

fn filtered(lower: bool, upper: bool, tokens: Tokens) -> Analysis {
    let text = TextOptions { ignores_case: lower, normalizes: true, folds_to_ascii: false };
    Analysis { text, uppercases: upper, tokens }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)], ty: &CqlType) -> SasiOptions {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        SasiOptions::read(&options.iter().map(own).collect(), ty)
    }

    fn analyzer(name: &str) -> String {
        format!("{ANALYZERS}{name}")
    }

    /// The predicates that an index answers, as recorded from Cassandra 5.0.9.
    #[test]
    fn modes_and_analyzers_answer_what_they_do_in_cassandra() {
        let answers = |options: &SasiOptions| {
            let like = LikeKind::ALL.map(|kind| options.answers_like(kind));
            (options.answers_equality(), options.answers_ranges(), like)
        };
        let prefix = read(&[], &CqlType::Text);
        assert_eq!(answers(&prefix), (true, false, [true, true, false, false]));
        let contains = read(&[("mode", "contains")], &CqlType::Ascii);
        assert_eq!(answers(&contains), (true, false, [true; 4]));
        let number = read(&[], &CqlType::Int);
        assert_eq!(answers(&number), (true, true, [false; 4]));
        let sparse = read(&[("mode", "SPARSE")], &CqlType::Double);
        assert_eq!(answers(&sparse), (true, true, [false; 4]));
        let number = read(&[("mode", "CONTAINS")], &CqlType::Int);
        assert_eq!(answers(&number), (true, false, [false; 4]));
        let standard = analyzer("StandardAnalyzer");
        let words = read(&[("analyzer_class", &standard)], &CqlType::Text);
        assert_eq!(answers(&words), (false, false, [true, true, false, false]));
        let words = read(&[("analyzer_class", &standard), ("mode", "CONTAINS")], &CqlType::Text);
        assert_eq!(answers(&words), (false, false, [true, false, true, true]));
        let values = read(&[("is_literal", "false")], &CqlType::Text);
        assert_eq!(answers(&values), (true, true, [false; 4]));
    }

    #[test]
    fn analyzers_come_from_their_class_and_options() {
        let of = |options: &[(&str, &str)]| read(options, &CqlType::Text).analysis;
        let (standard, delimiter) = (analyzer("StandardAnalyzer"), analyzer("DelimiterAnalyzer"));
        let (whole, none) = (analyzer("NonTokenizingAnalyzer"), analyzer("NoOpAnalyzer"));
        assert!(of(&[("analyzer_class", &none)]).is_plain());
        assert!(of(&[("analyzed", "false"), ("analyzer_class", &standard)]).is_plain());
        assert_eq!(of(&[("analyzed", "TRUE")]).tokens, Tokens::Words);
        let list = of(&[("analyzer_class", &delimiter), ("delimiter", "é")]);
        assert_eq!(list, Analysis { tokens: Tokens::Delimited('é'), ..Analysis::default() });
        assert_eq!(of(&[("analyzer_class", &delimiter)]).tokens, Tokens::Delimited(','));
        let cases = |option: (&str, &str)| {
            let analysis = of(&[("analyzer_class", &whole), option]);
            assert!(analysis.text.normalizes && !analysis.has_tokens());
            (analysis.text.ignores_case, analysis.uppercases)
        };
        assert_eq!(cases(("case_sensitive", "false")), (true, false));
        assert_eq!(cases(("case_sensitive", "true")), (false, false));
        assert_eq!(cases(("normalize_lowercase", "true")), (true, false));
        assert_eq!(cases(("normalize_uppercase", "true")), (false, true));
        let upper = ("tokenization_normalize_uppercase", "true");
        let words = of(&[("analyzer_class", &standard), upper]);
        assert_eq!((words.tokens, words.uppercases), (Tokens::Words, true));
    }
}
