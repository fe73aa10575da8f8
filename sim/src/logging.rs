//! Log lines of simulated nodes, with the virtual time and the node.

use std::fmt;

use rt::sim::polled;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Stands before each line: seconds of virtual time, the machine, the shard.
struct Virtual;

impl FormatTime for Virtual {
    fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
        match polled() {
            Some(at) => {
                let seconds = at.now.0 as f64 / 1e9;
                write!(out, "{seconds:12.6} {} shard {}", at.ip, at.shard)
            }
            None => write!(out, "{:>12} the world", ""),
        }
    }
}

/// Writes what passes `filter` (`debug`, `info,membership=trace`) to standard error from now on.
///
/// # Errors
/// The filter cannot be understood.
pub fn begin(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log {filter}: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(Virtual)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}
