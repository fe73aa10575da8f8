//! Statements without their passwords, for traces.

use std::borrow::Cow;

/// A statement without its password, for traces: their readers must not learn it.
pub fn without_password(text: &str) -> Cow<'_, str> {
    let lower = text.trim_start().to_ascii_lowercase();
    let gives_one = ["create", "alter"].iter().any(|verb| lower.starts_with(verb));
    let behind = |at: usize| at + (text.len() - lower.len()) + "password".len();
    match lower.find("password").filter(|_| gives_one).and_then(|at| text.get(..behind(at))) {
        Some(shown) => Cow::Owned(format!("{shown} *******")),
        None => Cow::Borrowed(text),
    }
}
