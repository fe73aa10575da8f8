//! STARTUP and the password.

use cql_wire::request::RequestOptions;
use cql_wire::{Request, ResponseBody, StringMap, WireError};

use crate::answer::ServerError;
use crate::machine::{Machine, MessageFault};

/// Name and settings that a client sends at the start of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// Options of STARTUP in order; `CQL_VERSION` must be one of them.
    pub options: Vec<(&'static str, String)>,
    /// Name and password, for servers that ask for them.
    pub user: Option<(String, String)>,
}

/// Error of a login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The server asks for a password, and the client has none. Its authenticator.
    #[error("the server asks for a password ({0})")]
    NoCredentials(String),
    /// The server refused STARTUP.
    #[error("{0}")]
    Refused(ServerError),
    /// The server refused name or password.
    #[error("{0}")]
    WrongCredentials(ServerError),
    /// The server asks for more than name and password.
    #[error("the server wants more than name and password")]
    Challenge,
    /// The answer to STARTUP or AUTH_RESPONSE is of another kind.
    #[error("{request} was answered by {answer}")]
    Strange {
        /// The request.
        request: &'static str,
        /// The answer's kind.
        answer: &'static str,
    },
    /// The answer cannot be read.
    #[error(transparent)]
    Message(#[from] MessageFault),
}

/// Requests without an answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginStep {
    Startup,
    Password,
}

impl Login {
    /// With the version of CQL and nothing else.
    pub fn plain() -> Login {
        Login { options: vec![("CQL_VERSION", "3.0.0".to_owned())], user: None }
    }

    /// Adds an option of STARTUP.
    #[must_use]
    pub fn with(mut self, option: &'static str, value: impl Into<String>) -> Login {
        self.options.push((option, value.into()));
        self
    }

    pub(crate) fn send_startup(&self, machine: &mut Machine) -> Result<(), WireError> {
        let options: Vec<(&str, &str)> =
            self.options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut map = Vec::new();
        StringMap::encode(&mut map, &options)?;
        let options = StringMap::decode(&mut codec::Reader::new(&map, "STARTUP"))?;
        machine.send(&Request::Startup(options), &RequestOptions::default())
    }

    /// The token to be sent next; `None` when the login is complete.
    pub(crate) fn step(
        &self,
        step: LoginStep,
        body: &ResponseBody<'_>,
    ) -> Result<Option<Vec<u8>>, LoginError> {
        match (step, body) {
            (LoginStep::Startup, ResponseBody::Ready)
            | (LoginStep::Password, ResponseBody::AuthSuccess(_)) => Ok(None),
            (LoginStep::Startup, ResponseBody::Authenticate(authenticator)) => match &self.user {
                Some((name, password)) => Ok(Some(format!("\0{name}\0{password}").into_bytes())),
                None => Err(LoginError::NoCredentials((*authenticator).to_owned())),
            },
            (LoginStep::Startup, ResponseBody::Error { error, message }) => {
                Err(LoginError::Refused(ServerError::of(error, message)))
            }
            (LoginStep::Password, ResponseBody::Error { error, message }) => {
                Err(LoginError::WrongCredentials(ServerError::of(error, message)))
            }
            (LoginStep::Password, ResponseBody::AuthChallenge(_)) => Err(LoginError::Challenge),
            (step, body) => Err(LoginError::Strange {
                request: match step {
                    LoginStep::Startup => "STARTUP",
                    LoginStep::Password => "AUTH_RESPONSE",
                },
                answer: kind(body),
            }),
        }
    }
}

fn kind(body: &ResponseBody<'_>) -> &'static str {
    match body {
        ResponseBody::Error { .. } => "ERROR",
        ResponseBody::Ready => "READY",
        ResponseBody::Authenticate(_) => "AUTHENTICATE",
        ResponseBody::Supported(_) => "SUPPORTED",
        ResponseBody::Void
        | ResponseBody::Rows(_)
        | ResponseBody::SetKeyspace(_)
        | ResponseBody::Prepared(_)
        | ResponseBody::SchemaChange(_) => "RESULT",
        ResponseBody::Event(_) => "EVENT",
        ResponseBody::AuthChallenge(_) => "AUTH_CHALLENGE",
        ResponseBody::AuthSuccess(_) => "AUTH_SUCCESS",
    }
}
