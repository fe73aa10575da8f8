//! The crate's error.

/// Why a value, a literal or a type name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// Bytes or a literal are not a value of the type. The text is that of Cassandra's
    /// `MarshalException`, which reaches the client inside an Invalid error (code 0x2200).
    #[error("{0}")]
    Marshal(String),
    /// A text is not of the form of a duration: the text without its sign. Cassandra handles it apart from other
    /// values that do not parse.
    #[error("Unable to convert '{0}' to a duration")]
    DurationFormat(String),
    /// A marshal class name does not parse; the text is that of Cassandra's `SyntaxException`.
    #[error("{0}")]
    Syntax(String),
    /// A type definition is not allowed (Cassandra's `ConfigurationException` or
    /// `InvalidRequestException`, with its text).
    #[error("{0}")]
    Configuration(String),
    /// An arithmetic operation or a cast failed on these operands; the text is Cassandra's
    /// `OperationExecutionException` or `FunctionExecutionException` detail.
    #[error("{0}")]
    Arithmetic(String),
}

impl TypeError {
    /// A value error with Cassandra's text.
    pub(crate) fn marshal(text: impl Into<String>) -> TypeError {
        TypeError::Marshal(text.into())
    }
}
