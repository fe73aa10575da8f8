//! Properties of `WITH …` by name, read as the types that they have.

use std::collections::BTreeMap;

use cql_syntax::ast::{Property, PropertyValue};

use crate::error::PlanError;

/// Properties by name; one given twice is an error.
pub(crate) struct Properties<'a> {
    by_name: BTreeMap<&'a str, &'a PropertyValue>,
}

impl<'a> Properties<'a> {
    pub(crate) fn new(properties: &'a [Property]) -> Result<Properties<'a>, PlanError> {
        let mut by_name = BTreeMap::new();
        for p in properties {
            if by_name.insert(p.name.text.as_str(), &p.value).is_some() {
                return Err(PlanError::syntax(format!(
                    "Multiple definitions for property '{}'",
                    p.name.text
                )));
            }
        }
        Ok(Properties { by_name })
    }

    pub(crate) fn only(&self, known: &[&str]) -> Result<(), PlanError> {
        match self.by_name.keys().find(|name| !known.contains(name)) {
            Some(name) => Err(PlanError::syntax(format!("Unknown property '{name}'"))),
            None => Ok(()),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<String>, PlanError> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(PropertyValue::Literal(l)) => Ok(Some(l.raw_text())),
            Some(PropertyValue::Id(id)) => Ok(Some(id.text.clone())),
            Some(PropertyValue::Map(_)) => Err(PlanError::syntax(format!(
                "Invalid value for property '{name}'. It should be a string"
            ))),
        }
    }

    pub(crate) fn map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, PlanError> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(PropertyValue::Map(entries)) => {
                Ok(Some(entries.iter().map(|(k, v)| (k.raw_text(), v.raw_text())).collect()))
            }
            Some(_) => Err(PlanError::syntax(format!(
                "Invalid value for property '{name}'. It should be a map."
            ))),
        }
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, PlanError> {
        let Some(value) = self.string(name)? else { return Ok(None) };
        match value.to_lowercase().as_str() {
            "1" | "true" | "yes" => Ok(Some(true)),
            "0" | "false" | "no" => Ok(Some(false)),
            _ => Err(PlanError::syntax(format!(
                "Invalid boolean value {value} for '{name}'. Positive values can be '1', 'true' \
                 or 'yes'. Negative values can be '0', 'false' or 'no'."
            ))),
        }
    }

    pub(crate) fn int(&self, name: &str) -> Result<Option<i32>, PlanError> {
        let Some(value) = self.string(name)? else { return Ok(None) };
        value
            .parse()
            .map(Some)
            .map_err(|_| PlanError::syntax(format!("Invalid integer value {value} for '{name}'")))
    }

    pub(crate) fn double(&self, name: &str) -> Result<Option<f64>, PlanError> {
        let Some(value) = self.string(name)? else { return Ok(None) };
        value
            .parse()
            .map(Some)
            .map_err(|_| PlanError::syntax(format!("Invalid double value {value} for '{name}'")))
    }
}
