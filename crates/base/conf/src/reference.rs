//! The reference of all settings as Markdown, made from the table.
//!
//! Owns: `docs/user/configuration.md`, which `cargo xtask tidy` holds equal to it.

use core::fmt::Write;

use crate::options::{Status, settings};
use crate::{known, spelling};

const HEAD: &str = "\
# Configuration

<!-- Made from the table in crates/base/conf by `cargo xtask reference`; do not edit. -->

`helenus server` reads, each over the one before: the defaults below, a `cassandra.yaml` given with
`--config FILE` or `HELENUS_CONFIG`, the environment (`HELENUS_` and the name in capitals:
`HELENUS_NATIVE_TRANSPORT_PORT=9142`), the command line (`--native-transport-port 9142`; dashes and
underscores are the same). Cassandra's old spellings (`read_request_timeout_in_ms: 5000`) are read
too. A wrong value is an error with its line and the expected form.

Durations are written `5s`, `500ms`, `10m`, `3h`, `2d`, `500us`; sizes `64MiB`, `4KiB`, `100B`;
rates `64MiB/s`; memory also `4G`, `512M`.

A setting marked *not yet* is read and checked and has no effect; it is named in a warning when it
is set. One marked *not needed* has none either, as there is nothing here that it could bound; it is
named when it is not its default. One marked *refused* protects data or access and is not there yet: any other value than the
default stops the start.
";

/// The text of `docs/user/configuration.md`.
pub fn reference_markdown() -> String {
    let mut out = String::from(HEAD);
    let mut section = "";
    for setting in settings() {
        if setting.section != section {
            section = setting.section;
            let _ = write!(out, "\n## {section}\n");
        }
        let mark = match setting.status {
            Status::Supported => "",
            Status::NotYet => " *not yet*",
            Status::NotNeeded => " *not needed*",
            Status::Protects => " *refused*",
        };
        let default = match setting.default.as_str() {
            "" => "unset".to_owned(),
            text => format!("`{text}`"),
        };
        let _ = write!(out, "\n`{}`{mark}: {} Default {default}", setting.name, setting.help);
        if let Some((min, max)) = &setting.range
            && max.len() < 12
        {
            let _ = write!(out, ", from {min} to {max}");
        } else if let Some((min, _)) = &setting.range {
            let _ = write!(out, ", from {min}");
        }
        let _ = write!(out, "; {}.", setting.form);
        let old: Vec<String> =
            spelling::spellings(setting.name).map(|(old, _)| format!("`{old}`")).collect();
        if !old.is_empty() {
            let _ = write!(out, " Also {}.", old.join(", "));
        }
        out.push('\n');
    }
    out.push_str("\n## Known without effect\n\nSettings of Cassandra 5.0 that are read over; they are named in a warning when they are set.\n\n");
    for (name, _) in known::NOT_YET {
        let _ = writeln!(out, "- `{name}`");
    }
    out.push_str("\n## Asking for protection\n\nSettings of Cassandra 5.0 for protection that is not there yet; asking for it stops the start.\n\n");
    for (name, what) in known::PROTECTS {
        let _ = writeln!(out, "- `{name}`: {what}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_in_the_reference_once() {
        let text = reference_markdown();
        for (name, _) in crate::options::NAMES {
            assert_eq!(text.matches(&format!("\n`{name}`")).count(), 1, "{name}");
        }
        assert!(text.contains("Also `read_request_timeout_in_ms`."));
    }

    #[test]
    fn every_default_is_accepted_as_a_value() {
        for setting in settings().iter().filter(|s| !s.default.is_empty()) {
            let mut options = crate::Options::default();
            let node = crate::yaml::Node::scalar(setting.default.clone());
            assert_eq!(options.set(setting.name, &node), Some(Ok(())), "{}", setting.name);
            assert_eq!(options, crate::Options::default(), "{}", setting.name);
        }
    }

    #[test]
    fn every_help_is_a_sentence() {
        for setting in settings() {
            assert!(setting.help.ends_with('.') && setting.help.len() > 10, "{}", setting.name);
        }
    }
}
