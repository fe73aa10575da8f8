//! Errors of key material and settings.

/// Error of key material or a setting: the place, the problem, the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct TlsError {
    /// Setting and file, such as `"keystore" conf/.keystore`.
    pub place: String,
    /// The problem, such as a wrong password.
    pub problem: String,
    /// The remedy for the operator.
    pub remedy: String,
}

/// A problem with its remedy, before the place is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

impl Problem {
    pub(crate) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem { problem: problem.into(), remedy: remedy.into() }
    }

    pub(crate) fn at(self, place: impl Into<String>) -> TlsError {
        TlsError { place: place.into(), problem: self.problem, remedy: self.remedy }
    }
}
