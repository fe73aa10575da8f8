//! Kinds of error answers.

use serde::{Deserialize, Serialize};

/// Kind of an error answer, by what the client can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// An argument is missing or cannot be used.
    Argument,
    /// An argument names a keyspace that does not exist.
    UnknownKeyspace,
    /// An argument names a table that does not exist.
    UnknownTable,
    /// An argument is no partition key of its table.
    InvalidKey,
    /// The request has no login, or its login failed.
    Unauthenticated,
    /// The login lacks the permission, or a browser sent the request.
    Forbidden,
    /// No such path, or it names an object that does not exist.
    NotFound,
    /// The object exists already.
    Exists,
    /// The body is too large.
    TooLarge,
    /// The content type is not the one of this path.
    ContentType,
    /// Too many failed logins of this address; retry later.
    TooManyFailures,
    /// This node cannot do it.
    Unsupported,
    /// The node is busy or stopping; retry.
    Busy,
    /// It failed on the node.
    #[serde(other)]
    Failed,
}

impl ErrorKind {
    /// Returns the status of an answer of this kind.
    pub const fn status(self) -> u16 {
        match self {
            ErrorKind::Argument
            | ErrorKind::UnknownKeyspace
            | ErrorKind::UnknownTable
            | ErrorKind::InvalidKey => 400,
            ErrorKind::Unauthenticated => 401,
            ErrorKind::Forbidden => 403,
            ErrorKind::NotFound => 404,
            ErrorKind::Exists => 409,
            ErrorKind::TooLarge => 413,
            ErrorKind::ContentType => 415,
            ErrorKind::TooManyFailures => 429,
            ErrorKind::Unsupported => 501,
            ErrorKind::Busy => 503,
            ErrorKind::Failed => 500,
        }
    }

    /// Returns the kind of an answer that names none: one of an older node, or of a proxy.
    pub const fn of_status(status: u16) -> ErrorKind {
        match status {
            401 => ErrorKind::Unauthenticated,
            403 => ErrorKind::Forbidden,
            404 | 405 => ErrorKind::NotFound,
            409 => ErrorKind::Exists,
            413 => ErrorKind::TooLarge,
            415 => ErrorKind::ContentType,
            429 => ErrorKind::TooManyFailures,
            501 => ErrorKind::Unsupported,
            503 => ErrorKind::Busy,
            400..=499 => ErrorKind::Argument,
            _ => ErrorKind::Failed,
        }
    }

    /// Returns true if an argument is wrong.
    pub const fn is_argument(self) -> bool {
        self.status() == 400
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_kind_has_that_of_its_status() {
        for status in [400, 401, 403, 404, 409, 413, 415, 429, 500, 501, 503] {
            assert_eq!(ErrorKind::of_status(status).status(), status);
        }
        assert_eq!(ErrorKind::of_status(422), ErrorKind::Argument);
        assert_eq!(ErrorKind::of_status(502), ErrorKind::Failed);
    }

    #[test]
    fn a_kind_of_a_newer_node_is_read() {
        let read = |text: &str| serde_json::from_str::<ErrorKind>(text).unwrap();
        assert_eq!(read("\"unknown_table\""), ErrorKind::UnknownTable);
        assert_eq!(read("\"some_other_kind\""), ErrorKind::Failed);
    }
}
