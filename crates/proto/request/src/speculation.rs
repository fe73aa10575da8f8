//! `speculative_retry` and `additional_write_policy`: the time to ask one more replica.
//!
//! Source: Cassandra `SpeculativeRetryPolicy` and its kinds: forms, messages, canonical text.

use std::fmt;
use std::time::Duration;

/// A table's policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpeculativeRetry {
    /// `NEVER`, `NONE`.
    Never,
    /// `ALWAYS`: one more replica from the start.
    Always,
    /// `99p`, `99PERCENTILE`: when the read takes longer than that share of reads, in per cent
    /// (0 to 100, both excluded).
    Percentile(f64),
    /// `50ms`.
    Fixed {
        /// Milliseconds; a fraction is cut off, as Cassandra does.
        ms: u32,
    },
    /// `MIN(99p,50ms)`, `MAX(…)`, arguments in either order.
    Hybrid {
        /// MAX instead of MIN.
        is_max: bool,
        /// In per cent.
        percentile: f64,
        /// Milliseconds.
        ms: u32,
    },
}

/// Condition for speculation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Not at all.
    Never,
    /// From the start.
    Always,
    /// At this age of the request.
    After(Duration),
}

/// A text that is no policy; the messages are Cassandra's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpeculationError {
    /// None of the forms.
    #[error("Invalid value {0} for option 'speculative_retry'")]
    Invalid(String),
    /// A percentile out of range.
    #[error(
        "Invalid value {0} for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)"
    )]
    Percentile(String),
    /// Two arguments of one kind.
    #[error(
        "Invalid value {text} for option 'speculative_retry': MIN()/MAX() arguments should be of \
         different types, but both are of type {kind}"
    )]
    SameKind {
        /// The text.
        text: String,
        /// `PERCENTILE` or `FIXED`.
        kind: &'static str,
    },
}

enum Simple {
    Percentile(f64),
    Fixed(u32),
}

/// Digits and dots before a unit; `None` when the text has another form.
fn number<'a>(text: &'a str, units: &[&str]) -> Option<&'a str> {
    let lower = text.to_ascii_lowercase();
    let digits = units.iter().find_map(|unit| lower.strip_suffix(unit))?.len();
    let value = text.get(..digits)?;
    let well_formed = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    well_formed.then_some(value)
}

fn simple(text: &str) -> Result<Simple, SpeculationError> {
    let invalid = || SpeculationError::Invalid(text.to_owned());
    if let Some(value) = number(text, &["percentile", "p"]) {
        let percentile: f64 = value.parse().map_err(|_| invalid())?;
        if percentile <= 0.0 || percentile >= 100.0 {
            return Err(SpeculationError::Percentile(text.to_owned()));
        }
        return Ok(Simple::Percentile(percentile));
    }
    let value = number(text, &["ms"]).ok_or_else(invalid)?;
    let ms: f64 = value.parse().map_err(|_| invalid())?;
    // A cast of a float saturates: Java's does too.
    Ok(Simple::Fixed(ms.min(f64::from(i32::MAX)) as u32))
}

impl SpeculativeRetry {
    /// Reads a policy, whatever its case.
    ///
    /// # Errors
    /// Errors in Cassandra's words.
    pub fn parse(text: &str) -> Result<SpeculativeRetry, SpeculationError> {
        let upper = text.to_ascii_uppercase();
        match upper.as_str() {
            "ALWAYS" => return Ok(SpeculativeRetry::Always),
            "NEVER" | "NONE" => return Ok(SpeculativeRetry::Never),
            _ => {}
        }
        let is_max = upper.starts_with("MAX(");
        if !is_max && !upper.starts_with("MIN(") {
            return Ok(match simple(text)? {
                Simple::Percentile(p) => SpeculativeRetry::Percentile(p),
                Simple::Fixed(ms) => SpeculativeRetry::Fixed { ms },
            });
        }
        let invalid = || SpeculationError::Invalid(text.to_owned());
        let inner = text.get(4..).and_then(|t| t.strip_suffix(')')).ok_or_else(invalid)?;
        let (first, second) = inner.split_once(',').ok_or_else(invalid)?;
        // White space may stand around the comma only.
        let argument = |text: &str| match simple(text) {
            Err(SpeculationError::Invalid(_)) => Err(invalid()),
            other => other,
        };
        let same = |kind| {
            let text = text.to_owned();
            Err(SpeculationError::SameKind { text, kind })
        };
        match (argument(first.trim_end())?, argument(second.trim_start())?) {
            (Simple::Percentile(percentile), Simple::Fixed(ms))
            | (Simple::Fixed(ms), Simple::Percentile(percentile)) => {
                Ok(SpeculativeRetry::Hybrid { is_max, percentile, ms })
            }
            (Simple::Percentile(_), Simple::Percentile(_)) => same("PERCENTILE"),
            (Simple::Fixed(_), Simple::Fixed(_)) => same("FIXED"),
        }
    }

    /// When to speculate. `percentile`: latency of the share (0 to 1) of the replica's reads,
    /// `None` while there are no samples; then `existing`, the threshold used so far, stays.
    pub fn threshold(
        &self,
        percentile: impl Fn(f64) -> Option<Duration>,
        existing: Threshold,
    ) -> Threshold {
        let fixed = |ms: u32| Duration::from_millis(u64::from(ms));
        match *self {
            SpeculativeRetry::Never => Threshold::Never,
            SpeculativeRetry::Always => Threshold::Always,
            SpeculativeRetry::Fixed { ms } => Threshold::After(fixed(ms)),
            SpeculativeRetry::Percentile(p) => {
                percentile(p / 100.0).map_or(existing, Threshold::After)
            }
            SpeculativeRetry::Hybrid { is_max, percentile: p, ms } => {
                let Some(measured) = percentile(p / 100.0) else { return existing };
                let fixed = fixed(ms);
                Threshold::After(if is_max { measured.max(fixed) } else { measured.min(fixed) })
            }
        }
    }
}

/// At most four decimal digits, as Java's `#.####`.
fn write_percentile(f: &mut fmt::Formatter<'_>, percentile: f64) -> fmt::Result {
    let text = format!("{percentile:.4}");
    write!(f, "{}p", text.trim_end_matches('0').trim_end_matches('.'))
}

impl fmt::Display for SpeculativeRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SpeculativeRetry::Never => f.write_str("NEVER"),
            SpeculativeRetry::Always => f.write_str("ALWAYS"),
            SpeculativeRetry::Percentile(p) => write_percentile(f, p),
            SpeculativeRetry::Fixed { ms } => write!(f, "{ms}ms"),
            SpeculativeRetry::Hybrid { is_max, percentile, ms } => {
                f.write_str(if is_max { "MAX(" } else { "MIN(" })?;
                write_percentile(f, percentile)?;
                write!(f, ",{ms}ms)")
            }
        }
    }
}
