//! The audit log and the log of all queries, which do not exist: a node whose configuration switches the audit log
//! on does not start. So they are off, which can be asked for and switched off, but not switched on.

use admin::model::NodeReport;

use super::{Failure, Line};

/// `None`: another command.
pub(super) fn run(line: &Line) -> Option<Result<String, Failure>> {
    Some(match line.verb {
        "getauditlog" => asked(line).map(|()| OFF.to_owned()),
        "getfullquerylog" => asked(line).map(|()| OFF.to_owned()),
        "disableauditlog" | "disablefullquerylog" => asked(line).map(|()| String::new()),
        _ => return None,
    })
}

/// The node must answer, as it would have to if it had one.
fn asked(line: &Line) -> Result<(), Failure> {
    let _: NodeReport = line.api.get("/api/v1/node")?;
    Ok(())
}

/// The first row of Cassandra's table. Its other rows are settings that do not exist here.
const OFF: &str = "enabled             false\n";
