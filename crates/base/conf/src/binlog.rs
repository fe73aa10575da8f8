//! Settings that the logs of requests share, like Cassandra's `BinLogOptions`: queue, files, archive command.
//!
//! Owns: their keys with forms and defaults, names of roll cycles, how a map of keys is read. Never: opens a file.
//! Source: Cassandra 5.0 `BinLogOptions`.

use core::time::Duration;

use crate::encryption::WrongKey;
use crate::value::{Range, Value};
use crate::yaml::{self, Node, NodeKind};

/// How often binary files roll: a name of Chronicle Queue's and its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollCycle {
    /// The name, as written.
    pub name: &'static str,
    /// The period; files begin at its multiples in UTC.
    pub period: Duration,
}

const MINUTE: u64 = 60;

/// All cycles that are accepted, with their periods in minutes.
const CYCLES: [(&str, u64); 17] = [
    ("MINUTELY", 1),
    ("FIVE_MINUTELY", 5),
    ("TEN_MINUTELY", 10),
    ("TWENTY_MINUTELY", 20),
    ("HALF_HOURLY", 30),
    ("HOURLY", 60),
    ("FAST_HOURLY", 60),
    ("LARGE_HOURLY", 60),
    ("XLARGE_HOURLY", 60),
    ("TWO_HOURLY", 120),
    ("FOUR_HOURLY", 240),
    ("SIX_HOURLY", 360),
    ("DAILY", 1440),
    ("FAST_DAILY", 1440),
    ("LARGE_DAILY", 1440),
    ("XLARGE_DAILY", 1440),
    ("HUGE_DAILY", 1440),
];

impl RollCycle {
    /// The default.
    pub const HOURLY: RollCycle =
        RollCycle { name: "HOURLY", period: Duration::from_secs(60 * MINUTE) };

    /// Returns the cycle of this name, in any case.
    ///
    /// # Errors
    /// The expected form.
    pub fn of_name(name: &str) -> Result<RollCycle, String> {
        let found = CYCLES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.trim()));
        match found {
            Some(&(name, minutes)) => {
                Ok(RollCycle { name, period: Duration::from_secs(minutes * MINUTE) })
            }
            None => Err("a roll cycle such as MINUTELY, FIVE_MINUTELY, HOURLY or DAILY".to_owned()),
        }
    }
}

/// Settings of the queue and the files of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinLogOptions {
    /// `archive_command`; empty: old files are deleted.
    pub archive_command: String,
    /// `roll_cycle`.
    pub roll_cycle: RollCycle,
    /// `block`: a full queue delays statements; false: it drops records.
    pub block: bool,
    /// `max_queue_weight`: bytes of queued records of the node.
    pub max_queue_weight: u64,
    /// `max_log_size`: bytes of files before the oldest is deleted.
    pub max_log_size: u64,
    /// `max_archive_retries`.
    pub max_archive_retries: u32,
    /// `allow_nodetool_archive_command`.
    pub allow_nodetool_archive_command: bool,
}

impl Default for BinLogOptions {
    fn default() -> Self {
        BinLogOptions {
            archive_command: String::new(),
            roll_cycle: RollCycle::HOURLY,
            block: true,
            max_queue_weight: 256 << 20,
            max_log_size: 16 << 30,
            max_archive_retries: 10,
            allow_nodetool_archive_command: false,
        }
    }
}

impl BinLogOptions {
    /// Sets a key. `None`: it is none of these.
    pub(crate) fn set(&mut self, key: &str, value: &Node) -> Option<Result<(), String>> {
        match key {
            "archive_command"
            | "roll_cycle"
            | "block"
            | "max_queue_weight"
            | "max_log_size"
            | "max_archive_retries"
            | "allow_nodetool_archive_command" => Some(self.set_known(key, value)),
            _ => None,
        }
    }

    fn set_known(&mut self, key: &str, value: &Node) -> Result<(), String> {
        match key {
            "archive_command" => self.archive_command = archive_command(&text(value)?)?,
            "roll_cycle" => self.roll_cycle = RollCycle::of_name(&text(value)?)?,
            "block" => self.block = flag(value)?,
            "max_queue_weight" => self.max_queue_weight = bytes(value)?,
            "max_log_size" => self.max_log_size = bytes(value)?,
            "max_archive_retries" => {
                let read = u32::read(value, Range { min: 0, max: i64::from(u32::MAX) });
                self.max_archive_retries = read.map_err(|_| "a whole number".to_owned())?;
            }
            _ => self.allow_nodetool_archive_command = flag(value)?,
        }
        Ok(())
    }

    /// The keys that `nodetool` prints with their values, in its order.
    pub(crate) fn rows(&self) -> [(&'static str, String); 6] {
        [
            ("archive_command", self.archive_command.clone()),
            ("roll_cycle", self.roll_cycle.name.to_owned()),
            ("block", self.block.to_string()),
            ("max_log_size", self.max_log_size.to_string()),
            ("max_queue_weight", self.max_queue_weight.to_string()),
            ("max_archive_retries", self.max_archive_retries.to_string()),
        ]
    }
}

/// Passes the keys of a map, or of its text as written in the environment and on the command line, to `set`, which
/// returns the expected form of a wrong one.
///
/// # Errors
/// Every wrong key.
pub(crate) fn read_map(
    node: &Node,
    mut set: impl FnMut(&str, &Node) -> Result<(), String>,
) -> Result<(), Vec<WrongKey>> {
    let wrong = |key: &str, expected: String, value: &Node| WrongKey {
        key: key.to_owned(),
        expected,
        value: value.clone(),
    };
    let parsed;
    let map = match node.text().map(str::trim).filter(|text| text.starts_with('{')) {
        Some(text) => {
            parsed = yaml::parse(text)
                .map_err(|error| vec![wrong("", format!("a map ({})", error.message), node)])?;
            &parsed
        }
        None => node,
    };
    let NodeKind::Map(entries) = &map.kind else {
        return Err(vec![wrong("", "a map with keys and values".to_owned(), node)]);
    };
    let mut errors = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.value.is_null()) {
        if let Err(expected) = set(&entry.key, &entry.value) {
            errors.push(wrong(&entry.key, expected, &entry.value));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Checks the form of an archive command: empty, or with `%path` in it.
///
/// # Errors
/// The expected form.
pub fn archive_command(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains("%path") {
        return Ok(text.to_owned());
    }
    Err("a command with %path in it, such as \"/path/to/script.sh %path\"".to_owned())
}

pub(crate) fn flag(node: &Node) -> Result<bool, String> {
    bool::read(node, Range::ALL).map_err(|_| bool::form())
}

pub(crate) fn text(node: &Node) -> Result<String, String> {
    node.text().map(|text| text.trim().to_owned()).ok_or_else(|| "a text".to_owned())
}

pub(crate) fn bytes(node: &Node) -> Result<u64, String> {
    let read = u64::read(node, Range { min: 1, max: i64::MAX });
    read.map_err(|_| "a number of bytes above 0".to_owned())
}
