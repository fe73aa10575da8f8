//! `getauditlog`, `enableauditlog`, `disableauditlog`.

use std::collections::BTreeMap;

use super::cluster::tell;
use super::settings::settings;
use super::{Line, Outcome};
use crate::model::ClusterCommand;
use crate::nodetool as layout;

/// Flags of `enableauditlog`, with the keys of `audit_logging_options` that they change.
const FLAGS: [(&str, &str); 13] = [
    ("--archive-command", "archive_command"),
    ("--blocking", "block"),
    ("--excluded-categories", "excluded_categories"),
    ("--excluded-keyspaces", "excluded_keyspaces"),
    ("--excluded-users", "excluded_users"),
    ("--included-categories", "included_categories"),
    ("--included-keyspaces", "included_keyspaces"),
    ("--included-users", "included_users"),
    ("--logger", "logger"),
    ("--max-archive-retries", "max_archive_retries"),
    ("--max-log-size", "max_log_size"),
    ("--max-queue-weight", "max_queue_weight"),
    ("--roll-cycle", "roll_cycle"),
];

/// `getauditlog`.
pub(super) fn get(line: &Line) -> Outcome {
    Ok(layout::pairs(&settings(&line.api)?.audit_log))
}

/// `enableauditlog`.
pub(super) fn enable(line: &Line) -> Outcome {
    let changes: BTreeMap<String, String> = FLAGS
        .iter()
        .filter_map(|(flag, key)| Some(((*key).to_owned(), line.value(flag)?.to_owned())))
        .collect();
    tell(&line.api, &ClusterCommand::EnableAuditLog { changes }).map(|_| String::new())
}

/// `disableauditlog`.
pub(super) fn disable(line: &Line) -> Outcome {
    tell(&line.api, &ClusterCommand::DisableAuditLog {}).map(|_| String::new())
}
