//! `nodetool getguardrailsconfig`. Source: `GuardrailsConfigCommand` of Cassandra 5.1; 5.0 has these
//! numbers in JMX only.

use super::format::Table;
use crate::model::GuardrailReport;

/// Values of `-c`, in the order of Cassandra's messages.
pub const CATEGORIES: [&str; 4] = ["values", "thresholds", "flags", "others"];

/// Selection of guardrails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// One of [`CATEGORIES`].
    pub category: Option<String>,
    /// Its name, or that of one of its settings.
    pub name: Option<String>,
    /// Warning and failing thresholds on lines of their own.
    pub expand: bool,
}

fn category(name: &str) -> &'static str {
    if name.ends_with("_enabled") {
        "flags"
    } else if name.ends_with("_threshold") {
        "thresholds"
    } else if ["_disallowed", "_ignored", "_warned"].iter().any(|end| name.ends_with(end)) {
        "values"
    } else {
        "others"
    }
}

/// Returns the table, or a single value if one was requested.
///
/// # Errors
/// There is none of that name.
pub fn guardrails(all: &[GuardrailReport], wanted: &Wanted) -> Result<String, String> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for kind in ["flags", "thresholds", "values", "others"] {
        for guardrail in all.iter().filter(|g| category(&g.name) == kind) {
            let settings = guardrail.settings.iter().filter(|(setting, _)| match &wanted.name {
                Some(name) => *name == guardrail.name || name == setting,
                None => wanted.category.as_deref().is_none_or(|category| category == kind),
            });
            let settings: Vec<&(String, String)> = settings.collect();
            match settings.as_slice() {
                [] => {}
                [(_, value)] if !wanted.expand => rows.push((&guardrail.name, value.clone())),
                several if wanted.expand => {
                    rows.extend(several.iter().map(|(name, value)| (name.as_str(), value.clone())));
                }
                several => {
                    let values: Vec<&str> = several.iter().map(|(_, v)| v.as_str()).collect();
                    rows.push((&guardrail.name, format!("[{}]", values.join(", "))));
                }
            }
        }
    }
    if let Some(name) = &wanted.name
        && rows.is_empty()
    {
        return Err(format!("Guardrail {name} not found."));
    }
    let mut table = Table::new(" ");
    match rows.as_slice() {
        [(_, value)] if wanted.category.is_none() => table.add(&[value]),
        rows => rows.iter().for_each(|(name, value)| table.add(&[name, value])),
    }
    let mut out = String::new();
    table.print(&mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<GuardrailReport> {
        let report = |name: &str, settings: &[(&str, &str)]| GuardrailReport {
            name: name.to_owned(),
            settings: settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        };
        let tables = [("tables_fail_threshold", "9"), ("tables_warn_threshold", "-1")];
        vec![
            report("group_by_enabled", &[("group_by_enabled", "true")]),
            report("table_properties_warned", &[("table_properties_warned", "[]")]),
            report("tables_threshold", &tables),
            report("user_timestamps_enabled", &[("user_timestamps_enabled", "false")]),
        ]
    }

    #[test]
    fn tables_are_cassandras() {
        let check = |wanted: Wanted, expected: &str| {
            assert_eq!(guardrails(&all(), &wanted).unwrap(), expected, "{wanted:?}");
        };
        let name = |name: &str| Some(name.to_owned());
        check(
            Wanted::default(),
            "group_by_enabled        true   \nuser_timestamps_enabled false  \n\
             tables_threshold        [9, -1]\ntable_properties_warned []     \n",
        );
        check(
            Wanted { expand: true, category: name("thresholds"), ..Wanted::default() },
            "tables_fail_threshold 9 \ntables_warn_threshold -1\n",
        );
        check(
            Wanted { category: name("values"), ..Wanted::default() },
            "table_properties_warned []\n",
        );
        check(Wanted { name: name("group_by_enabled"), ..Wanted::default() }, "true\n");
        check(Wanted { name: name("tables_threshold"), ..Wanted::default() }, "[9, -1]\n");
        check(Wanted { name: name("tables_warn_threshold"), ..Wanted::default() }, "-1\n");
        let unknown = Wanted { name: name("nonsense"), ..Wanted::default() };
        assert_eq!(guardrails(&all(), &unknown), Err("Guardrail nonsense not found.".to_owned()));
    }
}
