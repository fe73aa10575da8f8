//! Statements and messages without their passwords.
//!
//! Source: the results of Cassandra 5.0's `PasswordObfuscator`.

use std::borrow::Cow;

const WORD: &str = "password";
/// Shown instead of a password.
pub const MASK: &str = "*******";

/// Returns the offset of the word `password` in any case.
fn find_word(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes().get(from..)?;
    let found = bytes.windows(WORD.len()).position(|w| w.eq_ignore_ascii_case(WORD.as_bytes()))?;
    Some(from + found)
}

/// Returns true if the word `password` is in the text, in any case.
pub fn has_word(text: &str) -> bool {
    find_word(text, 0).is_some()
}

/// Cuts a text that was not understood after the first word `password`.
pub fn cut(text: &str) -> Cow<'_, str> {
    match find_word(text, 0).and_then(|at| text.get(..at + WORD.len())) {
        Some(shown) => Cow::Owned(format!("{shown} {MASK}")),
        None => Cow::Borrowed(text),
    }
}

/// Replaces the password of a statement. A password that is not found as it was read is cut off.
pub fn mask<'t>(text: &'t str, password: &str) -> Cow<'t, str> {
    if password.is_empty() {
        return Cow::Borrowed(text);
    }
    let escaped = password.replace('\'', "''");
    replaced(text, &escaped)
        .or_else(|| replaced(text, password))
        .map_or_else(|| cut(text), Cow::Owned)
}

/// Replaces each occurrence of `secret` that follows a word `password`; `None` if there is none.
fn replaced(text: &str, secret: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    while let Some(word) = find_word(text, done) {
        let behind = word + WORD.len();
        // At least one character is between them.
        let from = text.get(behind..)?.chars().next().map_or(text.len(), |c| behind + c.len_utf8());
        let Some(at) = text.get(from..)?.find(secret).map(|at| from + at) else { break };
        out.push_str(text.get(done..at)?);
        out.push_str(MASK);
        done = at + secret.len();
    }
    if done == 0 {
        return None;
    }
    out.push_str(text.get(done..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_statement_is_replaced_wherever_it_follows_the_word() {
        let check = |text: &str, password: &str, expected: &str| {
            assert_eq!(mask(text, password), expected, "{text}");
        };
        check(
            "CREATE ROLE r WITH LOGIN = true AND PASSWORD = 'secret' AND SUPERUSER = false",
            "secret",
            "CREATE ROLE r WITH LOGIN = true AND PASSWORD = '*******' AND SUPERUSER = false",
        );
        check(
            "CREATE USER secret WITH password 'secret'",
            "secret",
            "CREATE USER secret WITH password '*******'",
        );
        check(
            "ALTER ROLE r WITH PASSWORD = 'it''s'",
            "it's",
            "ALTER ROLE r WITH PASSWORD = '*******'",
        );
        check(
            "ALTER ROLE r WITH PASSWORD = $$it's$$",
            "it's",
            "ALTER ROLE r WITH PASSWORD = $$*******$$",
        );
        check("ALTER ROLE r WITH PASSWORD = ''", "", "ALTER ROLE r WITH PASSWORD = ''");
        check("ALTER ROLE r WITH PASSWORD = 'pä'", "pä", "ALTER ROLE r WITH PASSWORD = '*******'");
        // A password that cannot be found is never shown.
        check("ALTER ROLE r WITH PASSWORD = 'x'", "other", "ALTER ROLE r WITH PASSWORD *******");
    }

    #[test]
    fn a_text_that_was_not_understood_ends_behind_the_word() {
        assert_eq!(cut("CREATE ROLE r WITH PassWord 'x' y"), "CREATE ROLE r WITH PassWord *******");
        assert_eq!(cut("SELECT pass"), "SELECT pass");
        assert_eq!(
            cut("Provided username é and/or password are incorrect"),
            "Provided username é and/or password *******"
        );
    }
}
