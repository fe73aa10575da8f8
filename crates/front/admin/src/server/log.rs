//! Log levels: they belong to the program that runs the node.

use axum::Json;
use axum::extract::State;

use super::api::{Answer, Api};
use crate::model::{DrainRequest, LogLevelReport};
use crate::request::ActionError;

/// Owner of the levels of the log.
pub trait LogControl: Send + Sync {
    /// Levels by module; that of everything else first, as `ROOT`.
    fn levels(&self) -> Vec<LogLevelReport>;

    /// Events of level ERROR that were logged since the start.
    fn errors(&self) -> u64;

    /// Sets one; an empty level is that of the start, an empty logger with it is all of them.
    ///
    /// # Errors
    /// No such level, or no name of a module; in words.
    fn set(&self, wanted: &LogLevelReport) -> Result<(), String>;
}

impl Api {
    pub(super) fn log(&self) -> Answer<&dyn LogControl> {
        let log = self.log.as_deref();
        log.ok_or_else(|| ActionError::Unsupported("changing what is logged").into())
    }
}

pub(super) async fn levels(State(api): State<Api>) -> Answer<Json<Vec<LogLevelReport>>> {
    Ok(Json(api.log()?.levels()))
}

pub(super) async fn set(
    State(api): State<Api>,
    Json(wanted): Json<LogLevelReport>,
) -> Answer<Json<DrainRequest>> {
    api.log()?.set(&wanted).map_err(ActionError::Argument)?;
    Ok(Json(DrainRequest {}))
}
