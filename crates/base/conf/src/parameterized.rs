//! A class of Cassandra's with parameters: the value of settings that select an implementation.
//!
//! Owns: its YAML form. Never: which classes exist, what their parameters mean.
//! Source: Cassandra 5.0 `ParameterizedClass`.

use std::collections::BTreeMap;

use crate::value::{Range, Refusal, Value};
use crate::yaml::{Node, NodeKind};

/// `{class_name: …, parameters: {…}}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterizedClass {
    /// Name of the class, with or without a package.
    pub class_name: String,
    /// Parameters by name, as text.
    pub parameters: BTreeMap<String, String>,
}

impl ParameterizedClass {
    /// Returns class and parameters in one map, with the class under `class`: the form of table
    /// options.
    pub fn as_table_option(&self) -> BTreeMap<String, String> {
        let mut map = self.parameters.clone();
        map.insert("class".to_owned(), self.class_name.clone());
        map
    }
}

/// Reads parameters: a map, or a list of one map.
fn parameters(node: &Node) -> Result<BTreeMap<String, String>, Refusal> {
    match &node.kind {
        NodeKind::Null => Ok(BTreeMap::new()),
        NodeKind::List(items) => match items.as_slice() {
            [] => Ok(BTreeMap::new()),
            [one] => parameters(one),
            _ => Err(Refusal::Form),
        },
        NodeKind::Map(entries) => entries
            .iter()
            .map(|entry| {
                let value = entry.value.text().ok_or(Refusal::Form)?;
                Ok((entry.key.clone(), value.to_owned()))
            })
            .collect(),
        NodeKind::Scalar(_) => Err(Refusal::Form),
    }
}

impl Value for ParameterizedClass {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        let class = match &node.kind {
            NodeKind::List(items) => match items.as_slice() {
                [one] => return ParameterizedClass::read(one, Range::ALL),
                _ => return Err(Refusal::Form),
            },
            NodeKind::Scalar(text) => text.as_str(),
            NodeKind::Map(entries) => {
                let known = |key: &str| matches!(key, "class_name" | "parameters");
                if entries.iter().any(|entry| !known(&entry.key)) {
                    return Err(Refusal::Form);
                }
                node.get("class_name").and_then(Node::text).ok_or(Refusal::Form)?
            }
            NodeKind::Null => return Err(Refusal::Form),
        };
        if class.trim().is_empty() {
            return Err(Refusal::Form);
        }
        let parameters = node.get("parameters").map_or_else(|| Ok(BTreeMap::new()), parameters)?;
        Ok(ParameterizedClass { class_name: class.trim().to_owned(), parameters })
    }
    fn form() -> String {
        "a class_name with parameters".into()
    }
    fn render(&self) -> String {
        let parameters: Vec<String> =
            self.parameters.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{{class_name: {}, parameters: {{{}}}}}", self.class_name, parameters.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<ParameterizedClass, Refusal> {
        ParameterizedClass::read(&crate::yaml::parse(yaml).unwrap(), Range::ALL)
    }

    #[test]
    fn a_class_has_its_parameters_in_every_form_that_cassandra_reads() {
        // The value of cassandra_latest.yaml.
        let latest = "class_name: UnifiedCompactionStrategy\nparameters:\n  scaling_parameters: T4\n  \
                      max_sstables_to_compact: 64\n  sstable_growth: 0.3333333333333333\n";
        let found = read(latest).unwrap();
        assert_eq!(found.class_name, "UnifiedCompactionStrategy");
        let map = found.as_table_option();
        let expected = [
            ("class", "UnifiedCompactionStrategy"),
            ("max_sstables_to_compact", "64"),
            ("scaling_parameters", "T4"),
            ("sstable_growth", "0.3333333333333333"),
        ];
        assert!(map.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expected), "{map:?}");
        assert_eq!(read(&found.render()), Ok(found.clone()));
        let in_list = "{class_name: A, parameters: [{b: 1}]}";
        assert_eq!(read(in_list).unwrap().parameters["b"], "1");
        assert_eq!(read("A").unwrap().class_name, "A");
        assert_eq!(read("{class_name: A}").unwrap().parameters.len(), 0);
    }

    #[test]
    fn what_is_no_class_with_parameters_is_refused() {
        for wrong in [
            "{parameters: {a: b}}",
            "{class_name: ''}",
            "{class_name: A, parameter: {a: b}}",
            "{class_name: A, parameters: b}",
            "{class_name: A, parameters: {a: {b: c}}}",
            "{class_name: A, parameters: [{a: b}, {c: d}]}",
            "[A, B]",
        ] {
            assert_eq!(read(wrong), Err(Refusal::Form), "{wrong}");
        }
    }
}
