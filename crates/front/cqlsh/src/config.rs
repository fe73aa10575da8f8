//! `cqlshrc`: sections of `name = value`.
//!
//! Owns: the file's grammar (Python's ConfigParser without interpolation) and look-ups with types.
//! Never: opens files; what a setting does.

use std::collections::BTreeMap;

/// A parsed file; names of options in lower case, the later of two wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    sections: BTreeMap<String, Vec<(String, String)>>,
}

impl Config {
    /// Reads the text. Lines that are neither section, option nor continuation are an error.
    ///
    /// # Errors
    /// The line that makes no sense.
    pub(crate) fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let mut section: Option<String> = None;
        for (number, line) in text.lines().enumerate() {
            let bare = line.trim();
            if bare.is_empty() || bare.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = Some(name.to_owned());
                config.sections.entry(name.to_owned()).or_default();
                continue;
            }
            let Some(options) = section.as_ref().and_then(|name| config.sections.get_mut(name))
            else {
                return Err(format!("line {}: no section before \"{bare}\"", number + 1));
            };
            if line.starts_with([' ', '\t'])
                && let Some((_, value)) = options.last_mut()
            {
                value.push('\n');
                value.push_str(bare);
                continue;
            }
            let Some(at) = bare.find(['=', ':']) else {
                return Err(format!("line {}: no value in \"{bare}\"", number + 1));
            };
            let (name, value) = bare.split_at(at);
            let value = value.get(1..).unwrap_or_default().trim().to_owned();
            options.push((name.trim().to_lowercase(), value));
        }
        Ok(config)
    }

    /// All options of a section, in their order.
    pub(crate) fn section(&self, section: &str) -> &[(String, String)] {
        self.sections.get(section).map_or(&[], Vec::as_slice)
    }

    /// Returns true if the file has the section.
    pub(crate) fn has(&self, section: &str) -> bool {
        self.sections.contains_key(section)
    }

    /// An option.
    pub(crate) fn get(&self, section: &str, name: &str) -> Option<&str> {
        self.section(section)
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// An option that is a number.
    ///
    /// # Errors
    /// The option is set, but not to a number.
    pub(crate) fn number<T: std::str::FromStr>(
        &self,
        section: &str,
        name: &str,
    ) -> Result<Option<T>, String> {
        self.get(section, name)
            .map(|value| {
                value.parse().map_err(|_| format!("[{section}] {name}: \"{value}\" is no number"))
            })
            .transpose()
    }

    /// An option that is on or off.
    ///
    /// # Errors
    /// The option is set, but to neither.
    pub(crate) fn switch(&self, section: &str, name: &str) -> Result<Option<bool>, String> {
        let Some(value) = self.get(section, name) else { return Ok(None) };
        match value.to_lowercase().as_str() {
            "1" | "yes" | "true" | "on" => Ok(Some(true)),
            "0" | "no" | "false" | "off" => Ok(Some(false)),
            _ => Err(format!("[{section}] {name}: \"{value}\" is not a boolean")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_hold_options_and_comments_hold_nothing() {
        let config = Config::parse(
            "; comment\n[ui]\ncolor = on\n# color = off\nTime_Format: %d\n[copy:ks.t]\nnull = N\n",
        )
        .unwrap();
        assert_eq!(config.switch("ui", "color"), Ok(Some(true)));
        assert_eq!(config.get("ui", "time_format"), Some("%d"));
        assert_eq!(config.get("copy:ks.t", "null"), Some("N"));
        assert_eq!(config.get("ui", "null"), None);
        assert!(config.has("ui") && !config.has("copy"));
    }

    #[test]
    fn lines_that_make_no_sense_are_named() {
        assert!(Config::parse("a = 1\n").unwrap_err().contains("line 1"));
        assert!(Config::parse("[a]\nb\n").unwrap_err().contains("line 2"));
        let config = Config::parse("[a]\nb = x\n").unwrap();
        assert!(config.switch("a", "b").is_err());
        assert!(config.number::<u16>("a", "b").is_err());
    }
}
