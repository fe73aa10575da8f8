//! The reference of all settings as Markdown, generated from the table.
//!
//! Owns: `docs/user/configuration.md`, which `cargo xtask tidy` compares with it.

use core::fmt::Write;

use crate::options::{Status, settings};
use crate::{known, spelling};

const HEAD: &str = "\
# Configuration

<!-- Generated from the table in crates/base/conf by `cargo xtask reference`; do not edit. -->

`helenus server` reads its settings from four layers. A later layer overrides an earlier one:

1. the defaults below;
2. a `cassandra.yaml`, named by `--config FILE` or `HELENUS_CONFIG`;
3. the environment: `HELENUS_` and the name in capitals, `HELENUS_NATIVE_TRANSPORT_PORT=9043`;
4. the command line: `--native-transport-port 9043`; dashes and underscores are the same.

Cassandra's old spellings (`read_request_timeout_in_ms: 5000`) are accepted. A wrong value stops the start
with an error that names its line and the expected form. **An unknown name in the file or the environment only gives a
warning**: check the WARN lines after each change. On the command line, and as a key inside the maps of encryption and
of the audit log, it stops the start.

Relative paths count from the directory in which the server is started. Directories that are not set are below `workdir`.

| form | examples |
| --- | --- |
| duration | `5s`, `500ms`, `10m`, `3h`, `2d`, `500us` |
| size | `64MiB`, `4KiB`, `100B` |
| rate | `64MiB/s` |
| memory | `4G`, `512M`, and sizes |

Column *change*:

| word | meaning |
| --- | --- |
| live | SIGHUP puts a changed value in force; so does the command of [nodetool](nodetool.md) that is named |
| restart | a changed value takes effect at the next start |
| *no effect* | read and checked, not implemented yet; a warning names the setting when it is set |
| *not needed* | read and checked; nothing here depends on it. A warning names it when it is not its default |

Settings that ask for protection that does not exist stop the start: [the list](#asking-for-protection).

What `nodetool` changes lasts until the node stops.
";

/// Commands of nodetool that change a live setting, beside those of guardrails.
pub const SETTING_COMMANDS: &[(&str, &[&str])] = &[
    ("read_request_timeout", &["settimeout read"]),
    ("range_request_timeout", &["settimeout range"]),
    ("write_request_timeout", &["settimeout write"]),
    ("counter_write_request_timeout", &["settimeout counterwrite"]),
    ("cas_contention_timeout", &["settimeout cascontention"]),
    ("truncate_request_timeout", &["settimeout truncate"]),
    ("request_timeout", &["settimeout misc"]),
    ("hinted_handoff_enabled", &["enablehandoff", "disablehandoff"]),
    ("max_hint_window", &["setmaxhintwindow"]),
    ("hinted_handoff_throttle", &["sethintedhandoffthrottlekb"]),
    ("batchlog_replay_throttle", &["setbatchlogreplaythrottle"]),
    ("stream_throughput_outbound", &["setstreamthroughput"]),
    ("inter_dc_stream_throughput_outbound", &["setinterdcstreamthroughput"]),
    ("row_cache_size", &["setcachecapacity"]),
    ("counter_cache_size", &["setcachecapacity"]),
    ("concurrent_compactors", &["setconcurrentcompactors"]),
    ("compaction_throughput", &["setcompactionthroughput"]),
    ("snapshot_links_per_second", &["setsnapshotthrottle"]),
    ("incremental_backups", &["enablebackup", "disablebackup"]),
    ("log_level", &["setlogginglevel"]),
];
/// Section whose live settings one command changes.
const GUARDRAILS: &str = "Guardrails";

/// The command or signal that changes a live setting.
fn live(name: &str) -> String {
    let commands = SETTING_COMMANDS.iter().filter(|(setting, _)| *setting == name);
    let commands = commands.flat_map(|(_, commands)| commands.iter());
    let mut out = "live".to_owned();
    for command in commands {
        let _ = write!(out, ", `{command}`");
    }
    out
}

/// Returns the text of `docs/user/configuration.md`.
pub fn reference_markdown() -> String {
    let mut out = String::from(HEAD);
    let mut section = "";
    for setting in settings() {
        if setting.section != section {
            section = setting.section;
            let about = match section == GUARDRAILS {
                true => "`nodetool setguardrailsconfig` changes those that are live.\n\n",
                false => "",
            };
            let _ = write!(
                out,
                "\n## {section}\n\n{about}| name | default | change | meaning |\n| --- | --- | --- | --- |\n"
            );
        }
        let change = match (setting.status, setting.hot) {
            (Status::Supported, true) => live(setting.name),
            (Status::Supported, false) => "restart".to_owned(),
            (Status::NotYet, _) => "*no effect*".to_owned(),
            (Status::NotNeeded, _) => "*not needed*".to_owned(),
            (Status::Protects, _) => "*refused*".to_owned(),
        };
        let default = match setting.default.as_str() {
            "" => "unset".to_owned(),
            text => format!("`{text}`"),
        };
        let _ = write!(
            out,
            "| `{}` | {} | {change} | {} Value: {}",
            setting.name,
            cell(&default),
            cell(&setting.help),
            cell(&setting.form)
        );
        if let Some((min, max)) = &setting.range
            && max.len() < 12
        {
            let _ = write!(out, ", from {min} to {max}");
        } else if let Some((min, _)) = &setting.range {
            let _ = write!(out, ", from {min}");
        }
        out.push('.');
        let old: Vec<String> =
            spelling::spellings(setting.name).map(|(old, _)| format!("`{old}`")).collect();
        if !old.is_empty() {
            let _ = write!(out, " Also {}.", old.join(", "));
        }
        out.push_str(" |\n");
    }
    out.push_str(
        "\n## Known without effect\n\nSettings of Cassandra 5.0 that are accepted and ignored; a warning names them \
         when they are set.\n\n",
    );
    for (name, _) in known::NOT_YET {
        let _ = writeln!(out, "- `{name}`");
    }
    out.push_str(
        "\n## Asking for protection\n\nSettings of Cassandra 5.0 for protection that does not exist yet. A \
         configuration that asks for it stops the start.\n\n| name | protection |\n| --- | --- |\n",
    );
    for (name, what) in known::PROTECTS {
        let _ = writeln!(out, "| `{name}` | {what} |");
    }
    out
}

/// Escapes text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_in_the_reference_once() {
        let text = reference_markdown();
        for (name, _) in crate::options::NAMES {
            assert_eq!(text.matches(&format!("\n| `{name}` |")).count(), 1, "{name}");
        }
        assert!(text.contains("Also `read_request_timeout_in_ms`."));
    }

    #[test]
    fn commands_are_named_for_live_settings() {
        for (name, _) in SETTING_COMMANDS {
            assert!(settings().iter().any(|s| s.name == *name && s.hot), "{name}");
        }
        let text = reference_markdown();
        let row = "| `incremental_backups` | `false` | live, `enablebackup`, `disablebackup` |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("## Guardrails\n\n`nodetool setguardrailsconfig` changes"));
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
