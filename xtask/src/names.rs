//! Names that the whole workspace shares: invariants, rare-path probes, fault points.
//!
//! A module's map declares an invariant as `INV-name-1: …`. Its name is quoted where it is asserted
//! (in the text of an assertion) or by the test or checker that would fail without it. A declared
//! name without a quote is a promise that nothing enforces. It fails tidy unless
//! `xtask/unchecked-invariants.txt` lists it; that list only shrinks.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::files;

/// Declared invariants that nothing checks yet, one name a line.
const UNCHECKED: &str = "xtask/unchecked-invariants.txt";

/// Where a name stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Uses {
    /// Declarations, as `path:line`.
    declared: Vec<String>,
    /// The first quotation in an assertion or a test.
    checked: Option<String>,
    /// The first reference of another kind.
    referenced: Option<String>,
}

/// Names that one walk over the sources found.
#[derive(Default)]
struct Names {
    invariants: BTreeMap<String, Uses>,
    /// `reached!` and `chaos!` by name.
    probes: BTreeMap<String, Vec<String>>,
}

/// Returns violations of the rules of names, a sentence each.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut names = Names::default();
    for path in files::of_repository(root, &["rs"])? {
        let shown = files::shown(root, &path);
        if !shown.starts_with("xtask/") {
            names.read(&shown, &std::fs::read_to_string(&path)?);
        }
    }
    let listed = std::fs::read_to_string(root.join(UNCHECKED)).unwrap_or_default();
    let listed: Vec<&str> =
        listed.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    Ok(names.violations(&listed))
}

impl Names {
    fn read(&mut self, shown: &str, source: &str) {
        let whole_file = shown.contains("/tests/")
            || shown.ends_with("tests.rs")
            || shown.starts_with("sim/")
            || shown.starts_with("conformance/");
        let mut is_test = whole_file;
        for (number, line) in (1..).zip(source.lines()) {
            let trimmed = line.trim_start();
            is_test |= trimmed.starts_with("#[cfg(test)]") && !source_declares_only(source, number);
            let place = || format!("{shown}:{number}");
            for (name, at, is_declaration) in invariants_of(line) {
                let uses = self.invariants.entry(name).or_default();
                let is_text = line.get(..at).is_some_and(|before| before.contains('"'))
                    || is_inside_text(trimmed);
                if trimmed.starts_with("//!") && is_declaration {
                    uses.declared.push(place());
                } else if is_test || (is_text && !trimmed.starts_with("//")) {
                    uses.checked.get_or_insert_with(place);
                } else {
                    uses.referenced.get_or_insert_with(place);
                }
            }
            if !trimmed.starts_with("//") && !is_test {
                for macro_name in ["reached!(\"", "chaos!(\""] {
                    for (at, _) in line.match_indices(macro_name) {
                        let rest = line.get(at + macro_name.len()..).unwrap_or_default();
                        if let Some((name, _)) = rest.split_once('"') {
                            self.probes.entry(name.to_owned()).or_default().push(place());
                        }
                    }
                }
            }
        }
    }

    fn violations(&self, listed: &[&str]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, uses) in &self.invariants {
            let is_listed = listed.contains(&name.as_str());
            match (uses.declared.as_slice(), &uses.checked) {
                ([], checked) => {
                    let place = checked.as_ref().or(uses.referenced.as_ref());
                    let place = place.map_or("", String::as_str);
                    wrong.push(format!("{place}: INV-{name} is declared in no module's map"));
                }
                ([place, others @ ..], _) if !others.is_empty() => wrong.push(format!(
                    "{place}: INV-{name} is declared in {} too: names are unique",
                    others.join(", ")
                )),
                ([place, ..], None) if !is_listed => wrong.push(format!(
                    "{place}: INV-{name} is not checked: quote its name in the assertion or at the test that \
                     would fail without it"
                )),
                (_, Some(place)) if is_listed => wrong.push(format!(
                    "{UNCHECKED}: INV-{name} is checked at {place}: remove its line"
                )),
                _ => {}
            }
        }
        for name in listed.iter().filter(|name| !self.invariants.contains_key(**name)) {
            wrong.push(format!("{UNCHECKED}: INV-{name} is declared nowhere: remove its line"));
        }
        for (name, places) in &self.probes {
            let is_plain =
                name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            if places.len() > 1 {
                wrong.push(format!(
                    "{}: probe \"{name}\" stands several times: names are unique",
                    places.join(", ")
                ));
            }
            if !is_plain || !name.contains('-') {
                wrong.push(format!(
                    "{}: probe \"{name}\" is not of the form area-what",
                    places.join(", ")
                ));
            }
        }
        wrong
    }
}

/// Returns true if the `#[cfg(test)]` of this line annotates something smaller than a module with a
/// body.
fn source_declares_only(source: &str, number: usize) -> bool {
    let next = source.lines().nth(number).unwrap_or_default().trim_start();
    !(next.starts_with("mod ") && next.ends_with('{'))
}

/// A continued string literal: neither code that begins a statement nor a comment.
fn is_inside_text(trimmed: &str) -> bool {
    trimmed.starts_with("INV-")
}

/// Names in a line, with their offset and whether a colon follows.
fn invariants_of(line: &str) -> Vec<(String, usize, bool)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("INV-") {
        let rest = line.get(at + 4..).unwrap_or_default();
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let name: &str = rest.split(|c| !is_part(c)).next().unwrap_or_default();
        let Some((words, digits)) = name.rsplit_once('-') else { continue };
        if !words.is_empty() && !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) {
            let is_declaration = rest.get(name.len()..).is_some_and(|after| after.starts_with(':'));
            found.push((name.to_owned(), at, is_declaration));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(sources: &[(&str, &str)], listed: &[&str]) -> Vec<String> {
        let mut names = Names::default();
        for (path, source) in sources {
            names.read(path, source);
        }
        names.violations(listed)
    }

    #[test]
    fn an_invariant_needs_an_assertion_or_a_test() {
        let map = "//! INV-x-1: it holds.\n";
        let asserted = format!("{map}fn f() {{ invariant!(a, \"INV-x-1: {{a}}\"); }}\n");
        let commented = format!("{map}fn f() {{}} // INV-x-1\n");
        assert_eq!(wrong(&[("crates/a/src/lib.rs", &asserted)], &[]), [""; 0]);
        assert_eq!(wrong(&[("crates/a/src/lib.rs", &commented)], &[]).len(), 1);
        assert_eq!(wrong(&[("crates/a/src/lib.rs", &commented)], &["x-1"]), [""; 0]);
        assert_eq!(wrong(&[("crates/a/src/lib.rs", &asserted)], &["x-1"]).len(), 1);
        let tested = "/// INV-x-1.\nfn a_test() {}\n";
        let both = [("crates/a/src/lib.rs", map), ("crates/a/src/tests.rs", tested)];
        assert_eq!(wrong(&both, &[]), [""; 0]);
        assert_eq!(wrong(&[("crates/a/src/tests.rs", tested)], &[]).len(), 1, "declared nowhere");
        assert_eq!(wrong(&[], &["x-9"]).len(), 1, "listed and declared nowhere");
    }

    #[test]
    fn names_are_unique() {
        let map = "//! INV-x-1: it holds.\n";
        let test = "/// INV-x-1.\nfn a_test() {}\n";
        let twice = [("a/lib.rs", map), ("b/lib.rs", map), ("b/tests.rs", test)];
        assert_eq!(wrong(&twice, &[]).len(), 1);
        let probes = "fn f() { reached!(\"a-b\"); }\n";
        assert_eq!(wrong(&[("a/lib.rs", probes)], &[]), [""; 0]);
        assert_eq!(wrong(&[("a/lib.rs", probes), ("b/lib.rs", probes)], &[]).len(), 1);
        assert_eq!(wrong(&[("a/lib.rs", "fn f() { chaos!(\"Ab\"); }")], &[]).len(), 1);
    }
}
