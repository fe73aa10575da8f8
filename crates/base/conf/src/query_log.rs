//! `full_query_logging_options` of Cassandra 5.0.
//!
//! Owns: the keys with their forms and defaults. Never: decides which statement is written (crate `query-logger`), opens
//! a file.
//! Source: Cassandra 5.0 `FullQueryLoggerOptions`, `BinLogOptions`.

use std::collections::BTreeMap;

use crate::binlog::{BinLogOptions, read_map, text};
use crate::encryption::{UNKNOWN, WrongKey};
use crate::value::{Range, Refusal, Value};
use crate::yaml::Node;

/// `full_query_logging_options`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryLogOptions {
    /// `log_dir`; `None`: `nodetool enablefullquerylog` needs `--path`.
    pub log_dir: Option<String>,
    /// Queue and files.
    pub log: BinLogOptions,
}

impl QueryLogOptions {
    /// Reads a map, or its text as written in the environment and on the command line.
    ///
    /// # Errors
    /// Every wrong key.
    pub fn parse(node: &Node) -> Result<QueryLogOptions, Vec<WrongKey>> {
        let mut options = QueryLogOptions::default();
        read_map(node, |key, value| options.set(key, value))?;
        Ok(options)
    }

    /// Returns these options with some keys changed.
    ///
    /// # Errors
    /// The first wrong key, with the expected form.
    pub fn with(&self, changes: &BTreeMap<String, String>) -> Result<QueryLogOptions, String> {
        let mut changed = self.clone();
        for (key, value) in changes {
            let set = changed.set(key, &Node::scalar(value));
            set.map_err(|expected| format!("{key} expects {expected}, not \"{value}\""))?;
        }
        Ok(changed)
    }

    fn set(&mut self, key: &str, value: &Node) -> Result<(), String> {
        match key {
            "log_dir" => self.log_dir = Some(text(value)?).filter(|dir| !dir.is_empty()),
            _ => return self.log.set(key, value).unwrap_or_else(|| Err(UNKNOWN.to_owned())),
        }
        Ok(())
    }

    /// Returns the keys that `nodetool getfullquerylog` prints with their values, in its order.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let directory = ("log_dir", self.log_dir.clone().unwrap_or_default());
        std::iter::once(directory).chain(self.log.rows()).collect()
    }
}

impl Value for QueryLogOptions {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        QueryLogOptions::parse(node).map_err(|_| Refusal::Form)
    }
    fn form() -> String {
        "a map of keys of the full query log".into()
    }
    fn render(&self) -> String {
        if *self == QueryLogOptions::default() {
            return String::new();
        }
        let quoted = |value: &str| format!("'{}'", value.replace('\'', "''"));
        let mut parts: Vec<String> =
            self.rows().iter().map(|(name, value)| format!("{name}: {}", quoted(value))).collect();
        if self.log.allow_nodetool_archive_command {
            parts.push("allow_nodetool_archive_command: 'true'".to_owned());
        }
        format!("{{{}}}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn parse(text: &str) -> Result<QueryLogOptions, Vec<String>> {
        let parsed = QueryLogOptions::parse(&yaml::parse(text).unwrap());
        parsed.map_err(|wrong| {
            wrong.into_iter().map(|w| format!("{}: {}", w.key, w.expected)).collect()
        })
    }

    #[test]
    fn cassandras_keys_are_read_and_printed_in_the_order_of_getfullquerylog() {
        let read = parse(
            "{log_dir: /q, roll_cycle: daily, block: false, max_queue_weight: 5, max_log_size: 6, \
             archive_command: '/x %path', allow_nodetool_archive_command: true, max_archive_retries: 7}",
        )
        .unwrap();
        let rows: Vec<String> =
            read.rows().iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            rows.join(" "),
            "log_dir=/q archive_command=/x %path roll_cycle=DAILY block=false max_log_size=6 max_queue_weight=5 \
             max_archive_retries=7"
        );
        assert_eq!(parse(&read.render()).unwrap(), read);
        assert_eq!(QueryLogOptions::default().render(), "");
    }

    #[test]
    fn every_wrong_key_is_named_with_its_form() {
        let check = |text: &str, key: &str, part: &str| {
            let errors = parse(text).unwrap_err();
            assert!(errors.iter().any(|e| e.starts_with(key) && e.contains(part)), "{errors:?}");
        };
        check("{enabled: true}", "enabled:", "known key");
        check("{block: maybe}", "block:", "true or false");
        check("{roll_cycle: FOO}", "roll_cycle:", "HOURLY");
        check("{archive_command: /bin/true}", "archive_command:", "%path");
        check("{max_queue_weight: 0}", "max_queue_weight:", "above 0");
        check("{max_archive_retries: -1}", "max_archive_retries:", "whole number");
        assert_eq!(parse("{a: 1, b: 2}").unwrap_err().len(), 2);
        let changed = QueryLogOptions::default()
            .with(&BTreeMap::from([("block".to_owned(), "false".to_owned())]));
        assert!(!changed.unwrap().log.block);
    }
}
