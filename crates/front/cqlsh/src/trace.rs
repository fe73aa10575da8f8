//! Traces: the session and its events as a table.
//!
//! Owns: waiting for a trace to be complete, its rows. Never: starts a trace.
//!
//! Source: `tracing.py` of cqlsh 6.2 and `QueryTrace` of the Python driver.

use std::time::{Duration, Instant};

use types::{CqlType, timeuuid};

use crate::display::{self, Cell, MAGENTA, RED};
use crate::failure::Failure;
use crate::schema;
use crate::shell::Shell;
use crate::time::Moment;

/// First pause between two polls of a session; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(3);

struct Session {
    request: String,
    coordinator: String,
    client: String,
    started_micros: i64,
    /// Microseconds; `None` while the request runs.
    duration: Option<i32>,
}

/// Prints the trace of a request; waits for its end first when asked to.
pub(crate) fn print(shell: &mut Shell, id: &[u8; 16], wait: bool) {
    let deadline = Instant::now() + shell.options.trace_wait;
    let mut pause = FIRST_PAUSE;
    let session = loop {
        let session = match session(shell, id) {
            Ok(session) => session,
            Err(failure) => {
                return shell.print_error(&format!("Unable to fetch query trace: {failure}"));
            }
        };
        let complete = session.as_ref().is_some_and(|session| session.duration.is_some());
        if complete || (!wait && session.is_some()) {
            break session;
        }
        if Instant::now() + pause >= deadline {
            if session.is_some() {
                let seconds = shell.options.trace_wait.as_secs();
                let text = shell.colored(
                    &format!(
                        "Statement trace did not complete within {seconds} seconds; trace data \
                         may be incomplete."
                    ),
                    RED,
                );
                shell.write_line(&text);
            }
            break session;
        }
        std::thread::sleep(pause);
        pause = pause.saturating_mul(2);
    };
    let shown = timeuuid::format_uuid(id);
    let Some(session) = session else {
        return shell.print_error(&format!("Session {shown} wasn't found."));
    };
    match rows(shell, id, &session) {
        Ok(rows) if rows.is_empty() => {
            shell.print_error(&format!("No rows for session {shown} found."));
        }
        Ok(rows) => {
            let names: Vec<Cell> = ["activity", "timestamp", "source", "source_elapsed", "client"]
                .iter()
                .map(|name| shell.style.name(name, MAGENTA))
                .collect();
            let title = shell.colored("Tracing session: ", MAGENTA);
            shell.write(&format!("\n{title}{shown}\n\n"));
            shell.write(&display::table(&names, &rows, true, shell.style.color));
            if shell.tty {
                shell.write_line("");
            }
            shell.write_line("");
        }
        Err(failure) => shell.print_error(&format!("Unable to fetch query trace: {failure}")),
    }
}

fn session(shell: &mut Shell, id: &[u8; 16]) -> Result<Option<Session>, Failure> {
    let query = format!(
        "SELECT request, duration, started_at, coordinator, client FROM system_traces.sessions \
         WHERE session_id = {}",
        timeuuid::format_uuid(id)
    );
    let (level, timeout) = (shell.consistency, shell.options.request_timeout);
    let pages = schema::rows(&mut shell.connection, &query, level, timeout)?;
    let Some(page) = pages.iter().find(|page| page.len() > 0) else { return Ok(None) };
    let address = |name: &str| {
        page.named(0, name).map_or_else(
            || "None".to_owned(),
            |value| shell.style.cell(&CqlType::Inet, Some(value)).text,
        )
    };
    let started = page.named(0, "started_at").and_then(|value| value.try_into().ok());
    let Some(started) = started.map(i64::from_be_bytes) else { return Ok(None) };
    Ok(Some(Session {
        request: page.text(0, "request"),
        coordinator: address("coordinator"),
        client: address("client"),
        started_micros: started.saturating_mul(1000),
        duration: page
            .named(0, "duration")
            .and_then(|value| value.try_into().ok())
            .map(i32::from_be_bytes),
    }))
}

fn rows(shell: &mut Shell, id: &[u8; 16], session: &Session) -> Result<Vec<Vec<Cell>>, Failure> {
    let query = format!(
        "SELECT activity, event_id, source, source_elapsed, thread FROM system_traces.events WHERE \
         session_id = {}",
        timeuuid::format_uuid(id)
    );
    let (level, timeout) = (shell.consistency, shell.options.request_timeout);
    let pages = schema::rows(&mut shell.connection, &query, level, timeout)?;
    let style = &shell.style;
    let moment = |micros: i64| {
        let moment = Moment::of_micros(micros);
        style.text(&moment.map_or_else(String::new, |moment| moment.plain()))
    };
    // Python treats a duration of zero as none.
    let elapsed = |micros: i32| match micros {
        0 => style.text("--"),
        micros => style.number(i64::from(micros)),
    };
    let mut table = Vec::new();
    for page in &pages {
        for row in 0..page.len() {
            let activity = format!("{} [{}]", page.text(row, "activity"), page.text(row, "thread"));
            let at = page.named(row, "event_id").and_then(timeuuid::unix_micros).unwrap_or(0);
            let source = style.cell(&CqlType::Inet, page.named(row, "source")).text;
            let took = page.named(row, "source_elapsed").and_then(|value| value.try_into().ok());
            table.push(vec![
                style.text(&activity),
                moment(at),
                style.text(&source),
                elapsed(took.map_or(0, i32::from_be_bytes)),
                style.text(&session.client),
            ]);
        }
    }
    if table.is_empty() {
        return Ok(table);
    }
    let ends = |activity: &str, micros: i64, took: Cell| {
        vec![
            style.text(activity),
            moment(micros),
            style.text(&session.coordinator),
            took,
            style.text(&session.client),
        ]
    };
    table.insert(0, ends(&session.request, session.started_micros, style.number(0)));
    if let Some(duration) = session.duration.filter(|duration| *duration != 0) {
        let end = session.started_micros.saturating_add(i64::from(duration));
        table.push(ends("Request complete", end, elapsed(duration)));
    }
    Ok(table)
}
