//! Literals that may become bound values.
//!
//! A statement is first written with every literal marked, in both of its forms: as CQL and as
//! [`encode_all`](crate::value::encode_all) reads it. Then [`settle`] decides which of them stay text.

use super::random::Random;

const BEGIN: char = '\u{1}';
const MIDDLE: char = '\u{2}';
const END: char = '\u{3}';
const NEVER: char = '\u{5}';
const EXACT: char = '\u{4}';

/// A literal in both forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The literal in CQL.
    pub text: String,
    /// The literal as a bound value.
    pub bound: String,
}

impl Literal {
    /// Builds a literal that reads the same in both forms.
    pub fn same(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { bound: text.clone(), text }
    }

    /// It stays CQL: drivers send sets and maps in order, which this crate does not know.
    #[must_use]
    pub fn never_bound(self) -> Self {
        Self { bound: NEVER.to_string(), ..self }
    }

    /// With the marks.
    #[must_use]
    pub fn marked(&self) -> String {
        if self.bound.contains(NEVER) {
            return self.text.clone();
        }
        format!("{BEGIN}{}{MIDDLE}{}{END}", self.text, self.bound)
    }

    /// With the marks; never bound as anything else.
    ///
    /// Without its timestamp a write would have another one on each server, and of an empty value
    /// Cassandra fails inside.
    #[must_use]
    pub fn marked_exactly(&self) -> String {
        format!("{BEGIN}{}{MIDDLE}{}{EXACT}{END}", self.text, self.bound)
    }
}

/// A statement, and the values of its markers when it is to be prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The CQL.
    pub text: String,
    /// Bound values in order; `None` is a statement that is not prepared.
    pub values: Option<Vec<String>>,
}

impl Statement {
    /// A statement without bound values.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), values: None }
    }

    /// The statement and its values, to be read.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.values {
            None => self.text.clone(),
            Some(values) => format!("{} <- ({})", self.text, values.join(", ")),
        }
    }
}

/// The text with all literals as CQL.
#[must_use]
pub fn plain(marked: &str) -> String {
    each(marked, |literal| literal.text.clone())
}

/// Makes markers of some literals: of none most of the time.
pub fn settle(marked: &str, random: &mut Random) -> Statement {
    if !random.percent(30) {
        return Statement::plain(plain(marked));
    }
    let (all, named) = (random.percent(50), random.percent(20));
    let mut values = Vec::new();
    let mut is_odd = false;
    let deletes = marked.contains("DELETE");
    let text = each(marked, |literal| {
        if !all && random.percent(50) {
            return literal.text.clone();
        }
        // One odd value at most: which of two is reported is another question.
        values.push(match (literal.bound.strip_suffix(EXACT), random.below(100)) {
            (Some(exact), _) => exact.to_owned(),
            (None, odd) if is_odd || odd > 7 => literal.bound.clone(),
            (None, odd) => {
                is_odd = true;
                match odd % 3 {
                    // A null bound of a range is nothing, or Cassandra fails inside.
                    0 if !deletes => "null".to_owned(),
                    1 => "raw(0x0001020304)".to_owned(),
                    _ => "unset".to_owned(),
                }
            }
        });
        match named {
            true => format!(":n{}", values.len()),
            false => "?".to_owned(),
        }
    });
    Statement { text, values: Some(values) }
}

/// Returns true if a literal may be bound.
#[must_use]
pub fn is_marked(one: &str) -> bool {
    one.starts_with(BEGIN)
}

/// The values of an IN as one: `(a, b)` or a list.
#[must_use]
pub fn list(marked: &[String]) -> Literal {
    let all = |of: fn(&Literal) -> String| {
        let parts: Vec<String> = marked.iter().map(|one| each(one, of)).collect();
        parts.join(", ")
    };
    Literal {
        text: format!("({})", all(|literal| literal.text.clone())),
        bound: format!("[{}]", all(|literal| literal.bound.clone())),
    }
}

fn each(marked: &str, mut replace: impl FnMut(&Literal) -> String) -> String {
    let mut out = String::new();
    let mut rest = marked;
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        out.push_str(before);
        let (literal, after) = behind.split_once(END).unwrap_or((behind, ""));
        let (text, bound) = literal.split_once(MIDDLE).unwrap_or((literal, literal));
        out.push_str(&replace(&Literal { text: text.to_owned(), bound: bound.to_owned() }));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_literals_become_text_or_markers() {
        let literal = Literal { text: "'1970-01-02'".to_owned(), bound: "1".to_owned() };
        let marked = format!("a = {} AND b = {}", literal.marked(), Literal::same("2").marked());
        assert_eq!(plain(&marked), "a = '1970-01-02' AND b = 2");
        let settled: Vec<Statement> =
            (0..200).map(|seed| settle(&marked, &mut Random::new(seed))).collect();
        let values = |s: &Statement| s.values.clone();
        let both = settled.iter().find(|s| s.text == "a = ? AND b = ?" && s.values.is_some());
        let both = both.expect("one with both bound");
        assert_eq!(values(both).map(|v| v.len()), Some(2));
        assert!(settled.iter().any(|s| s.text == "a = :n1 AND b = :n2"));
        assert!(settled.iter().any(|s| values(s) == Some(vec!["1".to_owned(), "2".to_owned()])));
        assert!(settled.iter().any(|s| s.values.is_none()));
    }
}
