//! `getfullquerylog`, `enablefullquerylog`, `disablefullquerylog`, `resetfullquerylog`.
//!
//! Source: output and messages of Cassandra 5.0.9.

use std::collections::BTreeMap;

use super::cluster::{bad, tell};
use super::settings::settings;
use super::{Failure, Line, Outcome};
use crate::model::ClusterCommand;
use crate::nodetool as layout;

/// Type of a flag's value.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Flag,
    Int(&'static str),
    Long(&'static str),
}

/// Flags of `enablefullquerylog`, with the keys of `full_query_logging_options` that they change.
const FLAGS: [(&str, &str, Form); 7] = [
    ("--archive-command", "archive_command", Form::Text),
    ("--blocking", "block", Form::Flag),
    ("--max-archive-retries", "max_archive_retries", Form::Int("archive_retries")),
    ("--max-log-size", "max_log_size", Form::Long("max_log_size")),
    ("--max-queue-weight", "max_queue_weight", Form::Int("max_queue_weight")),
    ("--path", "log_dir", Form::Text),
    ("--roll-cycle", "roll_cycle", Form::Text),
];

/// `getfullquerylog`.
pub(super) fn get(line: &Line) -> Outcome {
    Ok(layout::pairs(&settings(&line.api)?.full_query_log))
}

/// `enablefullquerylog`.
pub(super) fn enable(line: &Line) -> Outcome {
    let mut changes = BTreeMap::new();
    for (flag, key, form) in FLAGS {
        if let Some(value) = line.value(flag) {
            check(value, form)?;
            changes.insert(key.to_owned(), value.to_owned());
        }
    }
    tell(&line.api, &ClusterCommand::EnableFullQueryLog { changes })
}

fn check(value: &str, form: Form) -> Result<(), Failure> {
    let converted = |is_one: bool, title: &str, to: &str| {
        let words = || bad(format!("{title}: can not convert \"{value}\" to a {to}"));
        is_one.then_some(()).ok_or_else(words)
    };
    match form {
        Form::Text => Ok(()),
        Form::Flag if ["true", "false"].iter().any(|word| value.eq_ignore_ascii_case(word)) => {
            Ok(())
        }
        Form::Flag => {
            Err(bad(format!("Invalid [{value}]. Blocking only accepts 'true' or 'false'.")))
        }
        Form::Int(title) => converted(value.parse::<i32>().is_ok(), title, "int"),
        Form::Long(title) => converted(value.parse::<i64>().is_ok(), title, "long"),
    }
}

/// `disablefullquerylog`.
pub(super) fn disable(line: &Line) -> Outcome {
    tell(&line.api, &ClusterCommand::DisableFullQueryLog {})
}

/// `resetfullquerylog`.
pub(super) fn reset(line: &Line) -> Outcome {
    tell(&line.api, &ClusterCommand::ResetFullQueryLog {})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages are those of 5.0.9.
    #[test]
    fn values_are_refused_in_cassandras_words() {
        let words = |value: &str, form| match check(value, form) {
            Err(Failure::BadUse(words)) => words,
            other => panic!("{other:?}"),
        };
        let weight = Form::Int("max_queue_weight");
        assert_eq!(words("x", weight), "max_queue_weight: can not convert \"x\" to a int");
        assert_eq!(
            words("2147483648", weight),
            "max_queue_weight: can not convert \"2147483648\" to a int"
        );
        assert_eq!(check("2147483647", weight).ok(), Some(()));
        assert_eq!(
            words("maybe", Form::Flag),
            "Invalid [maybe]. Blocking only accepts 'true' or 'false'."
        );
        assert_eq!(check("TRUE", Form::Flag).ok(), Some(()));
        let size = Form::Long("max_log_size");
        assert_eq!(words("1G", size), "max_log_size: can not convert \"1G\" to a long");
    }
}
