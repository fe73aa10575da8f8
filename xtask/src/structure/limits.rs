//! The limits, the exceptions from them, and what breaks either.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use super::measure::Crate;

/// Modules in one cycle of imports.
pub const CYCLE: usize = 4;
/// Lines of a function.
pub const FUNCTION_LINES: usize = 70;
/// Files with an `impl` of one type.
const IMPL_FILES: usize = 6;
/// `pub` methods of one type.
const PUBLIC_METHODS: usize = 25;

/// One rule: a number of something must not be above its limit.
pub struct Rule {
    /// The table of the exceptions.
    pub name: &'static str,
    /// Counted things, as the page shows them.
    pub what: &'static str,
    /// The highest number that needs no exception.
    pub limit: usize,
}

/// All rules, in the order of the file and of the page.
pub const RULES: &[Rule] = &[
    Rule { name: "cycle", what: "modules of a crate in one cycle of imports", limit: CYCLE },
    Rule { name: "impl_files", what: "files with an `impl` of one type", limit: IMPL_FILES },
    Rule { name: "public_methods", what: "`pub` methods of one type", limit: PUBLIC_METHODS },
    Rule { name: "function_lines", what: "lines of a function", limit: FUNCTION_LINES },
    Rule { name: "tuple_parameters", what: "parameters of a tuple's type in a function", limit: 0 },
    Rule { name: "bool_parameters", what: "`bool` parameters of a `pub` function", limit: 0 },
];

/// Violations of limits: rule, then the thing, then its number.
pub type Findings = BTreeMap<&'static str, BTreeMap<String, usize>>;

/// Returns everything in `crates` that is above a limit.
pub fn findings(crates: &[Crate]) -> Findings {
    let mut found = Findings::new();
    let mut note = |rule: &Rule, name: String, number: usize| {
        if number > rule.limit {
            let slot = found.entry(rule.name).or_default().entry(name).or_default();
            *slot = (*slot).max(number);
        }
    };
    let [cycle, impl_files, public_methods, function_lines, tuples, bools] = RULES else {
        return found;
    };
    for c in crates {
        note(cycle, c.path.clone(), c.cycle.len());
        for (name, methods) in &c.types {
            let name = format!("{}: {name}", c.path);
            note(impl_files, name.clone(), methods.files.len());
            note(public_methods, name, methods.public_methods);
        }
        for function in &c.functions {
            note(function_lines, function.name.clone(), function.lines);
            note(tuples, function.name.clone(), function.tuple_parameters);
            note(bools, function.name.clone(), function.bool_parameters);
        }
    }
    found
}

struct Exception {
    number: usize,
    reason: String,
}

/// The lines of the file of exceptions.
#[derive(Default)]
pub struct Exceptions {
    lines: BTreeMap<String, BTreeMap<String, Exception>>,
}

impl Exceptions {
    /// Reads `[rule]` and `"name" = number # reason`.
    ///
    /// # Errors
    /// A line of another form, an unknown rule, a name that stands twice; each with its line's number.
    pub fn parse(text: &str) -> Result<Self> {
        let mut exceptions = Self::default();
        let mut rule: Option<String> = None;
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                if !RULES.iter().any(|rule| rule.name == name) {
                    bail!("line {number}: unknown rule \"{name}\"");
                }
                rule = Some(name.to_owned());
                continue;
            }
            let form = || format!("line {number}: not '\"name\" = number  # reason'");
            let rest = line.strip_prefix('"').with_context(form)?;
            let (name, rest) = rest.split_once('"').with_context(form)?;
            let (_, value) = rest.split_once('=').with_context(form)?;
            let (value, reason) = value.split_once('#').unwrap_or((value, ""));
            let exception = Exception {
                number: value.trim().parse().with_context(form)?,
                reason: reason.trim().to_owned(),
            };
            let rule = rule.clone().with_context(|| format!("line {number}: no rule yet"))?;
            let lines = exceptions.lines.entry(rule).or_default();
            if lines.insert(name.to_owned(), exception).is_some() {
                bail!("line {number}: \"{name}\" stands twice");
            }
        }
        Ok(exceptions)
    }

    /// The file's text.
    pub fn print(&self) -> String {
        let mut out = String::from(
            "# What is above a limit of `cargo xtask tidy`, and how far. Numbers fall, they do not rise; a new line\n\
             # says why. Written by `cargo xtask structure --accept`, which keeps the reasons.\n",
        );
        for rule in RULES {
            let _ = writeln!(out, "\n# {}: limit {}\n[{}]", rule.what, rule.limit, rule.name);
            for (name, exception) in self.lines.get(rule.name).into_iter().flatten() {
                let _ = write!(out, "\"{name}\" = {}", exception.number);
                if !exception.reason.is_empty() {
                    let _ = write!(out, "  # {}", exception.reason);
                }
                out.push('\n');
            }
        }
        out
    }

    /// How many things of a rule are above its limit.
    pub fn count(&self, rule: &str) -> usize {
        self.lines.get(rule).map_or(0, BTreeMap::len)
    }

    /// These exceptions with the numbers of `findings`, and the reasons of those that stay.
    pub fn accept(&self, findings: &Findings) -> Self {
        let mut lines: BTreeMap<String, BTreeMap<String, Exception>> = BTreeMap::new();
        for (rule, things) in findings {
            for (name, number) in things {
                let reason = self.get(rule, name).map_or_else(String::new, |e| e.reason.clone());
                let exception = Exception { number: *number, reason };
                lines.entry((*rule).to_owned()).or_default().insert(name.clone(), exception);
            }
        }
        Self { lines }
    }

    /// Returns a sentence for everything above its limit and its line.
    pub fn violations(&self, findings: &Findings) -> Vec<String> {
        let mut wrong = Vec::new();
        for rule in RULES {
            for (name, number) in findings.get(rule.name).into_iter().flatten() {
                let allowed = self.get(rule.name, name).map_or(rule.limit, |e| e.number);
                if *number > allowed {
                    wrong.push(format!(
                        "{name}: {}: {number}, allowed are {allowed}: make it less, or give it a line with its \
                         reason under [{}] in xtask/structure-exceptions.toml",
                        rule.what, rule.name
                    ));
                }
            }
        }
        wrong
    }

    fn get(&self, rule: &str, name: &str) -> Option<&Exception> {
        self.lines.get(rule)?.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: &'static str, name: &str, number: usize) -> Findings {
        [(rule, [(name.to_owned(), number)].into())].into()
    }

    #[test]
    fn a_number_may_fall_and_not_rise() {
        let text = "# words\n[cycle]\n\"crates/a\" = 9  # the old one\n";
        let exceptions = Exceptions::parse(text).unwrap();
        assert!(exceptions.violations(&found("cycle", "crates/a", 8)).is_empty());
        assert!(exceptions.violations(&found("cycle", "crates/a", 9)).is_empty());
        let wrong = exceptions.violations(&found("cycle", "crates/a", 10));
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("10, allowed are 9"), "{wrong:?}");
        let wrong = exceptions.violations(&found("cycle", "crates/b", 5));
        assert!(wrong[0].contains("5, allowed are 4"), "{wrong:?}");
    }

    #[test]
    fn what_is_accepted_keeps_its_reason_and_reads_back() {
        let exceptions = Exceptions::parse("[cycle]\n\"crates/a\" = 9  # the old one\n").unwrap();
        let printed = exceptions.accept(&found("cycle", "crates/a", 7)).print();
        assert!(printed.contains("\"crates/a\" = 7  # the old one\n"), "{printed}");
        assert_eq!(Exceptions::parse(&printed).unwrap().print(), printed);
        assert!(!exceptions.accept(&Findings::new()).print().contains("crates/a"));
    }

    #[test]
    fn lines_of_another_form_are_refused_with_their_number() {
        for (text, message) in [
            ("\"a\" = 1\n", "line 1: no rule yet"),
            ("[cycle]\na = 1\n", "line 2: not"),
            ("[cycle]\n\"a\" = x\n", "line 2: not"),
            ("[other]\n", "line 1: unknown rule \"other\""),
            ("[cycle]\n\"a\" = 1\n\"a\" = 2\n", "line 3: \"a\" stands twice"),
        ] {
            let error = format!("{:#}", Exceptions::parse(text).err().unwrap());
            assert!(error.contains(message), "{error}");
        }
    }
}
